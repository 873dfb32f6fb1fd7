"""Resource quotas: the tree, one quota with its tabs, and what one can do to them."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Sequence
from datetime import timedelta
from functools import partial
from typing import Any

from django.contrib.auth.decorators import login_required
from django.db.models import QuerySet
from django.http import Http404, HttpResponse
from django.shortcuts import redirect, render
from django.urls import reverse
from django.utils.translation import gettext as _
from django.views.decorators.http import require_http_methods, require_POST, require_safe

from console.amounts import gpus
from console.forms.base import ConsoleForm
from console.forms.quotas import (
    POLICY_HELP,
    DeleteQuotaForm,
    EditQuotaForm,
    MoveQuotaForm,
    NewQuotaForm,
    RebalanceForm,
    ScaleForm,
    settings_of,
)
from console.frame import current_cluster
from console.selectors import (
    PERIODS,
    Branch,
    Layers,
    gpu_capacity,
    layers_of,
    queue_lines,
    quota_branches,
    usage_history,
    waiting_workloads,
)
from console.views.base import Crumb, FormPage, HtmxRequest, done, page_or_part, paged
from console.views.overview import history_json
from console.words import Consequences, consequences, ledger_lines, pending_words, version_lines
from quotas.models import Cluster, NodePool, Quota
from quotas.permissions import grants_of, permissions_on, require, visible_pools, visible_quotas, visible_users
from quotas.selectors import get_quota
from quotas.services import create_quota, edit_quota_settings, move_quota, restore_version
from quotas.specs import AmountSpec, QuotaSpec
from scheduler.previews import preview
from scheduler.services import rebalance, scale_quota
from workloads.selectors import visible_workloads
from workloads.services import delete_quota

FOLDED = "folded-quotas"
ROWS_OF_TREE = 100
TABS = ("overview", "children", "workloads", "usage", "workspaces", "policy", "history")
SWITCHES = ("child_preemption", "priority_inside", "priority_siblings", "idle_sharing")


# --- the tree --------------------------------------------------------------------------------------------------------


@login_required
@require_safe
def quota_list(request: HtmxRequest) -> HttpResponse:
    return tree_page(request)


def tree_page(request: HtmxRequest) -> HttpResponse:
    """The tree, or the part of its page that is asked for."""
    cluster = current_cluster(request)
    branches = quota_branches(actor=request.user, cluster=cluster) if cluster else []
    page = paged(request, tree_rows(request, branches), usual=ROWS_OF_TREE)
    context = {
        "rows": page.object_list,
        "page": page,
        "is_flat": is_flat(request),
        "total": len(branches),
        "summary": tree_summary(request, cluster, branches),
        "may": set(permissions_on(request.user)),
        "one_scale": max((branch.usage.guaranteed for branch in branches), default=0)
        if request.GET.get("scale") == "one"
        else None,
        "text": request.GET.get("q", ""),
        "only": request.GET.get("only", ""),
    }
    return render(request, page_or_part(request, "quotas/list.html", "board"), context)


def tree_rows(request: HtmxRequest, branches: Sequence[Branch]) -> list[dict[str, Any]]:
    """Rows that are not folded away; a filter shows what it finds as a flat list."""
    folded = set(request.session.get(FOLDED, ()))
    text, only = request.GET.get("q", "").strip().casefold(), request.GET.get("only", "")
    rows, hidden_below = [], 99
    for branch in branches:
        if is_flat(request):
            if matches(branch, text, only):
                rows.append({"branch": branch, "level": 1, "folds": False, "is_open": True})
            continue
        if branch.depth > hidden_below:
            continue
        hidden_below = branch.depth if branch.quota.pk in folded else 99
        rows.append(
            {
                "branch": branch,
                "level": branch.depth,
                "folds": bool(branch.children),
                "is_open": branch.quota.pk not in folded,
            }
        )
    return rows


def is_flat(request: HtmxRequest) -> bool:
    return bool(request.GET.get("layout") == "list" or request.GET.get("q") or request.GET.get("only"))


def matches(branch: Branch, text: str, only: str) -> bool:
    labels = " ".join(f"{name}={value}" for name, value in branch.quota.labels.items())
    found = text in f"{branch.quota.name} {labels} {' '.join(branch.workspaces)}".casefold()
    if only == "borrowing":
        return found and branch.usage.borrowed > 0
    if only == "starved":
        return found and branch.waiting > 0 and branch.usage.used < branch.usage.guaranteed
    return found


def tree_summary(request: HtmxRequest, cluster: Cluster | None, branches: Sequence[Branch]) -> dict[str, int]:
    """The numbers above the tree. What no root is promised yet is shown where the capacity is known."""
    roots = [branch for branch in branches if branch.depth == 1]
    leaves = [branch for branch in branches if not branch.children]
    capacity = gpu_capacity(actor=request.user, cluster=cluster) if cluster else 0
    promised = sum(branch.usage.guaranteed for branch in roots)
    return {
        "capacity": capacity,
        "promised": promised,
        "unpromised": capacity - promised,
        "used": sum(branch.usage.used for branch in roots),
        "borrowed": sum(branch.usage.borrowed for branch in leaves),
        "lent": sum(branch.usage.lent for branch in leaves),
        "waiting": sum(branch.waiting for branch in roots),
    }


@login_required
@require_POST
def quota_fold(request: HtmxRequest, pk: int) -> HttpResponse:
    """Fold or unfold a row; the session remembers it, so that every later rendering has it."""
    quota = get_quota(actor=request.user, pk=pk)
    folded = set(request.session.get(FOLDED, ()))
    request.session[FOLDED] = sorted(folded ^ {quota.pk})
    return tree_page(request) if request.htmx else redirect("quota-list")


# --- one quota -------------------------------------------------------------------------------------------------------


@login_required
@require_safe
def quota_detail(request: HtmxRequest, pk: int, tab: str = "overview") -> HttpResponse:
    if tab not in TABS:
        raise Http404
    quota = get_quota(actor=request.user, pk=pk)
    branches = quota_branches(actor=request.user, cluster=quota.cluster)
    branch = next(found for found in branches if found.quota.pk == quota.pk)
    context = {
        "quota": branch.quota,
        "branch": branch,
        "path": path_of(branches, branch),
        "tab": tab,
        "tabs": [(name, tab_title(name), reverse("quota-tab", args=[pk, name])) for name in TABS],
        "may": set(permissions_on(request.user, quota)),
        "now": quota.cluster.now(),
        **TAB_CONTEXT[tab](request, branch),
    }
    return render(request, page_or_part(request, "quotas/detail.html", "head", "tab"), context)


def tab_title(name: str) -> str:
    return {
        "overview": _("Overview"),
        "children": _("Children"),
        "workloads": _("Workloads"),
        "usage": _("Usage history"),
        "workspaces": _("Workspaces"),
        "policy": _("Scheduling policy"),
        "history": _("History"),
    }[name]


def path_of(branches: Iterable[Branch], branch: Branch) -> list[Quota]:
    """The visible ancestors, from the root."""
    by_pk = {found.quota.pk: found.quota for found in branches}
    path: list[Quota] = []
    at = by_pk.get(branch.quota.parent_id or 0)
    while at is not None:
        path.insert(0, at)
        at = by_pk.get(at.parent_id or 0)
    return path


def _overview_tab(request: HtmxRequest, branch: Branch) -> dict[str, Any]:
    waiting = waiting_workloads(actor=request.user, cluster=branch.quota.cluster, quota=branch.quota)
    return {
        "ledger": ledger_lines(branch),
        "pools": list(visible_pools(request.user).filter(amounts__quota=branch.quota).distinct()),
        "queue": pending_words(queue_lines(waiting[:5]), branch.quota.cluster.now(), request.user),
    }


def _children_tab(request: HtmxRequest, branch: Branch) -> dict[str, Any]:
    return {"children": branch.children}


def _workloads_tab(request: HtmxRequest, branch: Branch) -> dict[str, Any]:
    found = visible_workloads(request.user).filter(quota=branch.quota).select_related("workspace", "owner", "quota")
    return {"page": paged(request, found.order_by("-submitted_at", "-id"))}


def _usage_tab(request: HtmxRequest, branch: Branch) -> dict[str, Any]:
    period = usage_period(request)
    return {"period": period, "periods": list(PERIODS), "layers": branch_layers(branch)}


def _workspaces_tab(request: HtmxRequest, branch: Branch) -> dict[str, Any]:
    return {"bindings": branch.bindings}


def _policy_tab(request: HtmxRequest, branch: Branch) -> dict[str, Any]:
    return {"policies": [(value, value.label.capitalize(), text) for value, text in POLICY_HELP.items()]}


def _history_tab(request: HtmxRequest, branch: Branch) -> dict[str, Any]:
    page = paged(request, branch.quota.versions.select_related("by").order_by("-revision"))
    return {"page": page, "versions": version_lines(page.object_list, known_people(request))}


def known_people(request: HtmxRequest) -> set[int] | None:
    """Whose names this person may read; None: everybody's."""
    if grants_of(request.user).reads_all:
        return None
    return set(visible_users(request.user).values_list("pk", flat=True))


