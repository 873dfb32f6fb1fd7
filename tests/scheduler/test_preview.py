"""A change looked at first says what doing it would do, and writes nothing."""

from __future__ import annotations

import pytest

from quotas.actors import SYSTEM
from quotas.errors import Refused
from quotas.models import AuditEvent, NodePool, QuotaAmount
from quotas.specs import AmountSpec
from scheduler.services import preview_rebalance, preview_scale
from tests.scheduler.world import World
from workloads.models import Allocation

pytestmark = pytest.mark.django_db


@pytest.fixture
def world() -> World:
    world = World(nodes=1, gpus=8)
    a = world.add_quota("a", gpus=4, parent=world.quota)
    b = world.add_quota("b", gpus=4, parent=world.quota)
    with world.driven() as driver:
        for number in range(2):
            world.submit(f"a-{number}", quota=a, gpus=2)
            world.submit(f"b-{number}", quota=b, gpus=2)
        world.submit("b-more", quota=b, gpus=2, idle="allow")
        driver.cycle()
    return world


def amounts(world: World, gpus: int) -> dict[NodePool, AmountSpec]:
    return {world.pool: AmountSpec(guaranteed_gpu_milli=gpus * 1000)}


def test_a_cut_that_preempts_names_who_goes_and_who_comes(world: World) -> None:
    a = world.cluster.quotas.get(name="a")
    with world.driven():
        found = preview_scale(actor=SYSTEM, quota=a, amounts=amounts(world, 2), on_excess="preempt")
    assert [one.name for one in found.preempted] == ["a-1"]
    assert [one.name for one in found.starts] == ["b-more"]
    assert [(one.name, one.code) for one in found.waits] == [("a-1", "quota.entitlement")]
    books = {book.quota_id: (book.guaranteed, book.used) for book in found.before}
    assert books[a.pk] == (4000, 4000)
    assert {book.quota_id: (book.guaranteed, book.used) for book in found.after}[a.pk] == (2000, 2000)


def test_looking_writes_nothing(world: World) -> None:
    a, b = (world.cluster.quotas.get(name=name) for name in "ab")
    audited, promised = AuditEvent.objects.count(), list(QuotaAmount.objects.order_by("id").values_list())
    with world.driven():
        preview_rebalance(actor=SYSTEM, changes={a: amounts(world, 2), b: amounts(world, 6)})
    assert AuditEvent.objects.count() == audited
    assert list(QuotaAmount.objects.order_by("id").values_list()) == promised
    assert Allocation.objects.count() == 4


def test_what_the_service_refuses_the_preview_refuses(world: World) -> None:
    a = world.cluster.quotas.get(name="a")
    with world.driven(), pytest.raises(Refused) as caught:
        preview_scale(actor=SYSTEM, quota=a, amounts=amounts(world, 5))
    assert caught.value.codes == ["quota.exceeds_parent"]
