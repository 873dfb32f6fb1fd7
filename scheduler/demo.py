"""The demo: two clusters, seven teams, people to sign in as, and teams that keep submitting.

*tide* is the day-and-night cluster: 128 GPUs, a service of team A that follows the clock, training and notebooks of
teams B and C; its day takes six minutes. *dgx* is two DGX-1 machines shared by four teams, at real speed.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, time, timedelta
from zoneinfo import ZoneInfo

from django.contrib.auth.hashers import make_password
from django.db import transaction
from django.utils import timezone

from quotas.actors import SYSTEM
from quotas.models import Cluster, PlatformRole, Quota, Role, User, Workspace
from quotas.services import add_member, add_node, create_cluster, create_pool, create_quota, create_user
from quotas.services import create_workspace as make_workspace
from quotas.specs import AmountSpec, ClusterSpec, NodeSpec, PoolSpec, QuotaSpec, UserSpec, WorkspaceSpec
from scheduler.clocks import standing_still
from scheduler.demo_teams import TEAMS
from scheduler.past import give_past
from scheduler.triggers import quiet
from workloads.models import Kind
from workloads.services import save_rules, submit_workload
from workloads.specs import Request, RuleSpec, WorkloadSpec

PASSWORD = "tide-turns-daily"  # noqa: S105 - of the demo's accounts, printed at each start
ZONE = "Europe/Istanbul"
MORNING = time(7, 0)  # where the demo's clock stands at first: an hour, or 15 seconds, before the tide turns
GIB = 1024


@dataclass(frozen=True, slots=True)
class Login:
    """An account of the demo, and the workspaces in which it has a role."""

    username: str
    about: str
    platform_role: str = PlatformRole.NONE
    roles: Mapping[str, str] | None = None


LOGINS = (
    Login("admin", "platform administrator", PlatformRole.ADMINISTRATOR),
    Login("auditor", "reads everything", PlatformRole.AUDITOR),
    Login("alice", "administrator of team A (inference)", roles={"workspace_a": Role.ADMINISTRATOR}),
    Login("olaf", "operator of team A", roles={"workspace_a": Role.OPERATOR}),
    Login("bob", "administrator of team B (training)", roles={"workspace_b": Role.ADMINISTRATOR}),
    Login("bea", "developer of team B", roles={"workspace_b": Role.DEVELOPER}),
    Login("carol", "administrator of team C (training and notebooks)", roles={"workspace_c": Role.ADMINISTRATOR}),
    Login("chen", "developer of team C", roles={"workspace_c": Role.DEVELOPER}),
    Login(
        "dana",
        "developer of team-a and team-d on the DGX machines",
        roles={"team-a": "developer", "team-d": "developer"},
    ),
    Login("vera", "viewer of team B", roles={"workspace_b": Role.VIEWER}),
)


@dataclass(frozen=True, slots=True)
class Kit:
    """The machines of a demo cluster; settings in seconds."""

    nodes: int
    gpu_model: str
    gpu_memory_gib: int
    cores: int
    memory_gib: int
    settings: Mapping[str, object]
    clock_speed: float = 1.0


@dataclass(frozen=True, slots=True)
class Past:
    """How much of the past the charts begin with, and how finely it is gone through."""

    length: timedelta
    tick: timedelta


DAY_IN_SIX_MINUTES = timedelta(days=1) / timedelta(minutes=6)
KITS = {
    "tide": Kit(16, "H100", 80, 192, 2048, {"start_up_s": 20, "stop_s": 5, "eviction_grace_s": 30}, DAY_IN_SIX_MINUTES),
    "dgx": Kit(2, "V100", 32, 80, 512, {"start_up_s": 2, "stop_s": 1, "eviction_grace_s": 5}),
}
PAST = {
    "tide": Past(timedelta(hours=24), timedelta(minutes=5)),
    "dgx": Past(timedelta(hours=2), timedelta(minutes=1)),
}


# --- seeding ------------------------------------------------------------------------------------------------------


def seed() -> None:
    """Make everything. The past that the charts show is lived through in the background, within a minute."""
    with transaction.atomic():
        people = _people()
        for name, make in (("tide", _tide), ("dgx", _dgx)):
            begin, end = _past_of(name)
            cluster = _cluster(name)
            with quiet(), standing_still(cluster.pk, begin):
                make(cluster, people)
            give_past(cluster, begin, end, PAST[name].tick)


def _people() -> dict[str, User]:
    """The accounts; their one password is hashed once, since a good hash takes its time."""
    people = {
        login.username: create_user(
            actor=SYSTEM,
            spec=UserSpec(
                login.username, f"{login.username}@demo.invalid", platform_role=login.platform_role, time_zone=ZONE
            ),
        )
        for login in LOGINS
    }
    User.objects.filter(pk__in=[user.pk for user in people.values()]).update(password=make_password(PASSWORD))
    return people


def _tide(cluster: Cluster, people: Mapping[str, User]) -> None:
    root = _quota(cluster, "quota-1", None, 128, child_preemption=True)
    _workspace("workspace_a", root, people)
    _workspace("workspace_b", _quota(cluster, "quota-1.1", root, 48), people)
    _workspace("workspace_c", _quota(cluster, "quota-1.2", root, 80), people)
    _chat(root, people["alice"])


def _dgx(cluster: Cluster, people: Mapping[str, User]) -> None:
    root = _quota(cluster, "dgx", None, 16)
    for team, gpus in (("team-a", 4), ("team-b", 2), ("team-c", 2), ("team-d", 8)):
        _workspace(team, _quota(cluster, team, root, gpus), people)


def _cluster(name: str) -> Cluster:
    kit = KITS[name]
    settings = {**kit.settings, "demo": name}
    spec = ClusterSpec(name, settings=settings, topology_levels=("rack",), clock_speed=kit.clock_speed)
    cluster = create_cluster(actor=SYSTEM, spec=spec)
    selector = {"gpu_model": kit.gpu_model}
    pool = create_pool(actor=SYSTEM, cluster=cluster, spec=PoolSpec(kit.gpu_model.lower(), selector=selector))
    for number in range(kit.nodes):
        node = NodeSpec(
            f"{name}-{number:02}",
            gpus=8,
            gpu_model=kit.gpu_model,
            gpu_memory_mib=kit.gpu_memory_gib * GIB,
            cpu_milli=kit.cores * 1000,
            memory_mib=kit.memory_gib * GIB,
            labels={"rack": f"r{number // 4}"},
            pool=pool,
        )
        add_node(actor=SYSTEM, cluster=cluster, spec=node)
    return cluster


def _quota(cluster: Cluster, name: str, parent: Quota | None, gpus: int, **settings: object) -> Quota:
    (pool,) = cluster.pools.all()
    amounts = {pool: AmountSpec(guaranteed_gpu_milli=gpus * 1000)}
    return create_quota(
        actor=SYSTEM, cluster=cluster, spec=QuotaSpec(name, parent=parent, amounts=amounts, settings=settings)
    )


def _workspace(name: str, quota: Quota, people: Mapping[str, User]) -> Workspace:
    workspace = make_workspace(actor=SYSTEM, spec=WorkspaceSpec(name, quotas=(quota,), owner=people["admin"]))
    for login in LOGINS:
        role = (login.roles or {}).get(name)
        if role is not None:
            add_member(actor=SYSTEM, workspace=workspace, user=people[login.username], roles=[role])
    return workspace


def _chat(quota: Quota, owner: User) -> None:
    """Team A's service: 40 replicas of two GPUs by day, 4 by night."""
    (workspace,) = Workspace.objects.filter(bindings__quota=quota)
    spec = WorkloadSpec("chat", Kind.SERVICE, workspace, quota, Request(2), replicas=0, owner=owner)
    chat = submit_workload(actor=TEAMS, spec=spec)
    rules = [RuleSpec("day", "0 8 * * *", ZONE, 40), RuleSpec("night", "0 22 * * *", ZONE, 4)]
    save_rules(actor=TEAMS, workload=chat, rules=rules)


# --- clocks -------------------------------------------------------------------------------------------------------


def _past_of(name: str) -> tuple[datetime, datetime | None]:
    """When the cluster's past begins and ends: a fast clock starts in the morning, one at real speed when it is now."""
    if KITS[name].clock_speed == 1:
        return timezone.now() - PAST[name].length, None
    end = _last_morning()
    return end - PAST[name].length, end


def _last_morning() -> datetime:
    """The latest instant at which the demo's zone showed ``MORNING``."""
    here = timezone.now().astimezone(ZoneInfo(ZONE))
    today = datetime.combine(here.date(), MORNING, tzinfo=ZoneInfo(ZONE))
    return (today if today <= here else today - timedelta(days=1)).astimezone(UTC)
