"""The books as people read them: one row a quota and pool, and what each workload borrows."""

from __future__ import annotations

from collections.abc import Iterable

from scheduler.core.accounts import Accounts
from scheduler.core.claims import Demand, is_waiting, unused
from scheduler.core.lawful import most_borrowed
from scheduler.core.model import IdleUse, LedgerRow
from scheduler.core.resources import UNBOUNDED, Amount, amount_of, bound_of
from scheduler.core.rooms import MILLI, NOW, Rooms
from scheduler.core.tree import RESOURCES, Row, own_side
from scheduler.core.world import Work, WorkerKey, World, sum_rows


def ledger_of(world: World, demand: Demand) -> tuple[LedgerRow, ...]:
    """All rows, by pool and quota id."""
    rows: list[LedgerRow] = []
    for pool in world.pools:
        waiting = _waiting(world, demand, pool)
        idle = _idle(world.pools[pool].rooms)
        above = _taken_from_above(world, pool)
        rows += [
            _row(world, pool, quota, waiting[quota], idle, above[quota]) for quota in range(len(world.tree.quotas))
        ]
    return tuple(sorted(rows, key=lambda row: (row.pool, row.quota)))


def _row(world: World, pool: int, quota: int, waiting: Row, idle: Row, by_ancestors: Row) -> LedgerRow:
    accounts = world.pools[pool].accounts
    books = accounts.books
    used, own = accounts.used[NOW][quota], accounts.own[NOW][quota]
    borrowed = sum_rows(accounts.borrowed(quota, NOW).values())
    guaranteed = books.guaranteed[quota]
    return LedgerRow(
        quota=world.tree.quotas[quota].id,
        pool=pool,
        guaranteed=bound_of(guaranteed),
        limit=bound_of(books.limit[quota]),
        used=amount_of(used),
        own=amount_of(own),
        by_descendants=amount_of([used[r] - own[r] for r in RESOURCES]),
        by_ancestors=amount_of(by_ancestors),
        borrowed=amount_of(borrowed),
        lent=amount_of(lent_of(accounts, quota)),
        waiting=amount_of(waiting),
        free=free_of(guaranteed, used, idle),
        entitlement=_governed(accounts.worth.entitlement[quota], used),
        share=_governed(accounts.worth.share[quota], used),
    )


def _governed(row: Row, used: Row) -> Amount:
    """An entitlement or share; a resource that the quota does not govern shows what is used of it."""
    return amount_of([row[r] if row[r] < UNBOUNDED else used[r] for r in RESOURCES])


