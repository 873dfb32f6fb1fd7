"""What is shared and by whom: people, clusters, pools, nodes, quotas, workspaces, tokens, audit.

Amounts are whole numbers in base units and their names say which. ``None`` as an amount means
"not governed" (guaranteed) or "no bound" (limit, node CPU and memory), never zero.
"""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING, ClassVar

from django.contrib.auth.models import AbstractUser
from django.contrib.postgres.fields import ArrayField
from django.db import models
from django.db.models import F, Q
from django.db.models.functions import Coalesce, Lower
from django.utils import timezone

from quotas.clock import stopped_clocks

if TYPE_CHECKING:
    from quotas.actors import Origin

KINDS = ("training", "notebook", "service")


class PlatformRole(models.TextChoices):
    """Roles that stand outside workspaces."""

    NONE = "", "none"
    ADMINISTRATOR = "administrator", "platform administrator"
    AUDITOR = "auditor", "platform auditor"


class Role(models.TextChoices):
    """Roles of a member inside one workspace, most rights first."""

    OWNER = "owner", "owner"
    ADMINISTRATOR = "administrator", "administrator"
    OPERATOR = "operator", "operator"
    DEVELOPER = "developer", "developer"
    VIEWER = "viewer", "viewer"


class User(AbstractUser):
    """A person or a service account. ``token`` and ``origin`` say how this request came in."""

    platform_role = models.CharField(max_length=20, choices=PlatformRole, default=PlatformRole.NONE, blank=True)
    time_zone = models.CharField(max_length=64, default="UTC")
    role_by_groups = models.BooleanField(default=False)  # the platform role came from the identity provider's groups
    theme = models.CharField(max_length=10, default="system")
    shortcuts = models.BooleanField(default=True)

    token: Token | None = None
    origin: Origin | None = None

    class Meta:
        constraints: ClassVar = [
            models.UniqueConstraint(Lower("username"), name="user_username_any_case"),
            models.CheckConstraint(condition=Q(platform_role__in=PlatformRole.values), name="user_platform_role_known"),
        ]

    @property
    def is_platform_administrator(self) -> bool:
        return self.is_active and self.platform_role == PlatformRole.ADMINISTRATOR

    @property
    def is_platform_auditor(self) -> bool:
        return self.is_active and self.platform_role == PlatformRole.AUDITOR


class EngineKind(models.TextChoices):
    SIMULATED = "simulated", "simulated"
    LOCAL = "local", "local processes"
    KUBERNETES = "kubernetes", "Kubernetes"


class Cluster(models.Model):
    """An engine with its settings and its clock.

    Cluster time is ``clock_at + (real - clock_real_at) * clock_speed``; at speed 1 with equal anchors it is
    real time. All times of the cluster's workloads are cluster times.
    """

    name = models.CharField(max_length=63, unique=True)
    engine = models.CharField(max_length=12, choices=EngineKind, default=EngineKind.SIMULATED)
    settings = models.JSONField(default=dict, blank=True)  # start_up_s, stop_s, eviction_grace_s, ageing_step_s, ...
    topology_levels = ArrayField(models.CharField(max_length=63), default=list, blank=True)  # outermost first
    clock_speed = models.FloatField(default=1.0)
    clock_at = models.DateTimeField(default=timezone.now)
    clock_real_at = models.DateTimeField(default=timezone.now)
    clock_seen_at = models.DateTimeField(default=timezone.now)  # real time at which some worker last lived
    created_at = models.DateTimeField(default=timezone.now)

    class Meta:
        constraints: ClassVar = [
            models.CheckConstraint(condition=Q(engine__in=EngineKind.values), name="cluster_engine_known"),
            models.CheckConstraint(
                condition=Q(clock_speed__gt=0) & Q(clock_speed__lte=1000), name="cluster_clock_speed_range"
            ),
        ]

    def __str__(self) -> str:
        return self.name

    def now(self, real: datetime | None = None) -> datetime:
        """The cluster's time at the real instant (default: now, or what a clock moved by hand shows)."""
        if real is None and (shown := stopped_clocks.get().get(self.pk)) is not None:
            return shown
        elapsed = (real or timezone.now()) - self.clock_real_at
        return self.clock_at + elapsed * self.clock_speed if self.clock_speed != 1 else self.clock_at + elapsed


