"""The placement benchmark: a list of tasks arrives at an empty cluster, and how much of it finds room.

One run of one seed. The generator is asked in a fixed order (tasks, what is dropped or drawn again, nodes), so
that two programs see the same run. Tasks arrive one at a time and are placed at once or rejected; none leaves.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np

from scheduler.core.placement_own import Planned
from scheduler.core.placement_room import WHOLE_GPU, Ints, NodeSpec, Room, Shape
from scheduler.core.placement_rules import BestFit, DotProduct, Fgd, FirstFit, Packing, Policy, RandomFit
from scheduler.core.scoring import Placer

SHARES = (100, 130)
"""Arrived GPU demand, in percent of the cluster, at which the figures are taken."""

ARRIVING = 1.3

MakePolicy = Callable[[Sequence[Shape], np.random.Generator], Policy]
"""A policy for the whole list of tasks (for those that are published to know it) and the generator of the run."""

POLICIES: dict[str, MakePolicy] = {
    "default": lambda shapes, rng: Planned(),
    "random": lambda shapes, rng: RandomFit(rng),
    "firstfit": lambda shapes, rng: FirstFit(),
    "bestfit": lambda shapes, rng: BestFit(),
    "dotprod": lambda shapes, rng: DotProduct(),
    "packing": lambda shapes, rng: Packing(),
    "fgd": lambda shapes, rng: Fgd(shapes),
}


@dataclass(frozen=True)
class Figures:
    """What one run came to: allocated GPU in percent of the capacity and rejected tasks by kind, by arrived share."""

    allocated: dict[int, float | None]
    rejected: dict[int, dict[str, int]]
    decisions: int
    cpu_seconds: float
    seconds: float


@dataclass
class _Tally:
    capacity: int
    used: int = 0
    arrived: int = 0
    samples: dict[int, list[int]] = field(default_factory=lambda: {share: [] for share in SHARES})
    rejected: dict[int, Counter[str]] = field(default_factory=lambda: {share: Counter() for share in SHARES})

    def note(self, shape: Shape, is_placed: bool) -> None:
        self.arrived += shape.gpu_milli_in_all
        self.used += shape.gpu_milli_in_all * is_placed
        arrived = round(100 * self.arrived / self.capacity)
        if arrived in self.samples:
            self.samples[arrived].append(self.used)
        if not is_placed:
            for share in SHARES:
                if arrived <= share:
                    self.rejected[share][kind_of(shape)] += 1

    def allocated(self, share: int) -> float | None:
        """Mean over the events at the share, in percent; None if the list never comes so far."""
        samples = self.samples[share]
        return 100 * sum(samples) / len(samples) / self.capacity if samples else None


def kind_of(shape: Shape) -> str:
    """How requests are grouped where they are counted: `cpu`, `slice` or the number of whole GPUs."""
    if not shape.gpus:
        return "cpu"
    return "slice" if shape.is_slice else f"whole-{shape.gpus}"


def run(nodes: Sequence[NodeSpec], tasks: Sequence[Shape], seed: int, make_policy: MakePolicy) -> Figures:
    """The figures of one seed."""
    rng = np.random.default_rng(seed)
    capacity = sum(node.gpus for node in nodes) * WHOLE_GPU
    arrivals = arrivals_of(tasks, capacity, rng)
    room = Room([nodes[index] for index in rng.permutation(len(nodes))])
    placer = Placer(room, make_policy(tasks, rng))
    tally = _Tally(capacity)
    cpu_start, start = time.process_time(), time.perf_counter()
    for task in arrivals:
        shape = tasks[task]
        placer.seen(shape)
        spot = placer.choose(shape)
        if spot is not None:
            placer.place(shape, spot)
        tally.note(shape, spot is not None)
    return Figures(
        allocated={share: tally.allocated(share) for share in SHARES},
        rejected={share: dict(sorted(tally.rejected[share].items())) for share in SHARES},
        decisions=len(arrivals),
        cpu_seconds=time.process_time() - cpu_start,
        seconds=time.perf_counter() - start,
    )


def arrivals_of(tasks: Sequence[Shape], capacity: int, rng: np.random.Generator) -> list[int]:
    """Indexes of the tasks in the order of arrival, asking together for just under 130 % of the capacity."""
    asked = np.array([task.gpu_milli_in_all for task in tasks], dtype=np.int64)
    order = rng.permutation(len(tasks))
    bound = ARRIVING * capacity
    if asked.sum() > bound:
        return _dropped(order, asked, bound, rng)
    return [*order.tolist(), *_drawn_again(asked, bound, rng)]


def _dropped(order: Ints, asked: Ints, bound: float, rng: np.random.Generator) -> list[int]:
    """The order without as many of its places, in a second random order, as it takes to be within the bound."""
    places = rng.permutation(len(order))
    left = asked.sum() - asked[order[places]].cumsum()
    dropped = places[: int(np.argmax(left <= bound)) + 1]
    kept: list[int] = np.delete(order, dropped).tolist()
    return kept


def _drawn_again(asked: Ints, bound: float, rng: np.random.Generator) -> list[int]:
    """Further tasks, drawn with replacement until the next would pass the bound."""
    total = int(asked.sum())
    drawn: list[int] = []
    if not total:
        return drawn
    while total + asked[task := int(rng.integers(len(asked)))] <= bound:
        drawn.append(task)
        total += int(asked[task])
    return drawn
