"""The first person of an installation: a platform administrator, who adds all others in the console."""

import getpass
import os
from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser

from quotas.actors import SYSTEM
from quotas.errors import DomainError, Refused
from quotas.models import PlatformRole
from quotas.services import create_user
from quotas.specs import UserSpec
from quotas.words import sentence


class Command(BaseCommand):
    help = "Create a platform administrator. The password is asked for, or taken from TIDEGATE_PASSWORD."

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("username")
        parser.add_argument("--email", default="")

    def handle(self, *args: Any, **options: Any) -> None:
        given = {
            "username": options["username"],
            "email": options["email"],
            "password": os.environ.get("TIDEGATE_PASSWORD") or getpass.getpass(),
            "platform_role": PlatformRole.ADMINISTRATOR,
        }
        try:
            user = create_user(actor=SYSTEM, spec=UserSpec.from_mapping(given))
        except Refused as refused:
            raise CommandError(
                "\n".join(f"{p.field}: {sentence(p.code, dict(p.facts))}" for p in refused.problems)
            ) from refused
        except DomainError as error:
            raise CommandError(str(error)) from error
        self.stdout.write(f"{user.username} may sign in.")
