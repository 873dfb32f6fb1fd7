"""Measure one thing and print one line of JSON."""

from __future__ import annotations

import json
import sys
from argparse import ArgumentParser, ArgumentTypeError
from collections.abc import Callable
from math import prod
from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser

from scheduler.benchmarks import worlds
from scheduler.benchmarks.apart import OccupiedError, is_apart, run_apart
from scheduler.benchmarks.api import api as lists_of_api
from scheduler.benchmarks.churn import churn as churned
from scheduler.benchmarks.measure import Figures, figures_of
from scheduler.benchmarks.rows import figures_through_database

Options = dict[str, Any]


def positive(text: str) -> int:
    if not text.isdigit() or not 1 <= int(text) <= 10**7:
        raise ArgumentTypeError(f"a whole number from 1 to 10000000 is needed, not {text!r}")
    return int(text)


def part_of_one(text: str) -> float:
    try:
        part = float(text)
    except ValueError:
        part = 0.0
    if not 0.0 < part <= 1.0:
        raise ArgumentTypeError(f"a number above 0 and up to 1 is needed, not {text!r}")
    return part


def tree_sizes(text: str) -> tuple[int, ...]:
    """`4x8x8x2`: zones, blocks in each, racks in each, nodes in each."""
    sizes = tuple(positive(part) for part in text.split("x"))
    if len(sizes) != 4:
        raise ArgumentTypeError(f"four sizes are needed, such as 4x8x8x2, not {text!r}")
    return sizes


# --- what can be measured ---------------------------------------------------------------------------------------------


def decide_options(parser: ArgumentParser) -> None:
    for name, default in (("nodes", 1000), ("gpus", 8), ("running", 5000), ("pending", 10_000), ("quotas", 200)):
        parser.add_argument(f"--{name}", type=positive, default=default)
    parser.add_argument("--seed", type=positive, default=42)
    parser.add_argument("--unsettled", action="store_true", help="running work is spread over quotas at random")
    parser.add_argument("--database", action="store_true", help="load and apply through a database as well")


def decide(options: Options) -> Figures:
    """One decision on a busy cluster with a long queue of many shapes and all priorities."""
    sizes = {name: options[name] for name in ("nodes", "gpus", "running", "pending", "quotas", "seed")}
    world = worlds.busy_cluster(**sizes, settled=not options["unsettled"])
    if options["database"]:
        return figures_through_database("decide --database", world, options["runs"])
    return figures_of("decide", world, options["runs"])


def allocate_options(parser: ArgumentParser) -> None:
    parser.add_argument("--nodes", type=positive, default=100)
    parser.add_argument("--jobs", type=positive, default=500)


def allocate(options: Options) -> Figures:
    """One-GPU jobs that all wait and all fit."""
    return figures_of("allocate", worlds.allocate(options["nodes"], options["jobs"]), options["runs"])


def reclaim_large_options(parser: ArgumentParser) -> None:
    parser.add_argument("--nodes", type=positive, default=200)


def reclaim_large(options: Options) -> Figures:
    """A tenth of a cluster full of borrowed work is wanted back by one gang."""
    return figures_of("reclaim-large", worlds.reclaim_large(options["nodes"]), options["runs"])


def gang_options(parser: ArgumentParser) -> None:
    parser.add_argument("--nodes", type=positive, default=512)
    parser.add_argument("--topology", type=tree_sizes, default="4x8x8x2")


def gang(options: Options) -> Figures:
    """A gang as large as the cluster has nodes, with a preferred rack."""
    if prod(options["topology"]) != options["nodes"]:
        raise CommandError(f"--topology has {prod(options['topology'])} nodes, --nodes says {options['nodes']}")
    return figures_of("gang", worlds.gang(options["nodes"], options["topology"]), options["runs"])


def cannot_fit_options(parser: ArgumentParser) -> None:
    parser.add_argument("--nodes", type=positive, default=500)
    parser.add_argument("--workers", type=positive, default=10)


