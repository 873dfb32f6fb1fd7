"""The one reason of each waiting workload, as rows. Equal work shares its facts, so they are sent once."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any

from django.db import connection, transaction

from quotas.models import Cluster
from scheduler.clocks import at_or_none
from scheduler.core.model import Facts, Wait
from scheduler.snapshots import VerdictRow, known_verdicts
from workloads.models import Verdict


class FactBook:
    """Facts as JSON gives them back; equal ones are one object."""

    def __init__(self) -> None:
        self._known: dict[str, dict[str, Any]] = {}

    def plain(self, facts: Facts) -> dict[str, Any]:
        text = json.dumps(dict(facts))
        known = self._known.get(text)
        if known is None:
            known = self._known[text] = json.loads(text)
        return known


def plain(facts: Facts) -> dict[str, Any]:
    """The facts as JSON gives them back."""
    found: dict[str, Any] = json.loads(json.dumps(dict(facts)))
    return found


def verdict_rows(waits: Iterable[Wait], known: Mapping[int, VerdictRow], now: datetime) -> dict[int, VerdictRow]:
    """What is to be said about each waiting workload; a code that stays keeps its time."""
    book = FactBook()
    return {wait.workload: _row(wait, known.get(wait.workload), now, book) for wait in waits}


def _row(wait: Wait, known: VerdictRow | None, now: datetime, book: FactBook) -> VerdictRow:
    code = wait.reason.value
    return VerdictRow(
        workload_id=wait.workload,
        code=code,
        facts=book.plain(wait.facts),
        would_unblock=book.plain(wait.would_unblock),
        queue_position=wait.position,
        since=known.since if known is not None and known.code == code else now,
        earliest_at=at_or_none(wait.estimate.earliest_ms),
        latest_at=at_or_none(wait.estimate.latest_ms),
        sureness=wait.estimate.sureness.value,
    )


_WRITE = """
INSERT INTO workloads_verdict AS v (workload_id, code, facts, would_unblock, queue_position, since, earliest_at,
                                    latest_at, sureness, cycle)
SELECT n.workload_id, n.code, n.facts, n.would_unblock, n.queue_position, n.since, n.earliest_at, n.latest_at,
       n.sureness, %s
FROM jsonb_to_recordset(%s::jsonb) AS n(workload_id bigint, code text, facts jsonb, would_unblock jsonb,
                                        queue_position int, since timestamptz, earliest_at timestamptz,
                                        latest_at timestamptz, sureness text)
ON CONFLICT (workload_id) DO UPDATE SET code = excluded.code, facts = excluded.facts,
    would_unblock = excluded.would_unblock, queue_position = excluded.queue_position, since = excluded.since,
    earliest_at = excluded.earliest_at, latest_at = excluded.latest_at, sureness = excluded.sureness,
    cycle = excluded.cycle
"""


def write_verdicts(cluster: Cluster, rows: Sequence[VerdictRow], cycle: int) -> None:
    """Write new or changed verdicts in one statement, as one JSON value: arrays of texts cost ten times as much."""
    if not rows:
        return
    with connection.cursor() as cursor:
        cursor.execute(_WRITE, [cycle, json.dumps([row._asdict() for row in rows], default=datetime.isoformat)])
    transaction.on_commit(lambda: known_verdicts.note(cluster, ((row.workload_id, row) for row in rows), cycle))


def silence(workloads: Sequence[int]) -> None:
    """Remove the verdicts of work that does not wait any more."""
    if workloads:
        Verdict.objects.filter(pk__in=workloads).delete()