TAB_CONTEXT = {
    "overview": _overview_tab,
    "children": _children_tab,
    "workloads": _workloads_tab,
    "usage": _usage_tab,
    "workspaces": _workspaces_tab,
    "policy": _policy_tab,
    "history": _history_tab,
}


def usage_period(request: HtmxRequest) -> str:
    asked = request.GET.get("period", "")
    return asked if asked in PERIODS else "24h"


def branch_layers(branch: Branch) -> Layers:
    """The quota's own work and its children, as the layers of its chart."""
    branch.depth = 1
    return layers_of([branch], _("%(name)s (own work)"), _("others"))


@login_required
@require_safe
def quota_usage_data(request: HtmxRequest, pk: int) -> HttpResponse:
    """The usage history's numbers, in GPUs; the dashed line is the guarantee."""
    quota = get_quota(actor=request.user, pk=pk)
    branches = quota_branches(actor=request.user, cluster=quota.cluster)
    branch = next(found for found in branches if found.quota.pk == quota.pk)
    history = usage_history(
        actor=request.user,
        cluster=quota.cluster,
        layers=branch_layers(branch),
        period=usage_period(request),
        capacity=branch.usage.guaranteed,
    )
    return history_json(history)


# --- changes ---------------------------------------------------------------------------------------------------------


