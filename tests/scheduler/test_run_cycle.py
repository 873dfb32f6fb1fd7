"""Load, decide, apply: what a cycle reads, writes and refuses."""

from __future__ import annotations

from datetime import timedelta

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext
from pytest_django import DjangoAssertNumQueries

from quotas.actors import SYSTEM
from quotas.models import LedgerEntry, Quota
from quotas.services import edit_quota_settings
from scheduler.core.decide import decide
from scheduler.cycles import run_cycle
from scheduler.models import Applier, Cycle, Outbox
from scheduler.plans import apply_plan
from scheduler.snapshots import load
from tests.scheduler.world import START, World
from workloads.models import Allocation, Event, Phase, State, Verdict, Workload
from workloads.services import hold_workload, release_workload, set_node_state, stop_workload

pytestmark = pytest.mark.django_db


@pytest.fixture
def world() -> World:
    return World(nodes=2, gpus=4)


def test_what_fits_starts_with_allocations_commands_and_events(world: World) -> None:
    with world.driven():
        world.submit("job", replicas=2, gpus=3, duration_s=60)
        run_cycle(world.cluster)
    job = Workload.objects.get()
    assert (job.state, job.starts, job.started_at) == (State.STARTING, 1, START)
    rows = Allocation.objects.order_by("index").values_list("node__name", "devices", "gpu_milli", "phase", "run")
    assert sorted(rows) == [("n0", [0, 1, 2], 1000, "starting", 1), ("n1", [0, 1, 2], 1000, "starting", 1)]
    commands = Outbox.objects.order_by("id").values_list("verb", "key", "payload__run_for_ms")
    keys = Allocation.objects.order_by("id").values_list("id", flat=True)
    assert list(commands) == [("start", str(key), 60_000) for key in keys]
    assert list(Event.objects.values_list("verb", flat=True)) == ["submitted", "started"]


def test_what_waits_has_one_verdict_that_goes_when_it_starts(world: World) -> None:
    with world.driven() as driver:
        first = world.submit("first", gpus=4, replicas=2)
        second = world.submit("second")
        driver.cycle()
        driver.cycle()
        verdict = Verdict.objects.get()
        assert (verdict.workload_id, verdict.code, verdict.queue_position) == (second.pk, "quota.entitlement", 1)
        hold_workload(actor=SYSTEM, workload=second)
        driver.cycle()
        assert Verdict.objects.get().code == "policy.held"
        release_workload(actor=SYSTEM, workload=second)
        stop_workload(actor=SYSTEM, workload=first)
        driver.advance_to(START + timedelta(minutes=1))
    assert World.state("second") == State.RUNNING
    assert not Verdict.objects.exists()


def test_a_verdict_keeps_the_time_of_its_code(world: World) -> None:
    with world.driven() as driver:
        world.submit("first", gpus=4, replicas=2)
        world.submit("second")
        driver.cycle()
        driver.clock.move_to(START + timedelta(minutes=5))
        world.submit("third")
        driver.cycle()
    assert Verdict.objects.get(workload__name="second").since == START
    assert Verdict.objects.get(workload__name="third").since == START + timedelta(minutes=5)


def test_the_ledger_is_written_whole(world: World) -> None:
    with world.driven() as driver:
        world.submit("job", gpus=3)
        driver.cycle()
    row = LedgerEntry.objects.get()
    assert (row.used, row.own, row.borrowed, row.free, row.waiting) == (3000, 3000, 0, 5000, 0)


def test_a_settled_cluster_is_left_alone(world: World) -> None:
    with world.driven() as driver:
        world.submit("job", gpus=3)
        world.submit("waits", gpus=4, replicas=2)
        for _ in range(3):
            driver.cycle()
        before = Applier.objects.get(), Cycle.objects.count(), Event.objects.count()
        result = driver.cycle()
        after = Applier.objects.get(), Cycle.objects.count(), Event.objects.count()
    assert not result.applied.changed
    assert before[1:] == after[1:]
    assert after[0].revision == before[0].revision + 1


def test_the_number_of_queries_does_not_grow_with_the_work(world: World) -> None:
    def queries_of_a_cycle() -> int:
        with CaptureQueriesContext(connection) as captured:
            run_cycle(world.cluster)
        return len(captured)

    with world.driven():
        world.submit("all", gpus=4, replicas=2)
        run_cycle(world.cluster)
        for number in range(3):
            world.submit(f"few-{number}")
        few = queries_of_a_cycle()
        for number in range(40):
            world.submit(f"many-{number}")
        many = queries_of_a_cycle()
    assert many <= few


def test_loading_takes_a_fixed_number_of_queries(
    world: World, django_assert_max_num_queries: DjangoAssertNumQueries
) -> None:
    with world.driven():
        for number in range(20):
            world.submit(f"job-{number}", replicas=2)
        run_cycle(world.cluster)
        with django_assert_max_num_queries(20):
            load(world.cluster, world.cluster.now())


def test_a_workload_that_moved_since_the_load_is_left_out(world: World) -> None:
    with world.driven():
        world.submit("steady")
        fickle = world.submit("fickle")
        loaded = load(world.cluster, world.cluster.now())
        hold_workload(actor=SYSTEM, workload=fickle)
        applied = apply_plan(world.cluster, loaded, decide(loaded.snapshot))
    assert applied.refused > 0
    assert World.state("steady") == State.STARTING
    assert World.state("fickle") == State.QUEUED
    assert list(Allocation.objects.values_list("workload__name", flat=True)) == ["steady"]


def test_nothing_starts_on_a_node_that_moved_since_the_load(world: World) -> None:
    with world.driven():
        world.submit("job")
        loaded = load(world.cluster, world.cluster.now())
        plan = decide(loaded.snapshot)
        used = next(node for node in world.nodes if node.pk == plan.starts[0].place.node)
        set_node_state(actor=SYSTEM, node=used, state="cordoned")
        applied = apply_plan(world.cluster, loaded, plan)
    assert applied.refused > 0
    assert Allocation.objects.count() == 0


def test_a_plan_from_before_an_edit_of_the_tree_is_refused_whole(world: World) -> None:
    with world.driven():
        world.submit("job")
        loaded = load(world.cluster, world.cluster.now())
        edit_quota_settings(actor=SYSTEM, quota=Quota.objects.get(), changes={"queue_policy": "fifo"})
        applied = apply_plan(world.cluster, loaded, decide(loaded.snapshot))
    assert applied.refused > 0
    assert Allocation.objects.count() == 0
    assert Cycle.objects.get().refused == applied.refused


def test_nobody_leaves_in_favour_of_a_claimant_that_moved(world: World) -> None:
    with world.driven() as driver:
        for number in range(8):
            world.submit(f"low-{number}", priority=1)
        driver.cycle()
        claimant = world.submit("high", priority=8)
        loaded = load(world.cluster, world.cluster.now())
        plan = decide(loaded.snapshot)
        assert len(plan.evictions) == 1
        hold_workload(actor=SYSTEM, workload=claimant)
        apply_plan(world.cluster, loaded, plan)
    assert not Allocation.objects.filter(phase=Phase.LEAVING).exists()
