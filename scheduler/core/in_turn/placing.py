"""Placing a chunk: domains of the topology, then worker by worker the best node, whole or not at all.

A worker that fits what is free at once starts; one that fits only what is on its way has its place reserved.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from scheduler.core.in_turn.state import PoolState
from scheduler.core.model import Neighbour, Place, Placement, Topology
from scheduler.core.resources import GPU, UNBOUNDED, WHOLE_GPU
from scheduler.core.rooms import FULL, LATER, NOW, Ask, Bools, Ints
from scheduler.core.tree import RESOURCES
from scheduler.core.world import Held, Work, WorkerKey

Key = Callable[[Ints], Ints]


@dataclass(frozen=True, slots=True)
class Put:
    """A worker's place as the steps chose it."""

    work: Work
    key: WorkerKey
    place: Place
    at_once: bool


class Placer:
    """Places chunks of jobs in one pool. Everything it does to the world can be rolled back with it."""

    def __init__(self, state: PoolState) -> None:
        self.state, self.world, self.rooms = state, state.world, state.rooms
        self.reserved: set[tuple[int, WorkerKey]] = set()
        """Workers whose place is only reserved."""
        self.told: dict[tuple[int, WorkerKey], Held] = {}
        """Workers that the steps told to leave, with what they held."""
        self.dropped: dict[tuple[int, WorkerKey], Held] = {}
        """Workers whose reserved place was taken from them again."""

    # --- chunks ----------------------------------------------------------------------------------------

    def place_chunk(self, work: Work, keys: Sequence[WorkerKey], *, later_only: bool, allowed: Bools) -> bool:
        """Place all of the workers or none. With `later_only` nothing starts: places are reserved."""
        if not keys or not self.passes_quotas(work, keys):
            return False
        with self.world.attempt() as attempt:
            if not self._place_inside(work, keys, None, allowed, None, later_only=later_only):
                return False
            if not later_only and self._must_wait(work, keys):
                self._reserve_all(work, keys)
            attempt.keep()
        return True

    def passes_quotas(self, work: Work, keys: Sequence[WorkerKey]) -> bool:
        """Limits for everybody; for work that is not preemptible also the promises, counted over such work alone."""
        if not self.state.settings.judge_quotas:
            return True
        asked = self.state.charge(work, keys)
        for quota in self.state.tree.path[work.quota]:
            used, limit = self.state.used(quota), self.state.books.limit[quota]
            if any(asked[r] and limit[r] < UNBOUNDED and used[r] + asked[r] > limit[r] for r in RESOURCES):
                return False
        return work.workload.preemptible or self.fits_promises(work, asked)

    def fits_promises(self, work: Work, asked: Sequence[int]) -> bool:
        """Whether firm work stays within what is promised at every level."""
        for quota in self.state.tree.path[work.quota]:
            used, promised = self.state.used_firmly(quota), self.state.books.guaranteed[quota]
            if any(asked[r] and promised[r] < UNBOUNDED and used[r] + asked[r] > promised[r] for r in RESOURCES):
                return False
        return True

    def _must_wait(self, work: Work, keys: Sequence[WorkerKey]) -> bool:
        """Whether some group has reserved workers and, without them, fewer than its minimum."""
        identifier = work.workload.id
        for place, group in enumerate(work.workload.groups):
            of_group = [key for key in work.present if key[0] == place]
            waiting = [key for key in of_group if (identifier, key) in self.reserved]
            if any(key in waiting for key in keys) and len(of_group) - len(waiting) < group.minimum:
                return True
        return False

    def _reserve_all(self, work: Work, keys: Sequence[WorkerKey]) -> None:
        """Make reservations of the starts of a chunk: it begins together."""
        for key in keys:
            if (work.workload.id, key) not in self.reserved:
                place = work.present[key].place
                self.world.take_back_start(work, key)
                self.rooms.change(place, -1, now=False, later=True)
                self._reserve(work, key, place)

    # --- topology --------------------------------------------------------------------------------------

    def _place_inside(
        self,
        work: Work,
        keys: Sequence[WorkerKey],
        around: int | None,
        allowed: Bools,
        close: Ints | None,
        *,
        later_only: bool,
    ) -> bool:
        """Place the workers below an enclosure: its groups and inner enclosures, each in a domain that suits it.

        `close` ranks nodes by the wish of what lies around; a wish of its own takes its place.
        """
        workload = work.workload
        for enclosure, each in enumerate(workload.enclosures):
            inside = [key for key in keys if self._is_below(work, key[0], enclosure)]
            if each.inside != around or not inside:
                continue
            if not self._place_in_domain(work, inside, each.topology, allowed, enclosure, close, later_only=later_only):
                return False
        for group in self.state.group_order(work):
            if workload.groups[group].inside == around:
                of_group = [key for key in keys if key[0] == group]
                if of_group and not self._place_in_domain(
                    work, of_group, workload.groups[group].topology, allowed, None, close, later_only=later_only
                ):
                    return False
        return True

    @staticmethod
    def _is_below(work: Work, group: int, enclosure: int) -> bool:
        at = work.workload.groups[group].inside
        while at is not None and at != enclosure:
            at = work.workload.enclosures[at].inside
        return at == enclosure

    def _place_in_domain(
        self,
        work: Work,
        keys: Sequence[WorkerKey],
        topology: Topology,
        allowed: Bools,
        enclosure: int | None,
        around: Ints | None,
        *,
        later_only: bool,
    ) -> bool:
        """Try the domains in order; inside each either the parts of an enclosure or the workers one by one."""
        for domain in self._domains(work, keys, topology, allowed):
            close = self._closeness(topology, domain) if topology.preferred else around
            with self.world.attempt() as attempt:
                if enclosure is not None:
                    done = self._place_inside(work, keys, enclosure, domain, close, later_only=later_only)
                else:
                    done = all(self._place_one(work, key, domain, close, later_only=later_only) for key in keys)
                if done:
                    attempt.keep()
                    return True
        return False

    def _domains(self, work: Work, keys: Sequence[WorkerKey], topology: Topology, allowed: Bools) -> Iterator[Bools]:
        """Sets of nodes that could hold all the workers: the closest first, then the one they fill most."""
        if topology.required is None and topology.preferred is None:
            yield allowed
            return
        levels = topology.levels or tuple(x for x in (topology.required, topology.preferred) if x)
        deepest = levels.index(topology.preferred or topology.required or levels[-1])
        highest = levels.index(topology.required) if topology.required in levels else -1
        for depth in range(deepest, highest - 1, -1):
            for domain in self._domains_at(work, keys, levels, depth, allowed):
                if depth != highest or self._suits_present(work, keys, domain):
                    yield domain

    def _domains_at(
        self, work: Work, keys: Sequence[WorkerKey], levels: Sequence[str], depth: int, allowed: Bools
    ) -> list[Bools]:
        """Domains of one level in the order of the tree: at every level the fullest after the start first."""
        labels = [self.rooms.labels(level) for level in levels[: depth + 1]]
        if depth < 0:
            inside = np.array([label is not None for label in self.rooms.labels(levels[0])], dtype=bool)
            return [allowed & inside] if self._could_hold(work, keys, allowed & inside) else []
        found: dict[tuple[str, ...], Bools] = {}
        for row in np.flatnonzero(allowed):
            path = tuple(values[row] for values in labels)
            if None not in path:
                found.setdefault(path, np.zeros(len(allowed), dtype=bool))[row] = True  # type: ignore[arg-type]

        def order(path: tuple[str, ...]) -> tuple[tuple[float, str], ...]:
            keys_of: list[tuple[float, str]] = []
            for length in range(1, len(path) + 1):
                above = np.any([mask for p, mask in found.items() if p[:length] == path[:length]], axis=0)
                keys_of.append((-self._fill(work, keys, above), path[length - 1]))
            return tuple(keys_of)

        fitting = [path for path, mask in found.items() if self._could_hold(work, keys, mask)]
        return [found[path] for path in sorted(fitting, key=order)]

    def _could_hold(self, work: Work, keys: Sequence[WorkerKey], domain: Bools) -> bool:
        """Whether so many of the largest worker fit; for workers with and without GPUs, whether the sums do."""
        asks = [self.state.demand.ask(work, key, self.state.pool) for key in keys]
        if len({bool(ask.gpus) for ask in asks}) > 1:
            free = int(self.rooms.free_devices(LATER)[domain].sum())
            return free >= sum(ask.gpus * int(ask.millionths[0]) for ask in asks)
        largest = max(asks, key=lambda ask: (ask.charge[GPU], ask.cpu, ask.memory))
        return int(self.rooms.room(largest, LATER)[domain].sum()) >= len(keys)

    def _fill(self, work: Work, keys: Sequence[WorkerKey], domain: Bools) -> float:
        """How full the domain's free GPUs (CPU for work without GPUs) would be."""
        asks = [self.state.demand.ask(work, key, self.state.pool) for key in keys]
        asked = sum(ask.charge[GPU] for ask in asks) * (FULL // WHOLE_GPU)
        free = int(self.rooms.free_devices(LATER)[domain].sum())
        if not asked:
            asked, free = sum(ask.cpu for ask in asks), int(self.rooms.free_bulk(LATER)[domain, 0].sum())
        return asked / free if free else 0.0

    def _suits_present(self, work: Work, keys: Sequence[WorkerKey], domain: Bools) -> bool:
        """Workers that are there already bind the rest to their domain."""
        groups = {key[0] for key in keys}
        rows = [self.rooms.row[held.place.node] for key, held in work.present.items() if key[0] in groups]
        return not rows or any(domain[row] for row in rows)

    def _closeness(self, topology: Topology, domain: Bools) -> Ints | None:
        """For a wish that could not be had whole: a rank of nodes that keeps workers together (smaller is better)."""
        if topology.preferred is None or not topology.levels:
            return None
        level = topology.levels.index(topology.preferred)
        labels = [self.rooms.labels(name) for name in topology.levels[: level + 1]]
        free = self.rooms.free_devices(LATER).sum(axis=1)
        room: dict[tuple[str | None, ...], int] = {}
        paths = [tuple(values[row] for values in labels) for row in range(len(domain))]
        for row in np.flatnonzero(domain):
            room[paths[row]] = room.get(paths[row], 0) + int(free[row])
        emptiest_first = sorted(room, key=lambda path: (room[path], str(path)), reverse=True)
        order = {path: place for place, path in enumerate(emptiest_first)}
        return np.array([order.get(path, len(order)) for path in paths], dtype=np.int64)

    # --- one worker ------------------------------------------------------------------------------------

    def _place_one(self, work: Work, key: WorkerKey, allowed: Bools, close: Ints | None, *, later_only: bool) -> bool:
        ask = self.state.demand.ask(work, key, self.state.pool)
        row = self._best_row(work, ask, allowed, close)
        if row is None:
            return False
        if later_only and self._stays(work, key, ask, row):
            return True
        who = (work.workload.id, *key)
        view, devices = self._when_and_where(ask, row, later_only=later_only)
        place = self.rooms.place(ask, row, view, who, devices)
        if view == NOW:
            self.world.start(work, place, self.state.pool)
        else:
            self._reserve(work, key, place)
        return True

    def _when_and_where(self, ask: Ask, row: int, *, later_only: bool) -> tuple[int, tuple[int, ...]]:
        """Whether a worker starts at once on the node, and its devices.

        A share goes to the best device even if it has to wait for it; on a device that is only reserved it waits too.
        """
        devices = self._devices_of(ask, row)
        if later_only or self.rooms.room(ask, NOW)[row] <= 0:
            return LATER, devices
        if not ask.gpus or int(ask.millionths[row]) == FULL:
            return NOW, self._devices(ask, row, NOW) or self.rooms.devices_for(ask, row, NOW)
        only = np.array([row])
        later, now = self.rooms.free_devices(LATER, only)[0], self.rooms.devices[NOW][row]
        asked = int(ask.millionths[row])
        at_once = all(now[device] >= asked and not later[device] < FULL <= now[device] for device in devices)
        return (NOW if at_once else LATER), devices

    def _reserve(self, work: Work, key: WorkerKey, place: Place) -> None:
        """Note a reserved place; its room is taken already."""
        self.world.reserve(work, place, self.state.pool)
        entry = (work.workload.id, key)
        if entry not in self.reserved:
            self.reserved.add(entry)
            self.world.on_roll_back(lambda: self.reserved.discard(entry))

    def _best_row(self, work: Work, ask: Ask, allowed: Bools, close: Ints | None) -> int | None:
        """The node for one worker among those with room now or on its way."""
        fitting = (self.rooms.room(ask, LATER) > 0) & allowed & self._beside_others(ask)
        rows = np.flatnonzero(fitting)
        if not len(rows):
            return None
        if not self.state.settings.rank_nodes:
            return int(rows[0])
        for key in self._keys(ask, close):
            values = key(rows)
            rows = rows[values == values.min()]
        return int(rows[0])

    def _keys(self, ask: Ask, close: Ints | None) -> list[Key]:
        """What decides between nodes, the most important first; the smallest value is the best."""
        rooms = self.rooms
        sign = -1 if rooms.pool.placement is Placement.SPREAD else 1
        keys: list[Key] = []
        if close is not None:
            keys.append(lambda rows: close[rows])
        if ask.gpus and int(ask.millionths[0]) < FULL:
            keys.append(lambda rows: (self._started_with_room(ask, rows) < ask.gpus).astype(np.int64))
        keys.append(lambda rows: (rooms.room(ask, NOW)[rows] <= 0).astype(np.int64))
        if ask.gpus:
            keys.append(lambda rows: (rooms.free_devices(LATER, rows) >= FULL).sum(axis=1) * sign)
        else:
            keys.append(lambda rows: (rooms.device_size[rows].sum(axis=1) > 0).astype(np.int64))
            keys.append(lambda rows: rooms.free_bulk(LATER, rows)[:, 0] * sign)
        return keys

    def _started_with_room(self, ask: Ask, rows: Ints) -> Ints:
        free = self.rooms.free_devices(LATER, rows)
        started = (free < FULL) & (free >= ask.millionths[rows, None]) & (self.rooms.device_size[rows] > 0)
        return np.asarray(started.sum(axis=1), dtype=np.int64)

    def _devices(self, ask: Ask, row: int, view: int) -> tuple[int, ...] | None:
        """Devices of a share by the settings; None leaves the choice to the tables."""
        settings = self.state.settings
        if not ask.gpus or (settings.rank_devices and not settings.spread_devices):
            return None
        free = self.rooms.free_devices(view, np.array([row]))[0]
        asked = int(ask.millionths[row])
        fitting = [place for place in range(len(free)) if free[place] >= asked]
        if settings.spread_devices:
            fitting.sort(key=lambda place: (-int(free[place]), place))
        return tuple(sorted(fitting[: ask.gpus]))

    # --- neighbours ------------------------------------------------------------------------------------

    def _beside_others(self, ask: Ask) -> Bools:
        """Nodes that lie in a domain with all wanted neighbours and none of the unwanted."""
        allowed = np.ones(len(self.rooms), dtype=bool)
        for neighbour in ask.shape.near:
            allowed &= self._domain_of(neighbour)
        for neighbour in ask.shape.apart:
            allowed &= ~self._domain_of(neighbour)
        return allowed

    def _domain_of(self, neighbour: Neighbour) -> Bools:
        values = self.rooms.labels(neighbour.within)
        wanted = set(neighbour.labels)
        there = set()
        for work in self.world.work.values():
            for key, held in work.present.items():
                ask = self.state.demand.ask(work, key, self.state.pool)
                if wanted <= set(ask.shape.labels) and held.place.node in self.rooms.row:
                    there.add(values[self.rooms.row[held.place.node]])
        there.discard(None)
        return np.array([value in there for value in values], dtype=bool)

    # --- leaving and staying ---------------------------------------------------------------------------

    def tell(self, work: Work, keys: Sequence[WorkerKey]) -> None:
        """Tell running workers to leave, and take reserved places back."""
        for key in keys:
            entry, held = (work.workload.id, key), work.present[key]
            self._set(self.told if held.live else self.dropped, entry, held)
            if held.live:
                self.world.tell_to_leave(work, [key])
            else:
                self.world.withdraw(work, [key])
                self.reserved.discard(entry)
                self.world.on_roll_back(lambda entry=entry: self.reserved.add(entry))  # type: ignore[misc]

    def _set(self, table: dict[tuple[int, WorkerKey], Held], entry: tuple[int, WorkerKey], held: Held) -> None:
        before = table.get(entry)
        table[entry] = held

        def undo() -> None:
            if before is None:
                table.pop(entry, None)
            else:
                table[entry] = before

        self.world.on_roll_back(undo)

    def taken_from(self, entry: tuple[int, WorkerKey]) -> Place:
        """The place that a worker lost: where it has its room, or where it would have had it."""
        held = self.dropped.get(entry) or self.told[entry]
        return held.place

    def can_lose(self, work: Work) -> list[WorkerKey]:
        """Workers that run, or whose place is only reserved."""
        identifier = work.workload.id
        return [key for key, held in work.present.items() if held.live or (identifier, key) in self.reserved]

    def _stays(self, work: Work, key: WorkerKey, ask: Ask, row: int) -> bool:
        """Whether a worker that was told to leave is put back where it still sits: then it simply stays.

        A share that could only go to another device of its node moves instead.
        """
        entry = (work.workload.id, key)
        held = self.told.get(entry)
        if held is None or self.rooms.row[held.place.node] != row:
            return False
        if not self._free_devices_of(held.place, row):
            if int(ask.millionths[row]) < FULL or not self._make_way(held.place, row):
                return False
        elif 0 < int(ask.millionths[row]) < FULL and self._devices_of(ask, row) != held.place.devices:
            return False
        self.world.stay(work, key, held)
        self.told.pop(entry)
        self.world.on_roll_back(lambda: self.told.__setitem__(entry, held))
        return True

    def _devices_of(self, ask: Ask, row: int) -> tuple[int, ...]:
        return self._devices(ask, row, LATER) or self.rooms.devices_for(ask, row, LATER)

    def _free_devices_of(self, place: Place, row: int) -> bool:
        free = self.rooms.free_devices(LATER, np.array([row]))[0]
        use = self.rooms.device_use(place, row)
        return all(free[device] >= use for device in place.devices)

    def _make_way(self, wanted: Place, row: int) -> bool:
        """Put reserved workers that hold the wanted whole devices on others of the same node."""
        blockers = [
            (work, key, held)
            for work in self.world.work.values()
            for key, held in work.present.items()
            if (work.workload.id, key) in self.reserved
            and held.place.node == wanted.node
            and set(held.place.devices) & set(wanted.devices)
        ]
        for work, key, _ in blockers:
            self.world.withdraw(work, [key])
        self.rooms.change(wanted, -1, now=False, later=True)
        for work, key, held in blockers:
            ask = self.state.demand.ask(work, key, self.state.pool)
            if self.rooms.room(ask, LATER)[row] <= 0:
                return False
            place = self.rooms.place(ask, row, LATER, (held.place.workload, held.place.group, held.place.index))
            self._reserve(work, key, place)
        self.rooms.change(wanted, +1, now=False, later=True)
        return self._free_devices_of(wanted, row)
