"""What whole pages show, put together from rows that the reader may see. Amounts in thousandths of a GPU."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta

import numpy as np
from django.db.models import Count, F, Min, Q, QuerySet, Sum
from django.db.models.functions import Coalesce
from django.utils import timezone
from numpy.typing import NDArray

from console.charts import GpuUse, HeatNode, Span, Usage, heat_node
from quotas.actors import Actor
from quotas.models import Cluster, LedgerEntry, Node, NodePool, NodeState, Quota, QuotaAmount, WorkspaceQuota
from quotas.permissions import visible_nodes, visible_quotas, visible_workspaces
from scheduler.models import Applier
from scheduler.selectors import usage_series
from workloads.models import Allocation, Event, Eviction, State, Verdict, Workload
from workloads.selectors import visible_workloads

PERIODS: dict[str, tuple[timedelta, int]] = {  # period -> (how long, samples)
    "1h": (timedelta(hours=1), 120),
    "24h": (timedelta(hours=24), 288),
    "7d": (timedelta(days=7), 336),
}
MOST_LAYERS = 8
HEAD_LENGTH = 6
LATE_CYCLE = timedelta(seconds=30)
DAY = timedelta(days=1)
GPUS_ASKED = F("gpus") * F("gpu_milli") * F("replicas")

Milli = NDArray[np.int64]


# --- the tree --------------------------------------------------------------------------------------------------------


@dataclass
class Branch:
    """A quota with what its row shows, summed over pools."""

    quota: Quota
    depth: int  # 1 for what has no visible parent
    usage: Usage
    own: int = 0
    waiting: int = 0
    free: int = 0
    amounts: list[QuotaAmount] = field(default_factory=list)
    entries: dict[int, LedgerEntry] = field(default_factory=dict)  # by pool
    bindings: list[WorkspaceQuota] = field(default_factory=list)  # of workspaces that the reader sees
    workspaces: list[str] = field(default_factory=list)
    children: list[Branch] = field(default_factory=list)

    @property
    def percent(self) -> int | None:
        return round(100 * self.usage.used / self.usage.guaranteed) if self.usage.guaranteed else None

    @property
    def free_for_children(self) -> int:
        """What of the guarantee no child is promised yet."""
        return self.usage.guaranteed - sum(child.usage.guaranteed for child in self.children)


def quota_branches(*, actor: Actor, cluster: Cluster, pool: NodePool | None = None) -> list[Branch]:
    """All quotas of the cluster that the actor may see, parents before children, siblings in the order they were made.

    A handful of queries, however many quotas there are. With a pool only its amounts count.
    """
    quotas = list(visible_quotas(actor).filter(cluster=cluster).order_by("id"))
    numbers = _numbers_of(cluster, pool)
    bindings = WorkspaceQuota.objects.filter(workspace__in=visible_workspaces(actor), quota__cluster=cluster)
    for binding in bindings.select_related("workspace").order_by("id"):
        numbers.bindings[binding.quota_id].append(binding)
    return _as_tree({quota.pk: _branch(quota, numbers) for quota in quotas})


@dataclass(frozen=True)
class _Numbers:
    """Rows by quota."""

    amounts: Mapping[int, list[QuotaAmount]]
    entries: Mapping[int, list[LedgerEntry]]
    bindings: dict[int, list[WorkspaceQuota]]


def _numbers_of(cluster: Cluster, pool: NodePool | None) -> _Numbers:
    """Amounts and ledger of a cluster's quotas, of one pool or of all. Three queries."""
    pools = {found.pk: found for found in cluster.pools.all()}
    chosen = [pool.pk] if pool is not None else list(pools)
    amounts: dict[int, list[QuotaAmount]] = defaultdict(list)
    for amount in QuotaAmount.objects.filter(pool__in=chosen).order_by("pool__order", "pool_id"):
        amount.pool = pools[amount.pool_id]
        amounts[amount.quota_id].append(amount)
    entries: dict[int, list[LedgerEntry]] = defaultdict(list)
    for entry in LedgerEntry.objects.filter(pool__in=chosen):
        entries[entry.quota_id].append(entry)
    return _Numbers(amounts, entries, defaultdict(list))


