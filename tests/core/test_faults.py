"""Situations that broke other schedulers (`docs/faults.md` tells which and why)."""

from __future__ import annotations

from dataclasses import replace

import pytest

from scheduler.core.decide import decide
from scheduler.core.model import (
    Device,
    IdleUse,
    Match,
    MinRuntime,
    Node,
    NodeState,
    QueuePolicy,
    Reason,
    Topology,
    WorkerGroup,
)
from tests.core.makers import a_cluster, a_quota, reason, running_in, victims, work
from tests.core.player import MINUTE, SECOND

NEVER = IdleUse.NEVER


def test_br01_work_beyond_its_share_evicts_nobody() -> None:
    cluster = a_cluster([300], a_quota(1, 150, weight=1), a_quota(2, 150, weight=1), a_quota(3, 0, weight=1))
    cluster.submit(work(1, 1, 250))
    cluster.settle()
    cluster.submit(work(2, 3, 50))
    cluster.settle()
    cluster.submit(work(3, 1, 50))
    for _ in range(20):
        cluster.settle()
    assert victims(cluster) == []
    assert running_in(cluster, 1, 2, 3) == [1, 2]
    assert reason(cluster.plan, 3) is Reason.QUOTA_SHARE


def test_br02_only_the_gang_that_fits_the_share_is_let_in() -> None:
    cluster = a_cluster([8], a_quota(1, 0, weight=1), a_quota(2, 0, weight=1))
    for number in range(1, 5):
        cluster.submit(work(number, 1, 2))
    cluster.settle()
    for number, gpus in ((5, 6), (6, 5), (7, 4), (8, 3)):
        cluster.submit(work(number, 2, gpus))
        cluster.settle()
    assert running_in(cluster, 5, 6, 7, 8) == [7]
    assert len(victims(cluster)) == 2
    assert cluster.used(1) == cluster.used(2) == 4000


def test_br04_nobody_takes_the_room_that_is_being_freed() -> None:
    cluster = a_cluster([4], a_quota(1, 2), a_quota(2, 1), a_quota(3, 1), stop_ms=30 * SECOND)
    cluster.submit(work(1, 1, 1, grace_ms=30 * SECOND))
    cluster.submit(work(2, 2, 3, grace_ms=5 * SECOND))
    cluster.settle()
    cluster.submit(work(3, 3, 1, priority=1, idle=NEVER))
    cluster.submit(work(4, 1, 2, priority=9, idle=NEVER))
    cluster.run(2 * MINUTE)
    third_party = [victim for victim, claimant in cluster.evicted if claimant == 4]
    assert running_in(cluster, 3, 4) in ([3, 4], [4])
    assert len(set(third_party)) == len(third_party)


def test_br05_the_final_set_must_be_lawful() -> None:
    cluster = a_cluster([12], a_quota(1, 4, weight=1), a_quota(2, 4, weight=1))
    for identifier, quota, gpus in ((1, 1, 1), (2, 1, 3), (3, 2, 4), (4, 2, 4)):
        cluster.submit(work(identifier, quota, gpus, priority=1))
        cluster.settle()
    cluster.submit(work(5, 1, 5, priority=9))
    cluster.settle()
    assert victims(cluster) == []
    assert running_in(cluster, 5) == []


def test_br09_the_same_victims_each_time_and_no_more() -> None:
    cluster = a_cluster([8], a_quota(1, 8), a_quota(2, 0), stop_ms=20 * SECOND)
    for number in range(1, 9):
        cluster.submit(work(number, 2, 1))
    cluster.settle()
    cluster.submit(work(9, 1, 2, idle=NEVER))
    snapshot = cluster.snapshot()
    assert len({tuple(e.workload for e in decide(snapshot).evictions) for _ in range(20)}) == 1
    for _ in range(10):
        cluster.cycle()
    assert len(victims(cluster)) == 2


def test_br10_overlapping_claimants_take_nobody_in_vain() -> None:
    cluster = a_cluster([2, 2], a_quota(1, 2), a_quota(2, 0), a_quota(3, 2))
    for number, quota in ((1, 2), (2, 2), (3, 3), (4, 3)):
        cluster.submit(work(number, quota, 1))
    cluster.settle()
    cluster.submit(work(5, 1, 2, idle=NEVER))
    cluster.submit(work(6, 1, 2, idle=NEVER))
    cluster.settle()
    assert sorted(victims(cluster)) == [1, 2]
    assert running_in(cluster, 3, 4, 5, 6) == [3, 4, 5]


