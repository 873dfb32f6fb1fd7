"""Changes of amounts that the scheduler acts on: scale, rebalance, and the order to preempt what is above."""

from __future__ import annotations

from collections.abc import Callable, Container, Mapping
from datetime import datetime, timedelta
from functools import partial
from typing import Any

from django.db import transaction

from quotas.actors import Actor
from quotas.errors import Problems
from quotas.models import NodePool, Quota, QuotaAmount
from quotas.permissions import grants_of, require
from quotas.services import edit_quota_settings, set_amounts
from quotas.specs import RESOURCES, SECONDS_MAX, AmountSpec
from scheduler.core.resources import Amount
from scheduler.previews import Preview, preview
from workloads.selectors import subtree_of, use_of

ON_EXCESS = ("keep", "preempt")
Amounts = Mapping[NodePool, AmountSpec]


@transaction.atomic
def scale_quota(
    *,
    actor: Actor,
    quota: Quota,
    amounts: Amounts,
    on_excess: str = "keep",
    after: timedelta | None = None,
    revision: int | None = None,
) -> Quota:
    """Set absolute amounts of one quota in the named pools.

    ``on_excess``: what happens to use above the new guarantee: ``keep`` lets it run on, charged as borrowed;
    ``preempt`` orders it to go, at once or ``after`` a while of the cluster's time. Where only the limit is lowered,
    what is above the limit is meant.
    """
    require(actor, "quota.scale", quota)
    _require_order(on_excess, after)
    read = {} if revision is None else {quota.pk: revision}
    limit_cuts = _limit_cuts({quota: amounts})
    (scaled,) = set_amounts(actor=actor, changes={quota: amounts}, verb="scaled", revisions=read)
    _order(scaled, amounts, _due(scaled, on_excess, after), limit_cuts)
    return scaled


@transaction.atomic
def rebalance(
    *,
    actor: Actor,
    changes: Mapping[Quota, Amounts],
    on_excess: str = "keep",
    after: timedelta | None = None,
    revisions: Mapping[int, int] | None = None,
) -> list[Quota]:
    """Set amounts of several quotas of one cluster as one change, which is checked as a whole.

    ``revisions``: by id of the quota, what the caller has read; another one in force is ``Stale``.
    """
    grants = grants_of(actor)
    for quota in changes:
        require(actor, "quota.scale", quota, grants=grants)
    _require_order(on_excess, after)
    limit_cuts = _limit_cuts(changes)
    scaled = set_amounts(actor=actor, changes=changes, verb="rebalanced", revisions=revisions)
    for quota in scaled:
        _order(quota, changes[quota], _due(quota, on_excess, after), limit_cuts)
    return scaled


def _limit_cuts(changes: Mapping[Quota, Amounts]) -> set[int]:
    """Ids of the amounts whose limit is lowered while no guarantee is."""
    rows = QuotaAmount.objects.filter(quota__in=list(changes)).select_related("quota", "pool")
    return {
        row.pk
        for row in rows
        if row.pool in changes[row.quota] and _cuts_limit_alone(AmountSpec.of(row), changes[row.quota][row.pool])
    }


def _cuts_limit_alone(before: AmountSpec, after: AmountSpec) -> bool:
    def is_lower(had: int | None, has: int | None) -> bool:
        return has is not None and (had is None or has < had)

    def lowered(which: Callable[[AmountSpec, str], int | None]) -> bool:
        return any(is_lower(which(before, resource), which(after, resource)) for resource in RESOURCES)

    return lowered(AmountSpec.limit) and not lowered(AmountSpec.guaranteed)


def _require_order(on_excess: str, after: timedelta | None) -> None:
    problems = Problems()
    problems.unless(on_excess in ON_EXCESS, "on_excess", "invalid", reason="choice", choices=list(ON_EXCESS))
    seconds = after.total_seconds() if after is not None else 0
    fine = 0 <= seconds <= SECONDS_MAX
    problems.unless(fine, "after", "invalid", reason="range", low=0, high=SECONDS_MAX, given=seconds)
    problems.raise_any()


def _due(quota: Quota, on_excess: str, after: timedelta | None) -> datetime | None:
    """When the excess is to go, in the cluster's time; None: it is kept."""
    return quota.cluster.now() + (after or timedelta()) if on_excess == "preempt" else None


def _order(quota: Quota, amounts: Amounts, due: datetime | None, limit_cuts: Container[int]) -> None:
    """Write the order, or end the one that stands where use is within the amount that it is about.

    An order that stands and is not needed less outlives an edit that keeps: only a new one takes its place.
    """
    used = use_of(subtree_of(quota))
    for row in QuotaAmount.objects.filter(quota=quota, pool__in=list(amounts)):
        to_limit = row.pk in limit_cuts if due else row.excess_to_limit
        exceeds = _exceeds(used.get(row.pool_id, Amount()), AmountSpec.of(row), to_limit=to_limit)
        wanted = (due or row.excess_due_at) if exceeds else None
        if (wanted, to_limit) != (row.excess_due_at, row.excess_to_limit):
            QuotaAmount.objects.filter(pk=row.pk).update(excess_due_at=wanted, excess_to_limit=to_limit)


def _exceeds(used: Amount, spec: AmountSpec, *, to_limit: bool) -> bool:
    """Whether use is above the limit, or above the guarantee, in a resource that has one."""
    bound_of = spec.limit if to_limit else spec.guaranteed
    bounds = ((getattr(used, resource), bound_of(resource)) for resource in RESOURCES)
    return any(bound is not None and held > bound for held, bound in bounds)


# --- looked at first ----------------------------------------------------------------------------------------------


def preview_scale(
    *, actor: Actor, quota: Quota, amounts: Amounts, on_excess: str = "keep", after: timedelta | None = None
) -> Preview:
    """What `scale_quota` would do: who would be preempted, who would start, who would wait. Nothing is written."""
    change = partial(scale_quota, actor=actor, quota=quota, amounts=amounts, on_excess=on_excess, after=after)
    return preview(cluster=quota.cluster, change=change, ahead=after or timedelta())


def preview_rebalance(
    *, actor: Actor, changes: Mapping[Quota, Amounts], on_excess: str = "keep", after: timedelta | None = None
) -> Preview:
    """What `rebalance` would do. Nothing is written."""
    change = partial(rebalance, actor=actor, changes=changes, on_excess=on_excess, after=after)
    if not changes:
        change()  # refuses
    return preview(cluster=next(iter(changes)).cluster, change=change, ahead=after or timedelta())


def preview_settings(*, actor: Actor, quota: Quota, changes: Mapping[str, Any]) -> Preview:
    """What `edit_quota_settings` would do. Nothing is written."""
    change = partial(edit_quota_settings, actor=actor, quota=quota, changes=changes)
    return preview(cluster=quota.cluster, change=change)
