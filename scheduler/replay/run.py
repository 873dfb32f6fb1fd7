"""One way through the log: the cluster is built, everything arrives in its time, and what came of it is counted."""

from __future__ import annotations

import multiprocessing
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from itertools import groupby

import django
from django.db.models import Min

from quotas.actors import SYSTEM
from quotas.errors import Refused
from quotas.models import Cluster, NodePool, Quota, Workspace
from quotas.services.clusters import add_node, create_cluster, create_pool
from quotas.services.people import create_workspace
from quotas.services.trees import create_quota
from quotas.specs import AmountSpec, ClusterSpec, NodeSpec, PoolSpec, QuotaSpec, WorkspaceSpec
from scheduler.clocks import standing_still
from scheduler.core.resources import WHOLE_GPU
from scheduler.cycles import CycleResult, is_wanted
from scheduler.replay.log import BATCH, ONLINE, Arrival, Machine
from scheduler.replay.report import Held, Summary, Waited, gpu_group, lost_gpu_hours, use, waits
from scheduler.scenarios.database import throwaway_database
from scheduler.scenarios.driver import Driver
from scheduler.triggers import quiet
from workloads.models import Allocation, Eviction, Idle, Kind, State, Workload
from workloads.services import submit_workloads
from workloads.specs import Request, WorkloadSpec

START = datetime(2027, 1, 4, tzinfo=UTC)
GRACE_S = 30
ONLINE_GPUS = 60
PRIORITY = {ONLINE: 7, BATCH: 3}
STRIDE = timedelta(minutes=10)
DRAIN = timedelta(days=30)
"""How long after the last arrival what still waits may start."""
TOLD_PARTS = 10
SECONDS_IN_DAY = 86_400
Progress = Callable[[str], None]


@dataclass(frozen=True)
class Way:
    """How the log is replayed: whether batch may borrow, and how fast tasks arrive."""

    name: str
    idle: str
    speed: float


WAYS = (
    Way("static", Idle.NEVER, 1.0),
    Way("borrowing", Idle.ALLOW, 1.0),
    Way("borrowing-1.5x", Idle.ALLOW, 1.5),
)


@dataclass(frozen=True)
class Stage:
    """The cluster of a replay and what work needs to name."""

    cluster: Cluster
    workspace: Workspace
    quotas: dict[str, Quota]
    capacity_milli: int


def build(machines: Sequence[Machine]) -> Stage:
    """One pool; `online` is promised 60 GPUs, `batch` the rest, child-level preemption is off."""
    cluster = create_cluster(actor=SYSTEM, spec=ClusterSpec("replay", settings={"eviction_grace_s": GRACE_S}))
    pool = create_pool(actor=SYSTEM, cluster=cluster, spec=PoolSpec("default"))
    for index, machine in enumerate(machines):
        spec = NodeSpec(
            f"{machine.model.lower()}-{index}",
            gpus=machine.gpus,
            gpu_model=machine.model,
            cpu_milli=machine.cpu_milli,
            memory_mib=machine.memory_mib,
        )
        add_node(actor=SYSTEM, cluster=cluster, spec=spec)
    gpus = sum(machine.gpus for machine in machines)
    root = _quota(cluster, pool, "root", gpus, None)
    online = min(ONLINE_GPUS, gpus)
    quotas = {
        ONLINE: _quota(cluster, pool, ONLINE, online, root),
        BATCH: _quota(cluster, pool, BATCH, gpus - online, root),
    }
    workspace = create_workspace(actor=SYSTEM, spec=WorkspaceSpec("replay", quotas=tuple(quotas.values())))
    return Stage(cluster, workspace, quotas, gpus * WHOLE_GPU)


def _quota(cluster: Cluster, pool: NodePool, name: str, gpus: int, parent: Quota | None) -> Quota:
    amounts = {pool: AmountSpec(guaranteed_gpu_milli=gpus * WHOLE_GPU)}
    return create_quota(actor=SYSTEM, cluster=cluster, spec=QuotaSpec(name, parent, amounts))


class LogDriver(Driver):
    """Cycles as production does: when something asks for one or a rule names the instant, not once more to be sure.

    No workload of a log has scaling rules or limits of time, so the clock itself makes nothing due.
    """

    def take_note(self) -> None:
        self._look()

    def cycle(self) -> CycleResult:
        result = super().cycle()
        self.unsettled = is_wanted(self.cluster.pk)
        return result

    def stand_at(self, until: datetime) -> None:
        """Let everything happen that is due up to an instant, and at it."""
        self.advance_to(until)
        self.take_note()
        if self.unsettled:
            self.cycle()


def replay(
    way: Way, machines: Sequence[Machine], arriving: Sequence[Arrival], tick: timedelta, tell: Progress
) -> Summary:
    """Replay the arrivals on an empty database; `tell` hears of each tenth of them that has been submitted."""
    begun = time.perf_counter()
    stage = build(machines)
    with quiet(), standing_still(stage.cluster.pk, START) as clock:
        driver = LogDriver(stage.cluster, clock, tick)
        refused = _play(driver, stage, way, arriving, tell)
        _drain(driver)
    held = list(_held(stage.cluster, driver.now))
    end_s = arriving[-1].at_s if arriving else 0.0
    return {
        "way": way.name,
        "idle": way.idle,
        "speed": way.speed,
        "submitted": len(arriving),
        "waits": waits(list(_waited(stage.cluster))),
        "gpu_use": use(held, stage.capacity_milli, end_s),
        "evictions": Eviction.objects.filter(what=Eviction.What.EVICTION).count(),
        "moves": Eviction.objects.filter(what=Eviction.What.MOVE).count(),
        "lost_gpu_hours": lost_gpu_hours(held),
        "refused": sum(refused.values()),
        "refused_by_code": dict(sorted(refused.items())),
        "days": round(end_s / SECONDS_IN_DAY, 2),
        "seconds": round(time.perf_counter() - begun, 1),
    }


