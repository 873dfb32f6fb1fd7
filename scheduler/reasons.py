"""For each reason to wait the smallest cluster in which the core gives it, and what its facts mean: for the docs."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

from scheduler.core.decide import decide
from scheduler.core.model import (
    Allocation,
    Cap,
    Device,
    IdleUse,
    Kind,
    Match,
    MinRuntime,
    Node,
    NodeState,
    Phase,
    Place,
    Pool,
    PoolAmounts,
    QueuePolicy,
    Quota,
    Reason,
    Reservation,
    ReservationKind,
    Shape,
    Snapshot,
    Topology,
    Wait,
    WorkerGroup,
    Workload,
)
from scheduler.core.policy import PRODUCT
from scheduler.core.resources import WHOLE_GPU, Bound

NOW_MS = 1_800_000_000_000
MINUTE_MS = 60_000
POOL, ROOT, TEAM, OTHER = 1, 1, 2, 3
RUNS, ALSO_RUNS, WAITS = 10, 11, 20
"""The ids of what runs and of what waits."""

Example = tuple[str, Snapshot]


def node(identity: int, gpus: int = 4, *, rack: str = "r1", state: NodeState = NodeState.READY) -> Node:
    return Node(identity, POOL, f"n{identity}", (("rack", rack),), (Device(),) * gpus, state=state)


def quota(identity: int, gpus: int | None, parent: int | None = None, limit: int | None = None) -> Quota:
    guaranteed, most = (Bound(None if value is None else value * WHOLE_GPU) for value in (gpus, limit))
    return Quota(identity, parent, f"q{identity}", ((POOL, PoolAmounts(guaranteed, most)),))


def job(identity: int, team: int, gpus: int, workers: int = 1, *, topology: Topology | None = None) -> Workload:
    """Training that may borrow, submitted ten minutes ago."""
    group = WorkerGroup(Shape(gpus, WHOLE_GPU), workers, workers, topology=topology or Topology())
    submitted = NOW_MS - 10 * MINUTE_MS + identity
    return Workload(identity, team, Kind.TRAINING, (group,), submitted, f"job-{identity}", idle=IdleUse.ALLOW)


def pinned(workload: Workload) -> Workload:
    return replace(workload, preemptible=False)


def never_borrows(workload: Workload) -> Workload:
    return replace(workload, idle=IdleUse.NEVER)


def on(workload: Workload, place: int, first: int = 0) -> Allocation:
    gpus = workload.groups[0].shape.gpu_count
    held = Place(workload.id, 0, 0, place, tuple(range(first, first + gpus)), WHOLE_GPU)
    return Allocation(held, started_ms=workload.submitted_ms)


def snapshot(
    nodes: tuple[Node, ...],
    quotas: tuple[Quota, ...],
    workloads: tuple[Workload, ...],
    held: tuple[Allocation, ...] = (),
    reservations: tuple[Reservation, ...] = (),
) -> Snapshot:
    return Snapshot(NOW_MS, (Pool(POOL, "default"),), nodes, quotas, workloads, held, reservations)


def one_quota(nodes: tuple[Node, ...], *workloads: Workload, held: tuple[Allocation, ...] = ()) -> Snapshot:
    """A cluster with one quota, which does not limit GPUs."""
    return snapshot(nodes, (quota(ROOT, None),), workloads, held)


# --- one example for each reason ------------------------------------------------------------------------------------


def head_of_line() -> Example:
    wall, head, small = pinned(job(RUNS, ROOT, 2)), job(ALSO_RUNS, ROOT, 4), job(WAITS, ROOT, 1)
    found = one_quota((node(1),), wall, head, small, held=(on(wall, 1),))
    quotas = tuple(replace(each, queue_policy=QueuePolicy.FIFO) for each in found.quotas)
    return "In a quota with `fifo` a job of four GPUs waits; a job of one stands behind it.", replace(
        found, quotas=quotas
    )


def held() -> Example:
    return "The job is held.", one_quota((node(1),), replace(job(WAITS, ROOT, 1), held=True))


def entitlement() -> Example:
    text = "The team is promised one GPU and uses it; the second job may not borrow."
    runs, waits = (never_borrows(job(identity, TEAM, 1)) for identity in (RUNS, WAITS))
    return text, snapshot((node(1),), (quota(ROOT, 4), quota(TEAM, 1, ROOT)), (runs, waits), (on(runs, 1),))


def share() -> Example:
    text = "Two teams use the two GPUs that each was promised; one wants a third."
    mine, theirs, waits = job(RUNS, TEAM, 2), job(ALSO_RUNS, OTHER, 2), job(WAITS, TEAM, 1)
    quotas = (quota(ROOT, 4), quota(TEAM, 2, ROOT), quota(OTHER, 2, ROOT))
    return text, snapshot((node(1),), quotas, (mine, theirs, waits), (on(mine, 1), on(theirs, 1, 2)))


def limit() -> Example:
    text = "The team's limit of two GPUs is in use; two more are idle."
    runs, waits = job(RUNS, TEAM, 2), job(WAITS, TEAM, 1)
    quotas = (quota(ROOT, 4), quota(TEAM, 2, ROOT, limit=2))
    return text, snapshot((node(1),), quotas, (runs, waits), (on(runs, 1),))


def ancestor_limit() -> Example:
    text = "The limit of two GPUs stands at the quota above the team."
    runs, waits = job(RUNS, OTHER, 1), job(WAITS, OTHER, 2)
    quotas = (quota(ROOT, 4), quota(TEAM, 2, ROOT, limit=2), quota(OTHER, 2, TEAM))
    return text, snapshot((node(1),), quotas, (runs, waits), (on(runs, 1),))


def cap() -> Example:
    text = "The scheduling configuration lets this person use one GPU at once."
    runs, waits = (replace(job(identity, ROOT, 1), caps=(7,)) for identity in (RUNS, WAITS))
    found = one_quota((node(1),), runs, waits, held=(on(runs, 1),))
    return text, replace(found, caps=(Cap(7, Bound(WHOLE_GPU), (("entry", 7),)),))


def full() -> Example:
    text = "Nothing is free, and what runs is within the promise of its quota."
    runs, waits = job(RUNS, ROOT, 4), job(WAITS, ROOT, 1)
    return text, one_quota((node(1),), runs, waits, held=(on(runs, 1),))


def gang() -> Example:
    runs, waits = pinned(job(RUNS, ROOT, 2)), job(WAITS, ROOT, 4, workers=2)
    return "Two workers want four GPUs each; only one node has four.", one_quota(
        (node(1), node(2)), runs, waits, held=(on(runs, 1),)
    )


def fragmented() -> Example:
    one, two, waits = pinned(job(RUNS, ROOT, 3)), pinned(job(ALSO_RUNS, ROOT, 3)), job(WAITS, ROOT, 2)
    return "Two GPUs are free, on two nodes.", one_quota(
        (node(1), node(2)), one, two, waits, held=(on(one, 1), on(two, 2))
    )


def topology() -> Example:
    waits = job(WAITS, ROOT, 4, workers=2, topology=Topology(required="rack", levels=("rack",)))
    return "Two workers must be in one rack; each rack has one node.", one_quota((node(1), node(2, rack="r2")), waits)


def affinity() -> Example:
    waits = job(WAITS, ROOT, 1)
    chosen = replace(waits.groups[0].shape, select=(Match("rack", ("r9",)),))
    waits = replace(waits, groups=(replace(waits.groups[0], shape=chosen),))
    return "No node has the label that the job selects.", one_quota((node(1),), waits)


def unhealthy() -> Example:
    return "The only node is cordoned.", one_quota((node(1, state=NodeState.CORDONED),), job(WAITS, ROOT, 1))


def never_fits() -> Example:
    return "The job asks for eight GPUs on one node; nodes have four.", one_quota(
        (node(1), node(2)), job(WAITS, ROOT, 8)
    )


def protected() -> Example:
    text = "What the other team has borrowed started ten minutes ago and is left alone for half an hour."
    theirs, waits = job(RUNS, OTHER, 4), never_borrows(job(WAITS, TEAM, 2))
    patient = replace(quota(OTHER, 2, ROOT), min_runtime=MinRuntime(reclaim_ms=30 * MINUTE_MS))
    quotas = (quota(ROOT, 4), quota(TEAM, 2, ROOT), patient)
    return text, snapshot((node(1),), quotas, (theirs, waits), (on(theirs, 1),))


def pending() -> Example:
    text = "The other team gives back what it has borrowed; its job has been told to leave."
    theirs, waits = job(RUNS, OTHER, 4), never_borrows(job(WAITS, TEAM, 2))
    quotas = (quota(ROOT, 4), quota(TEAM, 2, ROOT), quota(OTHER, 2, ROOT))
    return text, snapshot((node(1),), quotas, (theirs, waits), (on(theirs, 1),))


def reserved() -> Example:
    text = "Two GPUs are being handed over to another job; a third job would fit on them."
    claimant, waits = job(RUNS, ROOT, 4), job(WAITS, ROOT, 1)
    leaves = job(ALSO_RUNS, ROOT, 2)
    places = (Place(RUNS, 0, 0, 1, (0, 1, 2, 3), WHOLE_GPU),)
    kept = Reservation(
        RUNS, POOL, ReservationKind.HANDOVER, places, victims=(ALSO_RUNS,), expires_ms=NOW_MS + MINUTE_MS, id=1
    )
    going = replace(on(leaves, 1), phase=Phase.LEAVING, gone_by_ms=NOW_MS + MINUTE_MS)
    return text, snapshot((node(1),), (quota(ROOT, None),), (claimant, leaves, waits), (going,), (kept,))


def moving() -> Example:
    text = "One GPU is free on each of two nodes; a job is being moved so that two are free on one."
    one, two, waits = job(RUNS, ROOT, 1), job(ALSO_RUNS, ROOT, 1), job(WAITS, ROOT, 2)
    return text, one_quota((node(1, 2), node(2, 2)), one, two, waits, held=(on(one, 1), on(two, 2)))


def no_engine() -> Example:
    found = one_quota((node(1),), job(WAITS, ROOT, 1))
    return "The engine does not answer.", replace(found, pools=(Pool(POOL, "default", engine_available=False),))


def not_yet() -> Example:
    waits = replace(job(WAITS, ROOT, 1), not_before_ms=NOW_MS + MINUTE_MS)
    return "The job failed and is tried again in a minute.", one_quota((node(1),), waits)


EXAMPLES: Mapping[Reason, Callable[[], Example]] = {
    Reason.HEAD_OF_LINE: head_of_line,
    Reason.HELD: held,
    Reason.QUOTA_ENTITLEMENT: entitlement,
    Reason.QUOTA_SHARE: share,
    Reason.QUOTA_LIMIT: limit,
    Reason.QUOTA_ANCESTOR_LIMIT: ancestor_limit,
    Reason.CONFIGURATION_CAP: cap,
    Reason.NODES_FULL: full,
    Reason.NODES_GANG: gang,
    Reason.NODES_FRAGMENTED: fragmented,
    Reason.NODES_TOPOLOGY: topology,
    Reason.NODES_AFFINITY: affinity,
    Reason.NODES_UNHEALTHY: unhealthy,
    Reason.NODES_NEVER_FITS: never_fits,
    Reason.PREEMPTION_PROTECTED: protected,
    Reason.PREEMPTION_PENDING: pending,
    Reason.RESERVATION_OTHER: reserved,
    Reason.CONSOLIDATION_PENDING: moving,
    Reason.ENGINE_UNAVAILABLE: no_engine,
    Reason.SCHEDULE_WAITING: not_yet,
}


FACTS: Mapping[str, str] = {
    "asked": "how much of `resource` it asks for",
    "asked_gpu_milli": "GPUs that one worker asks for, in thousandths",
    "asked_cpu_milli": "CPU that one worker asks for, in thousandths of a core",
    "asked_memory_mib": "memory that one worker asks for, in MiB",
    "at_ms": "when it may start, in milliseconds since 1970 (UTC)",
    "available": "how much of `resource` is left",
    "best_node": "the node that comes closest",
    "cap": "the cap of the scheduling configuration",
    "closed_nodes": "how many nodes take no work now",
    "engine": "what the engine would have to be",
    "entry": "the entry of the scheduling configuration",
    "free_gpu_milli": "GPUs that it could use, over all nodes, in thousandths",
    "head": "the workload ahead of it; to unblock: what that one would have to do",
    "idle": "the workload's idle use; to unblock: so much of `resource` would have to be idle",
    "kind": "training, notebook or service",
    "lacking": "how much of `resource` is missing",
    "later": "time alone will help",
    "leaving": "what is leaving would have to be gone",
    "limit": "the limit, of `resource`",
    "members": "how many workers want to start together; to unblock: how many more would have to find room",
    "moves_left": "consolidation moves left in this hour",
    "nodes": "what nodes would have to be",
    "not_before_ms": "when it may start, in milliseconds since 1970 (UTC)",
    "on_one_node_gpu_milli": "GPUs that would have to be free on one node, in thousandths",
    "placeable": "how many of the workers could be placed",
    "policy": "the queue policy",
    "pool": "the node pool",
    "quota": "the quota that says so",
    "reaches_gpu_milli": "GPUs that could be had on the best node, in thousandths",
    "release": "somebody would have to release it",
    "reservation": "what would have to become of the reservation",
    "resource": "`gpu_milli`, `cpu_milli` or `memory_mib`: the unit of the other amounts",
    "share": "the quota's share of `resource`",
    "until_ms": "when the hand-over ends at the latest, in milliseconds since 1970 (UTC)",
    "used": "how much of `resource` is in use",
}
"""What the names of facts mean, in `facts` and in `would_unblock`."""


def wait_in(example: Snapshot) -> Wait | None:
    """What the core says about the job that waits."""
    return decide(example, PRODUCT).wait_of(WAITS)
