"""How a figure is taken: the median of some runs in this process, with the peak of its memory."""

from __future__ import annotations

import gc
import resource
import statistics
import time
from collections.abc import Callable
from typing import TypeVar

from scheduler.benchmarks.worlds import World
from scheduler.core.decide import decide
from scheduler.core.model import Plan
from scheduler.core.policy import PRODUCT

KIB_IN_MIB = 1024
Result = TypeVar("Result")
Figures = dict[str, object]


def timed(call: Callable[[], Result], runs: int) -> tuple[Result, list[float]]:
    """The last result of the call, and the seconds that each run took."""
    seconds = []
    for _ in range(runs):
        gc.collect()
        begun = time.perf_counter()
        result = call()
        seconds.append(time.perf_counter() - begun)
    return result, seconds


def peak_mib() -> int:
    """The most memory that this process has ever held resident, in MiB."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // KIB_IN_MIB


def figures_of(name: str, world: World, runs: int) -> Figures:
    """Decide on a world `runs` times: how long it takes and what the plan holds."""
    plan, seconds = timed(lambda: decide(world.snapshot, PRODUCT), runs)
    return {
        "bench": name,
        "median_s": round(statistics.median(seconds), 4),
        "runs": runs,
        "slowest_s": round(max(seconds), 4),
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
