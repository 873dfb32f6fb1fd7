"""From rows to what the core is given, in a fixed number of queries.

Ids of the snapshot are the database's. What the core does not know (states, revisions, what is written already) stands
beside the snapshot in `Loaded`: the plan is compared with it, so that only what changed is written.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, fields
from datetime import datetime, timedelta
from typing import NamedTuple

from django.db import connection, transaction
from django.db.models import Count, F, QuerySet

from quotas.models import Cluster, LedgerEntry, Node, NodePool, Quota, QuotaAmount
from scheduler import settings
from scheduler.clocks import ms_or_none, to_ms
from scheduler.core import model as core
from scheduler.core.resources import Bound
from scheduler.models import Applier, Reservation
from scheduler.remembered import Memory
from scheduler.reservations import reservation_of
from workloads.configuration import Caps, PersonalCap
from workloads.models import LIVE, Allocation, Eviction, Kind, Phase, PoolPreference, State, Verdict, Workload

MOVE_WINDOW = timedelta(hours=1)
RUNS = (State.STARTING, State.RUNNING, State.RESIZING)


class WorkloadRow(NamedTuple):
    """The columns of a live workload, in the order in which they are read."""

    id: int
    quota_id: int
    name: str
    kind: str
    state: str
    held: bool
    state_at: datetime
    submitted_at: datetime
    started_at: datetime | None
    starts: int
    position: int
    not_before: datetime | None
    revision: int
    priority: int
    idle: str
    preemptible: bool
    gpus: int
    gpu_milli: int
    gpu_memory_mib: int
    cpu_milli: int
    memory_mib: int
    replicas: int
    min_replicas: int | None
    max_replicas: int | None
    gang: bool
    master: Mapping[str, int] | None
    node_selector: Mapping[str, str]
    topology_required: str
    topology_preferred: str
    grace_s: int | None
    max_runtime_s: int | None
    checkpoint_every_s: int | None
    checkpoint_on_signal: bool
    estimate_s: int | None
    duration_s: int | None
    done_s: int
    borrowed_gpu_milli: int
    labels: Mapping[str, str]
    workspace_id: int
    owner_id: int | None


@dataclass(frozen=True, slots=True)
class AllocationRow:
    """The columns of a live allocation, in the order in which they are read."""

    id: int
    workload_id: int
    pool_id: int
    node_id: int
    run: int
    group: int
    index: int
    devices: list[int]
    gpu_milli: int
    gpu_memory_mib: int
    cpu_milli: int
    memory_mib: int
    phase: str
    ordered_at: datetime
    running_at: datetime | None
    leaving_at: datetime | None


ALLOCATION_COLUMNS = tuple(column.name for column in fields(AllocationRow))


class VerdictRow(NamedTuple):
    """What is written about a waiting workload."""

    workload_id: int
    code: str
    facts: Mapping[str, object]
    would_unblock: Mapping[str, object]
    queue_position: int | None
    since: datetime
    earliest_at: datetime | None
    latest_at: datetime | None
    sureness: str


class LedgerRow(NamedTuple):
    """What is written about a quota in a pool."""

    quota_id: int
    pool_id: int
    used: int
    own: int
    ancestors: int
    borrowed: int
    lent: int
    waiting: int
    free: int
    entitlement: int
    share: int
    used_cpu_milli: int
    used_memory_mib: int


@dataclass(frozen=True, slots=True)
class Loaded:
    """A snapshot with what is needed to write down a plan that was made from it."""

    snapshot: core.Snapshot
    now: datetime
    wanted: int
    cycle: int
    """The number of the cycle that was applied last."""
    workloads: Mapping[int, WorkloadRow]
    allocations: Mapping[int, list[AllocationRow]]
    nodes: Mapping[int, tuple[str, int]] = field(default_factory=dict)
    quotas: Mapping[int, int] = field(default_factory=dict)
    verdicts: Mapping[int, VerdictRow] = field(default_factory=dict)
    ledger: Mapping[tuple[int, int], LedgerRow] = field(default_factory=dict)


def load(cluster: Cluster, now: datetime) -> Loaded:
    """Everything that one cycle of the cluster knows at `now`, as of one instant of the database."""
    with _one_instant() as is_committed:
        if is_committed:
            return _read(cluster, now, _remembered_workload_rows(cluster), _remembered_verdicts(cluster))
        return _read(cluster, now, _workload_rows(cluster), _verdicts(cluster))


@contextmanager
def _one_instant() -> Iterator[bool]:
    """All reads in the block see the same rows, which are committed (inside somebody's transaction: what it sees)."""
    own = not connection.in_atomic_block
    with transaction.atomic():
        if own:
            with connection.cursor() as cursor:
                cursor.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ, READ ONLY")
        yield own


def _read(cluster: Cluster, now: datetime, rows: dict[int, WorkloadRow], verdicts: dict[int, VerdictRow]) -> Loaded:
    wanted, cycle = Applier.objects.filter(cluster=cluster).values_list("wanted", "cycle").first() or (0, 0)
    knobs = settings.of(cluster)
    nodes = list(Node.objects.filter(cluster=cluster).order_by("id"))
    quotas = list(Quota.objects.filter(cluster=cluster).order_by("id"))
    amounts = list(QuotaAmount.objects.filter(quota__cluster=cluster).order_by("quota_id", "pool_id"))
    held = _allocation_rows(cluster)
    losses = _ended_workers(cluster, rows.values())
    pools = _pools(cluster, now, knobs)
    preferences = _preferences(cluster) if len(pools) > 1 else {}
    caps = Caps.load(cluster)
    builder = WorkloadBuilder(now, knobs, tuple(cluster.topology_levels), preferences, losses, caps)
    workloads = tuple(builder.build(row, held.get(row.id, [])) for row in rows.values())
    snapshot = core.Snapshot(
        now_ms=to_ms(now),
        pools=pools,
        nodes=tuple(node_of(node) for node in nodes),
        quotas=_quotas(quotas, amounts),
        workloads=workloads,
        allocations=tuple(
            allocation_of(held_row, rows[workload], knobs) for workload in held for held_row in held[workload]
        ),
        reservations=tuple(
            reservation_of(found) for found in Reservation.objects.filter(cluster=cluster).order_by("id")
        ),
        excess_orders=tuple(
            core.ExcessOrder(
                id=row.pk,
                quota=row.quota_id,
                pool=row.pool_id,
                due_ms=to_ms(row.excess_due_at),
                to_limit=row.excess_to_limit,
            )
            for row in amounts
            if row.excess_due_at is not None
        ),
        caps=tuple(cap_of(found) for _, found in sorted(caps.found.items())),
    )
    return Loaded(
        snapshot=snapshot,
        now=now,
        wanted=wanted,
        cycle=cycle,
        workloads=rows,
        allocations=held,
        nodes={node.pk: (node.state, node.revision) for node in nodes},
        quotas={quota.pk: quota.revision for quota in quotas},
        verdicts=verdicts,
        ledger=_ledger(cluster),
    )


# --- pools, nodes, quotas -----------------------------------------------------------------------------------------


def _pools(cluster: Cluster, now: datetime, knobs: settings.Knobs) -> tuple[core.Pool, ...]:
    moved: dict[int, int] = dict(
        Eviction.objects.filter(
            workload__cluster=cluster, what=Eviction.What.MOVE, at__gt=now - MOVE_WINDOW, pool__isnull=False
        )
        .values_list("pool_id")
        .annotate(Count("id"))
        .order_by("pool_id")
    )
    return tuple(
        core.Pool(
            id=pool.pk,
            name=pool.name,
            placement=core.Placement(pool.placement),
            kinds=tuple(core.Kind(kind) for kind in pool.kinds) or tuple(core.Kind),
            moves_left=None if knobs.moves_an_hour is None else max(0, knobs.moves_an_hour - moved.get(pool.pk, 0)),
        )
        for pool in NodePool.objects.filter(cluster=cluster).order_by("order", "id")
    )


def node_of(node: Node) -> core.Node:
    bad = set(node.bad_devices)
    labels = {**node.labels, **({"gpu_model": node.gpu_model} if node.gpu_model else {})}
    return core.Node(
        id=node.pk,
        pool=node.pool_id,
        name=node.name,
        labels=tuple(sorted((str(key), str(value)) for key, value in labels.items())),
        devices=tuple(core.Device(node.gpu_memory_mib, healthy=index not in bad) for index in range(node.gpus)),
        cpu_milli=node.cpu_milli,
        memory_mib=node.memory_mib,
        state=core.NodeState(node.state),
    )


def _quotas(quotas: Iterable[Quota], amounts: Iterable[QuotaAmount]) -> tuple[core.Quota, ...]:
    by_quota: dict[int, list[tuple[int, core.PoolAmounts]]] = defaultdict(list)
    for row in amounts:
        by_quota[row.quota_id].append((row.pool_id, pool_amounts_of(row)))
    return tuple(quota_of(quota, by_quota[quota.pk]) for quota in quotas)


def pool_amounts_of(row: QuotaAmount) -> core.PoolAmounts:
    return core.PoolAmounts(
        guaranteed=Bound(row.guaranteed_gpu_milli, row.guaranteed_cpu_milli, row.guaranteed_memory_mib),
        limit=Bound(row.limit_gpu_milli, row.limit_cpu_milli, row.limit_memory_mib),
        lending_limit=Bound(row.lending_gpu_milli, row.lending_cpu_milli, row.lending_memory_mib),
        weight_milli=row.weight,
        rank=row.rank,
    )


def quota_of(quota: Quota, amounts: Sequence[tuple[int, core.PoolAmounts]]) -> core.Quota:
    return core.Quota(
        id=quota.pk,
        parent=quota.parent_id,
        name=quota.name,
        amounts=tuple(amounts),
        queue_policy=core.QueuePolicy(quota.queue_policy),
        idle_sharing=quota.idle_sharing,
        child_preemption=core.ChildPreemption(
            enabled=quota.child_preemption,
            claimants=tuple(core.Kind(kind) for kind in quota.child_claimants),
            max_victim_priority=quota.child_max_victim_priority,
            kinds=tuple(core.Kind(kind) for kind in quota.child_kinds),
        ),
        priority_preemption=core.PriorityPreemption(
            inside=quota.priority_inside,
            siblings=quota.priority_siblings,
            by=(quota.priority_by_low, quota.priority_by_high),
            of=(quota.priority_of_low, quota.priority_of_high),
            kinds=tuple(core.Kind(kind) for kind in quota.priority_kinds),
        ),
        min_runtime=core.MinRuntime(
            reclaim_ms=quota.min_runtime_reclaim_s * 1000,
            preempt_ms=quota.min_runtime_preempt_s * 1000,
            override_after_ms=_ms(quota.min_runtime_override_after_s),
        ),
        node_affinity=_wishes(quota.node_affinity),
        reserve_after_ms=quota.reserve_after_s * 1000,
        created_ms=to_ms(quota.created_at),
    )


def cap_of(cap: PersonalCap) -> core.Cap:
    entry = cap.entry
    bound = Bound(entry.cap_gpu_milli, entry.cap_cpu_milli, entry.cap_memory_mib)
    return core.Cap(cap.id, bound, facts=(("entry", entry.name),))


def _wishes(affinity: Mapping[str, Mapping[str, Mapping[str, list[str]]]]) -> tuple[core.NodeWish, ...]:
    return tuple(
        core.NodeWish(
            kind=core.Kind(kind),
            required=_matches(wish.get("required", {})),
            preferred=_matches(wish.get("preferred", {})),
        )
        for kind, wish in sorted(affinity.items())
    )


def _matches(labels: Mapping[str, str | list[str]]) -> tuple[core.Match, ...]:
    return tuple(
        core.Match(label, tuple(map(str, values)) if isinstance(values, list) else (str(values),))
        for label, values in sorted(labels.items())
    )


def _ms(seconds: int | None) -> int | None:
    return None if seconds is None else seconds * 1000


# --- workloads ----------------------------------------------------------------------------------------------------


known_workloads: Memory[WorkloadRow] = Memory()
"""Every change of a workload counts its revision up; only what is borrowed is written without that."""


def _live(cluster: Cluster) -> QuerySet[Workload]:
    return Workload.objects.filter(cluster=cluster, state__in=LIVE).order_by("id")


def _workload_rows(cluster: Cluster) -> dict[int, WorkloadRow]:
    return {row[0]: WorkloadRow(*row) for row in _live(cluster).values_list(*WorkloadRow._fields)}


def _remembered_workload_rows(cluster: Cluster) -> dict[int, WorkloadRow]:
    """The same; only rows that have changed since the last load are read whole."""
    marks = list(_live(cluster).values_list("id", "revision", "borrowed_gpu_milli"))

    def read(ids: list[int]) -> dict[int, WorkloadRow]:
        found = Workload.objects.filter(pk__in=ids).values_list(*WorkloadRow._fields)
        return {row[0]: WorkloadRow(*row) for row in found}

    rows = known_workloads.recall(cluster, {pk: revision for pk, revision, _ in marks}, read)
    return {pk: _with_borrowed(rows[pk], borrowed) for pk, _, borrowed in marks}


def _with_borrowed(row: WorkloadRow, borrowed: int) -> WorkloadRow:
    return row if row.borrowed_gpu_milli == borrowed else row._replace(borrowed_gpu_milli=borrowed)


def _allocation_rows(cluster: Cluster) -> dict[int, list[AllocationRow]]:
    found = Allocation.objects.filter(ended_at__isnull=True, workload__cluster=cluster, workload__state__in=LIVE)
    held: dict[int, list[AllocationRow]] = defaultdict(list)
    for row in found.order_by("workload_id", "id").values_list(*ALLOCATION_COLUMNS):
        held[row[1]].append(AllocationRow(*row))
    return dict(held)


@dataclass(frozen=True, slots=True)
class EndedWorkers:
    """Of a run that goes on: whether some of its workers have done their part, and since when one is missing."""

    some_done: bool = False
    missing_since: datetime | None = None


def _ended_workers(cluster: Cluster, rows: Iterable[WorkloadRow]) -> dict[int, EndedWorkers]:
    """Workers of running training jobs that ended by themselves while others go on."""
    going_on = [
        row.id for row in rows if row.kind == Kind.TRAINING and row.state in RUNS and (row.replicas > 1 or row.master)
    ]
    if not going_on:
        return {}
    last: dict[tuple[int, int, int], tuple[str, datetime | None]] = {}
    of_this_run = Allocation.objects.filter(workload_id__in=going_on, run=F("workload__starts")).order_by("id")
    for workload, group, index, outcome, at in of_this_run.values_list(
        "workload_id", "group", "index", "outcome", "ended_at"
    ):
        last[workload, group, index] = (outcome, at)
    found: dict[int, EndedWorkers] = {}
    for (workload, _, _), (outcome, at) in last.items():
        known = found.get(workload, EndedWorkers())
        if at is not None and outcome == "succeeded":
            found[workload] = EndedWorkers(True, known.missing_since)
        elif at is not None and outcome in ("failed", "lost"):
            found[workload] = EndedWorkers(known.some_done, min(at, known.missing_since or at))
    return found


def _preferences(cluster: Cluster) -> dict[int, tuple[int, ...]]:
    found = PoolPreference.objects.filter(workload__cluster=cluster, workload__state__in=LIVE)
    pools: dict[int, tuple[int, ...]] = {}
    for workload, pool in found.order_by("workload_id", "order", "id").values_list("workload_id", "pool_id"):
        pools[workload] = (*pools.get(workload, ()), pool)
    return pools


class WorkloadBuilder:
    """Makes the core's workloads; equal shapes are one object, so that grouping them is cheap."""

    def __init__(
        self,
        now: datetime,
        knobs: settings.Knobs,
        levels: tuple[str, ...],
        preferences: Mapping[int, tuple[int, ...]],
        ended: Mapping[int, EndedWorkers],
        caps: Caps,
    ) -> None:
        self.now = now
        self.knobs = knobs
        self.levels = levels
        self.preferences = preferences
        self.ended = ended
        self.caps = caps
        self._groups: dict[tuple[object, ...], tuple[core.WorkerGroup, ...]] = {}

    def build(self, row: WorkloadRow, held: Sequence[AllocationRow]) -> core.Workload:
        ended = self.ended.get(row.id, EndedWorkers())
        groups = self._groups_of(row)
        return core.Workload(
            id=row.id,
            quota=row.quota_id,
            kind=core.Kind(row.kind),
            groups=groups,
            submitted_ms=to_ms(row.submitted_at),
            name=row.name,
            priority=row.priority,
            idle=core.IdleUse(row.idle),
            preemptible=row.preemptible,
            gang=row.gang,
            grace_ms=_grace_ms(row, self.knobs),
            held=row.held,
            position=row.position,
            waiting_since_ms=self._waiting_since_ms(row),
            not_before_ms=ms_or_none(row.not_before),
            ending=row.state == State.STOPPING or ended.some_done,
            letting_go=row.state == State.QUEUED and any(one.phase != Phase.LEAVING for one in held),
            pools=self.preferences.get(row.id, ()),
            caps=self.caps.of(row.workspace_id, row.quota_id, row.owner_id, row.kind, row.priority),
            estimate_ms=None if row.estimate_s is None else max(0, row.estimate_s - row.done_s) * 1000,
            end_limit_ms=self._end_limit_ms(row),
            checkpoint=self._checkpoint(row, held),
            stale_since_ms=self._stale_since_ms(groups, held, ended),
        )

    def _groups_of(self, row: WorkloadRow) -> tuple[core.WorkerGroup, ...]:
        master = tuple(sorted(row.master.items())) if row.master else ()
        select = tuple(sorted(row.node_selector.items()))
        labels = tuple(sorted((str(key), str(value)) for key, value in row.labels.items()))
        key = (
            (row.gpus, row.gpu_milli, row.gpu_memory_mib, row.cpu_milli, row.memory_mib),
            (row.replicas, row.min_replicas, row.max_replicas, row.gang, row.kind),
            (row.topology_required, row.topology_preferred),
            (master, select, labels),
        )
        if key not in self._groups:
            self._groups[key] = self._make_groups(row)
        return self._groups[key]

    def _make_groups(self, row: WorkloadRow) -> tuple[core.WorkerGroup, ...]:
        topology = core.Topology(row.topology_required or None, row.topology_preferred or None, self.levels)
        worker = shape_of(row._asdict(), row.node_selector, row.labels)
        workers = core.WorkerGroup(worker, row.replicas, minimum_of(row), topology=topology)
        if not row.master:
            return (workers,)
        master = core.WorkerGroup(
            shape_of(row.master, row.node_selector, row.labels), 1, 1, name="master", topology=topology
        )
        return (master, workers)

    @staticmethod
    def _waiting_since_ms(row: WorkloadRow) -> int | None:
        """A run that came back, or a service that wants more, waits since then; the others since submission."""
        waits_anew = row.state == State.RESIZING or (row.state == State.QUEUED and row.starts > 0)
        return to_ms(row.state_at) if waits_anew else None

    @staticmethod
    def _end_limit_ms(row: WorkloadRow) -> int | None:
        if row.max_runtime_s is None or row.started_at is None or row.state == State.QUEUED:
            return None
        return to_ms(row.started_at) + row.max_runtime_s * 1000

    def _checkpoint(self, row: WorkloadRow, held: Sequence[AllocationRow]) -> core.Checkpoint:
        instants = [seen.running_at for seen in held if seen.running_at is not None]
        began = min(instants) if instants else None
        if row.checkpoint_every_s is None or began is None:
            return core.Checkpoint(None, row.checkpoint_on_signal)
        every = timedelta(seconds=row.checkpoint_every_s)
        done = (self.now - began) // every
        return core.Checkpoint(to_ms(began + done * every) if done > 0 else None, row.checkpoint_on_signal)

    @staticmethod
    def _stale_since_ms(
        groups: Sequence[core.WorkerGroup], held: Sequence[AllocationRow], ended: EndedWorkers
    ) -> int | None:
        if ended.missing_since is None:
            return None
        live: dict[int, int] = defaultdict(int)
        for seen in held:
            live[seen.group] += seen.phase != Phase.LEAVING
        below = any(live[number] < group.minimum for number, group in enumerate(groups))
        return to_ms(ended.missing_since) if below else None


def minimum_of(row: WorkloadRow) -> int:
    """How many workers start together or not at all."""
    if not row.gang:
        return min(1, row.replicas)
    return row.replicas if row.min_replicas is None else min(row.min_replicas, row.replicas)


def shape_of(request: Mapping[str, object], select: Mapping[str, str], labels: Mapping[str, str]) -> core.Shape:
    """What one worker asks for, from the keys `gpus`, `gpu_milli`, `gpu_memory_mib`, `cpu_milli`, `memory_mib`."""

    def amount(name: str, default: int = 0) -> int:
        value = request.get(name, default)
        return value if isinstance(value, int) else default

    gpus, memory = amount("gpus"), amount("gpu_memory_mib")
    return core.Shape(
        gpu_count=gpus,
        gpu_milli=0 if memory or not gpus else amount("gpu_milli", 1000),
        gpu_memory_mib=memory if gpus else 0,
        cpu_milli=amount("cpu_milli"),
        memory_mib=amount("memory_mib"),
        select=_matches(select),
        labels=tuple(sorted((str(key), str(value)) for key, value in labels.items())),
    )


def _grace_ms(row: WorkloadRow, knobs: settings.Knobs) -> int:
    return knobs.eviction_grace_ms if row.grace_s is None else row.grace_s * 1000


def allocation_of(held: AllocationRow, row: WorkloadRow, knobs: settings.Knobs) -> core.Allocation:
    leaving_ms = ms_or_none(held.leaving_at)
    return core.Allocation(
        place=core.Place(
            workload=held.workload_id,
            group=held.group,
            index=held.index,
            node=held.node_id,
            devices=tuple(held.devices),
            device_milli=held.gpu_milli,
            device_memory_mib=held.gpu_memory_mib,
            cpu_milli=held.cpu_milli,
            memory_mib=held.memory_mib,
        ),
        phase=core.Phase(held.phase),
        started_ms=to_ms(held.ordered_at),
        gone_by_ms=None if leaving_ms is None else leaving_ms + _grace_ms(row, knobs),
    )


# --- what is written already --------------------------------------------------------------------------------------


known_verdicts: Memory[VerdictRow] = Memory()
"""A verdict is written with the number of its cycle, which no other has."""


def _remembered_verdicts(cluster: Cluster) -> dict[int, VerdictRow]:
    """What is written; only what this process has not read or written so before is read whole."""

    def read(ids: list[int]) -> dict[int, VerdictRow]:
        rows = Verdict.objects.filter(pk__in=ids).values_list(*VerdictRow._fields)
        return {row[0]: VerdictRow(*row) for row in rows}

    marks = dict(Verdict.objects.filter(workload__cluster=cluster).values_list("workload_id", "cycle"))
    return known_verdicts.recall(cluster, marks, read)


def _verdicts(cluster: Cluster) -> dict[int, VerdictRow]:
    rows = Verdict.objects.filter(workload__cluster=cluster).values_list(*VerdictRow._fields)
    return {row[0]: VerdictRow(*row) for row in rows}


def _ledger(cluster: Cluster) -> dict[tuple[int, int], LedgerRow]:
    rows = LedgerEntry.objects.filter(quota__cluster=cluster).values_list(*LedgerRow._fields)
    return {(row[0], row[1]): LedgerRow(*row) for row in rows}
