"""What an input must satisfy: bounds, and the frozen specs that services take.

Forms, serializers and commands read shapes and hand a mapping to ``from_mapping``; all problems are raised at once.
Amounts are base units (``gpu_milli``, ``cpu_milli``, ``memory_mib``), durations seconds. What an input means (sums,
names that are taken, rights) is checked in the services.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from typing import Any, Self, TypeVar
from zoneinfo import ZoneInfo, available_timezones

from django.db.models import Model, QuerySet

from quotas.errors import Problems
from quotas.models import (
    KINDS,
    EngineKind,
    NodePool,
    Placement,
    PlatformRole,
    QueuePolicy,
    Quota,
    QuotaAmount,
    Role,
    Workspace,
)
from scheduler.core.resources import LARGEST

NAME_MAX = 63
NAME_PATTERN = r"[A-Za-z0-9]([A-Za-z0-9._ -]*[A-Za-z0-9])?"
USERNAME_PATTERN = r"[A-Za-z0-9][A-Za-z0-9._@+-]*"
NODE_NAME_MAX = 253
DESCRIPTION_MAX = 500
LABELS_MAX = 50
LABEL_KEY_MAX = 63
LABEL_VALUE_MAX = 253
PRIORITY_LOW, PRIORITY_HIGH = 1, 9
DEPTH_MAX = 6
GPUS_OF_NODE_MAX = 64
WEIGHT_MAX_MILLI = 1_000_000_000
RANK_LOW, RANK_HIGH = -1000, 1000
SECONDS_MAX = 366 * 24 * 3600
CLOCK_SPEED_LOW, CLOCK_SPEED_HIGH = 0.01, 1000.0
RESOURCES = ("gpu_milli", "cpu_milli", "memory_mib")
CLUSTER_SETTINGS = (
    "start_up_s",
    "stop_s",
    "eviction_grace_s",
    "ageing_step_s",
    "balance_timeout_s",
    "moves_an_hour",
)
CLUSTER_TRAITS = ("hang", "demo")  # of simulated clusters: workloads that ignore their grace; teams that submit

M = TypeVar("M", bound=Model)
_MISSING: Any = object()
EARLIEST, LATEST = datetime(1970, 1, 1, tzinfo=UTC), datetime(9998, 12, 31, tzinfo=UTC)


class Reader:
    """Reads the fields of a mapping and gathers what is wrong with them; ``finish`` raises all of it.

    Every problem has the code ``invalid`` and facts: ``reason`` (required, type, range, length, choice, pattern,
    unknown, not_found) and the bounds or choices that would be right.
    """

    def __init__(self, data: Mapping[str, Any], prefix: str = "") -> None:
        self.data = data
        self.prefix = prefix
        self.problems = Problems()
        self.asked: set[str] = set()

    def bad(self, name: str, reason: str, **facts: object) -> None:
        self.problems.add(f"{self.prefix}{name}", "invalid", reason=reason, **facts)

    def given(self, name: str) -> bool:
        """Whether the field is there and not None or an empty string."""
        self.asked.add(name)
        return self.data.get(name) not in (None, "")

    def _raw(self, name: str, default: Any) -> Any:
        if self.given(name):
            return self.data[name]
        if default is _MISSING:
            self.bad(name, "required")
            return None
        return default

    def text(self, name: str, *, most: int, default: Any = _MISSING, pattern: str | None = None) -> Any:
        value = self._raw(name, default)
        if value is default or value is None:
            return value
        if not isinstance(value, str):
            return self.bad(name, "type", wanted="text")
        value = value.strip() if "\n" not in value else value
        if len(value) > most:
            return self.bad(name, "length", most=most, given=len(value))
        if "\x00" in value or (pattern and not re.fullmatch(pattern, value)):
            return self.bad(name, "pattern", pattern=pattern or "no NUL character")
        return value

    def name(self, name: str = "name", *, most: int = NAME_MAX, pattern: str = NAME_PATTERN) -> Any:
        return self.text(name, most=most, pattern=pattern)

    def whole(self, name: str, *, low: int, high: int, default: Any = _MISSING) -> Any:
        value = self._raw(name, default)
        if value is default or value is None:
            return value
        if isinstance(value, float) and value.is_integer():
            value = int(value)
        if isinstance(value, bool) or not isinstance(value, int):
            return self.bad(name, "type", wanted="whole number", low=low, high=high)
        if not low <= value <= high:
            return self.bad(name, "range", low=low, high=high, given=value)
        return value

    def real(self, name: str, *, low: float, high: float, default: Any = _MISSING) -> Any:
        value = self._raw(name, default)
        if value is default or value is None:
            return value
        if isinstance(value, bool) or not isinstance(value, int | float):
            return self.bad(name, "type", wanted="number", low=low, high=high)
        if not low <= value <= high:
            return self.bad(name, "range", low=low, high=high, given=value)
        return value

    def flag(self, name: str, *, default: Any = _MISSING) -> Any:
        value = self._raw(name, default)
        if value is default or isinstance(value, bool):
            return value
        return self.bad(name, "type", wanted="true or false") if value is not None else None

    def choice(self, name: str, options: Iterable[str], *, default: Any = _MISSING) -> Any:
        value = self._raw(name, default)
        if value is default or value is None:
            return value
        options = list(options)
        if value not in options:
            return self.bad(name, "choice", choices=options, given=str(value)[:NAME_MAX])
        return str(value)

    def choices(self, name: str, options: Sequence[str], *, default: Any = _MISSING) -> Any:
        """Several of the options, in the options' order, without repeats."""
        self.asked.add(name)
        value = self.data.get(name)
        if value is None:
            return self._raw(name, default)
        if isinstance(value, str) or not isinstance(value, Sequence) or any(v not in options for v in value):
            return self.bad(name, "choice", choices=list(options))
        return [option for option in options if option in value]

    def labels(self, name: str, *, default: Any = None) -> Any:
        """A mapping of short texts."""
        self.asked.add(name)
        value = self.data.get(name)
        if value is None:
            return {} if default is None else default
        if not isinstance(value, Mapping) or len(value) > LABELS_MAX:
            return self.bad(name, "type", wanted=f"at most {LABELS_MAX} pairs of label and value")
        for key, text in value.items():
            fine = isinstance(key, str) and isinstance(text, str) and 0 < len(key) <= LABEL_KEY_MAX
            if not fine or len(text) > LABEL_VALUE_MAX:
                return self.bad(name, "length", most=LABEL_VALUE_MAX, key=str(key)[:LABEL_KEY_MAX])
        return dict(value)

    def texts(self, name: str, *, most: int, length: int, default: Any = ()) -> Any:
        """A tuple of short texts."""
        self.asked.add(name)
        value = self.data.get(name)
        if value is None:
            return default
        if isinstance(value, str) or not isinstance(value, Sequence) or not all(isinstance(v, str) for v in value):
            return self.bad(name, "type", wanted="list of texts")
        if len(value) > most or any(len(v) > length for v in value):
            return self.bad(name, "length", most=most, each=length)
        return tuple(value)

    def instant(self, name: str, *, default: Any = None) -> Any:
        """A time with its zone, in UTC; ISO text is read. What no database or zone could keep is refused."""
        value = self._raw(name, default)
        if value is default or value is None:
            return value
        if isinstance(value, str):
            try:
                value = datetime.fromisoformat(value)
            except ValueError:
                return self.bad(name, "type", wanted="time like 2026-03-02T08:00:00+03:00")
        if not isinstance(value, datetime) or value.tzinfo is None:
            return self.bad(name, "type", wanted="time with a zone")
        try:
            value = value.astimezone(UTC)
        except OverflowError:
            value = None
        if value is None or not EARLIEST <= value <= LATEST:
            return self.bad(name, "range", low=EARLIEST.isoformat(), high=LATEST.isoformat())
        return value

    def zone(self, name: str, *, default: Any = _MISSING) -> Any:
        value = self._raw(name, default)
        if value is default or value is None:
            return value
        if not isinstance(value, str) or value not in available_timezones():
            return self.bad(name, "choice", wanted="IANA time zone like Europe/Istanbul")
        return ZoneInfo(value).key

    def one_of(self, name: str, among: QuerySet[M], *, key: str = "name", default: Any = _MISSING) -> Any:
        """An object among those that may be named, by id or by ``key``; an instance is taken as it is."""
        value = self._raw(name, default)
        if value is default or value is None or isinstance(value, among.model):
            return value
        found = among.filter(**_by(value, key)).first()
        return found if found is not None else self.bad(name, "not_found", given=str(value)[:NAME_MAX])

    def finish(self) -> None:
        """Raises ``Refused`` with all problems, unknown fields among them."""
        for name in self.data:
            if name not in self.asked:
                self.bad(str(name), "unknown", known=sorted(self.asked))
        self.problems.raise_any()


