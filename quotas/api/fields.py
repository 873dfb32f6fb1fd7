"""Fields that take JSON for what it is: text is text, a number is a number, and nothing is guessed."""

from __future__ import annotations

from typing import Any

from rest_framework import serializers

MAX_ID = 2**63 - 1


class Text(serializers.CharField):
    """A JSON string."""

    def to_internal_value(self, data: Any) -> str:
        if not isinstance(data, str):
            self.fail("invalid")
        return super().to_internal_value(data)


class Whole(serializers.IntegerField):
    """A JSON number without a fraction."""

    def to_internal_value(self, data: Any) -> int:
        if isinstance(data, bool) or not isinstance(data, int | float) or data != data // 1:
            self.fail("invalid")
        return super().to_internal_value(int(data))


class Flag(serializers.BooleanField):
    """JSON ``true`` or ``false``."""

    def to_internal_value(self, data: Any) -> bool:
        if not isinstance(data, bool):
            self.fail("invalid", input=data)
        return data


class Choice(serializers.ChoiceField):
    """One of the named strings."""

    def to_internal_value(self, data: Any) -> str:
        if not isinstance(data, str):
            self.fail("invalid_choice", input=data)
        return str(super().to_internal_value(data))


class Moment(serializers.DateTimeField):
    """An ISO 8601 instant as a JSON string."""

    def to_internal_value(self, value: Any) -> Any:
        if not isinstance(value, str):
            self.fail("invalid", format="YYYY-MM-DDThh:mm[:ss[.uuuuuu]][+HH:MM|-HH:MM|Z]")
        try:
            return super().to_internal_value(value)
        except OverflowError:
            self.fail("overflow")


class Id(Whole):
    """The number by which one of our things is known."""

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(min_value=1, max_value=MAX_ID, **kwargs)
