"""What the database refuses to give out twice."""

from __future__ import annotations

import threading

import pytest
from django.db import IntegrityError, connection, transaction

from quotas.models import Node
from tests.makers import Installation, at_once, install, submitted
from workloads.models import Allocation, Event, Phase, Verdict, Workload


def room(workload: Workload, node: Node, devices: list[int], index: int = 0, **fields: object) -> Allocation:
    values = {"gpu_milli": 1000, "phase": Phase.RUNNING, "ordered_at": workload.submitted_at, **fields}
    return Allocation(
        workload=workload,
        quota_id=workload.quota_id,
        pool_id=node.pool_id,
        node=node,
        run=1,
        index=index,
        devices=devices,
        **values,
    )


@pytest.fixture
def job(here: Installation) -> Workload:
    return submitted(here["developer"], here)


def test_a_gpu_is_given_out_once(here: Installation, job: Workload) -> None:
    room(job, here.nodes[0], [0, 1]).save()
    with pytest.raises(IntegrityError, match="GPU 1 of node n0 would be given out 2000"), transaction.atomic():
        room(job, here.nodes[0], [1], index=1).save()


def test_parts_of_a_gpu_add_up_to_a_whole_one_at_most(here: Installation, job: Workload) -> None:
    room(job, here.nodes[0], [0], 0, gpu_milli=600).save()
    room(job, here.nodes[0], [0], 1, gpu_milli=400).save()
    with pytest.raises(IntegrityError, match="1001 of 1000"), transaction.atomic():
        room(job, here.nodes[0], [0], 2, gpu_milli=1).save()


def test_a_gpu_must_be_there(here: Installation, job: Workload) -> None:
    with pytest.raises(IntegrityError, match="the node has 8 GPUs"), transaction.atomic():
        room(job, here.nodes[0], [8]).save()


def test_no_allocation_names_a_gpu_twice(here: Installation, job: Workload) -> None:
    with pytest.raises(IntegrityError, match="names a GPU twice"), transaction.atomic():
        room(job, here.nodes[0], [0, 0], gpu_milli=100).save()


def test_cpu_stays_within_the_node(here: Installation, job: Workload) -> None:
    room(job, here.nodes[0], [], 0, cpu_milli=192_000).save()
    with pytest.raises(IntegrityError, match="CPU 192001 of 192000"), transaction.atomic():
        room(job, here.nodes[0], [], 1, cpu_milli=1).save()


def test_gpu_memory_stays_within_the_device(here: Installation, job: Workload) -> None:
    Node.objects.filter(pk=here.nodes[0].pk).update(gpu_memory_mib=80)
    room(job, here.nodes[0], [0], 0, gpu_milli=1, gpu_memory_mib=80).save()
    with pytest.raises(IntegrityError, match="81 of 80 MiB"), transaction.atomic():
        room(job, here.nodes[0], [0], 1, gpu_milli=1, gpu_memory_mib=1).save()


def test_what_has_ended_takes_no_room(here: Installation, job: Workload) -> None:
    first = room(job, here.nodes[0], [0])
    first.save()
    Allocation.objects.filter(pk=first.pk).update(phase=Phase.ENDED, ended_at=job.submitted_at)
    room(job, here.nodes[0], [0]).save()
    with pytest.raises(IntegrityError), transaction.atomic():
        Allocation.objects.filter(pk=first.pk).update(phase=Phase.LEAVING, ended_at=None)


def test_a_node_never_shrinks_below_what_it_holds(here: Installation, job: Workload) -> None:
    room(job, here.nodes[0], [7], cpu_milli=2).save()
    with pytest.raises(IntegrityError, match="the node has 7 GPUs"), transaction.atomic():
        Node.objects.filter(pk=here.nodes[0].pk).update(gpus=7)
    with pytest.raises(IntegrityError, match="CPU 2 of 1"), transaction.atomic():
        Node.objects.filter(pk=here.nodes[0].pk).update(cpu_milli=1)
    Node.objects.filter(pk=here.nodes[1].pk).update(gpus=1)


def test_events_are_never_changed_and_a_workload_waits_for_one_reason(here: Installation, job: Workload) -> None:
    with pytest.raises(IntegrityError, match="never changed"), transaction.atomic():
        Event.objects.filter(workload=job).update(verb="other")
    facts = {"code": "nodes.full", "since": job.submitted_at, "cycle": 1}
    Verdict.objects.create(workload=job, **facts)
    with pytest.raises(IntegrityError), transaction.atomic():
        Verdict(workload=job, **facts).save(force_insert=True)


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("isolation", ["READ COMMITTED", "REPEATABLE READ"])
def test_two_who_give_out_the_same_gpu_at_once_cannot_both(isolation: str) -> None:
    here = install()
    job = submitted(here["developer"], here)
    meet = threading.Barrier(2)

    def give(index: int) -> None:
        with transaction.atomic():
            with connection.cursor() as cursor:
                cursor.execute(f"SET TRANSACTION ISOLATION LEVEL {isolation}")
                cursor.execute("SELECT count(*) FROM workloads_allocation")
            meet.wait(timeout=10)
            room(job, here.nodes[0], [3], index).save()

    results = at_once(lambda: give(0), lambda: give(1))
    assert sum(isinstance(result, Exception) for result in results) == 1
    assert Allocation.objects.count() == 1


@pytest.mark.django_db(transaction=True)
def test_a_node_is_not_shrunk_while_room_on_it_is_given_out() -> None:
    here = install()
    job = submitted(here["developer"], here)
    meet = threading.Barrier(2)

    def give() -> None:
        with transaction.atomic():
            room(job, here.nodes[0], [7]).save()
            meet.wait(timeout=10)

    def shrink() -> None:
        meet.wait(timeout=10)
        Node.objects.filter(pk=here.nodes[0].pk).update(gpus=4)

    results = at_once(give, shrink)
    assert results[0] is None
    assert isinstance(results[1], IntegrityError)
