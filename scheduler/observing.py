"""From what the engine says is, to what has changed: phases of replicas, states of workloads.

The engine tells what is; here it is compared with the rows. Instants are the engine's own (when it began to run, when
it was gone), not those at which somebody looked. A look that finds nothing new writes nothing.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from datetime import datetime, timedelta
from typing import NamedTuple

from django.db import transaction
from django.db.models import F, Q
from django.utils import timezone

from quotas.actors import System
from quotas.models import Cluster
from scheduler import triggers
from scheduler.bulk import update_rows
from scheduler.engines.base import Engine, Observation, Status, Unavailable
from scheduler.engines.registry import engine_for
from scheduler.models import Applier, Outbox
from scheduler.replicas import end_stopped, service_state
from workloads.models import Allocation, Event, Kind, Phase, Restart, State, Workload
from workloads.states import Move, move_many

ENGINE = System("engine")
BACK_OFF = (timedelta(0), timedelta(seconds=10), timedelta(minutes=1), timedelta(minutes=5))


@dataclass(frozen=True, slots=True)
class Watched:
    """A live allocation, as far as watching needs it."""

    id: int
    workload_id: int
    node_id: int
    run: int
    group: int
    index: int
    phase: str
    running_at: datetime | None
    outcome: str


WATCHED_COLUMNS = tuple(column.name for column in fields(Watched))


class Owner(NamedTuple):
    """A workload whose replicas changed."""

    id: int
    kind: str
    state: str
    starts: int
    replicas: int
    restart: str
    retries: int
    failures: int
    checkpoint_every_s: int | None
    checkpoint_on_signal: bool
    done_s: int


@dataclass(slots=True)
class Changes:
    """What one look found out about one workload's replicas."""

    began: list[Watched] = field(default_factory=list)
    ended: list[Watched] = field(default_factory=list)
    at: datetime | None = None
    run_for: timedelta = timedelta(0)
    exit_codes: list[int] = field(default_factory=list)
    reasons: list[str] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Look:
    """How many replicas had news, and the next instant at which the engine knows that one will."""

    news: int = 0
    next_at: datetime | None = None


def observe(cluster: Cluster, *, ends: bool = True) -> Look:
    """Take note of what replicas have done since the last look (without `ends`: only of those that began to run)."""
    watched = {str(row.id): row for row in _watched(cluster)}
    try:
        engine = engine_for(cluster)
        seen = {found.key: found for found in engine.observe(list(watched))}
        now = cluster.now()
        seen |= _missing(cluster, engine, [key for key in watched if key not in seen], now)
    except Unavailable:
        return Look()
    news = [(row, seen[key]) for key, row in watched.items() if key in seen and _is_news(row, seen[key])]
    noted = [(row, found) for row, found in news if ends or found.status != Status.GONE]
    if noted:
        _take_note(cluster, noted, now)
    _note_look(cluster)
    coming = [found.next_at for found in seen.values() if found.next_at is not None]
    return Look(len(noted), min([*coming, *([now] if len(noted) < len(news) else [])], default=None))


def _note_look(cluster: Cluster) -> None:
    """The time of the last look, to the second: the row is everybody's, so it is not written more often."""
    real = timezone.now()
    old = Q(observed_at__isnull=True) | Q(observed_at__lt=real - timedelta(seconds=1))
    Applier.objects.filter(old, cluster=cluster).update(observed_at=real)


def _watched(cluster: Cluster) -> list[Watched]:
    found = Allocation.objects.filter(ended_at__isnull=True, workload__cluster=cluster).order_by("id")
    return [Watched(*row) for row in found.values_list(*WATCHED_COLUMNS)]


def _missing(cluster: Cluster, engine: Engine, keys: Sequence[str], now: datetime) -> dict[str, Observation]:
    """Replicas that the engine did not know: refused ones failed, others are lost unless their start is on its way.

    A start may have arrived just after the engine was asked, so it is asked again about those that have arrived by now.
    """
    if not keys:
        return {}
    errors = dict(
        Outbox.objects.filter(cluster=cluster, verb=Outbox.Verb.START, key__in=keys, delivered_at__isnull=False)
        .order_by("id")
        .values_list("key", "error")
    )
    gone = {
        key: Observation(key, Status.GONE, gone_at=now, exit_code=1 if error else None, reason=error or "lost")
        for key, error in errors.items()
    }
    return gone | {found.key: found for found in (engine.observe(list(gone)) if gone else ())}


def _is_news(row: Watched, seen: Observation) -> bool:
    return seen.status == Status.GONE or (seen.status == Status.RUNNING and row.running_at is None)


