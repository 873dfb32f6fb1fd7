"""Forms of the quota tree: new quota, its settings, its amounts, several at once, and deletion."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from django import forms
from django.db.models import QuerySet
from django.forms.boundfield import BoundField
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

from console.forms.base import ConsoleForm, Section, say_the_range
from console.forms.fields import LabelsField, MemoryField, MilliField, SpanField
from quotas.models import KINDS, NodePool, QueuePolicy, Quota, QuotaAmount
from quotas.specs import DESCRIPTION_MAX, NAME_MAX, PRIORITY_HIGH, PRIORITY_LOW, AmountSpec
from workloads.models import Kind

PRIORITIES = [(str(number), str(number)) for number in range(PRIORITY_LOW, PRIORITY_HIGH + 1)]
KIND_CHOICES = [(kind, Kind(kind).label) for kind in KINDS]
POLICY_HELP = {
    QueuePolicy.FIFO: gettext_lazy(
        "By priority, then first come first served. A head that does not fit holds up all behind it."
    ),
    QueuePolicy.ROUND_ROBIN: gettext_lazy("The same order, but a head that does not fit is skipped."),
    QueuePolicy.BALANCE: gettext_lazy("The head alone at first; every few minutes one more may pass it."),
    QueuePolicy.INTELLIGENT: gettext_lazy(
        "A head of priority 7 or more holds up all behind it; below that others pass, and waiting raises the priority."
    ),
}


class PriorityField(forms.TypedChoiceField):
    def __init__(self, **options: Any) -> None:
        super().__init__(choices=PRIORITIES, coerce=int, **options)


class KindsField(forms.MultipleChoiceField):
    def __init__(self, **options: Any) -> None:
        options.setdefault("required", False)
        super().__init__(choices=KIND_CHOICES, widget=forms.CheckboxSelectMultiple, **options)


class QuotaSettingsForm(ConsoleForm):
    """Everything about a quota but its place and its amounts; the names are those of the model."""

    name = forms.CharField(label=gettext_lazy("Name"), max_length=NAME_MAX)
    description = forms.CharField(label=gettext_lazy("Description"), max_length=DESCRIPTION_MAX, required=False)
    labels = LabelsField(
        label=gettext_lazy("Labels"), required=False, help_text=gettext_lazy("For example team=vision, tier=gold.")
    )
    queue_policy = forms.ChoiceField(
        label=gettext_lazy("Queue policy"),
        choices=[(value, label.capitalize()) for value, label in QueuePolicy.choices],
        help_text=gettext_lazy(
            "How waiting work of this quota is ordered. Changes apply to work that has not started."
        ),
    )
    child_preemption = forms.BooleanField(
        label=gettext_lazy("Child-level preemption"),
        required=False,
        help_text=gettext_lazy(
            "Own work of the kinds below may take room back from work of the quotas under this one."
        ),
    )
    child_claimants = KindsField(label=gettext_lazy("Kinds that may claim"))
    child_max_victim_priority = PriorityField(label=gettext_lazy("Highest priority that may be taken"))
    child_kinds = KindsField(label=gettext_lazy("Kinds that may be taken"))
    priority_inside = forms.BooleanField(
        label=gettext_lazy("Priority preemption inside"),
        required=False,
        help_text=gettext_lazy("Higher priority may take the place of lower priority within this quota."),
    )
    priority_siblings = forms.BooleanField(
        label=gettext_lazy("Priority preemption among siblings"),
        required=False,
        help_text=gettext_lazy("The same between this quota and its siblings that have it on too."),
    )
    priority_by_low = PriorityField(label=gettext_lazy("May preempt: from priority"))
    priority_by_high = PriorityField(label=gettext_lazy("May preempt: to priority"))
    priority_of_low = PriorityField(label=gettext_lazy("May be preempted: from priority"))
    priority_of_high = PriorityField(label=gettext_lazy("May be preempted: to priority"))
    priority_kinds = KindsField(label=gettext_lazy("Kinds that may be preempted"))
    idle_sharing = forms.BooleanField(
        label=gettext_lazy("Idle sharing"),
        required=False,
        help_text=gettext_lazy(
            "Others may borrow what this quota and those below it leave idle. Off: it is lent inside only."
        ),
    )
    min_runtime_reclaim_s = SpanField(label=gettext_lazy("Least run time before a reclaim"), required=False)
    min_runtime_preempt_s = SpanField(
        label=gettext_lazy("Least run time before preemption by priority"), required=False
    )
    min_runtime_override_after_s = SpanField(
        label=gettext_lazy("Override after"),
        required=False,
        help_text=gettext_lazy(
            "Work within its guarantee that has waited this long need not respect the least run time. Empty: never."
        ),
    )
    reserve_after_s = SpanField(
        label=gettext_lazy("Reserve nodes after"),
        required=False,
        help_text=gettext_lazy("A head within its guarantee that has waited this long gets nodes reserved."),
    )

    settings_layout: ClassVar[tuple[tuple[Any, ...], ...]] = (
        (gettext_lazy("Lending and order"), ("idle_sharing", "queue_policy")),
        (gettext_lazy("Child-level preemption"), ("child_preemption",)),
        (
            gettext_lazy("Its kinds and ceiling"),
            ("child_claimants", "child_kinds", "child_max_victim_priority"),
            "child_preemption=on",
        ),
        (
            gettext_lazy("Preemption by priority"),
            (
                "priority_inside",
                "priority_siblings",
                "priority_by_low",
                "priority_by_high",
                "priority_of_low",
                "priority_of_high",
                "priority_kinds",
            ),
        ),
        (
            gettext_lazy("Protection"),
            ("min_runtime_reclaim_s", "min_runtime_preempt_s", "min_runtime_override_after_s", "reserve_after_s"),
        ),
    )
    layout = ((gettext_lazy("Name"), ("name", "description", "labels")), *settings_layout)

    def settings(self) -> dict[str, Any]:
        """The settings as services take them. An empty time is 0, except where empty means never."""
        data = {name: self.cleaned_data[name] for name in QuotaSettingsForm.base_fields}
        for name in ("min_runtime_reclaim_s", "min_runtime_preempt_s"):
            data[name] = data[name] or 0
        if data["reserve_after_s"] is None:
            data["reserve_after_s"] = Quota._meta.get_field("reserve_after_s").default
        return data


def settings_of(quota: Quota) -> dict[str, Any]:
    """Initial values of the settings form."""
    values = {name: getattr(quota, name) for name in QuotaSettingsForm.base_fields}
    return {
        name: str(value)
        if name.startswith("priority_") and isinstance(value, int) and not isinstance(value, bool)
        else value
        for name, value in values.items()
    }


class EditQuotaForm(QuotaSettingsForm):
    revision = forms.IntegerField(widget=forms.HiddenInput)


# --- amounts ---------------------------------------------------------------------------------------------------------

AMOUNT_FIELDS: tuple[tuple[str, Any, Any], ...] = (
    ("guaranteed_gpu_milli", gettext_lazy("Guaranteed GPUs"), MilliField),
    ("limit_gpu_milli", gettext_lazy("Limit of GPUs"), MilliField),
    ("lending_gpu_milli", gettext_lazy("Lends at most, GPUs"), MilliField),
    ("weight", gettext_lazy("Weight for surplus"), MilliField),
    ("guaranteed_cpu_milli", gettext_lazy("Guaranteed CPU cores"), MilliField),
    ("limit_cpu_milli", gettext_lazy("Limit of CPU cores"), MilliField),
    ("guaranteed_memory_mib", gettext_lazy("Guaranteed memory"), MemoryField),
    ("limit_memory_mib", gettext_lazy("Limit of memory"), MemoryField),
)
MAIN_AMOUNTS = ("guaranteed_gpu_milli", "limit_gpu_milli")
AMOUNT_HELP = {
    "limit_gpu_milli": gettext_lazy("Empty: no limit."),
    "weight": gettext_lazy("Empty: the guaranteed GPUs."),
    "guaranteed_cpu_milli": gettext_lazy("Empty: CPU is not governed."),
    "guaranteed_memory_mib": gettext_lazy("For example 512GiB. Empty: not governed."),
    "lending_gpu_milli": gettext_lazy("Empty: all that is idle."),
}


class AmountsMixin:
    """Adds a group of amount fields for each pool; with one pool nobody reads the word pool."""

    pools: Sequence[NodePool]
    fields: dict[str, forms.Field]

    def add_amount_fields(self, pools: Iterable[NodePool], current: dict[int, QuotaAmount]) -> None:
        self.pools = list(pools)
        for pool in self.pools:
            row = current.get(pool.pk)
            for name, label, kind in AMOUNT_FIELDS:
                self.fields[field_name(name, pool)] = kind(
                    label=label,
                    required=name == "guaranteed_gpu_milli" and len(self.pools) == 1,
                    initial=getattr(row, name) if row else None,
                    help_text=AMOUNT_HELP.get(name, ""),
                )
            self.fields[field_name("rank", pool)] = forms.IntegerField(
                label=_("Rank for surplus"),
                required=False,
                initial=row.rank if row else 0,
                min_value=-1000,
                max_value=1000,
                help_text=_("Lower comes first."),
            )
            for name in (*(name for name, _label, _kind in AMOUNT_FIELDS), "rank"):
                say_the_range(self.fields[field_name(name, pool)])

    def amount_sections(self, form: forms.Form) -> list[Section]:
        sections = []
        for pool in self.pools:
            words = _("Amounts in pool %(pool)s") % {"pool": pool.name} if len(self.pools) > 1 else _("Amounts")
            rest = [name for name, _label, _kind in AMOUNT_FIELDS if name not in MAIN_AMOUNTS]
            sections.append(Section(words, [form[field_name(name, pool)] for name in MAIN_AMOUNTS]))
            sections.append(
                Section(_("More amounts"), [form[field_name(name, pool)] for name in (*rest, "rank")], fold=True)
            )
        return sections

    def amounts(self, data: dict[str, Any]) -> dict[NodePool, AmountSpec]:
        """The amounts by pool; a pool where nothing was written has none."""
        found = {}
        for pool in self.pools:
            values = {name: data.get(field_name(name, pool)) for name, _label, _kind in AMOUNT_FIELDS}
            if any(value is not None for value in values.values()):
                found[pool] = AmountSpec(**values, rank=data.get(field_name("rank", pool)) or 0)
        return found

    def amount_field_of(self, named: str) -> str | None:
        """The field for "amounts.POOL.guaranteed_gpu_milli" and shorter forms of it."""
        name = named.rsplit(".", 1)[-1]
        for pool in self.pools:
            if f".{pool.name}." in f".{named}." or len(self.pools) == 1:
                candidate = field_name(name, pool)
                if candidate in self.fields:
                    return candidate
                if named.startswith("amounts"):
                    return field_name("guaranteed_gpu_milli", pool)
        return None


def field_name(name: str, pool: NodePool) -> str:
    return f"{name}-{pool.pk}"


class NewQuotaForm(AmountsMixin, QuotaSettingsForm):
    """A new quota with its amounts and all its switches."""

    parent = forms.ModelChoiceField(
        label=gettext_lazy("Under"),
        queryset=Quota.objects.none(),
        required=False,
        empty_label=gettext_lazy("(a root quota)"),
    )

    def __init__(self, *args: Any, pools: Iterable[NodePool], parents: QuerySet[Quota], **options: Any) -> None:
        super().__init__(*args, **options)
        self.add_amount_fields(pools, {})
        parent_field = self.fields["parent"]
        assert isinstance(parent_field, forms.ModelChoiceField)
        parent_field.queryset = parents

    @property
    def all_sections(self) -> list[Section]:
        first = Section(_("Name and place"), [self[name] for name in ("name", "parent", "description", "labels")])
        return [first, *self.amount_sections(self), *_sections(self, self.settings_layout)]

    def field_of(self, named: str) -> str | None:
        return self.amount_field_of(named) or super().field_of(named)


class ScaleForm(AmountsMixin, ConsoleForm):
    """New absolute amounts of one quota, and what becomes of work that is then in excess."""

    on_excess = forms.ChoiceField(
        label=gettext_lazy("What uses more than the new amounts"),
        choices=(
            ("keep", gettext_lazy("runs on until it ends or the room is claimed")),
            ("preempt", gettext_lazy("is preempted")),
        ),
        initial="keep",
    )
    after = SpanField(
        label=gettext_lazy("Preempt after"),
        required=False,
        help_text=gettext_lazy("For example 10m. Empty: now."),
    )
    revision = forms.IntegerField(widget=forms.HiddenInput)

    def __init__(self, *args: Any, quota: Quota, pools: Iterable[NodePool], **options: Any) -> None:
        super().__init__(*args, **options)
        self.add_amount_fields(pools, {amount.pool_id: amount for amount in quota.amounts.all()})

    @property
    def all_sections(self) -> list[Section]:
        return [
            *self.amount_sections(self),
            Section(_("When it shrinks"), [self["on_excess"]], wide=True),
            Section("", [self["after"]], when="on_excess=preempt"),
        ]

    def field_of(self, named: str) -> str | None:
        return self.amount_field_of(named) or super().field_of(named)


def _sections(form: forms.Form, layout: tuple[tuple[Any, ...], ...]) -> list[Section]:
    return [Section(row[0], [form[name] for name in row[1]], *row[2:]) for row in layout]


# --- several at once -------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class RebalanceRow:
    quota: Quota
    depth: int
    now: int
    used: int
    field: BoundField


class RebalanceForm(ConsoleForm):
    """The guaranteed GPUs of the quotas of a tree, changed together and checked as a whole."""

    on_excess = ScaleForm.base_fields["on_excess"]
    after = ScaleForm.base_fields["after"]

    def __init__(self, *args: Any, rows: Sequence[tuple[Quota, int, int, int]], pool: NodePool, **options: Any) -> None:
        super().__init__(*args, **options)
        self.pool = pool
        self.given = rows
        for quota, _depth, now, _used in rows:
            self.fields[f"guaranteed-{quota.pk}"] = MilliField(
                label=_("Guaranteed GPUs of %(quota)s") % {"quota": quota.name}, initial=now
            )
            say_the_range(self.fields[f"guaranteed-{quota.pk}"])

    @property
    def rows(self) -> list[RebalanceRow]:
        return [
            RebalanceRow(quota, depth, now, used, self[f"guaranteed-{quota.pk}"])
            for quota, depth, now, used in self.given
        ]

    def changed(self) -> dict[Quota, int]:
        """Quotas whose guarantee differs from what is in force, with the new one in thousandths."""
        return {
            quota: self.cleaned_data[f"guaranteed-{quota.pk}"]
            for quota, _depth, now, _used in self.given
            if self.cleaned_data[f"guaranteed-{quota.pk}"] != now
        }

    def clean(self) -> dict[str, Any]:
        data = super().clean() or {}
        if not self.errors and not self.changed():
            raise forms.ValidationError(_("Change at least one guarantee."))
        return data

    def field_of(self, named: str) -> str | None:
        for quota, *_rest in self.given:
            if quota.name in named.split(".") or str(quota.pk) in named.split("."):
                return f"guaranteed-{quota.pk}"
        return super().field_of(named)


class MoveQuotaForm(ConsoleForm):
    """Another place in the tree."""

    parent = forms.ModelChoiceField(
        label=gettext_lazy("Under"),
        queryset=Quota.objects.none(),
        required=False,
        empty_label=gettext_lazy("(a root quota)"),
    )
    revision = forms.IntegerField(widget=forms.HiddenInput)

    def __init__(self, *args: Any, parents: QuerySet[Quota], **options: Any) -> None:
        super().__init__(*args, **options)
        field = self.fields["parent"]
        assert isinstance(field, forms.ModelChoiceField)
        field.queryset = parents


class DeleteQuotaForm(ConsoleForm):
    """The name, typed, as a last question."""

    typed = forms.CharField(label=gettext_lazy("Name of the quota"), max_length=NAME_MAX)

    def __init__(self, *args: Any, quota: Quota, **options: Any) -> None:
        super().__init__(*args, **options)
        self.quota = quota

    def clean_typed(self) -> str:
        typed: str = self.cleaned_data["typed"]
        if typed != self.quota.name:
            raise forms.ValidationError(_("Type %(name)s to confirm.") % {"name": self.quota.name})
        return typed
