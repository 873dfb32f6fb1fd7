"""What is done to one workload: stop, delete, hold, release, restart, priority, quota, place in the queue."""

from __future__ import annotations

from django.db import transaction
from django.db.models import F

from quotas.actors import Actor
from quotas.errors import Problem, Refused, refuse
from quotas.models import Quota, User
from quotas.permissions import require
from quotas.specs import PRIORITY_HIGH, PRIORITY_LOW, SECONDS_MAX
from workloads.configuration import entries_for, judge
from workloads.models import FINAL, LIVE, State, Visibility, Workload
from workloads.services._common import PLACED, lock_workload, note, require_state, write_event
from workloads.services.submitting import place_for, quota_for
from workloads.specs import spec_of
from workloads.states import Move, move, move_many


@transaction.atomic
def stop_workload(*, actor: Actor, workload: Workload) -> Workload:
    """Ask for the workload to stop; the engine confirms later. Waiting work is stopped at once.

    Stopping what is stopping already changes nothing.
    """
    require(actor, "workload.stop", workload)
    workload = lock_workload(workload)
    require_state(workload, LIVE)
    _stop(actor, workload, "stopped")
    return workload


def _stop(actor: Actor, workload: Workload, verb: str) -> None:
    """Told to leave; a restart that was wanted is not any more."""
    if workload.restart_wanted:
        Workload.objects.filter(pk=workload.pk).update(restart_wanted=False)
        workload.refresh_from_db()
    if workload.state != State.STOPPING:
        before = workload.state
        to = State.STOPPED if before == State.QUEUED else State.STOPPING
        move(workload, to, by=actor, at=workload.cluster.now(), verb=verb if to == State.STOPPED else "stopping")
        note(actor, workload, verb, {"state": before}, {"state": to})


@transaction.atomic
def delete_workload(*, actor: Actor, workload: Workload) -> None:
    """Stop the workload if it lives, and hide it; its allocations stay for the charts."""
    require(actor, "workload.delete", workload)
    workload = lock_workload(workload)
    if workload.deleted_at is not None:
        return
    before = workload.state
    now = workload.cluster.now()
    write_event(workload, actor=actor, verb="deleted", at=now, facts={})
    if workload.state not in FINAL:
        _stop(actor, workload, "stopped")
    Workload.objects.filter(pk=workload.pk).update(deleted_at=now, revision=F("revision") + 1)
    note(actor, workload, "deleted", {"state": before}, {})


@transaction.atomic
def hold_workload(*, actor: Actor, workload: Workload) -> Workload:
    """Keep waiting work from starting until it is released."""
    require(actor, "workload.hold", workload)
    return _mark(actor, workload, held=True)


@transaction.atomic
def release_workload(*, actor: Actor, workload: Workload) -> Workload:
    """Let held work start again, from the place it always had."""
    require(actor, "workload.release", workload)
    return _mark(actor, workload, held=False)


def _mark(actor: Actor, workload: Workload, *, held: bool) -> Workload:
    workload = lock_workload(workload)
    require_state(workload, [State.QUEUED])
    if workload.held == held:
        return workload
    verb = "held" if held else "released"
    _change(workload, held=held)
    write_event(workload, actor=actor, verb=verb, at=workload.cluster.now(), facts={})
    note(actor, workload, verb, {"held": not held}, {"held": held})
    return workload


def _change(workload: Workload, **values: object) -> None:
    """Writes fields of a locked workload, and counts its revision up."""
    Workload.objects.filter(pk=workload.pk).update(**values, revision=F("revision") + 1)
    workload.refresh_from_db()


@transaction.atomic
def restart_workload(*, actor: Actor, workload: Workload) -> Workload:
    """Run it again from its beginning: what has ended queues as new, what runs stops first."""
    require(actor, "workload.restart", workload)
    workload = lock_workload(workload)
    require_state(workload, [*FINAL, *PLACED])
    before, now = workload.state, workload.cluster.now()
    if workload.state in FINAL:
        _require_free_name(workload)
        _require_place(workload)
        move_many([Move(workload.pk, before, State.QUEUED, "restarted", done_s=0)], at=now, by=actor)
        _change(workload, submitted_at=now, position=int(now.timestamp() * 1000), failures=0)
    else:
        _change(workload, restart_wanted=True)
        move(workload, State.STOPPING, by=actor, at=now, verb="restarting")
    note(actor, workload, "restarted", {"state": before}, {"state": workload.state})
    return workload


def _require_place(workload: Workload) -> None:
    """What has ended comes back only where new work of its owner would be taken."""
    problems = place_for(workload, workload.quota)
    if problems:
        raise Refused(problems)


def _require_free_name(workload: Workload) -> None:
    same = Workload.objects.filter(workspace=workload.workspace_id, name=workload.name, deleted_at__isnull=True)
    if same.exclude(pk=workload.pk).exclude(state__in=FINAL).exists():
        raise refuse("name", "conflict", given=workload.name)


@transaction.atomic
def change_priority(*, actor: Actor, workload: Workload, priority: int) -> Workload:
    """Set the priority. Of running work it changes whom it may be stopped for, and its place if it queues again."""
    require(actor, "workload.change_priority", workload)
    if isinstance(priority, bool) or not PRIORITY_LOW <= priority <= PRIORITY_HIGH:
        raise refuse(
            "priority", "invalid", reason="range", low=PRIORITY_LOW, high=PRIORITY_HIGH, given=str(priority)[:20]
        )
    workload = lock_workload(workload)
    require_state(workload, LIVE)
    before = workload.priority
    if before == priority:
        return workload
    _require_priority(actor, workload, priority)
    _change(workload, priority=priority)
    facts = {"before": before, "after": priority}
    write_event(workload, actor=actor, verb="priority_changed", at=workload.cluster.now(), facts=facts)
    note(actor, workload, "priority_changed", {"priority": before}, {"priority": priority})
    return workload