def _by(value: object, key: str) -> dict[str, Any]:
    if isinstance(value, int) and not isinstance(value, bool):
        return {"pk": value} if abs(value) < 2**63 else {"pk": -1}
    return {f"{key}__iexact": str(value)}


# --- clusters, pools, nodes ---------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class ClusterSpec:
    """A cluster: its engine, engine settings in seconds, topology levels from the outermost, clock speed."""

    name: str
    engine: str = EngineKind.SIMULATED
    settings: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    topology_levels: tuple[str, ...] = ()
    clock_speed: float = 1.0

    @classmethod
    def from_mapping(cls, data: Mapping[str, Any]) -> Self:
        read = Reader(data)
        spec = cls(
            name=read.name(),
            engine=read.choice("engine", EngineKind.values, default=EngineKind.SIMULATED),
            settings=_cluster_settings(read),
            topology_levels=read.texts("topology_levels", most=8, length=LABEL_KEY_MAX),
            clock_speed=read.real("clock_speed", low=CLOCK_SPEED_LOW, high=CLOCK_SPEED_HIGH, default=1.0),
        )
        read.finish()
        return spec


def _cluster_settings(read: Reader) -> dict[str, Any]:
    read.asked.add("settings")
    given = read.data.get("settings") or {}
    if not isinstance(given, Mapping):
        read.bad("settings", "type", wanted="mapping")
        return {}
    inner = Reader(given, "settings.")
    values = {name: inner.real(name, low=0, high=86_400, default=None) for name in CLUSTER_SETTINGS}
    inner.asked.update(CLUSTER_TRAITS)
    read.problems.take("", inner.finish)
    kept = {name: given[name] for name in CLUSTER_TRAITS if given.get(name)}
    return {**{name: value for name, value in values.items() if value is not None}, **kept}


