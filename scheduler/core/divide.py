"""Divide: what each guarantee is worth now (entitlement) and what each may use in all (share).

Top-down, for each pool and resource by itself. Entitlement: first a quota's switch claimants, then its
other own work up to its own room, then its children up to their guaranteed, cut in proportion where they
do not fit. Share: entitlement and a part of the surplus, by rank, then by weight.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction

from scheduler.core.policy import Policy
from scheduler.core.resources import GPU, UNBOUNDED, WHOLE_GPU
from scheduler.core.tree import RESOURCES, PoolBooks, Row, Tree, own_side


@dataclass(frozen=True, slots=True)
class OwnAsk:
    """What a quota's own work asks for, running and waiting, in one resource after the other."""

    switch: Row
    """By switch claimants that hold room or are let in."""
    switch_waiting: Row
    """By switch claimants that wait: their quota asks for it, but nothing is cut for it yet."""
    switch_idle: Row
    """The part of it that accepts idle use."""
    firm: Row
    """By other work with idle use never or allow."""
    firm_idle: Row
    """The part of it with idle use allow."""
    only: Row
    """By work with idle use only: always borrowed, so it comes last wherever room is short."""
    held: Row
    """What runs of all this: limits do not make less of it."""


def no_ask() -> OwnAsk:
    """Nothing asked for, in rows of its own."""
    return OwnAsk(*([0, 0, 0] for _ in range(7)))


@dataclass(frozen=True, eq=False)
class Division:
    """Entitlements and shares of one pool, by quota index; `UNBOUNDED` where a quota gives no amount."""

    entitlement: tuple[Row, ...]
    promise: tuple[Row, ...]
    """What it would be entitled to if it asked for all: what is idle of it is what idle sharing lends."""
    share: tuple[Row, ...]
    own_switch: tuple[Row, ...]
    own_other: tuple[Row, ...]
    own_share: tuple[Row, ...]

    def entitlement_of(self, side: int) -> Row:
        """The entitlement of a side."""
        if side >= 0:
            return self.entitlement[side]
        quota = -2 - side
        return [min(UNBOUNDED, a + b) for a, b in zip(self.own_switch[quota], self.own_other[quota], strict=True)]

    def share_of(self, side: int) -> Row:
        """The share of a side."""
        return self.share[side] if side >= 0 else self.own_share[-2 - side]


def divide(tree: Tree, books: PoolBooks, capacity: Row, asks: Sequence[OwnAsk], policy: Policy) -> Division:
    """Entitlement and share of every quota of one pool."""
    tables = [_DivideOne(tree, books, r, capacity[r], asks, policy).run() for r in RESOURCES]

    def rows(name: str) -> tuple[Row, ...]:
        columns = [getattr(table, name) for table in tables]
        return tuple([column[i] for column in columns] for i in range(len(tree.quotas)))

    return Division(
        entitlement=rows("entitlement"),
        promise=rows("promise"),
        share=rows("share"),
        own_switch=rows("own_switch"),
        own_other=rows("own_other"),
        own_share=rows("own_share"),
    )


