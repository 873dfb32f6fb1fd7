"""What a workload and a scaling rule must satisfy: bounds, defaults by kind, frozen specs."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from functools import partial
from typing import Any, Self

from quotas.actors import Actor
from quotas.errors import Problems
from quotas.models import NodePool, Quota, User, Workspace
from quotas.permissions import grants_of, visible_pools, visible_quotas, visible_workspaces
from quotas.specs import (
    GPUS_OF_NODE_MAX,
    LABEL_KEY_MAX,
    NAME_MAX,
    PRIORITY_HIGH,
    PRIORITY_LOW,
    SECONDS_MAX,
    Reader,
)
from scheduler.core.resources import LARGEST, WHOLE_GPU
from workloads import schedules
from workloads.models import Idle, Kind, Restart, ScalingRule, Template, Visibility, Workload

REPLICAS_MAX = 10_000
RETRIES_MAX = 100
GRACE_MAX_S = 3600
IMAGE_MAX = 300
COMMAND_PARTS_MAX, COMMAND_PART_MAX = 100, 4096
ENVIRONMENT_MAX = 200
POOLS_MAX = 32
RULES_MAX = 50
BULK_MAX = 500
CRON_MAX = 120
EXCLUDED_MAX = 400

PRIORITY_OF_KIND = {Kind.TRAINING: 3, Kind.NOTEBOOK: 6, Kind.SERVICE: 9}
PREEMPTIBLE_OF_KIND = {Kind.TRAINING: True, Kind.NOTEBOOK: True, Kind.SERVICE: False}
REQUEST_FIELDS = ("gpus", "gpu_milli", "gpu_memory_mib", "cpu_milli", "memory_mib")


@dataclass(frozen=True, slots=True)
class Request:
    """What one replica asks for: ``gpus`` devices with ``gpu_milli`` thousandths (or ``gpu_memory_mib``) of each."""

    gpus: int = 0
    gpu_milli: int = WHOLE_GPU
    gpu_memory_mib: int = 0
    cpu_milli: int = 0
    memory_mib: int = 0

    @classmethod
    def read(cls, read: Reader) -> Self:
        """Reads ``gpus`` (whole, or a fraction below 1 of one device) and the rest of ``REQUEST_FIELDS``."""
        gpus, milli = _gpus(read)
        memory = read.whole("gpu_memory_mib", low=0, high=LARGEST, default=0)
        if memory and read.given("gpu_milli"):
            read.bad("gpu_memory_mib", "choice", wanted="either gpu_milli or gpu_memory_mib")
        return cls(
            gpus=gpus or (1 if memory else 0),
            gpu_milli=0 if memory else milli,
            gpu_memory_mib=memory or 0,
            cpu_milli=read.whole("cpu_milli", low=0, high=LARGEST, default=0),
            memory_mib=read.whole("memory_mib", low=0, high=LARGEST, default=0),
        )

    @property
    def gpu_milli_total(self) -> int:
        """Thousandths of GPUs; 0 for a request by GPU memory."""
        return self.gpus * self.gpu_milli

    def amount(self, resource: str) -> int:
        """The amount of one of ``RESOURCES``."""
        return self.gpu_milli_total if resource == "gpu_milli" else int(getattr(self, resource))


def _gpus(read: Reader) -> tuple[int, int]:
    """Devices and thousandths of each. A fraction of more than one device is said with ``gpu_milli``."""
    gpus = read.real("gpus", low=0, high=GPUS_OF_NODE_MAX, default=0) or 0
    milli = read.whole("gpu_milli", low=1, high=WHOLE_GPU, default=WHOLE_GPU) or WHOLE_GPU
    if float(gpus).is_integer():
        return int(gpus), milli
    if gpus > 1 or read.given("gpu_milli"):
        read.bad("gpus", "type", wanted="whole number, or a fraction below 1 of one GPU", given=gpus)
    return 1, max(1, round(gpus * WHOLE_GPU))


@dataclass(frozen=True, slots=True)
class WorkloadSpec:
    """A workload to be submitted. Fields are those of the model; None where the kind's default applies."""

    name: str
    kind: str
    workspace: Workspace
    quota: Quota
    request: Request = Request()
    master: Request | None = None
    replicas: int = 1
    min_replicas: int | None = None
    max_replicas: int | None = None
    gang: bool | None = None
    priority: int | None = None
    idle: str = Idle.NEVER
    preemptible: bool | None = None
    pools: tuple[NodePool, ...] = ()
    visibility: str = Visibility.SHARED
    labels: Mapping[str, str] = dataclasses.field(default_factory=dict)
    node_selector: Mapping[str, str] = dataclasses.field(default_factory=dict)
    topology_required: str = ""
    topology_preferred: str = ""
    image: str = ""
    command: tuple[str, ...] = ()
    environment: Mapping[str, str] = dataclasses.field(default_factory=dict)
    grace_s: int | None = None
    max_runtime_s: int | None = None
    max_wait_s: int | None = None
    template: str = ""
    """The named size that the request was taken from."""
    restart: str = Restart.NEVER
    retries: int = 0
    checkpoint_every_s: int | None = None
    checkpoint_on_signal: bool = False
    estimate_s: int | None = None
    duration_s: int | None = None
    held: bool = False
    allow_unsatisfiable: bool = False
    owner: User | None = None
    """None: who submits it."""

    @property
    def real_priority(self) -> int:
        return self.priority if self.priority is not None else PRIORITY_OF_KIND[Kind(self.kind)]

    @property
    def real_preemptible(self) -> bool:
        return self.preemptible if self.preemptible is not None else PREEMPTIBLE_OF_KIND[Kind(self.kind)]

    @property
    def real_gang(self) -> bool:
        """Services start and stop their replicas one by one."""
        return self.gang if self.gang is not None else self.kind != Kind.SERVICE

    @property
    def least_replicas(self) -> int:
        """How many workers must run together for it to run at all."""
        if not self.real_gang:
            return min(1, self.replicas)
        return self.min_replicas if self.min_replicas is not None else self.replicas

    @staticmethod
    def from_mapping(data: Mapping[str, Any], *, actor: Actor) -> WorkloadSpec:
        """Reads a submission; workspace, quota and pools by id or name among what the actor sees.

        Without ``quota`` the workspace's default is taken; without ``workspace`` the only one that has the quota, or
        the only one that the actor sees.
        """
        return WorkloadReader(actor).read(data)