def free_of(guaranteed: Row, used: Row, idle: Row) -> Amount:
    """The smaller of guaranteed minus used and what is idle; nothing where neither has an amount."""
    smaller = [min(guaranteed[r] - used[r], idle[r]) for r in RESOURCES]
    return amount_of([max(0, value) if value < UNBOUNDED // 2 else 0 for value in smaller])


def lent_of(accounts: Accounts, quota: int) -> Row:
    """What others hold now of a quota's unused promise.

    Others borrow in all so much at the level above; of the idle promises there each lends its part, in
    proportion to what it leaves unused.
    """
    tree = accounts.tree
    parent = tree.parent[quota]
    siblings = tree.children[parent] if parent >= 0 else tree.roots
    return [_lent_one(accounts, quota, siblings, r) for r in RESOURCES]


def _lent_one(accounts: Accounts, quota: int, siblings: Iterable[int], r: int) -> int:
    guaranteed, used = accounts.books.guaranteed, accounts.used[NOW]
    if guaranteed[quota][r] >= UNBOUNDED // 2:
        return 0
    unused = {s: max(0, guaranteed[s][r] - used[s][r]) for s in siblings if guaranteed[s][r] < UNBOUNDED // 2}
    taken = sum(max(0, used[s][r] - guaranteed[s][r]) for s in unused)
    parent = accounts.tree.parent[quota]
    if parent >= 0:
        own_room = accounts.books.own_room[parent][r]
        own = accounts.own[NOW][parent][r]
        taken += max(0, own - own_room) - max(0, own_room - own)
        taken += _lent_one(accounts, parent, _level(accounts, parent), r)
    else:
        promised = sum(guaranteed[s][r] for s in unused)
        taken -= max(0, accounts.capacity[r] - promised)
    whole = sum(unused.values())
    return min(unused[quota], max(0, taken) * unused[quota] // whole) if whole else 0


def _level(accounts: Accounts, quota: int) -> Iterable[int]:
    parent = accounts.tree.parent[quota]
    return accounts.tree.children[parent] if parent >= 0 else accounts.tree.roots


def _taken_from_above(world: World, pool: int) -> list[Row]:
    """For each quota: work of ancestors on its room, beyond the ancestor's own."""
    accounts = world.pools[pool].accounts
    books = accounts.books
    found: list[Row] = []
    for quota in range(len(world.tree.quotas)):
        total = [0, 0, 0]
        for above in world.tree.path[quota][:-1]:
            own, room = accounts.own[NOW][above], books.own_room[above]
            for r in RESOURCES:
                beyond = max(0, own[r] - room[r])
                below = [books.guaranteed[child][r] for child in world.tree.children[above]]
                promised = sum(amount for amount in below if amount < UNBOUNDED)
                part = books.guaranteed[quota][r]
                if promised and part < UNBOUNDED // 2:
                    total[r] += min(part, beyond * part // promised)
        found.append(total)
    return found


def _idle(rooms: Rooms) -> Row:
    """What nobody holds on nodes that take work; room that is reserved is idle."""
    devices = rooms.devices[NOW][rooms.open]
    size = rooms.device_size[rooms.open]
    bulk = rooms.bulk[NOW][rooms.open]
    columns = (bulk[:, 0], bulk[:, 1])
    free = [int(column.sum()) if (column < UNBOUNDED // 2).all() else UNBOUNDED // 2 for column in columns]
    return [int(devices.clip(0, size).sum()) // MILLI, *free]


def _waiting(world: World, demand: Demand, pool: int) -> list[Row]:
    """What waits in each subtree: of work that wants this pool first."""
    totals = [[0, 0, 0] for _ in world.tree.quotas]
    for work in world.work.values():
        wanted = world.wanted_pools(work)
        if not wanted or wanted[0] != pool or not is_waiting(work) or (work.leaving and not work.present):
            continue
        amount = demand.amount(work, waiting_keys(work), pool)
        for above in world.tree.path[work.quota]:
            for r in RESOURCES:
                totals[above][r] += amount[r]
    return totals


def waiting_keys(work: Work) -> list[WorkerKey]:
    """Workers that a workload waits for: of a gang those below its minimum, of others all that it lacks."""
    keys: list[WorkerKey] = []
    for place, group in enumerate(work.workload.groups):
        wanted = group.minimum if work.workload.gang else group.wanted
        running = {key for key, held in work.present.items() if key[0] == place and (held.live or held.starts)}
        keys += unused(place, max(0, wanted - len(running)), running)
    return keys


def borrowed_of(world: World) -> tuple[tuple[int, int], ...]:
    """(workload, GPUs of it that are borrowed at whichever level most are), where any are."""
    found: dict[int, int] = {}
    for at in world.pools.values():
        accounts = at.accounts
        touched: set[int] = set()
        for quota in range(len(world.tree.quotas)):
            touched.update(accounts.borrowed(own_side(quota), NOW), accounts.borrowed(quota, NOW))
        for identifier in sorted(touched):
            most = most_borrowed(accounts, accounts.member[identifier].quota, identifier, NOW)
            found[identifier] = found.get(identifier, 0) + most
    return tuple(sorted((identifier, most) for identifier, most in found.items() if most))


def over_of(world: World) -> tuple[int, ...]:
    """Workloads that may not borrow and are beyond the entitlement."""
    return tuple(
        identifier for identifier, _ in borrowed_of(world) if world.work[identifier].workload.idle is IdleUse.NEVER
    )
