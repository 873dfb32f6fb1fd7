"""The scheduling configuration of a workspace, saved as one, and its templates."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any, Self

from django.db import transaction
from django.db.models import F

from quotas.actors import Actor
from quotas.audit import record
from quotas.errors import Denied, Problems, Stale, refuse
from quotas.models import KINDS, CustomRole, Member, Quota, Role, User, Workspace, WorkspaceQuota
from quotas.permissions import allowed, require
from quotas.services._common import locked, save_changes, taken_is_conflict
from quotas.specs import DESCRIPTION_MAX, PRIORITY_HIGH, PRIORITY_LOW, SECONDS_MAX, Reader
from scheduler.core.resources import LARGEST
from scheduler.triggers import request_cycle, signal
from workloads.configuration import EffectiveLimits, effective_limits, entries_for
from workloads.models import Configuration, Idle, Template, UsageEntry
from workloads.specs import REQUEST_FIELDS, Request

ENTRIES_MAX = 200


@dataclasses.dataclass(frozen=True, slots=True)
class EntrySpec:
    """One Resource Usage entry; exactly one of role, custom role and user is its subject."""

    quota: Quota
    name: str
    role: str = ""
    custom_role: CustomRole | None = None
    user: User | None = None
    kinds: tuple[str, ...] = KINDS
    priority_low: int = PRIORITY_LOW
    priority_high: int = PRIORITY_HIGH
    cap_gpu_milli: int | None = None
    cap_cpu_milli: int | None = None
    cap_memory_mib: int | None = None
    max_priority: int | None = None
    max_runtime_s: int | None = None
    max_wait_s: int | None = None
    template_required: bool = False

    @classmethod
    def from_mapping(cls, data: Mapping[str, Any], *, workspace: Workspace) -> Self:
        """Reads an entry; its quota, custom role and member are looked for in the workspace."""
        read = Reader(data)
        people = User.objects.filter(memberships__workspace=workspace)
        kinds = read.choices("kinds", KINDS, default=KINDS)
        spec = cls(
            quota=read.one_of("quota", Quota.objects.filter(bindings__workspace=workspace)),
            name=read.name(),
            role=read.choice("role", Role.values, default="") or "",
            custom_role=read.one_of("custom_role", CustomRole.objects.filter(workspace=workspace), default=None),
            user=read.one_of("user", people, key="username", default=None),
            kinds=tuple(kinds if kinds is not None else ()),
            priority_low=read.whole("priority_low", low=PRIORITY_LOW, high=PRIORITY_HIGH, default=PRIORITY_LOW),
            priority_high=read.whole("priority_high", low=PRIORITY_LOW, high=PRIORITY_HIGH, default=PRIORITY_HIGH),
            cap_gpu_milli=read.whole("cap_gpu_milli", low=0, high=LARGEST, default=None),
            cap_cpu_milli=read.whole("cap_cpu_milli", low=0, high=LARGEST, default=None),
            cap_memory_mib=read.whole("cap_memory_mib", low=0, high=LARGEST, default=None),
            max_priority=read.whole("max_priority", low=PRIORITY_LOW, high=PRIORITY_HIGH, default=None),
            max_runtime_s=read.whole("max_runtime_s", low=1, high=SECONDS_MAX, default=None),
            max_wait_s=read.whole("max_wait_s", low=1, high=SECONDS_MAX, default=None),
            template_required=read.flag("template_required", default=False),
        )
        if not read.problems.found:
            _judge_entry(spec, read)
        read.finish()
        return spec


def _judge_entry(spec: EntrySpec, read: Reader) -> None:
    subjects = [subject for subject in (spec.role, spec.custom_role, spec.user) if subject]
    if len(subjects) != 1:
        read.bad("role", "choice", wanted="exactly one of role, custom_role and user")
    if spec.priority_low > spec.priority_high:
        read.bad("priority_low", "range", low=PRIORITY_LOW, high=spec.priority_high, given=spec.priority_low)


@transaction.atomic
def save_configuration(
    *, actor: Actor, workspace: Workspace, entries: Sequence[EntrySpec], revision: int | None = None
) -> Configuration:
    """Put these entries in place of all before, as one change. ``revision`` 0: there was no configuration yet."""
    require(actor, "configuration.manage", workspace)
    locked(workspace)
    configuration, created = Configuration.objects.get_or_create(workspace=workspace, defaults={"revision": 0})
    if revision is not None and revision != configuration.revision:
        raise Stale(configuration)
    _require_whole(workspace, entries)
    before = [_shown(entry) for entry in configuration.entries.select_related("quota", "custom_role", "user")]
    configuration.entries.all().delete()
    rows = [UsageEntry(configuration=configuration, **_values(spec)) for spec in entries]
    UsageEntry.objects.bulk_create(rows)
    Configuration.objects.filter(pk=configuration.pk).update(revision=F("revision") + 1)
    configuration.refresh_from_db()
    record(
        actor=actor,
        verb="configuration.created" if created else "configuration.saved",
        thing=workspace,
        workspace_id=workspace.pk,
        before={"entries": before},
        after={"entries": [_shown(row) for row in rows]},
    )
    for cluster_id in sorted({binding.quota.cluster_id for binding in workspace.bindings.select_related("quota")}):
        request_cycle(cluster_id, "scheduling configuration saved")
    signal(f"workspace.{workspace.pk}")
    return configuration


def _require_whole(workspace: Workspace, entries: Sequence[EntrySpec]) -> None:
    problems = Problems()
    problems.unless(
        len(entries) <= ENTRIES_MAX, "entries", "invalid", reason="length", most=ENTRIES_MAX, given=len(entries)
    )
    bound = set(WorkspaceQuota.objects.filter(workspace=workspace).values_list("quota_id", flat=True))
    seen: set[str] = set()
    for index, entry in enumerate(entries):
        name = entry.name.lower()
        problems.unless(name not in seen, f"entries.{index}.name", "conflict", given=entry.name)
        seen.add(name)
        names = {"quota": entry.quota.name, "workspace": workspace.name}
        problems.unless(entry.quota.pk in bound, f"entries.{index}.quota", "workspace.not_bound", **names)
    problems.raise_any()


def _values(spec: EntrySpec) -> dict[str, Any]:
    return {field.name: getattr(spec, field.name) for field in dataclasses.fields(spec)} | {"kinds": list(spec.kinds)}


def _shown(entry: UsageEntry) -> dict[str, Any]:
    values = {field.name: getattr(entry, field.name) for field in dataclasses.fields(EntrySpec)}
    subject = entry.role or str(entry.custom_role or entry.user)
    kept = {name: value for name, value in values.items() if name not in ("role", "custom_role", "user", "quota")}
    return {**kept, "quota": entry.quota.name, "subject": subject}


def read_entries(items: Sequence[Mapping[str, Any]], *, workspace: Workspace) -> list[EntrySpec]:
    """All entries of a form or call; problems are named ``entries.0.quota``."""
    problems = Problems()
    found = [
        problems.take(f"entries.{index}", lambda item=item: EntrySpec.from_mapping(item, workspace=workspace))  # type: ignore[misc]
        for index, item in enumerate(items)
    ]
    problems.raise_any()
    return [spec for spec in found if spec is not None]


def limits_of(*, actor: Actor, workspace: Workspace, quota: Quota, user: User) -> EffectiveLimits:
    """What applies to a person on a quota. Everybody may ask for oneself, who reads the configuration for all."""
    require(actor, "workspace.read", workspace)
    if user != actor and not allowed(actor, "configuration.read", workspace):
        raise Denied("configuration.read")
    if not Member.objects.filter(workspace=workspace, user=user).exists():
        raise refuse("user", "not_found", given=user.get_username())
    return effective_limits(entries_for(workspace, quota, user))


# --- templates ----------------------------------------------------------------------------------------------------


@dataclasses.dataclass(frozen=True, slots=True)
class TemplateSpec:
    """A named size; ``idle`` empty leaves the submission's default."""

    name: str
    request: Request
    description: str = ""
    idle: str = ""

    @classmethod
    def from_mapping(cls, data: Mapping[str, Any]) -> Self:
        read = Reader(data)
        spec = cls(
            name=read.name(),
            request=Request.read(read),
            description=read.text("description", most=DESCRIPTION_MAX, default=""),
            idle=read.choice("idle", Idle.values, default=""),
        )
        read.finish()
        return spec

    def values(self) -> dict[str, Any]:
        """The fields of the row."""
        request = {name: getattr(self.request, name) for name in REQUEST_FIELDS}
        return {"name": self.name, "description": self.description, "idle": self.idle, **request}


