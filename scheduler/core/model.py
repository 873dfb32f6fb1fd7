"""What the core is given and what it gives back.

Times are integer milliseconds since the epoch (UTC), durations integer milliseconds; amounts are in
base units (`resources.py`). Ids are the database's integers: every order ends in one. Everything here is
frozen and holds tuples, so a snapshot may be kept, compared, hashed by value and replayed.

    decide(snapshot: Snapshot, policy: Policy) -> Plan
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from scheduler.core.resources import NO_BOUND, NOTHING, Amount, Bound

Facts = Mapping[str, object]
"""Plain data that JSON can hold: numbers, strings, lists and mappings of them."""


class Kind(StrEnum):
    """What a workload is."""

    TRAINING = "training"
    NOTEBOOK = "notebook"
    SERVICE = "service"


class IdleUse(StrEnum):
    """Whether a workload may run on room that its quota was not promised."""

    NEVER = "never"
    ALLOW = "allow"
    ONLY = "only"


class QueuePolicy(StrEnum):
    """How a quota orders its own waiting work and what a blocked head holds up."""

    FIFO = "fifo"
    ROUND_ROBIN = "round_robin"
    BALANCE = "balance"
    INTELLIGENT = "intelligent"


class NodeState(StrEnum):
    """Cordoned and draining nodes count in the capacity but take no new work; lost ones do neither."""

    READY = "ready"
    CORDONED = "cordoned"
    DRAINING = "draining"
    LOST = "lost"


class Phase(StrEnum):
    """Where a live allocation stands; all of them hold room and count as used."""

    STARTING = "starting"
    RUNNING = "running"
    LEAVING = "leaving"


class Placement(StrEnum):
    """How nodes of a pool are filled."""

    BINPACK = "binpack"
    SPREAD = "spread"


class Rule(StrEnum):
    """The rule that makes an eviction or shrink lawful (`docs/core.md`)."""

    GUARANTEE = "a"
    SHARE = "a'"
    CHILD_LEVEL = "b"
    PRIORITY = "c"
    ORDER = "d"


class OrderKind(StrEnum):
    """The standing order behind a stop under rule (d)."""

    EXCESS = "excess"
    DRAIN = "drain"
    STALE = "stale"


class Reason(StrEnum):
    """Why a workload waits: stable codes, the same on every door."""

    HEAD_OF_LINE = "policy.head_of_line"
    HELD = "policy.held"
    QUOTA_ENTITLEMENT = "quota.entitlement"
    QUOTA_SHARE = "quota.share"
    QUOTA_LIMIT = "quota.limit"
    QUOTA_ANCESTOR_LIMIT = "quota.ancestor_limit"
    CONFIGURATION_CAP = "configuration.cap"
    NODES_FULL = "nodes.full"
    NODES_GANG = "nodes.gang"
    NODES_FRAGMENTED = "nodes.fragmented"
    NODES_TOPOLOGY = "nodes.topology"
    NODES_AFFINITY = "nodes.affinity"
    NODES_UNHEALTHY = "nodes.unhealthy"
    NODES_NEVER_FITS = "nodes.never_fits"
    PREEMPTION_PROTECTED = "preemption.protected"
    PREEMPTION_PENDING = "preemption.pending"
    RESERVATION_OTHER = "reservation.other"
    CONSOLIDATION_PENDING = "consolidation.pending"
    ENGINE_UNAVAILABLE = "engine.unavailable"
    SCHEDULE_WAITING = "schedule.waiting"


class Sureness(StrEnum):
    """How sure a start estimate is."""

    RESERVED = "reserved"
    ESTIMATED = "estimated"
    UNKNOWN = "unknown"


# --- nodes and pools ---------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Device:
    """One GPU of a node; its index is its place in the node's tuple."""

    memory_mib: int = 0
    healthy: bool = True


@dataclass(frozen=True, slots=True)
class Node:
    """A machine. None for CPU or memory means that it has no bound there."""

    id: int
    pool: int
    name: str = ""
    labels: tuple[tuple[str, str], ...] = ()
    devices: tuple[Device, ...] = ()
    cpu_milli: int | None = None
    memory_mib: int | None = None
    state: NodeState = NodeState.READY
    taints: tuple[str, ...] = ()
    counted: tuple[tuple[str, int], ...] = ()
    """Further resources by name that are only counted: slots, device classes, slices."""
    counted_gpu_milli: int = 0
    """What those are worth as GPUs in the pool's capacity, where quotas are charged GPUs for them."""


@dataclass(frozen=True, slots=True)
class Pool:
    """A set of like nodes; quota and fairness are judged per pool."""

    id: int
    name: str = ""
    placement: Placement = Placement.BINPACK
    kinds: tuple[Kind, ...] = tuple(Kind)
    moves_left: int | None = None
    """Consolidation moves still allowed in this hour; None means as many as wanted."""
    engine_available: bool = True


