"""Fields that take JSON for what it is: text is text, a number is a number, and nothing is guessed."""

from __future__ import annotations

from typing import Any

from django.core.validators import RegexValidator
from drf_spectacular.utils import extend_schema_field
from rest_framework import serializers

from quotas.specs import LABEL_KEY_MAX, LABEL_VALUE_MAX, LABELS_MAX, NAME_MAX, NAME_PATTERN, NODE_NAME_MAX

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


class Name(Text):
    """The name of a thing: letters, digits, and inside also ``._ -``."""

    def __init__(self, most: int = NAME_MAX, pattern: str = NAME_PATTERN, **kwargs: Any) -> None:
        super().__init__(max_length=most, trim_whitespace=False, **kwargs)
        self.validators.append(RegexValidator(rf"\A(?:{pattern})\Z"))
        self.pattern = pattern


@extend_schema_field({"oneOf": [{"type": "integer"}, {"type": "string"}]})
class Reference(serializers.Field[Any, Any, Any, Any]):
    """Another of our things, by number or by name."""

    default_error_messages = {"invalid": "A number or a name is wanted."}

    def to_internal_value(self, data: Any) -> int | str:
        if isinstance(data, bool) or not isinstance(data, int | str) or (isinstance(data, str) and not _is_name(data)):
            self.fail("invalid")
        return data

    def to_representation(self, value: Any) -> Any:
        return value


def _is_name(text: str) -> bool:
    return 0 < len(text) <= NODE_NAME_MAX


@extend_schema_field(
    {
        "type": "object",
        "maxProperties": LABELS_MAX,
        "propertyNames": {"minLength": 1, "maxLength": LABEL_KEY_MAX},
        "additionalProperties": {"type": "string", "maxLength": LABEL_VALUE_MAX},
    }
)
class Labels(serializers.DictField):
    """Label names and their values."""

    default_error_messages = {
        "too_many": "At most {most} labels.",
        "name": "A label's name has 1 to {most} characters.",
    }

    def __init__(self, **kwargs: Any) -> None:
        child = Text(max_length=LABEL_VALUE_MAX, allow_blank=True, trim_whitespace=False)
        super().__init__(child=child, **kwargs)

    def to_internal_value(self, data: Any) -> dict[str, str]:
        labels: dict[str, str] = super().to_internal_value(data)
        if len(labels) > LABELS_MAX:
            self.fail("too_many", most=LABELS_MAX)
        if any(not 0 < len(name) <= LABEL_KEY_MAX for name in labels):
            self.fail("name", most=LABEL_KEY_MAX)
        return labels
