"""Snapshots to measure `decide` on. Each is a function of its sizes alone: the same call gives the same snapshot."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from heapq import heapreplace
from itertools import count, islice, product

from scheduler.core.model import (
    Allocation,
    Checkpoint,
    Device,
    IdleUse,
    Kind,
    Node,
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

NOW_MS = 1_800_000_000_000  # 2027-01-15, an hour like any other
MINUTE_MS = 60_000
POOL = 1
CPU_OF_A_NODE = 128_000
MEMORY_OF_A_NODE = 2_048 * 1024


@dataclass(frozen=True)
class World:
    """A snapshot, and the sizes it was made from."""

    snapshot: Snapshot
    sizes: dict[str, int | str]


# --- pieces ---------------------------------------------------------------------------------------------------------


def gpu_bound(gpus: int) -> Bound:
    return Bound(gpu_milli=gpus * WHOLE_GPU)


def nodes_of(number: int, gpus: int, labels: list[tuple[tuple[str, str], ...]] | None = None) -> tuple[Node, ...]:
    return tuple(
        Node(
            id=index + 1,
            pool=POOL,
            name=f"n{index}",
            labels=labels[index] if labels else (),
            devices=(Device(memory_mib=80 * 1024),) * gpus,
            cpu_milli=CPU_OF_A_NODE,
            memory_mib=MEMORY_OF_A_NODE,
        )
        for index in range(number)
    )


def quota_of(identity: int, gpus: int, parent: int | None = None) -> Quota:
    return Quota(identity, parent, f"q{identity}", ((POOL, PoolAmounts(gpu_bound(gpus))),))


def job(
    identity: int,
    quota: int,
    gpus: int,
    *,
    workers: int = 1,
    idle: IdleUse = IdleUse.NEVER,
    preemptible: bool = True,
    age_ms: int = MINUTE_MS,
    topology: Topology | None = None,
) -> Workload:
    """A training job whose workers ask for GPUs only."""
    group = WorkerGroup(
        Shape(gpu_count=gpus, gpu_milli=WHOLE_GPU), wanted=workers, minimum=workers, topology=topology or Topology()
    )
    return Workload(
        identity,
        quota,
        Kind.TRAINING,
        (group,),
        NOW_MS - age_ms,
        idle=idle,
        preemptible=preemptible,
        name=f"w{identity}",
    )


def on(workload: Workload, node: int, first_device: int) -> Allocation:
    """The only worker of the workload, running since its submission on whole devices in a row."""
    shape = workload.groups[0].shape
    devices = tuple(range(first_device, first_device + shape.gpu_count))
    return Allocation(Place(workload.id, 0, 0, node, devices, shape.gpu_milli), started_ms=workload.submitted_ms)


# --- one rule at a time ---------------------------------------------------------------------------------------------


def allocate(nodes: int, jobs: int) -> World:
    """Everything waits: one-GPU jobs of four quotas in two parents, where there is room for all."""
    capacity = nodes * 8
    parents = tuple(quota_of(identity, capacity // 2) for identity in (1, 2))
    children = tuple(quota_of(3 + index, capacity // 4, parent=1 + index // 2) for index in range(4))
    waiting = tuple(job(1 + index, 3 + index % 4, 1, age_ms=jobs - index) for index in range(jobs))
    snapshot = Snapshot(NOW_MS, (Pool(POOL),), nodes_of(nodes, 8), parents + children, waiting)
    return World(snapshot, {"nodes": nodes, "jobs": jobs, "quotas": 6})


def reclaim_large(nodes: int) -> World:
    """One-GPU jobs of a quota that is promised nothing fill the cluster; a tenth of it is wanted back by one gang."""
    capacity = nodes * 8
    quotas = (quota_of(1, capacity), quota_of(2, capacity, parent=1), quota_of(3, 0, parent=1))
    running = tuple(job(1 + index, 3, 1, idle=IdleUse.ALLOW, age_ms=60 * MINUTE_MS) for index in range(capacity))
    held = tuple(on(workload, 1 + index // 8, index % 8) for index, workload in enumerate(running))
    gang = job(capacity + 1, 2, 8, workers=nodes // 10)
    snapshot = Snapshot(NOW_MS, (Pool(POOL),), nodes_of(nodes, 8), quotas, (*running, gang), held)
    return World(snapshot, {"nodes": nodes, "running": capacity, "gang": nodes // 10})


def gang(nodes: int, topology: tuple[int, ...]) -> World:
    """One gang of two-GPU workers, one a node on average, that would like to be in one rack."""
    levels = ("zone", "block", "rack")
    corners = [corner[:-1] for corner in product(*(range(size) for size in topology))]
    labels = [
        tuple((level, "-".join(map(str, corner[: depth + 1]))) for depth, level in enumerate(levels))
        for corner in corners
    ]
    waiting = job(1, 1, 2, workers=nodes, topology=Topology(preferred="rack", levels=levels))
    snapshot = Snapshot(NOW_MS, (Pool(POOL),), nodes_of(nodes, 8, labels), (quota_of(1, nodes * 8),), (waiting,))
    return World(snapshot, {"nodes": nodes, "workers": nodes, "topology": "x".join(map(str, topology))})


def cannot_fit(nodes: int, workers: int) -> World:
    """A full cluster in which one whole node too few can be emptied for a gang within its entitlement.

    On each node one worker's worth of GPUs is borrowed; on all but ``workers - 1`` nodes one GPU of it may not go.
    """
    capacity = nodes * 8
    quotas = (quota_of(1, capacity), quota_of(2, capacity, parent=1), quota_of(3, 0, parent=1))
    pinned_from = workers - 1
    running, held = [], []
    for index in range(capacity):
        node, device = divmod(index, 8)
        pinned = node >= pinned_from and device == 0
        owner, idle = (2, IdleUse.NEVER) if pinned else (3, IdleUse.ALLOW)
        running.append(job(1 + index, owner, 1, idle=idle, preemptible=not pinned, age_ms=60 * MINUTE_MS))
        held.append(on(running[-1], 1 + node, device))
    waiting = job(capacity + 1, 2, 8, workers=workers)
    snapshot = Snapshot(NOW_MS, (Pool(POOL),), nodes_of(nodes, 8), quotas, (*running, waiting), tuple(held))
    return World(snapshot, {"nodes": nodes, "running": capacity, "workers": workers})


def consolidate(nodes: int, gangs: int, workers: int) -> World:
    """Three one-GPU jobs on each node; gangs of six-GPU workers find room only when one job a node moves."""
    running = tuple(job(1 + index, 1, 1, age_ms=60 * MINUTE_MS) for index in range(nodes * 3))
    held = tuple(on(workload, 1 + index // 3, index % 3) for index, workload in enumerate(running))
    waiting = tuple(
        job(len(running) + 1 + index, 1, 6, workers=workers, age_ms=gangs - index) for index in range(gangs)
    )
    snapshot = Snapshot(NOW_MS, (Pool(POOL),), nodes_of(nodes, 8), (quota_of(1, nodes * 8),), running + waiting, held)
    return World(snapshot, {"nodes": nodes, "running": len(running), "gangs": gangs, "workers": workers})


# --- a cluster in the middle of its day -----------------------------------------------------------------------------

REQUESTS: tuple[tuple[int, int, int], ...] = (  # devices, thousandths of each, workers
    (1, 250, 1),
    (1, 500, 1),
    (1, 1000, 1),
    (2, 1000, 1),
    (4, 1000, 1),
    (8, 1000, 1),
    (4, 1000, 2),
    (8, 1000, 2),
    (0, 0, 1),
)
HOW_OFTEN = (12, 12, 44, 12, 7, 3, 2, 2, 6)
URGENT_PART, LEAST_URGENT = 0.05, 6
SIDES: tuple[tuple[int, int], ...] = (  # CPU in cores and memory in GiB beside each GPU
    (2, 16),
    (4, 32),
    (6, 64),
    (8, 64),
    (8, 96),
    (12, 128),
)


@dataclass
class Room:
    """What is free while a cluster is being filled: the next node that fits is taken, from where the last was found."""

    free: list[list[int]]
    cpu: list[int]
    memory: list[int]
    start: int = 0
    taken: list[Allocation] = field(default_factory=list)
    hopeless: set[WorkerGroup] = field(default_factory=set)  # room only shrinks: what once found none finds none

    @classmethod
    def of(cls, nodes: int, gpus: int) -> Room:
        return cls([[WHOLE_GPU] * gpus for _ in range(nodes)], [CPU_OF_A_NODE] * nodes, [MEMORY_OF_A_NODE] * nodes)

    def place(self, workload: Workload) -> bool:
        """Put all workers somewhere and remember it, or change nothing."""
        if workload.groups[0] in self.hopeless:
            return False
        shape, workers = workload.groups[0].shape, workload.groups[0].wanted
        chosen: list[tuple[int, tuple[int, ...]]] = []
        for _ in range(workers):
            found = self._node_for(shape)
            if found is None:
                self._give_back(shape, chosen)
                self.hopeless.add(workload.groups[0])
                return False
            chosen.append(found)
        self.taken.extend(
            Allocation(
                Place(workload.id, 0, index, node + 1, devices, shape.gpu_milli, 0, shape.cpu_milli, shape.memory_mib),
                started_ms=workload.submitted_ms + MINUTE_MS,
            )
            for index, (node, devices) in enumerate(chosen)
        )
        return True

    def _node_for(self, shape: Shape) -> tuple[int, tuple[int, ...]] | None:
        for step in range(len(self.free)):
            node = (self.start + step) % len(self.free)
            if self.cpu[node] < shape.cpu_milli or self.memory[node] < shape.memory_mib:
                continue
            open_devices = [index for index, left in enumerate(self.free[node]) if left >= shape.gpu_milli > 0]
            if len(open_devices) >= shape.gpu_count:
                self.start = node
                devices = tuple(open_devices[: shape.gpu_count])
                self._add(shape, node, devices, -1)
                return node, devices
        return None

    def _add(self, shape: Shape, node: int, devices: tuple[int, ...], sign: int) -> None:
        for device in devices:
            self.free[node][device] += sign * shape.gpu_milli
        self.cpu[node] += sign * shape.cpu_milli
        self.memory[node] += sign * shape.memory_mib

    def _give_back(self, shape: Shape, chosen: list[tuple[int, tuple[int, ...]]]) -> None:
        for node, devices in chosen:
            self._add(shape, node, devices, 1)


def busy_cluster(
    nodes: int, gpus: int, running: int, pending: int, quotas: int, seed: int, settled: bool = True
) -> World:
    """Teams of all sizes, nearly all GPUs taken, a long queue of many shapes and all priorities.

    Settled: as after some cycles, each team uses about what it is promised, and of what waits one in twenty is new and
    urgent. Unsettled: whatever runs belongs to anybody and has any priority, as no scheduler would have left it.
    """
    chance = random.Random(seed)  # noqa: S311 (no secret)
    tree = _tree(nodes * gpus, quotas)
    leaves = [quota.id for quota in tree if quota.parent is not None] or [quota.id for quota in tree]
    numbers = count(1)
    room = Room.of(nodes, gpus)
    drawn = _drawn(chance, numbers, leaves, gpus, running * 2)
    live = list(islice((workload for workload in drawn if room.place(workload)), running))
    waiting = list(_drawn(chance, numbers, leaves, gpus, pending))
    if settled:
        live = _as_promised(chance, live, leaves)
        waiting = [replace(workload, priority=_priority_of_waiting(chance)) for workload in waiting]
    snapshot = Snapshot(NOW_MS, (Pool(POOL),), nodes_of(nodes, gpus), tree, (*live, *waiting), tuple(room.taken))
    shapes = {workload.groups[0] for workload in waiting}
    sizes = {"nodes": nodes, "gpus": gpus, "running": len(live), "pending": pending, "quotas": len(tree)}
    return World(snapshot, {**sizes, "shapes": len(shapes), "seed": seed, "settled": settled})


def _as_promised(chance: random.Random, live: list[Workload], leaves: list[int]) -> list[Workload]:
    """The same work, given to the quota that uses least so far: of the upper priorities, none that only borrows."""
    emptiest = [(0, leaf) for leaf in leaves]
    given = []
    for workload in live:
        used, leaf = emptiest[0]
        group = workload.groups[0]
        heapreplace(emptiest, (used + group.wanted * group.shape.gpu_count * group.shape.gpu_milli, leaf))
        idle = IdleUse.ALLOW if workload.idle is IdleUse.ONLY else workload.idle
        given.append(replace(workload, quota=leaf, idle=idle, priority=chance.randint(LEAST_URGENT - 1, 9)))
    return given


def _priority_of_waiting(chance: random.Random) -> int:
    return chance.randint(LEAST_URGENT, 9) if chance.random() < URGENT_PART else chance.randint(1, LEAST_URGENT - 1)


def _tree(gpus: int, number: int) -> tuple[Quota, ...]:
    """Parents with up to nine children each; the whole cluster is promised, evenly, by largest remainder."""
    parents = max(1, number // 10)
    tree = [quota_of(1 + index, _part(gpus, parents, index)) for index in range(parents)]
    children = number - parents
    for index in range(children):
        parent, place = index % parents, index // parents
        siblings = children // parents + (1 if parent < children % parents else 0)
        tree.append(quota_of(1 + parents + index, _part(_part(gpus, parents, parent), siblings, place), 1 + parent))
    return tuple(tree)


def _part(total: int, parts: int, index: int) -> int:
    return total // parts + (1 if index < total % parts else 0)


def _drawn(
    chance: random.Random, numbers: Iterator[int], quotas: list[int], gpus: int, amount: int
) -> Iterator[Workload]:
    """Workloads as they come: sizes by how often each is asked for, quota and age at random."""
    fitting = [index for index, (devices, _, _) in enumerate(REQUESTS) if devices <= gpus]
    weights = [HOW_OFTEN[index] for index in fitting]
    for _ in range(amount):
        devices, milli, workers = REQUESTS[chance.choices(fitting, weights)[0]]
        cores, gib = chance.choice(SIDES)
        kind = chance.choices((Kind.TRAINING, Kind.NOTEBOOK, Kind.SERVICE), (80, 10, 10))[0]
        beside = max(1, devices)
        shape = Shape(devices, milli, 0, cores * 1000 * beside, gib * 1024 * beside)
        yield Workload(
            next(numbers),
            chance.choice(quotas),
            kind,
            (WorkerGroup(shape, workers, workers if kind is Kind.TRAINING else 1),),
            NOW_MS - chance.randrange(MINUTE_MS, 600 * MINUTE_MS),
            priority=chance.randint(1, 9),
            idle=chance.choices((IdleUse.NEVER, IdleUse.ALLOW, IdleUse.ONLY), (30, 60, 10))[0],
            preemptible=kind is not Kind.SERVICE,
            gang=kind is Kind.TRAINING,
            checkpoint=Checkpoint(),
        )
