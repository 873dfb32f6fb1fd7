"""Where a request came from, and the number that names it in logs and errors."""

from __future__ import annotations

import ipaddress
import re
import uuid
from collections.abc import Callable
from typing import TYPE_CHECKING

import structlog
from django.conf import settings
from django.http import HttpRequest, HttpResponse

from quotas.actors import Origin

if TYPE_CHECKING:
    from rest_framework.request import Request

REQUEST_ID = re.compile(r"[A-Za-z0-9._-]{8,64}")


def address_of(request: HttpRequest | Request) -> str | None:
    """The caller's address; behind proxies the one that the outermost trusted proxy saw. None: not known."""
    proxies: int = settings.ALLAUTH_TRUSTED_PROXY_COUNT
    address: str = request.META.get("REMOTE_ADDR", "")
    forwarded = [part.strip() for part in request.META.get("HTTP_X_FORWARDED_FOR", "").split(",") if part.strip()]
    if proxies and forwarded:
        address = forwarded[-min(proxies, len(forwarded))]
    try:
        return str(ipaddress.ip_address(address))
    except ValueError:
        return None


def origin_of(request: HttpRequest | Request, door: str) -> Origin:
    return Origin(door=door, address=address_of(request))


class OriginMiddleware:
    """Gives each request an id, and its user the door: pages are the console's, the API says so itself."""

    def __init__(self, get_response: Callable[[HttpRequest], HttpResponse]) -> None:
        self.get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponse:
        request_id = _request_id(request)
        request.META["tidegate.request_id"] = request_id
        structlog.contextvars.bind_contextvars(request_id=request_id)
        try:
            if request.user.is_authenticated:
                request.user.origin = origin_of(request, "console")
            response = self.get_response(request)
        finally:
            structlog.contextvars.unbind_contextvars("request_id")
        response["X-Request-ID"] = request_id
        return response


def _request_id(request: HttpRequest) -> str:
    """The caller's own id where it has the shape of one, else a new one."""
    given = request.headers.get("X-Request-ID", "")
    return given if REQUEST_ID.fullmatch(given) else uuid.uuid4().hex
