"""The daily hash chain over the audit: whoever changes, removes or slips in an entry of a sealed day is found out.

A seal is the SHA-256 of the seal before it and of the day's entries in the order of their ids. Days are UTC days;
one is sealed an hour after its end, when nothing that began in it is still being written.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta

from django.db import transaction
from django.db.models import Min

from quotas.models import AuditEvent, AuditSeal

GRACE = timedelta(hours=1)
SEALED = (
    "id",
    "at",
    "actor_id",
    "actor_name",
    "token_prefix",
    "door",
    "address",
    "verb",
    "result",
    "object_type",
    "object_id",
    "object_name",
    "workspace_id",
    "before",
    "after",
    "facts",
)


@dataclass(frozen=True, slots=True)
class Verification:
    """What a look at the whole chain found. ``broken`` names the first day that does not fit, and why."""

    days: int
    entries: int
    broken: tuple[date, str] | None = None


def seal_audit(now: datetime) -> list[AuditSeal]:
    """Seal all days that have ended and are not sealed; days without entries too, so that none can be slipped in."""
    sealed = []
    for day in _open_days(now):
        with transaction.atomic():
            previous = AuditSeal.objects.select_for_update().order_by("-day").first()
            if previous is not None and previous.day >= day:
                continue  # somebody else was faster
            before = previous.digest if previous is not None else ""
            count, digest = _digest(day, before)
            sealed.append(AuditSeal.objects.create(day=day, entries=count, previous=before, digest=digest))
    return sealed


def _open_days(now: datetime) -> Iterator[date]:
    last = AuditSeal.objects.order_by("-day").values_list("day", flat=True).first()
    if last is not None:
        day = last + timedelta(days=1)
    else:
        first = AuditEvent.objects.aggregate(at=Min("at"))["at"]
        if first is None:
            return
        day = first.astimezone(UTC).date()
    while _begin(day + timedelta(days=1)) + GRACE <= now:
        yield day
        day += timedelta(days=1)


def _begin(day: date) -> datetime:
    return datetime.combine(day, time(), tzinfo=UTC)


def _digest(day: date, previous: str) -> tuple[int, str]:
    """Number and hash of a day's entries, read piece by piece."""
    entries = AuditEvent.objects.filter(at__gte=_begin(day), at__lt=_begin(day + timedelta(days=1))).order_by("id")
    whole, count = hashlib.sha256(previous.encode()), 0
    for row in entries.values(*SEALED).iterator(chunk_size=2000):
        row["at"] = row["at"].astimezone(UTC).isoformat()
        whole.update(json.dumps(row, sort_keys=True, ensure_ascii=False, separators=(",", ":")).encode())
        count += 1
    return count, whole.hexdigest()


def verify_audit() -> Verification:
    """Recompute the whole chain; stops at the first day that does not fit."""
    days = entries = 0
    previous, expected = "", None
    for seal in AuditSeal.objects.order_by("day"):
        if expected is not None and seal.day != expected:
            return Verification(days, entries, (expected, "the seal of this day is missing"))
        if seal.previous != previous:
            return Verification(days, entries, (seal.day, "the seal is not chained to the day before"))
        count, digest = _digest(seal.day, previous)
        if count != seal.entries:
            return Verification(days, entries, (seal.day, f"{seal.entries} entries were sealed, {count} are there"))
        if digest != seal.digest:
            return Verification(days, entries, (seal.day, "an entry is not what was sealed"))
        days, entries, previous = days + 1, entries + count, digest
        expected = seal.day + timedelta(days=1)
    return Verification(days, entries)
