"""What of a plan still holds when it is applied: rows that moved since the snapshot was loaded are found and locked.

Locks are taken in the order applier, workloads by id, nodes by id; everybody else who takes several keeps to it.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from quotas.models import Node, Quota
from scheduler.core import model as core
from scheduler.snapshots import Loaded
from workloads.models import Kind, Workload


def still_valid(loaded: Loaded, plan: core.Plan, number: int) -> tuple[core.Plan, int]:
    """The plan without what touches rows that moved since the load, and how many parts that took out.

    Nothing is left of it when another plan was applied since, or a quota changed: sums are no longer what they were.
    """
    if number != loaded.cycle + 1 or _quotas_moved(loaded):
        return core.Plan(), max(1, _parts(plan))
    workloads = _moved_workloads(loaded, plan)
    nodes = _moved_nodes(loaded, plan)
    broken = {start.place.workload for start in plan.starts if start.place.node in nodes}
    if not (workloads or broken):
        return plan, 0
    kept = _without(plan, workloads, broken)
    return kept, _parts(plan) - _parts(kept)


def _parts(plan: core.Plan) -> int:
    changes = (plan.starts, plan.evictions, plan.shrinks, plan.moves, plan.releases, plan.opened, plan.waits)
    return sum(len(part) for part in changes)


def _without(plan: core.Plan, moved: set[int], broken: set[int]) -> core.Plan:
    """Nothing for workloads that moved, and nobody leaves in favour of one; `broken` only do not start."""
    gone = moved | broken

    def in_favour(claimant: int | None) -> bool:
        return claimant is None or claimant not in gone

    return replace(
        plan,
        starts=tuple(start for start in plan.starts if start.place.workload not in gone),
        evictions=tuple(e for e in plan.evictions if e.workload not in moved and in_favour(e.claimant)),
        shrinks=tuple(s for s in plan.shrinks if s.workload not in moved and in_favour(s.claimant)),
        moves=tuple(m for m in plan.moves if m.workload not in moved and in_favour(m.claimant)),
        releases=tuple(r for r in plan.releases if r.workload not in moved),
        opened=tuple(r for r in plan.opened if r.claimant not in gone and not gone & {*r.victims}),
        waits=tuple(wait for wait in plan.waits if wait.workload not in moved),
        borrowed=tuple(pair for pair in plan.borrowed if pair[0] not in moved),
    )


def _quotas_moved(loaded: Loaded) -> bool:
    cluster_quotas = Quota.objects.filter(pk__in=list(loaded.quotas)).values_list("id", "revision")
    return dict(cluster_quotas) != dict(loaded.quotas)


def _touched(plan: core.Plan) -> set[int]:
    changes = (plan.evictions, plan.shrinks, plan.moves, plan.releases, plan.waits)
    touched = {entry.workload for part in changes for entry in part}
    touched.update(start.place.workload for start in plan.starts)
    touched.update(reservation.claimant for reservation in plan.opened)
    return touched


def _moved_workloads(loaded: Loaded, plan: core.Plan) -> set[int]:
    """Locks the workloads that the plan changes, in id order, and names those that are not what they were."""
    changes = replace(plan, waits=())
    touched = _touched(changes) | set(services_of(loaded))
    locked = dict[int, tuple[str, int]]()
    found = Workload.objects.filter(pk__in=touched).order_by("id").select_for_update(no_key=True, of=("self",))
    for pk, state, revision in found.values_list("id", "state", "revision"):
        locked[pk] = (state, revision)
    waiting = {wait.workload for wait in plan.waits} - touched
    rows = Workload.objects.filter(pk__in=waiting).values_list("id", "state", "revision")
    locked.update((pk, (state, revision)) for pk, state, revision in rows)
    return {pk for pk in touched | waiting if locked.get(pk) != _known(loaded, pk)}


def _known(loaded: Loaded, workload: int) -> tuple[str, int] | None:
    row = loaded.workloads.get(workload)
    return None if row is None else (row.state, row.revision)


def services_of(loaded: Loaded) -> Iterable[int]:
    return (row.id for row in loaded.workloads.values() if row.kind == Kind.SERVICE)


def _moved_nodes(loaded: Loaded, plan: core.Plan) -> set[int]:
    wanted = sorted({start.place.node for start in plan.starts})
    found = Node.objects.filter(pk__in=wanted).order_by("id").select_for_update(no_key=True, of=("self",))
    now = {pk: (state, revision) for pk, state, revision in found.values_list("id", "state", "revision")}
    return {pk for pk in wanted if now.get(pk) != loaded.nodes.get(pk)}
