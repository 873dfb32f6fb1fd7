"""The outbox: each command arrives, a second delivery does nothing, an engine that is away gets them later."""

from __future__ import annotations

from datetime import timedelta

import pytest
from django.utils import timezone

from scheduler import delivery
from scheduler.cycles import run_cycle
from scheduler.delivery import LEASE, deliver
from scheduler.engines.base import Rejected, StartOrder, Unavailable
from scheduler.engines.simulated import SimulatedEngine
from scheduler.models import Outbox, SimulatedTask
from scheduler.observing import observe
from tests.scheduler.world import World
from workloads.models import Allocation, State

pytestmark = pytest.mark.django_db


@pytest.fixture
def world() -> World:
    return World(nodes=1, gpus=4)


def test_commands_arrive_and_are_marked(world: World) -> None:
    with world.driven():
        world.submit("job", replicas=2)
        run_cycle(world.cluster)
        assert deliver(world.cluster) == 2
        assert deliver(world.cluster) == 0
    assert SimulatedTask.objects.count() == 2
    assert not Outbox.objects.filter(delivered_at__isnull=True).exists()


def test_what_a_dead_worker_had_taken_is_delivered_after_its_lease(world: World) -> None:
    with world.driven():
        world.submit("job")
        run_cycle(world.cluster)
        Outbox.objects.update(taken_at=timezone.now())
        assert deliver(world.cluster) == 0
        Outbox.objects.update(taken_at=timezone.now() - LEASE - timedelta(seconds=1))
        assert deliver(world.cluster) == 1


def test_a_second_delivery_does_nothing(world: World) -> None:
    with world.driven():
        world.submit("job")
        run_cycle(world.cluster)
        deliver(world.cluster)
        Outbox.objects.update(delivered_at=None, taken_at=None)
        deliver(world.cluster)
    assert SimulatedTask.objects.count() == 1


def test_an_engine_that_is_away_gets_the_commands_later(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    def away(engine: SimulatedEngine, orders: list[StartOrder]) -> None:
        raise Unavailable("no answer")

    with world.driven():
        world.submit("job")
        run_cycle(world.cluster)
        with monkeypatch.context() as patched:
            patched.setattr(SimulatedEngine, "start", away)
            assert deliver(world.cluster) == 0
        row = Outbox.objects.get()
        assert (row.delivered_at, row.taken_at, row.error, row.attempts) == (None, None, "no answer", 1)
        assert deliver(world.cluster) == 1


def test_what_the_engine_will_never_do_has_failed(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(engine: SimulatedEngine, orders: list[StartOrder]) -> None:
        raise Rejected({order.key: "no such image" for order in orders})

    with world.driven():
        world.submit("job")
        run_cycle(world.cluster)
        monkeypatch.setattr(delivery.engine_for(world.cluster).__class__, "start", refuse)
        deliver(world.cluster)
        observe(world.cluster)
    assert World.state("job") == State.FAILED
    assert Allocation.objects.get().outcome == "failed"