class Placement(models.TextChoices):
    BINPACK = "binpack", "bin-pack"
    SPREAD = "spread", "spread"


class NodePool(models.Model):
    """A set of like nodes of one cluster, chosen by labels; quota and fairness are per pool."""

    cluster = models.ForeignKey(Cluster, on_delete=models.PROTECT, related_name="pools")
    name = models.CharField(max_length=63)
    selector = models.JSONField(default=dict, blank=True)  # label -> value; ``gpu_model`` counts as a label
    placement = models.CharField(max_length=8, choices=Placement, default=Placement.BINPACK)
    kinds = ArrayField(models.CharField(max_length=12), default=list, blank=True)  # empty: every kind
    oversubscription = models.BooleanField(default=False)
    order = models.PositiveIntegerField(default=0)  # the first pool whose selector matches takes the node
    revision = models.PositiveIntegerField(default=1)

    class Meta:
        ordering = ("cluster_id", "order", "id")
        constraints: ClassVar = [
            models.UniqueConstraint("cluster", Lower("name"), name="pool_name_in_cluster"),
            models.CheckConstraint(condition=Q(placement__in=Placement.values), name="pool_placement_known"),
        ]

    def __str__(self) -> str:
        return self.name


class NodeState(models.TextChoices):
    READY = "ready", "ready"
    CORDONED = "cordoned", "cordoned"
    DRAINING = "draining", "draining"
    LOST = "lost", "lost"


class PresentNodes(models.Manager["Node"]):
    """Nodes that have not been removed."""

    def get_queryset(self) -> models.QuerySet[Node]:
        return super().get_queryset().filter(removed_at__isnull=True)


class Node(models.Model):
    """One machine. A GPU is known by its index on the node; ``bad_devices`` lists the unhealthy ones.

    A removed node keeps its row for the allocations it once held; ``Node.objects`` leaves it out.
    """

    cluster = models.ForeignKey(Cluster, on_delete=models.PROTECT, related_name="nodes")
    pool = models.ForeignKey(NodePool, on_delete=models.PROTECT, related_name="nodes")
    name = models.CharField(max_length=253)
    labels = models.JSONField(default=dict, blank=True)
    gpu_model = models.CharField(max_length=63, blank=True, default="")
    gpus = models.PositiveIntegerField(default=0)
    gpu_memory_mib = models.PositiveBigIntegerField(default=0)  # of each device; 0 = not known
    cpu_milli = models.PositiveBigIntegerField(null=True, blank=True)
    memory_mib = models.PositiveBigIntegerField(null=True, blank=True)
    bad_devices = ArrayField(models.PositiveSmallIntegerField(), default=list, blank=True)
    state = models.CharField(max_length=10, choices=NodeState, default=NodeState.READY)
    state_reason = models.CharField(max_length=200, blank=True, default="")
    state_at = models.DateTimeField(default=timezone.now)
    heartbeat_at = models.DateTimeField(default=timezone.now)
    removed_at = models.DateTimeField(null=True, blank=True)
    revision = models.PositiveIntegerField(default=1)

    objects = PresentNodes()
    ever = models.Manager["Node"]()

    class Meta:
        ordering = ("cluster_id", "id")
        constraints: ClassVar = [
            models.UniqueConstraint(
                fields=("cluster", "name"), condition=Q(removed_at__isnull=True), name="node_name_in_cluster"
            ),
            models.CheckConstraint(condition=Q(state__in=NodeState.values), name="node_state_known"),
        ]

    def __str__(self) -> str:
        return self.name


