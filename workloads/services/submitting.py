"""Submit: one workload or many in one transaction, whatever their number in a fixed number of statements."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import datetime
from typing import Any

from django.db import IntegrityError, connection, transaction

from quotas.actors import Actor, System
from quotas.audit import actor_name, record_many
from quotas.errors import Denied, Problem, Refused
from quotas.models import Cluster, Quota, User, WorkspaceQuota
from quotas.permissions import allowed, grants_of, require
from scheduler.triggers import request_cycle, signal
from workloads.configuration import entries_for, judge, tightened
from workloads.fitting import Fitting
from workloads.models import FINAL, Event, Kind, PoolPreference, State, UsageEntry, Workload
from workloads.specs import REQUEST_FIELDS, Request, WorkloadSpec, spec_of

AUDITED = ("name", "kind", "priority", "replicas", "gpus", "idle")
COPIED = (
    "name",
    "kind",
    "visibility",
    "idle",
    "replicas",
    "min_replicas",
    "max_replicas",
    "topology_required",
    "topology_preferred",
    "image",
    "grace_s",
    "max_runtime_s",
    "max_wait_s",
    "template",
    "restart",
    "retries",
    "checkpoint_every_s",
    "checkpoint_on_signal",
    "estimate_s",
    "duration_s",
    "held",
)


def submit_workload(*, actor: Actor, spec: WorkloadSpec) -> Workload:
    """Submit one workload; it waits in its quota's queue, or runs at once if it is a service that wants nothing."""
    try:
        (workload,) = submit_workloads(actor=actor, specs=[spec])
    except Refused as refused:
        raise Refused(
            Problem(p.field.removeprefix("workloads.0").removeprefix("."), p.code, p.facts) for p in refused.problems
        ) from refused
    return workload


@transaction.atomic
def submit_workloads(*, actor: Actor, specs: Sequence[WorkloadSpec]) -> list[Workload]:
    """Submit all of them or none. Problems are named ``workloads.3.gpus``."""
    _require_rights(actor, specs)
    quotas = {spec.quota.pk: spec.quota for spec in specs}
    by_labels = any(spec.node_selector for spec in specs)
    fittings = {pk: Fitting.load(quota, by_labels=by_labels) for pk, quota in quotas.items()}
    rulings = _Rulings(actor)
    problems = [*_place_problems(specs), *_name_problems(specs)]
    for index, spec in enumerate(specs):
        found = [*judge(rulings.of(spec), spec)]
        found += [] if spec.allow_unsatisfiable else fittings[spec.quota.pk].problems(spec)
        problems += [_at(index, problem) for problem in found]
    if problems:
        raise Refused(problems)
    specs = [tightened(rulings.of(spec), spec) for spec in specs]
    clusters = {pk: quota.cluster for pk, quota in quotas.items()}
    now = {cluster.pk: cluster.now() for cluster in clusters.values()}
    workloads = [_row(spec, actor, clusters[spec.quota.pk], now[spec.quota.cluster_id]) for spec in specs]
    _insert(workloads, specs)
    _note(actor, workloads)
    return workloads


class _Rulings:
    """The entries of the scheduling configuration that concern each submission; like ones are looked up once."""

    def __init__(self, actor: Actor) -> None:
        self.actor = actor if isinstance(actor, User) else None
        self._known: dict[tuple[int, int, int | None], list[UsageEntry]] = {}

    def of(self, spec: WorkloadSpec) -> list[UsageEntry]:
        owner = spec.owner or self.actor
        key = (spec.workspace.pk, spec.quota.pk, owner.pk if owner is not None else None)
        if key not in self._known:
            self._known[key] = entries_for(spec.workspace, spec.quota, owner)
        return self._known[key]


def _at(index: int, problem: Problem) -> Problem:
    return Problem(f"workloads.{index}.{problem.field}".rstrip("."), problem.code, problem.facts)


def _require_rights(actor: Actor, specs: Sequence[WorkloadSpec]) -> None:
    """One check for each workspace and kind. Only the system submits in somebody else's name."""
    grants = grants_of(actor)
    for workspace, kind in {(spec.workspace, spec.kind) for spec in specs}:
        require(actor, f"workload.submit_{kind}", workspace, grants=grants)
    if not isinstance(actor, System) and any(spec.owner not in (None, actor) for spec in specs):
        raise Denied("workload.submit")


def _place_problems(specs: Sequence[WorkloadSpec]) -> Iterator[Problem]:
    """The workspace takes work and is bound to the quota, and stays so until the end of this transaction."""
    workspace_ids = sorted({spec.workspace.pk for spec in specs})
    archived = _share_workspaces(workspace_ids)
    bindings = WorkspaceQuota.objects.filter(workspace_id__in=workspace_ids)
    bound = set(bindings.values_list("workspace_id", "quota_id"))
    for index, spec in enumerate(specs):
        names = {"workspace": spec.workspace.name, "quota": spec.quota.name}
        if archived.get(spec.workspace.pk, True):
            yield Problem(f"workloads.{index}.workspace", "workspace.archived", names)
        if (spec.workspace.pk, spec.quota.pk) not in bound:
            yield Problem(f"workloads.{index}.quota", "workspace.not_bound", names)


