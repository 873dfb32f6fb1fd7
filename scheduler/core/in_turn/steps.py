"""The steps of an in-turn cycle and their tests: allocate, consolidate, reclaim, preempt, stop stale gangs."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

import numpy as np

from scheduler.core.in_turn.placing import Placer
from scheduler.core.in_turn.queues import JobQueue, VictimQueue
from scheduler.core.in_turn.search import Outcome, Search
from scheduler.core.in_turn.settings import InTurn, Step
from scheduler.core.in_turn.state import PoolState
from scheduler.core.model import (
    Eviction,
    Move,
    OrderKind,
    Place,
    Plan,
    Reservation,
    ReservationKind,
    Rule,
    Shrink,
    Start,
)
from scheduler.core.resources import UNBOUNDED
from scheduler.core.rooms import LATER
from scheduler.core.tree import RESOURCES, Row
from scheduler.core.world import Work, WorkerKey, World, all_reservations, row_of, sum_rows

CLAIM_OF = {Step.RECLAIM: Rule.SHARE, Step.PREEMPT: Rule.PRIORITY, Step.CONSOLIDATE: None}


class Turns:
    """One cycle in one pool."""

    def __init__(self, world: World, pool: int, settings: InTurn) -> None:
        self.world, self.pool, self.settings = world, pool, settings
        kept = take_reserved(world, pool)
        self.state = PoolState(world, pool, settings)
        self.placer = Placer(self.state)
        self.placer.reserved.update(kept)
        self.causes: dict[tuple[int, WorkerKey], tuple[Rule | None, int | None]] = {}
        """Why a worker was told to leave: the rule and the claimant."""

    def run(self) -> None:
        """All steps of the settings, each on what the earlier ones left."""
        steps: dict[Step, Callable[[], None]] = {
            Step.ALLOCATE: self.allocate,
            Step.CONSOLIDATE: self.consolidate,
            Step.RECLAIM: self.reclaim,
            Step.PREEMPT: self.preempt,
            Step.STALE: self.stop_stale,
        }
        for step in self.settings.steps:
            steps[step]()

    def _waiting(self, *, movable_only: bool = False) -> list[Work]:
        return [
            work
            for work in self.world.work.values()
            if self.state.may_be_placed(work) and (work.workload.preemptible or not movable_only)
        ]

    # --- allocate --------------------------------------------------------------------------------------

    def allocate(self) -> None:
        """Place what fits without telling anybody to leave; growing work goes back into the queue."""
        everywhere = np.ones(len(self.state.rooms), dtype=bool)
        queue = JobQueue(self.state, self._waiting())
        while (work := queue.pop()) is not None:
            chunk = self.state.chunk(work)
            placed = self.placer.place_chunk(work, chunk, later_only=False, allowed=everywhere)
            if placed and self.state.waiting_keys(work):
                queue.push(work)

    # --- the searching steps ---------------------------------------------------------------------------

    def _search(
        self,
        step: Step,
        claimants: Iterable[Work],
        may_try: Callable[[Work, Row], bool],
        victims: Callable[[Work], list[Work]],
        test: Callable[[Work, Row, Outcome], bool],
    ) -> None:
        queue = JobQueue(self.state, claimants)
        while (work := queue.pop()) is not None:
            asked = self.state.charge(work, self.state.chunk(work))
            if not may_try(work, asked):
                continue
            search = Search(
                self.state,
                self.placer,
                work,
                lambda work=work: VictimQueue(  # type: ignore[misc]
                    self.state, {victim: self.placer.can_lose(victim) for victim in victims(work)}
                ),
                lambda outcome, work=work, asked=asked: test(work, asked, outcome),  # type: ignore[misc]
            )
            found = search.solve()
            if found is not None:
                self._note(step, work, found)

    def _note(self, step: Step, claimant: Work, found: Outcome) -> None:
        for work, keys in [*found.leaving, *found.moving]:
            for key in keys:
                self.causes[work.workload.id, key] = (CLAIM_OF[step], claimant.workload.id)

    def consolidate(self) -> None:
        """Move work so that a waiting job fits; nothing may be left without a place."""

        def may_try(work: Work, asked: Row) -> bool:
            free = int(self.state.rooms.free_devices(LATER).sum()) // 1000
            return self.settings.most_movers != 0 and asked[0] <= free + self._counted_free(work)

        def victims(claimant: Work) -> list[Work]:
            movable = [work for work in self._running() if work is not claimant]
            most = self.settings.most_movers
            return movable if most is None else movable[: most + 1]

        self._search(
            Step.CONSOLIDATE,
            self._waiting(movable_only=True),
            may_try,
            victims,
            lambda work, asked, outcome: not outcome.leaving,
        )

    def _counted_free(self, work: Work) -> int:
        """Thousandths of GPUs that the work asks for as counted resources are not looked for among the devices."""
        asks = [self.state.demand.ask(work, key, self.pool) for key in self.state.chunk(work)]
        return sum(ask.shape.quota_gpu_milli or 0 for ask in asks)

    def _running(self) -> list[Work]:
        return [work for work in self.world.work.values() if work.workload.preemptible and self.placer.can_lose(work)]

    def reclaim(self) -> None:
        """Take back from other quotas what they hold beyond their due."""

        def may_try(work: Work, asked: Row) -> bool:
            used, fair = self.state.used(work.quota), self.state.fair[work.quota]
            if any(used[r] + asked[r] > fair[r] for r in RESOURCES):
                return False
            return work.workload.preemptible or self._within_promise(work.quota, asked)

        self._search(
            Step.RECLAIM,
            self._waiting(),
            may_try,
            lambda claimant: [work for work in self._running() if work.quota != claimant.quota],
            self._may_reclaim,
        )

    def _within_promise(self, quota: int, asked: Row) -> bool:
        firm, promised = self.state.used_firmly(quota), self.state.books.guaranteed[quota]
        return all(promised[r] >= UNBOUNDED or firm[r] + asked[r] <= promised[r] for r in RESOURCES)

    def preempt(self) -> None:
        """Inside a quota higher priority takes the place of lower."""

        def may_try(work: Work, asked: Row) -> bool:
            return work.workload.preemptible or self.placer.fits_promises(work, asked)

        def victims(claimant: Work) -> list[Work]:
            return [
                work
                for work in self._running()
                if work.quota == claimant.quota and work.workload.priority < claimant.workload.priority
            ]

        self._search(Step.PREEMPT, self._waiting(), may_try, victims, lambda work, asked, outcome: True)

    # --- whether a reclaim is lawful -------------------------------------------------------------------

    def _may_reclaim(self, claimant: Work, asked: Row, outcome: Outcome) -> bool:
        """Each bundle comes from a side that is beyond its due, and the claimant's sides stay within theirs.

        Judged on usage before the try: the try's own changes are taken off again.
        """
        before = self._usage_before(claimant, outcome)
        left = {quota: list(row) for quota, row in before.items()}
        lost: dict[int, Row] = {}
        for work, keys in outcome.leaving:
            for bundle in self._bundles(work, keys):
                if not self._is_beyond_due(claimant, asked, work, before, left):
                    return False
                amount = sum_rows(row_of(self.placer.taken_from((work.workload.id, key))) for key in bundle)
                for quota in self.state.tree.path[work.quota]:
                    left[quota] = [left[quota][r] - amount[r] for r in RESOURCES]
                    lost[quota] = sum_rows([lost.get(quota, [0, 0, 0]), amount])
        return self._stays_within(claimant, asked, left, lost)

    def _usage_before(self, claimant: Work, outcome: Outcome) -> dict[int, Row]:
        """Usage as it was: with the victims that leave, without the claimant's new places."""
        usage = {quota: list(self.state.used(quota)) for quota in range(len(self.state.tree.quotas))}
        changes = [
            (work, row_of(self.placer.taken_from((work.workload.id, key))), +1)
            for work, keys in outcome.leaving
            for key in keys
        ]
        changes += [
            (claimant, row_of(held.place), -1)
            for key, held in claimant.present.items()
            if not held.live and (claimant.workload.id, key) in self.placer.reserved
        ]
        for work, amount, sign in changes:
            for quota in self.state.tree.path[work.quota]:
                usage[quota] = [usage[quota][r] + sign * amount[r] for r in RESOURCES]
        return usage

    def _bundles(self, work: Work, keys: Sequence[WorkerKey]) -> list[list[WorkerKey]]:
        """Surplus workers one by one, then the rest together."""
        groups = work.workload.groups
        surplus: list[WorkerKey] = []
        for place, group in enumerate(groups):
            of_group = sorted((key for key in keys if key[0] == place), reverse=True)
            held = len(of_group) + work.present_in(place)
            surplus += of_group[: max(0, held - group.minimum)]
        rest = [key for key in keys if key not in surplus]
        return [*([key] for key in surplus), *([rest] if rest else [])]

    def _is_beyond_due(
        self, claimant: Work, asked: Row, victim: Work, before: dict[int, Row], left: dict[int, Row]
    ) -> bool:
        """The victim's side holds more than it may, or more than its promise while the claimant is within its own."""
        side, other = self._sides(claimant, victim)
        allocatable, promised = self.state.allocatable(other), self.state.books.guaranteed[other]
        if any(left[other][r] > allocatable[r] for r in RESOURCES if allocatable[r] < UNBOUNDED):
            return True
        own = self.state.books.guaranteed[side]
        within = all(own[r] >= UNBOUNDED or before[side][r] + asked[r] <= own[r] for r in RESOURCES)
        return within and any(left[other][r] > promised[r] for r in RESOURCES if promised[r] < UNBOUNDED)

    def _sides(self, one: Work, other: Work) -> tuple[int, int]:
        """The quotas of both paths at the first level where they differ (the last they share, if none does)."""
        path, others = self.state.tree.path[one.quota], self.state.tree.path[other.quota]
        for mine, theirs in zip(path, others, strict=False):
            if mine != theirs:
                return mine, theirs
        shortest = min(len(path), len(others)) - 1
        return path[shortest], others[shortest]

    def _stays_within(self, claimant: Work, asked: Row, left: dict[int, Row], lost: dict[int, Row]) -> bool:
        """On every level the claimant's side is within its fair share, or still relatively emptier than who lost."""
        tree = self.state.tree
        for quota in reversed(tree.path[claimant.quota]):
            after = [left[quota][r] + asked[r] for r in RESOURCES]
            above = tree.parent[quota]
            siblings = tree.roots if above < 0 else tree.children[above]
            for sibling in siblings:
                if sibling == quota or sibling not in lost:
                    continue
                if not self._is_emptier(quota, after, sibling, left[sibling], asked, lost[sibling]):
                    return False
            if not claimant.workload.preemptible:
                firm, promised = self._firm_before(claimant, quota), self.state.books.guaranteed[quota]
                if any(promised[r] < UNBOUNDED and firm[r] + asked[r] > promised[r] for r in RESOURCES):
                    return False
        return True

    def _firm_before(self, claimant: Work, quota: int) -> Row:
        """Firm use without the claimant's new places."""
        firm = self.state.used_firmly(quota)
        new = sum_rows(
            row_of(held.place)
            for key, held in claimant.present.items()
            if (claimant.workload.id, key) in self.placer.reserved
        )
        return [firm[r] - new[r] for r in RESOURCES]

    def _is_emptier(self, quota: int, after: Row, sibling: int, rest: Row, asked: Row, taken: Row) -> bool:
        for r in RESOURCES:
            if not asked[r] and not taken[r]:
                continue
            mine = _ratio(after[r], self.state.fair[quota][r])
            theirs = _ratio(rest[r], self.state.fair[sibling][r])
            if mine > 1 and self.state.fair[sibling][r] > 0 and mine >= theirs:
                return False
        return True

    # --- stale gangs -----------------------------------------------------------------------------------

    def stop_stale(self) -> None:
        """Stop what is left of gangs that have been below their minimum for too long, preemptible or not."""
        for work in list(self.world.work.values()):
            since = work.workload.stale_since_ms
            live = [key for key, held in work.present.items() if held.live]
            if since is None or not live or self.world.now_ms - since < self.world.policy.stale_grace_ms:
                continue
            groups = work.workload.groups
            leaving = [key[0] for key in work.leaving]
            if all(
                work.present_in(place) + leaving.count(place) >= group.minimum for place, group in enumerate(groups)
            ):
                continue
            self.placer.tell(work, live)
            for key in live:
                self.causes[work.workload.id, key] = (Rule.ORDER, None)

    # --- the plan --------------------------------------------------------------------------------------

    def plan(self) -> Plan:
        """What the steps came to."""
        starts: list[Start] = []
        reserved: dict[int, list[Place]] = {}
        for work in self.world.work.values():
            grows = work.is_live
            for key, held in sorted(work.present.items()):
                if held.live or held.pool != self.pool:
                    continue
                if (work.workload.id, key) in self.placer.reserved:
                    reserved.setdefault(work.workload.id, []).append(held.place)
                else:
                    starts.append(Start(held.place, grows))
        moves = [
            Move(identifier, self.pool, self._claimant_of(identifier), tuple(places))
            for identifier, places in sorted(reserved.items())
            if any(entry[0] == identifier for entry in self.placer.told)
        ]
        moved = {move.workload for move in moves}
        opened = tuple(
            Reservation(identifier, self.pool, ReservationKind.HANDOVER, tuple(places), opened_ms=self.world.now_ms)
            for identifier, places in sorted(reserved.items())
            if identifier not in moved
        )
        evictions, shrinks = self._stops()
        return Plan(tuple(starts), evictions, shrinks, tuple(moves), opened=opened)

    def _claimant_of(self, identifier: int) -> int:
        return next(
            (claimant for (work, _), (_, claimant) in sorted(self.causes.items()) if work == identifier and claimant),
            0,
        )

    def _stops(self) -> tuple[tuple[Eviction, ...], tuple[Shrink, ...]]:
        gone: dict[int, list[WorkerKey]] = {}
        for identifier, key in sorted(self.placer.told):
            if key not in self.world.work[identifier].present:
                gone.setdefault(identifier, []).append(key)
        evictions, shrinks = [], []
        for identifier, keys in gone.items():
            rule, claimant = self.causes.get((identifier, keys[0]), (None, None))
            order = OrderKind.STALE if rule is Rule.ORDER else None
            if self.world.work[identifier].present:
                shrinks.append(Shrink(identifier, tuple(keys), rule or Rule.SHARE, self.pool, claimant, order))
            else:
                evictions.append(Eviction(identifier, rule or Rule.SHARE, self.pool, claimant, order))
        return tuple(evictions), tuple(shrinks)


def take_reserved(world: World, pool: int) -> list[tuple[int, WorkerKey]]:
    """Places of open reservations are kept; returns whose they are."""
    kept = []
    for reservation in all_reservations(world.snapshot):
        work = world.work.get(reservation.claimant)
        for place in reservation.places if work is not None and reservation.pool == pool else ():
            world.take_reserved(world.work[reservation.claimant], place, pool)
            kept.append((reservation.claimant, (place.group, place.index)))
    return kept


def _ratio(amount: int, share: int) -> float:
    if share:
        return amount / share
    return float("inf") if amount > 0 else 0.0


def decide_in_turn(world: World, settings: InTurn) -> Plan:
    """The plan of the in-turn way, pool by pool."""
    plans = []
    for pool in world.pools:
        turns = Turns(world, pool, settings)
        turns.run()
        plans.append(turns.plan())
    return Plan(
        starts=tuple(start for plan in plans for start in plan.starts),
        evictions=tuple(eviction for plan in plans for eviction in plan.evictions),
        shrinks=tuple(shrink for plan in plans for shrink in plan.shrinks),
        moves=tuple(move for plan in plans for move in plan.moves),
        opened=tuple(reservation for plan in plans for reservation in plan.opened),
    )
