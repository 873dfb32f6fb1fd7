"""What runs or waits: workloads, their allocations, verdicts, events and scaling rules.

Times of a workload and its allocations are cluster times (``Cluster.now``); durations are seconds.
"""

from __future__ import annotations

from typing import ClassVar

from django.contrib.postgres.fields import ArrayField
from django.db import models
from django.db.models import F, Q
from django.db.models.functions import Lower
from django.utils import timezone

from quotas.models import KINDS, Cluster, CustomRole, Node, NodePool, Quota, Role, User, Workspace


class Kind(models.TextChoices):
    TRAINING = "training", "training job"
    NOTEBOOK = "notebook", "notebook"
    SERVICE = "service", "inference service"


class Idle(models.TextChoices):
    """Whether work may start on room that is promised to others but idle."""

    NEVER = "never", "never"
    ALLOW = "allow", "allow"
    ONLY = "only", "only"


class State(models.TextChoices):
    QUEUED = "queued", "queued"
    STARTING = "starting", "starting"
    RUNNING = "running", "running"
    RESIZING = "resizing", "resizing"
    PREEMPTING = "preempting", "preempting"
    STOPPING = "stopping", "stopping"
    SUCCEEDED = "succeeded", "succeeded"
    FAILED = "failed", "failed"
    STOPPED = "stopped", "stopped"


FINAL = (State.SUCCEEDED, State.FAILED, State.STOPPED)
LIVE = tuple(state for state in State if state not in FINAL)


def all_kinds() -> list[str]:
    return list(KINDS)


class Visibility(models.TextChoices):
    PRIVATE = "private", "private"
    SHARED = "shared", "shared in the workspace"


class Restart(models.TextChoices):
    NEVER = "never", "never"
    ON_FAILURE = "on_failure", "on failure"


