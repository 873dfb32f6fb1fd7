"""The small shell script in front: it finds a Python that is new enough."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

_DEV = Path(__file__).resolve().parents[2] / "dev"


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A folder of programs that has only what the script needs, and no Python yet."""
    for name in ("sh", "dirname"):
        (tmp_path / name).symlink_to(f"/usr/bin/{name}")
    return tmp_path


def _dev(path: Path, *arguments: str) -> "subprocess.CompletedProcess[str]":
    environment = {**os.environ, "PATH": str(path)}
    return subprocess.run([_DEV, *arguments], env=environment, capture_output=True, text=True, check=False)


def _python(path: Path, name: str, version: str) -> None:
    """A stand-in that says its version and fails where an old Python would."""
    program = path / name
    program.write_text(f'#!/bin/sh\n[ "$1" = --version ] && echo "Python {version}" && exit 0\nexit 1\n')
    program.chmod(0o755)


def test_an_old_python_alone_is_refused_by_version(path: Path) -> None:
    _python(path, "python3", "3.9.2")
    done = _dev(path, "--help")
    assert done.returncode == 1
    assert done.stderr == "Tidegate needs Python 3.11, 3.12, 3.13 or 3.14 on the PATH; found: Python 3.9.2.\n"


def test_a_newer_python_beside_an_old_one_is_taken_and_named(path: Path) -> None:
    _python(path, "python3", "3.9.2")
    (path / "python3.13").symlink_to(sys.executable)
    done = _dev(path, "--help")
    assert done.returncode == 0, done.stderr
    assert "python3 is Python 3.9.2; using python3.13" in done.stderr


@pytest.mark.parametrize("command", ["up", "test", "lint", "manage", "bench", "screenshots", "lock", "down"])
def test_every_command_has_help_with_examples(command: str) -> None:
    done = subprocess.run([_DEV, command, "--help"], capture_output=True, text=True, check=False)
    assert done.returncode == 0
    assert f"examples:\n  ./dev {command}" in done.stdout


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        ((), "the following arguments are required: COMMAND"),
        (("upp",), "invalid choice: 'upp'"),
        (("up", "--port", "70000"), "a port is a whole number from 1 to 65535, not '70000'"),
        (("lint", "--strict"), "unrecognized arguments: --strict"),
    ],
)
def test_a_wrong_command_line_is_explained(arguments: tuple[str, ...], complaint: str) -> None:
    done = subprocess.run([_DEV, *arguments], capture_output=True, text=True, check=False)
    assert (done.returncode, complaint in done.stderr) == (2, True), done.stderr
