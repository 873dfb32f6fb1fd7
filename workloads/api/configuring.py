"""The scheduling configuration of a workspace: entries saved as one, what applies to whom, and templates."""

from __future__ import annotations

import dataclasses
from typing import Any, ClassVar

from django.db.models import QuerySet
from django.shortcuts import get_object_or_404
from drf_spectacular.utils import extend_schema, extend_schema_field
from rest_framework import serializers
from rest_framework.decorators import action
from rest_framework.request import Request
from rest_framework.response import Response

from quotas.api.bodies import KindsBody, amount, description, optional_whole
from quotas.api.fields import Choice, Flag, Name, Reference
from quotas.api.finding import named
from quotas.api.queries import IdParameter, ListQuery, Query
from quotas.api.serializers import Named, Read, Write
from quotas.api.shapes import Kinds, PersonRead
from quotas.models import KINDS, Quota, Role, User, Workspace
from quotas.permissions import require, visible_quotas, visible_users
from quotas.specs import PRIORITY_HIGH, PRIORITY_LOW, SECONDS_MAX
from workloads.api import capacity
from workloads.api.bodies import RequestBody
from workloads.api.shapes import RequestRead
from workloads.models import Configuration, Idle, Template
from workloads.services import create_template, delete_template, edit_template, limits_of, save_configuration
from workloads.services.configuring import ENTRIES_MAX, TemplateSpec, read_entries

LIMITS = (
    "max_priority",
    "max_runtime_s",
    "max_wait_s",
    "cap_gpu_milli",
    "cap_cpu_milli",
    "cap_memory_mib",
    "template_required",
)


# --- shapes -----------------------------------------------------------------------------------------------------------


class EntryRead(Read):
    """What one subject may use of one bound quota."""

    name = serializers.CharField()
    quota = Named()
    role = serializers.CharField(help_text="Empty where the subject is a role of your own or a person.")
    custom_role = Named(allow_null=True)
    user = PersonRead(allow_null=True)
    kinds = Kinds(help_text="Kinds that are allowed.")
    priority_low = serializers.IntegerField()
    priority_high = serializers.IntegerField()
    cap_gpu_milli = serializers.IntegerField(allow_null=True, help_text="In use at once, by each person.")
    cap_cpu_milli = serializers.IntegerField(allow_null=True)
    cap_memory_mib = serializers.IntegerField(allow_null=True)
    max_priority = serializers.IntegerField(allow_null=True)
    max_runtime_s = serializers.IntegerField(allow_null=True)
    max_wait_s = serializers.IntegerField(allow_null=True)
    template_required = serializers.BooleanField()


class ConfigurationRead(Read):
    """All entries. A quota without an entry is open to every member; of several that match the strictest wins."""

    entries = serializers.SerializerMethodField()
    revision = serializers.IntegerField(help_text="0: nothing was ever saved.")

    @extend_schema_field(EntryRead(many=True))
    def get_entries(self, configuration: Configuration) -> Any:
        rows = configuration.entries.all() if configuration.revision else []
        return EntryRead(rows, many=True).data


class EntryBody(Write):
    """One entry; exactly one of role, custom_role and user is its subject."""

    quota = Reference()
    name = Name()
    role = Choice(Role.choices, required=False)
    custom_role = Reference(required=False, allow_null=True)
    user = Reference(required=False, allow_null=True)
    kinds = KindsBody(help_text="Default: all.")
    priority_low = optional_whole(PRIORITY_LOW, PRIORITY_HIGH)
    priority_high = optional_whole(PRIORITY_LOW, PRIORITY_HIGH)
    cap_gpu_milli = amount()
    cap_cpu_milli = amount()
    cap_memory_mib = amount()
    max_priority = optional_whole(PRIORITY_LOW, PRIORITY_HIGH, null=True)
    max_runtime_s = optional_whole(1, SECONDS_MAX, null=True)
    max_wait_s = optional_whole(1, SECONDS_MAX, null=True)
    template_required = Flag(required=False)


class ConfigurationBody(Write):
    """All entries, in place of those before."""

    entries = serializers.ListField(child=EntryBody(), max_length=ENTRIES_MAX)


class LimitRead(Read):
    """One limit and the entry that it comes from."""

    value = serializers.IntegerField(allow_null=True, help_text="null: no limit.")
    entry = serializers.CharField(help_text="Empty: none.")


class KindLimitRead(Read):
    """Whether a kind of work is allowed, and the entry that forbids it."""

    kind = serializers.ChoiceField([(kind, kind) for kind in KINDS])
    allowed = serializers.BooleanField()
    entry = serializers.CharField()


class LimitsRead(Read):
    """What applies to one person on one quota."""

    user = PersonRead()
    quota = Named()
    kinds = KindLimitRead(many=True)

    def get_fields(self) -> dict[str, serializers.Field[Any, Any, Any, Any]]:
        return {**super().get_fields(), **{name: LimitRead() for name in LIMITS}}


class TemplateRead(RequestRead):
    """A named size."""

    id = serializers.IntegerField()
    name = serializers.CharField()
    description = serializers.CharField()
    idle = serializers.ChoiceField(Idle.choices, allow_blank=True, help_text="Empty: as for any submission.")
    revision = serializers.IntegerField()