class _DivideOne:
    """One resource of one pool. Everything is a plain list of integers by quota index."""

    def __init__(
        self, tree: Tree, books: PoolBooks, r: int, capacity: int, asks: Sequence[OwnAsk], policy: Policy
    ) -> None:
        count = len(tree.quotas)
        self.tree, self.books, self.policy = tree, books, policy
        self.r, self.capacity = r, capacity
        self.unit = WHOLE_GPU if r == GPU else 1
        self.asks = asks
        self.guaranteed = [row[r] for row in books.guaranteed]
        self.entitlement = [UNBOUNDED] * count
        self.promise = [UNBOUNDED] * count
        self.share = [UNBOUNDED] * count
        self.own_switch = [UNBOUNDED] * count
        self.own_other = [UNBOUNDED] * count
        self.own_share = [UNBOUNDED] * count

    def run(self) -> _DivideOne:
        """Fill all lists; where nobody governs the resource they stay without bound."""
        if not self.books.governed[self.r]:
            return self
        self._ask()
        self._divide_children(self.tree.roots, self.capacity)
        for quota in self.tree.roots:  # a root has its guaranteed, asked for or not
            self.entitlement[quota] = self.promise[quota]
        for quota in range(len(self.tree.quotas)):
            self._divide_inside(quota)
        self._share_out()
        return self

    # --- asking, from the leaves up -----------------------------------------------------------------

    def _ask(self) -> None:
        """What each subtree asks for within its limits: without `only` work, with it, and what idle use would take."""
        r, count = self.r, len(self.tree.quotas)
        self.firm, self.all, self.held = [0] * count, [0] * count, [0] * count
        for quota in reversed(range(count)):
            ask, below = self.asks[quota], self.tree.children[quota]
            self.held[quota] = ask.held[r] + sum(self.held[child] for child in below)
            limit = self.books.limit[quota][r]
            own = ask.switch[r] + ask.switch_waiting[r] + ask.firm[r]
            firm = own + sum(self.firm[child] for child in below)
            every = firm + ask.only[r] + sum(self.all[child] - self.firm[child] for child in below)
            self.firm[quota] = max(min(self.held[quota], firm), min(limit, firm))
            self.all[quota] = max(self.held[quota], min(limit, every))

    # --- entitlement, top-down ----------------------------------------------------------------------

    def _divide_children(self, children: Sequence[int], room: int) -> None:
        """Give sibling quotas their parts of the room: what is asked first, then the rest of the promises."""
        governed = [child for child in children if self.guaranteed[child] < UNBOUNDED]
        promised = [self.guaranteed[child] for child in governed]
        steps = [
            [min(p, self.firm[child]) for p, child in zip(promised, governed, strict=True)],
            [min(p, self.all[child]) for p, child in zip(promised, governed, strict=True)],
            promised,
        ]
        parts = fill_in_steps(room, promised, steps)
        for place, child in enumerate(governed):
            self.entitlement[child] = parts[1][place]
            self.promise[child] = parts[2][place]

    def _divide_inside(self, quota: int) -> None:
        """Switch claimants, then other own work up to its own room, then the children."""
        ask, room = self.asks[quota], self.entitlement[quota]
        whole = self.promise[quota]
        if whole >= UNBOUNDED:
            self._divide_children(self.tree.children[quota], UNBOUNDED)
            return
        switch = min(room, ask.switch[self.r])
        other_asked = ask.firm[self.r] + ask.only[self.r]
        other = min(other_asked, self.books.own_room[quota][self.r], room - switch)
        self.own_switch[quota], self.own_other[quota] = switch, other
        self._divide_children(self.tree.children[quota], whole - switch - other)

    # --- share, top-down ----------------------------------------------------------------------------

    def _share_out(self) -> None:
        """Divide the surplus at the pool, then inside each quota."""
        count = len(self.tree.quotas)
        self.kept = [0] * count
        self.idle_wanted = [0] * count
        for quota in reversed(range(count)):
            self._look_below(quota)
        self._share_at(self.tree.roots, None, self.capacity)
        for quota in range(count):
            if self.share[quota] < UNBOUNDED:
                self._share_at(self.tree.children[quota], quota, self.share[quota])
            else:
                self._share_at(self.tree.children[quota], None, UNBOUNDED)

    def _base(self, quota: int) -> int:
        """The part of its promise that a quota asks for; all it asks for where nothing is promised by amount."""
        return min(self.promise[quota], self.all[quota])

    def _look_below(self, quota: int) -> None:
        """What a quota holds back from others, and what its subtree would take of others' idle room."""
        below = self.tree.children[quota]
        inside = self._own_base(quota) + sum(self._base(c) + self.kept[c] for c in below)
        wanted = self._own_idle_wanted(quota) + sum(self.idle_wanted[c] for c in below)
        promise = self.promise[quota]
        if promise >= UNBOUNDED:
            self.idle_wanted[quota] = wanted
            return
        base = self._base(quota)
        within = max(0, base - inside)  # its own idle promise serves its own work first
        limit = self.books.limit[quota][self.r]
        self.idle_wanted[quota] = max(0, min(wanted - within, limit - base))
        idle = max(0, promise - max(base, inside))
        self.kept[quota] = max(0, idle - self.books.lending[quota][self.r]) + max(0, inside - base)

    def _own_base(self, quota: int) -> int:
        if self.own_switch[quota] >= UNBOUNDED:
            ask = self.asks[quota]
            return ask.switch[self.r] + ask.firm[self.r] + ask.only[self.r]
        return self.own_switch[quota] + self.own_other[quota]

    def _own_idle_wanted(self, quota: int) -> int:
        """What own work would take beyond its entitlement: only what accepts idle use."""
        if self.own_switch[quota] >= UNBOUNDED:
            return 0
        ask, r = self.asks[quota], self.r
        switch = min(ask.switch_idle[r], max(0, ask.switch[r] - self.own_switch[quota]))
        other = ask.firm[r] + ask.only[r] - self.own_other[quota]
        return switch + min(ask.firm_idle[r] + ask.only[r], max(0, other))

    def _share_at(self, children: Sequence[int], quota: int | None, room: int) -> None:
        """Give the sides under an ancestor their bases and their parts of what is left."""
        sides = [own_side(quota)] if quota is not None else []
        sides += [child for child in children if self.promise[child] < UNBOUNDED]
        bases = [self._base_of(side) for side in sides]
        free_children = [child for child in children if self.promise[child] >= UNBOUNDED]
        held_back = sum(self.kept[child] for child in children)
        left = room - sum(bases) - held_back - sum(self._base(child) for child in free_children)
        if room >= UNBOUNDED:
            left = UNBOUNDED
        parts = self._surplus(sides, max(0, left))
        for side, base, part in zip(sides, bases, parts, strict=True):
            if side >= 0:
                self.share[side] = max(self.entitlement[side], base + part)
            elif quota is not None:
                self.own_share[quota] = base + part

    def _base_of(self, side: int) -> int:
        return self._base(side) if side >= 0 else self._own_base(-2 - side)

    def _surplus(self, sides: Sequence[int], left: int) -> list[int]:
        """By rank, and inside a rank by weight; those of weight 0 after the others of their rank."""
        parts = [0] * len(sides)
        for key in sorted({self._rank(side) for side in sides}):
            members = [place for place, side in enumerate(sides) if self._rank(side) == key]
            given = fill_by_weight(
                left,
                [self._idle_wanted_of(sides[place]) for place in members],
                [max(1, self._weight(sides[place])) for place in members],
                self.unit,
            )
            for place, part in zip(members, given, strict=True):
                parts[place] = part
            left -= sum(given)
        return parts

    def _rank(self, side: int) -> tuple[int, bool]:
        quota = side if side >= 0 else -2 - side
        return self.books.rank[quota] if side >= 0 else 0, self._weight(side) <= 0

    def _idle_wanted_of(self, side: int) -> int:
        return self.idle_wanted[side] if side >= 0 else self._own_idle_wanted(-2 - side)

    def _weight(self, side: int) -> int:
        """Weight in the surplus; past use, where it is remembered, makes less of it."""
        if side < 0:
            return self.books.own_room[-2 - side][self.r]
        weight = self.books.weight[side][self.r]
        if not self.policy.past_use_factor_milli:
            return weight
        worn = self.books.past_use[side] * self.policy.past_use_factor_milli // 1000
        return max(0, weight * (1000 - min(1000, worn)) // 1000)


def fill_in_steps(room: int, weights: Sequence[int], steps: Sequence[Sequence[int]]) -> list[list[int]]:
    """Parts after each step: every step raises the ceilings, and what is short is cut by weight.

    What one side does not reach its ceiling with goes to the others up to theirs.
    """
    given = [0] * len(weights)
    results = []
    for ceilings in steps:
        wanted = [max(0, ceiling - part) for ceiling, part in zip(ceilings, given, strict=True)]
        more = fill_to_level(room, ceilings, given, weights)
        given = [part + extra for part, extra in zip(given, more, strict=True)]
        room -= min(sum(wanted), sum(more))
        results.append(list(given))
    return results


def fill_to_level(room: int, ceilings: Sequence[int], given: Sequence[int], weights: Sequence[int]) -> list[int]:
    """More for each side, so that all parts are in proportion to the weights as far as ceilings allow.

    The parts are what a common level times the weight gives, between what each has and its ceiling.
    """
    wanted = [max(0, ceiling - part) for ceiling, part in zip(ceilings, given, strict=True)]
    if sum(wanted) <= room:
        return wanted
    sides = [
        (part, max(part, ceiling), max(1, weight))
        for part, ceiling, weight in zip(given, ceilings, weights, strict=True)
    ]
    total = room + sum(given)
    levels = sorted({Fraction(bound, weight) for low, high, weight in sides for bound in (low, high)})
    level = _highest_within(levels, sides, total)
    parts = [_at_level(level, side) for side in sides]
    rising = [place for place, (low, high, weight) in enumerate(sides) if low <= level * weight < high]
    floors = [int(part) for part in parts]
    more = by_largest_remainder(total - sum(floors), [sides[place][2] for place in rising], 1) if rising else []
    for place, extra in zip(rising, more, strict=True):
        floors[place] = min(floors[place] + extra, sides[place][1])
    return [part - low for part, (low, _, _) in zip(floors, sides, strict=True)]


def _highest_within(levels: Sequence[Fraction], sides: Sequence[tuple[int, int, int]], total: int) -> Fraction:
    """The highest of the levels at which the parts are not more than the total."""
    low, high = 0, len(levels)
    while high - low > 1:
        middle = (low + high) // 2
        if sum((_at_level(levels[middle], side) for side in sides), Fraction()) <= total:
            low = middle
        else:
            high = middle
    return levels[low]


def _at_level(level: Fraction, side: tuple[int, int, int]) -> Fraction:
    low, high, weight = side
    return min(max(level * weight, Fraction(low)), Fraction(high))


def fill_by_weight(left: int, wanted: Sequence[int], weights: Sequence[int], unit: int) -> list[int]:
    """Parts of `left` by weight, nobody more than wanted; a satisfied side's rest is offered again.

    Parts that are cut are whole units, by largest remainder; a rest below one unit is kept whole.
    """
    given = [0] * len(wanted)
    if sum(wanted) <= left:
        return list(wanted)
    open_places = [place for place, want in enumerate(wanted) if want > 0]
    while open_places and left > 0:
        weight = sum(weights[place] for place in open_places)
        satisfied = [p for p in open_places if wanted[p] * weight <= left * weights[p]]
        if not satisfied:
            break
        for place in satisfied:
            given[place] = wanted[place]
        left -= sum(wanted[place] for place in satisfied)
        open_places = [place for place in open_places if place not in satisfied]
    _cut(given, open_places, left, wanted, weights, unit)
    return given


def _cut(
    given: list[int],
    places: Sequence[int],
    left: int,
    wanted: Sequence[int],
    weights: Sequence[int],
    unit: int,
) -> None:
    """Whole units by largest remainder for sides that all want more than their part."""
    while places and left > 0:
        parts = by_largest_remainder(left, [weights[place] for place in places], unit)
        for place, part in zip(places, parts, strict=True):
            taken = min(part, wanted[place] - given[place])
            given[place] += taken
            left -= taken
        places = [place for place in places if given[place] < wanted[place]]


def by_largest_remainder(total: int, weights: Sequence[int], unit: int) -> list[int]:
    """`total` in parts by weight: whole units, the rest unit by unit to the largest remainders."""
    weight = sum(weights)
    parts = [total * w // weight // unit * unit for w in weights]
    rest = total - sum(parts)
    by_remainder = sorted(range(len(weights)), key=lambda p: (parts[p] * weight - total * weights[p], -weights[p], p))
    for place in by_remainder:
        more = min(unit, rest)
        parts[place] += more
        rest -= more
    return parts