def quota_shapes(*, actor: Actor, cluster: Cluster) -> list[Branch]:
    """The same tree without its numbers. One query."""
    quotas = visible_quotas(actor).filter(cluster=cluster).only("id", "name", "parent_id").order_by("id")
    return _as_tree({quota.pk: Branch(quota, 1, Usage(quota.name)) for quota in quotas})


def _as_tree(branches: dict[int, Branch]) -> list[Branch]:
    """Branches with their children and depths, parents before children."""
    roots: list[Branch] = []
    for branch in branches.values():
        parent = branches.get(branch.quota.parent_id or 0)
        (parent.children if parent else roots).append(branch)
    return list(_in_order(roots, 1))


def _in_order(branches: Iterable[Branch], depth: int) -> Iterable[Branch]:
    for branch in branches:
        branch.depth = depth
        yield branch
        yield from _in_order(branch.children, depth + 1)


def _branch(quota: Quota, numbers: _Numbers) -> Branch:
    amounts, entries = numbers.amounts.get(quota.pk, []), numbers.entries.get(quota.pk, [])
    bindings = numbers.bindings.get(quota.pk, [])
    limits = [amount.limit_gpu_milli for amount in amounts]
    known = [limit for limit in limits if limit is not None]
    return Branch(
        quota=quota,
        depth=1,
        usage=Usage(
            name=quota.name,
            used=sum(entry.used for entry in entries),
            borrowed=sum(entry.borrowed for entry in entries),
            lent=sum(entry.lent for entry in entries),
            guaranteed=sum(amount.guaranteed_gpu_milli or 0 for amount in amounts),
            limit=sum(known) if known and len(known) == len(limits) else None,
        ),
        own=sum(entry.own for entry in entries),
        waiting=sum(entry.waiting for entry in entries),
        free=sum(entry.free for entry in entries),
        amounts=amounts,
        entries={entry.pool_id: entry for entry in entries},
        bindings=bindings,
        workspaces=[binding.workspace.name for binding in bindings],
    )


# --- layers: the quotas that a chart tells apart ---------------------------------------------------------------------


@dataclass(frozen=True)
class Layers:
    """Names of a chart's layers, and the layer of each quota (its number from 0)."""

    names: tuple[str, ...]
    of: Mapping[int, int]


def layers_of(branches: Sequence[Branch], own_words: str, rest_words: str) -> Layers:
    """A root's own work, and each of its children with all below it; roots without children are a layer themselves."""
    names: list[str] = []
    of: dict[int, int] = {}

    def add(name: str, members: Iterable[Branch]) -> None:
        at = min(len(names), MOST_LAYERS - 1)
        if len(names) < MOST_LAYERS:
            names.append(name if len(names) < MOST_LAYERS - 1 else rest_words)
        of.update({member.quota.pk: at for member in members})

    for root in (branch for branch in branches if branch.depth == 1):
        add(own_words % {"name": root.quota.name} if root.children else root.quota.name, [root])
        for child in root.children:
            add(child.quota.name, _in_order([child], 2))
    return Layers(tuple(names), of)


# --- use over time ---------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class UsageHistory:
    """Allocated GPUs at sample times, a row a layer; all from allocation rows."""

    times: tuple[datetime, ...]
    names: tuple[str, ...]
    values: Milli  # layer x time
    capacity: int

    @property
    def totals(self) -> Milli:
        return np.asarray(self.values.sum(axis=0), dtype=np.int64)


def usage_history(
    *, actor: Actor, cluster: Cluster, layers: Layers, period: str, capacity: int, pool: NodePool | None = None
) -> UsageHistory:
    """GPUs held by each layer's quotas over the period until now, on the cluster's clock."""
    length, samples = PERIODS[period]
    now = cluster.now()
    series = usage_series(actor=actor, cluster=cluster, since=now - length, until=now, samples=samples, pool=pool)
    values = np.zeros((len(layers.names), len(series.times)), dtype=np.int64)
    for quota_id, held in series.held.items():
        if quota_id in layers.of:
            values[layers.of[quota_id]] += held
    return UsageHistory(series.times, layers.names, values, capacity)


