"""One pure function: snapshot in, plan out.

    divide -> charge -> order -> place -> consolidate -> evict and hand over -> explain

`decide` runs these on a `World` that it makes from the snapshot; nothing outside is read or changed.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from scheduler.core.admit import Refusal, fits_entitlement, refusal
from scheduler.core.claims import Claim, Demand, first_keys, is_waiting, unused
from scheduler.core.consolidate import Moved, consolidate
from scheduler.core.explain import Tried, reason_of
from scheduler.core.facts import eviction_facts
from scheduler.core.heads import Heads
from scheduler.core.hopeless import Hopeless
from scheduler.core.in_turn.steps import decide_in_turn
from scheduler.core.lawful import Case, Piece
from scheduler.core.ledger import borrowed_of, ledger_of, over_of, waiting_keys
from scheduler.core.model import (
    ClosedReservation,
    Eviction,
    Facts,
    IdleUse,
    Move,
    OrderKind,
    Place,
    Plan,
    Reason,
    Release,
    Reservation,
    ReservationKind,
    Rule,
    Shrink,
    Snapshot,
    Start,
    StartEstimate,
    Sureness,
    Wait,
)
from scheduler.core.order import Queue, Turns, queue_key, queues_of
from scheduler.core.orders import carry_out_orders
from scheduler.core.place import place_claim
from scheduler.core.policy import PRODUCT, Policy
from scheduler.core.reserve import Reserved, settle_reservations
from scheduler.core.rooms import LATER, NOW
from scheduler.core.search import Found, candidates, could_take, find_victims, without_parts
from scheduler.core.waking import next_instant
from scheduler.core.world import Work, World, all_reservations, row_of, sum_rows


def decide(snapshot: Snapshot, policy: Policy = PRODUCT) -> Plan:
    """What to start, stop and move now, and why everything else waits."""
    world = World(snapshot, policy)
    if policy.in_turn is not None:
        return decide_in_turn(world, policy.in_turn)
    cycle = Cycle(world)
    cycle.divide()
    cycle.settle()
    cycle.take_turns()
    return cycle.plan()


_FIRST_LOOK = 256
"""So many of the least valuable workloads are looked at first; all only where they do not suffice."""

Verdict = tuple[Refusal, int]
"""Why not, and in which pool."""


class Cycle:
    """The working state of one decision."""

    def __init__(self, world: World) -> None:
        self.world, self.policy = world, world.policy
        self.demand = Demand(world)
        self.reserved = Reserved()
        self.starts: list[Start] = []
        self.evictions: dict[int, Eviction] = {}
        self.shrinks: list[Shrink] = []
        self.moves: list[Move] = []
        self.releases: list[Release] = []
        self.opened: list[Reservation] = []
        self.orders_done: list[int] = []
        self.waits: dict[int, Wait] = {}
        self.moves_left = {pool: at.pool.moves_left for pool, at in world.pools.items()}
        self.heads = Heads(world, self.demand)
        self.hopeless = Hopeless(self.demand, self.heads)
        self._overrides = any(quota.min_runtime.override_after_ms is not None for quota in world.tree.quotas)
        self._touched: set[int] = set()
        """Quotas whose turn may have come nearer by the last step."""
        self._verdicts: dict[tuple[object, ...], Verdict] = {}
        self._positions: dict[int, int] = {}

    # --- 1, 2: divide and charge -----------------------------------------------------------------------

    def divide(self) -> None:
        """Entitlement and share of every quota in every pool, with open reservations as if they were served."""
        self._divide(all_reservations(self.world.snapshot))
        for pool in self.world.pools:
            self.demand.note_mix(pool)

    def _divide(self, reserved: Iterable[Reservation] = ()) -> None:
        kept = list(reserved)
        self.asks = {pool: self.demand.by_quota(pool, kept) for pool in self.world.pools}
        for pool in self.world.pools:
            self.world.divide(pool, self.asks)

    def _let_in(self, work: Work, amount: Sequence[int], pool: int, sign: int = 1) -> None:
        """A switch claimant is let in by this cycle (or is not after all): the work below is cut for it."""
        if work.switch_claimant:
            self.demand.let_in(self.asks[pool][work.quota], work, amount, sign)
            self.world.divide(pool, self.asks)
            self._touched.update(range(len(self.world.tree.quotas)))

    # --- open reservations and standing orders ---------------------------------------------------------

    def settle(self) -> None:
        """Open reservations first, then what must go by order."""
        self.reserved = settle_reservations(self.world, self.demand)
        heads = [r for r in all_reservations(self.world.snapshot) if r.kind is ReservationKind.HEAD]
        self.reserved.closed += [ClosedReservation(number, why) for number, why in self.heads.settle(heads)]
        if self.heads.kept:
            self._obey_heads()
        self.starts += self.reserved.starts
        self.opened += self.reserved.opened
        carried = carry_out_orders(self.world, self.demand)
        self.releases += carried.releases
        self.orders_done += carried.done
        for ordered in carried.taken:
            facts: Facts = {"order": ordered.kind.value}
            self._tell(ordered.piece, Rule.ORDER, ordered.pool, None, ordered.kind, ordered.order_id, facts)
        for moved, pool in carried.moved:
            self._move(moved, pool, None)
        if self.world.snapshot.reservations or carried.taken or carried.moved or carried.releases:
            self._divide()

    def _obey_heads(self) -> None:
        """From now on nobody is placed on nodes that are kept for a head."""
        self.world.allowed_rows = lambda work, keys, pool: self.heads.allowed(Claim(work, keys, growth=False), pool)

    def _tell(
        self,
        piece: Piece,
        rule: Rule,
        pool: int,
        claimant: int | None,
        order: OrderKind | None,
        order_id: int | None,
        facts: Facts,
    ) -> None:
        """Record that a piece leaves: an eviction if nothing of the workload stays."""
        identifier = piece.workload.id
        if piece.work.told:
            if self.shrinks:  # other workers of it were taken before: now it is stopped
                self.shrinks = [shrink for shrink in self.shrinks if shrink.workload != identifier]
            self.evictions[identifier] = Eviction(identifier, rule, pool, claimant, order, order_id, facts)
        else:
            self.shrinks.append(Shrink(identifier, piece.keys, rule, pool, claimant, order, order_id, facts))

    def _move(self, moved: Moved, pool: int, claimant: int | None) -> None:
        workload = moved.work.workload
        self.moves.append(Move(workload.id, pool, claimant, moved.places, {"grace_ms": workload.grace_ms}))
        self.opened.append(
            Reservation(
                claimant=workload.id,
                pool=pool,
                kind=ReservationKind.MOVE,
                places=moved.places,
                opened_ms=self.world.now_ms,
                expires_ms=self._expiry([workload.grace_ms]),
            )
        )

    def _expiry(self, graces: Iterable[int]) -> int:
        """When a reservation ends: the longest grace and some slack from now."""
        return self.world.now_ms + max(graces, default=0) + self.policy.reservation_slack_ms

    # --- 3: order --------------------------------------------------------------------------------------

    def take_turns(self) -> None:
        """Everybody who may has a turn, in the order of the queues and between them."""
        waiting = self._who_waits()
        queues = queues_of(self.world, self.demand, waiting)
        self._number(queues.values())
        self._hold_evictions_behind_victims(queues)
        for queue in queues.values():
            self._pass_over_decided(queue)
        turns = Turns(self.world, self.demand, queues)
        while (turn := turns.next()) is not None:
            work, claim = turn
            self._take_turn(queues[work.quota], work, claim, turns)

    def _who_waits(self) -> list[Work]:
        """Waiting work that may have a turn; the rest is passed over, each with its reason."""
        victims = self.reserved.victims()
        found = []
        for work in self.world.work.values():
            wait = self._passed_over(work, victims)
            if wait is not None:
                self.waits[work.workload.id] = wait
            elif self._has_a_turn(work):
                found.append(work)
        return found

    def _has_a_turn(self, work: Work) -> bool:
        if not is_waiting(work) or work.told or self._still_leaves(work):
            return False
        return self.demand.next(work) is not None

    def _still_leaves(self, work: Work) -> bool:
        """A gang that was told to leave comes back only when all of it has gone."""
        return (bool(work.leaving) and (work.workload.gang or not work.present)) or work.workload.letting_go

    def _passed_over(self, work: Work, victims: dict[int, int]) -> Wait | None:
        workload = work.workload
        if workload.ending or not self._lacks(work) or self._still_leaves(work):
            return None
        if workload.held:
            return Wait(workload.id, Reason.HELD, {}, {"release": True})
        if workload.id in victims:
            facts: Facts = {"claimant": victims[workload.id]}
            return Wait(workload.id, Reason.RESERVATION_OTHER, facts, {"reservation": "ends"})
        if workload.not_before_ms is not None and workload.not_before_ms > self.world.now_ms:
            return Wait(
                workload.id,
                Reason.SCHEDULE_WAITING,
                {"not_before_ms": workload.not_before_ms},
                {"at_ms": workload.not_before_ms},
                estimate=StartEstimate(workload.not_before_ms, None, Sureness.ESTIMATED),
            )
        return None

    def _lacks(self, work: Work) -> bool:
        """Whether it has less than it must have to count as running."""
        return bool(waiting_keys(work))

    def _number(self, queues: Iterable[Queue]) -> None:
        for queue in queues:
            for place, work in enumerate(queue.entries, start=1):
                self._positions[work.workload.id] = place

    def _hold_evictions_behind_victims(self, queues: dict[int, Queue]) -> None:
        """Work behind a victim in its own queue does not evict while the victim's room is handed over."""
        for victim in self.reserved.victims():
            work = self.world.work.get(victim)
            if work is not None and work.quota in queues:
                queues[work.quota].hold_evictions_behind(work, self.world)

    def _take_turn(self, queue: Queue, work: Work, claim: Claim, turns: Turns) -> None:
        """One claim: start it, make room for it, or say why not and what that means for its queue."""
        self._touched = {work.quota}
        if work.told:  # taken since the queue came to it
            self._pass_over_decided(queue)
            turns.renew(work.quota)
            return
        pools = self._open_pools(queue, work)
        verdict = self._try(queue, claim, pools)
        if verdict is not None:
            self._blocked(queue, work, claim, pools, verdict)
            key = self._look_alike(work, pools)
            if key is not None:
                self._verdicts[key] = verdict
        self._advance(queue, work, verdict is None)
        self._pass_over_decided(queue)
        for quota in sorted(self._touched):
            turns.renew(quota)

    def _open_pools(self, queue: Queue, work: Work) -> list[int]:
        """The pools it wants in which no head holds it up."""
        return [pool for pool in self.world.wanted_pools(work) if pool not in queue.blocked_pools]

    def _pass_over_decided(self, queue: Queue) -> None:
        """Go on to the next whose turn would tell something new: equal waiting work has one verdict."""
        while (work := queue.current()) is not None:
            pools = self._open_pools(queue, work)
            if not work.told:
                if not pools and self.world.wanted_pools(work):
                    self._wait_behind_head(queue, work)
                else:
                    verdict = self._known_verdict(work, pools)
                    claim = self.demand.next(work) if verdict is not None else None
                    if verdict is None or claim is None:
                        return
                    self._blocked(queue, work, claim, pools, verdict)
            queue.at += 1

    def _known_verdict(self, work: Work, pools: Sequence[int]) -> Verdict | None:
        key = self._look_alike(work, pools) if self._verdicts else None
        return self._verdicts.get(key) if key is not None else None

    def _advance(self, queue: Queue, work: Work, served: bool) -> None:
        """Go on in the queue; what was served and wants one more stays where it is."""
        again = self.demand.next(work) if served and not self._has_all_reserved(work) else None
        if again is None:
            queue.at += 1
        elif again.growth and not queue.is_growing(work):
            queue.at += 1
            queue.growing.append(work)

    def _has_all_reserved(self, work: Work) -> bool:
        return not is_waiting(work)

    def _look_alike(self, work: Work, pools: Sequence[int]) -> tuple[object, ...] | None:
        """Equal waiting work has one verdict; None for work that holds something already."""
        if work.present or work.leaving:
            return None
        w = work.workload
        forms = tuple(id(self.demand.form(work, pool)) for pool in pools)
        return (
            work.quota, forms, w.kind, w.priority, w.idle, w.preemptible, w.gang,
            tuple(pools), w.caps, w.enclosures, w.placement, w.estimate_ms if self.heads.kept else None,
        )  # fmt: skip

    # --- 4, 5, 6: place, consolidate, evict ------------------------------------------------------------

    def _try(self, queue: Queue, claim: Claim, pools: Sequence[int]) -> Verdict | None:
        """All wanted pools without eviction first, then with; None if the claim was served."""
        tried = [Tried(pool) for pool in pools]
        for one in tried:
            if self._start(claim, one):
                return None
        for one in tried:
            if self._make_room(queue, claim, one):
                return None
        if not tried:
            return Refusal(Reason.NODES_AFFINITY, {"pools": []}, {"pools": "any"}), 0
        first = tried[0]
        return reason_of(self.world, self.demand, claim, first), first.pool

    def _usable(self, claim: Claim, pool: int) -> bool:
        return self.world.pools[pool].pool.engine_available and not self.demand.form(claim.work, pool).never

    def _start(self, claim: Claim, tried: Tried) -> bool:
        """Start a claim where quotas and nodes let it in at once."""
        world, pool = self.world, tried.pool
        if not self._usable(claim, pool):
            return False
        amount = self.demand.amount(claim.work, claim.keys, pool)
        tried.refused = (
            refusal(world, claim.work, amount, pool, NOW)  # what leaves still counts
            or refusal(world, claim.work, amount, pool, LATER)  # so does what is reserved
            or self.heads.refusal(claim, amount, pool)
        )
        if tried.refused is not None:
            return False
        places = self._place(claim, pool, NOW)
        if places is None:
            return False
        self._let_in(claim.work, sum_rows(map(row_of, places)), pool)
        grows = claim.work.is_live
        for place in places:
            world.start(claim.work, place, pool)
            self.starts.append(Start(place, grows=grows))
        return True

    def _place(self, claim: Claim, pool: int, view: int) -> list[Place] | None:
        """Places for the whole claim, taken on the nodes, or None and nothing is changed."""
        alike = self.hopeless.alike(claim, pool)
        if self.hopeless.is_full(alike, view):
            return None
        with self.world.attempt() as attempt:
            places = place_claim(self.world, self.demand, claim, pool, view)
            if places is None:
                self.hopeless.note_full(alike, view)
            else:
                attempt.keep()
        return places

    def _make_room(self, queue: Queue, claim: Claim, tried: Tried) -> bool:
        """Room that is on its way, moves, or evictions; the places are reserved."""
        world, pool = self.world, tried.pool
        if not self._usable(claim, pool) or (claim.work.leaving and claim.workload.gang):
            return False
        amount = self.demand.amount(claim.work, claim.keys, pool)
        later = refusal(world, claim.work, amount, pool, LATER)
        if later is None and self._wait_for_coming(claim, tried):
            return True
        if later is None and not claim.growth and self._consolidate(claim, tried):
            return True
        if tried.notes.get("coming"):
            return False
        return self._evict(queue, claim, tried)

    def _wait_for_coming(self, claim: Claim, tried: Tried) -> bool:
        """Room that is on its way and nobody's: reserved for a claimant within its entitlement."""
        world, pool = self.world, tried.pool
        rooms = world.pools[pool].rooms
        amount = self.demand.amount(claim.work, claim.keys, pool)
        places = self._place(claim, pool, LATER)
        if places is None:
            return False
        tried.notes["coming"] = True
        for place in places:
            rooms.change(place, +1, now=False, later=True)
        if claim.growth or not fits_entitlement(world, claim.work, amount, pool, LATER):
            return False
        places = self._beside_leaving(claim, pool)
        if places is None:
            return False
        for place in places:
            rooms.change(place, -1, now=False, later=True)
        self._reserve(claim, places, pool, ReservationKind.INCOMING, [], None, Reason.PREEMPTION_PENDING)
        return True

    def _beside_leaving(self, claim: Claim, pool: int) -> list[Place] | None:
        """Places for a claim beside those of work that still leaves and comes before it; nothing is changed."""
        with self.world.attempt():
            for work in self._leaving_before(claim.work, pool):
                own = Claim(work, first_keys(work.workload), growth=False)
                with self.world.attempt() as attempt:
                    if place_claim(self.world, self.demand, own, pool, LATER) is not None:
                        attempt.keep()
            return place_claim(self.world, self.demand, claim, pool, LATER)

    def _leaving_before(self, claimant: Work, pool: int) -> list[Work]:
        """Work that is still leaving, will ask again within its entitlement, and keeps its place in the order."""
        found = []
        for identifier in sorted(self.world.once_leaving):
            work = self.world.work[identifier]
            if not work.leaving or work.present or not is_waiting(work) or pool not in self.world.wanted_pools(work):
                continue
            amount = self.demand.amount(work, first_keys(work.workload), pool)
            within = fits_entitlement(self.world, work, amount, pool, LATER)
            if within and self._comes_before(work, claimant):
                found.append(work)
        return found

    def _comes_before(self, work: Work, other: Work) -> bool:
        """Whether work stands before another: in its own queue by that, else by submission."""
        if work.quota == other.quota:
            policy = self.world.tree.quotas[work.quota].queue_policy
            return queue_key(self.world, work, policy) < queue_key(self.world, other, policy)
        return (work.workload.submitted_ms, work.workload.id) < (other.workload.submitted_ms, other.workload.id)

    def _reserve(
        self,
        claim: Claim,
        places: Sequence[Place],
        pool: int,
        kind: ReservationKind,
        victims: Sequence[Work],
        rule: Rule | None,
        reason: Reason,
        going: Sequence[Work] = (),
    ) -> None:
        """Keep places for a claim until what leaves has gone; the nodes' later view holds them already."""
        if kind is not ReservationKind.HANDOVER or not victims:
            self._let_in(claim.work, sum_rows(map(row_of, places)), pool)
        for place in places:
            self.world.reserve(claim.work, place, pool)
        nodes = {place.node for place in places}
        graces = [w.workload.grace_ms for w in (*victims, *going)] + self._graces_on(nodes)
        expires = self._expiry(graces)
        self.opened.append(
            Reservation(
                claimant=claim.workload.id,
                pool=pool,
                kind=kind,
                places=tuple(places),
                victims=tuple(sorted({work.workload.id for work in victims})),
                rule=rule,
                opened_ms=self.world.now_ms,
                expires_ms=expires,
            )
        )
        self._wait_pending(claim.work, reason, pool, expires)

    def _graces_on(self, nodes: set[int]) -> list[int]:
        """How long what is leaving on some nodes may still take."""
        return [self.world.gone_by[node] - self.world.now_ms for node in nodes if node in self.world.gone_by]

    def _wait_pending(self, work: Work, reason: Reason, pool: int, expires: int | None) -> None:
        if not self._lacks(work):
            return
        latest = None if expires is None else expires - self.policy.reservation_slack_ms
        estimate = StartEstimate(self.world.now_ms, latest, Sureness.RESERVED)
        facts: Facts = {"pool": pool, "until_ms": expires}
        identifier = work.workload.id
        position = self._positions.get(identifier)
        self.waits[identifier] = Wait(identifier, reason, facts, {"leaving": "gone"}, position, estimate, pool)

    def _consolidate(self, claim: Claim, tried: Tried) -> bool:
        world, pool = self.world, tried.pool
        if not self.policy.consolidate or self.hopeless.has_no_regrouping(claim, pool):
            return False
        found = consolidate(world, self.demand, claim, pool, None)
        if found is None:
            self.hopeless.note_no_regrouping(claim, pool)
            return False
        left = self.moves_left[pool]
        if left is not None and len(found.moves) > left:
            tried.moves_spent = True
            return False
        if left is not None:
            self.moves_left[pool] = left - len(found.moves)
        rooms = world.pools[pool].rooms
        for moved in found.moves:
            for held in moved.work.present.values():
                rooms.change(held.place, +1, now=False, later=True)
        for place in (*found.places, *(place for moved in found.moves for place in moved.places)):
            rooms.change(place, -1, now=False, later=True)
        for moved in found.moves:
            world.moved(moved.work, moved.places, pool)
            self._move(moved, pool, claim.workload.id)
        going = [moved.work for moved in found.moves]
        self._reserve(
            claim, found.places, pool, ReservationKind.HANDOVER, [], None, Reason.CONSOLIDATION_PENDING, going
        )
        return True

    def _evict(self, queue: Queue, claim: Claim, tried: Tried) -> bool:
        """Victims for the claim, told at once and all together, their room reserved for it."""
        if claim.workload.idle is IdleUse.ONLY or queue.may_not_evict(claim.work):
            return False
        if not could_take(self.world, self.demand, claim, tried.pool):
            return False
        if not self._overrides and self.hopeless.has_no_victims(claim, tried.pool):
            return False
        for wider in self._together(claim, tried.pool):
            amount = self.demand.amount(wider.work, wider.keys, tried.pool)
            self._let_in(wider.work, amount, tried.pool)
            case = Case(self.world, self.demand, wider, tried.pool)
            found = candidates(case, _FIRST_LOOK)
            victims = find_victims(case, found.pieces)
            if victims is None and not found.all_seen:
                found = candidates(case)
                victims = find_victims(case, found.pieces)
            if victims is not None:
                self._carry_out(case, victims)
                return True
            self._let_in(wider.work, amount, tried.pool, -1)
            tried.protected = found.would_help
            tried.could_go = tuple(without_parts(found.pieces))
        if not tried.protected and not tried.could_go:
            self.hopeless.note_no_victims(claim, tried.pool)
        return False

    def _together(self, claim: Claim, pool: int) -> list[Claim]:
        """The claim; before it, of a service, all replicas that it lacks: their victims are chosen together."""
        work = claim.work
        if work.workload.gang or len(claim.keys) > 1:
            return [claim]
        taken = set(work.present) | set(work.leaving)
        keys = [
            key
            for at, group in enumerate(work.workload.groups)
            for key in unused(at, group.wanted - work.present_in(at), taken)
        ]
        wider = Claim(work, tuple(keys), growth=False)
        amount = self.demand.amount(work, wider.keys, pool)
        if len(keys) < 2 or not fits_entitlement(self.world, work, amount, pool, LATER):
            return [claim]
        return [wider, claim]

    def _carry_out(self, case: Case, found: Found) -> None:
        facts = eviction_facts(case, found)
        for piece in found.pieces:
            self.world.tell_to_leave(piece.work, piece.keys)
        self._touched.update(piece.work.quota for piece in found.pieces)
        self.hopeless.room_is_coming()
        for piece, rule, fact in zip(found.pieces, found.rules, facts, strict=True):
            self._tell(piece, rule, case.pool, case.work.workload.id, None, None, fact)
        rooms = self.world.pools[case.pool].rooms
        for place in found.places:
            rooms.change(place, -1, now=False, later=True)
        victims = [piece.work for piece in found.pieces]
        rule = max(found.rules, key=lambda rule: rule.value)
        self._reserve(
            case.claim, found.places, case.pool, ReservationKind.HANDOVER, victims, rule, Reason.PREEMPTION_PENDING
        )

    # --- 9: explain ------------------------------------------------------------------------------------

    def _blocked(self, queue: Queue, work: Work, claim: Claim, pools: Sequence[int], verdict: Verdict) -> None:
        refused, pool = verdict
        if not self._has_nodes_kept(queue, claim, pool):
            queue.block(work, pools, self.policy, self.world.now_ms)
        if self._lacks(work):
            self._wait(work, refused.reason, refused.facts, refused.would_unblock, pool)

    def _has_nodes_kept(self, queue: Queue, claim: Claim, pool: int) -> bool:
        """Whether nodes are kept for it, from earlier or from now on: then it holds up nobody."""
        if self.heads.of(claim.work) is not None:
            return True
        if queue.head is not None or pool not in self.world.pools or not self._usable(claim, pool):
            return False
        if self._leaving_before(claim.work, pool):
            return False  # who is still leaving stands before it, so it is no head
        reservation = self.heads.reserve(claim, pool)
        if reservation is None:
            return False
        self.opened.append(reservation)
        self._obey_heads()
        return True

    def _wait(self, work: Work, reason: Reason, facts: Facts, unblock: Facts, pool: int | None) -> None:
        identifier = work.workload.id
        if identifier in self.waits:
            return
        self.waits[identifier] = Wait(identifier, reason, facts, unblock, self._positions.get(identifier), pool=pool)

    def _wait_behind_head(self, queue: Queue, work: Work) -> None:
        if queue.head is not None and self._lacks(work):
            facts: Facts = {"head": queue.head.workload.id, "policy": queue.policy.value}
            self._wait(work, Reason.HEAD_OF_LINE, facts, {"head": "starts"}, None)

    def _wait_for_reserved(self) -> None:
        """Work that waits for a reservation of an earlier cycle."""
        for reservation in (*self.reserved.kept, *self.reserved.opened):
            moving = reservation.kind is ReservationKind.MOVE or not reservation.victims
            incoming = reservation.kind is ReservationKind.INCOMING
            reason = Reason.CONSOLIDATION_PENDING if moving and not incoming else Reason.PREEMPTION_PENDING
            work = self.world.work[reservation.claimant]
            if reservation.claimant not in self.waits and not self._still_leaves(work):
                self._wait_pending(work, reason, reservation.pool, reservation.expires_ms)

    def plan(self) -> Plan:
        """The plan, in an order that depends on ids alone."""
        self._wait_for_reserved()
        self._close_served_heads()
        return Plan(
            starts=tuple(sorted(self.starts, key=lambda s: (s.place.workload, s.place.group, s.place.index))),
            evictions=tuple(self.evictions[identifier] for identifier in sorted(self.evictions)),
            shrinks=tuple(sorted(self.shrinks, key=lambda s: (s.workload, s.workers))),
            moves=tuple(sorted(self.moves, key=lambda m: m.workload)),
            releases=tuple(sorted(self.releases, key=lambda r: r.workload)),
            opened=tuple(sorted(self.opened, key=_opened_key)),
            kept=tuple(sorted(self._kept())),
            closed=tuple(sorted(self.reserved.closed, key=lambda c: c.id)),
            orders_done=tuple(sorted(self.orders_done)),
            waits=tuple(self.waits[identifier] for identifier in sorted(self.waits)),
            ledger=ledger_of(self.world, self.demand),
            borrowed=borrowed_of(self.world),
            over=over_of(self.world),
            order=self._order(),
            wake_ms=next_instant(self.world, (*self.opened, *self.reserved.kept)),
        )

    def _close_served_heads(self) -> None:
        """A head that starts or has its room coming needs no nodes kept any more."""
        for head in list(self.heads.kept):
            if is_waiting(head.work):
                continue
            self.heads.kept.remove(head)
            if head.reservation.id:
                self.reserved.closed.append(ClosedReservation(head.reservation.id, "started"))
            else:
                self.opened.remove(head.reservation)

    def _kept(self) -> list[int]:
        heads = [head.reservation.id for head in self.heads.kept if head.reservation.id]
        return heads + [reservation.id for reservation in self.reserved.kept]

    def _order(self) -> tuple[tuple[int, tuple[int, ...]], ...]:
        by_quota: dict[int, list[tuple[int, int]]] = {}
        for identifier, place in self._positions.items():
            quota = self.world.work[identifier].workload.quota
            by_quota.setdefault(quota, []).append((place, identifier))
        return tuple(
            (quota, tuple(identifier for _, identifier in sorted(by_quota[quota]))) for quota in sorted(by_quota)
        )


def _opened_key(reservation: Reservation) -> tuple[int, str, int, tuple[tuple[int, int], ...]]:
    workers = tuple((place.group, place.index) for place in reservation.places)
    return reservation.claimant, reservation.kind.value, reservation.pool, workers
