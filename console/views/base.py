"""What views share: the part of a page that is asked for, forms in a page or panel, the answer after a change."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, cast

from django.contrib import messages
from django.core.paginator import Page, Paginator
from django.db.models import QuerySet
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.urls import reverse
from django_htmx.middleware import HtmxDetails

from console.forms.base import ConsoleForm
from quotas.models import User

PANEL = "panel-body"
PAGE_SIZES = (25, 50, 100)
SEARCH_MAX = 80


class HtmxRequest(HttpRequest):
    """A signed-in person's request as the middleware leaves it."""

    htmx: HtmxDetails
    user: User
    form_page: FormPage | None


@dataclass(frozen=True, slots=True)
class Crumb:
    title: str
    url: str = ""


def wants_part(request: HttpRequest) -> bool:
    """A fragment is asked for; a restored history entry and a boosted link want the whole page."""
    htmx = cast(HtmxRequest, request).htmx
    return bool(htmx) and not htmx.boosted and not htmx.history_restore_request


def page_or_part(request: HttpRequest, template: str, *parts: str) -> str:
    """The template, or that of its parts whose name is the id of the element asked for."""
    target = cast(HtmxRequest, request).htmx.target
    return f"{template}#{target}" if wants_part(request) and target in parts else template


def in_panel(request: HttpRequest) -> bool:
    return wants_part(request) and cast(HtmxRequest, request).htmx.target == PANEL


@dataclass
class FormPage:
    """A form with what stands around it. It is kept on the request, so that a refusal is shown where it was typed."""

    request: HttpRequest
    form: ConsoleForm
    title: str
    submit: str
    back: str
    template: str = "components/form_page.html"
    crumbs: tuple[Crumb, ...] = ()
    lead: str = ""
    context: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        cast(HtmxRequest, self.request).form_page = self

    def answer(self, status: int | None = None, **more: Any) -> HttpResponse:
        """The form, 422 when it has errors."""
        code = status or (422 if self.form.is_bound and self.form.errors else 200)
        template = f"{self.template}#form" if in_panel(self.request) else self.template
        return render(self.request, template, {**self.all_context(), **more}, status=code)

    def all_context(self) -> dict[str, Any]:
        """What the template is given."""
        return {
            "form": self.form,
            "title": self.title,
            "submit": self.submit,
            "back": self.back,
            "crumbs": self.crumbs,
            "lead": self.lead,
            "in_panel": in_panel(self.request),
            **self.context,
        }


def done(request: HttpRequest, said: str, to: str, *args: Any, changed: Iterable[str] = ()) -> HttpResponse:
    """After a change: to the page, or for a fragment a note, the panel closed, and the parts that show it refreshed."""
    if not wants_part(request):
        messages.success(request, said)
        return redirect(to, *args)
    if cast(HtmxRequest, request).htmx.target == PANEL and not changed:
        messages.success(request, said)
        response = HttpResponse(status=204)
        response["HX-Redirect"] = reverse(to, args=args)
        return response
    response = HttpResponse(status=204)
    response["HX-Trigger"] = json.dumps(
        {"toast": {"message": said}, "panel:close": True, **{f"live:{topic}": True for topic in changed}}
    )
    return response


def asked_text(request: HttpRequest) -> str:
    """What is searched for, without what no database can look for."""
    return request.GET.get("q", "").replace("\x00", "").strip()[:SEARCH_MAX]


def paged(request: HttpRequest, rows: QuerySet[Any] | list[Any], usual: int = PAGE_SIZES[0]) -> Page[Any]:
    """The page that the address asks for; sizes come from a short list, and what is no number is the first page."""
    asked = request.GET.get("size")
    size = next((size for size in PAGE_SIZES if str(size) == asked), usual)
    return Paginator(rows, size).get_page(request.GET.get("page"))
