"""An in-memory cluster on a virtual clock: plays situations against the core alone, without a database.

It holds what the database would hold, applies plans, and checks the invariants after every cycle. Times are
milliseconds since the start.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace

from scheduler.core.check import History, violations
from scheduler.core.decide import decide
from scheduler.core.model import (
    Allocation,
    Checkpoint,
    ExcessOrder,
    Node,
    NodeState,
    Phase,
    Place,
    Plan,
    Pool,
    Quota,
    Reservation,
    Snapshot,
    Workload,
)
from scheduler.core.policy import PRODUCT, Policy

START_MS = 1_772_000_000_000
SECOND = 1000
MINUTE = 60_000
HOUR = 3_600_000


@dataclass
class Job:
    """A workload of the cluster and what the engine knows of it."""

    workload: Workload
    duration_ms: int | None = None
    checkpoint_ms: int | None = None
    done_ms: int = 0
    state: str = "queued"
    starts: int = 0


@dataclass
class Cluster:
    """Nodes, quotas and workloads that live in memory."""

    nodes: dict[int, Node] = field(default_factory=dict)
    quotas: dict[int, Quota] = field(default_factory=dict)
    pools: dict[int, Pool] = field(default_factory=lambda: {1: Pool(1, "default")})
    jobs: dict[int, Job] = field(default_factory=dict)
    allocations: list[Allocation] = field(default_factory=list)
    reservations: dict[int, Reservation] = field(default_factory=dict)
    orders: dict[int, ExcessOrder] = field(default_factory=dict)
    policy: Policy = PRODUCT
    stop_ms: int = 0
    now_ms: int = START_MS
    evicted: list[tuple[int, int]] = field(default_factory=list)
    """(workload, claimant or 0), one for each eviction."""
    moved: list[int] = field(default_factory=list)
    shrunk: list[int] = field(default_factory=list)
    plan: Plan = field(default_factory=Plan)
    history: History = field(default_factory=History)
    cycles: int = 0

    # --- what people do --------------------------------------------------------------------------------

    def submit(
        self, workload: Workload, *, duration_ms: int | None = None, checkpoint_ms: int | None = None
    ) -> Workload:
        """Queue a workload."""
        workload = replace(workload, submitted_ms=self.now_ms)
        self.jobs[workload.id] = Job(workload, duration_ms, checkpoint_ms)
        return workload

    def change(self, identifier: int, **fields: object) -> None:
        """Change fields of a workload."""
        job = self.jobs[identifier]
        job.workload = replace(job.workload, **fields)  # type: ignore[arg-type]

    def stop(self, identifier: int) -> None:
        """Stop a workload: it leaves and does not come back."""
        job = self.jobs[identifier]
        job.state = "stopped"
        job.workload = replace(job.workload, ending=True)
        self._tell(identifier, {(a.place.group, a.place.index) for a in self._of(identifier)})

    # --- the engine ------------------------------------------------------------------------------------

    def _of(self, identifier: int) -> list[Allocation]:
        return [a for a in self.allocations if a.place.workload == identifier]

    def held(self, identifier: int) -> list[Allocation]:
        """What a workload holds and is not leaving."""
        return [a for a in self._of(identifier) if a.phase is not Phase.LEAVING]

    def _tell(self, identifier: int, workers: Iterable[tuple[int, int]]) -> None:
        told = set(workers)
        grace = min(self.stop_ms, self.jobs[identifier].workload.grace_ms)
        for at, a in enumerate(self.allocations):
            key = (a.place.group, a.place.index)
            if a.place.workload == identifier and key in told and a.phase is not Phase.LEAVING:
                self.allocations[at] = replace(a, phase=Phase.LEAVING, gone_by_ms=self.now_ms + grace)
        self._leave()

    def _leave(self) -> None:
        self.allocations = [
            a for a in self.allocations if a.phase is not Phase.LEAVING or (a.gone_by_ms or 0) > self.now_ms
        ]

    def _finish(self) -> None:
        for identifier, job in self.jobs.items():
            ends = self._end_of(job)
            if ends is not None and ends <= self.now_ms and job.state == "running":
                job.state = "succeeded"
                job.workload = replace(job.workload, ending=True)
                self.allocations = [a for a in self.allocations if a.place.workload != identifier]

    def _end_of(self, job: Job) -> int | None:
        held = self.held(job.workload.id)
        if job.duration_ms is None or not held:
            return None
        return min(a.started_ms for a in held) + job.duration_ms - job.done_ms

    def _note_checkpoints(self) -> None:
        for identifier, job in self.jobs.items():
            held = self.held(identifier)
            if job.checkpoint_ms and held:
                began = min(a.started_ms for a in held)
                last = began + (self.now_ms - began) // job.checkpoint_ms * job.checkpoint_ms
                job.workload = replace(job.workload, checkpoint=Checkpoint(last_ms=last))

    # --- the cycle -------------------------------------------------------------------------------------

    def snapshot(self) -> Snapshot:
        """What a cycle is given now."""
        self._note_checkpoints()
        live = {a.place.workload for a in self.allocations}
        for identifier, job in self.jobs.items():
            if job.workload.letting_go and identifier not in live:
                job.workload = replace(job.workload, letting_go=False)
        return Snapshot(
            now_ms=self.now_ms,
            pools=tuple(self.pools.values()),
            nodes=tuple(self.nodes.values()),
            quotas=tuple(self.quotas.values()),
            workloads=tuple(
                job.workload for job in self.jobs.values() if not job.workload.ending or job.workload.id in live
            ),
            allocations=tuple(self.allocations),
            reservations=tuple(self.reservations.values()),
            excess_orders=tuple(self.orders.values()),
        )

    def cycle(self) -> Plan:
        """Decide once and apply, then check what must always hold."""
        before = self.snapshot()
        self.plan = decide(before, self.policy)
        self._apply(self.plan)
        self.cycles += 1
        broken = violations(before, self.plan, self.snapshot(), self.history)
        assert not broken, broken
        return self.plan

    def _apply(self, plan: Plan) -> None:
        for reservation in plan.closed:
            del self.reservations[reservation.id]
        for order in plan.orders_done:
            del self.orders[order]
        for release in plan.releases:
            self._tell(release.workload, release.workers)
        for shrink in plan.shrinks:
            self.shrunk.append(shrink.workload)
            self._tell(shrink.workload, shrink.workers)
        for eviction in plan.evictions:
            self.evicted.append((eviction.workload, eviction.claimant or 0))
            self._requeue(eviction.workload)
        for move in plan.moves:
            self.moved.append(move.workload)
            self._requeue(move.workload)
        for opened in plan.opened:
            number = max(self.reservations, default=self.cycles * 1000) + 1
            self.reservations[number] = replace(opened, id=number)
        for start in plan.starts:
            self._start(start.place, grows=start.grows)

    def _requeue(self, identifier: int) -> None:
        job = self.jobs[identifier]
        held = self.held(identifier)
        if held and job.checkpoint_ms:
            began = min(a.started_ms for a in held)
            job.done_ms += (self.now_ms - began) // job.checkpoint_ms * job.checkpoint_ms
        job.state = "queued"
        job.workload = replace(job.workload, waiting_since_ms=self.now_ms)
        self._tell(identifier, {(a.place.group, a.place.index) for a in held})

    def _start(self, place: Place, *, grows: bool) -> None:
        job = self.jobs[place.workload]
        if not self.held(place.workload):
            job.starts += 1
        job.state = "running"
        self.allocations.append(Allocation(place, Phase.RUNNING, self.now_ms))

    def settle(self, limit: int = 50) -> None:
        """Cycle until a cycle changes nothing."""
        for _ in range(limit):
            plan = self.cycle()
            if not (plan.starts or plan.evictions or plan.shrinks or plan.moves or plan.releases or plan.closed):
                return
        raise AssertionError("the cluster does not settle")

    def run(self, duration_ms: int, step_ms: int = 10 * SECOND) -> None:
        """Let time pass, with a cycle whenever something is due and at every step."""
        until = self.now_ms + duration_ms
        while self.now_ms < until:
            self.now_ms = min(self._next_due(), self.now_ms + step_ms, until)
            self._leave()
            self._finish()
            self.settle()

    def _next_due(self) -> int:
        due = [a.gone_by_ms for a in self.allocations if a.phase is Phase.LEAVING and a.gone_by_ms]
        due += [end for job in self.jobs.values() if (end := self._end_of(job)) is not None]
        return min((instant for instant in due if instant > self.now_ms), default=self.now_ms + 10 * HOUR)

    # --- what is -----------------------------------------------------------------------------------

    def is_running(self, identifier: int) -> bool:
        """Whether it has its minimum, or all its replicas."""
        workload = self.jobs[identifier].workload
        held = self.held(identifier)
        return bool(held) and all(
            sum(1 for a in held if a.place.group == at) >= (g.minimum if workload.gang else g.wanted)
            for at, g in enumerate(workload.groups)
        )

    def used(self, quota: int) -> int:
        """Milli-GPUs that a quota and all below it hold, what is leaving included."""
        below = {quota}
        for other in sorted(self.quotas):
            if self.quotas[other].parent in below:
                below.add(other)
        return sum(
            a.place.amount.gpu_milli for a in self.allocations if self.jobs[a.place.workload].workload.quota in below
        )

    def lose(self, node: int) -> None:
        """A node is lost with all that runs on it; what is left of a gang starts anew."""
        self.nodes[node] = replace(self.nodes[node], state=NodeState.LOST)
        hit = {a.place.workload for a in self.allocations if a.place.node == node}
        self.allocations = [a for a in self.allocations if a.place.node != node]
        for identifier in sorted(hit):
            job = self.jobs[identifier]
            if job.workload.gang and not self.is_running(identifier):
                job.state = "queued"
                job.workload = replace(job.workload, letting_go=bool(self._of(identifier)))
