"""What time it is on a cluster.

A cluster's own clock is `Cluster.now()`. Inside `standing_still` it shows the instant that the block says instead: the
scenario runner and the fast-forward of a simulated cluster move that instant by hand, and nobody else notices.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta

from quotas.clock import stopped_clocks

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MILLISECOND = timedelta(milliseconds=1)


def to_ms(at: datetime) -> int:
    """Whole milliseconds since the epoch, rounded down."""
    return (at - EPOCH) // _MILLISECOND


def from_ms(ms: int) -> datetime:
    return EPOCH + timedelta(milliseconds=ms)


def ms_or_none(at: datetime | None) -> int | None:
    return None if at is None else to_ms(at)


def at_or_none(ms: int | None) -> datetime | None:
    return None if ms is None else from_ms(ms)


class HandClock:
    """A cluster's clock that stands still until somebody moves it; it never goes back."""

    def __init__(self, cluster_id: int, at: datetime) -> None:
        self.cluster_id = cluster_id
        self._at = at

    @property
    def now(self) -> datetime:
        return self._at

    def move_to(self, at: datetime) -> None:
        self._at = max(self._at, at)
        stopped_clocks.set({**stopped_clocks.get(), self.cluster_id: self._at})


@contextmanager
def standing_still(cluster_id: int, at: datetime) -> Iterator[HandClock]:
    """Within the block (this thread only) the cluster's time is what the clock's owner says."""
    token = stopped_clocks.set({**stopped_clocks.get(), cluster_id: at})
    try:
        yield HandClock(cluster_id, at)
    finally:
        stopped_clocks.reset(token)
