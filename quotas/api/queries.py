"""The part of an address after the question mark: filters, order, pages, trial runs."""

from __future__ import annotations

from typing import Any, ClassVar

from django.http import QueryDict
from rest_framework import serializers

from quotas.api.fields import MAX_ID
from quotas.api.serializers import Write

DEFAULT_PAGE = 50
MOST_PAGE = 200
MOST_ROWS_CSV = 20_000


class Query(Write):
    """Parameters of a call; unknown ones are refused like unknown fields."""

    @classmethod
    def read(cls, given: QueryDict) -> dict[str, Any]:
        """The checked parameters; raises ValidationError."""
        many = {name for name, field in cls._declared_fields.items() if isinstance(field, serializers.ListField)}
        plain = {name: given.getlist(name) if name in many else given[name] for name in given}
        query = cls(data=plain)
        query.is_valid(raise_exception=True)
        return dict(query.validated_data)


class ChangeQuery(Query):
    """Parameters of every change."""

    dry_run = serializers.BooleanField(
        default=False, help_text="Do everything but keep nothing: the answer is what a real call would give."
    )


class ListQuery(Query):
    """Parameters of every list.

    ``lookups`` says which filter asks what of a row; ``orders`` which fields a caller may order by (each never
    null), the first being the default.
    """

    lookups: ClassVar[dict[str, str]] = {}
    orders: ClassVar[dict[str, str]] = {"id": "id"}
    default_order: ClassVar[str] = "id"

    format = serializers.ChoiceField(["json", "csv"], required=False, help_text="`Accept: text/csv` works too.")
    limit = serializers.IntegerField(
        min_value=1, default=DEFAULT_PAGE, help_text=f"Items a page; more than {MOST_PAGE} count as {MOST_PAGE}."
    )
    cursor = serializers.CharField(required=False, max_length=500, help_text="From `next` of the page before.")
    ordering = serializers.CharField(required=False, max_length=63, help_text="A field, with `-` in front: descending.")

    def get_fields(self) -> dict[str, serializers.Field[Any, Any, Any, Any]]:
        fields = super().get_fields()
        choices = [sign + name for name in self.orders for sign in ("", "-")]
        fields["ordering"] = serializers.ChoiceField(
            choices, default=self.default_order, help_text="A field, with `-` in front: descending."
        )
        return fields

    def validate_limit(self, value: int) -> int:
        return min(value, MOST_PAGE)


class IdParameter(serializers.IntegerField):
    """A number of one of our things in a query."""

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(min_value=1, max_value=MAX_ID, required=False, **kwargs)


class Words(serializers.ListField):
    """Several of the named words: ``?state=queued&state=running``."""

    def __init__(self, choices: Any, **kwargs: Any) -> None:
        super().__init__(child=serializers.ChoiceField(choices), required=False, **kwargs)
