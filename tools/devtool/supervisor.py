"""Keep a few programs running until somebody asks to stop."""

import ctypes
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType

from tools.devtool import say

_RESTARTS_PER_MINUTE = 5
_STOP_SECONDS = 15.0
_PR_SET_PDEATHSIG = 1


@dataclass
class Service:
    """One program. It runs in a session of its own, so Ctrl-C reaches it through us only."""

    name: str
    command: Sequence[str]
    log: Path
    environment: dict[str, str]
    cwd: Path
    process: "subprocess.Popen[bytes] | None" = None
    starts: list[float] = field(default_factory=list)

    def start(self) -> None:
        self.starts = [moment for moment in self.starts if moment > time.monotonic() - 60] + [time.monotonic()]
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(
                self.command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env=self.environment,
                cwd=self.cwd,
                start_new_session=True,
                preexec_fn=_end_with_parent,
            )

    @property
    def ended_with(self) -> int | None:
        """The exit status of a program that has ended, None while it runs."""
        return self.process.poll() if self.process else None

    @property
    def keeps_failing(self) -> bool:
        return len(self.starts) > _RESTARTS_PER_MINUTE

    def log_tail(self, lines: int = 15) -> str:
        return "\n".join(self.log.read_text(errors="replace").splitlines()[-lines:])


class Supervisor:
    """Starts services, starts again what ends by itself, and stops all in the end."""

    def __init__(self, services: Sequence[Service]) -> None:
        self._services = services
        self._stopping = False

    def __enter__(self) -> "Supervisor":
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            signal.signal(number, self._ask_to_stop)
        for service in self._services:
            service.start()
        return self

    def __exit__(self, *_: object) -> None:
        """Ask all to end at once, then wait for each; a second Ctrl-C does not cut this short."""
        running = [service.process for service in self._services if service.process and service.ended_with is None]
        for process in running:
            process.terminate()
        deadline = time.monotonic() + _STOP_SECONDS
        for process in running:
            _wait(process, deadline)

    @property
    def stopping(self) -> bool:
        return self._stopping

    def watch(self, also: Callable[[], None]) -> None:
        """Return when somebody asked to stop, and look after `also` meanwhile.

        Raises Failed when a service cannot be kept running.
        """
        while not self._stopping:
            self.restart_ended()
            also()
            time.sleep(0.5)

    def restart_ended(self) -> None:
        for service in self._services:
            status = service.ended_with
            if status is None or self._stopping:
                continue
            if service.keeps_failing:
                raise say.Failed(f"{service.name} keeps ending. The end of {service.log}:\n{service.log_tail()}")
            say.note(f"{service.name} ended with status {status}; starting it again")
            service.start()

    def _ask_to_stop(self, _number: int, _frame: FrameType | None) -> None:
        self._stopping = True


def _wait(process: "subprocess.Popen[bytes]", deadline: float) -> None:
    try:
        process.wait(max(0.1, deadline - time.monotonic()))
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def _end_with_parent() -> None:
    """On Linux, ask the kernel to end the program when we are killed: nobody else would."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)