# --- nodes -----------------------------------------------------------------------------------------------------------


def gpu_capacity(*, actor: Actor, cluster: Cluster, pool: NodePool | None = None) -> int:
    """GPUs of the nodes that are not lost, healthy or not, as far as the actor may see nodes."""
    nodes = visible_nodes(actor).filter(cluster=cluster).exclude(state=NodeState.LOST)
    if pool is not None:
        nodes = nodes.filter(pool=pool)
    total: int = nodes.aggregate(total=Coalesce(Sum("gpus"), 0))["total"]
    return total * 1000


def promised_to(quotas: Iterable[Quota]) -> int:
    """What these quotas are guaranteed together, over all pools."""
    rows = QuotaAmount.objects.filter(quota__in=[quota.pk for quota in quotas])
    total: int = rows.aggregate(total=Coalesce(Sum("guaranteed_gpu_milli"), 0))["total"]
    return total


def heat_map(*, actor: Actor, cluster: Cluster, layers: Layers, pool: NodePool | None = None) -> list[HeatNode]:
    """Every visible node as squares, coloured by the layer whose work is on the device. Two queries."""
    nodes = visible_nodes(actor).filter(cluster=cluster).order_by("id")
    if pool is not None:
        nodes = nodes.filter(pool=pool)
    found = list(nodes)
    owners = device_owners(found, layers)
    return [
        heat_node(
            pk=node.pk,
            name=node.name,
            state=node.state,
            devices=[
                GpuUse(owner=owners.get((node.pk, device), 0), is_bad=device in node.bad_devices)
                for device in range(node.gpus)
            ],
        )
        for node in found
    ]


def device_owners(nodes: Iterable[Node], layers: Layers) -> dict[tuple[int, int], int]:
    """Layer number (from 1) of what holds each device; work that no layer stands for is the last colour."""
    held = Allocation.objects.filter(node__in=[node.pk for node in nodes], ended_at__isnull=True)
    other = MOST_LAYERS
    return {
        (node_id, device): layers.of.get(quota_id, other - 1) + 1
        for node_id, quota_id, devices in held.values_list("node_id", "quota_id", "devices")
        for device in devices
    }


# --- the overview ----------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Cards:
    allocated: int
    capacity: int
    borrowed: int
    borrowing: int  # number of quotas
    waiting: int  # number of workloads
    waiting_gpus: int
    oldest: datetime | None
    evictions: int
    moves: int

    @property
    def percent(self) -> int:
        return round(100 * self.allocated / self.capacity) if self.capacity else 0

    @property
    def free(self) -> int:
        return max(self.capacity - self.allocated, 0)


def overview_cards(*, actor: Actor, cluster: Cluster, branches: Sequence[Branch], now: datetime) -> Cards:
    """The numbers on top of the overview, of what the actor may see."""
    waiting = visible_workloads(actor).filter(cluster=cluster, state=State.QUEUED, held=False)
    queue = waiting.aggregate(count=Count("id"), oldest=Min("submitted_at"), gpus=Coalesce(Sum(GPUS_ASKED), 0))
    recent = Eviction.objects.filter(
        workload__in=visible_workloads(actor).filter(cluster=cluster), at__gt=now - DAY
    ).aggregate(
        evictions=Count("id", filter=Q(what=Eviction.What.EVICTION)),
        moves=Count("id", filter=Q(what=Eviction.What.MOVE)),
    )
    leaves = [branch for branch in branches if not branch.children]
    borrowing = [branch for branch in branches if branch.usage.borrowed and branch.own]
    return Cards(
        allocated=sum(branch.usage.used for branch in branches if branch.depth == 1),
        capacity=gpu_capacity(actor=actor, cluster=cluster)
        or sum(branch.usage.guaranteed for branch in branches if branch.depth == 1),
        borrowed=sum(branch.usage.borrowed for branch in leaves),
        borrowing=len(borrowing),
        waiting=queue["count"],
        waiting_gpus=queue["gpus"],
        oldest=queue["oldest"],
        evictions=recent["evictions"],
        moves=recent["moves"],
    )


