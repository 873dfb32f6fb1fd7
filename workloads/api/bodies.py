"""What the API takes about workloads and scaling rules; ``workloads.specs`` judges what it means."""

from __future__ import annotations

from typing import Any

from rest_framework import serializers

from quotas.api.bodies import amount, optional_whole
from quotas.api.fields import Choice, Flag, Id, Labels, Name, Reference, Text, Whole
from quotas.api.serializers import Judged, Write
from quotas.specs import GPUS_OF_NODE_MAX, LABEL_KEY_MAX, PRIORITY_HIGH, PRIORITY_LOW, SECONDS_MAX
from scheduler.core.resources import LARGEST, WHOLE_GPU
from workloads.models import Idle, Kind, Restart, Visibility
from workloads.specs import (
    BULK_MAX,
    COMMAND_PART_MAX,
    COMMAND_PARTS_MAX,
    CRON_MAX,
    EXCLUDED_MAX,
    GRACE_MAX_S,
    IMAGE_MAX,
    POOLS_MAX,
    REPLICAS_MAX,
    RETRIES_MAX,
    RULES_MAX,
)


def size(low: int = 0) -> Whole:
    return optional_whole(low, REPLICAS_MAX, null=True)


class RequestBody(Judged):
    """What one replica asks for."""

    gpus = serializers.FloatField(
        min_value=0,
        max_value=GPUS_OF_NODE_MAX,
        required=False,
        help_text="Whole GPUs, or a fraction below 1 of one. Fractions of several: with `gpu_milli`.",
    )
    gpu_milli = optional_whole(1, WHOLE_GPU, null=True, help_text="Thousandths of each GPU; default 1000.")
    gpu_memory_mib = optional_whole(0, LARGEST, null=True, help_text="Of each GPU, in place of `gpu_milli`.")
    cpu_milli = amount()
    memory_mib = amount()


class WorkloadBody(RequestBody):
    """A submission. What is left out takes the default of its kind."""

    name = Name()
    kind = Choice(Kind.choices)
    workspace = Reference(required=False, help_text="Default: the only one of yours that has the quota.")
    quota = Reference(required=False, help_text="Default: the workspace's.")
    template = Reference(required=False, help_text="A named size of the workspace, in place of a request.")
    pools = serializers.ListField(
        child=Reference(), max_length=POOLS_MAX, required=False, help_text="In order of preference."
    )
    master = RequestBody(required=False, allow_null=True)
    replicas = size()
    min_replicas = size(1)
    max_replicas = size(1)
    gang = Flag(required=False, allow_null=True)
    priority = optional_whole(PRIORITY_LOW, PRIORITY_HIGH, null=True, help_text="Default: 3, 6 or 9 by kind.")
    idle = Choice(Idle.choices, required=False, help_text="Use of room that is promised to others; default never.")
    preemptible = Flag(required=False, allow_null=True)
    visibility = Choice(Visibility.choices, required=False)
    labels = Labels(required=False)
    node_selector = Labels(required=False)
    topology_required = Text(max_length=LABEL_KEY_MAX, required=False, allow_blank=True)
    topology_preferred = Text(max_length=LABEL_KEY_MAX, required=False, allow_blank=True)
    image = Text(max_length=IMAGE_MAX, required=False, allow_blank=True)
    command = serializers.ListField(
        child=Text(max_length=COMMAND_PART_MAX, allow_blank=True), max_length=COMMAND_PARTS_MAX, required=False
    )
    environment = serializers.DictField(child=Text(max_length=COMMAND_PART_MAX, allow_blank=True), required=False)
    grace_s = optional_whole(0, GRACE_MAX_S, null=True)
    max_runtime_s = optional_whole(1, SECONDS_MAX, null=True)
    max_wait_s = optional_whole(1, SECONDS_MAX, null=True, help_text="Longest time in the queue.")
    restart = Choice(Restart.choices, required=False)
    retries = optional_whole(0, RETRIES_MAX)
    checkpoint_every_s = optional_whole(1, SECONDS_MAX, null=True)
    checkpoint_on_signal = Flag(required=False)
    estimate_s = optional_whole(1, SECONDS_MAX, null=True)
    duration_s = optional_whole(0, SECONDS_MAX, null=True, help_text="Simulated engine: how long it really runs.")
    held = Flag(required=False)
    allow_unsatisfiable = Flag(required=False, help_text="Submit it although it could never run as things are.")


class BulkBody(Write):
    """Several submissions: all are taken or none."""

    workloads = serializers.ListField(child=WorkloadBody(), min_length=1, max_length=BULK_MAX)


ACTIONS = [(name, name) for name in ("stop", "delete", "hold", "release", "restart", "priority", "move")]


class ActBody(Write):
    """One thing that is done to several workloads."""

    action = Choice(ACTIONS)
    workloads = serializers.ListField(child=Id(), min_length=1, max_length=BULK_MAX)
    priority = optional_whole(PRIORITY_LOW, PRIORITY_HIGH, help_text="With `priority`.")
    quota = Reference(required=False, help_text="With `move`.")

    def validate(self, attrs: dict[str, Any]) -> dict[str, Any]:
        needed = {"priority": "priority", "move": "quota"}.get(attrs["action"])
        if needed is not None and needed not in attrs:
            raise serializers.ValidationError({needed: ["This is required here."]}, code="required")
        return attrs


class PriorityBody(Write):
    """A new priority."""

    priority = Whole(min_value=PRIORITY_LOW, max_value=PRIORITY_HIGH)


class ExtendBody(Write):
    """How much longer it may run."""

    seconds = Whole(min_value=1, max_value=SECONDS_MAX)


class VisibilityBody(Write):
    """Who may see a workload besides its owner and those who manage all."""

    visibility = Choice(Visibility.choices)


class MoveBody(Write):
    """Another quota of the workspace."""

    quota = Reference()


class ScaleWorkloadBody(Write):
    """The size that is wanted from now until the next rule fires."""

    replicas = Whole(min_value=0, max_value=REPLICAS_MAX)


class CloneBody(Write):
    """The name of the copy."""

    name = Name()


class ReorderBody(Write):
    """The place inside its own priority: before or after another waiting workload of the queue."""

    before = Id(required=False)
    after = Id(required=False)

    def validate(self, attrs: dict[str, Any]) -> dict[str, Any]:
        if len(attrs) != 1:
            raise serializers.ValidationError("Either before or after.", code="choice")
        return attrs


class RuleBody(Write):
    """A scaling rule: `replicas`, or bounds for metric scaling."""

    name = Name()
    cron = Text(max_length=CRON_MAX, help_text="5 or 6 fields.")
    zone = Text(max_length=64, help_text="IANA time zone.")
    replicas = size()
    min_replicas = size()
    max_replicas = size()
    valid_from = serializers.DateField(required=False, allow_null=True)
    valid_until = serializers.DateField(required=False, allow_null=True)
    excluded = serializers.ListField(child=serializers.DateField(), max_length=EXCLUDED_MAX, required=False)
    ready_by = Flag(required=False)
    enabled = Flag(required=False)


class RulesBody(Write):
    """All rules of a service, in place of those before."""

    rules = serializers.ListField(child=RuleBody(), max_length=RULES_MAX)
