"""What may only go when no work is left: quotas, bindings, workspaces. Refusals list everything in the way."""

from __future__ import annotations

from typing import Any

from django.db import transaction
from django.db.models import F, Q
from django.utils import timezone

from quotas.actors import Actor
from quotas.audit import record
from quotas.errors import refuse
from quotas.models import Quota, Workspace, WorkspaceQuota
from quotas.permissions import require
from quotas.services import lock_promises, state_of
from quotas.services._common import locked
from scheduler.triggers import request_cycle, signal
from workloads.models import FINAL, Workload
from workloads.services.acting import stop_workload

LISTED = 20  # names of each kind that a refusal lists


@transaction.atomic
def unbind_quota(*, actor: Actor, workspace: Workspace, quota: Quota, drain: bool = False) -> None:
    """Take a quota from a workspace that has no live work there; ``drain`` asks that work to stop first.

    With ``drain`` the binding goes at once, so nothing new comes, and what still stops keeps its quota till it is gone.
    """
    require(actor, "workspace.bind_quota", workspace)
    workspace = locked(workspace)
    binding = WorkspaceQuota.objects.filter(workspace=workspace, quota=quota).first()
    if binding is None:
        raise refuse("quota", "workspace.not_bound", quota=quota.name, workspace=workspace.name)
    live = _live(Q(workspace=workspace, quota=quota))
    if drain:
        for workload in live.order_by("id"):
            stop_workload(actor=actor, workload=workload)
    elif live.exists():
        raise refuse("quota", "quota.in_use", blockers={"workloads": _names(live)})
    was_default = binding.is_default
    binding.delete()
    if was_default:
        _make_first_default(workspace)
    after = {"quota": quota.name, "drained": drain}
    record(actor=actor, verb="workspace.quota_unbound", thing=workspace, workspace_id=workspace.pk, before=after)
    signal(f"workspace.{workspace.pk}", f"quota.{quota.pk}")


def _make_first_default(workspace: Workspace) -> None:
    first = WorkspaceQuota.objects.filter(workspace=workspace).order_by("id").first()
    if first is not None:
        first.is_default = True
        first.save(update_fields=["is_default"])


def _live(where: Q) -> Any:
    return Workload.objects.filter(where).exclude(state__in=FINAL)


def _names(found: Any) -> list[str]:
    return list(found.order_by("name").values_list("name", flat=True)[:LISTED])


def blockers_of_quota(quota: Quota) -> dict[str, list[str]]:
    """What keeps a quota from being deleted: names by kind of thing."""
    found = {
        "quotas": _names(quota.children.all()),
        "workspaces": _names(Workspace.objects.filter(bindings__quota=quota)),
        "workloads": _names(_live(Q(quota=quota))),
    }
    return {kind: names for kind, names in found.items() if names}


@transaction.atomic
def delete_quota(*, actor: Actor, quota: Quota) -> None:
    """Delete a quota that has no children, no workspaces and no live work. What it promised is free at once."""
    require(actor, "quota.delete", quota)
    lock_promises(quota.cluster)
    quota = locked(quota)
    blockers = blockers_of_quota(quota)
    if blockers:
        raise refuse("", "quota.in_use", quota=quota.name, blockers=blockers)
    before = state_of(quota)
    quota.amounts.all().delete()
    quota.ledger.all().delete()
    Quota.ever.filter(pk=quota.pk).update(deleted_at=timezone.now(), revision=F("revision") + 1)
    record(actor=actor, verb="quota.deleted", thing=quota, before=before)
    request_cycle(quota.cluster_id, "quota deleted")
    signal("quotas", "overview", f"quota.{quota.pk}")


def blockers_of_workspace(workspace: Workspace) -> dict[str, list[str]]:
    """What keeps a workspace from being deleted."""
    found = {"workloads": _names(_live(Q(workspace=workspace)))}
    return {kind: names for kind, names in found.items() if names}


@transaction.atomic
def delete_workspace(*, actor: Actor, workspace: Workspace) -> None:
    """Delete a workspace without live work: its members, tokens and bindings go, its past work stays for the charts."""
    require(actor, "workspace.delete", workspace)
    workspace = locked(workspace)
    blockers = blockers_of_workspace(workspace)
    if blockers:
        raise refuse("", "workspace.in_use", workspace=workspace.name, blockers=blockers)
    record(
        actor=actor,
        verb="workspace.deleted",
        thing=workspace,
        workspace_id=workspace.pk,
        before={"members": list(workspace.members.values_list("user__username", flat=True))},
    )
    for belongings in (workspace.members, workspace.tokens, workspace.bindings, workspace.custom_roles):
        belongings.all().delete()
    Workspace.ever.filter(pk=workspace.pk).update(deleted_at=timezone.now(), revision=F("revision") + 1)
    signal("workspaces", f"workspace.{workspace.pk}")
