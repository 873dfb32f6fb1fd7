"""What the services of this app share."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Any

from quotas.actors import Actor
from quotas.audit import actor_name, record
from quotas.errors import refuse
from quotas.services._common import locked
from scheduler.triggers import request_cycle, signal
from workloads.models import Event, State, Workload


def lock_workload(workload: Workload, revision: int | None = None) -> Workload:
    """The newest state of the workload, locked until the end of the transaction."""
    return locked(workload, revision)


def require_state(workload: Workload, allowed: Iterable[str]) -> None:
    """Refuses with ``workload.state`` unless the workload is in one of the states."""
    states = [str(state) for state in allowed]
    if workload.state not in states or workload.deleted_at is not None:
        raise refuse("", "workload.state", state=workload.state, allowed=states, name=workload.name)


def write_event(workload: Workload, *, actor: Actor, verb: str, at: datetime, facts: Mapping[str, Any]) -> None:
    """An entry of the time line that is no move of state."""
    Event.objects.create(
        workload=workload,
        at=at,
        verb=verb,
        before=workload.state,
        after=workload.state,
        actor=actor_name(actor),
        facts=dict(facts),
    )


def note(actor: Actor, workload: Workload, verb: str, before: Mapping[str, Any], after: Mapping[str, Any]) -> None:
    """The audit entry of a change, the cycle it asks for, and the signals."""
    record(
        actor=actor,
        verb=f"workload.{verb}",
        thing=workload,
        workspace_id=workload.workspace_id,
        before=before,
        after=after,
    )
    request_cycle(workload.cluster_id, f"workload {verb}")
    tell(workload)


def tell(workload: Workload) -> None:
    signal(f"workload.{workload.pk}", "workloads", "queue", f"quota.{workload.quota_id}", "overview")


PLACED = (State.STARTING, State.RUNNING, State.RESIZING, State.PREEMPTING)
