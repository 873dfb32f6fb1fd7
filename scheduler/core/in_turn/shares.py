"""Fair shares in passes: what each quota is promised, then what is left by rank and weight in whole units.

The promise is not cut when promises exceed what is there: the shares then sum to more than the capacity, and who is
served first decides. Source of the rule: the division described for KAI-Scheduler (proportion), in our own form.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from scheduler.core.resources import GPU, UNBOUNDED, WHOLE_GPU
from scheduler.core.tree import RESOURCES, PoolBooks, Row, Tree


@dataclass(eq=False)
class _Party:
    """One quota in the division of one resource among siblings."""

    quota: int
    request: int
    limit: int
    weight: int
    rank: int
    created_ms: int
    share: int = 0
    cut_off: float = 0.0

    @property
    def missing(self) -> int:
        return max(0, min(self.request, self.limit) - self.share)

    @property
    def is_satisfied(self) -> bool:
        return self.request <= self.share or self.limit <= self.share


def fair_shares(tree: Tree, books: PoolBooks, capacity: Row, request: Sequence[Row]) -> list[Row]:
    """The fair share of every quota, by index: what its whole subtree may expect of each resource."""
    shares: list[Row] = [[0, 0, 0] for _ in tree.quotas]
    for r in RESOURCES:
        _divide(tree, books, r, tree.roots, capacity[r], request, shares)
        for quota in range(len(tree.quotas)):
            if tree.children[quota]:
                _divide(tree, books, r, tree.children[quota], shares[quota][r], request, shares)
    return shares


def _divide(
    tree: Tree,
    books: PoolBooks,
    r: int,
    siblings: Sequence[int],
    total: int,
    request: Sequence[Row],
    shares: list[Row],
) -> None:
    parties = [
        _Party(
            quota,
            request[quota][r],
            books.limit[quota][r],
            books.weight[quota][r],
            books.rank[quota],
            tree.quotas[quota].created_ms,
        )
        for quota in siblings
    ]
    left = total
    for party in parties:
        promised = books.guaranteed[party.quota][r]
        party.share = min(total if promised >= UNBOUNDED else promised, party.request, party.limit)
        left -= party.share
    if left > 0:
        _share_surplus(parties, left, WHOLE_GPU if r == GPU else 1)
    for party in parties:
        shares[party.quota][r] = party.share


def _share_surplus(parties: Sequence[_Party], left: int, unit: int) -> None:
    """The rest by rank; inside a rank in passes by weight, then what rounding cut off, one unit each."""
    ranks = sorted({party.rank for party in parties})
    cut: dict[int, list[_Party]] = {}
    for rank in ranks:
        left, cut[rank] = _pass_on([party for party in parties if party.rank == rank], left, unit)
    for rank in ranks:
        for party in sorted(cut[rank], key=lambda p: (-p.cut_off, p.created_ms, p.quota)):
            given = min(unit, max(0, left))
            party.share += given
            left -= given


def _pass_on(parties: list[_Party], left: int, unit: int) -> tuple[int, list[_Party]]:
    """What is left after the passes, and who was cut off in the last pass that touched it."""
    if len(parties) == 1:
        parties[0].share += left
        return 0, []
    cut: dict[int, _Party] = {}
    again = True
    while again and left > 0:
        again, amount = False, left
        hungry = [party for party in parties if not party.is_satisfied]
        weights = sum(party.weight for party in hungry if party.missing > 0)
        for party in hungry:
            if left <= 0 or not party.weight or not weights:
                continue
            exact = amount * party.weight / weights
            missing = party.missing
            if missing <= exact:
                given = missing
                cut.pop(party.quota, None)
            else:
                given = int(exact // unit) * unit
                if exact > given:
                    party.cut_off = exact - given
                    cut[party.quota] = party
            again = again or missing < exact
            party.share += given
            left -= given
    return left, list(cut.values())
