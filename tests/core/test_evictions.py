"""Evictions: each rule, each protection, and the choice between lawful sets."""

from __future__ import annotations

from dataclasses import replace

import pytest

from scheduler.core.model import (
    Checkpoint,
    ChildPreemption,
    IdleUse,
    Kind,
    Match,
    MinRuntime,
    PriorityPreemption,
    Reason,
    Rule,
)
from tests.core.makers import a_cluster, a_quota, reason, running_in, victims, work
from tests.core.player import MINUTE, SECOND

NEVER, ONLY = IdleUse.NEVER, IdleUse.ONLY
SWITCH = ChildPreemption(enabled=True)


# --- (a) guarantee -----------------------------------------------------------------------------------


def test_a_claimant_within_its_promise_takes_back_what_is_borrowed() -> None:
    cluster = a_cluster([4], a_quota(1, 2), a_quota(2, 2))
    for number in range(1, 5):
        cluster.submit(work(number, 1, 1))
        cluster.run(SECOND)
    cluster.submit(work(9, 2, 1, idle=NEVER))
    plan = cluster.cycle()
    assert [(e.workload, e.claimant, e.rule) for e in plan.evictions] == [(4, 9, Rule.GUARANTEE)]
    side = plan.evictions[0].facts["victim_side"]
    assert side == {
        "quota": 1,
        "own_work_only": False,
        "entitlement": [2000, 2**62, 2**62],
        "share": side["share"],  # type: ignore[index]
        "used_before": [4000, 0, 0],
        "used_after": [3000, 0, 0],
    }


def test_work_is_indivisible_so_a_partly_borrowed_gang_may_be_taken() -> None:
    cluster = a_cluster([8], a_quota(1, 3), a_quota(2, 5))
    cluster.submit(work(1, 1, 4))
    cluster.settle()
    cluster.submit(work(2, 2, 5, idle=NEVER))
    cluster.settle()
    assert victims(cluster) == [1]
    assert running_in(cluster, 1, 2) == [2]


def test_what_is_borrowed_elsewhere_in_another_resource_helps_nobody() -> None:
    lender = a_quota(1, 4)
    amounts = replace(lender.amounts[0][1], guaranteed=replace(lender.amounts[0][1].guaranteed, cpu_milli=1000))
    cluster = a_cluster([8], replace(lender, amounts=((1, amounts),)), a_quota(2, 0), a_quota(3, 4))
    cluster.nodes[1] = replace(cluster.nodes[1], cpu_milli=64_000)
    cluster.submit(work(3, 2, 4, preemptible=False))
    cluster.submit(work(1, 1, 4, cpu_milli=4000))  # its GPUs are promised, its CPU is borrowed
    cluster.settle()
    cluster.submit(work(2, 3, 2, idle=NEVER))
    cluster.settle()
    assert victims(cluster) == []


def test_work_with_idle_use_only_never_evicts() -> None:
    cluster = a_cluster([4], a_quota(1, 4), a_quota(2, 0))
    cluster.submit(work(1, 2, 4))
    cluster.settle()
    cluster.submit(work(2, 1, 4, idle=ONLY, priority=9))
    cluster.settle()
    assert victims(cluster) == []


def test_only_goes_before_all_other_borrowed_work() -> None:
    cluster = a_cluster([4], a_quota(1, 1), a_quota(2, 0))
    for number, idle in ((1, IdleUse.ALLOW), (2, ONLY), (3, IdleUse.ALLOW), (4, IdleUse.ALLOW)):
        cluster.submit(work(number, 2, 1, idle=idle, priority=9 if idle is ONLY else 1))
        cluster.run(SECOND)
    cluster.submit(work(9, 1, 1, idle=NEVER))
    cluster.settle()
    assert victims(cluster) == [2]


def test_lower_priority_then_least_work_lost_then_later_start_decide() -> None:
    cluster = a_cluster([4], a_quota(1, 1), a_quota(2, 0))
    cluster.submit(work(1, 2, 1, priority=2))
    cluster.run(MINUTE)
    cluster.submit(work(2, 2, 1, priority=2), checkpoint_ms=10 * SECOND)
    cluster.submit(work(3, 2, 1, priority=1))
    cluster.submit(work(4, 2, 1, priority=3))
    cluster.run(55 * SECOND)
    order = []
    for number in (11, 12, 13):
        cluster.submit(work(number, 1, 1, idle=NEVER))
        cluster.quotas[1] = a_quota(1, number - 10)
        cluster.settle()
        order = victims(cluster)
    assert order == [3, 2, 1]


