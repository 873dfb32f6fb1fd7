"""The scheduler's own rows: the applier, cycles, reservations, the outbox and the simulated machines."""

from __future__ import annotations

from typing import ClassVar

from django.db import models
from django.db.models import Q
from django.utils import timezone

from quotas.models import Cluster
from workloads.models import Workload


class Applier(models.Model):
    """One row a cluster, taken with an UPDATE before a plan is applied: sums over rows are guarded by it.

    ``wanted`` counts requests for a cycle, ``served`` the value that the last cycle had seen when it loaded.
    """

    cluster = models.OneToOneField(Cluster, on_delete=models.CASCADE, primary_key=True, related_name="applier")
    revision = models.BigIntegerField(default=0)
    cycle = models.BigIntegerField(default=0)
    wanted = models.BigIntegerField(default=1)
    served = models.BigIntegerField(default=0)
    settled_at = models.DateTimeField(null=True, blank=True)  # real time of the last applied cycle
    next_due_at = models.DateTimeField(null=True, blank=True)  # cluster time at which time itself matters next
    observed_at = models.DateTimeField(null=True, blank=True)  # real time of the last look at the engine


class Cycle(models.Model):
    """What one cycle did and how long it took (seconds of real time). Old rows are trimmed."""

    cluster = models.ForeignKey(Cluster, on_delete=models.CASCADE, related_name="cycles")
    number = models.BigIntegerField()
    at = models.DateTimeField()  # cluster time
    real_at = models.DateTimeField(default=timezone.now)
    load_s = models.FloatField(default=0)
    decide_s = models.FloatField(default=0)
    apply_s = models.FloatField(default=0)
    started = models.PositiveIntegerField(default=0)
    evicted = models.PositiveIntegerField(default=0)
    moved = models.PositiveIntegerField(default=0)
    waiting = models.PositiveIntegerField(default=0)
    refused = models.PositiveIntegerField(default=0)  # parts of the plan that had moved meanwhile

    class Meta:
        ordering = ("-id",)
        constraints: ClassVar = [models.UniqueConstraint(fields=("cluster", "number"), name="cycle_number_once")]


class Reservation(models.Model):
    """Room that is kept for a claimant: being handed over, the place of a move, or kept for who waits long."""

    class What(models.TextChoices):
        HANDOVER = "handover", "hand-over"
        MOVE = "move", "place of a moved workload"
        HEAD = "head", "reservation of a waiting head"
        INCOMING = "incoming", "room that is on its way"

    cluster = models.ForeignKey(Cluster, on_delete=models.CASCADE, related_name="reservations")
    claimant = models.ForeignKey(Workload, on_delete=models.CASCADE, related_name="reservations")
    what = models.CharField(max_length=8, choices=What)
    rule = models.CharField(max_length=8, blank=True, default="")
    body = models.JSONField()  # rooms, victims and what the core wants to know again; see scheduler/reservations.py
    opened_at = models.DateTimeField()
    expires_at = models.DateTimeField(null=True, blank=True)
    needed_at = models.DateTimeField(null=True, blank=True)

    class Meta:
        ordering = ("id",)


class Outbox(models.Model):
    """A command to an engine, written with the plan and delivered by a worker; the key makes it idempotent."""

    class Verb(models.TextChoices):
        START = "start", "start"
        STOP = "stop", "stop"

    cluster = models.ForeignKey(Cluster, on_delete=models.CASCADE, related_name="outbox")
    verb = models.CharField(max_length=5, choices=Verb)
    key = models.CharField(max_length=40)  # "ALLOCATION": what the engine knows the replica by
    payload = models.JSONField()
    created_at = models.DateTimeField(default=timezone.now)
    taken_at = models.DateTimeField(null=True, blank=True)  # a worker has it; free again after a while
    attempts = models.PositiveIntegerField(default=0)
    error = models.CharField(max_length=300, blank=True, default="")
    delivered_at = models.DateTimeField(null=True, blank=True)

    class Meta:
        ordering = ("id",)
        indexes: ClassVar = [
            models.Index(fields=("cluster", "id"), name="outbox_open", condition=Q(delivered_at__isnull=True))
        ]
        constraints: ClassVar = [models.UniqueConstraint(fields=("verb", "key"), name="outbox_once")]


class SimulatedTask(models.Model):
    """A process on a simulated machine. Only the simulated engine reads and writes these; times are cluster times."""

    cluster = models.ForeignKey(Cluster, on_delete=models.CASCADE, related_name="+")
    key = models.CharField(max_length=40)
    name = models.CharField(max_length=63, blank=True, default="")
    node_name = models.CharField(max_length=253, blank=True, default="")
    accepted_at = models.DateTimeField()
    running_at = models.DateTimeField()
    ends_at = models.DateTimeField(null=True, blank=True)  # None: runs until it is stopped
    stopped_at = models.DateTimeField(null=True, blank=True)  # the stop signal
    gone_at = models.DateTimeField(null=True, blank=True)  # after a stop signal, or when it died
    exit_code = models.SmallIntegerField(null=True, blank=True)
    exit_reason = models.CharField(max_length=40, blank=True, default="")

    class Meta:
        constraints: ClassVar = [models.UniqueConstraint(fields=("cluster", "key"), name="simulated_key_once")]
