"""The cluster's own settings, read with their defaults. Seconds in the row, milliseconds here."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from quotas.models import Cluster
from scheduler.core.policy import PRODUCT, Policy

DEFAULT_EVICTION_GRACE_S = 30
DEFAULT_MOVES_AN_HOUR = 20
PAST = "past"  # set while a simulated cluster has yet to live through its past; see past.py


@dataclass(frozen=True, slots=True)
class Knobs:
    """What the shell needs from the settings; the core gets a `Policy`."""

    eviction_grace_ms: int = DEFAULT_EVICTION_GRACE_S * 1000
    moves_an_hour: int | None = DEFAULT_MOVES_AN_HOUR
    """Consolidation moves a pool may make within an hour; None: as many as wanted."""


def of(cluster: Cluster) -> Knobs:
    """`eviction_grace_s` and `moves_an_hour` of the cluster."""
    found: Mapping[str, object] = cluster.settings
    moves = found.get("moves_an_hour", DEFAULT_MOVES_AN_HOUR)
    return Knobs(
        eviction_grace_ms=_milliseconds(found, "eviction_grace_s", DEFAULT_EVICTION_GRACE_S * 1000),
        moves_an_hour=int(moves) if isinstance(moves, int | float) else None,
    )


def policy_for(cluster: Cluster) -> Policy:
    """The product's policy with the cluster's own `ageing_step_s` and `balance_timeout_s`."""
    return replace(
        PRODUCT,
        ageing_step_ms=_milliseconds(cluster.settings, "ageing_step_s", PRODUCT.ageing_step_ms),
        balance_timeout_ms=_milliseconds(cluster.settings, "balance_timeout_s", PRODUCT.balance_timeout_ms),
    )


def _milliseconds(found: Mapping[str, object], name: str, default_ms: int) -> int:
    value = found.get(name)
    return round(value * 1000) if isinstance(value, int | float) else default_ms
