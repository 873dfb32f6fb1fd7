"""What the API shows of clusters, quotas, workspaces, people, tokens and the audit."""

from __future__ import annotations

from functools import cached_property
from typing import Any

from drf_spectacular.utils import extend_schema_field
from rest_framework import serializers

from quotas.api.serializers import Named, Read
from quotas.models import (
    AuditEvent,
    EngineKind,
    NodeState,
    Placement,
    PlatformRole,
    QueuePolicy,
    Quota,
    QuotaVersion,
    Role,
)

KIND_CHOICES = (("training", "training job"), ("notebook", "notebook"), ("service", "inference service"))


class Kinds(serializers.ListField):
    """Kinds of work."""

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(child=serializers.ChoiceField(KIND_CHOICES), **kwargs)


class PersonRead(Read):
    """A person by number and login name."""

    id = serializers.IntegerField()
    username = serializers.CharField()


# --- clusters ---------------------------------------------------------------------------------------------------------


class ClusterRead(Read):
    """An engine with its settings and its clock."""

    id = serializers.IntegerField()
    name = serializers.CharField()
    engine = serializers.ChoiceField(EngineKind.choices)
    topology_levels = serializers.ListField(child=serializers.CharField(), help_text="Outermost first.")
    clock_speed = serializers.FloatField(help_text="1 is real time.")
    now = serializers.DateTimeField(help_text="The cluster's own time.")
    created_at = serializers.DateTimeField()


class ClusterReadWhole(ClusterRead):
    """With the settings, for those who manage clusters."""

    settings = serializers.DictField()


class PoolRead(Read):
    """A set of like nodes; quota and fairness are per pool."""

    id = serializers.IntegerField()
    cluster = Named()
    name = serializers.CharField()
    selector = serializers.DictField(child=serializers.CharField(), help_text="Labels that a node must have.")
    placement = serializers.ChoiceField(Placement.choices)
    kinds = Kinds(help_text="Kinds of work taken here; empty: every kind.")
    oversubscription = serializers.BooleanField()
    order = serializers.IntegerField()
    revision = serializers.IntegerField()


class NodeRead(Read):
    """One machine; a GPU is known by its index."""

    id = serializers.IntegerField()
    cluster = Named()
    pool = Named()
    name = serializers.CharField()
    labels = serializers.DictField(child=serializers.CharField())
    gpu_model = serializers.CharField()
    gpus = serializers.IntegerField()
    gpu_memory_mib = serializers.IntegerField(help_text="Of each GPU; 0: not known.")
    cpu_milli = serializers.IntegerField(allow_null=True, help_text="null: no bound.")
    memory_mib = serializers.IntegerField(allow_null=True, help_text="null: no bound.")
    bad_devices = serializers.ListField(child=serializers.IntegerField())
    state = serializers.ChoiceField(NodeState.choices)
    state_reason = serializers.CharField()
    state_at = serializers.DateTimeField()
    heartbeat_at = serializers.DateTimeField()
    revision = serializers.IntegerField()


# --- quotas -----------------------------------------------------------------------------------------------------------


class AmountRead(Read):
    """What a quota has in one pool. null: guaranteed - not governed; limit and lending - no bound."""

    guaranteed_gpu_milli = serializers.IntegerField(allow_null=True)
    guaranteed_cpu_milli = serializers.IntegerField(allow_null=True)
    guaranteed_memory_mib = serializers.IntegerField(allow_null=True)
    limit_gpu_milli = serializers.IntegerField(allow_null=True)
    limit_cpu_milli = serializers.IntegerField(allow_null=True)
    limit_memory_mib = serializers.IntegerField(allow_null=True)
    lending_gpu_milli = serializers.IntegerField(allow_null=True)
    lending_cpu_milli = serializers.IntegerField(allow_null=True)
    lending_memory_mib = serializers.IntegerField(allow_null=True)
    weight = serializers.IntegerField(allow_null=True, help_text="Thousandths; null: the guaranteed GPUs.")
    rank = serializers.IntegerField()
    excess_due_at = serializers.DateTimeField(allow_null=True, help_text="When what is above is preempted; null: kept.")


