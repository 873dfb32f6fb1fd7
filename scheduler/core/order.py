"""Order: each quota's own queue, and whose turn it is between quotas."""

from __future__ import annotations

import heapq
from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import partial

from scheduler.core.admit import fits_entitlement, fits_share, ratio
from scheduler.core.claims import Claim, Demand
from scheduler.core.model import QueuePolicy
from scheduler.core.policy import Policy
from scheduler.core.rooms import LATER
from scheduler.core.tree import POOL, Row, own_side
from scheduler.core.world import Work, World

Key = tuple[bool, bool, tuple[float, ...], int, int]
"""(beyond its entitlement, beyond its share, used over share from the root down, submission, id)."""
_UNKNOWN: Key = (False, False, (), -1, -1)
"""Smaller than every key: to be looked at first."""


def effective_priority(work: Work, policy: Policy, queue_policy: QueuePolicy, now_ms: int) -> int:
    """The priority in its queue: in an intelligent queue waiting raises it step by step up to the ceiling."""
    priority = work.workload.priority
    if queue_policy is not QueuePolicy.INTELLIGENT or policy.ageing_step_ms <= 0:
        return priority
    steps = max(0, now_ms - waiting_since(work)) // policy.ageing_step_ms
    return max(priority, min(policy.ageing_ceiling, priority + int(steps)))


def waiting_since(work: Work) -> int:
    """Since when it waits, in milliseconds."""
    since = work.workload.waiting_since_ms
    return work.workload.submitted_ms if since is None else since