def _take_note(cluster: Cluster, news: Sequence[tuple[Watched, Observation]], now: datetime) -> None:
    """Write the new phases and the moves that follow from them, and ask for a cycle."""
    with transaction.atomic():
        owners = _lock_owners({row.workload_id for row, _ in news})
        changes = _write_phases(news, now)
        left = _left(changes)
        moves = [
            move
            for workload, change in sorted(changes.items())
            if (move := _move_for(owners[workload], change, left[workload])) is not None
        ]
        _move(moves, changes, now)
        _note_losses(owners, changes, {move.workload_id for move in moves}, now)
        stopped = [pk for pk in changes if owners[pk].state == State.STOPPING and not left[pk].there]
        end_stopped(stopped, max((changes[pk].at or now for pk in stopped), default=now))
        triggers.signal("overview", *(f"workload.{workload}" for workload in sorted(changes)[:200]))
        if any(change.ended for change in changes.values()):  # who merely began to run frees nothing
            triggers.request_cycle(cluster.pk, "replicas ended")


def _lock_owners(workloads: set[int]) -> dict[int, Owner]:
    found = Workload.objects.filter(pk__in=workloads).order_by("id").select_for_update(no_key=True)
    return {row[0]: Owner(*row) for row in found.values_list(*Owner._fields)}


# --- phases -------------------------------------------------------------------------------------------------------


def _write_phases(news: Iterable[tuple[Watched, Observation]], now: datetime) -> dict[int, Changes]:
    """Update the allocations; what somebody else has ended meanwhile (a lost node) is left alone."""
    began: list[tuple[Watched, Observation]] = []
    ended: list[tuple[Watched, Observation]] = []
    for row, seen in news:
        (ended if seen.status == Status.GONE else began).append((row, seen))
    changes: dict[int, Changes] = defaultdict(Changes)
    for row in _begin(began, now):
        changes[row.workload_id].began.append(row)
    for row, seen, outcome in _end(ended, now):
        _add_end(changes[row.workload_id], replace(row, outcome=outcome), seen, now)
    return changes


def _begin(began: Sequence[tuple[Watched, Observation]], now: datetime) -> list[Watched]:
    """A replica that was told to leave while it started keeps leaving; only its instant is noted."""
    at = [seen.running_at or now for _, seen in began]
    ids = [row.id for row, _ in began]
    noted = set(update_rows(Allocation, ids, {"running_at": at}, only_if="t.ended_at IS NULL"))
    update_rows(Allocation, ids, {"phase": [Phase.RUNNING] * len(ids)}, only_if="t.phase = 'starting'")
    return [row for row, _ in began if row.id in noted]


def _end(ended: Sequence[tuple[Watched, Observation]], now: datetime) -> list[tuple[Watched, Observation, str]]:
    outcomes = [_outcome(row, seen) for row, seen in ended]
    written = set(
        update_rows(
            Allocation,
            [row.id for row, _ in ended],
            {
                "phase": [Phase.ENDED] * len(ended),
                "running_at": [seen.running_at or row.running_at for row, seen in ended],
                "ended_at": [seen.gone_at or now for _, seen in ended],
                "outcome": outcomes,
            },
            only_if="t.ended_at IS NULL",
        )
    )
    found = [(row, seen, outcome) for (row, seen), outcome in zip(ended, outcomes, strict=True)]
    return [entry for entry in found if entry[0].id in written]


def _outcome(row: Watched, seen: Observation) -> str:
    """Its own end if it came first, otherwise what it was told to leave for."""
    if seen.exit_code == 0:
        return "succeeded"
    if row.phase == Phase.LEAVING and row.outcome:
        return row.outcome
    return "failed" if seen.exit_code is not None else "lost"


def _add_end(change: Changes, row: Watched, seen: Observation, now: datetime) -> None:
    change.ended.append(row)
    gone = seen.gone_at or now
    change.at = gone if change.at is None else max(change.at, gone)
    began = seen.running_at or row.running_at
    if began is not None:
        change.run_for = max(change.run_for, gone - began)
    if seen.exit_code is not None:
        change.exit_codes.append(seen.exit_code)
    if seen.reason:
        change.reasons.append(seen.reason)


@dataclass(frozen=True, slots=True)
class Left:
    """What a workload still holds after the look; `some_failed`: a worker of this run failed and was not replaced."""

    live: int
    running: int
    leaving: int
    some_failed: bool

    @property
    def there(self) -> int:
        return self.live + self.leaving


def _left(changes: Mapping[int, Changes]) -> dict[int, Left]:
    counts: dict[int, dict[str, int]] = {workload: defaultdict(int) for workload in changes}
    last: dict[tuple[int, int, int], str] = {}
    rows = Allocation.objects.filter(workload_id__in=list(changes), run=F("workload__starts")).order_by("id")
    for workload, phase, group, index, outcome in rows.values_list("workload_id", "phase", "group", "index", "outcome"):
        counts[workload][phase] += 1
        last[workload, group, index] = outcome if phase == Phase.ENDED else ""
    failed = {workload for (workload, _, _), outcome in last.items() if outcome == "failed"}
    return {
        workload: Left(
            live=found[Phase.STARTING] + found[Phase.RUNNING],
            running=found[Phase.RUNNING],
            leaving=found[Phase.LEAVING],
            some_failed=workload in failed,
        )
        for workload, found in counts.items()
    }


