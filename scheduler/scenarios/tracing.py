"""Tells every event and decision of a scenario as it happens."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime

from scheduler.core.model import Plan
from scheduler.cycles import CycleResult
from workloads.models import Event


class Tracer:
    """Writes what is new since the last cycle: events of workloads, then what the cycle decided."""

    def __init__(self, say: Callable[[str], None]) -> None:
        self.say = say
        self.seen = 0

    def tell(self, result: CycleResult) -> None:
        for event in Event.objects.filter(pk__gt=self.seen).select_related("workload").order_by("id"):
            self.seen = event.pk
            change = f" {event.before} -> {event.after}" if event.before != event.after else ""
            facts = f" {event.facts}" if event.facts else ""
            self.say(f"{_clock(event.at)}  {event.workload.name}: {event.verb}{change} by {event.actor}{facts}")
        names = {row.id: row.name for row in result.loaded.workloads.values()}
        for line in _decisions(result.applied.plan, names):
            self.say(f"{_clock(result.loaded.now)}  cycle {result.applied.number}: {line}")


def _decisions(plan: Plan, names: dict[int, str]) -> list[str]:
    """What a plan does besides starting and stopping, which events tell: reservations and reasons to wait."""
    lines = [f"reserves ({one.kind}) for {names.get(one.claimant, one.claimant)}" for one in plan.opened]
    lines += [f"closes reservation {one.id}: {one.why}" for one in plan.closed]
    lines += [
        f"{names.get(wait.workload, wait.workload)} waits: {wait.reason} {dict(wait.facts)}" for wait in plan.waits
    ]
    return lines


def _clock(at: datetime) -> str:
    return at.isoformat(timespec="milliseconds")
