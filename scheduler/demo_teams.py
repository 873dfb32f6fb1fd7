"""The demo's teams: whoever looks at the demo finds queues that are never empty."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass

from django.db.models import Count, Q

from quotas.actors import System
from quotas.errors import Refused
from quotas.models import Cluster, Quota, Role, User, Workspace
from workloads.models import FINAL, State, Workload
from workloads.services import submit_workloads
from workloads.specs import Request, WorkloadSpec

TEAMS = System("demo teams")


@dataclass(frozen=True, slots=True)
class Stream:
    """Work of one kind that a team keeps submitting: so many waiting at any time, or (``waiting`` None) alive."""

    name: str
    workspace: str
    quota: str
    kind: str
    request: Request
    replicas: int
    hours: tuple[float, float]
    """The shortest and the longest run."""
    waiting: int | None = None
    alive: int | None = None
    checkpoint_s: int | None = None
    idle: str = "allow"


STREAMS: dict[str, tuple[Stream, ...]] = {
    "tide": (
        Stream("pretrain", "workspace_b", "quota-1.1", "training", Request(8), 2, (4, 8), 3, checkpoint_s=900),
        Stream("tune", "workspace_b", "quota-1.1", "training", Request(4), 1, (1, 3), 2, checkpoint_s=600),
        Stream("vision", "workspace_c", "quota-1.2", "training", Request(4), 1, (2, 5), 6, checkpoint_s=600),
        Stream("sweep", "workspace_c", "quota-1.2", "training", Request(1), 1, (0.5, 2), 4, checkpoint_s=600),
        Stream("notebook", "workspace_c", "quota-1.2", "notebook", Request(1), 1, (5, 9), alive=8, idle="never"),
    ),
    "dgx": (
        Stream("a-train", "team-a", "team-a", "training", Request(2), 1, (0.1, 0.3), alive=2, checkpoint_s=120),
        Stream("b-train", "team-b", "team-b", "training", Request(2), 1, (0.1, 0.4), alive=1, checkpoint_s=120),
        Stream("c-train", "team-c", "team-c", "training", Request(1), 1, (0.1, 0.3), alive=2, checkpoint_s=120),
        Stream("d-train", "team-d", "team-d", "training", Request(4), 1, (0.2, 0.5), alive=1, checkpoint_s=120),
        Stream("b-half", "team-b", "team-b", "notebook", Request(1, 500), 1, (1, 2), alive=1, idle="never"),
        Stream("c-half", "team-c", "team-c", "notebook", Request(1, 500), 1, (1, 3), alive=1, idle="never"),
    ),
}


def keep_submitting(cluster: Cluster) -> int:
    """Fill the queues of a demo cluster up again; how many workloads came. Other clusters have no such teams.

    A team whose quota or workspace somebody has taken away submits nothing; what another tick has just submitted
    is not submitted twice, since names are unique.
    """
    streams = STREAMS.get(str(cluster.settings.get("demo", "")), ())
    if not streams:
        return 0
    now_there = _counts(cluster)
    came = 0
    for stream in streams:
        specs = _missing(cluster, stream, now_there)
        with suppress(Refused):
            came += len(submit_workloads(actor=TEAMS, specs=specs)) if specs else 0
    return came


def _counts(cluster: Cluster) -> dict[str, tuple[int, int]]:
    """By stream: how many wait, and how many live. Reads what lives only, however long the demo has been running."""
    rows = (
        Workload.objects.filter(cluster=cluster, labels__has_key="stream")
        .exclude(state__in=FINAL)
        .values_list("labels__stream")
        .annotate(waiting=Count("id", filter=Q(state=State.QUEUED)), alive=Count("id"))
    )
    return {name: (waiting, alive) for name, waiting, alive in rows}


def _missing(cluster: Cluster, stream: Stream, now_there: Mapping[str, tuple[int, int]]) -> list[WorkloadSpec]:
    """What the stream lacks; nothing where its quota or workspace is not there (any more)."""
    waiting, alive = now_there.get(stream.name, (0, 0))
    short = stream.waiting - waiting if stream.waiting is not None else (stream.alive or 0) - alive
    quota = Quota.objects.filter(cluster=cluster, name=stream.quota).first() if short > 0 else None
    workspace = Workspace.objects.filter(name=stream.workspace).first() if short > 0 else None
    if quota is None or workspace is None:
        return []
    developers = User.objects.filter(
        memberships__workspace=workspace, memberships__roles__contains=[Role.DEVELOPER]
    ).order_by("id")
    owners: list[User | None] = [*developers] or [None]
    first = _last_number(workspace, stream)
    return [
        _spec(stream, workspace, quota, owners[number % len(owners)], number) for number in range(first, first + short)
    ]


def _last_number(workspace: Workspace, stream: Stream) -> int:
    """The number of the newest workload of the stream; 0 before the first."""
    numbered = Workload.objects.filter(workspace=workspace, name__regex=rf"^{stream.name}-\d+$")
    name = numbered.order_by("-submitted_at", "-id").values_list("name", flat=True).first()
    return int(name.rsplit("-", 1)[1]) if name is not None else 0


def _spec(stream: Stream, workspace: Workspace, quota: Quota, owner: User | None, number: int) -> WorkloadSpec:
    return WorkloadSpec(
        name=f"{stream.name}-{number + 1:04}",
        kind=stream.kind,
        workspace=workspace,
        quota=quota,
        request=stream.request,
        replicas=stream.replicas,
        idle=stream.idle,
        labels={"stream": stream.name},
        checkpoint_every_s=stream.checkpoint_s,
        duration_s=_duration_s(stream, number),
        estimate_s=_duration_s(stream, number),
        owner=owner,
    )


def _duration_s(stream: Stream, number: int) -> int:
    """Between the stream's shortest and longest run, spread evenly by the number (steps of the golden ratio)."""
    shortest, longest = stream.hours
    return int(3600 * (shortest + (longest - shortest) * (number * 0.618034 % 1)))
