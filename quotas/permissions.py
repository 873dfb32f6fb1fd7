"""Who may do what: one table. Pages, API, commands and live streams all ask the functions below it.

A role gives a level in each module: ``none``, ``read``, ``own`` (do it to one's own), ``all``. A permission names the
module and the level it takes, for one's own objects and for those of others. Platform permissions stand outside
workspaces; the auditor has those that only read. A token narrows its user to one workspace and one role.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import IntEnum
from functools import reduce
from typing import Any

from django.db.models import Model, Q, QuerySet

from quotas.actors import Actor, System
from quotas.errors import Denied, NotFound
from quotas.models import (
    AuditEvent,
    Cluster,
    CustomRole,
    Member,
    Node,
    NodePool,
    PlatformRole,
    Quota,
    Role,
    Token,
    User,
    Workspace,
    WorkspaceQuota,
)


class Level(IntEnum):
    """How far a role reaches in one module."""

    NONE = 0
    READ = 1
    OWN = 2
    ALL = 3


N, R, O, A = Level.NONE, Level.READ, Level.OWN, Level.ALL  # noqa: E741 - the letters of the table

KIND_MODULES = {"training": "training", "notebook": "notebooks", "service": "services"}
CUSTOM_MODULES = ("training", "notebooks", "services", "queue", "members", "configuration", "quotas")
MODULES = (*CUSTOM_MODULES, "workspace", "ownership")

Levels = Mapping[str, Level]

ROLE_TABLE: dict[str, tuple[Level, ...]] = {
    # training, notebooks, services, queue, members, configuration, quotas, workspace, ownership
    Role.OWNER: (A, A, A, A, A, A, R, A, A),
    Role.ADMINISTRATOR: (A, A, A, A, A, A, R, A, N),
    Role.OPERATOR: (A, A, A, A, R, R, R, R, N),
    Role.DEVELOPER: (O, O, R, R, R, R, R, R, N),
    Role.VIEWER: (R, R, R, R, R, R, R, R, N),
}
LEVELS: dict[str, dict[str, Level]] = {role: dict(zip(MODULES, row, strict=True)) for role, row in ROLE_TABLE.items()}
EVERYTHING = dict.fromkeys(MODULES, Level.ALL)
READING = dict.fromkeys(MODULES, Level.READ)


@dataclass(frozen=True, slots=True)
class Permission:
    """What a permission takes. ``module`` None: the platform's; "kind": the module of the workload's kind."""

    module: str | None
    own: Level = Level.ALL
    any: Level = Level.ALL
    reads: bool = False


def _workload(own: Level = O, any_: Level = A, module: str = "kind") -> Permission:
    return Permission(module, own, any_)


_PLATFORM = Permission(None)
_PLATFORM_READ = Permission(None, reads=True)

PERMISSIONS: dict[str, Permission] = {
    "workload.read": Permission("kind", R, R, reads=True),
    "workload.submit": _workload(any_=O),
    "workload.submit_training": Permission("training", O, O),
    "workload.submit_notebook": Permission("notebooks", O, O),
    "workload.submit_service": Permission("services", O, O),
    "workload.stop": _workload(),
    "workload.delete": _workload(),
    "workload.hold": _workload(),
    "workload.release": _workload(),
    "workload.restart": _workload(),
    "workload.change_priority": _workload(),
    "workload.move": _workload(),
    "workload.scale": _workload(),
    "workload.set_rules": _workload(),
    "workload.extend": Permission("kind", A, A),
    "workload.edit": _workload(),
    "workload.read_logs": Permission("kind", R, R, reads=True),
    "queue.read": Permission("queue", R, R, reads=True),
    "queue.reorder": Permission("queue", A, A),
    "member.read": Permission("members", R, R, reads=True),
    "member.manage": Permission("members", A, A),
    "configuration.read": Permission("configuration", R, R, reads=True),
    "configuration.manage": Permission("configuration", A, A),
    "quota.read": Permission("quotas", R, R, reads=True),
    "quota.request": Permission("configuration", A, A),
    "workspace.read": Permission("workspace", R, R, reads=True),
    "workspace.edit": Permission("workspace", A, A),
    "workspace.archive": Permission("ownership", A, A),
    "workspace.delete": Permission("ownership", A, A),
    "workspace.hand_over": Permission("ownership", A, A),
    "workspace.create": _PLATFORM,
    "workspace.bind_quota": _PLATFORM,
    "quota.create": _PLATFORM,
    "quota.edit": _PLATFORM,
    "quota.scale": _PLATFORM,
    "quota.move": _PLATFORM,
    "quota.delete": _PLATFORM,
    "quota.decide_request": _PLATFORM,
    "cluster.manage": _PLATFORM,
    "cluster.read": _PLATFORM_READ,
    "pool.manage": _PLATFORM,
    "node.manage": _PLATFORM,
    "node.read": _PLATFORM_READ,
    "user.manage": _PLATFORM,
    "user.read": _PLATFORM_READ,
    "audit.read": _PLATFORM_READ,
}


# --- what an actor has --------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Grants:
    """What an actor has now: a platform role (after the token's narrowing), and levels by workspace."""

    platform: str
    workspaces: Mapping[int, Levels]
    user_id: int | None

    def levels_in(self, workspace_id: int | None) -> Levels:
        """Levels in a workspace; empty for a stranger."""
        if self.platform == PlatformRole.ADMINISTRATOR:
            return EVERYTHING
        levels = self.workspaces.get(workspace_id, {}) if workspace_id is not None else {}
        return strongest([levels, READING]) if self.platform == PlatformRole.AUDITOR else levels

    @property
    def reads_all(self) -> bool:
        return self.platform != PlatformRole.NONE


_SYSTEM_GRANTS = Grants(PlatformRole.ADMINISTRATOR, {}, None)


def strongest(tables: Iterable[Levels]) -> dict[str, Level]:
    """The higher level of each module."""
    return reduce(lambda a, b: {m: max(a.get(m, N), b.get(m, N)) for m in MODULES}, tables, dict.fromkeys(MODULES, N))


def _at_most(levels: Levels, ceiling: Levels) -> dict[str, Level]:
    return {module: min(levels.get(module, N), ceiling.get(module, N)) for module in MODULES}


def custom_levels(stored: Mapping[str, Any]) -> dict[str, Level]:
    """The levels of a custom role's row; what it does not name is none. Its members see their workspace."""
    named = {module: Level[str(stored.get(module, "none")).upper()] for module in CUSTOM_MODULES}
    return {**dict.fromkeys(MODULES, N), **named, "workspace": R}


def grants_of(actor: Actor) -> Grants:
    """What the actor has now; one query, two where custom roles are held. Never kept: roles are taken at once."""
    if isinstance(actor, System):
        return _SYSTEM_GRANTS
    if not isinstance(actor, User) or not actor.is_active:
        return Grants(PlatformRole.NONE, {}, None)
    token = actor.token
    if token is None or token.workspace_id is None:
        return Grants(actor.platform_role, _memberships(actor), actor.pk)
    ceiling = LEVELS[token.role]
    if actor.is_platform_administrator:
        return Grants(PlatformRole.NONE, {token.workspace_id: ceiling}, actor.pk)
    held = _memberships(actor, token.workspace_id).get(token.workspace_id, {})
    return Grants(PlatformRole.NONE, {token.workspace_id: _at_most(held, ceiling)} if held else {}, actor.pk)


def levels_of(roles: Iterable[str], custom_roles: Iterable[CustomRole]) -> dict[str, Level]:
    """What several roles give together."""
    return strongest([*(LEVELS[role] for role in roles), *(custom_levels(role.levels) for role in custom_roles)])


def _memberships(user: User, workspace_id: int | None = None) -> dict[int, Levels]:
    rows = Member.objects.filter(user=user)
    if workspace_id is not None:
        rows = rows.filter(workspace_id=workspace_id)
    found = list(rows.values_list("workspace_id", "roles", "custom_roles"))
    custom_ids = [role for _, _, custom in found for role in custom]
    custom = (
        {role.pk: custom_levels(role.levels) for role in CustomRole.objects.filter(pk__in=custom_ids)}
        if custom_ids
        else {}
    )
    return {
        workspace: strongest([*(LEVELS[role] for role in roles), *(custom[role] for role in ids if role in custom)])
        for workspace, roles, ids in found
    }


# --- may the actor do it ------------------------------------------------------------------------------------------


def allowed(actor: Actor, permission: str, thing: Model | None = None, *, grants: Grants | None = None) -> bool:
    """Whether the actor may do this, to ``thing`` or (without one) at all."""
    grants = grants or grants_of(actor)
    needs = PERMISSIONS[permission]
    outside = _outside_workspaces(needs, grants)
    if outside is not None:
        return outside
    return _inside(needs, thing, grants, list(grants.workspaces) if thing is None else _workspaces_of(thing, grants))


def _outside_workspaces(needs: Permission, grants: Grants) -> bool | None:
    """What the platform role says; None: the workspaces decide."""
    if grants.platform == PlatformRole.ADMINISTRATOR or (needs.reads and grants.platform == PlatformRole.AUDITOR):
        return True
    return False if needs.module is None else None


def _inside(needs: Permission, thing: Model | None, grants: Grants, workspaces: Iterable[int]) -> bool:
    return any(_enough(needs, grants.levels_in(workspace), thing, grants) for workspace in workspaces)


def _enough(needs: Permission, levels: Levels, thing: Model | None, grants: Grants) -> bool:
    kind = getattr(thing, "kind", None)
    if needs.module != "kind":
        modules: tuple[str, ...] = (needs.module or "",)
    else:
        modules = (KIND_MODULES[kind],) if kind in KIND_MODULES else tuple(KIND_MODULES.values())
    if isinstance(thing, Model) and hasattr(thing, "owner_id"):
        is_own = thing.owner_id is not None and thing.owner_id == grants.user_id
        if not is_own and getattr(thing, "visibility", "shared") == "private":
            return any(levels.get(module, N) == A for module in modules)
        least = needs.own if is_own else needs.any
    else:
        least = needs.own
    return any(levels.get(module, N) >= least for module in modules)


def _workspaces_of(thing: Model, grants: Grants) -> list[int]:
    """Ids of the workspaces whose roles decide about the thing."""
    if isinstance(thing, Workspace):
        return [thing.pk]
    if isinstance(thing, Quota):
        bound = WorkspaceQuota.objects.filter(quota=thing, workspace_id__in=list(grants.workspaces))
        return list(bound.values_list("workspace_id", flat=True))
    workspace_id = getattr(thing, "workspace_id", None)
    if workspace_id is None and getattr(thing, "workload_id", None) is not None:
        workspace_id = thing.workload.workspace_id  # type: ignore[attr-defined]
    return [workspace_id] if workspace_id is not None else []


def require(actor: Actor, permission: str, thing: Model | None = None, *, grants: Grants | None = None) -> None:
    """Raises ``NotFound`` if the actor may not even see the thing, ``Denied`` if it may not do this to it."""
    grants = grants or grants_of(actor)
    if allowed(actor, permission, thing, grants=grants):
        return
    if thing is not None and not can_see(actor, thing, grants=grants):
        raise NotFound(type(thing).__name__.lower())
    raise Denied(permission)


def can_see(actor: Actor, thing: Model, *, grants: Grants | None = None) -> bool:
    """Whether the thing exists for this actor."""
    grants = grants or grants_of(actor)
    if grants.reads_all:
        return True
    if isinstance(thing, Workspace | Member | WorkspaceQuota):
        return allowed(actor, "workspace.read", thing, grants=grants)
    if isinstance(thing, Quota):
        return allowed(actor, "quota.read", thing, grants=grants)
    if isinstance(thing, Cluster):
        return visible_clusters(actor, grants=grants).filter(pk=thing.pk).exists()
    if isinstance(thing, NodePool):
        return visible_pools(actor, grants=grants).filter(pk=thing.pk).exists()
    if isinstance(thing, User):
        return visible_users(actor, grants=grants).filter(pk=thing.pk).exists()
    if isinstance(thing, Token):
        return thing.user_id == grants.user_id
    if hasattr(thing, "owner_id") or hasattr(thing, "workload_id"):
        return allowed(actor, "workload.read", thing, grants=grants)
    return allowed(actor, "workspace.read", thing, grants=grants) if hasattr(thing, "workspace_id") else False


def require_within(actor: Actor, workspace: Workspace, levels: Levels, held: Levels | None = None) -> None:
    """Raises ``Denied`` where the levels, beyond those ``held`` before, allow more than the actor may do there.

    Whoever gives rights, to others or to themselves, gives none that they do not have.
    """
    own, had = grants_of(actor).levels_in(workspace.pk), held or {}
    for name, needs in PERMISSIONS.items():
        for module in KIND_MODULES.values() if needs.module == "kind" else (needs.module or "",):
            before = max(own.get(module, N), had.get(module, N))
            if any(before < least <= levels.get(module, N) for least in (needs.own, needs.any)):
                raise Denied(name)


def permissions_on(actor: Actor, thing: Model | None = None) -> list[str]:
    """The names of all that the actor may do, to the thing or at all: what pages build their buttons from."""
    grants = grants_of(actor)
    workspaces = list(grants.workspaces) if thing is None else _workspaces_of(thing, grants)
    found = []
    for name, needs in PERMISSIONS.items():
        outside = _outside_workspaces(needs, grants)
        if outside or (outside is None and _inside(needs, thing, grants, workspaces)):
            found.append(name)
    return found


# --- what the actor sees ------------------------------------------------------------------------------------------


def _workspaces_with(grants: Grants, module: str, least: Level = R) -> list[int]:
    return [workspace for workspace, levels in grants.workspaces.items() if levels.get(module, N) >= least]


def visible_workspaces(actor: Actor, *, grants: Grants | None = None) -> QuerySet[Workspace]:
    """Workspaces that the actor is a member of; the platform's people see all."""
    grants = grants or grants_of(actor)
    if grants.reads_all:
        return Workspace.objects.all()
    return Workspace.objects.filter(pk__in=_workspaces_with(grants, "workspace"))


def visible_quotas(actor: Actor, *, grants: Grants | None = None) -> QuerySet[Quota]:
    """Quotas bound to the actor's workspaces. Ancestors and descendants that are not bound do not exist for it."""
    grants = grants or grants_of(actor)
    if grants.reads_all:
        return Quota.objects.all()
    bound = WorkspaceQuota.objects.filter(workspace_id__in=_workspaces_with(grants, "quotas"))
    return Quota.objects.filter(pk__in=bound.values("quota_id"))


def visible_clusters(actor: Actor, *, grants: Grants | None = None) -> QuerySet[Cluster]:
    """Clusters in which the actor sees a quota."""
    grants = grants or grants_of(actor)
    if grants.reads_all:
        return Cluster.objects.all()
    return Cluster.objects.filter(pk__in=visible_quotas(actor, grants=grants).values("cluster_id"))


def visible_pools(actor: Actor, *, grants: Grants | None = None) -> QuerySet[NodePool]:
    """Pools in which a quota that the actor sees has amounts."""
    grants = grants or grants_of(actor)
    if grants.reads_all:
        return NodePool.objects.all()
    return NodePool.objects.filter(amounts__quota__in=visible_quotas(actor, grants=grants)).distinct()


def visible_nodes(actor: Actor, *, grants: Grants | None = None) -> QuerySet[Node]:
    """All nodes for the platform's people, none for others: what a node holds tells of every team."""
    grants = grants or grants_of(actor)
    return Node.objects.all() if grants.reads_all else Node.objects.none()


def visible_members(actor: Actor, *, grants: Grants | None = None) -> QuerySet[Member]:
    """Members of the workspaces in which the actor may read them."""
    grants = grants or grants_of(actor)
    if grants.reads_all:
        return Member.objects.all()
    return Member.objects.filter(workspace_id__in=_workspaces_with(grants, "members"))


def visible_users(actor: Actor, *, grants: Grants | None = None) -> QuerySet[User]:
    """Oneself and the people one shares a workspace with; the platform's people see all."""
    grants = grants or grants_of(actor)
    if grants.reads_all:
        return User.objects.all()
    return User.objects.filter(Q(pk=grants.user_id) | Q(pk__in=visible_members(actor, grants=grants).values("user_id")))


def visible_audit(actor: Actor, *, grants: Grants | None = None) -> QuerySet[AuditEvent]:
    """All entries for the platform's people; those of a workspace for whoever manages its members.

    Entries about its work, private work included, only for whoever may see all of that too.
    """
    grants = grants or grants_of(actor)
    if grants.reads_all:
        return AuditEvent.objects.all()
    managed = _workspaces_with(grants, "members", A)
    seen = [pk for pk in managed if all(grants.workspaces[pk].get(kind, N) == A for kind in KIND_MODULES.values())]
    found = AuditEvent.objects.filter(workspace_id__in=managed)
    return found if seen == managed else found.exclude(~Q(workspace_id__in=seen), object_type="workload")


def workload_scope(actor: Actor, prefix: str = "", *, grants: Grants | None = None) -> Q:
    """The condition on workload rows (or, with ``prefix``, on rows that point to one) that the actor may read."""
    grants = grants or grants_of(actor)
    if grants.reads_all:
        return Q()
    groups: dict[tuple[Level, ...], list[int]] = {}
    for workspace, levels in grants.workspaces.items():
        groups.setdefault(tuple(levels.get(KIND_MODULES[kind], N) for kind in KIND_MODULES), []).append(workspace)
    scope = Q(pk__in=[])
    for by_kind, workspaces in groups.items():
        scope |= Q(**{f"{prefix}workspace_id__in": workspaces}) & _kinds_scope(by_kind, prefix, grants.user_id)
    return scope


def _kinds_scope(by_kind: tuple[Level, ...], prefix: str, user_id: int | None) -> Q:
    whole = [kind for kind, level in zip(KIND_MODULES, by_kind, strict=True) if level == A]
    part = [kind for kind, level in zip(KIND_MODULES, by_kind, strict=True) if R <= level < A]
    open_to_all = Q(**{f"{prefix}visibility": "shared"}) | Q(**{f"{prefix}owner_id": user_id})
    kind_in = f"{prefix}kind__in"
    if len(whole) == len(KIND_MODULES):
        return Q()
    if len(part) == len(KIND_MODULES):
        return open_to_all
    return Q(**{kind_in: whole}) | (Q(**{kind_in: part}) & open_to_all)
