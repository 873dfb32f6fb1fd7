"""What must be true at a moment, compared with the rows. Each difference is a sentence: expected, and found."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime

from django.db.models import Max, Sum

from quotas.models import LedgerEntry, Node, NodeState, QuotaAmount
from scheduler.scenarios.script import (
    CountExpected,
    EvictionsExpected,
    Expect,
    Range,
    UtilisationExpected,
    WorkloadExpected,
)
from scheduler.scenarios.stage import NoSuchName, Stage
from scheduler.selectors import busy_share
from workloads.models import Allocation, Eviction, Phase, Verdict, Workload


@dataclass(frozen=True, slots=True)
class Moment:
    """When the scenario began, what time it is, and the last eviction that the previous expectation had seen."""

    start: datetime
    now: datetime
    seen_eviction: int = 0


def last_eviction(stage: Stage) -> int:
    newest = Eviction.objects.filter(workload__cluster=stage.cluster).aggregate(id=Max("id"))["id"]
    return newest or 0


def differences(expect: Expect, stage: Stage, moment: Moment) -> list[str]:
    """Everything that does not hold; empty when all does."""
    return list(_differences(expect, stage, moment))


def _differences(expect: Expect, stage: Stage, moment: Moment) -> Iterator[str]:
    for name, wanted in expect.workloads.items():
        yield from _workload(name, wanted, stage)
    for name, ranges in expect.quotas.items():
        yield from _quota(name, ranges, stage)
    for count in expect.count:
        yield from _count(count, stage)
    yield from _gpus(expect, stage)
    if expect.evictions is not None:
        yield from _told("evictions", Eviction.What.EVICTION, expect.evictions, stage, moment)
    if expect.moves is not None:
        yield from _told("moves", Eviction.What.MOVE, expect.moves, stage, moment)
    if expect.utilisation is not None:
        yield from _utilisation(expect.utilisation, stage, moment)
    yield from _combined(expect, stage, moment)


def _combined(expect: Expect, stage: Stage, moment: Moment) -> Iterator[str]:
    if expect.any_of:
        found = [differences(option, stage, moment) for option in expect.any_of]
        if all(found):
            yield "expected any of: " + " | ".join("; ".join(each) for each in found)
    for option in expect.none_of:
        if not differences(option, stage, moment):
            yield f"expected not to hold, but it holds: the expectation at {option.place}"


# --- workloads ----------------------------------------------------------------------------------------------------


def _workload(name: str, wanted: WorkloadExpected, stage: Stage) -> Iterator[str]:
    try:
        workload = stage.workload(name)
    except NoSuchName as problem:
        yield f"expected workload {name}, {problem}"
        return
    held = list(Allocation.objects.filter(workload=workload, ended_at__isnull=True).select_related("node"))
    yield from _state(workload, wanted)
    yield from _size(workload, held, wanted)
    yield from _placement(name, held, wanted)


def _state(workload: Workload, wanted: WorkloadExpected) -> Iterator[str]:
    if wanted.states is not None and workload.state not in wanted.states:
        yield f"expected {workload.name} {' or '.join(wanted.states)}, found {workload.state}{_reason_words(workload)}"
    if wanted.quota is not None and workload.quota.name != wanted.quota:
        yield f"expected {workload.name} in quota {wanted.quota}, found {workload.quota.name}"
    if wanted.reason is not None:
        found = _reason(workload)
        if found not in wanted.reason:
            yield f"expected {workload.name} to wait for {' or '.join(wanted.reason)}, found {found or 'no reason'}"


def _reason(workload: Workload) -> str:
    return Verdict.objects.filter(workload=workload).values_list("code", flat=True).first() or ""


def _reason_words(workload: Workload) -> str:
    found = Verdict.objects.filter(workload=workload).values_list("code", "facts").first()
    return f" ({found[0]} {found[1]})" if found is not None else ""


def _size(workload: Workload, held: list[Allocation], wanted: WorkloadExpected) -> Iterator[str]:
    found = {
        "replicas": (wanted.replicas, sum(one.phase == Phase.RUNNING for one in held)),
        "restarts": (wanted.restarts, max(0, workload.starts - 1)),
    }
    for what, (expected, number) in found.items():
        if expected is not None and number != expected:
            yield f"expected {workload.name} with {expected} {what}, found {number}"
    amounts = {
        "GPUs": (wanted.gpus, sum(one.gpu_milli_total for one in held)),
        "borrowed GPUs": (wanted.borrowed, workload.borrowed_gpu_milli),
    }
    for what, (expected, number) in amounts.items():
        if expected is not None and number != expected:
            yield f"expected {workload.name} with {_gpu(expected)} {what}, found {_gpu(number)}"


def _placement(name: str, held: list[Allocation], wanted: WorkloadExpected) -> Iterator[str]:
    nodes = sorted({one.node.name for one in held})
    if wanted.node is not None and nodes != [wanted.node]:
        yield f"expected all of {name} on {wanted.node}, found {', '.join(nodes) or 'nothing'}"
    if wanted.nodes is not None and len(nodes) != wanted.nodes:
        yield f"expected {name} on {wanted.nodes} nodes, found {len(nodes)}"


def _count(wanted: CountExpected, stage: Stage) -> Iterator[str]:
    found = Workload.objects.filter(cluster=stage.cluster, name__startswith=wanted.prefix, deleted_at__isnull=True)
    if wanted.quota is not None:
        found = found.filter(quota__name=wanted.quota)
    if wanted.states is not None:
        found = found.filter(state__in=wanted.states)
    number = found.count()
    if not wanted.range.holds(number):
        what = f"{wanted.prefix or 'all'}*{' in ' + wanted.quota if wanted.quota else ''}"
        yield f"expected {_words(wanted.range)} of {what} {'/'.join(wanted.states or ())}, found {number}"


# --- quotas and the cluster ---------------------------------------------------------------------------------------


def _quota(name: str, ranges: Mapping[str, Range], stage: Stage) -> Iterator[str]:
    try:
        quota = stage.quota(name)
    except NoSuchName as problem:
        yield f"expected quota {name}, {problem}"
        return
    for field, wanted in ranges.items():
        if field == "guaranteed":
            rows = QuotaAmount.objects.filter(quota=quota)
            found = rows.aggregate(sum=Sum("guaranteed_gpu_milli"))["sum"] or 0
        else:
            found = LedgerEntry.objects.filter(quota=quota).aggregate(sum=Sum(field))["sum"] or 0
        if not wanted.holds(found):
            yield f"expected {name} {field} {_words(wanted, milli=True)}, found {_gpu(found)}"


def capacity_milli(stage: Stage) -> int:
    """GPUs of all nodes that are not lost, cordoned ones included."""
    nodes = Node.objects.filter(cluster=stage.cluster).exclude(state=NodeState.LOST)
    return (nodes.aggregate(sum=Sum("gpus"))["sum"] or 0) * 1000


def used_milli(stage: Stage) -> int:
    """Counted afresh from live allocations; what leaves still counts."""
    held = Allocation.objects.filter(workload__cluster=stage.cluster, ended_at__isnull=True)
    return sum(len(devices) * milli for devices, milli in held.values_list("devices", "gpu_milli"))


def _gpus(expect: Expect, stage: Stage) -> Iterator[str]:
    used = used_milli(stage)
    if expect.used_gpus is not None and not expect.used_gpus.holds(used):
        yield f"expected {_words(expect.used_gpus, milli=True)} GPUs used, found {_gpu(used)}"
    if expect.idle_gpus is not None:
        idle = capacity_milli(stage) - used
        if not expect.idle_gpus.holds(idle):
            yield f"expected {_words(expect.idle_gpus, milli=True)} GPUs idle, found {_gpu(idle)}"


def _utilisation(wanted: UtilisationExpected, stage: Stage, moment: Moment) -> Iterator[str]:
    begin = wanted.begin.resolve(moment.start, moment.start)
    end = wanted.end.resolve(moment.start, begin)
    found = busy_share(cluster=stage.cluster, since=begin, until=end, capacity_milli=capacity_milli(stage))
    if wanted.least is not None and found < wanted.least:
        yield f"expected utilisation at least {wanted.least}, found {found:.4f}"
    if wanted.most is not None and found > wanted.most:
        yield f"expected utilisation at most {wanted.most}, found {found:.4f}"


# --- evictions and moves ------------------------------------------------------------------------------------------


def _told(what: str, kind: Eviction.What, wanted: EvictionsExpected, stage: Stage, moment: Moment) -> Iterator[str]:
    rows = Eviction.objects.filter(what=kind, workload__cluster=stage.cluster)
    if wanted.since_last:
        rows = rows.filter(pk__gt=moment.seen_eviction)
    names = list(rows.order_by("id").values_list("workload__name", flat=True))
    if wanted.range is not None and not wanted.range.holds(len(names)):
        yield f"expected {_words(wanted.range)} {what}, found {len(names)} ({_list(names)})"
    if wanted.only is not None and (others := [name for name in names if name not in wanted.only]):
        yield f"expected {what} only of {_list(wanted.only)}, found {_list(others)}"
    if never := [name for name in names if name in wanted.never]:
        yield f"expected no {what} of {_list(never)}, found {len(never)}"


def _list(names: Iterable[str]) -> str:
    return ", ".join(names) or "none"


def _words(wanted: Range, *, milli: bool = False) -> str:
    def show(value: int) -> str:
        return _gpu(value) if milli else str(value)

    if wanted.least is not None and wanted.least == wanted.most:
        return show(wanted.least)
    least = f"at least {show(wanted.least)}" if wanted.least is not None else ""
    most = f"at most {show(wanted.most)}" if wanted.most is not None else ""
    return " and ".join(part for part in (least, most) if part)


def _gpu(milli: int) -> str:
    return f"{milli / 1000:g}"
