"""Workloads: the list, submission of each kind, one workload with its past and its reason, actions, the queue."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from urllib.parse import urlencode

import django_filters
from django import forms
from django.contrib.auth.decorators import login_required
from django.db import transaction
from django.db.models import Q, QuerySet
from django.http import Http404, HttpResponse
from django.shortcuts import redirect, render
from django.urls import reverse
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy, ngettext
from django.views.decorators.http import require_http_methods, require_POST, require_safe

from console.actions import ACTIONS, workload_actions
from console.charts import lanes
from console.forms.base import ConsoleForm
from console.forms.workloads import CloneForm, MoveForm, PriorityForm, ScaleWorkloadForm, SubmitForm, place_value
from console.frame import current_cluster
from console.selectors import queue_lines, state_spans, waiting_workloads
from console.views.base import Crumb, FormPage, HtmxRequest, done, page_or_part, paged
from console.views.quotas import number
from console.words import Consequences, consequences, event_lines, pending_words, placement_rows, unblock_words, why_of
from quotas.errors import refuse
from quotas.models import Cluster, Quota, WorkspaceQuota
from quotas.permissions import allowed, grants_of, require, visible_pools, visible_quotas, visible_workspaces
from scheduler.previews import preview
from workloads.models import FINAL, Kind, State, Template, Workload
from workloads.selectors import get_workload, visible_workloads
from workloads.services import (
    change_priority,
    clone_workload,
    delete_workload,
    hold_workload,
    move_workload,
    release_workload,
    reorder_workload,
    restart_workload,
    scale_workload,
    stop_workload,
    submit_workload,
)
from workloads.specs import WorkloadSpec

EVENTS_SHOWN = 200
STATE_CHOICES = (
    ("live", gettext_lazy("Not finished")),
    ("waiting", gettext_lazy("Waiting")),
    *((state.value, state.label.capitalize()) for state in State),
)


class WorkloadFilter(django_filters.FilterSet):
    """The filters of the list; all of them are in the address."""

    q = django_filters.CharFilter(method="by_text")
    kind = django_filters.ChoiceFilter(choices=Kind.choices)
    state = django_filters.ChoiceFilter(choices=STATE_CHOICES, method="by_state")
    quota = django_filters.NumberFilter(field_name="quota_id")
    workspace = django_filters.NumberFilter(field_name="workspace_id")
    preempted = django_filters.BooleanFilter(method="by_preempted", widget=forms.CheckboxInput)
    mine = django_filters.BooleanFilter(method="by_mine", widget=forms.CheckboxInput)

    class Meta:
        model = Workload
        fields: tuple[str, ...] = ()

    def by_text(self, rows: QuerySet[Workload], name: str, value: str) -> QuerySet[Workload]:
        return rows.filter(Q(name__icontains=value) | Q(owner__username__icontains=value))

    def by_state(self, rows: QuerySet[Workload], name: str, value: str) -> QuerySet[Workload]:
        if value == "live":
            return rows.exclude(state__in=FINAL)
        if value == "waiting":
            return rows.filter(state__in=(State.QUEUED, State.RESIZING))
        return rows.filter(state=value)

    def by_preempted(self, rows: QuerySet[Workload], name: str, value: bool) -> QuerySet[Workload]:
        return rows.filter(evictions__what="eviction").distinct() if value else rows

    def by_mine(self, rows: QuerySet[Workload], name: str, value: bool) -> QuerySet[Workload]:
        return rows.filter(owner=self.request.user) if value else rows


# --- lists -----------------------------------------------------------------------------------------------------------


@login_required
@require_safe
def workload_list(request: HtmxRequest) -> HttpResponse:
    cluster = current_cluster(request)
    rows = visible_workloads(request.user).filter(cluster=cluster).select_related("quota", "workspace", "owner")
    found = WorkloadFilter(request.GET, queryset=rows, request=request)
    context = {
        "page": paged(request, found.qs.order_by("-submitted_at", "-id")),
        "filter": found,
        "chips": filter_chips(request),
        "csv_query": csv_query(request, cluster),
        "kinds": Kind.choices,
        "states": STATE_CHOICES,
        "quotas": visible_quotas(request.user).filter(cluster=cluster).order_by("name"),
        "may_submit": may_submit(request),
        "now": cluster.now() if cluster else None,
    }
    return render(request, page_or_part(request, "workloads/list.html", "board"), context)


def csv_query(request: HtmxRequest, cluster: Cluster | None) -> str:
    """The filters of the page as the API's list takes them; those that it does not have are left out."""
    asked = {name: request.GET.get(name, "") for name in ("kind", "state", "quota", "workspace")}
    if asked["state"] not in State.values:
        asked["state"] = ""
    given = {name: value for name, value in asked.items() if value}
    return urlencode({"format": "csv", **({"cluster": cluster.pk} if cluster else {}), **given})


