"""Where a request came from, and the number that names it in logs and errors."""

from __future__ import annotations

import ipaddress
import re
import uuid
from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING

import structlog
from django.conf import settings
from django.db import DatabaseError
from django.http import HttpRequest, HttpResponse

from quotas.actors import Origin
from quotas.audit import record
from quotas.models import User

if TYPE_CHECKING:
    from rest_framework.request import Request

READS = frozenset({"GET", "HEAD", "OPTIONS"})
REFUSED = frozenset({403, 404, 409, 412, 422, 429})
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
        if isinstance(request.user, User):  # what one person may read is kept for nobody
            response.headers.setdefault("Cache-Control", "private, no-store")
        _note_refusal(request, response, request_id)
        return response


def _note_refusal(request: HttpRequest, response: HttpResponse, request_id: str) -> None:
    """Changes that were asked for and refused are in the audit too, whichever door they came to."""
    if request.method in READS or response.status_code not in REFUSED or not isinstance(request.user, User):
        return
    route = request.resolver_match.route if request.resolver_match else ""  # the path itself may hold a secret
    facts = {"method": request.method, "route": route, "status": response.status_code, "request": request_id}
    with suppress(DatabaseError):  # the answer stands whether or not it can be noted
        record(actor=request.user, verb="refused", result="refused", facts=facts)


def _request_id(request: HttpRequest) -> str:
    """The caller's own id where it has the shape of one, else a new one."""
    given = request.headers.get("X-Request-ID", "")
    return given if REQUEST_ID.fullmatch(given) else uuid.uuid4().hex
