"""From a plan to rows, in one short transaction.

The applier row is taken first, with an UPDATE: it guards sums over rows (a node's room, a quota's use), since only a
plan gives room out. Then what has moved since the snapshot was loaded is left out of the plan, and the rest is written
in bulk. What was left out asks for another cycle.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from django.db import connection, transaction
from django.db.models import F
from django.utils import timezone

from quotas.actors import System
from quotas.models import Cluster, LedgerEntry, QuotaAmount
from scheduler import settings, triggers
from scheduler.bulk import update_rows
from scheduler.core import model as core
from scheduler.crashpoints import reach
from scheduler.models import Applier, Cycle, Outbox, Reservation
from scheduler.replicas import leave, service_state
from scheduler.reservations import row_of
from scheduler.snapshots import AllocationRow, LedgerRow, Loaded, WorkloadRow
from scheduler.validity import services_of, still_valid
from scheduler.verdicts import plain, silence, verdict_rows, write_verdicts
from workloads.models import Allocation, Event, Eviction, Kind, Phase, State, Workload
from workloads.states import Move, move_many

SCHEDULER = System("scheduler")
MOST_TOPICS = 200


@dataclass(frozen=True, slots=True)
class Timings:
    """How long the first parts of the cycle took, in seconds."""

    load_s: float = 0.0
    decide_s: float = 0.0


@dataclass(frozen=True, slots=True)
class Applied:
    """What was written. `refused` counts the parts of the plan that had moved meanwhile."""

    number: int
    plan: core.Plan
    refused: int
    changed: bool
    wake: datetime | None = None


def apply_plan(
    cluster: Cluster, loaded: Loaded, plan: core.Plan, wake: datetime | None = None, timings: Timings = Timings()
) -> Applied:
    """Write the plan down, as far as what it was made from still holds, and when time alone asks for the next."""
    began = timezone.now()
    with transaction.atomic():
        number = take_applier(cluster.pk, served=loaded.wanted, wake=wake)
        plan, refused = still_valid(loaded, plan, number)
        reach("inside_apply")
        writer = _Writer(cluster, loaded, plan, number)
        changed = writer.write()
        if changed or refused:
            _log_cycle(writer, timings, refused, began)
            writer.announce()
        if refused:
            triggers.request_cycle(cluster.pk, "parts of the plan had moved")
    reach("after_apply")
    return Applied(number, plan, refused, changed, wake)


def take_applier(cluster_id: int, *, served: int = 0, wake: datetime | None = None) -> int:
    """Take the cluster's applier row for this transaction; returns the number of the cycle."""
    with connection.cursor() as cursor:
        cursor.execute(
            "INSERT INTO scheduler_applier AS a (cluster_id, revision, cycle, wanted, served, settled_at, next_due_at)"
            " VALUES (%s, 1, 1, 0, %s, %s, %s) ON CONFLICT (cluster_id) DO UPDATE SET revision = a.revision + 1,"
            " cycle = a.cycle + 1, served = greatest(a.served, excluded.served), settled_at = excluded.settled_at,"
            " next_due_at = excluded.next_due_at RETURNING cycle",
            [cluster_id, served, timezone.now(), wake],
        )
        return int(cursor.fetchone()[0])


def hold_applier(cluster_id: int) -> None:
    """Take the cluster's applier row for a transaction that tells replicas to leave outside a plan."""
    Applier.objects.get_or_create(cluster_id=cluster_id)
    Applier.objects.filter(cluster_id=cluster_id).update(revision=F("revision") + 1)


def _log_cycle(writer: _Writer, timings: Timings, refused: int, began: datetime) -> None:
    plan = writer.plan
    Cycle.objects.create(
        cluster=writer.cluster,
        number=writer.number,
        at=writer.now,
        load_s=timings.load_s,
        decide_s=timings.decide_s,
        apply_s=(timezone.now() - began).total_seconds(),
        started=len(plan.starts),
        evicted=len(plan.evictions),
        moved=len(plan.moves),
        waiting=len(plan.waits),
        refused=refused,
    )


# --- writing ------------------------------------------------------------------------------------------------------


