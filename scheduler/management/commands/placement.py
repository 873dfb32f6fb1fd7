"""How much of a list of tasks finds room on a list of nodes, under our own and under published policies."""

from __future__ import annotations

import json
import re
import statistics
from argparse import ArgumentTypeError
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser

from scheduler.core.placement_lists import BadListError, read_nodes, read_tasks
from scheduler.core.placement_room import NodeSpec, Shape
from scheduler.core.placement_run import POLICIES, SHARES, Figures, run

MOST_SEEDS = 10_000


def seeds_of(text: str) -> tuple[int, ...]:
    """`42`, `42..51` (both ends count) and lists of these with commas."""
    seeds: list[int] = []
    for part in text.split(","):
        ends = re.fullmatch(r"(\d{1,9})(?:\.\.(\d{1,9}))?", part.strip())
        if not ends:
            raise ArgumentTypeError(f"not a seed or range of seeds: {part!r} (for example 42..51)")
        first, last = int(ends[1]), int(ends[2] or ends[1])
        if not first <= last < first + MOST_SEEDS:
            raise ArgumentTypeError(f"a range goes from low to high over at most {MOST_SEEDS} seeds: {part!r}")
        seeds.extend(range(first, last + 1))
    return tuple(dict.fromkeys(seeds))


class Command(BaseCommand):
    help = "Run the placement benchmark and print its figures as JSON; progress goes to standard error."
    requires_system_checks = ()

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("--nodes", type=Path, required=True, help="CSV: cpu_milli, memory_mib, gpu, model")
        parser.add_argument(
            "--tasks", type=Path, required=True, help="CSV: cpu_milli, memory_mib, num_gpu, gpu_milli[, gpu_spec]"
        )
        parser.add_argument("--seeds", type=seeds_of, default="42..51", help="42..51, or 42,43 (default: 42..51)")
        parser.add_argument("--policy", choices=sorted(POLICIES), default="default")

    def handle(self, *args: Any, **options: Any) -> None:
        try:
            nodes, tasks = read_nodes(options["nodes"]), read_tasks(options["tasks"])
        except BadListError as error:
            raise CommandError(str(error)) from error
        runs = dict(self._runs(nodes, tasks, options["policy"], options["seeds"]))
        report = {
            "policy": options["policy"],
            "nodes": {"file": options["nodes"].name, "count": len(nodes), "gpus": sum(node.gpus for node in nodes)},
            "tasks": {"file": options["tasks"].name, "count": len(tasks)},
            "seeds": list(runs),
            **summary(runs),
        }
        self.stdout.write(json.dumps(report, indent=2))

    def _runs(
        self, nodes: list[NodeSpec], tasks: list[Shape], policy: str, seeds: Sequence[int]
    ) -> Iterator[tuple[int, Figures]]:
        for seed in seeds:
            figures = run(nodes, tasks, seed, POLICIES[policy])
            parts = [f"{part:.2f} % at {share} %" for share, part in figures.allocated.items() if part is not None]
            self.stderr.write(f"{policy}, seed {seed}: {', '.join(parts)}; {figures.seconds:.1f} s")
            yield seed, figures


def summary(runs: dict[int, Figures]) -> dict[str, Any]:
    """The figures of all seeds together: means, and the sample deviation over seeds (0 for a single one)."""
    decisions = sum(figures.decisions for figures in runs.values())
    cpu_seconds = sum(figures.cpu_seconds for figures in runs.values())
    return {
        "gpu_allocation_percent": {str(share): _allocation(runs, share) for share in SHARES},
        "rejected_per_run": {str(share): _rejected(runs, share) for share in SHARES},
        "decisions_per_run": decisions / len(runs),
        "cpu_ms_per_decision": round(1000 * cpu_seconds / decisions, 4),
        "seconds_per_run": round(statistics.fmean(figures.seconds for figures in runs.values()), 3),
    }


def _allocation(runs: dict[int, Figures], share: int) -> dict[str, Any]:
    by_seed = {str(seed): figures.allocated[share] for seed, figures in runs.items()}
    found = [part for part in by_seed.values() if part is not None]
    return {
        "mean": round(statistics.fmean(found), 3) if found else None,
        "deviation": round(statistics.stdev(found), 3) if len(found) > 1 else 0.0,
        "by_seed": {seed: None if part is None else round(part, 3) for seed, part in by_seed.items()},
    }


def _rejected(runs: dict[int, Figures], share: int) -> dict[str, float]:
    kinds = sorted({kind for figures in runs.values() for kind in figures.rejected[share]})
    return {kind: statistics.fmean(figures.rejected[share].get(kind, 0) for figures in runs.values()) for kind in kinds}