def test_a_checkpoint_on_signal_loses_nothing() -> None:
    cluster = a_cluster([2], a_quota(1, 1), a_quota(2, 0))
    cluster.submit(work(1, 2, 1, checkpoint=Checkpoint(on_signal=True)))
    cluster.run(MINUTE)
    cluster.submit(work(2, 2, 1))
    cluster.run(MINUTE)
    cluster.submit(work(9, 1, 1, idle=NEVER))
    cluster.settle()
    assert victims(cluster) == [1]


def test_elastic_work_is_shrunk_before_anything_is_stopped() -> None:
    cluster = a_cluster([4], a_quota(1, 2), a_quota(2, 0))
    cluster.submit(work(1, 2, 1, 3, minimum=1))
    cluster.settle()
    cluster.submit(work(2, 2, 1))
    cluster.settle()
    cluster.submit(work(9, 1, 2, idle=NEVER))
    cluster.settle()
    assert victims(cluster) == []
    assert cluster.shrunk == [1, 1]
    assert len(cluster.held(1)) == 1
    assert running_in(cluster, 1, 2, 9) == [1, 2, 9]


def test_work_that_is_not_preemptible_stays() -> None:
    cluster = a_cluster([4], a_quota(1, 2), a_quota(2, 2))
    cluster.submit(work(1, 1, 4, preemptible=False))
    cluster.settle()
    cluster.submit(work(2, 2, 2, idle=NEVER))
    cluster.settle()
    assert victims(cluster) == []
    assert reason(cluster.plan, 2) is Reason.PREEMPTION_PROTECTED


def test_notebooks_are_taken_last() -> None:
    cluster = a_cluster([4], a_quota(1, 2), a_quota(2, 0))
    cluster.submit(work(1, 2, 1))
    cluster.submit(work(2, 2, 1))
    cluster.run(MINUTE)
    cluster.submit(work(3, 2, 1, kind=Kind.NOTEBOOK, priority=3))
    cluster.submit(work(4, 2, 1, kind=Kind.NOTEBOOK, priority=3))
    cluster.settle()
    cluster.submit(work(9, 1, 2, idle=NEVER))
    cluster.settle()
    assert sorted(victims(cluster)) == [1, 2]


# --- (a') share --------------------------------------------------------------------------------------


def test_by_share_only_sides_above_theirs_give_and_only_down_to_it() -> None:
    cluster = a_cluster([8], a_quota(1, 0, weight=1), a_quota(2, 0, weight=1))
    for number in range(1, 9):
        cluster.submit(work(number, 1, 1))
    cluster.settle()
    for number in range(11, 19):
        cluster.submit(work(number, 2, 1))
    plan = cluster.cycle()
    assert {eviction.rule for eviction in plan.evictions} == {Rule.SHARE}
    cluster.settle()
    assert len(victims(cluster)) == 4
    assert cluster.used(1) == cluster.used(2) == 4000


def test_by_share_work_with_idle_use_never_takes_nothing() -> None:
    cluster = a_cluster([8], a_quota(1, 0, weight=1), a_quota(2, 0, weight=1))
    cluster.submit(work(1, 1, 1, 8))
    cluster.settle()
    cluster.submit(work(2, 2, 1, idle=NEVER))
    cluster.settle()
    assert victims(cluster) == []
    assert reason(cluster.plan, 2) is Reason.QUOTA_ENTITLEMENT


# --- (b) child level ---------------------------------------------------------------------------------


def test_a_switch_claimant_takes_from_below_within_kinds_and_ceiling() -> None:
    switch = ChildPreemption(enabled=True, max_victim_priority=4, kinds=(Kind.TRAINING,))
    cluster = a_cluster([4], a_quota(1, 4, child_preemption=switch), a_quota(2, 4, 1))
    cluster.submit(work(1, 2, 1, priority=5, idle=NEVER))
    cluster.submit(work(2, 2, 1, kind=Kind.NOTEBOOK, priority=4, idle=NEVER))
    cluster.submit(work(3, 2, 1, priority=4, idle=NEVER))
    cluster.submit(work(4, 2, 1, priority=3, idle=NEVER))
    cluster.settle()
    cluster.submit(work(9, 1, 1, 4, kind=Kind.SERVICE, idle=NEVER))
    plan = cluster.cycle()
    assert {(e.workload, e.rule) for e in plan.evictions} == {(3, Rule.CHILD_LEVEL), (4, Rule.CHILD_LEVEL)}
    cluster.settle()
    assert len(cluster.held(9)) == 2
    assert reason(cluster.plan, 9) is not None