class WorkloadReader:
    """Reads submissions; keeps what it has looked up, so 500 of one team cost a handful of queries."""

    def __init__(self, actor: Actor) -> None:
        grants = grants_of(actor)
        self.workspaces = visible_workspaces(actor, grants=grants)
        self.quotas = visible_quotas(actor, grants=grants)
        self.pools = visible_pools(actor, grants=grants)
        self._known: dict[tuple[str, object], Any] = {}

    def read(self, data: Mapping[str, Any]) -> WorkloadSpec:
        """The spec, or ``Refused`` with everything that is wrong."""
        read = Reader(data)
        kind = read.choice("kind", Kind.values)
        workspace, quota = self._place(read)
        template = self._template(read, workspace)
        replicas_low = 0 if kind == Kind.SERVICE else 1
        spec = WorkloadSpec(
            name=read.name(),
            kind=kind,
            workspace=workspace,
            quota=quota,
            request=_request_or_template(read, template),
            master=_master(read),
            template=template.name if template is not None else "",
            replicas=read.whole("replicas", low=replicas_low, high=REPLICAS_MAX, default=1),
            min_replicas=read.whole("min_replicas", low=1, high=REPLICAS_MAX, default=None),
            max_replicas=read.whole("max_replicas", low=1, high=REPLICAS_MAX, default=None),
            gang=read.flag("gang", default=None),
            priority=read.whole("priority", low=PRIORITY_LOW, high=PRIORITY_HIGH, default=None),
            idle=read.choice("idle", Idle.values, default=(template.idle if template else "") or Idle.NEVER),
            preemptible=read.flag("preemptible", default=None),
            pools=self._pools(read, quota),
            visibility=read.choice("visibility", Visibility.values, default=Visibility.SHARED),
            labels=read.labels("labels"),
            node_selector=read.labels("node_selector"),
            topology_required=read.text("topology_required", most=LABEL_KEY_MAX, default=""),
            topology_preferred=read.text("topology_preferred", most=LABEL_KEY_MAX, default=""),
            image=read.text("image", most=IMAGE_MAX, default=""),
            command=read.texts("command", most=COMMAND_PARTS_MAX, length=COMMAND_PART_MAX),
            environment=_environment(read),
            grace_s=read.whole("grace_s", low=0, high=GRACE_MAX_S, default=None),
            max_runtime_s=read.whole("max_runtime_s", low=1, high=SECONDS_MAX, default=None),
            max_wait_s=read.whole("max_wait_s", low=1, high=SECONDS_MAX, default=None),
            restart=read.choice("restart", Restart.values, default=Restart.NEVER),
            retries=read.whole("retries", low=0, high=RETRIES_MAX, default=0),
            checkpoint_every_s=read.whole("checkpoint_every_s", low=1, high=SECONDS_MAX, default=None),
            checkpoint_on_signal=read.flag("checkpoint_on_signal", default=False),
            estimate_s=read.whole("estimate_s", low=1, high=SECONDS_MAX, default=None),
            duration_s=read.whole("duration_s", low=0, high=SECONDS_MAX, default=None),
            held=read.flag("held", default=False),
            allow_unsatisfiable=read.flag("allow_unsatisfiable", default=False),
        )
        if not read.problems.found:
            _whole(spec, read)
        read.finish()
        return _with_elastic_bounds(spec)

    def _place(self, read: Reader) -> tuple[Any, Any]:
        """Workspace and quota; what one of them leaves open follows from the other."""
        workspace = self._find(read, "workspace", self.workspaces)
        quota = self._find(read, "quota", self.quotas)
        if workspace is None and not read.given("workspace"):
            workspace = self._once(("workspace of", quota), lambda: self._only_workspace(quota))
            if workspace is None and (quota is not None or not read.given("quota")):
                read.bad("workspace", "required")
        if quota is None and workspace is not None and not read.given("quota"):
            quota = self._once(("default of", workspace), lambda: self._default_of(workspace))
            if quota is None:
                read.bad("quota", "required")
        return workspace, quota

    def _only_workspace(self, quota: Quota | None) -> Workspace | None:
        """The one workspace that it can be: of those bound to the quota, or of all that the actor sees."""
        open_ones = self.workspaces.filter(archived_at=None)
        found = (open_ones if quota is None else open_ones.filter(bindings__quota=quota))[:2]
        return found[0] if len(found) == 1 else None

    def _default_of(self, workspace: Workspace) -> Quota | None:
        return self.quotas.filter(bindings__workspace=workspace, bindings__is_default=True).first()

    def _once(self, key: tuple[str, object], find: Callable[[], Any]) -> Any:
        if key not in self._known:
            self._known[key] = find()
        return self._known[key]

    def _find(self, read: Reader, field: str, among: Any) -> Any:
        value = read.data.get(field)
        if not isinstance(value, str | int):
            return read.one_of(field, among, default=None)
        if (field, value) not in self._known:
            found = read.one_of(field, among, default=None)
            if found is None:
                return None
            self._known[field, value] = found
        read.given(field)
        return self._known[field, value]

    def _template(self, read: Reader, workspace: Workspace | None) -> Template | None:
        if workspace is None or not read.given("template"):
            return None
        key = ("template", (workspace, str(read.data["template"])))
        found: Template | None = self._once(
            key, lambda: read.one_of("template", Template.objects.filter(workspace=workspace), default=None)
        )
        return found

    def _pools(self, read: Reader, quota: Quota | None) -> tuple[NodePool, ...]:
        read.asked.add("pools")
        given = read.data.get("pools") or ()
        if isinstance(given, str) or not isinstance(given, Sequence):
            read.bad("pools", "type", wanted="list of pools in order of preference")
            return ()
        if len(given) > POOLS_MAX:
            read.bad("pools", "length", most=POOLS_MAX, given=len(given))
            return ()
        found: list[NodePool] = []
        for index, value in enumerate(given):
            pool = self._pool(value, quota)
            if pool is None:
                read.bad(f"pools.{index}", "not_found", given=str(value)[:NAME_MAX])
            elif pool not in found:
                found.append(pool)
        return tuple(found)

    def _pool(self, value: object, quota: Quota | None) -> NodePool | None:
        if isinstance(value, NodePool):
            return value
        among = self.pools.filter(cluster_id=quota.cluster_id) if quota is not None else self.pools
        read = Reader({"pool": value})
        found: NodePool | None = read.one_of("pool", among, default=None)
        return found


