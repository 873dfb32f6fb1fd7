"""Workloads, and what a submission would come to."""

from __future__ import annotations

from typing import ClassVar

from drf_spectacular.utils import extend_schema
from rest_framework import serializers
from rest_framework.decorators import action
from rest_framework.request import Request
from rest_framework.response import Response

from quotas.api.queries import IdParameter, Query
from quotas.api.serializers import Read
from quotas.errors import NotFound
from quotas.words import sentence
from scheduler.api.previews import shown_preview
from scheduler.api.shapes import SubmissionRead
from scheduler.previews import preview
from scheduler.selectors import replica_logs
from workloads.api import workloads
from workloads.api.bodies import WorkloadBody
from workloads.models import Allocation
from workloads.services import submit_workload
from workloads.specs import WorkloadSpec

LINES_MOST = 2000


class LogsQuery(Query):
    """Whose lines, and how many."""

    replica = IdParameter(help_text="Number of one of its allocations; default: the newest.")
    lines = serializers.IntegerField(min_value=1, max_value=LINES_MOST, default=200)


class LogsRead(Read):
    """The last lines of one replica."""

    replica = serializers.IntegerField(allow_null=True, help_text="null: it never started.")
    lines = serializers.ListField(child=serializers.CharField())


class WorkloadDoor(workloads.WorkloadDoor):
    """Workloads, their future, and what they wrote."""

    queries: ClassVar = {**workloads.WorkloadDoor.queries, "logs": LogsQuery}

    @extend_schema(responses=LogsRead)
    @action(detail=True)
    def logs(self, request: Request, pk: int) -> Response:
        """The last lines that a replica wrote."""
        replicas = Allocation.objects.filter(workload=self.one(pk)).select_related("workload__cluster")
        wanted = self.query.get("replica")
        if wanted is not None:
            replicas = replicas.filter(pk=wanted)
        found = replicas.order_by("-id").first()
        if found is None and wanted is not None:
            raise NotFound("replica")
        lines = replica_logs(actor=self.actor, allocation=found, lines=self.query["lines"]) if found else []
        return Response(self.shown({"replica": found.pk if found else None, "lines": lines}, LogsRead))

    @extend_schema(request=WorkloadBody, responses=SubmissionRead)
    @action(detail=False, methods=["post"])
    def preview(self, request: Request) -> Response:
        """Try a submission on the cluster as it is: would it start, who would leave for it, why would it wait?"""
        spec = WorkloadSpec.from_mapping(self.body, actor=self.actor)
        new: list[int] = []

        def submitted() -> None:
            new.append(submit_workload(actor=self.actor, spec=spec).pk)

        found = preview(cluster=spec.quota.cluster, change=submitted)
        code = next((one.code for one in found.waits if one.id in new), "")
        return Response(
            self.shown(
                {
                    **shown_preview(self.actor, found, new),
                    "fits_now": any(one.id in new for one in found.starts),
                    "code": code,
                    "message": sentence(code) if code else "",
                },
                SubmissionRead,
            )
        )
