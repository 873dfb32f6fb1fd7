"""Nodes: the list with their GPUs, one node with what is on it, cordon, drain and uncordon."""

from __future__ import annotations

from typing import Any

from django.contrib.auth.decorators import login_required
from django.db.models import Count, Prefetch, QuerySet, Sum
from django.db.models.functions import Coalesce
from django.http import Http404, HttpResponse
from django.shortcuts import render
from django.urls import reverse
from django.utils.translation import gettext as _
from django.views.decorators.http import require_http_methods, require_POST, require_safe

from console.forms.nodes import NewNodeForm, NodeLabelsForm, NodeStateForm, PoolForm, pool_initial
from console.frame import current_cluster
from console.selectors import heat_map, quota_shapes
from console.views.base import Crumb, FormPage, HtmxRequest, asked_text, done, page_or_part, paged
from console.views.overview import chart_layers
from console.views.quotas import number
from quotas.models import Cluster, EngineKind, Node, NodePool, NodeState
from quotas.permissions import allowed, require, visible_nodes, visible_pools
from quotas.selectors import uncommitted_of
from quotas.services import add_node, create_pool, edit_node, edit_pool, remove_node, set_device_health
from quotas.specs import NodeSpec, PoolSpec
from workloads.models import Allocation
from workloads.services import set_node_state

MOVES = {"cordon": NodeState.CORDONED, "drain": NodeState.DRAINING, "uncordon": NodeState.READY}


@login_required
@require_safe
def node_list(request: HtmxRequest) -> HttpResponse:
    require(request.user, "node.read")
    cluster = current_cluster(request)
    if cluster is None:
        return render(request, "nodes/list.html", {"rows": []})
    pools = list(visible_pools(request.user).filter(cluster=cluster).order_by("order", "id"))
    pool = next((found for found in pools if found.pk == number(request.GET.get("pool"))), None)
    layers = chart_layers(quota_shapes(actor=request.user, cluster=cluster))
    page = paged(request, with_live(filtered(request, visible_nodes(request.user).filter(cluster=cluster))))
    heat = {node.pk: node for node in heat_map(actor=request.user, cluster=cluster, layers=layers, pool=pool)}
    context = {
        "rows": [{"node": node, "heat": heat.get(node.pk), **room_of(node)} for node in page.object_list],
        "page": page,
        "pools": pools,
        "pool": pool,
        "layers": layers,
        "states": NodeState.choices,
        "may_add": allowed(request.user, "node.manage") and cluster.engine == EngineKind.SIMULATED,
    }
    return render(request, page_or_part(request, "nodes/list.html", "board"), context)


def filtered(request: HtmxRequest, nodes: QuerySet[Node]) -> QuerySet[Node]:
    text, state, pool = asked_text(request), request.GET.get("state", ""), number(request.GET.get("pool"))
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
        "may_manage": allowed(request.user, "node.manage"),
        "is_simulated": node.cluster.engine == EngineKind.SIMULATED,
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


# --- nodes of a simulated cluster, labels, health --------------------------------------------------------------------


def chosen_cluster(request: HtmxRequest) -> Cluster:
    cluster = current_cluster(request)
    if cluster is None:
        raise Http404
    return cluster


@login_required
@require_http_methods(["GET", "POST"])
def node_new(request: HtmxRequest) -> HttpResponse:
    require(request.user, "node.manage")
    cluster = chosen_cluster(request)
    form = NewNodeForm(request.POST or None)
    crumbs = (Crumb(_("Nodes"), reverse("node-list")),)
    page = FormPage(request, form, _("Add a node"), _("Add"), reverse("node-list"), crumbs=crumbs)
    if not form.is_valid():
        return page.answer()
    pools = visible_pools(request.user).filter(cluster=cluster)
    node = add_node(actor=request.user, cluster=cluster, spec=NodeSpec.from_mapping(form.mapping(), pools=pools))
    said = _("Node %(name)s is there, in pool %(pool)s.") % {"name": node.name, "pool": node.pool.name}
    return done(request, said, "node-list", changed=["nodes"])


@login_required
@require_http_methods(["GET", "POST"])
def node_labels(request: HtmxRequest, pk: int) -> HttpResponse:
    node = get_node(request, pk)
    require(request.user, "node.manage")
    form = NodeLabelsForm(request.POST or None, initial={"labels": node.labels, "revision": node.revision})
    title = _("Labels of %(name)s") % {"name": node.name}
    page = FormPage(request, form, title, _("Save"), reverse("node-detail", args=[pk]))
    if not form.is_valid():
        return page.answer()
    labels, revision = form.cleaned_data["labels"], form.cleaned_data["revision"]
    edit_node(actor=request.user, node=node, labels=labels, revision=revision)
    return done(request, _("Saved."), "node-detail", pk, changed=[f"node.{pk}", "nodes"])


@login_required
@require_POST
def node_remove(request: HtmxRequest, pk: int) -> HttpResponse:
    node = get_node(request, pk)
    remove_node(actor=request.user, node=node)
    return done(request, _("Node %(name)s is gone.") % {"name": node.name}, "node-list")


@login_required
@require_POST
def device_health(request: HtmxRequest, pk: int, index: int) -> HttpResponse:
    """Marks a GPU as unhealthy, so that nothing starts on it, or as healthy again."""
    node = get_node(request, pk)
    healthy = request.POST.get("to") == "healthy"
    set_device_health(actor=request.user, node=node, index=index, healthy=healthy)
    return done(request, _("Saved."), "node-detail", pk, changed=[f"node.{pk}", "nodes"])


# --- pools -----------------------------------------------------------------------------------------------------------


@login_required
@require_safe
def pool_list(request: HtmxRequest) -> HttpResponse:
    """Pools with what they have and what of it is not promised yet."""
    require(request.user, "node.read")
    cluster = chosen_cluster(request)
    pools = visible_pools(request.user).filter(cluster=cluster).order_by("order", "id")
    held = {pool.pk: pool for pool in pools.annotate(count=Count("nodes"), gpus=Coalesce(Sum("nodes__gpus"), 0))}
    free = uncommitted_of(cluster)
    rows = [
        {"pool": pool, "free": free.get((None, pool.pk), {}).get("gpu_milli"), "whole": pool.gpus * 1000}
        for pool in held.values()
    ]
    context = {"rows": rows, "may_manage": allowed(request.user, "pool.manage")}
    return render(request, "nodes/pools.html", context)


@login_required
@require_http_methods(["GET", "POST"])
def pool_edit(request: HtmxRequest, pk: int | None = None) -> HttpResponse:
    """A new pool, or one changed; nodes are told to the pools anew."""
    cluster = chosen_cluster(request)
    pool = get_pool(request, pk) if pk else None
    require(request.user, "pool.manage")
    form = PoolForm(request.POST or None, initial=pool_initial(pool))
    title = _("Edit pool %(name)s") % {"name": pool.name} if pool else _("New node pool")
    crumbs = (Crumb(_("Node pools"), reverse("pool-list")),)
    page = FormPage(request, form, title, _("Save"), reverse("pool-list"), crumbs=crumbs)
    if not form.is_valid():
        return page.answer()
    spec = PoolSpec.from_mapping(form.mapping())
    if pool is None:
        create_pool(actor=request.user, cluster=cluster, spec=spec)
    else:
        edit_pool(actor=request.user, pool=pool, spec=spec)
    return done(request, _("Saved."), "pool-list")


def get_pool(request: HtmxRequest, pk: int) -> NodePool:
    pool = visible_pools(request.user).filter(pk=pk).first()
    if pool is None:
        raise Http404
    return pool
