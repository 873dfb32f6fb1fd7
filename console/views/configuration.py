"""Workspace settings > Scheduling Configuration: who may use how much of each quota, and what applies to whom."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, cast

from django.contrib.auth.decorators import login_required
from django.http import Http404, HttpResponse
from django.urls import reverse
from django.utils.translation import gettext as _
from django.views.decorators.http import require_http_methods, require_POST

from console.amounts import gpus, memory, span
from console.forms.base import ConsoleForm
from console.forms.configuration import EntrySet, TemplateForm, template_initial
from console.views.base import Crumb, FormPage, HtmxRequest, done
from console.views.quotas import number
from console.views.workspaces import crumbs, tabs_of
from quotas.models import User, Workspace
from quotas.permissions import allowed, permissions_on, require
from quotas.selectors import get_workspace
from workloads.configuration import EffectiveLimits, Limit
from workloads.models import Configuration, Kind, Template
from workloads.services.configuring import (
    TemplateSpec,
    create_template,
    delete_template,
    edit_template,
    limits_of,
    read_entries,
    save_configuration,
)

TAB = "scheduling"


@login_required
@require_http_methods(["GET", "POST"])
def configuration(request: HtmxRequest, pk: int) -> HttpResponse:
    """The tab: entries as one form, templates, and the tester. "+ Add" keeps what was typed and opens a line."""
    workspace = get_workspace(actor=request.user, pk=pk)
    may_read = allowed(request.user, "configuration.read", workspace)
    stored = Configuration.objects.filter(workspace=workspace).first()
    entries = stored.entries.select_related("user") if stored and may_read else []
    form = EntrySet(workspace, entries, request.POST or None, stored.revision if stored else 0)
    page = FormPage(
        request,
        cast(ConsoleForm, form),
        workspace.name,
        _("Save"),
        reverse("workspace-tab", args=[pk, TAB]),
        template="workspaces/configuration.html",
        context=tab_context(request, workspace, may_read),
    )
    if request.method != "POST":
        return page.answer()
    require(request.user, "configuration.manage", workspace)
    adding = request.POST.get("do", "").partition("add:")[2]
    if adding:
        form.add(number(adding))
        return page.answer(status=200)
    if not form.is_valid():
        return page.answer(status=422)
    specs = read_entries(form.mappings(), workspace=workspace)
    save_configuration(
        actor=request.user, workspace=workspace, entries=specs, revision=number(request.POST.get("revision"))
    )
    return done(request, _("The scheduling configuration is in force."), "workspace-tab", pk, TAB)


def tab_context(request: HtmxRequest, workspace: Workspace, may_read: bool) -> dict[str, Any]:
    bindings = list(workspace.bindings.select_related("quota").order_by("-is_default", "quota__name"))
    return {
        "workspace": workspace,
        "tab": TAB,
        "tabs": tabs_of(workspace),
        "may": set(permissions_on(request.user, workspace)),
        "may_read": may_read,
        "bindings": bindings,
        "templates": list(workspace.templates.all()) if may_read else [],
        **tested(request, workspace, bindings),
    }


@dataclass(frozen=True, slots=True)
class LimitLine:
    title: str
    value: str
    entry: str


def tested(request: HtmxRequest, workspace: Workspace, bindings: list[Any]) -> dict[str, Any]:
    """What applies to one person on one quota: by default to the reader, on the default quota."""
    quota = next((row.quota for row in bindings if row.quota_id == number(request.GET.get("quota"))), None)
    quota = quota or (bindings[0].quota if bindings else None)
    people = User.objects.filter(memberships__workspace=workspace).order_by("username")
    person = people.filter(username=request.GET.get("person", request.user.get_username())).first()
    if quota is None or person is None:
        return {"people": people, "asked_quota": quota, "asked_person": person}
    limits = limits_of(actor=request.user, workspace=workspace, quota=quota, user=person)
    return {"people": people, "asked_quota": quota, "asked_person": person, "limits": limit_lines(limits)}


def limit_lines(limits: EffectiveLimits) -> list[LimitLine]:
    """The limits in words, each with the entry it comes from."""
    kinds = [
        LimitLine(str(Kind(kind).label).capitalize(), _("allowed") if limit.value else _("not allowed"), limit.entry)
        for kind, limit in limits.kinds.items()
    ]
    rest = (
        (_("Highest priority"), limits.max_priority, str),
        (_("GPUs at once"), limits.cap_gpu_milli, gpus),
        (_("CPU cores at once"), limits.cap_cpu_milli, gpus),
        (_("Memory at once"), limits.cap_memory_mib, memory),
        (_("Longest run"), limits.max_runtime_s, span),
        (_("Longest wait"), limits.max_wait_s, span),
        (_("Template"), limits.template_required, lambda needed: _("required") if needed else _("not required")),
    )
    return [*kinds, *(LimitLine(title, value_words(limit, words), limit.entry) for title, limit, words in rest)]


def value_words(limit: Limit, words: Any) -> str:
    return _("no limit") if limit.value is None else str(words(limit.value))


# --- templates -------------------------------------------------------------------------------------------------------


@login_required
@require_http_methods(["GET", "POST"])
def template_edit(request: HtmxRequest, pk: int, template_pk: int | None = None) -> HttpResponse:
    """A new named size, or an old one changed."""
    workspace = get_workspace(actor=request.user, pk=pk)
    require(request.user, "configuration.manage", workspace)
    template = get_template(workspace, template_pk) if template_pk else None
    form = TemplateForm(request.POST or None, initial=template_initial(template))
    title = _("Edit template %(name)s") % {"name": template.name} if template else _("New template")
    back = reverse("workspace-tab", args=[pk, TAB])
    where = (*crumbs(workspace), Crumb(_("Scheduling Configuration"), back))
    page = FormPage(request, form, title, _("Save"), back, crumbs=where)
    if not form.is_valid():
        return page.answer()
    spec = TemplateSpec.from_mapping(form.mapping())
    if template is None:
        create_template(actor=request.user, workspace=workspace, spec=spec)
    else:
        edit_template(actor=request.user, template=template, spec=spec)
    return done(request, _("Saved."), "workspace-tab", pk, TAB)


@login_required
@require_POST
def template_delete(request: HtmxRequest, pk: int, template_pk: int) -> HttpResponse:
    workspace = get_workspace(actor=request.user, pk=pk)
    template = get_template(workspace, template_pk)
    delete_template(actor=request.user, template=template)
    return done(request, _("Template %(name)s is gone.") % {"name": template.name}, "workspace-tab", pk, TAB)


def get_template(workspace: Workspace, pk: int) -> Template:
    found: Template | None = workspace.templates.filter(pk=pk).first()
    if found is None:
        raise Http404
    return found
