"""Fields for amounts: people write GPUs, cores, GiB and "1h 30m"; base units come out."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

from django import forms
from django.core.exceptions import ValidationError
from django.utils.translation import gettext_lazy as _

from console import amounts


class MilliField(forms.DecimalField):
    """A number with up to three decimals, in thousandths: "0.5" gives 500. Empty gives None."""

    def __init__(self, *, unit: str = "", **options: Any) -> None:
        options.setdefault("min_value", 0)
        options.setdefault("max_value", 1_000_000)
        super().__init__(max_digits=12, decimal_places=3, **options)
        self.unit = unit
        self.widget.attrs["inputmode"] = "decimal"

    def clean(self, value: Any) -> Any:
        number = super().clean(value)
        return None if number is None else int(number * amounts.MILLI)

    def prepare_value(self, value: Any) -> Any:
        """An int is in thousandths (an initial value); what was typed comes back as it was."""
        if isinstance(value, int):
            return (
                f"{Decimal(value) / amounts.MILLI:f}".rstrip("0").rstrip(".")
                if value % amounts.MILLI
                else value // amounts.MILLI
            )
        return value


class MemoryField(forms.CharField):
    """Memory with a unit, in MiB: "64GiB" gives 65536. Empty gives None."""

    default_error_messages = {"invalid": _("Write a size such as 64GiB or 512MiB, 0 or more.")}

    def clean(self, value: Any) -> Any:
        text = super().clean(value)
        if not text:
            return None
        try:
            return amounts.parse_memory(text)
        except ValueError as error:
            raise ValidationError(self.error_messages["invalid"], code="invalid") from error

    def prepare_value(self, value: Any) -> Any:
        if not isinstance(value, int):
            return value
        return f"{value // 1024}GiB" if value % 1024 == 0 else f"{value}MiB"


class SpanField(forms.CharField):
    """A span of time in seconds: "1h 30m" gives 5400. Empty gives None."""

    default_error_messages = {"invalid": _("Write a time such as 45s, 30m, 1h 30m or 2d, 0 or more.")}

    def clean(self, value: Any) -> Any:
        text = super().clean(value)
        if not text:
            return None
        try:
            return amounts.parse_span(text)
        except ValueError as error:
            raise ValidationError(self.error_messages["invalid"], code="invalid") from error

    def prepare_value(self, value: Any) -> Any:
        return amounts.short_span(value) if isinstance(value, int) else value


class LabelsField(forms.CharField):
    """Labels as "team=a, tier=gold"; gives a dict."""

    default_error_messages = {"invalid": _("Write labels as name=value, separated by commas.")}

    def clean(self, value: Any) -> Any:
        text = super().clean(value)
        labels: dict[str, str] = {}
        for part in (piece.strip() for piece in text.split(",")):
            if not part:
                continue
            name, equals, content = part.partition("=")
            if not equals or not name.strip():
                raise ValidationError(self.error_messages["invalid"], code="invalid")
            labels[name.strip()] = content.strip()
        return labels

    def prepare_value(self, value: Any) -> Any:
        return (
            ", ".join(f"{name}={content}" for name, content in sorted(value.items()))
            if isinstance(value, dict)
            else value
        )
