"""What a replay is judged by: waits, use, and what evictions cost."""

from __future__ import annotations

import math
import statistics
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

SECONDS_IN_HOUR = 3600
WHOLE_GPU = 1000
WAIT_ROWS = (("mean_s", "mean wait"), ("median_s", "median wait"), ("p95_s", "95th percentile"))
OTHER_ROWS = (
    ("evictions", "evictions"),
    ("lost_gpu_hours", "GPU-hours lost to them"),
    ("refused", "refused"),
    ("seconds", "seconds to replay"),
)
Summary = dict[str, Any]


@dataclass(frozen=True)
class Waited:
    """How long a workload waited for its first start; ``wait_s`` None: it had not started when the replay ended."""

    quota: str
    gpus: str
    wait_s: float | None


@dataclass(frozen=True)
class Held:
    """GPUs that were held from ``begin_s`` to ``end_s``; ``lost`` when an eviction threw the work away."""

    gpu_milli: int
    begin_s: float
    end_s: float
    lost: bool = False


def gpu_group(gpus: int, gpu_milli: int) -> str:
    """The group of a request in the tables: no GPU, a part of one, or their number."""
    if not gpus:
        return "0"
    return str(gpus) if gpu_milli == WHOLE_GPU else "<1"


def waits(found: Sequence[Waited]) -> Summary:
    """By class, and in each class by number of GPUs."""
    classes: dict[str, list[Waited]] = defaultdict(list)
    for one in found:
        classes[one.quota].append(one)
    return {
        quota: {**wait_figures(members), "by_gpus": _by_gpus(members)} for quota, members in sorted(classes.items())
    }


def _by_gpus(members: Iterable[Waited]) -> Summary:
    groups: dict[str, list[Waited]] = defaultdict(list)
    for one in members:
        groups[one.gpus].append(one)
    return {gpus: wait_figures(groups[gpus]) for gpus in sorted(groups, key=lambda gpus: (gpus != "0", gpus))}


def wait_figures(members: Sequence[Waited]) -> Summary:
    """Seconds; None where nobody started."""
    started = sorted(one.wait_s for one in members if one.wait_s is not None)
    figures: Summary = {"started": len(started), "waiting_at_end": len(members) - len(started)}
    if not started:
        return {**figures, "mean_s": None, "median_s": None, "p95_s": None}
    return {
        **figures,
        "mean_s": round(statistics.fmean(started), 1),
        "median_s": round(statistics.median(started), 1),
        "p95_s": round(percentile(started, 0.95), 1),
    }


def percentile(ordered: Sequence[float], part: float) -> float:
    """The smallest value that at least this part of them does not exceed."""
    return ordered[max(0, math.ceil(part * len(ordered)) - 1)]


def use(held: Iterable[Held], capacity_milli: int, end_s: float) -> float:
    """GPU time held from the start to ``end_s``, as a part of all GPU time in it."""
    total = sum(one.gpu_milli * max(0.0, min(one.end_s, end_s) - one.begin_s) for one in held)
    return round(total / (capacity_milli * end_s), 4) if end_s > 0 else 0.0


def lost_gpu_hours(held: Iterable[Held]) -> float:
    total = sum(one.gpu_milli / WHOLE_GPU * (one.end_s - one.begin_s) for one in held if one.lost)
    return round(total / SECONDS_IN_HOUR, 1)


def table(ways: Sequence[Summary]) -> str:
    """The ways side by side, for people."""
    rows = [("", [way["way"] for way in ways])]
    for quota in ways[0]["waits"]:
        rows += [(f"{quota} {title} (s)", [way["waits"][quota][name] for way in ways]) for name, title in WAIT_ROWS]
    rows.append(("GPU use", [f"{way['gpu_use']:.1%}" for way in ways]))
    rows += [(title, [way[name] for way in ways]) for name, title in OTHER_ROWS]
    texts = [[title, *("-" if cell is None else str(cell) for cell in cells)] for title, cells in rows]
    widths = [max(map(len, column)) for column in zip(*texts, strict=True)]
    return "\n".join(_line(cells, widths) for cells in texts)


def _line(cells: Sequence[str], widths: Sequence[int]) -> str:
    title, *rest = (f"{cell:>{width}}" for cell, width in zip(cells, widths, strict=True))
    return "  ".join([f"{cells[0]:<{len(title)}}", *rest])
