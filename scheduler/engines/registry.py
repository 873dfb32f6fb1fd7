"""Which engine runs a cluster's work."""

from __future__ import annotations

from quotas.models import Cluster, EngineKind
from scheduler.engines.base import Engine, Unavailable
from scheduler.engines.simulated import SimulatedEngine


def engine_for(cluster: Cluster) -> Engine:
    """The cluster's engine; raises `Unavailable` for a kind that this installation has no engine for."""
    if cluster.engine == EngineKind.SIMULATED:
        return SimulatedEngine(cluster)
    raise Unavailable(f"no engine of kind {cluster.engine}")
