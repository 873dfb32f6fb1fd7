"""Amounts in base units and the only place where limits are added and compared.

Units: `gpu_milli` and `cpu_milli` are thousandths, `memory_mib` is MiB. In arrays the columns are
`GPU`, `CPU`, `MEMORY` in this order. "No bound" is None in values and `UNBOUNDED` in arrays.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

GPU, CPU, MEMORY = 0, 1, 2
KINDS = ("gpu_milli", "cpu_milli", "memory_mib")
WHOLE_GPU = 1000
UNBOUNDED = 2**62  # far below the int64 ceiling, so that one addition of two sane numbers cannot wrap
LARGEST = 2**48  # the largest amount that a door may let in: sums of a million of them stay exact

Table = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Amount:
    """So much of each resource."""

    gpu_milli: int = 0
    cpu_milli: int = 0
    memory_mib: int = 0

    def __add__(self, other: Amount) -> Amount:
        return Amount(
            self.gpu_milli + other.gpu_milli,
            self.cpu_milli + other.cpu_milli,
            self.memory_mib + other.memory_mib,
        )

    def __sub__(self, other: Amount) -> Amount:
        return self + other.times(-1)

    def times(self, count: int) -> Amount:
        """This amount `count` times."""
        return Amount(self.gpu_milli * count, self.cpu_milli * count, self.memory_mib * count)

    def as_row(self) -> Table:
        """A row in column order."""
        return np.array((self.gpu_milli, self.cpu_milli, self.memory_mib), dtype=np.int64)


NOTHING = Amount()


@dataclass(frozen=True, slots=True)
class Bound:
    """So much of each resource at most; None means that this resource has no bound here."""

    gpu_milli: int | None = None
    cpu_milli: int | None = None
    memory_mib: int | None = None

    def as_row(self) -> Table:
        """A row in column order with `UNBOUNDED` for None."""
        values = (self.gpu_milli, self.cpu_milli, self.memory_mib)
        return np.array([UNBOUNDED if v is None else v for v in values], dtype=np.int64)

    def governed(self) -> npt.NDArray[np.bool_]:
        """Which resources have a bound, in column order."""
        return np.array([v is not None for v in (self.gpu_milli, self.cpu_milli, self.memory_mib)])


NO_BOUND = Bound()


def amount_of(row: Iterable[int]) -> Amount:
    """The amount in a row."""
    gpu, cpu, memory = (int(value) for value in row)
    return Amount(gpu, cpu, memory)


def bound_of(row: Iterable[int]) -> Bound:
    """The bound in a row, `UNBOUNDED` and above read as None."""
    gpu, cpu, memory = (None if value >= UNBOUNDED else int(value) for value in row)
    return Bound(gpu, cpu, memory)


def fits(used: Table, more: Table, bound: Table) -> bool:
    """Whether `used + more` stays within `bound` in each resource that `more` asks for."""
    return bool(((more == 0) | (bound >= UNBOUNDED) | (used + more <= bound)).all())


def share_of_memory(asked_mib: int, device_mib: int, step_milli: int = 1) -> int:
    """Thousandths of a device that a request for device memory is charged with.

    Rounded down to whole thousandths (at least one), or up to `step_milli` when that is above one:
    devices are filled by memory, so the sum of charges never passes 1000 by rounding.
    """
    if device_mib <= 0:
        return WHOLE_GPU
    if step_milli > 1:
        return -(-asked_mib * WHOLE_GPU // (device_mib * step_milli)) * step_milli
    return max(1, asked_mib * WHOLE_GPU // device_mib)
