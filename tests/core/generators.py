"""Snapshots of a given size, always the same for the same seed: for measuring and for properties."""

from __future__ import annotations

import random

from scheduler.core.model import (
    Allocation,
    Device,
    IdleUse,
    Kind,
    Node,
    Phase,
    Place,
    Pool,
    PoolAmounts,
    Quota,
    Shape,
    Snapshot,
    Topology,
    WorkerGroup,
    Workload,
)
from scheduler.core.resources import WHOLE_GPU, Bound

NOW_MS = 1_772_000_000_000
POOL = 1


def some_nodes(count: int, gpus: int, labels: tuple[tuple[str, int], ...] = ()) -> tuple[Node, ...]:
    """Like nodes; `labels` are (name, how many nodes share a value)."""
    return tuple(
        Node(
            number,
            POOL,
            name=f"n{number}",
            devices=tuple(Device(81_920) for _ in range(gpus)),
            cpu_milli=192_000,
            memory_mib=2_097_152,
            labels=tuple((name, f"{name}-{(number - 1) // size}") for name, size in labels),
        )
        for number in range(1, count + 1)
    )


def a_quota(number: int, guaranteed_gpus: int, parent: int | None = None, **fields: object) -> Quota:
    """A quota with GPUs alone."""
    amounts = ((POOL, PoolAmounts(Bound(gpu_milli=guaranteed_gpus * WHOLE_GPU))),)
    return Quota(number, parent, f"q{number}", amounts, **fields)  # type: ignore[arg-type]


def a_job(
    number: int, quota: int, gpus: int, workers: int = 1, *, minimum: int | None = None, cpu: int = 0, **fields: object
) -> Workload:
    """A training gang of workers with whole GPUs each."""
    shape = Shape(gpu_count=gpus, gpu_milli=WHOLE_GPU if gpus else 0, cpu_milli=cpu)
    topology = fields.pop("topology", Topology())
    group = WorkerGroup(shape, workers, workers if minimum is None else minimum, topology=topology)  # type: ignore[arg-type]
    defaults: dict[str, object] = {"submitted_ms": NOW_MS - 1_000_000 + number, "idle": IdleUse.ALLOW}
    return Workload(number, quota, Kind.TRAINING, (group,), **{**defaults, **fields})  # type: ignore[arg-type]


def running(workload: Workload, node: int, devices: tuple[int, ...], index: int = 0, started: int = 0) -> Allocation:
    """A worker that runs on some devices of a node."""
    shape = workload.groups[0].shape
    place = Place(
        workload.id, 0, index, node, devices, shape.gpu_milli, cpu_milli=shape.cpu_milli, memory_mib=shape.memory_mib
    )
    return Allocation(place, Phase.RUNNING, started or NOW_MS - 500_000)


