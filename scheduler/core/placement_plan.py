"""A plan for the requests to come: which sizes should be cut from which GPUs, and on what kind of node.

The plan is the best use of all free GPUs by the mix seen so far, as a linear program. Nodes are grouped by the
CPU that they have for each GPU (and by model, when a request ever named one). A GPU is a level, what is free on it;
a slice moves it from one level to a lower one, so that the flow over levels is a cutting plan that knows which
half-used GPUs there are already (an arc-flow formulation: Valerio de Carvalho, Annals of Operations Research 86,
1999). The rows bound what stands at each level of a group, what is asked, and the CPU of a group.

The CPU of a group gets dearer the more of it is planned for, because the last cores of a node seldom match a
request; it also settles where work goes that could as well go elsewhere.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from math import ceil, log
from typing import NamedTuple

import numpy as np
from scipy.optimize import linprog
from scipy.sparse import coo_array

from scheduler.core.placement_mix import Mix
from scheduler.core.placement_room import WHOLE_GPU, Floats, Ints, Room, Shape

LEVEL_MILLI = 10
FULL = WHOLE_GPU // LEVEL_MILLI

SLICE_CPU_MILLI = 4000
WHOLE_CPU_MILLI = 2000
"""Slices of a size, and whole GPUs, whose CPU for each GPU rounds to the same multiple are planned together."""

CPU_TIERS = ((0.6, 0.0), (0.1, 0.05), (0.1, 0.2), (0.1, 0.8), (0.05, 2.0))
"""Parts of a group's free CPU and what a core of each costs, in levels; the last part is not planned for."""

GROUP_RATIO = 1.25
"""Nodes whose CPU for each GPU differs by less than this factor may be one group."""

PLANNED = 0.3
"""A flow of fewer tasks than this is not worth following."""

CPU_TASK_WORTH = 3.0
"""What a task without GPU is worth in the plan, in levels: less than any slice."""


class Ask(NamedTuple):
    """What the plan takes a request for; requests for several GPUs are planned GPU by GPU."""

    levels: int
    cpu_class: int
    models: tuple[str, ...]


def ask_of(shape: Shape) -> Ask:
    """The ask that stands for the shape."""
    if not shape.gpus:
        return Ask(0, round(shape.cpu_milli / WHOLE_CPU_MILLI), ())
    if shape.is_slice:
        return Ask(ceil(shape.gpu_milli / LEVEL_MILLI), round(shape.cpu_milli / SLICE_CPU_MILLI), shape.models)
    return Ask(FULL, round(shape.cpu_milli / shape.gpus / WHOLE_CPU_MILLI), shape.models)


class Groups:
    """Nodes that are alike for the plan."""

    def __init__(self, room: Room, by_model: bool) -> None:
        models = [room.models[model] if by_model else "" for model in room.model_of_row.tolist()]
        ratios = map(_ratio_class, room.cpu_of_row.tolist(), room.gpus_of_row.tolist())
        keys = list(zip(models, ratios, strict=True))
        names = sorted(set(keys))
        self.by_model = by_model
        self.of_row: Ints = np.array([names.index(key) for key in keys], dtype=np.int64)
        self._models = [model for model, _ in names]

    def __len__(self) -> int:
        return len(self._models)

    def accepting(self, models: tuple[str, ...]) -> list[int]:
        """Groups on whose nodes a request that lists these models may run."""
        return [group for group, model in enumerate(self._models) if not models or model in models]

    def sums(self, of_row: Floats) -> Floats:
        """Sums over the nodes of each group."""
        summed = np.bincount(self.of_row, weights=of_row, minlength=len(self))
        return summed.astype(np.float64)


def _ratio_class(cpu_milli: int, gpus: int) -> int:
    return round(log(1 + cpu_milli / gpus) / log(GROUP_RATIO)) if gpus else 0


@dataclass(frozen=True, eq=False)
class Plan:
    """What the plan says of each ask at each level (column) of each group (row), and the GPU that all of it uses.

    Above 0: so many tasks are planned there. Otherwise the negative of what one task there would cost the plan, in
    thousandths of a GPU; 0 throughout unless requests are bound to models, since the prices of the program then
    tell the scarce models, and else hardly more than which of several equally good plans was found.
    """

    places: dict[Ask, Floats]
    gpu_milli: float

    def places_of(self, shape: Shape) -> Floats | None:
        """What the plan says by group and level; None if such a shape was not seen before the plan was made."""
        return self.places.get(ask_of(shape))


def make_plan(room: Room, mix: Mix, groups: Groups) -> Plan:
    """The plan for a demand of the seen mix that would fill all that is free."""
    demand = _demand(mix, int(room.gpu_milli.sum()))
    levels = _levels(room, groups)
    arcs = _arcs(demand, groups, levels)
    flow, regret = _solve(_Program(arcs, demand, levels, groups, room))
    unplanned = -regret * LEVEL_MILLI if groups.by_model else np.zeros(len(flow))
    tables = np.zeros((len(demand), *levels.shape))
    tables[arcs.ask, arcs.group, arcs.level] = np.where(flow > PLANNED, flow, unplanned)
    places = {item.ask: table for item, table in zip(demand, tables, strict=True)}
    return Plan(places, float(flow @ arcs.size) * LEVEL_MILLI)


@dataclass(frozen=True)
class _Demand:
    """Expected tasks of one ask (GPUs where it is for several), and the cores of each."""

    ask: Ask
    count: float
    cores: float


