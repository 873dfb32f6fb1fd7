"""Open reservations: judged again in each cycle, started when their room is free, ended when their time is over."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from scheduler.core.admit import fits_entitlement, over_limit, refusal
from scheduler.core.claims import Claim, Demand
from scheduler.core.lawful import Case, Piece, priority
from scheduler.core.model import ClosedReservation, NodeState, Place, Reservation, ReservationKind, Rule, Start
from scheduler.core.rooms import LATER, NOW
from scheduler.core.tree import RESOURCES
from scheduler.core.world import Work, World, all_reservations, row_of, sum_rows


@dataclass(eq=False)
class Reserved:
    """What became of the open reservations."""

    starts: list[Start] = field(default_factory=list)
    kept: list[Reservation] = field(default_factory=list)
    closed: list[ClosedReservation] = field(default_factory=list)
    opened: list[Reservation] = field(default_factory=list)
    """What is left of broken ones."""

    def victims(self) -> dict[int, int]:
        """Workloads that may not come back yet, and for whom."""
        return {victim: r.claimant for r in (*self.kept, *self.opened) for victim in r.victims}

    def of(self, workload: int) -> Reservation | None:
        """The reservation that a workload waits for."""
        return next((r for r in (*self.kept, *self.opened) if r.claimant == workload), None)


def settle_reservations(world: World, demand: Demand) -> Reserved:
    """Keep, start or close every open reservation of exact places."""
    done = Reserved()
    pending: list[Reservation] = []
    for reservation in all_reservations(world.snapshot):
        if reservation.kind is ReservationKind.HEAD:
            continue
        why = _why_it_ends(world, demand, reservation)
        if why == "broken":
            _keep_rest(world, reservation, done)
        if why:
            done.closed.append(ClosedReservation(reservation.id, why))
            continue
        work = world.work[reservation.claimant]
        for place in _open_places(work, reservation):
            world.take_reserved(work, place, reservation.pool)
        pending.append(reservation)
    for reservation in pending:
        _start_or_keep(world, reservation, pending, done)
    return done


def _open_places(work: Work, reservation: Reservation) -> list[Place]:
    """Places of a reservation at which nothing has started yet."""
    return [
        place
        for place in reservation.places
        if not ((held := work.present.get((place.group, place.index))) and held.live)
    ]


def _why_it_ends(world: World, demand: Demand, reservation: Reservation) -> str:
    """Why a reservation ends before its claimant starts, or an empty string."""
    work = world.work.get(reservation.claimant)
    if work is None or work.workload.ending or work.workload.held or work.workload.letting_go:
        return "left"
    places = _open_places(work, reservation)
    if not places or _wants_less(work, places):
        return "started" if not places else "left"
    if reservation.pool not in world.pools:
        return "broken"
    rooms = world.pools[reservation.pool].rooms
    if not all(_stands(world, place, reservation.pool) for place in places):
        return "broken"
    expired = reservation.expires_ms is not None and world.now_ms >= reservation.expires_ms
    if expired and not all(rooms.is_vacant(place) for place in places):
        return "expired"
    return "" if is_still_lawful(world, demand, work, places, reservation) else "unlawful"


def _wants_less(work: Work, places: Sequence[Place]) -> bool:
    """Whether a service was scaled down below what is reserved for it."""
    for group in {place.group for place in places}:
        more = sum(1 for place in places if place.group == group)
        if work.present_in(group) + more > work.workload.groups[group].wanted:
            return True
    return False


def _stands(world: World, place: Place, pool: int) -> bool:
    """Whether the node is still there and takes work, its devices are well, and nobody else was given the room."""
    rooms = world.pools[pool].rooms
    row = rooms.row.get(place.node)
    if row is None or rooms.nodes[row].state is not NodeState.READY:
        return False
    devices = rooms.nodes[row].devices
    if any(device >= len(devices) or not devices[device].healthy for device in place.devices):
        return False
    return rooms.holds(place, LATER)


def is_still_lawful(
    world: World, demand: Demand, work: Work, places: Sequence[Place], reservation: Reservation
) -> bool:
    """Whether the rule under which it was opened would still let it in."""
    pool = reservation.pool
    if reservation.kind is ReservationKind.MOVE:
        return True
    amount = sum_rows(row_of(place) for place in places)
    if refusal(world, work, amount, pool, LATER) is not None:
        return False
    if reservation.kind is ReservationKind.INCOMING:
        return fits_entitlement(world, work, amount, pool, LATER)
    if reservation.rule is Rule.CHILD_LEVEL:
        return work.switch_claimant and fits_entitlement(world, work, amount, pool, LATER)
    victims = [world.work[victim] for victim in reservation.victims if victim in world.work]
    claim = Claim(work, tuple((place.group, place.index) for place in places), growth=False)
    return all(_may_still_take(Case(world, demand, claim, pool), victim) for victim in victims)


def _may_still_take(case: Case, victim: Work) -> bool:
    """Whether the claimant's side may still have what it took from a victim's."""
    relation = case.relation(victim.quota)
    piece = Piece(victim, (), (), [0, 0, 0], True, (True, True, 0, 0, 0, 0))
    if priority(case, piece, relation):
        return True
    side, worth = relation.claimant_side, case.accounts.worth
    after = case.after(side, {})
    entitlement, share = worth.entitlement_of(side), worth.share_of(side)
    return all(not case.amount[r] or after[r] <= max(entitlement[r], share[r]) for r in RESOURCES)


def _keep_rest(world: World, reservation: Reservation, done: Reserved) -> None:
    """What is left of a broken reservation stays reserved; the rest is planned anew in this cycle."""
    work = world.work[reservation.claimant]
    rest = [p for p in _open_places(work, reservation) if _stands(world, p, reservation.pool)]
    if not rest:
        return
    for place in rest:
        world.take_reserved(work, place, reservation.pool)
    done.opened.append(replace(reservation, id=0, places=tuple(rest)))


def _start_or_keep(world: World, reservation: Reservation, pending: Sequence[Reservation], done: Reserved) -> None:
    """Start what may start: a gang when all that is reserved for it is free, others place by place."""
    work, pool = world.work[reservation.claimant], reservation.pool
    rooms = world.pools[pool].rooms
    places = _open_places(work, reservation)
    together = [
        (place, other.pool)
        for other in pending
        if other.claimant == reservation.claimant
        for place in _open_places(work, other)
    ]
    if work.workload.gang and not _may_start_whole(world, work, together):
        done.kept.append(reservation)
        return
    for place in list(places):
        if not rooms.is_vacant(place) or over_limit(world, work, row_of(place), pool, NOW) is not None:
            continue
        grows = work.is_live
        world.start_reserved(work, place, pool)
        done.starts.append(Start(place, grows=grows))
        places.remove(place)
    if places:
        done.kept.append(reservation)
    else:
        done.closed.append(ClosedReservation(reservation.id, "started"))


def _may_start_whole(world: World, work: Work, places: Sequence[tuple[Place, int]]) -> bool:
    """Whether all of a gang has gone that leaves, all its places are free together, and it is whole with them."""
    if work.leaving or any(work.present_in(at) < group.minimum for at, group in enumerate(work.workload.groups)):
        return False
    with world.attempt():
        for place, pool in places:
            rooms = world.pools[pool].rooms
            if not rooms.is_vacant(place) or over_limit(world, work, row_of(place), pool, NOW) is not None:
                return False
            world.start_reserved(work, place, pool)
    return True
