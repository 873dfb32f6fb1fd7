"""Reservations as rows and as the core sees them; the body of a row is plain JSON."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from scheduler.clocks import at_or_none, from_ms, ms_or_none, to_ms
from scheduler.core import model as core
from scheduler.models import Reservation

_PLACE = ("workload", "group", "index", "node", "device_milli", "device_memory_mib", "cpu_milli", "memory_mib")


def reservation_of(row: Reservation) -> core.Reservation:
    """What a row says."""
    body: Mapping[str, Any] = row.body
    return core.Reservation(
        id=row.pk,
        claimant=row.claimant_id,
        pool=body["pool"],
        kind=core.ReservationKind(row.what),
        places=tuple(_place_of(found) for found in body["places"]),
        node_ids=tuple(body["nodes"]),
        victims=tuple(body["victims"]),
        rule=core.Rule(row.rule) if row.rule else None,
        opened_ms=to_ms(row.opened_at),
        expires_ms=ms_or_none(row.expires_at),
        needed_ms=ms_or_none(row.needed_at),
    )


def row_of(reservation: core.Reservation, cluster_id: int) -> Reservation:
    """An unsaved row for a reservation that a plan opens."""
    return Reservation(
        cluster_id=cluster_id,
        claimant_id=reservation.claimant,
        what=reservation.kind.value,
        rule=reservation.rule.value if reservation.rule else "",
        body={
            "pool": reservation.pool,
            "places": [_body_of(place) for place in reservation.places],
            "nodes": list(reservation.node_ids),
            "victims": list(reservation.victims),
        },
        opened_at=from_ms(reservation.opened_ms),
        expires_at=at_or_none(reservation.expires_ms),
        needed_at=at_or_none(reservation.needed_ms),
    )


def _place_of(body: Mapping[str, Any]) -> core.Place:
    return core.Place(
        **{name: body[name] for name in _PLACE},
        devices=tuple(body["devices"]),
        counted=tuple((name, count) for name, count in body["counted"]),
        charged_gpu_milli=body["charged_gpu_milli"],
    )


def _body_of(place: core.Place) -> dict[str, Any]:
    return {
        **{name: getattr(place, name) for name in _PLACE},
        "devices": list(place.devices),
        "counted": [list(pair) for pair in place.counted],
        "charged_gpu_milli": place.charged_gpu_milli,
    }
