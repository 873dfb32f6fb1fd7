"""Which evictions are lawful: the predicates of rules (a) to (c), for one claim in one pool.

A `Case` remembers how things stood before anything was taken; what must hold after the start is judged on
the world in which the victims are gone and the claim has its room.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cached_property

from scheduler.core.accounts import Accounts
from scheduler.core.admit import fits_entitlement
from scheduler.core.claims import Claim, Demand
from scheduler.core.divide import divide
from scheduler.core.model import IdleUse, Kind, Place, Quota, Rule, Workload
from scheduler.core.order import waiting_since
from scheduler.core.resources import UNBOUNDED
from scheduler.core.rooms import LATER, Ask
from scheduler.core.tree import POOL, RESOURCES, Row, own_side, quota_of_side
from scheduler.core.world import Work, WorkerKey, World, row_of, sum_rows

ValueKey = tuple[bool, bool, int, int, int, int]


@dataclass(frozen=True, eq=False)
class Piece:
    """What can be taken at once: a whole workload, or one worker of an elastic one or of a service."""

    work: Work
    keys: tuple[WorkerKey, ...]
    places: tuple[Place, ...]
    amount: Row
    """What it holds in the pool of the case."""
    stops: bool
    value: ValueKey
    """The least valuable first."""

    @property
    def workload(self) -> Workload:
        """Whose piece it is."""
        return self.work.workload


@dataclass(frozen=True, slots=True)
class Relation:
    """Where a claimant and work of another quota stand to each other."""

    ancestor: int
    claimant_side: int
    victim_side: int


class Case:
    """One claim in one pool, and how the books stood before."""

    def __init__(self, world: World, demand: Demand, claim: Claim, pool: int) -> None:
        self.world, self.demand, self.claim, self.pool = world, demand, claim, pool
        self.work = claim.work
        self.accounts: Accounts = world.pools[pool].accounts
        self.amount = demand.amount(claim.work, claim.keys, pool)
        self._relations: dict[int, Relation] = {}
        self._borrowed: dict[int, dict[int, Row]] = {}
        self._used: dict[int, Row] = {}
        self._without_switch: dict[int, dict[int, Row]] = {}
        self._most_borrowed: dict[int, int] = {}
        self.relief: dict[int, Row] = {}
        self.overridden: set[int] = set()
        """Workloads whose minimum run time the claimant overrides, having waited long enough."""

    def relation(self, quota: int) -> Relation:
        """How the claimant stands to work of a quota."""
        known = self._relations.get(quota)
        if known is None:
            known = Relation(*self.world.tree.ancestor_and_sides(self.work.quota, quota))
            self._relations[quota] = known
            self._remember(known.victim_side)
        return known

    def relations_under(self, ancestor: int) -> list[Relation]:
        """How the claimant stands to each other side under an ancestor of its quota."""
        tree = self.world.tree
        path = tree.path[self.work.quota]
        if ancestor == POOL:
            mine, sides = path[0], list(tree.roots)
        else:
            depth = path.index(ancestor) + 1
            mine = path[depth] if depth < len(path) else own_side(ancestor)
            sides = [own_side(ancestor), *tree.children[ancestor]]
        found = [Relation(ancestor, mine, side) for side in sides if side != mine]
        for relation in found:
            self._remember(relation.victim_side)
        return found

    def _remember(self, side: int) -> None:
        if side not in self._borrowed:
            self._borrowed[side] = self.accounts.borrowed(side)
            self._used[side] = list(self.accounts.held_by_side(side, LATER))

    def note_relief(self, identifiers: Iterable[int]) -> None:
        """What rules (b) and (c) could take: where it stands on the claimant's own side, it makes room there."""
        for identifier in sorted(identifiers):
            work = self.world.work[identifier]
            if work is self.work or not work.workload.preemptible or not work.is_live:
                continue
            for piece in pieces_of(self.world, work, self.pool)[-1:]:
                if self._gives_way(piece):
                    add_removed(self.world, self.relief, piece)

    def _gives_way(self, piece: Piece) -> bool:
        if piece.work.quota == self.work.quota and piece.workload.idle is IdleUse.ONLY:
            return True
        return rule_for(self, piece, {}, final=False) in (Rule.CHILD_LEVEL, Rule.PRIORITY)

    def relief_beside(self, work: Work) -> dict[int, Row]:
        """The relief on sides that do not hold this work."""
        holding = set(sides_of(self.world, work.quota))
        return {side: row for side, row in self.relief.items() if side not in holding}

    def borrowed_before(self, side: int) -> dict[int, Row]:
        """What was borrowed at a side of a known relation before anything was taken."""
        return self._borrowed[side]

    def used_before(self, side: int) -> Row:
        """What a side of a known relation held before anything was taken."""
        return self._used[side]

    def borrowed_without_switch(self, side: int) -> dict[int, Row]:
        """What would be borrowed at a side if no switch claimant were there."""
        if side not in self._without_switch:
            accounts = self.accounts
            present = accounts.worth
            asks = self.demand.by_quota(self.pool)
            for ask in asks:
                ask.switch[:] = ask.switch_waiting[:] = [0, 0, 0]
            accounts.set_division(divide(self.world.tree, accounts.books, accounts.capacity, asks, self.world.policy))
            self._without_switch[side] = dict(accounts.borrowed(side))
            accounts.set_division(present)
        return self._without_switch[side]

    def guaranteed_gpu(self, piece: Piece) -> int:
        """GPUs of a piece that a promise covered before anything was taken: what is borrowed goes first."""
        identifier = piece.workload.id
        if identifier not in self._most_borrowed:
            self._most_borrowed[identifier] = most_borrowed(self.accounts, piece.work.quota, identifier)
        return max(0, piece.amount[0] - self._most_borrowed[identifier])

    @cached_property
    def lacks(self) -> tuple[int, ...]:
        """The resources that keep the claim from fitting; first asked for before anything is taken."""
        return _lacking(self)

    @cached_property
    def within_entitlement(self) -> bool:
        """Whether the claimant is within its entitlement by itself."""
        return fits_entitlement(self.world, self.work, self.amount, self.pool, LATER)

    def after(self, side: int, removed: dict[int, Row]) -> Row:
        """What a side holds when so much is removed and the claim has its room."""
        held = self.accounts.held_by_side(side, LATER)
        gone = removed.get(side, _NOTHING)
        more = self.amount if self._is_claimant_side(side) else _NOTHING
        return [held[r] - gone[r] + more[r] for r in RESOURCES]

    def _is_claimant_side(self, side: int) -> bool:
        if side < POOL:
            return quota_of_side(side) == self.work.quota
        return side in self.world.tree.path[self.work.quota]


