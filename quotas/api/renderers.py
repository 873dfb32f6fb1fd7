"""CSV beside JSON, for lists."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterable, Mapping
from typing import Any

from rest_framework import renderers

FORMULA_STARTS = ("=", "+", "-", "@", "\t", "\r")


class CSVRenderer(renderers.BaseRenderer):
    """A header line and a line per item; nested fields become ``outer.inner`` columns."""

    media_type = "text/csv"
    format = "csv"
    charset = "utf-8"

    def render(
        self, data: Any, accepted_media_type: str | None = None, renderer_context: Mapping[str, Any] | None = None
    ) -> str:
        rows = [dict(flat(item)) for item in data["items"]]
        columns = list(dict.fromkeys(name for row in rows for name in row))
        out = io.StringIO()
        writer = csv.DictWriter(out, columns, restval="")
        writer.writeheader()
        writer.writerows(rows)
        return out.getvalue()


def flat(item: Mapping[str, Any], prefix: str = "") -> Iterable[tuple[str, object]]:
    """The item's leaves with dotted names; lists stay one cell, as JSON."""
    for name, value in item.items():
        if isinstance(value, Mapping) and value:
            yield from flat(value, f"{prefix}{name}.")
        elif isinstance(value, list | Mapping):
            yield prefix + name, json.dumps(value, default=str)
        else:
            yield prefix + name, harmless(value)


def harmless(value: object) -> object:
    """Text that a spreadsheet would run as a formula gets a quote in front."""
    if isinstance(value, str) and value.startswith(FORMULA_STARTS):
        return f"'{value}"
    return "" if value is None else value


class LinesRenderer(renderers.JSONRenderer):
    """JSON lines: the calls that give them write each line themselves."""

    media_type = "application/x-ndjson"
    format = "jsonl"


class EventsRenderer(renderers.JSONRenderer):
    """Server-sent events: the calls that give them write each one themselves."""

    media_type = "text/event-stream"
    format = "events"