@dataclass(frozen=True, slots=True)
class PoolSpec:
    """A node pool; ``kinds`` empty takes every kind of work."""

    name: str
    selector: Mapping[str, str] = dataclasses.field(default_factory=dict)
    placement: str = Placement.BINPACK
    kinds: tuple[str, ...] = ()
    oversubscription: bool = False
    order: int = 0

    @classmethod
    def from_mapping(cls, data: Mapping[str, Any]) -> Self:
        read = Reader(data)
        spec = cls(
            name=read.name(),
            selector=read.labels("selector"),
            placement=read.choice("placement", Placement.values, default=Placement.BINPACK),
            kinds=tuple(read.choices("kinds", KINDS, default=()) or ()),
            oversubscription=read.flag("oversubscription", default=False),
            order=read.whole("order", low=0, high=10_000, default=0),
        )
        read.finish()
        return spec


@dataclass(frozen=True, slots=True)
class NodeSpec:
    """A node; CPU or memory None has no bound. Without ``pool`` the first pool whose selector matches takes it."""

    name: str
    gpus: int = 0
    gpu_model: str = ""
    gpu_memory_mib: int = 0
    cpu_milli: int | None = None
    memory_mib: int | None = None
    labels: Mapping[str, str] = dataclasses.field(default_factory=dict)
    pool: NodePool | None = None

    @classmethod
    def from_mapping(cls, data: Mapping[str, Any], *, pools: QuerySet[NodePool] | None = None) -> Self:
        read = Reader(data)
        spec = cls(
            name=read.name(most=NODE_NAME_MAX),
            gpus=read.whole("gpus", low=0, high=GPUS_OF_NODE_MAX, default=0),
            gpu_model=read.text("gpu_model", most=NAME_MAX, default=""),
            gpu_memory_mib=read.whole("gpu_memory_mib", low=0, high=LARGEST, default=0),
            cpu_milli=read.whole("cpu_milli", low=0, high=LARGEST, default=None),
            memory_mib=read.whole("memory_mib", low=0, high=LARGEST, default=None),
            labels=read.labels("labels"),
            pool=read.one_of("pool", pools if pools is not None else NodePool.objects.all(), default=None),
        )
        read.finish()
        return spec


