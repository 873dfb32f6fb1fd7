"""Published placement policies, for comparison with our own through the same code path.

Each gives the nodes that have room a score (the highest wins, the first row among equals) and the GPU that
a slice should use there. Scores are rounded as published, which is what makes ties, and ties matter.

Sources: Weng et al., *Beware of Fragmentation*, USENIX ATC 2023 (FGD, best-fit, packing and the order of
the figures); Grandl et al., *Multi-resource Packing for Cluster Schedulers*, SIGCOMM 2014 (dot product).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from scheduler.core.placement_room import WHOLE_GPU, Bools, Floats, Ints, Room, Shape

LARGEST_CPU_MILLI = 128_000
LARGEST_GPU_MILLI = 8 * WHOLE_GPU
COVERED_SHARE = 0.95
"""FGD counts the most frequent shapes until they cover this share of the tasks."""


@dataclass(frozen=True, eq=False)
class Scored:
    """A score and the device for a slice, for each of the rows asked about."""

    scores: Floats
    devices: Ints


class Policy(Protocol):
    """How nodes that have room compare."""

    def learn(self, room: Room, shape: Shape) -> bool:
        """Take note of a request before it is placed; true when scores given earlier no longer hold."""

    def score(self, room: Room, shape: Shape, rows: Ints) -> Scored:
        """Scores of rows that have room for the shape."""


def tightest_device(room: Room, shape: Shape, rows: Ints) -> Ints:
    """On each row the GPU with the least room that is enough for the slice; the first of equals."""
    free = room.gpu_milli[rows]
    device: Ints = np.where(free >= shape.gpu_milli, free, WHOLE_GPU + 1).argmin(axis=1)
    return device


class Unlearning:
    """A policy for which the mix of requests does not matter."""

    def learn(self, room: Room, shape: Shape) -> bool:
        return False


class FirstFit(Unlearning):
    """The first node with room."""

    def score(self, room: Room, shape: Shape, rows: Ints) -> Scored:
        return Scored(np.zeros(len(rows)), tightest_device(room, shape, rows))


class RandomFit:
    """Any node with room, and there any GPU with room."""

    def __init__(self, rng: np.random.Generator) -> None:
        self._rng = rng

    def learn(self, room: Room, shape: Shape) -> bool:
        return True

    def score(self, room: Room, shape: Shape, rows: Ints) -> Scored:
        enough = room.gpu_milli[rows] >= shape.gpu_milli
        drawn = self._rng.random(enough.shape)
        return Scored(self._rng.random(len(rows)), np.where(enough, drawn, -1.0).argmax(axis=1))


class BestFit(Unlearning):
    """The node with the least CPU and GPU left, both counted against the largest node."""

    def score(self, room: Room, shape: Shape, rows: Ints) -> Scored:
        cpu_left = (room.cpu_milli[rows] - shape.cpu_milli) / LARGEST_CPU_MILLI
        gpu_left = (room.gpu_milli[rows].sum(axis=1) - shape.gpu_milli_in_all) / LARGEST_GPU_MILLI
        scores = np.floor(100 * (1 - (0.5 * cpu_left + 0.5 * gpu_left)))
        return Scored(scores, tightest_device(room, shape, rows))


class DotProduct(Unlearning):
    """The node whose free CPU and GPU have the smallest product with what is asked."""

    def score(self, room: Room, shape: Shape, rows: Ints) -> Scored:
        cpu = room.cpu_milli[rows] / LARGEST_CPU_MILLI * (shape.cpu_milli / LARGEST_CPU_MILLI)
        gpu = room.gpu_milli[rows].sum(axis=1) / LARGEST_GPU_MILLI * (shape.gpu_milli_in_all / LARGEST_GPU_MILLI)
        return Scored(np.floor(100 * (1 - (cpu + gpu) / 2)), tightest_device(room, shape, rows))


class Packing(Unlearning):
    """GPUs in use first, then free GPUs of nodes in use, then untouched nodes, the smaller first."""

    def score(self, room: Room, shape: Shape, rows: Ints) -> Scored:
        devices = tightest_device(room, shape, rows)
        if not shape.gpus:
            return Scored(np.zeros(len(rows)), devices)
        free = room.gpu_milli[rows, devices]
        shared = 100 - free * 100 // WHOLE_GPU // 10
        node_in_use = np.where(shape.is_slice & (free < WHOLE_GPU), shared, 50 - shape.gpus)
        untouched = room.untouched[rows]
        scores = np.where(untouched == room.gpus_of_row[rows], 33 - untouched, node_in_use)
        return Scored(scores.astype(np.float64), devices)


class Fgd(Unlearning):
    """Fragmentation gradient descent: the node where least of the free GPUs becomes useless to the typical mix."""

    def __init__(self, shapes: Sequence[Shape]) -> None:
        kinds = Counter((shape.cpu_milli, shape.gpu_milli, shape.gpus, shape.models) for shape in shapes)
        typical: list[tuple[tuple[int, int, int, tuple[str, ...]], int]] = []
        covered = 0
        for kind, count in kinds.most_common():
            if covered >= COVERED_SHARE * len(shapes):
                break
            typical.append((kind, count))
            covered += count
        self._weight: Floats = np.array([count for _, count in typical]) / covered
        self._cpu_milli: Ints = np.array([kind[0] for kind, _ in typical], dtype=np.int64)
        self._gpu_milli: Ints = np.array([kind[1] for kind, _ in typical], dtype=np.int64)
        self._gpus: Ints = np.array([kind[2] for kind, _ in typical], dtype=np.int64)
        self._models = [kind[3] for kind, _ in typical]
        self._accepts: dict[tuple[str, ...], Bools] = {}

    def score(self, room: Room, shape: Shape, rows: Ints) -> Scored:
        if shape.is_slice:
            return self._score_slice(room, shape, rows)
        free = room.gpu_milli[rows]
        untouched = free == WHOLE_GPU
        after = np.where(untouched & (untouched.cumsum(axis=1) <= shape.gpus), 0, free)
        cpu = room.cpu_milli[rows]
        models = room.model_of_row[rows]
        gained = self._waste(room, cpu, free, models) - self._waste(room, cpu - shape.cpu_milli, after, models)
        return Scored(rounded_sigmoid(gained), np.zeros(len(rows), dtype=np.int64))

    def _score_slice(self, room: Room, shape: Shape, rows: Ints) -> Scored:
        free = room.gpu_milli[rows]
        cpu = room.cpu_milli[rows]
        models = room.model_of_row[rows]
        before = self._waste(room, cpu, free, models)
        at, device = np.nonzero(free >= shape.gpu_milli)
        after = free[at]
        after[np.arange(len(at)), device] -= shape.gpu_milli
        scores = np.full(free.shape, -1.0)
        gained = before[at] - self._waste(room, cpu[at] - shape.cpu_milli, after, models[at])
        scores[at, device] = rounded_sigmoid(gained)
        return Scored(scores.max(axis=1), scores.argmax(axis=1))

    def _waste(self, room: Room, cpu_milli: Ints, gpu_milli: Ints, models: Ints) -> Floats:
        """Thousandths of GPU that a task of the mix can not use, on average, for each state of a node."""
        free = gpu_milli[:, np.newaxis, :]
        enough = np.where(
            (self._gpus == 1) & (self._gpu_milli < WHOLE_GPU),
            free.max(axis=2) >= self._gpu_milli,
            (free == WHOLE_GPU).sum(axis=2) >= self._gpus,
        )
        usable = enough & (self._gpus > 0) & (cpu_milli[:, np.newaxis] >= self._cpu_milli)
        usable &= self._accepting(room)[models]
        too_small = np.where(free < self._gpu_milli[:, np.newaxis], free, 0).sum(axis=2)
        wasted: Floats = np.where(usable, too_small, free.sum(axis=2)) @ self._weight
        return wasted

    def _accepting(self, room: Room) -> Bools:
        """For each GPU model of the room (row) whether each typical shape (column) accepts it."""
        key = tuple(room.models)
        if key not in self._accepts:
            table = [[not listed or model in listed for listed in self._models] for model in room.models]
            self._accepts[key] = np.array(table, dtype=np.bool_)
        return self._accepts[key]


def rounded_sigmoid(gained_milli: Floats) -> Floats:
    """0 to 100 for what is gained, 50 when nothing changes."""
    scores: Floats = np.floor(100 / (1 + np.exp(-gained_milli / WHOLE_GPU)))
    return scores