class Workload(models.Model):
    """A training job, notebook or service: what it asks for, and where it stands.

    The request is per replica: ``gpus`` devices with ``gpu_milli`` thousandths of each (1000 = whole), or
    ``gpu_memory_mib`` of each; CPU and memory beside it. ``master`` holds the request (same keys) of an optional
    master of a training job, which then is worker group 0 and the workers are group 1.
    """

    cluster = models.ForeignKey(Cluster, on_delete=models.PROTECT, related_name="workloads")
    workspace = models.ForeignKey(Workspace, on_delete=models.PROTECT, related_name="workloads")
    quota = models.ForeignKey(Quota, on_delete=models.PROTECT, related_name="workloads")
    owner = models.ForeignKey(User, on_delete=models.PROTECT, null=True, blank=True, related_name="workloads")
    name = models.CharField(max_length=63)
    kind = models.CharField(max_length=12, choices=Kind)
    visibility = models.CharField(max_length=8, choices=Visibility, default=Visibility.SHARED)
    labels = models.JSONField(default=dict, blank=True)

    state = models.CharField(max_length=12, choices=State, default=State.QUEUED)
    held = models.BooleanField(default=False)
    state_at = models.DateTimeField()
    submitted_at = models.DateTimeField()  # first submission; kept through preemptions
    started_at = models.DateTimeField(null=True, blank=True)  # of this run
    finished_at = models.DateTimeField(null=True, blank=True)
    starts = models.PositiveIntegerField(default=0)  # restarts = starts - 1
    failures = models.PositiveIntegerField(default=0)
    deleted_at = models.DateTimeField(null=True, blank=True)  # hidden everywhere; allocations stay for the charts
    restart_wanted = models.BooleanField(default=False)  # stopping, and to be queued again when it is gone
    position = models.BigIntegerField(default=0)  # order inside one priority; first submission in ms unless moved
    not_before = models.DateTimeField(null=True, blank=True)
    revision = models.PositiveIntegerField(default=1)

    priority = models.PositiveSmallIntegerField()
    idle = models.CharField(max_length=6, choices=Idle, default=Idle.NEVER)
    preemptible = models.BooleanField()
    pools = models.ManyToManyField(NodePool, through="PoolPreference", related_name="+")

    gpus = models.PositiveIntegerField(default=0)
    gpu_milli = models.PositiveIntegerField(default=1000)
    gpu_memory_mib = models.PositiveBigIntegerField(default=0)
    cpu_milli = models.PositiveBigIntegerField(default=0)
    memory_mib = models.PositiveBigIntegerField(default=0)
    replicas = models.PositiveIntegerField(default=1)  # wanted: workers or replicas
    min_replicas = models.PositiveIntegerField(null=True, blank=True)  # elastic training
    max_replicas = models.PositiveIntegerField(null=True, blank=True)
    gang = models.BooleanField(default=True)
    master = models.JSONField(null=True, blank=True)
    node_selector = models.JSONField(default=dict, blank=True)
    topology_required = models.CharField(max_length=63, blank=True, default="")
    topology_preferred = models.CharField(max_length=63, blank=True, default="")

    image = models.CharField(max_length=300, blank=True, default="")
    command = models.JSONField(default=list, blank=True)
    environment = models.JSONField(default=dict, blank=True)
    grace_s = models.PositiveIntegerField(null=True, blank=True)  # None: the cluster's eviction grace
    max_runtime_s = models.PositiveIntegerField(null=True, blank=True)
    max_wait_s = models.PositiveIntegerField(null=True, blank=True)  # waits no longer than this; None: for ever
    template = models.CharField(max_length=63, blank=True, default="")  # the size that the submission named
    restart = models.CharField(max_length=10, choices=Restart, default=Restart.NEVER)
    retries = models.PositiveSmallIntegerField(default=0)
    checkpoint_every_s = models.PositiveIntegerField(null=True, blank=True)
    checkpoint_on_signal = models.BooleanField(default=False)
    estimate_s = models.PositiveIntegerField(null=True, blank=True)  # what the owner expects; forecasts use it
    duration_s = models.PositiveIntegerField(null=True, blank=True)  # simulated engine: how long it really runs
    done_s = models.PositiveIntegerField(default=0)  # run time saved by checkpoints of earlier runs

    borrowed_gpu_milli = models.PositiveBigIntegerField(default=0)  # as of the last cycle
    size_by = models.CharField(max_length=80, blank=True, default="")  # who set ``replicas``: a person or rule NAME
    size_at = models.DateTimeField(null=True, blank=True)  # since when, for level-based scaling
    size_rule_at = models.DateTimeField(null=True, blank=True)  # the firing that was applied last

    class Meta:
        ordering = ("-submitted_at", "-id")
        indexes: ClassVar = [
            models.Index(
                fields=("cluster", "state"),
                name="workload_live",
                condition=~Q(state__in=("succeeded", "failed", "stopped")),
            ),
            models.Index(fields=("workspace", "-submitted_at", "-id"), name="workload_by_workspace"),
            models.Index(fields=("quota", "-submitted_at", "-id"), name="workload_by_quota"),
            models.Index(fields=("-submitted_at", "-id"), name="workload_newest"),
            models.Index(fields=("owner", "-submitted_at"), name="workload_by_owner"),
            models.Index(fields=("state", "-submitted_at", "-id"), name="workload_by_state"),
        ]
        constraints: ClassVar = [
            models.UniqueConstraint(
                fields=("workspace", "name"),
                condition=~Q(state__in=("succeeded", "failed", "stopped")) & Q(deleted_at__isnull=True),
                name="workload_live_name",
            ),
            models.CheckConstraint(condition=Q(state__in=State.values), name="workload_state_known"),
            models.CheckConstraint(condition=Q(kind__in=Kind.values), name="workload_kind_known"),
            models.CheckConstraint(condition=Q(idle__in=Idle.values), name="workload_idle_known"),
            models.CheckConstraint(condition=Q(priority__range=(1, 9)), name="workload_priority_range"),
            models.CheckConstraint(
                condition=Q(gpu_milli__lte=1000) & (Q(gpus=0) | Q(gpu_milli__gt=0) | Q(gpu_memory_mib__gt=0)),
                name="workload_gpu_request",
            ),
            models.CheckConstraint(condition=Q(held=False) | Q(state="queued"), name="workload_held_is_queued"),
            models.CheckConstraint(
                condition=Q(min_replicas__isnull=True) | Q(min_replicas__gte=1, min_replicas__lte=F("max_replicas")),
                name="workload_elastic_range",
            ),
        ]

    def __str__(self) -> str:
        return self.name

    @property
    def is_final(self) -> bool:
        return self.state in FINAL

    @property
    def gpu_milli_each(self) -> int:
        """GPU thousandths of one replica; a request by GPU memory counts as 0 until a node is known."""
        return self.gpus * self.gpu_milli


