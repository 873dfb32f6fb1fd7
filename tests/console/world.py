"""A small cluster with three teams, as rows: what the pages are tested on. No cycle runs; every number is set here."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime, timedelta

from quotas.models import (
    Cluster,
    LedgerEntry,
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
from workloads.models import Allocation, Event, Kind, Phase, State, Verdict, Workload

PASSWORD = "correct horse battery"
GPU = 1000


@dataclass
class World:
    cluster: Cluster
    pool: NodePool
    now: datetime
    users: dict[str, User] = field(default_factory=dict)
    quotas: dict[str, Quota] = field(default_factory=dict)
    workspaces: dict[str, Workspace] = field(default_factory=dict)
    nodes: list[Node] = field(default_factory=list)
    workloads: dict[str, Workload] = field(default_factory=dict)


def make_world(*, nodes: int = 4) -> World:
    """Quota "root" with all GPUs; 48 of 128 of them to "north", the rest to "south"; teams A (root), B, C.

    At four nodes: root runs service "chat" (8 GPUs), north "train-b" (8, 2 borrowed) and a waiting "wide-b",
    south a notebook and "train-c"; node 3 is cordoned.
    """
    cluster = Cluster.objects.create(name="tide", clock_speed=1, topology_levels=["rack"])
    pool = NodePool.objects.create(cluster=cluster, name="default")
    world = World(cluster=cluster, pool=pool, now=cluster.now())
    world.nodes = Node.objects.bulk_create(
        Node(
            cluster=cluster,
            pool=pool,
            name=f"n{number:02}",
            gpus=8,
            gpu_model="H100",
            gpu_memory_mib=81920,
            cpu_milli=192_000,
            memory_mib=2 * 1024 * 1024,
            labels={"rack": f"r{number // 4}"},
            state="cordoned" if number == 3 else "ready",
            bad_devices=[7] if number == 2 else [],
        )
        for number in range(nodes)
    )
    _make_quotas(world, nodes * 8 * GPU)
    _make_people(world)
    _make_work(world)
    return world


def _make_quotas(world: World, whole: int) -> None:
    small = whole * 3 // 8
    for name, parent, guaranteed in (("root", None, whole), ("north", "root", small), ("south", "root", whole - small)):
        quota = Quota.objects.create(
            cluster=world.cluster,
            name=name,
            parent=world.quotas.get(parent or ""),
            child_preemption=name == "root",
            labels={"team": name},
        )
        QuotaAmount.objects.create(
            quota=quota,
            pool=world.pool,
            guaranteed_gpu_milli=guaranteed,
            limit_gpu_milli=whole if name == "north" else None,
        )
        world.quotas[name] = quota


def _make_people(world: World) -> None:
    def person(name: str, **extra: object) -> User:
        user = User(username=name, **extra)
        user.set_password(PASSWORD)
        user.save()
        world.users[name] = user
        return user

    person("platform", platform_role=PlatformRole.ADMINISTRATOR)
    person("auditor", platform_role=PlatformRole.AUDITOR)
    person("stranger")
    for team, quota in (("a", "root"), ("b", "north"), ("c", "south")):
        workspace = Workspace.objects.create(name=f"team-{team}", description=f"The people of team {team.upper()}")
        WorkspaceQuota.objects.create(workspace=workspace, quota=world.quotas[quota], is_default=True)
        world.workspaces[team] = workspace
        for role in Role:
            Member.objects.create(workspace=workspace, user=person(f"{role.value}-{team}"), roles=[role.value])


def _make_work(world: World) -> None:
    running(world, "chat", Kind.SERVICE, "a", "root", gpus=4, replicas=2, node=0, priority=9)
    running(world, "train-b", Kind.TRAINING, "b", "north", gpus=8, node=1, borrowed=2 * GPU, idle="allow")
    running(world, "notes-c", Kind.NOTEBOOK, "c", "south", gpus=1, node=2, priority=6)
    running(world, "train-c", Kind.TRAINING, "c", "south", gpus=4, node=2, first_device=1)
    waiting(world, "wide-b", "b", "north", gpus=8, replicas=2, code="nodes.gang", facts={"members": 2, "placeable": 1})
    waiting(world, "held-c", "c", "south", gpus=1, replicas=1, code="policy.held", held=True)
    used = {"root": (21, 8, 0, 0), "north": (8, 8, 2, 0), "south": (5, 5, 0, 6)}
    for name, (total, own, borrowed, lent) in used.items():
        LedgerEntry.objects.create(
            quota=world.quotas[name],
            pool=world.pool,
            used=total * GPU,
            own=own * GPU,
            borrowed=borrowed * GPU,
            lent=lent * GPU,
            waiting=16 * GPU if name == "north" else 0,
        )


def _workload(world: World, name: str, kind: str, team: str, quota: str, **values: object) -> Workload:
    at = world.now - timedelta(hours=2)
    workload = Workload.objects.create(
        cluster=world.cluster,
        workspace=world.workspaces[team],
        quota=world.quotas[quota],
        owner=world.users[f"developer-{team}"],
        name=name,
        kind=kind,
        state_at=at,
        submitted_at=at,
        preemptible=kind != Kind.SERVICE,
        gang=kind != Kind.SERVICE,
        **{"priority": 3, **values},
    )
    world.workloads[name] = workload
    Event.objects.create(workload=workload, at=at, verb="submitted", after=State.QUEUED, actor=f"developer-{team}")
    return workload


def running(
    world: World,
    name: str,
    kind: str,
    team: str,
    quota: str,
    *,
    gpus: int,
    replicas: int = 1,
    node: int = 0,
    first_device: int | None = None,
    borrowed: int = 0,
    **values: object,
) -> Workload:
    """A running workload with its allocations on one node."""
    start = world.now - timedelta(hours=1)
    workload = _workload(
        world,
        name,
        kind,
        team,
        quota,
        gpus=gpus,
        replicas=replicas,
        state=State.RUNNING,
        started_at=start,
        starts=1,
        borrowed_gpu_milli=borrowed,
        **values,
    )
    first = first_device if first_device is not None else 0
    for index in range(replicas):
        Allocation.objects.create(
            workload=workload,
            quota=workload.quota,
            pool=world.pool,
            node=world.nodes[node],
            run=1,
            index=index,
            devices=list(range(first + index * gpus, first + (index + 1) * gpus)),
            gpu_milli=GPU,
            phase=Phase.RUNNING,
            ordered_at=start,
            running_at=start + timedelta(seconds=20),
        )
    Event.objects.create(workload=workload, at=start, verb="started", before="queued", after="starting", actor="system")
    Event.objects.create(
        workload=workload,
        at=start + timedelta(seconds=20),
        verb="running",
        before="starting",
        after="running",
        actor="system",
    )
    return workload


def waiting(
    world: World,
    name: str,
    team: str,
    quota: str,
    *,
    gpus: int,
    replicas: int,
    code: str,
    facts: dict[str, object] | None = None,
    held: bool = False,
) -> Workload:
    """A queued workload with its reason."""
    workload = _workload(
        world, name, Kind.TRAINING, team, quota, gpus=gpus, replicas=replicas, state=State.QUEUED, held=held
    )
    Verdict.objects.create(
        workload=workload,
        code=code,
        facts=facts or {},
        would_unblock={"members": 1},
        queue_position=1,
        since=world.now,
        cycle=1,
    )
    return workload
