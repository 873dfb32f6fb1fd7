"""Place, consolidate and admit: where work goes, and when it may start without taking anything."""

from __future__ import annotations

from dataclasses import replace

import pytest

from scheduler.core.decide import decide
from scheduler.core.model import (
    Cap,
    Device,
    Enclosure,
    IdleUse,
    Kind,
    Match,
    Neighbour,
    Node,
    NodeState,
    NodeWish,
    Placement,
    Pool,
    PoolAmounts,
    Quota,
    Reason,
    Shape,
    Topology,
    WorkerGroup,
)
from scheduler.core.resources import Bound
from tests.core.makers import a_cluster, a_quota, reason, running_in, work
from tests.core.player import SECOND, Cluster

NEVER = IdleUse.NEVER


def where(cluster: Cluster, identifier: int) -> list[int]:
    """The nodes of a workload's workers."""
    return sorted(a.place.node for a in cluster.held(identifier))


# --- nodes -------------------------------------------------------------------------------------------


def test_the_node_with_the_least_room_left_is_taken() -> None:
    cluster = a_cluster([8, 4, 8], a_quota(1, 20))
    cluster.submit(work(1, 1, 3, idle=NEVER))
    cluster.cycle()
    assert where(cluster, 1) == [2]


def test_spread_takes_the_emptiest_node() -> None:
    cluster = a_cluster([4, 4], a_quota(1, 8))
    cluster.pools = {1: Pool(1, placement=Placement.SPREAD)}
    for number in (1, 2, 3, 4):
        cluster.submit(work(number, 1, 1, idle=NEVER))
        cluster.cycle()
    assert sorted(where(cluster, 1) + where(cluster, 2)) == [1, 2]


def test_fractions_are_packed_onto_started_devices() -> None:
    cluster = a_cluster([2, 2], a_quota(1, 4))
    for number, gpus in ((1, 0.5), (2, 0.3), (3, 0.6), (4, 0.2)):
        cluster.submit(work(number, 1, gpus, idle=NEVER))
        cluster.cycle()
    devices = {n: cluster.held(n)[0].place.devices for n in (1, 2, 3, 4)}
    assert devices[1] == devices[2] == devices[4]
    assert devices[3] != devices[1]
    assert {n: where(cluster, n) for n in (1, 2, 3, 4)} == {n: [1] for n in (1, 2, 3, 4)}


def test_among_equal_nodes_the_least_usable_room_is_lost() -> None:
    cluster = a_cluster([4, 4], a_quota(1, 8))
    for node, cpu in ((1, 10_000), (2, 64_000)):
        cluster.nodes[node] = replace(cluster.nodes[node], cpu_milli=cpu)
    for number in (1, 2, 3):
        cluster.submit(work(number, 1, 1, cpu_milli=8000, idle=NEVER, held=True))
    cluster.submit(work(4, 1, 0, cpu_milli=4000, idle=NEVER))
    cluster.cycle()
    assert where(cluster, 4) == [2]  # on the first node the last GPU that eight cores can use would be lost


def test_work_without_gpus_goes_to_nodes_without_gpus() -> None:
    cluster = a_cluster([4], a_quota(1, 4))
    cluster.nodes[1] = replace(cluster.nodes[1], cpu_milli=8000)
    cluster.nodes[2] = Node(2, 1, cpu_milli=64_000)
    cluster.submit(work(1, 1, 0, cpu_milli=1000, idle=NEVER))
    cluster.cycle()
    assert where(cluster, 1) == [2]


@pytest.mark.parametrize("state", [NodeState.CORDONED, NodeState.DRAINING, NodeState.LOST])
def test_nodes_that_take_no_work_are_left_alone(state: NodeState) -> None:
    cluster = a_cluster([4], a_quota(1, 4))
    cluster.nodes[1] = replace(cluster.nodes[1], state=state)
    cluster.submit(work(1, 1, 1, idle=NEVER))
    cluster.cycle()
    assert running_in(cluster, 1) == []


def test_bad_devices_are_not_given_out() -> None:
    cluster = a_cluster([2], a_quota(1, 2))
    cluster.nodes[1] = replace(cluster.nodes[1], devices=(Device(healthy=False), Device()))
    cluster.submit(work(1, 1, 1, idle=NEVER))
    cluster.submit(work(2, 1, 1, idle=NEVER))
    cluster.cycle()
    assert cluster.held(1)[0].place.devices == (1,)
    assert running_in(cluster, 2) == []


def test_cpu_and_memory_bind_beside_gpus() -> None:
    cluster = a_cluster([8], a_quota(1, 8))
    cluster.nodes[1] = replace(cluster.nodes[1], cpu_milli=10_000, memory_mib=4096)
    for number in (1, 2, 3):
        cluster.submit(work(number, 1, 1, cpu_milli=4000, memory_mib=1024, idle=NEVER))
    cluster.cycle()
    assert running_in(cluster, 1, 2, 3) == [1, 2]
    assert reason(cluster.plan, 3) is Reason.NODES_FULL


