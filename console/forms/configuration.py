"""Forms of a workspace's scheduling configuration: its Resource Usage entries, saved as one, and its templates."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, ClassVar

from django import forms
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

from console.forms.base import ConsoleForm, Section, ShownProblem
from console.forms.fields import MemoryField, MilliField, SpanField
from console.forms.quotas import PRIORITIES, KindsField
from quotas.errors import Problem
from quotas.models import KINDS, Role, Workspace
from quotas.specs import DESCRIPTION_MAX, GPUS_OF_NODE_MAX, NAME_MAX
from quotas.words import sentence
from workloads.models import Idle, Template, UsageEntry

MOST_LINES = 200
SUBJECTS = ("role", "custom_role", "user")


class EntryForm(ConsoleForm):
    """One entry: who, what of one quota, and how much of it."""

    quota = forms.TypedChoiceField(label=gettext_lazy("Quota"), coerce=int)
    name = forms.CharField(label=gettext_lazy("Name"), max_length=NAME_MAX)
    subject = forms.ChoiceField(label=gettext_lazy("Who"))
    kinds = KindsField(label=gettext_lazy("Kinds allowed"))
    priority_low = forms.TypedChoiceField(label=gettext_lazy("For priority from"), choices=PRIORITIES, coerce=int)
    priority_high = forms.TypedChoiceField(label=gettext_lazy("to"), choices=PRIORITIES, coerce=int)
    cap_gpu_milli = MilliField(label=gettext_lazy("GPUs at once"), required=False)
    cap_cpu_milli = MilliField(label=gettext_lazy("CPU cores at once"), required=False)
    cap_memory_mib = MemoryField(label=gettext_lazy("Memory at once"), required=False)
    max_priority = forms.TypedChoiceField(
        label=gettext_lazy("Highest priority"),
        choices=[("", "–"), *PRIORITIES],
        coerce=int,
        empty_value=None,
        required=False,
    )
    max_runtime_s = SpanField(label=gettext_lazy("Longest run"), required=False)
    max_wait_s = SpanField(label=gettext_lazy("Longest wait"), required=False)
    template_required = forms.BooleanField(label=gettext_lazy("A template must be used"), required=False)
    gone = forms.BooleanField(label=gettext_lazy("Remove this entry"), required=False)

    problem_fields: ClassVar[dict[str, str]] = {"role": "subject", "custom_role": "subject", "user": "subject"}
    first_fields = ("quota", "name", "subject", "kinds")
    limit_fields = ("priority_low", "priority_high", "cap_gpu_milli", "cap_cpu_milli", "cap_memory_mib")
    more_fields = ("max_priority", "max_runtime_s", "max_wait_s", "template_required", "gone")

    def __init__(self, *args: Any, choices: Mapping[str, list[tuple[str, Any]]], **options: Any) -> None:
        super().__init__(*args, **options)
        for name, found in choices.items():
            field = self.fields[name]
            assert isinstance(field, forms.ChoiceField)
            field.choices = found

    @property
    def all_sections(self) -> list[Section]:
        return [
            Section("", [self[name] for name in self.first_fields]),
            Section("", [self[name] for name in self.limit_fields]),
            Section("", [self[name] for name in self.more_fields]),
        ]

    def mapping(self) -> dict[str, Any]:
        """The entry as the spec reads it."""
        data = {name: value for name, value in self.cleaned_data.items() if value not in (None, "")}
        data.pop("gone", None)
        what, _colon, which = data.pop("subject").partition(":")
        return {**data, what: int(which) if what == "custom_role" else which}


class EntrySet:
    """All entries of a workspace as one form: validated together, saved together, problems shown at their entry."""

    def __init__(
        self, workspace: Workspace, entries: Iterable[UsageEntry], data: Any = None, revision: int = 0
    ) -> None:
        self.choices = choices_of(workspace)
        self.data = data
        self.is_bound = data is not None
        self.revision = revision
        self.loose: list[str] = []
        count = min(_number(data.get("total")), MOST_LINES) if self.is_bound else 0
        self.forms = (
            [self._form(index, data=data) for index in range(count)]
            if self.is_bound
            else [self._form(index, initial=entry_initial(entry)) for index, entry in enumerate(entries)]
        )

    def _form(self, index: int, **options: Any) -> EntryForm:
        return EntryForm(prefix=f"entry-{index}", choices=self.choices, **options)

    def add(self, quota_pk: int) -> None:
        """One more entry, as open as it can be, for a quota."""
        initial = {"quota": quota_pk, "kinds": list(KINDS), "priority_low": "1", "priority_high": "9"}
        self.forms.append(self._form(len(self.forms), initial=initial))

    @property
    def errors(self) -> bool:
        return bool(self.loose) or any(form.is_bound and form.errors for form in self.kept)

    @property
    def kept(self) -> list[EntryForm]:
        """Entries that are not marked for removal."""
        return [form for form in self.forms if not (form.is_bound and form.data.get(form.add_prefix("gone")))]

    def is_valid(self) -> bool:
        return self.is_bound and not self.errors

    @property
    def shown_problems(self) -> list[ShownProblem]:
        loose = [ShownProblem("", "", words) for words in self.loose]
        return [*loose, *(problem for form in self.kept if form.is_bound for problem in form.shown_problems)]

    def add_problems(self, problems: Iterable[Problem]) -> None:
        """Problems named ``entries.3.kinds`` go to the fourth entry that is kept."""
        for problem in problems:
            _entries, _dot, rest = problem.field.partition(".")
            index, _dot, _field = rest.partition(".")
            if index.isdigit() and int(index) < len(self.kept):
                self.kept[int(index)].add_problems([problem])
            else:
                self.loose.append(sentence(problem.code, problem.facts))

    def renew_revision(self, revision: int) -> None:
        self.revision = revision

    def mappings(self) -> list[dict[str, Any]]:
        return [form.mapping() for form in self.kept]


def choices_of(workspace: Workspace) -> dict[str, list[tuple[str, Any]]]:
    """Bound quotas, and who an entry may be about: a role, one of the workspace's own roles, or a member."""
    quotas = workspace.bindings.select_related("quota").order_by("-is_default", "quota__name")
    members = workspace.members.select_related("user").order_by("user__username")
    names = [member.user.get_username() for member in members]
    subjects: list[tuple[str, Any]] = [
        (_("Roles"), [(f"role:{role.value}", role.label.capitalize()) for role in Role]),
        (_("Own roles"), [(f"custom_role:{role.pk}", role.name) for role in workspace.custom_roles.all()]),
        (_("Members"), [(f"user:{name}", name) for name in names]),
    ]
    return {
        "quota": [(str(binding.quota_id), binding.quota.name) for binding in quotas],
        "subject": [(title, found) for title, found in subjects if found],
    }


