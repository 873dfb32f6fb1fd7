"""The state of a cycle: nodes, books and what each workload holds, with undo.

Everything that a step does to the world goes through `World.start`, `World.reserve`, `World.tell_to_leave`
and `World.withdraw`; `attempt` undoes what was not kept.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from scheduler.core.accounts import Accounts, is_switch_claimant
from scheduler.core.divide import OwnAsk, divide
from scheduler.core.model import (
    Allocation,
    IdleUse,
    Match,
    Phase,
    Place,
    Pool,
    Reservation,
    Shape,
    Snapshot,
    Workload,
)
from scheduler.core.policy import Policy
from scheduler.core.resources import NOTHING, Amount
from scheduler.core.rooms import Ask, Bools, Ints, Rooms
from scheduler.core.tree import RESOURCES, Row, books_of, tree_of

WorkerKey = tuple[int, int]
"""(group, index) of a worker."""


@dataclass(frozen=True, slots=True)
class Held:
    """A worker that holds room or has it reserved."""

    place: Place
    pool: int
    started_ms: int
    live: bool
    """False for one that this cycle starts or that only has its place reserved."""
    starts: bool = False
    """This cycle starts it."""


@dataclass(eq=False)
class Work:
    """A workload during a cycle."""

    workload: Workload
    quota: int
    switch_claimant: bool
    present: dict[WorkerKey, Held] = field(default_factory=dict)
    """What runs, starts, or has its place reserved; not what leaves."""
    leaving: dict[WorkerKey, Allocation] = field(default_factory=dict)
    changes: int = 0
    """Counts every change of the two."""
    told: bool = False
    """This cycle told all of it to leave, or moves it."""

    @property
    def started_ms(self) -> int:
        """When its present run started; 0 if it does not run."""
        return min((held.started_ms for held in self.present.values() if held.live), default=0)

    @property
    def is_live(self) -> bool:
        """Whether anything of it runs and is not leaving."""
        return any(held.live for held in self.present.values())

    def present_in(self, group: int) -> int:
        """Workers of a group that are there or have their place."""
        return sum(1 for key in self.present if key[0] == group)


@dataclass(frozen=True, eq=False)
class PoolWorld:
    """One pool's nodes and books."""

    pool: Pool
    rooms: Rooms
    accounts: Accounts


