"""Watch: changed objects as server-sent events, as long as the caller may see them and its token lives."""

from __future__ import annotations

import json
import time
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, ClassVar

from asgiref.sync import sync_to_async
from django.db.models import Q, QuerySet
from django.http import HttpRequest, StreamingHttpResponse
from django.utils import timezone
from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import extend_schema
from rest_framework.renderers import BaseRenderer, JSONRenderer
from rest_framework.request import Request

from console.live import HUB, RESYNC, gather, returned_connection, session_user
from quotas.api.queries import Query, Words
from quotas.api.renderers import EventsRenderer
from quotas.api.serializers import Read
from quotas.api.shapes import NodeRead, QuotaRead, WorkspaceRead
from quotas.api.views import Door
from quotas.models import Node, Quota, Token, User, Workspace
from quotas.permissions import grants_of, visible_nodes, visible_quotas, visible_workspaces
from workloads.api.shapes import WorkloadRead
from workloads.api.workloads import workload_rows
from workloads.models import FINAL, Workload

RIGHTS_LAST_S = 20.0
MOST_CHANGES = 500

Message = tuple[str, dict[str, Any]]


@dataclass(frozen=True)
class Kind:
    """One kind of thing that can be watched: what a caller sees of it, which of that is live, how it is shown."""

    rows: Callable[[User], QuerySet[Any]]
    reads: type[Read]
    live: Q


def quota_rows(user: User) -> QuerySet[Quota]:
    return visible_quotas(user).select_related("cluster", "parent").prefetch_related("amounts__pool")


def workspace_rows(user: User) -> QuerySet[Workspace]:
    return visible_workspaces(user).prefetch_related("bindings__quota")


def node_rows(user: User) -> QuerySet[Node]:
    return visible_nodes(user).select_related("cluster", "pool")


KINDS = {
    "workload": Kind(workload_rows, WorkloadRead, ~Q(state__in=FINAL)),
    "quota": Kind(quota_rows, QuotaRead, Q()),
    "workspace": Kind(workspace_rows, WorkspaceRead, Q()),
    "node": Kind(node_rows, NodeRead, Q()),
}


@dataclass
class Watcher:
    """One stream: who watches what, and which revision of each live thing it was told last."""

    request: HttpRequest
    token: Token | None
    kinds: list[str]
    known: dict[str, dict[int, int]] = field(default_factory=dict)
    user: User | None = None
    checked_at: float = float("-inf")

    def is_welcome(self) -> bool:
        """Whether the token or session still lives; asked anew every ``RIGHTS_LAST_S``."""
        if time.monotonic() - self.checked_at >= RIGHTS_LAST_S:
            self.user = self._fresh_user()
            self.checked_at = time.monotonic()
        return self.user is not None

    def _fresh_user(self) -> User | None:
        if self.token is None:
            return session_user(self.request)
        with returned_connection():
            token = Token.objects.select_related("user").filter(pk=self.token.pk).first()
        if token is None or not token.is_live(timezone.now()) or not token.user.is_active:
            return None
        token.user.token = token
        return token.user

    def begin(self) -> None:
        """Take what there is now as told."""
        if self.is_welcome() and self.user is not None:
            with returned_connection():
                self.known = {name: self._revisions(name, self.user) for name in self.kinds}

    def _revisions(self, name: str, user: User) -> dict[int, int]:
        kind = KINDS[name]
        return dict(kind.rows(user).filter(kind.live).order_by().values_list("pk", "revision"))

    def news(self, topics: set[str]) -> list[Message]:
        """What these topics mean for the caller."""
        if self.user is None or not topics:
            return []
        with returned_connection():
            return [message for name in self.kinds for message in self._news_of(name, self.user, topics)]

    def _news_of(self, name: str, user: User, topics: set[str]) -> Iterator[Message]:
        known, ids = self.known[name], ids_in(name, topics)
        if RESYNC in topics or f"{name}s" in topics:
            now = self._revisions(name, user)
            ids |= {pk for pk, revision in now.items() if known.get(pk) != revision} | (known.keys() - now.keys())
        if len(ids) > MOST_CHANGES:
            self.known[name] = self._revisions(name, user)
            yield f"{name}.resync", {}
            return
        yield from self._told(name, user, ids)

    def _told(self, name: str, user: User, ids: set[int]) -> Iterator[Message]:
        """Each of these that the caller sees, and each that it saw and sees no more."""
        kind, known = KINDS[name], self.known[name]
        found = list(kind.rows(user).filter(pk__in=ids).order_by("pk"))
        context = {"visible_parents": visible_parents(user)} if name == "quota" else {}
        for row in found:
            known[row.pk] = row.revision
            yield name, dict(kind.reads(row, context=context).data)
        for pk in sorted(ids & known.keys() - {row.pk for row in found}):
            del known[pk]
            yield f"{name}.gone", {"id": pk}

    async def stream(self) -> AsyncIterator[bytes]:
        yield b"retry: 1500\n\n"
        async with HUB.listening() as signals:
            await sync_to_async(self.begin)()
            yield message("open", {"kinds": self.kinds})
            while await sync_to_async(self.is_welcome)():
                news = await sync_to_async(self.news)(await gather(signals))
                yield b"".join(message(*one) for one in news) or b": beat\n\n"
        yield message("end", {"code": "not_authenticated"})


def ids_in(name: str, topics: set[str]) -> set[int]:
    """Numbers of the things of one kind that topics such as ``quota.17`` name."""
    parts = (topic.partition(".") for topic in topics)
    return {int(number) for kind, _dot, number in parts if kind == name and number.isdigit()}


def visible_parents(user: User) -> set[int] | None:
    grants = grants_of(user)
    return None if grants.reads_all else set(visible_quotas(user, grants=grants).values_list("pk", flat=True))


def message(event: str, data: dict[str, Any]) -> bytes:
    return f"event: {event}\ndata: {json.dumps(data, default=str)}\n\n".encode()


class WatchQuery(Query):
    """What is watched."""

    kind = Words([(name, name) for name in KINDS], help_text="Default: everything.")


class WatchDoor(Door):
    """Live changes."""

    queryset = Workload.objects.none()
    reads = Read
    queries: ClassVar = {"retrieve": WatchQuery}

    def get_renderers(self) -> list[BaseRenderer]:
        return [EventsRenderer(), JSONRenderer()]

    @extend_schema(responses={(200, EventsRenderer.media_type): OpenApiTypes.STR})
    def retrieve(self, request: Request) -> StreamingHttpResponse:
        """Changes from now on, as server-sent events.

        The event is `workload`, `quota`, `workspace` or `node` with the object as data; `KIND.gone` with an `id`
        when it is there no more, or not for you; `KIND.resync` when so much changed that a new list is cheaper. The
        stream ends with `end` soon after the token or session has ended.
        """
        watcher = Watcher(request._request, self.actor.token, self.query.get("kind") or list(KINDS))
        response = StreamingHttpResponse(watcher.stream(), content_type=EventsRenderer.media_type)
        response["Cache-Control"] = "no-store"
        response["X-Accel-Buffering"] = "no"
        return response
