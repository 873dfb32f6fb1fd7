"""The choices of the in-turn way: named numbers and switches, nothing else."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class Step(StrEnum):
    """What a cycle does, in the order in which the settings list it."""

    ALLOCATE = "allocate"
    CONSOLIDATE = "consolidate"
    RECLAIM = "reclaim"
    PREEMPT = "preempt"
    STALE = "stale"


@dataclass(frozen=True, slots=True)
class InTurn:
    """Settings of the in-turn way."""

    steps: tuple[Step, ...] = tuple(Step)
    most_movers: int | None = None
    """Consolidation looks at no more than so many movable workloads and one; None: at all of them."""
    judge_quotas: bool = True
    """False: limits and promises are not looked at, only nodes."""
    rank_nodes: bool = True
    """False: the first node in id order that fits is taken."""
    rank_devices: bool = True
    """False: devices are taken in index order, started ones not first."""
    spread_devices: bool = False
    """True: shares of devices go to the emptiest device instead of the fullest."""
