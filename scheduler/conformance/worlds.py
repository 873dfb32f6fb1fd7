"""From a case's world to a snapshot of the core, and from the core's plan back to the world.

The core's units are kept where they fit: GPUs in thousandths, CPU in thousandths of a core. Memory is given in
bytes in the cases, so here one unit of `memory_mib` is a byte: only sums and comparisons are made of it.
MIG profiles, pod slots and claims of device classes become counted resources of nodes and requests.
"""

from __future__ import annotations

import re
from collections import defaultdict
from dataclasses import dataclass, field

from scheduler.conformance.cases import Case, Job, Raw, Task
from scheduler.core.model import (
    Allocation,
    Device,
    Enclosure,
    IdleUse,
    Kind,
    Match,
    Neighbour,
    Node,
    NodeState,
    Phase,
    Place,
    Placement,
    Plan,
    Pool,
    PoolAmounts,
    Quota,
    Reservation,
    ReservationKind,
    Shape,
    Snapshot,
    Topology,
    WorkerGroup,
    Workload,
)
from scheduler.core.resources import WHOLE_GPU, Bound

NOW_MS = 1_800_000_000_000
MINUTE_MS = 60_000
POOL = 1
MIXED, SINGLE, LEGACY = "mig-mixed", "mig-single", "mig-legacy"
NOWHERE = Match("tidegate/nowhere", ())


@dataclass(frozen=True, slots=True)
class Names:
    """Numbers for the names of a case. Numbers follow the order of the names, which is the last tie break."""

    nodes: dict[str, int]
    quotas: dict[str, int]
    jobs: dict[str, int]
    workers: dict[tuple[int, int, int], str]
    """(workload, group, index) -> task id."""


def snapshot_of(case: Case) -> tuple[Snapshot, Names]:
    """The case's world as a snapshot, with the names behind its numbers."""
    names = _names(case)
    checks = bool(case.config["predicates_active"])
    claims = _Claims(case)
    workloads = tuple(_workload(case, job, names, claims, checks) for job in case.jobs)
    places = _places(case, names, workloads)
    return (
        Snapshot(
            now_ms=NOW_MS,
            pools=(Pool(POOL, "pool", _placement(case)),),
            nodes=tuple(_node(case, raw, names, claims, checks) for raw in case.raw["nodes"]),
            quotas=tuple(_quota(raw, names) for raw in (*case.raw["departments"], *case.raw["queues"])),
            workloads=workloads,
            allocations=tuple(_allocations(case, places)),
            reservations=tuple(_reservations(case, places)),
        ),
        names,
    )


def _names(case: Case) -> Names:
    jobs = {name: number for number, name in enumerate(sorted(job.name for job in case.jobs), 1)}
    workers = {
        (jobs[job.name], group, index): task.id
        for job in case.jobs
        for group, tasks in enumerate(groups_of(job).values())
        for index, task in enumerate(tasks)
    }
    queues = [raw["name"] for raw in (*case.raw["departments"], *case.raw["queues"])]
    return Names(
        nodes={name: n for n, name in enumerate(sorted(raw["name"] for raw in case.raw["nodes"]), 1)},
        quotas={name: n for n, name in enumerate(sorted(queues), 1)},
        jobs=jobs,
        workers=workers,
    )


def groups_of(job: Job) -> dict[str, list[Task]]:
    """The job's living tasks by pod set; those with a priority first, higher before lower, then by id."""
    found: dict[str, list[Task]] = {name: [] for name in _Gang({}).add(job.raw["gang"], None).pod_sets}
    for task in job.tasks:
        if task.is_alive and task.state != "Gated":
            found.setdefault(task.pod_set, []).append(task)
    for tasks in found.values():
        tasks.sort(key=lambda task: (task.raw["priority"] is None, -(task.raw["priority"] or 0), task.id))
    return found


# --- queues, nodes -----------------------------------------------------------------------------------


