"""A small installation for the tests of the API: two teams on one tree, and everybody who may knock."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

from django.db import connection
from django.test import Client
from django.utils import timezone

from quotas.models import (
    AuditEvent,
    Cluster,
    CustomRole,
    Invitation,
    Member,
    Node,
    NodePool,
    Quota,
    QuotaAmount,
    QuotaRequest,
    QuotaVersion,
    Role,
    Token,
    User,
    Workspace,
    WorkspaceQuota,
)
from quotas.services import state_of
from quotas.tokens import new_secret
from workloads.models import Event, Eviction, Kind, State, Template, Verdict, Visibility, Workload

FOREIGN = 777_000_000_000  # ids of the other team start here, so that one in a body is seen at once
LATER = datetime(2099, 1, 1, tzinfo=UTC)
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
    ids: dict[str, int] = field(default_factory=dict)

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
    levels = {"training": "own", "queue": "read"}
    custom = CustomRole.objects.create(workspace=workspace, name="trainer", levels=levels)
    people["custom"] = User.objects.create(username="custom")
    Member.objects.create(workspace=workspace, user=people["custom"], roles=[], custom_roles=[custom.pk])
    world.tokens = {name: give_token(user) for name, user in people.items()}
    _scoped_tokens(world)
    world.ids = _numbers(world) | _work(world) | _records(world)
    with connection.cursor() as cursor:  # the late checks of all this are done now, as after a commit
        cursor.execute("SET CONSTRAINTS ALL IMMEDIATE; SET CONSTRAINTS ALL DEFERRED")
    return world


def _numbers(world: World) -> dict[str, int]:
    """What tables of calls name, by the name they use."""
    return {
        "cluster": world.cluster.pk,
        "pool": world.pool.pk,
        "node": world.node.pk,
        "root": world.root.pk,
        "quota": world.quota.pk,
        "foreign_quota": world.foreign_quota.pk,
        "workspace": world.workspace.pk,
        "foreign_workspace": world.foreign_workspace.pk,
        "member": Member.objects.get(user=world.people["colleague"]).pk,
        "user": world.people["developer"].pk,
        "foreign_user": world.people["outsider"].pk,
        "token": Token.objects.get(user=world.people["developer"]).pk,
    }


def _work(world: World) -> dict[str, int]:
    """Waiting work of both teams, a service that wants nothing, and who was told to leave for whom."""
    foreign = give_workload(
        world,
        f"{SECRET_WORD}-train",
        "outsider",
        pk=FOREIGN + 6,
        workspace=world.foreign_workspace,
        quota=world.foreign_quota,
    )
    work = {
        "workload": give_workload(world, "train", "developer"),
        "private": give_workload(world, "hidden", "colleague", visibility=Visibility.PRIVATE),
        "service": give_workload(
            world, "chat", "operator", kind=Kind.SERVICE, state=State.RUNNING, replicas=0, priority=9, gang=False
        ),
        "foreign_workload": foreign,
    }
    told = {"what": "eviction", "run": 1, "rule": "a", "at": timezone.now(), "cycle": 1}
    facts = {"claimant": foreign.name, "side": world.foreign_quota.pk, "share_before": 2000}
    mine = Eviction.objects.create(workload=work["workload"], claimant=foreign, quota=world.quota, facts=facts, **told)
    theirs = Eviction.objects.create(
        pk=FOREIGN + 7, workload=foreign, claimant=work["workload"], quota=world.foreign_quota, **told
    )
    Event.objects.create(workload=work["workload"], at=timezone.now(), verb="preempted", actor="system", facts=facts)
    Verdict.objects.create(
        workload=work["workload"],
        code="reservation.other",
        facts={"holder": foreign.pk, "name": foreign.name, "needed": 8000},
        would_unblock={"workloads": [foreign.name]},
        queue_position=3,
        since=timezone.now(),
        cycle=1,
    )
    ids = {name: workload.pk for name, workload in work.items()}
    return {**ids, "eviction": mine.pk, "foreign_eviction": theirs.pk}


def give_workload(world: World, name: str, owner: str, **values: Any) -> Workload:
    """A training job of one GPU that waits in the team's quota, unless the values say otherwise."""
    now = timezone.now()
    usual = {
        "cluster": world.cluster,
        "workspace": world.workspace,
        "quota": world.quota,
        "kind": Kind.TRAINING,
        "priority": 3,
        "preemptible": True,
        "gpus": 1,
        "state_at": now,
        "submitted_at": now,
    }
    return Workload.objects.create(name=name, owner=world.people[owner], **{**usual, **values})


def _records(world: World) -> dict[str, int]:
    """History and audit of both teams."""
    version = QuotaVersion.objects.create(
        quota=world.quota,
        revision=1,
        verb="created",
        by=world.people["platform"],
        after={**state_of(world.quota)},
    )
    entry = {"actor_name": "platform", "door": "api", "verb": "workspace.edited", "object_type": "workspace"}
    mine = AuditEvent.objects.create(object_name="team-a", workspace_id=world.workspace.pk, **entry)
    theirs = AuditEvent.objects.create(
        pk=FOREIGN + 8, object_name=world.foreign_workspace.name, workspace_id=world.foreign_workspace.pk, **entry
    )
    template = Template.objects.create(workspace=world.workspace, name="worker", gpus=8)
    invitation = Invitation.objects.create(
        workspace=world.workspace, email="guest@example.org", roles=[Role.VIEWER], digest="0" * 64, expires_at=LATER
    )
    more = {"pool": world.pool, "more_gpu_milli": 1000, "until": LATER}
    asked = QuotaRequest.objects.create(workspace=world.workspace, quota=world.quota, **more)
    theirs_asked = QuotaRequest.objects.create(
        pk=FOREIGN + 10, workspace=world.foreign_workspace, quota=world.foreign_quota, **more
    )
    return {
        "role": CustomRole.objects.get(workspace=world.workspace).pk,
        "invitation": invitation.pk,
        "request": asked.pk,
        "foreign_request": theirs_asked.pk,
        "version": version.pk,
        "template": template.pk,
        "audit": mine.pk,
        "foreign_audit": theirs.pk,
    }


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
