"""Make the parts of the documentation anew that come from the code."""

from __future__ import annotations

from argparse import ArgumentParser
from pathlib import Path
from typing import Any

from django.conf import settings
from django.core.management.base import BaseCommand, CommandError

from scheduler.documents import filled, stale_pages


class Command(BaseCommand):
    help = "Make the parts of docs/ anew that come from the code; with --check only say which are stale."
    requires_system_checks = ()

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("--check", action="store_true", help="change nothing; exit with 1 when a page is stale")

    def handle(self, *args: Any, **options: Any) -> None:
        folder = Path(settings.BASE_DIR) / "docs"
        stale = stale_pages(folder)
        names = ", ".join(str(path.relative_to(folder)) for path in stale)
        if options["check"] and stale:
            raise CommandError(f"stale: {names}; run ./dev manage document")
        for path in stale:
            path.write_text(filled(path.read_text("utf-8")), "utf-8")
        self.stdout.write(f"written: {names}" if stale else "everything is as the code says")
