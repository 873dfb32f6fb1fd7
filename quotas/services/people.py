"""People, workspaces, members, bindings of quotas, tokens."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from django.contrib.auth.password_validation import validate_password
from django.core.exceptions import ValidationError
from django.db import transaction
from django.utils import timezone

from quotas.actors import Actor, System
from quotas.audit import changes as differences
from quotas.audit import record
from quotas.errors import Denied, NotFound, Problem, Refused, refuse
from quotas.models import CustomRole, Member, Quota, Role, Token, User, Workspace, WorkspaceQuota
from quotas.permissions import Levels, can_see, levels_of, require, require_within
from quotas.services._common import as_user, locked, save_changes, taken_is_conflict
from quotas.specs import TokenSpec, UserSpec, WorkspaceSpec
from quotas.tokens import new_secret
from scheduler.triggers import signal

GIVEN_ROLES = tuple(role for role in Role if role != Role.OWNER)


# --- people -------------------------------------------------------------------------------------------------------


@transaction.atomic
def create_user(*, actor: Actor, spec: UserSpec) -> User:
    """Create an account; the password has to pass the password rules."""
    require(actor, "user.manage")
    user = User(username=spec.username, email=spec.email, platform_role=spec.platform_role, time_zone=spec.time_zone)
    _set_password(user, spec.password)
    with taken_is_conflict("username", spec.username):
        user.save()
    record(
        actor=actor, verb="user.created", thing=user, after={"email": spec.email, "platform_role": spec.platform_role}
    )
    return user


def _set_password(user: User, password: str | None) -> None:
    if password is None:
        user.set_unusable_password()
        return
    try:
        validate_password(password, user)
    except ValidationError as error:
        raise Refused(
            Problem("password", "invalid", {"reason": "password", "wanted": message}) for message in error.messages
        ) from error
    user.set_password(password)


@transaction.atomic
def set_active(*, actor: Actor, user: User, active: bool) -> User:
    """Close or open an account. A closed one keeps its history and can do nothing, by no door."""
    require(actor, "user.manage")
    if not active and user == as_user(actor):
        raise refuse("active", "invalid", reason="choice", wanted="somebody else's account")
    user.is_active = active
    user.save(update_fields=["is_active"])
    record(actor=actor, verb="user.opened" if active else "user.closed", thing=user)
    return user


# --- workspaces ---------------------------------------------------------------------------------------------------


@transaction.atomic
def create_workspace(*, actor: Actor, spec: WorkspaceSpec) -> Workspace:
    """Create a workspace with its owner and its quotas, the first of which is the default."""
    require(actor, "workspace.create")
    with taken_is_conflict("name", spec.name):
        workspace = Workspace.objects.create(name=spec.name, description=spec.description)
    owner = spec.owner or as_user(actor)
    if owner is not None:
        Member.objects.create(workspace=workspace, user=owner, roles=[Role.OWNER])
    WorkspaceQuota.objects.bulk_create(
        WorkspaceQuota(workspace=workspace, quota=quota, is_default=index == 0)
        for index, quota in enumerate(spec.quotas)
    )
    record(
        actor=actor,
        verb="workspace.created",
        thing=workspace,
        workspace_id=workspace.pk,
        after={"owner": owner.get_username() if owner else None, "quotas": [quota.name for quota in spec.quotas]},
    )
    signal("workspaces")
    return workspace


@transaction.atomic
def edit_workspace(
    *, actor: Actor, workspace: Workspace, changes: Mapping[str, Any], revision: int | None = None
) -> Workspace:
    """Change ``name`` or ``description``; what is not named stays."""
    require(actor, "workspace.edit", workspace)
    workspace = locked(workspace, revision)
    before = {"name": workspace.name, "description": workspace.description}
    spec = WorkspaceSpec.from_mapping({**before, **changes})
    workspace.name, workspace.description = spec.name, spec.description
    with taken_is_conflict("name", spec.name):
        save_changes(workspace, ["name", "description"])
    _note(actor, "workspace.edited", workspace, before, {"name": spec.name, "description": spec.description})
    return workspace


@transaction.atomic
def archive_workspace(*, actor: Actor, workspace: Workspace, archived: bool = True) -> Workspace:
    """Close a workspace for new work (or open it again); what runs goes on."""
    require(actor, "workspace.archive", workspace)
    workspace = locked(workspace)
    before = {"archived_at": _text(workspace.archived_at)}
    workspace.archived_at = timezone.now() if archived else None
    save_changes(workspace, ["archived_at"])
    verb = "workspace.archived" if archived else "workspace.reopened"
    _note(actor, verb, workspace, before, {"archived_at": _text(workspace.archived_at)})
    return workspace


def living(workspace: Workspace) -> Workspace:
    """The newest state of the workspace, locked; ``NotFound`` once it has been deleted."""
    workspace = locked(workspace)
    if workspace.deleted_at is not None:
        raise NotFound("workspace")
    return workspace


def _text(value: object) -> str | None:
    return None if value is None else str(value)


def _note(actor: Actor, verb: str, workspace: Workspace, before: dict[str, Any], after: dict[str, Any]) -> None:
    had, has = differences(before, after)
    record(actor=actor, verb=verb, thing=workspace, workspace_id=workspace.pk, before=had, after=has)
    signal("workspaces", f"workspace.{workspace.pk}")


@transaction.atomic
def bind_quota(*, actor: Actor, workspace: Workspace, quota: Quota, default: bool = False) -> WorkspaceQuota:
    """Let a workspace use a quota. Its first one becomes the default; binding twice changes at most the default."""
    require(actor, "workspace.bind_quota", workspace)
    workspace, quota = living(workspace), locked(quota)
    if quota.deleted_at is not None:
        raise NotFound("quota")
    bindings = WorkspaceQuota.objects.filter(workspace=workspace)
    is_first = not bindings.exists()
    binding, created = bindings.get_or_create(workspace=workspace, quota=quota)
    if is_first or default:
        _make_default(workspace, binding)
    if created:
        _note(actor, "workspace.quota_bound", workspace, {}, {"quota": quota.name})
    signal(f"quota.{quota.pk}")
    return binding


@transaction.atomic
def set_default_quota(*, actor: Actor, workspace: Workspace, quota: Quota) -> WorkspaceQuota:
    """Which of its quotas a workspace's work uses when it names none."""
    require(actor, "workspace.edit", workspace)
    workspace = locked(workspace)
    binding = WorkspaceQuota.objects.filter(workspace=workspace, quota=quota).first()
    if binding is None:
        raise refuse("quota", "workspace.not_bound", quota=quota.name, workspace=workspace.name)
    before = WorkspaceQuota.objects.filter(workspace=workspace, is_default=True).select_related("quota").first()
    _make_default(workspace, binding)
    _note(
        actor,
        "workspace.default_quota",
        workspace,
        {"quota": before.quota.name if before else None},
        {"quota": quota.name},
    )
    return binding


