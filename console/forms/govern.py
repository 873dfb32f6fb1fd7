"""Forms by which a workspace governs itself: own roles, invitations, requests for more quota."""

from __future__ import annotations

from typing import Any

from django import forms
from django.db.models import QuerySet
from django.utils.translation import gettext_lazy

from console.forms.base import ConsoleForm, Section
from console.forms.fields import MemoryField, MilliField
from console.forms.workspaces import RolesForm
from quotas.models import CustomRole, NodePool, Quota
from quotas.permissions import CUSTOM_MODULES
from quotas.specs import DESCRIPTION_MAX, NAME_MAX

LEVELS = (
    ("none", gettext_lazy("none")),
    ("read", gettext_lazy("read")),
    ("own", gettext_lazy("own: do it to one's own")),
    ("all", gettext_lazy("all")),
)
MODULES = {
    "training": gettext_lazy("Training jobs"),
    "notebooks": gettext_lazy("Notebooks"),
    "services": gettext_lazy("Inference services"),
    "queue": gettext_lazy("Queue"),
    "members": gettext_lazy("Members"),
    "configuration": gettext_lazy("Scheduling configuration"),
    "quotas": gettext_lazy("Quotas"),
    "workspace": gettext_lazy("Workspace"),
    "ownership": gettext_lazy("Ownership"),
}


class CustomRoleForm(ConsoleForm):
    """A role of the workspace's own: a level in each module."""

    name = forms.CharField(label=gettext_lazy("Name"), max_length=NAME_MAX)

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        for module in CUSTOM_MODULES:
            self.fields[module] = forms.ChoiceField(label=MODULES[module], choices=LEVELS, initial="none")

    @property
    def all_sections(self) -> list[Section]:
        return [Section("", [self["name"]]), Section("", [self[module] for module in CUSTOM_MODULES])]

    def mapping(self) -> dict[str, Any]:
        levels = {module: self.cleaned_data[module] for module in CUSTOM_MODULES}
        return {"name": self.cleaned_data["name"], "levels": levels}


def role_initial(role: CustomRole | None) -> dict[str, Any]:
    return {"name": role.name, **role.levels} if role else {}


class InviteForm(RolesForm):
    email = forms.EmailField(label=gettext_lazy("E-mail address"))

    field_order = ("email", "roles")


class JoinForm(ConsoleForm):
    """An account for somebody who was invited and has none."""

    username = forms.CharField(label=gettext_lazy("User name"), max_length=150)
    password = forms.CharField(
        label=gettext_lazy("Password"), widget=forms.PasswordInput(attrs={"autocomplete": "new-password"})
    )


class QuotaRequestForm(ConsoleForm):
    """More of one quota until a date."""

    quota = forms.ModelChoiceField(label=gettext_lazy("Quota"), queryset=Quota.objects.none())
    pool = forms.ModelChoiceField(label=gettext_lazy("Node pool"), queryset=NodePool.objects.none(), required=False)
    more_gpu_milli = MilliField(label=gettext_lazy("More GPUs"), required=False)
    more_cpu_milli = MilliField(label=gettext_lazy("More CPU cores"), required=False)
    more_memory_mib = MemoryField(label=gettext_lazy("More memory"), required=False)
    until = forms.DateTimeField(
        label=gettext_lazy("Until"),
        widget=forms.DateTimeInput(attrs={"type": "datetime-local"}, format="%Y-%m-%dT%H:%M"),
        help_text=gettext_lazy("In the cluster's time. It ends by itself."),
    )
    reason = forms.CharField(label=gettext_lazy("Reason"), max_length=DESCRIPTION_MAX, required=False)

    def __init__(self, *args: Any, quotas: QuerySet[Quota], pools: QuerySet[NodePool], **options: Any) -> None:
        super().__init__(*args, **options)
        for name, found in (("quota", quotas), ("pool", pools)):
            field = self.fields[name]
            assert isinstance(field, forms.ModelChoiceField)
            field.queryset = found
        if len(list(pools)) < 2:
            del self.fields["pool"]

    def mapping(self) -> dict[str, Any]:
        return {name: value for name, value in self.cleaned_data.items() if value not in (None, "")}


class AnswerForm(ConsoleForm):
    answer = forms.CharField(label=gettext_lazy("Answer"), max_length=DESCRIPTION_MAX, required=False)