def mixed(
    nodes: int = 1000, gpus: int = 8, run: int = 5000, pending: int = 10_000, quotas: int = 200, seed: int = 1
) -> Snapshot:
    """Many shapes, all priorities: some run, many wait."""
    rng = random.Random(seed)
    parents = max(1, quotas // 20)
    tree = [a_quota(1, nodes * gpus)]
    tree += [a_quota(2 + p, nodes * gpus // parents, 1) for p in range(parents)]
    leaves = quotas - parents - 1
    each = nodes * gpus // max(1, leaves)
    tree += [a_quota(2 + parents + leaf, each, 2 + leaf % parents) for leaf in range(leaves)]
    shapes = [(g, w, cpu) for g in (1, 2, 4, 8) for w in (1, 2, 4) for cpu in (1000, 4000, 8000, 16_000)]
    free = {number: list(range(gpus)) for number in range(1, nodes + 1)}
    works, allocations = [], []
    for number in range(1, run + pending + 1):
        count, workers, cpu = rng.choice(shapes)
        if number <= run:
            count, workers = rng.choice((1, 1, 1, 2, 2)), 1
        work = a_job(
            number,
            2 + parents + rng.randrange(leaves),
            count,
            workers,
            cpu=cpu,
            priority=rng.randint(1, 9),
            idle=rng.choice((IdleUse.ALLOW, IdleUse.ALLOW, IdleUse.NEVER)),
        )
        works.append(work)
        if number <= run:
            node = rng.randint(1, nodes)
            while len(free[node]) < count:
                node = node % nodes + 1
            taken = tuple(free[node].pop() for _ in range(count))
            allocations.append(running(work, node, taken, started=NOW_MS - rng.randint(1, 3_000_000)))
    return Snapshot(NOW_MS, (Pool(POOL),), some_nodes(nodes, gpus), tuple(tree), tuple(works), tuple(allocations))


def reclaim_large(nodes: int) -> Snapshot:
    """All GPUs lent to one-GPU jobs of a quota that is promised nothing; a gang of a tenth of the nodes waits."""
    tree = (a_quota(1, nodes * 8), a_quota(2, nodes * 8, 1), a_quota(3, 0, 1))
    works = [a_job(number, 3, 1) for number in range(1, nodes * 8 + 1)]
    allocations = [
        running(work, (work.id - 1) // 8 + 1, ((work.id - 1) % 8,), started=NOW_MS - 500_000 + work.id)
        for work in works
    ]
    gang = a_job(nodes * 8 + 1, 2, 8, nodes // 10, idle=IdleUse.NEVER)
    return Snapshot(NOW_MS, (Pool(POOL),), some_nodes(nodes, 8), tree, (*works, gang), tuple(allocations))


def allocate(nodes: int = 100, jobs: int = 500) -> Snapshot:
    """One-GPU jobs wait in four quotas under two parents; nothing runs."""
    tree = [a_quota(1, nodes * 4), a_quota(2, nodes * 4)]
    tree += [a_quota(3 + leaf, nodes * 2, 1 + leaf % 2) for leaf in range(4)]
    works = tuple(a_job(number, 3 + number % 4, 1) for number in range(1, jobs + 1))
    return Snapshot(NOW_MS, (Pool(POOL),), some_nodes(nodes, 8), tuple(tree), works)


LEVELS = ("zone", "block", "rack", "half")


def gang(nodes: int = 512) -> Snapshot:
    """One gang of as many workers of two GPUs as there are nodes, a rack preferred."""
    labels = (("zone", nodes // 4), ("block", nodes // 32), ("rack", nodes // 256), ("half", 1))
    wish = Topology(preferred="rack", levels=LEVELS)
    work = a_job(1, 1, 2, nodes, topology=wish)
    return Snapshot(NOW_MS, (Pool(POOL),), some_nodes(nodes, 8, labels), (a_quota(1, nodes * 8),), (work,))


def cannot_fit(nodes: int = 500) -> Snapshot:
    """A full cluster and a gang of ten workers of eight GPUs of which only nine could be placed."""
    works = [a_job(number, 1, 8, preemptible=False) for number in range(1, nodes - 8)]
    allocations = [running(work, work.id, tuple(range(8))) for work in works]
    waiting = a_job(nodes + 1, 1, 8, 10)
    tree = (a_quota(1, nodes * 8),)
    return Snapshot(NOW_MS, (Pool(POOL),), some_nodes(nodes, 8), tree, (*works, waiting), tuple(allocations))


def scattered(nodes: int = 500, gangs: int = 41) -> Snapshot:
    """Three one-GPU jobs on each node, and gangs of ten workers of six GPUs that wait."""
    works = [a_job(number, 1, 1) for number in range(1, nodes * 3 + 1)]
    allocations = [running(work, (work.id - 1) // 3 + 1, ((work.id - 1) % 3,)) for work in works]
    waiting = [a_job(nodes * 3 + 1 + number, 1, 6, 10) for number in range(gangs)]
    tree = (a_quota(1, nodes * 8),)
    return Snapshot(NOW_MS, (Pool(POOL),), some_nodes(nodes, 8), tree, (*works, *waiting), tuple(allocations))
