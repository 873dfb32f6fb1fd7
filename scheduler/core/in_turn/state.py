"""What the in-turn steps know of one pool: usage and shares of quotas, chunks of jobs, and their order."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import cmp_to_key

from scheduler.core.claims import Demand
from scheduler.core.in_turn.settings import InTurn
from scheduler.core.in_turn.shares import fair_shares
from scheduler.core.resources import UNBOUNDED
from scheduler.core.rooms import LATER
from scheduler.core.tree import POOL, RESOURCES, Row
from scheduler.core.world import Work, WorkerKey, World, row_of, sum_rows

ZERO_SHARE = 1000.0
"""How heavily use weighs where a quota's share is nothing."""


class PoolState:
    """One pool during the steps. Usage counts what runs and what has its place, not what leaves."""

    def __init__(self, world: World, pool: int, settings: InTurn) -> None:
        self.world, self.pool, self.settings = world, pool, settings
        self.demand = Demand(world)
        at = world.pools[pool]
        self.rooms, self.accounts, self.books = at.rooms, at.accounts, at.accounts.books
        self.tree = world.tree
        self.total = self.rooms.capacity()
        self.really_leaving = {(work.workload.id, key) for work in world.work.values() for key in work.leaving}
        self.fair = fair_shares(self.tree, self.books, self.total, self._requests())

    def _requests(self) -> list[Row]:
        """What each subtree holds and waits for, whether it could run or not."""
        own: list[Row] = [[0, 0, 0] for _ in self.tree.quotas]
        for work in self.world.work.values():
            rows = [own[work.quota], *(row_of(held.place) for held in work.present.values())]
            if not work.workload.ending:
                rows += [self.charge(work, [key]) for key in self.waiting_keys(work)]
            own[work.quota] = sum_rows(rows)
        for quota in reversed(range(len(own))):
            above = self.tree.parent[quota]
            if above != POOL:
                own[above] = sum_rows([own[above], own[quota]])
        return own

    # --- amounts ---------------------------------------------------------------------------------------

    def used(self, quota: int) -> Row:
        """What a quota and all below it hold."""
        return self.accounts.used[LATER][quota]

    def used_firmly(self, quota: int) -> Row:
        """The part of it that is held by work that is not preemptible."""
        return sum_rows(
            member.held[LATER]
            for member in self.accounts.member.values()
            if not member.workload.preemptible and quota in self.tree.path[member.quota]
        )

    def allocatable(self, quota: int) -> Row:
        """What a quota may hold by right: its limit, and no more than the larger of promise and share."""
        promised, limit, fair = self.books.guaranteed[quota], self.books.limit[quota], self.fair[quota]
        return [limit[r] if promised[r] >= UNBOUNDED else min(limit[r], max(promised[r], fair[r])) for r in RESOURCES]

    def dominant_share(self, quota: int, change: Sequence[int] = (0, 0, 0)) -> float:
        """The largest of the resources' parts of what the quota may hold, after a change of its use."""
        used, bound = self.used(quota), self.allocatable(quota)
        parts = []
        for r in RESOURCES:
            amount = used[r] + change[r]
            whole = self.total[r] if bound[r] >= UNBOUNDED else bound[r]
            parts.append(amount / whole if whole else amount * ZERO_SHARE)
        return max(parts)

    # --- jobs ------------------------------------------------------------------------------------------

    def waiting_keys(self, work: Work) -> list[WorkerKey]:
        """Workers that have no place and do not leave by themselves, in order."""
        identifier = work.workload.id
        return [
            (group, index)
            for group, wanted in enumerate(work.workload.groups)
            for index in range(wanted.wanted)
            if (group, index) not in work.present and (identifier, (group, index)) not in self.really_leaving
        ]

    def group_order(self, work: Work) -> list[int]:
        """Groups below their minimum first, then the emptier, then by name."""
        groups = work.workload.groups

        def key(group: int) -> tuple[bool, float, str, int]:
            present, minimum = work.present_in(group), groups[group].minimum
            return present >= minimum, present / minimum if minimum else float(present), groups[group].name, group

        return sorted(range(len(groups)), key=key)

    def chunk(self, work: Work) -> list[WorkerKey]:
        """The workers that are placed at once: what minimums lack, else one more."""
        waiting = self.waiting_keys(work)
        order = self.group_order(work)
        lacking: list[WorkerKey] = []
        is_below = False
        for group in order:
            missing = work.workload.groups[group].minimum - work.present_in(group)
            if missing > 0:
                is_below = True
                lacking += [key for key in waiting if key[0] == group][:missing]
        if is_below:
            return lacking
        for group in order:
            of_group = [key for key in waiting if key[0] == group]
            if of_group:
                return of_group[:1]
        return []

    def eviction_unit(self, work: Work, present: Iterable[WorkerKey]) -> list[WorkerKey]:
        """What is taken at once of those workers: one of a group above its minimum, else all."""
        keys = sorted(present)
        groups = work.workload.groups
        counts = {group: sum(1 for key in keys if key[0] == group) for group in range(len(groups))}
        above = [group for group in reversed(self.group_order(work)) if counts[group] > groups[group].minimum]
        if above:
            return [max(key for key in keys if key[0] == above[0])]
        return keys

    def charge(self, work: Work, keys: Iterable[WorkerKey]) -> Row:
        """What quotas are charged for those workers, before their nodes are known."""
        return self.demand.amount(work, keys, self.pool)

    def may_be_placed(self, work: Work) -> bool:
        """Whether it waits for something and every group has as many living workers as it needs."""
        if work.workload.ending or work.workload.held or self.pool not in self.world.wanted_pools(work):
            return False
        groups = work.workload.groups
        return bool(self.waiting_keys(work)) and all(group.wanted >= group.minimum for group in groups)

    def jobs_key(self, work: Work, keys: Iterable[WorkerKey] | None = None) -> tuple[int, int, int, int]:
        """The order inside a quota: priority, those below their minimum, age, id.

        With `keys` as if only those workers were there.
        """
        groups = work.workload.groups
        there = list(work.present if keys is None else keys)
        present = [sum(1 for key in there if key[0] == place) for place in range(len(groups))]
        below = any(count < group.minimum for count, group in zip(present, groups, strict=True))
        above = any(count > group.minimum for count, group in zip(present, groups, strict=True))
        fill = 0 if below else 2 if above else 1
        return -work.workload.priority, fill, work.workload.submitted_ms, work.workload.id

    # --- the order of quotas ---------------------------------------------------------------------------

    def compare(self, one: int, other: int, job: Row, other_job: Row, lost: Row, other_lost: Row) -> int:
        """Which of two sibling quotas comes first: negative for the first. Jobs add to use, lost victims take off."""
        for mine, theirs in self._criteria(one, other, job, other_job, lost, other_lost):
            if mine != theirs:
                return -1 if mine < theirs else 1
        smaller = self._smaller(self.allocatable(one), self.allocatable(other))
        if smaller:
            return smaller
        quotas = self.tree.quotas
        first = (quotas[one].created_ms, quotas[one].id) < (quotas[other].created_ms, quotas[other].id)
        return -1 if first else 1

    def _criteria(
        self, one: int, other: int, job: Row, other_job: Row, lost: Row, other_lost: Row
    ) -> Iterable[tuple[float, float]]:
        yield self._is_overfull(one), self._is_overfull(other)
        yield not self._is_starved(one, job), not self._is_starved(other, other_job)
        yield self.books.rank[one], self.books.rank[other]
        yield self._has_no_share(one, job), self._has_no_share(other, other_job)
        change = [job[r] - lost[r] for r in RESOURCES]
        other_change = [other_job[r] - other_lost[r] for r in RESOURCES]
        yield self.dominant_share(one, change), self.dominant_share(other, other_change)
        yield self.dominant_share(one), self.dominant_share(other)

    def _is_overfull(self, quota: int) -> bool:
        used, fair = self.used(quota), self.fair[quota]
        return all(fair[r] < used[r] for r in RESOURCES)

    def _is_starved(self, quota: int, job: Row) -> bool:
        used, promised = self.used(quota), self.books.guaranteed[quota]
        return all(promised[r] >= UNBOUNDED or used[r] + job[r] <= promised[r] for r in RESOURCES)

    def _has_no_share(self, quota: int, job: Row) -> bool:
        used, bound = self.used(quota), self.allocatable(quota)
        return any(not bound[r] and used[r] + job[r] > 0 for r in RESOURCES)

    @staticmethod
    def _smaller(one: Row, other: Row) -> int:
        if one == other:
            return 0
        if all(a <= b for a, b in zip(one, other, strict=True)):
            return -1
        if all(a >= b for a, b in zip(one, other, strict=True)):
            return 1
        return 0

    def first_quota(
        self, quotas: Sequence[int], job_of: dict[int, Row], lost_of: dict[int, Row], *, last: bool = False
    ) -> int:
        """The first (or the last) of sibling quotas, each seen through the best job below it."""

        def compare(one: int, other: int) -> int:
            return self.compare(one, other, job_of[one], job_of[other], lost_of[one], lost_of[other])

        ordered = sorted(quotas, key=cmp_to_key(compare))
        return ordered[-1 if last else 0]
