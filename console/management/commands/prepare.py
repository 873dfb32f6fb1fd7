"""Make the database ready for a start: tables, the demo when it is empty, clocks that were stopped."""

from typing import Any

from django.contrib.auth import get_user_model
from django.core.management import call_command, get_commands
from django.core.management.base import BaseCommand, CommandParser


class Command(BaseCommand):
    help = "Migrate, seed the demo when the database is empty (not with --no-demo), and let the clocks go on."

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("--no-demo", action="store_true", help="leave an empty database empty")

    def handle(self, *args: Any, **options: Any) -> None:
        call_command("migrate", interactive=False, verbosity=0)
        if not options["no_demo"] and not get_user_model().objects.exists():
            _call_if_there("seed_demo")
        _call_if_there("resume_clocks")


def _call_if_there(name: str) -> None:
    if name in get_commands():
        call_command(name)
