"""Forms of workloads and scaling rules. Shapes only: specs and services say what an input means."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Sequence
from typing import Any, ClassVar
from zoneinfo import available_timezones

from django import forms
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

from console.forms.base import ConsoleForm, Section
from console.forms.fields import LabelsField, MemoryField, MilliField, SpanField
from console.forms.quotas import PRIORITIES
from quotas.models import Cluster, EngineKind, NodePool, WorkspaceQuota
from quotas.specs import GPUS_OF_NODE_MAX, NAME_MAX
from workloads.models import Idle, Kind, Restart, ScalingRule, Template, Visibility
from workloads.schedules import NOT_PLACES
from workloads.specs import CRON_MAX, IMAGE_MAX, PRIORITY_OF_KIND, REPLICAS_MAX, RETRIES_MAX

IDLE_HELP = (
    (
        Idle.NEVER,
        gettext_lazy("Never"),
        gettext_lazy("Starts only within what the quota is promised. Nobody can take the room back."),
    ),
    (
        Idle.ALLOW,
        gettext_lazy("Allow"),
        gettext_lazy("May also start on room that others leave idle; preempted when they want it back."),
    ),
    (
        Idle.ONLY,
        gettext_lazy("Only"),
        gettext_lazy("Runs on idle room alone and leaves the quota's promise to other work."),
    ),
)


class PlaceField(forms.ChoiceField):
    """Workspace and quota in one choice, grouped by workspace."""

    def set_bindings(self, bindings: Iterable[WorkspaceQuota]) -> None:
        groups: dict[str, list[tuple[str, str]]] = {}
        for binding in bindings:
            words = (
                _("%(quota)s (default)") % {"quota": binding.quota.name} if binding.is_default else binding.quota.name
            )
            groups.setdefault(binding.workspace.name, []).append((place_value(binding), words))
        self.choices = list(groups.items())


def place_value(binding: WorkspaceQuota) -> str:
    return f"{binding.workspace_id}:{binding.quota_id}"


class TemplateField(forms.ChoiceField):
    """A named size of the workspace, in place of a request of one's own."""

    def set_templates(self, templates: Iterable[Template]) -> None:
        groups: dict[str, list[tuple[str, str]]] = {}
        for template in templates:
            groups.setdefault(template.workspace.name, []).append((template.name, template.name))
        self.choices = [("", _("none: as written beside it")), *groups.items()]


