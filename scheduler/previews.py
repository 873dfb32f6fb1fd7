"""What a change would do, found out by doing it: in a transaction that is rolled back, with the real core.

The change goes through its own service, so it is refused for the same reasons. Then the cluster is looked at as it
would be, ahead of time until nothing changes any more, and compared with what would happen without the change.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from functools import partial

from django.db import transaction

from quotas.models import Cluster
from scheduler import settings
from scheduler.clocks import to_ms
from scheduler.core.decide import decide
from scheduler.core.model import LedgerRow
from scheduler.foresight import Outlook, look_ahead
from scheduler.snapshots import Loaded, load


@dataclass(frozen=True, slots=True)
class Touched:
    """A workload that the change touches; `code` is the reason of one that would wait."""

    id: int
    name: str
    quota_id: int
    gpu_milli: int
    code: str = ""


@dataclass(frozen=True, slots=True)
class Book:
    """One quota in one pool, in thousandths of a GPU."""

    quota_id: int
    pool_id: int
    guaranteed: int | None
    used: int
    borrowed: int
    waiting: int
    free: int


@dataclass(frozen=True, slots=True)
class Preview:
    """What follows from the change and would not happen without it, and the books before and after."""

    preempted: tuple[Touched, ...]
    shrunk: tuple[Touched, ...]
    moved: tuple[Touched, ...]
    starts: tuple[Touched, ...]
    waits: tuple[Touched, ...]
    before: tuple[Book, ...]
    after: tuple[Book, ...]


class _RollBack(Exception):
    """Ends the transaction in which the change was tried."""


def preview(*, cluster: Cluster, change: Callable[[], object], ahead: timedelta = timedelta()) -> Preview:
    """What `change` (a call of a service) would do within `ahead` and the graces that follow; nothing is written."""
    loaded, without = _outlook(cluster, ahead)
    with _tried(change):
        changed, with_it = _outlook(cluster, ahead)
    return _compare(loaded, without, changed, with_it)


@contextmanager
def _tried(change: Callable[[], object]) -> Iterator[None]:
    try:
        with transaction.atomic():
            change()
            yield
            raise _RollBack
    except _RollBack:
        return


def _outlook(cluster: Cluster, ahead: timedelta) -> tuple[Loaded, Outlook]:
    now = cluster.now()
    loaded = load(cluster, now)
    policy = settings.policy_for(cluster)
    return loaded, look_ahead(loaded.snapshot, partial(decide, policy=policy), to_ms(now + ahead))


def _compare(loaded: Loaded, without: Outlook, changed: Loaded, with_it: Outlook) -> Preview:
    waits, waited = with_it.waits_for(), without.waits_for()

    def new(found: list[int], known: list[int]) -> tuple[Touched, ...]:
        return tuple(_touched(changed, workload, waits) for workload in sorted(set(found) - set(known)))

    return Preview(
        preempted=new(with_it.evicted, without.evicted),
        shrunk=new(with_it.shrunk, without.shrunk),
        moved=new(with_it.moved, without.moved),
        starts=new(with_it.started, without.started),
        waits=new(list(waits), list(waited)),
        before=tuple(map(_book, without.plan.ledger)),
        after=tuple(map(_book, with_it.plan.ledger)),
    )


def _touched(loaded: Loaded, workload: int, waits: dict[int, str]) -> Touched:
    row = loaded.workloads[workload]
    gpus = row.gpus * row.gpu_milli * row.replicas
    return Touched(row.id, row.name, row.quota_id, gpus, waits.get(workload, ""))


def _book(row: LedgerRow) -> Book:
    return Book(
        quota_id=row.quota,
        pool_id=row.pool,
        guaranteed=row.guaranteed.gpu_milli,
        used=row.used.gpu_milli,
        borrowed=row.borrowed.gpu_milli,
        waiting=row.waiting.gpu_milli,
        free=row.free.gpu_milli,
    )