def test_br11_long_graces_do_not_queue_up() -> None:
    cluster = a_cluster([100], a_quota(1, 100), a_quota(2, 0), stop_ms=300 * SECOND)
    for number in range(1, 101):
        cluster.submit(work(number, 2, 1, grace_ms=300 * SECOND))
    cluster.settle()
    for number in range(101, 201):
        cluster.submit(work(number, 1, 1, idle=NEVER))
    cluster.cycle()
    assert len(victims(cluster)) == 100
    cluster.run(301 * SECOND, step_ms=100 * SECOND)
    assert len(running_in(cluster, *range(101, 201))) == 100


def test_br13_no_loop_between_a_victim_and_its_claimant() -> None:
    cluster = a_cluster([8], a_quota(1, 3), a_quota(2, 5))
    cluster.submit(work(1, 1, 4))
    cluster.submit(work(2, 2, 1, idle=NEVER))
    cluster.settle()
    cluster.submit(work(3, 2, 4, idle=NEVER))
    cluster.settle()
    cluster.settle()
    assert victims(cluster) == [1]
    assert running_in(cluster, 1, 2, 3) == [2, 3]


def test_br15_equals_do_not_evict_each_other() -> None:
    cluster = a_cluster([12], a_quota(1, 12))
    for number in range(1, 25):
        cluster.submit(work(number, 1, 1), duration_ms=MINUTE)
    cluster.run(5 * MINUTE)
    assert victims(cluster) == []
    assert all(job.state == "succeeded" for job in cluster.jobs.values())


def test_br17_nobody_is_evicted_where_the_claimant_would_not_fit() -> None:
    cluster = a_cluster([4, 4], a_quota(1, 8))
    cluster.submit(work(1, 1, 2, priority=1))
    cluster.submit(work(2, 1, 2, priority=1, preemptible=False))
    cluster.settle()
    cluster.submit(work(3, 1, 3, priority=1, preemptible=False))
    cluster.settle()
    cluster.submit(work(4, 1, 4, priority=9))
    cluster.settle()
    assert victims(cluster) == []
    assert running_in(cluster, 4) == []


def test_br21_minimum_run_time_protects_and_a_long_wait_overrides() -> None:
    quotas = (a_quota(1, 4), a_quota(2, 4, min_runtime=MinRuntime(30 * MINUTE, 0, override_after_ms=10 * MINUTE)))
    cluster = a_cluster([8], *quotas)
    cluster.submit(work(1, 2, 4))
    cluster.submit(work(2, 2, 4))
    cluster.settle()
    cluster.run(5 * MINUTE)
    cluster.submit(work(3, 1, 4, idle=NEVER))
    cluster.settle()
    assert reason(cluster.plan, 3) is Reason.PREEMPTION_PROTECTED
    cluster.run(9 * MINUTE, step_ms=MINUTE)
    assert victims(cluster) == []
    cluster.run(2 * MINUTE, step_ms=MINUTE)
    assert victims(cluster) == [2]
    assert running_in(cluster, 1, 2, 3) == [1, 3]


def test_br22_consolidation_moves_no_more_than_needed() -> None:
    cluster = a_cluster([8, 8, 8, 8], a_quota(1, 32))
    number = 0
    for node in range(1, 5):
        cluster.nodes[node] = replace(cluster.nodes[node], labels=(("name", str(node)),))
        for _ in range(6):
            number += 1
            cluster.submit(work(number, 1, 1, select=(Match("name", (str(node),)),)))
    cluster.settle()
    for identifier, job in cluster.jobs.items():
        shape = replace(job.workload.groups[0].shape, select=())
        cluster.change(identifier, groups=(WorkerGroup(shape, 1, 1),))
    cluster.submit(work(100, 1, 4))
    cluster.settle()
    assert len(cluster.moved) == 2
    assert running_in(cluster, *range(1, 25), 100) == [*range(1, 25), 100]


