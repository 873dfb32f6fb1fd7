"""The safety net: clocks that go on, work that lost messages left undone, rows that nobody needs."""

from __future__ import annotations

from datetime import timedelta

import pytest
from django.utils import timezone

from quotas.actors import SYSTEM
from quotas.models import Cluster
from scheduler import triggers
from scheduler.beating import KEEP_COMMANDS, KEEP_CYCLES, LONGEST_CALM, resume_clocks, tick, trim
from scheduler.cycles import run_cycle
from scheduler.delivery import deliver
from scheduler.models import Applier, Cycle, Outbox, SimulatedTask
from scheduler.replicas import stop_lost
from tests.scheduler.world import START, World
from workloads.models import Allocation
from workloads.services import set_node_state

pytestmark = pytest.mark.django_db


class Sent:
    """Stands for the broker: keeps what would be sent."""

    def __init__(self) -> None:
        self.tasks: list[str] = []

    def send_task(self, name: str, args: list[int], **options: object) -> None:
        self.tasks.append(name.rpartition(".")[2])


@pytest.fixture
def sent(monkeypatch: pytest.MonkeyPatch) -> Sent:
    sent = Sent()
    monkeypatch.setattr(triggers, "current_app", sent)
    return sent


@pytest.fixture
def world() -> World:
    return World(nodes=1, gpus=4)


def settle(world: World) -> None:
    with world.driven():
        run_cycle(world.cluster)
        deliver(world.cluster)
    Applier.objects.update(served=100, wanted=100, settled_at=timezone.now(), next_due_at=None)


def test_a_settled_cluster_is_left_alone(world: World, sent: Sent) -> None:
    settle(world)
    tick()
    assert sent.tasks == []
    assert Cluster.objects.get().clock_seen_at > timezone.now() - timedelta(seconds=5)


def test_a_request_that_nobody_served_is_sent_again(world: World, sent: Sent) -> None:
    settle(world)
    Applier.objects.update(wanted=101)
    tick()
    assert sent.tasks == ["cycle"]


def test_time_itself_asks_for_a_cycle(world: World, sent: Sent) -> None:
    settle(world)
    Applier.objects.update(next_due_at=world.cluster.now() - timedelta(seconds=1))
    tick()
    assert sent.tasks == ["cycle"]


def test_a_cluster_is_cycled_after_a_long_calm(world: World, sent: Sent) -> None:
    settle(world)
    Applier.objects.update(settled_at=timezone.now() - LONGEST_CALM - timedelta(seconds=1))
    tick()
    assert sent.tasks == ["cycle"]


def test_open_commands_are_sent_to_a_worker(world: World, sent: Sent) -> None:
    world.submit("job")
    settle(world)
    Outbox.objects.update(delivered_at=None)
    tick()
    assert sent.tasks == ["deliver"]


def test_what_lives_is_looked_at(world: World, sent: Sent) -> None:
    world.submit("job")
    settle(world)
    tick()
    assert sent.tasks == ["observe"]


def test_what_was_lost_with_its_node_is_told_to_stop_once(world: World, sent: Sent) -> None:
    with world.driven() as driver:
        world.submit("job")
        driver.cycle()
        set_node_state(actor=SYSTEM, node=world.nodes[0], state="lost")
        assert stop_lost(world.cluster.pk, START - timedelta(hours=1)) == 1
        assert stop_lost(world.cluster.pk, START - timedelta(hours=1)) == 0
        deliver(world.cluster)
    assert SimulatedTask.objects.get().stopped_at == START


def test_a_fast_clock_goes_on_where_somebody_last_lived() -> None:
    real = timezone.now()
    cluster = Cluster.objects.create(
        name="fast",
        clock_speed=240,
        clock_at=START,
        clock_real_at=real - timedelta(hours=2),
        clock_seen_at=real - timedelta(hours=1),
    )
    assert resume_clocks() == 1
    cluster.refresh_from_db()
    assert cluster.clock_at == START + 240 * timedelta(hours=1)
    assert cluster.now(cluster.clock_real_at) == cluster.clock_at


def test_a_clock_at_real_speed_is_real_time() -> None:
    Cluster.objects.create(name="real", clock_seen_at=timezone.now() - timedelta(days=1))
    assert resume_clocks() == 0


def test_old_rows_go_and_history_stays(world: World) -> None:
    with world.driven() as driver:
        world.submit("ended", duration_s=1)
        world.submit("lives")
        driver.cycle()
        driver.advance_to(START + timedelta(hours=2))
        Outbox.objects.update(delivered_at=timezone.now() - KEEP_COMMANDS - timedelta(minutes=1))
        Cycle.objects.update(real_at=timezone.now() - KEEP_CYCLES - timedelta(minutes=1))
        trim()
    assert not Outbox.objects.exists()
    assert not Cycle.objects.exists()
    assert list(SimulatedTask.objects.values_list("name", flat=True)) == ["lives"]
    assert Allocation.objects.count() == 2