@dataclass(eq=False)
class Queue:
    """The waiting work of one quota in order, and how far this cycle has come."""

    quota: int
    policy: QueuePolicy
    entries: list[Work]
    growing: list[Work] = field(default_factory=list)
    at: int = 0
    blocked_pools: set[int] = field(default_factory=set)
    """Pools in which a blocked head holds up all behind it."""
    head: Work | None = None
    """The first that was blocked."""
    blocked: int = 0
    window: int = 1
    calm: set[int] = field(default_factory=set)
    """Work behind a victim of an open reservation: it evicts nobody meanwhile."""

    def current(self) -> Work | None:
        """Whose turn it is in this queue."""
        if self.at < len(self.entries):
            return self.entries[self.at]
        place = self.at - len(self.entries)
        return self.growing[place] if place < len(self.growing) else None

    def is_growing(self, work: Work) -> bool:
        """Whether its turn now is one of those of elastic work above its minimum."""
        return self.at >= len(self.entries) and work in self.growing

    def hold_evictions_behind(self, victim: Work, world: World) -> None:
        """Work that stands behind a victim in this queue evicts nobody meanwhile."""
        place = queue_key(world, victim, self.policy)
        self.calm.update(work.workload.id for work in self.entries if queue_key(world, work, self.policy) > place)
        self.calm.update(work.workload.id for work in self.growing)

    def may_not_evict(self, work: Work) -> bool:
        """Whether it stands behind a victim whose room is being handed over."""
        return work.workload.id in self.calm

    def block(self, work: Work, pools: Iterable[int], policy: Policy, now_ms: int) -> None:
        """The current one is blocked: what that means for those behind it."""
        if self.head is None:
            self.head = work
            self.window = 1 + int(max(0, now_ms - waiting_since(work)) // max(1, policy.balance_timeout_ms))
        self.blocked += 1
        if self._holds_up(work, policy):
            self.blocked_pools.update(pools)

    def _holds_up(self, work: Work, policy: Policy) -> bool:
        if self.policy is QueuePolicy.FIFO:
            return True
        if self.policy is QueuePolicy.BALANCE:
            return self.blocked >= self.window
        return self.policy is QueuePolicy.INTELLIGENT and work.workload.priority >= policy.blocking_priority


def queues_of(world: World, demand: Demand, waiting: Iterable[Work]) -> dict[int, Queue]:
    """A queue for each quota with waiting work: by effective priority, operators' order, submission, id."""
    by_quota: dict[int, list[Work]] = {}
    growing: dict[int, list[Work]] = {}
    for work in waiting:
        claim = demand.next(work)
        table = growing if claim is not None and claim.growth else by_quota
        table.setdefault(work.quota, []).append(work)
    queues = {}
    for quota in sorted(set(by_quota) | set(growing)):
        policy = world.tree.quotas[quota].queue_policy
        place = partial(queue_key, world, policy=policy)
        entries = sorted(by_quota.get(quota, []), key=place)
        grown = sorted(growing.get(quota, []), key=place)
        queues[quota] = Queue(quota, policy, entries, grown)
    return queues


def queue_key(world: World, work: Work, policy: QueuePolicy) -> tuple[int, int, int, int]:
    """The place in the own queue: effective priority, operators' order, first submission, id."""
    workload = work.workload
    effective = effective_priority(work, world.policy, policy, world.now_ms)
    return -effective, workload.position, workload.submitted_ms, workload.id


class Turns:
    """Whose turn it is between quotas: heaps of sides, level by level.

    A key only gets worse while work starts, so an entry's remembered key is a lower bound that is checked when
    it comes to the top. Where keys may get better (`renew`, `renew_all`) the side is marked to be looked at.
    """

    def __init__(self, world: World, demand: Demand, queues: dict[int, Queue]) -> None:
        self.world, self.demand, self.queues = world, demand, queues
        self._heaps: dict[int, list[tuple[Key, int]]] = {}
        self._keys: dict[int, Key | None] = {}
        self._heads: dict[int, tuple[tuple[int, int, int], Row, int]] = {}
        self.renew_all()

    def renew(self, quota: int) -> None:
        """The head of a quota's queue changed, or it holds less than before."""
        tree = self.world.tree
        self._mark(quota, own_side(quota))
        for below in reversed(tree.path[quota]):
            self._mark(tree.parent[below], below)

    def renew_all(self) -> None:
        """Anything may have changed (evictions, a new division)."""
        for quota in self.queues:
            self.renew(quota)

    def _mark(self, above: int, side: int) -> None:
        if self._keys.get(side) != _UNKNOWN:
            self._keys[side] = _UNKNOWN
            heapq.heappush(self._heaps.setdefault(above, []), (_UNKNOWN, side))

    def next(self) -> tuple[Work, Claim] | None:
        """The work whose turn it is, with its claim; None when all queues are through."""
        quota = POOL
        if self._best(POOL) is None:
            return None
        while True:
            side = self._heaps[quota][0][1]
            if side < POOL:
                work = self.queues[-2 - side].current()
                claim = None if work is None else self.demand.next(work)
                if work is None or claim is None:
                    raise RuntimeError("a queue's head has nothing to ask for")
                return work, claim
            quota = side

    def _best(self, quota: int) -> Key | None:
        """The smallest key below a quota, which then stands at the top of its heap."""
        heap = self._heaps.get(quota, [])
        while heap:
            key, side = heap[0]
            if self._keys.get(side) != key:
                heapq.heappop(heap)
                continue
            fresh = self._fresh(side)
            if fresh == key:
                return key
            self._keys[side] = fresh
            if fresh is None:
                heapq.heappop(heap)
            else:
                heapq.heapreplace(heap, (fresh, side))
        return None

    def _fresh(self, side: int) -> Key | None:
        if side < POOL:
            return self._own_key(-2 - side)
        best = self._best(side)
        if best is None:
            return None
        beyond, over, ratios, submitted, identifier = best
        return beyond, over, (self._ratio_below(side), *ratios), submitted, identifier

    def _ratio_below(self, side: int) -> float:
        """Used over share of a quota for the head that would have its turn below it."""
        quota = side
        while quota > POOL:
            quota = self._heaps[quota][0][1]
        asked, pool = self._asked(-2 - quota)
        return ratio(self.world, side, asked, pool)

    def _asked(self, quota: int) -> tuple[Row, int]:
        """What the head of a queue asks for, and the pool in which it is judged; remembered for that head."""
        queue = self.queues[quota]
        work = queue.current()
        if work is None:
            return [0, 0, 0], min(self.world.pools)
        head = (work.workload.id, work.changes, len(queue.blocked_pools))
        known = self._heads.get(quota)
        if known is None or known[0] != head:
            pool, claim = self.first_pool(queue, work), self.demand.next(work)
            asked = [0, 0, 0] if claim is None else self.demand.amount(work, claim.keys, pool)
            known = self._heads[quota] = (head, asked, pool)
        return known[1], known[2]

    def first_pool(self, queue: Queue, work: Work) -> int:
        """The pool in which it is judged: the first it wants that is not held up."""
        wanted = self.world.wanted_pools(work) or tuple(self.world.pools)
        return next((pool for pool in wanted if pool not in queue.blocked_pools), wanted[0])

    def _own_key(self, quota: int) -> Key | None:
        queue = self.queues.get(quota)
        work = None if queue is None else queue.current()
        if queue is None or work is None:
            return None
        asked, pool = self._asked(quota)
        within = fits_entitlement(self.world, work, asked, pool, LATER)
        shared = within or fits_share(self.world, work, asked, pool, LATER)
        ratios: tuple[float, ...] = ()
        if self.world.tree.children[quota]:
            ratios = (-1.0,) if work.switch_claimant else (ratio(self.world, own_side(quota), asked, pool),)
        return not within, not shared, ratios, work.workload.submitted_ms, work.workload.id
