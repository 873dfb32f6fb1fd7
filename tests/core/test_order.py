"""Order: the own queue of a quota, and turns between quotas."""

from __future__ import annotations

import pytest

from scheduler.core.model import (
    ChildPreemption,
    Device,
    IdleUse,
    Kind,
    Match,
    Node,
    Pool,
    PoolAmounts,
    QueuePolicy,
    Quota,
    Reason,
)
from scheduler.core.resources import Bound
from tests.core.makers import a_cluster, a_quota, reason, running_in, work
from tests.core.player import MINUTE, SECOND, Cluster

NEVER = IdleUse.NEVER


def a_blocked_queue(policy: QueuePolicy, head_priority: int = 3) -> Cluster:
    """Two GPUs are free; the head wants four, those behind it one each."""
    cluster = a_cluster([4], a_quota(1, 4, queue_policy=policy))
    cluster.submit(work(1, 1, 2, idle=NEVER, preemptible=False, priority=9))
    cluster.settle()
    cluster.submit(work(2, 1, 4, idle=NEVER, priority=head_priority))
    cluster.run(SECOND)
    cluster.submit(work(3, 1, 1, idle=NEVER, priority=2))
    cluster.run(SECOND)
    cluster.submit(work(4, 1, 1, idle=NEVER, priority=1))
    cluster.settle()
    return cluster


def test_fifo_waits_for_its_head() -> None:
    cluster = a_blocked_queue(QueuePolicy.FIFO)
    assert running_in(cluster, 2, 3, 4) == []
    wait = cluster.plan.wait_of(4)
    assert wait is not None
    assert (wait.reason, wait.facts["head"], wait.position) == (Reason.HEAD_OF_LINE, 2, 3)


def test_round_robin_passes_a_blocked_head() -> None:
    assert running_in(a_blocked_queue(QueuePolicy.ROUND_ROBIN), 2, 3, 4) == [3, 4]


@pytest.mark.parametrize(("priority", "run"), [(6, [3, 4]), (7, [])])
def test_intelligent_waits_only_for_heads_of_high_priority(priority: int, run: list[int]) -> None:
    assert running_in(a_blocked_queue(QueuePolicy.INTELLIGENT, priority), 2, 3, 4) == run


def test_balance_widens_its_window_each_time_the_wait_passes_the_timeout() -> None:
    cluster = a_blocked_queue(QueuePolicy.BALANCE)
    assert running_in(cluster, 3, 4) == []
    cluster.run(6 * MINUTE)
    assert running_in(cluster, 3, 4) == [3, 4]


def test_held_work_and_work_that_may_not_start_yet_hold_up_nobody() -> None:
    cluster = a_blocked_queue(QueuePolicy.FIFO)
    cluster.change(2, held=True)
    cluster.settle()
    assert running_in(cluster, 3, 4) == [3, 4]
    assert reason(cluster.plan, 2) is Reason.HELD
    cluster.change(2, held=False, not_before_ms=cluster.now_ms + MINUTE)
    cluster.settle()
    assert reason(cluster.plan, 2) is Reason.SCHEDULE_WAITING
    assert cluster.plan.wake_ms == cluster.now_ms + MINUTE


def test_ageing_orders_the_queue_and_gives_no_right_to_preempt() -> None:
    cluster = a_cluster([1], a_quota(1, 1))
    cluster.submit(work(1, 1, 1, idle=NEVER, priority=4))
    cluster.settle()
    cluster.submit(work(2, 1, 1, idle=NEVER, priority=3))
    cluster.run(21 * MINUTE, step_ms=10 * MINUTE)
    cluster.submit(work(3, 1, 1, idle=NEVER, priority=4))
    cluster.settle()
    assert cluster.evicted == []
    assert dict(cluster.plan.order)[1] == (2, 3)


def test_ageing_never_lifts_above_its_ceiling() -> None:
    cluster = a_cluster([1], a_quota(1, 1))
    cluster.submit(work(1, 1, 1, idle=NEVER, preemptible=False))
    cluster.settle()
    cluster.submit(work(2, 1, 1, idle=NEVER, priority=1))
    cluster.run(120 * MINUTE, step_ms=30 * MINUTE)
    cluster.submit(work(3, 1, 1, idle=NEVER, priority=7))
    cluster.settle()
    assert dict(cluster.plan.order)[1] == (3, 2)


def test_operators_order_stands_before_the_time_of_submission() -> None:
    cluster = a_cluster([1], a_quota(1, 1))
    cluster.submit(work(1, 1, 1, idle=NEVER, preemptible=False))
    cluster.settle()
    for number, position in ((2, 1), (3, 0)):
        cluster.submit(work(number, 1, 1, idle=NEVER, position=position))
        cluster.run(SECOND)
    cluster.settle()
    assert dict(cluster.plan.order)[1] == (3, 2)


def test_a_blocked_head_holds_up_only_work_that_wants_the_same_pool() -> None:
    amounts = tuple((pool, PoolAmounts(Bound(gpu_milli=4000))) for pool in (1, 2))
    cluster = a_cluster([], Quota(1, None, "q", amounts, queue_policy=QueuePolicy.FIFO))
    cluster.pools = {1: Pool(1), 2: Pool(2)}
    cluster.nodes = {n: Node(n, n, devices=tuple(Device() for _ in range(4))) for n in (1, 2)}
    cluster.submit(work(1, 1, 2, idle=NEVER, pools=(1,)))
    cluster.settle()
    cluster.submit(work(2, 1, 4, idle=NEVER, pools=(1,)))
    cluster.submit(work(3, 1, 1, idle=NEVER, pools=(1,)))
    cluster.submit(work(4, 1, 1, idle=NEVER, pools=(1, 2)))
    cluster.settle()
    assert running_in(cluster, 2, 3, 4) == [4]
    assert {a.place.node for a in cluster.held(4)} == {2}


def test_within_its_promise_comes_before_within_its_share_before_the_rest() -> None:
    cluster = a_cluster([4], a_quota(1, 0, weight=1), a_quota(2, 0, weight=3), a_quota(3, 1))
    cluster.submit(work(11, 1, 1))
    cluster.submit(work(12, 1, 1))
    cluster.submit(work(21, 2, 1))
    cluster.submit(work(22, 2, 1))
    cluster.submit(work(31, 3, 1))
    cluster.cycle()
    assert running_in(cluster, 11, 12, 21, 22, 31) == [11, 21, 22, 31]


def test_the_smaller_part_of_its_share_comes_first() -> None:
    cluster = a_cluster([6], a_quota(1, 2), a_quota(2, 4))
    for number in range(1, 9):
        cluster.submit(work(number, 1 + number % 2, 1))
    cluster.cycle()
    assert (cluster.used(1), cluster.used(2)) == (2000, 4000)


def test_switch_claimants_come_before_the_work_below_them() -> None:
    cluster = a_cluster([4], a_quota(1, 4, child_preemption=ChildPreemption(enabled=True)), a_quota(2, 4, 1))
    cluster.submit(work(1, 2, 4, idle=NEVER))
    cluster.submit(work(2, 1, 1, kind=Kind.SERVICE, idle=NEVER))
    cluster.cycle()
    assert running_in(cluster, 1, 2) == [2]
    assert cluster.evicted == []


def test_work_for_labels_that_no_node_has_is_named() -> None:
    cluster = a_cluster([4], a_quota(1, 4))
    cluster.submit(work(1, 1, 1, select=(Match("gpu", ("T4",)),)))
    cluster.settle()
    assert reason(cluster.plan, 1) is Reason.NODES_AFFINITY
