"""The caller, API tokens, and the people of the platform."""

from __future__ import annotations

from typing import Any

from django.db.models import QuerySet
from django.shortcuts import get_object_or_404
from drf_spectacular.utils import extend_schema
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from quotas.api.bodies import ActiveBody, TokenBody, UserBody
from quotas.api.queries import ListQuery
from quotas.api.serializers import Named, Read
from quotas.api.shapes import TokenCreated, TokenRead, UserRead
from quotas.api.views import Door
from quotas.models import PlatformRole, Token, User
from quotas.permissions import permissions_on, visible_users, visible_workspaces
from quotas.services import create_token, create_user, revoke_token, set_active
from quotas.specs import TokenSpec, UserSpec


class WorkspaceRights(Read):
    """What the caller may do in one workspace."""

    workspace = Named()
    roles = serializers.ListField(child=serializers.CharField(), help_text="Empty for the platform's people.")
    permissions = serializers.ListField(child=serializers.CharField())


class MeRead(Read):
    """The caller, and what it may do with the token or session of this call."""

    id = serializers.IntegerField()
    username = serializers.CharField()
    email = serializers.CharField()
    platform_role = serializers.ChoiceField(PlatformRole.choices)
    token = serializers.CharField(allow_null=True, help_text="Prefix of the token of this call.")
    permissions = serializers.ListField(child=serializers.CharField(), help_text="On the platform or anywhere.")
    workspaces = WorkspaceRights(many=True)


class MeDoor(Door):
    """The caller itself."""

    queryset = User.objects.none()
    reads = MeRead

    @extend_schema(responses=MeRead)
    def retrieve(self, request: Request) -> Response:
        """Who the caller is and what it may do, workspace by workspace."""
        me = self.actor
        held = dict(me.memberships.values_list("workspace_id", "roles"))
        rights = [
            {"workspace": workspace, "roles": held.get(workspace.pk, []), "permissions": permissions_on(me, workspace)}
            for workspace in visible_workspaces(me)
        ]
        return Response(
            self.shown(
                {
                    "id": me.pk,
                    "username": me.get_username(),
                    "email": me.email,
                    "platform_role": me.platform_role,
                    "token": me.token.prefix if me.token else None,
                    "permissions": permissions_on(me),
                    "workspaces": rights,
                }
            )
        )


class TokenDoor(Door):
    """The caller's own API tokens."""

    queryset = Token.objects.none()
    reads = TokenRead

    def rows(self) -> QuerySet[Token]:
        """All of the caller's tokens; a token that is bound to a workspace knows only itself."""
        own = Token.objects.filter(user_id=self.actor.pk).select_related("workspace")
        used = self.actor.token
        return own if used is None or used.workspace_id is None else own.filter(pk=used.pk)

    @extend_schema(responses=TokenRead)
    def list(self, request: Request) -> Response:
        """The caller's tokens, revoked and expired ones too; never a secret."""
        return self.listed(self.rows())

    @extend_schema(responses=TokenRead)
    def retrieve(self, request: Request, pk: int) -> Response:
        """One of the caller's tokens."""
        return self.answer(get_object_or_404(self.rows(), pk=pk))

    @extend_schema(request=TokenBody, responses={201: TokenCreated})
    def create(self, request: Request) -> Response:
        """Make a token. Its secret is in this answer and nowhere else."""
        spec = TokenSpec.from_mapping(self.body, workspaces=visible_workspaces(self.actor))

        def made() -> Token:
            token, secret = create_token(actor=self.actor, spec=spec)
            token.secret = secret  # type: ignore[attr-defined]
            return token

        return self.created(made, TokenCreated, keep=without_secret)

    @extend_schema(request=None, responses={204: None})
    def destroy(self, request: Request, pk: int) -> Response:
        """Revoke a token; the next call with it is refused."""
        token = get_object_or_404(self.rows(), pk=pk)

        def revoked() -> None:
            revoke_token(actor=self.actor, token=token)

        return self.changed(revoked)


def without_secret(data: Any) -> dict[str, Any]:
    """What may be kept of the answer, so that a repeated call gets no secret."""
    return {**data, "secret": None}


class UserQuery(ListQuery):
    """Filters of people."""

    lookups = {"username": "username__icontains"}
    orders = {"id": "id", "username": "username"}
    default_order = "username"

    username = serializers.CharField(required=False, max_length=150, help_text="A part of the login name.")


class UserDoor(Door):
    """People: those one shares a workspace with; the platform's people see all."""

    queryset = User.objects.none()
    reads = UserRead
    list_query = UserQuery

    @extend_schema(responses=UserRead)
    def list(self, request: Request) -> Response:
        """People that the caller sees."""
        return self.listed(visible_users(self.actor))

    @extend_schema(responses=UserRead)
    def retrieve(self, request: Request, pk: int) -> Response:
        """One person."""
        return self.answer(get_object_or_404(visible_users(self.actor), pk=pk))

    @extend_schema(request=ActiveBody, responses=UserRead)
    def partial_update(self, request: Request, pk: int) -> Response:
        """Close an account, or open it again. A closed one keeps its history and can do nothing, by no door."""
        user, body = get_object_or_404(visible_users(self.actor), pk=pk), self.given(ActiveBody)
        return self.changed(lambda: set_active(actor=self.actor, user=user, active=body["is_active"]))

    @extend_schema(request=UserBody, responses={201: UserRead})
    def create(self, request: Request) -> Response:
        """Add a person or a service account."""
        spec = UserSpec.from_mapping(self.body)
        return self.created(lambda: create_user(actor=self.actor, spec=spec))
