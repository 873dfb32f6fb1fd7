"""The frame around every page: the menu by rights, the cluster that is looked at and its clock."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Any

from django.conf import settings
from django.http import HttpRequest
from django.urls import reverse
from django.utils import timezone
from django.utils.functional import SimpleLazyObject
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

from console.middleware import theme_of
from quotas.models import Cluster, PlatformRole, User
from quotas.permissions import allowed, grants_of
from quotas.selectors import list_clusters

CLUSTER_KEY = "cluster"


@dataclass(frozen=True, slots=True)
class MenuEntry:
    title: str
    url: str
    icon: str
    key: str
    is_current: bool
    count: int = 0


@dataclass(frozen=True, slots=True)
class MenuGroup:
    title: str
    entries: list[MenuEntry]


@dataclass(frozen=True, slots=True)
class Frame:
    menu: list[MenuGroup]
    clusters: list[Cluster]
    cluster: Cluster | None
    now: datetime
    person: str
    initials: str
    rank: str


# (group, ((title, route, icon, key, needs a platform role), ...))
PLACES: tuple[tuple[Any, tuple[tuple[Any, str, str, str], ...]], ...] = (
    (gettext_lazy("Monitor"), ((gettext_lazy("Overview"), "overview", "layout-dashboard", "o"),)),
    (
        gettext_lazy("Capacity"),
        (
            (gettext_lazy("Resource Quotas"), "quota-list", "hierarchy-3", "q"),
            (gettext_lazy("Nodes"), "node-list", "server-2", "n"),
            (gettext_lazy("Scaling rules"), "rule-list", "calendar-time", "c"),
            (gettext_lazy("Quota requests"), "request-list", "scale", "r"),
        ),
    ),
    (
        gettext_lazy("Work"),
        (
            (gettext_lazy("Workspaces"), "workspace-list", "folders", "w"),
            (gettext_lazy("Queue"), "queue", "list-check", "s"),
            (gettext_lazy("Workloads"), "workload-list", "stack-2", "l"),
        ),
    ),
    (
        gettext_lazy("Govern"),
        (
            (gettext_lazy("Roles"), "role-table", "users", "m"),
            (gettext_lazy("API tokens"), "token-list", "key", "t"),
            (gettext_lazy("Audit log"), "audit", "history", "a"),
        ),
    ),
)


def current_cluster(request: HttpRequest) -> Cluster | None:
    """The cluster chosen in the top bar, else the first one; None while there is none to be seen."""
    assert isinstance(request.user, User)
    clusters = list(list_clusters(actor=request.user))
    chosen = request.session.get(CLUSTER_KEY)
    return next((cluster for cluster in clusters if cluster.pk == chosen), clusters[0] if clusters else None)


def frame(request: HttpRequest) -> dict[str, Any]:
    """Context processor. The frame itself is made only where a template uses it: fragments do not pay for it."""
    return {
        "theme": theme_of(request),
        "zone": timezone.get_current_timezone_name(),
        "frame": SimpleLazyObject(lambda: _frame(request)),
    }


def _frame(request: HttpRequest) -> Frame | None:
    user = request.user
    if not isinstance(user, User):
        return None
    clusters = list(list_clusters(actor=user))
    cluster = current_cluster(request)
    name = user.get_full_name() or user.get_username()
    return Frame(
        menu=menu_of(user, request.path),
        clusters=clusters,
        cluster=cluster,
        now=cluster.now() if cluster else timezone.now(),
        person=name,
        initials="".join(part[0] for part in name.replace(".", " ").replace("_", " ").split()[:2]).upper(),
        rank=rank_of(user),
    )


def menu_of(user: User, path: str) -> list[MenuGroup]:
    """Groups and entries in order; a group without entries is left out."""
    hidden = hidden_places(user)
    groups = [
        MenuGroup(
            str(title),
            [
                MenuEntry(str(name), reverse(route), icon, key, is_current(path, reverse(route)))
                for name, route, icon, key in places
                if route not in hidden
            ],
        )
        for title, places in PLACES
    ]
    return [group for group in groups if group.entries]


def hidden_places(user: User) -> set[str]:
    """Places that hold nothing for the person. Lists show each what they may see, so most are for everybody."""
    grants = grants_of(user)
    needed = {"node-list": "node.read", "audit": "audit.read"}
    hidden = {route for route, permission in needed.items() if not allowed(user, permission, grants=grants)}
    manages_members = allowed(user, "member.manage", grants=grants)
    return hidden - {"audit"} if manages_members else hidden


def is_current(path: str, url: str) -> bool:
    return path == url if url == "/" else path.startswith(url)


def rank_of(user: User) -> str:
    if user.platform_role == PlatformRole.NONE:
        return _("Member")
    return {
        PlatformRole.ADMINISTRATOR: _("Platform administrator"),
        PlatformRole.AUDITOR: _("Platform auditor"),
    }[PlatformRole(user.platform_role)]


def sign_on(request: HttpRequest) -> dict[str, Any]:
    """Context processor: what the button of single sign-on says, where an identity provider is named."""
    return {"sso_name": settings.OIDC_NAME if settings.OIDC_SERVER else ""}
