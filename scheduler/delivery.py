"""From the outbox to the engine.

A worker takes open commands with SKIP LOCKED and marks them as taken, so that two workers never carry the same ones;
a worker that dies leaves its mark behind, and after `LEASE` somebody else takes them again. The engine knows each
command by its key, so the second delivery of one that had arrived does nothing. A stop waits for its start.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from datetime import timedelta
from typing import Any, NamedTuple

import structlog
from django.db import connection, transaction
from django.utils import timezone

from quotas.models import Cluster
from scheduler.crashpoints import reach
from scheduler.engines.base import Rejected, StartOrder, StopOrder, Unavailable
from scheduler.engines.registry import engine_for
from scheduler.models import Outbox

log = structlog.get_logger(__name__)

LEASE = timedelta(seconds=5)
BATCH = 1000


class Command(NamedTuple):
    """One open command."""

    id: int
    verb: str
    key: str
    payload: Mapping[str, Any]


_TAKE = """
UPDATE scheduler_outbox AS o SET taken_at = %(now)s, attempts = o.attempts + 1
FROM (
    SELECT id FROM scheduler_outbox AS open
    WHERE open.cluster_id = %(cluster)s AND open.delivered_at IS NULL
      AND (open.taken_at IS NULL OR open.taken_at < %(stale)s)
      AND (open.verb = 'start' OR NOT EXISTS (
          SELECT 1 FROM scheduler_outbox AS start
          WHERE start.verb = 'start' AND start.key = open.key AND start.delivered_at IS NULL
            AND start.taken_at >= %(stale)s
      ))
    ORDER BY id LIMIT %(batch)s FOR UPDATE SKIP LOCKED
) AS mine
WHERE o.id = mine.id RETURNING o.id, o.verb, o.key, o.payload
"""


def deliver(cluster: Cluster) -> int:
    """Carry all open commands of the cluster to its engine; returns how many arrived."""
    arrived = 0
    while commands := _take(cluster.pk):
        reach("outbox_fetched")
        try:
            _carry(cluster, commands)
        except Unavailable as problem:
            _give_back(commands, str(problem))
            return arrived
        arrived += len(commands)
    return arrived


def _take(cluster_id: int) -> list[Command]:
    now = timezone.now()
    with transaction.atomic(), connection.cursor() as cursor:
        cursor.execute(_TAKE, {"cluster": cluster_id, "now": now, "stale": now - LEASE, "batch": BATCH})
        rows = cursor.fetchall()
    return [Command(pk, verb, key, json.loads(payload)) for pk, verb, key, payload in sorted(rows)]


def _carry(cluster: Cluster, commands: Sequence[Command]) -> None:
    engine = engine_for(cluster)
    starts = [_start_of(command) for command in commands if command.verb == Outbox.Verb.START]
    stops = [StopOrder(command.key, command.payload["grace_ms"]) for command in commands if command.verb != "start"]
    refused = _refused(engine.start, starts)
    reach("engine_started")
    refused |= _refused(engine.stop, stops)
    Outbox.objects.filter(pk__in=[command.id for command in commands]).update(delivered_at=timezone.now(), error="")
    for key, reason in refused.items():
        Outbox.objects.filter(cluster=cluster, key=key).update(error=reason[:300])
    reach("acknowledged")


def _refused(call: Callable[[Any], None], orders: Sequence[StartOrder] | Sequence[StopOrder]) -> dict[str, str]:
    """What the engine will never do; an observation then finds the replica missing."""
    if not orders:
        return {}
    try:
        call(orders)
    except Rejected as rejected:
        log.warning("engine_rejected", orders=len(rejected.reasons))
        return rejected.reasons
    return {}


def _start_of(command: Command) -> StartOrder:
    body = command.payload
    return StartOrder(
        key=command.key,
        name=body["name"],
        node=body["node"],
        devices=tuple(body["devices"]),
        gpu_milli=body["gpu_milli"],
        gpu_memory_mib=body["gpu_memory_mib"],
        cpu_milli=body["cpu_milli"],
        memory_mib=body["memory_mib"],
        image=body["image"],
        command=tuple(body["command"]),
        environment=body["environment"],
        run_for_ms=body["run_for_ms"],
    )


def _give_back(commands: Sequence[Command], problem: str) -> None:
    log.warning("engine_unavailable", commands=len(commands), problem=problem)
    Outbox.objects.filter(pk__in=[command.id for command in commands]).update(taken_at=None, error=problem[:300])