class _Writer:
    """Turns one plan into rows; lives for one transaction."""

    def __init__(self, cluster: Cluster, loaded: Loaded, plan: core.Plan, number: int) -> None:
        self.cluster = cluster
        self.loaded = loaded
        self.plan = plan
        self.number = number
        self.now = loaded.now
        self.knobs = settings.of(cluster)
        self.pool_of = {node.id: node.pool for node in loaded.snapshot.nodes}
        self.node_names = {node.id: node.name for node in loaded.snapshot.nodes}
        self.moves: list[Move] = []
        self.events: list[Event] = []
        self.evictions: list[Eviction] = []
        self.leaving: dict[str, list[AllocationRow]] = defaultdict(list)
        self.topics: set[str] = set()

    def write(self) -> bool:
        """Everything that the plan changes; False when it changes nothing."""
        # 1. who goes, and why
        self._evict()
        self._shrink()
        self._move()
        self._release()
        # 2. who comes
        self._start()
        # 3. the services' states follow from their replicas
        self._settle_services()
        stops = self._tell_to_leave()
        moved = move_many(self.moves, at=self.now, by=SCHEDULER)
        assert len(moved) == len(self.moves), "rows that are locked and checked can't have moved"
        Event.objects.bulk_create(self.events)
        Eviction.objects.bulk_create(self.evictions)
        # 4. what everybody else reads
        reserved = self._reserve()
        ordered = self._end_orders()
        said = self._say_why()
        counted = self._count()
        return bool(self.moves or self.events or self.plan.starts or stops or reserved or ordered or said or counted)

    def row(self, workload: int) -> WorkloadRow:
        return self.loaded.workloads[workload]

    def live(self, workload: int) -> list[AllocationRow]:
        """Its allocations that have not been told to leave."""
        return [held for held in self.loaded.allocations.get(workload, []) if held.phase != Phase.LEAVING]

    # 1. who goes

    def _evict(self) -> None:
        for eviction in self.plan.evictions:
            self._told(eviction, Eviction.What.EVICTION, self.live(eviction.workload), "preempted")
            self._change(eviction.workload, State.PREEMPTING, "preempted", self._why(eviction))

    def _move(self) -> None:
        for move in self.plan.moves:
            held = self.live(move.workload)
            self._told(move, Eviction.What.MOVE, held, "moved")
            to = sorted({self.node_names.get(place.node, "") for place in move.places})
            facts = {"claimant": self._name(move.claimant), "to": to, **plain(move.facts)}
            self._change(move.workload, State.PREEMPTING, "moved", facts)

    def _shrink(self) -> None:
        for shrink in self.plan.shrinks:
            chosen = {*shrink.workers}
            held = [one for one in self.live(shrink.workload) if (one.group, one.index) in chosen]
            self._told(shrink, Eviction.What.SHRINK, held, "shrunk")
            self._note(shrink.workload, "shrunk", {"workers": len(held), **self._why(shrink)})

    def _release(self) -> None:
        for release in self.plan.releases:
            chosen = {*release.workers}
            held = [one for one in self.live(release.workload) if (one.group, one.index) in chosen]
            starts_anew = self.row(release.workload).state == State.QUEUED
            self.leaving["lost" if starts_anew else "scaled"] += held
            if not starts_anew:
                self._note(release.workload, "scaled_down", {"workers": len(held)})

    def _told(
        self,
        told: core.Eviction | core.Shrink | core.Move,
        what: Eviction.What,
        held: Sequence[AllocationRow],
        outcome: str,
    ) -> None:
        """Note who was told to leave, and let those replicas leave."""
        row = self.row(told.workload)
        is_move = isinstance(told, core.Move)
        self.evictions.append(
            Eviction(
                what=what,
                workload_id=row.id,
                claimant_id=told.claimant,
                quota_id=row.quota_id,
                pool_id=told.pool,
                run=row.starts,
                indexes=[one.index for one in held],
                rule="move" if is_move else told.rule.value,  # type: ignore[union-attr]
                order="" if is_move or told.order is None else told.order.value,  # type: ignore[union-attr]
                gpu_milli=sum(len(one.devices) * one.gpu_milli for one in held),
                facts=plain(told.facts),
                at=self.now,
                cycle=self.number,
            )
        )
        self.leaving[outcome] += held

    def _why(self, told: core.Eviction | core.Shrink) -> dict[str, Any]:
        who = {"claimant": self._name(told.claimant)} if told.claimant is not None else {}
        order = {"order": told.order.value} if told.order is not None else {}
        return {"rule": told.rule.value, **who, **order, **plain(told.facts)}

    def _name(self, workload: int | None) -> str:
        row = self.loaded.workloads.get(workload or 0)
        return "" if row is None else row.name

    def _tell_to_leave(self) -> int:
        """All victims are signalled at once."""
        graces = {row.id: row.grace_s for row in self.loaded.workloads.values()}
        for outcome, held in self.leaving.items():
            leave(self.cluster.pk, held, outcome, self.now, graces, self.knobs)
            self.topics.update(f"node.{one.node_id}" for one in held)
        return sum(len(held) for held in self.leaving.values())

    # 2. who comes

    def _start(self) -> None:
        places: dict[int, list[core.Place]] = defaultdict(list)
        for start in self.plan.starts:
            places[start.place.workload].append(start.place)
        new_runs = [workload for workload in places if self._begins_run(self.row(workload))]
        for workload in new_runs:
            self._begin(workload, places[workload])
        for workload in places.keys() - set(new_runs):
            self._note(workload, "grew", {"workers": len(places[workload]), "nodes": self._nodes(places[workload])})
        fresh = set(new_runs)
        rows = [self._allocation(place, fresh) for found in places.values() for place in found]
        Allocation.objects.bulk_create(rows)
        self._order_starts(rows, places)
        first = [workload for workload in new_runs if self.row(workload).state != State.QUEUED]
        Workload.objects.filter(pk__in=first).update(starts=1, started_at=self.now, revision=F("revision") + 1)

    @staticmethod
    def _begins_run(row: WorkloadRow) -> bool:
        """From the queue; or the first replicas ever of a service that has wanted none so far."""
        return row.state == State.QUEUED or row.starts == 0

    def _begin(self, workload: int, places: Sequence[core.Place]) -> None:
        row = self.row(workload)
        facts = {"run": row.starts + 1, "workers": len(places), "nodes": self._nodes(places)}
        if row.state == State.QUEUED:
            self._change(workload, State.STARTING, "started", facts)
        else:
            self._note(workload, "started", facts)

    def _nodes(self, places: Sequence[core.Place]) -> list[str]:
        return sorted({self.node_names[place.node] for place in places})

    def _allocation(self, place: core.Place, fresh: set[int]) -> Allocation:
        row = self.row(place.workload)
        self.topics.add(f"node.{place.node}")
        return Allocation(
            workload_id=row.id,
            quota_id=row.quota_id,
            pool_id=self.pool_of[place.node],
            node_id=place.node,
            run=row.starts + (row.id in fresh),
            group=place.group,
            index=place.index,
            devices=list(place.devices),
            gpu_milli=place.device_milli,
            gpu_memory_mib=place.device_memory_mib,
            cpu_milli=place.cpu_milli,
            memory_mib=place.memory_mib,
            ordered_at=self.now,
        )

    def _order_starts(self, rows: Sequence[Allocation], places: Mapping[int, Sequence[core.Place]]) -> None:
        texts = {
            pk: (image, command, environment)
            for pk, image, command, environment in Workload.objects.filter(pk__in=list(places)).values_list(
                "id", "image", "command", "environment"
            )
        }
        Outbox.objects.bulk_create(
            [
                Outbox(
                    cluster=self.cluster,
                    verb=Outbox.Verb.START,
                    key=str(row.pk),
                    payload=self._start_order(row, *texts[row.workload_id]),
                )
                for row in rows
            ]
        )

    def _start_order(
        self, row: Allocation, image: str, command: Sequence[str], environment: Mapping[str, str]
    ) -> dict[str, Any]:
        """What `StartOrder` takes beside the key."""
        return {
            "name": self.row(row.workload_id).name,
            "node": self.node_names[row.node_id],
            "devices": row.devices,
            "gpu_milli": row.gpu_milli,
            "gpu_memory_mib": row.gpu_memory_mib,
            "cpu_milli": row.cpu_milli,
            "memory_mib": row.memory_mib,
            "image": image,
            "command": list(command),
            "environment": dict(environment),
            "run_for_ms": self._work_left_ms(row),
        }

    def _work_left_ms(self, row: Allocation) -> int | None:
        """The duration less what checkpoints saved and, for a worker that joins, what the others have done by now."""
        workload = self.row(row.workload_id)
        if workload.duration_s is None:
            return None
        left = (workload.duration_s - workload.done_s) * 1000
        running = [held.running_at for held in self.live(row.workload_id) if held.running_at is not None]
        if running and workload.kind != Kind.SERVICE:
            left -= round((self.now - min(running)).total_seconds() * 1000)
        return max(0, left)

    # 3. states of services

    def _settle_services(self) -> None:
        gone = {one.id for held in self.leaving.values() for one in held}
        started: dict[int, int] = defaultdict(int)
        for start in self.plan.starts:
            started[start.place.workload] += 1
        decided = {move.workload_id for move in self.moves}
        for workload in services_of(self.loaded):
            if workload in decided:
                continue
            row, held = self.row(workload), [one for one in self.live(workload) if one.id not in gone]
            running = sum(one.phase == Phase.RUNNING for one in held)
            state = service_state(row.state, row.replicas, running, len(held) + started[workload])
            if state != row.state:
                self._change(workload, state, state, {"running": running, "wanted": row.replicas})

    def _change(self, workload: int, state: str, verb: str, facts: Mapping[str, Any]) -> None:
        row = self.row(workload)
        self.moves.append(Move(workload, row.state, state, verb, facts))
        self.topics.add(f"workload.{workload}")

    def _note(self, workload: int, verb: str, facts: Mapping[str, Any]) -> None:
        row = self.row(workload)
        self.events.append(
            Event(
                workload_id=workload,
                at=self.now,
                verb=verb,
                before=row.state,
                after=row.state,
                actor=SCHEDULER.name,
                facts=dict(facts),
            )
        )
        self.topics.add(f"workload.{workload}")

    # 4. what everybody else reads

    def _reserve(self) -> bool:
        closed = [reservation.id for reservation in self.plan.closed]
        if closed:
            Reservation.objects.filter(pk__in=closed).delete()
        Reservation.objects.bulk_create([row_of(opened, self.cluster.pk) for opened in self.plan.opened])
        return bool(closed or self.plan.opened)

    def _end_orders(self) -> int:
        """An order about what is above the amounts is carried out by the first plan at or after its due time."""
        due = [order for order in self.loaded.snapshot.excess_orders if order.due_ms <= self.loaded.snapshot.now_ms]
        return sum(
            QuotaAmount.objects.filter(pk=order.id, excess_due_at__lte=self.now).update(excess_due_at=None)
            for order in due
        )

    def _say_why(self) -> bool:
        """One verdict for each waiting workload; only those that say something new are written."""
        known = self.loaded.verdicts
        said = verdict_rows(self.plan.waits, known, self.now)
        new = [row for workload, row in said.items() if known.get(workload) != row]
        silent = [workload for workload in known if workload not in said]
        write_verdicts(self.cluster, new, self.number)
        silence(silent)
        if new or silent:
            self.topics.add("queue")
        return bool(new or silent)

    def _count(self) -> bool:
        """The books of the quotas, and what of each workload is borrowed."""
        books = [row for row in map(_ledger_row, self.plan.ledger) if self.loaded.ledger.get(row[:2]) != row]
        LedgerEntry.objects.bulk_create(
            [LedgerEntry(cycle=self.number, **row._asdict()) for row in books],
            update_conflicts=True,
            unique_fields=["quota", "pool"],
            update_fields=[*LedgerRow._fields[2:], "cycle"],
        )
        self.topics.update(f"quota.{row.quota_id}" for row in books)
        borrowed = dict(self.plan.borrowed)
        changed = [
            row.id for row in self.loaded.workloads.values() if row.borrowed_gpu_milli != borrowed.get(row.id, 0)
        ]
        update_rows(Workload, changed, {"borrowed_gpu_milli": [borrowed.get(workload, 0) for workload in changed]})
        return bool(books or changed)

    def announce(self) -> None:
        """Tell who should hear of it, once this is committed."""
        if self.plan.starts or self.leaving:
            triggers.request_delivery(self.cluster.pk)
        general = {"overview", "queue"}
        topics = self.topics if len(self.topics) <= MOST_TOPICS else {"quotas", "workloads", "nodes"}
        triggers.signal(*sorted(general | topics))


def _ledger_row(row: core.LedgerRow) -> LedgerRow:
    return LedgerRow(
        quota_id=row.quota,
        pool_id=row.pool,
        used=row.used.gpu_milli,
        own=row.own.gpu_milli,
        ancestors=row.by_ancestors.gpu_milli,
        borrowed=row.borrowed.gpu_milli,
        lent=row.lent.gpu_milli,
        waiting=row.waiting.gpu_milli,
        free=row.free.gpu_milli,
        entitlement=row.entitlement.gpu_milli,
        share=row.share.gpu_milli,
        used_cpu_milli=row.used.cpu_milli,
        used_memory_mib=row.used.memory_mib,
    )
