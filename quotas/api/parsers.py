"""JSON in, with a bound on its size."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from typing import IO, Any

from django.conf import settings
from rest_framework import exceptions, parsers, status


class TooLarge(exceptions.APIException):
    """The body has more bytes than the API takes."""

    status_code = status.HTTP_413_REQUEST_ENTITY_TOO_LARGE
    default_code = "too_large"

    def __init__(self, most: int) -> None:
        super().__init__(f"A body may have {most} bytes at most.")


class JSONParser(parsers.BaseParser):
    """UTF-8 JSON of at most ``API_BODY_BYTES``; numbers are finite, fields stand there once, nesting ends."""

    media_type = "application/json"

    def parse(
        self, stream: IO[bytes], media_type: str | None = None, parser_context: Mapping[str, Any] | None = None
    ) -> Any:
        most: int = settings.API_BODY_BYTES
        body = stream.read(most + 1)
        if len(body) > most:
            raise TooLarge(most)
        try:
            data = json.loads(
                body.decode("utf-8"),
                parse_constant=_refuse_constant,
                parse_float=_finite,
                object_pairs_hook=_each_once,
            )
            refuse_unstorable(data)
        except (ValueError, RecursionError) as error:
            raise exceptions.ParseError(f"The body is not valid JSON: {error}") from error
        return data


def refuse_unstorable(data: Any) -> None:
    """Raises ValueError for text that the database cannot keep: NUL, or half of a surrogate pair."""
    if isinstance(data, str):
        if "\x00" in data:
            raise ValueError("text with a NUL character")
        data.encode()
    elif isinstance(data, Mapping):
        for name, value in data.items():
            refuse_unstorable(name)
            refuse_unstorable(value)
    elif isinstance(data, list):
        for value in data:
            refuse_unstorable(value)


def _refuse_constant(word: str) -> None:
    raise ValueError(f"{word} is not a JSON number")


def _finite(word: str) -> float:
    number = float(word)
    if not math.isfinite(number):
        raise ValueError(f"{word[:40]} is too large a number")
    return number


def _each_once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """The object; one that says a field twice leaves open which of the two is meant."""
    found = dict(pairs)
    if len(found) < len(pairs):
        names = [name for name, _ in pairs]
        raise ValueError(f"“{next(name for name in names if names.count(name) > 1)}” stands there more than once")
    return found