def _request_or_template(read: Reader, template: Template | None) -> Request:
    """What one replica asks for: the named size, or what the fields say; not both."""
    if template is None:
        return Request.read(read)
    for name in REQUEST_FIELDS:
        if read.given(name):
            read.bad(name, "choice", wanted="either a template or a request of one's own")
    return Request(**{name: getattr(template, name) for name in REQUEST_FIELDS})


def _master(read: Reader) -> Request | None:
    """The request of a master, where there is one."""
    read.asked.add("master")
    given = read.data.get("master")
    if given is None:
        return None
    if not isinstance(given, Mapping):
        read.bad("master", "type", wanted="mapping like the request")
        return None
    inner = Reader(given, "master.")
    request = Request.read(inner)
    read.problems.take("", inner.finish)
    return request


def _environment(read: Reader) -> dict[str, str]:
    read.asked.add("environment")
    value = read.data.get("environment")
    if value is None:
        return {}
    fine = isinstance(value, Mapping) and len(value) <= ENVIRONMENT_MAX
    if not fine or any(
        not isinstance(key, str)
        or not isinstance(text, str)
        or not key
        or not key.isprintable()
        or "=" in key
        or len(text) > COMMAND_PART_MAX
        for key, text in value.items()
    ):
        read.bad("environment", "type", wanted=f"at most {ENVIRONMENT_MAX} pairs of name and text")
        return {}
    return dict(value)


