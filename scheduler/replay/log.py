"""The log: who arrived when, asked for what and ran how long; and the nodes that it is replayed on."""

from __future__ import annotations

import csv
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

BEGIN_S = 9_900_000
"""The replay's clock starts here, in seconds of the log: nearly all of it arrives later."""
COPIES_OF_BATCH = 4
"""The log holds little best-effort work, so each such task is submitted so many times."""
SAMPLE_EVERY, SAMPLE_FROM = 100, 50
NODE_COLUMNS = ("cpu_milli", "memory_mib", "gpu", "model")
JOB_COLUMNS = ("job", "arrival_s", "queued_s", "duration_s", "gpus", "gpu_milli", "cpu_milli", "memory_mib", "qos")
ONLINE, BATCH = "online", "batch"

Row = dict[str, str]
Read = TypeVar("Read")


class BadLogError(ValueError):
    """A file that cannot be replayed; the message names it, and the line where there is one."""


@dataclass(frozen=True, order=True)
class Machine:
    """A node of the list; they are compared by model, GPUs, CPU and memory."""

    model: str
    gpus: int
    cpu_milli: int
    memory_mib: int


@dataclass(frozen=True)
class Task:
    """One task of the log. ``duration_s`` is None for one that was never scheduled."""

    job: str
    arrival_s: int
    queued_s: int
    duration_s: int | None
    gpus: int
    gpu_milli: int
    cpu_milli: int
    memory_mib: int
    qos: str

    @property
    def quota(self) -> str:
        return BATCH if self.qos == "BE" else ONLINE


@dataclass(frozen=True)
class Arrival:
    """A task to submit, ``at_s`` seconds after the start of the replay; it will run for ``run_s``."""

    at_s: float
    name: str
    task: Task
    run_s: int


EXTRA_MACHINE = Machine("G3", gpus=8, cpu_milli=128_000, memory_mib=768 * 1024)


def sample_machines(path: Path) -> list[Machine]:
    """Every hundredth node of the list in order, from the fiftieth, and one large node for the widest tasks."""
    machines = sorted(_read(path, NODE_COLUMNS, _machine))
    if len(machines) < SAMPLE_FROM:
        raise BadLogError(f"{path}: {len(machines)} nodes, at least {SAMPLE_FROM} are needed for a sample")
    return [*machines[SAMPLE_FROM - 1 :: SAMPLE_EVERY], EXTRA_MACHINE]


def read_tasks(path: Path) -> list[Task]:
    return _read(path, JOB_COLUMNS, _task)


def arrivals(tasks: Sequence[Task], speed: float = 1.0, until_s: float | None = None) -> list[Arrival]:
    """What is submitted when, in order; with ``speed`` 1.5 the same tasks come in two thirds of the time.

    Tasks that had arrived before the start are there at the start and run for what was left of them. Tasks that were
    never scheduled are left out, as are those that come more than ``until_s`` seconds after the start.
    """
    found = [arrival for task in tasks for arrival in _copies(task, speed)]
    found = [arrival for arrival in found if until_s is None or arrival.at_s <= until_s]
    return sorted(found, key=lambda arrival: (arrival.at_s, arrival.name))


def _copies(task: Task, speed: float) -> Iterator[Arrival]:
    if task.duration_s is None:
        return
    late_s = task.arrival_s - BEGIN_S
    run_s = task.duration_s if late_s >= 0 else late_s + task.queued_s + task.duration_s
    if run_s <= 0:
        return
    for copy in range(COPIES_OF_BATCH if task.quota == BATCH else 1):
        yield Arrival(max(0.0, late_s / speed), f"{task.quota}-{task.job}-{copy}", task, run_s)


def _machine(row: Row) -> Machine:
    return Machine(row["model"], _whole(row, "gpu"), _whole(row, "cpu_milli"), _whole(row, "memory_mib"))


def _task(row: Row) -> Task:
    return Task(
        job=row["job"],
        arrival_s=_whole(row, "arrival_s"),
        queued_s=_whole(row, "queued_s"),
        duration_s=_whole(row, "duration_s") if row["duration_s"] else None,
        gpus=_whole(row, "gpus"),
        gpu_milli=_whole(row, "gpu_milli"),
        cpu_milli=_whole(row, "cpu_milli"),
        memory_mib=_whole(row, "memory_mib"),
        qos=row["qos"],
    )


def _whole(row: Row, column: str) -> int:
    if not row[column].isdecimal():
        raise ValueError(f"{column} is a whole number of at least 0, not {row[column]!r}")
    return int(row[column])


def _read(path: Path, columns: Sequence[str], make: Callable[[Row], Read]) -> list[Read]:
    try:
        with path.open(newline="", encoding="utf-8") as file:
            reader = csv.DictReader(file)
            missing = [column for column in columns if column not in (reader.fieldnames or ())]
            if missing:
                raise BadLogError(f"{path}: no column {', '.join(missing)}")
            return [_made(path, number, row, make) for number, row in enumerate(reader, start=2)]
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise BadLogError(f"{path}: {error}") from error


def _made(path: Path, number: int, row: Row, make: Callable[[Row], Read]) -> Read:
    try:
        return make(row)
    except (ValueError, AttributeError, TypeError) as error:
        raise BadLogError(f"{path}, line {number}: {error}") from error
