"""How a workspace governs itself: own roles, invitations, requests for more quota, and its set-up in one step."""

from __future__ import annotations

from typing import Any, ClassVar

from django.db.models import Q, QuerySet
from django.shortcuts import get_object_or_404
from django.urls import reverse
from drf_spectacular.utils import extend_schema, extend_schema_field
from rest_framework import serializers
from rest_framework.decorators import action
from rest_framework.request import Request
from rest_framework.response import Response

from quotas.api import workspaces
from quotas.api.bodies import GIVEN_ROLES, Amounts, amount, description
from quotas.api.fields import Choice, Moment, Name, Reference, Text
from quotas.api.finding import named
from quotas.api.queries import IdParameter, ListQuery, Words
from quotas.api.serializers import Judged, Named, Read, Write
from quotas.api.shapes import PersonRead, WorkspaceRead
from quotas.api.views import Door
from quotas.errors import Problems
from quotas.models import CustomRole, Invitation, NodePool, QuotaRequest, RequestState, Role, User, Workspace
from quotas.permissions import (
    CUSTOM_MODULES,
    allowed,
    grants_of,
    require,
    visible_clusters,
    visible_quotas,
    visible_users,
    visible_workspaces,
)
from quotas.services import (
    approve_request,
    create_custom_role,
    decline_request,
    delete_custom_role,
    edit_custom_role,
    invite,
    request_quota,
    revoke_invitation,
    set_up_workspace,
    withdraw_request,
)
from quotas.services.onboarding import Model, OnboardingSpec
from quotas.services.requests import QuotaRequestSpec
from quotas.services.roles import LEVEL_NAMES, CustomRoleSpec
from quotas.specs import DESCRIPTION_MAX, Reader, read_amounts

LEVELS = [(name, name) for name in LEVEL_NAMES]


# --- shapes -----------------------------------------------------------------------------------------------------------


class LevelsBody(Write):
    """A level in each module; one that is left out is none."""

    def get_fields(self) -> dict[str, serializers.Field[Any, Any, Any, Any]]:
        return {module: Choice(LEVELS, required=False, allow_null=True) for module in CUSTOM_MODULES}


class RoleBody(Judged):
    """A role of the workspace's own."""

    name = Name()
    levels = LevelsBody(required=False)


class RoleRead(Read):
    """A role of the workspace's own."""

    id = serializers.IntegerField()
    name = serializers.CharField()
    levels = serializers.SerializerMethodField(help_text="none, read, own or all, by module.")
    revision = serializers.IntegerField()

    @extend_schema_field(serializers.DictField(child=serializers.ChoiceField(LEVELS)))
    def get_levels(self, role: CustomRole) -> dict[str, str]:
        return {module: role.levels.get(module, "none") for module in CUSTOM_MODULES}


class InvitationBody(Write):
    """Whom to invite, and with which roles."""

    email = serializers.EmailField(max_length=254)
    roles = serializers.ListField(child=Choice(GIVEN_ROLES), min_length=1)


class InvitationRead(Read):
    """An invitation; its secret is in the mail alone."""

    id = serializers.IntegerField()
    email = serializers.CharField()
    roles = serializers.ListField(child=serializers.ChoiceField(Role.choices))
    invited_by = PersonRead(allow_null=True)
    created_at = serializers.DateTimeField()
    expires_at = serializers.DateTimeField()
    accepted_at = serializers.DateTimeField(allow_null=True)
    revoked_at = serializers.DateTimeField(allow_null=True)


class QuotaRequestBody(Judged):
    """How much more of a pool, until when in the cluster's time, and why."""

    quota = Reference()
    pool = Reference(required=False, help_text="Default: the quota's only one.")
    until = Moment()
    more_gpu_milli = amount()
    more_cpu_milli = amount()
    more_memory_mib = amount()
    reason = description()


class NewRequestBody(QuotaRequestBody):
    """Who asks."""

    workspace = Reference()


class AnswerBody(Write):
    """What is said to those who asked."""

    answer = Text(max_length=DESCRIPTION_MAX, required=False, allow_blank=True)


class QuotaRequestRead(Read):
    """A workspace asks that one of its quotas is promised more for a time."""

    id = serializers.IntegerField()
    workspace = Named()
    quota = Named()
    pool = Named()
    more_gpu_milli = serializers.IntegerField()
    more_cpu_milli = serializers.IntegerField()
    more_memory_mib = serializers.IntegerField()
    until = serializers.DateTimeField(help_text="Cluster time.")
    reason = serializers.CharField()
    state = serializers.ChoiceField(RequestState.choices)
    asked_by = PersonRead(allow_null=True)
    asked_at = serializers.DateTimeField()
    decided_by = PersonRead(allow_null=True)
    decided_at = serializers.DateTimeField(allow_null=True)
    answer = serializers.CharField()


