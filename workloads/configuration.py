"""The scheduling configuration of a workspace: who may use how much of its quotas, judged entry by entry.

A quota without entries is open to all members. Entries limit only those they match; where several match, the strictest
value of each limit counts, and whatever is refused names the entry it comes from. The system itself is not limited.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from quotas.errors import Problem
from quotas.models import KINDS, Cluster, Member, Quota, User, Workspace
from quotas.specs import PRIORITY_HIGH, RESOURCES
from workloads.models import UsageEntry
from workloads.specs import WorkloadSpec

ANY_SUBJECT = 2**31  # cap ids are entry x this + person, so one of the two numbers must stay below


@dataclass(frozen=True, slots=True)
class Limit:
    """One effective limit: its value, and the name of the entry that sets it (empty: nothing limits it)."""

    value: int | None
    entry: str = ""


@dataclass(frozen=True, slots=True)
class EffectiveLimits:
    """What applies to one person on one quota. Amounts in base units; None is no limit."""

    kinds: Mapping[str, Limit]
    """Kind -> 1 where it is allowed, 0 where it is not."""
    max_priority: Limit
    max_runtime_s: Limit
    max_wait_s: Limit
    cap_gpu_milli: Limit
    cap_cpu_milli: Limit
    cap_memory_mib: Limit
    template_required: Limit
    """1 where a template has to be named."""


def matching(entries: Iterable[UsageEntry], member: Member | None, user: User | None) -> list[UsageEntry]:
    """The entries whose subject the person is."""
    if user is None:
        return []
    roles = set(member.roles) if member is not None else set()
    custom = set(member.custom_roles) if member is not None else set()
    return [
        entry for entry in entries if entry.user_id == user.pk or entry.role in roles or entry.custom_role_id in custom
    ]


def entries_for(workspace: Workspace, quota: Quota, user: User | None) -> list[UsageEntry]:
    """The entries of a workspace for a quota that concern a person; two queries."""
    member = Member.objects.filter(workspace=workspace, user=user).first() if user is not None else None
    return matching(UsageEntry.objects.filter(configuration=workspace.pk, quota=quota), member, user)


def in_range(entry: UsageEntry, priority: int) -> bool:
    return entry.priority_low <= priority <= entry.priority_high


# --- at submission ------------------------------------------------------------------------------------------------


def judge(entries: Sequence[UsageEntry], spec: WorkloadSpec) -> Iterator[Problem]:
    """What the entries refuse of a submission."""
    for entry in entries:
        if in_range(entry, spec.real_priority):
            yield from _of_range(entry, spec)
        if entry.max_priority is not None and spec.real_priority > entry.max_priority:
            facts = {"entry": entry.name, "given": spec.real_priority, "most": entry.max_priority}
            yield Problem("priority", "configuration.priority", facts)
        for name in ("max_runtime_s", "max_wait_s"):
            most, asked = getattr(entry, name), getattr(spec, name)
            if most is not None and asked is not None and asked > most:
                facts = {"entry": entry.name, "given": asked, "most": most}
                yield Problem(name, "configuration.time", facts)


def _of_range(entry: UsageEntry, spec: WorkloadSpec) -> Iterator[Problem]:
    if spec.kind not in entry.kinds:
        yield Problem("kind", "configuration.kind", {"entry": entry.name, "given": spec.kind, "choices": entry.kinds})
    if entry.template_required and not spec.template:
        yield Problem("template", "configuration.template_required", {"entry": entry.name})
    for resource in RESOURCES:
        cap, asked = getattr(entry, f"cap_{resource}"), _least(spec, resource)
        if cap is not None and asked > cap:
            facts = {"entry": entry.name, "resource": resource, "asked": asked, "limit": cap}
            yield Problem("gpus" if resource == "gpu_milli" else resource, "configuration.cap", facts)


def _least(spec: WorkloadSpec, resource: str) -> int:
    """What must run at once for the workload to run at all."""
    master = spec.master.amount(resource) if spec.master is not None else 0
    return spec.least_replicas * spec.request.amount(resource) + master


def tightened(entries: Sequence[UsageEntry], spec: WorkloadSpec) -> WorkloadSpec:
    """The submission with the limits of time that it leaves open set to the strictest of the entries."""
    runtime, wait = _strictest(entries, "max_runtime_s").value, _strictest(entries, "max_wait_s").value
    return dataclasses.replace(
        spec,
        max_runtime_s=spec.max_runtime_s if spec.max_runtime_s is not None else runtime,
        max_wait_s=spec.max_wait_s if spec.max_wait_s is not None else wait,
    )


# --- what applies to a person -------------------------------------------------------------------------------------


def effective_limits(entries: Sequence[UsageEntry]) -> EffectiveLimits:
    """The strictest of each, with the entry it comes from. Entries of a priority range count for that range only."""
    required = next((entry.name for entry in entries if entry.template_required), "")
    top = _strictest(entries, "max_priority")
    return EffectiveLimits(
        kinds={kind: _kind(entries, kind) for kind in KINDS},
        max_priority=top if top.value is not None else Limit(PRIORITY_HIGH),
        max_runtime_s=_strictest(entries, "max_runtime_s"),
        max_wait_s=_strictest(entries, "max_wait_s"),
        cap_gpu_milli=_strictest(entries, "cap_gpu_milli"),
        cap_cpu_milli=_strictest(entries, "cap_cpu_milli"),
        cap_memory_mib=_strictest(entries, "cap_memory_mib"),
        template_required=Limit(int(bool(required)), required),
    )


def _kind(entries: Sequence[UsageEntry], kind: str) -> Limit:
    forbids = next((entry.name for entry in entries if kind not in entry.kinds), "")
    return Limit(int(not forbids), forbids)


def _strictest(entries: Sequence[UsageEntry], name: str) -> Limit:
    found = [(value, entry.pk or 0, entry.name) for entry in entries if (value := getattr(entry, name)) is not None]
    if not found:
        return Limit(None)
    value, _, entry_name = min(found)
    return Limit(value, entry_name)


# --- caps of what is in use ---------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class PersonalCap:
    """What one person's work may hold at once under one entry."""

    id: int
    entry: UsageEntry
    user_id: int