class PoolPreference(models.Model):
    """One of the pools a workload may run in, in the order it prefers them; no rows: any pool of its quota."""

    workload = models.ForeignKey(Workload, on_delete=models.CASCADE, related_name="pool_preferences")
    pool = models.ForeignKey(NodePool, on_delete=models.PROTECT, related_name="+")
    order = models.PositiveSmallIntegerField()

    class Meta:
        ordering = ("workload_id", "order")
        constraints: ClassVar = [models.UniqueConstraint(fields=("workload", "pool"), name="pool_preference_once")]


class Phase(models.TextChoices):
    """Of one allocation: ordered to start, running, told to leave, gone."""

    STARTING = "starting", "starting"
    RUNNING = "running", "running"
    LEAVING = "leaving", "leaving"
    ENDED = "ended", "ended"


class Allocation(models.Model):
    """One replica's room on one node, from its start order until it is gone. Charts and usage come from these rows.

    A deferred trigger refuses more than 1000 thousandths of a device, and more CPU or memory than the node has.
    """

    workload = models.ForeignKey(Workload, on_delete=models.CASCADE, related_name="allocations")
    quota = models.ForeignKey(Quota, on_delete=models.PROTECT, related_name="+")
    pool = models.ForeignKey(NodePool, on_delete=models.PROTECT, related_name="+")
    node = models.ForeignKey(Node, on_delete=models.PROTECT, related_name="allocations")
    run = models.PositiveIntegerField()  # the workload's ``starts`` when it was ordered
    group = models.PositiveSmallIntegerField(default=0)  # of the core's worker groups: with a master, 0 is its group
    index = models.PositiveIntegerField()  # replica number inside the group
    devices = ArrayField(models.PositiveSmallIntegerField(), default=list)
    gpu_milli = models.PositiveIntegerField(default=0)  # of each device
    gpu_memory_mib = models.PositiveBigIntegerField(default=0)  # of each device, where memory was asked for
    cpu_milli = models.PositiveBigIntegerField(default=0)
    memory_mib = models.PositiveBigIntegerField(default=0)
    phase = models.CharField(max_length=8, choices=Phase, default=Phase.STARTING)
    ordered_at = models.DateTimeField()
    running_at = models.DateTimeField(null=True, blank=True)
    leaving_at = models.DateTimeField(null=True, blank=True)
    ended_at = models.DateTimeField(null=True, blank=True)
    outcome = models.CharField(
        max_length=12, blank=True, default=""
    )  # succeeded failed preempted moved shrunk scaled stopped lost

    class Meta:
        indexes: ClassVar = [
            models.Index(fields=("node",), name="allocation_live_node", condition=Q(ended_at__isnull=True)),
            models.Index(fields=("pool", "ended_at"), name="allocation_pool_ended"),
            models.Index(fields=("quota", "ended_at"), name="allocation_quota_ended"),
        ]
        constraints: ClassVar = [
            models.UniqueConstraint(
                fields=("workload", "group", "index"),
                condition=Q(phase__in=("starting", "running")),
                name="allocation_worker_once",
            ),
            models.CheckConstraint(condition=Q(gpu_milli__lte=1000), name="allocation_device_whole"),
            models.CheckConstraint(
                condition=Q(phase="ended", ended_at__isnull=False) | (~Q(phase="ended") & Q(ended_at__isnull=True)),
                name="allocation_ended_has_time",
            ),
        ]

    @property
    def gpu_milli_total(self) -> int:
        return len(self.devices) * self.gpu_milli


