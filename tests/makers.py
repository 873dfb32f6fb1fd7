"""A small installation made by the services, for the tests of quotas and workloads: two teams on one tree."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, TypeVar

import pytest
from django.db import connection, connections

from quotas.actors import SYSTEM
from quotas.errors import Denied, NotFound, Refused
from quotas.models import AuditEvent, Cluster, Member, Node, NodePool, Quota, QuotaVersion, Role, User, Workspace
from quotas.services import create_cluster, create_pool, create_quota, create_workspace
from quotas.specs import AmountSpec, ClusterSpec, PoolSpec, QuotaSpec, WorkspaceSpec
from workloads.models import Allocation, Event, Phase, Workload
from workloads.services import submit_workload
from workloads.specs import WorkloadSpec

T = TypeVar("T")


@dataclass
class Installation:
    """Two teams: B has 48 of 128 GPUs, C has 80; both under one root."""

    cluster: Cluster
    pool: NodePool
    nodes: list[Node]
    root: Quota
    quota: Quota
    other_quota: Quota
    workspace: Workspace
    other_workspace: Workspace
    people: dict[str, User]

    def __getitem__(self, name: str) -> User:
        return self.people[name]


def install() -> Installation:
    """16 nodes of 8 GPUs and the tree of the day-and-night example, with a person in each role of team B."""
    cluster = create_cluster(actor=SYSTEM, spec=ClusterSpec("tide"))
    pool = create_pool(actor=SYSTEM, cluster=cluster, spec=PoolSpec("h100"))
    nodes = Node.objects.bulk_create(
        Node(cluster=cluster, pool=pool, name=f"n{i}", gpus=8, cpu_milli=192_000) for i in range(16)
    )
    root = a_quota(cluster, "quota-1", gpus=128)
    quota = a_quota(cluster, "quota-1.1", gpus=48, parent=root)
    other_quota = a_quota(cluster, "quota-1.2", gpus=80, parent=root)
    people = {
        name: User.objects.create(username=name) for name in ("stranger", "rival", *(role.value for role in Role))
    }
    people["platform"] = User.objects.create(username="platform", platform_role="administrator")
    people["auditor"] = User.objects.create(username="auditor", platform_role="auditor")
    workspace = create_workspace(
        actor=SYSTEM, spec=WorkspaceSpec("workspace_b", quotas=(quota,), owner=people["owner"])
    )
    other = create_workspace(
        actor=SYSTEM, spec=WorkspaceSpec("workspace_c", quotas=(other_quota,), owner=people["rival"])
    )
    Member.objects.bulk_create(
        Member(workspace=workspace, user=people[role.value], roles=[role]) for role in Role if role != Role.OWNER
    )
    check_deferred()
    return Installation(cluster, pool, nodes, root, quota, other_quota, workspace, other, people)


def a_quota(
    cluster: Cluster, name: str, gpus: float | None = None, parent: Quota | None = None, **settings: Any
) -> Quota:
    """A quota with so many GPUs in the cluster's only pool; None: no amounts."""
    (pool,) = cluster.pools.all()
    amounts = {} if gpus is None else {pool: AmountSpec(guaranteed_gpu_milli=int(gpus * 1000))}
    spec = QuotaSpec(name, parent=parent, amounts=amounts, settings=settings)
    return create_quota(actor=SYSTEM, cluster=cluster, spec=spec)


def submitted(actor: Any, here: Installation, **fields: Any) -> Workload:
    """A submission to team B's workspace: a training job of one GPU unless the fields say otherwise."""
    given = {"name": "job", "kind": "training", "workspace": "workspace_b", "gpus": 1, **fields}
    return submit_workload(actor=actor, spec=WorkloadSpec.from_mapping(given, actor=actor))


def placed(workload: Workload, *rooms: tuple[Node, list[int]], state: str = "running") -> Workload:
    """The workload as if a plan had put a replica into each of the rooms."""
    now = workload.cluster.now()
    Workload.objects.filter(pk=workload.pk).update(state=state, starts=1, started_at=now)
    Allocation.objects.bulk_create(
        Allocation(
            workload=workload,
            quota=workload.quota,
            pool=node.pool,
            node=node,
            run=1,
            index=index,
            devices=devices,
            gpu_milli=workload.gpu_milli,
            cpu_milli=workload.cpu_milli,
            phase=Phase.RUNNING,
            ordered_at=now,
            running_at=now,
        )
        for index, (node, devices) in enumerate(rooms)
    )
    workload.refresh_from_db()
    return workload


def verbs(workload: Workload) -> list[str]:
    """The workload's time line in verbs."""
    return list(workload.events.order_by("id").values_list("verb", flat=True))


def everything() -> dict[str, list[Any]]:
    """All rows that a service could have changed, to see that a refusal changed none of them."""
    models = (Quota, QuotaVersion, NodePool, Node, Workspace, Member, Workload, Allocation, Event, AuditEvent, User)
    return {model.__name__: list(model._base_manager.order_by("pk").values()) for model in models}


@contextmanager
def refused(*codes: str, field: str | None = None) -> Iterator[None]:
    """The block is refused with exactly these codes, and nothing has changed."""
    before = everything()
    with pytest.raises(Refused) as caught:
        yield
    assert caught.value.codes == list(codes)
    if field is not None:
        assert caught.value.problems[0].field == field
    assert everything() == before


@contextmanager
def denied(permission: str) -> Iterator[None]:
    before = everything()
    with pytest.raises(Denied) as caught:
        yield
    assert caught.value.permission == permission
    assert everything() == before


@contextmanager
def not_found() -> Iterator[None]:
    before = everything()
    with pytest.raises(NotFound):
        yield
    assert everything() == before


def at_once(*calls: Callable[[], T]) -> list[T | Exception]:
    """Run the calls at the same time, each with a connection of its own; what each gave or raised."""

    def run(call: Callable[[], T]) -> T | Exception:
        try:
            return call()
        except Exception as error:  # noqa: BLE001 - the test judges it
            return error
        finally:
            connections.close_all()

    with ThreadPoolExecutor(len(calls)) as threads:
        return list(threads.map(run, calls))


def check_deferred() -> None:
    """Run the deferred checks of this transaction now, as its commit would."""
    with connection.cursor() as cursor:
        cursor.execute("SET CONSTRAINTS ALL IMMEDIATE")
        cursor.execute("SET CONSTRAINTS ALL DEFERRED")