def filter_chips(request: HtmxRequest) -> list[dict[str, str]]:
    """The filters in force, each with the parameter that removing it takes out."""
    titles = {
        "q": _("text"),
        "kind": _("kind"),
        "state": _("state"),
        "quota": _("quota"),
        "workspace": _("workspace"),
        "preempted": _("preempted"),
        "mine": _("mine"),
    }
    return [
        {"name": name, "title": title, "value": chip_value(request, name), "without": address_without(request, name)}
        for name, title in titles.items()
        if request.GET.get(name)
    ]


def address_without(request: HtmxRequest, name: str) -> str:
    parameters = request.GET.copy()
    for gone in (name, "page"):
        parameters.pop(gone, None)
    return parameters.urlencode()


def chip_value(request: HtmxRequest, name: str) -> str:
    value = request.GET[name]
    if name == "quota":
        quota = visible_quotas(request.user).filter(pk=number(value)).first()
        return quota.name if quota else value
    if name == "workspace":
        workspace = visible_workspaces(request.user).filter(pk=number(value)).first()
        return workspace.name if workspace else value
    return "" if name in ("preempted", "mine") else value


def may_submit(request: HtmxRequest) -> bool:
    return bool(submit_bindings(request))


def submit_bindings(request: HtmxRequest, kind: str | None = None) -> list[WorkspaceQuota]:
    """Where the person may submit work of the kind (of some kind), defaults first."""
    grants = grants_of(request.user)
    permissions = [f"workload.submit_{kind}"] if kind else [f"workload.submit_{name}" for name in Kind.values]
    workspaces = [
        workspace
        for workspace in visible_workspaces(request.user, grants=grants).filter(archived_at=None)
        if any(allowed(request.user, permission, workspace, grants=grants) for permission in permissions)
    ]
    found = WorkspaceQuota.objects.filter(workspace__in=workspaces, quota__cluster=current_cluster(request))
    return list(found.select_related("workspace", "quota").order_by("workspace__name", "-is_default", "quota__name"))


@login_required
@require_safe
def queue(request: HtmxRequest) -> HttpResponse:
    """All that waits, quota by quota, with the reason of each."""
    cluster = current_cluster(request)
    if cluster is None:
        return render(request, "workloads/queue.html", {"groups": []})
    quota = visible_quotas(request.user).filter(pk=number(request.GET.get("quota"))).first()
    page = paged(
        request,
        waiting_workloads(actor=request.user, cluster=cluster, quota=quota).order_by(
            "quota__name", "verdict__queue_position", "-priority", "position", "id"
        ),
    )
    lines = pending_words(queue_lines(page.object_list, page.start_index()), cluster.now(), request.user)
    context = {
        "groups": by_quota(request, lines),
        "page": page,
        "quota": quota,
        "total": page.paginator.count,
        "may_submit": may_submit(request),
    }
    return render(request, page_or_part(request, "workloads/queue.html", "board"), context)


def by_quota(request: HtmxRequest, lines: list[Any]) -> list[dict[str, Any]]:
    """Lines grouped by quota, with whether the person may reorder there."""
    groups: dict[int, dict[str, Any]] = {}
    grants = grants_of(request.user)
    for line in lines:
        quota = line.workload.quota
        group = groups.setdefault(quota.pk, {"quota": quota, "lines": []})
        line_may = allowed(request.user, "queue.reorder", line.workload.workspace, grants=grants)
        group["lines"].append({"row": line, "may_reorder": line_may and line.workload.state == State.QUEUED})
    return list(groups.values())


@login_required
@require_POST
def queue_move(request: HtmxRequest, pk: int) -> HttpResponse:
    """One place up or down inside its own priority: before or after a neighbour."""
    workload = get_workload(actor=request.user, pk=pk)
    require(request.user, "queue.reorder", workload)
    step = request.POST.get("to", "up")
    neighbour = neighbour_of(request, workload, step)
    if neighbour is not None:
        before, after = (neighbour, None) if step == "up" else (None, neighbour)
        reorder_workload(actor=request.user, workload=workload, before=before, after=after)
    return done(request, _("%(name)s has moved.") % {"name": workload.name}, "queue", changed=["workloads", "queue"])


def neighbour_of(request: HtmxRequest, workload: Workload, step: str) -> Workload | None:
    peers = list(
        waiting_workloads(actor=request.user, cluster=workload.cluster, quota=workload.quota)
        .filter(priority=workload.priority, state=State.QUEUED)
        .order_by("position", "id")
    )
    at = next((index for index, peer in enumerate(peers) if peer.pk == workload.pk), None)
    if at is None:  # it has started meanwhile
        raise refuse("", "workload.state", state=workload.state, allowed=[State.QUEUED], name=workload.name)
    wanted = at - 1 if step == "up" else at + 1
    return peers[wanted] if 0 <= wanted < len(peers) else None


