"""Every address under ``/api/v1``: the calls of each app, the schema, and a page that shows it."""

from __future__ import annotations

from django.urls import URLPattern, URLResolver, path, re_path
from rest_framework.routers import SimpleRouter

from console.api.views import docs, nothing_here, openapi
from console.api.watch import WatchDoor
from quotas.api.audits import AuditDoor
from quotas.api.clusters import PoolDoor
from quotas.api.governing import QuotaRequestDoor
from quotas.api.people import MeDoor, TokenDoor, UserDoor
from scheduler.api.nodes import NodeDoor
from scheduler.api.quotas import QuotaDoor
from scheduler.api.scheduling import ClusterDoor, EvictionDoor, UsageDoor
from scheduler.api.workloads import WorkloadDoor
from workloads.api.configuring import WorkspaceDoor


class Router(SimpleRouter):
    """Numbers in addresses, and no slash at their end."""

    def __init__(self) -> None:
        super().__init__(trailing_slash=False, use_regex_path=False)


router = Router()
router.register("clusters", ClusterDoor, "clusters")
router.register("pools", PoolDoor, "pools")
router.register("nodes", NodeDoor, "nodes")
router.register("quotas", QuotaDoor, "quotas")
router.register("quota_requests", QuotaRequestDoor, "quota_requests")
router.register("workspaces", WorkspaceDoor, "workspaces")
router.register("workloads", WorkloadDoor, "workloads")
router.register("evictions", EvictionDoor, "evictions")
router.register("users", UserDoor, "users")
router.register("tokens", TokenDoor, "tokens")
router.register("audit", AuditDoor, "audit")

urlpatterns: list[URLPattern | URLResolver] = [
    *router.urls,
    path("me", MeDoor.as_view({"get": "retrieve"}, basename="me"), name="me"),
    path("usage", UsageDoor.as_view({"get": "retrieve"}, basename="usage"), name="usage"),
    path("watch", WatchDoor.as_view({"get": "retrieve"}, basename="watch"), name="watch"),
    path("openapi.json", openapi, name="api-openapi"),
    path("docs", docs, name="api-docs"),
    re_path("", nothing_here),
]