_NOTHING: Row = [0, 0, 0]


def _lacking(case: Case) -> tuple[int, ...]:
    """The resources that keep the claim from fitting: those too scarce alone, else all that it asks for."""
    asked = tuple(r for r in RESOURCES if case.amount[r])
    counts: dict[Ask, int] = {}
    for key in case.claim.keys:
        ask = case.demand.ask(case.work, key, case.pool)
        counts[ask] = counts.get(ask, 0) + 1
    rooms = case.world.pools[case.pool].rooms
    scarce = tuple(r for r in asked if any(rooms.room_by_one(ask, LATER, r) < count for ask, count in counts.items()))
    return scarce or asked


# --- removing in thought -----------------------------------------------------------------------------


def sides_of(world: World, quota: int) -> list[int]:
    """All sides that hold a quota's own work."""
    return [own_side(quota), *world.tree.path[quota]]


def add_removed(world: World, removed: dict[int, Row], piece: Piece, sign: int = 1) -> None:
    """Note that a piece is gone (or is not, after all) at every side that holds it."""
    for side in sides_of(world, piece.work.quota):
        row = removed.setdefault(side, [0, 0, 0])
        for r in RESOURCES:
            row[r] += sign * piece.amount[r]


def _with(world: World, removed: dict[int, Row], piece: Piece) -> dict[int, Row]:
    more = {side: list(row) for side, row in removed.items()}
    add_removed(world, more, piece)
    return more


# --- the rules ---------------------------------------------------------------------------------------


