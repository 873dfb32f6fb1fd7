"""From what the engine says to states: runs, ends, failures, preemptions, progress."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta

import pytest

from quotas.actors import SYSTEM
from scheduler.cycles import run_cycle
from scheduler.delivery import deliver
from scheduler.engines.base import Observation
from scheduler.engines.simulated import SimulatedEngine
from scheduler.models import Outbox, SimulatedTask
from scheduler.observing import observe
from tests.scheduler.world import START, World
from workloads.models import Allocation, Event, Phase, State, Workload
from workloads.services import restart_workload, scale_workload, stop_workload

pytestmark = pytest.mark.django_db
SECONDS = timedelta(seconds=1)


@pytest.fixture
def world() -> World:
    return World(nodes=2, gpus=2, settings={"start_up_s": 20, "stop_s": 5, "eviction_grace_s": 30})


def test_the_instants_are_the_engines_own(world: World) -> None:
    with world.driven() as driver:
        world.submit("job", duration_s=90)
        driver.cycle()
        driver.advance_to(START + 19 * SECONDS)
        assert World.state("job") == State.STARTING
        driver.advance_to(START + 21 * SECONDS)
        assert World.state("job") == State.RUNNING
        driver.advance_to(START + timedelta(hours=1))
    job, held = Workload.objects.get(), Allocation.objects.get()
    assert (job.state, job.finished_at) == (State.SUCCEEDED, START + 110 * SECONDS)
    assert (held.ordered_at, held.running_at, held.ended_at) == (START, START + 20 * SECONDS, START + 110 * SECONDS)
    assert (held.phase, held.outcome) == (Phase.ENDED, "succeeded")


def test_each_workload_has_its_whole_chain_of_events(world: World) -> None:
    with world.driven() as driver:
        world.submit("job", duration_s=10)
        driver.cycle()
        driver.advance_to(START + timedelta(minutes=5))
    chain = list(Event.objects.order_by("id").values_list("verb", "before", "after"))
    assert chain == [
        ("submitted", "", "queued"),
        ("started", "queued", "starting"),
        ("running", "starting", "running"),
        ("succeeded", "running", "succeeded"),
    ]


def test_a_job_whose_only_worker_dies_has_failed(world: World) -> None:
    with world.driven() as driver:
        world.submit("job")
        driver.cycle()
        driver.advance_to(START + timedelta(minutes=1))
        SimulatedEngine(world.cluster).fail(str(Allocation.objects.get().pk), exit_code=3)
        driver.take_note()
    event = Event.objects.get(verb="failed")
    assert event.facts == {"exit_codes": [3], "reasons": ["died"]}
    assert Workload.objects.get().failures == 1


def test_a_job_that_may_be_tried_again_queues_again_so_often(world: World) -> None:
    with world.driven() as driver:
        world.submit("job", restart="on_failure", retries=1)
        driver.cycle()
        for _ in range(2):
            driver.advance_to(driver.now + timedelta(minutes=1))
            SimulatedEngine(world.cluster).fail(str(Allocation.objects.latest("id").pk))
            driver.take_note()
            driver.cycle()
    job = Workload.objects.get()
    assert (job.state, job.starts, job.failures) == (State.FAILED, 2, 2)


def test_a_replica_that_the_engine_does_not_know_is_lost_and_its_job_queues_once(world: World) -> None:
    with world.driven() as driver:
        world.submit("job")
        driver.cycle()
        driver.advance_to(START + timedelta(minutes=1))
        SimulatedTask.objects.all().delete()
        driver.take_note()
        assert World.state("job") == State.QUEUED
        driver.cycle()
        driver.advance_to(START + timedelta(minutes=2))
    assert World.state("job") == State.RUNNING
    assert list(Allocation.objects.order_by("id").values_list("outcome", flat=True)) == ["lost", ""]


def test_a_start_that_is_still_on_its_way_is_not_lost(world: World) -> None:
    with world.driven():
        world.submit("job")
        run_cycle(world.cluster)
        assert Outbox.objects.filter(delivered_at__isnull=True).count() == 1
        assert observe(world.cluster).news == 0
    assert World.state("job") == State.STARTING


def test_a_start_that_arrives_while_somebody_looks_is_not_lost(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    look = SimulatedEngine.observe

    def look_then_deliver(engine: SimulatedEngine, keys: Sequence[str]) -> list[Observation]:
        seen = look(engine, keys)
        deliver(world.cluster)
        return seen

    with world.driven():
        world.submit("job")
        run_cycle(world.cluster)
        monkeypatch.setattr(SimulatedEngine, "observe", look_then_deliver)
        observe(world.cluster)
    assert World.state("job") == State.STARTING
    assert Allocation.objects.get().outcome == ""


def test_progress_is_kept_by_checkpoints_only(world: World) -> None:
    owner = world.add_quota("owner", gpus=0, parent=world.quota)
    with world.driven() as driver:
        saves = world.submit("saves", quota=owner, idle="allow", duration_s=3600, checkpoint_every_s=600, gpus=2)
        forgets = world.submit("forgets", quota=owner, idle="allow", duration_s=3600, gpus=2)
        driver.cycle()
        driver.advance_to(START + timedelta(minutes=25))
        world.submit("claim", gpus=2, replicas=2, duration_s=60)
        driver.cycle()
        driver.advance_to(START + timedelta(minutes=26))
    saves.refresh_from_db()
    forgets.refresh_from_db()
    assert (saves.state, saves.done_s, forgets.done_s) == (State.QUEUED, 1200, 0)
    assert Event.objects.get(workload=saves, verb="requeued").facts["saved_s"] == 1200


def test_a_stopped_job_leaves_with_its_grace_and_has_stopped(world: World) -> None:
    with world.driven() as driver:
        job = world.submit("job")
        driver.cycle()
        driver.advance_to(START + timedelta(minutes=1))
        stop_workload(actor=SYSTEM, workload=job)
        driver.cycle()
        assert Allocation.objects.get().phase == Phase.LEAVING
        driver.advance_to(START + 66 * SECONDS)
    held = Allocation.objects.get()
    assert World.state("job") == State.STOPPED
    assert (held.outcome, held.ended_at) == ("stopped", START + 65 * SECONDS)


def test_a_restarted_job_runs_again_from_its_beginning(world: World) -> None:
    with world.driven() as driver:
        job = world.submit("job")
        driver.cycle()
        driver.advance_to(START + timedelta(minutes=1))
        job.refresh_from_db()
        restart_workload(actor=SYSTEM, workload=job)
        driver.cycle()
        driver.advance_to(START + timedelta(minutes=2))
    job.refresh_from_db()
    assert (job.state, job.starts, job.restart_wanted) == (State.RUNNING, 2, False)


def test_a_service_is_resizing_until_all_its_replicas_run(world: World) -> None:
    with world.driven() as driver:
        web = world.submit("web", kind="service", replicas=1)
        driver.cycle()
        driver.advance_to(START + timedelta(minutes=1))
        assert World.state("web") == State.RUNNING
        web.refresh_from_db()
        scale_workload(actor=SYSTEM, workload=web, replicas=3)
        driver.cycle()
        assert World.state("web") == State.RESIZING
        driver.advance_to(START + timedelta(minutes=2))
        assert World.state("web") == State.RUNNING
        web.refresh_from_db()
        scale_workload(actor=SYSTEM, workload=web, replicas=0)
        driver.cycle()
        driver.advance_to(START + timedelta(minutes=3))
    assert World.state("web") == State.RUNNING
    assert list(Allocation.objects.values_list("outcome", flat=True)) == ["scaled"] * 3
    assert Workload.objects.get().starts == 1
