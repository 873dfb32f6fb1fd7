"""What the scheduler knows: use over time, queues with reasons, evictions, how the clockwork is doing.

Amounts are thousandths of a GPU. Each function starts from what the actor may see.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta

import numpy as np
import numpy.typing as npt
from django.db.models import F, Func, IntegerField, Min, Q, QuerySet
from django.db.models.functions import Coalesce
from django.utils import timezone

from quotas.actors import Actor
from quotas.errors import refuse
from quotas.models import Cluster, NodePool, Quota
from quotas.permissions import require, visible_quotas, workload_scope
from scheduler.engines.base import Unavailable
from scheduler.engines.registry import engine_for
from scheduler.models import Applier, Cycle, Outbox, Reservation
from workloads.models import Allocation, Eviction, State, Workload

Milli = npt.NDArray[np.int64]


# --- use over time ------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, eq=False)
class UsageSeries:
    """GPUs held at each of the times, by quota: at `times[i]` quota `q` and nobody below it held `held[q][i]`."""

    times: tuple[datetime, ...]
    held: Mapping[int, Milli]


def usage_series(
    *,
    actor: Actor,
    cluster: Cluster,
    since: datetime,
    until: datetime,
    samples: int = 288,
    pool: NodePool | None = None,
) -> UsageSeries:
    """What each visible quota's own work held between two cluster times, from allocation rows alone. Two queries."""
    quotas = list(visible_quotas(actor).filter(cluster=cluster).order_by("id").values_list("id", flat=True))
    step = (until - since) / samples
    times = tuple(since + step * number for number in range(samples + 1))
    found = Allocation.objects.filter(
        Q(ended_at__isnull=True) | Q(ended_at__gt=since), quota_id__in=quotas, ordered_at__lt=until
    )
    if pool is not None:
        found = found.filter(pool=pool)
    devices = Coalesce(Func(F("devices"), function="cardinality", output_field=IntegerField()), 0)
    rows = found.values_list("quota_id", devices * F("gpu_milli"), "ordered_at", "ended_at")
    return UsageSeries(times, _held(quotas, times, list(rows)))


def _held(
    quotas: list[int], times: tuple[datetime, ...], rows: list[tuple[int, int, datetime, datetime | None]]
) -> dict[int, Milli]:
    """Each allocation counts from its order until it was gone: two changes on a line, summed up along it."""
    marks = np.array([at.timestamp() for at in times])
    row_of = {quota: number for number, quota in enumerate(quotas)}
    changes = np.zeros((len(quotas), len(times) + 1), dtype=np.int64)
    if rows:
        owner = np.array([row_of[quota] for quota, _, _, _ in rows])
        amount = np.array([milli for _, milli, _, _ in rows], dtype=np.int64)
        begin = np.array([at.timestamp() for _, _, at, _ in rows])
        end = np.array([np.inf if at is None else at.timestamp() for _, _, _, at in rows])
        np.add.at(changes, (owner, np.searchsorted(marks, begin)), amount)
        np.add.at(changes, (owner, np.searchsorted(marks, end)), -amount)
    sums = changes.cumsum(axis=1)[:, :-1]
    return {quota: sums[number] for quota, number in row_of.items()}


def busy_share(*, cluster: Cluster, since: datetime, until: datetime, capacity_milli: int) -> float:
    """Allocated GPU time over capacity between two cluster times; 0 for an empty interval or no capacity."""
    found = Allocation.objects.filter(
        Q(ended_at__isnull=True) | Q(ended_at__gt=since), workload__cluster=cluster, ordered_at__lt=until
    )
    held = 0.0
    for devices, milli, begin, end in found.values_list("devices", "gpu_milli", "ordered_at", "ended_at"):
        held += len(devices) * milli * (min(end or until, until) - max(begin, since)).total_seconds()
    whole = capacity_milli * (until - since).total_seconds()
    return held / whole if whole > 0 else 0.0


