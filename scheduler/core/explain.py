"""Explain: one dominant reason for each waiting workload, as a code with facts."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from scheduler.core.admit import Refusal, fits_entitlement, fits_share, refusal
from scheduler.core.claims import Claim, Demand
from scheduler.core.lawful import Piece
from scheduler.core.model import Facts, IdleUse, NodeState, Reason
from scheduler.core.place import has_neighbours, place_claim, placeable
from scheduler.core.resources import KINDS
from scheduler.core.rooms import LATER, MILLI, NOW, Ask
from scheduler.core.tree import RESOURCES
from scheduler.core.world import Work, World

_LOOKED_AT = 24
"""Up to so many that may be taken it is told what nodes would lack without them."""


@dataclass(eq=False)
class Tried:
    """What was found out about a claim in one pool."""

    pool: int
    refused: Refusal | None = None
    """What quotas say."""
    could_go: tuple[Piece, ...] = ()
    """What rules would give to it, though it is not enough."""
    protected: bool = False
    """Victims would help that may not be taken now."""
    moves_spent: bool = False
    """Moves would help, but the budget of this hour is spent."""
    behind_victim: bool = False
    """It may not evict meanwhile: a victim of an open reservation is ahead of it."""
    notes: dict[str, object] = field(default_factory=dict)


def reason_of(world: World, demand: Demand, claim: Claim, tried: Tried) -> Refusal:
    """The dominant reason in one pool: nothing that could help comes after what forbids it."""
    work, pool = claim.work, tried.pool
    never = _never(world, demand, work, pool)
    if never is not None:
        return never
    if not world.pools[pool].pool.engine_available:
        return Refusal(Reason.ENGINE_UNAVAILABLE, {"pool": pool}, {"engine": "available"})
    if tried.protected:
        return Refusal(Reason.PREEMPTION_PROTECTED, {**tried.notes, "pool": pool}, {"later": True})
    if tried.moves_spent:
        return Refusal(Reason.CONSOLIDATION_PENDING, {"pool": pool, "moves_left": 0}, {"later": True})
    if 0 < len(tried.could_go) <= _LOOKED_AT:
        scattered = _when_all_gone(world, demand, claim, tried)
        if scattered is not None:
            return scattered
    if tried.refused is not None:
        return tried.refused
    return _beyond_share(world, demand, claim, pool) or _nodes(world, demand, claim, pool, NOW)


def _when_all_gone(world: World, demand: Demand, claim: Claim, tried: Tried) -> Refusal | None:
    """What nodes would still lack if all that may be taken were: then quotas are not what it waits for."""
    amount = demand.amount(claim.work, claim.keys, tried.pool)
    with world.attempt():
        for piece in tried.could_go:
            world.tell_to_leave(piece.work, piece.keys)
        if refusal(world, claim.work, amount, tried.pool, LATER) is not None:
            return None
        with world.attempt():
            if place_claim(world, demand, claim, tried.pool, LATER) is not None:
                return None
        return _nodes(world, demand, claim, tried.pool, LATER)


def _never(world: World, demand: Demand, work: Work, pool: int) -> Refusal | None:
    never = demand.form(work, pool).never
    if not never:
        return None
    asked = _asked_facts(demand, work, pool)
    if never == "labels":
        return Refusal(Reason.NODES_AFFINITY, {"pool": pool, **asked}, {"nodes": "labels"})
    return Refusal(Reason.NODES_NEVER_FITS, {"pool": pool, **asked}, {"nodes": "larger"})


def _asked_facts(demand: Demand, work: Work, pool: int) -> dict[str, object]:
    asks = demand.form(work, pool).asks
    largest = max(asks, key=lambda ask: (ask.charge, -ask.index))
    return {f"asked_{KINDS[r]}": largest.charge[r] for r in RESOURCES if largest.charge[r]}


def _beyond_share(world: World, demand: Demand, claim: Claim, pool: int) -> Refusal | None:
    """Room would have to be taken from others, and that would be beyond its share."""
    work = claim.work
    amount = demand.amount(work, claim.keys, pool)
    if fits_entitlement(world, work, amount, pool, LATER):
        return None
    if work.workload.idle is not IdleUse.ONLY and fits_share(world, work, amount, pool, LATER):
        return None
    accounts = world.pools[pool].accounts
    share, used = accounts.worth.own_share[work.quota], accounts.own[LATER][work.quota]
    r = next((r for r in RESOURCES if amount[r]), 0)
    facts: dict[str, object] = {
        "quota": world.tree.quotas[work.quota].id,
        "pool": pool,
        "resource": KINDS[r],
        "asked": amount[r],
        "used": used[r],
        "share": share[r],
    }
    return Refusal(Reason.QUOTA_SHARE, facts, {"resource": KINDS[r], "idle": amount[r]})


def _nodes(world: World, demand: Demand, claim: Claim, pool: int, view: int) -> Refusal:
    """Quotas would let it in; nodes do not."""
    asks = [demand.ask(claim.work, key, pool) for key in claim.keys]
    rooms = world.pools[pool].rooms
    if not any(ask.mask.any() for ask in asks):
        return _closed(world, pool, asks[0])
    if view == NOW and _fits_on_kept_room(world, claim, pool, asks):
        return Refusal(Reason.RESERVATION_OTHER, {"pool": pool}, {"reservation": "ends"})
    if any(has_neighbours(world, ask) for ask in asks) and all(rooms.room(ask, view).any() for ask in asks):
        return Refusal(Reason.NODES_AFFINITY, {"pool": pool}, {"nodes": "neighbours"})
    members, found = len(claim.keys), placeable(world, demand, claim, pool, view)
    if members > 1 and found >= members:
        return Refusal(Reason.NODES_TOPOLOGY, {"pool": pool, "members": members}, {"nodes": "closer"})
    if members > 1 and found:
        facts: Facts = {"pool": pool, "members": members, "placeable": found}
        return Refusal(Reason.NODES_GANG, facts, {"members": members - found})
    return _full_or_fragmented(world, pool, asks[0], members, view)


def _closed(world: World, pool: int, ask: Ask) -> Refusal:
    """No node that takes work suits it now: they are cordoned or drained, or their devices are bad."""
    states = [node.state for node in world.pools[pool].rooms.nodes]
    closed = sum(1 for state in states if state in (NodeState.CORDONED, NodeState.DRAINING))
    facts = {"pool": pool, "closed_nodes": closed, "kind": ask.kind.value}
    return Refusal(Reason.NODES_UNHEALTHY, facts, {"nodes": "ready"})


def _fits_on_kept_room(world: World, claim: Claim, pool: int, asks: list[Ask]) -> bool:
    """Whether it would fit at this moment if nothing were kept for anybody."""
    rooms = world.pools[pool].rooms
    kept = bool((rooms.devices[LATER] < rooms.devices[NOW]).any())
    if not kept:
        return False
    counts = {ask: asks.count(ask) for ask in set(asks)}
    return all(rooms.room_ignoring_kept(ask) >= count for ask, count in counts.items()) and bool(claim.keys)


def _full_or_fragmented(world: World, pool: int, ask: Ask, members: int, view: int) -> Refusal:
    """Not one worker fits: because all is full, or because what is free is scattered."""
    rooms = world.pools[pool].rooms
    rows = np.flatnonzero(ask.mask)
    free = rooms.free_devices(view, rows)
    usable = np.where(free >= ask.millionths[rows, None], free, 0).sum(axis=1) // MILLI
    asked = ask.charge[0]
    facts: dict[str, object] = {"pool": pool, "members": members, "asked_gpu_milli": asked}
    if ask.gpus and len(rows):
        best = int(usable.argmax())
        facts |= {
            "best_node": rooms.nodes[int(rows[best])].id,
            "reaches_gpu_milli": int(usable[best]),
            "free_gpu_milli": int(usable.sum()),
        }
        if int(usable.sum()) >= asked and int(usable[best]) < asked:
            return Refusal(Reason.NODES_FRAGMENTED, facts, {"on_one_node_gpu_milli": asked})
    return Refusal(Reason.NODES_FULL, facts, {"free_gpu_milli": asked * members})
