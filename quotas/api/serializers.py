"""What every serializer of the API stands on, and the shapes that several of them share."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rest_framework import serializers


class Write(serializers.Serializer[Any]):
    """A body that is read: names it does not know are refused rather than passed over."""

    default_error_messages = {"unknown": "There is no such field."}

    def to_internal_value(self, data: Any) -> dict[str, Any]:
        if isinstance(data, Mapping):
            unknown = sorted(set(map(str, data)) - set(self.fields))
            if unknown:
                problem = serializers.ErrorDetail(str(self.error_messages["unknown"]), code="unknown")
                raise serializers.ValidationError({name: [problem] for name in unknown})
        return dict(super().to_internal_value(data))


class Judged(Write):
    """A body that a spec judges: there null is as good as leaving an optional field out, and the schema says so."""

    def get_fields(self) -> dict[str, serializers.Field[Any, Any, Any, Any]]:
        fields = super().get_fields()
        for field in fields.values():
            field.allow_null = field.allow_null or not field.required
        return fields


class Read(serializers.Serializer[Any]):
    """A body that is written; it has no way back."""


class Named(Read):
    """A thing by its number and name."""

    id = serializers.IntegerField()
    name = serializers.CharField()


class ProblemItem(Read):
    """One thing that is wrong: where, which rule, and the numbers it is about."""

    field = serializers.CharField(help_text="Dotted path of the field, empty for the request as a whole.")
    code = serializers.CharField(help_text="Stable code; see the enum `Refusal` for those of the product's rules.")
    facts = serializers.DictField(help_text="The numbers and names that the message speaks of.")
    message = serializers.CharField()


class ProblemBody(Read):
    """An error as RFC 9457 describes it."""

    type = serializers.CharField()
    title = serializers.CharField()
    status = serializers.IntegerField()
    code = serializers.CharField()
    detail = serializers.CharField()
    problems = ProblemItem(many=True)
    request_id = serializers.CharField()
