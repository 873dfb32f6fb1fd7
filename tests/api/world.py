"""A small installation for the tests of the API: two teams on one tree, and everybody who may knock."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

from django.test import Client
from django.utils import timezone

from quotas.models import (
    Cluster,
    Member,
    Node,
    NodePool,
    Quota,
    QuotaAmount,
    Role,
    Token,
    User,
    Workspace,
    WorkspaceQuota,
)
from quotas.tokens import new_secret
from workloads.models import Workload

FOREIGN = 777_000_000_000  # ids of the other team start here, so that one in a body is seen at once
SECRET_WORD = "lighthouse"  # in every name of the other team


@dataclass
class World:
    """What the tests speak of by name."""

    cluster: Cluster
    pool: NodePool
    node: Node
    root: Quota
    quota: Quota
    foreign_quota: Quota
    workspace: Workspace
    foreign_workspace: Workspace
    people: dict[str, User]
    tokens: dict[str, str] = field(default_factory=dict)
    workloads: dict[str, Workload] = field(default_factory=dict)

    def client(self, who: str) -> ApiClient:
        """Somebody with a token of all its rights, with one of the scoped tokens, or nobody."""
        return ApiClient(self.tokens.get(who))


class ApiClient:
    """Calls the API with a token and reads JSON."""

    def __init__(self, secret: str | None = None, **headers: str) -> None:
        self.client = Client(raise_request_exception=True)
        self.headers = {"Authorization": f"Bearer {secret}"} if secret else {}
        self.headers.update(headers)

    def call(self, method: str, path: str, body: Any = None, headers: dict[str, str] | None = None) -> Any:
        """The response to a call below ``/api/v1``."""
        kwargs = {} if body is None else {"data": body, "content_type": "application/json"}
        ask = getattr(self.client, method.lower())
        return ask(f"/api/v1{path}", headers={**self.headers, **(headers or {})}, **kwargs)

    def get(self, path: str, **kwargs: Any) -> Any:
        return self.call("GET", path, **kwargs)

    def post(self, path: str, body: Any = None, **kwargs: Any) -> Any:
        return self.call("POST", path, {} if body is None else body, **kwargs)

    def patch(self, path: str, body: Any, **kwargs: Any) -> Any:
        return self.call("PATCH", path, body, **kwargs)

    def put(self, path: str, body: Any, **kwargs: Any) -> Any:
        return self.call("PUT", path, body, **kwargs)

    def delete(self, path: str, **kwargs: Any) -> Any:
        return self.call("DELETE", path, **kwargs)


MEMBERS = {
    "viewer": Role.VIEWER,
    "developer": Role.DEVELOPER,
    "colleague": Role.DEVELOPER,
    "operator": Role.OPERATOR,
    "administrator": Role.ADMINISTRATOR,
    "owner": Role.OWNER,
}
PLATFORM = {"platform": "administrator", "auditor": "auditor"}


def make_world() -> World:
    """Everything, without a service: what these tests judge is the door."""
    cluster = Cluster.objects.create(name="tide")
    pool = NodePool.objects.create(cluster=cluster, name="default")
    node = Node.objects.create(cluster=cluster, pool=pool, name="n0", gpus=8, gpu_model="H100")
    Node.objects.create(cluster=cluster, pool=pool, name="n1", gpus=8, gpu_model="H100")
    root = _quota(cluster, pool, f"{SECRET_WORD}-root", 16_000, pk=FOREIGN + 1)
    quota = _quota(cluster, pool, "quota-a", 8_000, parent=root)
    foreign_quota = _quota(cluster, pool, f"{SECRET_WORD}-quota", 8_000, parent=root, pk=FOREIGN + 2)
    people = {name: User.objects.create(username=name, email=f"{name}@example.org") for name in ("stranger", *MEMBERS)}
    people |= {name: User.objects.create(username=name, platform_role=role) for name, role in PLATFORM.items()}
    people["outsider"] = User.objects.create(pk=FOREIGN + 9, username=f"{SECRET_WORD}-outsider")
    workspace = Workspace.objects.create(name="team-a")
    foreign = Workspace.objects.create(pk=FOREIGN + 3, name=f"{SECRET_WORD}-team")
    WorkspaceQuota.objects.create(workspace=workspace, quota=quota, is_default=True)
    WorkspaceQuota.objects.create(pk=FOREIGN + 4, workspace=foreign, quota=foreign_quota, is_default=True)
    for name, role in MEMBERS.items():
        Member.objects.create(workspace=workspace, user=people[name], roles=[role])
    Member.objects.create(pk=FOREIGN + 5, workspace=foreign, user=people["outsider"], roles=[Role.OWNER])
    world = World(cluster, pool, node, root, quota, foreign_quota, workspace, foreign, people)
    world.tokens = {name: give_token(user) for name, user in people.items()}
    _scoped_tokens(world)
    return world


def _quota(cluster: Cluster, pool: NodePool, name: str, gpu_milli: int, **values: Any) -> Quota:
    quota = Quota.objects.create(cluster=cluster, name=name, **values)
    amount_pk = values["pk"] + 100 if "pk" in values else None
    QuotaAmount.objects.create(pk=amount_pk, quota=quota, pool=pool, guaranteed_gpu_milli=gpu_milli)
    return quota


def _scoped_tokens(world: World) -> None:
    """Tokens with less than their people have, and two that are worth nothing."""
    people, workspace = world.people, world.workspace
    world.tokens |= {
        "owner as viewer": give_token(people["owner"], workspace=workspace, role=Role.VIEWER),
        "platform as developer": give_token(people["platform"], workspace=workspace, role=Role.DEVELOPER),
        "stranger as owner": give_token(people["stranger"], workspace=workspace, role=Role.OWNER),
        "revoked": give_token(people["platform"], revoked_at=timezone.now()),
        "expired": give_token(people["platform"], expires_at=timezone.now() - timedelta(seconds=1)),
    }


def give_token(user: User, **values: Any) -> str:
    """The secret of a new token."""
    prefix, secret, digest = new_secret()
    Token.objects.create(user=user, name="test", prefix=prefix, digest=digest, **values)
    return secret
