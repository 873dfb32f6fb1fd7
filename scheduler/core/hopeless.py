"""What is known to fail in this cycle, so that nothing is tried twice.

Room only shrinks while work starts. So a request that found no regrouping finds none later, and a claim
that found no victims tells that larger claims of its quota, with no higher priority, find none either. When
what evictions of this cycle leave over has come there is another cycle.
"""

from __future__ import annotations

from scheduler.core.claims import Claim, Demand
from scheduler.core.heads import Heads
from scheduler.core.model import Match, Topology
from scheduler.core.rooms import LATER, NOW, Ask
from scheduler.core.tree import RESOURCES, Row

_Alike = tuple[int, Ask, int, tuple[int, ...], Topology]
"""(pool, request, workers, workloads whose kept nodes it leaves alone, topology)."""
_Size = tuple[int, int, Row]
"""(priority, workers, what it is charged)."""


class Hopeless:
    """Failures of one cycle."""

    def __init__(self, demand: Demand, heads: Heads) -> None:
        self._demand, self._heads = demand, heads
        self._regroupings: set[_Alike] = set()
        self._full: dict[int, set[_Alike]] = {NOW: set(), LATER: set()}
        self._victims: dict[tuple[object, ...], list[_Size]] = {}

    def alike(self, claim: Claim, pool: int) -> _Alike | None:
        """What stands for all claims that nodes would serve alike; None for claims of several requests."""
        workload = claim.workload
        if len(workload.groups) > 1 or claim.work.present or workload.groups[0].overrides:
            return None
        ask = self._demand.ask(claim.work, claim.keys[0], pool)
        return pool, ask, len(claim.keys), self._heads.others_of(claim, pool), workload.groups[0].topology

    def is_full(self, alike: _Alike | None, view: int) -> bool:
        """Whether an equal claim found no nodes in this view."""
        return alike in self._full[view]

    def note_full(self, alike: _Alike | None, view: int) -> None:
        """No nodes take this claim in this view."""
        if alike is not None:
            self._full[view].add(alike)

    def room_is_coming(self) -> None:
        """Evictions may leave more than they were for: what will be free is worth another look."""
        self._full[LATER].clear()

    def has_no_regrouping(self, claim: Claim, pool: int) -> bool:
        """Whether an equal claim found none."""
        return self.alike(claim, pool) in self._regroupings

    def note_no_regrouping(self, claim: Claim, pool: int) -> None:
        """No moves let this claim in."""
        alike = self.alike(claim, pool)
        if alike is not None:
            self._regroupings.add(alike)

    def has_no_victims(self, claim: Claim, pool: int) -> bool:
        """Whether a smaller claim of the same quota with no lower priority found none."""
        known = self._victims.get(self._class_of(claim, pool), ())
        if not known:
            return False
        priority, count, amount = self._size(claim, pool)
        return any(p >= priority and c <= count and all(a[r] <= amount[r] for r in RESOURCES) for p, c, a in known)

    def note_no_victims(self, claim: Claim, pool: int) -> None:
        """No lawful victims let this claim in."""
        self._victims.setdefault(self._class_of(claim, pool), []).append(self._size(claim, pool))

    def _size(self, claim: Claim, pool: int) -> _Size:
        return claim.workload.priority, len(claim.keys), self._demand.amount(claim.work, claim.keys, pool)

    def _class_of(self, claim: Claim, pool: int) -> tuple[object, ...]:
        """Claims that the same rules serve, on the same nodes: only their sizes differ."""
        workload, group = claim.workload, claim.workload.groups[claim.keys[0][0]]
        shape = group.shape
        where: tuple[tuple[Match, ...], object] = (shape.select, shape.tolerates)
        plain = not (group.overrides or shape.counted or shape.near or shape.apart or workload.enclosures)
        fraction = (shape.gpu_milli, shape.gpu_memory_mib) if shape.gpu_milli != 1000 else None
        special = None if plain and not group.topology.required else workload.id
        return (
            claim.work.quota, pool, workload.kind, workload.idle, workload.gang, claim.growth, where, fraction,
            special, len(workload.groups) > 1 and workload.id, bool(claim.work.leaving),
        )  # fmt: skip