def _demand(mix: Mix, free_gpu_milli: int) -> list[_Demand]:
    scale = free_gpu_milli / max(mix.gpu_milli, 1)
    counts: Counter[Ask] = Counter()
    cpu_milli: Counter[Ask] = Counter()
    for shape, count in mix.shapes.items():
        counts[ask_of(shape)] += count * max(shape.gpus, 1)
        cpu_milli[ask_of(shape)] += count * shape.cpu_milli
    return [_Demand(ask, counts[ask] * scale, cpu_milli[ask] / counts[ask] / 1000) for ask in sorted(counts)]


def _levels(room: Room, groups: Groups) -> Ints:
    """How many GPUs of each group (row) stand at each level (column)."""
    there = np.arange(room.gpu_milli.shape[1]) < room.gpus_of_row[:, np.newaxis]
    group = np.broadcast_to(groups.of_row[:, np.newaxis], there.shape)[there]
    level = room.gpu_milli[there] // LEVEL_MILLI
    counted: Ints = np.bincount(group * (FULL + 1) + level, minlength=len(groups) * (FULL + 1))
    return counted.reshape(len(groups), FULL + 1)


@dataclass(frozen=True, eq=False)
class _Arcs:
    """The variables of the program: tasks of an ask that are cut from a level of a group."""

    ask: Ints
    group: Ints
    level: Ints
    size: Ints


def _arcs(demand: list[_Demand], groups: Groups, levels: Ints) -> _Arcs:
    sizes = sorted({item.ask.levels for item in demand} - {0, FULL})
    reachable = _reachable(np.flatnonzero(levels.any(axis=0)).tolist(), sizes)
    found: list[tuple[int, int, int, int]] = []
    for index, item in enumerate(demand):
        size = item.ask.levels
        starts = [level for level in reachable if level >= size] if size else [0]
        found.extend((index, group, level, size) for group in groups.accepting(item.ask.models) for level in starts)
    table = np.array(found, dtype=np.int64).reshape(-1, 4)
    return _Arcs(table[:, 0], table[:, 1], table[:, 2], table[:, 3])


def _reachable(levels: list[int], sizes: list[int]) -> list[int]:
    """Levels from which something can still be cut, now or after other cuts."""
    seen = set(levels)
    for level in range(FULL, 0, -1):
        if level in seen:
            seen.update(level - size for size in sizes if size < level)
    return sorted(seen - {0})


class _Program:
    """The linear program: what each task is worth, and rows that bound what all tasks use together."""

    def __init__(self, arcs: _Arcs, demand: list[_Demand], levels: Ints, groups: Groups, room: Room) -> None:
        self._rows: list[Ints] = []
        self._columns: list[Ints] = []
        self._amounts: list[Floats] = []
        self.bounds: list[Floats] = []
        self.worth: Floats = np.where(arcs.size > 0, arcs.size, CPU_TASK_WORTH).astype(np.float64)
        self.most: Floats = np.full(len(self.worth), np.inf)
        self._bound_levels(arcs, levels)
        self._bound_demand(arcs, demand)
        self._bound_cpu(arcs, demand, groups.sums(room.cpu_milli / 1000))

    def matrix(self) -> coo_array:
        """The coefficients of all rows."""
        indexes = np.concatenate(self._rows), np.concatenate(self._columns)
        return coo_array((np.concatenate(self._amounts), indexes), shape=(self._height(), len(self.worth)))

    def _height(self) -> int:
        return sum(len(bounds) for bounds in self.bounds)

    def _use(self, rows: Ints, columns: Ints, amounts: Floats) -> None:
        self._rows.append(rows)
        self._columns.append(columns)
        self._amounts.append(amounts)

    def _bound_levels(self, arcs: _Arcs, levels: Ints) -> None:
        cut = np.flatnonzero(arcs.size)
        level = (arcs.group * (FULL + 1) + arcs.level)[cut]
        self._use(level, cut, np.ones(len(cut)))
        self._use(level - arcs.size[cut], cut, -np.ones(len(cut)))
        self.bounds.append(levels.ravel().astype(np.float64))

    def _bound_demand(self, arcs: _Arcs, demand: list[_Demand]) -> None:
        self._use(self._height() + arcs.ask, np.arange(len(arcs.ask)), np.ones(len(arcs.ask)))
        self.bounds.append(np.array([item.count for item in demand]))

    def _bound_cpu(self, arcs: _Arcs, demand: list[_Demand], cores: Floats) -> None:
        """Cores are bought tier by tier, by further variables."""
        each = np.array([item.cores for item in demand])
        self._use(self._height() + arcs.group, np.arange(len(arcs.ask)), each[arcs.ask])
        for part, cost in CPU_TIERS:
            bought = len(self.worth) + np.arange(len(cores))
            self._use(self._height() + np.arange(len(cores)), bought, -np.ones(len(cores)))
            self.worth = np.concatenate((self.worth, np.full(len(cores), -cost)))
            self.most = np.concatenate((self.most, part * cores))
        self.bounds.append(np.zeros(len(cores)))


def _solve(program: _Program) -> tuple[Floats, Floats]:
    """Tasks on each arc in the best plan, and what one more task there would cost, in levels."""
    matrix = program.matrix().tocsr()
    used = np.diff(matrix.indptr) > 0
    solved = linprog(
        -program.worth,
        A_ub=matrix[used],
        b_ub=np.concatenate(program.bounds)[used],
        bounds=np.column_stack((np.zeros(len(program.most)), program.most)),
        method="highs-ds",
    )
    tasks = np.isinf(program.most)
    return solved.x[tasks], solved.lower.marginals[tasks]
