"""Whether quotas let a claim start, and why not. Nodes are another question."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from scheduler.core.accounts import Accounts, ChargeKey, Member, charge_key
from scheduler.core.model import Facts, IdleUse, Reason
from scheduler.core.resources import KINDS, UNBOUNDED
from scheduler.core.rooms import LATER
from scheduler.core.tree import RESOURCES, Row, own_side
from scheduler.core.world import Work, World


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why not: a code, facts, and what would help."""

    reason: Reason
    facts: Facts
    would_unblock: Facts


def refusal(world: World, work: Work, amount: Sequence[int], pool: int, view: int) -> Refusal | None:
    """Why so much more may not start by its caps, limits and promises; None if it may."""
    return (
        over_cap(world, work, amount)
        or over_limit(world, work, amount, pool, view)
        or not_promised(world, work, amount, pool, view)
    )


def over_cap(world: World, work: Work, amount: Sequence[int]) -> Refusal | None:
    """A cap on what some workloads hold at once that this would pass."""
    for identifier in sorted(work.workload.caps):
        cap = world.caps.get(identifier)
        if cap is None:
            continue
        use, bound = world.cap_use[identifier], cap.bound
        used = (use.gpu_milli, use.cpu_milli, use.memory_mib)
        bounds = (bound.gpu_milli, bound.cpu_milli, bound.memory_mib)
        for r in RESOURCES:
            most = bounds[r]
            if amount[r] and most is not None and used[r] + amount[r] > most:
                facts = {**dict(cap.facts), "cap": identifier, **_numbers(r, amount[r], most, used[r])}
                return Refusal(Reason.CONFIGURATION_CAP, facts, _lacking(r, used[r] + amount[r] - most))
    return None


def over_limit(world: World, work: Work, amount: Sequence[int], pool: int, view: int) -> Refusal | None:
    """The lowest limit on the way up that this would pass."""
    accounts = world.pools[pool].accounts
    for quota in reversed(world.tree.path[work.quota]):
        limit, used = accounts.books.limit[quota], accounts.used[view][quota]
        for r in RESOURCES:
            if amount[r] and limit[r] < UNBOUNDED and used[r] + amount[r] > limit[r]:
                own = quota == work.quota
                reason = Reason.QUOTA_LIMIT if own else Reason.QUOTA_ANCESTOR_LIMIT
                facts = {"quota": world.tree.quotas[quota].id, **_numbers(r, amount[r], limit[r], used[r])}
                return Refusal(reason, facts, _lacking(r, used[r] + amount[r] - limit[r]))
    return None


def not_promised(world: World, work: Work, amount: Sequence[int], pool: int, view: int) -> Refusal | None:
    """Work within its entitlement may start; beyond it only what accepts idle use, on room that is lent."""
    accounts = world.pools[pool].accounts
    idle = work.workload.idle
    if idle is not IdleUse.ONLY and fits_entitlement(world, work, amount, pool, view):
        return None
    if idle is IdleUse.NEVER and not is_covered_itself(world, work, amount, pool, view):
        return _beyond_promise(world, work, amount, pool, view)
    if accounts.is_lent(work.quota, amount, view):
        return None
    return _beyond_promise(world, work, amount, pool, view)


def _beyond_promise(world: World, work: Work, amount: Sequence[int], pool: int, view: int) -> Refusal:
    """The promise is used up; work that accepts idle use lacks room that is lent, within its share or at all."""
    accounts = world.pools[pool].accounts
    side = own_side(work.quota)
    reason = Reason.QUOTA_ENTITLEMENT if work.workload.idle is IdleUse.NEVER else Reason.QUOTA_SHARE
    entitlement = accounts.worth.entitlement_of(side)
    used = accounts.held_by_side(side, view)
    for r in RESOURCES:
        if amount[r] and entitlement[r] < UNBOUNDED and used[r] + amount[r] > entitlement[r]:
            facts = {
                "quota": world.tree.quotas[work.quota].id,
                "idle": work.workload.idle.value,
                **_numbers(r, amount[r], entitlement[r], used[r]),
            }
            return Refusal(reason, facts, _lacking(r, used[r] + amount[r] - entitlement[r]))
    facts = {"quota": world.tree.quotas[work.quota].id, "idle": work.workload.idle.value}
    return Refusal(reason, facts, {"lent": True})


