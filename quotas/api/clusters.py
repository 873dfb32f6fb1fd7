"""Clusters, node pools and nodes."""

from __future__ import annotations

from typing import ClassVar

from django.db.models import QuerySet
from django.shortcuts import get_object_or_404
from drf_spectacular.utils import extend_schema
from rest_framework import serializers
from rest_framework.decorators import action
from rest_framework.request import Request
from rest_framework.response import Response

from quotas.api.bodies import ClusterBody, HealthBody, LabelsBody, NewPoolBody, NodeBody, PoolBody
from quotas.api.finding import named
from quotas.api.queries import IdParameter, ListQuery, Words
from quotas.api.shapes import ClusterRead, ClusterReadWhole, NodeRead, PoolRead, UncommittedRead
from quotas.api.views import Door
from quotas.models import Cluster, EngineKind, Node, NodePool, NodeState
from quotas.permissions import allowed, require, visible_clusters, visible_nodes, visible_pools
from quotas.selectors import uncommitted_of
from quotas.services import add_node, create_cluster, create_pool, edit_node, edit_pool, remove_node, set_device_health
from quotas.specs import ClusterSpec, NodeSpec, PoolSpec


class ClusterQuery(ListQuery):
    """Filters of clusters."""

    lookups = {"engine": "engine__in", "name": "name__icontains"}
    orders = {"id": "id", "name": "name"}

    engine = Words(EngineKind.choices)
    name = serializers.CharField(required=False, max_length=63, help_text="A part of the name.")


class ClusterDoor(Door):
    """Clusters: engines with their clocks."""

    queryset = Cluster.objects.none()
    reads = ClusterRead
    list_query = ClusterQuery

    def rows(self) -> QuerySet[Cluster]:
        return visible_clusters(self.actor)

    @extend_schema(responses=ClusterRead)
    def list(self, request: Request) -> Response:
        """Clusters that the caller sees."""
        return self.listed(self.rows())

    @extend_schema(responses=ClusterReadWhole)
    def retrieve(self, request: Request, pk: int) -> Response:
        """One cluster; its settings only for those who may manage or audit clusters."""
        cluster = get_object_or_404(self.rows(), pk=pk)
        shape = ClusterReadWhole if allowed(self.actor, "cluster.read", cluster) else ClusterRead
        return self.answer(cluster, reads=shape)

    @extend_schema(responses=UncommittedRead)
    @action(detail=True)
    def uncommitted(self, request: Request, pk: int) -> Response:
        """What is not promised yet, of each pool and of each quota; negative where a pool is oversubscribed."""
        cluster = get_object_or_404(self.rows(), pk=pk)
        require(self.actor, "cluster.read", cluster)
        pools, quotas = cluster.pools.in_bulk(), cluster.quotas.in_bulk()
        rest = [
            {"pool": pools[pool], "quota": quotas[quota] if quota is not None else None, **amounts}
            for (quota, pool), amounts in uncommitted_of(cluster).items()
        ]
        return Response(self.shown({"uncommitted": rest}, UncommittedRead))

    @extend_schema(request=ClusterBody, responses={201: ClusterReadWhole})
    def create(self, request: Request) -> Response:
        """Make a cluster."""
        spec = ClusterSpec.from_mapping(self.body)
        return self.created(lambda: create_cluster(actor=self.actor, spec=spec), reads=ClusterReadWhole)


class PoolQuery(ListQuery):
    """Filters of pools."""

    lookups = {"cluster": "cluster_id", "name": "name__icontains"}
    orders = {"id": "id", "name": "name", "order": "order"}

    cluster = IdParameter()
    name = serializers.CharField(required=False, max_length=63, help_text="A part of the name.")


