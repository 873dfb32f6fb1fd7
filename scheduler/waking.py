"""When time alone may change a decision: the instants that the rules name, as far as they lie ahead."""

from __future__ import annotations

from collections.abc import Iterator

from scheduler.core.model import Phase, Plan, QueuePolicy, Quota, Snapshot, Workload
from scheduler.core.policy import Policy


def next_instant_ms(snapshot: Snapshot, plan: Plan, policy: Policy) -> int | None:
    """The first instant after the snapshot's at which the same rows may lead to another plan; None: never."""
    coming = [*_named_anyway(snapshot, policy), *_named_for_claimants(snapshot, plan, policy)]
    if plan.wake_ms is not None:
        coming.append(plan.wake_ms)
    return min((at for at in coming if at > snapshot.now_ms), default=None)


def _named_anyway(snapshot: Snapshot, policy: Policy) -> Iterator[int]:
    """Orders, ends of reservations, gangs that are below their minimum, work that may not start before."""
    for order in snapshot.excess_orders:
        yield order.due_ms
    for reservation in snapshot.reservations:
        yield from (at for at in (reservation.expires_ms, reservation.needed_ms) if at is not None)
    for workload in snapshot.workloads:
        if workload.stale_since_ms is not None:
            yield workload.stale_since_ms + policy.stale_grace_ms
        if workload.not_before_ms is not None:
            yield workload.not_before_ms


def _named_for_claimants(snapshot: Snapshot, plan: Plan, policy: Policy) -> Iterator[int]:
    """What only matters while something waits: minimum run times, ageing, balance windows, reservations of heads."""
    if not plan.waits:
        return
    quotas = {quota.id: quota for quota in snapshot.quotas}
    work = {workload.id: workload for workload in snapshot.workloads}
    waiting = [work[wait.workload] for wait in plan.waits]
    yield from _minimum_run_times(snapshot, quotas, work)
    yield from _overrides(quotas, waiting)
    for workload in waiting:
        yield from _of_queue(workload, quotas[workload.quota], policy, snapshot.now_ms)


def _minimum_run_times(snapshot: Snapshot, quotas: dict[int, Quota], work: dict[int, Workload]) -> Iterator[int]:
    for allocation in snapshot.allocations:
        if allocation.phase is not Phase.LEAVING:
            least = quotas[work[allocation.place.workload].quota].min_runtime
            yield allocation.started_ms + least.reclaim_ms
            yield allocation.started_ms + least.preempt_ms


def _overrides(quotas: dict[int, Quota], waiting: list[Workload]) -> Iterator[int]:
    after = {q.min_runtime.override_after_ms for q in quotas.values() if q.min_runtime.override_after_ms is not None}
    for workload in waiting:
        yield from (_since_ms(workload) + wait for wait in after)


def _of_queue(workload: Workload, quota: Quota, policy: Policy, now_ms: int) -> Iterator[int]:
    since = _since_ms(workload)
    if quota.reserve_after_ms is not None:
        yield since + quota.reserve_after_ms
    if quota.queue_policy is QueuePolicy.INTELLIGENT and workload.priority < policy.ageing_ceiling:
        steps = (now_ms - since) // policy.ageing_step_ms + 1
        if workload.priority + steps <= policy.ageing_ceiling:
            yield since + steps * policy.ageing_step_ms
    if quota.queue_policy is QueuePolicy.BALANCE:
        yield since + ((now_ms - since) // policy.balance_timeout_ms + 1) * policy.balance_timeout_ms


def _since_ms(workload: Workload) -> int:
    return workload.submitted_ms if workload.waiting_since_ms is None else workload.waiting_since_ms
