"""Let clusters live through the past that their charts begin with; the workers do the same by themselves."""

from typing import Any

from django.core.management.base import BaseCommand

from scheduler.past import clusters_behind, live_through


class Command(BaseCommand):
    help = "Let clusters live through the past of their charts now, then start their clocks. Goes on where it was left."

    def handle(self, *args: Any, **options: Any) -> None:
        for cluster_id in clusters_behind():
            live_through(cluster_id)
