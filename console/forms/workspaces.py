"""Forms of workspaces: new, settings, members."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from django import forms
from django.db.models import QuerySet
from django.utils.translation import gettext_lazy

from console.forms.base import ConsoleForm
from quotas.models import CustomRole, Quota, Role, User
from quotas.specs import DESCRIPTION_MAX, NAME_MAX

GRANTED_ROLES = [(role.value, role.label.capitalize()) for role in Role if role != Role.OWNER]


class NewWorkspaceForm(ConsoleForm):
    name = forms.CharField(label=gettext_lazy("Name"), max_length=NAME_MAX)
    description = forms.CharField(label=gettext_lazy("Description"), max_length=DESCRIPTION_MAX, required=False)
    owner = forms.CharField(
        label=gettext_lazy("Owner"), max_length=150, required=False, help_text=gettext_lazy("A user name. Empty: you.")
    )
    quotas = forms.ModelMultipleChoiceField(
        label=gettext_lazy("Quotas"),
        queryset=Quota.objects.none(),
        required=False,
        widget=forms.CheckboxSelectMultiple,
        help_text=gettext_lazy("The first of them is the default."),
    )

    def __init__(self, *args: Any, quotas: QuerySet[Quota], **options: Any) -> None:
        super().__init__(*args, **options)
        field = self.fields["quotas"]
        assert isinstance(field, forms.ModelMultipleChoiceField)
        field.queryset = quotas


class EditWorkspaceForm(ConsoleForm):
    name = forms.CharField(label=gettext_lazy("Name"), max_length=NAME_MAX)
    description = forms.CharField(label=gettext_lazy("Description"), max_length=DESCRIPTION_MAX, required=False)
    revision = forms.IntegerField(widget=forms.HiddenInput)


class BindQuotaForm(ConsoleForm):
    quota = forms.ModelChoiceField(label=gettext_lazy("Quota"), queryset=Quota.objects.none())
    default = forms.BooleanField(label=gettext_lazy("Make it the default"), required=False)

    def __init__(self, *args: Any, quotas: QuerySet[Quota], **options: Any) -> None:
        super().__init__(*args, **options)
        field = self.fields["quota"]
        assert isinstance(field, forms.ModelChoiceField)
        field.queryset = quotas


class RolesForm(ConsoleForm):
    """Roles of a member; one or several."""

    roles = forms.MultipleChoiceField(
        label=gettext_lazy("Roles"), choices=GRANTED_ROLES, required=False, widget=forms.CheckboxSelectMultiple
    )

    def __init__(self, *args: Any, custom_roles: Iterable[CustomRole] = (), **options: Any) -> None:
        super().__init__(*args, **options)
        field = self.fields["roles"]
        assert isinstance(field, forms.MultipleChoiceField)
        field.choices = [*GRANTED_ROLES, *((f"custom:{role.pk}", role.name) for role in custom_roles)]

    def clean_roles(self) -> list[str]:
        roles: list[str] = self.cleaned_data["roles"]
        if not roles:
            raise forms.ValidationError(gettext_lazy("Choose at least one role."))
        return roles


class AddMemberForm(RolesForm):
    user = forms.CharField(label=gettext_lazy("User name"), max_length=150)

    field_order = ("user", "roles")


class HandOverForm(ConsoleForm):
    to = forms.ModelChoiceField(label=gettext_lazy("New owner"), queryset=User.objects.none())

    def __init__(self, *args: Any, members: QuerySet[User], **options: Any) -> None:
        super().__init__(*args, **options)
        field = self.fields["to"]
        assert isinstance(field, forms.ModelChoiceField)
        field.queryset = members
