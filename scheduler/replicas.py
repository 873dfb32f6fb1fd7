"""Replicas as rows: how they are told to leave, and what state a service is in with so many of them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import Protocol

from django.db import connection

from quotas.actors import System
from scheduler.bulk import update_rows
from scheduler.models import Outbox
from scheduler.settings import Knobs
from workloads.models import Allocation, Phase, State, Workload
from workloads.states import Move, move_many


class Held(Protocol):
    """What leaving needs to know of an allocation."""

    @property
    def id(self) -> int: ...

    @property
    def workload_id(self) -> int: ...


def leave(
    cluster_id: int,
    held: Sequence[Held],
    outcome: str,
    now: datetime,
    graces_s: Mapping[int, int | None],
    knobs: Knobs,
) -> None:
    """Tell replicas to leave, each with its workload's grace (seconds; None: the cluster's).

    They hold their room until the engine says that they are gone; `outcome` is what their record will say then.
    """
    ids = [one.id for one in held]
    count = len(ids)
    told = set(
        update_rows(
            Allocation,
            ids,
            {"phase": [Phase.LEAVING] * count, "leaving_at": [now] * count, "outcome": [outcome] * count},
            only_if="t.phase IN ('starting', 'running')",
        )
    )
    Outbox.objects.bulk_create(
        [
            Outbox(
                cluster_id=cluster_id,
                verb=Outbox.Verb.STOP,
                key=str(one.id),
                payload={"grace_ms": _grace_ms(graces_s.get(one.workload_id), knobs)},
            )
            for one in held
            if one.id in told
        ]
    )


def _grace_ms(grace_s: int | None, knobs: Knobs) -> int:
    return knobs.eviction_grace_ms if grace_s is None else grace_s * 1000


_STOP_LOST = """
INSERT INTO scheduler_outbox (cluster_id, verb, key, payload, created_at, attempts, error)
SELECT p.cluster_id, 'stop', a.id::text, '{"grace_ms": 0}', now(), 0, ''
FROM quotas_nodepool p
JOIN workloads_allocation a ON a.pool_id = p.id AND a.ended_at > %s AND a.outcome = 'lost'
JOIN scheduler_outbox started ON started.verb = 'start' AND started.key = a.id::text
WHERE p.cluster_id = %s
ON CONFLICT (verb, key) DO NOTHING
"""


def stop_lost(cluster_id: int, since: datetime) -> int:
    """Tell the engine to stop what was given up as lost since then, in case its machine comes back with it running.

    Returns how many commands are new.
    """
    with connection.cursor() as cursor:
        cursor.execute(_STOP_LOST, [since, cluster_id])
        return int(cursor.rowcount)


def end_stopped(workloads: Iterable[int], at: datetime) -> None:
    """What was told to stop and holds nothing any more has stopped, or queues again if a restart was wanted."""
    ids = sorted(workloads)
    again = set(Workload.objects.filter(pk__in=ids, restart_wanted=True).values_list("id", flat=True))
    moves = [
        Move(pk, State.STOPPING, State.QUEUED, "restarted", done_s=0)
        if pk in again
        else Move(pk, State.STOPPING, State.STOPPED, "stopped")
        for pk in ids
    ]
    moved = move_many(moves, at=at, by=System("engine"))
    Workload.objects.filter(pk__in=again & moved).update(restart_wanted=False)


def service_state(state: str, wanted: int, running: int, live: int) -> str:
    """The state of a service that has `running` replicas of `live` that run or start, and wants `wanted`.

    Services that leave or have ended keep their state, and one that was never placed waits as `queued`.
    """
    if state not in (State.QUEUED, State.STARTING, State.RUNNING, State.RESIZING):
        return state
    if running == live == wanted:
        return State.RUNNING
    if state == State.QUEUED:
        return State.STARTING if live else State.QUEUED
    if state == State.STARTING and running < live:
        return State.STARTING
    return State.RESIZING
