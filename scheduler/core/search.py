"""Which victims a claim takes: the best lawful set on small clusters, the same order greedily on large ones."""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

import numpy as np

from scheduler.core.admit import not_promised, over_limit, refusal
from scheduler.core.claims import Claim, Demand
from scheduler.core.lawful import (
    Case,
    Piece,
    ValueKey,
    add_removed,
    may_take_covered,
    notebooks_in,
    pieces_of,
    protection,
    rule_for,
    side_may_reclaim,
    would_borrow_again,
)
from scheduler.core.model import IdleUse, Kind, Place, Rule, Workload
from scheduler.core.place import has_neighbours, place_claim
from scheduler.core.resources import UNBOUNDED
from scheduler.core.rooms import LATER, Ask, NodeRoom
from scheduler.core.tree import POOL, RESOURCES, Row, own_side, quota_of_side
from scheduler.core.world import Work, World

_EXACT_CHECK = 64
"""Up to so many victims each is put back alone in the books; above, totals are compared."""
_PRUNE = 24
"""Up to so many victims each is handed back in a full trial; above, only where its own room is left over."""
_EXACT_NODES = 16
"""Up to so many nodes the best set of each is looked for."""
_EXACT_WORK = 8192
"""Subsets that an exact search may look at."""


class Cost(NamedTuple):
    """What decides between lawful sets, the first difference first."""

    claim_back: int
    notebooks: int
    guaranteed_gpu: int
    quotas_below: int
    stopped: int
    values: tuple[ValueKey, ...]


@dataclass(frozen=True, eq=False)
class Found:
    """Victims for a claim, the rule for each, and the places that they make."""

    pieces: tuple[Piece, ...]
    rules: tuple[Rule, ...]
    places: tuple[Place, ...]


@dataclass(frozen=True, eq=False)
class Candidates:
    """Who may be taken, and who could be but is protected now."""

    case: Case
    pieces: tuple[Piece, ...]
    protected: tuple[Piece, ...]
    all_seen: bool

    @property
    def would_help(self) -> bool:
        """Whether the claim would fit if those who are protected could be taken as well."""
        together = without_parts([*self.pieces, *self.protected])
        return bool(self.protected) and _places_without(self.case, together) is not None


def could_take(world: World, demand: Demand, claim: Claim, pool: int) -> bool:
    """Whether any rule could give this claim anything: a quick look before the books are opened."""
    work, accounts = claim.work, world.pools[pool].accounts
    if work.switch_claimant or any(_takes_from_siblings(world, quota) for quota in world.tree.path[work.quota]):
        return True
    if any(_may_give_way(member.workload, claim) for member in accounts.members[work.quota].values()):
        return True
    amount = demand.amount(work, claim.keys, pool)
    for side in (own_side(work.quota), *world.tree.path[work.quota]):
        used, worth = accounts.held_by_side(side, LATER), accounts.worth
        for bound in (worth.entitlement_of(side), worth.share_of(side)):
            if all(not amount[r] or used[r] + amount[r] <= bound[r] for r in RESOURCES):
                return True
    return False


def _may_give_way(workload: Workload, claim: Claim) -> bool:
    """Work of the claimant's own quota that is always borrowed, or of lower priority."""
    if workload.idle is IdleUse.ONLY:
        return True
    return not claim.growth and workload.priority < claim.workload.priority


def _takes_from_siblings(world: World, quota: int) -> bool:
    return world.tree.quotas[quota].priority_preemption.siblings


def candidates(case: Case, most: int | None = None) -> Candidates:
    """Pieces that some rule would give to the claim, the least valuable first.

    With `most` only so many of the least valuable workloads are looked at; `all_seen` tells whether that was all.
    """
    works = [case.world.work[identifier] for identifier in sorted(_who_may_be_taken(case))]
    works = [work for work in works if work is not case.work and work.is_live and not _is_on_its_way(work)]
    all_seen = most is None or len(works) <= most
    if most is not None and not all_seen:
        works = sorted(works, key=partial(_least_value, case))[:most]
    found: list[Piece] = []
    protected: list[Piece] = []
    for work in works:
        pieces, spared = _pieces_if_lawful(case, work)
        (protected if spared else found).extend(pieces)
    by_value = tuple(sorted(found, key=lambda piece: (piece.value, piece.keys)))
    return Candidates(case, by_value, tuple(protected), all_seen)


