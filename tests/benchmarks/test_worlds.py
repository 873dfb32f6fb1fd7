"""The clusters that benchmarks run on are what they say, and the same every time."""

from collections import Counter, defaultdict
from collections.abc import Callable

import pytest

from scheduler.benchmarks import worlds
from scheduler.benchmarks.worlds import POOL, World
from scheduler.core.model import Snapshot

SMALL: dict[str, Callable[[], World]] = {
    "decide": lambda: worlds.busy_cluster(nodes=20, gpus=8, running=90, pending=300, quotas=23, seed=42),
    "allocate": lambda: worlds.allocate(nodes=10, jobs=40),
    "reclaim-large": lambda: worlds.reclaim_large(nodes=20),
    "gang": lambda: worlds.gang(16, (2, 2, 2, 2)),
    "cannot-fit": lambda: worlds.cannot_fit(nodes=20, workers=4),
    "consolidate": lambda: worlds.consolidate(nodes=12, gangs=2, workers=4),
}


@pytest.fixture(params=sorted(SMALL))
def make(request: pytest.FixtureRequest) -> Callable[[], World]:
    return SMALL[request.param]


def held_gpus(snapshot: Snapshot) -> dict[tuple[int, int], int]:
    held: dict[tuple[int, int], int] = defaultdict(int)
    for allocation in snapshot.allocations:
        for device in allocation.place.devices:
            held[allocation.place.node, device] += allocation.place.device_milli
    return held


def test_same_sizes_give_the_same_snapshot(make: Callable[[], World]) -> None:
    assert make() == make()


def test_nothing_is_held_twice(make: Callable[[], World]) -> None:
    snapshot = make().snapshot
    assert max(held_gpus(snapshot).values(), default=0) <= 1000
    cpu: Counter[int] = Counter()
    for allocation in snapshot.allocations:
        cpu[allocation.place.node] += allocation.place.cpu_milli
    bounds = {node.id: node.cpu_milli for node in snapshot.nodes}
    assert all(used <= (bounds[node] or 0) for node, used in cpu.items())


def test_gangs_that_run_are_whole(make: Callable[[], World]) -> None:
    snapshot = make().snapshot
    workers = Counter(allocation.place.workload for allocation in snapshot.allocations)
    wanted = {workload.id: workload.groups[0].wanted for workload in snapshot.workloads}
    assert all(wanted[workload] == count for workload, count in workers.items())


def test_children_are_promised_no_more_than_their_parent(make: Callable[[], World]) -> None:
    snapshot = make().snapshot
    promised = {quota.id: dict(quota.amounts)[POOL].guaranteed.gpu_milli or 0 for quota in snapshot.quotas}
    handed_down: Counter[int] = Counter()
    for quota in snapshot.quotas:
        if quota.parent is not None:
            handed_down[quota.parent] += promised[quota.id]
    assert all(total <= promised[parent] for parent, total in handed_down.items())
    roots = sum(promised[quota.id] for quota in snapshot.quotas if quota.parent is None)
    assert roots <= sum(len(node.devices) for node in snapshot.nodes) * 1000


def test_busy_cluster_is_nearly_full_and_asks_for_many_shapes() -> None:
    world = worlds.busy_cluster(nodes=1000, gpus=8, running=5000, pending=10_000, quotas=200, seed=42)
    assert world.sizes["running"] == 5000
    assert world.sizes["quotas"] == 200
    assert int(world.sizes["shapes"]) >= 40
    assert {workload.priority for workload in world.snapshot.workloads} == set(range(1, 10))
    assert sum(held_gpus(world.snapshot).values()) >= 0.95 * 8_000_000


def test_teams_of_a_settled_cluster_use_about_what_they_are_promised() -> None:
    snapshot = worlds.busy_cluster(nodes=100, gpus=8, running=500, pending=10, quotas=20, seed=42).snapshot
    promised = {quota.id: dict(quota.amounts)[POOL].guaranteed.gpu_milli or 0 for quota in snapshot.quotas}
    quota_of = {workload.id: workload.quota for workload in snapshot.workloads}
    used: Counter[int] = Counter()
    for allocation in snapshot.allocations:
        used[quota_of[allocation.place.workload]] += allocation.place.amount.gpu_milli
    assert all(abs(used[quota.id] - promised[quota.id]) <= 16_000 for quota in snapshot.quotas if quota.parent)


def test_gang_has_the_levels_of_its_topology() -> None:
    world = worlds.gang(16, (2, 2, 2, 2))
    racks = Counter(dict(node.labels)["rack"] for node in world.snapshot.nodes)
    assert set(racks.values()) == {2}
    assert len(racks) == 8
