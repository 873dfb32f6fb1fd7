"""A queue of jobs over the quota tree: at every pop the best quota level by level, then its best job."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from scheduler.core.in_turn.state import PoolState
from scheduler.core.tree import Row
from scheduler.core.world import Work, WorkerKey, row_of, sum_rows

NOTHING: Row = [0, 0, 0]


class JobQueue:
    """Waiting jobs, the one that comes first popped first. Shares are read at each pop, so they are live."""

    def __init__(self, state: PoolState, jobs: Iterable[Work]) -> None:
        self.state = state
        self.jobs: dict[int, list[Work]] = {}
        for work in jobs:
            self.push(work)

    def push(self, work: Work) -> None:
        """Add a job, or put it back."""
        self.jobs.setdefault(work.quota, []).append(work)

    def pop(self) -> Work | None:
        """The next job, or None when all are popped."""
        found = self._best(self.state.tree.roots, {})
        if found is None:
            return None
        work = found[1]
        self.jobs[work.quota].remove(work)
        if not self.jobs[work.quota]:
            del self.jobs[work.quota]
        return work

    def _best(self, quotas: Iterable[int], known: dict[int, Row]) -> tuple[int, Work] | None:
        """The first of sibling quotas that has a job below it, with that job."""
        state = self.state
        best: dict[int, Work] = {}
        for quota in quotas:
            found = self._best_below(quota, known)
            if found is not None:
                best[quota] = found
        if not best:
            return None
        charges = {quota: self._charge(work, known) for quota, work in best.items()}
        first = state.first_quota(list(best), charges, dict.fromkeys(best, NOTHING))
        return first, best[first]

    def _best_below(self, quota: int, known: dict[int, Row]) -> Work | None:
        if self.jobs.get(quota):
            return min(self.jobs[quota], key=self.state.jobs_key)
        found = self._best(self.state.tree.children[quota], known)
        return found[1] if found else None

    def _charge(self, work: Work, known: dict[int, Row]) -> Row:
        identifier = work.workload.id
        if identifier not in known:
            known[identifier] = self.state.charge(work, self.state.chunk(work))
        return known[identifier]


class VictimQueue:
    """Jobs that may be taken from, in units; the quota that comes last gives first, its last job first."""

    def __init__(self, state: PoolState, jobs: Mapping[Work, Iterable[WorkerKey]]) -> None:
        self.state = state
        self.left: dict[int, set[WorkerKey]] = {}
        self.jobs: dict[int, list[Work]] = {}
        self.taken: dict[int, list[Row]] = {}
        for work, keys in jobs.items():
            self.left[work.workload.id] = set(keys)
            self.jobs.setdefault(work.quota, []).append(work)

    def pop(self) -> tuple[Work, list[WorkerKey]] | None:
        """The next unit: a job and the workers taken of it, or None."""
        found = self._last(self.state.tree.roots)
        if found is None:
            return None
        work = found
        left = self.left[work.workload.id]
        unit = self.state.eviction_unit(work, left)
        self.taken.setdefault(work.quota, []).append(self._held(work, left))
        left -= set(unit)
        if not left:
            self._remove(work)
        return work, unit

    def skip(self, work: Work, recorded: set[WorkerKey]) -> None:
        """Leave out workers that were taken before."""
        left = self.left[work.workload.id]
        if left and left <= recorded:
            self._remove(work)
        left -= recorded

    def _remove(self, work: Work) -> None:
        self.jobs[work.quota].remove(work)
        if not self.jobs[work.quota]:
            del self.jobs[work.quota]

    def _last(self, quotas: Iterable[int]) -> Work | None:
        best: dict[int, Work] = {}
        for quota in quotas:
            found = self._last_below(quota)
            if found is not None:
                best[quota] = found
        if not best:
            return None
        lost = {quota: self._lost(work) for quota, work in best.items()}
        last = self.state.first_quota(list(best), dict.fromkeys(best, NOTHING), lost, last=True)
        return best[last]

    def _last_below(self, quota: int) -> Work | None:
        if self.jobs.get(quota):
            return max(self.jobs[quota], key=lambda work: self.state.jobs_key(work, self.left[work.workload.id]))
        return self._last(self.state.tree.children[quota])

    def _lost(self, work: Work) -> Row:
        """What its quota would have lost with the units popped so far and this job."""
        return sum_rows([*self.taken.get(work.quota, []), self._held(work, self.left[work.workload.id])])

    @staticmethod
    def _held(work: Work, keys: Iterable[WorkerKey]) -> Row:
        return sum_rows(row_of(work.present[key].place) for key in keys)
