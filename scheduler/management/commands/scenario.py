"""Play scenarios: whole situations as data, through the real services, cycle and engine on a virtual clock."""

from __future__ import annotations

import json
import sys
import time
import traceback
from pathlib import Path
from typing import Any

from django.core.management.base import BaseCommand, CommandParser

from scheduler.scenarios.format import read_scenario
from scheduler.scenarios.reading import InvalidScenario
from scheduler.scenarios.runner import Outcome, Say, run_scenario
from scheduler.scenarios.script import Scenario

FAILED, INVALID = 1, 2


class Command(BaseCommand):
    help = "Play scenario files (or all below a folder); each in a database of its own that is thrown away."

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("paths", nargs="+", type=Path, metavar="PATH", help="a scenario file, or a folder of them")
        parser.add_argument("--trace", action="store_true", help="tell every event and decision as it happens")
        parser.add_argument("--json", action="store_true", help="one JSON object a scenario instead of lines of text")

    def handle(self, *args: Any, **options: Any) -> None:
        began = time.perf_counter()
        scenarios, invalid = self._read(options["paths"])
        outcomes = [self._play(scenario, options) for scenario in scenarios]
        passed = sum(outcome.passed for outcome in outcomes)
        total = len(outcomes) + invalid
        seconds = round(time.perf_counter() - began, 1)
        closing = {"scenarios": total, "passed": passed, "failed": total - passed, "seconds": seconds}
        self.stdout.write(json.dumps(closing))
        self.stdout.flush()
        if invalid or not total:
            sys.exit(INVALID)
        if passed < total:
            sys.exit(FAILED)

    def _read(self, paths: list[Path]) -> tuple[list[Scenario], int]:
        """The scenarios that are valid, and how many files are not."""
        found: list[Scenario] = []
        invalid = 0
        for path in _files(paths):
            try:
                found.append(read_scenario(path))
            except InvalidScenario as problem:
                self.stderr.write(str(problem))
                invalid += 1
        return found, invalid

    def _play(self, scenario: Scenario, options: dict[str, Any]) -> Outcome:
        outcome = self._run(scenario, trace=self.stdout.write if options["trace"] else None)
        if options["json"]:
            self.stdout.write(
                json.dumps(
                    {
                        "file": outcome.file,
                        "name": outcome.name,
                        "passed": outcome.passed,
                        "seconds": round(outcome.seconds, 2),
                        "failures": outcome.failures,
                    }
                )
            )
        else:
            for failure in outcome.failures:
                self.stdout.write(failure)
        return outcome

    def _run(self, scenario: Scenario, trace: Say | None) -> Outcome:
        """One scenario that breaks down must not keep the others from being played."""
        try:
            return run_scenario(scenario, trace)
        except Exception as problem:  # noqa: BLE001 - whatever it is, it is told as this scenario's failure
            self.stderr.write(traceback.format_exc())
            failure = f"{scenario.file}: broke down with {type(problem).__name__}: {problem}"
            return Outcome(scenario.file, scenario.name, [failure])


def _files(paths: list[Path]) -> list[Path]:
    """The files themselves, and every `*.yaml` below the folders, in the order of their names."""
    files: list[Path] = []
    for path in paths:
        files += sorted(path.rglob("*.yaml")) if path.is_dir() else [path]
    return files
