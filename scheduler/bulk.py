"""Many rows in one statement, where the ORM would build one expression a row."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from django.db import connection
from django.db.models import Field, Model


def update_rows(
    model: type[Model], ids: Sequence[int], values: Mapping[str, Sequence[object]], *, only_if: str = ""
) -> list[int]:
    """Give each row of `ids` its own values (plain columns, no arrays); returns the ids that were changed.

    `only_if` is a further SQL condition on the row, which stands in the statement as `t`.
    """
    if not ids:
        return []
    fields = [_field(model, name) for name in values]
    key = _field(model, model._meta.pk.name)
    arrays = ", ".join(f"%s::{field.db_type(connection)}[]" for field in (key, *fields))
    names = ", ".join(f"v{number}" for number in range(len(fields)))
    changes = ", ".join(f'"{field.column}" = new.v{number}' for number, field in enumerate(fields))
    condition = f" AND ({only_if})" if only_if else ""
    statement = (
        f'UPDATE "{model._meta.db_table}" AS t SET {changes} FROM unnest({arrays}) AS new(id, {names})'  # noqa: S608
        f' WHERE t."{key.column}" = new.id{condition} RETURNING t."{key.column}"'
    )
    columns = [
        [field.get_db_prep_save(value, connection) for value in values[name]]
        for name, field in zip(values, fields, strict=True)
    ]
    with connection.cursor() as cursor:
        cursor.execute(statement, [list(ids), *columns])
        return [row[0] for row in cursor.fetchall()]


def _field(model: type[Model], name: str) -> Field:  # type: ignore[type-arg]
    field = model._meta.get_field(name)
    assert isinstance(field, Field)
    return field