def _placement(case: Case) -> Placement:
    plugins = case.config["plugins"]
    if plugins == "default":
        return Placement.BINPACK
    arguments = {plugin["name"]: plugin["arguments"] for plugin in plugins}
    spread = arguments.get("nodeplacement", {}).get("gpu") == "spread"
    return Placement.SPREAD if spread else Placement.BINPACK


def _quota(raw: Raw, names: Names) -> Quota:
    def milli(gpus: float | None) -> int | None:
        return None if gpus is None else round(gpus * WHOLE_GPU)

    weight = raw["over_quota_weight"]
    amounts = PoolAmounts(
        guaranteed=Bound(milli(raw["deserved_gpus"]), raw["deserved_cpu_milli"], raw["deserved_memory_bytes"]),
        limit=Bound(milli(raw["max_allowed_gpus"]), raw["max_allowed_cpu_milli"], raw["max_allowed_memory_bytes"]),
        weight_milli=max(0, round(weight * 1000)),
        other_weight_milli=round(raw["cpu_over_quota_weight"] * 1000),
        rank=-raw["priority"],
    )
    return Quota(
        id=names.quotas[raw["name"]],
        parent=names.quotas[raw["parent"]] if raw["parent"] else None,
        name=raw["name"],
        amounts=((POOL, amounts),),
        created_ms=NOW_MS + raw["creation_offset_min"] * MINUTE_MS,
    )


def _node(case: Case, raw: Raw, names: Names, claims: _Claims, checks: bool) -> Node:
    counted = dict(claims.offered(raw["name"]))
    counted.update(raw["mig_instances"])
    if checks:
        counted["pods"] = raw["max_pods"]
    taints: list[str] = []
    if checks and raw["mig_strategy"]:
        taints.append(MIXED if raw["mig_strategy"] == "mixed" else SINGLE)
        if any(t.raw["legacy_mig"] and t.is_held and t.node == raw["name"] for _, t in case.tasks()):
            taints.append(LEGACY)
    if raw["dra_gpus"]:
        taints.append("classic")
    labels = {**raw["labels"], "type": raw["type"], "kubernetes.io/hostname": raw["name"]}
    return Node(
        id=names.nodes[raw["name"]],
        pool=POOL,
        name=raw["name"],
        labels=tuple(sorted(labels.items())),
        devices=tuple(Device(raw["gpu_memory_mib"]) for _ in range(raw["gpus"])),
        cpu_milli=raw["cpu_milli"],
        memory_mib=raw["memory_bytes"],
        state=NodeState.READY,
        taints=tuple(taints),
        counted=tuple(sorted(counted.items())),
        counted_gpu_milli=WHOLE_GPU
        * (raw["dra_gpus"] + sum(_mig_gpus(profile) * count for profile, count in raw["mig_instances"].items())),
    )


class _Claims:
    """Claims of device classes as counted resources: devices on nodes, and places for consumers of a claim.

    The first living task of a claim carries its devices; every consumer takes one of the claim's places, which only
    the nodes that could hold the claim offer.
    """

    MOST_CONSUMERS = 256

    def __init__(self, case: Case) -> None:
        self.claims: dict[str, Raw] = {claim["name"]: claim for claim in case.raw["resource_claims"]}
        self.devices: dict[str, dict[str, int]] = defaultdict(lambda: defaultdict(int))
        for piece in case.raw["resource_slices"]:
            # The recorded harness gives every slice to the GPU driver, so that any GPU class may use it.
            self.devices[piece["node"]]["devices"] += piece["count"]
        self.homes: dict[str, str] = {}
        self.carriers: dict[str, str] = {}
        for _, task in case.tasks():
            for name in task.raw["claims"] if task.is_alive else ():
                if task.is_held and task.node:
                    self.homes.setdefault(name, task.node)
        for held_first in (True, False):
            for _, task in case.tasks():
                if task.is_alive and task.is_held == held_first:
                    for name in task.raw["claims"]:
                        self.carriers.setdefault(name, task.id)

    def offered(self, node: str) -> dict[str, int]:
        """Counted resources of a node."""
        devices = self.devices.get(node)
        if not devices:
            return {}
        offered = dict(devices)
        for name, claim in self.claims.items():
            if self.homes.get(name, node) == node:
                offered[f"claim:{name}"] = self.MOST_CONSUMERS - int(claim.get("reserved_for_foreign") or 0)
        return offered

    def asked(self, job: Job, task: Task) -> tuple[dict[str, int], int, bool]:
        """Counted resources that a task asks for, the devices charged to its quota, and whether it may run at all."""
        counted: dict[str, int] = defaultdict(int)
        charged, allowed = 0, True
        for name in task.raw["claims"]:
            claim = self.claims.get(name)
            if claim is None:
                allowed = False
                continue
            is_gpu = "gpu" in claim["device_class"]
            allowed = allowed and (not is_gpu or claim.get("queue_label") == job.raw["queue"])
            counted[f"claim:{name}"] += 1
            if self.carriers.get(name) == task.id:
                counted["devices"] += claim["count"]
                charged += claim["count"] if is_gpu else 0
        return dict(counted), charged, allowed