def _whole(spec: WorkloadSpec, read: Reader) -> None:
    """What must hold between the fields of one submission."""
    problems = read.problems
    low, high = spec.min_replicas, spec.max_replicas
    if (low is not None or high is not None) and spec.kind != Kind.TRAINING:
        read.bad("min_replicas" if low is not None else "max_replicas", "choice", wanted="only training is elastic")
    if spec.kind == Kind.NOTEBOOK and spec.replicas != 1:
        read.bad("replicas", "range", low=1, high=1, given=spec.replicas)
    if low is not None and low > (high if high is not None else max(spec.replicas, low)):
        read.bad("min_replicas", "range", low=1, high=high, given=low)
    if spec.master is not None and spec.kind != Kind.TRAINING:
        read.bad("master", "choice", wanted="only training has a master")
    if spec.kind == Kind.SERVICE and spec.gang:
        read.bad("gang", "choice", wanted="replicas of a service start one by one")
    if spec.held and spec.kind == Kind.SERVICE and spec.replicas == 0:
        problems.add("held", "invalid", reason="choice", wanted="a service that wants nothing does not wait")


def _with_elastic_bounds(spec: WorkloadSpec) -> WorkloadSpec:
    """Elastic work wants its most and runs from its least on; a bound that is not given is the wanted size."""
    if spec.min_replicas is None and spec.max_replicas is None:
        return spec
    high = spec.max_replicas if spec.max_replicas is not None else max(spec.replicas, spec.min_replicas or 1)
    low = spec.min_replicas if spec.min_replicas is not None else min(spec.replicas, high)
    return dataclasses.replace(spec, min_replicas=low, max_replicas=high, replicas=high)


