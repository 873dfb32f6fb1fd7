"""The nodes of one pool as tables: who fits where, and taking and giving back room.

There are two views. `NOW` is what is free at this moment and kept for nobody: work may start there at once.
`LATER` is what will be free when all that is leaving has gone: victims and reservations are planned there.
Devices are counted in millionths, so that requests for device memory are exact to a millionth.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
import numpy.typing as npt

from scheduler.core.model import Kind, Match, Node, NodeState, Place, Placement, Pool, Shape
from scheduler.core.resources import CPU, GPU, UNBOUNDED, WHOLE_GPU, share_of_memory
from scheduler.core.tree import Row

Ints = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]

NOW, LATER = 0, 1
FULL = 1_000_000
"""A whole device in millionths."""
MILLI = FULL // WHOLE_GPU
_COMPARED = 64
"""Up to so many equal nodes are compared by what they could still be used for."""
_ENOUGH = 2**31
"""More workers than any node takes."""


@dataclass(frozen=True, eq=False)
class Ask:
    """One worker's request as numbers for the nodes of one pool. Equal requests share one."""

    index: int
    shape: Shape
    kind: Kind
    mask: Bools
    """Nodes that would take it if they were empty of work: open, and every condition on labels holds."""
    never: str
    """Why no node would take it even when empty ("size", "labels"), or an empty string."""
    prefer: Ints | None
    """How many preferences each node meets."""
    gpus: int
    millionths: Ints
    """Of each device, by node."""
    cpu: int
    memory: int
    counted: tuple[tuple[str, int], ...]
    charge: tuple[int, int, int]
    """What the quota is charged before the node is known: the smallest suitable device is assumed."""


@dataclass(eq=False)
class _Kept:
    """A remembered answer and the number of changes it has seen."""

    value: Ints
    changes: int
    total: int | None = None