class QueuePolicy(models.TextChoices):
    FIFO = "fifo", "first in, first out"
    ROUND_ROBIN = "round_robin", "round robin"
    BALANCE = "balance", "balance"
    INTELLIGENT = "intelligent", "intelligent"


def default_claimants() -> list[str]:
    return ["service"]


def default_victim_kinds() -> list[str]:
    return ["training", "notebook"]


class PresentQuotas(models.Manager["Quota"]):
    """Quotas that have not been deleted."""

    def get_queryset(self) -> models.QuerySet[Quota]:
        return super().get_queryset().filter(deleted_at__isnull=True)


class Quota(models.Model):
    """One node of the quota tree: switches and settings; the amounts are in ``QuotaAmount``, one row a pool.

    A deleted quota keeps its row, without amounts, for the work it once had; ``Quota.objects`` leaves it out.
    """

    cluster = models.ForeignKey(Cluster, on_delete=models.PROTECT, related_name="quotas")
    parent = models.ForeignKey("self", on_delete=models.PROTECT, null=True, blank=True, related_name="children")
    name = models.CharField(max_length=63)
    description = models.CharField(max_length=500, blank=True, default="")
    labels = models.JSONField(default=dict, blank=True)
    queue_policy = models.CharField(max_length=12, choices=QueuePolicy, default=QueuePolicy.INTELLIGENT)

    child_preemption = models.BooleanField(default=False)
    child_claimants = ArrayField(models.CharField(max_length=12), default=default_claimants)
    child_max_victim_priority = models.PositiveSmallIntegerField(default=9)
    child_kinds = ArrayField(models.CharField(max_length=12), default=default_victim_kinds)

    priority_inside = models.BooleanField(default=True)
    priority_siblings = models.BooleanField(default=False)
    priority_by_low = models.PositiveSmallIntegerField(default=1)
    priority_by_high = models.PositiveSmallIntegerField(default=9)
    priority_of_low = models.PositiveSmallIntegerField(default=1)
    priority_of_high = models.PositiveSmallIntegerField(default=9)
    priority_kinds = ArrayField(models.CharField(max_length=12), default=default_victim_kinds)

    idle_sharing = models.BooleanField(default=True)
    min_runtime_reclaim_s = models.PositiveIntegerField(default=0)
    min_runtime_preempt_s = models.PositiveIntegerField(default=0)
    min_runtime_override_after_s = models.PositiveIntegerField(null=True, blank=True)
    reserve_after_s = models.PositiveIntegerField(default=1800)
    node_affinity = models.JSONField(default=dict, blank=True)  # kind -> {required|preferred: {label: [values]}}

    revision = models.PositiveIntegerField(default=1)
    created_at = models.DateTimeField(default=timezone.now)
    created_by = models.ForeignKey(User, on_delete=models.SET_NULL, null=True, blank=True, related_name="+")
    deleted_at = models.DateTimeField(null=True, blank=True)

    objects = PresentQuotas()
    ever = models.Manager["Quota"]()

    class Meta:
        ordering = ("cluster_id", "id")
        constraints: ClassVar = [
            models.UniqueConstraint(
                "cluster", Lower("name"), condition=Q(deleted_at__isnull=True), name="quota_name_in_cluster"
            ),
            models.CheckConstraint(condition=Q(queue_policy__in=QueuePolicy.values), name="quota_policy_known"),
            models.CheckConstraint(condition=Q(parent__isnull=True) | ~Q(parent=F("id")), name="quota_not_own_parent"),
            models.CheckConstraint(
                condition=Q(
                    priority_by_low__gte=1,
                    priority_by_high__lte=9,
                    priority_by_low__lte=F("priority_by_high"),
                    priority_of_low__gte=1,
                    priority_of_high__lte=9,
                    priority_of_low__lte=F("priority_of_high"),
                    child_max_victim_priority__range=(1, 9),
                ),
                name="quota_priority_ranges",
            ),
        ]

    def __str__(self) -> str:
        return self.name