class TemplateBody(RequestBody):
    """A named size as a whole."""

    name = Name()
    description = description()
    idle = Choice(Idle.choices, required=False)


# --- calls ------------------------------------------------------------------------------------------------------------


class LimitsQuery(Query):
    """Whose limits, and where."""

    quota = IdParameter(help_text="Default: the workspace's default.")
    user = IdParameter(help_text="Default: the caller.")


class TemplateQuery(ListQuery):
    """Order of templates."""

    orders: ClassVar = {"name": "name", "id": "id"}
    default_order = "name"


class WorkspaceDoor(capacity.WorkspaceDoor):
    """Workspaces with their scheduling configuration."""

    queries: ClassVar = {**capacity.WorkspaceDoor.queries, "limits": LimitsQuery, "templates": TemplateQuery}
    matches: ClassVar = capacity.WorkspaceDoor.matches | {"save_configuration", "edit_template"}
    creates: ClassVar = capacity.WorkspaceDoor.creates | {"add_template"}

    @extend_schema(responses=ConfigurationRead)
    @action(detail=True)
    def configuration(self, request: Request, pk: int) -> Response:
        """The Resource Usage entries."""
        workspace = self.one(pk)
        require(self.actor, "configuration.read", workspace)
        return self.answer(configuration_of(workspace), reads=ConfigurationRead)

    @extend_schema(request=ConfigurationBody, responses=ConfigurationRead)
    @configuration.mapping.put
    def save_configuration(self, request: Request, pk: int) -> Response:
        """Put these entries in the place of all before, as one change."""
        workspace = self.one(pk)
        entries = read_entries(self.given(ConfigurationBody)["entries"], workspace=workspace)
        return self.changed(
            lambda: configuration_of(
                save_configuration(
                    actor=self.actor, workspace=workspace, entries=entries, revision=self.revision
                ).workspace
            ),
            reads=ConfigurationRead,
        )

    @extend_schema(responses=LimitsRead)
    @action(detail=True)
    def limits(self, request: Request, pk: int) -> Response:
        """What applies to the caller or another member on a quota, each limit with the entry it comes from."""
        workspace, ask = self.one(pk), self.query
        bound: QuerySet[Quota] = visible_quotas(self.actor).filter(bindings__workspace=workspace)
        quota = named(bound, ask["quota"], field="quota") if "quota" in ask else self._default_of(bound)
        user: User = named(visible_users(self.actor), ask["user"], field="user") if "user" in ask else self.actor
        found = limits_of(actor=self.actor, workspace=workspace, quota=quota, user=user)
        kinds = [{"kind": kind, "allowed": bool(k.value), "entry": k.entry} for kind, k in found.kinds.items()]
        limits = {name: dataclasses.asdict(getattr(found, name)) for name in LIMITS}
        return Response(self.shown({"user": user, "quota": quota, "kinds": kinds, **limits}, LimitsRead))

    def _default_of(self, bound: QuerySet[Quota]) -> Quota:
        return get_object_or_404(bound.filter(bindings__is_default=True).distinct())

    # --- templates --------------------------------------------------------------------------------------

    def templates_of(self, pk: int) -> QuerySet[Template]:
        return Template.objects.filter(workspace=self.one(pk)).select_related("workspace")

    @extend_schema(responses=TemplateRead(many=True))
    @action(detail=True)
    def templates(self, request: Request, pk: int) -> Response:
        """Named sizes that submissions may name."""
        return self.listed(self.templates_of(pk), TemplateRead)

    @extend_schema(request=TemplateBody, responses={201: TemplateRead})
    @templates.mapping.post
    def add_template(self, request: Request, pk: int) -> Response:
        """Add a named size."""
        workspace, spec = self.one(pk), TemplateSpec.from_mapping(self.body)
        return self.created(lambda: create_template(actor=self.actor, workspace=workspace, spec=spec), TemplateRead)

    @extend_schema(request=TemplateBody, responses=TemplateRead)
    @action(detail=True, methods=["put"], url_path="templates/<int:template>")
    def edit_template(self, request: Request, pk: int, template: int) -> Response:
        """Change a named size; what was submitted with it keeps its request."""
        found, spec = get_object_or_404(self.templates_of(pk), pk=template), TemplateSpec.from_mapping(self.body)
        return self.changed(
            lambda: edit_template(actor=self.actor, template=found, spec=spec, revision=self.revision),
            reads=TemplateRead,
        )

    @extend_schema(request=None, responses={204: None})
    @edit_template.mapping.delete
    def delete_template(self, request: Request, pk: int, template: int) -> Response:
        """Remove a named size."""
        found = get_object_or_404(self.templates_of(pk), pk=template)
        return self.changed(lambda: delete_template(actor=self.actor, template=found))


def configuration_of(workspace: Workspace) -> Configuration:
    """The configuration as it is; one of revision 0 without entries where nothing was saved yet."""
    found = Configuration.objects.filter(workspace=workspace)
    rows = found.prefetch_related("entries__quota", "entries__custom_role", "entries__user")
    return rows.first() or Configuration(workspace=workspace, revision=0)
