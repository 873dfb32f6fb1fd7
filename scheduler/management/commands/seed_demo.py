"""Fill an empty installation with the demo and print who may sign in."""

from typing import Any

from django.core.management.base import BaseCommand

from quotas.models import Cluster
from scheduler.demo import LOGINS, PASSWORD, seed


class Command(BaseCommand):
    help = "Seed the demo clusters, teams and logins where they are not there yet, and print the logins."

    def handle(self, *args: Any, **options: Any) -> None:
        if not Cluster.objects.exists():
            seed()
        width = max(len(login.username) for login in LOGINS)
        self.stdout.write(f"Demo logins, all with the password {PASSWORD}")
        for login in LOGINS:
            self.stdout.write(f"  {login.username:<{width}}  {login.about}")