def _require_priority(actor: Actor, workload: Workload, priority: int) -> None:
    """Nobody gives a priority at which the scheduling configuration would refuse such work of the giver.

    What it would refuse at the priority so far as well stands in nobody's way.
    """
    entries = entries_for(workload.workspace, workload.quota, actor) if isinstance(actor, User) else []
    before = list(judge(entries, spec_of(workload)))
    problems = [problem for problem in judge(entries, spec_of(workload, priority=priority)) if problem not in before]
    if problems:
        raise Refused(Problem("priority", problem.code, problem.facts) for problem in problems)


@transaction.atomic
def move_workload(*, actor: Actor, workload: Workload, quota: Quota) -> Workload:
    """Let waiting work wait in another quota of its workspace."""
    require(actor, "workload.move", workload)
    workload = lock_workload(workload)
    require_state(workload, [State.QUEUED])
    if quota.pk == workload.quota_id:
        return workload
    if quota.cluster_id != workload.cluster_id:
        raise refuse("quota", "invalid", reason="choice", wanted="a quota of the same cluster")
    problems = [Problem("quota", p.code, p.facts) for p in quota_for(workload, quota)]
    if problems:
        raise Refused(problems)
    before = workload.quota.name
    _change(workload, quota=quota)
    facts = {"from": before, "to": quota.name}
    write_event(workload, actor=actor, verb="moved_quota", at=workload.cluster.now(), facts=facts)
    note(actor, workload, "moved", {"quota": before}, {"quota": quota.name})
    return workload


@transaction.atomic
def reorder_workload(
    *, actor: Actor, workload: Workload, before: Workload | None = None, after: Workload | None = None
) -> Workload:
    """Put waiting work directly before or after another of the same quota and priority. Its priority stays."""
    require(actor, "queue.reorder", workload)
    other = before or after
    if other is None or (before is not None and after is not None):
        raise refuse("before", "invalid", reason="required", wanted="either before or after")
    require(actor, "workload.read", other)
    queue = list(
        Workload.objects.select_for_update(no_key=True, of=("self",))
        .filter(quota=workload.quota_id, priority=workload.priority, state=State.QUEUED, deleted_at__isnull=True)
        .order_by("id")
    )
    line = sorted(queue, key=lambda row: (row.position, row.submitted_at, row.pk))
    mine = next((row for row in line if row.pk == workload.pk), None)
    if mine is None:
        raise refuse("", "workload.state", state=workload.state, allowed=[State.QUEUED], name=workload.name)
    if other.pk == workload.pk or all(row.pk != other.pk for row in line):
        raise refuse("before" if before else "after", "not_found", given=other.name)
    line.remove(mine)
    place = next(index for index, row in enumerate(line) if row.pk == other.pk) + (after is not None)
    line.insert(place, mine)
    _renumber(line, place)
    mine.refresh_from_db()
    facts = {"before" if before else "after": other.name}
    write_event(mine, actor=actor, verb="reordered", at=mine.cluster.now(), facts=facts)
    note(actor, mine, "reordered", {"position": workload.position}, {"position": mine.position})
    return mine


def _renumber(line: list[Workload], place: int) -> None:
    """Give the one at ``place`` a position between its neighbours; those ahead make room where there is none."""
    old = [row.position for row in line]
    new = list(old)
    if place + 1 < len(line):
        new[place] = old[place + 1] - 1
        for index in range(place - 1, -1, -1):
            if new[index] < new[index + 1]:
                break
            new[index] = new[index + 1] - 1
    else:
        new[place] = old[place - 1] + 1
    for row, position in zip(line, new, strict=True):
        if row.position != position:
            Workload.objects.filter(pk=row.pk).update(position=position, revision=F("revision") + 1)


@transaction.atomic
def extend_workload(*, actor: Actor, workload: Workload, seconds: int) -> Workload:
    """Let work that has a limit of time run longer by so many seconds."""
    require(actor, "workload.extend", workload)
    workload = lock_workload(workload)
    require_state(workload, [State.QUEUED, *PLACED])
    if workload.max_runtime_s is None:
        raise refuse("seconds", "invalid", reason="choice", wanted="work that has a limit of time")
    high = SECONDS_MAX - workload.max_runtime_s
    if isinstance(seconds, bool) or not 1 <= seconds <= high:
        raise refuse("seconds", "invalid", reason="range", low=1, high=high, given=str(seconds)[:20])
    before = workload.max_runtime_s
    _change(workload, max_runtime_s=before + seconds)
    facts = {"before": before, "after": workload.max_runtime_s}
    write_event(workload, actor=actor, verb="extended", at=workload.cluster.now(), facts=facts)
    note(actor, workload, "extended", {"max_runtime_s": before}, {"max_runtime_s": workload.max_runtime_s})
    return workload


@transaction.atomic
def change_visibility(*, actor: Actor, workload: Workload, visibility: str) -> Workload:
    """Show the workload to the whole workspace, or to its owner and those who manage all."""
    require(actor, "workload.edit", workload)
    if visibility not in Visibility.values:
        raise refuse("visibility", "invalid", reason="choice", choices=Visibility.values, given=str(visibility)[:20])
    workload = lock_workload(workload)
    before = workload.visibility
    _change(workload, visibility=visibility)
    note(actor, workload, "visibility_changed", {"visibility": before}, {"visibility": visibility})
    return workload
