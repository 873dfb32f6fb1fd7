"""The quota tree in index form, and what each quota has in one pool.

Indexes run over all quotas, parents before children, then by id. A *side* stands just under a common
ancestor: index `i` is the quota with all below it, `own_side(i)` the quota's own work alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from scheduler.core.model import PoolAmounts, Quota
from scheduler.core.resources import GPU, UNBOUNDED, Bound

Row = list[int]
"""One number a resource, in column order."""
RESOURCES = range(3)
POOL = -1
"""The ancestor of the roots."""


def own_side(quota: int) -> int:
    """The side that stands for a quota's own work (never the index of a quota)."""
    return -2 - quota


def quota_of_side(side: int) -> int:
    """The quota that a side belongs to."""
    return side if side >= 0 else -2 - side


@dataclass(frozen=True, eq=False)
class Tree:
    """Who stands below whom."""

    quotas: tuple[Quota, ...]
    index: dict[int, int]
    parent: tuple[int, ...]
    children: tuple[tuple[int, ...], ...]
    roots: tuple[int, ...]
    path: tuple[tuple[int, ...], ...]
    """From the root down to the quota itself."""

    def ancestor_and_sides(self, one: int, other: int) -> tuple[int, int, int]:
        """The lowest quota above the work of both, and their sides under it.

        Work of one and the same quota has one side, the quota's own.
        """
        path, others = self.path[one], self.path[other]
        common = 0
        for mine, theirs in zip(path, others, strict=False):
            if mine != theirs:
                break
            common += 1
        ancestor = path[common - 1] if common else POOL
        side = path[common] if common < len(path) else own_side(one)
        other_side = others[common] if common < len(others) else own_side(other)
        return ancestor, side, other_side

    def is_below(self, quota: int, above: int) -> bool:
        """Whether a quota stands strictly below another."""
        return quota != above and above in self.path[quota]


def tree_of(quotas: Sequence[Quota]) -> Tree:
    """The tree of quotas; one whose parent is not among them is a root."""
    known = {quota.id: quota for quota in quotas}
    depth: dict[int, int] = {}
    for quota in quotas:
        depth[quota.id] = _depth(quota, known)
    ordered = tuple(sorted(quotas, key=lambda quota: (depth[quota.id], quota.id)))
    index = {quota.id: place for place, quota in enumerate(ordered)}
    parent = tuple(POOL if q.parent is None else index.get(q.parent, POOL) for q in ordered)
    children: list[list[int]] = [[] for _ in ordered]
    path: list[tuple[int, ...]] = []
    for place, above in enumerate(parent):
        if above != POOL:
            children[above].append(place)
        path.append((*path[above], place) if above != POOL else (place,))
    roots = tuple(place for place, above in enumerate(parent) if above == POOL)
    return Tree(ordered, index, parent, tuple(map(tuple, children)), roots, tuple(path))


def _depth(quota: Quota, known: dict[int, Quota]) -> int:
    depth = 0
    while quota.parent is not None and quota.parent in known and depth <= len(known):
        quota, depth = known[quota.parent], depth + 1
    return depth


@dataclass(frozen=True, eq=False)
class PoolBooks:
    """What each quota has in one pool, by index; `UNBOUNDED` where it gives no amount."""

    guaranteed: tuple[Row, ...]
    limit: tuple[Row, ...]
    lending: tuple[Row, ...]
    """How much of its idle promise is lent outside: 0 with idle sharing off."""
    weight: tuple[Row, ...]
    rank: tuple[int, ...]
    past_use: tuple[int, ...]
    own_room: tuple[Row, ...]
    """Guaranteed minus the children's guaranteed."""
    governed: tuple[bool, bool, bool]
    """Which resources any quota governs in this pool."""
    lends_freely: bool
    """No quota holds anything back, so idle room is idle room."""


def books_of(tree: Tree, pool: int) -> PoolBooks:
    """The amounts of one pool. A quota that names other pools but not this one is promised nothing here."""
    amounts = [_amounts_in(quota, pool) for quota in tree.quotas]
    guaranteed = tuple(_row(each.guaranteed) for each in amounts)
    own_room = tuple(
        [_minus(guaranteed[i][r], [guaranteed[c][r] for c in tree.children[i]]) for r in RESOURCES]
        for i in range(len(amounts))
    )
    lending = tuple(
        _row(each.lending_limit) if quota.idle_sharing else [0, 0, 0]
        for quota, each in zip(tree.quotas, amounts, strict=True)
    )
    return PoolBooks(
        guaranteed=guaranteed,
        limit=tuple(_row(each.limit) for each in amounts),
        lending=lending,
        weight=tuple(_weights(each, row) for each, row in zip(amounts, guaranteed, strict=True)),
        rank=tuple(each.rank for each in amounts),
        past_use=tuple(each.past_use_milli for each in amounts),
        own_room=own_room,
        governed=_governed(guaranteed),
        lends_freely=all(value >= UNBOUNDED for row in lending for value in row),
    )


def _governed(guaranteed: Sequence[Row]) -> tuple[bool, bool, bool]:
    gpu, cpu, memory = (any(row[r] < UNBOUNDED for row in guaranteed) for r in RESOURCES)
    return gpu, cpu, memory


def _amounts_in(quota: Quota, pool: int) -> PoolAmounts:
    for pool_id, amounts in quota.amounts:
        if pool_id == pool:
            return amounts
    return PoolAmounts(guaranteed=Bound(gpu_milli=0)) if quota.amounts else PoolAmounts()


def _row(bound: Bound) -> Row:
    return [UNBOUNDED if value is None else value for value in (bound.gpu_milli, bound.cpu_milli, bound.memory_mib)]


def _minus(whole: int, parts: Sequence[int]) -> int:
    """What is left of an amount; without bound if it has none, and parts without bound take nothing."""
    if whole >= UNBOUNDED:
        return UNBOUNDED
    return max(0, whole - sum(part for part in parts if part < UNBOUNDED))


def _weights(amounts: PoolAmounts, guaranteed: Row) -> Row:
    """Weights in thousandths: the given one, else the guaranteed GPUs (one each where GPUs have no bound)."""
    given = amounts.weight_milli
    if given is None:
        given = guaranteed[GPU] if guaranteed[GPU] < UNBOUNDED else 1000
    other = given if amounts.other_weight_milli is None else amounts.other_weight_milli
    return [given, other, other]
