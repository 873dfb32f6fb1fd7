"""A world as rows, and one cycle on them timed in its three parts: load, decide, apply."""

from __future__ import annotations

import statistics
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta

from django.db import connection, transaction

from quotas.models import Cluster, Node, NodePool, Quota, QuotaAmount, Workspace, WorkspaceQuota
from scheduler import settings
from scheduler.benchmarks.measure import Figures, contents_of, peak_mib
from scheduler.benchmarks.worlds import NOW_MS, POOL, World
from scheduler.clocks import from_ms
from scheduler.collecting import collector_at_rest
from scheduler.core import model as core
from scheduler.core.decide import decide
from scheduler.core.resources import WHOLE_GPU
from scheduler.plans import apply_plan
from scheduler.snapshots import load
from workloads.models import Allocation, Phase, State, Workload

BATCH = 5000
AT = from_ms(NOW_MS)


def figures_through_database(name: str, world: World, runs: int) -> Figures:
    """Load, decide and apply `runs` times on the rows of the world; each time the writes are rolled back."""
    cluster = write_world(world)
    parts: dict[str, list[float]] = {"load_s": [], "decide_s": [], "apply_s": []}
    for _ in range(runs):
        begun = time.perf_counter()
        loaded = load(cluster, AT)
        read = time.perf_counter()
        with collector_at_rest():
            plan = decide(loaded.snapshot, settings.policy_for(cluster))
        decided = time.perf_counter()
        with rolled_back():
            apply_plan(cluster, loaded, plan)
            check_constraints()
            applied = time.perf_counter()
        for part, seconds in zip(parts, (read - begun, decided - read, applied - decided), strict=True):
            parts[part].append(seconds)
    medians = {part: round(statistics.median(seconds), 4) for part, seconds in parts.items()}
    total = round(statistics.median(map(sum, zip(*parts.values(), strict=True))), 4)
    figures = {"bench": name, "median_s": total, **medians, "runs": runs, "sizes": world.sizes}
    return {**figures, **contents_of(plan), "peak_mib": peak_mib()}


@contextmanager
def rolled_back() -> Iterator[None]:
    with transaction.atomic():
        yield
        transaction.set_rollback(True)


def check_constraints() -> None:
    """What the database checks at the end of a transaction, now."""
    with connection.cursor() as cursor:
        cursor.execute("SET CONSTRAINTS ALL IMMEDIATE")


# --- rows -----------------------------------------------------------------------------------------------------------


@transaction.atomic
def write_world(world: World) -> Cluster:
    """The rows of a world with the ids of its snapshot, in a database that holds nothing else."""
    snapshot = world.snapshot
    cluster = Cluster.objects.create(name="bench", settings={}, clock_at=AT)
    NodePool.objects.bulk_create(
        NodePool(id=pool.id, cluster=cluster, name=f"pool-{pool.id}") for pool in snapshot.pools
    )
    Node.objects.bulk_create((_node(cluster, node) for node in snapshot.nodes), BATCH)
    Quota.objects.bulk_create(_quota(cluster, quota) for quota in snapshot.quotas)
    QuotaAmount.objects.bulk_create(
        _amount(quota, pool, amounts) for quota in snapshot.quotas for pool, amounts in quota.amounts
    )
    workspace = Workspace.objects.create(name="bench")
    WorkspaceQuota.objects.bulk_create(WorkspaceQuota(workspace=workspace, quota_id=q.id) for q in snapshot.quotas)
    held = {allocation.place.workload: allocation for allocation in snapshot.allocations}
    Workload.objects.bulk_create((_workload(cluster, workspace, w, held.get(w.id)) for w in snapshot.workloads), BATCH)
    quota_of = {workload.id: workload.quota for workload in snapshot.workloads}
    Allocation.objects.bulk_create((_allocation(one, quota_of) for one in snapshot.allocations), BATCH)
    return cluster


def _node(cluster: Cluster, node: core.Node) -> Node:
    return Node(
        id=node.id,
        cluster=cluster,
        pool_id=node.pool,
        name=node.name,
        labels=dict(node.labels),
        gpus=len(node.devices),
        gpu_memory_mib=node.devices[0].memory_mib if node.devices else 0,
        cpu_milli=node.cpu_milli,
        memory_mib=node.memory_mib,
    )


def _quota(cluster: Cluster, quota: core.Quota) -> Quota:
    return Quota(id=quota.id, cluster=cluster, parent_id=quota.parent, name=quota.name)


def _amount(quota: core.Quota, pool: int, amounts: core.PoolAmounts) -> QuotaAmount:
    return QuotaAmount(quota_id=quota.id, pool_id=pool, guaranteed_gpu_milli=amounts.guaranteed.gpu_milli)


def _workload(
    cluster: Cluster, workspace: Workspace, workload: core.Workload, held: core.Allocation | None
) -> Workload:
    group = workload.groups[0]
    submitted = from_ms(workload.submitted_ms)
    return Workload(
        id=workload.id,
        cluster=cluster,
        workspace=workspace,
        quota_id=workload.quota,
        name=f"w{workload.id}",
        kind=workload.kind.value,
        state=State.QUEUED if held is None else State.RUNNING,
        state_at=submitted,
        submitted_at=submitted,
        started_at=None if held is None else from_ms(held.started_ms),
        starts=0 if held is None else 1,
        priority=workload.priority,
        idle=workload.idle.value,
        preemptible=workload.preemptible,
        gpus=group.shape.gpu_count,
        gpu_milli=group.shape.gpu_milli or WHOLE_GPU,
        cpu_milli=group.shape.cpu_milli,
        memory_mib=group.shape.memory_mib,
        replicas=group.wanted,
        gang=workload.gang,
        topology_preferred=group.topology.preferred or "",
    )


def _allocation(held: core.Allocation, quota_of: dict[int, int]) -> Allocation:
    place, started = held.place, from_ms(held.started_ms)
    return Allocation(
        workload_id=place.workload,
        quota_id=quota_of[place.workload],
        pool_id=POOL,
        node_id=place.node,
        run=1,
        index=place.index,
        devices=list(place.devices),
        gpu_milli=place.device_milli,
        cpu_milli=place.cpu_milli,
        memory_mib=place.memory_mib,
        phase=Phase.RUNNING,
        ordered_at=started,
        running_at=started + timedelta(seconds=1),
    )