def entry_initial(entry: UsageEntry) -> dict[str, Any]:
    """A stored entry as the form shows it."""
    names = [name for name in EntryForm.base_fields if name not in ("quota", "subject", "gone")]
    return {
        **{name: getattr(entry, name) for name in names},
        "quota": entry.quota_id,
        "priority_low": str(entry.priority_low),
        "priority_high": str(entry.priority_high),
        "max_priority": "" if entry.max_priority is None else str(entry.max_priority),
        "subject": subject_of(entry),
    }


def subject_of(entry: UsageEntry) -> str:
    if entry.role:
        return f"role:{entry.role}"
    if entry.custom_role_id is not None:
        return f"custom_role:{entry.custom_role_id}"
    return f"user:{entry.user.get_username()}" if entry.user else ""


def _number(text: str | None) -> int:
    return int(text) if text and text.isascii() and text.isdecimal() and len(text) < 6 else 0


class TemplateForm(ConsoleForm):
    """A named size."""

    name = forms.CharField(label=gettext_lazy("Name"), max_length=NAME_MAX)
    description = forms.CharField(label=gettext_lazy("Description"), max_length=DESCRIPTION_MAX, required=False)
    gpus = MilliField(label=gettext_lazy("GPUs"), max_value=GPUS_OF_NODE_MAX)
    cpu_milli = MilliField(label=gettext_lazy("CPU cores"), required=False)
    memory_mib = MemoryField(label=gettext_lazy("Memory"), required=False)
    idle = forms.ChoiceField(
        label=gettext_lazy("Use of idle room"),
        required=False,
        choices=[("", gettext_lazy("as in the submission")), *Idle.choices],
    )

    problem_fields: ClassVar[dict[str, str]] = {"gpu_milli": "gpus"}

    def mapping(self) -> dict[str, Any]:
        data = {name: value for name, value in self.cleaned_data.items() if value not in (None, "")}
        milli = data.pop("gpus")
        return {**data, "gpus": milli / 1000 if milli % 1000 else milli // 1000}


def template_initial(template: Template | None) -> dict[str, Any]:
    if template is None:
        return {}
    names = ("name", "description", "cpu_milli", "memory_mib", "idle")
    return {**{name: getattr(template, name) for name in names}, "gpus": template.gpus * template.gpu_milli}
