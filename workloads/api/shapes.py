"""What the API shows of workloads, their allocations, events, evictions and scaling rules."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from drf_spectacular.utils import extend_schema_field
from rest_framework import serializers

from quotas.api.serializers import Named, ProblemItem, Read
from quotas.api.shapes import PersonRead
from quotas.words import sentence
from scheduler.core.model import Reason, Sureness
from workloads.models import Allocation, Eviction, Idle, Kind, Phase, Restart, State, Visibility, Workload

REASONS = [(str(reason), str(reason)) for reason in Reason]
SURENESS = [(str(sureness), str(sureness)) for sureness in Sureness]


class RequestRead(Read):
    """What one replica asks for: so many GPUs with so many thousandths, or so much memory, of each."""

    gpus = serializers.IntegerField()
    gpu_milli = serializers.IntegerField(help_text="Of each GPU; 1000 is a whole one.")
    gpu_memory_mib = serializers.IntegerField(help_text="Of each GPU, where memory was asked for.")
    cpu_milli = serializers.IntegerField()
    memory_mib = serializers.IntegerField()


class WorkloadRead(RequestRead):
    """A training job, notebook or service: what it asks for, and where it stands. Times are cluster times."""

    id = serializers.IntegerField()
    name = serializers.CharField()
    kind = serializers.ChoiceField(Kind.choices)
    cluster = Named()
    workspace = Named()
    quota = Named()
    owner = PersonRead(allow_null=True)
    visibility = serializers.ChoiceField(Visibility.choices)
    labels = serializers.DictField(child=serializers.CharField())
    state = serializers.ChoiceField(State.choices)
    held = serializers.BooleanField()
    reason = serializers.SerializerMethodField(help_text="Why it waits; null when it does not.")
    state_at = serializers.DateTimeField()
    submitted_at = serializers.DateTimeField(help_text="First submission.")
    started_at = serializers.DateTimeField(allow_null=True, help_text="Of this run.")
    finished_at = serializers.DateTimeField(allow_null=True)
    restarts = serializers.SerializerMethodField(help_text="Starts minus one.")
    failures = serializers.IntegerField()
    priority = serializers.IntegerField()
    idle = serializers.ChoiceField(Idle.choices)
    preemptible = serializers.BooleanField()
    replicas = serializers.IntegerField(help_text="Wanted.")
    running_replicas = serializers.SerializerMethodField()
    held_gpu_milli = serializers.SerializerMethodField(help_text="Held in all, leaving replicas included.")
    borrowed_gpu_milli = serializers.IntegerField(help_text="Of what it holds, as of the last cycle.")
    revision = serializers.IntegerField()

    @extend_schema_field(serializers.ChoiceField(REASONS, allow_null=True))
    def get_reason(self, workload: Workload) -> str | None:
        verdict = getattr(workload, "verdict", None)
        return verdict.code if verdict is not None and workload.state not in ENDED else None

    def get_restarts(self, workload: Workload) -> int:
        return max(0, workload.starts - 1)

    def get_running_replicas(self, workload: Workload) -> int:
        return sum(row.phase == Phase.RUNNING for row in live(workload))

    def get_held_gpu_milli(self, workload: Workload) -> int:
        return sum(row.gpu_milli_total for row in live(workload))


def live(workload: Workload) -> list[Allocation]:
    """The allocations that the view has read along."""
    rows: list[Allocation] = workload.live_allocations  # type: ignore[attr-defined]
    return rows


ENDED = (State.SUCCEEDED, State.FAILED, State.STOPPED)


class WorkloadReadWhole(WorkloadRead):
    """A workload with everything it was submitted with."""

    pools = serializers.SerializerMethodField(help_text="In order of preference; empty: any pool of the quota.")
    min_replicas = serializers.IntegerField(allow_null=True)
    max_replicas = serializers.IntegerField(allow_null=True)
    gang = serializers.BooleanField()
    master = serializers.DictField(child=serializers.IntegerField(), allow_null=True)
    node_selector = serializers.DictField(child=serializers.CharField())
    topology_required = serializers.CharField()
    topology_preferred = serializers.CharField()
    image = serializers.CharField()
    command = serializers.ListField(child=serializers.CharField())
    environment = serializers.SerializerMethodField(help_text="null for those who may not edit the workload.")
    grace_s = serializers.IntegerField(allow_null=True, help_text="null: the cluster's.")
    max_runtime_s = serializers.IntegerField(allow_null=True)
    max_wait_s = serializers.IntegerField(allow_null=True)
    template = serializers.CharField(help_text="The named size it was submitted with; empty: none.")
    restart = serializers.ChoiceField(Restart.choices)
    retries = serializers.IntegerField()
    checkpoint_every_s = serializers.IntegerField(allow_null=True)
    checkpoint_on_signal = serializers.BooleanField()
    estimate_s = serializers.IntegerField(allow_null=True)
    size_by = serializers.CharField(help_text="Who set the replicas: a person or a rule.")
    size_at = serializers.DateTimeField(allow_null=True)
    may = serializers.SerializerMethodField(
        help_text="What the caller may do to it, by right; states may still refuse."
    )

    @extend_schema_field(Named(many=True))
    def get_pools(self, workload: Workload) -> list[dict[str, Any]]:
        rows = workload.pool_preferences.select_related("pool")
        return [{"id": row.pool_id, "name": row.pool.name} for row in rows]

    @extend_schema_field(serializers.DictField(child=serializers.CharField(), allow_null=True))
    def get_environment(self, workload: Workload) -> dict[str, str] | None:
        return workload.environment if "workload.edit" in self._rights(workload) else None

    @extend_schema_field(serializers.ListField(child=serializers.CharField()))
    def get_may(self, workload: Workload) -> list[str]:
        return self._rights(workload)

    def _rights(self, workload: Workload) -> list[str]:
        rights: list[str] = self.context["view"].rights(workload)
        return rights


class AllocationRead(Read):
    """One replica's room on one node, from its start order until it is gone."""

    id = serializers.IntegerField()
    run = serializers.IntegerField(help_text="1 for the first start.")
    group = serializers.IntegerField(help_text="With a master: 0 the master, 1 the workers.")
    index = serializers.IntegerField()
    pool = Named()
    node = serializers.CharField(source="node.name")
    devices = serializers.ListField(child=serializers.IntegerField())
    gpu_milli = serializers.IntegerField(help_text="Of each device.")
    gpu_memory_mib = serializers.IntegerField()
    cpu_milli = serializers.IntegerField()
    memory_mib = serializers.IntegerField()
    phase = serializers.ChoiceField(Phase.choices)
    ordered_at = serializers.DateTimeField()
    running_at = serializers.DateTimeField(allow_null=True)
    leaving_at = serializers.DateTimeField(allow_null=True)
    ended_at = serializers.DateTimeField(allow_null=True)
    outcome = serializers.CharField(help_text="Why it ended; empty while it lives.")


