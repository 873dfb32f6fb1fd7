"""Standing orders, rule (d): excess after a cut, drains, stale gangs. They name no claimant."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from scheduler.core.claims import Demand, surplus
from scheduler.core.consolidate import Moved, is_movable, relocate
from scheduler.core.lawful import Piece, add_removed, most_borrowed, notebooks_in, piece_of, pieces_of
from scheduler.core.model import (
    ExcessOrder,
    IdleUse,
    Kind,
    NodeState,
    OrderKind,
    Release,
)
from scheduler.core.resources import UNBOUNDED
from scheduler.core.rooms import LATER
from scheduler.core.search import Cost
from scheduler.core.tree import RESOURCES, Row
from scheduler.core.world import Held, Work, WorkerKey, World, sum_rows


@dataclass(frozen=True, eq=False)
class Ordered:
    """Workers that leave because of an order."""

    piece: Piece
    pool: int
    kind: OrderKind
    order_id: int | None = None


@dataclass(eq=False)
class Carried:
    """What the standing orders did."""

    taken: list[Ordered] = field(default_factory=list)
    moved: list[tuple[Moved, int]] = field(default_factory=list)
    releases: list[Release] = field(default_factory=list)
    done: list[int] = field(default_factory=list)


def carry_out_orders(world: World, demand: Demand) -> Carried:
    """Let go what is not wanted any more, then stale gangs, excess that is due, and drained nodes."""
    carried = Carried()
    for work in world.work.values():
        _release(world, work, carried)
    for work in world.work.values():
        if is_stale(world, work):
            pool = min(held.pool for held in work.present.values())
            _take(world, piece_of(world, work, tuple(sorted(work.present)), pool), pool, OrderKind.STALE, None, carried)
    for order in sorted(world.snapshot.excess_orders, key=lambda order: order.id):
        if world.now_ms >= order.due_ms:
            _carry_out_excess(world, order, carried)
    if any(node.state is NodeState.DRAINING for node in world.snapshot.nodes):
        for work in world.work.values():
            _drain(world, demand, work, carried)
    return carried


def _take(world: World, piece: Piece, pool: int, kind: OrderKind, order_id: int | None, carried: Carried) -> None:
    world.tell_to_leave(piece.work, piece.keys)
    carried.taken.append(Ordered(piece, pool, kind, order_id))


# --- what is not wanted any more ---------------------------------------------------------------------


def _release(world: World, work: Work, carried: Carried) -> None:
    """Workers beyond what it wants, or all of a gang that starts anew."""
    if work.workload.ending or work.workload.letting_go:
        keys = [key for key, held in work.present.items() if held.live]
    else:
        keys = [key for key in choose_surplus(world, work) if work.present[key].live]
    if keys:
        world.tell_to_leave(work, keys)
        carried.releases.append(Release(work.workload.id, tuple(sorted(keys))))


def choose_surplus(world: World, work: Work) -> list[WorkerKey]:
    """Which workers go when fewer are wanted: those whose leaving frees whole nodes."""
    count = len(surplus(work))
    if not count:
        return []
    chosen: list[WorkerKey] = []
    for place, group in enumerate(work.workload.groups):
        present = {key: held for key, held in work.present.items() if key[0] == place}
        more = len(present) - group.wanted
        if more > 0:
            ranked = [(_keeps_node(world, work, held, key), key) for key, held in present.items()]
            chosen += [key for _, key in sorted(ranked)[:more]]
    return chosen


def _keeps_node(world: World, work: Work, held: Held, key: WorkerKey) -> tuple[int, int, int, int]:
    """Small where little else stands in the way of an empty node; higher indexes go first among equals."""
    rooms = world.pools[held.pool].rooms
    row = rooms.row[held.place.node]
    in_use = int((rooms.device_size[row] - rooms.devices[LATER][row]).sum())
    own = [one for one in work.present.values() if one.place.node == held.place.node]
    own_use = sum(rooms.device_use(one.place, row) * len(one.place.devices) for one in own)
    return in_use - own_use, len(own), held.place.node, -key[1]


# --- stale gangs -------------------------------------------------------------------------------------


def is_stale(world: World, work: Work) -> bool:
    """Whether a started gang has been below its minimum for longer than it may."""
    since = work.workload.stale_since_ms
    if since is None or not work.is_live or work.told:
        return False
    short = any(work.present_in(at) < group.minimum for at, group in enumerate(work.workload.groups))
    return short and world.now_ms - since >= world.policy.stale_grace_ms >= 0


# --- excess after a cut ------------------------------------------------------------------------------


def _carry_out_excess(world: World, order: ExcessOrder, carried: Carried) -> None:
    """Stop what a quota uses beyond the amount in force; the order is done with that."""
    carried.done.append(order.id)
    quota = world.tree.index.get(order.quota)
    if quota is None or order.pool not in world.pools:
        return
    accounts = world.pools[order.pool].accounts
    bound = accounts.books.limit[quota] if order.to_limit else accounts.books.guaranteed[quota]
    used = accounts.used[LATER][quota]
    excess = [0 if bound[r] >= UNBOUNDED else max(0, used[r] - bound[r]) for r in RESOURCES]
    if not any(excess):
        return
    for piece in cheapest_to_free(world, quota, order.pool, excess):
        _take(world, piece, order.pool, OrderKind.EXCESS, order.id, carried)


def cheapest_to_free(world: World, quota: int, pool: int, excess: Row) -> list[Piece]:
    """Work of a quota and all below it that frees so much: the best set of few, greedily of many."""
    pieces = [
        piece
        for work in world.work.values()
        if (work.quota == quota or world.tree.is_below(work.quota, quota)) and work.is_live and not work.told
        for piece in pieces_of(world, work, pool)
        if any(piece.amount[r] and excess[r] for r in RESOURCES)
    ]
    if len(pieces) <= world.policy.exact_victims:
        return _best_subset(world, pool, pieces, excess)
    return _fewest_greedily(world, pool, pieces, excess)


def _best_subset(world: World, pool: int, pieces: Sequence[Piece], excess: Row) -> list[Piece]:
    """The cheapest of all subsets that free enough; all of them if none does."""
    best: tuple[Cost, list[Piece]] | None = None
    for mask in range(1, 1 << len(pieces)):
        chosen = [piece for at, piece in enumerate(pieces) if mask >> at & 1]
        if not _frees(chosen, excess) or not is_one_way(chosen):
            continue
        found = (cost(world, pool, chosen), chosen)
        if best is None or found[0] < best[0]:
            best = found
    return best[1] if best else [piece for piece in pieces if piece.stops]


def is_one_way(chosen: Sequence[Piece]) -> bool:
    """No workload both stopped and shrunk, and none shrunk below its minimum."""
    stopped = {piece.workload.id for piece in chosen if piece.stops}
    parts: dict[tuple[int, int], int] = {}
    for piece in chosen:
        if piece.stops:
            continue
        group = piece.keys[0][0]
        key = (piece.workload.id, group)
        parts[key] = parts.get(key, 0) + 1
        rest = piece.work.present_in(group) - parts[key]
        if piece.workload.id in stopped or rest < piece.workload.groups[group].minimum:
            return False
    return True


def _frees(chosen: Sequence[Piece], excess: Row) -> bool:
    freed = sum_rows(piece.amount for piece in chosen)
    return all(freed[r] >= excess[r] for r in RESOURCES)


def cost(world: World, pool: int, chosen: Sequence[Piece]) -> Cost:
    """What decides between sets that free enough, as for claims."""
    accounts = world.pools[pool].accounts
    removed: dict[int, Row] = {}
    for piece in chosen:
        add_removed(world, removed, piece)
    back, below = 0, set()
    for piece in chosen:
        quota = piece.work.quota
        entitlement = accounts.worth.entitlement[quota]
        after = [accounts.used[LATER][quota][r] - removed[quota][r] for r in RESOURCES]
        fits = all(not piece.amount[r] or after[r] + piece.amount[r] <= entitlement[r] for r in RESOURCES)
        back += fits and piece.workload.idle is not IdleUse.ONLY
        if any(removed[quota][r] and after[r] < entitlement[r] < UNBOUNDED for r in RESOURCES):
            below.add(quota)
    values = tuple(sorted(piece.value for piece in chosen))
    guaranteed = sum(_guaranteed_gpu(world, pool, piece) for piece in chosen)
    return Cost(back, notebooks_in(chosen), guaranteed, len(below), sum(p.stops for p in chosen), values)


def _guaranteed_gpu(world: World, pool: int, piece: Piece) -> int:
    borrowed = most_borrowed(world.pools[pool].accounts, piece.work.quota, piece.workload.id)
    return max(0, piece.amount[0] - borrowed)


def _fewest_greedily(world: World, pool: int, pieces: Sequence[Piece], excess: Row) -> list[Piece]:
    """The least valuable first until enough is free, then the most valuable handed back."""
    by_value = sorted(
        pieces,
        key=lambda p: (p.workload.kind is Kind.NOTEBOOK, _guaranteed_gpu(world, pool, p) > 0, p.value, p.keys),
    )
    chosen: list[Piece] = []
    for piece in by_value:
        if _frees(chosen, excess):
            break
        if is_one_way([*chosen, piece]):
            chosen.append(piece)
    for piece in list(reversed(chosen)):
        rest = [other for other in chosen if other is not piece]
        if _frees(rest, excess):
            chosen = rest
    return chosen


# --- drained nodes -----------------------------------------------------------------------------------


def _drain(world: World, demand: Demand, work: Work, carried: Carried) -> None:
    """Move what may be moved off draining nodes, stop what else may be stopped; the rest stays."""
    if work.told or not work.workload.preemptible or not work.present:
        return
    pool = min(held.pool for held in work.present.values())
    draining = {node.id for node in world.pools[pool].rooms.nodes if node.state is NodeState.DRAINING}
    keys = sorted(key for key, held in work.present.items() if held.live and held.place.node in draining)
    if not keys:
        return
    if is_movable(world, work, pool):
        moved = move_off(world, demand, work, draining, pool)
        if moved is not None:
            carried.moved.append((moved, pool))
            return
    stops = work.workload.gang and not _may_shrink(work, keys)
    taken = tuple(sorted(key for key, held in work.present.items() if held.live)) if stops else tuple(keys)
    piece = piece_of(world, work, taken, pool)
    _take(world, piece, pool, OrderKind.DRAIN, None, carried)


def _may_shrink(work: Work, keys: Sequence[WorkerKey]) -> bool:
    """Whether it runs on without these workers."""
    return all(
        work.present_in(at) - sum(1 for key in keys if key[0] == at) >= group.minimum
        for at, group in enumerate(work.workload.groups)
    )


def move_off(world: World, demand: Demand, work: Work, nodes: set[int], pool: int) -> Moved | None:
    """Move a workload off some nodes, or leave the world as it is."""
    with world.attempt() as attempt:
        moved = None
        for held in work.present.values():
            world.pools[held.pool].rooms.change(held.place, +1, now=False, later=True)
        moved = relocate(world, demand, work, nodes, pool)
        if moved is not None:
            world.moved(work, moved.places, pool)
            attempt.keep()
    return moved