# --- quotas ------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class PoolAmounts:
    """What a quota has in one pool. A resource without a guaranteed amount is not governed by it."""

    guaranteed: Bound = NO_BOUND
    limit: Bound = NO_BOUND
    lending_limit: Bound = NO_BOUND
    weight_milli: int | None = None
    """Weight in the surplus in thousandths; None means the guaranteed GPUs."""
    other_weight_milli: int | None = None
    """Weight for CPU and memory; None means the same as for GPUs."""
    rank: int = 0
    past_use_milli: int = 0
    """Decayed past use in thousandths of the pool's capacity (0 without memory of past use)."""


@dataclass(frozen=True, slots=True)
class ChildPreemption:
    """The child-level switch of a quota."""

    enabled: bool = False
    claimants: tuple[Kind, ...] = (Kind.SERVICE,)
    max_victim_priority: int = 9
    kinds: tuple[Kind, ...] = (Kind.TRAINING, Kind.NOTEBOOK)


@dataclass(frozen=True, slots=True)
class PriorityPreemption:
    """Who may take whose room by priority, inside the quota and among siblings; ranges are inclusive."""

    inside: bool = True
    siblings: bool = False
    by: tuple[int, int] = (1, 9)
    of: tuple[int, int] = (1, 9)
    kinds: tuple[Kind, ...] = (Kind.TRAINING, Kind.NOTEBOOK)


@dataclass(frozen=True, slots=True)
class MinRuntime:
    """How long work of a quota is left alone after its start, in milliseconds."""

    reclaim_ms: int = 0
    preempt_ms: int = 0
    override_after_ms: int | None = None


@dataclass(frozen=True, slots=True)
class Match:
    """A node label and the values that satisfy it."""

    label: str
    values: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class NodeWish:
    """Where work of one kind of a quota must or should run."""

    kind: Kind
    required: tuple[Match, ...] = ()
    preferred: tuple[Match, ...] = ()


@dataclass(frozen=True, slots=True)
class Quota:
    """A quota of the tree with its amounts per pool (pool id first) and its switches."""

    id: int
    parent: int | None = None
    name: str = ""
    amounts: tuple[tuple[int, PoolAmounts], ...] = ()
    queue_policy: QueuePolicy = QueuePolicy.INTELLIGENT
    idle_sharing: bool = True
    child_preemption: ChildPreemption = ChildPreemption()
    priority_preemption: PriorityPreemption = PriorityPreemption()
    min_runtime: MinRuntime = MinRuntime()
    node_affinity: tuple[NodeWish, ...] = ()
    reserve_after_ms: int | None = 30 * 60_000
    """Waiting time after which a head within its entitlement gets nodes reserved; None means never."""
    created_ms: int = 0


# --- workloads ---------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Topology:
    """How close workers must (required) or should (preferred) be: node labels, of `levels` widest first."""

    required: str | None = None
    preferred: str | None = None
    levels: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Neighbour:
    """Other workers by their labels, and the node label whose value is shared (or must not be)."""

    labels: tuple[tuple[str, str], ...]
    within: str


@dataclass(frozen=True, slots=True)
class Shape:
    """What one worker asks for: everything that decides on which nodes it fits.

    GPUs are `gpu_count` devices with `gpu_milli` thousandths of each (1000 is a whole one), or with
    `gpu_memory_mib` of memory of each, converted with the memory of the node's devices.
    """

    gpu_count: int = 0
    gpu_milli: int = 0
    gpu_memory_mib: int = 0
    cpu_milli: int = 0
    memory_mib: int = 0
    counted: tuple[tuple[str, int], ...] = ()
    quota_gpu_milli: int | None = None
    """What the quota is charged in GPUs when that differs from the devices (slices, claims)."""
    select: tuple[Match, ...] = ()
    prefer: tuple[Match, ...] = ()
    tolerates: tuple[str, ...] = ()
    labels: tuple[tuple[str, str], ...] = ()
    near: tuple[Neighbour, ...] = ()
    apart: tuple[Neighbour, ...] = ()


@dataclass(frozen=True, slots=True)
class Enclosure:
    """A group of groups with a topology wish of its own; `inside` is the index of the one around it."""

    topology: Topology = Topology()
    inside: int | None = None


@dataclass(frozen=True, slots=True)
class WorkerGroup:
    """Like workers of a workload: replicas, workers, a master. Indexes run from 0 to wanted - 1.

    `minimum` workers start together or none does; those above come one by one.
    """

    shape: Shape
    wanted: int
    minimum: int
    name: str = ""
    topology: Topology = Topology()
    inside: int | None = None
    overrides: tuple[tuple[int, Shape], ...] = ()
    """Workers by index that ask for something else than the rest."""


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """What a workload keeps when it is stopped."""

    last_ms: int | None = None
    on_signal: bool = False


