"""The past that a simulated cluster lives through before its clock goes: what its charts begin with.

It is no invention: services, cycles, engine and rules do their work under a clock that is moved by hand, in the
background, one hour after the other. Until that is done the cluster's clock stands, and only this drives it.
"""

from __future__ import annotations

from datetime import datetime, timedelta

from django.utils import timezone

from quotas.models import Cluster
from scheduler import triggers
from scheduler.beating import WATCH_LOCK
from scheduler.cycles import CYCLE_LOCK
from scheduler.locks import session_lock
from scheduler.scenarios.driver import driven
from scheduler.settings import PAST

PIECE = timedelta(hours=1)
STANDING = 0.01  # the slowest clock that a cluster may have


def give_past(cluster: Cluster, begin: datetime, end: datetime | None, tick: timedelta) -> None:
    """Put the cluster's clock back to ``begin`` and note that it has yet to live up to ``end`` (None: up to now)."""
    past = {
        "end": end.isoformat() if end is not None else None,
        "tick_s": tick.total_seconds(),
        "clock_speed": cluster.clock_speed,
    }
    cluster.settings = {**cluster.settings, PAST: past}
    _set_clock(cluster, begin, STANDING)


def clusters_behind() -> list[int]:
    """Ids of the clusters that have yet to live through their past."""
    return list(Cluster.objects.filter(settings__has_key=PAST).order_by("id").values_list("id", flat=True))


def live_through(cluster_id: int) -> None:
    """Live up to the end of the past, and let the clock go from there. Taken up again where it was left."""
    with session_lock(CYCLE_LOCK, cluster_id) as cycles, session_lock(WATCH_LOCK, cluster_id) as watch:
        while cycles and watch:
            cluster = Cluster.objects.get(pk=cluster_id)
            if PAST not in cluster.settings:
                break
            _live_a_piece(cluster)
    triggers.ask_now(cluster_id, "the past is over")


def _live_a_piece(cluster: Cluster) -> None:
    past = cluster.settings[PAST]
    end = datetime.fromisoformat(past["end"]) if past["end"] else timezone.now()
    to = min(cluster.clock_at + PIECE, end)
    with driven(cluster, cluster.clock_at, timedelta(seconds=past["tick_s"])) as driver:
        driver.take_note()
        driver.cycle()
        driver.advance_to(to)
    if to < end:
        _set_clock(cluster, to, STANDING)
    else:
        cluster.settings = {key: value for key, value in cluster.settings.items() if key != PAST}
        _set_clock(cluster, to, past["clock_speed"])
    triggers.signal("overview", "queue", "quotas")


def _set_clock(cluster: Cluster, at: datetime, speed: float) -> None:
    now = timezone.now()
    cluster.clock_at, cluster.clock_speed = at, speed
    cluster.clock_real_at = cluster.clock_seen_at = now
    cluster.save(update_fields=["settings", "clock_at", "clock_speed", "clock_real_at", "clock_seen_at"])
