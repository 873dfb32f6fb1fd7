"""Limits of time: what has run, or waited, as long as it may is stopped. That is no eviction."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timedelta

from django.db import transaction
from django.db.models import DurationField, ExpressionWrapper, F
from django.db.models.expressions import Combinable

from quotas.actors import System
from quotas.models import Cluster
from workloads.models import State, Workload
from workloads.services._common import note
from workloads.states import move

CLOCK = System("time limit")
LIMITED = (State.STARTING, State.RUNNING, State.RESIZING)


def stop_overdue(now_by_cluster: Mapping[int, datetime] | None = None) -> int:
    """Stop all that has run, or waited without being held, as long as it may; how many were told.

    ``now_by_cluster``: the clusters to look at and their time; None: all at their own time.
    """
    times = now_by_cluster if now_by_cluster is not None else {c.pk: c.now() for c in Cluster.objects.all()}
    stopped = 0
    for cluster_id, now in sorted(times.items()):
        here = Workload.objects.filter(cluster_id=cluster_id)
        ran = here.filter(
            state__in=LIMITED, max_runtime_s__isnull=False, started_at__lte=now - _seconds("max_runtime_s")
        )
        waited = here.filter(
            state=State.QUEUED, held=False, max_wait_s__isnull=False, state_at__lte=now - _seconds("max_wait_s")
        )
        for overdue, stop in ((ran, _stop_running), (waited, _stop_waiting)):
            for pk in overdue.order_by("pk").values_list("pk", flat=True):
                stopped += stop(pk, now)
    return stopped


def _seconds(column: str) -> Combinable:
    return ExpressionWrapper(F(column) * timedelta(seconds=1), output_field=DurationField())


@transaction.atomic
def _stop_running(pk: int, now: datetime) -> int:
    workload = _lock(pk)
    if workload.state not in LIMITED:
        return 0  # it has ended meanwhile
    return _end(workload, State.STOPPING, "timed_out", {"max_runtime_s": workload.max_runtime_s}, now)


@transaction.atomic
def _stop_waiting(pk: int, now: datetime) -> int:
    workload = _lock(pk)
    if workload.state != State.QUEUED:
        return 0  # it has started meanwhile
    return _end(workload, State.STOPPED, "waited_too_long", {"max_wait_s": workload.max_wait_s}, now)


def _lock(pk: int) -> Workload:
    return Workload.objects.select_for_update(no_key=True, of=("self",)).get(pk=pk)


def _end(workload: Workload, to: State, verb: str, facts: Mapping[str, object], now: datetime) -> int:
    before = workload.state
    move(workload, to, by=CLOCK, at=now, verb=verb, facts=facts)
    note(CLOCK, workload, verb, {"state": before}, {"state": to})
    return 1
