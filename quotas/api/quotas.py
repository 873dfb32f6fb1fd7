"""The quota tree: reading it, making quotas, their settings, history and place."""

from __future__ import annotations

from functools import cached_property
from typing import Any, ClassVar

from django.db.models import QuerySet
from django.shortcuts import get_object_or_404
from drf_spectacular.utils import extend_schema
from rest_framework import serializers
from rest_framework.decorators import action
from rest_framework.request import Request
from rest_framework.response import Response

from quotas.api.bodies import EditQuotaBody, MoveQuotaBody, NewQuotaBody, RestoreBody
from quotas.api.finding import named
from quotas.api.queries import IdParameter, ListQuery, Query
from quotas.api.shapes import LedgerRead, QuotaRead, QuotaVersionRead, TreeRead
from quotas.api.views import Door
from quotas.errors import refuse
from quotas.models import Cluster, LedgerEntry, NodePool, Quota, QuotaVersion
from quotas.permissions import grants_of, visible_clusters, visible_quotas, visible_users, visible_workspaces
from quotas.services import create_quota, edit_quota_settings, move_quota, restore_version
from quotas.specs import QuotaSpec


class QuotaQuery(ListQuery):
    """Filters of quotas."""

    lookups = {
        "cluster": "cluster_id",
        "parent": "parent_id",
        "name": "name__icontains",
        "workspace": "bindings__workspace_id",
        "root": "parent__isnull",
    }
    orders = {"id": "id", "name": "name"}

    cluster = IdParameter()
    parent = IdParameter(help_text="Only its children.")  # type: ignore[assignment]
    root = serializers.BooleanField(  # type: ignore[assignment]
        required=False, help_text="Only roots, or only others."
    )
    workspace = IdParameter(help_text="Only those bound to it.")
    name = serializers.CharField(required=False, max_length=63, help_text="A part of the name.")


class HistoryQuery(ListQuery):
    """Order of a quota's history."""

    orders = {"revision": "revision", "id": "id"}
    default_order = "-revision"


class LedgerQuery(ListQuery):
    """Filters of ledger entries."""

    lookups = {"pool": "pool_id"}

    pool = IdParameter()


class TreeQuery(Query):
    """Which tree."""

    cluster = IdParameter(help_text="Default: all clusters.")


