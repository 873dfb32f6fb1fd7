"""Check the audit's hash chain."""

from typing import Any

from django.core.management.base import BaseCommand, CommandError
from django.utils import timezone

from quotas.sealing import seal_audit, verify_audit


class Command(BaseCommand):
    help = "Recompute the daily hash chain of the audit. Exit status 1 when a sealed entry is not what it was."

    def handle(self, *args: Any, **options: Any) -> None:
        seal_audit(timezone.now())
        found = verify_audit()
        if found.broken is not None:
            day, why = found.broken
            raise CommandError(f"{day}: {why} ({found.days} days before it are whole)")
        self.stdout.write(f"{found.days} sealed days with {found.entries} entries are whole")
