"""Small makers, so that a test reads like the situation it tells."""

from __future__ import annotations

from collections.abc import Sequence

from scheduler.core.model import (
    Device,
    IdleUse,
    Kind,
    Node,
    Plan,
    PoolAmounts,
    Quota,
    Reason,
    Shape,
    WorkerGroup,
    Workload,
)
from scheduler.core.resources import Bound
from tests.core.player import Cluster

PRIORITY = {Kind.TRAINING: 3, Kind.NOTEBOOK: 6, Kind.SERVICE: 9}


def a_cluster(nodes: Sequence[int], *quotas: Quota, stop_ms: int = 0) -> Cluster:
    """A cluster whose nodes have so many GPUs each, numbered from 1."""
    cluster = Cluster(stop_ms=stop_ms)
    for number, gpus in enumerate(nodes, start=1):
        cluster.nodes[number] = Node(number, 1, f"n{number}", devices=tuple(Device() for _ in range(gpus)))
    cluster.quotas = {quota.id: quota for quota in quotas}
    return cluster


def a_quota(
    number: int,
    gpus: float | None,
    parent: int | None = None,
    *,
    limit: int | None = None,
    weight: int | None = None,
    rank: int = 0,
    lends: int | None = None,
    **fields: object,
) -> Quota:
    """A quota with so many GPUs guaranteed."""
    amounts = PoolAmounts(
        guaranteed=Bound(gpu_milli=None if gpus is None else int(gpus * 1000)),
        limit=Bound(gpu_milli=None if limit is None else limit * 1000),
        lending_limit=Bound(gpu_milli=None if lends is None else lends * 1000),
        weight_milli=None if weight is None else weight * 1000,
        rank=rank,
    )
    return Quota(number, parent, f"q{number}", ((1, amounts),), **fields)  # type: ignore[arg-type]


def work(
    number: int,
    quota: int,
    gpus: float,
    workers: int = 1,
    *,
    kind: Kind = Kind.TRAINING,
    minimum: int | None = None,
    **fields: object,
) -> Workload:
    """A workload; trainings and notebooks are gangs, services are not."""
    milli = int(gpus * 1000)
    count = 0 if not milli else max(1, milli // 1000)
    shape_fields = {name: fields.pop(name) for name in ("cpu_milli", "memory_mib", "select") if name in fields}
    shape = Shape(gpu_count=count, gpu_milli=min(milli, 1000), **shape_fields)  # type: ignore[arg-type]
    gang = kind is not Kind.SERVICE
    least = (workers if minimum is None else minimum) if gang else 0
    defaults: dict[str, object] = {
        "idle": IdleUse.ALLOW,
        "priority": PRIORITY[kind],
        "preemptible": gang,
        "gang": gang,
    }
    return Workload(number, quota, kind, (WorkerGroup(shape, workers, least),), 0, **{**defaults, **fields})  # type: ignore[arg-type]


def running_in(cluster: Cluster, *identifiers: int) -> list[int]:
    """Which of these run."""
    return [identifier for identifier in identifiers if cluster.is_running(identifier)]


def victims(cluster: Cluster) -> list[int]:
    """Who was evicted so far, in order."""
    return [victim for victim, _ in cluster.evicted]


def reason(plan: Plan, identifier: int) -> Reason | None:
    """Why a workload waits."""
    wait = plan.wait_of(identifier)
    return None if wait is None else wait.reason
