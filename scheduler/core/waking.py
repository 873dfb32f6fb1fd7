"""The next instant at which time alone may change a decision."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from scheduler.core.claims import is_waiting
from scheduler.core.model import MinRuntime, QueuePolicy, Reservation
from scheduler.core.order import waiting_since
from scheduler.core.world import Work, World


def next_instant(world: World, reservations: Iterable[Reservation]) -> int | None:
    """The first instant after now that some rule names; None when only new input can change anything.

    It may be too early (nothing changes then) but never too late.
    """
    instants = (*_of_orders(world), *_of_reservations(reservations), *_of_waiting(world), *_of_running(world))
    return min((instant for instant in instants if instant > world.now_ms), default=None)


def _of_orders(world: World) -> Iterator[int]:
    yield from (order.due_ms for order in world.snapshot.excess_orders)


def _of_reservations(reservations: Iterable[Reservation]) -> Iterator[int]:
    yield from (r.expires_ms for r in reservations if r.expires_ms is not None)


def _of_waiting(world: World) -> Iterator[int]:
    """Ageing, the window of a balance queue, the reservation of nodes, an overridden minimum run time, a back-off."""
    policy = world.policy
    overrides = {quota.min_runtime.override_after_ms for quota in world.tree.quotas} - {None}
    for work in world.work.values():
        if not is_waiting(work):
            continue
        quota, since = world.tree.quotas[work.quota], waiting_since(work)
        if work.workload.not_before_ms is not None:
            yield work.workload.not_before_ms
        if quota.queue_policy is QueuePolicy.INTELLIGENT and work.workload.priority < policy.ageing_ceiling:
            steps = policy.ageing_ceiling - work.workload.priority
            yield _next_step(since, policy.ageing_step_ms, world.now_ms, steps)
        if quota.queue_policy is QueuePolicy.BALANCE:
            yield _next_step(since, policy.balance_timeout_ms, world.now_ms)
        if quota.reserve_after_ms is not None:
            yield since + quota.reserve_after_ms
        yield from (since + override for override in overrides if override is not None)


def _next_step(since: int, step: int, now: int, most: int | None = None) -> int:
    """The next multiple of a step after now, up to so many steps; now itself when there is none."""
    if step <= 0:
        return now
    number = max(0, now - since) // step + 1
    return now if most is not None and number > most else since + number * step


def _of_running(world: World) -> Iterator[int]:
    """The end of a minimum run time, and of the time that a stale gang has."""
    for work in world.work.values():
        if not work.is_live:
            continue
        runtime = world.tree.quotas[work.quota].min_runtime
        if runtime != _NO_RUNTIME:
            yield from (work.started_ms + runtime.reclaim_ms, work.started_ms + runtime.preempt_ms)
        if _is_marked_stale(work):
            yield (work.workload.stale_since_ms or 0) + world.policy.stale_grace_ms


_NO_RUNTIME = MinRuntime()


def _is_marked_stale(work: Work) -> bool:
    return work.workload.stale_since_ms is not None
