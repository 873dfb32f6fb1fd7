"""Ask for a cycle of a cluster, and tell open pages that something changed. Imports none of us.

Both happen after the transaction has committed and neither can fail it: the row `Applier.wanted` is the request, the
message to a worker only makes it fast, and the beat runs what no message asked for.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from functools import cache
from typing import Any

import redis
import structlog
from celery import current_app
from django.conf import settings
from django.db import connection, transaction
from kombu.exceptions import OperationalError

log = structlog.get_logger(__name__)

CYCLE_TASK = "scheduler.tasks.cycle"
CYCLE_QUEUE = "scheduler"
DELIVER_TASK = "scheduler.tasks.deliver"
OBSERVE_TASK = "scheduler.tasks.observe"
PAST_TASK = "scheduler.tasks.live_through_past"
CHANNEL = "tidegate:signals"

_quiet: ContextVar[bool] = ContextVar("quiet", default=False)


@contextmanager
def quiet() -> Iterator[None]:
    """Inside, requests are only written down and signals are dropped: the scenario runner's own loop drives."""
    token = _quiet.set(True)
    try:
        yield
    finally:
        _quiet.reset(token)


def request_cycle(cluster_id: int, why: str) -> None:
    """Ask for a cycle once this transaction has committed; requests that nobody has served yet are one."""
    transaction.on_commit(lambda: ask_now(cluster_id, why))


def ask_now(cluster_id: int, why: str) -> None:
    """Write the request down; wake a worker unless an unserved request has done so already."""
    with connection.cursor() as cursor:
        cursor.execute(
            "INSERT INTO scheduler_applier AS a (cluster_id, revision, cycle, wanted, served) VALUES (%s, 0, 0, 1, 0)"
            " ON CONFLICT (cluster_id) DO UPDATE SET wanted = a.wanted + 1 RETURNING wanted - served",
            [cluster_id],
        )
        (unserved,) = cursor.fetchone()
    if unserved == 1 and not _quiet.get():
        wake(cluster_id, why)


def wake(cluster_id: int, why: str) -> None:
    """Send the cluster's cycle to a worker; without a broker the beat finds the request later."""
    _send(CYCLE_TASK, cluster_id, why, queue=CYCLE_QUEUE)


def request_delivery(cluster_id: int) -> None:
    """Have the outbox of the cluster delivered once this transaction has committed; the beat would find it too."""
    if not _quiet.get():
        transaction.on_commit(lambda: ask_delivery(cluster_id))


def ask_delivery(cluster_id: int) -> None:
    _send(DELIVER_TASK, cluster_id, "commands wait")


def ask_observation(cluster_id: int) -> None:
    _send(OBSERVE_TASK, cluster_id, "replicas live")


def ask_past(cluster_id: int) -> None:
    """Have a simulated cluster live through its past; asked again each second until that is done."""
    _send(PAST_TASK, cluster_id, "its past waits", expires=1)


def _send(task: str, cluster_id: int, why: str, **options: Any) -> None:
    try:
        current_app.send_task(task, [cluster_id], **options)
    except (OperationalError, redis.RedisError) as error:
        log.warning("message_not_sent", task=task, cluster=cluster_id, why=why, error=type(error).__name__)


def signal(*topics: str) -> None:
    """Tell open pages, once this transaction has committed, that what these topics show has changed."""
    if not _quiet.get():
        transaction.on_commit(lambda: _publish(topics))


@cache
def _client() -> redis.Redis:
    return redis.Redis.from_url(settings.REDIS_URL, socket_connect_timeout=0.5, socket_timeout=1)


def _publish(topics: tuple[str, ...]) -> None:
    try:
        with _client().pipeline(transaction=False) as pipe:
            for topic in dict.fromkeys(topics):
                pipe.publish(CHANNEL, topic)
            pipe.execute()
    except redis.RedisError as error:
        log.warning("signal_not_sent", topics=len(topics), error=type(error).__name__)