class SetUpBody(Write):
    """A workspace with a quota of its own."""

    model = Choice(Model.choices)
    name = Name()
    cluster = Reference()
    owner = Reference(help_text="Number or login name.")
    parent = Reference(required=False, allow_null=True)  # type: ignore[assignment]
    amounts = Amounts(required=False)
    members = serializers.DictField(
        child=Choice(GIVEN_ROLES), required=False, help_text="Login names and the role of each."
    )
    description = description()


# --- calls ------------------------------------------------------------------------------------------------------------


class RoleQuery(ListQuery):
    """Order of roles."""

    orders: ClassVar = {"name": "name", "id": "id"}
    default_order = "name"


class WorkspaceDoor(workspaces.WorkspaceDoor):
    """Workspaces that govern themselves."""

    queries: ClassVar = {**workspaces.WorkspaceDoor.queries, "custom_roles": RoleQuery, "invitations": ListQuery}
    creates: ClassVar = workspaces.WorkspaceDoor.creates | {"add_role", "invite", "set_up"}
    matches: ClassVar = workspaces.WorkspaceDoor.matches | {"edit_role"}

    @extend_schema(request=SetUpBody, responses={201: WorkspaceRead})
    @action(detail=False, methods=["post"])
    def set_up(self, request: Request) -> Response:
        """Make a workspace, a quota of the same name and its members in one step: all of it or nothing."""
        spec = self._set_up_spec(self.given(SetUpBody))
        return self.created(lambda: self.fresh(set_up_workspace(actor=self.actor, spec=spec)))

    def _set_up_spec(self, body: dict[str, Any]) -> OnboardingSpec:
        cluster = named(visible_clusters(self.actor), body["cluster"], field="cluster")
        people = visible_users(self.actor)
        problems, members = Problems(), {}
        for name, role in body.get("members", {}).items():
            found: User | None = problems.take("", lambda n=name: self._person(people, n))  # type: ignore[misc]
            if found is not None:
                members[found] = role
        problems.raise_any()
        read = Reader({"amounts": body.get("amounts")})
        amounts = read_amounts(read, NodePool.objects.filter(cluster=cluster))
        read.finish()
        parents = visible_quotas(self.actor).filter(cluster=cluster)
        parent = named(parents, body["parent"], field="parent") if body.get("parent") is not None else None
        return OnboardingSpec(
            model=body["model"],
            name=body["name"],
            cluster=cluster,
            owner=named(people, body["owner"], field="owner", key="username"),
            parent=parent,
            amounts=amounts,
            members=members,
            description=body.get("description", ""),
        )

    def _person(self, people: QuerySet[User], name: str) -> User:
        found: User = named(people, name, field=f"members.{name}", key="username")
        return found

    # --- roles ------------------------------------------------------------------------------------------

    def roles_of(self, pk: int) -> QuerySet[CustomRole]:
        return CustomRole.objects.filter(workspace=self.one(pk)).select_related("workspace")

    @extend_schema(responses=RoleRead(many=True))
    @action(detail=True, url_path="roles")
    def custom_roles(self, request: Request, pk: int) -> Response:
        """Roles of the workspace's own."""
        return self.listed(self.roles_of(pk), RoleRead)

    @extend_schema(request=RoleBody, responses={201: RoleRead})
    @custom_roles.mapping.post
    def add_role(self, request: Request, pk: int) -> Response:
        """Add a role: a level in each module."""
        workspace, spec = self.one(pk), CustomRoleSpec.from_mapping(self.body)
        return self.created(lambda: create_custom_role(actor=self.actor, workspace=workspace, spec=spec), RoleRead)

    @extend_schema(request=RoleBody, responses=RoleRead)
    @action(detail=True, methods=["put"], url_path="roles/<int:role>")
    def edit_role(self, request: Request, pk: int, role: int) -> Response:
        """Change a role; whoever holds it has the new levels at once."""
        found, spec = get_object_or_404(self.roles_of(pk), pk=role), CustomRoleSpec.from_mapping(self.body)
        return self.changed(
            lambda: edit_custom_role(actor=self.actor, role=found, spec=spec, revision=self.revision), reads=RoleRead
        )

    @extend_schema(request=None, responses={204: None})
    @edit_role.mapping.delete
    def delete_role(self, request: Request, pk: int, role: int) -> Response:
        """Remove a role that nobody holds."""
        found = get_object_or_404(self.roles_of(pk), pk=role)
        return self.changed(lambda: delete_custom_role(actor=self.actor, role=found))

    # --- invitations ------------------------------------------------------------------------------------

    def invitations_of(self, pk: int) -> QuerySet[Invitation]:
        workspace = self.one(pk)
        require(self.actor, "member.manage", workspace)
        return Invitation.objects.filter(workspace=workspace).select_related("workspace", "invited_by")

    @extend_schema(responses=InvitationRead(many=True))
    @action(detail=True)
    def invitations(self, request: Request, pk: int) -> Response:
        """Invitations, for those who manage members."""
        return self.listed(self.invitations_of(pk), InvitationRead)

    @extend_schema(request=InvitationBody, responses={201: InvitationRead})
    @invitations.mapping.post
    def invite(self, request: Request, pk: int) -> Response:
        """Invite somebody by e-mail."""
        workspace, body = self.one(pk), self.given(InvitationBody)

        def link(secret: str) -> str:
            return request.build_absolute_uri(reverse("invitation", args=[secret]))

        return self.created(
            lambda: invite(actor=self.actor, workspace=workspace, email=body["email"], roles=body["roles"], link=link),
            InvitationRead,
        )

    @extend_schema(request=None, responses={204: None})
    @action(detail=True, methods=["delete"], url_path="invitations/<int:invitation>")
    def uninvite(self, request: Request, pk: int, invitation: int) -> Response:
        """Take an invitation back."""
        found = get_object_or_404(self.invitations_of(pk), pk=invitation)
        return self.changed(lambda: revoke_invitation(actor=self.actor, invitation=found))