def rule_for(case: Case, piece: Piece, removed: dict[int, Row], *, final: bool) -> Rule | None:
    """The first rule under which a piece may be taken, or None.

    `removed` is what is taken in all: with `final` the piece is part of it, else it comes on top.
    """
    relation = case.relation(piece.work.quota)
    if _claims_below(case, relation):
        if child_level(case, piece, removed):
            return Rule.CHILD_LEVEL
        if not own_room_only(case, removed):
            return None
    if guarantee(case, piece, relation, removed, final=final):
        return Rule.GUARANTEE
    if share(case, piece, relation, removed, final=final):
        return Rule.SHARE
    if priority(case, piece, relation):
        return Rule.PRIORITY
    return None


def may_take_covered(case: Case, relation: Relation) -> bool:
    """Whether some rule could take work of a victim's side whether it is borrowed or not."""
    return _claims_below(case, relation) or (not case.claim.growth and are_priority_siblings(case, relation))


def side_may_reclaim(case: Case, relation: Relation) -> bool:
    """Whether the claimant's side would be within its entitlement or its share, its own victims taken off."""
    worth = case.accounts.worth
    return _side_within(case, relation.claimant_side, case.relief, worth.entitlement_of) or _side_within(
        case, relation.claimant_side, case.relief, worth.share_of
    )


def _claims_below(case: Case, relation: Relation) -> bool:
    """A switch claimant against work below it."""
    return case.work.switch_claimant and relation.ancestor == case.work.quota and relation.victim_side >= 0


def own_room_only(case: Case, removed: dict[int, Row]) -> bool:
    """Against work below it a switch claimant has the promise only for its quota's own room."""
    own = case.after(own_side(case.work.quota), removed)
    room = case.accounts.books.own_room[case.work.quota]
    return all(not case.amount[r] or room[r] >= UNBOUNDED or own[r] <= room[r] for r in RESOURCES)


def guarantee(case: Case, piece: Piece, relation: Relation, removed: dict[int, Row], *, final: bool) -> bool:
    """(a) The claimant's side is within its entitlement after the start, and the victim is borrowed at its side.

    Work of the claimant's own side shares its promise: of that only what is always borrowed gives way.
    """
    if relation.claimant_side == relation.victim_side and piece.workload.idle is not IdleUse.ONLY:
        return False
    if relation.claimant_side == relation.victim_side and not final:
        removed = _with(case.world, removed, piece)
    if not _side_within(case, relation.claimant_side, removed, case.accounts.worth.entitlement_of):
        return False
    if not _is_borrowed(case, piece, relation) or not _respects_priority(case, piece, relation):
        return False
    return _still_borrows(case, piece, relation, removed, final=final)


def share(case: Case, piece: Piece, relation: Relation, removed: dict[int, Row], *, final: bool) -> bool:
    """(a') Beyond its entitlement but within its share: only from sides that are over theirs and stay at it."""
    if relation.claimant_side == relation.victim_side or case.claim.growth:
        return False
    if case.work.workload.idle is not IdleUse.ALLOW:
        return False
    worth = case.accounts.worth
    if not _side_within(case, relation.claimant_side, removed, worth.share_of):
        return False
    if not _is_borrowed(case, piece, relation) or not _respects_priority(case, piece, relation):
        return False
    bound, before = worth.share_of(relation.victim_side), case.used_before(relation.victim_side)
    after = case.after(relation.victim_side, removed)
    scarce = [r for r in case.lacks if piece.amount[r] and bound[r] < UNBOUNDED]
    on_top = [0, 0, 0] if final else piece.amount
    return bool(scarce) and all(before[r] > bound[r] and after[r] - on_top[r] >= bound[r] for r in scarce)


def child_level(case: Case, piece: Piece, removed: dict[int, Row]) -> bool:
    """(b) A switch claimant against work below it of allowed kind and priority, up to the quota's entitlement."""
    switch = case.world.tree.quotas[case.work.quota].child_preemption
    workload = piece.workload
    if workload.kind not in switch.kinds or workload.priority > switch.max_victim_priority:
        return False
    entitlement = case.accounts.worth.entitlement[case.work.quota]
    held = case.accounts.switch[LATER][case.work.quota]
    return all(
        not case.amount[r] or entitlement[r] >= UNBOUNDED or held[r] + case.amount[r] <= entitlement[r]
        for r in RESOURCES
    )


