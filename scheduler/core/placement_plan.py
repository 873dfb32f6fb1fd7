"""A plan for the requests to come: which sizes should be cut from which GPUs, and on what kind of node.

The plan is the best use of all free GPUs by the mix seen so far, as a linear program. Nodes are grouped by the
CPU that they have for each GPU (and by model, when a request ever named one). A GPU is a level, what is free on it;
a slice moves it from one level to a lower one, so that the flow over levels is a cutting plan that knows which
half-used GPUs there are already (an arc-flow formulation: Valerio de Carvalho, Annals of Operations Research 86,
1999). The rows bound what stands at each level of a group, what is asked, and the CPU of a group, of which a part is
left out, because the last cores of a node seldom match a request.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from math import ceil, log

import numpy as np
from scipy.optimize import linprog
from scipy.sparse import coo_array

from scheduler.core.placement_mix import Mix
from scheduler.core.placement_room import WHOLE_GPU, Floats, Ints, Room, Shape

LEVEL_MILLI = 10
FULL = WHOLE_GPU // LEVEL_MILLI
CPU_CLASS_MILLI = 2000
"""Whole GPUs whose tasks ask for CPU within this are planned together; slices are planned by size alone."""

USABLE_CPU = 0.8
"""Share of a group's free CPU that the plan counts on."""

GROUP_RATIO = 1.25
"""Nodes whose CPU for each GPU differs by less than this factor may be one group."""

PLANNED = 0.3
"""A flow of fewer tasks than this is not worth following."""

CPU_TASK_WORTH = 0.01
"""What a task without GPU is worth in the plan, in levels: less than any slice."""

Ask = tuple[int, int, tuple[str, ...]]
"""Levels of one GPU, class of CPU, accepted models."""


def ask_of(shape: Shape) -> Ask:
    """What the plan takes the request for."""
    if not shape.gpus:
        return 0, round(shape.cpu_milli / CPU_CLASS_MILLI), ()
    if shape.is_slice:
        return ceil(shape.gpu_milli / LEVEL_MILLI), 0, shape.models
    return FULL, round(shape.cpu_milli / shape.gpus / CPU_CLASS_MILLI), shape.models


class Groups:
    """Nodes that are alike for the plan."""

    def __init__(self, room: Room, by_model: bool) -> None:
        keys = [
            (room.models[model] if by_model else "", _ratio_class(cpu, gpus))
            for model, cpu, gpus in zip(
                room.model_of_row.tolist(), room.cpu_of_row.tolist(), room.gpus_of_row.tolist(), strict=True
            )
        ]
        names = sorted(set(keys))
        self.of_row: Ints = np.array([names.index(key) for key in keys], dtype=np.int64)
        self.models = [name[0] for name in names]

    def __len__(self) -> int:
        return len(self.models)

    def accepting(self, models: tuple[str, ...]) -> list[int]:
        return [group for group, model in enumerate(self.models) if not models or model in models]


def _ratio_class(cpu_milli: int, gpus: int) -> int:
    if not gpus or not cpu_milli:
        return 0
    return round(log(1 + cpu_milli / gpus) / log(GROUP_RATIO))


@dataclass(frozen=True, eq=False)
class Plan:
    """For each ask the flow from each level of each group, and what all flows use together."""

    flows: dict[Ask, Floats]
    gpu_milli: float

    def flow(self, shape: Shape) -> Floats | None:
        """Planned tasks by group (row) and level (column); None if nothing is planned for such a shape."""
        return self.flows.get(ask_of(shape))


def make_plan(room: Room, mix: Mix, groups: Groups) -> Plan:
    """The plan for a demand of the seen mix that would fill all that is free."""
    demand, cpu = _demand(mix, int(room.gpu_milli.sum()))
    levels = _levels(room, groups)
    arcs = _arcs(list(demand), groups, levels)
    flow = _solve(arcs, list(demand.values()), cpu, levels, _cpu_of(room, groups))
    flows = {ask: np.zeros(levels.shape) for ask in demand}
    asks = list(demand)
    for index in np.flatnonzero(flow > PLANNED):
        flows[asks[arcs.ask[index]]][arcs.group[index], arcs.level[index]] = flow[index]
    return Plan(flows, float(flow @ arcs.size) * LEVEL_MILLI)


