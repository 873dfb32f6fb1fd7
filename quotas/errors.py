"""Why something was not done. Codes are stable and the same on every door; words are made from them in ``words.py``."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import TypeVar

from django.db import models

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Problem:
    """One thing that is wrong with an input: the field (empty: the whole), the code, the numbers."""

    field: str
    code: str
    facts: Mapping[str, object] = dataclasses.field(default_factory=dict)


class DomainError(Exception):
    """Anything that a door answers with a code instead of a failure."""


class Refused(DomainError):
    """The input was understood and is not possible; nothing was changed. Carries all problems at once."""

    def __init__(self, problems: Problem | Iterable[Problem]) -> None:
        self.problems = [problems] if isinstance(problems, Problem) else list(problems)
        super().__init__("; ".join(f"{p.field or '-'}: {p.code} {dict(p.facts)}" for p in self.problems))

    @property
    def codes(self) -> list[str]:
        return [problem.code for problem in self.problems]


class Denied(DomainError):
    """The actor sees the thing but may not do this to it; names what is missing."""

    code = "permission.denied"

    def __init__(self, permission: str) -> None:
        self.permission = permission
        super().__init__(f"missing permission: {permission}")


class NotFound(DomainError):
    """It is not there, or not for this actor: from outside the two look the same."""

    code = "not_found"

    def __init__(self, what: str) -> None:
        self.what = what
        super().__init__(f"{what} not found")


class Stale(DomainError):
    """The thing has changed since the caller read it; ``thing`` is the newest state, or what the caller had."""

    code = "stale"

    def __init__(self, thing: models.Model) -> None:
        self.thing = thing
        super().__init__(f"{type(thing).__name__} {thing.pk} has changed meanwhile")


def refuse(field: str, code: str, **facts: object) -> Refused:
    """A refusal with one problem."""
    return Refused(Problem(field, code, facts))


class Problems:
    """Gathers problems, so that a caller hears of all of them at once."""

    def __init__(self) -> None:
        self.found: list[Problem] = []

    def add(self, field: str, code: str, **facts: object) -> None:
        self.found.append(Problem(field, code, facts))

    def unless(self, fine: bool, field: str, code: str, **facts: object) -> None:
        """Adds the problem if ``fine`` is false."""
        if not fine:
            self.add(field, code, **facts)

    def take(self, prefix: str, check: Callable[[], T]) -> T | None:
        """What the check of a part gives; None if it is refused, its problems then are taken over under ``prefix``."""
        try:
            return check()
        except Refused as refused:
            self.found += [Problem(f"{prefix}.{p.field}".strip("."), p.code, p.facts) for p in refused.problems]
            return None

    def raise_any(self) -> None:
        """Raises ``Refused`` if anything was found."""
        if self.found:
            raise Refused(self.found)
