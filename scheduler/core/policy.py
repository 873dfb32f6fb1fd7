"""The rules' numbers and choices. A policy is settings only: no function of the core sees its name."""

from __future__ import annotations

from dataclasses import dataclass

from scheduler.core.in_turn.settings import InTurn

MINUTE_MS = 60_000


@dataclass(frozen=True, slots=True)
class Policy:
    """Settings of `decide`. Durations are milliseconds."""

    ageing_step_ms: int = 10 * MINUTE_MS
    """In an intelligent queue waiting raises the effective priority by one each step."""
    ageing_ceiling: int = 6
    """Ageing never lifts the effective priority above this."""
    blocking_priority: int = 7
    """In an intelligent queue a blocked head of this priority or higher holds up all behind it."""
    balance_timeout_ms: int = 5 * MINUTE_MS
    """A balance queue looks at one more waiting workload each time its head has waited so long."""
    stale_grace_ms: int = MINUTE_MS
    """A gang that is below its minimum for so long is stopped."""
    reservation_slack_ms: int = MINUTE_MS
    """A hand-over reservation lasts the longest grace of its victims and this."""
    exact_victims: int = 12
    """Up to so many candidate victims the best lawful set is searched exactly, above greedily."""
    memory_share_step_milli: int = 1
    """Requests for device memory are charged in steps of so many thousandths of a device."""
    past_use_factor_milli: int = 0
    """How much of past use (thousandths of the pool) wears the weight in the surplus off; 0: no memory."""
    consolidate: bool = True
    """Whether work may be moved to let other work in."""
    in_turn: InTurn | None = None
    """Settings of the in-turn way of search; None: the best lawful set of victims is searched."""


PRODUCT = Policy()
