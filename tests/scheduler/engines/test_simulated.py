"""What only the simulated engine has: hanging nodes, crashes, and knowing what comes next."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta

import pytest

from quotas.models import Cluster
from scheduler.clocks import HandClock, standing_still
from scheduler.engines.base import StartOrder, Status, StopOrder
from scheduler.engines.simulated import SimulatedEngine

START = datetime(2026, 3, 2, 7, 0, tzinfo=UTC)

pytestmark = pytest.mark.django_db


@pytest.fixture
def clock() -> Iterator[HandClock]:
    cluster = Cluster.objects.create(name="c", settings={"start_up_s": 20, "stop_s": 5, "hang": {"stuck": 1200}})
    with standing_still(cluster.pk, START) as clock:
        yield clock


@pytest.fixture
def engine(clock: HandClock) -> SimulatedEngine:
    return SimulatedEngine(Cluster.objects.get())


def test_a_replica_that_hangs_takes_its_time_in_spite_of_the_grace(engine: SimulatedEngine, clock: HandClock) -> None:
    engine.start([StartOrder(key="1", name="stuck", node="n0")])
    clock.move_to(START + timedelta(seconds=30))
    engine.stop([StopOrder("1", grace_ms=30_000)])
    clock.move_to(START + timedelta(seconds=30 + 1199))
    assert engine.observe(["1"])[0].status == Status.RUNNING
    clock.move_to(START + timedelta(seconds=30 + 1200))
    assert engine.observe(["1"])[0].status == Status.GONE


def test_a_replica_that_dies_is_gone_at_once_with_its_exit_code(engine: SimulatedEngine, clock: HandClock) -> None:
    engine.start([StartOrder(key="1", name="job", node="n0")])
    clock.move_to(START + timedelta(seconds=30))
    engine.fail("1", exit_code=137)
    seen = engine.observe(["1"])[0]
    assert (seen.status, seen.exit_code, seen.reason, seen.gone_at) == (Status.GONE, 137, "died", clock.now)


def test_what_has_ended_does_not_die_again(engine: SimulatedEngine, clock: HandClock) -> None:
    engine.start([StartOrder(key="1", name="job", node="n0", run_for_ms=1_000)])
    clock.move_to(START + timedelta(seconds=30))
    engine.fail("1")
    assert engine.observe(["1"])[0].exit_code == 0


def test_it_knows_the_next_instant(engine: SimulatedEngine, clock: HandClock) -> None:
    engine.start([StartOrder(key="1", name="job", node="n0", run_for_ms=60_000)])
    assert engine.observe(["1"])[0].next_at == START + timedelta(seconds=20)
    clock.move_to(START + timedelta(seconds=20))
    assert engine.observe(["1"])[0].next_at == START + timedelta(seconds=80)
    clock.move_to(START + timedelta(seconds=80))
    assert engine.observe(["1"])[0].next_at is None