@login_required
@require_http_methods(["GET", "POST"])
def quota_new(request: HtmxRequest) -> HttpResponse:
    """A new quota, a root or (with ``parent``) a child."""
    require(request.user, "quota.create")
    cluster = current_cluster(request)
    if cluster is None:
        raise Http404
    parents = visible_quotas(request.user).filter(cluster=cluster).order_by("name")
    parent = parents.filter(pk=number(request.GET.get("parent"))).first()
    form = NewQuotaForm(
        request.POST or None,
        pools=pools_of(request, cluster),
        parents=parents,
        initial={**settings_of(Quota()), "parent": parent},
    )
    title = _("New child-level quota of %(name)s") % {"name": parent.name} if parent else _("Add Resource Quota")
    page = FormPage(
        request,
        form,
        title,
        _("Create quota"),
        reverse("quota-list"),
        crumbs=quota_crumbs(),
        lead=room_words(request, parent),
    )
    if not form.is_valid():
        return page.answer()
    given = {**form.settings(), "parent": form.cleaned_data["parent"], "amounts": form.amounts(form.cleaned_data)}
    spec = QuotaSpec.from_mapping(given, pools=visible_pools(request.user), parents=parents)
    quota = create_quota(actor=request.user, cluster=cluster, spec=spec)
    return done(
        request,
        _("Quota %(name)s is there.") % {"name": quota.name},
        "quota-list",
        changed=[f"quota.{quota.pk}", "quotas"],
    )


@login_required
@require_http_methods(["GET", "POST"])
def quota_edit(request: HtmxRequest, pk: int) -> HttpResponse:
    quota = get_quota(actor=request.user, pk=pk)
    require(request.user, "quota.edit", quota)
    form = EditQuotaForm(request.POST or None, initial={**settings_of(quota), "revision": quota.revision})
    page = FormPage(
        request,
        form,
        _("Edit %(name)s") % {"name": quota.name},
        _("Save"),
        reverse("quota-detail", args=[pk]),
        crumbs=quota_crumbs(quota),
    )
    if not form.is_valid():
        return page.answer()
    edit_quota_settings(
        actor=request.user, quota=quota, changes=form.settings(), revision=form.cleaned_data["revision"]
    )
    return done(request, _("Saved."), "quota-detail", pk, changed=topics_of(quota))


