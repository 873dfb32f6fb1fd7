"""The audit: filtered, paged, and as JSON lines."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Iterator
from itertools import islice
from typing import Any, ClassVar

from asgiref.sync import sync_to_async
from django.core.handlers.asgi import ASGIRequest
from django.db.models import QuerySet
from django.http import StreamingHttpResponse
from django.shortcuts import get_object_or_404
from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import extend_schema
from rest_framework import serializers
from rest_framework.decorators import action
from rest_framework.renderers import BaseRenderer, JSONRenderer
from rest_framework.request import Request
from rest_framework.response import Response

from quotas.api.queries import IdParameter, ListQuery, Query
from quotas.api.renderers import LinesRenderer
from quotas.api.shapes import AuditRead
from quotas.api.views import Door
from quotas.models import AuditEvent
from quotas.permissions import visible_audit

CHUNK = 500


class AuditFilters(Query):
    """What entries are wanted."""

    actor = serializers.CharField(required=False, max_length=150)
    verb = serializers.CharField(required=False, max_length=60)
    result = serializers.ChoiceField(["done", "refused"], required=False)
    object_type = serializers.CharField(required=False, max_length=40)
    object_id = IdParameter()
    workspace = IdParameter()
    since = serializers.DateTimeField(required=False)
    until = serializers.DateTimeField(required=False)


LOOKUPS = {
    "actor": "actor_name",
    "verb": "verb",
    "result": "result",
    "object_type": "object_type",
    "object_id": "object_id",
    "workspace": "workspace_id",
    "since": "at__gte",
    "until": "at__lt",
}


class AuditQuery(ListQuery, AuditFilters):
    """A page of the wanted entries."""

    lookups = LOOKUPS
    default_order = "-id"


class AuditDoor(Door):
    """Who did what: all for the platform's people, a workspace's for those who manage its members."""

    queryset = AuditEvent.objects.none()
    reads = AuditRead
    list_query = AuditQuery
    queries: ClassVar = {"export": AuditFilters}

    def get_renderers(self) -> list[BaseRenderer]:
        return [LinesRenderer(), JSONRenderer()] if self.action == "export" else super().get_renderers()

    def rows(self) -> QuerySet[AuditEvent]:
        return visible_audit(self.actor)

    @extend_schema(responses=AuditRead)
    def list(self, request: Request) -> Response:
        """Entries, newest first."""
        return self.listed(self.rows())

    @extend_schema(responses=AuditRead)
    def retrieve(self, request: Request, pk: int) -> Response:
        """One entry."""
        return self.answer(get_object_or_404(self.rows(), pk=pk))

    @extend_schema(responses={(200, LinesRenderer.media_type): OpenApiTypes.STR})
    @action(detail=False)
    def export(self, request: Request) -> StreamingHttpResponse:
        """All wanted entries as JSON lines, oldest first."""
        asked = {LOOKUPS[name]: value for name, value in self.query.items()}
        rows = self.rows().filter(**asked).order_by("id")
        lines = self._lines(rows)
        streamed = in_threads(lines) if isinstance(request._request, ASGIRequest) else lines
        return StreamingHttpResponse(streamed, content_type=LinesRenderer.media_type)

    def _lines(self, rows: QuerySet[AuditEvent]) -> Iterator[str]:
        for event in rows.iterator(chunk_size=CHUNK):
            shown: Any = self.shown(event)
            yield json.dumps(shown, default=str) + "\n"


async def in_threads(lines: Iterator[str]) -> AsyncIterator[str]:
    """The lines for the asynchronous server, a batch at a time, so that a long export is never in memory as a whole."""
    while batch := await sync_to_async(lambda: list(islice(lines, CHUNK)))():
        yield "".join(batch)
