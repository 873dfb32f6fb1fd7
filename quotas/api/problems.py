"""Every refusal as ``application/problem+json`` (RFC 9457): a stable code, and facts for each field."""

from __future__ import annotations

from collections.abc import Iterator
from http import HTTPStatus
from typing import Any

import structlog
from django.core.exceptions import PermissionDenied
from django.db import IntegrityError, OperationalError
from django.db.models import ProtectedError
from django.http import Http404
from rest_framework import exceptions
from rest_framework.renderers import JSONRenderer
from rest_framework.response import Response
from rest_framework.views import set_rollback

from quotas.errors import Denied, NotFound, Problem, Refused, Stale
from quotas.words import sentence

log = structlog.get_logger(__name__)
CONTENT_TYPE = "application/problem+json"
CODES = {
    400: "invalid",
    401: "not_authenticated",
    403: "permission.denied",
    404: "not_found",
    405: "method_not_allowed",
    406: "not_acceptable",
    409: "conflict",
    412: "stale",
    413: "too_large",
    415: "unsupported_media_type",
    422: "invalid",
    429: "throttled",
    503: "unavailable",
}


def handle(error: Exception, context: dict[str, Any]) -> Response | None:
    """The answer for an exception of a view; None for one that is a fault of ours and must be seen as such."""
    request = context["request"]
    found = answer_for(error, has_precondition="If-Match" in request.headers)
    if found is None:
        return None
    status, problems, detail = found
    set_rollback()
    request.accepted_renderer = JSONRenderer()  # a list asked for as CSV still explains itself in JSON
    request.accepted_media_type = JSONRenderer.media_type
    request_id = request.META.get("tidegate.request_id", "")
    return Response(
        body(status, problems, detail, request_id),
        status=status,
        headers=headers_for(error),
        content_type=CONTENT_TYPE,
    )


def answer_for(error: Exception, *, has_precondition: bool) -> tuple[int, list[Problem], str] | None:
    """Status, problems and a sentence of its own (empty: say the problems)."""
    match error:
        case Refused():
            return 422, list(error.problems), ""
        case Stale():
            return (412 if has_precondition else 409), [Problem("", "stale", {})], ""
        case Denied():
            return 403, [Problem("", "permission.denied", {"permission": error.permission})], ""
        case NotFound() | Http404() | exceptions.NotFound():
            return 404, [], "There is nothing here, or nothing that you may see."
        case PermissionDenied():
            return 403, [], "You may not do this."
        case ProtectedError() | IntegrityError():
            return 409, [], "Something else stands in the way of this change, or changed at the same time."
        case OperationalError():
            log.warning("database_does_not_answer", error=str(error))
            return 503, [], "The database does not answer; try again soon."
        case exceptions.ValidationError():
            return 422, list(problems_in(error.get_full_details())), ""
        case exceptions.APIException():
            return error.status_code, [], str(error.detail)
    return None


def problems_in(details: Any, path: str = "") -> Iterator[Problem]:
    """The serializers' nested complaints as a flat list of problems."""
    if isinstance(details, dict) and set(details) == {"message", "code"} and isinstance(details["code"], str):
        yield Problem(path, "invalid", {"rule": details["code"], "message": str(details["message"])})
    elif isinstance(details, dict):
        for name, inner in details.items():
            own = "" if name == "non_field_errors" else str(name)
            yield from problems_in(inner, ".".join(part for part in (path, own) if part))
    else:
        many = any(not _is_leaf(inner) for inner in details)
        for index, inner in enumerate(details):
            yield from problems_in(inner, f"{path}[{index}]" if many else path)


def _is_leaf(details: Any) -> bool:
    return isinstance(details, dict) and set(details) == {"message", "code"}


def items_of(problems: list[Problem]) -> list[dict[str, Any]]:
    """The problems as plain data, each with its words."""
    return [{"field": p.field, "code": p.code, "facts": dict(p.facts), "message": message_of(p)} for p in problems]


def body(status: int, problems: list[Problem], detail: str, request_id: str) -> dict[str, Any]:
    """The problem document itself."""
    items = items_of(problems)
    code = problems[0].code if problems else CODES.get(status, "error")
    return {
        "type": f"urn:tidegate:problem:{code}",
        "title": HTTPStatus(status).phrase,
        "status": status,
        "code": code,
        "detail": detail or " ".join(item["message"] for item in items),
        "problems": items,
        "request_id": request_id,
    }


def message_of(problem: Problem) -> str:
    """Words for people: the serializer's own where it spoke, else made from code and facts."""
    if problem.code == "invalid" and "message" in problem.facts:
        return str(problem.facts["message"])
    return sentence(problem.code, problem.facts)


def headers_for(error: Exception) -> dict[str, str]:
    headers = {}
    if getattr(error, "auth_header", None):
        headers["WWW-Authenticate"] = error.auth_header  # type: ignore[attr-defined]
    if getattr(error, "wait", None):
        headers["Retry-After"] = str(int(error.wait) + 1)  # type: ignore[attr-defined]
    return headers
