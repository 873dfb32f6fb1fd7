"""What may be done to quotas, workspaces and nodes only by those who see the work on them."""

from __future__ import annotations

from typing import ClassVar

from django.shortcuts import get_object_or_404
from drf_spectacular.utils import extend_schema
from rest_framework import serializers
from rest_framework.decorators import action
from rest_framework.request import Request
from rest_framework.response import Response

from quotas.api import clusters, governing, quotas
from quotas.api.bodies import ReasonBody
from quotas.api.queries import ChangeQuery
from quotas.api.shapes import NodeRead
from quotas.models import NodeState
from quotas.permissions import visible_quotas
from workloads.services import delete_quota, delete_workspace, set_node_state, unbind_quota


class QuotaDoor(quotas.QuotaDoor):
    """Quotas, and their end."""

    @extend_schema(request=None, responses={204: None})
    def destroy(self, request: Request, pk: int) -> Response:
        """Delete a quota without children, workspaces and live work; the refusal lists every blocker."""
        quota = self.one(pk)
        return self.changed(lambda: delete_quota(actor=self.actor, quota=quota))


class UnbindQuery(ChangeQuery):
    """What happens to live work in the quota."""

    drain = serializers.BooleanField(default=False, help_text="Stop the live work there; without it, it is refused.")


class WorkspaceDoor(governing.WorkspaceDoor):
    """Workspaces, their end, and the end of bindings."""

    queries: ClassVar = {**governing.WorkspaceDoor.queries, "unbind": UnbindQuery}

    @extend_schema(request=None, responses={204: None})
    def destroy(self, request: Request, pk: int) -> Response:
        """Delete a workspace without live work; the refusal lists every blocker."""
        workspace = self.one(pk)
        return self.changed(lambda: delete_workspace(actor=self.actor, workspace=workspace))

    @extend_schema(request=None, responses={204: None})
    @action(detail=True, methods=["delete"], url_path="quotas/<int:quota>")
    def unbind(self, request: Request, pk: int, quota: int) -> Response:
        """Take a quota from the workspace."""
        workspace = self.one(pk)
        bound = get_object_or_404(visible_quotas(self.actor), pk=quota)
        drain = self.query["drain"]
        return self.changed(lambda: unbind_quota(actor=self.actor, workspace=workspace, quota=bound, drain=drain))


class NodeDoor(clusters.NodeDoor):
    """Nodes, and whether they take work."""

    def into(self, state: NodeState, pk: int) -> Response:
        """The node in the state, for the reason that the body gives."""
        node, body = self.one(pk), self.given(ReasonBody)
        return self.changed(
            lambda: set_node_state(actor=self.actor, node=node, state=state, reason=body.get("reason", ""))
        )

    @extend_schema(request=ReasonBody, responses=NodeRead)
    @action(detail=True, methods=["post"])
    def cordon(self, request: Request, pk: int) -> Response:
        """Let nothing new start on the node; what runs goes on."""
        return self.into(NodeState.CORDONED, pk)

    @extend_schema(request=ReasonBody, responses=NodeRead)
    @action(detail=True, methods=["post"])
    def uncordon(self, request: Request, pk: int) -> Response:
        """Let the node take work again."""
        return self.into(NodeState.READY, pk)

    @extend_schema(request=ReasonBody, responses=NodeRead)
    @action(detail=True, methods=["post"])
    def drain(self, request: Request, pk: int) -> Response:
        """Let nothing new start on the node, and move or preempt what may be."""
        return self.into(NodeState.DRAINING, pk)

    @extend_schema(request=ReasonBody, responses=NodeRead)
    @action(detail=True, methods=["post"])
    def lose(self, request: Request, pk: int) -> Response:
        """Give the node up: what it held counts as gone."""
        return self.into(NodeState.LOST, pk)