class Rooms:
    """The nodes of one pool. Rows are nodes in id order."""

    def __init__(self, pool: Pool, nodes: Iterable[Node], memory_step_milli: int = 1) -> None:
        self.pool = pool
        self.nodes = tuple(sorted(nodes, key=lambda node: node.id))
        self.row = {node.id: row for row, node in enumerate(self.nodes)}
        self.memory_step_milli = memory_step_milli
        self.open = np.array([node.state is NodeState.READY for node in self.nodes], dtype=bool)
        self._size_tables()
        self.mix: list[tuple[Ask, int]] = []
        """The most common requests for GPUs, with how many workers ask for each: what usable room is judged by."""
        self._changes = 0
        self._changed = np.zeros(len(self.nodes), dtype=np.int64)
        self._journal: list[Callable[[], None]] = []
        self._room: dict[tuple[int, int], _Kept] = {}
        self._asks: dict[tuple[Shape, Kind, tuple[Match, ...], tuple[Match, ...]], Ask] = {}
        self._label_rows: dict[str, list[str | None]] = {}

    def __len__(self) -> int:
        return len(self.nodes)

    def _size_tables(self) -> None:
        width = max((len(node.devices) for node in self.nodes), default=0)
        count = len(self.nodes)
        self.device_size = np.zeros((count, width), dtype=np.int64)
        self.device_memory = np.zeros(count, dtype=np.int64)
        self.bulk_size = np.zeros((count, 2), dtype=np.int64)
        for row, node in enumerate(self.nodes):
            for place, device in enumerate(node.devices):
                self.device_size[row, place] = FULL if device.healthy else 0
            self.device_memory[row] = min((d.memory_mib for d in node.devices), default=0)
            self.bulk_size[row] = (
                UNBOUNDED if node.cpu_milli is None else node.cpu_milli,
                UNBOUNDED if node.memory_mib is None else node.memory_mib,
            )
        self.devices = [self.device_size.copy(), self.device_size.copy()]
        self.bulk = [self.bulk_size.copy(), self.bulk_size.copy()]
        self.counted_size = self._counted_sizes()
        self.counted = [{name: size.copy() for name, size in self.counted_size.items()} for _ in (NOW, LATER)]

    def _counted_sizes(self) -> dict[str, Ints]:
        names = sorted({name for node in self.nodes for name, _ in node.counted})
        sizes = {name: np.zeros(len(self.nodes), dtype=np.int64) for name in names}
        for row, node in enumerate(self.nodes):
            for name, size in node.counted:
                sizes[name][row] = size
        return sizes

    def capacity(self) -> Row:
        """What is there in all: lost nodes and bad devices are not, cordoned nodes are."""
        there = np.array([node.state is not NodeState.LOST for node in self.nodes], dtype=bool)
        bulk = self.bulk_size[there]
        bounded = [UNBOUNDED if (bulk[:, c] >= UNBOUNDED).any() else int(bulk[:, c].sum()) for c in (0, 1)]
        counted = sum(node.counted_gpu_milli for node in self.nodes if node.state is not NodeState.LOST)
        return [int(self.device_size[there].sum()) // MILLI + counted, *bounded]

    # --- asking ----------------------------------------------------------------------------------------

    def ask_of(
        self,
        shape: Shape,
        kind: Kind,
        required: tuple[Match, ...] = (),
        preferred: tuple[Match, ...] = (),
    ) -> Ask:
        """The request of one worker of this kind, with further conditions of its quota."""
        key = (shape, kind, required, preferred)
        ask = self._asks.get(key)
        if ask is None:
            ask = self._asks[key] = self._make_ask(shape, kind, required, preferred)
        return ask

    def _make_ask(self, shape: Shape, kind: Kind, required: tuple[Match, ...], preferred: tuple[Match, ...]) -> Ask:
        welcome = self._welcoming(shape, kind, (*shape.select, *required))
        millionths = self._millionths(shape)
        big_enough = self._workers_in(self.device_size, self.bulk_size, self.counted_size, shape, millionths) > 0
        never = "" if (welcome & big_enough).any() else ("size" if welcome.any() else "labels")
        suited = welcome & big_enough
        return Ask(
            index=len(self._asks),
            shape=shape,
            kind=kind,
            mask=suited & self.open,
            never=never,
            prefer=self._met((*shape.prefer, *preferred)),
            gpus=shape.gpu_count,
            millionths=millionths,
            cpu=shape.cpu_milli,
            memory=shape.memory_mib,
            counted=shape.counted,
            charge=(self._charge(shape, suited), shape.cpu_milli, shape.memory_mib),
        )

    def _welcoming(self, shape: Shape, kind: Kind, matches: Sequence[Match]) -> Bools:
        """Nodes whose labels, taints and pool let it in, whatever they hold and whatever state they are in."""
        welcome = np.array(
            [node.state is not NodeState.LOST and set(node.taints) <= set(shape.tolerates) for node in self.nodes],
            dtype=bool,
        )
        if kind not in self.pool.kinds:
            welcome[:] = False
        for match in matches:
            welcome &= self._matches(match)
        return welcome

    def _matches(self, match: Match) -> Bools:
        return np.array([value in match.values for value in self.labels(match.label)], dtype=bool)

    def _met(self, matches: Sequence[Match]) -> Ints | None:
        if not matches:
            return None
        met = np.zeros(len(self.nodes), dtype=np.int64)
        for match in matches:
            met += self._matches(match)
        return met

    def labels(self, label: str) -> list[str | None]:
        """The value of a label on every node, None where it is missing."""
        values = self._label_rows.get(label)
        if values is None:
            values = [dict(node.labels).get(label) for node in self.nodes]
            self._label_rows[label] = values
        return values

    def _millionths(self, shape: Shape) -> Ints:
        """How much of a device one worker takes on each node."""
        if shape.gpu_count and shape.gpu_memory_mib:
            memory = np.maximum(self.device_memory, 1)
            return -(-np.full(len(self.nodes), shape.gpu_memory_mib, dtype=np.int64) * FULL // memory)
        return np.full(len(self.nodes), shape.gpu_milli * MILLI, dtype=np.int64)

    def _charge(self, shape: Shape, suited: Bools) -> int:
        if shape.quota_gpu_milli is not None:
            return shape.quota_gpu_milli
        if not shape.gpu_memory_mib:
            return shape.gpu_count * shape.gpu_milli
        memory = self.device_memory[suited]
        smallest = int(memory.min()) if len(memory) else 0
        return shape.gpu_count * share_of_memory(shape.gpu_memory_mib, smallest, self.memory_step_milli)

    # --- who fits where --------------------------------------------------------------------------------

    def room(self, ask: Ask, view: int) -> Ints:
        """How many such workers each node takes in this view. Read only."""
        kept = self._room.get((ask.index, view))
        if kept is None:
            value = self._room_in(ask, view, slice(None))
            self._room[ask.index, view] = _Kept(value, self._changes)
            return value
        if kept.changes != self._changes:
            rows = np.flatnonzero(self._changed > kept.changes)
            if len(rows):
                kept.value[rows] = self._room_in(ask, view, rows)
                kept.total = None
            kept.changes = self._changes
        return kept.value

    def total_room(self, ask: Ask, view: int) -> int:
        """How many such workers all nodes take together in this view."""
        room = self.room(ask, view)
        kept = self._room[ask.index, view]
        if kept.total is None:
            kept.total = int(room.sum())
        return kept.total

    def _room_in(self, ask: Ask, view: int, rows: Ints | slice) -> Ints:
        devices, bulk = self.free_devices(view, rows), self.free_bulk(view, rows)
        counted = {name: self.free_counted(view, name, rows) for name, _ in ask.counted if name in self.counted_size}
        found = self._workers_in(devices, bulk, counted, ask.shape, ask.millionths[rows])
        return np.where(ask.mask[rows], found, 0)

    def free_devices(self, view: int, rows: Ints | slice = slice(None)) -> Ints:
        """Free millionths of each device; for `NOW` room that is kept for somebody is not free."""
        later = self.devices[LATER][rows]
        return later if view == LATER else np.minimum(later, self.devices[NOW][rows])

    def free_bulk(self, view: int, rows: Ints | slice = slice(None)) -> Ints:
        """Free CPU and memory."""
        later = self.bulk[LATER][rows]
        return later if view == LATER else np.minimum(later, self.bulk[NOW][rows])

    def free_counted(self, view: int, name: str, rows: Ints | slice = slice(None)) -> Ints:
        """Free units of a counted resource."""
        later = self.counted[LATER][name][rows]
        return later if view == LATER else np.minimum(later, self.counted[NOW][name][rows])

    def _workers_in(self, devices: Ints, bulk: Ints, counted: dict[str, Ints], shape: Shape, millionths: Ints) -> Ints:
        """How many workers of a shape go into so much free room, by row."""
        found = np.full(len(bulk), _ENOUGH, dtype=np.int64)
        if shape.gpu_count:
            found = np.minimum(found, _sets_of_devices(devices, shape.gpu_count, millionths))
        for column, asked in enumerate((shape.cpu_milli, shape.memory_mib)):
            if asked:
                found = np.minimum(found, np.maximum(bulk[:, column], 0) // asked)
        for name, asked in shape.counted:
            if asked and name in counted:
                found = np.minimum(found, np.maximum(counted[name], 0) // asked)
            elif asked:
                found[:] = 0
        return found

    def room_ignoring_kept(self, ask: Ask) -> int:
        """How many such workers the nodes would take at once if nothing were kept for anybody."""
        found = self._workers_in(self.devices[NOW], self.bulk[NOW], self.counted[NOW], ask.shape, ask.millionths)
        return int(np.where(ask.mask, found, 0).sum())

    def room_by_one(self, ask: Ask, view: int, resource: int) -> int:
        """How many such workers the suitable nodes take if only one resource counted."""
        rows = np.flatnonzero(ask.mask)
        if resource == GPU and not ask.gpus:
            return _ENOUGH  # charged for counted devices, not for GPUs of the table
        if resource == GPU:
            found = _sets_of_devices(self.free_devices(view, rows), ask.gpus, ask.millionths[rows])
        else:
            asked = ask.cpu if resource == CPU else ask.memory
            found = np.maximum(self.free_bulk(view, rows)[:, resource - 1], 0) // asked
        return int(found.sum())

    def devices_for(self, ask: Ask, row: int, view: int) -> tuple[int, ...]:
        """The devices one worker gets on a node where it fits: started ones first, the fullest that has room.

        Of whole devices those come first that are free at once.
        """
        if not ask.gpus:
            return ()
        free = self.free_devices(view, np.array([row]))[0]
        at_once = self.free_devices(NOW, np.array([row]))[0] if view == LATER else free
        asked = int(ask.millionths[row])
        fitting = [place for place in range(len(free)) if free[place] >= asked]
        fitting.sort(key=lambda place: (int(free[place]), at_once[place] < asked, place))
        return tuple(sorted(fitting[: ask.gpus]))

    def best_row(self, ask: Ask, view: int, allowed: Bools | None = None, room: Ints | None = None) -> int | None:
        """The node for one worker: where preferences are met, then where the least room is left afterwards."""
        room = self.room(ask, view) if room is None else room
        rows = np.flatnonzero(room > 0 if allowed is None else (room > 0) & allowed)
        for key in self._keys(ask, view):
            if len(rows) <= 1:
                break
            values = key(rows)
            rows = rows[values == values.min()]
        return int(rows[0]) if len(rows) else None

    def order_rows(self, ask: Ask, view: int, rows: Ints) -> Ints:
        """Rows in the order in which a gang fills them."""
        keys = [key(rows) for key in self._keys(ask, view)]
        return rows[np.lexsort([rows, *reversed(keys)])]

    def _keys(self, ask: Ask, view: int) -> list[Callable[[Ints], Ints]]:
        """What decides between nodes where it fits, the most important first; the smallest is the best."""
        sign = -1 if self.pool.placement is Placement.SPREAD else 1

        def free_gpu(rows: Ints) -> Ints:
            return np.asarray(self.free_devices(view, rows).sum(axis=1) * sign)

        def free_cpu(rows: Ints) -> Ints:
            return np.asarray(self.free_bulk(view, rows)[:, 0] * sign)

        def free_memory(rows: Ints) -> Ints:
            return np.asarray(self.free_bulk(view, rows)[:, 1] * sign)

        keys: list[Callable[[Ints], Ints]] = []
        if ask.prefer is not None:
            prefer = ask.prefer
            keys.append(lambda rows: -prefer[rows])
        lost = [partial(self._lost, ask, view)] if sign > 0 and self.mix else []
        if not ask.gpus:
            return [*keys, self._has_devices, *lost, free_cpu, free_memory, free_gpu]
        if sign > 0 and ask.shape.gpu_milli < WHOLE_GPU:
            keys.append(lambda rows: self._opens_devices(ask, view, rows))
        return [*keys, free_gpu, *lost, free_cpu, free_memory]

    def _lost(self, ask: Ask, view: int, rows: Ints) -> Ints:
        """How many milli-GPUs that the kinds of request around could use are lost by one worker on each node.

        Of very many equals it is not told: there is little to choose between.
        """
        if len(rows) > _COMPARED:
            return np.zeros(len(rows), dtype=np.int64)
        devices, bulk = self.free_devices(view, rows), self.free_bulk(view, rows)
        if not len(rows) or ((devices == devices[0]).all() and (bulk == bulk[0]).all()):
            return np.zeros(len(rows), dtype=np.int64)
        left = bulk - np.array((ask.cpu, ask.memory))
        rest = self._with_one_more(devices, ask, ask.millionths[rows])
        lost = np.zeros(len(rows), dtype=np.int64)
        for kind, weight in self.mix:
            counted = {name: self.free_counted(view, name, rows) for name in self.counted_size}
            before = self._workers_in(devices, bulk, counted, kind.shape, kind.millionths[rows])
            after = self._workers_in(rest, left, counted, kind.shape, kind.millionths[rows])
            lost += np.where(kind.mask[rows], before - after, 0) * kind.charge[0] * weight
        return lost

    def _with_one_more(self, devices: Ints, ask: Ask, millionths: Ints) -> Ints:
        """Free devices when one more worker is there, on the fullest devices that have room."""
        if not ask.gpus:
            return devices
        fitting = np.where(devices >= millionths[:, None], devices, 2 * FULL)
        chosen = np.argsort(fitting, axis=1, kind="stable")[:, : ask.gpus]
        rest = devices.copy()
        np.put_along_axis(rest, chosen, np.take_along_axis(devices, chosen, 1) - millionths[:, None], 1)
        return rest

    def _has_devices(self, rows: Ints) -> Ints:
        """1 for nodes with devices: work without GPUs goes there last."""
        return np.asarray(self.device_size[rows].sum(axis=1) > 0, dtype=np.int64)

    def _opens_devices(self, ask: Ask, view: int, rows: Ints) -> Ints:
        """1 where a fraction would have to open a whole device, 0 where started ones have room."""
        free = self.free_devices(view, rows)
        started = (free < FULL) & (free >= ask.millionths[rows, None])
        return np.asarray(started.sum(axis=1) < ask.gpus, dtype=np.int64)

    # --- taking and giving back ------------------------------------------------------------------------

    def place(
        self, ask: Ask, row: int, view: int, who: tuple[int, int, int], devices: tuple[int, ...] | None = None
    ) -> Place:
        """One worker on a node where it fits, taken in the view and in all that is later than it."""
        devices = self.devices_for(ask, row, view) if devices is None else devices
        shape = ask.shape
        milli = shape.gpu_milli
        charged = shape.quota_gpu_milli
        if devices and shape.gpu_memory_mib:
            memory = int(self.device_memory[row])
            milli = share_of_memory(shape.gpu_memory_mib, memory)
            if self.memory_step_milli > 1:
                charged = len(devices) * share_of_memory(shape.gpu_memory_mib, memory, self.memory_step_milli)
        place = Place(
            workload=who[0],
            group=who[1],
            index=who[2],
            node=self.nodes[row].id,
            devices=devices,
            device_milli=milli if devices else 0,
            device_memory_mib=shape.gpu_memory_mib if devices else 0,
            cpu_milli=shape.cpu_milli,
            memory_mib=shape.memory_mib,
            counted=shape.counted,
            charged_gpu_milli=charged,
        )
        self.change(place, -1, now=view == NOW, later=True)
        return place

    def change(self, place: Place, sign: int, *, now: bool, later: bool) -> None:
        """Take (-1) or give back (+1) a place in one or both views."""
        row = self.row.get(place.node)
        if row is None:
            return
        self._change(row, place, sign, now, later)
        self._journal.append(lambda: self._change(row, place, -sign, now, later))

    def _change(self, row: int, place: Place, sign: int, now: bool, later: bool) -> None:
        self._changes += 1
        self._changed[row] = self._changes
        for view, wanted in ((NOW, now), (LATER, later)):
            if not wanted:
                continue
            taken = sign * self.device_use(place, row)
            for device in place.devices:
                self.devices[view][row, device] += taken
            if self.bulk_size[row, 0] < UNBOUNDED:
                self.bulk[view][row, 0] += sign * place.cpu_milli
            if self.bulk_size[row, 1] < UNBOUNDED:
                self.bulk[view][row, 1] += sign * place.memory_mib
            for name, count in place.counted:
                if name in self.counted[view]:
                    self.counted[view][name][row] += sign * count

    def device_use(self, place: Place, row: int) -> int:
        """Millionths of each of its devices that a place takes."""
        if place.device_memory_mib and self.device_memory[row]:
            return -(-place.device_memory_mib * FULL // int(self.device_memory[row]))
        return place.device_milli * MILLI

    def holds(self, place: Place, view: int) -> bool:
        """Whether exactly the room of a place is free in a view."""
        row = self.row.get(place.node)
        if row is None:
            return False
        only = np.array([row])
        devices, bulk = self.free_devices(view, only)[0], self.free_bulk(view, only)[0]
        use = self.device_use(place, row)
        return (
            all(devices[device] >= use for device in place.devices)
            and bool(bulk[0] >= place.cpu_milli and bulk[1] >= place.memory_mib)
            and all(self.free_counted(view, name, only)[0] >= count for name, count in place.counted)
        )

    def is_vacant(self, place: Place) -> bool:
        """Whether nothing that is there now stands in the way of a place, whoever its room is kept for."""
        row = self.row[place.node]
        use = self.device_use(place, row)
        bulk = self.bulk[NOW][row]
        return (
            all(self.devices[NOW][row, device] >= use for device in place.devices)
            and bool(bulk[0] >= place.cpu_milli and bulk[1] >= place.memory_mib)
            and all(self.counted[NOW][name][row] >= count for name, count in place.counted)
        )

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


def _sets_of_devices(devices: Ints, size: int, millionths: Ints) -> Ints:
    """How often `size` different devices with so many free millionths each can be given out, by row."""
    if not devices.shape[1]:
        return np.zeros(len(devices), dtype=np.int64)
    each = np.maximum(devices, 0) // np.maximum(millionths, 1)[:, None]
    if size == 1:
        return np.asarray(each.sum(axis=1), dtype=np.int64)
    if int(millionths.min(initial=FULL)) * 2 > FULL:
        return np.asarray((each > 0).sum(axis=1) // size, dtype=np.int64)
    return _most_rounds(each, size)


def _most_rounds(each: Ints, size: int) -> Ints:
    """The largest t with sum(min(t, each)) >= size x t: workers that need `size` different devices."""
    rounds = np.zeros(len(each), dtype=np.int64)
    for tried in range(1, int(each.sum(axis=1).max(initial=0)) // size + 1):
        enough = np.minimum(each, tried).sum(axis=1) >= size * tried
        if not enough.any():
            break
        rounds[enough] = tried
    return rounds


class NodeRoom:
    """What will be free on one node, as plain numbers: for quick trials of who must go."""

    def __init__(self, rooms: Rooms, ask: Ask, row: int) -> None:
        self._rooms, self._ask, self._row, self._node = rooms, ask, row, rooms.nodes[row].id
        self._devices: list[int] = rooms.devices[LATER][row].tolist()
        self._cpu, self._memory = (int(value) for value in rooms.bulk[LATER][row])
        self._bounded = (bool(rooms.bulk_size[row, 0] < UNBOUNDED), bool(rooms.bulk_size[row, 1] < UNBOUNDED))
        self._counted = {name: int(table[row]) for name, table in rooms.counted[LATER].items()}
        self._asked = int(ask.millionths[row])

    def change(self, places: Iterable[Place], sign: int) -> None:
        """The room of places on this node is free (+1) or not (-1)."""
        for place in places:
            if place.node != self._node:
                continue
            use = sign * self._rooms.device_use(place, self._row)
            for device in place.devices:
                self._devices[device] += use
            if self._bounded[0]:
                self._cpu += sign * place.cpu_milli
            if self._bounded[1]:
                self._memory += sign * place.memory_mib
            for name, count in place.counted:
                self._counted[name] = self._counted.get(name, 0) + sign * count

    def fits(self) -> bool:
        """Whether one worker fits."""
        ask = self._ask
        if self._cpu < ask.cpu or self._memory < ask.memory:
            return False
        for name, count in ask.counted:
            if self._counted.get(name, 0) < count:
                return False
        if not ask.gpus:
            return True
        return sum(1 for free in self._devices if free >= self._asked) >= ask.gpus