def test_without_the_switch_a_parent_has_only_its_own_room() -> None:
    cluster = a_cluster([4], a_quota(1, 4), a_quota(2, 4, 1))
    cluster.submit(work(1, 2, 4, idle=NEVER))
    cluster.settle()
    cluster.submit(work(9, 1, 1, kind=Kind.SERVICE, idle=NEVER))
    cluster.settle()
    assert victims(cluster) == []
    assert reason(cluster.plan, 9) is Reason.QUOTA_ENTITLEMENT


def test_a_switch_claimant_is_bounded_by_the_entitlement_of_its_quota() -> None:
    cluster = a_cluster([8], a_quota(1, 4, child_preemption=SWITCH), a_quota(2, 4, 1), a_quota(3, 4))
    cluster.submit(work(1, 2, 1, 4, idle=NEVER))
    cluster.submit(work(2, 3, 1, 4, idle=NEVER))
    cluster.settle()
    cluster.submit(work(9, 1, 1, 6, kind=Kind.SERVICE, idle=NEVER))
    cluster.settle()
    assert victims(cluster) == [1]
    assert len(cluster.held(9)) == 4
    assert running_in(cluster, 2) == [2]


def test_idle_room_is_used_before_anybody_is_taken() -> None:
    cluster = a_cluster([8], a_quota(1, 4, child_preemption=SWITCH), a_quota(2, 4, 1), a_quota(3, 4))
    cluster.submit(work(1, 2, 4))
    cluster.settle()
    cluster.submit(work(9, 1, 1, 2, kind=Kind.SERVICE, idle=NEVER))
    cluster.settle()
    assert victims(cluster) == []
    assert dict(cluster.plan.borrowed) == {1: 2000}
    cluster.submit(work(10, 3, 4, idle=NEVER))
    cluster.settle()
    assert victims(cluster) == [1]
    assert running_in(cluster, 9, 10) == [9, 10]


def test_what_is_borrowed_only_because_of_switch_claimants_is_protected_as_the_switch_says() -> None:
    switch = ChildPreemption(enabled=True, kinds=(Kind.TRAINING,))
    quotas = (a_quota(1, 8, child_preemption=switch), a_quota(2, 4, 1), a_quota(3, 4, 1), a_quota(4, 4))
    cluster = a_cluster([12], *quotas)
    cluster.submit(work(1, 2, 1, 4, kind=Kind.NOTEBOOK, idle=IdleUse.ALLOW, minimum=4))
    cluster.submit(work(2, 4, 4, idle=NEVER, preemptible=False))
    cluster.settle()
    cluster.submit(work(9, 1, 2, 2, kind=Kind.SERVICE, idle=NEVER))
    cluster.settle()
    assert len(cluster.held(9)) == 2
    cluster.submit(work(3, 3, 2, idle=NEVER))  # the notebook borrows 2 now, but only because the service came
    cluster.settle()
    assert 1 not in victims(cluster)


# --- (c) priority ------------------------------------------------------------------------------------


def test_inside_a_quota_strictly_higher_priority_takes_strictly_lower() -> None:
    cluster = a_cluster([2], a_quota(1, 2))
    cluster.submit(work(1, 1, 1, priority=3, idle=NEVER))
    cluster.submit(work(2, 1, 1, priority=5, idle=NEVER))
    cluster.settle()
    cluster.submit(work(3, 1, 1, priority=5, idle=NEVER))
    plan = cluster.cycle()
    assert [(e.workload, e.rule) for e in plan.evictions] == [(1, Rule.PRIORITY)]
    cluster.submit(work(4, 1, 1, priority=5, idle=NEVER))
    cluster.settle()
    assert victims(cluster) == [1]


@pytest.mark.parametrize(
    "rules",
    [
        PriorityPreemption(inside=False),
        PriorityPreemption(by=(9, 9)),
        PriorityPreemption(of=(4, 9)),
        PriorityPreemption(kinds=(Kind.NOTEBOOK,)),
    ],
)
def test_priority_preemption_keeps_within_its_settings(rules: PriorityPreemption) -> None:
    cluster = a_cluster([1], a_quota(1, 1, priority_preemption=rules))
    cluster.submit(work(1, 1, 1, priority=3, idle=NEVER))
    cluster.settle()
    cluster.submit(work(2, 1, 1, priority=8, idle=NEVER))
    cluster.settle()
    assert victims(cluster) == []


