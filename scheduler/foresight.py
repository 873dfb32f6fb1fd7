"""What would follow from a snapshot if nobody did anything more: plans applied to plain data until nothing changes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace

from scheduler.core.model import Allocation, Phase, Plan, Reservation, Snapshot

MOST_ROUNDS = 12
Decide = Callable[[Snapshot], Plan]


@dataclass(slots=True)
class Outlook:
    """Workloads by id: who is told to leave (whole, in part, or to go elsewhere), who starts, and the last plan."""

    evicted: list[int] = field(default_factory=list)
    shrunk: list[int] = field(default_factory=list)
    moved: list[int] = field(default_factory=list)
    started: list[int] = field(default_factory=list)
    plan: Plan = field(default_factory=Plan)
    """Of the last cycle that was looked at."""

    def waits_for(self) -> dict[int, str]:
        """The reason of each workload that waits in the end."""
        return {wait.workload: wait.reason.value for wait in self.plan.waits}


def look_ahead(snapshot: Snapshot, decide: Decide, until_ms: int | None = None) -> Outlook:
    """Cycle after cycle, as if who is told to leave did so within its grace and who starts ran on.

    Orders with a due time are waited for, up to `until_ms` (default: only what is due now).
    """
    outlook = Outlook()
    for _ in range(MOST_ROUNDS):
        outlook.plan = decide(snapshot)
        _note(outlook, snapshot)
        after = advanced(snapshot, outlook.plan)
        if _is_settled(outlook.plan):
            due = _next_due_ms(after, until_ms)
            if due is None:
                break
            after = replace(after, now_ms=due)
        snapshot = after
    return outlook


def _note(outlook: Outlook, snapshot: Snapshot) -> None:
    plan = outlook.plan
    held = {allocation.place.workload for allocation in snapshot.allocations}
    for known, found in (
        (outlook.evicted, [eviction.workload for eviction in plan.evictions]),
        (outlook.shrunk, [shrink.workload for shrink in plan.shrinks]),
        (outlook.moved, [move.workload for move in plan.moves]),
        (outlook.started, [start.place.workload for start in plan.starts if start.place.workload not in held]),
    ):
        known.extend(workload for workload in dict.fromkeys(found) if workload not in known)


def _is_settled(plan: Plan) -> bool:
    return not (plan.starts or plan.evictions or plan.shrinks or plan.moves or plan.releases)


def _next_due_ms(snapshot: Snapshot, until_ms: int | None) -> int | None:
    coming = [order.due_ms for order in snapshot.excess_orders if order.due_ms > snapshot.now_ms]
    return min((due for due in coming if until_ms is not None and due <= until_ms), default=None)


def advanced(snapshot: Snapshot, plan: Plan) -> Snapshot:
    """The snapshot after the plan was carried out and those who were told to leave are gone."""
    told = {entry.workload for part in (plan.evictions, plan.moves) for entry in part}
    workers = {(e.workload, *w) for part in (plan.shrinks, plan.releases) for e in part for w in e.workers}
    stays = tuple(
        allocation
        for allocation in snapshot.allocations
        if allocation.phase is not Phase.LEAVING
        and allocation.place.workload not in told
        and (allocation.place.workload, allocation.place.group, allocation.place.index) not in workers
    )
    now_ms = snapshot.now_ms + max((work.grace_ms for work in snapshot.workloads if work.id in told), default=0)
    starts = tuple(Allocation(start.place, Phase.RUNNING, now_ms) for start in plan.starts)
    return replace(
        snapshot,
        now_ms=now_ms,
        allocations=stays + starts,
        reservations=_reservations(snapshot, plan),
        excess_orders=tuple(order for order in snapshot.excess_orders if order.due_ms > snapshot.now_ms),
    )


def _reservations(snapshot: Snapshot, plan: Plan) -> tuple[Reservation, ...]:
    closed = {reservation.id for reservation in plan.closed}
    kept = tuple(one for one in snapshot.reservations if one.id not in closed)
    first = max((one.id for one in snapshot.reservations), default=0) + 1
    return kept + tuple(replace(one, id=first + number) for number, one in enumerate(plan.opened))