class QuotaAmount(models.Model):
    """What a quota is promised and may use at most in one pool, and how it shares the surplus there."""

    quota = models.ForeignKey(Quota, on_delete=models.CASCADE, related_name="amounts")
    pool = models.ForeignKey(NodePool, on_delete=models.PROTECT, related_name="amounts")
    guaranteed_gpu_milli = models.PositiveBigIntegerField(null=True, blank=True)
    guaranteed_cpu_milli = models.PositiveBigIntegerField(null=True, blank=True)
    guaranteed_memory_mib = models.PositiveBigIntegerField(null=True, blank=True)
    limit_gpu_milli = models.PositiveBigIntegerField(null=True, blank=True)
    limit_cpu_milli = models.PositiveBigIntegerField(null=True, blank=True)
    limit_memory_mib = models.PositiveBigIntegerField(null=True, blank=True)
    lending_gpu_milli = models.PositiveBigIntegerField(null=True, blank=True)  # None: all that is idle is lent
    lending_cpu_milli = models.PositiveBigIntegerField(null=True, blank=True)
    lending_memory_mib = models.PositiveBigIntegerField(null=True, blank=True)
    weight = models.PositiveBigIntegerField(null=True, blank=True)  # thousandths; None: the guaranteed GPUs
    rank = models.IntegerField(default=0)
    # The order to preempt what is above the amounts: due at this cluster time; None: keep (see product words).
    excess_due_at = models.DateTimeField(null=True, blank=True)
    excess_to_limit = models.BooleanField(default=False)  # only what is beyond the limit goes

    class Meta:
        constraints: ClassVar = [
            models.UniqueConstraint(fields=("quota", "pool"), name="amount_quota_pool"),
            *(
                models.CheckConstraint(
                    condition=Q(**{f"limit_{r}__isnull": True})
                    | Q(**{f"limit_{r}__gte": Coalesce(F(f"guaranteed_{r}"), 0)}),
                    name=f"amount_limit_{r}",
                )
                for r in ("gpu_milli", "cpu_milli", "memory_mib")
            ),
        ]


class QuotaVersion(models.Model):
    """One entry of a quota's history: who changed what, when; ``after`` can be restored."""

    quota = models.ForeignKey(Quota, on_delete=models.CASCADE, related_name="versions")
    revision = models.PositiveIntegerField()
    verb = models.CharField(max_length=40)
    at = models.DateTimeField(default=timezone.now)
    by = models.ForeignKey(User, on_delete=models.SET_NULL, null=True, blank=True, related_name="+")
    before = models.JSONField(default=dict)
    after = models.JSONField(default=dict)

    class Meta:
        ordering = ("-revision", "-id")
        constraints: ClassVar = [
            models.UniqueConstraint(fields=("quota", "revision"), name="version_once"),
        ]


class LedgerEntry(models.Model):
    """What the last scheduling cycle counted for one quota and pool, in thousandths of a GPU.

    Written whole by the cycle (never incremented); ``used`` includes descendants, ``own`` does not.
    """

    quota = models.ForeignKey(Quota, on_delete=models.CASCADE, related_name="ledger")
    pool = models.ForeignKey(NodePool, on_delete=models.CASCADE, related_name="ledger")
    used = models.BigIntegerField(default=0)
    own = models.BigIntegerField(default=0)
    ancestors = models.BigIntegerField(default=0)  # ancestors' work on this quota's room
    borrowed = models.BigIntegerField(default=0)
    lent = models.BigIntegerField(default=0)
    waiting = models.BigIntegerField(default=0)
    free = models.BigIntegerField(default=0)
    entitlement = models.BigIntegerField(default=0)
    share = models.BigIntegerField(default=0)
    used_cpu_milli = models.BigIntegerField(default=0)
    used_memory_mib = models.BigIntegerField(default=0)
    cycle = models.BigIntegerField(default=0)

    class Meta:
        constraints: ClassVar = [
            models.UniqueConstraint(fields=("quota", "pool"), name="ledger_quota_pool"),
            models.CheckConstraint(condition=Q(used__gte=0, own__gte=0), name="ledger_not_negative"),
        ]


