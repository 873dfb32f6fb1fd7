"""How accounts come to be, and that signing in and out is in the audit."""

from typing import Any

from allauth.account.adapter import DefaultAccountAdapter
from django.db.models import Q
from django.http import Http404, HttpRequest, HttpResponse

from quotas.actors import System
from quotas.audit import record
from quotas.models import User
from quotas.origins import origin_of


def no_page(request: HttpRequest) -> HttpResponse:
    """In place of the page on which people would give themselves an address: invitations go by it, unproven."""
    raise Http404


class ClosedSignupAdapter(DefaultAccountAdapter):
    """People are added by an administrator or by single sign-on, never by themselves."""

    def is_open_for_signup(self, request: HttpRequest) -> bool:
        return False

    def login(self, request: HttpRequest, user: User) -> None:
        super().login(request, user)
        user.origin = origin_of(request, "console")
        record(actor=user, verb="session.opened", thing=user)

    def logout(self, request: HttpRequest) -> None:
        if isinstance(request.user, User):
            record(actor=request.user, verb="session.closed", thing=request.user)
        super().logout(request)

    def set_password(self, user: User, password: str) -> None:
        super().set_password(user, password)
        user.origin = origin_of(self.request, "console")
        record(actor=user, verb="user.password_set", thing=user)

    def authentication_failed(self, request: HttpRequest, **credentials: Any) -> None:
        """Names the account only if there is one: people type passwords into the wrong field."""
        tried = credentials.get("username") or credentials.get("email") or ""
        account = User.objects.filter(Q(username__iexact=tried) | Q(email__iexact=tried)).first() if tried else None
        visitor = System("visitor", origin_of(request, "console"))
        record(actor=visitor, verb="session.refused", thing=account, result="refused")
        super().authentication_failed(request, **credentials)