class World:
    """The snapshot as tables that a cycle changes."""

    def __init__(self, snapshot: Snapshot, policy: Policy) -> None:
        self.snapshot, self.policy, self.now_ms = snapshot, policy, snapshot.now_ms
        self.tree = tree_of(snapshot.quotas)
        self.pools = {pool.id: self._pool_world(pool) for pool in sorted(snapshot.pools, key=lambda p: p.id)}
        self.work = {
            workload.id: Work(workload, self.tree.index[workload.quota], is_switch_claimant(self.tree, workload))
            for workload in sorted(snapshot.workloads, key=lambda w: w.id)
        }
        self.caps = {cap.id: cap for cap in snapshot.caps}
        self.cap_use: dict[int, Amount] = {cap.id: NOTHING for cap in snapshot.caps}
        self.pool_of_node = {node.id: node.pool for node in snapshot.nodes}
        self.has_apart = any(group.shape.apart for workload in snapshot.workloads for group in workload.groups)
        """Whether some workers want others kept away."""
        self.allowed_rows: Callable[[Work, tuple[WorkerKey, ...], int], Bools | None] = lambda *_: None
        """Nodes that a claim may use beside those that are kept for others; None means all."""
        self.gone_by: dict[int, int] = {}
        """When all that leaves a node is gone at the latest, by node."""
        self.once_leaving: set[int] = set()
        """Workloads of which something was leaving at some time of this cycle; what stays after all is still in it."""
        self.pieces: dict[tuple[int, int], tuple[int, list[Any]]] = {}
        """What may be taken of each workload in a pool, remembered until what it holds changes."""
        self.movable: dict[int, dict[int, list[Work]]] = {}
        """Work that might move at the start of the cycle, by pool and row."""
        self.largest_movable: dict[int, Ints] = {}
        """By pool and row, the most milli-GPUs that one of them holds there."""
        self._journal: list[Callable[[], None]] = []
        self._take_allocations(snapshot.allocations)

    def _pool_world(self, pool: Pool) -> PoolWorld:
        nodes = [node for node in self.snapshot.nodes if node.pool == pool.id]
        rooms = Rooms(pool, nodes, self.policy.memory_share_step_milli)
        return PoolWorld(pool, rooms, Accounts(self.tree, books_of(self.tree, pool.id), rooms.capacity()))

    def _take_allocations(self, allocations: Iterable[Allocation]) -> None:
        ordered = sorted(allocations, key=lambda a: (a.place.workload, a.place.group, a.place.index, a.started_ms))
        started: dict[int, int] = {}
        for allocation in ordered:
            known = started.get(allocation.place.workload, allocation.started_ms)
            started[allocation.place.workload] = min(known, allocation.started_ms)
        for allocation in ordered:
            place, leaving = allocation.place, allocation.phase is Phase.LEAVING
            work, pool = self.work[place.workload], self.pool_of_node[place.node]
            if leaving:
                work.leaving[place.group, place.index] = allocation
                self.once_leaving.add(work.workload.id)
                self._note_gone_by(place.node, allocation.gone_by_ms or self.now_ms)
            else:
                held = Held(place, pool, allocation.started_ms, live=True)
                _set(work, (place.group, place.index), held)
            self._book(work, place, pool, -1, now=True, later=not leaving, started_ms=started[place.workload])
        self._journal.clear()
        for at in self.pools.values():
            at.rooms.forget_journal()
            at.accounts.forget_journal()

    # --- changing --------------------------------------------------------------------------------------

    def _book(self, work: Work, place: Place, pool: int, sign: int, *, now: bool, later: bool, started_ms: int) -> None:
        """Take (-1) or give back (+1) a place on the node and in the books."""
        at = self.pools[pool]
        at.rooms.change(place, sign, now=now, later=later)
        self._account(work, place, pool, sign, now=now, later=later, started_ms=started_ms)

    def _account(
        self, work: Work, place: Place, pool: int, sign: int, *, now: bool, later: bool, started_ms: int
    ) -> None:
        amount = row_of(place)
        self.pools[pool].accounts.change(work.workload, amount, -sign, started_ms, now=now, later=later)
        if now:
            for cap in work.workload.caps:
                if cap in self.cap_use:
                    self._set_cap(cap, self.cap_use[cap] + place.amount.times(-sign))

    def _set_cap(self, cap: int, use: Amount) -> None:
        before = self.cap_use[cap]
        self.cap_use[cap] = use
        self._journal.append(lambda: self.cap_use.__setitem__(cap, before))

    def _put(self, work: Work, key: WorkerKey, held: Held | None) -> None:
        before = work.present.get(key)
        _set(work, key, held)
        self._journal.append(lambda: _set(work, key, before))

    def start(self, work: Work, place: Place, pool: int) -> None:
        """A worker starts now; its room on the node is taken already."""
        self._account(work, place, pool, -1, now=True, later=True, started_ms=work.started_ms or self.now_ms)
        self._put(work, (place.group, place.index), Held(place, pool, self.now_ms, live=False, starts=True))

    def reserve(self, work: Work, place: Place, pool: int) -> None:
        """A worker has its place from the moment it is free; its room on the node is taken already."""
        self._account(work, place, pool, -1, now=False, later=True, started_ms=work.started_ms or self.now_ms)
        self._put(work, (place.group, place.index), Held(place, pool, self.now_ms, live=False))

    def take_reserved(self, work: Work, place: Place, pool: int) -> None:
        """Keep the place of an open reservation: nobody else gets its room."""
        self.pools[pool].rooms.change(place, -1, now=False, later=True)
        self.reserve(work, place, pool)

    def start_reserved(self, work: Work, place: Place, pool: int) -> None:
        """A worker starts at the place that was kept for it."""
        self.pools[pool].rooms.change(place, -1, now=True, later=False)
        self._account(work, place, pool, -1, now=True, later=False, started_ms=work.started_ms or self.now_ms)
        self._put(work, (place.group, place.index), Held(place, pool, self.now_ms, live=False, starts=True))

    def withdraw(self, work: Work, keys: Sequence[WorkerKey]) -> None:
        """Give up reserved places."""
        for key in keys:
            held = work.present[key]
            self._book(work, held.place, held.pool, +1, now=False, later=True, started_ms=held.started_ms)
            self._put(work, key, None)

    def tell_to_leave(self, work: Work, keys: Sequence[WorkerKey]) -> None:
        """Workers that run are told to leave: their room is on its way."""
        for key in keys:
            held = work.present[key]
            self._book(work, held.place, held.pool, +1, now=False, later=True, started_ms=held.started_ms)
            self._put(work, key, None)
            self._put_leaving(work, key, held)
        if not work.present and not work.told:
            work.told = True
            self._journal.append(lambda: setattr(work, "told", False))

    def take_back_start(self, work: Work, key: WorkerKey) -> None:
        """Give back the room of a worker that this cycle started: it will begin later after all."""
        held = work.present[key]
        self._book(work, held.place, held.pool, +1, now=True, later=True, started_ms=held.started_ms)
        self._put(work, key, None)

    def stay(self, work: Work, key: WorkerKey, held: Held) -> None:
        """A worker that this cycle told to leave stays where it is after all."""
        self._book(work, held.place, held.pool, -1, now=False, later=True, started_ms=held.started_ms)
        leaving = work.leaving.pop(key)
        self._journal.append(lambda: work.leaving.__setitem__(key, leaving))
        self._put(work, key, held)

    def on_roll_back(self, undo: Callable[[], None]) -> None:
        """Have something undone together with the changes of the attempt that is going on."""
        self._journal.append(undo)

    def moved(self, work: Work, places: Sequence[Place], pool: int) -> None:
        """A workload leaves and has its new places reserved; the nodes' later view holds those already."""
        for key, held in sorted(work.present.items()):
            self._account(work, held.place, held.pool, +1, now=False, later=True, started_ms=held.started_ms)
            self._put(work, key, None)
            self._put_leaving(work, key, held)
        for place in places:
            self.reserve(work, place, pool)
        work.told = True
        self._journal.append(lambda: setattr(work, "told", False))

    def _put_leaving(self, work: Work, key: WorkerKey, held: Held) -> None:
        gone_by = self.now_ms + work.workload.grace_ms
        before = self.gone_by.get(held.place.node)
        self._note_gone_by(held.place.node, gone_by)
        work.leaving[key] = Allocation(held.place, Phase.LEAVING, held.started_ms, gone_by)
        self.once_leaving.add(work.workload.id)
        self._journal.append(lambda: self._forget_leaving(work, key, held.place.node, before))

    def _note_gone_by(self, node: int, gone_by_ms: int) -> None:
        self.gone_by[node] = max(gone_by_ms, self.gone_by.get(node, gone_by_ms))

    def _forget_leaving(self, work: Work, key: WorkerKey, node: int, gone_by_before: int | None) -> None:
        work.leaving.pop(key, None)
        if gone_by_before is None:
            self.gone_by.pop(node, None)
        else:
            self.gone_by[node] = gone_by_before

    def attempt(self) -> Attempt:
        """Changes inside a `with` of it are undone at the end unless `keep` was called."""
        return Attempt(self)

    def marks(self) -> list[int]:
        """A point to which `roll_back` can return."""
        points = [len(self._journal)]
        for at in self.pools.values():
            points += (at.rooms.mark(), at.accounts.mark())
        return points

    def roll_back(self, marks: Sequence[int]) -> None:
        """Undo all changes since the marks."""
        for place, at in enumerate(self.pools.values()):
            at.rooms.roll_back(marks[1 + 2 * place])
            at.accounts.roll_back(marks[2 + 2 * place])
        while len(self._journal) > marks[0]:
            self._journal.pop()()

    # --- asking ----------------------------------------------------------------------------------------

    def ask_of(self, work: Work, shape: Shape, pool: int) -> Ask:
        """A worker's request in a pool, with the conditions that its quota sets for its kind."""
        required: tuple[Match, ...] = ()
        preferred: tuple[Match, ...] = ()
        for wish in self.tree.quotas[work.quota].node_affinity:
            if wish.kind is work.workload.kind:
                required, preferred = (*required, *wish.required), (*preferred, *wish.preferred)
        return self.pools[pool].rooms.ask_of(shape, work.workload.kind, required, preferred)

    def wanted_pools(self, work: Work) -> tuple[int, ...]:
        """The pools it may run in, in the order of preference; a gang that runs stays in its pool."""
        if work.workload.gang and work.present:
            return tuple(sorted({held.pool for held in work.present.values()}))
        wanted = work.workload.pools or tuple(self.pools)
        return tuple(pool for pool in wanted if pool in self.pools)

    def divide(self, pool: int, waiting: dict[int, list[OwnAsk]]) -> None:
        """Divide a pool anew by what is asked for now."""
        accounts = self.pools[pool].accounts
        accounts.set_division(divide(self.tree, accounts.books, accounts.capacity, waiting[pool], self.policy))


