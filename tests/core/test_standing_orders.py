"""Rule (d): excess after a cut, drains, stale gangs; and what leaves without being evicted."""

from __future__ import annotations

from dataclasses import replace

from scheduler.core.model import ExcessOrder, IdleUse, Kind, NodeState, OrderKind, Reason, Rule
from scheduler.core.resources import Bound
from tests.core.makers import a_cluster, a_quota, reason, running_in, victims, work
from tests.core.player import MINUTE, SECOND

NEVER = IdleUse.NEVER


def test_excess_goes_when_it_is_due_and_no_more_than_that() -> None:
    cluster = a_cluster([8], a_quota(1, 8))
    for number in range(1, 5):
        cluster.submit(work(number, 1, 2, idle=NEVER))
        cluster.run(SECOND)
    cluster.quotas[1] = a_quota(1, 4)
    cluster.orders[7] = ExcessOrder(7, 1, 1, cluster.now_ms + MINUTE)
    cluster.settle()
    assert cluster.plan.over == (3, 4)
    assert cluster.plan.wake_ms == cluster.now_ms + MINUTE
    cluster.run(MINUTE)
    assert sorted(victims(cluster)) == [3, 4]
    assert cluster.orders == {}
    assert reason(cluster.plan, 3) is Reason.QUOTA_ENTITLEMENT


def test_an_order_for_the_limit_stops_only_what_is_beyond_it() -> None:
    cluster = a_cluster([100], a_quota(1, 40, limit=100), a_quota(2, 60))
    for number in range(1, 9):
        cluster.submit(work(number, 1, 10))
        cluster.run(SECOND)
    cluster.quotas[1] = a_quota(1, 40, limit=50)
    cluster.orders[1] = ExcessOrder(1, 1, 1, cluster.now_ms, to_limit=True)
    cluster.settle()
    assert len(victims(cluster)) == 3
    assert cluster.used(1) == 50_000


def test_work_without_a_promise_after_a_cut_runs_on_until_somebody_needs_the_room() -> None:
    cluster = a_cluster([8], a_quota(1, 8), a_quota(2, 0))
    cluster.submit(work(1, 1, 4, idle=NEVER))
    cluster.submit(work(2, 1, 4, idle=NEVER))
    cluster.settle()
    cluster.quotas = {1: a_quota(1, 4), 2: a_quota(2, 4)}
    cluster.settle()
    assert (victims(cluster), cluster.plan.over) == ([], (2,))
    cluster.submit(work(3, 2, 4, idle=NEVER))
    cluster.settle()
    assert victims(cluster) == [2]
    assert running_in(cluster, 1, 3) == [1, 3]


def test_a_drain_moves_what_has_a_place_and_stops_the_rest() -> None:
    cluster = a_cluster([2, 2], a_quota(1, 4))
    cluster.submit(work(1, 1, 1, idle=NEVER))
    cluster.submit(work(2, 1, 1, idle=NEVER))
    cluster.submit(work(3, 1, 1, idle=NEVER))
    cluster.submit(work(4, 1, 1, idle=NEVER, preemptible=False))
    cluster.settle()
    cluster.stop(1)
    cluster.settle()
    node = cluster.held(4)[0].place.node
    cluster.nodes[node] = replace(cluster.nodes[node], state=NodeState.DRAINING)
    cluster.settle()
    assert cluster.moved == [3]
    assert victims(cluster) == []
    other = 3 - node
    cluster.nodes[other] = replace(cluster.nodes[other], state=NodeState.DRAINING)
    plan = cluster.cycle()
    assert {(e.order, e.rule, e.claimant) for e in plan.evictions} == {(OrderKind.DRAIN, Rule.ORDER, None)}
    cluster.settle()
    assert running_in(cluster, 2, 3, 4) == [4]


def test_a_stale_gang_is_stopped_whatever_its_priority() -> None:
    cluster = a_cluster([2], a_quota(1, 2))
    cluster.submit(work(1, 1, 1, 2, idle=NEVER, preemptible=False, priority=9))
    cluster.settle()
    cluster.allocations = cluster.allocations[:1]
    cluster.submit(work(2, 1, 1, idle=NEVER, preemptible=False, priority=9))
    cluster.nodes[1] = replace(cluster.nodes[1], devices=cluster.nodes[1].devices[:2])
    cluster.change(1, stale_since_ms=cluster.now_ms, held=True)
    cluster.cycle()
    assert victims(cluster) == []
    cluster.run(61 * SECOND)
    assert victims(cluster) == [1]


def test_a_gang_that_lost_a_worker_gets_it_back_if_there_is_room() -> None:
    cluster = a_cluster([2], a_quota(1, 2))
    cluster.submit(work(1, 1, 1, 2, idle=NEVER))
    cluster.settle()
    cluster.allocations = cluster.allocations[:1]
    cluster.change(1, stale_since_ms=cluster.now_ms)
    cluster.settle()
    assert len(cluster.held(1)) == 2


def test_scaling_down_frees_whole_nodes_and_evicts_nobody() -> None:
    cluster = a_cluster([2, 2], a_quota(1, 4))
    cluster.submit(work(1, 1, 1, 3, kind=Kind.SERVICE, idle=NEVER))
    cluster.settle()
    cluster.submit(work(2, 1, 1, idle=NEVER))
    cluster.settle()
    group = cluster.jobs[1].workload.groups[0]
    cluster.change(1, groups=(replace(group, wanted=1),))
    cluster.settle()
    assert victims(cluster) == []
    assert cluster.held(1)[0].place.node == cluster.held(2)[0].place.node


def test_a_gang_that_lost_a_node_lets_go_and_starts_anew() -> None:
    cluster = a_cluster([2, 2, 2], a_quota(1, 6))
    cluster.submit(work(1, 1, 2, 2, idle=NEVER))
    cluster.settle()
    cluster.lose(cluster.held(1)[0].place.node)
    cluster.settle()
    assert running_in(cluster, 1) == [1]
    assert victims(cluster) == []


def test_after_the_loss_of_nodes_entitlements_are_cut_and_work_beyond_them_is_over() -> None:
    cluster = a_cluster([4, 4], a_quota(1, 8), a_quota(2, 4, 1), a_quota(3, 4, 1))
    cluster.submit(work(1, 2, 1, 4, idle=NEVER, minimum=1))
    cluster.submit(work(2, 3, 1, 4, idle=NEVER, minimum=1))
    cluster.settle()
    cluster.lose(2)
    cluster.settle()
    rows = {row.quota: row for row in cluster.plan.ledger}
    assert (rows[2].entitlement.gpu_milli, rows[3].entitlement.gpu_milli) == (2000, 2000)
    assert cluster.used(2) == cluster.used(3) == 2000


def test_a_limit_below_the_use_stops_growth_only() -> None:
    cluster = a_cluster([8], a_quota(1, 8))
    cluster.submit(work(1, 1, 1, 6, minimum=1, idle=NEVER))
    cluster.settle()
    amounts = replace(cluster.quotas[1].amounts[0][1], limit=Bound(gpu_milli=4000), guaranteed=Bound(gpu_milli=4000))
    cluster.quotas[1] = replace(cluster.quotas[1], amounts=((1, amounts),))
    cluster.submit(work(2, 1, 1, idle=NEVER, priority=1))
    cluster.settle()
    assert cluster.used(1) == 6000
    assert reason(cluster.plan, 2) is Reason.QUOTA_LIMIT
