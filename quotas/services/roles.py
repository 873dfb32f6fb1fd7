"""Custom roles of a workspace."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self

from django.db import transaction

from quotas.actors import Actor
from quotas.audit import record
from quotas.errors import refuse
from quotas.models import CustomRole, Member, Workspace
from quotas.permissions import CUSTOM_MODULES, Level, custom_levels, require, require_within
from quotas.services._common import locked, save_changes, taken_is_conflict
from quotas.specs import Reader
from scheduler.triggers import signal

LEVEL_NAMES = tuple(level.name.lower() for level in Level)


@dataclass(frozen=True, slots=True)
class CustomRoleSpec:
    """A role by its levels; a module that is not named has none."""

    name: str
    levels: Mapping[str, str]

    @classmethod
    def from_mapping(cls, data: Mapping[str, Any]) -> Self:
        """Reads ``{name, levels: {module: none|read|own|all}}``."""
        read = Reader(data)
        read.asked.add("levels")
        given = data.get("levels") or {}
        inner = Reader(given if isinstance(given, Mapping) else {}, "levels.")
        if not isinstance(given, Mapping):
            read.bad("levels", "type", wanted="mapping of module to level")
        levels = {module: inner.choice(module, LEVEL_NAMES, default="none") for module in CUSTOM_MODULES}
        read.problems.take("", inner.finish)
        spec = cls(read.name(), levels)
        read.finish()
        return spec


@transaction.atomic
def create_custom_role(*, actor: Actor, workspace: Workspace, spec: CustomRoleSpec) -> CustomRole:
    """Add a role of the workspace's own."""
    require(actor, "member.manage", workspace)
    with taken_is_conflict("name", spec.name):
        role = CustomRole.objects.create(workspace=workspace, name=spec.name, levels=dict(spec.levels))
    after = {"name": spec.name, "levels": dict(spec.levels)}
    record(actor=actor, verb="role.created", thing=role, workspace_id=workspace.pk, after=after)
    return role


@transaction.atomic
def edit_custom_role(
    *, actor: Actor, role: CustomRole, spec: CustomRoleSpec, revision: int | None = None
) -> CustomRole:
    """Change a role; whoever holds it has the new levels at once, so nobody gives it more than they have."""
    require(actor, "member.manage", role)
    role = locked(role, revision)
    require_within(actor, role.workspace, custom_levels(spec.levels), custom_levels(role.levels))
    before = {"name": role.name, "levels": role.levels}
    role.name, role.levels = spec.name, dict(spec.levels)
    with taken_is_conflict("name", spec.name):
        save_changes(role, ["name", "levels"])
    after = {"name": role.name, "levels": role.levels}
    record(actor=actor, verb="role.edited", thing=role, workspace_id=role.workspace_id, before=before, after=after)
    signal(f"workspace.{role.workspace_id}")
    return role


@transaction.atomic
def delete_custom_role(*, actor: Actor, role: CustomRole) -> None:
    """Remove a role that nobody holds."""
    require(actor, "member.manage", role)
    locked(role.workspace)
    holders = Member.objects.filter(workspace=role.workspace_id, custom_roles__contains=[role.pk])
    names = list(holders.order_by("user__username").values_list("user__username", flat=True))
    if names:
        raise refuse("", "role.in_use", blockers={"members": names})
    before = {"name": role.name, "levels": role.levels}
    record(actor=actor, verb="role.deleted", thing=role, workspace_id=role.workspace_id, before=before)
    role.delete()
