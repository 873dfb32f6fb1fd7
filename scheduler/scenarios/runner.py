"""Plays one scenario in a database of its own and tells what did not hold."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime

from scheduler.cycles import CycleResult
from scheduler.remembered import forget_all
from scheduler.scenarios.actions import Unexpected, perform
from scheduler.scenarios.database import throwaway_database
from scheduler.scenarios.driver import Driver, driven
from scheduler.scenarios.expectations import Moment, differences, last_eviction
from scheduler.scenarios.invariants import Invariants
from scheduler.scenarios.script import Cycles, Scenario, Step
from scheduler.scenarios.stage import NoSuchName, Stage, build_stage
from scheduler.scenarios.tracing import Tracer

Say = Callable[[str], None]


@dataclass(slots=True)
class Outcome:
    """What a scenario came to; each failure names file, time, what was expected and what was found."""

    file: str
    name: str
    failures: list[str] = field(default_factory=list)
    seconds: float = 0.0

    @property
    def passed(self) -> bool:
        return not self.failures


def run_scenario(scenario: Scenario, trace: Say | None = None) -> Outcome:
    """Play the scenario from its first step to its last."""
    began = time.perf_counter()
    outcome = Outcome(scenario.file, scenario.name)
    with throwaway_database():
        _Play(scenario, outcome, trace).run()
    forget_all()
    outcome.seconds = time.perf_counter() - began
    return outcome


class _Play:
    """One scenario while it is being played."""

    def __init__(self, scenario: Scenario, outcome: Outcome, trace: Say | None) -> None:
        self.scenario = scenario
        self.outcome = outcome
        self.tracer = Tracer(trace) if trace is not None else None
        self.seen_eviction = 0
        self.invariants = Invariants()

    def run(self) -> None:
        stage = build_stage(self.scenario)
        with driven(stage.cluster, self.scenario.start, self.scenario.cycle) as driver:
            driver.on_cycle = lambda result: self._after_cycle(result, driver)
            driver.cycle()
            for step in self.scenario.steps:
                self._step(step, stage, driver)

    def _step(self, step: Step, stage: Stage, driver: Driver) -> None:
        at = step.when.resolve(self.scenario.start, driver.now)
        driver.advance_to(at)
        driver.take_note()
        if step.action is not None:
            try:
                perform(step.action, stage, driver)
            except (Unexpected, NoSuchName) as problem:
                self._fail(at, str(problem))
        if not isinstance(step.action, Cycles):
            driver.cycle()
        if step.expect is not None:
            moment = Moment(self.scenario.start, driver.now, self.seen_eviction)
            for difference in differences(step.expect, stage, moment):
                self._fail(at, difference)
            self.seen_eviction = last_eviction(stage)

    def _after_cycle(self, result: CycleResult, driver: Driver) -> None:
        if self.tracer is not None:
            self.tracer.tell(result)
        for broken in self.invariants.broken(result, driver):
            self._fail(driver.now, f"invariant: {broken}")

    def _fail(self, at: datetime, what: str) -> None:
        local = at.astimezone(self.scenario.start.tzinfo)
        since = (at - self.scenario.start).total_seconds()
        self.outcome.failures.append(
            f"{self.scenario.file} at {local.isoformat(timespec='seconds')} (+{since:g}s): {what}"
        )
