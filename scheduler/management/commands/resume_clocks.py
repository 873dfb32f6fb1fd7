"""Let fast simulated clocks go on from where they were when the installation was stopped."""

from typing import Any

from django.core.management.base import BaseCommand

from scheduler.beating import resume_clocks


class Command(BaseCommand):
    help = "Let fast simulated clocks go on from where they were when the installation was stopped."

    def handle(self, *args: Any, **options: Any) -> None:
        self.stdout.write(f"{resume_clocks()} clocks resumed")