class SettingsRead(Read):
    """Switches and settings of a quota."""

    queue_policy = serializers.ChoiceField(QueuePolicy.choices)
    child_preemption = serializers.BooleanField(help_text="May own work take room from below?")
    child_claimants = Kinds()
    child_max_victim_priority = serializers.IntegerField()
    child_kinds = Kinds()
    priority_inside = serializers.BooleanField()
    priority_siblings = serializers.BooleanField()
    priority_by_low = serializers.IntegerField()
    priority_by_high = serializers.IntegerField()
    priority_of_low = serializers.IntegerField()
    priority_of_high = serializers.IntegerField()
    priority_kinds = Kinds()
    idle_sharing = serializers.BooleanField(help_text="Is idle room lent?")
    min_runtime_reclaim_s = serializers.IntegerField()
    min_runtime_preempt_s = serializers.IntegerField()
    min_runtime_override_after_s = serializers.IntegerField(allow_null=True, help_text="null: never.")
    reserve_after_s = serializers.IntegerField()
    node_affinity = serializers.DictField()


class QuotaRead(SettingsRead):
    """A quota of the tree with its settings and its amounts in each pool."""

    id = serializers.IntegerField()
    cluster = Named()
    parent = serializers.SerializerMethodField()  # type: ignore[assignment]
    name = serializers.CharField()
    description = serializers.CharField()
    labels = serializers.DictField(child=serializers.CharField())
    amounts = serializers.SerializerMethodField(help_text="By name of the pool.")
    revision = serializers.IntegerField()
    created_at = serializers.DateTimeField()

    @extend_schema_field(Named(allow_null=True))
    def get_parent(self, quota: Quota) -> dict[str, Any] | None:
        """The parent where the caller may see it (the context's ``visible_parents``; None: all)."""
        visible = self.context.get("visible_parents")
        parent = quota.parent
        if parent is None or (visible is not None and parent.pk not in visible):
            return None
        return {"id": parent.pk, "name": parent.name}

    @extend_schema_field(serializers.DictField(child=AmountRead()))
    def get_amounts(self, quota: Quota) -> dict[str, Any]:
        return {row.pool.name: self._amount.to_representation(row) for row in quota.amounts.all()}

    @cached_property
    def _amount(self) -> AmountRead:
        """One for all rows: making a serializer costs more than using it."""
        return AmountRead()


class LedgerRead(Read):
    """What the last scheduling cycle counted in one pool, in thousandths of a GPU."""

    pool = Named()
    used = serializers.IntegerField(help_text="By itself and all below it.")
    own = serializers.IntegerField(help_text="By its own work.")
    ancestors = serializers.IntegerField(help_text="Ancestors' work on its room.")
    borrowed = serializers.IntegerField()
    lent = serializers.IntegerField()
    waiting = serializers.IntegerField()
    free = serializers.IntegerField()
    entitlement = serializers.IntegerField()
    share = serializers.IntegerField()
    used_cpu_milli = serializers.IntegerField()
    used_memory_mib = serializers.IntegerField()


class BranchRead(QuotaRead):
    """A quota in its place of the tree."""

    depth = serializers.IntegerField(help_text="0: nothing above it that you see.")
    ledger = LedgerRead(many=True)


class TreeRead(Read):
    """Quotas from the top down."""

    quotas = BranchRead(many=True)


class UncommittedAmount(Read):
    """What of a pool, or of a quota in a pool, is promised to nobody below it. null: no bound."""

    pool = Named()
    quota = Named(allow_null=True, help_text="null: the pool itself.")
    gpu_milli = serializers.IntegerField(allow_null=True)
    cpu_milli = serializers.IntegerField(allow_null=True)
    memory_mib = serializers.IntegerField(allow_null=True)


class UncommittedRead(Read):
    """What is not promised yet."""

    uncommitted = UncommittedAmount(many=True)