@transaction.atomic
def create_template(*, actor: Actor, workspace: Workspace, spec: TemplateSpec) -> Template:
    """Add a named size to a workspace."""
    require(actor, "configuration.manage", workspace)
    with taken_is_conflict("name", spec.name):
        template = Template.objects.create(workspace=workspace, **spec.values())
    record(actor=actor, verb="template.created", thing=template, workspace_id=workspace.pk, after=spec.values())
    return template


@transaction.atomic
def edit_template(*, actor: Actor, template: Template, spec: TemplateSpec, revision: int | None = None) -> Template:
    """Change a named size; work that was submitted with it keeps its request."""
    require(actor, "configuration.manage", template)
    template = locked(template, revision)
    before = {name: getattr(template, name) for name in spec.values()}
    for name, value in spec.values().items():
        setattr(template, name, value)
    with taken_is_conflict("name", spec.name):
        save_changes(template, list(spec.values()))
    record(
        actor=actor,
        verb="template.edited",
        thing=template,
        workspace_id=template.workspace_id,
        before=before,
        after=spec.values(),
    )
    return template


@transaction.atomic
def delete_template(*, actor: Actor, template: Template) -> None:
    """Remove a named size."""
    require(actor, "configuration.manage", template)
    record(actor=actor, verb="template.deleted", thing=template, workspace_id=template.workspace_id)
    template.delete()
