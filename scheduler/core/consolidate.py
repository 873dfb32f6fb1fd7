"""Consolidate: move preemptible work when that alone lets waiting work in. A move is no eviction."""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from scheduler.core.claims import Claim, Demand
from scheduler.core.lawful import value_of
from scheduler.core.model import Place
from scheduler.core.place import place_claim
from scheduler.core.resources import UNBOUNDED
from scheduler.core.rooms import LATER, MILLI, Ask, Bools, NodeRoom
from scheduler.core.tree import RESOURCES
from scheduler.core.world import Work, World

_NODES = 128
"""So many nodes are looked at for one worker; for more workers more."""
_FAR = 2**40
"""More than any node lacks, in milli-GPUs."""


@dataclass(frozen=True, eq=False)
class Moved:
    """A workload that moves, and where all its workers go on."""

    work: Work
    places: tuple[Place, ...]


@dataclass(frozen=True, eq=False)
class Regrouping:
    """Moves and the places that they make for a claim."""

    moves: tuple[Moved, ...]
    places: tuple[Place, ...]


def consolidate(world: World, demand: Demand, claim: Claim, pool: int, moves_left: int | None) -> Regrouping | None:
    """The fewest moves found that let the whole claim in, or None. The world is as before afterwards."""
    if moves_left == 0 or not _enough_in_all(world, demand, claim, pool):
        return None
    by_row = _movable_by_row(world, pool)
    if not by_row:
        return None
    leaving = _who_must_go(world, demand, claim, pool, by_row)
    if not leaving or (moves_left is not None and len(leaving) > moves_left):
        return None
    with world.attempt():
        return _regroup(world, demand, claim, pool, leaving)


def relocate(world: World, demand: Demand, work: Work, nodes: set[int], pool: int) -> Moved | None:
    """New places for its workers on some nodes, taken in the later view; the others stay where they are.

    The caller has given its places back in the later view. A failure takes room too: undo it.
    """
    rooms = world.pools[pool].rooms
    staying = [held.place for held in work.present.values() if held.place.node not in nodes]
    going = tuple(sorted(key for key, held in work.present.items() if held.place.node in nodes))
    for place in staying:
        rooms.change(place, -1, now=False, later=True)
    allowed = np.array([node.id not in nodes for node in rooms.nodes], dtype=bool)
    found = place_claim(world, demand, Claim(work, going, growth=False), pool, LATER, allowed)
    return None if found is None else Moved(work, (*staying, *found))


def is_movable(world: World, work: Work, pool: int) -> bool:
    """Preemptible, running whole in this pool, and past the time in which it is left alone."""
    if not work.workload.preemptible or work.told or work.leaving or not work.present:
        return False
    if work.workload.ending or work.workload.letting_go or not work.workload.gang:
        return False
    if any(not held.live or held.pool != pool for held in work.present.values()):
        return False
    least = world.tree.quotas[work.quota].min_runtime.reclaim_ms
    return world.now_ms - work.started_ms >= least


def _enough_in_all(world: World, demand: Demand, claim: Claim, pool: int) -> bool:
    """Whether suitable nodes together have what the claim asks: else no move helps."""
    rooms = world.pools[pool].rooms
    asks = [demand.ask(claim.work, key, pool) for key in claim.keys]
    mask = np.logical_or.reduce([ask.mask for ask in set(asks)])
    gpus = sum(int(ask.millionths.max(initial=0)) * ask.gpus for ask in asks)
    bulk = np.maximum(rooms.free_bulk(LATER)[mask], 0)
    free = [int(np.maximum(rooms.free_devices(LATER)[mask], 0).sum()), *(_total(bulk[:, c]) for c in (0, 1))]
    asked = [gpus, sum(ask.cpu for ask in asks), sum(ask.memory for ask in asks)]
    return all(asked[r] <= free[r] for r in RESOURCES)


def _total(column: np.ndarray) -> int:
    return UNBOUNDED if (column >= UNBOUNDED).any() else int(column.sum())


def _movable_by_row(world: World, pool: int) -> dict[int, list[Work]]:
    """Work that may move, by the node that it would leave: larger and less valuable first."""
    known = world.movable.get(pool)
    if known is None:
        known = world.movable[pool] = _list_movable(world, pool)
        rooms = world.pools[pool].rooms
        largest = np.zeros(len(rooms), dtype=np.int64)
        for row, works in known.items():
            largest[row] = max(1, _gpus_on(works[0], rooms.nodes[row].id))
        world.largest_movable[pool] = largest
    return known


def _list_movable(world: World, pool: int) -> dict[int, list[Work]]:
    rooms, accounts = world.pools[pool].rooms, world.pools[pool].accounts
    found: dict[int, list[tuple[tuple[object, ...], Work]]] = {}
    for identifier in accounts.member:
        work = world.work[identifier]
        if not is_movable(world, work, pool):
            continue
        value = value_of(world, work, stops=True)
        for row in {rooms.row[held.place.node] for held in work.present.values()}:
            key = (-_gpus_on(work, rooms.nodes[row].id), *value)
            found.setdefault(row, []).append((key, work))
    return {row: [work for _, work in sorted(those, key=lambda item: item[0])] for row, those in found.items()}


def _gpus_on(work: Work, node: int) -> int:
    return sum(held.place.amount.gpu_milli for held in work.present.values() if held.place.node == node)