class HeldRead(AllocationRead):
    """Room on a node, and whose it is."""

    workload = Named()


class EventRead(Read):
    """One entry of a workload's time line."""

    id = serializers.IntegerField()
    at = serializers.DateTimeField(help_text="Cluster time.")
    real_at = serializers.DateTimeField()
    verb = serializers.CharField()
    before = serializers.CharField(help_text="State; empty where it did not move.")
    after = serializers.CharField()
    actor = serializers.CharField()
    facts = serializers.SerializerMethodField()

    @extend_schema_field(serializers.DictField())
    def get_facts(self, row: Any) -> dict[str, Any]:
        """Facts as far as they speak of what the caller may see."""
        return dict(self.context["view"].seen(row.facts))


class EvictionRead(Read):
    """A workload told to leave, shrink or move, and in whose favour."""

    id = serializers.IntegerField()
    what = serializers.ChoiceField(Eviction.What.choices)
    workload = Named()
    quota = Named()
    claimant = serializers.SerializerMethodField(help_text="null: an order, gone, or not the caller's to see.")
    rule = serializers.CharField(help_text="a, a', b, c, d or move.")
    order = serializers.CharField(help_text="With rule d: excess, drain or stale.")
    gpu_milli = serializers.IntegerField()
    facts = serializers.SerializerMethodField(help_text="Shares before and after.")
    at = serializers.DateTimeField()

    @extend_schema_field(Named(allow_null=True))
    def get_claimant(self, row: Eviction) -> dict[str, Any] | None:
        claimant = row.claimant
        if claimant is None or not self.context["view"].sees(claimant):
            return None
        return {"id": claimant.pk, "name": claimant.name}

    @extend_schema_field(serializers.DictField())
    def get_facts(self, row: Eviction) -> dict[str, Any]:
        return dict(self.context["view"].seen(row.facts))


class RuleRead(Read):
    """From each firing of `cron` in `zone` on, the service is meant to have this size."""

    id = serializers.IntegerField()
    name = serializers.CharField()
    cron = serializers.CharField()
    zone = serializers.CharField()
    replicas = serializers.IntegerField(allow_null=True)
    min_replicas = serializers.IntegerField(allow_null=True)
    max_replicas = serializers.IntegerField(allow_null=True)
    valid_from = serializers.DateField(allow_null=True)
    valid_until = serializers.DateField(allow_null=True)
    excluded = serializers.ListField(child=serializers.DateField())
    ready_by = serializers.BooleanField()
    enabled = serializers.BooleanField()
    next_at = serializers.DateTimeField(allow_null=True, help_text="Cluster time of the next firing.")
    revision = serializers.IntegerField()


class RulesRead(Read):
    """All rules of a service."""

    rules = RuleRead(many=True)


class WhyRead(Read):
    """Why a workload waits. Everything but the state is null when it does not."""

    state = serializers.ChoiceField(State.choices)
    code = serializers.ChoiceField(REASONS, allow_null=True)
    message = serializers.SerializerMethodField(help_text="The code in words.")
    facts = serializers.DictField(default=dict)
    would_unblock = serializers.DictField(default=dict)
    position = serializers.IntegerField(
        allow_null=True, default=None, help_text="Place in the queue of its quota, among the work that you see."
    )
    since = serializers.DateTimeField(allow_null=True, default=None)
    earliest_at = serializers.DateTimeField(allow_null=True, default=None, help_text="Estimate of its start.")
    latest_at = serializers.DateTimeField(allow_null=True, default=None)
    sureness = serializers.ChoiceField(SURENESS, default="unknown")

    @extend_schema_field(serializers.CharField())
    def get_message(self, why: Mapping[str, Any]) -> str:
        return sentence(why["code"], why["facts"]) if why["code"] else ""


class SubmittedItem(Read):
    """One of several new workloads."""

    id = serializers.IntegerField()
    name = serializers.CharField()
    state = serializers.ChoiceField(State.choices)


class SubmittedRead(Read):
    """New workloads in the order of their submissions."""

    workloads = SubmittedItem(many=True)


class ActedItem(Read):
    """What became of one of them."""

    id = serializers.IntegerField()
    done = serializers.BooleanField()
    problems = ProblemItem(many=True)


class ActedRead(Read):
    """What became of each workload, in the order of the call."""

    results = ActedItem(many=True)