# --- submission ------------------------------------------------------------------------------------------------------


@login_required
@require_http_methods(["GET", "POST"])
def workload_new(request: HtmxRequest, kind: str = "training") -> HttpResponse:
    if kind not in Kind.values:
        raise Http404
    bindings = submit_bindings(request, kind)
    cluster = current_cluster(request)
    pools = visible_pools(request.user).filter(cluster=cluster).order_by("order", "id")
    first = preferred_binding(request, bindings)
    form = SubmitForm(
        request.POST or None,
        kind=kind,
        bindings=bindings,
        cluster=cluster,
        pools=pools,
        templates=templates_of(bindings),
        initial={"place": place_value(first) if first else None},
    )
    page = FormPage(
        request,
        form,
        _("New workload"),
        _("Submit"),
        reverse("workload-list"),
        template="workloads/new.html",
        crumbs=(Crumb(_("Work")), Crumb(_("Workloads"), reverse("workload-list"))),
        context={"kind": kind, "kinds": Kind.choices, "has_place": bool(bindings)},
    )
    if not bindings or not form.is_valid():
        return page.answer()
    spec = WorkloadSpec.from_mapping(form.mapping(), actor=request.user)
    if request.POST.get("do") == "check":
        return page.answer(consequences=foreseen(request, spec))
    workload = submit_workload(actor=request.user, spec=spec)
    return done(request, _("%(name)s is in the queue.") % {"name": workload.name}, "workload-detail", workload.pk)


def foreseen(request: HtmxRequest, spec: WorkloadSpec) -> Consequences:
    """What would become of the submission: whether it starts or why it waits, and what else of one's own it touches."""
    new: list[int] = []
    seen = preview(
        cluster=spec.quota.cluster,
        change=lambda: new.append(submit_workload(actor=request.user, spec=spec).pk),
    )
    names = dict(visible_quotas(request.user).filter(cluster=spec.quota.cluster).values_list("pk", "name"))
    known = set(visible_workloads(request.user).values_list("pk", flat=True).exclude(state__in=FINAL))
    return consequences(seen, names, lambda work: work.id in known or work.id in new)


def templates_of(bindings: list[WorkspaceQuota]) -> list[Template]:
    """The named sizes of the workspaces in which the person may submit."""
    found = Template.objects.filter(workspace__in={binding.workspace_id for binding in bindings})
    return list(found.select_related("workspace").order_by("workspace__name", "name"))


def preferred_binding(request: HtmxRequest, bindings: list[WorkspaceQuota]) -> WorkspaceQuota | None:
    wanted = number(request.GET.get("quota"))
    named = [binding for binding in bindings if binding.quota_id == wanted]
    defaults = [binding for binding in bindings if binding.is_default]
    return next(iter([*named, *defaults, *bindings]), None)


# --- one workload ----------------------------------------------------------------------------------------------------


@login_required
@require_safe
def workload_detail(request: HtmxRequest, pk: int) -> HttpResponse:
    workload = get_workload(actor=request.user, pk=pk)
    now = workload.cluster.now()
    events = list(workload.events.order_by("id")[:EVENTS_SHOWN])
    spans = state_spans(events, submitted_at=workload.submitted_at, end=workload.finished_at or now)
    context = {
        "workload": workload,
        "now": now,
        "why": why_of(workload, request.user),
        "unblock": unblock_words(workload, request.user),
        "actions": workload_actions(request.user, workload),
        "lanes": lanes(spans),
        "events": event_lines(reversed(events), request.user),
        "placements": placement_rows(workload),
        "may_rules": allowed(request.user, "workload.set_rules", workload),
        "rules": list(workload.rules.all()) if workload.kind == Kind.SERVICE else [],
    }
    return render(request, page_or_part(request, "workloads/detail.html", "board"), context)


SIMPLE: dict[str, tuple[Callable[..., Any], Any]] = {
    "stop": (stop_workload, gettext_lazy("%(name)s has been told to stop.")),
    "hold": (hold_workload, gettext_lazy("%(name)s is held.")),
    "release": (release_workload, gettext_lazy("%(name)s is released.")),
    "restart": (restart_workload, gettext_lazy("%(name)s starts again.")),
    "delete": (delete_workload, gettext_lazy("%(name)s is gone.")),
}


@login_required
@require_http_methods(["GET", "POST"])
def workload_action(request: HtmxRequest, pk: int, action: str) -> HttpResponse:
    """One of the buttons; those that need a value ask for it first."""
    if action not in ACTIONS:
        raise Http404
    workload = get_workload(actor=request.user, pk=pk)
    if action in SIMPLE:
        return simple_action(request, workload, action)
    return ASKING[action](request, workload)


