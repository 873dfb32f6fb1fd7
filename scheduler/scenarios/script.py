"""A scenario as values: what the file says, with names instead of rows. Times are durations or local clock times."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, time, timedelta
from typing import Any, TypeAlias

DEFAULT_START = datetime(2026, 1, 5, tzinfo=UTC)
ANY = "any"


@dataclass(frozen=True, slots=True)
class When:
    """Since the start, after the previous step, or at the next such local time of the start's zone."""

    since_start: timedelta | None = None
    after_previous: timedelta | None = None
    local: time | None = None

    def resolve(self, start: datetime, previous: datetime) -> datetime:
        if self.local is None:
            return previous + self.after_previous if self.after_previous is not None else start + self.since_start_or_0
        found = datetime.combine(previous.astimezone(start.tzinfo).date(), self.local, start.tzinfo)
        return found if found >= previous else found + timedelta(days=1)

    @property
    def since_start_or_0(self) -> timedelta:
        return self.since_start or timedelta()


@dataclass(frozen=True, slots=True)
class Nodes:
    """Like nodes: fields of the node's spec beside the name, and the names."""

    names: tuple[str, ...]
    spec: Mapping[str, Any]


Amount: TypeAlias = Mapping[str, int | None]
"""Base unit (`gpu_milli`, ...) to amount; None: no bound."""


@dataclass(frozen=True, slots=True)
class QuotaFields:
    """The fields of a quota that are given; the others stay as they are (or take their defaults when it is new).

    Amounts are by pool name (empty name: every pool), for `guaranteed`, `limit` and `lending`.
    """

    name: str
    parent: str | None = None
    has_parent: bool = False
    amounts: Mapping[str, Mapping[str, Amount | None]] = field(default_factory=dict)
    weight: int | None = None
    has_weight: bool = False
    rank: int | None = None
    settings: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Pool:
    name: str
    spec: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Workspace:
    name: str
    quotas: tuple[str, ...]


# --- steps --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Submit:
    """`spec` has the fields of a workload's spec; with `repeat` the names are NAME-0 to NAME-n-1."""

    name: str
    quota: str
    spec: Mapping[str, Any]
    workspace: str | None = None
    repeat: int | None = None
    user: str | None = None
    refused: str | None = None

    @property
    def names(self) -> list[str]:
        return [self.name] if self.repeat is None else [f"{self.name}-{number}" for number in range(self.repeat)]


@dataclass(frozen=True, slots=True)
class OnWorkloads:
    """One of the verbs stop, delete, hold, release, on one or several workloads."""

    verb: str
    names: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Priority:
    workload: str
    to: int


@dataclass(frozen=True, slots=True)
class Scale:
    workload: str
    replicas: int


@dataclass(frozen=True, slots=True)
class Schedule:
    workload: str
    rules: tuple[Mapping[str, Any], ...]


@dataclass(frozen=True, slots=True)
class Excess:
    """What is to happen with what a cut leaves above the amounts."""

    on_excess: str = "keep"
    after: timedelta | None = None


@dataclass(frozen=True, slots=True)
class EditQuota:
    fields: QuotaFields
    excess: Excess = Excess()
    refused: str | None = None


@dataclass(frozen=True, slots=True)
class Rebalance:
    changes: Mapping[str, QuotaFields]
    excess: Excess = Excess()
    refused: str | None = None


@dataclass(frozen=True, slots=True)
class CreateQuota:
    fields: QuotaFields
    refused: str | None = None


@dataclass(frozen=True, slots=True)
class DeleteQuota:
    name: str
    refused: str | None = None


@dataclass(frozen=True, slots=True)
class ChangeNode:
    """A node's state, or the health of one of its GPUs."""

    name: str
    state: str | None = None
    gpu: int | None = None
    healthy: bool = True


@dataclass(frozen=True, slots=True)
class AddNodes:
    nodes: Nodes


@dataclass(frozen=True, slots=True)
class RemoveNode:
    name: str


@dataclass(frozen=True, slots=True)
class Fail:
    workload: str
    worker: int


@dataclass(frozen=True, slots=True)
class Restart:
    """Everything that was held in memory is lost."""


@dataclass(frozen=True, slots=True)
class Cycles:
    count: int


@dataclass(frozen=True, slots=True)
class Preview:
    """A change that is only looked at: what it would preempt and start."""

    change: EditQuota | Rebalance
    preempted: tuple[str, ...] | None = None
    starts: tuple[str, ...] | None = None


Action: TypeAlias = (
    Submit
    | OnWorkloads
    | Priority
    | Scale
    | Schedule
    | EditQuota
    | Rebalance
    | CreateQuota
    | DeleteQuota
    | ChangeNode
    | AddNodes
    | RemoveNode
    | Fail
    | Restart
    | Cycles
    | Preview
)


# --- expectations -------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Range:
    """A number, or bounds; amounts are thousandths."""

    least: int | None = None
    most: int | None = None

    @classmethod
    def exactly(cls, value: int) -> Range:
        return cls(value, value)

    def holds(self, found: int) -> bool:
        return (self.least is None or found >= self.least) and (self.most is None or found <= self.most)


@dataclass(frozen=True, slots=True)
class WorkloadExpected:
    """What is expected of one workload; None: not asked. GPU amounts are thousandths."""

    states: tuple[str, ...] | None = None
    replicas: int | None = None
    gpus: int | None = None
    borrowed: int | None = None
    node: str | None = None
    nodes: int | None = None
    quota: str | None = None
    reason: tuple[str, ...] | None = None
    restarts: int | None = None


@dataclass(frozen=True, slots=True)
class CountExpected:
    """How many workloads, by the beginning of their names, quota and state."""

    prefix: str
    range: Range
    quota: str | None = None
    states: tuple[str, ...] | None = None


@dataclass(frozen=True, slots=True)
class EvictionsExpected:
    range: Range | None
    only: tuple[str, ...] | None = None
    never: tuple[str, ...] = ()
    since_last: bool = False


@dataclass(frozen=True, slots=True)
class UtilisationExpected:
    begin: When
    end: When
    least: float | None = None
    most: float | None = None


@dataclass(frozen=True, slots=True)
class Expect:
    """Everything that must hold at a moment."""

    place: str
    workloads: Mapping[str, WorkloadExpected] = field(default_factory=dict)
    quotas: Mapping[str, Mapping[str, Range]] = field(default_factory=dict)
    count: tuple[CountExpected, ...] = ()
    used_gpus: Range | None = None
    idle_gpus: Range | None = None
    evictions: EvictionsExpected | None = None
    moves: EvictionsExpected | None = None
    utilisation: UtilisationExpected | None = None
    any_of: tuple[Expect, ...] = ()
    none_of: tuple[Expect, ...] = ()


@dataclass(frozen=True, slots=True)
class Step:
    when: When
    place: str
    action: Action | None = None
    expect: Expect | None = None


@dataclass(frozen=True, slots=True)
class Scenario:
    """A whole file."""

    file: str
    name: str
    start: datetime = DEFAULT_START
    cycle: timedelta = timedelta(seconds=1)
    settings: Mapping[str, Any] = field(default_factory=dict)
    levels: tuple[str, ...] = ()
    pools: tuple[Pool, ...] = ()
    nodes: tuple[Nodes, ...] = ()
    quotas: tuple[QuotaFields, ...] = ()
    workspaces: tuple[Workspace, ...] = ()
    steps: tuple[Step, ...] = ()