class Verdict(models.Model):
    """The one reason why a workload waits, from the last cycle that changed it; the key forbids a second."""

    workload = models.OneToOneField(Workload, on_delete=models.CASCADE, primary_key=True, related_name="verdict")
    code = models.CharField(max_length=40)
    facts = models.JSONField(default=dict)
    would_unblock = models.JSONField(default=dict)
    queue_position = models.PositiveIntegerField(null=True)  # place in its quota's queue, from 1
    earliest_at = models.DateTimeField(null=True)  # start estimate; None: nobody can say
    latest_at = models.DateTimeField(null=True)
    sureness = models.CharField(max_length=12, default="unknown")  # reserved, estimated, unknown
    since = models.DateTimeField()  # the code's first cycle
    cycle = models.BigIntegerField()


class Event(models.Model):
    """One entry of a workload's time line: a move of state, or a thing done to it; never changed."""

    workload = models.ForeignKey(Workload, on_delete=models.CASCADE, related_name="events")
    at = models.DateTimeField()  # cluster time
    real_at = models.DateTimeField(default=timezone.now)
    verb = models.CharField(max_length=40)  # submitted, started, running, preempted, moved, shrunk, held, ...
    before = models.CharField(max_length=12, blank=True, default="")  # state
    after = models.CharField(max_length=12, blank=True, default="")
    actor = models.CharField(max_length=150)
    facts = models.JSONField(default=dict, blank=True)

    class Meta:
        ordering = ("workload_id", "id")


class Eviction(models.Model):
    """A workload told to leave (or to shrink, or to move) by the scheduler, and in whose favour."""

    class What(models.TextChoices):
        EVICTION = "eviction", "eviction"
        SHRINK = "shrink", "shrink"
        MOVE = "move", "move"

    what = models.CharField(max_length=8, choices=What)
    workload = models.ForeignKey(Workload, on_delete=models.CASCADE, related_name="evictions")
    claimant = models.ForeignKey(Workload, on_delete=models.SET_NULL, null=True, related_name="claims")
    quota = models.ForeignKey(Quota, on_delete=models.CASCADE, related_name="+")
    pool = models.ForeignKey(NodePool, on_delete=models.CASCADE, null=True, related_name="+")
    run = models.PositiveIntegerField()
    indexes = ArrayField(models.PositiveIntegerField(), default=list)
    rule = models.CharField(max_length=4)  # a, a', b, c, d, move
    order = models.CharField(max_length=40, blank=True, default="")  # for d: excess, drain, stale
    gpu_milli = models.PositiveBigIntegerField(default=0)
    facts = models.JSONField(default=dict)  # shares before and after
    at = models.DateTimeField()
    cycle = models.BigIntegerField()

    class Meta:
        ordering = ("-id",)
        indexes: ClassVar = [models.Index(fields=("what", "-at"), name="eviction_recent")]
        constraints: ClassVar = [
            models.UniqueConstraint(
                fields=("workload", "run"), condition=Q(what="eviction"), name="eviction_once_a_run"
            ),
        ]


class ScalingRule(models.Model):
    """From each firing of ``cron`` in ``zone`` on, the service is meant to have this size."""

    workload = models.ForeignKey(Workload, on_delete=models.CASCADE, related_name="rules")
    name = models.CharField(max_length=63)
    cron = models.CharField(max_length=120)
    zone = models.CharField(max_length=64)
    replicas = models.PositiveIntegerField(null=True, blank=True)
    min_replicas = models.PositiveIntegerField(null=True, blank=True)
    max_replicas = models.PositiveIntegerField(null=True, blank=True)
    valid_from = models.DateField(null=True, blank=True)
    valid_until = models.DateField(null=True, blank=True)
    excluded = ArrayField(models.DateField(), default=list, blank=True)
    ready_by = models.BooleanField(default=False)
    enabled = models.BooleanField(default=True)
    next_at = models.DateTimeField(null=True, blank=True)  # cluster time of the next firing
    revision = models.PositiveIntegerField(default=1)
    created_at = models.DateTimeField(default=timezone.now)

    class Meta:
        ordering = ("workload_id", "id")
        indexes: ClassVar = [models.Index(fields=("next_at",), name="rule_next", condition=Q(enabled=True))]
        constraints: ClassVar = [
            models.UniqueConstraint(fields=("workload", "name"), name="rule_name_once"),
        ]


