"""A conformance case as it lies in the file: read, checked and kept as a small world that rounds change.

Only what the format's README names is read. A case that is not of the format raises `BadCase` with the place.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

Raw = Mapping[str, Any]


class BadCase(ValueError):
    """The file is not of the format; the message names the place."""


@dataclass(slots=True)
class Task:
    """One task of a job and where it stands. `groups` are names of shared devices on its node."""

    id: str
    raw: Raw
    pod_set: str
    gpus: float
    state: str
    node: str | None
    groups: tuple[str, ...] = ()

    @property
    def is_held(self) -> bool:
        """Whether it holds room on its node."""
        return self.state in HOLDING

    @property
    def is_alive(self) -> bool:
        return self.state not in FINISHED


HOLDING = frozenset({"Running", "Bound", "Binding", "Allocated", "Releasing"})
FINISHED = frozenset({"Succeeded", "Failed", "Unknown", "Deleted"})


@dataclass(slots=True)
class Job:
    """A job with its tasks."""

    name: str
    raw: Raw
    tasks: list[Task]


@dataclass(slots=True)
class Case:
    """One case: its input as a world, and what must come out."""

    id: str
    raw: Raw
    jobs: list[Job]
    features: tuple[str, ...] = ()
    devices: dict[str, tuple[int, ...]] = field(default_factory=dict)
    """Task id -> device indexes on its node, as far as they are known already."""

    @property
    def config(self) -> Raw:
        config: Raw = self.raw["config"]
        return config

    def tasks(self) -> Iterator[tuple[Job, Task]]:
        """All tasks with their jobs, in file order."""
        for job in self.jobs:
            for task in job.tasks:
                yield job, task


def files_of(paths: list[Path]) -> list[Path]:
    """The JSON files that the paths name: files as they are, folders with all below them."""
    found: list[Path] = []
    for path in paths:
        if path.is_dir():
            found.extend(sorted(path.rglob("*.json")))
        elif path.exists():
            found.append(path)
        else:
            raise BadCase(f"{path}: no such file or folder")
    return found


def read_cases(path: Path) -> list[Case]:
    """The cases of one file."""
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, json.JSONDecodeError) as error:
        raise BadCase(f"{path}: not a readable JSON file ({error})") from error
    if not isinstance(content, dict) or not isinstance(content.get("cases"), list):
        raise BadCase(f"{path}: expected an object with a list `cases`")
    return [_case(path, number, raw) for number, raw in enumerate(content["cases"])]


def _case(path: Path, number: int, raw: Raw) -> Case:
    try:
        jobs = [Job(job["name"], job, [_task(task) for task in job["tasks"]]) for job in raw["jobs"]]
        for key in ("config", "nodes", "queues", "departments", "expected", "rounds"):
            raw[key]
        return Case(raw["id"], raw, jobs, tuple(raw.get("features", ())))
    except (KeyError, TypeError) as error:
        raise BadCase(f"{path}: case {number}: {error!r} is missing or of the wrong type") from error


def _task(raw: Raw) -> Task:
    return Task(
        id=raw["id"],
        raw=raw,
        pod_set=raw.get("sub_group") or "default",
        gpus=raw["gpus"],
        state=raw["state"],
        node=raw["node"] if raw["state"] in HOLDING | FINISHED | {"Pipelined"} else None,
        groups=tuple(raw.get("gpu_groups") or ()),
    )
