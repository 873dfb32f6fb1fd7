"""Celery: one call to a function each. Every task may run twice, also at the same time."""

from __future__ import annotations

from celery import shared_task

from quotas.models import Cluster
from scheduler import beating, cycles, delivery, past


@shared_task
def cycle(cluster_id: int) -> None:
    """Cycles of a cluster until none is wanted; alone on the queue `scheduler`."""
    cycles.run_wanted_cycles(cluster_id)


@shared_task
def deliver(cluster_id: int) -> None:
    """Open engine commands of a cluster, then what they have done at once."""
    cluster = Cluster.objects.get(pk=cluster_id)
    delivery.deliver(cluster)
    beating.watch(cluster)


@shared_task
def observe(cluster_id: int) -> None:
    """What replicas of a cluster have done, now and within the next second."""
    beating.watch(Cluster.objects.get(pk=cluster_id))


@shared_task
def tick() -> None:
    """What is due by the clocks, and what lost messages left undone."""
    beating.tick()


@shared_task
def live_through_past(cluster_id: int) -> None:
    """The past of a simulated cluster, up to its end."""
    past.live_through(cluster_id)


@shared_task
def trim() -> None:
    """Old cycles, delivered commands and simulated replicas that are long gone."""
    beating.trim()
