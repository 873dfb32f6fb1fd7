"""Workspaces: members with roles, and the quotas that are bound to them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

from django.db.models import QuerySet
from django.shortcuts import get_object_or_404
from drf_spectacular.utils import extend_schema
from rest_framework import serializers
from rest_framework.decorators import action
from rest_framework.request import Request
from rest_framework.response import Response

from quotas.api.bodies import (
    BindBody,
    EditWorkspaceBody,
    HandOverBody,
    MemberBody,
    RolesBody,
    WorkspaceBody,
)
from quotas.api.finding import named
from quotas.api.queries import ListQuery
from quotas.api.shapes import MemberRead, WorkspaceRead
from quotas.api.views import Door
from quotas.models import CustomRole, Member, User, Workspace
from quotas.permissions import require, visible_members, visible_quotas, visible_users, visible_workspaces
from quotas.services import (
    add_member,
    archive_workspace,
    bind_quota,
    create_workspace,
    edit_workspace,
    hand_over,
    remove_member,
    set_default_quota,
    set_roles,
)
from quotas.specs import WorkspaceSpec


class WorkspaceQuery(ListQuery):
    """Filters of workspaces."""

    lookups = {"name": "name__icontains", "archived": "archived_at__isnull"}
    orders = {"id": "id", "name": "name", "created_at": "created_at"}
    default_order = "name"

    name = serializers.CharField(required=False, max_length=63, help_text="A part of the name.")
    archived = serializers.BooleanField(required=False, help_text="Only archived ones, or only others.")

    def validate_archived(self, value: bool) -> bool:
        return not value


class WorkspaceDoor(Door):
    """Workspaces of which the caller is a member; the platform's people see all."""

    queryset = Workspace.objects.none()
    reads = WorkspaceRead
    list_query = WorkspaceQuery
    queries: ClassVar = {"members": ListQuery}
    creates: ClassVar = frozenset({"create", "add"})
    matches: ClassVar = frozenset({"partial_update"})

    def rows(self) -> QuerySet[Workspace]:
        return visible_workspaces(self.actor).prefetch_related("bindings__quota")

    def one(self, pk: int) -> Workspace:
        return get_object_or_404(self.rows(), pk=pk)

    def fresh(self, workspace: Workspace) -> Workspace:
        """The workspace as it is after a change, even where it was the caller's last look at it."""
        return Workspace.objects.prefetch_related("bindings__quota").get(pk=workspace.pk)

    @extend_schema(responses=WorkspaceRead)
    def list(self, request: Request) -> Response:
        """Workspaces that the caller sees."""
        return self.listed(self.rows())

    @extend_schema(responses=WorkspaceRead)
    def retrieve(self, request: Request, pk: int) -> Response:
        """One workspace with the quotas bound to it."""
        return self.answer(self.one(pk))

    @extend_schema(request=WorkspaceBody, responses={201: WorkspaceRead})
    def create(self, request: Request) -> Response:
        """Make a workspace; the caller or the person named becomes its owner."""
        spec = WorkspaceSpec.from_mapping(self.body, quotas=visible_quotas(self.actor), users=visible_users(self.actor))
        return self.created(lambda: self.fresh(create_workspace(actor=self.actor, spec=spec)))

    @extend_schema(request=EditWorkspaceBody, responses=WorkspaceRead)
    def partial_update(self, request: Request, pk: int) -> Response:
        """Change name or description."""
        workspace, changes = self.one(pk), self.given(EditWorkspaceBody)
        return self.changed(
            lambda: self.fresh(
                edit_workspace(actor=self.actor, workspace=workspace, changes=changes, revision=self.revision)
            )
        )

    @extend_schema(request=None, responses=WorkspaceRead)
    @action(detail=True, methods=["post"])
    def archive(self, request: Request, pk: int) -> Response:
        """Close the workspace for new work; what runs goes on."""
        workspace = self.one(pk)
        return self.changed(lambda: self.fresh(archive_workspace(actor=self.actor, workspace=workspace)))

    @extend_schema(request=None, responses=WorkspaceRead)
    @action(detail=True, methods=["post"])
    def reopen(self, request: Request, pk: int) -> Response:
        """Open an archived workspace for new work again."""
        workspace = self.one(pk)
        return self.changed(
            lambda: self.fresh(archive_workspace(actor=self.actor, workspace=workspace, archived=False))
        )

    @extend_schema(request=BindBody, responses=WorkspaceRead)
    @action(detail=True, methods=["post"], url_path="quotas")
    def bind(self, request: Request, pk: int) -> Response:
        """Bind a quota; with `default` it becomes the one that is used when none is named."""
        workspace, body = self.one(pk), self.given(BindBody)
        quota = named(visible_quotas(self.actor), body["quota"], field="quota")
        is_default = body.get("default", False)

        def bound() -> Workspace:
            bind_quota(actor=self.actor, workspace=workspace, quota=quota, default=is_default)
            return self.fresh(workspace)

        return self.changed(bound)

    @extend_schema(request=None, responses=WorkspaceRead)
    @action(detail=True, methods=["post"], url_path="quotas/<int:quota>/default")
    def default(self, request: Request, pk: int, quota: int) -> Response:
        """Make one of the bound quotas the default."""
        workspace = self.one(pk)
        bound = get_object_or_404(visible_quotas(self.actor), pk=quota)

        def chosen() -> Workspace:
            set_default_quota(actor=self.actor, workspace=workspace, quota=bound)
            return self.fresh(workspace)

        return self.changed(chosen)

    @extend_schema(request=HandOverBody, responses=WorkspaceRead)
    @action(detail=True, methods=["post"])
    def hand_over(self, request: Request, pk: int) -> Response:
        """Make another member the owner."""
        workspace, body = self.one(pk), self.given(HandOverBody)
        to = named(self._people(workspace), body["to"], field="to", key="username")

        def handed_over() -> Workspace:
            hand_over(actor=self.actor, workspace=workspace, to=to)
            return self.fresh(workspace)

        return self.changed(handed_over)

    def _people(self, workspace: Workspace) -> QuerySet[User]:
        return visible_users(self.actor).filter(memberships__workspace=workspace)

    # --- members ----------------------------------------------------------------------------------------

    def members_of(self, pk: int) -> QuerySet[Member]:
        return visible_members(self.actor).filter(workspace=self.one(pk)).select_related("user", "workspace")

    @extend_schema(responses=MemberRead(many=True))
    @action(detail=True)
    def members(self, request: Request, pk: int) -> Response:
        """Members with their roles."""
        return self.listed(self.members_of(pk), MemberRead)

    @extend_schema(request=MemberBody, responses={201: MemberRead})
    @members.mapping.post
    def add(self, request: Request, pk: int) -> Response:
        """Add a person with roles."""
        workspace, body = self.one(pk), self.given(MemberBody)
        require(self.actor, "member.manage", workspace)  # before the search, which would tell who has an account
        user = named(self._accounts(body["user"]), body["user"], field="user", key="username")
        return self.created(
            lambda: add_member(
                actor=self.actor,
                workspace=workspace,
                user=user,
                roles=body.get("roles", ()),
                custom_roles=self._custom(workspace, body),
            ),
            MemberRead,
        )

    def _accounts(self, reference: object) -> QuerySet[User]:
        """Any open account by its login name; by number only those that the caller sees."""
        people = visible_users(self.actor) if isinstance(reference, int) else User.objects.all()
        return people.filter(is_active=True)

    def _custom(self, workspace: Workspace, body: dict[str, Any]) -> Sequence[CustomRole]:
        """The workspace's own roles that a body names."""
        among = CustomRole.objects.filter(workspace=workspace)
        return [named(among, reference, field="custom_roles") for reference in body.get("custom_roles", ())]

    @extend_schema(request=RolesBody, responses=MemberRead)
    @action(detail=True, methods=["put"], url_path="members/<int:member>")
    def roles(self, request: Request, pk: int, member: int) -> Response:
        """Put these roles in the place of the member's."""
        found, body = get_object_or_404(self.members_of(pk), pk=member), self.given(RolesBody)
        custom = self._custom(found.workspace, body)
        return self.changed(
            lambda: set_roles(actor=self.actor, member=found, roles=body.get("roles", ()), custom_roles=custom),
            reads=MemberRead,
        )

    @extend_schema(request=None, responses={204: None})
    @roles.mapping.delete
    def remove(self, request: Request, pk: int, member: int) -> Response:
        """Take the person out of the workspace."""
        found = get_object_or_404(self.members_of(pk), pk=member)
        return self.changed(lambda: remove_member(actor=self.actor, member=found))