# --- moves --------------------------------------------------------------------------------------------------------


def _move(moves: Sequence[Move], changes: Mapping[int, Changes], now: datetime) -> None:
    """Each at its own instant, in the order of these."""
    by_instant: dict[datetime, list[Move]] = defaultdict(list)
    for move in moves:
        change = changes[move.workload_id]
        by_instant[min(now, change.at or now)].append(move)
    for at in sorted(by_instant):
        move_many(by_instant[at], at=at, by=ENGINE)


def _move_for(owner: Owner, change: Changes, left: Left) -> Move | None:
    """The move that follows from what the replicas did; None when the state stays."""
    if owner.state == State.PREEMPTING:
        return None if left.there else _preempted(owner, change)
    if owner.kind == Kind.SERVICE:
        return _service(owner, change, left)
    if owner.state in (State.STARTING, State.RUNNING, State.RESIZING):
        return _job(owner, change, left)
    return None


def _preempted(owner: Owner, change: Changes) -> Move:
    """Back to the queue; unless it had come to its own end before it was gone."""
    if owner.kind != Kind.SERVICE and all(row.outcome == "succeeded" for row in change.ended):
        return Move(owner.id, owner.state, State.SUCCEEDED, "succeeded")
    saved = _saved(owner, change)
    facts = {"ran_s": int(change.run_for.total_seconds()), "saved_s": saved - owner.done_s}
    return Move(owner.id, owner.state, State.QUEUED, "requeued", facts, done_s=saved)


def _saved(owner: Owner, change: Changes) -> int:
    """Run time, in seconds of all runs, that need not be done again."""
    ran = int(change.run_for.total_seconds())
    if owner.checkpoint_on_signal:
        return owner.done_s + ran
    if owner.checkpoint_every_s:
        return owner.done_s + ran // owner.checkpoint_every_s * owner.checkpoint_every_s
    return 0


def _service(owner: Owner, change: Changes, left: Left) -> Move | None:
    state = service_state(owner.state, owner.replicas, left.running, left.live)
    if state == owner.state:
        return None
    facts = {"running": left.running, "wanted": owner.replicas, **_why_ended(change)}
    return Move(owner.id, owner.state, state, state, facts)


def _job(owner: Owner, change: Changes, left: Left) -> Move | None:
    """A training job or notebook: it runs when all that was ordered runs, and ends with its last worker."""
    if _is_done(owner, change, left):
        return Move(owner.id, owner.state, State.SUCCEEDED, "succeeded")
    if not left.there and change.ended:
        return _all_gone(owner, change, left)
    if owner.state == State.STARTING and left.live and left.running == left.live:
        return Move(owner.id, owner.state, State.RUNNING, "running", {"workers": left.running})
    return None


def _is_done(owner: Owner, change: Changes, left: Left) -> bool:
    """The last worker ended well, and none failed."""
    well = [row for row in change.ended if row.outcome == "succeeded"]
    if left.there or not well or left.some_failed:
        return False
    return all(row.outcome in ("succeeded", "shrunk", "scaled") for row in change.ended)


def _all_gone(owner: Owner, change: Changes, left: Left) -> Move:
    """Nothing is left of the run: again if it was lost or may be tried again, otherwise it failed."""
    saved = _saved(owner, change)
    facts = _why_ended(change)
    if not left.some_failed:
        return Move(owner.id, owner.state, State.QUEUED, "lost", facts, done_s=saved)
    if owner.restart == Restart.ON_FAILURE and owner.failures < owner.retries:
        wait = BACK_OFF[min(owner.failures, len(BACK_OFF) - 1)]
        again = (change.at or timezone.now()) + wait
        return Move(owner.id, owner.state, State.QUEUED, "retried", facts, None, saved, True, again)
    return Move(owner.id, owner.state, State.FAILED, "failed", facts, failed=True)


def _note_losses(owners: Mapping[int, Owner], changes: Mapping[int, Changes], moved: set[int], now: datetime) -> None:
    """A worker that died while its workload goes on as it was is in the time line too."""
    Event.objects.bulk_create(
        Event(
            workload_id=workload,
            at=change.at or now,
            verb="worker_lost",
            before=owners[workload].state,
            after=owners[workload].state,
            actor=ENGINE.name,
            facts={"workers": sorted(row.index for row in lost), **_why_ended(change)},
        )
        for workload, change in sorted(changes.items())
        if workload not in moved and (lost := [row for row in change.ended if row.outcome in ("failed", "lost")])
    )


def _why_ended(change: Changes) -> dict[str, object]:
    codes = sorted({code for code in change.exit_codes if code != 0})
    reasons = sorted({reason for reason in change.reasons if reason != "completed"})[:3]
    return {**({"exit_codes": codes} if codes else {}), **({"reasons": reasons} if reasons else {})}
