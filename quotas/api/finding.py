"""Finding what a body names."""

from __future__ import annotations

from typing import TypeVar

from django.db.models import Model, QuerySet

from quotas.specs import Reader

M = TypeVar("M", bound=Model)


def named(among: QuerySet[M], reference: object, *, field: str, key: str = "name") -> M:
    """The one with this number or name among those that the caller may see; raises Refused."""
    read = Reader({field: reference})
    found: M | None = read.one_of(field, among, key=key)
    read.finish()
    assert found is not None, "a missing one is a problem of the reader"
    return found
