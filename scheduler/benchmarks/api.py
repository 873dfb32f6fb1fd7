"""Lists and bulk submission of the REST API over many rows, asked in this process as a client would."""

from __future__ import annotations

import random
import statistics
import time
from collections.abc import Iterator
from datetime import timedelta
from itertools import islice

from django.db import connection, transaction
from django.test.client import Client
from django.test.utils import CaptureQueriesContext

from quotas.actors import SYSTEM
from quotas.models import (
    Cluster,
    Member,
    Node,
    NodePool,
    PlatformRole,
    Quota,
    QuotaAmount,
    Role,
    User,
    Workspace,
    WorkspaceQuota,
)
from quotas.services.people import create_token, create_user
from quotas.specs import TokenSpec, UserSpec
from scheduler.benchmarks.measure import Figures, peak_mib
from workloads.models import Idle, Kind, State, Verdict, Workload

BATCH = 5000
WORKSPACES = 50
BULK = 500
QUEUED_PART = 0.05
STATES = (State.SUCCEEDED, State.SUCCEEDED, State.SUCCEEDED, State.FAILED, State.STOPPED)
LISTS = {
    "workloads, first page": "workloads",
    "workloads, waiting": "workloads?state=queued",
    "workloads, by quota": "workloads?quota={quota}",
    "workloads, by reason": "workloads?reason=quota.entitlement",
    "workloads, by name": "workloads?name=w-777",
    "quotas, first page": "quotas",
    "quotas, by name": "quotas?name=quota-77",
}


class WrongAnswerError(Exception):
    """The API did not answer as it should; what it measured would mean nothing."""


def api(workloads: int, quotas: int, runs: int) -> Figures:
    """Time each list as platform administrator and as a developer of one workspace, then a bulk submission."""
    clients = build(workloads, quotas)
    quota = Quota.objects.order_by("id").values_list("id", flat=True)[quotas // 2]
    lists = {
        f"{name} ({who})": _timed(client, f"/api/v1/{path.format(quota=quota)}", runs)
        for who, client in clients.items()
        for name, path in LISTS.items()
    }
    return {
        "bench": "api",
        "median_s": round(max(float(found["median_ms"]) for found in lists.values()) / 1000, 4),
        "runs": runs,
        "sizes": {"workloads": workloads, "quotas": quotas, "workspaces": WORKSPACES},
        "lists": lists,
        "bulk_submit": {"workloads": BULK, "seconds": _bulk(clients["developer"])},
        "peak_mib": peak_mib(),
    }


def _timed(client: Client, path: str, runs: int) -> dict[str, float | int]:
    _answer(client, path)
    seconds = []
    for _ in range(runs):
        begun = time.perf_counter()
        _answer(client, path)
        seconds.append(time.perf_counter() - begun)
    with CaptureQueriesContext(connection) as queries:
        _answer(client, path)
    return {
        "median_ms": round(statistics.median(seconds) * 1000, 1),
        "slowest_ms": round(max(seconds) * 1000, 1),
        "queries": len(queries),
    }


def _answer(client: Client, path: str) -> None:
    answer = client.get(path)
    if answer.status_code != 200:
        raise WrongAnswerError(f"{path}: {answer.status_code}")


def _bulk(client: Client) -> float:
    workspace = Workspace.objects.order_by("id").first()
    items = [
        {"name": f"bulk-{index}", "kind": "training", "workspace": workspace.pk if workspace else None, "gpus": 1}
        for index in range(BULK)
    ]
    begun = time.perf_counter()
    answer = client.post("/api/v1/workloads/bulk", {"workloads": items}, content_type="application/json")
    seconds = time.perf_counter() - begun
    if answer.status_code != 201:
        raise WrongAnswerError(f"bulk: {answer.status_code} {answer.content[:300]!r}")
    return round(seconds, 3)


# --- rows -----------------------------------------------------------------------------------------------------------


def build(workloads: int, quotas: int) -> dict[str, Client]:
    """The rows, and a client with a token for each of two people."""
    administrator = create_user(actor=SYSTEM, spec=UserSpec("bench-admin", platform_role=PlatformRole.ADMINISTRATOR))
    developer = create_user(actor=SYSTEM, spec=UserSpec("bench-developer"))
    cluster = Cluster.objects.create(name="bench")
    with transaction.atomic():
        made = _quotas(cluster, quotas)
        teams = _workspaces(made)
        Member.objects.create(workspace=teams[0], user=developer, roles=[Role.DEVELOPER])
        _workloads(cluster, teams, made, workloads)
    with connection.cursor() as cursor:
        cursor.execute("ANALYZE")
    return {"administrator": _client(administrator), "developer": _client(developer)}


def _client(user: User) -> Client:
    _, secret = create_token(actor=user, spec=TokenSpec("bench"))
    return Client(headers={"authorization": f"Bearer {secret}", "host": "localhost"})


def _quotas(cluster: Cluster, number: int) -> list[Quota]:
    """A tenth of them roots, the others below these; everything of the pool's GPUs is promised."""
    pool = NodePool.objects.create(cluster=cluster, name="default")
    Node.objects.bulk_create(
        Node(cluster=cluster, pool=pool, name=f"n{index}", gpus=8) for index in range(-(-number // 8))
    )
    parents = max(1, number // 10)
    roots = Quota.objects.bulk_create(Quota(cluster=cluster, name=f"quota-{index}") for index in range(parents))
    leaves = Quota.objects.bulk_create(
        Quota(cluster=cluster, name=f"quota-{index}", parent=roots[index % parents]) for index in range(parents, number)
    )
    made = roots + leaves
    QuotaAmount.objects.bulk_create(QuotaAmount(quota=quota, pool=pool, guaranteed_gpu_milli=0) for quota in made)
    return made


def _workspaces(quotas: list[Quota]) -> list[Workspace]:
    teams = Workspace.objects.bulk_create(Workspace(name=f"team-{index}") for index in range(WORKSPACES))
    WorkspaceQuota.objects.bulk_create(
        WorkspaceQuota(workspace=teams[index % WORKSPACES], quota=quota, is_default=index < WORKSPACES)
        for index, quota in enumerate(quotas)
    )
    return teams


def _workloads(cluster: Cluster, teams: list[Workspace], quotas: list[Quota], number: int) -> None:
    chance = random.Random(42)  # noqa: S311 (no secret)
    rows = (_workload(cluster, teams, quotas, index, chance) for index in range(number))
    for batch in _batches(rows):
        made = Workload.objects.bulk_create(batch)
        Verdict.objects.bulk_create(
            Verdict(workload=row, code="quota.entitlement", since=row.submitted_at, cycle=1)
            for row in made
            if row.state == State.QUEUED
        )


def _batches(rows: Iterator[Workload]) -> Iterator[list[Workload]]:
    while batch := list(islice(rows, BATCH)):
        yield batch


def _workload(
    cluster: Cluster, teams: list[Workspace], quotas: list[Quota], index: int, chance: random.Random
) -> Workload:
    place = chance.randrange(len(quotas))
    submitted = cluster.clock_at - timedelta(seconds=chance.randrange(90 * 86_400))
    state = State.QUEUED if chance.random() < QUEUED_PART else chance.choice(STATES)
    return Workload(
        cluster=cluster,
        workspace=teams[place % WORKSPACES],
        quota=quotas[place],
        name=f"w-{index}",
        kind=Kind.TRAINING,
        state=state,
        state_at=submitted,
        submitted_at=submitted,
        priority=chance.randint(1, 9),
        idle=Idle.ALLOW,
        preemptible=True,
        gpus=1,
    )
