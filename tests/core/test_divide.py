"""Divide: entitlement and share, number by number."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scheduler.core.divide import by_largest_remainder, fill_by_weight, fill_in_steps
from scheduler.core.model import ChildPreemption, IdleUse, Kind, LedgerRow
from scheduler.core.policy import PRODUCT
from tests.core.makers import a_cluster, a_quota, work
from tests.core.player import Cluster

SWITCH = ChildPreemption(enabled=True)


def rows(cluster: Cluster) -> dict[int, LedgerRow]:
    """The ledger by quota after one cycle."""
    return {row.quota: row for row in cluster.cycle().ledger}


def entitlements(cluster: Cluster) -> dict[int, float]:
    return {quota: row.entitlement.gpu_milli / 1000 for quota, row in rows(cluster).items()}


def shares(cluster: Cluster) -> dict[int, float]:
    return {quota: row.share.gpu_milli / 1000 for quota, row in rows(cluster).items()}


def test_entitlement_is_what_is_asked_for_within_the_guarantee() -> None:
    cluster = a_cluster([16], a_quota(1, 16), a_quota(2, 10, 1), a_quota(3, 6, 1))
    cluster.submit(work(1, 2, 4))
    cluster.submit(work(2, 3, 9))
    assert entitlements(cluster) == {1: 16, 2: 4, 3: 6}


def test_children_that_do_not_fit_are_cut_in_proportion() -> None:
    cluster = a_cluster([6], a_quota(1, 12), a_quota(2, 8, 1), a_quota(3, 4, 1))
    cluster.submit(work(1, 2, 1, 8))
    cluster.submit(work(2, 3, 4))
    assert entitlements(cluster) == {1: 6, 2: 4, 3: 2}


def test_what_one_child_does_not_ask_for_goes_to_the_others() -> None:
    cluster = a_cluster([6], a_quota(1, 12), a_quota(2, 8, 1), a_quota(3, 4, 1))
    cluster.submit(work(1, 2, 1))
    cluster.submit(work(2, 3, 4))
    assert entitlements(cluster) == {1: 6, 2: 1, 3: 4}


def test_roots_that_exceed_what_is_there_are_cut() -> None:
    cluster = a_cluster([8], a_quota(1, 8), a_quota(2, 8))
    for number, quota in ((1, 1), (2, 2)):
        cluster.submit(work(number, quota, 4, 2))
    assert entitlements(cluster) == {1: 4, 2: 4}


def test_work_that_is_held_or_could_never_run_asks_for_nothing() -> None:
    cluster = a_cluster([8], a_quota(1, 8, limit=8), a_quota(2, 6, 1), a_quota(3, 2, 1))
    cluster.submit(work(1, 2, 2, held=True))
    cluster.submit(work(2, 2, 9))
    cluster.submit(work(3, 3, 2))
    assert entitlements(cluster) == {1: 8, 2: 0, 3: 2}


def test_switch_claimants_come_first_and_the_children_are_cut() -> None:
    cluster = a_cluster([12], a_quota(1, 12, child_preemption=SWITCH), a_quota(2, 6, 1), a_quota(3, 6, 1))
    cluster.submit(work(1, 1, 2, 2, kind=Kind.SERVICE, idle=IdleUse.NEVER))
    cluster.submit(work(2, 2, 6))
    cluster.submit(work(3, 3, 6))
    assert entitlements(cluster) == {1: 12, 2: 4, 3: 4}


def test_other_own_work_has_the_own_room_which_switch_claimants_do_not_use_up() -> None:
    cluster = a_cluster([12], a_quota(1, 12, child_preemption=SWITCH), a_quota(2, 8, 1))
    cluster.submit(work(1, 1, 2, 2, kind=Kind.SERVICE, idle=IdleUse.NEVER))
    cluster.submit(work(2, 1, 4, idle=IdleUse.NEVER))
    cluster.submit(work(3, 2, 8))
    cluster.settle()
    assert cluster.is_running(1)
    assert cluster.is_running(2)
    assert entitlements(cluster)[2] == 4


def test_surplus_goes_by_weight_and_a_satisfied_part_is_offered_again() -> None:
    quotas = (a_quota(1, 4), a_quota(2, 2), a_quota(3, 2), a_quota(4, 8))
    cluster = a_cluster([16], *quotas)
    cluster.submit(work(1, 1, 1, minimum=1, workers=12))
    cluster.submit(work(2, 2, 1, minimum=1, workers=12))
    cluster.submit(work(3, 3, 1, minimum=1, workers=12))
    assert shares(cluster) == {1: 8, 2: 4, 3: 4, 4: 8}  # a root has its guaranteed, asked for or not


def test_a_lower_rank_is_served_first_and_weight_zero_last() -> None:
    quotas = (a_quota(1, 0, rank=1, weight=5), a_quota(2, 0, weight=0), a_quota(3, 0, weight=1), a_quota(4, 8))
    cluster = a_cluster([8], *quotas)
    for quota, wanted in ((1, 8), (2, 3), (3, 4)):
        cluster.submit(work(quota, quota, 1, wanted, minimum=1))
    assert shares(cluster) == {1: 1, 2: 3, 3: 4, 4: 8}


def test_only_demand_that_accepts_idle_use_has_a_part_of_the_surplus() -> None:
    cluster = a_cluster([8], a_quota(1, 2), a_quota(2, 2))
    cluster.submit(work(1, 1, 1, 8, minimum=1, idle=IdleUse.NEVER))
    cluster.submit(work(2, 2, 1, 8, minimum=1))
    assert shares(cluster) == {1: 2, 2: 6}


def test_a_quota_that_does_not_lend_keeps_its_room_and_lends_inside() -> None:
    closed = a_quota(2, 4, 1, idle_sharing=False)
    cluster = a_cluster([8], a_quota(1, 8), closed, a_quota(3, 2, 2), a_quota(4, 2, 2), a_quota(5, 4, 1))
    cluster.submit(work(1, 3, 1, 8, minimum=1))
    cluster.submit(work(2, 5, 1, 8, minimum=1))
    assert shares(cluster)[3] == 4
    assert shares(cluster)[5] == 4


def test_memory_of_past_use_wears_the_weight_off_and_never_the_entitlement() -> None:
    heavy, light = a_quota(1, 2, weight=1), a_quota(2, 2, weight=1)
    amounts = replace(heavy.amounts[0][1], past_use_milli=500)
    cluster = a_cluster([10], replace(heavy, amounts=((1, amounts),)), light)
    for quota in (1, 2):
        cluster.submit(work(quota, quota, 1, 10, minimum=1))
    cluster.policy = replace(PRODUCT, past_use_factor_milli=1000)
    assert shares(cluster) == {1: 4, 2: 6}
    assert entitlements(cluster) == {1: 2, 2: 2}


@pytest.mark.parametrize(
    ("total", "weights", "unit", "parts"),
    [
        (8000, [4, 2, 2], 1000, [4000, 2000, 2000]),
        (7000, [1, 1, 1], 1000, [3000, 2000, 2000]),
        (2500, [1, 1], 1000, [1500, 1000]),
        (10, [1, 2], 1, [3, 7]),
    ],
)
def test_whole_units_by_largest_remainder(total: int, weights: list[int], unit: int, parts: list[int]) -> None:
    assert by_largest_remainder(total, weights, unit) == parts


amounts = st.lists(st.tuples(st.integers(0, 20_000), st.integers(1, 50)), min_size=1, max_size=6)


@given(st.integers(0, 60_000), amounts)
def test_parts_by_weight_are_used_up_and_nobody_has_more_than_wanted(total: int, sides: list[tuple[int, int]]) -> None:
    wanted, weights = [want for want, _ in sides], [weight for _, weight in sides]
    parts = fill_by_weight(total, wanted, weights, 1000)
    assert all(0 <= part <= want for part, want in zip(parts, wanted, strict=True))
    assert sum(parts) == min(total, sum(wanted))


@given(st.integers(0, 60_000), amounts)
def test_steps_never_take_back_and_never_give_out_more_than_there_is(total: int, sides: list[tuple[int, int]]) -> None:
    ceilings, weights = [want for want, _ in sides], [weight for _, weight in sides]
    first, second = fill_in_steps(total, weights, [[c // 2 for c in ceilings], ceilings])
    assert all(a <= b <= c for a, b, c in zip(first, second, ceilings, strict=True))
    assert sum(second) == min(total, sum(ceilings))
