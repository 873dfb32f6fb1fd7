"""Reading node and task lists of the placement benchmark (CSV, one header line, columns by name)."""

from __future__ import annotations

import csv
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TypeVar

from scheduler.core.placement_room import WHOLE_GPU, NodeSpec, Shape

Row = dict[str, str]
Read = TypeVar("Read")


class BadListError(ValueError):
    """A list that can not be read; the message names the file, and the line where there is one."""


def read_nodes(path: Path) -> list[NodeSpec]:
    """Nodes in file order, from the columns `cpu_milli`, `memory_mib`, `gpu` (their number) and `model`."""
    nodes = _read(path, ("cpu_milli", "memory_mib", "gpu", "model"), _node)
    if not any(node.gpus for node in nodes):
        raise BadListError(f"{path}: no node has a GPU")
    return nodes


def read_tasks(path: Path) -> list[Shape]:
    """Tasks in file order, from `cpu_milli`, `memory_mib`, `num_gpu`, `gpu_milli` and, if there, `gpu_spec`."""
    tasks = _read(path, ("cpu_milli", "memory_mib", "num_gpu", "gpu_milli"), _task)
    if not any(task.gpus for task in tasks):
        raise BadListError(f"{path}: no task asks for a GPU")
    return tasks


def _node(row: Row) -> NodeSpec:
    return NodeSpec(_amount(row, "cpu_milli"), _amount(row, "memory_mib"), _amount(row, "gpu"), row["model"])


def _task(row: Row) -> Shape:
    gpus, gpu_milli = _amount(row, "num_gpu"), _amount(row, "gpu_milli")
    if not gpus:
        return Shape(_amount(row, "cpu_milli"), _amount(row, "memory_mib"))
    if not 0 < gpu_milli <= WHOLE_GPU or (gpus > 1 and gpu_milli < WHOLE_GPU):
        raise ValueError(f"{gpus} GPUs of {gpu_milli} thousandths: slices are of one GPU, several GPUs are whole")
    models = tuple(sorted({model for model in (row.get("gpu_spec") or "").split("|") if model}))
    return Shape(_amount(row, "cpu_milli"), _amount(row, "memory_mib"), gpus, gpu_milli, models)


def _amount(row: Row, column: str) -> int:
    amount = int(row[column])
    if amount < 0:
        raise ValueError(f"{column} is negative: {amount}")
    return amount


def _read(path: Path, columns: Iterable[str], make: Callable[[Row], Read]) -> list[Read]:
    try:
        with path.open(newline="", encoding="utf-8") as file:
            reader = csv.DictReader(file)
            missing = set(columns) - set(reader.fieldnames or ())
            if missing:
                raise BadListError(f"{path}: no column {', '.join(sorted(missing))}")
            return [_made(path, line, row, make) for line, row in enumerate(reader, start=2)]
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise BadListError(f"{path}: {error}") from error


def _made(path: Path, line: int, row: Row, make: Callable[[Row], Read]) -> Read:
    try:
        return make(row)
    except (ValueError, TypeError) as error:
        raise BadListError(f"{path}, line {line}: {error}") from error