# --- queues and evictions -----------------------------------------------------------------------------------------


def quota_queue(*, actor: Actor, quota: Quota) -> QuerySet[Workload]:
    """What waits in a quota (services that want more included), in the order of its queue, each with its verdict."""
    require(actor, "quota.read", quota)
    return (
        Workload.objects.filter(workload_scope(actor), quota=quota, verdict__isnull=False, deleted_at__isnull=True)
        .select_related("verdict", "workspace", "owner", "quota")
        .order_by(F("verdict__queue_position").asc(nulls_last=True), "-priority", "position", "id")
    )


def list_evictions(*, actor: Actor, cluster: Cluster | None = None) -> QuerySet[Eviction]:
    """Who was told to leave, to shrink or to move, newest first; a claimant that the actor may not see is not told."""
    found = Eviction.objects.filter(workload_scope(actor, "workload__")).select_related("workload", "claimant", "quota")
    if cluster is not None:
        found = found.filter(workload__cluster=cluster)
    return found.order_by("-id")


def open_reservations(*, actor: Actor, cluster: Cluster) -> QuerySet[Reservation]:
    """Room that is kept for workloads which the actor may see."""
    found = Reservation.objects.filter(workload_scope(actor, "claimant__"), cluster=cluster)
    return found.select_related("claimant").order_by("id")


def replica_logs(*, actor: Actor, allocation: Allocation, lines: int = 200) -> list[str]:
    """The last lines that a replica wrote; refused as ``engine.unavailable`` when its engine does not answer."""
    workload = allocation.workload
    require(actor, "workload.read_logs", workload)
    try:
        return engine_for(workload.cluster).logs(str(allocation.pk), lines=lines)
    except Unavailable as error:
        raise refuse("", "engine.unavailable", cluster=workload.cluster.name) from error


# --- the clockwork ------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class ClusterStatus:
    """How far the clockwork is behind, in seconds of real time; None: it has not happened yet."""

    now: datetime
    clock_speed: float
    cycle_age_s: float | None
    observed_age_s: float | None
    seen_age_s: float
    unserved_requests: int
    commands_open: int
    oldest_command_s: float | None
    last_cycle: Cycle | None

    @property
    def is_behind(self) -> bool:
        """Nobody has looked at the engine for a while, or commands stay undelivered."""
        late = 15.0
        ages = (self.observed_age_s, self.oldest_command_s)
        return self.seen_age_s > late or any(age is not None and age > late for age in ages)


def cluster_status(*, actor: Actor, cluster: Cluster) -> ClusterStatus:
    """When the cluster was last cycled and looked at, and what waits to be delivered. Three queries."""
    require(actor, "cluster.read", cluster)
    real = timezone.now()
    applier = Applier.objects.filter(cluster=cluster).first() or Applier(cluster=cluster, wanted=0)
    undelivered = Outbox.objects.filter(cluster=cluster, delivered_at__isnull=True)
    oldest = undelivered.aggregate(at=Min("created_at"))["at"]
    return ClusterStatus(
        now=cluster.now(),
        clock_speed=cluster.clock_speed,
        cycle_age_s=_age_s(real, applier.settled_at),
        observed_age_s=_age_s(real, applier.observed_at),
        seen_age_s=(real - cluster.clock_seen_at) / timedelta(seconds=1),
        unserved_requests=max(0, applier.wanted - applier.served),
        commands_open=undelivered.count(),
        oldest_command_s=_age_s(real, oldest),
        last_cycle=Cycle.objects.filter(cluster=cluster).order_by("-id").first(),
    )


def _age_s(now: datetime, then: datetime | None) -> float | None:
    return None if then is None else (now - then) / timedelta(seconds=1)


def waiting_count(*, actor: Actor, cluster: Cluster) -> int:
    """Workloads in the queue, held ones and the head included."""
    return Workload.objects.filter(
        workload_scope(actor), cluster=cluster, state=State.QUEUED, deleted_at__isnull=True
    ).count()
