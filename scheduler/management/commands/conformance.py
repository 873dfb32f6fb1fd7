"""`manage.py conformance PATH...`: recorded situations of another scheduler, run through our core."""

from __future__ import annotations

import json
import sys
from argparse import ArgumentParser, RawDescriptionHelpFormatter
from pathlib import Path
from typing import Any

from django.core.management.base import BaseCommand

from scheduler.conformance.cases import BadCase, files_of, read_cases
from scheduler.conformance.runner import Tally, run_cases

HELP = """Run conformance cases through the scheduling core and compare the outcome.

A line per failing case (id, what was expected, what came), then one closing line of JSON.
Exit status 1 when a case failed, 2 when a file is not of the format.

Examples:
  ./dev manage conformance ../shared/conformance
  ./dev manage conformance ../shared/conformance/reclaim.json --feature fractional
"""


class Command(BaseCommand):
    """The command."""

    help = HELP
    requires_system_checks = ()

    def create_parser(self, *args: Any, **options: Any) -> Any:
        return super().create_parser(*args, formatter_class=RawDescriptionHelpFormatter, **options)

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("paths", nargs="+", type=Path, metavar="PATH", help="a JSON file or a folder of them")
        parser.add_argument("--feature", help="only cases with this feature or of this suite")
        parser.add_argument("--case", help="only the case with this id")

    def handle(self, *args: Any, **options: Any) -> None:
        try:
            cases = [case for path in files_of(options["paths"]) for case in read_cases(path)]
        except BadCase as error:
            self.stderr.write(str(error))
            sys.exit(2)
        feature, only = options["feature"], options["case"]
        if feature:
            cases = [case for case in cases if feature in (case.raw["suite"], *case.features)]
        if only:
            cases = [case for case in cases if case.id == only]
        tally = Tally()
        for case, found in run_cases(cases):
            tally.add(case, is_passed=not found)
            if found:
                self.stdout.write(f"{case.id} ({case.raw.get('title', '')}): " + "; ".join(found))
        self.stdout.write(json.dumps(tally.as_json()))
        sys.exit(1 if tally.failed or not cases else 0)
