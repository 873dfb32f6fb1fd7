"""What the scheduler knows: evictions, use over time, the state of the clockwork."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import datetime, timedelta
from functools import cached_property
from typing import Any, ClassVar

from django.db.models import QuerySet
from django.shortcuts import get_object_or_404
from drf_spectacular.utils import extend_schema
from rest_framework import serializers
from rest_framework.decorators import action
from rest_framework.request import Request
from rest_framework.response import Response

from quotas.api import clusters
from quotas.api.finding import named
from quotas.api.queries import IdParameter, Query
from quotas.api.views import Door
from quotas.errors import refuse
from quotas.models import Quota
from quotas.permissions import allowed, grants_of, visible_clusters, visible_pools, visible_quotas
from quotas.specs import EARLIEST
from scheduler.api.shapes import StatusRead, UsageRead
from scheduler.selectors import cluster_status, list_evictions, usage_series
from workloads.api.queries import EvictionQuery
from workloads.api.shapes import EvictionRead
from workloads.models import Eviction, Workload
from workloads.seeing import facts_for

SAMPLES_MOST = 2000
USUAL_PERIOD = timedelta(hours=24)
LONGEST_PERIOD = timedelta(days=400)


class ClusterDoor(clusters.ClusterDoor):
    """Clusters, and how their clockwork does."""

    @extend_schema(responses=StatusRead)
    @action(detail=True)
    def status(self, request: Request, pk: int) -> Response:
        """When the cluster was last cycled and looked at, and what waits to be delivered."""
        cluster = get_object_or_404(self.rows(), pk=pk)
        return self.answer(cluster_status(actor=self.actor, cluster=cluster), reads=StatusRead)


class EvictionDoor(Door):
    """Workloads that were told to leave, to shrink or to move."""

    queryset = Eviction.objects.none()
    reads = EvictionRead
    list_query = EvictionQuery

    def rows(self) -> QuerySet[Eviction]:
        return list_evictions(actor=self.actor)

    @cached_property
    def seen(self) -> Callable[[Mapping[str, Any]], dict[str, Any]]:
        """Takes facts to what the caller may read of them."""
        return facts_for(self.actor)

    def sees(self, workload: Workload) -> bool:
        """Whether the caller may read the workload."""
        return allowed(self.actor, "workload.read", workload, grants=self._grants)

    @cached_property
    def _grants(self) -> Any:
        return grants_of(self.actor)

    @extend_schema(responses=EvictionRead)
    def list(self, request: Request) -> Response:
        """Evictions, shrinks and moves of work that the caller sees, newest first."""
        return self.listed(self.rows())

    @extend_schema(responses=EvictionRead)
    def retrieve(self, request: Request, pk: int) -> Response:
        """One of them."""
        return self.answer(get_object_or_404(self.rows(), pk=pk))


class UsageQuery(Query):
    """Which stretch of time, in how many samples."""

    cluster = IdParameter(help_text="Default: the only one that you see.")
    pool = IdParameter()
    since = serializers.DateTimeField(required=False, help_text="Cluster time; default: 24 hours before `until`.")
    until = serializers.DateTimeField(required=False, help_text="Cluster time; default: now.")
    samples = serializers.IntegerField(min_value=1, max_value=SAMPLES_MOST, default=288)

    def validate_until(self, until: datetime) -> datetime:
        if until < EARLIEST:
            raise serializers.ValidationError(f"Not before {EARLIEST.isoformat()}.", code="min_value")
        return until


class UsageDoor(Door):
    """Use over time."""

    queryset = Quota.objects.none()
    reads = UsageRead
    queries: ClassVar = {"retrieve": UsageQuery}

    @extend_schema(responses=UsageRead)
    def retrieve(self, request: Request) -> Response:
        """GPUs held by the work of each quota that the caller sees, at even steps."""
        ask = self.query
        cluster = named(visible_clusters(self.actor), ask.get("cluster") or self._only_cluster(), field="cluster")
        pool = named(visible_pools(self.actor), ask["pool"], field="pool") if "pool" in ask else None
        until = ask.get("until") or cluster.now()
        since = ask.get("since") or until - USUAL_PERIOD
        if not timedelta(0) < until - since <= LONGEST_PERIOD:
            raise refuse(
                "since",
                "invalid",
                reason="range",
                low=(until - LONGEST_PERIOD).isoformat(),
                high=until.isoformat(),
                given=since.isoformat(),
            )
        series = usage_series(
            actor=self.actor, cluster=cluster, since=since, until=until, samples=ask["samples"], pool=pool
        )
        quotas = visible_quotas(self.actor).in_bulk(list(series.held))
        held = [{"quota": quotas[pk], "held_gpu_milli": values.tolist()} for pk, values in series.held.items()]
        return Response(self.shown({"cluster": cluster, "times": series.times, "quotas": held}))

    def _only_cluster(self) -> int | None:
        """The number of the one cluster that the caller sees; None where there are none or several."""
        found = list(visible_clusters(self.actor).values_list("pk", flat=True)[:2])
        return found[0] if len(found) == 1 else None