def test_counted_resources_are_only_counted() -> None:
    cluster = a_cluster([4], a_quota(1, 4))
    cluster.nodes[1] = replace(cluster.nodes[1], counted=(("slots", 2),))
    for number in (1, 2, 3):
        asked = work(number, 1, 1, idle=NEVER)
        shape = replace(asked.groups[0].shape, counted=(("slots", 1),))
        cluster.submit(replace(asked, groups=(WorkerGroup(shape, 1, 1),)))
    cluster.cycle()
    assert running_in(cluster, 1, 2, 3) == [1, 2]


def test_the_kinds_that_a_pool_takes() -> None:
    cluster = a_cluster([4], a_quota(1, 4))
    cluster.pools = {1: Pool(1, kinds=(Kind.TRAINING,))}
    cluster.submit(work(1, 1, 1, kind=Kind.NOTEBOOK, idle=NEVER))
    cluster.submit(work(2, 1, 1, idle=NEVER))
    cluster.cycle()
    assert running_in(cluster, 1, 2) == [2]
    assert reason(cluster.plan, 1) is Reason.NODES_AFFINITY


def test_node_affinity_of_a_quota_by_kind() -> None:
    wishes = (
        NodeWish(Kind.TRAINING, required=(Match("side", ("right",)),)),
        NodeWish(Kind.NOTEBOOK, preferred=(Match("side", ("left",)),)),
    )
    cluster = a_cluster([1, 8], a_quota(1, 9, node_affinity=wishes))
    for node, side in ((1, "left"), (2, "right")):
        cluster.nodes[node] = replace(cluster.nodes[node], labels=(("side", side),))
    cluster.submit(work(1, 1, 1, idle=NEVER))
    cluster.submit(work(2, 1, 1, kind=Kind.NOTEBOOK, idle=NEVER))
    cluster.submit(work(3, 1, 1, kind=Kind.NOTEBOOK, idle=NEVER))
    cluster.cycle()
    assert (where(cluster, 1), where(cluster, 2) + where(cluster, 3)) == ([2], [1, 2])


def test_taints_and_tolerations() -> None:
    cluster = a_cluster([4], a_quota(1, 4))
    cluster.nodes[1] = replace(cluster.nodes[1], taints=("maintenance",))
    asked = work(2, 1, 1, idle=NEVER)
    shape = replace(asked.groups[0].shape, tolerates=("maintenance",))
    cluster.submit(work(1, 1, 1, idle=NEVER))
    cluster.submit(replace(asked, groups=(WorkerGroup(shape, 1, 1),)))
    cluster.cycle()
    assert running_in(cluster, 1, 2) == [2]


def test_workers_near_and_apart_from_others() -> None:
    cluster = a_cluster([2, 2, 2], a_quota(1, 6))
    for node in cluster.nodes:
        cluster.nodes[node] = replace(cluster.nodes[node], labels=(("host", str(node)),))
    apart = Shape(gpu_count=1, gpu_milli=1000, labels=(("app", "a"),), apart=(Neighbour((("app", "a"),), "host"),))
    near = Shape(gpu_count=1, gpu_milli=1000, near=(Neighbour((("app", "a"),), "host"),))
    cluster.submit(replace(work(1, 1, 1, idle=NEVER), groups=(WorkerGroup(apart, 3, 3),)))
    cluster.settle()
    assert where(cluster, 1) == [1, 2, 3]
    cluster.submit(replace(work(2, 1, 1, idle=NEVER), groups=(WorkerGroup(near, 1, 1),)))
    cluster.submit(replace(work(3, 1, 1, idle=NEVER), groups=(WorkerGroup(apart, 1, 1),)))
    cluster.settle()
    assert running_in(cluster, 2, 3) == [2]
    assert reason(cluster.plan, 3) is Reason.NODES_AFFINITY


# --- topology ----------------------------------------------------------------------------------------


def racks(*sizes: int) -> Cluster:
    """Nodes of four GPUs in racks of so many nodes, two racks a block."""
    cluster = a_cluster([4] * sum(sizes), a_quota(1, 4 * sum(sizes)))
    node = 0
    for rack, size in enumerate(sizes):
        for _ in range(size):
            node += 1
            labels = (("block", f"b{rack // 2}"), ("rack", f"r{rack}"))
            cluster.nodes[node] = replace(cluster.nodes[node], labels=labels)
    return cluster


def a_gang(number: int, workers: int, topology: Topology) -> object:
    asked = work(number, 1, 4, workers, idle=NEVER)
    return replace(asked, groups=(replace(asked.groups[0], topology=topology),))