# --- scheduling configuration ---------------------------------------------------------------------------------------


class Template(models.Model):
    """A named size that submissions of a workspace may name in place of a request, and may have to."""

    workspace = models.ForeignKey(Workspace, on_delete=models.CASCADE, related_name="templates")
    name = models.CharField(max_length=63)
    description = models.CharField(max_length=500, blank=True, default="")
    gpus = models.PositiveIntegerField(default=0)
    gpu_milli = models.PositiveIntegerField(default=1000)
    gpu_memory_mib = models.PositiveBigIntegerField(default=0)
    cpu_milli = models.PositiveBigIntegerField(default=0)
    memory_mib = models.PositiveBigIntegerField(default=0)
    idle = models.CharField(max_length=6, choices=Idle, blank=True, default="")  # empty: as for any submission
    revision = models.PositiveIntegerField(default=1)

    class Meta:
        ordering = ("workspace_id", "name", "id")
        constraints: ClassVar = [
            models.UniqueConstraint("workspace", Lower("name"), name="template_name"),
            models.CheckConstraint(condition=Q(gpu_milli__lte=1000), name="template_gpu_request"),
        ]

    def __str__(self) -> str:
        return self.name


class Configuration(models.Model):
    """The scheduling configuration of a workspace as a whole: its revision; the entries hang from it."""

    workspace = models.OneToOneField(
        Workspace, on_delete=models.CASCADE, primary_key=True, related_name="configuration"
    )
    revision = models.PositiveIntegerField(default=1)


class UsageEntry(models.Model):
    """What one subject (a role, a custom role or a member) may use of one bound quota. The strictest entry wins.

    Kinds, caps and required templates concern work whose priority lies in the range; the other limits concern all
    work of the subject. A cap is on what one person's work holds at once.
    """

    configuration = models.ForeignKey(Configuration, on_delete=models.CASCADE, related_name="entries")
    quota = models.ForeignKey(Quota, on_delete=models.CASCADE, related_name="usage_entries")
    name = models.CharField(max_length=63)
    role = models.CharField(max_length=20, choices=Role, blank=True, default="")
    custom_role = models.ForeignKey(CustomRole, on_delete=models.CASCADE, null=True, blank=True, related_name="+")
    user = models.ForeignKey(User, on_delete=models.CASCADE, null=True, blank=True, related_name="+")
    kinds = ArrayField(models.CharField(max_length=12), default=all_kinds, blank=True)  # none: nothing is allowed
    priority_low = models.PositiveSmallIntegerField(default=1)
    priority_high = models.PositiveSmallIntegerField(default=9)
    cap_gpu_milli = models.PositiveBigIntegerField(null=True, blank=True)
    cap_cpu_milli = models.PositiveBigIntegerField(null=True, blank=True)
    cap_memory_mib = models.PositiveBigIntegerField(null=True, blank=True)
    max_priority = models.PositiveSmallIntegerField(null=True, blank=True)
    max_runtime_s = models.PositiveIntegerField(null=True, blank=True)
    max_wait_s = models.PositiveIntegerField(null=True, blank=True)
    template_required = models.BooleanField(default=False)

    class Meta:
        ordering = ("id",)
        constraints: ClassVar = [
            models.UniqueConstraint("configuration", Lower("name"), name="usage_entry_name"),
            models.CheckConstraint(
                condition=Q(priority_low__gte=1, priority_high__lte=9, priority_low__lte=F("priority_high")),
                name="usage_entry_range",
            ),
            models.CheckConstraint(
                condition=(~Q(role="") & Q(custom_role__isnull=True, user__isnull=True))
                | Q(role="", custom_role__isnull=False, user__isnull=True)
                | Q(role="", custom_role__isnull=True, user__isnull=False),
                name="usage_entry_one_subject",
            ),
        ]

    def __str__(self) -> str:
        return self.name
