"""Requests for more quota: a workspace asks until an instant, the platform decides, and it ends by itself."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Self

from django.db import transaction
from django.utils import timezone

from quotas.actors import Actor, System
from quotas.audit import record
from quotas.errors import refuse
from quotas.models import Cluster, NodePool, Quota, QuotaAmount, QuotaRequest, RequestState, Workspace, WorkspaceQuota
from quotas.permissions import require
from quotas.services._common import as_user, locked
from quotas.services.trees import lock_promises, set_amounts
from quotas.specs import DESCRIPTION_MAX, RESOURCES, AmountSpec, Reader
from scheduler.core.resources import LARGEST
from scheduler.triggers import signal

CLOCK = System("quota requests")


@dataclass(frozen=True, slots=True)
class QuotaRequestSpec:
    """How much more (base units) of one pool, and until when in the cluster's time."""

    quota: Quota
    pool: NodePool
    until: datetime
    more_gpu_milli: int = 0
    more_cpu_milli: int = 0
    more_memory_mib: int = 0
    reason: str = ""

    @classmethod
    def from_mapping(cls, data: Mapping[str, Any], *, workspace: Workspace) -> Self:
        """Reads a request; the quota is one of the workspace's, the pool one of the quota's (default: its only one)."""
        read = Reader(data)
        quota = read.one_of("quota", Quota.objects.filter(bindings__workspace=workspace))
        pools = NodePool.objects.filter(amounts__quota=quota) if quota is not None else NodePool.objects.none()
        only = pools.first() if quota is not None and pools.count() == 1 else None
        pool = read.one_of("pool", pools, default=only)
        if pool is None and not read.given("pool"):
            read.bad("pool", "required")
        spec = cls(
            quota=quota,
            pool=pool,
            until=read.instant("until", default=None),
            **{f"more_{name}": read.whole(f"more_{name}", low=0, high=LARGEST, default=0) for name in RESOURCES},
            reason=read.text("reason", most=DESCRIPTION_MAX, default=""),
        )
        if not read.given("until"):
            read.bad("until", "required")
        if not any(read.data.get(f"more_{name}") for name in RESOURCES):
            read.bad("more_gpu_milli", "range", low=1, high=LARGEST, given=0)
        read.finish()
        return spec


@transaction.atomic
def request_quota(*, actor: Actor, workspace: Workspace, spec: QuotaRequestSpec) -> QuotaRequest:
    """Ask that one of the workspace's quotas is promised more for a time."""
    require(actor, "quota.request", workspace)
    if not WorkspaceQuota.objects.filter(workspace=workspace, quota=spec.quota).exists():
        raise refuse("quota", "workspace.not_bound", quota=spec.quota.name, workspace=workspace.name)
    if spec.until <= spec.quota.cluster.now():
        raise refuse("until", "invalid", reason="range", low=spec.quota.cluster.now().isoformat())
    values = {field.name: getattr(spec, field.name) for field in dataclasses.fields(spec)}
    request = QuotaRequest.objects.create(workspace=workspace, asked_by=as_user(actor), **values)
    _note(actor, request, "requested")
    return request


@transaction.atomic
def withdraw_request(*, actor: Actor, request: QuotaRequest) -> QuotaRequest:
    """Take an open request back."""
    require(actor, "quota.request", request)
    request = _open(request)
    return _decide(actor, request, RequestState.WITHDRAWN, "")


@transaction.atomic
def approve_request(*, actor: Actor, request: QuotaRequest, answer: str = "") -> QuotaRequest:
    """Promise what is asked, if the tree has it; it ends by itself."""
    require(actor, "quota.decide_request", request)
    request = _open(request)
    if request.until <= request.quota.cluster.now():
        raise refuse("until", "invalid", reason="range", low=request.quota.cluster.now().isoformat())
    _change(actor, request, +1, "request approved")
    return _decide(actor, request, RequestState.APPROVED, answer)


@transaction.atomic
def decline_request(*, actor: Actor, request: QuotaRequest, answer: str = "") -> QuotaRequest:
    """Say no."""
    require(actor, "quota.decide_request", request)
    return _decide(actor, _open(request), RequestState.DECLINED, answer)


def end_requests(now_by_cluster: Mapping[int, datetime] | None = None) -> int:
    """Take back what was promised until an instant that has come; how many requests ended.

    ``now_by_cluster``: the clusters to look at and their time; None: all at their own time.
    """
    times = now_by_cluster if now_by_cluster is not None else {c.pk: c.now() for c in Cluster.objects.all()}
    ended = 0
    for cluster_id, now in sorted(times.items()):
        due = QuotaRequest.objects.filter(
            quota__cluster_id=cluster_id, state=RequestState.APPROVED, until__lte=now
        ).order_by("id")
        ended += sum(_end(pk) for pk in due.values_list("pk", flat=True))
    return ended


@transaction.atomic
def _end(pk: int) -> int:
    request = QuotaRequest.objects.select_for_update(no_key=True, of=("self",)).get(pk=pk)
    if request.state != RequestState.APPROVED:
        return 0  # another worker was faster
    if request.quota.deleted_at is None:
        _change(CLOCK, request, -1, "request ended")
    QuotaRequest.objects.filter(pk=pk).update(state=RequestState.ENDED)
    _note(CLOCK, request, "ended")
    return 1


def _open(request: QuotaRequest) -> QuotaRequest:
    request = locked(request)
    if request.state != RequestState.OPEN:
        raise refuse("", "request.state", state=request.state, allowed=[RequestState.OPEN])
    return request


def _change(actor: Actor, request: QuotaRequest, sign: int, verb: str) -> None:
    """Add what was asked to the guarantee, or take it back as far as the quotas below leave it."""
    tree = lock_promises(request.quota.cluster)
    row = QuotaAmount.objects.filter(quota=request.quota, pool=request.pool).first()
    spec = AmountSpec.of(row)
    for resource in RESOURCES:
        more = getattr(request, f"more_{resource}")
        if more:
            had = spec.guaranteed(resource) or 0
            least = tree.promised_below(request.quota_id, request.pool_id, resource)
            wanted = had + more if sign > 0 else max(had - more, least, 0)
            spec = dataclasses.replace(spec, **{f"guaranteed_{resource}": wanted})
            limit = spec.limit(resource)
            if limit is not None and limit < wanted:
                spec = dataclasses.replace(spec, **{f"limit_{resource}": wanted})
    set_amounts(actor=actor, changes={request.quota: {request.pool: spec}}, verb=verb)


def _decide(actor: Actor, request: QuotaRequest, state: RequestState, answer: str) -> QuotaRequest:
    if len(answer) > DESCRIPTION_MAX:
        raise refuse("answer", "invalid", reason="length", most=DESCRIPTION_MAX, given=len(answer))
    QuotaRequest.objects.filter(pk=request.pk).update(
        state=state, decided_by=as_user(actor), decided_at=timezone.now(), answer=answer
    )
    request.refresh_from_db()
    _note(actor, request, str(state))
    return request


def _note(actor: Actor, request: QuotaRequest, verb: str) -> None:
    asked = {f"more_{name}": getattr(request, f"more_{name}") for name in RESOURCES}
    record(
        actor=actor,
        verb=f"quota_request.{verb}",
        thing=request.quota,
        workspace_id=request.workspace_id,
        facts={**asked, "pool": request.pool.name, "until": request.until.isoformat(), "request": request.pk},
    )
    signal(f"workspace.{request.workspace_id}", f"quota.{request.quota_id}", "overview")
