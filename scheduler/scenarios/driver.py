"""A cluster driven by hand: its clock stands until it is moved, and then everything that is due happens.

The driver decides nothing. It calls what the Celery tasks call, in the order of time: at one instant what the engine
has due and what the clock makes due, then a cycle, then the delivery of what the cycle ordered. Between two instants
at which something is due nothing can change, so it goes from one to the next.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import datetime, timedelta

from django.db.models import Min

from quotas.models import Cluster, QuotaAmount
from scheduler.beating import run_due
from scheduler.clocks import HandClock, standing_still
from scheduler.cycles import CycleResult, is_wanted, run_cycle
from scheduler.delivery import deliver
from scheduler.observing import observe
from scheduler.remembered import forget_all
from scheduler.triggers import quiet
from workloads.models import ScalingRule, State, Workload


class Driver:
    """Moves one cluster through time. `on_cycle` sees each cycle's result."""

    def __init__(self, cluster: Cluster, clock: HandClock, tick: timedelta) -> None:
        self.cluster = cluster
        self.clock = clock
        self.start = clock.now
        self.tick = tick
        self.on_cycle: Callable[[CycleResult], None] = lambda result: None
        self.engine_next: datetime | None = None
        self.plan_next: datetime | None = None
        self.unsettled = True

    @property
    def now(self) -> datetime:
        return self.clock.now

    def take_note(self) -> None:
        """What the engine and the clock have due at this instant."""
        self._look()
        if run_due(self.cluster):
            self.unsettled = True

    def restart(self) -> None:
        """Everything held in memory is lost; what is known comes from the database and the engine."""
        forget_all()
        self.cluster = Cluster.objects.get(pk=self.cluster.pk)
        self.plan_next = None
        self.unsettled = True
        self.take_note()

    def _look(self, *, ends: bool = True) -> None:
        look = observe(self.cluster, ends=ends)
        self.engine_next = look.next_at
        self.unsettled = self.unsettled or look.news > 0

    def cycle(self) -> CycleResult:
        """One cycle, and the delivery of what it ordered.

        Who starts without delay runs at once; who leaves without delay is gone at the next instant.
        """
        result = run_cycle(self.cluster, self.now)
        delivered = deliver(self.cluster) if result.has_commands else 0
        self.plan_next = result.applied.wake
        self.unsettled = result.applied.changed or is_wanted(self.cluster.pk)
        if delivered:
            self._look(ends=False)
        self.on_cycle(result)
        return result

    def advance_to(self, until: datetime) -> None:
        """Let everything happen that is due before `until`, then stand there."""
        while (at := self._next_tick()) is not None and at < until:
            self.clock.move_to(at)
            self.take_note()
            self.cycle()
        self.clock.move_to(until)

    def _next_tick(self) -> datetime | None:
        """The first tick from which on something is due; None when nothing ever is."""
        due = self.now + self.tick if self.unsettled else self._next_due()
        if due is None:
            return None
        steps = -(-(max(due, self.now + timedelta.resolution) - self.start) // self.tick)
        return self.start + steps * self.tick

    def _next_due(self) -> datetime | None:
        coming = [self.engine_next, self.plan_next, *self._written_down()]
        return min((at for at in coming if at is not None), default=None)

    def _written_down(self) -> list[datetime | None]:
        """Instants that rows name: firings of rules, orders about what is above the amounts, limits of time."""
        rules = ScalingRule.objects.filter(enabled=True, workload__cluster=self.cluster, next_at__gt=self.now)
        orders = QuotaAmount.objects.filter(quota__cluster=self.cluster, excess_due_at__gt=self.now)
        limited = Workload.objects.filter(cluster=self.cluster, max_runtime_s__isnull=False).filter(
            state__in=(State.STARTING, State.RUNNING, State.RESIZING), started_at__isnull=False
        )
        ends = [
            started + timedelta(seconds=longest)
            for started, longest in limited.values_list("started_at", "max_runtime_s")
            if started is not None and longest is not None
        ]
        backing_off = Workload.objects.filter(cluster=self.cluster, state=State.QUEUED, not_before__gt=self.now)
        return [
            rules.aggregate(at=Min("next_at"))["at"],
            orders.aggregate(at=Min("excess_due_at"))["at"],
            backing_off.aggregate(at=Min("not_before"))["at"],
            min((at for at in ends if at > self.now), default=None),
        ]


@contextmanager
def driven(cluster: Cluster, at: datetime, tick: timedelta) -> Iterator[Driver]:
    """Drive a cluster by hand within the block: its clock stands at `at`, and no message leaves this process."""
    with quiet(), standing_still(cluster.pk, at) as clock:
        yield Driver(cluster, clock, tick)
