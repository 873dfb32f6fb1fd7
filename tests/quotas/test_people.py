"""Workspaces, members, bindings, accounts and tokens."""

from __future__ import annotations

from datetime import timedelta

import pytest
from django.db import IntegrityError, transaction
from django.utils import timezone

from quotas.actors import SYSTEM
from quotas.errors import Denied, Refused
from quotas.models import AuditEvent, Member, Role, Token, Workspace, WorkspaceQuota
from quotas.services import (
    add_member,
    archive_workspace,
    bind_quota,
    create_token,
    create_user,
    create_workspace,
    edit_workspace,
    hand_over,
    remove_member,
    revoke_token,
    set_default_quota,
    set_roles,
)
from quotas.specs import TokenSpec, UserSpec, WorkspaceSpec
from quotas.tokens import find_token
from tests.makers import Installation, denied, not_found, refused, submitted
from workloads.services import delete_workspace, unbind_quota


def member(here: Installation, name: str) -> Member:
    return Member.objects.get(workspace=here.workspace, user=here[name])


def test_a_workspace_comes_with_its_owner_and_a_default_quota(here: Installation) -> None:
    made = create_workspace(
        actor=here["platform"], spec=WorkspaceSpec("new", quotas=(here.root, here.quota), owner=here["stranger"])
    )
    assert list(made.members.values_list("user__username", "roles")) == [("stranger", ["owner"])]
    assert list(made.bindings.order_by("id").values_list("quota__name", "is_default")) == [
        ("quota-1", True),
        ("quota-1.1", False),
    ]
    entry = AuditEvent.objects.order_by("-id").first()
    assert entry is not None
    assert (entry.verb, entry.actor_name, entry.workspace_id) == ("workspace.created", "platform", made.pk)


def test_only_the_platform_makes_workspaces_and_binds_quotas(here: Installation) -> None:
    with denied("workspace.create"):
        create_workspace(actor=here["owner"], spec=WorkspaceSpec("mine"))
    with denied("workspace.bind_quota"):
        bind_quota(actor=here["owner"], workspace=here.workspace, quota=here.other_quota)


def test_a_taken_name_is_a_conflict(here: Installation) -> None:
    with refused("conflict", field="name"):
        create_workspace(actor=SYSTEM, spec=WorkspaceSpec("WORKSPACE_B"))


def test_members_are_added_with_roles_and_lose_them_at_once(here: Installation) -> None:
    added = add_member(
        actor=here["administrator"], workspace=here.workspace, user=here["stranger"], roles=["viewer", "developer"]
    )
    assert added.roles == ["developer", "viewer"]
    set_roles(actor=here["administrator"], member=added, roles=["viewer"])
    added.refresh_from_db()
    assert added.roles == ["viewer"]
    remove_member(actor=here["administrator"], member=added)
    assert not Member.objects.filter(user=here["stranger"]).exists()


def test_nobody_is_made_owner_or_left_without_a_role(here: Installation) -> None:
    for roles in (["owner"], [], ["king"]):
        with refused("invalid", field="roles"):
            add_member(actor=here["owner"], workspace=here.workspace, user=here["stranger"], roles=roles)


def test_the_owner_cannot_be_removed_only_handed_over(here: Installation) -> None:
    with refused("member.is_owner"):
        remove_member(actor=here["administrator"], member=member(here, "owner"))
    with refused("member.is_owner"):
        set_roles(actor=here["platform"], member=member(here, "owner"), roles=["viewer"])
    with denied("workspace.hand_over"):
        hand_over(actor=here["administrator"], workspace=here.workspace, to=here["operator"])
    hand_over(actor=here["owner"], workspace=here.workspace, to=here["operator"])
    assert member(here, "operator").roles == [Role.OWNER]
    assert member(here, "owner").roles == [Role.ADMINISTRATOR]


def test_the_database_knows_one_owner(here: Installation) -> None:
    with pytest.raises(IntegrityError), transaction.atomic():
        Member.objects.filter(pk=member(here, "viewer").pk).update(roles=["owner"])


def test_managing_members_takes_the_right(here: Installation) -> None:
    for name in ("operator", "developer", "viewer", "auditor"):
        with denied("member.manage"):
            add_member(actor=here[name], workspace=here.workspace, user=here["stranger"], roles=["viewer"])
    with not_found():
        add_member(actor=here["rival"], workspace=here.workspace, user=here["stranger"], roles=["viewer"])


def test_anybody_but_the_owner_may_leave(here: Installation) -> None:
    remove_member(actor=here["viewer"], member=member(here, "viewer"))
    assert not Member.objects.filter(user=here["viewer"]).exists()


def test_a_token_that_is_bound_to_a_role_does_not_leave_for_its_person(here: Installation) -> None:
    token, _ = create_token(actor=here["viewer"], spec=TokenSpec("ci", here.workspace, Role.VIEWER))
    here["viewer"].token = token
    with denied("member.manage"):
        remove_member(actor=here["viewer"], member=member(here, "viewer"))


