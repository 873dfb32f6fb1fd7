"""The command line of ./dev."""

import argparse
import sys
from collections.abc import Sequence

from tools.devtool import checks, processes, python_env, say, servers
from tools.devtool.layout import Checkout, this_checkout
from tools.devtool.lock import lock
from tools.devtool.up import Options, up

_PASSED_ON = {"test", "manage", "bench", "screenshots", "lock"}
_EXAMPLES = """
Everything it makes is in .venv/, var/, node_modules/ and static/vendor/; remove them to start afresh.

environment:
  DATABASE_URL        a PostgreSQL to use instead of the embedded one: postgresql://user:password@host/name
  REDIS_URL           a Redis to use instead of the embedded one: redis://host:6379/0
  TIDEGATE_VENV       a virtual environment to use instead of .venv/, which several clones may share
  TIDEGATE_TEST_NAME  names the test database, so that several test runs can go on at once
  TIDEGATE_CHROMIUM   the browser for the browser tests

examples:
  ./dev up                            the whole product with demo data
  ./dev test                          the whole test suite
  ./dev manage scenario FILE.yaml     a scenario of a day, on a virtual clock
  ./dev COMMAND --help                more about one command
"""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command and return its exit status; 2 is a wrong command line, 1 anything else that failed."""
    processes.end_orderly_when_asked()
    given = list(sys.argv[1:] if arguments is None else arguments)
    try:
        return _run(given)
    except say.Failed as failed:
        say.line(f"\n{failed}")
        return 1
    except KeyboardInterrupt:
        return 130


def _run(given: list[str]) -> int:
    command, rest = (given[0], given[1:]) if given else ("", [])
    if command in _PASSED_ON and rest[:1] not in (["-h"], ["--help"]):
        return _pass_on(command, rest)
    known = _parser().parse_args(given)
    if known.command == "up":
        options = Options(known.host, known.port, demo=not known.no_demo, debug=known.debug)
        return up(this_checkout(), options)
    if known.command == "lint":
        return checks.lint(this_checkout(), fix=known.fix)
    return servers.stop_all(this_checkout())


def _pass_on(command: str, rest: Sequence[str]) -> int:
    checkout = this_checkout()
    if command == "manage":
        return manage(checkout, rest)
    if command == "test":
        return checks.test(checkout, [part for part in rest if part != "--long"], long="--long" in rest)
    if command == "bench":
        return manage(checkout, ["bench", *rest])
    if command == "screenshots":
        return screenshots(checkout, rest)
    return lock(checkout, rest)


def manage(checkout: Checkout, arguments: Sequence[str]) -> int:
    """Run a Django command; relative paths in its arguments count from where the person stands."""
    python_env.ensure(checkout, python_env.RUN)
    with servers.main_servers(checkout) as running:
        return processes.run(checkout.manage(*arguments), running.environment)


def screenshots(checkout: Checkout, arguments: Sequence[str]) -> int:
    """Take pictures of the pages of the ./dev up that runs."""
    python_env.ensure(checkout, python_env.DEVELOP)
    with servers.main_servers(checkout) as running:
        command = [checkout.python, "-m", "tools.screenshots", *arguments]
        return processes.run(command, running.environment, checkout.root)


def _parser() -> argparse.ArgumentParser:
    raw = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(
        prog="./dev", description="Run, test and look after Tidegate.", epilog=_EXAMPLES, formatter_class=raw
    )
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")

    def add(name: str, summary: str, *examples: str) -> argparse.ArgumentParser:
        epilog = "examples:\n" + "\n".join(f"  {example}" for example in examples)
        return commands.add_parser(name, help=summary, description=summary, epilog=epilog, formatter_class=raw)

    _add_up(
        add("up", "start everything and stay until Ctrl-C", "./dev up", "./dev up --port 9000", "./dev up --no-demo")
    )
    test = add(
        "test",
        "run the tests; all but --long goes to pytest",
        "./dev test",
        "./dev test --long",
        "./dev test tests/quotas -x -q",
        "./dev test -k preempt",
    )
    test.add_argument("--long", action="store_true", help="with the tests that take minutes")
    lint = add("lint", "run formatters, linters and type checks", "./dev lint", "./dev lint --fix")
    lint.add_argument("--fix", action="store_true", help="mend what the tools can mend")
    add(
        "manage",
        "run a Django command",
        "./dev manage migrate",
        "./dev manage shell",
        "./dev manage scenario FILE.yaml",
    )
    add("bench", "measure speed", "./dev bench", "./dev bench decide --nodes 1000")
    add("screenshots", "take pictures of all pages into var/screenshots", "./dev screenshots")
    add("lock", "choose package versions and hashes anew", "./dev lock", "./dev lock --upgrade-package django")
    add("down", "stop embedded servers that a killed run left behind", "./dev down")
    return parser


def _add_up(parser: argparse.ArgumentParser) -> None:
    defaults = Options()
    parser.add_argument("--host", default=defaults.host, help="address to listen on (default: %(default)s)")
    parser.add_argument("--port", type=_port, default=defaults.port, help="first port to try (default: %(default)s)")
    parser.add_argument("--no-demo", action="store_true", help="leave an empty database empty")
    parser.add_argument("--debug", action="store_true", help="Django's debug pages, and reload on changes")


def _port(text: str) -> int:
    if not text.isdecimal() or not 1 <= int(text) <= 65535:
        raise argparse.ArgumentTypeError(f"a port is a whole number from 1 to 65535, not {text!r}")
    return int(text)
