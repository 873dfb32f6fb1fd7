"""Place: whole claims on real nodes, all or nothing, close together where that is wished.

A claim's groups stand in enclosures, each with its topology wish. A unit (enclosure or group) is placed inside
the domain that was found for the unit around it: the narrowest level first, there the domain that it fills most.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np

from scheduler.core.claims import Claim, Demand, shape_of
from scheduler.core.model import Neighbour, Place, Placement, Topology
from scheduler.core.rooms import Ask, Bools, Ints
from scheduler.core.tree import POOL
from scheduler.core.world import Work, WorkerKey, World

OUTERMOST = POOL
"""The unit around all: no enclosure."""


@dataclass(eq=False)
class _Job:
    """A claim that is being placed in one view of one pool."""

    world: World
    demand: Demand
    claim: Claim
    pool: int
    view: int
    places: list[Place] = field(default_factory=list)
    partly: bool = False
    """Place as many as fit where not all do (to tell how many that are)."""

    @property
    def work(self) -> Work:
        return self.claim.work


def place_claim(
    world: World, demand: Demand, claim: Claim, pool: int, view: int, allowed: Bools | None = None
) -> list[Place] | None:
    """The places of the whole claim, taken on the (allowed) nodes, or None. What a failure took stays: undo it."""
    job = _Job(world, demand, claim, pool, view)
    if not _is_enough(job):
        return None
    nodes = np.ones(len(world.pools[pool].rooms), dtype=bool) if allowed is None else allowed
    unkept = world.allowed_rows(claim.work, claim.keys, pool)
    return job.places if _place_unit(job, OUTERMOST, nodes if unkept is None else nodes & unkept) else None


def _is_enough(job: _Job) -> bool:
    """Whether all nodes together take as many of each request: a quick look before nodes are sorted."""
    rooms = job.world.pools[job.pool].rooms
    if len(job.claim.keys) == 1:
        return rooms.total_room(job.demand.ask(job.work, job.claim.keys[0], job.pool), job.view) > 0
    return all(rooms.total_room(ask, job.view) >= len(keys) for ask, keys in _by_ask(job, job.claim.keys))


def placeable(world: World, demand: Demand, claim: Claim, pool: int, view: int) -> int:
    """How many workers of a claim find a place when each is taken for itself, without topology."""
    with world.attempt():
        job = _Job(world, demand, claim, pool, view, partly=True)
        everywhere = np.ones(len(world.pools[pool].rooms), dtype=bool)
        for ask, keys in _by_ask(job, claim.keys):
            _fill(job, ask, keys, everywhere, None)
        return len(job.places)


# --- units -------------------------------------------------------------------------------------------


def _place_unit(job: _Job, unit: int, allowed: Bools) -> bool:
    """Place all that stands directly in an enclosure, inner enclosures first."""
    workload = job.claim.workload
    for inner, enclosure in enumerate(workload.enclosures):
        inside = OUTERMOST if enclosure.inside is None else enclosure.inside
        keys = _keys_in(job, inner) if inside == unit else []
        if keys and not _place_in_domain(job, enclosure.topology, allowed, keys, inner):
            return False
    for group, wanted in enumerate(workload.groups):
        inside = OUTERMOST if wanted.inside is None else wanted.inside
        keys = [key for key in job.claim.keys if key[0] == group]
        if inside == unit and keys and not _place_in_domain(job, wanted.topology, allowed, keys, None):
            return False
    return True


def _keys_in(job: _Job, enclosure: int) -> list[WorkerKey]:
    """Workers of the claim that stand somewhere inside an enclosure."""
    workload = job.claim.workload
    inside = {enclosure}
    for place, inner in enumerate(workload.enclosures):  # outer ones come before those inside them
        if inner.inside in inside:
            inside.add(place)
    return [key for key in job.claim.keys if workload.groups[key[0]].inside in inside]


def _place_in_domain(
    job: _Job, topology: Topology, allowed: Bools, keys: Sequence[WorkerKey], enclosure: int | None
) -> bool:
    """Place workers in the first domain that takes all of them, undoing what does not."""
    rooms = job.world.pools[job.pool].rooms
    for domain in _domains(job, topology, allowed, keys):
        mark, count = rooms.mark(), len(job.places)
        if enclosure is None and _place_workers(job, keys, domain, topology):
            return True
        if enclosure is not None and _place_unit(job, enclosure, domain):
            return True
        rooms.roll_back(mark)
        del job.places[count:]
    return False


def _domains(job: _Job, topology: Topology, allowed: Bools, keys: Sequence[WorkerKey]) -> Iterator[Bools]:
    """Sets of nodes to try: from the preferred level out to the required one, or to everywhere."""
    levels = levels_of(topology)
    if not levels:
        yield allowed
        return
    narrowest = levels.index(topology.preferred) if topology.preferred else len(levels) - 1
    widest = levels.index(topology.required) if topology.required else 0
    for level in range(max(narrowest, widest), widest - 1, -1):
        yield from _domains_at(job, levels[: level + 1], allowed, keys, required=topology.required is not None)
    if topology.required is None:
        yield allowed


def levels_of(topology: Topology) -> tuple[str, ...]:
    """The levels that a wish speaks of, widest first; empty if it wishes nothing."""
    named = tuple(level for level in (topology.required, topology.preferred) if level)
    if not named:
        return ()
    if all(level in topology.levels for level in named):
        deepest = max(topology.levels.index(level) for level in named)
        return topology.levels[: deepest + 1]
    return tuple(dict.fromkeys(named))


def domain_rows(world: World, pool: int, levels: Sequence[str]) -> dict[tuple[str, ...], Ints]:
    """The nodes of each domain, by its labels from the widest level down; nodes that lack one are outside."""
    rooms = world.pools[pool].rooms
    columns = [rooms.labels(level) for level in levels]
    found: dict[tuple[str, ...], list[int]] = {}
    for row in range(len(rooms)):
        values = [column[row] for column in columns]
        if None not in values:
            found.setdefault(tuple(str(value) for value in values), []).append(row)
    return {name: np.array(rows, dtype=np.int64) for name, rows in sorted(found.items())}


def _domains_at(
    job: _Job, levels: Sequence[str], allowed: Bools, keys: Sequence[WorkerKey], *, required: bool
) -> Iterator[Bools]:
    """Domains of one level that may take all workers, the one that they fill most first.

    With workers there already, a required domain is one of theirs.
    """
    rooms = job.world.pools[job.pool].rooms
    asks = _by_ask(job, keys)
    there = _rows_there(job, keys) if required else set()
    candidates = []
    for name, rows in domain_rows(job.world, job.pool, levels).items():
        inside = rows[allowed[rows]]
        if there and not there <= set(rows.tolist()):
            continue
        rests = [int(rooms.room(ask, job.view)[inside].sum()) - len(those) for ask, those in asks]
        if min(rests, default=0) >= 0:
            candidates.append((max(rests, default=0), name, inside))
    for _, _, inside in sorted(candidates, key=lambda candidate: candidate[:2]):
        mask = np.zeros(len(rooms), dtype=bool)
        mask[inside] = True
        yield mask


def _rows_there(job: _Job, keys: Sequence[WorkerKey]) -> set[int]:
    """Rows of the nodes on which workers of the same groups are."""
    groups = {key[0] for key in keys}
    rows = job.world.pools[job.pool].rooms.row
    held = (held for key, held in job.work.present.items() if key[0] in groups)
    return {rows[one.place.node] for one in held if one.place.node in rows}


# --- workers -----------------------------------------------------------------------------------------


def _place_workers(job: _Job, keys: Sequence[WorkerKey], allowed: Bools, topology: Topology) -> bool:
    """Place workers somewhere in a set of nodes, larger requests first."""
    levels = levels_of(topology)
    return all(_fill(job, ask, those, allowed, levels or None) for ask, those in _by_ask(job, keys))


def _by_ask(job: _Job, keys: Sequence[WorkerKey]) -> list[tuple[Ask, list[WorkerKey]]]:
    """Workers by equal request, the largest request first."""
    found: dict[Ask, list[WorkerKey]] = {}
    for key in keys:
        found.setdefault(job.demand.ask(job.work, key, job.pool), []).append(key)
    return sorted(found.items(), key=lambda item: ([-value for value in item[0].charge], item[0].index))


def _fill(job: _Job, ask: Ask, keys: Sequence[WorkerKey], allowed: Bools, levels: Sequence[str] | None) -> bool:
    """Place equal workers: one on its best node, several on the tightest nodes first."""
    rooms = job.world.pools[job.pool].rooms
    spreads = (job.claim.workload.placement or rooms.pool.placement) is Placement.SPREAD
    if len(keys) == 1 or spreads or has_neighbours(job.world, ask):
        return all(_place_one(job, ask, key, allowed) or job.partly for key in keys)
    room = np.where(allowed, rooms.room(ask, job.view), 0)
    enough = int(room.sum()) >= len(keys)
    if not enough and not job.partly:
        return False
    rows = rooms.order_rows(ask, job.view, np.flatnonzero(room > 0))
    if levels is not None:
        rows = _closest_first(job, rows, room, levels)
    workers = iter(keys)
    left = len(keys)
    for row in rows.tolist():
        count = min(left, int(room[row]))
        for _ in range(count):
            key = next(workers)
            job.places.append(rooms.place(ask, row, job.view, (job.claim.workload.id, *key)))
        left -= count
        if not left:
            break
    return enough


def _closest_first(job: _Job, rows: Ints, room: Ints, levels: Sequence[str]) -> Ints:
    """Rows domain by domain, the roomiest domain first at each level, so that few domains are touched."""
    order: dict[int, list[tuple[int, str]]] = {row: [] for row in rows.tolist()}
    for depth in range(1, len(levels) + 1):
        for name, inside in domain_rows(job.world, job.pool, levels[:depth]).items():
            total = int(room[inside].sum())
            for row in inside.tolist():
                if row in order:
                    order[row].append((-total, name[-1]))
    ranked = sorted(range(len(rows)), key=lambda place: (order[int(rows[place])], place))
    return rows[np.array(ranked, dtype=np.int64)] if len(rows) else rows


def _place_one(job: _Job, ask: Ask, key: WorkerKey, allowed: Bools) -> bool:
    rooms = job.world.pools[job.pool].rooms
    if has_neighbours(job.world, ask):
        allowed = allowed & neighbour_mask(job.world, job.pool, ask, job.places)
    row = rooms.best_row(ask, job.view, allowed)
    if row is None:
        return False
    job.places.append(rooms.place(ask, row, job.view, (job.claim.workload.id, *key)))
    return True


# --- neighbours --------------------------------------------------------------------------------------


def has_neighbours(world: World, ask: Ask) -> bool:
    """Whether other workers decide on where it may go."""
    return bool(ask.shape.near or ask.shape.apart or (world.has_apart and ask.shape.labels))


def neighbour_mask(world: World, pool: int, ask: Ask, placed: Sequence[Place]) -> Bools:
    """Nodes that suit the wishes to be near or apart from other workers, theirs included."""
    rooms = world.pools[pool].rooms
    allowed = np.ones(len(rooms), dtype=bool)
    workers = list(_workers(world, pool, placed))
    for wish in ask.shape.near:
        rows = [row for labels, _, row in workers if _meets(labels, wish)]
        if rows or not _meets(ask.shape.labels, wish):  # the first of its kind may go anywhere
            allowed &= _in_domains(world, pool, wish.within, rows)
    for wish in ask.shape.apart:
        rows = [row for labels, _, row in workers if _meets(labels, wish)]
        allowed &= ~_in_domains(world, pool, wish.within, rows)
    for _, aparts, row in workers:
        for wish in aparts:
            if _meets(ask.shape.labels, wish):
                allowed &= ~_in_domains(world, pool, wish.within, [row])
    return allowed


def _workers(
    world: World, pool: int, placed: Sequence[Place]
) -> Iterator[tuple[tuple[tuple[str, str], ...], tuple[Neighbour, ...], int]]:
    """Labels, wishes to be apart, and node of each worker in a pool."""
    row_of_node = world.pools[pool].rooms.row
    there = [held.place for work in world.work.values() for held in work.present.values()]
    there += [leaving.place for work in world.work.values() for leaving in work.leaving.values()]
    for place in (*there, *placed):
        if place.node in row_of_node:
            shape = shape_of(world.work[place.workload].workload.groups[place.group], place.index)
            yield shape.labels, shape.apart, row_of_node[place.node]


def _meets(labels: tuple[tuple[str, str], ...], wish: Neighbour) -> bool:
    return set(wish.labels) <= set(labels)


def _in_domains(world: World, pool: int, label: str, rows: Sequence[int]) -> Bools:
    """Nodes that share a label's value with one of the rows."""
    column = world.pools[pool].rooms.labels(label)
    values = {column[row] for row in rows} - {None}
    return np.array([value in values for value in column], dtype=bool)