def _make_default(workspace: Workspace, binding: WorkspaceQuota) -> None:
    WorkspaceQuota.objects.filter(workspace=workspace, is_default=True).exclude(pk=binding.pk).update(is_default=False)
    binding.is_default = True
    binding.save(update_fields=["is_default"])


# --- members ------------------------------------------------------------------------------------------------------


@transaction.atomic
def add_member(
    *, actor: Actor, workspace: Workspace, user: User, roles: Iterable[str], custom_roles: Sequence[CustomRole] = ()
) -> Member:
    """Add a person with one or several roles; nobody is added as owner."""
    require(actor, "member.manage", workspace)
    workspace = living(workspace)
    _require_seen(actor, user)
    given, own = checked_roles(actor, workspace, roles, custom_roles)
    if Member.objects.filter(workspace=workspace, user=user).exists():
        raise refuse("user", "conflict", given=user.get_username())
    member = Member.objects.create(workspace=workspace, user=user, roles=given, custom_roles=own)
    _note(actor, "member.added", workspace, {}, {"user": user.get_username(), "roles": _role_names(member)})
    return member


def _require_seen(actor: Actor, user: User) -> None:
    """Whoever manages members may name any active account by its login; a closed one counts as not there."""
    if not user.is_active and not can_see(actor, user):
        raise refuse("user", "not_found")


def checked_roles(
    actor: Actor,
    workspace: Workspace,
    roles: Iterable[str],
    custom_roles: Sequence[CustomRole],
    member: Member | None = None,
) -> tuple[list[str], list[int]]:
    """Roles in the table's order and ids of custom roles, or ``Refused``: at least one, and never the owner's.

    ``Denied`` where they give more than the actor has there, save what the member has already.
    """
    given = list(dict.fromkeys(str(role) for role in roles))
    if any(role not in GIVEN_ROLES for role in given):
        raise refuse("roles", "invalid", reason="choice", choices=list(GIVEN_ROLES), given=given)
    if any(role.workspace_id != workspace.pk for role in custom_roles):
        raise refuse("custom_roles", "not_found")
    if not given and not custom_roles:
        raise refuse("roles", "invalid", reason="required", choices=list(GIVEN_ROLES))
    require_within(actor, workspace, levels_of(given, custom_roles), _levels_held(member) if member else None)
    return [role for role in Role if role in given], sorted(role.pk for role in custom_roles)