def test_binding_unbinding_and_the_default(here: Installation) -> None:
    bind_quota(actor=SYSTEM, workspace=here.workspace, quota=here.root)
    set_default_quota(actor=here["administrator"], workspace=here.workspace, quota=here.root)
    bindings = dict(WorkspaceQuota.objects.filter(workspace=here.workspace).values_list("quota__name", "is_default"))
    assert bindings == {"quota-1": True, "quota-1.1": False}
    unbind_quota(actor=SYSTEM, workspace=here.workspace, quota=here.root)
    bindings = dict(WorkspaceQuota.objects.filter(workspace=here.workspace).values_list("quota__name", "is_default"))
    assert bindings == {"quota-1.1": True}


def test_a_workspace_that_was_deleted_meanwhile_takes_neither_quotas_nor_members(here: Installation) -> None:
    Workspace.ever.filter(pk=here.workspace.pk).update(deleted_at=timezone.now())
    with not_found():
        bind_quota(actor=SYSTEM, workspace=here.workspace, quota=here.other_quota)
    with not_found():
        add_member(actor=SYSTEM, workspace=here.workspace, user=here["stranger"], roles=["viewer"])


def test_unbinding_waits_for_live_work_or_drains_it(here: Installation) -> None:
    job = submitted(here["developer"], here)
    with refused("quota.in_use", field="quota"):
        unbind_quota(actor=SYSTEM, workspace=here.workspace, quota=here.quota)
    unbind_quota(actor=SYSTEM, workspace=here.workspace, quota=here.quota, drain=True)
    job.refresh_from_db()
    assert job.state == "stopped"


def test_an_archived_workspace_takes_no_work(here: Installation) -> None:
    archive_workspace(actor=here["owner"], workspace=here.workspace)
    with refused("workspace.archived", field="workspace"):
        submitted(here["developer"], here)
    archive_workspace(actor=here["owner"], workspace=here.workspace, archived=False)
    assert submitted(here["developer"], here).state == "queued"


def test_edits_name_what_changed_and_old_revisions_are_stale(here: Installation) -> None:
    edit_workspace(actor=here["owner"], workspace=here.workspace, changes={"description": "B"}, revision=1)
    entry = AuditEvent.objects.order_by("-id").first()
    assert entry is not None
    assert (entry.before, entry.after) == ({"description": ""}, {"description": "B"})


def test_a_workspace_is_deleted_without_live_work_and_its_name_is_free(here: Installation) -> None:
    job = submitted(here["developer"], here)
    with refused("workspace.in_use"):
        delete_workspace(actor=here["owner"], workspace=here.workspace)
    type(job).objects.filter(pk=job.pk).update(state="succeeded")
    delete_workspace(actor=here["owner"], workspace=here.workspace)
    assert not Workspace.objects.filter(name="workspace_b").exists()
    assert not Member.objects.filter(workspace_id=here.workspace.pk).exists()
    create_workspace(actor=SYSTEM, spec=WorkspaceSpec("workspace_b"))


def test_accounts_need_a_good_password(here: Installation) -> None:
    with pytest.raises(Refused) as caught:
        create_user(actor=here["platform"], spec=UserSpec("newcomer", password="12345"))
    assert {problem.field for problem in caught.value.problems} == {"password"}
    made = create_user(actor=here["platform"], spec=UserSpec("newcomer", password="a-long-and-odd-one"))
    assert made.check_password("a-long-and-odd-one")
    with denied("user.manage"):
        create_user(actor=here["owner"], spec=UserSpec("other"))


def test_a_token_is_shown_once_and_ends_at_once(here: Installation) -> None:
    token, secret = create_token(actor=here["developer"], spec=TokenSpec("ci", here.workspace, Role.DEVELOPER))
    assert find_token(secret) == token
    assert secret not in str(list(Token.objects.values()))
    assert secret not in str(list(AuditEvent.objects.values()))
    revoke_token(actor=here["developer"], token=token)
    assert find_token(secret) is None


def test_tokens_expire_and_make_no_tokens(here: Installation) -> None:
    with refused("invalid", field="expires_at"):
        create_token(actor=here["developer"], spec=TokenSpec("ci", expires_at=timezone.now() - timedelta(seconds=1)))
    token, _ = create_token(actor=here["developer"], spec=TokenSpec("ci"))
    person = here["developer"]
    person.token = token
    with pytest.raises(Denied):
        create_token(actor=person, spec=TokenSpec("more"))


def test_somebody_elses_token_does_not_exist(here: Installation) -> None:
    token, _ = create_token(actor=here["developer"], spec=TokenSpec("ci"))
    with not_found():
        revoke_token(actor=here["owner"], token=token)
    revoke_token(actor=here["platform"], token=token)
    token.refresh_from_db()
    assert token.revoked_at is not None
