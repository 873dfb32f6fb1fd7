"""Amounts of quotas, several at once too, and their queues."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from datetime import timedelta
from functools import partial
from typing import Any, ClassVar

from django.db.models import QuerySet
from django.db.models.functions import Coalesce
from drf_spectacular.utils import extend_schema
from rest_framework.decorators import action
from rest_framework.request import Request
from rest_framework.response import Response

from quotas.api.bodies import EditQuotaBody, RebalanceBody, ScaleBody
from quotas.api.finding import named
from quotas.api.queries import ListQuery
from quotas.api.shapes import QuotaRead
from quotas.errors import Problems
from quotas.models import NodePool, Quota
from quotas.specs import AmountSpec, Reader, read_amounts
from scheduler.api.previews import shown_preview
from scheduler.api.shapes import PreviewRead, RebalancedRead
from scheduler.previews import Preview
from scheduler.selectors import quota_queue
from scheduler.services import (
    preview_rebalance,
    preview_scale,
    preview_settings,
    rebalance,
    scale_quota,
)
from workloads.api import capacity
from workloads.api.shapes import WorkloadRead
from workloads.api.workloads import LIVE_ROWS
from workloads.models import Workload

BEHIND_ALL = 2**31 - 1


class QueueQuery(ListQuery):
    """A queue has one order: its own."""

    orders: ClassVar = {"position": "place"}
    default_order = "position"


class QuotaDoor(capacity.QuotaDoor):
    """Quotas with their amounts and queues."""

    queries: ClassVar = {**capacity.QuotaDoor.queries, "queue": QueueQuery}
    matches: ClassVar = capacity.QuotaDoor.matches | {"scale"}

    @extend_schema(request=ScaleBody, responses=QuotaRead)
    @action(detail=True, methods=["post"])
    def scale(self, request: Request, pk: int) -> Response:
        """Set absolute amounts in the pools named; what is left out of a pool stays, null takes a bound away."""
        quota, ask = self._scaling(pk)
        return self.changed(
            lambda: self.fresh(scale_quota(actor=self.actor, quota=quota, revision=self.revision, **ask))
        )

    @extend_schema(request=ScaleBody, responses=PreviewRead)
    @action(detail=True, methods=["post"], url_path="scale/preview")
    def preview_scale(self, request: Request, pk: int) -> Response:
        """What `scale` would do: who would be preempted, who would start, who would wait."""
        quota, ask = self._scaling(pk)
        return self._previewed(preview_scale(actor=self.actor, quota=quota, **ask))

    def _scaling(self, pk: int) -> tuple[Quota, dict[str, Any]]:
        quota, body = self.one(pk), self.given(ScaleBody)
        return quota, {"amounts": amounts_of(quota, body["amounts"], "amounts"), **excess_of(body)}

    @extend_schema(request=EditQuotaBody, responses=PreviewRead)
    @action(detail=True, methods=["post"], url_path="settings/preview")
    def preview_settings(self, request: Request, pk: int) -> Response:
        """What a change of switches and policies would do."""
        quota = self.one(pk)
        return self._previewed(preview_settings(actor=self.actor, quota=quota, changes=self.body))

    @extend_schema(request=RebalanceBody, responses=RebalancedRead)
    @action(detail=False, methods=["post"])
    def rebalance(self, request: Request) -> Response:
        """Set amounts of several quotas as one change, which is checked as a whole."""
        quotas, ask = self._rebalancing()
        read = self.given(RebalanceBody).get("revisions", {})
        revisions = {quotas[name].pk: revision for name, revision in read.items() if name in quotas}

        def rebalanced() -> dict[str, list[Quota]]:
            done = rebalance(actor=self.actor, revisions=revisions, **ask)
            return {"quotas": [self.fresh(quota) for quota in done]}

        return self.changed(rebalanced, reads=RebalancedRead)

    @extend_schema(request=RebalanceBody, responses=PreviewRead)
    @action(detail=False, methods=["post"], url_path="rebalance/preview")
    def preview_rebalance(self, request: Request) -> Response:
        """What `rebalance` would do."""
        return self._previewed(preview_rebalance(actor=self.actor, **self._rebalancing()[1]))

    def _rebalancing(self) -> tuple[dict[str, Quota], dict[str, Any]]:
        """The quotas by the names that the body has for them, and what is wanted."""
        body = self.given(RebalanceBody)
        quotas = {name: named(self.rows(), number_or_name(name), field=f"changes.{name}") for name in body["changes"]}
        problems, changes = Problems(), {}
        for name, quota in quotas.items():
            ask = partial(amounts_of, quota, body["changes"][name], f"changes.{name}")
            changes[quota] = problems.take("", ask) or {}
        problems.raise_any()
        return quotas, {"changes": changes, **excess_of(body)}

    def _previewed(self, found: Preview) -> Response:
        return Response(self.shown(shown_preview(self.actor, found), PreviewRead))

    @extend_schema(responses=WorkloadRead(many=True))
    @action(detail=True)
    def queue(self, request: Request, pk: int) -> Response:
        """What waits in the quota, in the order of its queue; only what the caller may read."""
        waiting: QuerySet[Workload] = quota_queue(actor=self.actor, quota=self.one(pk))
        rows = waiting.annotate(place=Coalesce("verdict__queue_position", BEHIND_ALL))
        return self.listed(rows.select_related("cluster").prefetch_related(LIVE_ROWS), WorkloadRead)


def amounts_of(quota: Quota, given: Mapping[str, Mapping[str, Any]], field: str) -> dict[NodePool, AmountSpec]:
    """The quota's amounts in the named pools with what is given in place of what was."""
    held = {row.pool_id: row for row in quota.amounts.all()}
    pools = NodePool.objects.filter(cluster_id=quota.cluster_id)
    whole = {}
    for name, values in given.items():
        pool = named(pools, number_or_name(name), field=f"{field}.{name}")
        whole[pool] = {**dataclasses.asdict(AmountSpec.of(held.get(pool.pk))), **values}
    read = Reader({field: whole})
    amounts = read_amounts(read, pools, field)
    read.finish()
    return amounts


def number_or_name(key: str) -> int | str:
    """Keys of JSON are text; one of digits only is a number of ours."""
    return int(key) if key.isdecimal() and len(key) < 19 else key


def excess_of(body: Mapping[str, Any]) -> dict[str, Any]:
    """What the services want to know about use above the new amounts."""
    after = timedelta(seconds=body["after_s"]) if "after_s" in body else None
    return {"on_excess": body.get("on_excess", "keep"), "after": after}
