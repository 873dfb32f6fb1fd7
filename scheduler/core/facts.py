"""The facts that an eviction's record keeps: how the books stood before and how they stand after."""

from __future__ import annotations

from scheduler.core.lawful import Case, Piece, add_removed
from scheduler.core.model import Facts, Rule
from scheduler.core.rooms import LATER
from scheduler.core.search import Found
from scheduler.core.tree import POOL, Row, quota_of_side


def eviction_facts(case: Case, found: Found) -> list[Facts]:
    """For each piece: its rule, both sides before and after, and whether a minimum run time was overridden."""
    removed: dict[int, Row] = {}
    for piece in found.pieces:
        add_removed(case.world, removed, piece)
    sides: dict[int, Facts] = {}
    return [_facts_of(case, piece, rule, removed, sides) for piece, rule in zip(found.pieces, found.rules, strict=True)]


def _facts_of(case: Case, piece: Piece, rule: Rule, removed: dict[int, Row], sides: dict[int, Facts]) -> Facts:
    relation = case.relation(piece.work.quota)
    for side in (relation.claimant_side, relation.victim_side):
        if side not in sides:
            sides[side] = _side(case, side, removed)
    facts: dict[str, object] = {
        "rule": rule.value,
        "pool": case.pool,
        "claimant": case.work.workload.id,
        "claimant_side": sides[relation.claimant_side],
        "victim_side": sides[relation.victim_side],
    }
    if relation.ancestor != POOL:
        facts["ancestor"] = case.world.tree.quotas[relation.ancestor].id
    if piece.workload.id in case.overridden:
        facts["min_runtime_overridden"] = True
    return facts


def _side(case: Case, side: int, removed: dict[int, Row]) -> dict[str, object]:
    worth = case.accounts.worth
    return {
        "quota": case.world.tree.quotas[quota_of_side(side)].id,
        "own_work_only": side < POOL,
        "entitlement": list(worth.entitlement_of(side)),
        "share": list(worth.share_of(side)),
        "used_before": list(case.accounts.held_by_side(side, LATER)),
        "used_after": case.after(side, removed),
    }