class PoolDoor(Door):
    """Node pools: sets of like nodes."""

    queryset = NodePool.objects.none()
    reads = PoolRead
    list_query = PoolQuery
    matches: ClassVar = frozenset({"update"})

    def rows(self) -> QuerySet[NodePool]:
        return visible_pools(self.actor).select_related("cluster")

    @extend_schema(responses=PoolRead)
    def list(self, request: Request) -> Response:
        """Pools in which the caller's quotas have amounts; all for the platform's people."""
        return self.listed(self.rows())

    @extend_schema(responses=PoolRead)
    def retrieve(self, request: Request, pk: int) -> Response:
        """One pool."""
        return self.answer(get_object_or_404(self.rows(), pk=pk))

    @extend_schema(request=NewPoolBody, responses={201: PoolRead})
    def create(self, request: Request) -> Response:
        """Make a pool of a cluster."""
        body = self.body
        cluster = named(visible_clusters(self.actor), body.pop("cluster", None), field="cluster")
        spec = PoolSpec.from_mapping(body)
        return self.created(lambda: create_pool(actor=self.actor, cluster=cluster, spec=spec))

    @extend_schema(request=PoolBody, responses=PoolRead)
    def update(self, request: Request, pk: int) -> Response:
        """Put these properties in the place of the pool's."""
        pool = get_object_or_404(self.rows(), pk=pk)
        spec = PoolSpec.from_mapping(self.body)
        return self.changed(lambda: edit_pool(actor=self.actor, pool=pool, spec=spec, revision=self.revision))


class NodeQuery(ListQuery):
    """Filters of nodes."""

    lookups = {
        "cluster": "cluster_id",
        "pool": "pool_id",
        "state": "state__in",
        "gpu_model": "gpu_model",
        "name": "name__icontains",
    }
    orders = {"id": "id", "name": "name", "state_at": "state_at"}

    cluster = IdParameter()
    pool = IdParameter()
    state = Words(NodeState.choices)
    gpu_model = serializers.CharField(required=False, max_length=63)
    name = serializers.CharField(required=False, max_length=253, help_text="A part of the name.")


class NodeDoor(Door):
    """Nodes, for the platform's people: what a node holds tells of every team."""

    queryset = Node.objects.none()
    reads = NodeRead
    list_query = NodeQuery
    matches: ClassVar = frozenset({"partial_update"})

    def rows(self) -> QuerySet[Node]:
        return visible_nodes(self.actor).select_related("cluster", "pool")

    def one(self, pk: int) -> Node:
        return get_object_or_404(self.rows(), pk=pk)

    @extend_schema(responses=NodeRead)
    def list(self, request: Request) -> Response:
        """Nodes that the caller sees."""
        return self.listed(self.rows())

    @extend_schema(responses=NodeRead)
    def retrieve(self, request: Request, pk: int) -> Response:
        """One node."""
        return self.answer(self.one(pk))

    @extend_schema(request=NodeBody, responses={201: NodeRead})
    def create(self, request: Request) -> Response:
        """Add a node to a cluster of the simulated engine."""
        body = self.body
        cluster = named(visible_clusters(self.actor), body.pop("cluster", None), field="cluster")
        spec = NodeSpec.from_mapping(body, pools=cluster.pools.all())
        return self.created(lambda: add_node(actor=self.actor, cluster=cluster, spec=spec))

    @extend_schema(request=LabelsBody, responses=NodeRead)
    def partial_update(self, request: Request, pk: int) -> Response:
        """Set the node's labels; by that it may come into another pool, if nothing runs on it."""
        node, body = self.one(pk), self.given(LabelsBody)
        return self.changed(
            lambda: edit_node(actor=self.actor, node=node, labels=body["labels"], revision=self.revision)
        )

    @extend_schema(request=None, responses={204: None})
    def destroy(self, request: Request, pk: int) -> Response:
        """Remove a node on which nothing runs."""
        node = self.one(pk)
        return self.changed(lambda: remove_node(actor=self.actor, node=node))

    @extend_schema(request=HealthBody, responses=NodeRead)
    @action(detail=True, methods=["post"])
    def health(self, request: Request, pk: int) -> Response:
        """Say whether one of the node's GPUs is well."""
        node, body = self.one(pk), self.given(HealthBody)
        return self.changed(lambda: set_device_health(actor=self.actor, node=node, **body))