# --- jobs --------------------------------------------------------------------------------------------


@dataclass(slots=True)
class _Gang:
    """A tree of groups, flattened: outer groups first."""

    levels: dict[str, tuple[str, ...]]
    """Levels of the topologies by name, widest first."""
    enclosures: list[Enclosure] = field(default_factory=list)
    pod_sets: dict[str, tuple[int, Topology, int]] = field(default_factory=dict)
    """Name -> minimum, topology, enclosure."""

    def add(self, group: Raw, inside: int | None) -> _Gang:
        """Take in a group and all inside it."""
        self.enclosures.append(Enclosure(self.topology(group.get("topology")), inside))
        here = len(self.enclosures) - 1
        for pods in group.get("pod_sets") or ():
            self.pod_sets[pods["name"]] = (pods["min_available"], self.topology(pods.get("topology")), here)
        for inner in group.get("groups") or ():
            self.add(inner, here)
        return self

    def topology(self, raw: Raw | None) -> Topology:
        """A wish for closeness, with the levels it speaks of."""
        if not raw:
            return Topology()
        levels = self.levels.get(raw["topology"], ())
        return Topology(raw.get("required_level"), raw.get("preferred_level"), levels)


def _workload(case: Case, job: Job, names: Names, claims: _Claims, checks: bool) -> Workload:
    raw = job.raw
    levels = {topology["name"]: tuple(topology["levels"]) for topology in case.raw["topologies"]}
    gang = _Gang(levels).add(raw["gang"], None)
    groups = []
    for name, tasks in groups_of(job).items():
        minimum, topology, inside = gang.pod_sets.get(name, (0, Topology(), None))
        shapes = [_shape(job, task, claims, checks) for task in tasks]
        most = shapes[0] if shapes else Shape()
        groups.append(
            WorkerGroup(
                shape=most,
                wanted=len(tasks),
                minimum=minimum,
                name=name,
                topology=topology,
                inside=inside,
                overrides=tuple((i, shape) for i, shape in enumerate(shapes) if shape != most),
            )
        )
    return Workload(
        id=names.jobs[job.name],
        quota=names.quotas[raw["queue"]],
        kind=Kind.TRAINING,
        groups=tuple(groups),
        submitted_ms=NOW_MS - round(raw["age_min"] * MINUTE_MS),
        name=job.name,
        priority=raw["priority"],
        idle=IdleUse.ALLOW if raw["preemptible"] else IdleUse.NEVER,
        preemptible=raw["preemptible"],
        enclosures=tuple(gang.enclosures),
        ending=bool(job.tasks) and all(not t.is_alive or t.state == "Releasing" for t in job.tasks),
        stale_since_ms=None if raw["stale_for_s"] is None else NOW_MS - round(raw["stale_for_s"] * 1000),
    )


