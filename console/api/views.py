"""The published schema, the page that shows it, and what every unknown address under the API answers."""

from __future__ import annotations

from django.http import HttpRequest, HttpResponse, JsonResponse
from django.shortcuts import render
from django.views.decorators.csrf import csrf_exempt
from django.views.decorators.http import require_safe
from django.views.defaults import server_error

from console.api.reference import reference, schema_text
from quotas.api.problems import CONTENT_TYPE, body
from quotas.words import REFUSALS, WAITING

PREFIX = "/api/"


@require_safe
def openapi(request: HttpRequest) -> HttpResponse:
    return HttpResponse(schema_text(), content_type="application/json")


@require_safe
def docs(request: HttpRequest) -> HttpResponse:
    """The reference as a page of ours: no script, so it needs nothing that the console's policy forbids."""
    return render(request, "api/docs.html", {"reference": reference(), "codes": REFUSALS | WAITING})


@csrf_exempt
def nothing_here(request: HttpRequest) -> JsonResponse:
    """A problem document for an address that the API does not have."""
    return problem(request, 404, "The API has no such address.")


def any_server_error(request: HttpRequest) -> HttpResponse:
    """A fault of ours, as a problem document or as a page; the request's id finds it in the log."""
    if not request.path.startswith(PREFIX):
        return server_error(request)
    return problem(request, 500, "Something went wrong on our side; the log has it under the request's id.")


def problem(request: HttpRequest, status: int, detail: str) -> JsonResponse:
    request_id = request.META.get("tidegate.request_id", "")
    return JsonResponse(body(status, [], detail, request_id), status=status, content_type=CONTENT_TYPE)
