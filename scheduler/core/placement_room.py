"""What is free on each node, and which nodes have room for a shape of request.

Rows are nodes in the order that decides ties. Amounts are whole base units; a GPU is 1000 thousandths.
Unlike the rest of the core a `Room` changes in place: a run asks it tens of thousands of times, and every
change is noted in `changes`, so that whoever keeps scores knows which rows to look at again.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

WHOLE_GPU = 1000

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]
Bools = NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class Shape:
    """What one request asks of one node: a slice of a GPU, some untouched GPUs, or no GPU at all.

    `gpu_milli` is asked of each GPU. Only the listed GPU models are accepted; no model listed means any.
    """

    cpu_milli: int
    memory_mib: int
    gpus: int = 0
    gpu_milli: int = 0
    models: tuple[str, ...] = ()

    @property
    def is_slice(self) -> bool:
        return self.gpus == 1 and self.gpu_milli < WHOLE_GPU

    @property
    def gpu_milli_in_all(self) -> int:
        return self.gpus * self.gpu_milli


@dataclass(frozen=True, slots=True)
class NodeSpec:
    """A node as it is when empty."""

    cpu_milli: int
    memory_mib: int
    gpus: int
    model: str


@dataclass(frozen=True, slots=True)
class Spot:
    """A place for one request: the row of the node and the GPUs that it uses there."""

    row: int
    devices: tuple[int, ...]


class Room:
    """The free amounts of all nodes."""

    def __init__(self, nodes: Sequence[NodeSpec]) -> None:
        self.models = sorted({node.model for node in nodes})
        self.model_of_row: Ints = np.array([self.models.index(node.model) for node in nodes], dtype=np.int64)
        self.gpus_of_row: Ints = np.array([node.gpus for node in nodes], dtype=np.int64)
        self.cpu_of_row: Ints = np.array([node.cpu_milli for node in nodes], dtype=np.int64)
        self.memory_of_row: Ints = np.array([node.memory_mib for node in nodes], dtype=np.int64)
        self.cpu_milli = self.cpu_of_row.copy()
        self.memory_mib = self.memory_of_row.copy()
        device = np.arange(int(self.gpus_of_row.max(initial=1)))
        self.gpu_milli: Ints = np.where(device < self.gpus_of_row[:, np.newaxis], WHOLE_GPU, 0).astype(np.int64)
        self.untouched = self.gpus_of_row.copy()
        self.largest = self.gpu_milli.max(axis=1, initial=0)
        self.changes: list[int] = []
        self._accepted: dict[tuple[str, ...], Bools] = {}

    def __len__(self) -> int:
        return len(self.model_of_row)

    @property
    def gpu_milli_in_all(self) -> int:
        """Thousandths of GPUs of all nodes when empty."""
        return int(self.gpus_of_row.sum()) * WHOLE_GPU

    def accepted(self, models: tuple[str, ...]) -> Bools:
        """Rows whose GPU model is accepted by a request that lists these models."""
        if models not in self._accepted:
            codes = np.array([not models or model in models for model in self.models], dtype=np.bool_)
            self._accepted[models] = codes[self.model_of_row]
        return self._accepted[models]

    def fits(self, shape: Shape, rows: Ints) -> Bools:
        """Which of the rows have room for the shape."""
        enough: Bools = (self.cpu_milli[rows] >= shape.cpu_milli) & (self.memory_mib[rows] >= shape.memory_mib)
        if not shape.gpus:
            return enough
        enough &= self.accepted(shape.models)[rows]
        if shape.is_slice:
            enough &= self.largest[rows] >= shape.gpu_milli
        else:
            enough &= self.untouched[rows] >= shape.gpus
        return enough

    def spot(self, shape: Shape, row: int, device: int) -> Spot:
        """The place on a row that fits: the given device for a slice, the first untouched ones for whole GPUs."""
        if shape.is_slice:
            return Spot(row, (device,))
        untouched = np.flatnonzero(self.gpu_milli[row] == WHOLE_GPU)[: shape.gpus]
        return Spot(row, tuple(untouched.tolist()))

    def take(self, shape: Shape, spot: Spot) -> None:
        """The request starts at the spot."""
        self._change(shape, spot, -1)

    def give_back(self, shape: Shape, spot: Spot) -> None:
        """The request has left the spot."""
        self._change(shape, spot, 1)

    def _change(self, shape: Shape, spot: Spot, sign: int) -> None:
        row = spot.row
        self.cpu_milli[row] += sign * shape.cpu_milli
        self.memory_mib[row] += sign * shape.memory_mib
        self.gpu_milli[row, list(spot.devices)] += sign * shape.gpu_milli
        self.untouched[row] = np.count_nonzero(self.gpu_milli[row] == WHOLE_GPU)
        self.largest[row] = self.gpu_milli[row].max()
        self.changes.append(row)
