"""Which node is best for a request: the scores by which work is placed.

How to use it, live or in a benchmark:

    room = Room(nodes)                  # free amounts; `room.take` whatever runs already
    placer = Placer(room, policy)
    placer.seen(shape)                  # each request that comes, so that the mix is known
    scores = placer.scores(shape)       # one number a row, minus infinity where it does not fit
    spot = placer.choose(shape)         # the best spot, None if there is no room; `allowed` narrows the rows
    placer.place(shape, spot)
    placer.leave(shape, spot)

Scores are kept for each shape, and only rows that changed since are scored again, so that a decision for a
known shape is little more than finding the largest of the kept scores.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from scheduler.core.placement_room import Bools, Floats, Ints, Room, Shape, Spot
from scheduler.core.placement_rules import Policy

NO_ROOM = -np.inf


@dataclass(eq=False)
class _Kept:
    """The scores of a shape as they were after so many changes of the room."""

    scores: Floats
    devices: Ints
    changes: int


class Placer:
    """Chooses spots in a room by a policy."""

    def __init__(self, room: Room, policy: Policy) -> None:
        self.room = room
        self._policy = policy
        self._kept: dict[Shape, _Kept] = {}

    def seen(self, shape: Shape) -> None:
        """A request of this shape has come."""
        if self._policy.learn(self.room, shape):
            self._kept.clear()

    def scores(self, shape: Shape) -> Floats:
        """The score of each row, the best being the highest, `NO_ROOM` where the shape does not fit. Read only."""
        return self._current(shape).scores

    def choose(self, shape: Shape, allowed: Bools | None = None) -> Spot | None:
        """The best spot; of equals the first row. None if no allowed row has room."""
        current = self._current(shape)
        scores = current.scores if allowed is None else np.where(allowed, current.scores, NO_ROOM)
        row = int(scores.argmax())
        if scores[row] == NO_ROOM:
            return None
        return self.room.spot(shape, row, int(current.devices[row]))

    def place(self, shape: Shape, spot: Spot) -> None:
        """The request starts there."""
        self.room.take(shape, spot)

    def leave(self, shape: Shape, spot: Spot) -> None:
        """The request has ended there."""
        self.room.give_back(shape, spot)

    def forget(self) -> None:
        """Score everything afresh when next asked, for a room that was changed behind this one's back."""
        self._kept.clear()

    def _current(self, shape: Shape) -> _Kept:
        kept = self._kept.get(shape)
        if kept is None:
            nothing = np.full(len(self.room), NO_ROOM)
            kept = _Kept(nothing, np.zeros(len(self.room), dtype=np.int64), len(self.room.changes))
            self._kept[shape] = kept
            self._rescore(shape, kept, np.arange(len(self.room)))
        elif kept.changes < len(self.room.changes):
            self._rescore(shape, kept, np.unique(self.room.changes[kept.changes :]))
            kept.changes = len(self.room.changes)
        return kept

    def _rescore(self, shape: Shape, kept: _Kept, rows: Ints) -> None:
        kept.scores[rows] = NO_ROOM
        fitting = rows[self.room.fits(shape, rows)]
        if len(fitting):
            scored = self._policy.score(self.room, shape, fitting)
            kept.scores[fitting] = scored.scores
            kept.devices[fitting] = scored.devices
