"""Groups of the identity provider: what being in one gives, and bringing a person in step at every sign-in.

Only what groups gave is taken away when a group is left: roles that a person was given by hand stay. A workspace's
owner is never touched.
"""

from __future__ import annotations

from collections.abc import Iterable

from django.db import transaction

from quotas.actors import SYSTEM, Actor
from quotas.audit import record
from quotas.errors import refuse
from quotas.models import GroupRole, Member, PlatformRole, Role, User, Workspace
from quotas.permissions import require
from quotas.services._common import taken_is_conflict
from quotas.services.people import GIVEN_ROLES
from scheduler.triggers import signal

LONGEST_NAME = 200


@transaction.atomic
def map_group(
    *, actor: Actor, group: str, workspace: Workspace | None = None, role: str = "", platform_role: str = ""
) -> GroupRole:
    """From the next sign-in on, people of the group have the role in the workspace, or the platform role."""
    require(actor, "user.manage")
    if not group or len(group) > LONGEST_NAME:
        raise refuse("group", "invalid", reason="length", low=1, high=LONGEST_NAME)
    if workspace is None and (platform_role not in PlatformRole.values or not platform_role):
        choices = [choice for choice in PlatformRole.values if choice]
        raise refuse("platform_role", "invalid", reason="choice", choices=choices, given=platform_role)
    if workspace is not None and (role not in GIVEN_ROLES or platform_role):
        raise refuse("role", "invalid", reason="choice", choices=list(GIVEN_ROLES), given=role or platform_role)
    with taken_is_conflict("group", group):
        mapped = GroupRole.objects.create(group=group, workspace=workspace, role=role, platform_role=platform_role)
    record(actor=actor, verb="group.mapped", thing=mapped, workspace_id=mapped.workspace_id, after=_gives(mapped))
    return mapped


@transaction.atomic
def unmap_group(*, actor: Actor, mapped: GroupRole) -> None:
    """The group gives this no longer; who has it by the group loses it at their next sign-in."""
    require(actor, "user.manage")
    record(actor=actor, verb="group.unmapped", thing=mapped, workspace_id=mapped.workspace_id, before=_gives(mapped))
    mapped.delete()


def _gives(mapped: GroupRole) -> dict[str, str]:
    if mapped.workspace is None:
        return {"platform_role": mapped.platform_role}
    return {"workspace": mapped.workspace.name, "role": mapped.role}


@transaction.atomic
def follow_groups(*, user: User, groups: Iterable[str]) -> None:
    """Give the person what their groups give now, and take back what groups gave before and give no longer."""
    mapped = list(GroupRole.objects.filter(group__in=set(groups)).select_related("workspace"))
    _follow_platform_role(user, {row.platform_role for row in mapped if row.platform_role})
    wanted: dict[int, set[str]] = {}
    for row in mapped:
        if row.workspace_id is not None:
            wanted.setdefault(row.workspace_id, set()).add(row.role)
    members = {
        member.workspace_id: member
        for member in Member.objects.filter(user=user).select_for_update().select_related("workspace").order_by("id")
    }
    for workspace_id, roles in sorted(wanted.items()):
        _follow_workspace(user, workspace_id, [role for role in Role if role in roles], members.get(workspace_id))
    for workspace_id, member in members.items():
        if member.by_groups and workspace_id not in wanted:
            _note(user, "member.removed", workspace_id, {"roles": member.roles}, {})
            member.delete()


def _follow_platform_role(user: User, given: set[str]) -> None:
    by_hand = bool(user.platform_role) and not user.role_by_groups
    role = next((role for role in PlatformRole.values if role and role in given), PlatformRole.NONE)
    if by_hand or (role == user.platform_role and user.role_by_groups == bool(role)):
        return
    before = {"platform_role": user.platform_role}
    user.platform_role, user.role_by_groups = role, bool(role)
    user.save(update_fields=["platform_role", "role_by_groups"])
    after = {"platform_role": role}
    record(actor=SYSTEM, verb="user.platform_role", thing=user, before=before, after=after, facts={"by": "groups"})


def _follow_workspace(user: User, workspace_id: int, roles: list[Role], member: Member | None) -> None:
    if member is None:
        Member.objects.create(workspace_id=workspace_id, user=user, roles=roles, by_groups=True)
        _note(user, "member.added", workspace_id, {}, {"roles": roles})
    elif member.by_groups and member.roles != roles:
        before, member.roles = member.roles, list(roles)
        member.save(update_fields=["roles"])
        _note(user, "member.roles_set", workspace_id, {"roles": before}, {"roles": roles})


def _note(user: User, verb: str, workspace_id: int, before: dict[str, object], after: dict[str, object]) -> None:
    facts = {"user": user.get_username(), "by": "groups"}
    workspace = Workspace.objects.get(pk=workspace_id)
    record(actor=SYSTEM, verb=verb, thing=workspace, workspace_id=workspace_id, before=before, after=after, facts=facts)
    signal("workspaces", f"workspace.{workspace_id}")
