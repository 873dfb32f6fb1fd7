"""Cursor pages: each begins after the last row of the one before, however many rows came meanwhile."""

from __future__ import annotations

import base64
import json
from datetime import UTC, datetime
from typing import Any

from django.core.exceptions import FieldDoesNotExist, ValidationError
from django.db.models import Model, Q, QuerySet
from rest_framework import serializers
from rest_framework.pagination import BasePagination
from rest_framework.views import APIView


class Pages(BasePagination):
    """The shape of a list's answer, for the schema."""

    def get_schema_operation_parameters(self, view: APIView) -> list[dict[str, Any]]:
        return []  # they are in the list's query

    def get_paginated_response_schema(self, items: dict[str, Any]) -> dict[str, Any]:
        following = {"type": ["string", "null"], "description": "The `cursor` of the next page; null on the last."}
        return {"type": "object", "required": ["items", "next"], "properties": {"items": items, "next": following}}


def page_of(
    rows: QuerySet[Any], *, field: str, descending: bool, limit: int, cursor: str | None
) -> tuple[list[Any], str | None]:
    """One page ordered by the field and then by id, and the cursor of the next page (None: the last).

    The field must never be null. One query.
    """
    sign = "-" if descending else ""
    ordered = rows.order_by(sign + field, *([sign + "id"] if field != "id" else []))
    if cursor is not None:
        ordered = ordered.filter(after(rows, field, descending, cursor))
    found = list(ordered[: limit + 1])
    if len(found) <= limit:
        return found, None
    return found[:limit], cursor_of(found[limit - 1], field)


def after(rows: QuerySet[Any], field: str, descending: bool, cursor: str) -> Q:
    """What stands behind the cursor; the first condition alone lets the database use an index on the field."""
    value, pk = read_cursor(rows, field, cursor)
    side = "lt" if descending else "gt"
    if field == "id":
        return Q(**{f"id__{side}": pk})
    return Q(**{f"{field}__{side}e": value}) & (Q(**{f"{field}__{side}": value}) | Q(**{f"id__{side}": pk}))


def cursor_of(row: Any, field: str) -> str:
    value = row
    for part in field.split("__"):
        value = getattr(value, part)
    text = json.dumps([str(value), row.pk], separators=(",", ":"))
    return base64.urlsafe_b64encode(text.encode()).decode().rstrip("=")


def read_cursor(rows: QuerySet[Any], field: str, cursor: str) -> tuple[Any, int]:
    """The value and id that a cursor holds; raises ValidationError for one that we did not make."""
    try:
        text = base64.urlsafe_b64decode(cursor + "=" * (-len(cursor) % 4)).decode()
        value, pk = json.loads(text)
        if not isinstance(value, str) or "\x00" in value or not isinstance(pk, int) or not 0 < pk < 2**63:
            raise ValueError(text)
        value.encode()
        read = column(rows, field).to_python(value)
        return (read.astimezone(UTC) if isinstance(read, datetime) else read), pk
    except (ValueError, TypeError, OverflowError, RecursionError, ValidationError) as error:
        problem = serializers.ErrorDetail("Not a cursor of this list.", code="cursor")
        raise serializers.ValidationError({"cursor": [problem]}) from error


def column(rows: QuerySet[Any], path: str) -> Any:
    """The field at the end of a path such as ``quota__name``, or of an annotation of that name."""
    if path in rows.query.annotations:
        return rows.query.annotations[path].output_field
    *steps, last = path.split("__")
    model: type[Model] = rows.model
    for step in steps:
        related = model._meta.get_field(step).related_model
        if not isinstance(related, type):
            raise FieldDoesNotExist(path)
        model = related
    return model._meta.get_field(last)
