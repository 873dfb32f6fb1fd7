"""What quotas hold in one pool, and the charge: whose work is covered by a promise and whose is borrowed.

Two views as in `rooms.py`: `NOW` counts what is leaving as used, `LATER` counts it as gone and counts what
is reserved for claimants as theirs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from scheduler.core.divide import Division
from scheduler.core.model import IdleUse, Workload
from scheduler.core.resources import UNBOUNDED
from scheduler.core.rooms import LATER, NOW
from scheduler.core.tree import RESOURCES, PoolBooks, Row, Tree, own_side, quota_of_side

ChargeKey = tuple[bool, bool, int, int, int, int]
_IDLE_ORDER = {IdleUse.NEVER: 0, IdleUse.ALLOW: 1, IdleUse.ONLY: 2}


def is_switch_claimant(tree: Tree, workload: Workload) -> bool:
    """Own work of a claimant kind, with the quota's child-level switch on and idle use other than `only`."""
    switch = tree.quotas[tree.index[workload.quota]].child_preemption
    return switch.enabled and workload.kind in switch.claimants and workload.idle is not IdleUse.ONLY


def charge_key(workload: Workload, switch_claimant: bool, started_ms: int) -> ChargeKey:
    """The order in which running work fills an entitlement; what comes last borrows first."""
    return (
        not switch_claimant,
        workload.preemptible,
        _IDLE_ORDER[workload.idle],
        -workload.priority,
        started_ms,
        workload.id,
    )


@dataclass(eq=False)
class Member:
    """A workload that holds room in the pool: what it holds in each view."""

    workload: Workload
    quota: int
    switch_claimant: bool
    key: ChargeKey
    held: list[Row]


@dataclass(eq=False)
class _Charge:
    """The borrowed parts at a side as they were at a version of its quota."""

    version: int
    borrowed: dict[int, Row]


