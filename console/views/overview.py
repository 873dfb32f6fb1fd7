"""The overview: numbers, use over time, nodes, the head of the queue and what needs a look."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from django.contrib.auth.decorators import login_required
from django.http import Http404, HttpResponse, JsonResponse
from django.shortcuts import render
from django.utils.translation import gettext as _
from django.views.decorators.http import require_safe

from console.frame import current_cluster
from console.selectors import (
    HEAD_LENGTH,
    PERIODS,
    Branch,
    Layers,
    UsageHistory,
    attention_list,
    gpu_capacity,
    heat_map,
    layers_of,
    overview_cards,
    promised_to,
    queue_lines,
    quota_branches,
    quota_shapes,
    usage_history,
    waiting_workloads,
)
from console.views.base import HtmxRequest, page_or_part
from console.words import attention_words, pending_words
from quotas.models import Cluster
from quotas.permissions import allowed

DEFAULT_PERIOD = "24h"
TABLE_ROWS = 24


@login_required
@require_safe
def overview(request: HtmxRequest) -> HttpResponse:
    cluster = current_cluster(request)
    if cluster is None:
        return render(request, "overview/empty.html", {"steps": setup_steps(request)})
    branches = quota_branches(actor=request.user, cluster=cluster)
    now = cluster.now()
    context = {
        "cluster": cluster,
        "now": now,
        "period": period_of(request),
        "periods": list(PERIODS),
        "branches": branches,
        "layers": chart_layers(branches),
        "cards": overview_cards(actor=request.user, cluster=cluster, branches=branches, now=now),
        "pressed": most_pressed(branches),
        "heat": heat_map(actor=request.user, cluster=cluster, layers=chart_layers(branches)),
        "queue": pending_words(
            queue_lines(waiting_workloads(actor=request.user, cluster=cluster)[:HEAD_LENGTH]), now, request.user
        ),
        "attention": attention_words(attention_list(actor=request.user, cluster=cluster, branches=branches, now=now)),
        "steps": [] if branches else setup_steps(request),
    }
    template = page_or_part(request, "overview/overview.html", "board")
    return render(request, template, context)


@login_required
@require_safe
def usage_data(request: HtmxRequest) -> JsonResponse:
    """The stacked chart's numbers, in GPUs."""
    cluster = current_cluster(request)
    if cluster is None:
        raise Http404
    return history_json(_history(request, cluster, quota_shapes(actor=request.user, cluster=cluster)))


def history_json(history: UsageHistory) -> JsonResponse:
    """What ``chart.js`` draws: seconds, and GPUs a layer; the capacity is the dashed line."""
    return JsonResponse(
        {
            "times": [round(at.timestamp()) for at in history.times],
            "series": [
                {"name": name, "values": (row / 1000).tolist()}
                for name, row in zip(history.names, history.values, strict=True)
            ],
            "capacity": [history.capacity / 1000] * len(history.times),
        }
    )


@login_required
@require_safe
def usage_table(request: HtmxRequest) -> HttpResponse:
    """The same as a table, thinned out so that a person can read it."""
    cluster = current_cluster(request)
    if cluster is None:
        raise Http404
    history = _history(request, cluster, quota_shapes(actor=request.user, cluster=cluster))
    step = max(len(history.times) // TABLE_ROWS, 1)
    rows = [
        (at, [int(value) for value in history.values[:, index]], int(history.totals[index]))
        for index, at in list(enumerate(history.times))[::-step]
    ]
    context = {"history": history, "rows": rows, "period": period_of(request), "periods": list(PERIODS)}
    return render(request, "overview/usage_table.html", context)


def _history(request: HtmxRequest, cluster: Cluster, branches: Sequence[Branch]) -> UsageHistory:
    roots = [branch.quota for branch in branches if branch.depth == 1]
    capacity = gpu_capacity(actor=request.user, cluster=cluster) or promised_to(roots)
    return usage_history(
        actor=request.user,
        cluster=cluster,
        layers=chart_layers(branches),
        period=period_of(request),
        capacity=capacity,
    )


def chart_layers(branches: Sequence[Branch]) -> Layers:
    return layers_of(branches, _("%(name)s (own work)"), _("others"))


def period_of(request: HtmxRequest) -> str:
    asked = request.GET.get("period", "")
    return asked if asked in PERIODS else DEFAULT_PERIOD


def most_pressed(branches: Sequence[Branch]) -> list[Branch]:
    """Quotas with a guarantee or use, the fullest first."""
    shown = [branch for branch in branches if branch.usage.guaranteed or branch.usage.used]
    return sorted(shown, key=lambda branch: (-(branch.percent or 0), branch.quota.pk))[:HEAD_LENGTH]


def setup_steps(request: HtmxRequest) -> list[dict[str, Any]]:
    """The way from nothing to a first workload, as far as this person may go it."""
    cluster = current_cluster(request)
    branches = quota_branches(actor=request.user, cluster=cluster) if cluster else []
    bound = any(branch.workspaces for branch in branches)
    return [
        {"title": _("Connect a cluster"), "done": cluster is not None, "url": ""},
        {
            "title": _("Create a root quota"),
            "done": bool(branches),
            "url": "quota-new" if cluster and allowed(request.user, "quota.create") else "",
        },
        {
            "title": _("Create a workspace and bind it to a quota"),
            "done": bound,
            "url": "workspace-new" if allowed(request.user, "workspace.create") else "",
        },
        {
            "title": _("Submit a workload"),
            "done": False,
            "url": "workload-new" if bound and allowed(request.user, "workload.submit") else "",
        },
    ]