def _share_workspaces(workspace_ids: list[int]) -> dict[int, bool]:
    """Whether each workspace is archived. Submissions share its row, whoever archives or unbinds waits for them."""
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT id, archived_at IS NOT NULL FROM quotas_workspace"
            " WHERE id = ANY(%s) AND deleted_at IS NULL ORDER BY id FOR SHARE",
            [workspace_ids],
        )
        return dict(cursor.fetchall())


def _name_problems(specs: Sequence[WorkloadSpec]) -> Iterator[Problem]:
    """Names are unique among the live workloads of a workspace."""
    taken = set(
        Workload.objects.filter(
            workspace_id__in={spec.workspace.pk for spec in specs},
            name__in={spec.name for spec in specs},
            deleted_at__isnull=True,
        )
        .exclude(state__in=FINAL)
        .values_list("workspace_id", "name")
    )
    for index, spec in enumerate(specs):
        key = (spec.workspace.pk, spec.name)
        if key in taken:
            yield Problem(f"workloads.{index}.name", "conflict", {"given": spec.name})
        taken.add(key)


def _row(spec: WorkloadSpec, actor: Actor, cluster: Cluster, now: datetime) -> Workload:
    empty = spec.kind == Kind.SERVICE and spec.replicas == 0
    return Workload(
        cluster=cluster,
        workspace=spec.workspace,
        quota=spec.quota,
        owner=spec.owner or (actor if isinstance(actor, User) else None),
        state=State.RUNNING if empty else State.QUEUED,
        state_at=now,
        submitted_at=now,
        started_at=now if empty else None,
        position=int(now.timestamp() * 1000),
        priority=spec.real_priority,
        preemptible=spec.real_preemptible,
        gang=spec.real_gang,
        master=_request(spec.master) if spec.master else None,
        labels=dict(spec.labels),
        node_selector=dict(spec.node_selector),
        environment=dict(spec.environment),
        command=list(spec.command),
        **_request(spec.request),
        **{name: getattr(spec, name) for name in COPIED},
    )


def _request(request: Request) -> dict[str, int]:
    return {name: getattr(request, name) for name in REQUEST_FIELDS}


def _insert(workloads: list[Workload], specs: Sequence[WorkloadSpec]) -> None:
    try:
        with transaction.atomic():
            Workload.objects.bulk_create(workloads)
    except IntegrityError as error:  # somebody took a name between the check and here
        if getattr(error.__cause__, "sqlstate", "") != "23505":
            raise
        raise Refused(_name_problems(specs)) from error
    PoolPreference.objects.bulk_create(
        PoolPreference(workload=workload, pool=pool, order=order)
        for workload, spec in zip(workloads, specs, strict=True)
        for order, pool in enumerate(spec.pools)
    )


def _note(actor: Actor, workloads: Sequence[Workload]) -> None:
    who = actor_name(actor)
    Event.objects.bulk_create(
        Event(workload=row, at=row.submitted_at, verb="submitted", after=row.state, actor=who) for row in workloads
    )
    after: list[dict[str, Any]] = [{name: getattr(row, name) for name in AUDITED} for row in workloads]
    record_many(actor=actor, verb="workload.submitted", things=workloads, after=after)
    for cluster_id in sorted({row.cluster_id for row in workloads}):
        request_cycle(cluster_id, "workload submitted")
    quotas = sorted({row.quota_id for row in workloads})
    signal("workloads", "queue", "overview", *(f"quota.{pk}" for pk in quotas))


def clone_workload(*, actor: Actor, workload: Workload, name: str) -> Workload:
    """Submit the same again under another name, in the actor's own name.

    The environment, which may hold secrets, comes along only for those who may read it.
    """
    require(actor, "workload.read", workload)
    hidden: dict[str, Any] = {} if allowed(actor, "workload.edit", workload) else {"environment": {}}
    return submit_workload(actor=actor, spec=spec_of(workload, name=name, **hidden))


@transaction.atomic
def judge_submission(*, actor: Actor, spec: WorkloadSpec) -> list[Problem]:
    """What a submission would be refused for; nothing is written."""
    _require_rights(actor, [spec])
    problems = [*_place_problems([spec]), *_name_problems([spec])]
    problems += [_at(0, problem) for problem in judge(_Rulings(actor).of(spec), spec)]
    if not spec.allow_unsatisfiable:
        problems += [_at(0, problem) for problem in Fitting.load(spec.quota).problems(spec)]
    return [Problem(p.field.removeprefix("workloads.0").removeprefix("."), p.code, p.facts) for p in problems]


def quota_for(workload: Workload, quota: Quota) -> list[Problem]:
    """Why the workload could not stand in another quota of its workspace."""
    return [*place_for(workload, quota), *Fitting.load(quota).problems(spec_of(workload, quota=quota))]


def place_for(workload: Workload, quota: Quota) -> list[Problem]:
    """Why its workspace would not take the workload in the quota now: archived, not bound, or not configured for it."""
    spec = spec_of(workload, quota=quota)
    entries = entries_for(workload.workspace, quota, workload.owner)
    placed = [Problem(p.field.removeprefix("workloads.0."), p.code, p.facts) for p in _place_problems([spec])]
    return [*placed, *judge(entries, spec)]
