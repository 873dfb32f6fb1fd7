"""What the API shows of scheduling: use over time, the clockwork, previews."""

from __future__ import annotations

from rest_framework import serializers

from quotas.api.serializers import Named, Read
from quotas.api.shapes import QuotaRead


class QuotaUsage(Read):
    """What one quota's own work held."""

    quota = Named()
    held_gpu_milli = serializers.ListField(child=serializers.IntegerField(), help_text="At each of the times.")


class UsageRead(Read):
    """GPUs held by the caller's quotas over time, from allocations."""

    cluster = Named()
    times = serializers.ListField(child=serializers.DateTimeField(), help_text="Cluster times.")
    quotas = QuotaUsage(many=True)


class RebalancedRead(Read):
    """The quotas of a change as they are after it."""

    quotas = QuotaRead(many=True)


class CycleRead(Read):
    """One cycle of the scheduler; durations in seconds of real time."""

    number = serializers.IntegerField()
    at = serializers.DateTimeField()
    real_at = serializers.DateTimeField()
    load_s = serializers.FloatField()
    decide_s = serializers.FloatField()
    apply_s = serializers.FloatField()
    started = serializers.IntegerField()
    evicted = serializers.IntegerField()
    moved = serializers.IntegerField()
    waiting = serializers.IntegerField()
    refused = serializers.IntegerField(help_text="Parts of the plan that had moved meanwhile.")


class StatusRead(Read):
    """How far the clockwork of a cluster is behind, in seconds of real time; null: it has not happened yet."""

    now = serializers.DateTimeField(help_text="Cluster time.")
    clock_speed = serializers.FloatField()
    is_behind = serializers.BooleanField()
    cycle_age_s = serializers.FloatField(allow_null=True)
    observed_age_s = serializers.FloatField(allow_null=True)
    seen_age_s = serializers.FloatField()
    unserved_requests = serializers.IntegerField()
    commands_open = serializers.IntegerField()
    oldest_command_s = serializers.FloatField(allow_null=True)
    last_cycle = CycleRead(allow_null=True)


class TouchedRead(Read):
    """A workload that a change touches."""

    id = serializers.IntegerField()
    name = serializers.CharField()
    quota = Named()
    gpu_milli = serializers.IntegerField()
    code = serializers.CharField(help_text="Why it would wait; empty where it would not.")


class BookRead(Read):
    """One quota in one pool, in thousandths of a GPU."""

    quota = Named()
    pool = Named()
    guaranteed = serializers.IntegerField(allow_null=True)
    used = serializers.IntegerField()
    borrowed = serializers.IntegerField()
    waiting = serializers.IntegerField()
    free = serializers.IntegerField()


class PreviewRead(Read):
    """What follows from a change and would not happen without it, as far as the caller may see it."""

    preempted = TouchedRead(many=True)
    shrunk = TouchedRead(many=True)
    moved = TouchedRead(many=True)
    starts = TouchedRead(many=True)
    waits = TouchedRead(many=True)
    before = BookRead(many=True)
    after = BookRead(many=True)


class SubmissionRead(PreviewRead):
    """What a submission would come to."""

    fits_now = serializers.BooleanField(help_text="It would start at once, perhaps after others have left for it.")
    code = serializers.CharField(help_text="Why it would wait; empty where it would not.")
    message = serializers.CharField(help_text="The code in words.")
