"""Clusters, pools and nodes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from django.db import transaction

from quotas.actors import Actor
from quotas.audit import changes, record
from quotas.errors import Problems, refuse
from quotas.models import Cluster, Node, NodePool
from quotas.permissions import require
from quotas.promises import Tree, capacity_of
from quotas.services._common import locked, save_changes, taken_is_conflict
from quotas.specs import RESOURCES, ClusterSpec, NodeSpec, PoolSpec
from scheduler.triggers import request_cycle, signal

POOL_FIELDS = ("name", "selector", "placement", "kinds", "oversubscription", "order")
NODE_FIELDS = ("name", "labels", "gpu_model", "gpus", "gpu_memory_mib", "cpu_milli", "memory_mib")


@transaction.atomic
def create_cluster(*, actor: Actor, spec: ClusterSpec) -> Cluster:
    """Create a cluster whose clock starts now."""
    require(actor, "cluster.manage")
    with taken_is_conflict("name", spec.name):
        cluster = Cluster.objects.create(
            name=spec.name,
            engine=spec.engine,
            settings=dict(spec.settings),
            topology_levels=list(spec.topology_levels),
            clock_speed=spec.clock_speed,
        )
    record(actor=actor, verb="cluster.created", thing=cluster, after={"engine": spec.engine, **spec.settings})
    request_cycle(cluster.pk, "cluster created")
    return cluster


@transaction.atomic
def create_pool(*, actor: Actor, cluster: Cluster, spec: PoolSpec) -> NodePool:
    """Create a pool and give it the free nodes that its selector now takes first."""
    require(actor, "pool.manage", cluster)
    with taken_is_conflict("name", spec.name):
        pool = NodePool.objects.create(cluster=cluster, **_pool_values(spec))
    _reassign_nodes(cluster)
    record(actor=actor, verb="pool.created", thing=pool, after=_pool_values(spec))
    request_cycle(cluster.pk, "pool created")
    signal("overview", "nodes")
    return pool


@transaction.atomic
def edit_pool(*, actor: Actor, pool: NodePool, spec: PoolSpec, revision: int | None = None) -> NodePool:
    """Change a pool. Nodes that the pools' rules now put elsewhere move, unless work runs on them."""
    require(actor, "pool.manage", pool)
    pool = locked(pool, revision)
    before = {name: getattr(pool, name) for name in POOL_FIELDS}
    if pool.oversubscription and not spec.oversubscription:
        _require_no_oversubscription(pool)
    for name, value in _pool_values(spec).items():
        setattr(pool, name, value)
    with taken_is_conflict("name", spec.name):
        save_changes(pool, list(POOL_FIELDS))
    _reassign_nodes(pool.cluster)
    _record_change(actor, "pool.edited", pool, before, _pool_values(spec))
    request_cycle(pool.cluster_id, "pool edited")
    signal("overview", "nodes")
    return pool


def _pool_values(spec: PoolSpec) -> dict[str, Any]:
    return {name: getattr(spec, name) for name in POOL_FIELDS} | {
        "selector": dict(spec.selector),
        "kinds": list(spec.kinds),
    }


def _record_change(
    actor: Actor, verb: str, thing: NodePool | Node, before: Mapping[str, Any], after: Mapping[str, Any]
) -> None:
    had, has = changes(before, after)
    record(actor=actor, verb=verb, thing=thing, before=had, after=has)


def _require_no_oversubscription(pool: NodePool) -> None:
    tree, problems = Tree.load(pool.cluster), Problems()
    for resource in RESOURCES:
        promised, capacity = tree.promised_below(None, pool.pk, resource), capacity_of(pool, resource)
        if capacity is not None and promised > capacity:
            problems.add(
                "oversubscription",
                "quota.exceeds_pool",
                pool=pool.name,
                resource=resource,
                asked=promised,
                capacity=capacity,
                missing=promised - capacity,
            )
    problems.raise_any()


def matches(pool: NodePool, labels: Mapping[str, str], gpu_model: str) -> bool:
    """Whether the pool's selector takes a node; ``gpu_model`` counts as a label."""
    shown = {"gpu_model": gpu_model, **labels}
    return all(shown.get(label) == value for label, value in pool.selector.items())


def pool_for(cluster: Cluster, labels: Mapping[str, str], gpu_model: str) -> NodePool | None:
    """The first pool, in the pools' order, whose selector takes such a node."""
    pools = cluster.pools.order_by("order", "id")
    return next((pool for pool in pools if matches(pool, labels, gpu_model)), None)