@dataclass(frozen=True, slots=True)
class Workload:
    """A workload that waits, runs, or still leaves. What it holds is in the snapshot's allocations."""

    id: int
    quota: int
    kind: Kind
    groups: tuple[WorkerGroup, ...]
    submitted_ms: int
    name: str = ""
    priority: int = 3
    idle: IdleUse = IdleUse.NEVER
    preemptible: bool = True
    gang: bool = True
    """False: replicas start and stop one by one (services)."""
    grace_ms: int = 30_000
    held: bool = False
    position: int = 0
    """Operators' order inside a priority: lower first, before the time of submission."""
    waiting_since_ms: int | None = None
    """Since when it waits for what it lacks now; None means since its submission."""
    not_before_ms: int | None = None
    """It may not start before (a back-off, a planned start)."""
    ending: bool = False
    """It was stopped or ends: what it still holds is leaving and nothing of it starts again."""
    letting_go: bool = False
    """It starts anew (a node of its gang was lost): what it still holds leaves first."""
    pools: tuple[int, ...] = ()
    """Pools in order of preference; empty means any pool, in id order."""
    estimate_ms: int | None = None
    """How long a whole run takes, if the owner said so."""
    end_limit_ms: int | None = None
    """The instant at which a limit of time ends the run that is going on."""
    checkpoint: Checkpoint = Checkpoint()
    enclosures: tuple[Enclosure, ...] = ()
    stale_since_ms: int | None = None
    """Since when a started gang is below its minimum by failure."""
    caps: tuple[int, ...] = ()
    """Ids of the caps that count this workload."""
    placement: Placement | None = None
    """Overrides the pool's way of filling nodes."""


@dataclass(frozen=True, slots=True)
class Cap:
    """A bound on what some workloads (of a person, of a role) may hold at once in a quota."""

    id: int
    bound: Bound
    facts: tuple[tuple[str, object], ...] = ()


# --- what is held ------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Place:
    """One worker's room on one node: so much of each listed device, CPU, memory, counted resources."""

    workload: int
    group: int
    index: int
    node: int
    devices: tuple[int, ...] = ()
    device_milli: int = 0
    device_memory_mib: int = 0
    """Set when the request was for device memory: how much of each device's memory is taken."""
    cpu_milli: int = 0
    memory_mib: int = 0
    counted: tuple[tuple[str, int], ...] = ()
    charged_gpu_milli: int | None = None
    """GPUs charged to the quota when that differs from devices x device_milli."""

    @property
    def amount(self) -> Amount:
        """What quotas are charged."""
        gpu = len(self.devices) * self.device_milli
        if self.charged_gpu_milli is not None:
            gpu = self.charged_gpu_milli
        return Amount(gpu, self.cpu_milli, self.memory_mib)


@dataclass(frozen=True, slots=True)
class Allocation:
    """A live allocation: a place that is held."""

    place: Place
    phase: Phase = Phase.RUNNING
    started_ms: int = 0
    """When the start was ordered: minimum run time and "started earlier" count from here."""
    gone_by_ms: int | None = None
    """For leaving work: when it is gone at the latest, by its grace."""


class ReservationKind(StrEnum):
    """Why room is kept: for a claimant whose victims leave, for work that moves, for a head that waits long."""

    HANDOVER = "handover"
    MOVE = "move"
    HEAD = "head"
    INCOMING = "incoming"
    """For a claimant within its entitlement: room that is on its way and nobody's."""


@dataclass(frozen=True, slots=True)
class Reservation:
    """Room kept for a claimant until it starts, leaves, or the time is over.

    `node_ids` are whole nodes kept for a head; `places` are exact rooms. `needed_ms` tells when a
    head is expected to need the room (None: nobody knows).
    """

    claimant: int
    pool: int
    kind: ReservationKind
    places: tuple[Place, ...] = ()
    node_ids: tuple[int, ...] = ()
    victims: tuple[int, ...] = ()
    rule: Rule | None = None
    opened_ms: int = 0
    expires_ms: int | None = None
    needed_ms: int | None = None
    id: int = 0
    """0 for one that a plan opens: the database numbers it."""


@dataclass(frozen=True, slots=True)
class ExcessOrder:
    """`on_excess: preempt`: what the quota uses beyond its guarantee in this pool goes at `due_ms`."""

    id: int
    quota: int
    pool: int
    due_ms: int
    to_limit: bool = False
    """The limit was lowered, not the guarantee: only what is beyond the limit goes."""