def test_between_priority_siblings_the_promise_takes_no_higher_priority() -> None:
    rules = PriorityPreemption(siblings=True)
    cluster = a_cluster([4], a_quota(1, 2, priority_preemption=rules), a_quota(2, 2, priority_preemption=rules))
    cluster.submit(work(1, 1, 1, 2, priority=8))
    cluster.submit(work(2, 1, 1, 2, priority=8))
    cluster.settle()
    cluster.submit(work(3, 2, 2, priority=5, idle=NEVER))
    cluster.settle()
    assert victims(cluster) == []
    cluster.change(3, priority=8)
    cluster.settle()
    assert len(victims(cluster)) == 1


def test_growth_may_reclaim_but_never_preempts_by_priority() -> None:
    cluster = a_cluster([4], a_quota(1, 3), a_quota(2, 1))
    cluster.submit(work(1, 1, 1, 2, minimum=1, priority=9, idle=NEVER))
    cluster.submit(work(2, 1, 1, priority=1, idle=NEVER))
    cluster.submit(work(3, 2, 1, priority=9))
    cluster.settle()
    group = replace(cluster.jobs[1].workload.groups[0], wanted=3)
    cluster.change(1, groups=(group,))
    cluster.settle()
    assert victims(cluster) == []
    cluster.stop(2)
    cluster.settle()
    cluster.stop(1)
    cluster.settle()
    cluster.submit(work(4, 2, 1, priority=9))
    cluster.submit(work(5, 2, 1, priority=9))
    cluster.submit(work(6, 2, 1, priority=9))
    cluster.settle()
    cluster.submit(work(7, 1, 1, 3, minimum=1, idle=NEVER))
    cluster.settle()
    assert len(cluster.held(7)) == 3


# --- protection --------------------------------------------------------------------------------------


def test_minimum_run_time_is_the_victims_own_and_differs_by_rule() -> None:
    rules = MinRuntime(reclaim_ms=10 * MINUTE, preempt_ms=0)
    cluster = a_cluster([2], a_quota(1, 1, min_runtime=rules), a_quota(2, 1))
    cluster.submit(work(1, 1, 1, priority=3))
    cluster.submit(work(2, 1, 1, priority=3))
    cluster.settle()
    cluster.submit(work(3, 2, 1, idle=NEVER))
    cluster.settle()
    assert victims(cluster) == []
    cluster.submit(work(4, 1, 1, priority=9))
    cluster.settle()
    assert len(victims(cluster)) == 1


# --- the choice --------------------------------------------------------------------------------------


def test_a_victim_that_could_claim_its_room_back_is_avoided_first() -> None:
    cluster = a_cluster([12], a_quota(1, 12, child_preemption=SWITCH), a_quota(2, 6, 1), a_quota(3, 6, 1))
    for number in (1, 2, 3):
        cluster.submit(work(number, 2, 2, idle=NEVER, priority=9))
    for number in range(4, 10):
        cluster.submit(work(number, 3, 1, idle=NEVER))
    cluster.settle()
    cluster.submit(work(20, 1, 2, 2, kind=Kind.SERVICE, idle=NEVER))
    cluster.settle()
    assert cluster.used(2) == cluster.used(3) == 4000
    assert len(victims(cluster)) == 3


def test_fewest_workloads_go_when_nothing_else_decides() -> None:
    cluster = a_cluster([4, 4], a_quota(1, 4), a_quota(2, 0))
    for node in cluster.nodes:
        cluster.nodes[node] = replace(cluster.nodes[node], labels=(("n", str(node)),))
    cluster.submit(work(1, 2, 4, select=(Match("n", ("1",)),)))
    for number in range(2, 6):
        cluster.submit(work(number, 2, 1, select=(Match("n", ("2",)),)))
    cluster.settle()
    cluster.submit(work(9, 1, 4, idle=NEVER))
    cluster.settle()
    assert victims(cluster) == [1]


def test_no_useless_victim() -> None:
    cluster = a_cluster([4], a_quota(1, 2), a_quota(2, 0))
    for number, gpus in ((1, 1), (2, 2), (3, 1)):
        cluster.submit(work(number, 2, gpus))
        cluster.run(SECOND)
    cluster.submit(work(9, 1, 2, idle=NEVER))
    cluster.settle()
    assert victims(cluster) in ([2], [1, 3], [3, 1])


# --- stability ---------------------------------------------------------------------------------------


def test_a_victim_never_evicts_its_evictor_back() -> None:
    cluster = a_cluster([8], a_quota(1, 4), a_quota(2, 4))
    cluster.submit(work(1, 1, 8))
    cluster.settle()
    cluster.submit(work(2, 2, 4, idle=NEVER))
    for _ in range(20):
        cluster.settle()
    assert cluster.evicted == [(1, 2)]