def _shape(job: Job, task: Task, claims: _Claims, checks: bool) -> Shape:
    raw = job.raw
    counted, charged, allowed = claims.asked(job, task)
    mig = task.raw["mig"]
    counted.update(mig)
    if checks:
        counted["pods"] = 1
    select = [Match("type", tuple(task.raw["node_affinity"]))] if checks and task.raw["node_affinity"] else []
    if not allowed or (checks and task.raw["legacy_mig"]):
        select.append(NOWHERE)
    charged += sum(_mig_gpus(profile) * count for profile, count in mig.items())
    count, milli, memory = _gpu_request(raw, task)
    tolerates = ([MIXED] if mig else []) + ([SINGLE] if not mig else []) + ([] if count else ["classic"])
    near, apart = _neighbours(task.raw["pod_affinity"]) if checks else ((), ())
    labels = (task.raw["pod_affinity"] or {}).get("labels") or {}
    return Shape(
        gpu_count=count,
        gpu_milli=milli,
        gpu_memory_mib=memory,
        cpu_milli=raw["cpu_milli_per_task"],
        memory_mib=raw["memory_bytes_per_task"],
        counted=tuple(sorted(counted.items())),
        quota_gpu_milli=charged * WHOLE_GPU if charged else None,
        select=tuple(select),
        tolerates=tuple(tolerates),
        labels=tuple(sorted(labels.items())),
        near=near,
        apart=apart,
    )


def _gpu_request(raw: Raw, task: Task) -> tuple[int, int, int]:
    """Devices, thousandths of each, memory of each."""
    if raw["gpu_memory_mib_per_task"]:
        return 1, 0, raw["gpu_memory_mib_per_task"]
    if 0 < task.gpus < 1:
        return 1, round(task.gpus * WHOLE_GPU), 0
    whole = int(task.gpus)
    return whole, WHOLE_GPU if whole else 0, 0


def _mig_gpus(profile: str) -> int:
    """GPUs that one instance of a profile is charged with: the first number of its name."""
    found = re.search(r"mig-(\d+)g", profile)
    return int(found.group(1)) if found else 0


def _neighbours(raw: Raw | None) -> tuple[tuple[Neighbour, ...], tuple[Neighbour, ...]]:
    if not raw:
        return (), ()
    labels = tuple(sorted(raw["labels"].items()))
    near, apart = raw.get("affinity_topology_key"), raw.get("anti_affinity_topology_key")
    return (
        (Neighbour(labels, near),) if near else (),
        (Neighbour(labels, apart),) if apart else (),
    )


# --- what is held ------------------------------------------------------------------------------------


def _places(case: Case, names: Names, workloads: tuple[Workload, ...]) -> list[tuple[Task, Place]]:
    """The rooms of tasks that are on a node or have a slot there."""
    by_id = {workload.id: workload for workload in workloads}
    tasks = {task.id: task for _, task in case.tasks()}
    devices = _Devices(case)
    found = []
    for (workload, group, index), task_id in names.workers.items():
        task = tasks[task_id]
        if task.node is None or not (task.is_held or task.state == "Pipelined"):
            continue
        of_group = by_id[workload].groups[group]
        shape = dict(of_group.overrides).get(index, of_group.shape)
        indexes, milli = devices.of(task, shape)
        place = Place(
            workload,
            group,
            index,
            names.nodes[task.node],
            devices=indexes,
            device_milli=milli,
            device_memory_mib=shape.gpu_memory_mib,
            cpu_milli=shape.cpu_milli,
            memory_mib=shape.memory_mib,
            counted=shape.counted,
            charged_gpu_milli=shape.quota_gpu_milli,
        )
        found.append((task, place))
    return found


def _allocations(case: Case, places: list[tuple[Task, Place]]) -> list[Allocation]:
    return [
        Allocation(
            place,
            phase=Phase.LEAVING if task.state == "Releasing" else Phase.RUNNING,
            started_ms=NOW_MS - MINUTE_MS,
        )
        for task, place in places
        if task.is_held
    ]


def _reservations(case: Case, places: list[tuple[Task, Place]]) -> list[Reservation]:
    return [
        Reservation(place.workload, POOL, ReservationKind.HANDOVER, (place,), opened_ms=NOW_MS, id=number)
        for number, (task, place) in enumerate(places, 1)
        if task.state == "Pipelined"
    ]