@login_required
@require_http_methods(["GET", "POST"])
def quota_scale(request: HtmxRequest, pk: int) -> HttpResponse:
    """New amounts, and what becomes of work that then uses more; "Preview" only looks at what would follow."""
    quota = get_quota(actor=request.user, pk=pk)
    require(request.user, "quota.scale", quota)
    form = ScaleForm(
        request.POST or None, quota=quota, pools=pools_of(request, quota.cluster), initial={"revision": quota.revision}
    )
    page = FormPage(
        request,
        form,
        _("Scale %(name)s") % {"name": quota.name},
        _("Scale"),
        reverse("quota-detail", args=[pk]),
        crumbs=quota_crumbs(quota),
        lead=scale_words(request, quota),
        context={"preview_label": _("Preview")},
    )
    if not form.is_valid():
        return page.answer()
    change = partial(
        scale_quota,
        actor=request.user,
        quota=quota,
        amounts=form.amounts(form.cleaned_data),
        revision=form.cleaned_data["revision"],
        **excess_order(form),
    )
    if request.POST.get("do") == "preview":
        return page.answer(consequences=foreseen(request, quota.cluster, change))
    change()
    return done(
        request, _("%(name)s has its new amounts.") % {"name": quota.name}, "quota-detail", pk, changed=topics_of(quota)
    )


@login_required
@require_http_methods(["GET", "POST"])
def quota_rebalance(request: HtmxRequest) -> HttpResponse:
    """Several guarantees of the cluster's tree in one step, checked as a whole."""
    cluster = current_cluster(request)
    if cluster is None:
        raise Http404
    require(request.user, "quota.scale")
    pools = pools_of(request, cluster)
    pool = next((found for found in pools if found.pk == number(request.GET.get("pool"))), pools[0] if pools else None)
    if pool is None:
        raise Http404
    rows = rebalance_rows(quota_branches(actor=request.user, cluster=cluster, pool=pool))
    form = RebalanceForm(request.POST or None, rows=rows, pool=pool)
    page = FormPage(
        request,
        form,
        _("Rebalance"),
        _("Rebalance"),
        reverse("quota-list"),
        template="quotas/rebalance.html",
        crumbs=quota_crumbs(),
        context={"pools": pools, "pool": pool, "preview_label": _("Preview")},
    )
    if not form.is_valid():
        return page.answer()
    change = partial(rebalance, actor=request.user, changes=rebalance_changes(form, pool), **excess_order(form))
    if request.POST.get("do") == "preview":
        return page.answer(consequences=foreseen(request, cluster, change))
    change()
    return done(request, _("The quotas have their new guarantees."), "quota-list", changed=["quotas"])


def foreseen(request: HtmxRequest, cluster: Cluster, change: Callable[[], object]) -> Consequences:
    """What a change of amounts would do in words."""
    names = dict(visible_quotas(request.user).filter(cluster=cluster).values_list("pk", "name"))
    return consequences(preview(cluster=cluster, change=change), names, lambda work: work.quota_id in names)


def rebalance_rows(branches: Iterable[Branch]) -> list[tuple[Quota, int, int, int]]:
    """Quotas with amounts in the pool: (quota, depth, guaranteed, used)."""
    return [
        (branch.quota, branch.depth, branch.usage.guaranteed, branch.usage.used)
        for branch in branches
        if branch.amounts
    ]


def rebalance_changes(form: RebalanceForm, pool: NodePool) -> dict[Quota, dict[NodePool, AmountSpec]]:
    """Full amounts of the pool for each changed quota: all but the guaranteed GPUs stays."""
    return {
        quota: {
            pool: dataclasses.replace(
                AmountSpec.of(quota.amounts.filter(pool=pool).first()), guaranteed_gpu_milli=guaranteed
            )
        }
        for quota, guaranteed in form.changed().items()
    }


@login_required
@require_http_methods(["GET", "POST"])
def quota_move(request: HtmxRequest, pk: int) -> HttpResponse:
    """The quota with all below it to another parent, or to the root."""
    quota = get_quota(actor=request.user, pk=pk)
    require(request.user, "quota.move", quota)
    parents = visible_quotas(request.user).filter(cluster=quota.cluster).exclude(pk=pk).order_by("name")
    initial = {"parent": quota.parent, "revision": quota.revision}
    form = MoveQuotaForm(request.POST or None, parents=parents, initial=initial)
    title = _("Move %(name)s") % {"name": quota.name}
    page = FormPage(
        request,
        form,
        title,
        _("Move"),
        reverse("quota-detail", args=[pk]),
        crumbs=quota_crumbs(quota),
        lead=_("All below it goes along. The new parent must have what the quota is promised."),
    )
    if not form.is_valid():
        return page.answer()
    parent, revision = form.cleaned_data["parent"], form.cleaned_data["revision"]
    move_quota(actor=request.user, quota=quota, parent=parent, revision=revision)
    return done(request, _("%(name)s has moved.") % {"name": quota.name}, "quota-list", changed=topics_of(quota))