def test_br25_a_gang_empties_the_domain_that_lower_work_fills() -> None:
    cluster = a_cluster([2] * 8, a_quota(1, 16))
    for node in cluster.nodes:
        clique = "c1" if node <= 4 else "c2"
        cluster.nodes[node] = replace(cluster.nodes[node], labels=(("clique", clique), ("name", str(node))))
    for number in range(1, 5):
        cluster.submit(work(number, 1, 2, priority=1, select=(Match("clique", ("c1",)),)))
    for number in range(5, 8):
        cluster.submit(work(number, 1, 2, priority=9, select=(Match("clique", ("c2",)),)))
    cluster.settle()
    gang = work(20, 1, 2, 4, priority=8)
    group = replace(gang.groups[0], topology=Topology(required="clique"))
    cluster.submit(replace(gang, groups=(group,)))
    cluster.settle()
    assert sorted(victims(cluster)) == [1, 2, 3, 4]
    assert running_in(cluster, 20, 5, 6, 7) == [20, 5, 6, 7]


def test_br28_a_large_head_is_not_starved() -> None:
    cluster = a_cluster([100], a_quota(1, 100, reserve_after_ms=0))
    cluster.submit(work(1, 1, 30, idle=NEVER, estimate_ms=20 * MINUTE), duration_ms=20 * MINUTE)
    cluster.submit(work(2, 1, 30, idle=NEVER, estimate_ms=20 * MINUTE), duration_ms=20 * MINUTE)
    cluster.settle()
    cluster.submit(work(3, 1, 50, idle=NEVER))
    cluster.settle()
    for number in range(4, 24):
        cluster.submit(work(number, 1, 40, idle=NEVER))
        cluster.run(MINUTE, step_ms=MINUTE)
    cluster.run(MINUTE)
    assert running_in(cluster, 3) == [3]


def test_br29_big_heads_do_not_block_what_fits() -> None:
    cluster = a_cluster([1], a_quota(1, 5, queue_policy=QueuePolicy.ROUND_ROBIN))
    cluster.nodes[1] = replace(cluster.nodes[1], cpu_milli=64_000)
    for number in (1, 2, 3):
        cluster.submit(work(number, 1, 4, idle=NEVER))
    for number in (4, 5):
        cluster.submit(work(number, 1, 0, cpu_milli=1000, idle=NEVER))
    cluster.submit(work(6, 1, 1, idle=NEVER))
    plan = cluster.cycle()
    assert running_in(cluster, *range(1, 7)) == [4, 5, 6]
    assert dict(plan.order)[1][:3] == (1, 2, 3)
    assert reason(plan, 1) is Reason.NODES_NEVER_FITS


def test_br30_many_equal_blocked_jobs_hide_nobody() -> None:
    cluster = a_cluster([8], a_quota(1, 8, queue_policy=QueuePolicy.ROUND_ROBIN))
    cluster.submit(work(1, 1, 7, idle=NEVER))
    cluster.settle()
    for number in range(2, 2002):
        cluster.submit(work(number, 1, 8, idle=NEVER))
    cluster.submit(work(5000, 1, 1, idle=NEVER))
    cluster.cycle()
    assert running_in(cluster, 5000) == [5000]


def test_br32_a_guarantee_that_cannot_be_used_yet_is_lent() -> None:
    cluster = a_cluster([200], a_quota(1, 200), a_quota(2, 0))
    cluster.submit(work(1, 1, 100, idle=NEVER, preemptible=False))
    cluster.settle()
    cluster.submit(work(2, 1, 200, idle=NEVER))
    cluster.settle()
    cluster.submit(work(3, 2, 100))
    cluster.settle()
    assert running_in(cluster, 1, 2, 3) == [1, 3]
    cluster.stop(1)
    cluster.settle()
    assert victims(cluster) == [3]
    assert running_in(cluster, 2, 3) == [2]


def test_br34_the_parents_limit_holds_over_its_children() -> None:
    cluster = a_cluster([8], a_quota(1, 2, limit=2), a_quota(2, 1, 1, limit=2), a_quota(3, 1, 1, limit=2))
    cluster.submit(work(1, 2, 2))
    cluster.submit(work(2, 3, 2))
    cluster.settle()
    assert running_in(cluster, 1, 2) == [1]
    wait = cluster.plan.wait_of(2)
    assert wait is not None
    assert wait.reason is Reason.QUOTA_ANCESTOR_LIMIT
    assert (wait.facts["quota"], wait.facts["limit"], wait.facts["used"]) == (1, 2000, 2000)


