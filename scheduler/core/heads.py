"""Nodes kept for a head that is within its entitlement and has waited long, and backfill around it.

Others use that room only if their estimate ends before it is needed, or if they borrow and may be preempted.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from scheduler.core.admit import Refusal, fits_entitlement
from scheduler.core.claims import Claim, Demand, next_claim
from scheduler.core.model import Allocation, IdleUse, NodeState, Reason, Reservation, ReservationKind
from scheduler.core.order import waiting_since
from scheduler.core.resources import UNBOUNDED
from scheduler.core.rooms import LATER, Bools, Ints
from scheduler.core.tree import RESOURCES, Row
from scheduler.core.world import Work, World

NOBODY_KNOWS = 2**60
"""The end of work that gave no estimate."""


@dataclass(frozen=True, eq=False)
class Head:
    """A head with nodes kept for it."""

    reservation: Reservation
    work: Work
    amount: Row


class Heads:
    """The heads of one cycle that have nodes reserved."""

    def __init__(self, world: World, demand: Demand) -> None:
        self.world, self.demand = world, demand
        self.kept: list[Head] = []
        self._ends: dict[int, tuple[Ints, Ints]] = {}
        self._masks: dict[tuple[int, ...], Bools] = {}

    def settle(self, reservations: Iterable[Reservation]) -> list[tuple[int, str]]:
        """Keep the reservations that still hold; (id, why) of the others."""
        ended = []
        for reservation in reservations:
            why = self._why_it_ends(reservation)
            if why:
                ended.append((reservation.id, why))
        return ended

    def _why_it_ends(self, reservation: Reservation) -> str:
        work = self.world.work.get(reservation.claimant)
        if work is None or work.workload.ending or work.workload.held or reservation.pool not in self.world.pools:
            return "left"
        claim = next_claim(work)
        if claim is None:
            return "started"
        rooms = self.world.pools[reservation.pool].rooms
        rows = [rooms.row.get(node) for node in reservation.node_ids]
        if any(row is None or rooms.nodes[row].state is not NodeState.READY for row in rows):
            return "broken"
        amount = self.demand.amount(work, claim.keys, reservation.pool)
        if not fits_entitlement(self.world, work, amount, reservation.pool, LATER):
            return "unlawful"
        self.kept.append(Head(reservation, work, amount))
        return ""

    def of(self, work: Work) -> Head | None:
        """The reservation of a head."""
        return next((head for head in self.kept if head.work is work), None)

    # --- what others may do ------------------------------------------------------------------------

    def others_of(self, claim: Claim, pool: int) -> tuple[int, ...]:
        """The workloads whose kept nodes a claim must leave alone."""
        return tuple(head.work.workload.id for head in self._others(claim, pool)) if self.kept else ()

    def allowed(self, claim: Claim, pool: int) -> Bools | None:
        """Nodes that a claim may use; None means all."""
        others = self._others(claim, pool)
        if not others:
            return None
        key = (pool, *(head.work.workload.id for head in others))
        if key not in self._masks:
            allowed = np.ones(len(self.world.pools[pool].rooms), dtype=bool)
            rows = self.world.pools[pool].rooms.row
            for head in others:
                allowed[[rows[node] for node in head.reservation.node_ids]] = False
            self._masks[key] = allowed
        return self._masks[key]

    def refusal(self, claim: Claim, amount: Row, pool: int) -> Refusal | None:
        """Why a claim would use up the entitlement that a head needs; None if it would not."""
        others = self._others(claim, pool)
        if not others:
            return None
        accounts = self.world.pools[pool].accounts
        within = fits_entitlement(self.world, claim.work, amount, pool, LATER)
        in_all = [0, 0, 0] if within else self._used_in_all(pool)
        for head in others:
            own = head.work.quota == claim.work.quota
            if within and not own:
                continue
            used = accounts.used[LATER][head.work.quota] if own else in_all
            most = accounts.worth.entitlement[head.work.quota] if own else accounts.capacity
            if any(amount[r] and used[r] + head.amount[r] + amount[r] > most[r] for r in RESOURCES):
                facts = {"claimant": head.work.workload.id, "needed_ms": head.reservation.needed_ms}
                return Refusal(Reason.RESERVATION_OTHER, facts, {"reservation": "ends"})
        return None

    def _used_in_all(self, pool: int) -> Row:
        accounts = self.world.pools[pool].accounts
        return [sum(accounts.used[LATER][root][r] for root in self.world.tree.roots) for r in RESOURCES]

    def _others(self, claim: Claim, pool: int) -> list[Head]:
        """Heads whose room this claim must leave alone."""
        heads = [head for head in self.kept if head.reservation.pool == pool and head.work is not claim.work]
        heads = [head for head in heads if not self._ends_before(claim, head)]
        return [] if heads and self._borrows_and_yields(claim, pool) else heads

    def _ends_before(self, claim: Claim, head: Head) -> bool:
        """Whether by its estimate it ends before the head needs the room."""
        estimate, needed = claim.workload.estimate_ms, head.reservation.needed_ms
        return estimate is not None and needed is not None and self.world.now_ms + estimate <= needed

    def _borrows_and_yields(self, claim: Claim, pool: int) -> bool:
        """Whether it would borrow and may be preempted."""
        workload = claim.workload
        if not workload.preemptible or workload.idle is IdleUse.NEVER:
            return False
        if workload.idle is IdleUse.ONLY:
            return True
        amount = self.demand.amount(claim.work, claim.keys, pool)
        return not fits_entitlement(self.world, claim.work, amount, pool, LATER)

    # --- choosing nodes ------------------------------------------------------------------------------

    def reserve(self, claim: Claim, pool: int) -> Reservation | None:
        """Nodes for a head that has waited long enough, or None if it has no right to them."""
        work = claim.work
        after = self.world.tree.quotas[work.quota].reserve_after_ms
        if after is None or claim.growth or self.world.now_ms - waiting_since(work) < after:
            return None
        amount = self.demand.amount(work, claim.keys, pool)
        if not fits_entitlement(self.world, work, amount, pool, LATER):
            return None
        chosen = self._earliest(claim, pool)
        if chosen is None:
            return None
        nodes, needed = chosen
        reservation = Reservation(
            claimant=work.workload.id,
            pool=pool,
            kind=ReservationKind.HEAD,
            node_ids=nodes,
            opened_ms=self.world.now_ms,
            needed_ms=None if needed >= NOBODY_KNOWS else needed,
        )
        self.kept.append(Head(reservation, work, amount))
        return reservation

    def _earliest(self, claim: Claim, pool: int) -> tuple[tuple[int, ...], int] | None:
        """The nodes on which the claim can run soonest by what is known, and when that is."""
        rooms = self.world.pools[pool].rooms
        devices, bulk = self._free_at(pool)
        allowed = self.allowed(claim, pool)
        rows: set[int] = set()
        last = 0
        asks = [self.demand.ask(claim.work, key, pool) for key in claim.keys]
        for ask in dict.fromkeys(asks):
            suited = np.flatnonzero(ask.mask if allowed is None else ask.mask & allowed)
            size = max(1, ask.gpus)
            times = (devices if ask.gpus else bulk[:, None])[suited][:, size - 1 :: size]
            order = np.lexsort([np.repeat(suited, times.shape[1]), times.ravel()])[: asks.count(ask)]
            if len(order) < asks.count(ask):
                return None
            rows |= {int(suited[at // times.shape[1]]) for at in order}
            last = max(last, int(times.ravel()[order].max()))
        return tuple(sorted(rooms.nodes[row].id for row in rows)), max(last, self.world.now_ms)

    def _free_at(self, pool: int) -> tuple[Ints, Ints]:
        """When each device is free, sorted by node; and when each node is free of all that it holds now."""
        if pool not in self._ends:
            rooms = self.world.pools[pool].rooms
            devices = np.where(rooms.device_size > 0, 0, UNBOUNDED)
            bulk = np.zeros(len(rooms), dtype=np.int64)
            for allocation in self.world.snapshot.allocations:
                row = rooms.row.get(allocation.place.node)
                if row is None:
                    continue
                end = self._end_of(allocation)
                bulk[row] = max(int(bulk[row]), end)
                for device in allocation.place.devices:
                    devices[row, device] = max(int(devices[row, device]), end)
            self._ends[pool] = np.sort(devices, axis=1), bulk
        return self._ends[pool]

    def _end_of(self, allocation: Allocation) -> int:
        """When an allocation ends by its grace, its estimate or its limit of time."""
        if allocation.gone_by_ms is not None:
            return allocation.gone_by_ms
        workload = self.world.work[allocation.place.workload].workload
        ends = [] if workload.estimate_ms is None else [allocation.started_ms + workload.estimate_ms]
        if workload.end_limit_ms is not None:
            ends.append(workload.end_limit_ms)
        return min(ends, default=NOBODY_KNOWS)
