"""Our own placement policy: follow a plan for the mix of requests, and keep nodes valuable for that mix.

For a request the nodes compare, in this order:
1. a node that still serves several whole GPUs is not broken up while such requests are expected to need it;
2. a place that the plan foresees for this request (`placement_plan`), the GPU with the least room first;
3. the value that the node keeps for the mix (`placement_mix`), less what a place costs the plan that does not
   foresee it.

The mix is what was seen so far, and the plan is made anew as the mix gets known and the room fills up, so nothing
depends on a particular list of tasks. Only the order of nodes is decided here: whatever fits is placed.
"""

from __future__ import annotations

import numpy as np

from scheduler.core.placement_mix import Mix, NodeValue
from scheduler.core.placement_plan import FULL, LEVEL_MILLI, Groups, Plan, make_plan
from scheduler.core.placement_room import WHOLE_GPU, Floats, Ints, Room, Shape
from scheduler.core.placement_rules import Scored

PLANS_A_FILL = 12
"""While requests for the whole capacity come in, the plan is made about so often."""

LEARNING = 2
"""In the beginning it is made anew whenever this many times more requests are known."""

VALUE_STEP_MILLI = 10
"""Values that differ by less decide nothing; the order of nodes does."""

FORESEEN = 1e5
REGRET = 3.0
"""How much what a place costs the plan counts against what it costs the node."""

BROKEN = -1e6


class Planned:
    """Places by plan and by what nodes are worth to the mix."""

    def __init__(self) -> None:
        self._mix = Mix()
        self._known = 0
        self._asked_gpu_milli = 0
        self._value: NodeValue | None = None
        self._groups: Groups | None = None
        self._plan: Plan | None = None
        self._kept_whole: list[int] = []

    def learn(self, room: Room, shape: Shape) -> bool:
        self._mix.add(shape)
        self._asked_gpu_milli += shape.gpu_milli_in_all
        is_due = (
            self._mix.total() >= LEARNING * self._known or self._asked_gpu_milli * PLANS_A_FILL >= room.gpu_milli_in_all
        )
        if is_due:
            self._known = self._mix.total()
            self._asked_gpu_milli = 0
            self._value = None
        return is_due

    def score(self, room: Room, shape: Shape, rows: Ints) -> Scored:
        value = self._value or self._renew(room)
        foreseen = self._foreseen(shape, rows, room)
        if shape.is_slice:
            return self._score_slice(value, room, shape, rows, foreseen)
        free = room.gpu_milli[rows]
        cpu = room.cpu_milli[rows]
        models = room.model_of_row[rows]
        untouched = free == WHOLE_GPU
        after = np.where(untouched & (untouched.cumsum(axis=1) <= shape.gpus), 0, free)
        lost = value.of(cpu, value.pieces(free).sum(axis=1), models)
        lost -= value.of(cpu - shape.cpu_milli, value.pieces(after).sum(axis=1), models)
        scores = -np.round(lost / VALUE_STEP_MILLI)
        if shape.gpus:
            scores += foreseen[:, FULL] + self._broken(room, rows, shape.gpus)
        return Scored(scores, np.zeros(len(rows), dtype=np.int64))

    def _score_slice(self, value: NodeValue, room: Room, shape: Shape, rows: Ints, foreseen: Floats) -> Scored:
        free = room.gpu_milli[rows]
        cpu = room.cpu_milli[rows]
        models = room.model_of_row[rows]
        pieces = value.pieces(free)
        together = pieces.sum(axis=1)
        before = value.of(cpu, together, models)
        at, device = np.nonzero(free >= shape.gpu_milli)
        left = free[at, device] - shape.gpu_milli
        after = together[at] - pieces[at, device] + value.pieces(left)
        lost = before[at] - value.of(cpu[at] - shape.cpu_milli, after, models[at])
        scores = np.full(free.shape, -np.inf)
        scores[at, device] = foreseen[at, free[at, device] // LEVEL_MILLI] - np.round(lost / VALUE_STEP_MILLI)
        scores += np.where(free == WHOLE_GPU, self._broken(room, rows, 1)[:, np.newaxis], 0.0)
        return Scored(scores.max(axis=1), scores.argmax(axis=1))

    def _renew(self, room: Room) -> NodeValue:
        if self._groups is None or not self._groups.by_model:
            self._groups = Groups(room, by_model=any(shape.models for shape in self._mix.shapes))
        self._plan = make_plan(room, self._mix, self._groups)
        self._kept_whole = self._needed_whole(room, self._plan)
        self._value = NodeValue(self._mix, room)
        return self._value

    def _foreseen(self, shape: Shape, rows: Ints, room: Room) -> Floats:
        """What the plan adds to the score of each row and level; of foreseen places less room counts more."""
        flow = self._plan.places_of(shape) if self._plan and self._groups and shape.gpus else None
        if flow is None or self._groups is None:
            return np.zeros((len(rows), FULL + 1))
        rank = np.linspace(2, 1.5, FULL + 1) if shape.is_slice else np.ones(FULL + 1)
        table = np.where(flow > 0, FORESEEN * rank, REGRET * flow / VALUE_STEP_MILLI)
        return table[self._groups.of_row[rows]]

    def _needed_whole(self, room: Room, plan: Plan) -> list[int]:
        """Numbers of GPUs for which no node can be spared until the next plan, if all comes as expected."""
        scale = plan.gpu_milli / max(self._mix.gpu_milli, 1)
        step = room.gpu_milli_in_all / WHOLE_GPU / PLANS_A_FILL
        needed: list[int] = []
        for gpus in sorted({shape.gpus for shape in self._mix.shapes if shape.gpus > 1}):
            expected = sum(count for shape, count in self._mix.shapes.items() if shape.gpus == gpus) * scale
            if int((room.untouched // gpus).sum()) <= expected + step / gpus:
                needed.append(gpus)
        return needed

    def _broken(self, room: Room, rows: Ints, gpus: int) -> Floats:
        """What it counts that fewer requests for several GPUs fit a row when so many untouched ones are taken."""
        untouched = room.untouched[rows]
        lost = np.zeros(len(rows), dtype=np.int64)
        for kept in self._kept_whole:
            if kept > gpus:
                lost += untouched // kept - (untouched - gpus) // kept
        return np.where(lost > 0, BROKEN, 0.0)
