"""Live pages: one stream of server-sent events a tab, one Redis subscription a process.

A stream carries only names of what changed, and only such as its reader may see; the page then asks for the part again.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

import redis.asyncio
from asgiref.sync import sync_to_async
from django.conf import settings
from django.contrib.auth import get_user
from django.db import connection
from django.db.models import QuerySet
from django.http import HttpRequest, HttpResponse, StreamingHttpResponse
from django.http.response import HttpResponseBase
from django.views.decorators.http import require_safe
from redis.exceptions import RedisError

from quotas.models import User
from quotas.permissions import visible_nodes, visible_quotas, visible_workspaces
from scheduler.triggers import CHANNEL
from workloads.selectors import visible_workloads

COALESCE_S = 1.0
BEAT_S = 10.0
RIGHTS_LAST_S = 30.0
RETRY_S = 1.0
MOST_TOPICS = 100
MOST_WAITING = 1000
LONGEST_NUMBER = 19  # digits of the largest number of a row
RESYNC = "*"  # signals may have been missed
PLURALS = {"quota": "quotas", "workload": "workloads", "node": "nodes", "workspace": "workspaces"}
SHARED_TOPICS = ("queue", "overview")
VISIBLE: dict[str, Callable[[User], QuerySet[Any]]] = {
    "quota": visible_quotas,
    "node": visible_nodes,
    "workspace": visible_workspaces,
    "workload": visible_workloads,
}


class Hub:
    """The process's subscription, handed on to every stream of the process."""

    def __init__(self) -> None:
        self._streams: set[asyncio.Queue[str]] = set()
        self._reader: asyncio.Task[None] | None = None

    @contextlib.asynccontextmanager
    async def listening(self) -> AsyncIterator[asyncio.Queue[str]]:
        """A queue of the topics published from now on."""
        topics: asyncio.Queue[str] = asyncio.Queue(MOST_WAITING)
        self._streams.add(topics)
        if self._reader is None or self._reader.done():
            self._reader = asyncio.create_task(self._read())
        try:
            yield topics
        finally:
            self._streams.discard(topics)
            if not self._streams and self._reader is not None:
                self._reader.cancel()

    async def _read(self) -> None:
        while True:
            try:
                async with redis.asyncio.Redis.from_url(settings.REDIS_URL) as client, client.pubsub() as pubsub:
                    await pubsub.subscribe(CHANNEL)
                    self._hand_on(RESYNC)
                    async for message in pubsub.listen():
                        if message["type"] == "message":
                            self._hand_on(*message["data"].decode().split())
            except (RedisError, OSError):
                await asyncio.sleep(RETRY_S)

    def _hand_on(self, *topics: str) -> None:
        for stream in self._streams:
            for topic in topics:
                with contextlib.suppress(asyncio.QueueFull):  # a full queue already holds enough to refresh everything
                    stream.put_nowait(topic)


HUB = Hub()


@dataclass
class Reader:
    """Who reads a stream and which topics the page shows; rights are asked anew every ``RIGHTS_LAST_S``."""

    request: HttpRequest
    wanted: frozenset[str]
    granted: frozenset[str] = frozenset()
    checked_at: float = field(default=float("-inf"))

    async def is_welcome(self) -> bool:
        """False once the session has ended or the account is closed."""
        if time.monotonic() - self.checked_at < RIGHTS_LAST_S:
            return True
        user = await sync_to_async(session_user)(self.request)
        if user is None:
            return False
        self.granted = await sync_to_async(granted_topics)(user, self.wanted)
        self.checked_at = time.monotonic()
        return True

    async def news(self, topics: set[str]) -> list[str]:
        """What of these topics concerns the page, as the page names it."""
        if RESYNC in topics:
            return [RESYNC]
        found = topics & self.granted
        lists = self.wanted.intersection(PLURALS.values())
        hints = {topic for topic in topics if PLURALS.get(topic.partition(".")[0]) in lists}
        if hints:
            found |= await sync_to_async(_plurals_for_session)(self.request, hints) & lists
        return sorted(found)


def session_user(request: HttpRequest) -> User | None:
    """The session's person as the database has it now."""
    with returned_connection():
        if not request.session.exists(request.session.session_key or ""):
            return None
        user = get_user(request)
        return user if isinstance(user, User) and user.is_active else None


def granted_topics(user: User, wanted: Iterable[str]) -> frozenset[str]:
    """Those of the wanted topics that name something the person may see, and those that name nothing in particular."""
    with returned_connection():
        named = {f"{name}.{pk}" for name, pks in _numbers(wanted).items() for pk in _visible_among(user, name, pks)}
    return frozenset(named | set(SHARED_TOPICS).intersection(wanted))


def plurals_for(user: User, topics: Iterable[str]) -> set[str]:
    """The lists that show at least one of these things to this person."""
    with returned_connection():
        return {PLURALS[name] for name, pks in _numbers(topics).items() if _visible_among(user, name, pks)}


def _plurals_for_session(request: HttpRequest, topics: Iterable[str]) -> set[str]:
    user = session_user(request)
    return plurals_for(user, topics) if user else set()


def _numbers(topics: Iterable[str]) -> dict[str, set[int]]:
    """Topics with a number, by their name: {"quota": {17, 18}}."""
    found: dict[str, set[int]] = {}
    for topic in topics:
        name, _dot, number = topic.partition(".")
        if number.isascii() and number.isdecimal() and len(number) <= LONGEST_NUMBER:
            found.setdefault(name, set()).add(int(number))
    return found


def _visible_among(user: User, name: str, pks: set[int]) -> set[int]:
    visible = VISIBLE.get(name)
    return set(visible(user).filter(pk__in=pks).values_list("pk", flat=True)) if visible else set()


@contextlib.contextmanager
def returned_connection() -> Iterator[None]:
    """A stream lives long; between its questions the connection belongs to others."""
    try:
        yield
    finally:
        if not connection.in_atomic_block:
            connection.close()


@require_safe
async def events(request: HttpRequest) -> HttpResponseBase:
    """The stream of a page: ``topics`` lists what it shows, separated by commas."""
    user = await request.auser()
    if not user.is_authenticated:
        return HttpResponse(status=401)
    wanted = frozenset(request.GET.get("topics", "").split(",")[:MOST_TOPICS])
    response = StreamingHttpResponse(_stream(Reader(request, wanted)), content_type="text/event-stream")
    response["Cache-Control"] = "no-store"
    response["X-Accel-Buffering"] = "no"
    return response


async def _stream(reader: Reader) -> AsyncIterator[bytes]:
    yield b"retry: 1500\nevent: beat\ndata: 1\n\n"
    async with HUB.listening() as signals:
        while await reader.is_welcome():
            topics = await gather(signals)
            news = await reader.news(topics) if topics else []
            yield f"data: {' '.join(news)}\n\n".encode() if news else b"event: beat\ndata: 1\n\n"


async def gather(signals: asyncio.Queue[str]) -> set[str]:
    """What came within a second of the first signal; empty when none came within a beat."""
    try:
        found = {await asyncio.wait_for(signals.get(), BEAT_S)}
    except TimeoutError:
        return set()
    await asyncio.sleep(COALESCE_S)
    while not signals.empty():
        found.add(signals.get_nowait())
    return found
