"""Virtual machines: replicas are rows with the instants at which something happens to them.

Nothing ticks here. What a replica does is a function of its row and the cluster's time, so a thousand-fold clock, a
restart and a jump in time all give the same story.

Settings of the cluster (seconds of cluster time): `start_up_s` from start order to running, `stop_s` from the stop
signal to gone (never longer than the grace), `hang` {NAME: seconds} for those that take so long in spite of it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import NamedTuple

from django.db.models import Q, QuerySet

from quotas.models import Cluster
from scheduler.bulk import update_rows
from scheduler.engines.base import Observation, StartOrder, Status, StopOrder
from scheduler.models import SimulatedTask


class Story(NamedTuple):
    """The columns of a replica's row that tell what happens to it."""

    key: str
    running_at: datetime
    ends_at: datetime | None
    gone_at: datetime | None
    exit_code: int | None
    exit_reason: str


@dataclass(frozen=True, slots=True)
class Delays:
    """How long starting and stopping take on this cluster."""

    start_up: timedelta
    stop: timedelta
    hang: Mapping[str, timedelta]

    @classmethod
    def of(cls, settings: Mapping[str, object]) -> Delays:
        def seconds(name: str) -> timedelta:
            value = settings.get(name, 0)
            return timedelta(seconds=float(value) if isinstance(value, int | float) else 0.0)

        hang = settings.get("hang", {})
        entries = hang.items() if isinstance(hang, Mapping) else ()
        return cls(seconds("start_up_s"), seconds("stop_s"), {name: timedelta(seconds=s) for name, s in entries})


class SimulatedEngine:
    """The engine of one simulated cluster."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self.delays = Delays.of(cluster.settings)

    def start(self, orders: Sequence[StartOrder]) -> None:
        now = self.cluster.now()
        SimulatedTask.objects.bulk_create([self._task(order, now) for order in orders], ignore_conflicts=True)

    def _task(self, order: StartOrder, now: datetime) -> SimulatedTask:
        running_at = now + self.delays.start_up
        return SimulatedTask(
            cluster=self.cluster,
            key=order.key,
            name=order.name,
            node_name=order.node,
            accepted_at=now,
            running_at=running_at,
            ends_at=None if order.run_for_ms is None else running_at + timedelta(milliseconds=order.run_for_ms),
        )

    def stop(self, orders: Sequence[StopOrder]) -> None:
        now = self.cluster.now()
        self._bury_unknown(orders, now)
        grace_of = {order.key: timedelta(milliseconds=order.grace_ms) for order in orders}
        rows = list(self._tasks(list(grace_of)).order_by("id").values_list("id", "key", "name"))
        gone = [now + self.delays.hang.get(name, min(self.delays.stop, grace_of[key])) for _, key, name in rows]
        update_rows(
            SimulatedTask,
            [row[0] for row in rows],
            {"stopped_at": [now] * len(rows), "gone_at": gone},
            only_if="t.stopped_at IS NULL AND t.gone_at IS NULL",
        )

    def _bury_unknown(self, orders: Sequence[StopOrder], now: datetime) -> None:
        """A stop that overtook its start leaves a mark, so that the start does nothing when it comes."""
        SimulatedTask.objects.bulk_create(
            [
                SimulatedTask(
                    cluster=self.cluster,
                    key=order.key,
                    accepted_at=now,
                    running_at=now,
                    stopped_at=now,
                    gone_at=now,
                )
                for order in orders
            ],
            ignore_conflicts=True,
        )

    def observe(self, keys: Sequence[str]) -> list[Observation]:
        now = self.cluster.now()
        stories = (Story(*row) for row in self._tasks(list(keys)).values_list(*Story._fields))
        known = {story.key: _observed(now, story) for story in stories}
        return [known[key] for key in keys if key in known]

    def logs(self, key: str, *, lines: int = 200) -> list[str]:
        task = self._tasks([key]).first()
        if task is None:
            return []
        seen = _observed(self.cluster.now(), Story(*(getattr(task, name) for name in Story._fields)))
        happened = [
            (task.accepted_at, f"accepted on {task.node_name}"),
            (seen.running_at, "running"),
            (task.stopped_at, "told to stop"),
            (seen.gone_at, "gone"),
        ]
        return [f"{at.isoformat(timespec='milliseconds')} {what}" for at, what in happened if at is not None][-lines:]

    def fail(self, key: str, exit_code: int = 1) -> None:
        """Let a replica die now, as a crash would; nothing happens to one that is gone or unknown."""
        now = self.cluster.now()
        alive = Q(gone_at__isnull=True) | Q(gone_at__gt=now)
        self._tasks([key]).filter(alive, Q(ends_at__isnull=True) | Q(ends_at__gt=now)).update(
            gone_at=now, exit_code=exit_code, exit_reason="died"
        )

    def _tasks(self, keys: Sequence[str]) -> QuerySet[SimulatedTask]:
        return SimulatedTask.objects.filter(cluster=self.cluster, key__in=keys)


def _observed(now: datetime, task: Story) -> Observation:
    """What the replica's row means at this instant. Whichever end comes first counts."""
    ends_by_itself = task.ends_at is not None and (task.gone_at is None or task.ends_at <= task.gone_at)
    gone_at = task.ends_at if ends_by_itself else task.gone_at
    began = task.running_at if task.running_at <= now and (gone_at is None or task.running_at <= gone_at) else None
    if gone_at is None or gone_at > now:
        status = Status.STARTING if began is None else Status.RUNNING
        coming = [at for at in (task.running_at, gone_at) if at is not None and at > now]
        return Observation(task.key, status, running_at=began, next_at=min(coming, default=None))
    if ends_by_itself:
        return Observation(task.key, Status.GONE, began, gone_at, exit_code=0, reason="completed")
    reason = task.exit_reason or "stopped"
    return Observation(task.key, Status.GONE, began, gone_at, exit_code=task.exit_code, reason=reason)
