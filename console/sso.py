"""Single sign-on with OpenID Connect: who comes from the identity provider has an account and follows their groups."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NoReturn

from allauth.core.exceptions import ImmediateHttpResponse
from allauth.socialaccount.adapter import DefaultSocialAccountAdapter
from allauth.socialaccount.models import SocialLogin
from django.conf import settings
from django.http import HttpRequest
from django.shortcuts import render

from quotas.actors import System
from quotas.audit import record
from quotas.models import User
from quotas.origins import origin_of
from quotas.services.groups import follow_groups


class SingleSignOn(DefaultSocialAccountAdapter):
    """Accounts are made at the first sign-in; a name that is taken by a local account is refused, never merged."""

    def is_open_for_signup(self, request: HttpRequest, sociallogin: SocialLogin) -> bool:
        return True

    def pre_social_login(self, request: HttpRequest, sociallogin: SocialLogin) -> None:
        """Brings a known person in step; a new one is let in only under a free name and address."""
        if sociallogin.is_existing:
            if sociallogin.user.is_active:
                follow_groups(user=sociallogin.user, groups=groups_of(sociallogin.account.extra_data))
            return
        name = claims_of(sociallogin.account.extra_data).get("preferred_username") or sociallogin.user.username
        email = sociallogin.user.email
        if not name or User.objects.filter(username__iexact=name).exists():
            self._refuse(request, name)
        if email and User.objects.filter(email__iexact=email).exists():
            self._refuse(request, email)

    def _refuse(self, request: HttpRequest, taken: str) -> NoReturn:
        visitor = System("visitor", origin_of(request, "console"))
        record(actor=visitor, verb="session.refused", result="refused", facts={"reason": "taken", "given": taken})
        page = render(request, "socialaccount/authentication_error.html", {"taken": taken}, status=403)
        raise ImmediateHttpResponse(page)

    def save_user(self, request: HttpRequest, sociallogin: SocialLogin, form: Any = None) -> User:
        user: User = super().save_user(request, sociallogin, form)
        user.origin = origin_of(request, "console")
        record(actor=user, verb="user.created", thing=user, after={"by": "single sign-on"})
        follow_groups(user=user, groups=groups_of(sociallogin.account.extra_data))
        return user


def claims_of(extra: Mapping[str, Any]) -> Mapping[str, Any]:
    """What the provider says of a person: the user info answer, completed by the signed token."""
    return {**(extra.get("id_token") or {}), **(extra.get("userinfo") or extra)}


def groups_of(extra: Mapping[str, Any]) -> list[str]:
    """The names of a person's groups; a claim of another shape counts as none."""
    groups = claims_of(extra).get(settings.OIDC_GROUPS_CLAIM)
    return [group for group in groups if isinstance(group, str)] if isinstance(groups, list) else []
