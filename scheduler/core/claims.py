"""What waiting work asks for: the next workers to place together, and each quota's demand."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from scheduler.core.divide import OwnAsk, no_ask
from scheduler.core.model import IdleUse, Kind, Reservation, Shape, WorkerGroup, Workload
from scheduler.core.rooms import Ask
from scheduler.core.tree import RESOURCES, Row
from scheduler.core.world import Work, WorkerKey, World, row_of, sum_rows

_KINDS = 4
"""So many kinds of request are looked at when nodes are compared by what they could still be used for."""


@dataclass(frozen=True, eq=False)
class Form:
    """What all workloads with the same quota, kind and groups have in common in one pool."""

    asks: tuple[Ask, ...]
    """The request of an ordinary worker of each group."""
    least: Row
    """What the smallest part that may start alone is charged."""
    never: str
    """Why some worker fits on no node of the pool even when empty; empty if all do."""
    could_run: bool
    """Whether nodes and limits could ever let it run."""


@dataclass(frozen=True, eq=False)
class Claim:
    """Workers that start together or not at all."""

    work: Work
    keys: tuple[WorkerKey, ...]
    growth: bool
    """An elastic workload at its minimum wants more: it may reclaim, but never preempts by priority."""

    @property
    def workload(self) -> Workload:
        """Whose claim it is."""
        return self.work.workload


class Demand:
    """Forms of workloads, their claims, and what every quota asks for."""

    def __init__(self, world: World) -> None:
        self.world = world
        self._by_identity: dict[tuple[int, int, Kind, int], Form] = {}
        self._by_value: dict[tuple[int, int, Kind, tuple[WorkerGroup, ...]], Form] = {}
        self._next: dict[int, tuple[int, Claim | None]] = {}

    def next(self, work: Work) -> Claim | None:
        """The next workers it wants together; remembered until what it holds changes."""
        known = self._next.get(work.workload.id)
        if known is None or known[0] != work.changes:
            known = self._next[work.workload.id] = (work.changes, next_claim(work))
        return known[1]

    def form(self, work: Work, pool: int) -> Form:
        """The form of a workload in a pool."""
        workload = work.workload
        quick = (pool, work.quota, workload.kind, id(workload.groups))
        form = self._by_identity.get(quick)
        if form is None:
            key = (pool, work.quota, workload.kind, workload.groups)
            form = self._by_value.get(key)
            if form is None:
                form = self._by_value[key] = self._make_form(work, pool)
            self._by_identity[quick] = form
        return form

    def _make_form(self, work: Work, pool: int) -> Form:
        groups = work.workload.groups
        asks = tuple(self.world.ask_of(work, group.shape, pool) for group in groups)
        others = [
            self.world.ask_of(work, shape, pool)
            for group in groups
            for index, shape in group.overrides
            if index < group.wanted
        ]
        never = next((ask.never for ask in (*asks, *others) if ask.never), "")
        least = sum_rows(
            self.world.ask_of(work, shape_of(groups[place], index), pool).charge
            for place, index in first_keys(work.workload)
        )
        could_run = not never and self._within_limits(work.quota, least, pool)
        return Form(asks, least, never, could_run)

    def ask(self, work: Work, key: WorkerKey, pool: int) -> Ask:
        """The request of one worker."""
        group = work.workload.groups[key[0]]
        if group.overrides:
            return self.world.ask_of(work, shape_of(group, key[1]), pool)
        return self.form(work, pool).asks[key[0]]

    def amount(self, work: Work, keys: Iterable[WorkerKey], pool: int) -> Row:
        """What the quota is charged for workers, before their nodes are known."""
        if not work.changes and not work.present:
            return self.form(work, pool).least if keys is self._first(work) else self._sum(work, keys, pool)
        return self._sum(work, keys, pool)

    def _first(self, work: Work) -> tuple[WorkerKey, ...] | None:
        known = self._next.get(work.workload.id)
        return known[1].keys if known is not None and known[1] is not None else None

    def _sum(self, work: Work, keys: Iterable[WorkerKey], pool: int) -> Row:
        counts: dict[Ask, int] = {}
        for key in keys:
            ask = self.ask(work, key, pool)
            counts[ask] = counts.get(ask, 0) + 1
        return sum_rows([count * each for each in ask.charge] for ask, count in counts.items())

    def could_run(self, work: Work, pool: int) -> bool:
        """Not of a shape that no node has, and within the limits of its quota and all above it."""
        return self.form(work, pool).could_run and pool in self.world.wanted_pools(work)

    def _within_limits(self, quota: int, least: Row, pool: int) -> bool:
        limits = self.world.pools[pool].accounts.books.limit
        path = self.world.tree.path[quota]
        return all(not least[r] or least[r] <= limits[above][r] for above in path for r in RESOURCES)

    def by_quota(self, pool: int, reserved: Iterable[Reservation] = ()) -> list[OwnAsk]:
        """What each quota's own work asks for: all that runs, and what waits and could run.

        Room that is reserved counts for its claimant as if it had it already.
        """
        asks = [no_ask() for _ in self.world.tree.quotas]
        for member in self.world.pools[pool].accounts.member.values():
            self._add(asks[member.quota], self.world.work[member.workload.id], member.held[1], held=True)
        for work in self.world.work.values():
            if is_waiting(work) and self.could_run(work, pool):
                self._add(asks[work.quota], work, self.missing(work, pool), held=False)
        for reservation in reserved:
            claimant = self.world.work.get(reservation.claimant)
            if claimant is None or reservation.pool != pool:
                continue
            if is_waiting(claimant) and self.could_run(claimant, pool):
                amount = sum_rows(row_of(place) for place in reservation.places)
                self.let_in(asks[claimant.quota], claimant, amount)
        return asks

    def note_mix(self, pool: int) -> None:
        """Tell the nodes which requests are most common: among nodes it matters what they could still be used for."""
        counts: dict[Ask, int] = {}
        for work in self.world.work.values():
            if pool in self.world.wanted_pools(work):
                for ask, group in zip(self.form(work, pool).asks, work.workload.groups, strict=True):
                    counts[ask] = counts.get(ask, 0) + group.wanted
        common = sorted((-count, ask.index, ask) for ask, count in counts.items() if ask.gpus)
        self.world.pools[pool].rooms.mix = [(ask, -count) for count, _, ask in common[:_KINDS]]

    def let_in(self, ask: OwnAsk, work: Work, amount: Sequence[int], sign: int = 1) -> None:
        """A waiting switch claimant is let in with so much (or is not after all): others are cut for it."""
        if not work.switch_claimant:
            return
        for r in RESOURCES:
            ask.switch[r] += sign * amount[r]
            ask.switch_waiting[r] -= sign * amount[r]

    def missing(self, work: Work, pool: int) -> Row:
        """What it still wants in all."""
        form = self.form(work, pool)
        rows = []
        for place, group in enumerate(work.workload.groups):
            count = group.wanted - work.present_in(place)
            if count > 0:
                rows.append([count * each for each in form.asks[place].charge])
        return sum_rows(rows)

    def _add(self, ask: OwnAsk, work: Work, amount: Row, *, held: bool) -> None:
        idle = work.workload.idle
        tables = [ask.held] if held else []
        if work.switch_claimant:
            tables.append(ask.switch if held else ask.switch_waiting)
            if idle is IdleUse.ALLOW:
                tables.append(ask.switch_idle)
        elif idle is IdleUse.ONLY:
            tables.append(ask.only)
        else:
            tables.append(ask.firm)
            if idle is IdleUse.ALLOW:
                tables.append(ask.firm_idle)
        for table in tables:
            for r in RESOURCES:
                table[r] += amount[r]


def is_waiting(work: Work) -> bool:
    """Whether it wants more than it has, now or as soon as what leaves of it has gone."""
    workload = work.workload
    if workload.ending or workload.held:
        return False
    if not work.present:
        return any(group.wanted for group in workload.groups)
    return any(work.present_in(place) < group.wanted for place, group in enumerate(workload.groups))


def first_keys(workload: Workload) -> tuple[WorkerKey, ...]:
    """The smallest part of a workload of which nothing runs that may start alone."""
    keys = [(place, index) for place, group in enumerate(workload.groups) for index in range(group.minimum)]
    return tuple(keys) if keys else _one_more(workload, {})


def next_claim(work: Work) -> Claim | None:
    """The next workers it wants together: what its minimum lacks, else one worker."""
    workload = work.workload
    if not work.present and not work.leaving:
        keys = first_keys(workload)
        return Claim(work, keys, growth=False) if keys else None
    taken = set(work.present) | set(work.leaving)
    lacking: list[WorkerKey] = []
    for place, group in enumerate(workload.groups):
        count = group.minimum - work.present_in(place)
        lacking += unused(place, count, taken)
    if lacking:
        return Claim(work, tuple(lacking), growth=False)
    keys = _one_more(workload, {place: work.present_in(place) for place in range(len(workload.groups))}, taken)
    return Claim(work, keys, growth=workload.gang) if keys else None


def _one_more(
    workload: Workload, present: dict[int, int], taken: set[WorkerKey] | None = None
) -> tuple[WorkerKey, ...]:
    for place, group in enumerate(workload.groups):
        if present.get(place, 0) < group.wanted:
            return tuple(unused(place, 1, taken or set()))
    return ()


def unused(group: int, count: int, taken: set[WorkerKey]) -> list[WorkerKey]:
    """The lowest keys of a group that nothing holds."""
    keys: list[WorkerKey] = []
    index = 0
    while len(keys) < count:
        if (group, index) not in taken:
            keys.append((group, index))
        index += 1
    return keys


def shape_of(group: WorkerGroup, index: int) -> Shape:
    """What a worker asks for."""
    return next((shape for at, shape in group.overrides if at == index), group.shape)


def surplus(work: Work) -> list[WorkerKey]:
    """Workers beyond what it wants, as many as must leave, the highest index first."""
    keys: list[WorkerKey] = []
    for place, group in enumerate(work.workload.groups):
        present = sorted((key for key in work.present if key[0] == place), reverse=True)
        keys += present[: max(0, len(present) - group.wanted)]
    return keys
