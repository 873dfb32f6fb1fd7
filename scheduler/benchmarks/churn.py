"""A stream of short jobs through the real services, workers, database and simulated engine, in real time.

The load is that of a published baseline: five parents with six quotas each, every quota promised 20 units and free to
borrow 100 more inside its parent; each quota gets 350 jobs of 1 unit, 100 of 5 and 50 of 20, at fixed intervals. A unit
is a CPU core here, since a job of 20 units must fit one node as it would fit one machine of that baseline.
"""

from __future__ import annotations

import statistics
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from django.db import connection
from django.db.models import Avg, Count, Min, Sum
from django.utils import timezone

from quotas.actors import SYSTEM
from quotas.models import Cluster, NodePool, Quota, Workspace
from quotas.services.clusters import add_node, create_cluster, create_pool
from quotas.services.people import create_workspace
from quotas.services.trees import create_quota
from quotas.specs import AmountSpec, ClusterSpec, NodeSpec, PoolSpec, QuotaSpec, WorkspaceSpec
from scheduler.benchmarks.measure import Figures, peak_mib
from scheduler.benchmarks.processes import Meter, Workers
from scheduler.models import Applier, Cycle
from workloads.models import FINAL, Allocation, Eviction, Idle, Kind, Workload
from workloads.services import submit_workloads
from workloads.specs import BULK_MAX, Request, WorkloadSpec

CORE = 1000
PARENTS, QUOTAS_EACH, PROMISED, BORROWABLE = 5, 6, 20, 100
NODES, CORES_OF_A_NODE = 10, 64
CLOCK_SPEED = 10
"""Run times are whole seconds of the cluster's clock: at ten times real time a small job's 200 ms are 2 s of it."""
PAUSE_S = 0.02
ASK_EVERY_S = 0.25
PATIENCE_S = 600.0


@dataclass(frozen=True)
class Size:
    """A class of jobs: how many each quota gets, how often one comes, and how long it runs."""

    name: str
    cores: int
    count: int
    every_ms: int
    run_ms: int
    priority: int


SIZES = (
    Size("small", 1, 350, 100, 200, 3),
    Size("medium", 5, 100, 500, 500, 5),
    Size("large", 20, 50, 1200, 1000, 6),
)


@dataclass(frozen=True, order=True)
class Planned:
    """One job that is to be submitted ``at_s`` seconds after the start."""

    at_s: float
    name: str
    quota: int
    size: int


def plan(quotas: int, part: float = 1.0) -> list[Planned]:
    """All jobs in the order of their submission; ``part`` below 1 shortens the stream."""
    return sorted(
        Planned(number * size.every_ms / 1000, f"{size.name}-{quota}-{number}", quota, index)
        for index, size in enumerate(SIZES)
        for quota in range(quotas)
        for number in range(round(size.count * part))
    )


@dataclass(frozen=True)
class Stage:
    """The cluster that the stream runs on."""

    cluster: Cluster
    workspace: Workspace
    quotas: list[Quota]

    def spec(self, job: Planned) -> WorkloadSpec:
        size = SIZES[job.size]
        return WorkloadSpec(
            name=job.name,
            kind=Kind.TRAINING,
            workspace=self.workspace,
            quota=self.quotas[job.quota],
            request=Request(cpu_milli=size.cores * CORE),
            priority=size.priority,
            idle=Idle.ALLOW,
            duration_s=size.run_ms * CLOCK_SPEED // 1000,
        )


def build() -> Stage:
    cluster = create_cluster(actor=SYSTEM, spec=ClusterSpec("churn", clock_speed=CLOCK_SPEED))
    pool = create_pool(actor=SYSTEM, cluster=cluster, spec=PoolSpec("default"))
    for index in range(NODES):
        add_node(actor=SYSTEM, cluster=cluster, spec=NodeSpec(f"n{index}", cpu_milli=CORES_OF_A_NODE * CORE))
    quotas = [quota for index in range(PARENTS) for quota in _family(cluster, pool, index)]
    spec = WorkspaceSpec("churn", quotas=tuple(quotas))
    return Stage(cluster, create_workspace(actor=SYSTEM, spec=spec), quotas)


def _family(cluster: Cluster, pool: NodePool, index: int) -> Iterator[Quota]:
    whole = PROMISED * QUOTAS_EACH
    parent = create_quota(
        actor=SYSTEM, cluster=cluster, spec=QuotaSpec(f"parent-{index}", amounts={pool: _amounts(whole, whole)})
    )
    for child in range(QUOTAS_EACH):
        amounts = {pool: _amounts(PROMISED, PROMISED + BORROWABLE)}
        spec = QuotaSpec(f"quota-{index}-{child}", parent=parent, amounts=amounts)
        yield create_quota(actor=SYSTEM, cluster=cluster, spec=spec)


def _amounts(promised: int, limit: int) -> AmountSpec:
    return AmountSpec(guaranteed_cpu_milli=promised * CORE, limit_cpu_milli=limit * CORE)


# --- the run --------------------------------------------------------------------------------------------------------