# --- the queue -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class QueueLine:
    """A waiting workload with its one reason; ``place`` counts only what the actor may see."""

    workload: Workload
    place: int
    code: str
    facts: Mapping[str, object]
    would_unblock: Sequence[object]


def waiting_workloads(*, actor: Actor, cluster: Cluster, quota: Quota | None = None) -> QuerySet[Workload]:
    """What waits for room (services that want more, too): by priority, then as it stands in its queue."""
    found = (
        visible_workloads(actor)
        .filter(cluster=cluster, state__in=(State.QUEUED, State.RESIZING))
        .select_related("quota", "workspace", "owner", "verdict")
    )
    if quota is not None:
        found = found.filter(quota=quota)
    return found.order_by("-priority", "position", "id")


def queue_lines(rows: Iterable[Workload], first: int = 1) -> list[QueueLine]:
    """Rows of a queue with their reasons; held work and work that no cycle has judged yet has none of its own."""
    return [_queue_line(workload, place) for place, workload in enumerate(rows, first)]


def _queue_line(workload: Workload, place: int) -> QueueLine:
    verdict = verdict_of(workload)
    if verdict is None:
        return QueueLine(workload, place, "policy.held" if workload.held else "", {}, ())
    return QueueLine(workload, place, verdict.code, verdict.facts, verdict.would_unblock)


def verdict_of(workload: Workload) -> Verdict | None:
    """The reason why it waits; None while no cycle has judged it."""
    try:
        return workload.verdict
    except Verdict.DoesNotExist:
        return None


# --- what needs a look -----------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Attention:
    """Something that a person should look at: how bad, what it is, numbers for the words, and where to look."""

    tone: str  # bad, warn
    what: str  # starved, node, devices, late
    name: str
    pk: int
    amount: int = 0
    state: str = ""


def attention_list(*, actor: Actor, cluster: Cluster, branches: Sequence[Branch], now: datetime) -> list[Attention]:
    """Quotas below their guarantee while their work waits, nodes and GPUs out of order, a scheduler that is late."""
    found = [
        Attention("warn", "starved", branch.quota.name, branch.quota.pk, branch.usage.guaranteed - branch.usage.used)
        for branch in branches
        if not branch.children and branch.waiting and branch.usage.used < branch.usage.guaranteed
    ]
    for node in visible_nodes(actor).filter(cluster=cluster).order_by("id"):
        if node.state != NodeState.READY:
            tone = "bad" if node.state == NodeState.LOST else "warn"
            found.append(Attention(tone, "node", node.name, node.pk, state=NodeState(node.state).label))
        elif node.bad_devices:
            found.append(Attention("warn", "devices", node.name, node.pk, len(node.bad_devices)))
    found += [Attention("bad", "late", cluster.name, cluster.pk)] if _is_late(cluster) else []
    return sorted(found, key=lambda item: (item.tone != "bad", item.what, item.name, item.pk))


def _is_late(cluster: Cluster) -> bool:
    """Requests for a cycle have waited longer than a cycle may take, in real time."""
    applier = Applier.objects.filter(cluster=cluster).first()
    if applier is None or applier.wanted <= applier.served or applier.settled_at is None:
        return False
    return timezone.now() - applier.settled_at > LATE_CYCLE


# --- one workload's past ---------------------------------------------------------------------------------------------


def is_move(event: Event) -> bool:
    """Whether the state changed; other entries tell of something done to the workload."""
    return bool(event.after) and event.after != event.before


def state_spans(events: Sequence[Event], *, submitted_at: datetime, end: datetime) -> list[Span]:
    """The states of a workload one after another, from its events; the last lasts until ``end``."""
    first = next((event.after for event in events if event.after), str(State.QUEUED))
    moves = [(submitted_at, first), *((event.at, event.after) for event in events if is_move(event))]
    spans = [
        Span(name, start, max(until, start), f"{name}: {start:%H:%M:%S} – {max(until, start):%H:%M:%S} UTC")
        for (start, name), (until, _next) in zip(moves, [*moves[1:], (end, "")], strict=True)
    ]
    return [span for span in spans if span.end > span.start or span is spans[-1]]
