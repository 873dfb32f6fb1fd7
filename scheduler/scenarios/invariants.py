"""What must be true after every cycle, whatever the scenario expects."""

from __future__ import annotations

from collections.abc import Iterator

from scheduler import settings
from scheduler.core.check import History, usage_of, violations
from scheduler.core.decide import decide
from scheduler.core.resources import NOTHING
from scheduler.cycles import CycleResult
from scheduler.scenarios.driver import Driver
from scheduler.snapshots import load


class Invariants:
    """Watches the cycles of one scenario; remembers what later ones are judged by."""

    def __init__(self) -> None:
        self.history = History()

    def broken(self, result: CycleResult, driver: Driver) -> Iterator[str]:
        """Every invariant that the cycle, or what it wrote, breaks."""
        before, plan = result.loaded.snapshot, result.applied.plan
        after = load(driver.cluster, driver.now) if result.applied.changed else result.loaded
        for violation in violations(before, plan, after.snapshot, self.history):
            yield str(violation)
        if result.applied.refused:
            yield "parts of a plan were refused though nothing else was at work"
        elif result.applied.changed and decide(before, settings.policy_for(driver.cluster)) != plan:
            yield "the same snapshot led to another plan"
        counted = usage_of(after.snapshot)
        for (quota, pool), row in sorted(after.ledger.items()):
            afresh = counted.get((quota, pool), NOTHING)
            if (row.used, row.used_cpu_milli, row.used_memory_mib) != (
                afresh.gpu_milli,
                afresh.cpu_milli,
                afresh.memory_mib,
            ):
                yield f"the ledger of quota {quota} says {row.used} used, its live allocations hold {afresh.gpu_milli}"
