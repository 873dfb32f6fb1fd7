"""What kinds of request are around: counts of the shapes seen so far, and how nodes compare for all of them.

The value of a node is the GPU that would be in use on it in the end if requests of one kind came until none
fits any more, on average over the kinds seen; kinds that few nodes accept count more on those. It falls when a
GPU is cut in a way that leaves pieces nobody asks for, and just as much when the CPU runs out before the GPUs do.
"""

from __future__ import annotations

from collections import Counter

import numpy as np

from scheduler.core.placement_room import WHOLE_GPU, Bools, Floats, Ints, Room, Shape

CPU_STEP_MILLI = 1000
"""Requests whose CPU differs by less are one kind."""


Kind = tuple[int, int, int, tuple[str, ...]]
"""CPU, thousandths of each GPU, number of GPUs, accepted models."""


class Mix:
    """How often each kind of request was seen. Memory plays no part."""

    def __init__(self) -> None:
        self.shapes: Counter[Shape] = Counter()
        self.gpu_milli = 0

    def add(self, shape: Shape) -> None:
        self.shapes[shape] += 1
        self.gpu_milli += shape.gpu_milli_in_all

    def total(self) -> int:
        return self.shapes.total()

    def kinds(self) -> Counter[Kind]:
        """Requests for GPUs by kind, the CPU rounded to whole steps."""
        found: Counter[Kind] = Counter()
        for shape, count in self.shapes.items():
            if shape.gpus:
                cpu = -(-shape.cpu_milli // CPU_STEP_MILLI) * CPU_STEP_MILLI
                found[cpu, shape.gpu_milli, shape.gpus, shape.models] += count
        return found


class NodeValue:
    """The expected final use of nodes, in thousandths of a GPU, under a mix."""

    def __init__(self, mix: Mix, room: Room) -> None:
        kinds = sorted(mix.kinds().items())
        total = max(mix.total(), 1)
        self._cpu_milli: Ints = np.array([max(kind[0], 1) for kind, _ in kinds], dtype=np.int64)
        self._gpus: Ints = np.array([kind[2] for kind, _ in kinds], dtype=np.int64)
        each: Floats = np.array([count / total * kind[1] * kind[2] for kind, count in kinds])
        accepts = [[not kind[3] or model in kind[3] for kind, _ in kinds] for model in room.models]
        self._weight = _directed(room, each, np.array(accepts, dtype=np.bool_).reshape(len(room.models), -1))
        sizes, self._size_of_kind = np.unique([kind[1] for kind, _ in kinds], return_inverse=True)
        free = np.arange(WHOLE_GPU + 1)[:, np.newaxis]
        self._pieces = (free // np.maximum(sizes, 1)).astype(np.int64)
        self._is_whole: Bools = np.array([kind[1] == WHOLE_GPU for kind, _ in kinds], dtype=np.bool_)

    def pieces(self, gpu_milli: Ints) -> Ints:
        """How many pieces of each size asked for the free amounts give; one more axis than given."""
        found: Ints = self._pieces[gpu_milli]
        return found

    def of(self, cpu_milli: Ints, pieces: Ints, models: Ints) -> Floats:
        """Values of nodes with this free CPU, pieces of their GPUs together (one row a node) and model."""
        by_gpu = pieces[:, self._size_of_kind] // self._gpus
        by_cpu = cpu_milli[:, np.newaxis] // self._cpu_milli
        values: Floats = (np.minimum(by_gpu, by_cpu) * self._weight[models]).sum(axis=1)
        return values


def _directed(room: Room, weight: Floats, accepts: Bools) -> Floats:
    """Weight of each kind (column) on nodes of each model (row): the fewer GPUs accept it, the more come to each."""
    gpus = np.bincount(room.model_of_row, weights=room.gpus_of_row, minlength=len(room.models))
    share = gpus @ accepts / max(gpus.sum(), 1)
    directed = np.divide(weight, share, out=np.zeros(len(weight)), where=share > 0)
    return np.where(accepts, directed, 0.0)
