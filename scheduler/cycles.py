"""One cycle of one cluster: let go what was stopped, load, decide, apply.

However many workers there are, one cycles at a time: `run_wanted_cycles` holds a lock of the database session. A
request that comes while the holder is on its way out is served by whoever looks next, so none is lost.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from time import perf_counter

from django.db import transaction
from django.db.models import F

from quotas.models import Cluster
from scheduler import settings, triggers
from scheduler.clocks import at_or_none
from scheduler.collecting import collector_at_rest
from scheduler.core.decide import decide
from scheduler.crashpoints import reach
from scheduler.locks import session_lock
from scheduler.models import Applier
from scheduler.plans import Applied, Timings, apply_plan, hold_applier
from scheduler.replicas import end_stopped, leave
from scheduler.snapshots import Loaded, load
from scheduler.waking import next_instant_ms
from workloads.models import Allocation, Phase, State, Workload

CYCLE_LOCK = 0x71DE


@dataclass(frozen=True, slots=True)
class CycleResult:
    """What a cycle saw and what it did. `let_go`: replicas of stopped work that were told to leave before it."""

    loaded: Loaded
    applied: Applied
    let_go: int = 0

    @property
    def has_commands(self) -> bool:
        """Whether the engine has something to hear."""
        return self.let_go > 0 or self.applied.changed


def run_cycle(cluster: Cluster, now: datetime | None = None) -> CycleResult:
    """One cycle at `now` (default: the cluster's time)."""
    now = now or cluster.now()
    told = let_go(cluster, now)
    began = perf_counter()
    loaded = load(cluster, now)
    reach("after_load")
    read = perf_counter()
    policy = settings.policy_for(cluster)
    with collector_at_rest():
        plan = decide(loaded.snapshot, policy)
    decided = perf_counter()
    wake = at_or_none(next_instant_ms(loaded.snapshot, plan, policy))
    applied = apply_plan(cluster, loaded, plan, wake, Timings(read - began, decided - read))
    return CycleResult(loaded, applied, told)


def let_go(cluster: Cluster, now: datetime) -> int:
    """What a person or a limit stopped leaves now; what was stopped and holds nothing has stopped.

    Returns how many replicas were told to leave.
    """
    stopping = Workload.objects.filter(cluster=cluster, state=State.STOPPING)
    if not stopping.exists():
        return 0
    with transaction.atomic():
        hold_applier(cluster.pk)
        rows = dict(stopping.order_by("id").select_for_update(no_key=True).values_list("id", "grace_s"))
        held = Allocation.objects.filter(workload_id__in=list(rows), ended_at__isnull=True)
        live = list(held.filter(phase__in=(Phase.STARTING, Phase.RUNNING)).order_by("id"))
        if live:
            leave(cluster.pk, live, "stopped", now, rows, settings.of(cluster))
            triggers.request_delivery(cluster.pk)
        there = set(held.values_list("workload_id", flat=True))
        end_stopped(rows.keys() - there, now)
        return len(live)


def run_wanted_cycles(cluster_id: int) -> int:
    """Cycles of the cluster until nobody wants one; returns how many (none while somebody else is at it)."""
    done = 0
    while is_wanted(cluster_id):
        with session_lock(CYCLE_LOCK, cluster_id) as mine:
            if not mine:
                return done
            while is_wanted(cluster_id):
                run_cycle(Cluster.objects.get(pk=cluster_id))
                done += 1
    return done


def is_wanted(cluster_id: int) -> bool:
    return Applier.objects.filter(cluster_id=cluster_id, wanted__gt=F("served")).exists()
