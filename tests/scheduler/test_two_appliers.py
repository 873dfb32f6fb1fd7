"""However many workers there are, room is given out once."""

from __future__ import annotations

import threading
from collections.abc import Callable

import pytest
from django.db import connection

from scheduler import triggers
from scheduler.core.decide import decide
from scheduler.cycles import CYCLE_LOCK, is_wanted, run_wanted_cycles
from scheduler.locks import session_lock
from scheduler.plans import apply_plan
from scheduler.snapshots import load
from scheduler.triggers import quiet
from tests.scheduler.world import World
from workloads.models import Allocation

pytestmark = pytest.mark.django_db(transaction=True)


def in_threads(*work: Callable[[], None]) -> None:
    """Run all at once, each with a connection of its own; the first error is raised."""
    errors: list[BaseException] = []

    def run(one: Callable[[], None]) -> None:
        try:
            with quiet():
                one()
        except BaseException as error:  # noqa: BLE001 - told to the test's own thread
            errors.append(error)
        finally:
            connection.close()

    threads = [threading.Thread(target=run, args=(one,)) for one in work]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if errors:
        raise errors[0]


def test_two_plans_from_the_same_snapshot_start_each_workload_once() -> None:
    with quiet():
        world = World(nodes=2, gpus=4)
        for number in range(8):
            world.submit(f"job-{number}")
    both_loaded = threading.Barrier(2)
    refused: list[int] = []

    def cycle() -> None:
        loaded = load(world.cluster, world.cluster.now())
        plan = decide(loaded.snapshot)
        both_loaded.wait()
        refused.append(apply_plan(world.cluster, loaded, plan).refused)

    in_threads(cycle, cycle)
    assert Allocation.objects.count() == 8
    assert sorted(refused)[0] == 0
    assert sorted(refused)[1] > 0


def test_one_worker_cycles_at_a_time() -> None:
    with quiet():
        world = World(nodes=1, gpus=1)
        world.submit("job")
    done: list[int] = []
    with session_lock(CYCLE_LOCK, world.cluster.pk) as mine:
        assert mine
        in_threads(lambda: done.append(run_wanted_cycles(world.cluster.pk)))
    assert done == [0]
    assert is_wanted(world.cluster.pk)
    in_threads(lambda: done.append(run_wanted_cycles(world.cluster.pk)))
    assert done[1] >= 1
    assert not is_wanted(world.cluster.pk)


def test_requests_that_nobody_has_served_are_one() -> None:
    sent: list[int] = []
    with quiet():
        world = World(nodes=1, gpus=1)
        in_threads(lambda: sent.append(run_wanted_cycles(world.cluster.pk)))
        for _ in range(5):
            triggers.ask_now(world.cluster.pk, "test")
        in_threads(lambda: sent.append(run_wanted_cycles(world.cluster.pk)))
    assert sent[1] == 1