class QuotaDoor(Door):
    """The quota tree. Callers see the quotas that are bound to their workspaces; the platform's people all."""

    queryset = Quota.objects.none()
    reads = QuotaRead
    list_query = QuotaQuery
    queries: ClassVar = {"history": HistoryQuery, "ledger": LedgerQuery, "tree": TreeQuery}
    matches: ClassVar = frozenset({"partial_update", "move", "restore"})

    def rows(self) -> QuerySet[Quota]:
        rows = visible_quotas(self.actor).select_related("cluster", "parent")
        return rows.prefetch_related("amounts__pool")

    def one(self, pk: int) -> Quota:
        return get_object_or_404(self.rows(), pk=pk)

    def get_serializer_context(self) -> dict[str, Any]:
        return {**super().get_serializer_context(), "visible_parents": self._visible_parents}

    @cached_property
    def _visible_parents(self) -> set[int] | None:
        """Ids of the quotas whose names the caller may read; None: all."""
        grants = grants_of(self.actor)
        if grants.reads_all:
            return None
        return set(visible_quotas(self.actor, grants=grants).values_list("pk", flat=True))

    @cached_property
    def visible_people(self) -> set[int] | None:
        """Ids of the people whose names the caller may read; None: all."""
        grants = grants_of(self.actor)
        if grants.reads_all:
            return None
        return set(visible_users(self.actor, grants=grants).values_list("pk", flat=True))

    @extend_schema(responses=QuotaRead)
    def list(self, request: Request) -> Response:
        """Quotas that the caller sees."""
        return self.listed(self._with_visible_relations(self.rows()))

    def _with_visible_relations(self, rows: QuerySet[Quota]) -> QuerySet[Quota]:
        """None where the filter names a parent or workspace that the caller does not see: it confirms neither."""
        parent, workspace = self.query.get("parent"), self.query.get("workspace")
        if parent is not None and not visible_quotas(self.actor).filter(pk=parent).exists():
            return rows.none()
        if workspace is not None and not visible_workspaces(self.actor).filter(pk=workspace).exists():
            return rows.none()
        return rows

    @extend_schema(responses=TreeRead)
    @action(detail=False)
    def tree(self, request: Request) -> Response:
        """The caller's quotas of a cluster from the top down, each with its depth and its books."""
        among = visible_clusters(self.actor)
        rows = self.rows().prefetch_related("ledger__pool").order_by("id")
        if "cluster" in self.query:
            rows = rows.filter(cluster=named(among, self.query["cluster"], field="cluster"))
        return Response(self.shown({"quotas": from_the_top(list(rows))}, TreeRead))

    @extend_schema(responses=QuotaRead)
    def retrieve(self, request: Request, pk: int) -> Response:
        """One quota with its amounts."""
        return self.answer(self.one(pk))

    @extend_schema(request=NewQuotaBody, responses={201: QuotaRead})
    def create(self, request: Request) -> Response:
        """Make a quota, as a root of a cluster or below a parent."""
        body = self.body
        cluster = self._cluster_of(body)
        parents = visible_quotas(self.actor).filter(cluster=cluster)
        spec = QuotaSpec.from_mapping(body, pools=NodePool.objects.filter(cluster=cluster), parents=parents)
        return self.created(lambda: self.fresh(create_quota(actor=self.actor, cluster=cluster, spec=spec)))

    def _cluster_of(self, body: dict[str, Any]) -> Cluster:
        """The cluster that the body names, else that of the parent."""
        reference = body.pop("cluster", None)
        if reference is not None:
            return named(visible_clusters(self.actor), reference, field="cluster")
        if body.get("parent") is None:
            raise refuse("cluster", "invalid", reason="required")
        return named(visible_quotas(self.actor), body["parent"], field="parent").cluster

    @extend_schema(request=EditQuotaBody, responses=QuotaRead)
    def partial_update(self, request: Request, pk: int) -> Response:
        """Change switches, policy, labels, name or description; amounts are changed by `scale`."""
        quota, changes = self.one(pk), self.body
        return self.changed(
            lambda: self.fresh(
                edit_quota_settings(actor=self.actor, quota=quota, changes=changes, revision=self.revision)
            )
        )

    @extend_schema(request=MoveQuotaBody, responses=QuotaRead)
    @action(detail=True, methods=["post"])
    def move(self, request: Request, pk: int) -> Response:
        """Move the quota with all below it to another parent, or make it a root."""
        quota, reference = self.one(pk), self.given(MoveQuotaBody)["parent"]
        among = visible_quotas(self.actor).filter(cluster=quota.cluster)
        parent = None if reference is None else named(among, reference, field="parent")
        return self.changed(
            lambda: self.fresh(move_quota(actor=self.actor, quota=quota, parent=parent, revision=self.revision))
        )

    @extend_schema(responses=QuotaVersionRead(many=True))
    @action(detail=True)
    def history(self, request: Request, pk: int) -> Response:
        """Who changed what, when; newest first."""
        versions = QuotaVersion.objects.filter(quota=self.one(pk)).select_related("by")
        return self.listed(versions, QuotaVersionRead)

    @extend_schema(request=RestoreBody, responses=QuotaRead)
    @action(detail=True, methods=["post"])
    def restore(self, request: Request, pk: int) -> Response:
        """Bring back the settings and amounts of an earlier version."""
        quota, wanted = self.one(pk), self.given(RestoreBody)["version"]
        version = QuotaVersion.objects.filter(quota=quota, pk=wanted).first()
        if version is None:
            raise refuse("version", "invalid", reason="not_found", given=wanted)
        return self.changed(
            lambda: self.fresh(restore_version(actor=self.actor, quota=quota, version=version, revision=self.revision))
        )

    @extend_schema(responses=LedgerRead(many=True))
    @action(detail=True)
    def ledger(self, request: Request, pk: int) -> Response:
        """What the last cycle counted for the quota in each pool."""
        entries = LedgerEntry.objects.filter(quota=self.one(pk)).select_related("pool")
        return self.listed(entries, LedgerRead)

    def fresh(self, quota: Quota) -> Quota:
        """The quota with its amounts as they are after a change."""
        return self.one(quota.pk)


def from_the_top(quotas: list[Quota]) -> list[Quota]:
    """Parents before their children, each with its ``depth``; one whose parent is not among them counts as a root."""
    known = {quota.pk for quota in quotas}
    below: dict[int | None, list[Quota]] = {}
    for quota in quotas:
        below.setdefault(quota.parent_id if quota.parent_id in known else None, []).append(quota)
    ordered: list[Quota] = []

    def descend(parent: int | None, depth: int) -> None:
        for quota in below.get(parent, ()):
            quota.depth = depth  # type: ignore[attr-defined]
            ordered.append(quota)
            descend(quota.pk, depth + 1)

    descend(None, 0)
    return ordered
