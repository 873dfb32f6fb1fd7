"""Run a recorded cluster log through the real services, cycle and simulated engine, in several ways side by side."""

from __future__ import annotations

import json
import os
from argparse import ArgumentTypeError
from collections.abc import Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser

from scheduler.replay import report
from scheduler.replay.log import Arrival, BadLogError, Task, arrivals, read_tasks, sample_machines
from scheduler.replay.run import SECONDS_IN_DAY, WAYS, Job, Way, replay_all

NAMES = tuple(way.name for way in WAYS)


def ways_of(text: str) -> tuple[Way, ...]:
    wanted = text.split(",")
    unknown = [name for name in wanted if name not in NAMES]
    if unknown:
        raise ArgumentTypeError(f"no such way: {', '.join(unknown)}; there are {', '.join(NAMES)}")
    return tuple(way for way in WAYS if way.name in wanted)


def above_zero(text: str) -> float:
    try:
        number = float(text)
    except ValueError:
        number = 0.0
    if not 0 < number < 1e6:
        raise ArgumentTypeError(f"a number above 0 is needed, not {text!r}")
    return number


class Command(BaseCommand):
    help = (
        "Replay a log of arrivals on a sample of nodes, with a virtual clock and a throw-away database. Prints "
        "a table of the ways side by side and one closing line of JSON; progress goes to standard error."
    )
    requires_system_checks = ()

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("jobs", type=Path, help="CSV: job, arrival_s, queued_s, duration_s, gpus, gpu_milli, ...")
        parser.add_argument("--nodes", type=Path, required=True, help="CSV: cpu_milli, memory_mib, gpu, model")
        parser.add_argument("--ways", type=ways_of, default=WAYS, help=f"comma-separated (default: {','.join(NAMES)})")
        parser.add_argument("--days", type=above_zero, help="only the arrivals of so many first days of the log")
        parser.add_argument(
            "--at-once",
            type=int,
            choices=range(1, len(WAYS) + 1),
            default=min(2, os.cpu_count() or 1),
            help="processes",
        )
        parser.add_argument(
            "--tick", type=above_zero, default=1.0, help="seconds of the virtual clock between two cycles at least"
        )

    def handle(self, *args: Any, **options: Any) -> None:
        try:
            machines, tasks = sample_machines(options["nodes"]), read_tasks(options["jobs"])
        except BadLogError as error:
            raise CommandError(str(error)) from error
        tick = timedelta(seconds=options["tick"])
        jobs = [Job(way, machines, _arriving(tasks, way, options["days"]), tick) for way in options["ways"]]
        found = replay_all(jobs, min(options["at_once"], len(jobs)))
        self.stdout.write(report.table(found))
        nodes = {"count": len(machines), "gpus": sum(machine.gpus for machine in machines)}
        self.stdout.write(json.dumps({"log": options["jobs"].name, "nodes": nodes, "ways": found}))


def _arriving(tasks: Sequence[Task], way: Way, days: float | None) -> list[Arrival]:
    """The way's arrivals; those of the first `days` of the log come in less time when the way is faster."""
    return arrivals(tasks, way.speed, None if days is None else days * SECONDS_IN_DAY / way.speed)