# --- scaling rules ------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class RuleSpec:
    """One scaling rule: a target (``replicas``) or bounds."""

    name: str
    cron: str
    zone: str
    replicas: int | None = None
    min_replicas: int | None = None
    max_replicas: int | None = None
    valid_from: date | None = None
    valid_until: date | None = None
    excluded: tuple[date, ...] = ()
    ready_by: bool = False
    enabled: bool = True

    @classmethod
    def from_mapping(cls, data: Mapping[str, Any], prefix: str = "") -> Self:
        read = Reader(data, prefix)
        spec = cls(
            name=read.name(),
            cron=_checked(read, "cron", CRON_MAX, schedules.check_cron),
            zone=_checked(read, "zone", NAME_MAX + 1, schedules.check_zone),
            replicas=read.whole("replicas", low=0, high=REPLICAS_MAX, default=None),
            min_replicas=read.whole("min_replicas", low=0, high=REPLICAS_MAX, default=None),
            max_replicas=read.whole("max_replicas", low=0, high=REPLICAS_MAX, default=None),
            valid_from=_date(read, "valid_from"),
            valid_until=_date(read, "valid_until"),
            excluded=_dates(read, "excluded"),
            ready_by=read.flag("ready_by", default=False),
            enabled=read.flag("enabled", default=True),
        )
        if not read.problems.found:
            _whole_rule(spec, read)
        read.finish()
        return spec

    @classmethod
    def of(cls, row: ScalingRule) -> Self:
        """The spec of a stored rule."""
        values = {field.name: getattr(row, field.name) for field in dataclasses.fields(cls)}
        return cls(**{**values, "excluded": tuple(row.excluded)})

    def as_rule(self) -> schedules.Rule:
        """The rule as the arithmetic takes it."""
        values = {field.name: getattr(self, field.name) for field in dataclasses.fields(self)}
        return schedules.Rule(**{**values, "excluded": frozenset(self.excluded)})


def read_rules(items: Sequence[Mapping[str, Any]], field: str = "rules") -> list[RuleSpec]:
    """All rules of a form or call; problems are named ``rules.0.cron``."""
    problems = Problems()
    if len(items) > RULES_MAX:
        problems.add(field, "invalid", reason="length", most=RULES_MAX, given=len(items))
    found = [
        problems.take(f"{field}.{index}", partial(RuleSpec.from_mapping, item)) for index, item in enumerate(items)
    ]
    problems.raise_any()
    return [spec for spec in found if spec is not None]


def _checked(read: Reader, name: str, most: int, check: Any) -> Any:
    text = read.text(name, most=most)
    if text is None:
        return None
    try:
        return check(text)
    except schedules.BadScheduleError as error:
        return read.bad(name, "schedule", **error.facts)


def _date(read: Reader, name: str) -> date | None:
    if not read.given(name):
        return None
    found = _as_date(read.data[name])
    if found is None:
        read.bad(name, "type", wanted="date like 2026-03-02")
    return found


def _dates(read: Reader, name: str) -> tuple[date, ...]:
    read.asked.add(name)
    given = read.data.get(name) or ()
    days = [_as_date(day) for day in given] if isinstance(given, list | tuple) else [None]
    if None in days or len(days) > EXCLUDED_MAX:
        read.bad(name, "type", wanted=f"at most {EXCLUDED_MAX} dates like 2026-03-02")
    return tuple(sorted({day for day in days if day is not None}))


def _as_date(value: object) -> date | None:
    if isinstance(value, date):
        return value
    try:
        return date.fromisoformat(value) if isinstance(value, str) else None
    except ValueError:
        return None


def _whole_rule(spec: RuleSpec, read: Reader) -> None:
    bounds = spec.min_replicas is not None or spec.max_replicas is not None
    if (spec.replicas is not None) == bounds:
        read.bad("replicas", "choice", wanted="either replicas, or min_replicas and max_replicas")
    if spec.min_replicas is not None and spec.max_replicas is not None and spec.min_replicas > spec.max_replicas:
        read.bad("min_replicas", "range", low=0, high=spec.max_replicas, given=spec.min_replicas)
    if spec.valid_from and spec.valid_until and spec.valid_from > spec.valid_until:
        read.bad("valid_until", "range", low=spec.valid_from.isoformat(), given=spec.valid_until.isoformat())


def spec_of(workload: Workload, **changes: Any) -> WorkloadSpec:
    """A submission that repeats a stored workload, with changes: what clone uses."""
    same = {
        field.name: getattr(workload, field.name)
        for field in dataclasses.fields(WorkloadSpec)
        if field.name not in ("request", "master", "pools", "command", "held", "allow_unsatisfiable", "owner")
    }
    request = Request(**{name: getattr(workload, name) for name in REQUEST_FIELDS})
    return WorkloadSpec(
        **{
            **same,
            "request": request,
            "master": Request(**workload.master) if workload.master else None,
            "pools": tuple(p.pool for p in workload.pool_preferences.select_related("pool")),
            "command": tuple(workload.command),
            **changes,
        }
    )