def priority(case: Case, piece: Piece, relation: Relation) -> bool:
    """(c) A workload of strictly higher priority, inside the quota or among siblings that both have it on."""
    if case.claim.growth or case.work.workload.priority <= piece.workload.priority:
        return False
    quotas = case.world.tree.quotas
    if piece.work.quota == case.work.quota:
        quota = quotas[case.work.quota]
        rules = quota.priority_preemption
        return rules.inside and _allowed(case.work.workload, rules.by) and _takes(piece.workload, quota)
    if not are_priority_siblings(case, relation):
        return False
    by = quotas[relation.claimant_side].priority_preemption.by
    return _allowed(case.work.workload, by) and _takes(piece.workload, quotas[relation.victim_side])


def are_priority_siblings(case: Case, relation: Relation) -> bool:
    """Whether both sides are quotas that have priority preemption among siblings on."""
    if relation.claimant_side < 0 or relation.victim_side < 0:
        return False
    quotas = case.world.tree.quotas
    return (
        quotas[relation.claimant_side].priority_preemption.siblings
        and quotas[relation.victim_side].priority_preemption.siblings
    )


def _allowed(workload: Workload, span: tuple[int, int]) -> bool:
    return span[0] <= workload.priority <= span[1]


def _takes(victim: Workload, quota: Quota) -> bool:
    rules = quota.priority_preemption
    return victim.kind in rules.kinds and _allowed(victim, rules.of)


def _respects_priority(case: Case, piece: Piece, relation: Relation) -> bool:
    """Between siblings with priority preemption on, the promise takes no work of higher priority."""
    if not are_priority_siblings(case, relation):
        return True
    return piece.workload.priority <= case.work.workload.priority


def _side_within(case: Case, side: int, removed: dict[int, Row], bound_of: Callable[[int], Row]) -> bool:
    """Whether a side is within a bound after the start in each resource that the claim asks."""
    bound = bound_of(side)
    after = case.after(side, removed)
    return all(not case.amount[r] or bound[r] >= UNBOUNDED or after[r] <= bound[r] for r in RESOURCES)


def _is_borrowed(case: Case, piece: Piece, relation: Relation) -> bool:
    """Any part of it is borrowed at its side, in a resource that it holds and the claim lacks.

    What is borrowed only because switch claimants came may be taken only as far as that switch allows.
    """
    identifier, side = piece.workload.id, relation.victim_side
    row = case.borrowed_before(side).get(identifier)
    if row is None or not any(row[r] and piece.amount[r] for r in case.lacks):
        return False
    switches = _switches_above(case, piece.work.quota)
    if not switches:
        return True
    without = case.borrowed_without_switch(side).get(identifier)
    if without is not None and any(without[r] for r in case.lacks):
        return True
    return all(
        piece.workload.kind in quota.child_preemption.kinds
        and piece.workload.priority <= quota.child_preemption.max_victim_priority
        for quota in switches
    )


def _switches_above(case: Case, quota: int) -> list[Quota]:
    """Quotas above whose switch claimants hold room or are let in."""
    worth, tree = case.accounts.worth, case.world.tree
    return [
        tree.quotas[above]
        for above in tree.path[quota][:-1]
        if any(0 < value < UNBOUNDED for value in worth.own_switch[above])
    ]


def _still_borrows(case: Case, piece: Piece, relation: Relation, removed: dict[int, Row], *, final: bool) -> bool:
    """Put back alone after the start, the victim's side would be beyond its entitlement again."""
    entitlement = case.accounts.worth.entitlement_of(relation.victim_side)
    if piece.workload.idle is IdleUse.ONLY:
        return True
    after = case.after(relation.victim_side, removed)
    back = piece.amount if final else [0, 0, 0]
    return any(
        piece.amount[r] and entitlement[r] < UNBOUNDED and after[r] + back[r] > entitlement[r] for r in case.lacks
    )