class SubmitForm(ConsoleForm):
    """A training job, a notebook or a service."""

    name = forms.CharField(label=gettext_lazy("Name"), max_length=NAME_MAX)
    place = PlaceField(label=gettext_lazy("Workspace and quota"))
    visibility = forms.ChoiceField(
        label=gettext_lazy("Who sees it"),
        choices=[(v, label.capitalize()) for v, label in Visibility.choices],
        initial=Visibility.SHARED,
    )
    image = forms.CharField(label=gettext_lazy("Image"), max_length=IMAGE_MAX, required=False)
    command = forms.CharField(
        label=gettext_lazy("Command"), required=False, help_text=gettext_lazy("As in a shell; quotes group words.")
    )
    environment = forms.CharField(
        label=gettext_lazy("Environment"),
        required=False,
        widget=forms.Textarea(attrs={"rows": 2}),
        help_text=gettext_lazy("One NAME=value a line."),
    )
    template = TemplateField(
        label=gettext_lazy("Template"),
        required=False,
        help_text=gettext_lazy("Sets GPUs, CPU and memory of a replica."),
    )
    gpus = MilliField(
        label=gettext_lazy("GPUs per replica"),
        required=False,
        initial=1000,
        max_value=GPUS_OF_NODE_MAX,
        help_text=gettext_lazy("Whole GPUs, or a part of one such as 0.5."),
    )
    cpu_milli = MilliField(label=gettext_lazy("CPU cores per replica"), required=False)
    memory_mib = MemoryField(
        label=gettext_lazy("Memory per replica"), required=False, help_text=gettext_lazy("For example 64GiB.")
    )
    replicas = forms.IntegerField(label=gettext_lazy("Replicas"), min_value=0, max_value=REPLICAS_MAX, initial=1)
    min_replicas = forms.IntegerField(
        label=gettext_lazy("At least (elastic)"), min_value=1, max_value=REPLICAS_MAX, required=False
    )
    max_replicas = forms.IntegerField(
        label=gettext_lazy("At most (elastic)"), min_value=1, max_value=REPLICAS_MAX, required=False
    )
    gang = forms.BooleanField(label=gettext_lazy("All workers together or not at all"), required=False, initial=True)
    priority = forms.TypedChoiceField(label=gettext_lazy("Priority"), choices=PRIORITIES, coerce=int)
    idle = forms.ChoiceField(label=gettext_lazy("Use of idle room"), choices=Idle.choices, initial=Idle.NEVER)
    preemptible = forms.ChoiceField(
        label=gettext_lazy("May be preempted"),
        required=False,
        choices=(("", gettext_lazy("as usual for its kind")), ("yes", gettext_lazy("yes")), ("no", gettext_lazy("no"))),
    )
    held = forms.BooleanField(label=gettext_lazy("Hold it: wait until it is released"), required=False)
    max_runtime_s = SpanField(label=gettext_lazy("Longest run time"), required=False)
    max_wait_s = SpanField(label=gettext_lazy("Longest wait"), required=False)
    estimate_s = SpanField(
        label=gettext_lazy("Expected run time"),
        required=False,
        help_text=gettext_lazy("Makes forecasts better and lets it fill gaps."),
    )
    duration_s = SpanField(
        label=gettext_lazy("Simulated run time"),
        required=False,
        help_text=gettext_lazy("How long it runs in this simulated cluster. Empty: until it is stopped."),
    )
    checkpoint_every_s = SpanField(label=gettext_lazy("Checkpoint every"), required=False)
    checkpoint_on_signal = forms.BooleanField(label=gettext_lazy("Checkpoints when told to leave"), required=False)
    grace_s = SpanField(
        label=gettext_lazy("Grace period"),
        required=False,
        help_text=gettext_lazy("Between the stop signal and the end; at most 1h."),
    )
    restart = forms.ChoiceField(label=gettext_lazy("Restart"), choices=Restart.choices, initial=Restart.NEVER)
    retries = forms.IntegerField(
        label=gettext_lazy("Retries"), min_value=0, max_value=RETRIES_MAX, initial=0, required=False
    )
    pools = forms.MultipleChoiceField(
        label=gettext_lazy("Node pools"),
        required=False,
        widget=forms.CheckboxSelectMultiple,
        help_text=gettext_lazy("None: any pool of the quota."),
    )
    node_selector = LabelsField(
        label=gettext_lazy("Node labels"), required=False, help_text=gettext_lazy("For example gpu_model=H100.")
    )
    topology_required = forms.ChoiceField(label=gettext_lazy("Must share one"), required=False)
    topology_preferred = forms.ChoiceField(label=gettext_lazy("Better share one"), required=False)
    labels = LabelsField(label=gettext_lazy("Labels"), required=False)
    allow_unsatisfiable = forms.BooleanField(
        label=gettext_lazy("Accept even if nothing here could run it today"), required=False
    )

    problem_fields: ClassVar[dict[str, str]] = {
        "workspace": "place",
        "quota": "place",
        "gpu_milli": "gpus",
        "gpu_memory_mib": "gpus",
    }

    def __init__(
        self,
        *args: Any,
        kind: str,
        bindings: Iterable[WorkspaceQuota],
        cluster: Cluster | None,
        pools: Iterable[NodePool],
        templates: Sequence[Template],
        **options: Any,
    ) -> None:
        super().__init__(*args, **options)
        self.kind = Kind(kind)
        place = self.fields["place"]
        assert isinstance(place, PlaceField)
        place.set_bindings(bindings)
        self.fields["priority"].initial = PRIORITY_OF_KIND[self.kind]
        levels = [("", _("anything")), *((level, level) for level in (cluster.topology_levels if cluster else []))]
        self._choose("topology_required", levels)
        self._choose("topology_preferred", levels)
        named_pools = [(str(pool.pk), pool.name) for pool in pools]
        self._choose("pools", named_pools)
        size = self.fields["template"]
        assert isinstance(size, TemplateField)
        size.set_templates(templates)
        self._leave_out(cluster, levels, named_pools)
        if not templates:
            del self.fields["template"]

    def _choose(self, name: str, choices: list[tuple[str, str]]) -> None:
        field = self.fields[name]
        assert isinstance(field, forms.ChoiceField)
        field.choices = choices

    def _leave_out(self, cluster: Cluster | None, levels: list[Any], pools: list[Any]) -> None:
        """Fields that make no sense for the kind or the cluster are not shown and not read."""
        left_out: list[str] = []
        if self.kind == Kind.NOTEBOOK:
            left_out += ["replicas", "restart", "retries"]
        if self.kind != Kind.TRAINING:
            left_out += ["min_replicas", "max_replicas", "gang", "checkpoint_every_s", "checkpoint_on_signal"]
        if self.kind == Kind.SERVICE:
            left_out += ["max_runtime_s", "estimate_s", "duration_s"]
        if cluster is None or cluster.engine != EngineKind.SIMULATED:
            left_out += ["duration_s"]
        if len(levels) == 1:
            left_out += ["topology_required", "topology_preferred"]
        if len(pools) < 2:
            left_out += ["pools"]
        for name in set(left_out):
            del self.fields[name]

    @property
    def all_sections(self) -> list[Section]:
        return [
            self._section(_("What"), "name", "place", "image", "command"),
            self._section(
                _("How much"),
                "template",
                "gpus",
                "replicas",
                "min_replicas",
                "max_replicas",
                "cpu_milli",
                "memory_mib",
                "gang",
            ),
            self._section(_("In the queue"), "priority", "preemptible", "held"),
            self._section(
                _("Time"),
                "duration_s",
                "estimate_s",
                "max_runtime_s",
                "max_wait_s",
                "checkpoint_every_s",
                "checkpoint_on_signal",
            ),
            self._section(
                _("More"),
                "pools",
                "node_selector",
                "topology_required",
                "topology_preferred",
                "environment",
                "grace_s",
                "restart",
                "retries",
                "labels",
                "visibility",
                "allow_unsatisfiable",
                fold=True,
            ),
        ]

    def _section(self, title: str, *names: str, fold: bool = False) -> Section:
        return Section(title, [self[name] for name in names if name in self.fields], fold=fold)

    @property
    def idle_choices(self) -> list[tuple[str, Any, Any, bool]]:
        chosen = self["idle"].value()
        return [(value, title, text, value == chosen) for value, title, text in IDLE_HELP]

    def clean(self) -> dict[str, Any]:
        data = super().clean() or {}
        if data.get("gpus") is None and not data.get("template") and "gpus" not in self.errors:
            self.add_error("gpus", _("Write a number from 0 to %(most)s.") % {"most": GPUS_OF_NODE_MAX})
        return data

    def clean_command(self) -> list[str]:
        try:
            return shlex.split(self.cleaned_data["command"])
        except ValueError as error:
            raise forms.ValidationError(_("A quote is not closed.")) from error

    def clean_environment(self) -> dict[str, str]:
        found = {}
        for line in filter(None, (line.strip() for line in self.cleaned_data["environment"].splitlines())):
            name, equals, value = line.partition("=")
            if not equals or not name:
                raise forms.ValidationError(_("Write one NAME=value a line."))
            found[name] = value
        return found

    def mapping(self) -> dict[str, Any]:
        """The submission as the spec reads it; what was left empty is left out."""
        data = {name: value for name, value in self.cleaned_data.items() if value not in (None, "", [], {})}
        workspace, quota = data.pop("place").split(":")
        milli = data.pop("gpus", 0)
        size = {} if "template" in data else {"gpus": milli / 1000 if milli % 1000 else milli // 1000}
        preemptible = data.pop("preemptible", "")
        return {
            **data,
            "kind": str(self.kind),
            "workspace": int(workspace),
            "quota": int(quota),
            **size,
            **({"preemptible": preemptible == "yes"} if preemptible else {}),
            **({"pools": [int(pool) for pool in data["pools"]]} if "pools" in data else {}),
        }


class ScaleWorkloadForm(ConsoleForm):
    replicas = forms.IntegerField(label=gettext_lazy("Replicas"), min_value=0, max_value=REPLICAS_MAX)


class PriorityForm(ConsoleForm):
    priority = forms.TypedChoiceField(label=gettext_lazy("Priority"), choices=PRIORITIES, coerce=int)


class MoveForm(ConsoleForm):
    quota = forms.ChoiceField(label=gettext_lazy("To quota"))

    def __init__(self, *args: Any, quotas: Iterable[tuple[int, str]], **options: Any) -> None:
        super().__init__(*args, **options)
        field = self.fields["quota"]
        assert isinstance(field, forms.ChoiceField)
        field.choices = [(str(pk), name) for pk, name in quotas]


class CloneForm(ConsoleForm):
    name = forms.CharField(label=gettext_lazy("Name of the copy"), max_length=NAME_MAX)


# --- scaling rules ---------------------------------------------------------------------------------------------------

DAYS = (
    (1, gettext_lazy("Mon")),
    (2, gettext_lazy("Tue")),
    (3, gettext_lazy("Wed")),
    (4, gettext_lazy("Thu")),
    (5, gettext_lazy("Fri")),
    (6, gettext_lazy("Sat")),
    (7, gettext_lazy("Sun")),
)


class RuleForm(ConsoleForm):
    """One scaling rule, by days and time or as a cron expression."""

    name = forms.CharField(label=gettext_lazy("Name"), max_length=NAME_MAX)
    how = forms.ChoiceField(
        label=gettext_lazy("When"),
        choices=(("days", gettext_lazy("days and time")), ("cron", gettext_lazy("cron expression"))),
        initial="days",
    )
    days = forms.TypedMultipleChoiceField(
        label=gettext_lazy("Days"),
        choices=DAYS,
        coerce=int,
        required=False,
        widget=forms.CheckboxSelectMultiple,
        help_text=gettext_lazy("None: every day."),
    )
    time = forms.TimeField(
        label=gettext_lazy("Time"), required=False, widget=forms.TimeInput(attrs={"type": "time"}, format="%H:%M")
    )
    cron = forms.CharField(
        label=gettext_lazy("Cron expression"),
        max_length=CRON_MAX,
        required=False,
        help_text=gettext_lazy("Five fields, or six with seconds first; for example 0 8 * * 1-5."),
    )
    zone = forms.ChoiceField(label=gettext_lazy("Time zone"))
    target = forms.ChoiceField(
        label=gettext_lazy("Sets"),
        choices=(("replicas", gettext_lazy("a number of replicas")), ("bounds", gettext_lazy("bounds"))),
        initial="replicas",
    )
    replicas = forms.IntegerField(label=gettext_lazy("Replicas"), min_value=0, max_value=REPLICAS_MAX, required=False)
    min_replicas = forms.IntegerField(
        label=gettext_lazy("At least"), min_value=0, max_value=REPLICAS_MAX, required=False
    )
    max_replicas = forms.IntegerField(
        label=gettext_lazy("At most"), min_value=0, max_value=REPLICAS_MAX, required=False
    )
    valid_from = forms.DateField(
        label=gettext_lazy("From"), required=False, widget=forms.DateInput(attrs={"type": "date"}, format="%Y-%m-%d")
    )
    valid_until = forms.DateField(
        label=gettext_lazy("Until"), required=False, widget=forms.DateInput(attrs={"type": "date"}, format="%Y-%m-%d")
    )
    excluded = forms.CharField(
        label=gettext_lazy("Except on"),
        required=False,
        help_text=gettext_lazy("Dates such as 2026-12-25, separated by commas."),
    )
    ready_by = forms.BooleanField(label=gettext_lazy("Be ready at that time: start ahead"), required=False)
    enabled = forms.BooleanField(label=gettext_lazy("In force"), required=False, initial=True)

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        zone = self.fields["zone"]
        assert isinstance(zone, forms.ChoiceField)
        zone.choices = [(name, name) for name in sorted(available_timezones() - NOT_PLACES)]

    @property
    def all_sections(self) -> list[Section]:
        return [
            Section("", [self["name"], self["how"], self["zone"]]),
            Section("", [self["days"], self["time"]], when="how=days"),
            Section("", [self["cron"]], when="how=cron"),
            Section("", [self["target"]]),
            Section("", [self["replicas"]], when="target=replicas"),
            Section("", [self["min_replicas"], self["max_replicas"]], when="target=bounds"),
            Section(
                _("More"),
                [self[name] for name in ("valid_from", "valid_until", "excluded", "ready_by", "enabled")],
                fold=True,
            ),
        ]

    def clean_excluded(self) -> list[str]:
        return [part.strip() for part in self.cleaned_data["excluded"].split(",") if part.strip()]

    def clean(self) -> dict[str, Any]:
        data = super().clean() or {}
        if data.get("how") == "days" and not data.get("time") and "time" not in self.errors:
            self.add_error("time", _("Give a time of day, 00:00 to 23:59."))
        if data.get("how") == "cron" and not data.get("cron") and "cron" not in self.errors:
            self.add_error("cron", _("Give an expression of five or six fields."))
        return data

    def mapping(self) -> dict[str, Any]:
        """The rule as the spec reads it."""
        from workloads.schedules import cron_for

        data = self.cleaned_data
        by_days = data["how"] == "days"
        sizes = ("replicas",) if data["target"] == "replicas" else ("min_replicas", "max_replicas")
        return {
            "name": data["name"],
            "cron": cron_for(data["days"], data["time"]) if by_days else data["cron"],
            "zone": data["zone"],
            **{name: data[name] for name in sizes if data[name] is not None},
            "valid_from": data["valid_from"],
            "valid_until": data["valid_until"],
            "excluded": data["excluded"],
            "ready_by": data["ready_by"],
            "enabled": data["enabled"],
        }


def rule_initial(rule: ScalingRule | None, zone: str) -> dict[str, Any]:
    """Initial values of the form for a stored rule, or for a new one."""
    if rule is None:
        return {"zone": zone, "how": "days", "target": "replicas"}
    return {
        "name": rule.name,
        "how": "cron",
        "cron": rule.cron,
        "zone": rule.zone,
        "target": "replicas" if rule.replicas is not None else "bounds",
        "replicas": rule.replicas,
        "min_replicas": rule.min_replicas,
        "max_replicas": rule.max_replicas,
        "valid_from": rule.valid_from,
        "valid_until": rule.valid_until,
        "excluded": ", ".join(day.isoformat() for day in rule.excluded),
        "ready_by": rule.ready_by,
        "enabled": rule.enabled,
    }
