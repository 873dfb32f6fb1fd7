"""Who calls: a token in the ``Authorization`` header, or the session of the console."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from django.http import HttpRequest
from django.utils import timezone
from drf_spectacular.extensions import OpenApiAuthenticationExtension
from rest_framework import authentication, exceptions
from rest_framework.request import Request

from quotas.models import Token, User
from quotas.origins import origin_of
from quotas.tokens import find_token

NOTE_USE_EVERY = timedelta(minutes=1)


class TokenAuthentication(authentication.BaseAuthentication):
    """``Authorization: Bearer tg_...``. Every request reads the token's row, so a revoked one is refused at once."""

    keyword = "Bearer"

    def authenticate(self, request: Request) -> tuple[User, Token] | None:
        words = request.headers.get("Authorization", "").split()
        if not words or words[0].lower() != self.keyword.lower():
            return None
        token = find_token(words[1]) if len(words) == 2 else None
        if token is None:
            raise exceptions.AuthenticationFailed
        note_use(token, request)
        user = token.user
        user.token = token
        user.origin = origin_of(request, "api")
        return user, token

    def authenticate_header(self, request: Request) -> str:
        return f'{self.keyword} realm="tidegate"'


class SessionAuthentication(authentication.SessionAuthentication):
    """The console's session; changes need the CSRF header as on its pages."""

    def authenticate(self, request: Request) -> tuple[Any, None] | None:
        found = super().authenticate(request)
        if found is not None:
            found[0].origin = origin_of(request, "api")
        return found


def note_use(token: Token, request: HttpRequest | Request) -> None:
    """Remember when and from where the token was used last, at most once a minute."""
    now = timezone.now()
    if token.last_used_at is not None and now - token.last_used_at < NOTE_USE_EVERY:
        return
    Token.objects.filter(pk=token.pk).update(last_used_at=now, last_used_from=origin_of(request, "api").address)


class TokenScheme(OpenApiAuthenticationExtension):  # type: ignore[no-untyped-call]
    """How the schema names the token."""

    target_class = TokenAuthentication
    name = "token"

    def get_security_definition(self, auto_schema: Any) -> dict[str, str]:
        return {"type": "http", "scheme": "bearer", "description": "An API token: `Authorization: Bearer tg_...`."}


class SessionScheme(OpenApiAuthenticationExtension):  # type: ignore[no-untyped-call]
    """How the schema names the console's session."""

    target_class = SessionAuthentication
    name = "session"

    def get_security_definition(self, auto_schema: Any) -> dict[str, str]:
        return {"type": "apiKey", "in": "cookie", "name": "tidegate_session"}
