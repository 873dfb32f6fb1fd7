"""Make the database ready for a start: tables, the demo when it is empty, clocks that were stopped."""

from io import StringIO
from typing import Any

from django.core.management import call_command
from django.core.management.base import BaseCommand, CommandParser

from quotas.models import User
from scheduler.demo import LOGINS


class Command(BaseCommand):
    help = "Migrate, let stopped clocks go on, seed the demo when the database is empty, and print the demo's logins."

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("--no-demo", action="store_true", help="leave an empty database empty")

    def handle(self, *args: Any, **options: Any) -> None:
        call_command("migrate", interactive=False, verbosity=0)
        call_command("resume_clocks", stdout=StringIO())
        wanted = not options["no_demo"] and not User.objects.exists()
        if wanted or _has_demo():
            call_command("seed_demo", stdout=self.stdout)


def _has_demo() -> bool:
    """Whether all of the demo's people are here; then seeding only prints them."""
    return User.objects.filter(username__in=[login.username for login in LOGINS]).count() == len(LOGINS)