def simple_action(request: HtmxRequest, workload: Workload, action: str) -> HttpResponse:
    if request.method != "POST":
        return redirect("workload-detail", workload.pk)
    service, words = SIMPLE[action]
    service(actor=request.user, workload=workload)
    said = words % {"name": workload.name}
    if action == "delete":
        return done(request, said, "workload-list", changed=["workloads"])
    return done(request, said, "workload-detail", workload.pk, changed=topics_of(workload))


BULK = ("stop", "hold", "release", "restart", "delete")
MOST_AT_ONCE = 100


@login_required
@require_POST
def workload_bulk(request: HtmxRequest) -> HttpResponse:
    """One action on several workloads: all of them, or with a refusal none."""
    action = request.POST.get("action", "")
    if action not in BULK:
        raise Http404
    pks = [number(text) for text in request.POST.getlist("pk")[:MOST_AT_ONCE]]
    chosen = list(visible_workloads(request.user).filter(pk__in=pks).order_by("pk"))
    service, _words = SIMPLE[action]
    with transaction.atomic():
        for workload in chosen:
            service(actor=request.user, workload=workload)
    count = len(chosen)
    said = ngettext("Done for %(n)s workload.", "Done for %(n)s workloads.", count) % {"n": count}
    return done(request, said, "workload-list", changed=["workloads"])


def ask(
    request: HtmxRequest, workload: Workload, form: ConsoleForm, title: str, submit: str, lead: str = ""
) -> FormPage:
    return FormPage(
        request,
        form,
        f"{title}: {workload.name}",
        submit,
        reverse("workload-detail", args=[workload.pk]),
        crumbs=workload_crumbs(workload),
        lead=lead,
    )


def _scale(request: HtmxRequest, workload: Workload) -> HttpResponse:
    form = ScaleWorkloadForm(request.POST or None, initial={"replicas": workload.replicas})
    lead = _("Holds until the next scaling rule fires.") if workload.rules.filter(enabled=True).exists() else ""
    page = ask(request, workload, form, _("Scale"), _("Scale"), lead)
    if not form.is_valid():
        return page.answer()
    scale_workload(actor=request.user, workload=workload, replicas=form.cleaned_data["replicas"])
    return done(request, _("The new size is set."), "workload-detail", workload.pk, changed=topics_of(workload))


def _priority(request: HtmxRequest, workload: Workload) -> HttpResponse:
    form = PriorityForm(request.POST or None, initial={"priority": workload.priority})
    lead = _("Higher goes first. For running work it changes who may preempt whom, not where it runs.")
    page = ask(request, workload, form, _("Priority"), _("Save"), lead)
    if not form.is_valid():
        return page.answer()
    change_priority(actor=request.user, workload=workload, priority=form.cleaned_data["priority"])
    return done(request, _("The new priority is set."), "workload-detail", workload.pk, changed=topics_of(workload))


def _move(request: HtmxRequest, workload: Workload) -> HttpResponse:
    quotas = visible_quotas(request.user).filter(bindings__workspace=workload.workspace).exclude(pk=workload.quota_id)
    form = MoveForm(request.POST or None, quotas=list(quotas.order_by("name").values_list("pk", "name")))
    page = ask(request, workload, form, _("Move to another quota"), _("Move"))
    if not form.is_valid():
        return page.answer()
    target = Quota.objects.get(pk=form.cleaned_data["quota"])
    move_workload(actor=request.user, workload=workload, quota=target)
    return done(
        request,
        _("It waits in %(quota)s now.") % {"quota": target.name},
        "workload-detail",
        workload.pk,
        changed=topics_of(workload),
    )


def _clone(request: HtmxRequest, workload: Workload) -> HttpResponse:
    form = CloneForm(request.POST or None, initial={"name": f"{workload.name}-copy"[:63]})
    page = ask(request, workload, form, _("Clone"), _("Submit the copy"))
    if not form.is_valid():
        return page.answer()
    copy = clone_workload(actor=request.user, workload=workload, name=form.cleaned_data["name"])
    return done(request, _("%(name)s is in the queue.") % {"name": copy.name}, "workload-detail", copy.pk)


ASKING: dict[str, Callable[[HtmxRequest, Workload], HttpResponse]] = {
    "scale": _scale,
    "priority": _priority,
    "move": _move,
    "clone": _clone,
}


def workload_crumbs(workload: Workload) -> tuple[Crumb, ...]:
    return (
        Crumb(_("Workloads"), reverse("workload-list")),
        Crumb(workload.name, reverse("workload-detail", args=[workload.pk])),
    )


def topics_of(workload: Workload) -> list[str]:
    return [f"workload.{workload.pk}", "workloads", "queue"]
