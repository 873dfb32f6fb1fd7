"""Nodes, what they hold, and what draining one would do."""

from __future__ import annotations

from typing import ClassVar

from drf_spectacular.utils import extend_schema
from rest_framework.decorators import action
from rest_framework.request import Request
from rest_framework.response import Response

from quotas.api.bodies import ReasonBody
from quotas.models import NodeState
from scheduler.api.previews import shown_preview
from scheduler.api.shapes import PreviewRead
from scheduler.previews import preview
from workloads.api import capacity
from workloads.api.queries import AllocationQuery
from workloads.api.shapes import HeldRead
from workloads.models import Allocation
from workloads.services import set_node_state


class NodeDoor(capacity.NodeDoor):
    """Nodes as the scheduler sees them."""

    queries: ClassVar = {**capacity.NodeDoor.queries, "allocations": AllocationQuery}

    @extend_schema(responses=HeldRead(many=True))
    @action(detail=True)
    def allocations(self, request: Request, pk: int) -> Response:
        """What the node holds and held, newest first."""
        held = Allocation.objects.filter(node=self.one(pk)).select_related("pool", "node", "workload")
        return self.listed(held, HeldRead)

    @extend_schema(request=ReasonBody, responses=PreviewRead)
    @action(detail=True, methods=["post"], url_path="drain/preview")
    def preview_drain(self, request: Request, pk: int) -> Response:
        """What draining the node would move and preempt."""
        node, body = self.one(pk), self.given(ReasonBody)
        found = preview(
            cluster=node.cluster,
            change=lambda: set_node_state(actor=self.actor, node=node, state=NodeState.DRAINING, **body),
        )
        return Response(self.shown(shown_preview(self.actor, found), PreviewRead))