def _reassign_nodes(cluster: Cluster) -> None:
    """Put each node into the first pool that takes it; a node that no pool takes stays where it is."""
    pools = list(cluster.pools.order_by("order", "id"))
    moving: dict[int, list[int]] = {}
    for node in cluster.nodes.select_for_update(no_key=True).order_by("id"):
        pool = next((pool for pool in pools if matches(pool, node.labels, node.gpu_model)), None)
        if pool is not None and pool.pk != node.pool_id:
            moving.setdefault(pool.pk, []).append(node.pk)
    _require_idle(cluster, [pk for pks in moving.values() for pk in pks])
    for pool_id, node_ids in moving.items():
        cluster.nodes.filter(pk__in=node_ids).update(pool_id=pool_id)


def _require_idle(cluster: Cluster, node_ids: list[int]) -> None:
    busy = cluster.nodes.filter(pk__in=node_ids, allocations__ended_at__isnull=True, allocations__isnull=False)
    names = sorted(set(busy.values_list("name", flat=True)))
    if names:
        raise refuse("selector", "node.in_use", nodes=names)


@transaction.atomic
def add_node(*, actor: Actor, cluster: Cluster, spec: NodeSpec) -> Node:
    """Add a node to a cluster, into the pool that is named or whose selector takes it."""
    require(actor, "node.manage", cluster)
    pool = spec.pool or pool_for(cluster, spec.labels, spec.gpu_model)
    if pool is None or pool.cluster_id != cluster.pk:
        raise refuse("pool", "invalid", reason="required", wanted="a pool of the cluster that takes the node")
    now = cluster.now()
    values = {name: getattr(spec, name) for name in NODE_FIELDS} | {"labels": dict(spec.labels)}
    with taken_is_conflict("name", spec.name):
        node = Node.objects.create(cluster=cluster, pool=pool, state_at=now, heartbeat_at=now, **values)
    record(actor=actor, verb="node.added", thing=node, after={**values, "pool": pool.name})
    request_cycle(cluster.pk, "node added")
    signal("overview", "nodes")
    return node


@transaction.atomic
def edit_node(*, actor: Actor, node: Node, labels: Mapping[str, str], revision: int | None = None) -> Node:
    """Set a node's labels; it may come into another pool by that, if nothing runs on it."""
    require(actor, "node.manage", node)
    node = locked(node, revision)
    before = {"labels": node.labels, "pool": node.pool_id}
    node.labels = dict(labels)
    save_changes(node, ["labels"])
    _reassign_nodes(node.cluster)
    node.refresh_from_db()
    _record_change(actor, "node.edited", node, before, {"labels": node.labels, "pool": node.pool_id})
    request_cycle(node.cluster_id, "node edited")
    signal("nodes", f"node.{node.pk}")
    return node


@transaction.atomic
def remove_node(*, actor: Actor, node: Node) -> None:
    """Remove a node on which nothing runs. Its row stays for what it once held."""
    require(actor, "node.manage", node)
    node = locked(node)
    held = node.allocations.filter(ended_at__isnull=True).values_list("workload__name", flat=True)
    if held:
        raise refuse("", "node.in_use", nodes=[node.name], workloads=sorted(set(held)))
    node.removed_at = node.cluster.now()
    save_changes(node, ["removed_at"])
    record(actor=actor, verb="node.removed", thing=node, before={"gpus": node.gpus})
    request_cycle(node.cluster_id, "node removed")
    signal("overview", "nodes")


@transaction.atomic
def set_device_health(*, actor: Actor, node: Node, index: int, healthy: bool) -> Node:
    """Mark a GPU as bad or good. What runs on a bad one goes on; nothing new is put there."""
    require(actor, "node.manage", node)
    node = locked(node)
    if not 0 <= index < node.gpus:
        raise refuse("index", "invalid", reason="range", low=0, high=node.gpus - 1, given=index)
    before = sorted(node.bad_devices)
    bad = set(before) - {index} if healthy else {*before, index}
    node.bad_devices = sorted(bad)
    save_changes(node, ["bad_devices"])
    _record_change(actor, "node.health", node, {"bad_devices": before}, {"bad_devices": node.bad_devices})
    request_cycle(node.cluster_id, "device health")
    signal("nodes", f"node.{node.pk}")
    return node