LEVELS = ("block", "rack")


def test_the_domain_that_a_gang_fills_most_is_chosen() -> None:
    cluster = racks(4, 2, 3)
    cluster.submit(a_gang(1, 2, Topology(required="rack", levels=LEVELS)))  # type: ignore[arg-type]
    cluster.settle()
    assert where(cluster, 1) == [5, 6]


def test_required_waits_and_preferred_goes_as_close_as_can_be() -> None:
    cluster = racks(2, 2, 2, 2)
    cluster.submit(a_gang(1, 3, Topology(required="rack", levels=LEVELS)))  # type: ignore[arg-type]
    cluster.settle()
    assert reason(cluster.plan, 1) is Reason.NODES_TOPOLOGY
    cluster.submit(a_gang(2, 3, Topology(preferred="rack", levels=LEVELS)))  # type: ignore[arg-type]
    cluster.settle()
    blocks = {dict(cluster.nodes[node].labels)["block"] for node in where(cluster, 2)}
    assert len(blocks) == 1


def test_groups_inside_an_enclosure_stay_in_its_domain() -> None:
    cluster = racks(1, 2, 1, 2)
    shape = Shape(gpu_count=4, gpu_milli=1000)
    groups = (WorkerGroup(shape, 1, 1, inside=0), WorkerGroup(shape, 2, 2, topology=Topology("rack"), inside=0))
    asked = replace(work(1, 1, 4, idle=NEVER), groups=groups, enclosures=(Enclosure(Topology("block")),))
    cluster.submit(asked)
    cluster.settle()
    nodes = where(cluster, 1)
    assert len({dict(cluster.nodes[node].labels)["block"] for node in nodes}) == 1
    assert len(nodes) == 3


def test_growth_stays_in_the_required_domain() -> None:
    cluster = racks(1, 2)
    cluster.submit(a_gang(1, 1, Topology(required="rack")))  # type: ignore[arg-type]
    cluster.settle()
    group = cluster.jobs[1].workload.groups[0]
    cluster.change(1, groups=(replace(group, wanted=3),))
    cluster.settle()
    assert len({dict(cluster.nodes[node].labels)["rack"] for node in where(cluster, 1)}) == 1


# --- pools -------------------------------------------------------------------------------------------


def two_pools(first: int, second: int) -> Cluster:
    amounts = tuple((pool, PoolAmounts(Bound(gpu_milli=size * 1000))) for pool, size in ((1, first), (2, second)))
    cluster = a_cluster([], Quota(1, None, "q", amounts))
    cluster.pools = {1: Pool(1), 2: Pool(2)}
    cluster.nodes = {
        n: Node(n, n, devices=tuple(Device() for _ in range(size))) for n, size in ((1, first), (2, second))
    }
    return cluster


def test_pools_are_tried_in_the_order_of_preference() -> None:
    cluster = two_pools(2, 2)
    for number in (1, 2):
        cluster.submit(work(number, 1, 2, idle=NEVER, pools=(2, 1)))
    cluster.cycle()
    assert (where(cluster, 1), where(cluster, 2)) == ([2], [1])


def test_all_pools_are_tried_without_eviction_first() -> None:
    cluster = two_pools(2, 2)
    cluster.submit(work(1, 1, 2, idle=NEVER, priority=1, pools=(1,)))
    cluster.settle()
    cluster.submit(work(2, 1, 2, idle=NEVER, priority=9, pools=(1, 2)))
    cluster.settle()
    assert cluster.evicted == []
    assert where(cluster, 2) == [2]


def test_a_pool_that_the_quota_does_not_name_promises_nothing() -> None:
    cluster = two_pools(2, 2)
    cluster.quotas[1] = Quota(1, None, "q", ((1, PoolAmounts(Bound(gpu_milli=2000))),))
    cluster.submit(work(1, 1, 2, idle=NEVER, pools=(2,)))
    cluster.submit(work(2, 1, 2, pools=(2,)))
    cluster.settle()
    assert running_in(cluster, 1, 2) == [2]
    assert dict(cluster.plan.borrowed) == {2: 2000}


# --- promises ----------------------------------------------------------------------------------------


def test_never_may_start_while_others_of_its_quota_borrow_more() -> None:
    cluster = a_cluster([8], a_quota(1, 4), a_quota(2, 4))
    cluster.submit(work(1, 1, 4))
    cluster.settle()
    cluster.submit(work(2, 1, 4, idle=NEVER))
    cluster.settle()
    assert running_in(cluster, 1, 2) == [1, 2]
    assert dict(cluster.plan.borrowed) == {1: 4000}


