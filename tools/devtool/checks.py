"""`./dev test` and `./dev lint`: what CI runs, the same everywhere."""

import os
import shutil
import subprocess
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from tools.devtool import build, processes, python_env, say, servers
from tools.devtool.layout import Checkout

_CHROMIUM_NAMES = ("chromium", "chromium-browser", "google-chrome-stable", "google-chrome")
_NO_CHROMIUM = (
    "The browser tests need Chromium, and there is none on the PATH.\n"
    "Install it (Debian: apt install chromium; Ubuntu: snap install chromium) or name one with TIDEGATE_CHROMIUM."
)


def test(checkout: Checkout, arguments: Sequence[str], *, long: bool) -> int:
    """Run pytest on throw-away servers: the whole suite in two processes, or what the arguments name."""
    python_env.ensure(checkout, python_env.DEVELOP)
    build.ensure(checkout)
    deselected = [] if long else ["long"]
    if find_chromium() is None:
        if os.environ.get("CI"):
            raise say.Failed(_NO_CHROMIUM)
        say.note(f"{_NO_CHROMIUM}\n  The browser tests are left out of this run.")
        deselected.append("browser")
    with servers.test_servers(checkout) as running:
        command = [checkout.python, "-m", "pytest", *pytest_arguments(arguments, deselected)]
        return processes.run(command, running.environment, checkout.root)


def pytest_arguments(given: Sequence[str], deselected: Sequence[str]) -> list[str]:
    """Ours come first, so that the person's own win."""
    expression = " and ".join(f"not {marker}" for marker in deselected)
    ours = ["-m", expression] if expression else []
    if not given:
        ours += ["--numprocesses", "2", "--dist", "worksteal"]
    return [*ours, *given]


def find_chromium() -> str | None:
    """The browser for tests: TIDEGATE_CHROMIUM, else the first of the usual names on the PATH."""
    named = os.environ.get("TIDEGATE_CHROMIUM")
    return next(filter(None, map(shutil.which, [named] if named else _CHROMIUM_NAMES)), None)


def lint(checkout: Checkout, *, fix: bool) -> int:
    """Run every check, also after one has failed; the answer is the number of failed ones, at most 1."""
    python_env.ensure(checkout, python_env.DEVELOP)
    failed = []
    with servers.test_servers(checkout) as running:
        for name, command in _lint_commands(checkout, fix=fix).items():
            if not _passes(name, command, checkout.root, running.environment):
                failed.append(name)
    if failed:
        say.line(f"\nfailed: {', '.join(failed)}")
    return min(len(failed), 1)


def _lint_commands(checkout: Checkout, *, fix: bool) -> dict[str, list[str]]:
    python = checkout.python
    djade = [str(checkout.program("djade")), "--target-version", "5.2", *([] if fix else ["--check"])]
    templates = sorted(str(path.relative_to(checkout.root)) for path in (checkout.root / "templates").rglob("*.html"))
    return {
        "ruff check": [python, "-m", "ruff", "check", *(["--fix"] if fix else []), "."],
        "ruff format": [python, "-m", "ruff", "format", *([] if fix else ["--check"]), "."],
        "djade (templates)": [*djade, *templates],
        "import-linter": [python, "-c", "from importlinter.cli import lint_imports_command as c; c()", "--no-cache"],
        "mypy": [python, "-m", "mypy"],
        "django check": checkout.manage("check", "--fail-level", "WARNING"),
        "migrations": checkout.manage("makemigrations", "--check", "--dry-run"),
        "openapi": checkout.manage("spectacular", "--validate", "--fail-on-warn", "--file", os.devnull),
    }


def _passes(name: str, command: Sequence[str], folder: Path, environment: Mapping[str, str]) -> bool:
    started = time.monotonic()
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)
    say.line(f"  {'ok    ' if done.returncode == 0 else 'FAILED'} {name} ({time.monotonic() - started:.1f} s)")
    if done.returncode:
        say.line(f"{done.stdout}{done.stderr}")
    return done.returncode == 0
