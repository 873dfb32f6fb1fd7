"""The order to preempt what is above the amounts: when it stands, and what ends it."""

from __future__ import annotations

from datetime import datetime, timedelta

import pytest

from scheduler.clocks import standing_still
from scheduler.services import rebalance, scale_quota
from tests.makers import Installation, a_quota, placed, refused, submitted
from tests.quotas.test_amounts import gpus

TEN_MINUTES = timedelta(minutes=10)


@pytest.fixture
def busy(here: Installation) -> Installation:
    """Team B uses 16 GPUs of its 48, half of them in a quota below."""
    placed(submitted(here["developer"], here, gpus=8), (here.nodes[0], list(range(8))))
    below = a_quota(here.cluster, "below", gpus=8, parent=here.quota)
    job = submitted(here["developer"], here, name="below", gpus=8)
    type(job).objects.filter(pk=job.pk).update(quota=below)
    job.refresh_from_db()
    placed(job, (here.nodes[1], list(range(8))))
    return here


def due(here: Installation) -> datetime | None:
    return here.quota.amounts.get().excess_due_at


def scaled(here: Installation, amount: float, on_excess: str = "keep", after: timedelta | None = None) -> None:
    scale_quota(
        actor=here["platform"], quota=here.quota, amounts={here.pool: gpus(amount)}, on_excess=on_excess, after=after
    )


def test_an_order_is_due_at_an_instant_of_the_clusters_time(busy: Installation) -> None:
    now = busy.cluster.now()
    with standing_still(busy.cluster.pk, now):
        scaled(busy, 12, "preempt", TEN_MINUTES)
    assert due(busy) == now + TEN_MINUTES


def test_what_is_kept_has_no_order(busy: Installation) -> None:
    scaled(busy, 12)
    assert due(busy) is None


def test_use_within_the_guarantee_needs_no_order(busy: Installation) -> None:
    scaled(busy, 16, "preempt")
    assert due(busy) is None


def test_an_order_outlives_an_edit_after_which_it_is_still_needed(busy: Installation) -> None:
    scaled(busy, 12, "preempt", TEN_MINUTES)
    before = due(busy)
    scaled(busy, 14)
    assert due(busy) == before
    scaled(busy, 16)
    assert due(busy) is None


def test_a_new_order_takes_the_place_of_the_one_that_stands(busy: Installation) -> None:
    scaled(busy, 12, "preempt", 6 * TEN_MINUTES)
    before = due(busy)
    scaled(busy, 12, "preempt", TEN_MINUTES)
    after = due(busy)
    assert before is not None
    assert after is not None
    assert after < before


def test_a_rebalance_orders_only_where_use_is_above(busy: Installation) -> None:
    changes = {busy.quota: {busy.pool: gpus(12)}, busy.other_quota: {busy.pool: gpus(80)}}
    rebalance(actor=busy["platform"], changes=changes, on_excess="preempt")
    assert due(busy) is not None
    assert busy.other_quota.amounts.get().excess_due_at is None


def test_orders_are_of_two_kinds_and_not_in_the_past(busy: Installation) -> None:
    with refused("invalid", field="on_excess"):
        scaled(busy, 12, "explode")
    with refused("invalid", field="after"):
        scaled(busy, 12, "preempt", -TEN_MINUTES)
