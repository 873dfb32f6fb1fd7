"""Limits of time: what has run as long as it may is stopped. That is no eviction."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timedelta

from django.db import transaction
from django.db.models import DurationField, ExpressionWrapper, F

from quotas.actors import System
from quotas.models import Cluster
from workloads.models import State, Workload
from workloads.services._common import note
from workloads.states import move

CLOCK = System("time limit")
LIMITED = (State.STARTING, State.RUNNING, State.RESIZING)


def stop_overdue(now_by_cluster: Mapping[int, datetime] | None = None) -> int:
    """Stop all whose run has lasted as long as it may; how many were told.

    ``now_by_cluster``: the clusters to look at and their time; None: all at their own time.
    """
    times = now_by_cluster if now_by_cluster is not None else {c.pk: c.now() for c in Cluster.objects.all()}
    stopped = 0
    for cluster_id, now in sorted(times.items()):
        limit = ExpressionWrapper(F("max_runtime_s") * timedelta(seconds=1), output_field=DurationField())
        overdue = Workload.objects.filter(
            cluster_id=cluster_id, state__in=LIMITED, max_runtime_s__isnull=False, started_at__lte=now - limit
        )
        for pk in overdue.order_by("pk").values_list("pk", flat=True):
            stopped += _stop(pk, now)
    return stopped


@transaction.atomic
def _stop(pk: int, now: datetime) -> int:
    workload = Workload.objects.select_for_update(no_key=True, of=("self",)).get(pk=pk)
    if workload.state not in LIMITED:
        return 0  # it has ended meanwhile
    before = workload.state
    facts = {"max_runtime_s": workload.max_runtime_s}
    move(workload, State.STOPPING, by=CLOCK, at=now, verb="timed_out", facts=facts)
    note(CLOCK, workload, "timed_out", {"state": before}, {"state": State.STOPPING})
    return 1