@login_required
@require_http_methods(["GET", "POST"])
def quota_delete(request: HtmxRequest, pk: int) -> HttpResponse:
    quota = get_quota(actor=request.user, pk=pk)
    require(request.user, "quota.delete", quota)
    form = DeleteQuotaForm(request.POST or None, quota=quota)
    page = FormPage(
        request,
        form,
        _("Delete %(name)s") % {"name": quota.name},
        _("Delete quota"),
        reverse("quota-detail", args=[pk]),
        crumbs=quota_crumbs(quota),
        context={"submit_tone": "danger"},
        lead=_("Possible only when it has no children, no workspaces and no live workloads. Its history goes with it."),
    )
    if not form.is_valid():
        return page.answer()
    delete_quota(actor=request.user, quota=quota)
    return done(request, _("Quota %(name)s is gone.") % {"name": quota.name}, "quota-list")


@login_required
@require_POST
def quota_switch(request: HtmxRequest, pk: int, name: str) -> HttpResponse:
    """One of the switches of the Overview tab, saved at once."""
    if name not in SWITCHES:
        raise Http404
    quota = get_quota(actor=request.user, pk=pk)
    value = request.POST.get("to") == "on"
    edit_quota_settings(
        actor=request.user, quota=quota, changes={name: value}, revision=number(request.POST.get("revision"))
    )
    return done(request, _("Saved. Press the switch again to undo."), "quota-detail", pk, changed=topics_of(quota))


@login_required
@require_POST
def quota_policy(request: HtmxRequest, pk: int) -> HttpResponse:
    quota = get_quota(actor=request.user, pk=pk)
    changes = {"queue_policy": request.POST.get("queue_policy", "")}
    edit_quota_settings(actor=request.user, quota=quota, changes=changes, revision=number(request.POST.get("revision")))
    return done(
        request,
        _("Saved. It holds for workloads that have not started."),
        "quota-tab",
        pk,
        "policy",
        changed=topics_of(quota),
    )


@login_required
@require_POST
def quota_restore(request: HtmxRequest, pk: int, version_pk: int) -> HttpResponse:
    quota = get_quota(actor=request.user, pk=pk)
    version = quota.versions.filter(pk=version_pk).first()
    if version is None:
        raise Http404
    restore_version(actor=request.user, quota=quota, version=version)
    return done(request, _("The version is in force again."), "quota-tab", pk, "history", changed=topics_of(quota))


# --- small things ----------------------------------------------------------------------------------------------------


def pools_of(request: HtmxRequest, cluster: Cluster) -> list[NodePool]:
    found: QuerySet[NodePool] = visible_pools(request.user).filter(cluster=cluster)
    return list(found.order_by("order", "id"))


def quota_crumbs(quota: Quota | None = None) -> tuple[Crumb, ...]:
    start = (Crumb(_("Capacity")), Crumb(_("Resource Quotas"), reverse("quota-list")))
    return (*start, Crumb(quota.name, reverse("quota-detail", args=[quota.pk]))) if quota else start


def topics_of(quota: Quota) -> list[str]:
    return [f"quota.{quota.pk}", "quotas"]


def excess_order(form: ConsoleForm) -> dict[str, Any]:
    """What becomes of work beyond the new amounts, as the services take it."""
    after = form.cleaned_data.get("after")
    if form.cleaned_data["on_excess"] != "preempt":
        return {"on_excess": "keep"}
    return {"on_excess": "preempt", "after": timedelta(seconds=after) if after else None}


def room_words(request: HtmxRequest, parent: Quota | None) -> str:
    """What is not promised yet where the new quota will stand."""
    cluster = current_cluster(request)
    branches = quota_branches(actor=request.user, cluster=cluster) if cluster else []
    if parent is not None:
        branch = next(found for found in branches if found.quota.pk == parent.pk)
        return _("%(free)s of the %(all)s GPUs guaranteed to %(name)s are not promised to a child yet.") % {
            "free": gpus(branch.free_for_children),
            "all": gpus(branch.usage.guaranteed),
            "name": parent.name,
        }
    summary = tree_summary(request, cluster, branches)
    return _("%(free)s of the cluster's %(all)s GPUs are not promised to a root quota yet.") % {
        "free": gpus(summary["unpromised"]),
        "all": gpus(summary["capacity"]),
    }


def scale_words(request: HtmxRequest, quota: Quota) -> str:
    return room_words(request, quota.parent)


def number(text: str | None) -> int:
    """A number from an address or a hidden field; 0 when it is none."""
    return int(text) if text and text.isascii() and text.isdecimal() and len(text) < 19 else 0