def would_borrow_again(case: Case, piece: Piece) -> bool:
    """The exact form of the last condition of (a), on a world in which the victims are gone and the claim runs."""
    if piece.workload.idle is IdleUse.ONLY:
        return True
    side = case.relation(piece.work.quota).victim_side
    accounts, mark = case.accounts, case.accounts.mark()
    accounts.change(piece.workload, piece.amount, +1, piece.work.started_ms, now=False, later=True)
    row = accounts.borrowed(side).get(piece.workload.id)
    accounts.roll_back(mark)
    return row is not None and any(row[r] for r in case.lacks)


# --- who may be taken at all -------------------------------------------------------------------------


def protection(case: Case, work: Work, rule: Rule) -> str:
    """Why work may not be taken under (a) to (c) now: `preemptible`, `min_runtime`, `override`, or nothing."""
    workload = work.workload
    if not workload.preemptible:
        return "preemptible"
    runtime = case.world.tree.quotas[work.quota].min_runtime
    least = runtime.preempt_ms if rule is Rule.PRIORITY else runtime.reclaim_ms
    if case.world.now_ms - work.started_ms >= least:
        return ""
    waited = case.world.now_ms - waiting_since(case.work)
    if runtime.override_after_ms is not None and waited >= runtime.override_after_ms and case.within_entitlement:
        return "override"
    return "min_runtime"


def value_of(world: World, work: Work, *, stops: bool) -> ValueKey:
    """How valuable work is: the least valuable has the smallest key.

    `only` first, shrink before stop, lower priority, least work lost since the last checkpoint, later started, id.
    """
    workload = work.workload
    return (
        workload.idle is not IdleUse.ONLY,
        stops,
        workload.priority,
        work_lost(world, work) if stops else 0,
        -work.started_ms,
        workload.id,
    )


def work_lost(world: World, work: Work) -> int:
    """Milliseconds of work that a stop now would lose."""
    checkpoint = work.workload.checkpoint
    if checkpoint.on_signal:
        return 0
    since = work.started_ms if checkpoint.last_ms is None else max(work.started_ms, checkpoint.last_ms)
    return max(0, world.now_ms - since)


def pieces_of(world: World, work: Work, pool: int) -> list[Piece]:
    """What may be taken of a workload: its workers beyond the minimum one by one, and all of it."""
    known = world.pieces.get((work.workload.id, pool))
    if known is None or known[0] != work.changes:
        known = world.pieces[work.workload.id, pool] = (work.changes, _make_pieces(world, work, pool))
    return known[1]


def _make_pieces(world: World, work: Work, pool: int) -> list[Piece]:
    if any(not held.live for held in work.present.values()):
        return []  # part of it only has its place reserved: leave it alone
    keys = sorted(work.present)
    minimums = [group.minimum for group in work.workload.groups]
    pieces = []
    if len(keys) > 1:
        counts = [work.present_in(at) for at in range(len(minimums))]
        pieces = [piece_of(world, work, (key,), pool) for key in keys if counts[key[0]] > minimums[key[0]]]
    if len(keys) == 1 or any(minimums) or not pieces:
        pieces.append(piece_of(world, work, tuple(keys), pool))
    return pieces


def piece_of(world: World, work: Work, keys: tuple[WorkerKey, ...], pool: int) -> Piece:
    """Some workers of a workload as a piece; it stops when they are all that it has."""
    stops = len(keys) == len(work.present)
    held = [work.present[key] for key in keys]
    amount = sum_rows(row_of(one.place) for one in held if one.pool == pool)
    places = tuple(one.place for one in held)
    return Piece(work, keys, places, amount, stops, value_of(world, work, stops=stops))


def most_borrowed(accounts: Accounts, quota: int, identifier: int, view: int = LATER) -> int:
    """GPUs of a workload that are borrowed, at whichever level most are."""
    sides = (own_side(quota), *accounts.tree.path[quota])
    rows = [accounts.borrowed(side, view).get(identifier) for side in sides]
    return max((row[0] for row in rows if row is not None), default=0)


def notebooks_in(pieces: Iterable[Piece]) -> int:
    """How many notebooks are among the pieces."""
    return sum(1 for piece in pieces if piece.workload.kind is Kind.NOTEBOOK)
