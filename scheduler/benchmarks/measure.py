"""How a figure is taken: the median of some runs in this process, with the peak of its memory."""

from __future__ import annotations

import gc
import resource
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

from scheduler.benchmarks.worlds import World
from scheduler.collecting import collector_at_rest
from scheduler.core.decide import decide
from scheduler.core.model import Plan
from scheduler.core.policy import PRODUCT

KIB_IN_MIB = 1024
Result = TypeVar("Result")
Figures = dict[str, object]


@dataclass(frozen=True)
class Times:
    """Seconds that each run took: by the clock on the wall, and of this process's CPU time alone."""

    wall: list[float]
    cpu: list[float]


def timed(call: Callable[[], Result], runs: int) -> tuple[Result, Times]:
    """The last result of the call, and what each run took."""
    times = Times([], [])
    for _ in range(runs):
        gc.collect()
        begun, cpu_begun = time.perf_counter(), time.process_time()
        result = call()
        times.cpu.append(time.process_time() - cpu_begun)
        times.wall.append(time.perf_counter() - begun)
    return result, times


def peak_mib() -> int:
    """The most memory that this process has ever held resident, in MiB."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // KIB_IN_MIB


def figures_of(name: str, world: World, runs: int) -> Figures:
    """Decide on a world `runs` times: how long it takes and what the plan holds."""
    with collector_at_rest():  # as in a cycle
        plan, times = timed(lambda: decide(world.snapshot, PRODUCT), runs)
    return {
        "bench": name,
        "median_s": round(statistics.median(times.wall), 4),
        "median_cpu_s": round(statistics.median(times.cpu), 4),
        "runs": runs,
        "slowest_s": round(max(times.wall), 4),
        "sizes": world.sizes,
        **contents_of(plan),
        "peak_mib": peak_mib(),
    }


def contents_of(plan: Plan) -> dict[str, int]:
    return {
        "placements": len(plan.starts),
        "evictions": len(plan.evictions),
        "shrinks": len(plan.shrinks),
        "moves": len(plan.moves),
        "waits": len(plan.waits),
    }
