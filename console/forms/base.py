"""What all forms of the console share: looks, sections, and where a refusal's problems are shown."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, ClassVar

from django import forms
from django.core.validators import MaxValueValidator, MinValueValidator
from django.forms.boundfield import BoundField
from django.forms.renderers import TemplatesSetting
from django.http import QueryDict
from django.utils.functional import cached_property
from django.utils.translation import gettext as _

from quotas.errors import Problem
from quotas.words import sentence


class ConsoleRenderer(TemplatesSetting):
    form_template_name = "components/form_fields.html"
    field_template_name = "components/field.html"


@dataclass(frozen=True, slots=True)
class ShownProblem:
    anchor: str
    label: str
    sentence: str


@dataclass(frozen=True, slots=True)
class Section:
    title: str
    fields: list[BoundField]
    when: str = ""  # "kind=service": shown while that choice is made
    fold: bool = False  # closed at first; open when something in it is wrong
    wide: bool = False  # one field a line

    @property
    def is_open(self) -> bool:
        return any(field.errors for field in self.fields)


class ConsoleForm(forms.Form):
    """A form in sections. ``problem_fields`` says which field shows the problem of a service's field."""

    default_renderer = ConsoleRenderer
    use_required_attribute = True
    required_css_class = "required"
    layout: ClassVar[tuple[tuple[Any, ...], ...]] = ()  # (title, (field, ...)[, when])
    problem_fields: ClassVar[dict[str, str]] = {}

    def __init__(self, *args: Any, **options: Any) -> None:
        options.setdefault("label_suffix", "")
        super().__init__(*args, **options)
        for field in self.fields.values():
            say_the_range(field)

    def __getitem__(self, name: str) -> BoundField:
        """A field as it is shown: with the classes of its kind, marked when something is wrong with it."""
        bound = super().__getitem__(name)
        bound.field.widget.attrs["class"] = _classes(bound.field.widget, has_errors=bool(bound.errors))
        return bound

    @property
    def all_sections(self) -> list[Section]:
        """What the page shows; forms whose fields depend on data put their own sections here."""
        return self.sections

    @cached_property
    def sections(self) -> list[Section]:
        """Fields as the layout groups them; what it does not name comes first."""
        named = {name for row in self.layout for name in row[1]}
        rest = [self[name] for name in self.fields if name not in named and not self[name].is_hidden]
        groups = [
            Section(row[0], [self[name] for name in row[1] if name in self.fields], *row[2:]) for row in self.layout
        ]
        first = [Section("", rest)] if rest else []
        return [*first, *(group for group in groups if group.fields)]

    @property
    def shown_problems(self) -> list[ShownProblem]:
        """All errors of the form with the field each belongs to, for the summary on top."""
        found: list[ShownProblem] = []
        for name, errors in self.errors.items():
            bound = self[name] if name in self.fields else None
            anchor, label = (anchor_of(bound), str(bound.label)) if bound else ("", "")
            found += [ShownProblem(anchor, label, str(message)) for message in errors]
        return found

    def renew_revision(self, revision: int) -> None:
        """What was typed stays, on top of the newest state: saving again puts it in place of that."""
        if isinstance(self.data, QueryDict):
            self.data = self.data.copy()
            self.data["revision"] = str(revision)

    def add_problems(self, problems: Iterable[Problem]) -> None:
        """Show a service's refusal at the fields it names; what no field stands for goes on top."""
        for problem in problems:
            name = self.field_of(problem.field)
            self.add_error(name, sentence(problem.code, problem.facts))

    def field_of(self, named: str) -> str | None:
        """The form's field for a field of the spec ("amounts.default.guaranteed.gpu_milli" and the like)."""
        for candidate in (named, self.problem_fields.get(named, ""), named.rsplit(".", 1)[-1]):
            if candidate in self.fields:
                return candidate
        parts = named.split(".")
        return next((self.problem_fields[part] for part in parts if self.problem_fields.get(part) in self.fields), None)


def anchor_of(bound: BoundField) -> str:
    """The id that a link to the field goes to; a group of boxes has no control of that id itself."""
    return bound.id_for_label or f"field-{bound.html_name}"


def say_the_range(field: forms.Field) -> None:
    """A number that is wrong is told what would be right, whichever way it is wrong."""
    low, high = getattr(field, "min_value", None), getattr(field, "max_value", None)
    if not isinstance(field, forms.IntegerField) or low is None or high is None:
        return
    decimal = isinstance(field, forms.DecimalField)
    words = (
        _("Write a number from %(low)s to %(high)s.")
        if decimal
        else _("Write a whole number from %(low)s to %(high)s.")
    )
    field.error_messages["invalid"] = message = words % {"low": low, "high": high}
    field.validators = [
        type(rule)(rule.limit_value, message) if isinstance(rule, MinValueValidator | MaxValueValidator) else rule
        for rule in field.validators
    ]


def _classes(widget: forms.Widget, *, has_errors: bool) -> str:
    """Bootstrap's classes by kind of control."""
    if isinstance(widget, (forms.CheckboxSelectMultiple, forms.RadioSelect, forms.CheckboxInput)):
        css = "form-check-input"
    elif isinstance(widget, forms.Select):
        css = "form-select"
    else:
        css = "form-control"
    return f"{css} is-invalid" if has_errors else css
