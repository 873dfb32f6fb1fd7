"""Invitations, and workspaces that come with a quota of their own."""

from __future__ import annotations

from datetime import timedelta

import pytest
from django.core import mail
from django.utils import timezone
from pytest_django import DjangoCaptureOnCommitCallbacks

from quotas.actors import SYSTEM
from quotas.errors import NotFound
from quotas.models import AuditEvent, Invitation, Member, Quota, User
from quotas.services import (
    accept_as_new,
    accept_invitation,
    find_invitation,
    invite,
    revoke_invitation,
    set_up_workspace,
)
from quotas.services.onboarding import OnboardingSpec
from scheduler.services import scale_quota
from tests.makers import Installation, denied, refused
from tests.quotas.test_amounts import gpus

ADDRESS = "new@example.org"


@pytest.fixture
def secret(here: Installation, django_capture_on_commit_callbacks: DjangoCaptureOnCommitCallbacks) -> str:
    with django_capture_on_commit_callbacks(execute=True):
        invite(
            actor=here["administrator"],
            workspace=here.workspace,
            email=ADDRESS,
            roles=["developer"],
            link=lambda secret: f"https://tidegate.example/invitations/{secret}",
        )
    (message,) = mail.outbox
    assert message.to == [ADDRESS]
    return str(message.body).rsplit("/", 1)[1].strip()


def test_an_invitation_is_accepted_once_by_the_invited_address(here: Installation, secret: str) -> None:
    other = here["stranger"]
    with pytest.raises(NotFound):
        accept_invitation(actor=other, secret=secret)
    invited = User.objects.create(username="new", email=ADDRESS.upper())
    member = accept_invitation(actor=invited, secret=secret)
    assert (member.workspace, member.roles) == (here.workspace, ["developer"])
    with pytest.raises(NotFound):
        accept_invitation(actor=invited, secret=secret)
    records = [*AuditEvent.objects.values(), *Invitation.objects.values()]
    assert secret not in str(records)


def test_somebody_without_an_account_makes_one(here: Installation, secret: str) -> None:
    member = accept_as_new(secret=secret, username="newcomer", password="a-long-and-odd-one")
    assert member.user.email == ADDRESS
    assert member.user.check_password("a-long-and-odd-one")


def test_revoked_replaced_and_old_invitations_are_gone(here: Installation, secret: str) -> None:
    first = find_invitation(secret)
    invite(actor=here["owner"], workspace=here.workspace, email=ADDRESS, roles=["viewer"], link=str)
    with pytest.raises(NotFound):
        find_invitation(secret)
    second = Invitation.objects.exclude(pk=first.pk).get()
    revoke_invitation(actor=here["owner"], invitation=second)
    second.refresh_from_db()
    assert second.revoked_at is not None
    Invitation.objects.filter(pk=first.pk).update(revoked_at=None, expires_at=timezone.now() - timedelta(seconds=1))
    with pytest.raises(NotFound):
        find_invitation(secret)


def test_inviting_takes_the_right_and_an_address(here: Installation) -> None:
    with denied("member.manage"):
        invite(actor=here["operator"], workspace=here.workspace, email=ADDRESS, roles=["viewer"], link=str)
    with refused("invalid", field="email"):
        invite(actor=here["owner"], workspace=here.workspace, email="nobody", roles=["viewer"], link=str)
    with refused("invalid", field="roles"):
        invite(actor=here["owner"], workspace=here.workspace, email=ADDRESS, roles=["owner"], link=str)


def test_a_team_gets_workspace_quota_and_members_in_one_step(here: Installation) -> None:
    scale_quota(actor=SYSTEM, quota=here.quota, amounts={here.pool: gpus(40)})
    spec = OnboardingSpec(
        "team",
        "vision",
        here.cluster,
        owner=here["stranger"],
        parent=here.root,
        amounts={here.pool: gpus(8)},
        members={here["viewer"]: "developer"},
    )
    workspace = set_up_workspace(actor=here["platform"], spec=spec)
    binding = workspace.bindings.get()
    assert (binding.quota.name, binding.quota.parent, binding.is_default) == ("vision", here.root, True)
    assert dict(Member.objects.filter(workspace=workspace).values_list("user__username", "roles")) == {
        "stranger": ["owner"],
        "viewer": ["developer"],
    }


def test_one_step_is_all_or_nothing(here: Installation) -> None:
    spec = OnboardingSpec(
        "team", "vision", here.cluster, owner=here["stranger"], parent=here.root, amounts={here.pool: gpus(8)}
    )
    with refused("quota.exceeds_parent"):
        set_up_workspace(actor=here["platform"], spec=spec)
    assert not Quota.objects.filter(name="vision").exists()


def test_a_person_works_alone(here: Installation) -> None:
    spec = OnboardingSpec("person", "mine", here.cluster, owner=here["stranger"], members={here["viewer"]: "developer"})
    with refused("invalid", field="members"):
        set_up_workspace(actor=here["platform"], spec=spec)
    with denied("workspace.create"):
        set_up_workspace(actor=here["owner"], spec=spec)