def churn(part: float) -> Figures:
    """Submit the stream as it comes while workers run, until the last job has ended; then count.

    For a database of its own (`apart`): workers look after all clusters that they find.
    """
    stage = build()
    jobs = plan(len(stage.quotas), part)
    with Workers() as workers:
        wait_for_workers(stage.cluster, workers)
        meter = Meter(workers)
        begun = time.monotonic()
        lags = submit_as_they_come(stage, jobs, begun)
        wait_for_the_end(stage.cluster, len(jobs), workers)
        wall_s = time.monotonic() - begun
        cpu = meter.read()
    return {
        "bench": "churn",
        "wall_s": round(wall_s, 1),
        "sizes": {"jobs": len(jobs), "quotas": len(stage.quotas), "units": PARENTS * QUOTAS_EACH * PROMISED},
        "mean_wait_s": mean_waits(stage.cluster),
        "use": use(stage.cluster, wall_s),
        "arrival_lag_p99_s": round(_percentile(lags, 0.99), 3),
        "cpu_ms_per_start": {name: round(1000 * seconds / len(jobs), 2) for name, seconds in cpu.items()},
        **_written(stage.cluster),
        "peak_mib": peak_mib(),
    }


def submit_as_they_come(stage: Stage, jobs: Sequence[Planned], begun: float) -> list[float]:
    """Submits everything that is due in one batch, again and again; returns how late each was, in seconds."""
    lags: list[float] = []
    done = 0
    while done < len(jobs):
        elapsed = time.monotonic() - begun
        due = done
        while due < len(jobs) and due - done < BULK_MAX and jobs[due].at_s <= elapsed:
            due += 1
        if due == done:
            time.sleep(PAUSE_S)
            continue
        submit_workloads(actor=SYSTEM, specs=[stage.spec(job) for job in jobs[done:due]])
        now = time.monotonic() - begun
        lags += [now - job.at_s for job in jobs[done:due]]
        done = due
    return lags


def wait_for_workers(cluster: Cluster, workers: Workers) -> None:
    """Until the scheduler worker has done a cycle and another worker a tick: both have started by then."""
    begun = timezone.now()
    wait_until(lambda: Applier.objects.filter(cluster=cluster, settled_at__gt=begun).exists(), workers)
    wait_until(lambda: Cluster.objects.filter(pk=cluster.pk, clock_seen_at__gt=begun).exists(), workers)


def wait_for_the_end(cluster: Cluster, jobs: int, workers: Workers) -> None:
    ended = Workload.objects.filter(cluster=cluster, state__in=FINAL)
    wait_until(lambda: ended.count() >= jobs, workers)


def wait_until(holds: Callable[[], bool], workers: Workers) -> None:
    """Asks four times a second; raises when that takes ten minutes or a worker has died."""
    patience = time.monotonic() + PATIENCE_S
    while not holds():
        workers.require_alive()
        if time.monotonic() > patience:
            raise TimeoutError(f"waited {PATIENCE_S:.0f} s in vain")
        time.sleep(ASK_EVERY_S)


# --- what came of it --------------------------------------------------------------------------------------------------


def mean_waits(cluster: Cluster) -> dict[str, float]:
    """Real seconds from submission to the first start order, by class."""
    begun = Allocation.objects.filter(workload__cluster=cluster).values("workload_id")
    rows = begun.annotate(first=Min("ordered_at")).values_list("workload__name", "first", "workload__submitted_at")
    waits: dict[str, list[float]] = defaultdict(list)
    for name, first, submitted in rows:
        waits[name.split("-")[0]].append((first - submitted).total_seconds() / CLOCK_SPEED)
    return {size.name: round(statistics.fmean(waits[size.name]), 2) for size in SIZES if waits[size.name]}


def use(cluster: Cluster, wall_s: float) -> float:
    """Unit-seconds held, from start order to gone, as a part of all units over the wall time."""
    rows = Allocation.objects.filter(workload__cluster=cluster).values_list("cpu_milli", "ordered_at", "ended_at")
    held = (
        sum(cores * (ended - ordered).total_seconds() for cores, ordered, ended in rows if ended) / CORE / CLOCK_SPEED
    )
    return round(held / (PARENTS * QUOTAS_EACH * PROMISED * wall_s), 4)


def _percentile(values: Sequence[float], part: float) -> float:
    return sorted(values)[min(len(values) - 1, int(part * len(values)))]


CYCLE_PARTS = {"load": Avg("load_s"), "decide": Avg("decide_s"), "apply": Avg("apply_s")}
_WHOLE_CHAINS = """
SELECT count(*) FROM (
    SELECT workload_id, bool_and(linked) AND bool_or(after = 'succeeded') AS whole FROM (
        SELECT e.workload_id, e.after, e.before = coalesce(lag(e.after) OVER chain, '') AS linked
        FROM workloads_event AS e JOIN workloads_workload AS w ON w.id = e.workload_id
        WHERE w.cluster_id = %s AND e.after <> ''
        WINDOW chain AS (PARTITION BY e.workload_id ORDER BY e.id)
    ) AS steps GROUP BY workload_id
) AS chains WHERE whole
"""


def _written(cluster: Cluster) -> Figures:
    """What is in the database afterwards: jobs by end, event chains without a gap, starts, evictions, cycles."""
    jobs, cycles = Workload.objects.filter(cluster=cluster), Cycle.objects.filter(cluster=cluster)
    with connection.cursor() as cursor:
        cursor.execute(_WHOLE_CHAINS, [cluster.pk])
        (whole,) = cursor.fetchone()
    return {
        "ends": dict(jobs.values_list("state").annotate(n=Count("id")).order_by("state")),
        "whole_event_chains": whole,
        "starts": jobs.aggregate(n=Sum("starts"))["n"],
        "evictions": Eviction.objects.filter(workload__cluster=cluster).count(),
        "cycles": cycles.count(),
        "mean_cycle_s": {name: round(seconds or 0.0, 4) for name, seconds in cycles.aggregate(**CYCLE_PARTS).items()},
    }