# --- snapshot ----------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Snapshot:
    """Everything that one cycle knows. The order of the tuples does not matter: ids decide."""

    now_ms: int
    pools: tuple[Pool, ...] = ()
    nodes: tuple[Node, ...] = ()
    quotas: tuple[Quota, ...] = ()
    workloads: tuple[Workload, ...] = ()
    allocations: tuple[Allocation, ...] = ()
    reservations: tuple[Reservation, ...] = ()
    excess_orders: tuple[ExcessOrder, ...] = ()
    caps: tuple[Cap, ...] = ()


# --- plan --------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Start:
    """A worker starts at a place. `grows` is true when the workload was running already."""

    place: Place
    grows: bool = False


@dataclass(frozen=True, slots=True)
class Eviction:
    """A whole workload is told to leave. Either a claimant or an order is named, with the rule's facts."""

    workload: int
    rule: Rule
    pool: int
    claimant: int | None = None
    order: OrderKind | None = None
    order_id: int | None = None
    facts: Facts = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Shrink:
    """Some workers (group, index) of a workload are told to leave while the rest runs on."""

    workload: int
    workers: tuple[tuple[int, int], ...]
    rule: Rule
    pool: int
    claimant: int | None = None
    order: OrderKind | None = None
    order_id: int | None = None
    facts: Facts = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Release:
    """Workers (group, index) that leave because the workload wants fewer, or starts anew: no eviction."""

    workload: int
    workers: tuple[tuple[int, int], ...]


@dataclass(frozen=True, slots=True)
class Move:
    """A workload leaves with its grace and goes on at `places`, which are reserved for it."""

    workload: int
    pool: int
    claimant: int | None
    """Who is let in by it; None when a drain moves it."""
    places: tuple[Place, ...]
    facts: Facts = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class ClosedReservation:
    """An open reservation that ends with this plan, and why (started, left, expired, unlawful, broken)."""

    id: int
    why: str


@dataclass(frozen=True, slots=True)
class StartEstimate:
    """When a waiting workload may start; None as a bound means that nobody can say."""

    earliest_ms: int | None
    latest_ms: int | None
    sureness: Sureness


@dataclass(frozen=True, slots=True)
class Wait:
    """The one dominant reason why a workload waits or has less than it wants."""

    workload: int
    reason: Reason
    facts: Facts = field(default_factory=dict)
    would_unblock: Facts = field(default_factory=dict)
    position: int | None = None
    """Place in the own quota's queue, from 1; None when it is not queued for anything now."""
    estimate: StartEstimate = StartEstimate(None, None, Sureness.UNKNOWN)
    pool: int | None = None
    """The wanted pool that the reason speaks of."""


@dataclass(frozen=True, slots=True)
class LedgerRow:
    """The books of one quota in one pool after this plan's starts, with what leaves still counted."""

    quota: int
    pool: int
    guaranteed: Bound = NO_BOUND
    limit: Bound = NO_BOUND
    used: Amount = NOTHING
    own: Amount = NOTHING
    by_descendants: Amount = NOTHING
    by_ancestors: Amount = NOTHING
    borrowed: Amount = NOTHING
    lent: Amount = NOTHING
    waiting: Amount = NOTHING
    free: Amount = NOTHING
    entitlement: Amount = NOTHING
    share: Amount = NOTHING


@dataclass(frozen=True, slots=True)
class Plan:
    """What to do now, and why everything else waits. A worker is in at most one of the lists."""

    starts: tuple[Start, ...] = ()
    evictions: tuple[Eviction, ...] = ()
    shrinks: tuple[Shrink, ...] = ()
    moves: tuple[Move, ...] = ()
    releases: tuple[Release, ...] = ()
    opened: tuple[Reservation, ...] = ()
    kept: tuple[int, ...] = ()
    closed: tuple[ClosedReservation, ...] = ()
    orders_done: tuple[int, ...] = ()
    """Excess orders that this plan carries out: they do not stand any longer."""
    waits: tuple[Wait, ...] = ()
    ledger: tuple[LedgerRow, ...] = ()
    borrowed: tuple[tuple[int, int], ...] = ()
    """(workload, milli-GPUs of it that are borrowed at whichever level most are), only where above 0."""
    over: tuple[int, ...] = ()
    """Workloads that may not borrow and are beyond the entitlement (after a cut with `keep`)."""
    order: tuple[tuple[int, tuple[int, ...]], ...] = ()
    """(quota, its waiting workloads in the order of its queue)."""
    wake_ms: int | None = None
    """The next instant at which time alone may change the decision; None when none does."""

    def wait_of(self, workload: int) -> Wait | None:
        """The wait of a workload, or None if it does not wait."""
        return next((wait for wait in self.waits if wait.workload == workload), None)
