"""Workloads, and what a submission would come to."""

from __future__ import annotations

from drf_spectacular.utils import extend_schema
from rest_framework.decorators import action
from rest_framework.request import Request
from rest_framework.response import Response

from quotas.words import sentence
from scheduler.api.previews import shown_preview
from scheduler.api.shapes import SubmissionRead
from scheduler.previews import preview
from workloads.api import workloads
from workloads.api.bodies import WorkloadBody
from workloads.services import submit_workload
from workloads.specs import WorkloadSpec


class WorkloadDoor(workloads.WorkloadDoor):
    """Workloads, and their future."""

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
