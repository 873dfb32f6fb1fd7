"""What every engine must do, whichever runs the work. Another engine is added to `ENGINES`."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta

import pytest

from quotas.models import Cluster
from scheduler.clocks import HandClock, standing_still
from scheduler.engines.base import Engine, StartOrder, Status, StopOrder
from scheduler.engines.simulated import SimulatedEngine

START = datetime(2026, 3, 2, 7, 0, tzinfo=UTC)
SETTINGS = {"start_up_s": 20, "stop_s": 5}
ENGINES: dict[str, Callable[[Cluster], Engine]] = {"simulated": SimulatedEngine}

pytestmark = pytest.mark.django_db


class Bench:
    """An engine and the clock it lives by."""

    def __init__(self, engine: Engine, clock: HandClock) -> None:
        self.engine = engine
        self.clock = clock

    def wait(self, seconds: float) -> None:
        self.clock.move_to(self.clock.now + timedelta(seconds=seconds))

    def status(self, key: str) -> str | None:
        found = self.engine.observe([key])
        return found[0].status if found else None


@pytest.fixture(params=sorted(ENGINES))
def bench(request: pytest.FixtureRequest) -> Iterator[Bench]:
    cluster = Cluster.objects.create(name="c", settings=SETTINGS)
    with standing_still(cluster.pk, START) as clock:
        yield Bench(ENGINES[request.param](cluster), clock)


def order(key: str, run_for_s: int | None = None) -> StartOrder:
    return StartOrder(key=key, name=f"job-{key}", node="n0", run_for_ms=None if run_for_s is None else run_for_s * 1000)


def test_an_unknown_key_is_left_out_and_has_no_logs(bench: Bench) -> None:
    assert bench.engine.observe(["7"]) == []
    assert bench.engine.logs("7") == []


def test_a_started_replica_runs_after_its_start_up(bench: Bench) -> None:
    bench.engine.start([order("1")])
    assert bench.status("1") == Status.STARTING
    bench.wait(20)
    (seen,) = bench.engine.observe(["1"])
    assert (seen.status, seen.running_at, seen.gone_at) == (Status.RUNNING, START + timedelta(seconds=20), None)


def test_a_replica_ends_by_itself_when_its_work_is_done(bench: Bench) -> None:
    bench.engine.start([order("1", run_for_s=60)])
    bench.wait(79)
    assert bench.status("1") == Status.RUNNING
    bench.wait(10)
    (seen,) = bench.engine.observe(["1"])
    assert (seen.status, seen.exit_code, seen.gone_at) == (Status.GONE, 0, START + timedelta(seconds=80))


def test_a_second_start_of_the_same_key_does_nothing(bench: Bench) -> None:
    bench.engine.start([order("1")])
    bench.wait(30)
    bench.engine.start([order("1")])
    (seen,) = bench.engine.observe(["1"])
    assert (seen.status, seen.running_at) == (Status.RUNNING, START + timedelta(seconds=20))


def test_a_stopped_replica_is_gone_after_its_stop_and_has_no_exit_code(bench: Bench) -> None:
    bench.engine.start([order("1")])
    bench.wait(30)
    bench.engine.stop([StopOrder("1", grace_ms=30_000)])
    assert bench.status("1") == Status.RUNNING
    bench.wait(5)
    (seen,) = bench.engine.observe(["1"])
    assert (seen.status, seen.exit_code, seen.gone_at) == (Status.GONE, None, START + timedelta(seconds=35))


def test_stopping_never_takes_longer_than_the_grace(bench: Bench) -> None:
    bench.engine.start([order("1")])
    bench.wait(30)
    bench.engine.stop([StopOrder("1", grace_ms=2_000)])
    bench.wait(2)
    assert bench.status("1") == Status.GONE


def test_the_first_stop_counts(bench: Bench) -> None:
    bench.engine.start([order("1")])
    bench.wait(30)
    bench.engine.stop([StopOrder("1", grace_ms=30_000)])
    bench.wait(4)
    bench.engine.stop([StopOrder("1", grace_ms=30_000)])
    bench.wait(1)
    assert bench.status("1") == Status.GONE


def test_what_was_stopped_before_its_start_arrived_never_starts(bench: Bench) -> None:
    bench.engine.stop([StopOrder("1", grace_ms=30_000)])
    bench.engine.start([order("1")])
    bench.wait(60)
    assert bench.status("1") == Status.GONE


def test_work_that_is_done_before_the_stop_is_over_ended_well(bench: Bench) -> None:
    bench.engine.start([order("1", run_for_s=10)])
    bench.wait(28)
    bench.engine.stop([StopOrder("1", grace_ms=30_000)])
    bench.wait(10)
    (seen,) = bench.engine.observe(["1"])
    assert (seen.exit_code, seen.gone_at) == (0, START + timedelta(seconds=30))


def test_many_are_observed_in_the_order_of_the_question(bench: Bench) -> None:
    bench.engine.start([order(str(number)) for number in range(5)])
    assert [seen.key for seen in bench.engine.observe(["3", "9", "0", "4"])] == ["3", "0", "4"]


def test_logs_hold_the_last_lines(bench: Bench) -> None:
    bench.engine.start([order("1")])
    bench.wait(30)
    assert bench.engine.logs("1")
    assert len(bench.engine.logs("1", lines=1)) == 1