class PresentWorkspaces(models.Manager["Workspace"]):
    """Workspaces that have not been deleted."""

    def get_queryset(self) -> models.QuerySet[Workspace]:
        return super().get_queryset().filter(deleted_at__isnull=True)


class Workspace(models.Model):
    """A team's place: members with roles, and the quotas its workloads may use.

    A deleted one keeps its row, without members, for the work it once had; ``Workspace.objects`` leaves it out.
    """

    name = models.CharField(max_length=63)
    description = models.CharField(max_length=500, blank=True, default="")
    archived_at = models.DateTimeField(null=True, blank=True)
    revision = models.PositiveIntegerField(default=1)
    created_at = models.DateTimeField(default=timezone.now)
    deleted_at = models.DateTimeField(null=True, blank=True)

    objects = PresentWorkspaces()
    ever = models.Manager["Workspace"]()

    class Meta:
        ordering = ("name", "id")
        constraints: ClassVar = [
            models.UniqueConstraint(Lower("name"), condition=Q(deleted_at__isnull=True), name="workspace_name"),
        ]

    def __str__(self) -> str:
        return self.name


class WorkspaceQuota(models.Model):
    """A quota bound to a workspace; one of them is the default."""

    workspace = models.ForeignKey(Workspace, on_delete=models.CASCADE, related_name="bindings")
    quota = models.ForeignKey(Quota, on_delete=models.PROTECT, related_name="bindings")
    is_default = models.BooleanField(default=False)

    class Meta:
        ordering = ("id",)
        constraints: ClassVar = [
            models.UniqueConstraint(fields=("workspace", "quota"), name="binding_once"),
            models.UniqueConstraint(fields=("workspace",), condition=Q(is_default=True), name="binding_one_default"),
        ]


class CustomRole(models.Model):
    """A role that a workspace made for itself: a level (none, read, own, all) for each module of the role table."""

    workspace = models.ForeignKey(Workspace, on_delete=models.CASCADE, related_name="custom_roles")
    name = models.CharField(max_length=63)
    levels = models.JSONField(default=dict)  # module -> level; a module that is not named has none
    revision = models.PositiveIntegerField(default=1)

    class Meta:
        ordering = ("workspace_id", "id")
        constraints: ClassVar = [
            models.UniqueConstraint("workspace", Lower("name"), name="custom_role_name"),
        ]

    def __str__(self) -> str:
        return self.name


class Member(models.Model):
    """A person in a workspace with one or several roles; exactly one member is the owner."""

    workspace = models.ForeignKey(Workspace, on_delete=models.CASCADE, related_name="members")
    user = models.ForeignKey(User, on_delete=models.CASCADE, related_name="memberships")
    roles = ArrayField(models.CharField(max_length=20, choices=Role), default=list)
    custom_roles = ArrayField(models.BigIntegerField(), default=list, blank=True)  # ids of this workspace's own roles
    by_groups = models.BooleanField(default=False)  # comes and goes with the identity provider's groups
    since = models.DateTimeField(default=timezone.now)

    class Meta:
        ordering = ("id",)
        constraints: ClassVar = [
            models.UniqueConstraint(fields=("workspace", "user"), name="member_once"),
            models.UniqueConstraint(
                fields=("workspace",), condition=Q(roles__contains=["owner"]), name="member_one_owner"
            ),
            models.CheckConstraint(condition=Q(roles__len__gt=0) | Q(custom_roles__len__gt=0), name="member_has_role"),
            models.CheckConstraint(condition=Q(roles__contained_by=Role.values), name="member_roles_known"),
        ]