class Caps:
    """The caps of a cluster's workloads: which there are, and which count a given workload."""

    def __init__(self, entries: Iterable[UsageEntry], members: Iterable[Member]) -> None:
        self._by_place: dict[tuple[int, int], list[UsageEntry]] = {}
        for entry in entries:
            self._by_place.setdefault((entry.configuration_id, entry.quota_id), []).append(entry)
        self._members = {(member.workspace_id, member.user_id): member for member in members}
        self.found: dict[int, PersonalCap] = {}

    @classmethod
    def load(cls, cluster: Cluster) -> Caps:
        """Two queries."""
        capped = UsageEntry.objects.filter(quota__cluster=cluster).exclude(
            cap_gpu_milli=None, cap_cpu_milli=None, cap_memory_mib=None
        )
        members = Member.objects.filter(workspace__configuration__entries__in=capped).distinct()
        return cls(capped.order_by("id"), members)

    def of(self, workspace_id: int, quota_id: int, owner_id: int | None, kind: str, priority: int) -> tuple[int, ...]:
        """Ids of the caps that count such a workload, and a note that they are needed."""
        entries = self._by_place.get((workspace_id, quota_id))
        if not entries or owner_id is None:
            return ()
        member = self._members.get((workspace_id, owner_id))
        ids = []
        for entry in matching(entries, member, User(pk=owner_id)):
            if in_range(entry, priority) and kind in entry.kinds:
                cap = PersonalCap(entry.pk * ANY_SUBJECT + owner_id, entry, owner_id)
                self.found[cap.id] = cap
                ids.append(cap.id)
        return tuple(ids)