def _who_must_go(world: World, demand: Demand, claim: Claim, pool: int, by_row: dict[int, list[Work]]) -> list[Work]:
    """Work whose leaving makes room for the claim, node by node with the fewest moves; empty if it does not."""
    asks = [demand.ask(claim.work, key, pool) for key in claim.keys]
    chosen: list[Work] = []
    with world.attempt():
        for ask in sorted(set(asks), key=lambda ask: ([-value for value in ask.charge], ask.index)):
            if not _make_room(world, claim, pool, by_row, ask, asks.count(ask), chosen):
                return []
    return chosen


def _make_room(
    world: World,
    claim: Claim,
    pool: int,
    by_row: dict[int, list[Work]],
    ask: Ask,
    count: int,
    chosen: list[Work],
) -> bool:
    """Room for `count` equal workers, adding to `chosen` who must go."""
    rooms = world.pools[pool].rooms
    who = (claim.work.workload.id, *claim.keys[0])
    allowed = world.allowed_rows(claim.work, claim.keys, pool)
    while count and (row := rooms.best_row(ask, LATER, allowed)) is not None:
        rooms.place(ask, row, LATER, who)
        count -= 1
    heap = _least_moves(world, pool, ask, allowed, max(_NODES, 4 * count))
    heapq.heapify(heap)  # a lower bound: looked at closer when it comes to the top
    while count and heap:
        moves, size, row = heapq.heappop(heap)
        going = _fewest_on(world, pool, ask, row, [w for w in by_row[row] if _may_go(w, claim, chosen)])
        if not going:
            continue
        if len(going) > moves:  # it was a lower bound: others may need fewer
            heapq.heappush(heap, (len(going), size, row))
            continue
        for work in going:
            chosen.append(work)
            _give_back(world, work)
        while count and rooms.room(ask, LATER)[row]:
            rooms.place(ask, row, LATER, who)
            count -= 1
    return count == 0


def _may_go(work: Work, claim: Claim, chosen: Sequence[Work]) -> bool:
    if work is claim.work or work.told or any(not held.live for held in work.present.values()):
        return False
    return work not in chosen


def _least_moves(world: World, pool: int, ask: Ask, allowed: Bools | None, most: int) -> list[tuple[int, int, int]]:
    """(moves that are needed at least, milli-GPUs that are lacking, row) of each suitable node with movable work."""
    rooms = world.pools[pool].rooms
    largest = world.largest_movable[pool]
    suited = np.flatnonzero(ask.mask & (largest > 0) if allowed is None else ask.mask & allowed & (largest > 0))
    free = rooms.free_devices(LATER, suited)
    asked = ask.millionths[suited]
    fitting = (free >= asked[:, None]).sum(axis=1) if free.shape[1] else np.zeros(len(suited), dtype=np.int64)
    lacking = np.maximum(ask.gpus - fitting, 0) * asked // MILLI
    moves = np.maximum(1, -(-lacking // largest[suited]))
    if len(suited) > most:  # of many nodes those that look best
        best = np.sort(np.argpartition(moves * _FAR + lacking, most)[:most])
        moves, lacking, suited = moves[best], lacking[best], suited[best]
    return list(zip(moves.tolist(), lacking.tolist(), suited.tolist(), strict=True))


def _gpus_of(works: Sequence[Work]) -> int:
    return sum(held.place.amount.gpu_milli for work in works for held in work.present.values())


def _give_back(world: World, work: Work) -> None:
    for held in work.present.values():
        world.pools[held.pool].rooms.change(held.place, +1, now=False, later=True)


def _fewest_on(world: World, pool: int, ask: Ask, row: int, works: Sequence[Work]) -> list[Work]:
    """The fewest workloads whose leaving lets one worker onto a node; the last is the smallest that suffices."""
    room = NodeRoom(world.pools[pool].rooms, ask, row)
    taken: list[Work] = []
    for work in works:  # largest first: the fewest
        taken.append(work)
        room.change(_places(work), +1)
        if room.fits():
            break
    else:
        return []
    room.change(_places(taken[-1]), -1)
    for work in reversed(works):
        if work in taken[:-1]:
            continue
        room.change(_places(work), +1)
        if room.fits():
            return [*taken[:-1], work]
        room.change(_places(work), -1)
    return taken


def _places(work: Work) -> list[Place]:
    return [held.place for held in work.present.values()]


def _regroup(world: World, demand: Demand, claim: Claim, pool: int, leaving: Sequence[Work]) -> Regrouping | None:
    """The claim placed where they leave, and a new place for each of them; who need not move stays."""
    rooms = world.pools[pool].rooms
    for work in leaving:
        _give_back(world, work)
    places = place_claim(world, demand, claim, pool, LATER)
    if places is None:
        return None
    taken = {place.node for place in places}
    moves: list[Moved] = []
    for work in sorted(leaving, key=lambda work: (-_gpus_of([work]), work.workload.id)):
        own = [held.place for held in work.present.values()]
        if all(rooms.holds(place, LATER) for place in own):
            for place in own:
                rooms.change(place, -1, now=False, later=True)
            continue
        moved = relocate(world, demand, work, taken, pool)
        if moved is None:
            return None
        moves.append(moved)
    return Regrouping(tuple(moves), tuple(places)) if moves else None