def _levels_held(member: Member) -> Levels:
    return levels_of(member.roles, CustomRole.objects.filter(pk__in=member.custom_roles))


def _role_names(member: Member) -> list[str]:
    custom = CustomRole.objects.filter(pk__in=member.custom_roles).order_by("name").values_list("name", flat=True)
    return [*member.roles, *custom]


@transaction.atomic
def set_roles(*, actor: Actor, member: Member, roles: Iterable[str], custom_roles: Sequence[CustomRole] = ()) -> Member:
    """Replace a member's roles. The owner stays owner; ownership is handed over."""
    require(actor, "member.manage", member)
    locked(member.workspace)
    member = locked(member)
    _require_not_owner(member)
    before = {"roles": _role_names(member)}
    member.roles, member.custom_roles = checked_roles(actor, member.workspace, roles, custom_roles, member)
    member.save(update_fields=["roles", "custom_roles"])
    after = {"roles": _role_names(member)}
    record(
        actor=actor,
        verb="member.roles_set",
        thing=member.workspace,
        workspace_id=member.workspace_id,
        before=before,
        after=after,
        facts={"user": member.user.get_username()},
    )
    signal(f"workspace.{member.workspace_id}")
    return member


def _require_not_owner(member: Member) -> None:
    if Role.OWNER in member.roles:
        raise refuse("roles", "member.is_owner", user=member.user.get_username())


@transaction.atomic
def remove_member(*, actor: Actor, member: Member) -> None:
    """Take a person out of a workspace; the owner cannot be. Anybody but the owner may leave, in person.

    A token that is bound to a role may only do what the role may.
    """
    person = as_user(actor)
    in_person = person is not None and (person.token is None or person.token.workspace_id is None)
    if member.user_id != getattr(person, "pk", None) or not in_person:
        require(actor, "member.manage", member)
    workspace = locked(member.workspace)
    member = locked(member)
    _require_not_owner(member)
    roles = _role_names(member)
    username = member.user.get_username()
    member.delete()
    _note(actor, "member.removed", workspace, {"user": username, "roles": roles}, {})


@transaction.atomic
def hand_over(*, actor: Actor, workspace: Workspace, to: User) -> Member:
    """Make another member the owner; the owner so far becomes an administrator."""
    require(actor, "workspace.hand_over", workspace)
    workspace = locked(workspace)
    heir = Member.objects.filter(workspace=workspace, user=to, user__is_active=True).first()
    if heir is None:
        raise refuse("to", "not_found", given=to.get_username())
    owner = Member.objects.filter(workspace=workspace, roles__contains=[Role.OWNER]).first()
    if owner is not None and owner.pk != heir.pk:
        owner.roles = [Role.ADMINISTRATOR]
        owner.save(update_fields=["roles"])
    heir.roles = [Role.OWNER]
    heir.save(update_fields=["roles"])
    had = owner.user.get_username() if owner else None
    _note(actor, "workspace.handed_over", workspace, {"owner": had}, {"owner": to.get_username()})
    return heir


# --- tokens -------------------------------------------------------------------------------------------------------


@transaction.atomic
def create_token(*, actor: Actor, spec: TokenSpec) -> tuple[Token, str]:
    """A token of the actor's own, and its secret, which is never shown again. Tokens make no tokens."""
    if isinstance(actor, System) or actor.token is not None:
        raise Denied("token.create")
    if spec.workspace is not None:
        require(actor, "workspace.read", spec.workspace)
    if spec.expires_at is not None and spec.expires_at <= timezone.now():
        raise refuse("expires_at", "invalid", reason="range", low=timezone.now().isoformat())
    prefix, secret, digest = new_secret()
    token = Token.objects.create(
        user=actor,
        name=spec.name,
        prefix=prefix,
        digest=digest,
        workspace=spec.workspace,
        role=spec.role,
        expires_at=spec.expires_at,
    )
    after = {"name": spec.name, "prefix": prefix, "role": spec.role, "expires_at": _text(spec.expires_at)}
    record(actor=actor, verb="access.created", thing=token, workspace_id=token.workspace_id, after=after)
    return token, secret


@transaction.atomic
def revoke_token(*, actor: Actor, token: Token) -> Token:
    """End a token at once; revoking twice is the same as once."""
    if token.user_id != getattr(as_user(actor), "pk", None):
        require(actor, "user.manage", token)
    Token.objects.filter(pk=token.pk, revoked_at__isnull=True).update(revoked_at=timezone.now())
    token.refresh_from_db()
    record(
        actor=actor,
        verb="access.revoked",
        thing=token,
        workspace_id=token.workspace_id,
        before={"name": token.name, "prefix": token.prefix},
    )
    signal(f"token.{token.pk}")
    return token
