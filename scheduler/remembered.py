"""Rows that this process has read before and that have not changed since, by a mark that every change of a row moves.

What is remembered is only believed together with its mark, which is read afresh each time; so it may be lost, or be
older than what another process wrote, and nothing but time is lost.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from datetime import datetime
from typing import Any, Generic, TypeAlias, TypeVar

from django.db import connection

from quotas.models import Cluster

Row = TypeVar("Row")
_Place: TypeAlias = tuple[str, int, datetime]


class Memory(Generic[Row]):
    """Rows of one kind, by cluster and id."""

    def __init__(self) -> None:
        self._known: dict[_Place, dict[int, tuple[int, Row]]] = {}
        _memories.append(self)

    def recall(
        self, cluster: Cluster, marks: Mapping[int, int], read: Callable[[list[int]], Mapping[int, Row]]
    ) -> dict[int, Row]:
        """The rows of `marks` (id to mark), in their order; `read` is asked for those that are not known so."""
        known = self._known.get(_place(cluster), {})
        unknown = [pk for pk, mark in marks.items() if pk not in known or known[pk][0] != mark]
        fresh = read(unknown) if unknown else {}
        rows = {pk: fresh[pk] if pk in fresh else known[pk][1] for pk in marks}
        self._known[_place(cluster)] = {pk: (mark, rows[pk]) for pk, mark in marks.items()}
        return rows

    def note(self, cluster: Cluster, rows: Iterable[tuple[int, Row]], mark: int) -> None:
        """Rows as this process has just written them, all with the same mark."""
        self._known.setdefault(_place(cluster), {}).update({pk: (mark, row) for pk, row in rows})

    def forget(self) -> None:
        self._known.clear()


_memories: list[Memory[Any]] = []


def forget_all() -> None:
    """Know nothing, as after a restart."""
    for memory in _memories:
        memory.forget()


def _place(cluster: Cluster) -> _Place:
    """Which cluster it is, whatever database the connection speaks to."""
    return (str(connection.settings_dict["NAME"]), cluster.pk, cluster.created_at)
