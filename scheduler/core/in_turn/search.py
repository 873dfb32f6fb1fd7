"""Victims in turn: popped one by one from an order; the first set that lets the claimant in lawfully is taken.

A try tells the victims to leave, places them and the claimant anew in the normal order of jobs, and asks the step's
own test. A victim that sorts before the claimant gets its place back first, so a gain that the victim's quota would
take back at once is not found. The claimant's workers are added one by one; what a smaller try took stays taken.
Source of the method: the scenario search described for KAI-Scheduler, in our own form.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

import numpy as np

from scheduler.core.in_turn.placing import Placer
from scheduler.core.in_turn.queues import JobQueue, VictimQueue
from scheduler.core.in_turn.state import PoolState
from scheduler.core.rooms import LATER, NOW, Bools
from scheduler.core.world import Work, WorkerKey

Unit = tuple[Work, tuple[WorkerKey, ...]]


@dataclass(eq=False)
class Outcome:
    """What a try came to: victims that leave, and those that only move, in the order of taking."""

    leaving: list[Unit] = field(default_factory=list)
    moving: list[Unit] = field(default_factory=list)


Test = Callable[[Outcome], bool]


class Search:
    """The search for one claimant."""

    def __init__(
        self, state: PoolState, placer: Placer, claimant: Work, victims: Callable[[], VictimQueue], test: Test
    ) -> None:
        self.state, self.placer, self.world = state, placer, state.world
        self.claimant, self.victims, self.test = claimant, victims, test
        self.nodes = self._open_nodes()

    def _open_nodes(self) -> Bools:
        """Nodes with anything free or on its way; all of them if some worker asks for no device."""
        rooms = self.state.rooms
        asks = [self.state.demand.ask(self.claimant, key, self.state.pool) for key in self.state.chunk(self.claimant)]
        if any(not ask.gpus and not ask.shape.quota_gpu_milli for ask in asks):
            return np.ones(len(rooms), dtype=bool)
        free = (rooms.free_devices(LATER) > 0).any(axis=1) | (rooms.free_devices(NOW) > 0).any(axis=1)
        for ask in asks:
            for name, _ in ask.counted:
                if name != "pods" and name in rooms.counted_size:
                    free |= rooms.free_counted(LATER, name) > 0
        return np.asarray(free, dtype=bool)

    def solve(self) -> Outcome | None:
        """The changes of the first lawful try stay in the world; None and nothing changed if there is none."""
        chunk = self.state.chunk(self.claimant)
        recorded: list[Unit] = []
        for count in range(1, len(chunk) + 1):
            found = self._solve_part(chunk[:count], recorded, keep=count == len(chunk))
            if found is None:
                return None
            recorded = [*found.leaving, *found.moving]
        return found if chunk else None

    def _solve_part(self, keys: Sequence[WorkerKey], recorded: list[Unit], *, keep: bool) -> Outcome | None:
        if recorded:
            found = self._try(keys, recorded, keep=keep)
            if found is not None and found is not REJECTED:
                return found
        queue = self.victims()
        taken: list[Unit] = []
        known = {(work.workload.id, key) for work, unit in recorded for key in unit}
        while (popped := queue.pop()) is not None:
            work, unit = popped
            if any((work.workload.id, key) in known for key in unit):
                queue.skip(work, {key for key in unit if (work.workload.id, key) in known})
                unit = [key for key in unit if (work.workload.id, key) not in known]
                if not unit:
                    continue
            taken.append((work, tuple(unit)))
            found = self._try_nodes(keys, recorded, taken, keep=keep)
            if found is not None and found is not REJECTED:
                return found
        return None

    def _try_nodes(
        self, keys: Sequence[WorkerKey], recorded: list[Unit], taken: list[Unit], *, keep: bool
    ) -> Outcome | None:
        """Node by node of the latest victim: all collected jobs that have a worker there leave as well."""
        latest = taken[-1]
        nodes = sorted({latest[0].present[key].place.node for key in latest[1]})
        for node in nodes:
            here = {
                work.workload.id for work, unit in taken if any(work.present[key].place.node == node for key in unit)
            }
            units = [unit for unit in taken if unit[0].workload.id in here]
            found = self._try(keys, [*recorded, *units], keep=keep)
            if found is not None:
                return found
        return None

    def _try(self, keys: Sequence[WorkerKey], units: list[Unit], *, keep: bool) -> Outcome | None:
        """One try: None if the claimant finds no place, `REJECTED` if the step's test says no."""
        allowed = self.nodes.copy()
        for work, unit in units:
            for key in unit:
                allowed[self.state.rooms.row[work.present[key].place.node]] = True
        with self.world.attempt() as attempt:
            for work, unit in units:
                self.placer.tell(work, unit)
            if not self._place_anew(keys, units, allowed):
                return None
            outcome = self._outcome(units)
            if not self.test(outcome):
                return REJECTED
            if keep:
                attempt.keep()
            return outcome

    def _place_anew(self, keys: Sequence[WorkerKey], units: list[Unit], allowed: Bools) -> bool:
        """All waiting jobs and victims in the normal order; only victims and the claimant are placed."""
        claimant = self.claimant.workload.id
        victims = {work.workload.id for work, _ in units}
        waiting = [work for work in self.world.work.values() if self.state.may_be_placed(work)]
        queue = JobQueue(self.state, waiting)
        while (work := queue.pop()) is not None:
            identifier = work.workload.id
            if identifier == claimant:
                return self._place_claimant(keys, allowed, queue, victims)
            if identifier in victims:
                self._place_victim(work, allowed)
        return False

    def _place_claimant(self, keys: Sequence[WorkerKey], allowed: Bools, queue: JobQueue, victims: set[int]) -> bool:
        if not self.placer.place_chunk(self.claimant, keys, later_only=True, allowed=allowed):
            return False
        while (work := queue.pop()) is not None:
            if work.workload.id in victims:
                self._place_victim(work, allowed)
        return True

    def _place_victim(self, work: Work, allowed: Bools) -> None:
        self.placer.place_chunk(work, self.state.chunk(work), later_only=True, allowed=allowed)

    def _outcome(self, units: Iterable[Unit]) -> Outcome:
        outcome = Outcome()
        for work, unit in units:
            moved = self.placer.told.keys() | self.placer.dropped.keys()
            leaving = tuple(key for key in unit if key not in work.present)
            moving = tuple(key for key in unit if key in work.present and (work.workload.id, key) in moved)
            if leaving:
                outcome.leaving.append((work, leaving))
            if moving:
                outcome.moving.append((work, moving))
        return outcome


REJECTED = Outcome()
