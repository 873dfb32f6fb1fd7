"""Hand-over: reservations from the signal to the start, and what becomes of them."""

from __future__ import annotations

from dataclasses import replace

from scheduler.core.model import IdleUse, Kind, NodeState, Reason, ReservationKind
from tests.core.makers import a_cluster, a_quota, reason, running_in, victims, work
from tests.core.player import MINUTE, SECOND, Cluster

NEVER = IdleUse.NEVER


def a_reclaim(grace_s: int = 30, nodes: tuple[int, ...] = (4,)) -> Cluster:
    """Work 9 takes back four GPUs from work 1, which takes its whole grace to leave."""
    cluster = a_cluster(list(nodes), a_quota(1, 4), a_quota(2, 0), stop_ms=grace_s * SECOND)
    cluster.submit(work(1, 2, 4, grace_ms=grace_s * SECOND))
    cluster.settle()
    cluster.submit(work(9, 1, 4, idle=NEVER))
    cluster.settle()
    return cluster


def test_victims_are_told_at_once_and_their_room_is_kept() -> None:
    cluster = a_reclaim()
    assert victims(cluster) == [1]
    (reservation,) = cluster.reservations.values()
    assert reservation.expires_ms == cluster.now_ms + 30 * SECOND + MINUTE
    assert reason(cluster.plan, 9) is Reason.PREEMPTION_PENDING
    cluster.submit(work(5, 2, 1, idle=IdleUse.ALLOW))
    cluster.run(31 * SECOND)
    assert running_in(cluster, 1, 5, 9) == [9]
    assert cluster.reservations == {}


def test_a_victim_does_not_come_back_before_its_claimant_has_started() -> None:
    cluster = a_reclaim(nodes=(4, 4))
    cluster.nodes[2] = replace(cluster.nodes[2], state=NodeState.READY)
    cluster.settle()
    assert running_in(cluster, 9) == [9] or reason(cluster.plan, 1) is Reason.RESERVATION_OTHER


def test_a_claimant_that_leaves_gives_its_room_back() -> None:
    cluster = a_reclaim()
    cluster.stop(9)
    cluster.run(31 * SECOND)
    assert running_in(cluster, 1) == [1]
    assert cluster.reservations == {}


def test_a_reservation_ends_when_its_time_is_over() -> None:
    cluster = a_reclaim(grace_s=30)
    slow = [replace(a, gone_by_ms=cluster.now_ms + 10 * MINUTE) for a in cluster.allocations]
    cluster.allocations = slow
    cluster.run(91 * SECOND)
    assert not [r for r in cluster.reservations.values() if r.kind is ReservationKind.HANDOVER]
    cluster.run(10 * MINUTE, step_ms=MINUTE)
    assert running_in(cluster, 9) == [9]


def test_a_reservation_that_is_no_longer_lawful_ends() -> None:
    cluster = a_reclaim()
    cluster.quotas[1] = a_quota(1, 2)
    cluster.settle()
    assert cluster.reservations == {}
    cluster.run(31 * SECOND)
    assert running_in(cluster, 1, 9) == [1]


def test_a_broken_reservation_is_planned_anew_at_once() -> None:
    cluster = a_cluster([4, 4], a_quota(1, 4), a_quota(2, 4), a_quota(3, 0), stop_ms=30 * SECOND)
    cluster.submit(work(1, 3, 4))
    cluster.submit(work(2, 3, 4))
    cluster.settle()
    cluster.submit(work(9, 1, 4, idle=NEVER))
    cluster.cycle()
    lost = cluster.held(victims(cluster)[0]) or [
        a for a in cluster.allocations if a.place.workload == victims(cluster)[0]
    ]
    cluster.lose(lost[0].place.node)
    cluster.cycle()
    assert len(set(victims(cluster))) == 2
    cluster.run(40 * SECOND)
    assert running_in(cluster, 9) == [9]


def test_room_that_is_on_its_way_is_used_before_anybody_is_taken() -> None:
    cluster = a_cluster([4, 4], a_quota(1, 4), a_quota(2, 4), stop_ms=30 * SECOND)
    cluster.submit(work(1, 2, 4))
    cluster.submit(work(2, 2, 4))
    cluster.settle()
    cluster.stop(2)
    cluster.submit(work(9, 1, 4, idle=NEVER))
    cluster.cycle()
    assert victims(cluster) == []
    assert [r.kind for r in cluster.reservations.values()] == [ReservationKind.INCOMING]
    cluster.run(31 * SECOND)
    assert running_in(cluster, 1, 9) == [1, 9]


