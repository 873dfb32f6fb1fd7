"""States of nodes. Cordon and drain only mark; the cycle acts on the mark. A lost node ends what it held at once."""

from __future__ import annotations

from datetime import datetime, timedelta

from django.db import transaction
from django.db.models import F, Q

from quotas.actors import Actor
from quotas.audit import record
from quotas.errors import refuse
from quotas.models import Node, NodeState
from quotas.permissions import require
from quotas.services._common import locked
from scheduler.triggers import request_cycle, signal
from workloads.models import Allocation, Event, Phase, State, Workload
from workloads.services._common import tell
from workloads.states import Move, move_many

REASON_MAX = 200


@transaction.atomic
def set_node_state(*, actor: Actor, node: Node, state: str, reason: str = "") -> Node:
    """Cordon, uncordon, drain or lose a node. Setting the state it has changes nothing but the reason."""
    require(actor, "node.manage", node)
    if state not in NodeState.values:
        raise refuse("state", "invalid", reason="choice", choices=NodeState.values, given=str(state)[:20])
    if len(reason) > REASON_MAX:
        raise refuse("reason", "invalid", reason="length", most=REASON_MAX, given=len(reason))
    node = _locked_with_work(node) if state == NodeState.LOST else locked(node)
    before, now = node.state, node.cluster.now()
    if (before, node.state_reason) == (state, reason):
        return node
    Node.objects.filter(pk=node.pk).update(state=state, state_reason=reason, state_at=now, revision=F("revision") + 1)
    node.refresh_from_db()
    if state == NodeState.LOST and before != state:
        _lose_what_it_held(actor, node, now)
    record(
        actor=actor,
        verb="node.state",
        thing=node,
        before={"state": before},
        after={"state": state, "reason": reason},
    )
    request_cycle(node.cluster_id, f"node {state}")
    signal("nodes", f"node.{node.pk}", "overview")
    return node


def _locked_with_work(node: Node) -> Node:
    """The node's row locked, after those of the workloads on it: the order in which a plan takes them.

    What a plan has put there between the two locks makes us let go and begin again.
    """
    while True:
        with transaction.atomic():
            held = Allocation.objects.filter(node=node, ended_at__isnull=True).values("workload_id")
            rows = Workload.objects.select_for_update(no_key=True, of=("self",)).filter(pk__in=held).order_by("id")
            known = {workload.pk for workload in rows}
            fresh = locked(node)
            if set(held.values_list("workload_id", flat=True)) <= known:
                return fresh
            transaction.set_rollback(True)


def _lose_what_it_held(actor: Actor, node: Node, now: datetime) -> None:
    """End the node's allocations; what has nothing left goes back to the queue, a service is short of replicas."""
    held = Allocation.objects.filter(node=node, ended_at__isnull=True)
    workload_ids = sorted(set(held.values_list("workload_id", flat=True)))
    touched = list(
        Workload.objects.select_for_update(no_key=True, of=("self",)).filter(pk__in=workload_ids).order_by("id")
    )
    lost = {pk: list(held.filter(workload_id=pk).values_list("index", flat=True)) for pk in workload_ids}
    left = _still_live(workload_ids, node)
    ran = _ran_s(workload_ids, now)
    held.update(phase=Phase.ENDED, ended_at=now, outcome="lost")
    moves = [move for w in touched if (move := _move_of(w, node, left.get(w.pk, 0), ran.get(w.pk, 0))) is not None]
    moved = move_many(moves, at=now, by=actor)
    Event.objects.bulk_create(
        Event(
            workload=workload,
            at=now,
            verb="worker_lost",
            before=workload.state,
            after=workload.state,
            actor=node.name,
            facts={"node": node.name, "workers": lost[workload.pk]},
        )
        for workload in touched
        if workload.pk not in moved
    )
    for workload in touched:
        tell(workload)


def _still_live(workload_ids: list[int], node: Node) -> dict[int, int]:
    """How many allocations each workload has on other nodes."""
    counts: dict[int, int] = {}
    others = Allocation.objects.filter(workload_id__in=workload_ids, ended_at__isnull=True).exclude(node=node)
    for pk in others.values_list("workload_id", flat=True):
        counts[pk] = counts.get(pk, 0) + 1
    return counts


def _ran_s(workload_ids: list[int], now: datetime) -> dict[int, int]:
    """Seconds that this run of each workload has been running."""
    live = Allocation.objects.filter(Q(workload_id__in=workload_ids), ended_at__isnull=True, running_at__isnull=False)
    since: dict[int, datetime] = {}
    for pk, running_at in live.values_list("workload_id", "running_at"):
        if running_at is not None:
            since[pk] = max(running_at, since.get(pk, running_at))
    return {pk: max(0, int((now - begun) / timedelta(seconds=1))) for pk, begun in since.items()}


def _move_of(workload: Workload, node: Node, left: int, ran_s: int) -> Move | None:
    """The move that follows from the loss; None: the state stays (a gang that has workers left is stale for now)."""
    before, facts = workload.state, {"node": node.name}
    if before == State.STOPPING:
        return None if left else _after_stop(workload)
    if workload.gang or before == State.PREEMPTING:
        if left:
            return None
        return Move(workload.pk, before, State.QUEUED, "lost", facts, done_s=_saved_s(workload, ran_s))
    if before == State.RUNNING:
        return Move(workload.pk, before, State.RESIZING, "lost", facts)
    return None


def _after_stop(workload: Workload) -> Move:
    if workload.restart_wanted:
        return Move(workload.pk, State.STOPPING, State.QUEUED, "restarted", done_s=0)
    return Move(workload.pk, State.STOPPING, State.STOPPED, "stopped")


def _saved_s(workload: Workload, ran_s: int) -> int:
    """Run time that checkpoints have saved; nobody was asked for one, so only the regular ones count."""
    every = workload.checkpoint_every_s
    if not every:
        return workload.done_s if workload.checkpoint_on_signal else 0
    return workload.done_s + ran_s // every * every