class GroupRole(models.Model):
    """What being in a group of the identity provider gives: a platform role, or a role in one workspace."""

    group = models.CharField(max_length=200)
    platform_role = models.CharField(max_length=20, choices=PlatformRole, default=PlatformRole.NONE, blank=True)
    workspace = models.ForeignKey(Workspace, on_delete=models.CASCADE, null=True, blank=True, related_name="groups")
    role = models.CharField(max_length=20, choices=Role, blank=True, default="")
    created_at = models.DateTimeField(default=timezone.now)

    class Meta:
        ordering = ("group", "id")
        constraints: ClassVar = [
            models.UniqueConstraint(
                fields=("group", "workspace", "role", "platform_role"), name="group_role_once", nulls_distinct=False
            ),
            models.CheckConstraint(
                condition=(Q(workspace__isnull=True, role="") & ~Q(platform_role=""))
                | (Q(workspace__isnull=False, platform_role="") & ~Q(role="") & ~Q(role=Role.OWNER)),
                name="group_role_gives_one",
            ),
        ]

    def __str__(self) -> str:
        return self.group


class Token(models.Model):
    """An API token; only its hash is kept. Scoped to the platform rights of its user or to one workspace and role."""

    user = models.ForeignKey(User, on_delete=models.CASCADE, related_name="tokens")
    name = models.CharField(max_length=63)
    prefix = models.CharField(max_length=12, unique=True)
    digest = models.CharField(max_length=64)  # SHA-256 of the secret, which has 256 random bits
    workspace = models.ForeignKey(Workspace, on_delete=models.CASCADE, null=True, blank=True, related_name="tokens")
    role = models.CharField(max_length=20, choices=Role, blank=True, default="")  # with a workspace: at most this role
    created_at = models.DateTimeField(default=timezone.now)
    expires_at = models.DateTimeField(null=True, blank=True)
    last_used_at = models.DateTimeField(null=True, blank=True)
    last_used_from = models.GenericIPAddressField(null=True, blank=True)
    revoked_at = models.DateTimeField(null=True, blank=True)

    class Meta:
        ordering = ("-id",)
        constraints: ClassVar = [
            models.CheckConstraint(
                condition=Q(workspace__isnull=True, role="") | (Q(workspace__isnull=False) & ~Q(role="")),
                name="token_scope_whole",
            ),
        ]

    def is_live(self, at: datetime) -> bool:
        return self.revoked_at is None and (self.expires_at is None or at < self.expires_at)


class AuditEvent(models.Model):
    """Who did what to what, through which door; append-only (a trigger refuses update and delete)."""

    at = models.DateTimeField(default=timezone.now)
    actor = models.ForeignKey(User, on_delete=models.DO_NOTHING, null=True, blank=True, related_name="+")
    actor_name = models.CharField(max_length=150)
    token_prefix = models.CharField(max_length=12, blank=True, default="")
    door = models.CharField(max_length=12)  # console, api, command, system
    address = models.GenericIPAddressField(null=True, blank=True)
    verb = models.CharField(max_length=60)
    result = models.CharField(max_length=10, default="done")  # done, refused
    object_type = models.CharField(max_length=40, blank=True, default="")
    object_id = models.BigIntegerField(null=True, blank=True)
    object_name = models.CharField(max_length=253, blank=True, default="")
    workspace_id = models.BigIntegerField(null=True, blank=True)  # no key: the entry outlives what it speaks of
    before = models.JSONField(default=dict, blank=True)
    after = models.JSONField(default=dict, blank=True)
    facts = models.JSONField(default=dict, blank=True)

    class Meta:
        ordering = ("-id",)
        indexes: ClassVar = [
            models.Index(fields=("at",), name="audit_at"),
            models.Index(fields=("object_type", "object_id"), name="audit_object"),
            models.Index(fields=("workspace_id", "-id"), name="audit_workspace"),
        ]