def test_never_does_not_push_work_that_may_not_borrow() -> None:
    cluster = a_cluster([8], a_quota(1, 4), a_quota(2, 4))
    cluster.submit(work(1, 1, 4, idle=NEVER, priority=9))
    cluster.settle()
    cluster.submit(work(2, 1, 4, idle=NEVER, priority=9))
    cluster.settle()
    assert running_in(cluster, 1, 2) == [1]
    assert reason(cluster.plan, 2) is Reason.QUOTA_ENTITLEMENT


def test_idle_room_is_used_beyond_the_share() -> None:
    cluster = a_cluster([8], a_quota(1, 2), a_quota(2, 6))
    cluster.submit(work(1, 1, 8))
    cluster.settle()
    assert running_in(cluster, 1) == [1]


def test_borrowed_work_turns_into_guaranteed_by_itself() -> None:
    cluster = a_cluster([8], a_quota(1, 4), a_quota(2, 4))
    cluster.submit(work(1, 1, 4))
    cluster.run(SECOND)
    cluster.submit(work(2, 1, 4))
    cluster.settle()
    assert dict(cluster.plan.borrowed) == {2: 4000}
    cluster.stop(1)
    cluster.settle()
    assert dict(cluster.plan.borrowed) == {}


def test_a_cap_makes_work_wait_and_names_itself() -> None:
    cluster = a_cluster([8], a_quota(1, 8))
    for number in (1, 2):
        cluster.submit(work(number, 1, 2, idle=NEVER, caps=(5,)))
    snapshot = replace(cluster.snapshot(), caps=(Cap(5, Bound(gpu_milli=3000), (("entry", 17),)),))
    wait = decide(snapshot).wait_of(2)
    assert wait is not None
    assert (wait.reason, wait.facts["entry"], wait.facts["limit"]) == (Reason.CONFIGURATION_CAP, 17, 3000)


def test_an_engine_that_does_not_answer_starts_nothing() -> None:
    cluster = a_cluster([8], a_quota(1, 8))
    cluster.pools = {1: Pool(1, engine_available=False)}
    cluster.submit(work(1, 1, 1, idle=NEVER))
    cluster.cycle()
    assert reason(cluster.plan, 1) is Reason.ENGINE_UNAVAILABLE


# --- moves -------------------------------------------------------------------------------------------


def one_job_on_each(cluster: Cluster, **fields: object) -> None:
    """A one-GPU job on each node."""
    for node in cluster.nodes:
        cluster.nodes[node] = replace(cluster.nodes[node], labels=(("n", str(node)),))
        cluster.submit(work(node, 1, 1, select=(Match("n", (str(node),)),), idle=NEVER, **fields))
    cluster.settle()
    for node in cluster.nodes:
        shape = replace(cluster.jobs[node].workload.groups[0].shape, select=())
        cluster.change(node, groups=(WorkerGroup(shape, 1, 1),))


def test_moves_also_let_in_work_that_would_borrow() -> None:
    cluster = a_cluster([2, 2], a_quota(1, 4), a_quota(2, 0))
    one_job_on_each(cluster)
    cluster.submit(work(9, 2, 2))
    cluster.settle()
    assert running_in(cluster, 1, 2, 9) == [1, 2, 9]
    assert (len(cluster.moved), cluster.evicted) == (1, [])


def test_a_spent_budget_of_moves_is_a_reason_to_wait() -> None:
    cluster = a_cluster([2, 2], a_quota(1, 4))
    cluster.pools = {1: Pool(1, moves_left=0)}
    one_job_on_each(cluster)
    cluster.submit(work(9, 1, 2, idle=NEVER))
    cluster.settle()
    assert cluster.moved == []
    assert reason(cluster.plan, 9) is Reason.CONSOLIDATION_PENDING


def test_work_that_is_not_preemptible_is_not_moved() -> None:
    cluster = a_cluster([2, 2], a_quota(1, 4))
    one_job_on_each(cluster, preemptible=False)
    cluster.submit(work(9, 1, 2, idle=NEVER))
    cluster.settle()
    assert cluster.moved == []
    assert reason(cluster.plan, 9) is Reason.NODES_FRAGMENTED


# --- elastic -----------------------------------------------------------------------------------------


def test_elastic_work_starts_at_its_minimum_and_grows_after_all_others_have_started() -> None:
    cluster = a_cluster([6], a_quota(1, 6))
    cluster.submit(work(1, 1, 1, 6, minimum=2, idle=NEVER))
    cluster.submit(work(2, 1, 2, idle=NEVER))
    cluster.cycle()
    assert (len(cluster.held(1)), running_in(cluster, 1, 2)) == (4, [1, 2])
    cluster.stop(2)
    cluster.settle()
    assert len(cluster.held(1)) == 6
    assert cluster.plan.waits == ()