def _demand(mix: Mix, free_gpu_milli: int) -> tuple[dict[Ask, float], list[float]]:
    """Tasks of each ask (whole GPUs are counted one by one) and the cores of one of them."""
    scale = free_gpu_milli / max(mix.gpu_milli, 1)
    counts: Counter[Ask] = Counter()
    cores: Counter[Ask] = Counter()
    for shape, count in mix.shapes.items():
        ask = ask_of(shape)
        counts[ask] += count * max(shape.gpus, 1)
        cores[ask] += count * shape.cpu_milli
    demand = {ask: counts[ask] * scale for ask in sorted(counts)}
    return demand, [cores[ask] / counts[ask] / 1000 for ask in demand]


def _levels(room: Room, groups: Groups) -> Ints:
    """How many GPUs of each group (row) stand at each level (column)."""
    there = np.arange(room.gpu_milli.shape[1]) < room.gpus_of_row[:, np.newaxis]
    group = np.broadcast_to(groups.of_row[:, np.newaxis], there.shape)[there]
    level = room.gpu_milli[there] // LEVEL_MILLI
    counted: Ints = np.bincount(group * (FULL + 1) + level, minlength=len(groups) * (FULL + 1))
    return counted.reshape(len(groups), FULL + 1)


def _cpu_of(room: Room, groups: Groups) -> Floats:
    """Free cores of each group."""
    cores: Floats = np.bincount(groups.of_row, weights=room.cpu_milli / 1000, minlength=len(groups))
    return cores


@dataclass(frozen=True, eq=False)
class _Arcs:
    """The variables of the program: tasks of an ask that are cut from a level of a group."""

    ask: Ints
    group: Ints
    level: Ints
    size: Ints


def _arcs(asks: list[Ask], groups: Groups, levels: Ints) -> _Arcs:
    sizes = sorted({ask[0] for ask in asks if 0 < ask[0] < FULL})
    reachable = _reachable(np.flatnonzero(levels.any(axis=0)).tolist(), sizes)
    found: list[tuple[int, int, int, int]] = []
    for index, (size, _, models) in enumerate(asks):
        starts = [0] if not size else [level for level in reachable if level >= size]
        accepting = groups.accepting(models) if size else range(len(groups))
        found.extend((index, group, level, size) for group in accepting for level in starts)
    table = np.array(found, dtype=np.int64).reshape(-1, 4)
    return _Arcs(table[:, 0], table[:, 1], table[:, 2], table[:, 3])


def _reachable(levels: list[int], sizes: list[int]) -> list[int]:
    """Levels from which something can still be cut, now or after other cuts."""
    seen = set(levels)
    for level in range(FULL, 0, -1):
        if level in seen:
            seen.update(level - size for size in sizes if size < level)
    return sorted(seen - {0})


def _solve(arcs: _Arcs, demand: list[float], cpu: list[float], levels: Ints, cores: Floats) -> Floats:
    """Tasks on each arc in the best plan."""
    each = np.arange(len(arcs.ask))
    cut = arcs.size > 0
    stand = arcs.group * (FULL + 1) + arcs.level
    first_ask = levels.size
    first_cpu = first_ask + len(demand)
    rows = (stand[cut], (stand - arcs.size)[cut], first_ask + arcs.ask, first_cpu + arcs.group)
    amounts = (np.ones(cut.sum()), -np.ones(cut.sum()), np.ones(len(each)), np.array(cpu)[arcs.ask])
    columns = (each[cut], each[cut], each, each)
    matrix = coo_array(
        (np.concatenate(amounts), (np.concatenate(rows), np.concatenate(columns))),
        shape=(first_cpu + len(cores), len(each)),
    ).tocsr()
    bounds = np.concatenate((levels.ravel(), demand, cores * USABLE_CPU))
    used = np.diff(matrix.indptr) > 0
    worth = np.where(cut, arcs.size, CPU_TASK_WORTH)
    solved = linprog(-worth, A_ub=matrix[used], b_ub=bounds[used], bounds=(0, None), method="highs-ds")
    flow: Floats = solved.x if solved.success else np.zeros(len(each))
    return flow