def _least_value(case: Case, work: Work) -> tuple[bool, ValueKey]:
    pieces = pieces_of(case.world, work, case.pool)
    value = min((piece.value for piece in pieces), default=(True, True, 0, 0, 0, work.workload.id))
    return work.workload.kind is Kind.NOTEBOOK, value


def _who_may_be_taken(case: Case) -> set[int]:
    """Work that is worth a closer look: by the promise and the share only what is borrowed, by the rest all."""
    tree, members = case.world.tree, case.accounts.members
    own = case.work.quota
    found: set[int] = set()
    if not case.claim.growth and tree.quotas[own].priority_preemption.inside:
        found.update(number for number, m in members[own].items() if m.workload.priority < case.work.workload.priority)
    found.update(number for number, m in members[own].items() if m.workload.idle is IdleUse.ONLY)
    for ancestor in (*reversed(tree.path[own]), POOL):
        relations = case.relations_under(ancestor)
        for relation in relations:
            if may_take_covered(case, relation):
                found.update(_members_below(case, relation.victim_side))
    case.note_relief(found)
    for ancestor in (*reversed(tree.path[own]), POOL):
        relations = case.relations_under(ancestor)
        if relations and side_may_reclaim(case, relations[0]):
            for relation in relations:
                found.update(case.borrowed_before(relation.victim_side))
    return found


def _members_below(case: Case, side: int) -> Iterable[int]:
    yield from case.accounts.members[quota_of_side(side)]
    if side >= 0:
        for child in case.world.tree.children[side]:
            yield from _members_below(case, child)


def _is_on_its_way(work: Work) -> bool:
    return work.workload.ending or work.workload.letting_go or work.told


def _pieces_if_lawful(case: Case, work: Work) -> tuple[list[Piece], bool]:
    """The pieces of a workload that some rule gives, and whether its protection is in the way."""
    lawful: list[Piece] = []
    spared: list[Piece] = []
    for piece in pieces_of(case.world, work, case.pool):
        rule = rule_for(case, piece, case.relief_beside(work), final=False)
        if rule is None:
            continue
        state = protection(case, work, rule)
        if state == "override":
            case.overridden.add(work.workload.id)
        (spared if state in ("preemptible", "min_runtime") else lawful).append(piece)
    return (lawful, False) if lawful or not spared else (spared, True)


# --- the search --------------------------------------------------------------------------------------


def find_victims(case: Case, pieces: Sequence[Piece]) -> Found | None:
    """The victims that let the claim in, or None. The world is as before afterwards."""
    if not pieces or case.work.workload.idle is IdleUse.ONLY or not _could_help(case, pieces):
        return None
    chosen = _search(case, pieces)
    if chosen is None:
        return None
    return _settled(case, _until_admitted(case, pieces, chosen))


def _until_admitted(case: Case, pieces: Sequence[Piece], chosen: list[Piece]) -> list[Piece]:
    """More of the least valuable while limits, or room that nobody lends, still stand in the way."""
    removed: dict[int, Row] = {}
    for piece in chosen:
        add_removed(case.world, removed, piece)
    kept = list(chosen)
    for piece in sorted(pieces, key=partial(_greedy_key, case)):
        if is_admitted(case, kept):
            break
        if piece not in kept and _is_whole([*kept, piece]) and rule_for(case, piece, removed, final=False):
            kept.append(piece)
            add_removed(case.world, removed, piece)
    return kept


def is_admitted(case: Case, chosen: Sequence[Piece]) -> bool:
    """Whether quotas would let the claim start when these have gone."""
    with case.world.attempt():
        for piece in chosen:
            case.world.tell_to_leave(piece.work, piece.keys)
        return refusal(case.world, case.work, case.amount, case.pool, LATER) is None


def _could_help(case: Case, pieces: Sequence[Piece]) -> bool:
    """Whether the claim would fit on nodes if all were taken; of one worker among many the search finds out itself."""
    if len(pieces) > _PRUNE and len(case.claim.keys) == 1:
        return True
    return _places_without(case, without_parts(pieces)) is not None


def without_parts(pieces: Sequence[Piece]) -> list[Piece]:
    """Of workloads that may be stopped whole, only that piece: the parts are in it."""
    whole = {piece.workload.id for piece in pieces if piece.stops}
    return [piece for piece in pieces if piece.stops or piece.workload.id not in whole]


