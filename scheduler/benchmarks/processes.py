"""The workers that a benchmark runs beside itself, and how much CPU they and the database use. Linux only."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterable
from pathlib import Path
from types import TracebackType
from typing import Self

from django.conf import settings
from django.db import connection

PROC = Path("/proc")
TICKS_A_SECOND = os.sysconf("SC_CLK_TCK")
STOP_PATIENCE_S = 15.0
WORKER = ("worker", "--loglevel", "warning", "--without-gossip", "--without-mingle", "--without-heartbeat")
PROGRAMS = {
    "scheduler": (*WORKER, "--queues", "scheduler", "--concurrency", "1", "--hostname", "bench-scheduler@%h"),
    "worker": (*WORKER, "--queues", "default", "--concurrency", "2", "--hostname", "bench-worker@%h"),
    "beat": ("beat", "--loglevel", "warning", "--scheduler", "celery.beat:Scheduler", "--pidfile", ""),
}


class Workers:
    """The scheduler worker, the other workers and beat on the database and the broker of this process."""

    def __init__(self) -> None:
        self.running: dict[str, subprocess.Popen[bytes]] = {}

    def __enter__(self) -> Self:
        for name, arguments in PROGRAMS.items():
            command = [sys.executable, "-m", "celery", "-A", "console.celery", "--quiet", *arguments]
            self.running[name] = subprocess.Popen(command, cwd=settings.BASE_DIR, stdout=sys.stderr)  # noqa: S603
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for process in self.running.values():
            process.terminate()
        for process in self.running.values():
            try:
                process.wait(STOP_PATIENCE_S)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()

    def require_alive(self) -> None:
        """Raises RuntimeError when one of them has died."""
        for name, process in self.running.items():
            if process.poll() is not None:
                raise RuntimeError(f"the {name} process has ended with status {process.returncode}")


class Meter:
    """CPU seconds used since the meter was made, by this process, each group of workers and the database."""

    def __init__(self, workers: Workers) -> None:
        self._roots = {name: process.pid for name, process in workers.running.items()}
        self._server = database_server()
        self._begun = self._now()

    def read(self) -> dict[str, float]:
        return {name: seconds - self._begun.get(name, 0.0) for name, seconds in self._now().items()}

    def _now(self) -> dict[str, float]:
        own = time.process_time()
        children = {name: cpu_seconds(tree(pid)) for name, pid in self._roots.items()}
        server = {"database": cpu_seconds(tree(self._server))} if self._server is not None else {}
        return {"submitter": own, **children, **server}


def database_server() -> int | None:
    """The process id of the database server, where it runs on this machine."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_backend_pid()")
        (backend,) = cursor.fetchone()
    stat = _stat(backend)
    return int(stat[1]) if stat is not None and _name(backend).startswith("postgres") else None


def tree(root: int) -> set[int]:
    """The process and all its descendants that live."""
    parents = {int(entry.name): _stat(int(entry.name)) for entry in PROC.iterdir() if entry.name.isdecimal()}
    found = {root}
    grown = True
    while grown:
        more = {pid for pid, stat in parents.items() if stat is not None and int(stat[1]) in found} - found
        grown = bool(more)
        found |= more
    return found


def cpu_seconds(processes: Iterable[int]) -> float:
    """User and system time of the processes and of their children that have ended."""
    stats = [_stat(pid) for pid in processes]
    return sum(sum(map(int, stat[11:15])) for stat in stats if stat is not None) / TICKS_A_SECOND


def _stat(pid: int) -> list[str] | None:
    """The fields after the name: state, parent, ...; None when the process is gone."""
    try:
        return (PROC / str(pid) / "stat").read_text().rpartition(")")[2].split()
    except OSError:
        return None


def _name(pid: int) -> str:
    try:
        return (PROC / str(pid) / "comm").read_text().strip()
    except OSError:
        return ""
