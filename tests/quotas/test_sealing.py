"""The audit's hash chain finds out who touched a sealed day."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from django.core.management import CommandError, call_command
from django.db import IntegrityError, connection, transaction

from quotas.actors import SYSTEM
from quotas.audit import entry
from quotas.models import AuditEvent, AuditSeal
from quotas.sealing import seal_audit, verify_audit
from tests.makers import check_deferred

pytestmark = pytest.mark.django_db
MONDAY = datetime(2026, 3, 2, 12, tzinfo=UTC)


@pytest.fixture(autouse=True)
def three_days() -> None:
    for hours in (0, 1, 24, 26, 49):
        values = entry(SYSTEM, "tested", None, None, {"hours": hours})
        AuditEvent.objects.create(**{**values, "at": MONDAY + timedelta(hours=hours)})


def tamper(sql: str) -> None:
    """Change rows as somebody with the database's own rights could."""
    check_deferred()
    with connection.cursor() as cursor:
        cursor.execute("ALTER TABLE quotas_auditevent DISABLE TRIGGER audit_append_only")
        cursor.execute(sql)
    check_deferred()
    with connection.cursor() as cursor:
        cursor.execute("ALTER TABLE quotas_auditevent ENABLE TRIGGER audit_append_only")


def sealed() -> None:
    seal_audit(MONDAY + timedelta(days=3))


def test_days_are_sealed_an_hour_after_their_end_and_once() -> None:
    assert seal_audit(datetime(2026, 3, 3, 0, 59, tzinfo=UTC)) == []
    assert [seal.entries for seal in seal_audit(datetime(2026, 3, 3, 1, tzinfo=UTC))] == [2]
    sealed()
    assert seal_audit(MONDAY + timedelta(days=3)) == []
    assert list(AuditSeal.objects.values_list("entries", flat=True)) == [2, 2, 1]
    found = verify_audit()
    assert (found.days, found.entries, found.broken) == (3, 5, None)


@pytest.mark.parametrize(
    ("sql", "why"),
    [
        ("UPDATE quotas_auditevent SET verb = 'nothing' WHERE at::date = '2026-03-03'", "not what was sealed"),
        ("DELETE FROM quotas_auditevent WHERE at::date = '2026-03-03'", "2 entries were sealed, 0 are there"),
        ("UPDATE quotas_auditevent SET at = '2026-03-03' WHERE at::date = '2026-03-04'", "3 are there"),
    ],
)
def test_a_touched_day_is_named(sql: str, why: str) -> None:
    sealed()
    tamper(sql)
    broken = verify_audit().broken
    assert broken is not None
    assert broken[0].isoformat() == "2026-03-03"
    assert why in broken[1]


def test_the_command_fails_when_the_chain_is_broken() -> None:
    sealed()
    call_command("verify_audit")
    tamper("UPDATE quotas_auditevent SET actor_name = 'somebody else'")
    with pytest.raises(CommandError, match="2026-03-02"):
        call_command("verify_audit")


def test_seals_are_never_changed() -> None:
    sealed()
    with pytest.raises(IntegrityError, match="never changed"), transaction.atomic():
        AuditSeal.objects.all().delete()
