"""Forms of node pools and nodes."""

from __future__ import annotations

from typing import Any

from django import forms
from django.utils.translation import gettext_lazy

from console.forms.base import ConsoleForm
from console.forms.fields import LabelsField, MemoryField, MilliField
from console.forms.quotas import KindsField
from quotas.models import NodePool, Placement
from quotas.specs import GPUS_OF_NODE_MAX, NAME_MAX, NODE_NAME_MAX


class NodeStateForm(ConsoleForm):
    reason = forms.CharField(label=gettext_lazy("Reason"), max_length=200, required=False)


class PoolForm(ConsoleForm):
    """A node pool: which nodes it takes, how work is placed on them, and what work."""

    name = forms.CharField(label=gettext_lazy("Name"), max_length=NAME_MAX)
    selector = LabelsField(
        label=gettext_lazy("Takes nodes with"),
        required=False,
        help_text=gettext_lazy("Labels such as gpu_model=H100. Empty: every node that no pool before it takes."),
    )
    placement = forms.ChoiceField(
        label=gettext_lazy("Placement"),
        choices=[(value, label.capitalize()) for value, label in Placement.choices],
        help_text=gettext_lazy("Bin-pack keeps whole nodes free; spread keeps work apart."),
    )
    kinds = KindsField(label=gettext_lazy("Kinds of work"), help_text=gettext_lazy("None: every kind."))
    oversubscription = forms.BooleanField(
        label=gettext_lazy("Root quotas may be promised more than there is"), required=False
    )
    order = forms.IntegerField(
        label=gettext_lazy("Order"),
        min_value=0,
        max_value=10_000,
        initial=0,
        help_text=gettext_lazy("The first pool whose labels fit takes a node."),
    )

    def mapping(self) -> dict[str, Any]:
        """The pool as the spec reads it."""
        return dict(self.cleaned_data)


def pool_initial(pool: NodePool | None) -> dict[str, Any]:
    if pool is None:
        return {}
    return {name: getattr(pool, name) for name in PoolForm.base_fields}


class NewNodeForm(ConsoleForm):
    """A node of a simulated cluster."""

    name = forms.CharField(label=gettext_lazy("Name"), max_length=NODE_NAME_MAX)
    gpus = forms.IntegerField(label=gettext_lazy("GPUs"), min_value=0, max_value=GPUS_OF_NODE_MAX, initial=8)
    gpu_model = forms.CharField(label=gettext_lazy("GPU model"), max_length=NAME_MAX, required=False)
    gpu_memory_mib = MemoryField(label=gettext_lazy("GPU memory each"), required=False)
    cpu_milli = MilliField(label=gettext_lazy("CPU cores"), required=False, help_text=gettext_lazy("Empty: no bound."))
    memory_mib = MemoryField(label=gettext_lazy("Memory"), required=False, help_text=gettext_lazy("Empty: no bound."))
    labels = LabelsField(label=gettext_lazy("Labels"), required=False)

    def mapping(self) -> dict[str, Any]:
        return {name: value for name, value in self.cleaned_data.items() if value not in (None, "")}


class NodeLabelsForm(ConsoleForm):
    labels = LabelsField(
        label=gettext_lazy("Labels"),
        required=False,
        help_text=gettext_lazy("They decide which pool takes the node and where work may go."),
    )
    revision = forms.IntegerField(widget=forms.HiddenInput)
