"""Filters of the lists about workloads."""

from __future__ import annotations

from rest_framework import serializers

from quotas.api.queries import IdParameter, ListQuery, Words
from scheduler.core.model import Reason
from workloads.models import Eviction, Kind, State


class WorkloadQuery(ListQuery):
    """Filters of workloads."""

    lookups = {
        "state": "state__in",
        "kind": "kind__in",
        "reason": "verdict__code__in",
        "cluster": "cluster_id",
        "workspace": "workspace_id",
        "quota": "quota_id",
        "owner": "owner_id",
        "held": "held",
        "priority": "priority",
        "name": "name__icontains",
        "submitted_since": "submitted_at__gte",
        "submitted_until": "submitted_at__lt",
    }
    orders = {
        "submitted_at": "submitted_at",
        "id": "id",
        "name": "name",
        "priority": "priority",
        "state_at": "state_at",
    }
    default_order = "-submitted_at"

    state = Words(State.choices)
    kind = Words(Kind.choices)
    reason = Words([(str(reason), str(reason)) for reason in Reason], help_text="Why it waits.")
    cluster = IdParameter()
    workspace = IdParameter()
    quota = IdParameter()
    owner = IdParameter()
    held = serializers.BooleanField(required=False)
    priority = serializers.IntegerField(min_value=1, max_value=9, required=False)
    name = serializers.CharField(required=False, max_length=63, help_text="A part of the name.")
    submitted_since = serializers.DateTimeField(required=False)
    submitted_until = serializers.DateTimeField(required=False)


class EventQuery(ListQuery):
    """Filters of a time line."""

    lookups = {"verb": "verb"}

    verb = serializers.CharField(required=False, max_length=40)


class AllocationQuery(ListQuery):
    """Filters of allocations."""

    lookups = {"live": "ended_at__isnull"}
    default_order = "-id"

    live = serializers.BooleanField(required=False, help_text="Only live ones, or only ended ones.")


class EvictionQuery(ListQuery):
    """Filters of evictions."""

    lookups = {
        "what": "what__in",
        "rule": "rule",
        "cluster": "workload__cluster_id",
        "workspace": "workload__workspace_id",
        "quota": "quota_id",
        "workload": "workload_id",
        "since": "at__gte",
        "until": "at__lt",
    }
    default_order = "-id"

    what = Words(Eviction.What.choices)
    rule = serializers.ChoiceField(["a", "a'", "b", "c", "d", "move"], required=False)
    cluster = IdParameter()
    workspace = IdParameter()
    quota = IdParameter()
    workload = IdParameter()
    since = serializers.DateTimeField(required=False)
    until = serializers.DateTimeField(required=False)