def cannot_fit(options: Options) -> Figures:
    """The verdict for a gang whose last worker is what fails, on a full cluster."""
    if options["workers"] > options["nodes"]:
        raise CommandError(f"--workers must be at most --nodes, which is {options['nodes']}")
    return figures_of("cannot-fit", worlds.cannot_fit(options["nodes"], options["workers"]), options["runs"])


def consolidate_options(parser: ArgumentParser) -> None:
    for name, default in (("nodes", 500), ("gangs", 41), ("workers", 10)):
        parser.add_argument(f"--{name}", type=positive, default=default)


def consolidate(options: Options) -> Figures:
    """Gangs that fit only when one job a node moves."""
    world = worlds.consolidate(options["nodes"], options["gangs"], options["workers"])
    return figures_of("consolidate", world, options["runs"])


def churn_options(parser: ArgumentParser) -> None:
    parser.add_argument("--part", type=part_of_one, default=1.0, help="a shorter stream, such as 0.1 (default 1)")


def churn(options: Options) -> Figures:
    """Fifteen thousand short jobs through services, workers, database and simulated engine, in real time."""
    return churned(options["part"])


def api_options(parser: ArgumentParser) -> None:
    parser.add_argument("--workloads", type=positive, default=100_000)
    parser.add_argument("--quotas", type=positive, default=1000)


def api(options: Options) -> Figures:
    """First and filtered pages of the REST API over many rows, and a bulk submission."""
    return lists_of_api(options["workloads"], options["quotas"], options["runs"])


BENCHES: dict[str, tuple[Callable[[ArgumentParser], None], Callable[[Options], Figures]]] = {
    "decide": (decide_options, decide),
    "allocate": (allocate_options, allocate),
    "reclaim-large": (reclaim_large_options, reclaim_large),
    "gang": (gang_options, gang),
    "cannot-fit": (cannot_fit_options, cannot_fit),
    "consolidate": (consolidate_options, consolidate),
    "churn": (churn_options, churn),
    "api": (api_options, api),
}
STANDARD = ("allocate", "reclaim-large", "gang", "cannot-fit", "consolidate", "decide")


def needs_database(options: Options) -> bool:
    return options["name"] in ("churn", "api") or bool(options.get("database"))


class Command(BaseCommand):
    help = (
        "Measure one thing, or without a name the standard set, and print a line of JSON for each; "
        "docs/benchmarks.md says what each is and how it went."
    )
    requires_system_checks = ()

    def create_parser(self, prog_name: str, subcommand: str, **kwargs: Any) -> CommandParser:
        parser = super().create_parser(prog_name, subcommand, **kwargs)
        self._parser = parser
        return parser

    def add_arguments(self, parser: CommandParser) -> None:
        names = parser.add_subparsers(dest="name", metavar="NAME", parser_class=ArgumentParser)
        for name, (add_options, run) in BENCHES.items():
            options = names.add_parser(name, help=run.__doc__)
            options.add_argument(
                "--runs", type=positive, default=5, help="how often; the median is printed (default 5)"
            )
            add_options(options)

    def handle(self, *args: Any, **options: Any) -> None:
        chosen = [options] if options["name"] else [vars(self._parser.parse_args([name])) for name in STANDARD]
        for one in chosen:
            self._measure(one)

    def _measure(self, options: Options) -> None:
        if needs_database(options) and not is_apart():
            self._measure_apart()
            return
        _, run = BENCHES[options["name"]]
        self.stdout.write(json.dumps(run(options)))
        self.stdout.flush()

    def _measure_apart(self) -> None:
        """The same command again, in a process of its own on a database that is thrown away."""
        try:
            status = run_apart(sys.argv[1:])
        except OccupiedError as error:
            raise CommandError(str(error)) from error
        if status:
            raise CommandError(f"the benchmark ended with status {status}", returncode=status)