class Attempt:
    """A trial on the world: undone unless it is kept."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._kept = False

    def keep(self) -> None:
        """Let the changes stay."""
        self._kept = True

    def __enter__(self) -> Attempt:
        self._marks = self._world.marks()
        return self

    def __exit__(self, *_: object) -> None:
        if not self._kept:
            self._world.roll_back(self._marks)


def row_of(place: Place) -> Row:
    """What quotas are charged for a place, as a row."""
    amount = place.amount
    return [amount.gpu_milli, amount.cpu_milli, amount.memory_mib]


def sum_rows(rows: Iterable[Sequence[int]]) -> Row:
    """The sum of rows."""
    total = [0, 0, 0]
    for row in rows:
        for r in RESOURCES:
            total[r] += row[r]
    return total


def may_borrow(workload: Workload) -> bool:
    """Whether it accepts room that its quota was not promised."""
    return workload.idle is not IdleUse.NEVER


def all_reservations(snapshot: Snapshot) -> tuple[Reservation, ...]:
    """Open reservations in id order."""
    return tuple(sorted(snapshot.reservations, key=lambda reservation: reservation.id))


def _set(work: Work, key: WorkerKey, held: Held | None) -> None:
    work.changes += 1
    if held is None:
        work.present.pop(key, None)
    else:
        work.present[key] = held
