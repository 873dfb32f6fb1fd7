"""What happens around every page: the reader's clock and theme, and refusals answered in one place."""

from __future__ import annotations

import json
import zoneinfo
from collections.abc import Callable
from functools import lru_cache
from typing import cast

from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.utils import timezone
from django.utils.translation import gettext as _

from console.views.base import HtmxRequest, wants_part
from quotas.errors import Denied, NotFound, Refused, Stale
from quotas.words import sentence

THEMES = ("light", "dark", "system")
API_PREFIX = "/api/"

Answer = Callable[[HttpRequest], HttpResponse]


class ReaderMiddleware:
    """Pages show times in the reader's zone: the profile's, else the browser's, else UTC. The API speaks UTC."""

    def __init__(self, get_response: Answer) -> None:
        self.get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponse:
        if request.path.startswith(API_PREFIX):
            return self.get_response(request)
        with timezone.override(zone_of(request)):
            return self.get_response(request)


def zone_of(request: HttpRequest) -> zoneinfo.ZoneInfo:
    chosen = getattr(request.user, "time_zone", "UTC")
    wanted = chosen if chosen != "UTC" else request.COOKIES.get("zone", "UTC")
    return zone_named(wanted)


@lru_cache(maxsize=1024)
def zone_named(name: str) -> zoneinfo.ZoneInfo:
    """The zone of this name, UTC where there is none (a list of all zones costs a walk over the disk)."""
    try:
        return zoneinfo.ZoneInfo(name)
    except (KeyError, ValueError, OSError):
        return zoneinfo.ZoneInfo("UTC")


def theme_of(request: HttpRequest) -> str:
    """The theme of the cookie (set where one switches it), else of the profile."""
    chosen = request.COOKIES.get("theme") or getattr(request.user, "theme", "system")
    return chosen if chosen in THEMES else "system"


class RefusalMiddleware:
    """Turns what services raise into answers: 422 and 409 where it was typed, 403 and 404 as pages."""

    def __init__(self, get_response: Answer) -> None:
        self.get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponse:
        return self.get_response(request)

    def process_exception(self, request: HttpRequest, error: Exception) -> HttpResponse | None:
        if request.path.startswith(API_PREFIX):
            return None
        if isinstance(error, Refused):
            return refused(request, error)
        if isinstance(error, Stale):
            return stale(request, error)
        if isinstance(error, Denied):
            return render(request, "403.html", {"permission": error.permission}, status=403)
        if isinstance(error, NotFound):
            return render(request, "404.html", status=404)
        return None


def refused(request: HttpRequest, error: Refused) -> HttpResponse:
    """The problems in the form that was sent; for a button without a form a note or a page of their own."""
    form_page = getattr(request, "form_page", None)
    if form_page is not None:
        form_page.form.add_problems(error.problems)
        return cast(HttpResponse, form_page.answer(status=422))
    sentences = [sentence(problem.code, problem.facts) for problem in error.problems]
    if wants_part(request):
        return note(" ".join(sentences), status=422)
    return render(request, "refused.html", {"sentences": sentences, "back": back_of(request)}, status=422)


def stale(request: HttpRequest, error: Stale) -> HttpResponse:
    """Somebody else was faster: what was typed stays, what is in force now stands above it."""
    words = _(
        "Somebody else has changed this meanwhile. What you typed is below; save again to put it in place of theirs."
    )
    form_page = getattr(request, "form_page", None)
    if form_page is not None:
        newest = type(error.thing)._default_manager.filter(pk=error.thing.pk).values_list("revision", flat=True).first()
        form_page.form.renew_revision(newest or 0)
        return cast(HttpResponse, form_page.answer(status=409, stale=words))
    if wants_part(request):
        return note(_("This has changed meanwhile; look at the new state and try again."), status=409)
    return render(request, "refused.html", {"sentences": [words], "back": back_of(request)}, status=409)


def note(said: str, *, status: int) -> HttpResponse:
    """A fragment's refusal as a toast; nothing on the page is swapped."""
    response = HttpResponse(status=status)
    response["HX-Reswap"] = "none"
    response["HX-Trigger"] = json.dumps({"toast": {"level": "error", "message": said}})
    return response


def back_of(request: HttpRequest) -> str:
    """Where the reader came from, if that was here."""
    referrer = request.headers.get("Referer", "")
    own = f"{request.scheme}://{request.get_host()}/"
    return referrer if referrer.startswith(own) else "/"


__all__ = ["HtmxRequest", "ReaderMiddleware", "RefusalMiddleware", "theme_of", "zone_of"]