def test_br35_the_sum_fits_but_the_shape_does_not() -> None:
    cluster = a_cluster([6] * 10, a_quota(1, 60))
    cluster.submit(work(1, 1, 4, 12, idle=NEVER))
    cluster.settle()
    wait = cluster.plan.wait_of(1)
    assert cluster.allocations == []
    assert wait is not None
    assert (wait.reason, wait.facts["members"], wait.facts["placeable"]) == (Reason.NODES_GANG, 12, 10)


def test_br37_gangs_run_whole_one_after_another() -> None:
    cluster = a_cluster([32] * 4, a_quota(1, 128))
    for number in (1, 2, 3):
        cluster.submit(work(number, 1, 20, 4, idle=NEVER), duration_ms=MINUTE)
    cluster.settle()
    assert running_in(cluster, 1, 2, 3) == [1]
    cluster.run(4 * MINUTE)
    assert all(job.state == "succeeded" for job in cluster.jobs.values())


def test_br46_scattered_small_jobs_that_cannot_help_stay() -> None:
    cluster = a_cluster([8] * 4, a_quota(1, 40))
    for node in range(1, 5):
        cluster.nodes[node] = replace(cluster.nodes[node], labels=(("name", str(node)),))
    number = 0
    for node in range(1, 5):
        for place in range(8):
            number += 1
            chosen = (Match("name", (str(node),)),)
            cluster.submit(work(number, 1, 1, priority=8 if place < 6 else 1, select=chosen, idle=NEVER))
    cluster.settle()
    cluster.submit(work(100, 1, 8, priority=8, idle=NEVER))
    cluster.settle()
    assert victims(cluster) == []
    cluster.submit(work(101, 1, 1, priority=8, idle=NEVER))
    cluster.jobs.pop(100)
    cluster.settle()
    assert len(victims(cluster)) == 1


@pytest.mark.parametrize(("asked_mib", "device_mib", "fit"), [(2000, 46_068, 23), (20_480, 40_960, 2)])
def test_br50_device_memory_is_counted_exactly(asked_mib: int, device_mib: int, fit: int) -> None:
    cluster = a_cluster([], a_quota(1, 30))
    cluster.nodes[1] = Node(1, 1, devices=(Device(device_mib),))
    for number in range(1, 25):
        asked = work(number, 1, 0, idle=NEVER)
        shape = replace(asked.groups[0].shape, gpu_count=1, gpu_memory_mib=asked_mib)
        cluster.submit(replace(asked, groups=(WorkerGroup(shape, 1, 1),)))
    cluster.settle()
    assert len(running_in(cluster, *range(1, 25))) == fit


def test_br51_half_a_device_by_memory_is_charged_as_half() -> None:
    cluster = a_cluster([], a_quota(1, 2))
    cluster.nodes[1] = Node(1, 1, devices=(Device(40_960),))
    asked = work(1, 1, 0, idle=NEVER)
    shape = replace(asked.groups[0].shape, gpu_count=1, gpu_memory_mib=20_480)
    cluster.submit(replace(asked, groups=(WorkerGroup(shape, 1, 1),)))
    cluster.nodes[1] = replace(cluster.nodes[1], state=NodeState.CORDONED)
    assert cluster.cycle().ledger[0].waiting.gpu_milli == 500
    cluster.nodes[1] = replace(cluster.nodes[1], state=NodeState.READY)
    cluster.settle()
    assert cluster.used(1) == 500


def test_br55_an_explicit_zero_is_as_absent() -> None:
    cluster = a_cluster([], a_quota(1, 0))
    cluster.nodes[1] = Node(1, 1, cpu_milli=4000, memory_mib=8192)
    cluster.submit(work(1, 1, 0, cpu_milli=1000, memory_mib=1024, idle=NEVER))
    cluster.settle()
    assert running_in(cluster, 1) == [1]


def test_br83_and_br85_the_right_to_reclaim_does_not_wait_for_free_room() -> None:
    cluster = a_cluster([4, 4], a_quota(1, 4, weight=1), a_quota(2, 4, weight=1))
    for number in range(1, 10):
        cluster.submit(work(number, 1, 1))
    cluster.settle()
    cluster.submit(work(20, 2, 1, idle=NEVER))
    cluster.settle()
    assert len(victims(cluster)) == 1
    assert running_in(cluster, 20) == [20]
