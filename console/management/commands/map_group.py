"""`manage.py map_group`: what being in a group of the identity provider gives."""

from __future__ import annotations

from argparse import ArgumentParser, RawDescriptionHelpFormatter
from typing import Any

from django.core.management.base import BaseCommand, CommandError

from quotas.actors import SYSTEM
from quotas.errors import Refused
from quotas.models import GroupRole, Workspace
from quotas.services.groups import map_group, unmap_group
from quotas.words import sentence

HELP = """Say what being in a group of the identity provider gives; without a group, list what is said already.
It holds from a person's next sign-in on. Roles that were given by hand are never touched.

Examples:
  ./dev manage map_group
  ./dev manage map_group ml-admins --platform-role administrator
  ./dev manage map_group team-b --workspace workspace_b --role developer
  ./dev manage map_group team-b --workspace workspace_b --role developer --remove
"""


class Command(BaseCommand):
    """The command."""

    help = HELP

    def create_parser(self, *args: Any, **options: Any) -> Any:
        return super().create_parser(*args, formatter_class=RawDescriptionHelpFormatter, **options)

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("group", nargs="?", help="the group's name as the identity provider sends it")
        parser.add_argument("--workspace", help="the workspace in which the group has a role")
        parser.add_argument("--role", default="", help="administrator, operator, developer or viewer")
        parser.add_argument("--platform-role", default="", help="administrator or auditor of the whole platform")
        parser.add_argument("--remove", action="store_true", help="the group gives this no longer")

    def handle(self, *args: Any, **options: Any) -> None:
        if not options["group"]:
            self._list()
            return
        workspace = self._workspace(options["workspace"])
        given = {"group": options["group"], "role": options["role"], "platform_role": options["platform_role"]}
        if options["remove"]:
            self._remove(given, workspace)
            return
        try:
            mapped = map_group(actor=SYSTEM, workspace=workspace, **given)
        except Refused as error:
            problems = (f"{problem.field}: {sentence(problem.code, problem.facts)}" for problem in error.problems)
            raise CommandError("; ".join(problems)) from error
        self.stdout.write(_line(mapped))

    def _list(self) -> None:
        rows = GroupRole.objects.select_related("workspace")
        self.stdout.write("\n".join(map(_line, rows)) or "No group gives anything yet; see --help.")

    def _workspace(self, name: str | None) -> Workspace | None:
        if not name:
            return None
        found = Workspace.objects.filter(name__iexact=name).first()
        if found is None:
            names = ", ".join(Workspace.objects.values_list("name", flat=True)[:10])
            raise CommandError(f"There is no workspace {name!r}. There are: {names or 'none yet'}.")
        return found

    def _remove(self, given: dict[str, str], workspace: Workspace | None) -> None:
        mapped = GroupRole.objects.filter(workspace=workspace, **given).first()
        if mapped is None:
            raise CommandError("That is not said of the group; call without a group to see what is.")
        unmap_group(actor=SYSTEM, mapped=mapped)
        self.stdout.write(f"No longer: {_line(mapped)}")


def _line(mapped: GroupRole) -> str:
    if mapped.workspace is None:
        return f"{mapped.group}: platform {mapped.platform_role}"
    return f"{mapped.group}: {mapped.role} in {mapped.workspace.name}"
