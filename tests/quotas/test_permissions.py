"""Roles, ownership, visibility and tokens: the one table, and what each actor sees."""

from __future__ import annotations

import pytest

from quotas.actors import SYSTEM
from quotas.models import CustomRole, Member, Quota, Role, Token, User, WorkspaceQuota
from quotas.permissions import (
    PERMISSIONS,
    allowed,
    can_see,
    grants_of,
    permissions_on,
    visible_clusters,
    visible_members,
    visible_nodes,
    visible_pools,
    visible_quotas,
    visible_users,
    visible_workspaces,
)
from tests.makers import Installation, submitted
from workloads.selectors import visible_workloads

# Who may do what in team B's workspace, to the developer's own shared training job. Kept by hand.
EXPECTED = {
    "owner": "read submit stop change_priority reorder manage_members configure edit archive",
    "administrator": "read submit stop change_priority reorder manage_members configure edit",
    "operator": "read submit stop change_priority reorder",
    "developer": "read submit stop change_priority",
    "viewer": "read",
    "stranger": "",
    "rival": "",
    "auditor": "read",
    "platform": "read submit stop change_priority reorder manage_members configure edit archive scale create",
}
ASKED = {
    "read": "workload.read",
    "submit": "workload.submit_training",
    "stop": "workload.stop",
    "change_priority": "workload.change_priority",
    "reorder": "queue.reorder",
    "manage_members": "member.manage",
    "configure": "configuration.manage",
    "edit": "workspace.edit",
    "archive": "workspace.archive",
    "scale": "quota.scale",
    "create": "workspace.create",
}
ON_WORKLOAD = ("read", "stop", "change_priority", "reorder")


@pytest.mark.parametrize("who", EXPECTED)
def test_each_role_may_what_the_table_says(here: Installation, who: str) -> None:
    job = submitted(here["developer"], here)
    may = {
        word
        for word, permission in ASKED.items()
        if allowed(here[who], permission, job if word in ON_WORKLOAD else here.workspace)
    }
    assert may == set(EXPECTED[who].split())


def test_a_developer_acts_on_own_work_only_and_deploys_no_service(here: Installation) -> None:
    colleague = User.objects.create(username="colleague")
    Member.objects.create(workspace=here.workspace, user=colleague, roles=[Role.DEVELOPER])
    job = submitted(here["developer"], here)
    assert allowed(colleague, "workload.read", job)
    assert not allowed(colleague, "workload.stop", job)
    assert not allowed(here["developer"], "workload.submit_service", here.workspace)
    assert allowed(here["operator"], "workload.submit_service", here.workspace)


def test_private_work_exists_for_its_owner_and_those_who_manage_all(here: Installation) -> None:
    job = submitted(here["developer"], here, visibility="private")
    sees = {name for name, person in here.people.items() if can_see(person, job)}
    assert sees == {"developer", "operator", "administrator", "owner", "platform", "auditor"}
    lists = {name for name, person in here.people.items() if visible_workloads(person).filter(pk=job.pk).exists()}
    assert lists == sees


def test_team_b_sees_nothing_of_team_c(here: Installation) -> None:
    submitted(here["rival"], here, workspace="workspace_c")
    for name in ("owner", "administrator", "operator", "developer", "viewer"):
        person = here[name]
        assert list(visible_quotas(person)) == [here.quota]
        assert list(visible_workspaces(person)) == [here.workspace]
        assert not visible_workloads(person).exists()
        assert not visible_members(person).filter(workspace=here.other_workspace).exists()
        assert here["rival"] not in visible_users(person)
        assert not visible_nodes(person).exists()
        assert list(visible_clusters(person)) == [here.cluster]
        assert list(visible_pools(person)) == [here.pool]
        assert not can_see(person, here.root)
        assert not can_see(person, here.other_quota)


def test_a_stranger_sees_nothing_and_an_auditor_all(here: Installation) -> None:
    stranger, auditor = here["stranger"], here["auditor"]
    assert not visible_quotas(stranger).exists()
    assert not visible_clusters(stranger).exists()
    assert list(visible_users(stranger)) == [stranger]
    assert visible_quotas(auditor).count() == Quota.objects.count()
    assert visible_nodes(auditor).count() == 16
    assert [name for name in permissions_on(auditor, here.workspace) if not PERMISSIONS[name].reads] == []


def test_several_roles_give_the_rights_of_each(here: Installation) -> None:
    member = Member.objects.get(workspace=here.workspace, user=here["viewer"])
    Member.objects.filter(pk=member.pk).update(roles=[Role.VIEWER, Role.OPERATOR])
    assert allowed(here["viewer"], "queue.reorder", here.workspace)


def test_a_custom_role_gives_its_levels_and_nothing_else(here: Installation) -> None:
    role = CustomRole.objects.create(
        workspace=here.workspace, name="queue master", levels={"queue": "all", "training": "read", "notebooks": "own"}
    )
    person = User.objects.create(username="custom")
    Member.objects.create(workspace=here.workspace, user=person, custom_roles=[role.pk])
    job = submitted(here["developer"], here)
    may = {
        word for word, name in ASKED.items() if allowed(person, name, job if word in ON_WORKLOAD else here.workspace)
    }
    assert may == {"read", "reorder"}
    assert allowed(person, "workload.submit_notebook", here.workspace)
    assert not visible_quotas(person).exists()


def test_a_token_of_a_workspace_and_role_narrows_its_user(here: Installation) -> None:
    person = here["administrator"]
    person.token = Token(user=person, name="ci", workspace=here.workspace, role=Role.DEVELOPER)
    assert allowed(person, "workload.submit_training", here.workspace)
    assert not allowed(person, "member.manage", here.workspace)
    viewer = here["viewer"]
    viewer.token = Token(user=viewer, name="ci", workspace=here.workspace, role=Role.ADMINISTRATOR)
    assert not allowed(viewer, "workload.submit_training", here.workspace)
    platform = here["platform"]
    platform.token = Token(user=platform, name="ci", workspace=here.workspace, role=Role.OPERATOR)
    assert not allowed(platform, "quota.scale", here.quota)
    assert list(visible_workspaces(platform)) == [here.workspace]


def test_rights_end_with_the_membership_and_the_account(here: Installation) -> None:
    person = here["operator"]
    Member.objects.filter(user=person).delete()
    assert not visible_workspaces(person).exists()
    admin = here["platform"]
    admin.is_active = False
    assert not allowed(admin, "quota.scale", here.quota)


def test_the_system_may_everything(here: Installation) -> None:
    assert permissions_on(SYSTEM, here.workspace) == list(PERMISSIONS)


def test_what_is_seen_costs_a_fixed_number_of_queries(here: Installation, django_assert_num_queries: object) -> None:
    with django_assert_num_queries(2):  # type: ignore[operator]
        list(visible_workloads(here["developer"]))
    with django_assert_num_queries(1):  # type: ignore[operator]
        grants_of(here["developer"])


def test_a_bound_quota_is_seen_by_its_workspace(here: Installation) -> None:
    WorkspaceQuota.objects.create(workspace=here.workspace, quota=here.root)
    assert set(visible_quotas(here["viewer"])) == {here.quota, here.root}


def test_all_that_one_may_do_to_a_quota_is_told_in_two_queries(
    here: Installation, django_assert_num_queries: object
) -> None:
    with django_assert_num_queries(2):  # type: ignore[operator]
        names = permissions_on(here["administrator"], here.quota)
    assert "quota.read" in names
    assert "quota.scale" not in names