# --- quotas -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class AmountSpec:
    """What a quota has in one pool. None: guaranteed - not governed; limit and lending - no bound; weight - default."""

    guaranteed_gpu_milli: int | None = None
    guaranteed_cpu_milli: int | None = None
    guaranteed_memory_mib: int | None = None
    limit_gpu_milli: int | None = None
    limit_cpu_milli: int | None = None
    limit_memory_mib: int | None = None
    lending_gpu_milli: int | None = None
    lending_cpu_milli: int | None = None
    lending_memory_mib: int | None = None
    weight: int | None = None
    rank: int = 0

    @classmethod
    def from_mapping(cls, data: Mapping[str, Any], prefix: str = "") -> Self:
        read = Reader(data, prefix)
        values = {name: read.whole(name, low=0, high=LARGEST, default=None) for name in AMOUNT_FIELDS}
        spec = cls(
            **values,
            weight=read.whole("weight", low=0, high=WEIGHT_MAX_MILLI, default=None),
            rank=read.whole("rank", low=RANK_LOW, high=RANK_HIGH, default=0),
        )
        read.finish()
        return spec

    @classmethod
    def of(cls, row: QuotaAmount | None) -> Self:
        """The amounts of a row as they are; all None for no row."""
        if row is None:
            return cls()
        return cls(**{field.name: getattr(row, field.name) for field in dataclasses.fields(cls)})

    def guaranteed(self, resource: str) -> int | None:
        return getattr(self, f"guaranteed_{resource}")  # type: ignore[no-any-return]

    def limit(self, resource: str) -> int | None:
        return getattr(self, f"limit_{resource}")  # type: ignore[no-any-return]


AMOUNT_FIELDS = tuple(f"{what}_{resource}" for what in ("guaranteed", "limit", "lending") for resource in RESOURCES)


@dataclass(frozen=True, slots=True)
class QuotaSpec:
    """A new quota: where it stands, its amounts by pool, and its settings (names of the model's fields)."""

    name: str
    parent: Quota | None = None
    amounts: Mapping[NodePool, AmountSpec] = dataclasses.field(default_factory=dict)
    description: str = ""
    labels: Mapping[str, str] = dataclasses.field(default_factory=dict)
    settings: Mapping[str, Any] = dataclasses.field(default_factory=dict)

    @classmethod
    def from_mapping(cls, data: Mapping[str, Any], *, pools: QuerySet[NodePool], parents: QuerySet[Quota]) -> Self:
        """Reads ``{name, parent, amounts: {POOL: {guaranteed_gpu_milli: ...}}, <settings>}``; pools by name or id."""
        read = Reader(data)
        settings_given = {key: data[key] for key in SETTING_NAMES if key in data}
        read.asked.update(SETTING_NAMES)
        spec = cls(
            name=read.name(),
            parent=read.one_of("parent", parents, default=None),
            amounts=read_amounts(read, pools),
            description=read.text("description", most=DESCRIPTION_MAX, default=""),
            labels=read.labels("labels"),
        )
        settings = read.problems.take("", partial(quota_settings, settings_given))
        read.finish()
        return dataclasses.replace(spec, settings=settings or {})