def _search(case: Case, pieces: Sequence[Piece]) -> list[Piece] | None:
    if len(pieces) <= case.world.policy.exact_victims:
        return _exact(case, pieces)
    if len(case.claim.keys) == 1 and not _has_wishes(case):
        return _exact_by_node(case, pieces)
    return _greedy(case, pieces)


def _has_wishes(case: Case) -> bool:
    """Whether topology or neighbours decide on nodes, so that nodes cannot be judged one by one."""
    workload = case.work.workload
    if workload.enclosures or any(group.topology.required for group in workload.groups):
        return True
    ask = case.demand.ask(case.work, case.claim.keys[0], case.pool)
    return has_neighbours(case.world, ask)


def _exact(case: Case, pieces: Sequence[Piece], row: int | None = None) -> list[Piece] | None:
    """The best of all lawful sets that make room (on one node, if one is given)."""
    masks = _by_cost(case, pieces)
    missing: list[int] = []  # of each set that made no room, what is not in it: a set without any of that makes none
    for mask in masks:
        if not all(mask & absent for absent in missing):
            continue
        chosen = [piece for place, piece in enumerate(pieces) if mask >> place & 1]
        if not _is_whole(chosen):
            continue
        if not _makes_room(case, chosen, row):
            missing = [absent for absent in missing if ~absent & ~mask] + [~mask]
            continue
        if lawful_rules(case, chosen) is not None:
            return chosen
    return None


def _makes_room(case: Case, chosen: Sequence[Piece], row: int | None) -> bool:
    """Whether the claim has its nodes when these have gone (one worker on one node, if it is given)."""
    if row is None:
        return _places_without(case, chosen) is not None
    ask = case.demand.ask(case.work, case.claim.keys[0], case.pool)
    room = NodeRoom(case.world.pools[case.pool].rooms, ask, row)
    for piece in chosen:
        room.change(piece.places, +1)
    return room.fits()


def _exact_by_node(case: Case, pieces: Sequence[Piece]) -> list[Piece] | None:
    """For one worker: the best set of each node, and the best of those."""
    if _places_without(case, []) is not None:
        return _until_admitted(case, pieces, [])  # nodes have room: it is quotas that lack it
    by_row = _by_row(case, pieces)
    work = sum(1 << len(those) for those in by_row.values() if len(those) <= case.world.policy.exact_victims)
    many = any(len(those) > case.world.policy.exact_victims for those in by_row.values())
    if many or work > _EXACT_WORK or len(by_row) > _EXACT_NODES:
        return _greedy(case, pieces)
    best: tuple[Cost, int, list[Piece]] | None = None
    for row in sorted(by_row):
        chosen = _exact(case, by_row[row], row)
        if chosen is not None:
            found = (cost_of(case, chosen), row, chosen)
            best = found if best is None or found[:2] < best[:2] else best
    return None if best is None else best[2]


def _by_row(case: Case, pieces: Sequence[Piece]) -> dict[int, list[Piece]]:
    """The pieces that hold something on each node that suits the claim's requests."""
    rooms = case.world.pools[case.pool].rooms
    asks = {case.demand.ask(case.work, key, case.pool) for key in case.claim.keys}
    allowed = case.world.allowed_rows(case.work, case.claim.keys, case.pool)
    found: dict[int, list[Piece]] = {}
    for piece in pieces:
        for node in dict.fromkeys(place.node for place in piece.places):
            row = rooms.row.get(node)
            if row is None or (allowed is not None and not allowed[row]):
                continue
            if any(ask.mask[row] for ask in asks):
                found.setdefault(row, []).append(piece)
    return found


def _is_whole(chosen: Sequence[Piece]) -> bool:
    """Not a part of a workload beside the whole, and no more parts than its minimum allows."""
    stopped = {piece.workload.id for piece in chosen if piece.stops}
    parts: dict[tuple[int, int], int] = {}
    for piece in chosen:
        if piece.stops:
            continue
        if piece.workload.id in stopped:
            return False
        group = piece.keys[0][0]
        parts[piece.workload.id, group] = parts.get((piece.workload.id, group), 0) + 1
        rest = piece.work.present_in(group) - parts[piece.workload.id, group]
        if rest < piece.workload.groups[group].minimum:
            return False
    return True


