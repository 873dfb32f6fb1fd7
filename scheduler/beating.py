"""The safety net and the clocks: what must happen though nobody asked for it, and what lost messages left undone."""

from __future__ import annotations

import time
from datetime import timedelta

from django.db.models import Q
from django.utils import timezone

from quotas.models import Cluster
from quotas.sealing import seal_audit
from quotas.services import end_requests
from scheduler import settings, triggers
from scheduler.demo_teams import keep_submitting
from scheduler.locks import session_lock
from scheduler.models import Applier, Cycle, Outbox, SimulatedTask
from scheduler.observing import observe
from scheduler.replicas import stop_lost
from workloads.models import Allocation
from workloads.services import apply_due_rules, stop_overdue

WATCH_LOCK = 0x71DF
LONGEST_CALM = timedelta(seconds=10)  # real time after which a cluster is cycled though nobody asked
SLICE_S = 0.1
KEEP_CYCLES = timedelta(days=2)
KEEP_COMMANDS = timedelta(hours=1)
KEEP_REPLICAS = timedelta(hours=1)  # cluster time


def tick() -> None:
    """Once a second: rules and limits that are due, cycles and deliveries that nobody is at."""
    for cluster in Cluster.objects.order_by("id"):
        Cluster.objects.filter(pk=cluster.pk).update(clock_seen_at=timezone.now())
        if settings.PAST in cluster.settings:
            triggers.ask_past(cluster.pk)
            continue
        run_due(cluster)
        stop_lost(cluster.pk, cluster.now() - KEEP_REPLICAS)
        _ask_for_cycle(cluster)
        _send_what_waits(cluster)


def run_due(cluster: Cluster) -> int:
    """What the cluster's own time makes due: scaling rules, limits of time, ends of quota requests, demo teams.

    Returns how many workloads and requests changed or came.
    """
    now = {cluster.pk: cluster.now()}
    return apply_due_rules(now) + stop_overdue(now) + end_requests(now) + keep_submitting(cluster)


def _ask_for_cycle(cluster: Cluster) -> None:
    applier = Applier.objects.filter(cluster=cluster).first()
    if applier is None or applier.wanted > applier.served:
        triggers.wake(cluster.pk, "asked and not served")
    elif applier.next_due_at is not None and applier.next_due_at <= cluster.now():
        triggers.ask_now(cluster.pk, "time itself")
    elif applier.settled_at is None or timezone.now() - applier.settled_at > LONGEST_CALM:
        triggers.ask_now(cluster.pk, "calm for long")


def _send_what_waits(cluster: Cluster) -> None:
    if Outbox.objects.filter(cluster=cluster, delivered_at__isnull=True).exists():
        triggers.ask_delivery(cluster.pk)
    elif Allocation.objects.filter(workload__cluster=cluster, ended_at__isnull=True).exists():
        triggers.ask_observation(cluster.pk)


def watch(cluster: Cluster, seconds: float = 1.0) -> None:
    """Look at the engine now, and again whenever it knows that something happens within so many seconds.

    One at a time for each cluster: whoever comes while somebody watches leaves it to him.
    """
    until = time.monotonic() + seconds
    with session_lock(WATCH_LOCK, cluster.pk) as mine:
        while mine:
            look = observe(cluster)
            if look.next_at is None:
                return
            wait_s = (look.next_at - cluster.now()).total_seconds() / cluster.clock_speed
            if time.monotonic() + wait_s > until:
                return
            time.sleep(min(max(wait_s, 0.001), SLICE_S))


def resume_clocks() -> int:
    """Simulated clusters with a fast clock go on at the instant at which somebody last lived; returns how many.

    A clock at real speed is real time and needs nothing.
    """
    resumed = 0
    for cluster in Cluster.objects.exclude(clock_speed=1).order_by("id"):
        at = cluster.now(max(cluster.clock_seen_at, cluster.clock_real_at))
        now = timezone.now()
        resumed += Cluster.objects.filter(pk=cluster.pk, clock_real_at=cluster.clock_real_at).update(
            clock_at=at, clock_real_at=now, clock_seen_at=now
        )
    return resumed


def trim() -> None:
    """Rows that nobody needs any more, and the seals of past days. Allocations and events are history and stay."""
    now = timezone.now()
    seal_audit(now)
    Cycle.objects.filter(real_at__lt=now - KEEP_CYCLES).delete()
    Outbox.objects.filter(delivered_at__lt=now - KEEP_COMMANDS).delete()
    for cluster in Cluster.objects.order_by("id"):
        old = cluster.now() - KEEP_REPLICAS
        live = Allocation.objects.filter(workload__cluster=cluster, ended_at__isnull=True).values_list("id", flat=True)
        SimulatedTask.objects.filter(Q(ends_at__lt=old) | Q(gone_at__lt=old), cluster=cluster).exclude(
            key__in=[str(pk) for pk in live]
        ).delete()