class _Devices:
    """Which devices the held tasks have: whole ones first come, shares by their group's name."""

    def __init__(self, case: Case) -> None:
        self.case = case
        self.free: dict[str, list[int]] = {raw["name"]: list(range(raw["gpus"])) for raw in case.raw["nodes"]}
        self.memory: dict[str, int] = {raw["name"]: raw["gpu_memory_mib"] for raw in case.raw["nodes"]}
        self.groups: dict[tuple[str, str], int] = {}
        self.room: dict[tuple[str, int], int] = {}
        for _, task in case.tasks():  # what earlier rounds placed keeps its devices
            if task.id in case.devices and task.is_held and task.node:
                for device in case.devices[task.id]:
                    if device in self.free[task.node]:
                        self.free[task.node].remove(device)

    def of(self, task: Task, shape: Shape) -> tuple[tuple[int, ...], int]:
        """Device indexes of a held task and the thousandths of each."""
        node = task.node or ""
        milli = shape.gpu_milli
        if shape.gpu_memory_mib:
            milli = -(-shape.gpu_memory_mib * 100 // self.memory[node]) * 10
        if task.id in self.case.devices:
            return self.case.devices[task.id], milli
        if not shape.gpu_count:
            return (), 0
        if milli == WHOLE_GPU:
            taken = tuple(self._open(node) for _ in range(shape.gpu_count))
        else:
            taken = tuple(self._shared(node, name, milli) for name in task.groups or (f"own of {task.id}",))
        self.case.devices[task.id] = taken
        return taken, milli

    def _open(self, node: str) -> int:
        if self.free[node]:
            return self.free[node].pop(0)
        raise ValueError(f"{self.case.id}: more devices in use on {node} than it has")

    def _shared(self, node: str, name: str, milli: int) -> int:
        key = (node, name)
        if key not in self.groups:
            self.groups[key] = self._open(node) if self.free[node] else self._with_room(node, milli)
            self.room.setdefault((node, self.groups[key]), WHOLE_GPU)
        self.room[(node, self.groups[key])] -= milli
        return self.groups[key]

    def _with_room(self, node: str, milli: int) -> int:
        """A device with room, where the case's shares without a name are more than there are devices."""
        for (where, device), room in self.room.items():
            if where == node and room >= milli:
                return device
        raise ValueError(f"{self.case.id}: no device of {node} has room for another share")


# --- the plan back -----------------------------------------------------------------------------------


def apply_plan(case: Case, plan: Plan, names: Names) -> None:
    """Write the plan's outcome into the case's world, in its words: Binding, Pipelined, Releasing."""
    tasks = {task.id: task for _, task in case.tasks()}
    for task_id in _stopped(plan, names):
        if tasks[task_id].is_held:
            tasks[task_id].state = "Releasing"
    reserved = [place for move in plan.moves for place in move.places]
    reserved += [place for reservation in plan.opened for place in reservation.places]
    started = [start.place for start in plan.starts]
    node_names = {number: name for name, number in names.nodes.items()}
    for state, places in (("Pipelined", reserved), ("Binding", started)):
        for place in places:
            task = tasks[names.workers[place.workload, place.group, place.index]]
            task.state, task.node = state, node_names[place.node]
            case.devices[task.id] = place.devices


def _stopped(plan: Plan, names: Names) -> list[str]:
    """Ids of tasks that the plan tells to leave for good."""
    evicted = {eviction.workload for eviction in plan.evictions}
    shrunk = {(shrink.workload, *worker) for shrink in plan.shrinks for worker in shrink.workers}
    return [task for worker, task in names.workers.items() if worker[0] in evicted or worker in shrunk]


def next_round(case: Case) -> None:
    """What the world is when the round's decisions have been carried out."""
    for job, task in case.tasks():
        if task.state == "Binding":
            task.state = "Running"
        elif task.state == "Pipelined" or (task.state == "Releasing" and not job.raw["keep_releasing"]):
            task.state, task.node = "Pending", None
            case.devices.pop(task.id, None)