def _by_cost(case: Case, pieces: Sequence[Piece]) -> list[int]:
    """All non-empty subsets as bit masks, the cheapest first."""
    count = len(pieces)
    masks = np.arange(1, 1 << count, dtype=np.int64)
    member = (masks[:, None] >> np.arange(count)) & 1
    notebooks = member @ np.array([notebooks_in([piece]) for piece in pieces], dtype=np.int64)
    guaranteed = member @ np.array([case.guaranteed_gpu(piece) for piece in pieces], dtype=np.int64)
    stopped = member @ np.array([piece.stops for piece in pieces], dtype=np.int64)
    claim_back, below = _standing_after(case, pieces, member)
    value = member @ (1 << np.arange(count - 1, -1, -1, dtype=np.int64))  # the least valuable counts most
    order = np.lexsort((-value, stopped, below, guaranteed, notebooks, claim_back))
    return [int(mask) for mask in masks[order]]


def _standing_after(case: Case, pieces: Sequence[Piece], member: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """For each subset: victims that could claim their room back, and victims' quotas left below their entitlement."""
    accounts = case.accounts
    claim_back = np.zeros(len(member), dtype=np.int64)
    below = np.zeros(len(member), dtype=np.int64)
    for quota in sorted({piece.work.quota for piece in pieces}):
        own = [place for place, piece in enumerate(pieces) if piece.work.quota == quota]
        amounts = np.array([pieces[place].amount for place in own], dtype=np.int64)
        gone = member[:, own] @ amounts
        entitlement = np.array(accounts.worth.entitlement[quota], dtype=np.int64)
        after = np.array(case.after(quota, {}), dtype=np.int64) - gone
        for place in own:
            piece = pieces[place]
            fits = ((np.array(piece.amount) == 0) | (after + np.array(piece.amount) <= entitlement)).all(axis=1)
            if piece.workload.idle is not IdleUse.ONLY:
                claim_back += fits & (member[:, place] == 1)
        short = ((after < entitlement) & (entitlement < UNBOUNDED) & (gone > 0)).any(axis=1)
        below += short
    return claim_back, below


def cost_of(case: Case, chosen: Iterable[Piece]) -> Cost:
    """The cost of a set."""
    pieces = sorted(chosen, key=lambda piece: (piece.value, piece.keys))
    removed: dict[int, Row] = {}
    for piece in pieces:
        add_removed(case.world, removed, piece)
    quotas = sorted({piece.work.quota for piece in pieces})
    return Cost(
        claim_back=sum(claims_back(case, piece, removed) for piece in pieces),
        notebooks=notebooks_in(pieces),
        guaranteed_gpu=sum(case.guaranteed_gpu(piece) for piece in pieces),
        quotas_below=sum(_is_below(case, quota, removed) for quota in quotas),
        stopped=sum(piece.stops for piece in pieces),
        values=tuple(piece.value for piece in pieces),
    )


def claims_back(case: Case, piece: Piece, removed: dict[int, Row]) -> bool:
    """Whether a victim, put back, would be within its quota's entitlement: it could claim its room at once."""
    if piece.workload.idle is IdleUse.ONLY:
        return False
    after, entitlement = case.after(piece.work.quota, removed), case.accounts.worth.entitlement[piece.work.quota]
    return all(not piece.amount[r] or after[r] + piece.amount[r] <= entitlement[r] for r in RESOURCES)


def _is_below(case: Case, quota: int, removed: dict[int, Row]) -> bool:
    after, entitlement = case.after(quota, removed), case.accounts.worth.entitlement[quota]
    gone = removed.get(quota, [0, 0, 0])
    return any(gone[r] > 0 and entitlement[r] < UNBOUNDED and after[r] < entitlement[r] for r in RESOURCES)


# --- judging a set -----------------------------------------------------------------------------------


def lawful_rules(case: Case, chosen: Sequence[Piece]) -> list[Rule] | None:
    """The rule for each of a final set, or None if it is not lawful as a whole."""
    removed: dict[int, Row] = {}
    for piece in chosen:
        add_removed(case.world, removed, piece)
    rules = [rule_for(case, piece, removed, final=True) for piece in chosen]
    if any(rule is None for rule in rules):
        return None
    with case.world.attempt():
        for piece in chosen:
            case.world.tell_to_leave(piece.work, piece.keys)
        if over_limit(case.world, case.work, case.amount, case.pool, LATER):
            return None
        if not_promised(case.world, case.work, case.amount, case.pool, LATER):
            return None
        case.accounts.change(case.work.workload, case.amount, +1, case.world.now_ms, now=False, later=True)
        if len(chosen) <= _EXACT_CHECK:
            for piece, rule in zip(chosen, rules, strict=True):
                if rule is Rule.GUARANTEE and not would_borrow_again(case, piece):
                    return None
    return [rule for rule in rules if rule is not None]


def _places_without(case: Case, gone: Sequence[Piece]) -> tuple[Place, ...] | None:
    """Places for the claim when these have left."""
    world = case.world
    with world.attempt():
        for piece in gone:
            for key in piece.keys:
                held = piece.work.present[key]
                world.pools[held.pool].rooms.change(held.place, +1, now=False, later=True)
        places = place_claim(world, case.demand, case.claim, case.pool, LATER)
        return None if places is None else tuple(places)


def _settled(case: Case, chosen: Sequence[Piece]) -> Found | None:
    """Hand back what is not needed, the most valuable first, and check the final set again."""
    kept = _handed_back(case, chosen)
    rules = lawful_rules(case, kept)
    places = _places_without(case, kept)
    if not rules or places is None:
        return None
    return Found(tuple(kept), tuple(rules), places)


def _handed_back(case: Case, chosen: Sequence[Piece]) -> list[Piece]:
    kept = sorted(chosen, key=lambda piece: (piece.value, piece.keys))
    if len(kept) > _PRUNE:
        return _handed_back_where_left(case, kept)
    for piece in reversed(list(kept)):
        rest = [other for other in kept if other is not piece]
        if _places_without(case, rest) is not None and lawful_rules(case, rest) is not None:
            kept = rest
    return kept


def _handed_back_where_left(case: Case, chosen: list[Piece]) -> list[Piece]:
    """Of a large set: hand back those whose own room the claim leaves untouched."""
    world = case.world
    kept = list(chosen)
    with world.attempt():
        rooms = world.pools[case.pool].rooms
        for piece in chosen:
            for place in piece.places:
                rooms.change(place, +1, now=False, later=True)
        if place_claim(world, case.demand, case.claim, case.pool, LATER) is None:
            return kept
        for piece in reversed(chosen):
            if all(rooms.holds(place, LATER) for place in piece.places):
                for place in piece.places:
                    rooms.change(place, -1, now=False, later=True)
                kept.remove(piece)
    return kept


# --- greedy ------------------------------------------------------------------------------------------


@dataclass(eq=False)
class _Greedy:
    """A set that grows worker by worker."""

    case: Case
    by_row: dict[int, list[Piece]]
    removed: dict[int, Row]
    chosen: list[Piece]


def _greedy(case: Case, pieces: Sequence[Piece]) -> list[Piece] | None:
    """Worker by worker on the node where it costs least; None if some worker finds no lawful room."""
    if _has_wishes(case):
        return _greedy_by_value(case, pieces)
    by_row = _by_row(case, pieces)
    state = _Greedy(case, by_row, {}, [])
    asks = [case.demand.ask(case.work, key, case.pool) for key in case.claim.keys]
    with case.world.attempt():
        for ask in sorted(set(asks), key=lambda ask: ([-value for value in ask.charge], ask.index)):
            if not _greedy_places(state, ask, asks.count(ask)):
                return None
    return state.chosen


def _greedy_places(state: _Greedy, ask: Ask, count: int) -> bool:
    """Room for `count` equal workers: nodes by cost, looked at again when they come to the top."""
    case = state.case
    rooms = case.world.pools[case.pool].rooms
    who = (case.work.workload.id, *case.claim.keys[0])
    allowed = case.world.allowed_rows(case.work, case.claim.keys, case.pool)
    while count and (row := rooms.best_row(ask, LATER, allowed)) is not None:
        rooms.place(ask, row, LATER, who)
        count -= 1
    heap: list[tuple[Cost, int]] = []
    for row in state.by_row:
        more = _cheapest_on(state, ask, row)
        if more is not None:
            heap.append((cost_of(case, more), row))
    heapq.heapify(heap)
    while count and heap:
        cost, row = heapq.heappop(heap)
        more = _cheapest_on(state, ask, row)
        if more is None:
            continue
        fresh = cost_of(case, more)
        if fresh > cost and heap and heap[0] < (fresh, row):
            heapq.heappush(heap, (fresh, row))
            continue
        _take(state, more)
        while count and rooms.room(ask, LATER)[row]:
            rooms.place(ask, row, LATER, who)
            count -= 1
        heapq.heappush(heap, (fresh, row))
    return count == 0


def _take(state: _Greedy, pieces: Sequence[Piece]) -> None:
    case = state.case
    for piece in pieces:
        state.chosen.append(piece)
        add_removed(case.world, state.removed, piece)
        for key in piece.keys:
            held = piece.work.present[key]
            case.world.pools[held.pool].rooms.change(held.place, +1, now=False, later=True)


def _cheapest_on(state: _Greedy, ask: Ask, row: int) -> list[Piece] | None:
    """Pieces to take on a node so that one worker fits there, the least valuable first, none in vain."""
    case = state.case
    if not ask.mask[row]:
        return None
    room = NodeRoom(case.world.pools[case.pool].rooms, ask, row)
    taken: list[Piece] = []
    removed = {side: list(value) for side, value in state.removed.items()}
    for piece in sorted(state.by_row[row], key=partial(_greedy_key, case)):
        if room.fits():
            break
        if not _may_join(state, taken, piece) or rule_for(case, piece, removed, final=False) is None:
            continue
        taken.append(piece)
        add_removed(case.world, removed, piece)
        room.change(piece.places, +1)
    if not room.fits() or not taken:
        return None
    for piece in list(reversed(taken)):
        room.change(piece.places, -1)
        if room.fits() and len(taken) > 1:
            taken.remove(piece)
        else:
            room.change(piece.places, +1)
    return taken


def _greedy_key(case: Case, piece: Piece) -> tuple[bool, bool, ValueKey, tuple[tuple[int, int], ...]]:
    """Notebooks after others, covered work after borrowed, then by value."""
    return notebooks_in([piece]) > 0, case.guaranteed_gpu(piece) > 0, piece.value, piece.keys


def _may_join(state: _Greedy, taken: Sequence[Piece], piece: Piece) -> bool:
    same = [other for other in (*state.chosen, *taken) if other.work is piece.work]
    return piece not in same and _is_whole([*same, piece])


def _greedy_by_value(case: Case, pieces: Sequence[Piece]) -> list[Piece] | None:
    """With topology: the least valuable pieces of whole domains until the claim fits, none in vain."""
    best: tuple[Cost, list[Piece]] | None = None
    for group in _by_domain(case, pieces):
        chosen: list[Piece] = []
        removed: dict[int, Row] = {}
        for piece in sorted(group, key=partial(_greedy_key, case)):
            if _is_whole([*chosen, piece]) and rule_for(case, piece, removed, final=False) is not None:
                chosen.append(piece)
                add_removed(case.world, removed, piece)
        if _places_without(case, chosen) is None:
            continue
        chosen = _shrunk(case, chosen)
        found = (cost_of(case, chosen), chosen)
        best = found if best is None or found[0] < best[0] else best
    return None if best is None else best[1]


def _shrunk(case: Case, chosen: list[Piece]) -> list[Piece]:
    """Hand back, the most valuable first, by halves as long as that works, then one by one."""
    kept = sorted(chosen, key=partial(_greedy_key, case))
    step = max(1, len(kept) // 2)
    while step:
        at = len(kept)
        while at > 0:
            rest = kept[: max(0, at - step)] + kept[at:]
            if _places_without(case, rest) is not None:
                kept = rest
            at -= step
        step //= 2
    return kept


def _by_domain(case: Case, pieces: Sequence[Piece]) -> list[list[Piece]]:
    """Pieces by the domain that they touch, for each domain of the required level; then all together."""
    rooms = case.world.pools[case.pool].rooms
    wishes = [enclosure.topology for enclosure in case.work.workload.enclosures]
    wishes += [group.topology for group in case.work.workload.groups]
    required = next((wish.required for wish in wishes if wish.required), None)
    if required is None:
        return [list(pieces)]
    column = rooms.labels(required)
    groups: dict[str, list[Piece]] = {}
    for piece in pieces:
        for row in sorted({rooms.row[place.node] for place in piece.places if place.node in rooms.row}):
            value = column[row]
            if value is not None and (not groups.get(value) or groups[value][-1] is not piece):
                groups.setdefault(value, []).append(piece)
    return [groups[value] for value in sorted(groups)] + [list(pieces)]
