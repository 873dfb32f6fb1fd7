"""The stage of a scenario: its cluster, pools, nodes, quotas and workspaces as rows, and names to find them by."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping
from typing import Any, TypeVar

from django.db.models import F

from quotas.actors import SYSTEM, Actor
from quotas.models import Cluster, Node, NodePool, Quota, Role, User, Workspace
from quotas.services import (
    add_member,
    add_node,
    create_cluster,
    create_pool,
    create_quota,
    create_user,
    create_workspace,
)
from quotas.specs import RESOURCES, AmountSpec, ClusterSpec, NodeSpec, PoolSpec, QuotaSpec, UserSpec, WorkspaceSpec
from scheduler.scenarios.script import Nodes, QuotaFields, Scenario
from workloads.models import Workload

ONLY_POOL = "default"
T = TypeVar("T")


class NoSuchName(Exception):
    """The scenario names something that is not there at that moment."""


class Stage:
    """Finds the rows behind the names of a scenario."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self.own_workspaces: set[int] = set()
        """Workspaces that the runner made because the file names none."""

    def quota(self, name: str) -> Quota:
        return self._one("quota", name, Quota.objects.filter(cluster=self.cluster, name=name).first())

    def node(self, name: str) -> Node:
        return self._one("node", name, Node.objects.filter(cluster=self.cluster, name=name).first())

    def workload(self, name: str) -> Workload:
        """The newest workload of that name, one that is not deleted before all others."""
        found = Workload.objects.filter(cluster=self.cluster, name=name).select_related("cluster", "quota", "workspace")
        newest = found.order_by(F("deleted_at").desc(nulls_first=True), "-id").first()
        return self._one("workload", name, newest)

    def pools(self) -> list[NodePool]:
        return list(self.cluster.pools.order_by("order", "id"))

    def workspace_of(self, quota: Quota, name: str | None) -> Workspace:
        """The named workspace, or the first that has the quota."""
        if name is not None:
            return self._one("workspace", name, Workspace.objects.filter(name=name).first())
        found = Workspace.objects.filter(bindings__quota=quota).order_by("id").first()
        return self._one("workspace with the quota", quota.name, found)

    def actor(self, name: str | None, workspace: Workspace) -> Actor:
        """The system, or the user of that name, who becomes a developer of the workspace when first seen there."""
        if name is None:
            return SYSTEM
        user = User.objects.filter(username=name).first()
        if user is None:
            user = create_user(actor=SYSTEM, spec=UserSpec(username=name))
        if not workspace.members.filter(user=user).exists():
            add_member(actor=SYSTEM, workspace=workspace, user=user, roles=[Role.DEVELOPER])
        return user

    @staticmethod
    def _one(what: str, name: str, found: T | None) -> T:
        if found is None:
            raise NoSuchName(f"there is no {what} {name!r}")
        return found

    def amounts(self, fields: QuotaFields, quota: Quota | None = None) -> dict[NodePool, AmountSpec]:
        """The amounts of the quota after the fields are laid over what it has; only of pools that are touched."""
        rows = quota.amounts.all() if quota is not None else ()
        had = {row.pool_id: AmountSpec.of(row) for row in rows}
        changed: dict[NodePool, AmountSpec] = {}
        for pool in self.pools():
            values = _values(fields, pool.name)
            touches = bool(values) or pool.pk in had or quota is None
            if touches:
                values |= _shares(fields)
            if values:
                changed[pool] = dataclasses.replace(had.get(pool.pk, AmountSpec()), **values)
        return changed


def _values(fields: QuotaFields, pool: str) -> dict[str, Any]:
    """Amount fields of one pool. A mapping given anew sets every resource; a plain number sets GPUs."""
    values: dict[str, Any] = {}
    for what, by_pool in fields.amounts.items():
        name = pool if pool in by_pool else ""
        if name not in by_pool:
            continue
        amount = by_pool[name]
        if amount is None or not (len(amount) == 1 and "gpu_milli" in amount):
            values |= {f"{what}_{resource}": (amount or {}).get(resource) for resource in RESOURCES}
        else:
            values[f"{what}_gpu_milli"] = amount["gpu_milli"]
    return values


def _shares(fields: QuotaFields) -> dict[str, Any]:
    weight = {"weight": fields.weight} if fields.has_weight else {}
    rank = {"rank": fields.rank} if fields.rank is not None else {}
    return {**weight, **rank}


def build_stage(scenario: Scenario) -> Stage:
    """Make everything that stands before the first step."""
    cluster = create_cluster(
        actor=SYSTEM,
        spec=ClusterSpec(name="scenario", settings=scenario.settings, topology_levels=scenario.levels),
    )
    stage = Stage(cluster)
    for order, pool in enumerate(scenario.pools):
        create_pool(actor=SYSTEM, cluster=cluster, spec=PoolSpec(name=pool.name, order=order, **pool.spec))
    if not scenario.pools:
        create_pool(actor=SYSTEM, cluster=cluster, spec=PoolSpec(name=ONLY_POOL))
    for group in scenario.nodes:
        add_nodes(stage, group)
    for fields in scenario.quotas:
        make_quota(stage, fields)
    _make_workspaces(stage, scenario)
    return stage


def add_nodes(stage: Stage, group: Nodes) -> None:
    named: Mapping[str, NodePool] = {pool.name: pool for pool in stage.pools()}
    spec = {**group.spec, "pool": named.get(group.spec.get("pool", ""))}
    for name in group.names:
        add_node(actor=SYSTEM, cluster=stage.cluster, spec=NodeSpec(name=name, **spec))


def make_quota(stage: Stage, fields: QuotaFields) -> Quota:
    return create_quota(
        actor=SYSTEM,
        cluster=stage.cluster,
        spec=QuotaSpec(
            name=fields.name,
            parent=stage.quota(fields.parent) if fields.parent is not None else None,
            amounts=stage.amounts(fields),
            settings=fields.settings,
        ),
    )


def _make_workspaces(stage: Stage, scenario: Scenario) -> None:
    if scenario.workspaces:
        for workspace in scenario.workspaces:
            make_workspace(stage, workspace.name, workspace.quotas)
        return
    for fields in scenario.quotas:
        stage.own_workspaces.add(make_workspace(stage, fields.name, [fields.name]).pk)


def make_workspace(stage: Stage, name: str, quotas: Iterable[str]) -> Workspace:
    spec = WorkspaceSpec(name=name, quotas=tuple(stage.quota(quota) for quota in quotas))
    return create_workspace(actor=SYSTEM, spec=spec)
