"""What is there, as far as the actor may see it."""

from __future__ import annotations

from typing import TypeVar

from django.db.models import Model, QuerySet

from quotas.actors import Actor
from quotas.errors import NotFound
from quotas.models import Cluster, Member, Node, Quota, QuotaVersion, Token, User, Workspace
from quotas.permissions import (
    require,
    visible_clusters,
    visible_members,
    visible_nodes,
    visible_quotas,
    visible_workspaces,
)
from quotas.promises import Tree, uncommitted
from quotas.specs import RESOURCES

M = TypeVar("M", bound=Model)


def _one(found: QuerySet[M], pk: int, what: str) -> M:
    row = found.filter(pk=pk).first()
    if row is None:
        raise NotFound(what)
    return row


def list_clusters(*, actor: Actor) -> QuerySet[Cluster]:
    """Clusters in which the actor sees something, by id."""
    return visible_clusters(actor).order_by("id")


def get_cluster(*, actor: Actor, pk: int) -> Cluster:
    return _one(visible_clusters(actor), pk, "cluster")


def get_quota(*, actor: Actor, pk: int) -> Quota:
    """The quota with its cluster and parent read along."""
    return _one(visible_quotas(actor).select_related("cluster", "parent"), pk, "quota")


def get_workspace(*, actor: Actor, pk: int) -> Workspace:
    return _one(visible_workspaces(actor), pk, "workspace")


def get_node(*, actor: Actor, pk: int) -> Node:
    return _one(visible_nodes(actor).select_related("cluster", "pool"), pk, "node")


def list_members(*, actor: Actor, workspace: Workspace) -> QuerySet[Member]:
    """Members of a workspace with their people, the owner first."""
    require(actor, "member.read", workspace)
    return visible_members(actor).filter(workspace=workspace).select_related("user").order_by("id")


def list_tokens(*, actor: User) -> QuerySet[Token]:
    """The actor's own tokens, newest first. Secrets are in none of them."""
    return Token.objects.filter(user=actor).select_related("workspace").order_by("-id")


def quota_path(quota: Quota) -> list[str]:
    """Names from the root down to the quota: all that is told of ancestors that the reader does not see."""
    names: list[str] = []
    here: Quota | None = quota
    while here is not None:
        names.append(here.name)
        here = here.parent
    return names[::-1]


def quota_history(*, actor: Actor, quota: Quota) -> QuerySet[QuotaVersion]:
    """The quota's versions, newest first."""
    require(actor, "quota.read", quota)
    return quota.versions.select_related("by").order_by("-revision")


def uncommitted_of(cluster: Cluster) -> dict[tuple[int | None, int], dict[str, int | None]]:
    """What is not promised yet, by (quota or None for the pool itself, pool) and resource; None: no bound.

    A quota is listed in the pools in which it has amounts. Negative where a pool is oversubscribed.
    """
    tree = Tree.load(cluster)
    places: list[tuple[int | None, int]] = [(None, pool) for pool in tree.pools]
    places += [(quota, pool) for quota, amounts in tree.amounts.items() for pool in amounts]
    return {
        (quota, pool): {resource: uncommitted(tree, quota, pool, resource) for resource in RESOURCES}
        for quota, pool in places
    }