class QuotaVersionRead(Read):
    """One entry of a quota's history."""

    id = serializers.IntegerField()
    revision = serializers.IntegerField()
    verb = serializers.CharField()
    at = serializers.DateTimeField()
    by = serializers.SerializerMethodField(help_text="null: the system, or not the caller's to see.")
    before = serializers.SerializerMethodField()
    after = serializers.SerializerMethodField()

    @extend_schema_field(PersonRead(allow_null=True))
    def get_by(self, version: QuotaVersion) -> dict[str, Any] | None:
        by, visible = version.by, self.context["view"].visible_people
        if by is None or (visible is not None and by.pk not in visible):
            return None
        return {"id": by.pk, "username": by.get_username()}

    @extend_schema_field(serializers.DictField())
    def get_before(self, version: QuotaVersion) -> dict[str, Any]:
        return self._seen(version.before)

    @extend_schema_field(serializers.DictField())
    def get_after(self, version: QuotaVersion) -> dict[str, Any]:
        return self._seen(version.after)

    def _seen(self, state: dict[str, Any]) -> dict[str, Any]:
        """The state without the number of a parent that the caller may not see."""
        visible = self.context.get("visible_parents")
        is_hidden = visible is not None and state.get("parent_id") not in visible
        return {name: value for name, value in state.items() if not (is_hidden and name == "parent_id")}


# --- workspaces and people --------------------------------------------------------------------------------------------


class BindingRead(Read):
    """A quota bound to a workspace."""

    quota = Named()
    is_default = serializers.BooleanField()


class WorkspaceRead(Read):
    """A team's place."""

    id = serializers.IntegerField()
    name = serializers.CharField()
    description = serializers.CharField()
    quotas = BindingRead(many=True, source="bindings")
    archived_at = serializers.DateTimeField(allow_null=True)
    revision = serializers.IntegerField()
    created_at = serializers.DateTimeField()


class MemberRead(Read):
    """A person in a workspace with roles."""

    id = serializers.IntegerField()
    user = PersonRead()
    roles = serializers.ListField(child=serializers.ChoiceField(Role.choices))
    custom_roles = serializers.ListField(child=serializers.IntegerField(), help_text="Ids of own roles.")
    since = serializers.DateTimeField()


class UserRead(Read):
    """A person or service account."""

    id = serializers.IntegerField()
    username = serializers.CharField()
    email = serializers.CharField()
    platform_role = serializers.ChoiceField(PlatformRole.choices)
    is_active = serializers.BooleanField()


class TokenRead(Read):
    """An API token without its secret."""

    id = serializers.IntegerField()
    name = serializers.CharField()
    prefix = serializers.CharField(help_text="The part after `tg_` by which it is recognised.")
    workspace = Named(allow_null=True)
    role = serializers.CharField(help_text="The most it may be in the workspace; empty without one.")
    created_at = serializers.DateTimeField()
    expires_at = serializers.DateTimeField(allow_null=True)
    last_used_at = serializers.DateTimeField(allow_null=True)
    last_used_from = serializers.IPAddressField(allow_null=True)
    revoked_at = serializers.DateTimeField(allow_null=True)


class TokenCreated(TokenRead):
    """A new token; its secret is shown this once."""

    secret = serializers.CharField(allow_null=True)


class AuditRead(Read):
    """Who did what to what, through which door."""

    id = serializers.IntegerField()
    at = serializers.DateTimeField()
    actor = serializers.CharField(source="actor_name")
    token_prefix = serializers.CharField()
    door = serializers.CharField()
    address = serializers.IPAddressField(allow_null=True)
    verb = serializers.CharField()
    result = serializers.CharField()
    object = serializers.SerializerMethodField()
    before = serializers.DictField()
    after = serializers.DictField()
    facts = serializers.DictField()

    class Thing(Read):
        """What it was done to."""

        type = serializers.CharField()
        id = serializers.IntegerField(allow_null=True)
        name = serializers.CharField()

    @extend_schema_field(Thing)
    def get_object(self, event: AuditEvent) -> dict[str, Any]:
        return {"type": event.object_type, "id": event.object_id, "name": event.object_name}