def read_amounts(read: Reader, pools: QuerySet[NodePool], field: str = "amounts") -> dict[NodePool, AmountSpec]:
    """The field's mapping of pool to amounts; problems go to the reader."""
    read.asked.add(field)
    given = read.data.get(field) or {}
    if not isinstance(given, Mapping):
        read.bad(field, "type", wanted="mapping of pool to amounts")
        return {}
    found: dict[NodePool, AmountSpec] = {}
    for key, value in given.items():
        if isinstance(value, AmountSpec) and isinstance(key, NodePool):
            found[key] = value
            continue
        pool = key if isinstance(key, NodePool) else pools.filter(**_by(_number(key), "name")).first()
        if pool is None or not isinstance(value, Mapping):
            read.bad(f"{field}.{key}", "not_found" if pool is None else "type", wanted="pool and its amounts")
            continue
        amounts = read.problems.take(f"{field}.{pool.name}", partial(AmountSpec.from_mapping, value))
        found[pool] = amounts or AmountSpec()
    return found


def _number(key: object) -> object:
    return int(key) if isinstance(key, str) and key.isdecimal() and len(key) < 19 else key


SETTING_NAMES = (
    "queue_policy",
    "child_preemption",
    "child_claimants",
    "child_max_victim_priority",
    "child_kinds",
    "priority_inside",
    "priority_siblings",
    "priority_by_low",
    "priority_by_high",
    "priority_of_low",
    "priority_of_high",
    "priority_kinds",
    "idle_sharing",
    "min_runtime_reclaim_s",
    "min_runtime_preempt_s",
    "min_runtime_override_after_s",
    "reserve_after_s",
    "node_affinity",
)
TEXT_NAMES = ("name", "description", "labels")


def quota_settings(data: Mapping[str, Any]) -> dict[str, Any]:
    """The given settings (and name, description, labels), checked one by one; what is absent stays absent."""
    read = Reader(data)
    values = {name: _setting(read, name) for name in data if name in (*SETTING_NAMES, *TEXT_NAMES)}
    for pair in ("by", "of"):
        low, high = values.get(f"priority_{pair}_low"), values.get(f"priority_{pair}_high")
        if isinstance(low, int) and isinstance(high, int) and low > high:
            read.bad(f"priority_{pair}_low", "range", low=PRIORITY_LOW, high=high, given=low)
    read.finish()
    return values


def _setting(read: Reader, name: str) -> Any:
    if name in ("child_preemption", "priority_inside", "priority_siblings", "idle_sharing"):
        return read.flag(name)
    if name in ("child_claimants", "child_kinds", "priority_kinds"):
        return read.choices(name, KINDS)
    if name.startswith("priority_") or name == "child_max_victim_priority":
        return read.whole(name, low=PRIORITY_LOW, high=PRIORITY_HIGH)
    if name == "min_runtime_override_after_s":
        return read.whole(name, low=0, high=SECONDS_MAX, default=None)
    if name.endswith("_s"):
        return read.whole(name, low=0, high=SECONDS_MAX)
    if name == "queue_policy":
        return read.choice(name, QueuePolicy.values)
    if name == "name":
        return read.name()
    if name == "description":
        return read.text(name, most=DESCRIPTION_MAX, default="")
    return read.labels(name) if name == "labels" else _node_affinity(read)