class IdempotencyKey(models.Model):
    """A creation asked for under a key of the caller's, and its answer, so that asking again creates nothing."""

    user = models.ForeignKey(User, on_delete=models.CASCADE, related_name="+")
    key = models.CharField(max_length=64)
    digest = models.CharField(max_length=64)  # SHA-256 of method, address and body
    status = models.PositiveSmallIntegerField(default=0)
    answer = models.JSONField(default=dict)
    created_at = models.DateTimeField(default=timezone.now)

    class Meta:
        constraints: ClassVar = [
            models.UniqueConstraint(fields=("user", "key"), name="idempotency_key_once"),
        ]


class AuditSeal(models.Model):
    """The hash of one day's audit entries, chained to the day before it; append-only like the entries."""

    day = models.DateField(unique=True)  # in UTC
    entries = models.PositiveIntegerField()
    previous = models.CharField(max_length=64, blank=True, default="")
    digest = models.CharField(max_length=64)
    sealed_at = models.DateTimeField(default=timezone.now)

    class Meta:
        ordering = ("day",)


class Invitation(models.Model):
    """An invitation by e-mail to join a workspace with roles; only the hash of its secret is kept."""

    workspace = models.ForeignKey(Workspace, on_delete=models.CASCADE, related_name="invitations")
    email = models.EmailField()
    roles = ArrayField(models.CharField(max_length=20, choices=Role))
    digest = models.CharField(max_length=64, unique=True)
    invited_by = models.ForeignKey(User, on_delete=models.SET_NULL, null=True, related_name="+")
    created_at = models.DateTimeField(default=timezone.now)
    expires_at = models.DateTimeField()
    accepted_at = models.DateTimeField(null=True, blank=True)
    revoked_at = models.DateTimeField(null=True, blank=True)

    class Meta:
        ordering = ("-id",)
        constraints: ClassVar = [
            models.UniqueConstraint(
                "workspace",
                Lower("email"),
                condition=Q(accepted_at__isnull=True, revoked_at__isnull=True),
                name="invitation_open_once",
            ),
        ]

    def __str__(self) -> str:
        return self.email


class RequestState(models.TextChoices):
    OPEN = "open", "open"
    APPROVED = "approved", "approved"
    DECLINED = "declined", "declined"
    WITHDRAWN = "withdrawn", "withdrawn"
    ENDED = "ended", "ended"


class QuotaRequest(models.Model):
    """A workspace asks that one of its quotas is promised more in a pool until an instant of the cluster's time."""

    workspace = models.ForeignKey(Workspace, on_delete=models.CASCADE, related_name="quota_requests")
    quota = models.ForeignKey(Quota, on_delete=models.CASCADE, related_name="requests")
    pool = models.ForeignKey(NodePool, on_delete=models.PROTECT, related_name="+")
    more_gpu_milli = models.PositiveBigIntegerField(default=0)
    more_cpu_milli = models.PositiveBigIntegerField(default=0)
    more_memory_mib = models.PositiveBigIntegerField(default=0)
    until = models.DateTimeField()
    reason = models.CharField(max_length=500, blank=True, default="")
    state = models.CharField(max_length=10, choices=RequestState, default=RequestState.OPEN)
    asked_by = models.ForeignKey(User, on_delete=models.SET_NULL, null=True, related_name="+")
    asked_at = models.DateTimeField(default=timezone.now)
    decided_by = models.ForeignKey(User, on_delete=models.SET_NULL, null=True, blank=True, related_name="+")
    decided_at = models.DateTimeField(null=True, blank=True)
    answer = models.CharField(max_length=500, blank=True, default="")

    class Meta:
        ordering = ("-id",)
        constraints: ClassVar = [
            models.CheckConstraint(condition=Q(state__in=RequestState.values), name="quota_request_state_known"),
            models.CheckConstraint(
                condition=Q(more_gpu_milli__gt=0) | Q(more_cpu_milli__gt=0) | Q(more_memory_mib__gt=0),
                name="quota_request_asks",
            ),
        ]