def _play(driver: LogDriver, stage: Stage, way: Way, arriving: Sequence[Arrival], tell: Progress) -> Counter[str]:
    """Submit everything in its time; returns what was refused, by code."""
    refused: Counter[str] = Counter()
    told = 0
    for number, batch in _moments(arriving, driver.tick):
        _go_on(driver, START + timedelta(seconds=batch[0].at_s))
        refused += _submit(stage, way, batch)
        driver.cycle()
        if (part := number * TOLD_PARTS // len(arriving)) > told:
            told = part
            tell(f"{way.name}: {told * 100 // TOLD_PARTS} % of the arrivals")
    return refused


@dataclass(frozen=True)
class Job:
    """One way through a log, as another process is told of it."""

    way: Way
    machines: list[Machine]
    arriving: list[Arrival]
    tick: timedelta

    def run(self) -> Summary:
        """On a database of its own; progress goes to standard error."""
        with throwaway_database():
            return replay(self.way, self.machines, self.arriving, self.tick, _say)


def _say(text: str) -> None:
    sys.stderr.write(f"{text}\n")


def run_job(job: Job) -> Summary:
    return job.run()


def replay_all(jobs: Sequence[Job], at_once: int) -> list[Summary]:
    """The jobs' summaries in their order; `at_once` processes work on them."""
    if at_once == 1:
        return [job.run() for job in jobs]
    spawn = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(at_once, mp_context=spawn, initializer=django.setup) as pool:
        return list(pool.map(run_job, jobs))


def _moments(arriving: Sequence[Arrival], tick: timedelta) -> Iterator[tuple[int, list[Arrival]]]:
    """What arrives within one tick is submitted together, at the first instant of it; with how many came so far."""
    number = 0
    for _, group in groupby(arriving, key=lambda arrival: arrival.at_s // tick.total_seconds()):
        batch = list(group)
        number += len(batch)
        yield number, batch


def _submit(stage: Stage, way: Way, batch: Sequence[Arrival]) -> Counter[str]:
    """Submit together what can run; what can never fit is refused one by one. Returns how many, by code."""
    specs = [_spec(stage, way, arrival) for arrival in batch]
    try:
        submit_workloads(actor=SYSTEM, specs=specs)
    except Refused as refused:
        if len(specs) == 1:
            return Counter([refused.problems[0].code])
        return sum((_submit(stage, way, [arrival]) for arrival in batch), Counter())
    return Counter()


def _spec(stage: Stage, way: Way, arrival: Arrival) -> WorkloadSpec:
    task = arrival.task
    is_batch = task.quota == BATCH
    return WorkloadSpec(
        name=arrival.name,
        kind=Kind.TRAINING,
        workspace=stage.workspace,
        quota=stage.quotas[task.quota],
        request=Request(task.gpus, task.gpu_milli or WHOLE_GPU, 0, task.cpu_milli, task.memory_mib),
        priority=PRIORITY[task.quota],
        idle=way.idle if is_batch else Idle.NEVER,
        preemptible=is_batch,
        duration_s=arrival.run_s,
    )


def _go_on(driver: LogDriver, until: datetime) -> None:
    """Let time pass. While nothing waits nobody can start, so ends are noted when the next task arrives."""
    while driver.now < until and _anything_waits(driver.cluster):
        driver.stand_at(min(until, driver.now + STRIDE))
    driver.clock.move_to(until)
    driver.take_note()


def _anything_waits(cluster: Cluster) -> bool:
    return Workload.objects.filter(cluster=cluster, state__in=(State.QUEUED, State.PREEMPTING)).exists()


def _drain(driver: LogDriver) -> None:
    """Go on until nothing waits any more, or for `DRAIN`."""
    last = driver.now + DRAIN
    while driver.now < last and _anything_waits(driver.cluster):
        driver.stand_at(min(last, driver.now + STRIDE))


# --- what came of it --------------------------------------------------------------------------------------------------


def _waited(cluster: Cluster) -> Iterator[Waited]:
    """Seconds from submission to the first start order of each workload."""
    rows = Workload.objects.filter(cluster=cluster).annotate(first=Min("allocations__ordered_at")).order_by("id")
    for quota, gpus, milli, submitted, first in rows.values_list(
        "quota__name", "gpus", "gpu_milli", "submitted_at", "first"
    ):
        yield Waited(quota, gpu_group(gpus, milli), None if first is None else (first - submitted).total_seconds())


def _held(cluster: Cluster, now: datetime) -> Iterator[Held]:
    rows = Allocation.objects.filter(workload__cluster=cluster).order_by("id")
    for devices, milli, begun, ended, outcome in rows.values_list(
        "devices", "gpu_milli", "ordered_at", "ended_at", "outcome"
    ):
        yield Held(
            gpu_milli=len(devices) * milli,
            begin_s=(begun - START).total_seconds(),
            end_s=((ended or now) - START).total_seconds(),
            lost=outcome == "preempted",
        )