def test_work_behind_a_victim_in_its_queue_evicts_nobody_meanwhile() -> None:
    cluster = a_cluster([2, 4], a_quota(1, 2), a_quota(2, 2), a_quota(3, 0), stop_ms=30 * SECOND)
    cluster.submit(work(1, 2, 1, 2, priority=5))
    cluster.submit(work(2, 3, 4))
    cluster.settle()
    cluster.submit(work(9, 1, 2, idle=NEVER))
    cluster.cycle()
    first = victims(cluster)
    cluster.submit(work(3, 2, 1, priority=1))
    cluster.cycle()
    assert victims(cluster) == first or victims(cluster)[: len(first)] == first


def test_a_moved_workload_goes_on_at_its_reserved_place() -> None:
    cluster = a_cluster([2, 2], a_quota(1, 4), stop_ms=10 * SECOND)
    cluster.submit(work(1, 1, 1, idle=NEVER))
    cluster.submit(work(2, 1, 1, idle=NEVER))
    cluster.settle()
    cluster.submit(work(3, 1, 1, idle=NEVER))
    cluster.settle()
    cluster.stop(1)
    cluster.run(11 * SECOND)
    cluster.submit(work(4, 1, 2, idle=NEVER))
    cluster.settle()
    assert len(cluster.moved) == 1
    assert reason(cluster.plan, 4) is Reason.CONSOLIDATION_PENDING
    cluster.run(11 * SECOND)
    assert running_in(cluster, 2, 3, 4) == [2, 3, 4]
    assert cluster.evicted == []


def test_replicas_of_a_service_start_one_by_one_as_their_room_comes() -> None:
    cluster = a_cluster([4], a_quota(1, 4), a_quota(2, 0), stop_ms=30 * SECOND)
    for number, grace in ((1, 5), (2, 20)):
        cluster.submit(work(number, 2, 2, grace_ms=grace * SECOND))
    cluster.settle()
    cluster.submit(work(9, 1, 2, 2, kind=Kind.SERVICE, idle=NEVER))
    cluster.cycle()
    assert sorted(victims(cluster)) == [1, 2]
    cluster.run(6 * SECOND)
    assert len(cluster.held(9)) == 1
    cluster.run(20 * SECOND)
    assert len(cluster.held(9)) == 2


def test_two_fractions_of_one_device_start_when_both_have_room() -> None:
    cluster = a_cluster([1], a_quota(1, 1), a_quota(2, 0), stop_ms=30 * SECOND)
    cluster.submit(work(1, 2, 0.5, grace_ms=30 * SECOND))
    cluster.settle()
    cluster.submit(work(9, 1, 0.5, 2, idle=NEVER))
    cluster.run(20 * SECOND)
    assert cluster.held(9) == []
    cluster.run(20 * SECOND)
    assert len(cluster.held(9)) == 2


def test_a_start_counts_what_is_reserved_for_others() -> None:
    cluster = a_cluster([4], a_quota(1, 2), a_quota(2, 1, idle_sharing=False), a_quota(3, 0), stop_ms=30 * SECOND)
    cluster.submit(work(1, 3, 3, grace_ms=30 * SECOND))
    cluster.settle()
    cluster.submit(work(9, 1, 2, idle=NEVER))
    cluster.submit(work(5, 3, 1))
    cluster.run(40 * SECOND)
    assert running_in(cluster, 9) == [9]
    assert sum(a.place.amount.gpu_milli for a in cluster.allocations) <= 3000


def test_work_that_is_still_leaving_keeps_its_place() -> None:
    cluster = a_cluster([4, 4], a_quota(1, 4), a_quota(2, 4), stop_ms=30 * SECOND)
    cluster.submit(work(1, 1, 4, idle=NEVER))
    cluster.submit(work(2, 2, 4, idle=NEVER, preemptible=False))
    cluster.settle()
    node = cluster.held(1)[0].place.node
    cluster.nodes[node] = replace(cluster.nodes[node], state=NodeState.DRAINING)
    cluster.cycle()
    cluster.nodes[node] = replace(cluster.nodes[node], state=NodeState.READY)
    cluster.submit(work(3, 1, 4, idle=NEVER))
    cluster.cycle()
    assert not [r for r in cluster.reservations.values() if r.claimant == 3]
    cluster.run(40 * SECOND)
    assert running_in(cluster, 1, 2, 3) == [1, 2]
