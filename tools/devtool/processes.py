"""Facts about processes that another run may have started."""

import os
import signal
import subprocess
import time
from pathlib import Path


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
