"""What an engine is: four methods on plain data, in batches.

An engine knows a replica by a key that we give it (the allocation's id). Every method may be called twice with the
same arguments: the second call changes nothing. It never sees a model.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import Protocol


@dataclass(frozen=True, slots=True)
class StartOrder:
    """Run one replica at a place. `run_for_ms` is how much work is left (None: until it is stopped)."""

    key: str
    name: str
    node: str
    devices: tuple[int, ...] = ()
    gpu_milli: int = 0
    gpu_memory_mib: int = 0
    cpu_milli: int = 0
    memory_mib: int = 0
    image: str = ""
    command: tuple[str, ...] = ()
    environment: Mapping[str, str] = field(default_factory=dict)
    run_for_ms: int | None = None


@dataclass(frozen=True, slots=True)
class StopOrder:
    """Tell one replica to leave; it is ended by force when the grace (milliseconds) is over."""

    key: str
    grace_ms: int


class Status(StrEnum):
    """Where a replica stands. `GONE` holds no room any more."""

    STARTING = "starting"
    RUNNING = "running"
    GONE = "gone"


@dataclass(frozen=True, slots=True)
class Observation:
    """What is, in cluster time. `exit_code` is None for what was stopped before it ended by itself.

    `next_at`: the next instant at which something will happen to it, where an engine can know that.
    """

    key: str
    status: Status
    running_at: datetime | None = None
    gone_at: datetime | None = None
    exit_code: int | None = None
    reason: str = ""
    next_at: datetime | None = None


class Unavailable(Exception):
    """The engine can't be reached; the same call may succeed later."""


class Rejected(Exception):
    """The engine will never carry out some of the orders (key to the reason); the others were accepted."""

    def __init__(self, reasons: Mapping[str, str]) -> None:
        super().__init__(", ".join(f"{key}: {reason}" for key, reason in sorted(reasons.items())))
        self.reasons = dict(reasons)


class Engine(Protocol):
    """Starts, stops and watches replicas. All methods raise `Unavailable`, the first two `Rejected` as well."""

    def start(self, orders: Sequence[StartOrder]) -> None:
        """Start what is not known yet. A key that was stopped before its start arrived never starts."""

    def stop(self, orders: Sequence[StopOrder]) -> None:
        """Signal what runs; the first stop of a key counts."""

    def observe(self, keys: Sequence[str]) -> list[Observation]:
        """What is known of these keys, in their order; unknown keys are left out."""

    def logs(self, key: str, *, lines: int = 200) -> list[str]:
        """The last lines that the replica wrote; none for an unknown key."""
