"""Running programs, and facts about those that another run has started."""

import os
import signal
import subprocess
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import FrameType
from typing import NoReturn


class Terminated(SystemExit):
    """Somebody asked this run to end; what it started is stopped on the way out."""


def end_orderly_when_asked() -> None:
    """Make SIGTERM and SIGHUP an exception, so that open blocks are left as they should be."""
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, _raise_terminated)


def _raise_terminated(number: int, _frame: FrameType | None) -> NoReturn:
    raise Terminated(128 + number)


def run(command: Sequence[str], environment: Mapping[str, str], folder: Path | None = None) -> int:
    """Run a program to its end and return its exit status.

    Ctrl-C reaches the program from the terminal, as it does us, and the program decides what to do about it.
    """
    with subprocess.Popen(command, env=environment, cwd=folder) as program:
        while True:
            try:
                status = program.wait()
            except KeyboardInterrupt:
                continue
            except Terminated:
                program.terminate()
                raise
            return status if status >= 0 else 128 - status


def command_of(pid: int) -> str:
    """The command line of a process, empty when it is gone or a zombie."""
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace").strip()
    except FileNotFoundError:
        if Path("/proc/self").exists():
            return ""
    asked = subprocess.run(["ps", "-o", "command=", "-p", str(pid)], capture_output=True, text=True, check=False)
    return asked.stdout.strip()


def is_running(pid: int, *, naming: str) -> bool:
    """Whether the process lives and is the one we mean: numbers are used again, command lines tell."""
    return naming in command_of(pid)


def end(pid: int, *, naming: str, first: signal.Signals, seconds: float) -> None:
    """Ask the process to end, and kill it when it has not ended in time."""
    for number, patience in ((first, seconds), (signal.SIGKILL, 5.0)):
        if not is_running(pid, naming=naming):
            return
        os.kill(pid, number)
        _wait_until_gone(pid, naming, patience)


def _wait_until_gone(pid: int, naming: str, seconds: float) -> None:
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline and is_running(pid, naming=naming):
        time.sleep(0.03)
