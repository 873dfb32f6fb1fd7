"""Copies of the project to try ./dev in, each with data and servers of its own."""

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import psutil

from tools.devtool.layout import Checkout

ROOT = Path(__file__).resolve().parents[2]
_LEFT_BEHIND = shutil.ignore_patterns(
    ".git", ".venv", "var", "node_modules", "__pycache__", ".hypothesis", ".ruff_cache", ".pytest_cache"
)
_OF_THIS_RUN = ("DATABASE_URL", "REDIS_URL", "TIDEGATE_LOCAL", "TIDEGATE_SECRET_KEY", "DJANGO_SETTINGS_MODULE", "CI")


@dataclass(frozen=True)
class Clone:
    root: Path

    @property
    def elsewhere(self) -> Path:
        """Where the servers live when their user may not enter the clone."""
        return Path("/var/tmp") / f"tidegate-{Checkout(self.root).id}"

    def environment(self, **more: str) -> dict[str, str]:
        """This process's environment without the servers of the test run, on the packages of the test run."""
        kept = {name: value for name, value in os.environ.items() if name not in _OF_THIS_RUN}
        return {**kept, "TIDEGATE_VENV": sys.prefix, **more}

    def dev(self, *arguments: str, **environment: str) -> "subprocess.CompletedProcess[str]":
        return subprocess.run(
            [self.root / "dev", *arguments],
            cwd=self.root.parent,
            env=self.environment(**environment),
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )

    def start(self, *arguments: str) -> "subprocess.Popen[str]":
        """Start ./dev and leave it running; what it says can be read."""
        return subprocess.Popen(
            [self.root / "dev", *arguments],
            cwd="/",
            env=self.environment(),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def processes(self) -> list[psutil.Process]:
        """All processes that work in this clone's folders or name them."""
        return [process for process in psutil.process_iter() if self._is_ours(process)]

    def programs(self, word: str) -> list[psutil.Process]:
        """Those that have the word in their command line and were started by none of the same kind, forks left out."""
        found = [process for process in self.processes() if word in _command(process)]
        return [process for process in found if word not in _command(process.parent())]

    def _is_ours(self, process: psutil.Process) -> bool:
        places = (str(self.root), self.elsewhere.name)
        try:
            facts = f"{process.cwd()} {_command(process)}"
        except psutil.Error:
            return False
        return any(place in facts for place in places)


def _command(process: psutil.Process | None) -> str:
    """The command line, empty for a process that has just ended."""
    try:
        return " ".join(process.cmdline()) if process else ""
    except psutil.Error:
        return ""


@contextmanager
def clone(name: str, mode: int = 0o755) -> Iterator[Clone]:
    """A copy of the work tree in a folder of this mode; gone in the end, with all that it left elsewhere."""
    folder = Path(tempfile.mkdtemp(dir="/var/tmp"))
    made = Clone(folder / name)
    try:
        folder.chmod(mode)
        shutil.copytree(ROOT, made.root, ignore=_LEFT_BEHIND, symlinks=True)
        yield made
    finally:
        made.dev("down")
        shutil.rmtree(folder)
        shutil.rmtree(made.elsewhere, ignore_errors=True)


def read_until(stream: Iterator[str], wanted: str) -> Sequence[str]:
    """Lines up to the one that has the wanted text; all lines when none has it."""
    lines = []
    for line in stream:
        lines.append(line)
        if wanted in line:
            break
    return lines
