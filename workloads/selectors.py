"""What runs, waits and has run, as far as the actor may see it."""

from __future__ import annotations

from collections.abc import Iterable

from django.db.models import F, Func, IntegerField, QuerySet, Sum
from django.db.models.functions import Coalesce

from quotas.actors import Actor
from quotas.errors import NotFound
from quotas.models import Quota
from quotas.permissions import Grants, grants_of, workload_scope
from scheduler.core.resources import Amount
from workloads.models import Allocation, Event, Phase, ScalingRule, State, Workload


def visible_workloads(actor: Actor, *, grants: Grants | None = None) -> QuerySet[Workload]:
    """Workloads that exist for the actor; deleted ones do for nobody."""
    return Workload.objects.filter(workload_scope(actor, grants=grants), deleted_at__isnull=True)


def list_workloads(*, actor: Actor, state: State | None = None) -> QuerySet[Workload]:
    """Workloads the actor may see, newest first; a row of the table costs no further query."""
    found = visible_workloads(actor).select_related("quota", "workspace", "owner")
    if state is not None:
        found = found.filter(state=state)
    return found.order_by("-submitted_at", "-id")


def get_workload(*, actor: Actor, pk: int) -> Workload:
    """The workload with what its page shows read along."""
    found = visible_workloads(actor).select_related("cluster", "quota", "workspace", "owner", "verdict").filter(pk=pk)
    workload = found.first()
    if workload is None:
        raise NotFound("workload")
    return workload


def get_rule(*, actor: Actor, pk: int) -> ScalingRule:
    """A scaling rule of a service that the actor sees."""
    grants = grants_of(actor)
    found = ScalingRule.objects.filter(workload_scope(actor, "workload__", grants=grants))
    rule = found.filter(pk=pk, workload__deleted_at__isnull=True).select_related("workload__cluster").first()
    if rule is None:
        raise NotFound("rule")
    return rule


def timeline(workload: Workload) -> QuerySet[Event]:
    """The workload's events, oldest first."""
    return workload.events.order_by("id")


def place_in_queue(*, actor: Actor, workload: Workload) -> int | None:
    """Its place in the queue of its quota among what the actor sees, from 1; None when it is in no queue."""
    verdict = getattr(workload, "verdict", None)
    if verdict is None or verdict.queue_position is None:
        return None
    waiting = visible_workloads(actor).filter(quota=workload.quota_id)
    return waiting.filter(verdict__queue_position__lt=verdict.queue_position).count() + 1


def subtree_of(quota: Quota) -> list[int]:
    """Ids of the quota and all below it."""
    pairs = Quota.objects.filter(cluster_id=quota.cluster_id).values_list("id", "parent_id")
    children: dict[int | None, list[int]] = {}
    for pk, parent in pairs:
        children.setdefault(parent, []).append(pk)
    found = [quota.pk]
    for pk in found:
        found.extend(children.get(pk, ()))
    return found


def use_of(quota_ids: Iterable[int]) -> dict[int, Amount]:
    """What work of these quotas holds now by pool, counted from live allocations; leaving work is not counted."""
    held = Allocation.objects.filter(quota_id__in=list(quota_ids), ended_at__isnull=True).exclude(phase=Phase.LEAVING)
    devices = Func(F("devices"), function="cardinality", output_field=IntegerField())
    rows = held.values("pool_id").annotate(
        gpu=Coalesce(Sum(devices * F("gpu_milli")), 0),
        cpu=Coalesce(Sum("cpu_milli"), 0, output_field=IntegerField()),
        memory=Coalesce(Sum("memory_mib"), 0, output_field=IntegerField()),
    )
    return {row["pool_id"]: Amount(row["gpu"], row["cpu"], row["memory"]) for row in rows.order_by("pool_id")}
