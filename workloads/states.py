"""Which states may follow which, and the only way to change one: an UPDATE that names what it expects, and an event."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from django.db import connection, transaction

from quotas.actors import Actor
from quotas.audit import actor_name
from quotas.errors import Stale
from workloads.models import FINAL, Event, State, Workload

QUEUED, STARTING, RUNNING, RESIZING = State.QUEUED, State.STARTING, State.RUNNING, State.RESIZING
PREEMPTING, STOPPING = State.PREEMPTING, State.STOPPING
SUCCEEDED, FAILED, STOPPED = State.SUCCEEDED, State.FAILED, State.STOPPED

MOVES: dict[State, frozenset[State]] = {
    QUEUED: frozenset({STARTING, RUNNING, FAILED, STOPPED}),  # running: a service that wants 0 replicas
    STARTING: frozenset({RUNNING, RESIZING, QUEUED, PREEMPTING, STOPPING, SUCCEEDED, FAILED}),
    RUNNING: frozenset({RESIZING, QUEUED, PREEMPTING, STOPPING, SUCCEEDED, FAILED}),
    RESIZING: frozenset({RUNNING, QUEUED, PREEMPTING, STOPPING, SUCCEEDED, FAILED}),
    PREEMPTING: frozenset({QUEUED, STOPPING, SUCCEEDED, FAILED}),
    STOPPING: frozenset({STOPPED, QUEUED, SUCCEEDED, FAILED}),  # queued: a restart
    SUCCEEDED: frozenset({QUEUED}),
    FAILED: frozenset({QUEUED}),
    STOPPED: frozenset({QUEUED}),
}


@dataclass(frozen=True, slots=True)
class Move:
    """One workload from ``before`` to ``after``. ``revision`` None: whatever it is now.

    ``done_s`` is the run time saved by checkpoints so far (None: as it was); ``failed`` counts a failure.
    """

    workload_id: int
    before: str
    after: str
    verb: str
    facts: Mapping[str, Any] = field(default_factory=dict)
    revision: int | None = None
    done_s: int | None = None
    failed: bool = False
    not_before: datetime | None = None


class IllegalMoveError(ValueError):
    """A move that the table does not have: a fault in the caller."""


def is_allowed(before: str, after: str) -> bool:
    return State(after) in MOVES[State(before)]


def states_before(after: str) -> list[State]:
    """The states from which one may come to ``after``."""
    return [state for state in State if State(after) in MOVES[state]]


@transaction.atomic
def move_many(moves: Sequence[Move], *, at: datetime, by: Actor) -> set[int]:
    """Make the moves whose workloads still stand where they are expected; the ids of those that moved.

    Four statements however many there are. Leaving the queue for a start counts the start and sets ``started_at``;
    coming back to it clears both times; a final state sets ``finished_at``.
    """
    for move in moves:
        if not is_allowed(move.before, move.after):
            raise IllegalMoveError(f"{move.before} -> {move.after}")
    if not moves:
        return set()
    moved = _update(moves, at)
    Event.objects.bulk_create(
        Event(
            workload_id=move.workload_id,
            at=at,
            verb=move.verb,
            before=move.before,
            after=move.after,
            actor=actor_name(by),
            facts=dict(move.facts),
        )
        for move in moves
        if move.workload_id in moved
    )
    return moved


_LOCK = "SELECT 1 FROM workloads_workload WHERE id = ANY(%s) ORDER BY id FOR NO KEY UPDATE"
_MOVE = """
UPDATE workloads_workload AS w SET
    state = v.after,
    state_at = %s,
    revision = w.revision + 1,
    held = false,
    starts = w.starts + (v.before = 'queued' AND v.after = 'starting')::int,
    failures = w.failures + v.failed::int,
    done_s = coalesce(v.done_s, w.done_s),
    not_before = CASE WHEN v.after = 'queued' THEN v.not_before ELSE w.not_before END,
    started_at = CASE
        WHEN v.before = 'queued' AND v.after IN ('starting', 'running') THEN %s
        WHEN v.after = 'queued' THEN NULL
        ELSE w.started_at END,
    finished_at = CASE WHEN v.after = ANY(%s) THEN %s WHEN v.after = 'queued' THEN NULL ELSE w.finished_at END,
    borrowed_gpu_milli = CASE WHEN v.after = ANY(%s) OR v.after = 'queued' THEN 0 ELSE w.borrowed_gpu_milli END
FROM unnest(%s::bigint[], %s::text[], %s::text[], %s::int[], %s::int[], %s::bool[], %s::timestamptz[])
    AS v(id, before, after, revision, done_s, failed, not_before)
WHERE w.id = v.id AND w.state = v.before AND w.revision = coalesce(v.revision, w.revision)
RETURNING w.id
"""


def _update(moves: Sequence[Move], at: datetime) -> set[int]:
    final = [str(state) for state in FINAL]
    columns: list[Any] = [
        [move.workload_id for move in moves],
        [str(move.before) for move in moves],
        [str(move.after) for move in moves],
        [move.revision for move in moves],
        [move.done_s for move in moves],
        [move.failed for move in moves],
        [move.not_before for move in moves],
    ]
    with connection.cursor() as cursor:
        cursor.execute(_LOCK, [columns[0]])
        cursor.execute(_MOVE, [at, at, final, at, final, *columns])
        return {row[0] for row in cursor.fetchall()}


def move(
    workload: Workload, to: State, *, by: Actor, at: datetime, verb: str, facts: Mapping[str, Any] | None = None
) -> Workload:
    """Move one workload as the caller knows it, or ``Stale`` if it has changed since. Reads it again."""
    step = Move(workload.pk, workload.state, to, verb, facts or {}, revision=workload.revision)
    if not move_many([step], at=at, by=by):
        raise Stale(workload)
    workload.refresh_from_db()
    return workload
