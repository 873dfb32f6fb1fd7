"""The invariants, recounted afresh: what must be true after every cycle whatever happened.

Nothing here uses the tables of the decision: everything is counted again from snapshots and the plan.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from scheduler.core.model import (
    Allocation,
    Eviction,
    Node,
    NodeState,
    Phase,
    Place,
    Plan,
    ReservationKind,
    Rule,
    Shrink,
    Snapshot,
    Workload,
)
from scheduler.core.resources import WHOLE_GPU, Amount, Bound


@dataclass(frozen=True, slots=True)
class Violation:
    """An invariant that does not hold, and the facts."""

    invariant: str
    facts: tuple[tuple[str, object], ...] = ()

    def __str__(self) -> str:
        return f"{self.invariant}: " + ", ".join(f"{name}={value}" for name, value in self.facts)


@dataclass(eq=False)
class History:
    """What earlier cycles did, as far as later ones are judged by it."""

    evicted_for: dict[int, int] = field(default_factory=dict)
    """Victims under (a) to (c) whose claimant has not started yet, and that claimant."""
    usage: dict[tuple[int, int], Amount] = field(default_factory=dict)
    """(quota, pool): what it used after the cycle before."""


def violations(
    before: Snapshot, plan: Plan, after: Snapshot | None = None, history: History | None = None
) -> list[Violation]:
    """Every invariant that a plan, and what it led to, breaks. `history` is brought up to date."""
    found = [*_plan_places(before, plan), *_waits(before, plan), *_victims(before, plan)]
    if history is not None:
        found += _came_back_too_early(before, plan, history)
    if after is not None:
        found += _devices(after)
        found += _limits(after, history)
        found += _gangs(after)
    return found


def _of(invariant: str, **facts: object) -> Violation:
    return Violation(invariant, tuple(sorted(facts.items())))


# --- nodes -------------------------------------------------------------------------------------------


def _devices(snapshot: Snapshot) -> Iterator[Violation]:
    """No device and no node holds more than it has."""
    by_node: dict[int, list[Place]] = {}
    for allocation in snapshot.allocations:
        by_node.setdefault(allocation.place.node, []).append(allocation.place)
    for node in snapshot.nodes:
        yield from node_violations(node, by_node.get(node.id, []))


def node_violations(node: Node, places: Iterable[Place]) -> Iterator[Violation]:
    """Where the places on one node are more than it has."""
    thousandths: Counter[int] = Counter()
    memory: Counter[int] = Counter()
    cpu = mib = 0
    counted: Counter[str] = Counter()
    for place in places:
        cpu, mib = cpu + place.cpu_milli, mib + place.memory_mib
        counted.update(dict(place.counted))
        for device in place.devices:
            thousandths[device] += place.device_milli
            memory[device] += place.device_memory_mib
    for device in sorted(thousandths):
        size = node.devices[device] if device < len(node.devices) else None
        if size is None or thousandths[device] > WHOLE_GPU or (size.memory_mib and memory[device] > size.memory_mib):
            yield _of("device over 100 %", node=node.id, device=device, held=thousandths[device])
    if node.cpu_milli is not None and cpu > node.cpu_milli:
        yield _of("node over its CPU", node=node.id, held=cpu)
    if node.memory_mib is not None and mib > node.memory_mib:
        yield _of("node over its memory", node=node.id, held=mib)
    sizes = dict(node.counted)
    for name in sorted(counted):
        if counted[name] > sizes.get(name, 0):
            yield _of("node over a counted resource", node=node.id, name=name, held=counted[name])


def _plan_places(before: Snapshot, plan: Plan) -> Iterator[Violation]:
    """What starts fits beside all that is there at this moment, on nodes that take work."""
    nodes = {node.id: node for node in before.nodes}
    by_node: dict[int, list[Place]] = {}
    for start in plan.starts:
        by_node.setdefault(start.place.node, []).append(start.place)
    there: dict[int, list[Place]] = {}
    for allocation in before.allocations:
        there.setdefault(allocation.place.node, []).append(allocation.place)
    for node_id in sorted(by_node):
        node = nodes[node_id]
        if node.state is not NodeState.READY:
            yield _of("start on a node that takes no work", node=node_id)
        for place in by_node[node_id]:
            if any(not node.devices[device].healthy for device in place.devices):
                yield _of("start on a bad device", node=node_id, workload=place.workload)
        yield from node_violations(node, [*there.get(node_id, []), *by_node[node_id]])


# --- quotas ------------------------------------------------------------------------------------------


def usage_of(snapshot: Snapshot) -> dict[tuple[int, int], Amount]:
    """(quota, pool): the sum of live allocations of each quota and all below it."""
    pool_of = {node.id: node.pool for node in snapshot.nodes}
    parent = {quota.id: quota.parent for quota in snapshot.quotas}
    quota_of = {workload.id: workload.quota for workload in snapshot.workloads}
    usage: dict[tuple[int, int], Amount] = {}
    for allocation in snapshot.allocations:
        quota: int | None = quota_of[allocation.place.workload]
        while quota is not None:
            key = (quota, pool_of[allocation.place.node])
            usage[key] = usage.get(key, Amount()) + allocation.place.amount
            quota = parent.get(quota)
    return usage


def _limits(snapshot: Snapshot, history: History | None) -> Iterator[Violation]:
    """Usage of each quota is within its limit, or not growing since the limit was lowered."""
    usage = usage_of(snapshot)
    earlier = history.usage if history is not None else {}
    limits = {(quota.id, pool): amounts.limit for quota in snapshot.quotas for pool, amounts in quota.amounts}
    for key in sorted(usage):
        limit = limits.get(key, Bound())
        for name in ("gpu_milli", "cpu_milli", "memory_mib"):
            most, used = getattr(limit, name), getattr(usage[key], name)
            if most is not None and used > most and used > getattr(earlier.get(key, Amount()), name):
                yield _of("usage over the limit", quota=key[0], pool=key[1], resource=name, used=used, limit=most)
    if history is not None:
        history.usage = usage


# --- workloads ---------------------------------------------------------------------------------------


def _live(allocations: Iterable[Allocation]) -> dict[int, Counter[int]]:
    live: dict[int, Counter[int]] = {}
    for allocation in allocations:
        if allocation.phase is not Phase.LEAVING:
            live.setdefault(allocation.place.workload, Counter())[allocation.place.group] += 1
    return live


def _gangs(snapshot: Snapshot) -> Iterator[Violation]:
    """A gang runs with its minimum, or it is marked as stale."""
    live = _live(snapshot.allocations)
    for workload in snapshot.workloads:
        counts = live.get(workload.id)
        if counts is None or not workload.gang or workload.ending or workload.letting_go:
            continue
        short = any(counts[at] < group.minimum for at, group in enumerate(workload.groups))
        if short and workload.stale_since_ms is None:
            yield _of("gang not whole", workload=workload.id, running=dict(counts))


def _waits(before: Snapshot, plan: Plan) -> Iterator[Violation]:
    """Each waiting workload has exactly one reason."""
    reasons = Counter(wait.workload for wait in plan.waits)
    for identifier in sorted(reasons):
        if reasons[identifier] > 1:
            yield _of("more than one reason to wait", workload=identifier)
    live = _live(before.allocations)
    leaving = {a.place.workload for a in before.allocations if a.phase is Phase.LEAVING}
    leaving |= {eviction.workload for eviction in plan.evictions} | {move.workload for move in plan.moves}
    starting = _live([Allocation(start.place) for start in plan.starts])
    for workload in before.workloads:
        if workload.ending or workload.letting_go or workload.id in leaving:
            continue
        counts = live.get(workload.id, Counter()) + starting.get(workload.id, Counter())
        if _is_short(workload, counts) and not reasons[workload.id]:
            yield _of("waits without a reason", workload=workload.id)


def _is_short(workload: Workload, counts: Counter[int]) -> bool:
    return any(
        counts[at] < (group.minimum if workload.gang else group.wanted) for at, group in enumerate(workload.groups)
    )


# --- evictions ---------------------------------------------------------------------------------------


def _victims(before: Snapshot, plan: Plan) -> Iterator[Violation]:
    """Victims under (a) to (c) are preemptible, and only taken when the claimant then has room for all it asks."""
    work = {workload.id: workload for workload in before.workloads}
    places = {
        reservation.claimant: reservation for reservation in plan.opened if reservation.kind is ReservationKind.HANDOVER
    }
    victims: list[Eviction | Shrink] = [*plan.evictions, *plan.shrinks]
    for taken in victims:
        if taken.rule is Rule.ORDER:
            continue
        if not work[taken.workload].preemptible:
            yield _of("not preemptible work evicted", workload=taken.workload)
        if taken.claimant is None or taken.claimant not in places:
            yield _of("evicted for nobody who then fits", workload=taken.workload, claimant=taken.claimant)
    told = {eviction.workload for eviction in plan.evictions} | {move.workload for move in plan.moves}
    for start in plan.starts:
        if start.place.workload in told:
            yield _of("started and told to leave at once", workload=start.place.workload)
    yield from _room_for_claimants(before, plan)


def _room_for_claimants(before: Snapshot, plan: Plan) -> Iterator[Violation]:
    """All that is reserved fits when what leaves has gone."""
    whole = {eviction.workload for eviction in plan.evictions} | {move.workload for move in plan.moves}
    parts = {(shrink.workload, *worker) for shrink in plan.shrinks for worker in shrink.workers}
    parts |= {(release.workload, *worker) for release in plan.releases for worker in release.workers}
    places: dict[int, list[Place]] = {}
    for allocation in before.allocations:
        place = allocation.place
        stays = place.workload not in whole and _worker(place) not in parts
        if allocation.phase is not Phase.LEAVING and stays:
            places.setdefault(place.node, []).append(place)
    kept = [reservation for reservation in before.reservations if reservation.id in plan.kept]
    started = {_worker(start.place) for start in plan.starts}
    live = {_worker(a.place) for a in before.allocations if a.phase is not Phase.LEAVING}
    for start in plan.starts:
        places.setdefault(start.place.node, []).append(start.place)
    for reservation in (*kept, *plan.opened):
        for place in reservation.places:
            worker = _worker(place)
            if worker not in started and (worker not in live or place.workload in whole):
                places.setdefault(place.node, []).append(place)
    for node in before.nodes:
        for violation in node_violations(node, places.get(node.id, [])):
            yield Violation("reserved room given away: " + violation.invariant, violation.facts)


def _worker(place: Place) -> tuple[int, int, int]:
    return place.workload, place.group, place.index


def _came_back_too_early(before: Snapshot, plan: Plan, history: History) -> Iterator[Violation]:
    """X evicted for Y does not start before Y starts, leaves, or its reservation ends."""
    starting = {start.place.workload for start in plan.starts}
    present = {workload.id for workload in before.workloads if not workload.ending and not workload.held}
    closed = {reservation.id for reservation in plan.closed}
    open_for = {r.claimant for r in before.reservations if r.id not in closed}
    for victim, claimant in sorted(history.evicted_for.items()):
        over = claimant in starting or claimant not in present or claimant not in open_for
        if over:
            del history.evicted_for[victim]
        elif victim in starting:
            yield _of("victim came back before its claimant started", victim=victim, claimant=claimant)
    for eviction in plan.evictions:
        if eviction.claimant is not None:
            history.evicted_for[eviction.workload] = eviction.claimant
