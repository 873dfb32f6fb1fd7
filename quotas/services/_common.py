"""What the services of this app share."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TypeVar

from django.db import IntegrityError, models, transaction
from django.db.models import F

from quotas.actors import Actor
from quotas.errors import Stale, refuse
from quotas.models import User

M = TypeVar("M", bound=models.Model)


def as_user(actor: Actor) -> User | None:
    """The person behind the actor; None for the system."""
    return actor if isinstance(actor, User) else None


@contextmanager
def taken_is_conflict(field: str, given: str) -> Iterator[None]:
    """A name that somebody else has taken meanwhile is refused as ``conflict``."""
    try:
        with transaction.atomic():
            yield
    except IntegrityError as error:
        diag = getattr(error.__cause__, "diag", None)
        if getattr(error.__cause__, "sqlstate", "") != "23505" or diag is None:
            raise
        raise refuse(field, "conflict", given=given) from error


def locked(thing: M, revision: int | None = None) -> M:
    """The newest state of the row, locked until the end; ``Stale`` if it is not at the caller's revision."""
    newest = type(thing)._base_manager.select_for_update(no_key=True, of=("self",)).filter(pk=thing.pk).first()
    if newest is None or (revision is not None and getattr(newest, "revision", revision) != revision):
        raise Stale(newest or thing)
    return newest


def save_changes(thing: models.Model, fields: list[str]) -> None:
    """Saves the named fields of a row that is locked, and counts its revision up."""
    values = {name: getattr(thing, name) for name in fields}
    type(thing)._base_manager.filter(pk=thing.pk).update(**values, revision=F("revision") + 1)
    thing.refresh_from_db()
