"""Nodes: the list with their GPUs, one node with what is on it, cordon, drain and uncordon."""

from __future__ import annotations

from typing import Any

from django import forms
from django.contrib.auth.decorators import login_required
from django.db.models import Prefetch, QuerySet
from django.http import Http404, HttpResponse
from django.shortcuts import render
from django.urls import reverse
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy
from django.views.decorators.http import require_http_methods, require_safe

from console.forms.base import ConsoleForm
from console.frame import current_cluster
from console.selectors import heat_map, quota_branches
from console.views.base import Crumb, FormPage, HtmxRequest, done, page_or_part, paged
from console.views.overview import chart_layers
from console.views.quotas import number
from quotas.models import Node, NodeState
from quotas.permissions import allowed, require, visible_nodes, visible_pools
from workloads.models import Allocation
from workloads.services import set_node_state

MOVES = {"cordon": NodeState.CORDONED, "drain": NodeState.DRAINING, "uncordon": NodeState.READY}


class NodeStateForm(ConsoleForm):
    reason = forms.CharField(label=gettext_lazy("Reason"), max_length=200, required=False)


@login_required
@require_safe
def node_list(request: HtmxRequest) -> HttpResponse:
    require(request.user, "node.read")
    cluster = current_cluster(request)
    if cluster is None:
        return render(request, "nodes/list.html", {"rows": []})
    pools = list(visible_pools(request.user).filter(cluster=cluster).order_by("order", "id"))
    pool = next((found for found in pools if found.pk == number(request.GET.get("pool"))), None)
    layers = chart_layers(quota_branches(actor=request.user, cluster=cluster))
    page = paged(request, with_live(filtered(request, visible_nodes(request.user).filter(cluster=cluster))))
    heat = {node.pk: node for node in heat_map(actor=request.user, cluster=cluster, layers=layers, pool=pool)}
    context = {
        "rows": [{"node": node, "heat": heat.get(node.pk), **room_of(node)} for node in page.object_list],
        "page": page,
        "pools": pools,
        "pool": pool,
        "layers": layers,
        "states": NodeState.choices,
        "may_manage": allowed(request.user, "node.manage"),
    }
    return render(request, page_or_part(request, "nodes/list.html", "board"), context)


def filtered(request: HtmxRequest, nodes: QuerySet[Node]) -> QuerySet[Node]:
    text, state, pool = request.GET.get("q", ""), request.GET.get("state", ""), number(request.GET.get("pool"))
    if text:
        nodes = nodes.filter(name__icontains=text)
    if state in NodeState.values:
        nodes = nodes.filter(state=state)
    if pool:
        nodes = nodes.filter(pool_id=pool)
    return nodes.order_by("id")


def with_live(nodes: QuerySet[Node]) -> QuerySet[Node]:
    live = Allocation.objects.filter(ended_at__isnull=True).select_related("workload__quota", "workload__workspace")
    return nodes.select_related("pool").prefetch_related(Prefetch("allocations", live.order_by("id"), to_attr="live"))


def room_of(node: Any) -> dict[str, Any]:
    """What is held on a node, counted from its live allocations."""
    held = sum(allocation.gpu_milli_total for allocation in node.live)
    return {
        "held": held,
        "whole": node.gpus * 1000,
        "cpu_held": sum(allocation.cpu_milli for allocation in node.live),
        "memory_held": sum(allocation.memory_mib for allocation in node.live),
        "workloads": len({allocation.workload_id for allocation in node.live}),
    }


def get_node(request: HtmxRequest, pk: int) -> Any:
    node = with_live(visible_nodes(request.user).filter(pk=pk)).select_related("cluster").first()
    if node is None:
        raise Http404
    return node


@login_required
@require_safe
def node_detail(request: HtmxRequest, pk: int) -> HttpResponse:
    node = get_node(request, pk)
    context = {
        "node": node,
        **room_of(node),
        "devices": devices_of(node),
        "actions": node_actions(request, node),
        "now": node.cluster.now(),
    }
    return render(request, page_or_part(request, "nodes/detail.html", "board"), context)


def devices_of(node: Any) -> list[dict[str, Any]]:
    """Each GPU with what is on it and how much of it is given out."""
    rows = []
    for index in range(node.gpus):
        on_it = [allocation for allocation in node.live if index in allocation.devices]
        rows.append(
            {
                "index": index,
                "is_bad": index in node.bad_devices,
                "held": sum(allocation.gpu_milli for allocation in on_it),
                "allocations": on_it,
            }
        )
    return rows


def node_actions(request: HtmxRequest, node: Node) -> list[tuple[str, str, str]]:
    """(name, title, icon) of what may be done with the node in its state."""
    if not allowed(request.user, "node.manage"):
        return []
    titles = {
        "cordon": (_("Cordon"), "ban"),
        "drain": (_("Drain"), "arrow-down"),
        "uncordon": (_("Uncordon"), "circle-check"),
    }
    possible = {
        NodeState.READY: ("cordon", "drain"),
        NodeState.CORDONED: ("drain", "uncordon"),
        NodeState.DRAINING: ("uncordon",),
    }.get(NodeState(node.state), ())
    return [(name, *titles[name]) for name in possible]


@login_required
@require_http_methods(["GET", "POST"])
def node_action(request: HtmxRequest, pk: int, action: str) -> HttpResponse:
    """Asks for a reason and shows what is on the node before it is emptied."""
    if action not in MOVES:
        raise Http404
    node = get_node(request, pk)
    require(request.user, "node.manage")
    form = NodeStateForm(request.POST or None)
    titles = {"cordon": _("Cordon %(name)s"), "drain": _("Drain %(name)s"), "uncordon": _("Uncordon %(name)s")}
    title = titles[action] % {"name": node.name}
    page = FormPage(
        request,
        form,
        title,
        title,
        reverse("node-detail", args=[pk]),
        crumbs=(Crumb(_("Nodes"), reverse("node-list")), Crumb(node.name, reverse("node-detail", args=[pk]))),
        lead=action_words(node, action),
    )
    if request.method != "POST" or not form.is_valid():
        return page.answer()
    set_node_state(actor=request.user, node=node, state=MOVES[action], reason=form.cleaned_data["reason"])
    return done(
        request,
        _("Node %(name)s: %(state)s.") % {"name": node.name, "state": MOVES[action].label},
        "node-detail",
        pk,
        changed=[f"node.{pk}", "nodes"],
    )


def action_words(node: Any, action: str) -> str:
    names = sorted({allocation.workload.name for allocation in node.live})
    kept = sorted({allocation.workload.name for allocation in node.live if not allocation.workload.preemptible})
    if action == "uncordon":
        return _("New work may start on it again.")
    if action == "cordon":
        return _("Nothing new starts on it; what runs there goes on.")
    if not names:
        return _("Nothing runs there. Nothing new starts on it.")
    words = _("Nothing new starts on it, and what may be moved leaves: %(names)s.") % {"names": ", ".join(names)}
    return (
        f"{words} {_('Not preemptible, stays until it ends: %(names)s.') % {'names': ', '.join(kept)}}"
        if kept
        else words
    )
