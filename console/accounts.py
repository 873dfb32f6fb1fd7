"""How accounts come to be."""

from allauth.account.adapter import DefaultAccountAdapter
from django.http import HttpRequest


class ClosedSignupAdapter(DefaultAccountAdapter):
    """People are added by an administrator or by single sign-on, never by themselves."""

    def is_open_for_signup(self, request: HttpRequest) -> bool:
        return False
