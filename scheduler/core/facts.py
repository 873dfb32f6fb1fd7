"""The facts that an eviction's record keeps: how the books stood before and how they stand after."""

from __future__ import annotations

from scheduler.core.lawful import Case, Piece, add_removed
from scheduler.core.model import Facts, Rule
from scheduler.core.rooms import LATER
from scheduler.core.search import Found
from scheduler.core.tree import POOL, Row, quota_of_side


def eviction_facts(case: Case, piece: Piece, rule: Rule, found: Found) -> Facts:
    """Rule, both sides with entitlement, share and use before and after, and whether a minimum run time was overridden."""
    removed: dict[int, Row] = {}
    for other in found.pieces:
        add_removed(case.world, removed, other)
    relation = case.relation(piece.work.quota)
    facts: dict[str, object] = {
        "rule": rule.value,
        "pool": case.pool,
        "claimant": case.work.workload.id,
        "claimant_side": _side(case, relation.claimant_side, removed),
        "victim_side": _side(case, relation.victim_side, removed),
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
