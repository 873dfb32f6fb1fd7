"""Workers that die at the worst moments, servers that go away: nothing is lost, nothing starts twice."""

from __future__ import annotations

import time

import pytest

from quotas.actors import SYSTEM
from scheduler.models import Outbox, SimulatedTask
from tests.crash.stand import Stand, until
from tests.scheduler.world import World
from workloads.models import Allocation, Event, Phase, State, Workload
from workloads.services import stop_workload

AWAY_S = 10
POINTS = ("after_load", "inside_apply", "after_apply", "outbox_fetched", "engine_started", "acknowledged")

pytestmark = pytest.mark.django_db(transaction=True)


def is_settled(count: int) -> bool:
    """All run, and nobody has anything to deliver."""
    open_commands = Outbox.objects.filter(delivered_at__isnull=True)
    return Workload.objects.filter(state=State.RUNNING).count() == count and not open_commands.exists()


def assert_each_started_once(count: int) -> None:
    """One run, one allocation, one start command and one process for each workload, and the events to match."""
    assert list(Workload.objects.values_list("starts", flat=True)) == [1] * count
    assert Allocation.objects.count() == count
    assert Outbox.objects.filter(verb="start").count() == count
    assert SimulatedTask.objects.count() == count
    for verb in ("submitted", "started", "running"):
        assert Event.objects.filter(verb=verb).count() == count


@pytest.mark.parametrize("point", POINTS)
def test_a_worker_killed_at_a_boundary_loses_nothing(stand: Stand, world: World, point: str) -> None:
    world.submit("first")
    world.submit("second")
    stand.crash_at(point)
    with stand.beating():
        until(lambda: stand.has_crashed, f"a process comes to {point}")
        world.submit("third")
        until(lambda: is_settled(3), "all three run")
    assert_each_started_once(3)


def test_a_stop_survives_the_death_of_the_worker(stand: Stand, world: World) -> None:
    job = world.submit("job")
    with stand.beating():
        until(lambda: is_settled(1), "it runs")
        stop_workload(actor=SYSTEM, workload=job)
        stand.crash_at("outbox_fetched")
        until(lambda: stand.has_crashed, "a process fetches the stop")
        stand.kill_worker()
        stand.start_worker()
        until(lambda: World.state("job") == State.STOPPED, "it has stopped")
    allocation = Allocation.objects.get()
    assert (allocation.phase, allocation.outcome) == (Phase.ENDED, "stopped")


def test_ten_seconds_without_the_database(stand: Stand, world: World) -> None:
    world.submit("before")
    with stand.beating():
        until(lambda: is_settled(1), "the first runs")
        stand.database.shut()
        world.submit("meanwhile")
        time.sleep(AWAY_S)
        assert World.state("meanwhile") == State.QUEUED
        stand.database.open()
        until(lambda: is_settled(2), "the second runs too")
    assert_each_started_once(2)


def test_ten_seconds_without_redis(stand: Stand, world: World) -> None:
    world.submit("before")
    with stand.beating():
        until(lambda: is_settled(1), "the first runs")
        stand.redis.shut()
        world.submit("meanwhile")
        time.sleep(AWAY_S)
        stand.redis.open()
        until(lambda: is_settled(2), "the second runs too")
    assert_each_started_once(2)
