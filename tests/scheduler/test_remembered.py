"""What a process remembers of rows is believed only as far as their marks say so."""

from __future__ import annotations

import pytest

from quotas.actors import SYSTEM
from quotas.models import Cluster
from scheduler.cycles import run_cycle
from scheduler.remembered import Memory, forget_all
from scheduler.snapshots import load
from scheduler.triggers import quiet
from tests.scheduler.world import World
from workloads.models import Verdict, Workload
from workloads.services import change_priority


@pytest.fixture
def cluster() -> Cluster:
    return Cluster(pk=1, name="c")


def test_only_rows_whose_mark_moved_are_read_again(cluster: Cluster) -> None:
    asked: list[list[int]] = []

    def read(ids: list[int]) -> dict[int, str]:
        asked.append(ids)
        return {pk: f"row {pk}, reading {len(asked)}" for pk in ids}

    memory: Memory[str] = Memory()
    memory.recall(cluster, {1: 1, 2: 1}, read)
    found = memory.recall(cluster, {2: 1, 1: 2, 3: 1}, read)
    assert asked == [[1, 2], [1, 3]]
    assert list(found.items()) == [(2, "row 2, reading 1"), (1, "row 1, reading 2"), (3, "row 3, reading 2")]


def test_rows_that_are_gone_are_forgotten(cluster: Cluster) -> None:
    memory: Memory[str] = Memory()
    memory.note(cluster, [(1, "a"), (2, "b")], 7)
    assert memory.recall(cluster, {1: 7}, lambda ids: {}) == {1: "a"}
    assert memory.recall(cluster, {2: 7}, lambda ids: dict.fromkeys(ids, "read")) == {2: "read"}


@pytest.mark.django_db(transaction=True)
def test_a_load_that_remembers_sees_what_one_that_does_not_sees() -> None:
    with quiet():
        world = World(nodes=1, gpus=2)
        for number in range(4):
            world.submit(f"job-{number}")
        for _ in range(3):
            run_cycle(world.cluster)
        change_priority(actor=SYSTEM, workload=Workload.objects.get(name="job-3"), priority=9)
        run_cycle(world.cluster)
        Verdict.objects.filter(workload__name="job-2").update(code="nodes.full", cycle=1000)
        now = world.cluster.now()
        remembered = load(world.cluster, now)
        forget_all()
        afresh = load(world.cluster, now)
    assert remembered == afresh
    assert {row.code for row in afresh.verdicts.values()} >= {"nodes.full"}