def _node_affinity(read: Reader) -> dict[str, Any]:
    """``{kind: {required|preferred: {label: [values]}}}``."""
    read.asked.add("node_affinity")
    value = read.data.get("node_affinity") or {}
    wanted = "{kind: {required|preferred: {label: [values]}}}"
    if not isinstance(value, Mapping) or any(kind not in KINDS for kind in value):
        read.bad("node_affinity", "choice", choices=list(KINDS), wanted=wanted)
        return {}
    for kind, wishes in value.items():
        if not isinstance(wishes, Mapping) or any(part not in ("required", "preferred") for part in wishes):
            read.bad(f"node_affinity.{kind}", "choice", choices=["required", "preferred"], wanted=wanted)
        elif not all(_is_label_lists(part) for part in wishes.values()):
            read.bad(f"node_affinity.{kind}", "type", wanted=wanted)
    return {kind: dict(wishes) for kind, wishes in value.items() if isinstance(wishes, Mapping)}


def _is_label_lists(value: object) -> bool:
    return isinstance(value, Mapping) and all(
        isinstance(label, str) and isinstance(values, list) and values and all(isinstance(v, str) for v in values)
        for label, values in value.items()
    )


# --- people -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class WorkspaceSpec:
    """A new workspace: the first of ``quotas`` is its default; ``owner`` None: who creates it."""

    name: str
    description: str = ""
    quotas: tuple[Quota, ...] = ()
    owner: Any = None

    @classmethod
    def from_mapping(
        cls, data: Mapping[str, Any], *, quotas: QuerySet[Quota] | None = None, users: QuerySet[Any] | None = None
    ) -> Self:
        read = Reader(data)
        among = quotas if quotas is not None else Quota.objects.all()
        spec = cls(
            name=read.name(),
            description=read.text("description", most=DESCRIPTION_MAX, default=""),
            quotas=_several(read, "quotas", among),
            owner=read.one_of("owner", users, key="username", default=None) if users is not None else None,
        )
        read.finish()
        return spec


def _several(read: Reader, name: str, among: QuerySet[M]) -> tuple[M, ...]:
    read.asked.add(name)
    given = read.data.get(name) or ()
    if isinstance(given, str) or not isinstance(given, Sequence):
        read.bad(name, "type", wanted="list of names or ids")
        return ()
    found = []
    for index, value in enumerate(given):
        item = value if isinstance(value, among.model) else among.filter(**_by(value, "name")).first()
        if item is None:
            read.bad(f"{name}.{index}", "not_found", given=str(value)[:NAME_MAX])
        else:
            found.append(item)
    return tuple(dict.fromkeys(found))


@dataclass(frozen=True, slots=True)
class UserSpec:
    """A new person; without a password the account cannot sign in until one is set."""

    username: str
    email: str = ""
    password: str | None = None
    platform_role: str = PlatformRole.NONE
    time_zone: str = "UTC"

    @classmethod
    def from_mapping(cls, data: Mapping[str, Any]) -> Self:
        read = Reader(data)
        spec = cls(
            username=read.name("username", most=150, pattern=USERNAME_PATTERN),
            email=read.text("email", most=254, default="", pattern=r"[^@\s]+@[^@\s]+\.[^@\s]+"),
            password=read.text("password", most=4096, default=None),
            platform_role=read.choice("platform_role", PlatformRole.values, default=PlatformRole.NONE),
            time_zone=read.zone("time_zone", default="UTC"),
        )
        read.finish()
        return spec


@dataclass(frozen=True, slots=True)
class TokenSpec:
    """A new token of the actor: of all its rights, or of one workspace with at most one role's rights."""

    name: str
    workspace: Workspace | None = None
    role: str = ""
    expires_at: datetime | None = None

    @classmethod
    def from_mapping(cls, data: Mapping[str, Any], *, workspaces: QuerySet[Workspace]) -> Self:
        read = Reader(data)
        workspace = read.one_of("workspace", workspaces, default=None)
        role = read.choice("role", Role.values, default="")
        if read.given("workspace") != bool(role):
            read.bad("role" if workspace else "workspace", "required")
        spec = cls(
            name=read.name(), workspace=workspace, role=role or "", expires_at=read.instant("expires_at", default=None)
        )
        read.finish()
        return spec