def fits_entitlement(world: World, work: Work, amount: Sequence[int], pool: int, view: int) -> bool:
    """Whether this start is covered by a promise without anybody else borrowing more.

    The parts of an entitlement never sum to more than it, so the lowest quota that governs a resource decides.
    A switch claimant is bounded by its quota's entitlement alone: what is below makes room for it.
    """
    accounts = world.pools[pool].accounts
    worth = accounts.worth
    if work.switch_claimant:
        own = accounts.switch[view][work.quota], worth.entitlement[work.quota]
    else:
        own = _other_own(accounts, work.quota, view), worth.own_other[work.quota]
    return _fits(accounts, work.quota, amount, view, own, worth.entitlement)


def fits_share(world: World, work: Work, amount: Sequence[int], pool: int, view: int) -> bool:
    """Whether this start stays within the share of its own work, or of the lowest quota that governs it."""
    accounts = world.pools[pool].accounts
    own = accounts.own[view][work.quota], accounts.worth.own_share[work.quota]
    if _fits(accounts, work.quota, amount, view, own, accounts.worth.share):
        return True
    return fits_entitlement(world, work, amount, pool, view)


def _fits(
    accounts: Accounts,
    quota: int,
    amount: Sequence[int],
    view: int,
    own: tuple[Row, Row],
    bounds: Sequence[Row],
) -> bool:
    """Whether each resource asked for fits at its lowest governed level, own work being the lowest."""
    for r in RESOURCES:
        if not amount[r]:
            continue
        used, bound = own[0][r], own[1][r]
        for above in reversed(accounts.tree.path[quota]):
            if bound < UNBOUNDED:
                break
            used, bound = accounts.used[view][above][r], bounds[above][r]
        if bound < UNBOUNDED and used + amount[r] > bound:
            return False
    return True


def _other_own(accounts: Accounts, quota: int, view: int) -> Row:
    own, switch = accounts.own[view][quota], accounts.switch[view][quota]
    return [own[r] - switch[r] for r in RESOURCES]


def is_covered_itself(world: World, work: Work, amount: Sequence[int], pool: int, view: int) -> bool:
    """Whether the charge would cover this start, pushing at most work that accepts idle use into borrowing.

    A switch claimant within its quota's entitlement is always covered.
    """
    accounts = world.pools[pool].accounts
    if work.switch_claimant:
        return fits_entitlement(world, work, amount, pool, view)
    key = charge_key(work.workload, work.switch_claimant, work.started_ms or world.now_ms)
    before = [0, 0, 0]
    for member in accounts.members[work.quota].values():
        if not member.switch_claimant and not _can_be_pushed(member, key):
            for r in RESOURCES:
                before[r] += member.held[view][r]
    own = before, accounts.worth.own_other[work.quota]
    return _fits(accounts, work.quota, amount, view, own, accounts.worth.entitlement)


def _can_be_pushed(member: Member, key: ChargeKey) -> bool:
    """Whether running work comes after a newcomer in the charge and accepts idle use."""
    return member.key > key and member.workload.idle is not IdleUse.NEVER


def ratio(world: World, side: int, asked: Sequence[int], pool: int) -> float:
    """Used over share of a side in the resource where it is fullest, of those that are asked and governed.

    A share of nothing comes last.
    """
    accounts = world.pools[pool].accounts
    used, share = accounts.held_by_side(side, LATER), accounts.worth.share_of(side)
    fullest = 0.0
    for r in RESOURCES:
        if asked[r] and share[r] < UNBOUNDED:
            fullest = max(fullest, used[r] / share[r] if share[r] > 0 else float("inf"))
    return fullest


def _numbers(r: int, asked: int, bound: int, used: int) -> dict[str, object]:
    return {
        "resource": KINDS[r],
        "asked": asked,
        "limit": bound,
        "used": used,
        "available": max(0, bound - used),
    }


def _lacking(r: int, lacking: int) -> dict[str, object]:
    return {"resource": KINDS[r], "lacking": lacking}