class Accounts:
    """The books of one pool during a cycle. Changes are journaled and undone by `roll_back`."""

    def __init__(self, tree: Tree, books: PoolBooks, capacity: Row) -> None:
        count = len(tree.quotas)
        self.tree, self.books, self.capacity = tree, books, capacity
        self.used = [[[0, 0, 0] for _ in range(count)] for _ in (NOW, LATER)]
        self.own = [[[0, 0, 0] for _ in range(count)] for _ in (NOW, LATER)]
        self.switch = [[[0, 0, 0] for _ in range(count)] for _ in (NOW, LATER)]
        self.members: list[dict[int, Member]] = [{} for _ in range(count)]
        self.member: dict[int, Member] = {}
        self.division: Division | None = None
        self._version = [0] * count
        self._charges: dict[tuple[int, int], _Charge] = {}
        self._journal: list[Callable[[], None]] = []
        self._kept_in = [[[0, 0, 0] for _ in range(count)] for _ in (NOW, LATER)]
        self._kept_up = [[[0, 0, 0] for _ in range(count)] for _ in (NOW, LATER)]
        self._kept_all = [[0, 0, 0], [0, 0, 0]]

    @property
    def worth(self) -> Division:
        """The division in force."""
        if self.division is None:
            raise RuntimeError("divide before judging")
        return self.division

    def set_division(self, division: Division) -> None:
        """Judge by this division from now on."""
        self.division = division
        self._charges.clear()
        if not self.books.lends_freely:
            self._count_kept()

    # --- holding ---------------------------------------------------------------------------------------

    def change(
        self, workload: Workload, amount: Sequence[int], sign: int, started_ms: int, *, now: bool, later: bool
    ) -> None:
        """A workload takes (+1) or gives back (-1) an amount in one or both views."""
        row = [sign * value for value in amount]
        self._change(workload, row, started_ms, now, later)
        back = [-value for value in row]
        self._journal.append(lambda: self._change(workload, back, started_ms, now, later))

    def _change(self, workload: Workload, row: Row, started_ms: int, now: bool, later: bool) -> None:
        quota = self.tree.index[workload.quota]
        member = self.member.get(workload.id)
        if member is None:
            switch = is_switch_claimant(self.tree, workload)
            key = charge_key(workload, switch, started_ms)
            member = Member(workload, quota, switch, key, [[0, 0, 0], [0, 0, 0]])
            self.members[quota][workload.id] = self.member[workload.id] = member
        for view, wanted in ((NOW, now), (LATER, later)):
            if wanted:
                self._add(member, view, row)
        if not any(member.held[NOW]) and not any(member.held[LATER]):
            del self.members[quota][workload.id], self.member[workload.id]
        for above in self.tree.path[quota]:
            self._version[above] += 1

    def _add(self, member: Member, view: int, row: Row) -> None:
        quota = member.quota
        totals = [self.used[view][above] for above in self.tree.path[quota]]
        totals += [self.own[view][quota], member.held[view]]
        if member.switch_claimant:
            totals.append(self.switch[view][quota])
        for total in totals:
            for r in RESOURCES:
                total[r] += row[r]
        if not self.books.lends_freely and self.division is not None:
            self._keep(view, quota, row)

    def mark(self) -> int:
        """A point to which `roll_back` can return."""
        return len(self._journal)

    def forget_journal(self) -> None:
        """What was changed so far is never undone."""
        self._journal.clear()

    def roll_back(self, mark: int) -> None:
        """Undo all changes since the mark, the newest first."""
        while len(self._journal) > mark:
            self._journal.pop()()

    def held_by_side(self, side: int, view: int) -> Row:
        """What a side holds."""
        return self.used[view][side] if side >= 0 else self.own[view][quota_of_side(side)]

    # --- charge ----------------------------------------------------------------------------------------

    def borrowed(self, side: int, view: int = LATER) -> dict[int, Row]:
        """The borrowed part of each workload at a side, by workload id; who borrows nothing is not in it."""
        quota = quota_of_side(side)
        known = self._charges.get((side, view))
        if known is not None and known.version == self._version[quota]:
            return known.borrowed
        found = self._charge_own(quota, view) if side < 0 else self._charge_quota(quota, view)
        self._charges[side, view] = _Charge(self._version[quota], found)
        return found

    def _charge_own(self, quota: int, view: int) -> dict[int, Row]:
        """Switch claimants fill their part, other own work the own room."""
        worth = self.worth
        members = [member for member in self.members[quota].values() if any(member.held[view])]
        borrowed: dict[int, Row] = {}
        for wanted, entitlement in ((True, worth.own_switch[quota]), (False, worth.own_other[quota])):
            group = [member for member in members if member.switch_claimant is wanted]
            self._fill([(member, member.held[view]) for member in group], entitlement, borrowed)
        return borrowed

    def _charge_quota(self, quota: int, view: int) -> dict[int, Row]:
        """What the sides' entitlements cover comes first; what they borrow fills the rest of this one."""
        sides = [own_side(quota), *self.tree.children[quota]]
        parts: list[tuple[Member, Row]] = []
        covered = list(self.used[view][quota])
        for side in sides:
            for identifier, row in self.borrowed(side, view).items():
                parts.append((self.member[identifier], row))
                for r in RESOURCES:
                    covered[r] -= row[r]
        entitlement = self.worth.entitlement[quota]
        left = [UNBOUNDED if entitlement[r] >= UNBOUNDED else max(0, entitlement[r] - covered[r]) for r in RESOURCES]
        borrowed: dict[int, Row] = {}
        self._fill(parts, left, borrowed)
        if any(covered[r] > entitlement[r] for r in RESOURCES):
            self._fill_covered(quota, view, dict(_by_id(parts)), borrowed)
        return borrowed

    def _fill_covered(self, quota: int, view: int, borrowed_below: dict[int, Row], borrowed: dict[int, Row]) -> None:
        """Sides that give no amount cover all of their own: what of that is beyond this quota is borrowed here."""
        parts = []
        for member in self._members_below(quota):
            beyond = borrowed_below.get(member.workload.id, [0, 0, 0])
            parts.append((member, [member.held[view][r] - beyond[r] for r in RESOURCES]))
        more: dict[int, Row] = {}
        self._fill(parts, self.worth.entitlement[quota], more)
        for identifier, row in more.items():
            known = borrowed.setdefault(identifier, [0, 0, 0])
            for r in RESOURCES:
                known[r] += row[r]

    def _members_below(self, quota: int) -> Iterable[Member]:
        yield from self.members[quota].values()
        for child in self.tree.children[quota]:
            yield from self._members_below(child)

    def _fill(self, parts: Sequence[tuple[Member, Row]], room: Row, borrowed: dict[int, Row]) -> None:
        """Note what of each part is beyond the room; `only` is always beyond it and takes nothing of it."""
        beyond = self._beyond(parts, room)
        if not any(beyond):
            for member, row in parts:
                if member.workload.idle is IdleUse.ONLY and any(row):
                    borrowed[member.workload.id] = list(row)
            return
        by_order = sorted(parts, key=lambda part: part[0].key, reverse=True)
        for member, row in by_order:
            if member.workload.idle is IdleUse.ONLY:
                borrowed[member.workload.id] = list(row)
                continue
            if not any(beyond):
                continue
            taken = [min(row[r], beyond[r]) for r in RESOURCES]
            if any(taken):
                borrowed[member.workload.id] = taken
                beyond = [beyond[r] - taken[r] for r in RESOURCES]

    def _beyond(self, parts: Sequence[tuple[Member, Row]], room: Row) -> Row:
        """How much of what may fill the room is more than it."""
        beyond = [0, 0, 0]
        for member, row in parts:
            if member.workload.idle is not IdleUse.ONLY:
                for r in RESOURCES:
                    beyond[r] += row[r]
        return [0 if room[r] >= UNBOUNDED else max(0, beyond[r] - room[r]) for r in RESOURCES]

    # --- lending ---------------------------------------------------------------------------------------

    def _count_kept(self) -> None:
        """What each quota takes of the room above it: what its subtree uses and what it does not lend."""
        for view in (NOW, LATER):
            self._kept_all[view] = [0, 0, 0]
            for quota in reversed(range(len(self.tree.quotas))):
                inside = list(self.own[view][quota])
                for child in self.tree.children[quota]:
                    for r in RESOURCES:
                        inside[r] += self._kept_up[view][child][r]
                self._kept_in[view][quota] = inside
                self._kept_up[view][quota] = [self._with_unlent(quota, r, inside[r]) for r in RESOURCES]
            for root in self.tree.roots:
                for r in RESOURCES:
                    self._kept_all[view][r] += self._kept_up[view][root][r]

    def _with_unlent(self, quota: int, r: int, inside: int) -> int:
        promise, lending = self.worth.promise[quota][r], self.books.lending[quota][r]
        if promise >= UNBOUNDED or lending >= UNBOUNDED:
            return inside
        return inside + max(0, promise - inside - lending)

    def _keep(self, view: int, quota: int, row: Row) -> None:
        """Bring the counts of `_count_kept` up to date after a change of own work."""
        for r in RESOURCES:
            step = row[r]
            for above in reversed(self.tree.path[quota]):
                if not step:
                    break
                self._kept_in[view][above][r] += step
                kept = self._with_unlent(above, r, self._kept_in[view][above][r])
                step = kept - self._kept_up[view][above][r]
                self._kept_up[view][above][r] = kept
            self._kept_all[view][r] += step

    def is_lent(self, quota: int, amount: Sequence[int], view: int) -> bool:
        """Whether so much more for a quota's own work leaves untouched what nobody lends."""
        if self.books.lends_freely:
            return True
        for r in RESOURCES:
            step = amount[r]
            for above in reversed(self.tree.path[quota]):
                kept = self._with_unlent(above, r, self._kept_in[view][above][r] + step)
                step = kept - self._kept_up[view][above][r]
            if step > 0 and self._kept_all[view][r] + step > self.capacity[r]:
                return False
        return True


def _by_id(parts: Iterable[tuple[Member, Row]]) -> Iterable[tuple[int, Row]]:
    return ((member.workload.id, row) for member, row in parts)