class QuotaRequestQuery(ListQuery):
    """Filters of requests."""

    lookups: ClassVar = {"state": "state__in", "workspace": "workspace_id", "quota": "quota_id"}
    default_order = "-id"

    state = Words(RequestState.choices)
    workspace = IdParameter()
    quota = IdParameter()


class QuotaRequestDoor(Door):
    """Requests for more quota: asked by a workspace, decided by the platform, ended by themselves."""

    queryset = QuotaRequest.objects.none()
    reads = QuotaRequestRead
    list_query = QuotaRequestQuery

    def rows(self) -> QuerySet[QuotaRequest]:
        """Requests of the workspaces whose configuration the caller may read."""
        grants = grants_of(self.actor)
        readable = [
            workspace.pk
            for workspace in visible_workspaces(self.actor, grants=grants)
            if allowed(self.actor, "configuration.read", workspace, grants=grants)
        ]
        mine = Q() if grants.reads_all else Q(workspace_id__in=readable)
        return QuotaRequest.objects.filter(mine).select_related("workspace", "quota", "pool", "asked_by", "decided_by")

    def one(self, pk: int) -> QuotaRequest:
        return get_object_or_404(self.rows(), pk=pk)

    @extend_schema(responses=QuotaRequestRead)
    def list(self, request: Request) -> Response:
        """Requests that the caller sees, newest first."""
        return self.listed(self.rows())

    @extend_schema(responses=QuotaRequestRead)
    def retrieve(self, request: Request, pk: int) -> Response:
        """One request."""
        return self.answer(self.one(pk))

    @extend_schema(request=NewRequestBody, responses={201: QuotaRequestRead})
    def create(self, request: Request) -> Response:
        """Ask for more of one of the workspace's quotas."""
        body = self.body
        workspace: Workspace = named(visible_workspaces(self.actor), body.pop("workspace", None), field="workspace")
        spec = QuotaRequestSpec.from_mapping(body, workspace=workspace)
        return self.created(lambda: request_quota(actor=self.actor, workspace=workspace, spec=spec))

    @extend_schema(request=None, responses=QuotaRequestRead)
    @action(detail=True, methods=["post"])
    def withdraw(self, request: Request, pk: int) -> Response:
        """Take an open request back."""
        found = self.one(pk)
        return self.changed(lambda: withdraw_request(actor=self.actor, request=found))

    @extend_schema(request=AnswerBody, responses=QuotaRequestRead)
    @action(detail=True, methods=["post"])
    def approve(self, request: Request, pk: int) -> Response:
        """Promise what is asked, if the tree has it."""
        found, body = self.one(pk), self.given(AnswerBody)
        return self.changed(lambda: approve_request(actor=self.actor, request=found, **body))

    @extend_schema(request=AnswerBody, responses=QuotaRequestRead)
    @action(detail=True, methods=["post"])
    def decline(self, request: Request, pk: int) -> Response:
        """Say no."""
        found, body = self.one(pk), self.given(AnswerBody)
        return self.changed(lambda: decline_request(actor=self.actor, request=found, **body))
