"""Invitations by e-mail. The secret is in the mail and nowhere else."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Sequence
from datetime import timedelta

from django.core.exceptions import ValidationError
from django.core.mail import send_mail
from django.core.validators import validate_email
from django.db import transaction
from django.utils import timezone
from django.utils.translation import gettext

from quotas.actors import SYSTEM, Actor
from quotas.audit import record
from quotas.errors import NotFound, refuse
from quotas.models import Invitation, Member, User, Workspace
from quotas.permissions import require
from quotas.services._common import as_user, locked, taken_is_conflict
from quotas.services.people import checked_roles, create_user, living
from quotas.specs import UserSpec
from quotas.tokens import digest_of
from scheduler.triggers import signal

LASTS = timedelta(days=7)


@transaction.atomic
def invite(
    *, actor: Actor, workspace: Workspace, email: str, roles: Sequence[str], link: Callable[[str], str]
) -> Invitation:
    """Invite somebody by e-mail; ``link`` makes the address of the page that accepts the secret.

    A second invitation of the same address takes the place of the first one.
    """
    require(actor, "member.manage", workspace)
    workspace = locked(workspace)
    _require_email(email)
    given, _ = checked_roles(actor, workspace, roles, ())
    if Member.objects.filter(workspace=workspace, user__email__iexact=email).exists():
        raise refuse("email", "conflict", given=email)
    now = timezone.now()
    Invitation.objects.filter(
        workspace=workspace, email__iexact=email, accepted_at__isnull=True, revoked_at__isnull=True
    ).update(revoked_at=now)
    secret = secrets.token_urlsafe(32)
    with taken_is_conflict("email", email):
        invitation = Invitation.objects.create(
            workspace=workspace,
            email=email,
            roles=given,
            digest=digest_of(secret),
            invited_by=as_user(actor),
            expires_at=now + LASTS,
        )
    after = {"email": email, "roles": given}
    record(actor=actor, verb="member.invited", thing=workspace, workspace_id=workspace.pk, after=after)
    transaction.on_commit(lambda: _send(workspace, email, link(secret)))
    return invitation


def _require_email(email: str) -> None:
    try:
        validate_email(email)
    except ValidationError as error:
        raise refuse("email", "invalid", reason="type", wanted="an e-mail address") from error


def _send(workspace: Workspace, email: str, address: str) -> None:
    subject = gettext("Invitation to workspace %(name)s") % {"name": workspace.name}
    body = gettext("You are invited to the workspace %(name)s. Follow this link within %(days)s days:") % {
        "name": workspace.name,
        "days": LASTS.days,
    }
    send_mail(subject, f"{body}\n\n{address}\n", None, [email], fail_silently=True)


@transaction.atomic
def revoke_invitation(*, actor: Actor, invitation: Invitation) -> None:
    """Take an invitation back."""
    require(actor, "member.manage", invitation)
    changed = Invitation.objects.filter(pk=invitation.pk, accepted_at=None, revoked_at=None).update(
        revoked_at=timezone.now()
    )
    if changed:
        before = {"email": invitation.email, "roles": invitation.roles}
        record(
            actor=actor,
            verb="member.invitation_revoked",
            thing=invitation.workspace,
            workspace_id=invitation.workspace_id,
            before=before,
        )


def find_invitation(secret: str) -> Invitation:
    """The open invitation with this secret, or ``NotFound``."""
    found = Invitation.objects.select_related("workspace").filter(
        digest=digest_of(secret),
        accepted_at__isnull=True,
        revoked_at__isnull=True,
        expires_at__gt=timezone.now(),
        workspace__deleted_at__isnull=True,
    )
    invitation = found.first()
    if invitation is None:
        raise NotFound("invitation")
    return invitation


@transaction.atomic
def accept_invitation(*, actor: User, secret: str) -> Member:
    """Join the workspace. The account's address has to be the invited one."""
    invitation = locked(find_invitation(secret))
    if invitation.accepted_at is not None or invitation.email.lower() != actor.email.lower():
        raise NotFound("invitation")
    workspace = living(invitation.workspace)
    Invitation.objects.filter(pk=invitation.pk).update(accepted_at=timezone.now())
    member, created = Member.objects.get_or_create(
        workspace=workspace, user=actor, defaults={"roles": invitation.roles}
    )
    if created:
        after = {"user": actor.get_username(), "roles": invitation.roles}
        record(actor=actor, verb="member.joined", thing=workspace, workspace_id=workspace.pk, after=after)
        signal("workspaces", f"workspace.{workspace.pk}")
    return member


@transaction.atomic
def accept_as_new(*, secret: str, username: str, password: str) -> Member:
    """Make an account for the invited address and join the workspace with it."""
    invitation = find_invitation(secret)
    if User.objects.filter(email__iexact=invitation.email).exists():
        raise refuse("email", "conflict", given=invitation.email)
    spec = UserSpec.from_mapping({"username": username, "email": invitation.email, "password": password})
    return accept_invitation(actor=create_user(actor=SYSTEM, spec=spec), secret=secret)
