"""How many replicas: by hand, and by rules that go by the clock.

Rules are levels: the size at an instant follows from the latest firing, so applying them late, twice or after a
restart comes to the same size. A size set by hand holds until the next firing.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta

from django.db import transaction
from django.db.models import Avg, F

from quotas.actors import Actor, System
from quotas.audit import actor_name
from quotas.errors import Problem, Problems, Refused, refuse
from quotas.models import Cluster
from quotas.permissions import require
from quotas.services._common import locked
from workloads import schedules
from workloads.models import FINAL, LIVE, Allocation, Kind, ScalingRule, State, Workload
from workloads.services._common import lock_workload, note, require_state, write_event
from workloads.specs import REPLICAS_MAX, RULES_MAX, RuleSpec
from workloads.states import move

CLOCK = System("schedule")
RULE_MARK = "rule "  # no login name has a space, so a size set by a rule is never taken for one set by hand
MEASURED = 20  # how many starts the lead of a rule is measured from
DEFAULT_GRACE_S = 30


# --- by hand ------------------------------------------------------------------------------------------------------


@transaction.atomic
def scale_workload(*, actor: Actor, workload: Workload, replicas: int) -> Workload:
    """Set how many replicas a service (or workers an elastic job) is to have, until a rule fires."""
    require(actor, "workload.scale", workload)
    workload = lock_workload(workload)
    require_state(workload, [state for state in LIVE if state not in (State.STOPPING, State.PREEMPTING)])
    low, high = _bounds(workload)
    if isinstance(replicas, bool) or not low <= replicas <= high:
        raise refuse("replicas", "invalid", reason="range", low=low, high=high, given=str(replicas)[:20])
    before, now = workload.replicas, workload.cluster.now()
    _set_size(actor, workload, replicas, by=actor_name(actor), at=now, facts={})
    note(actor, workload, "scaled", {"replicas": before}, {"replicas": replicas})
    return workload


def _bounds(workload: Workload) -> tuple[int, int]:
    if workload.kind == Kind.SERVICE:
        return 0, REPLICAS_MAX
    if workload.min_replicas is not None and workload.max_replicas is not None:
        return workload.min_replicas, workload.max_replicas
    raise refuse("replicas", "invalid", reason="choice", wanted="only services and elastic training are scaled")


def _set_size(
    actor: Actor, workload: Workload, replicas: int, *, by: str, at: datetime, facts: Mapping[str, object]
) -> None:
    """Write the size, the event, and the state that follows for a service."""
    before = workload.replicas
    Workload.objects.filter(pk=workload.pk).update(
        replicas=replicas, size_by=by, size_at=at, revision=F("revision") + 1
    )
    workload.refresh_from_db()
    if before == replicas:
        return
    sizes = {"from": before, "to": replicas, "by": by, **facts}
    write_event(workload, actor=actor, verb="scaled", at=at, facts=sizes)
    to = _state_after(workload)
    if to != workload.state:
        move(workload, to, by=actor, at=at, verb=str(to), facts={"wanted": replicas})


def _state_after(workload: Workload) -> State:
    """The state of a service whose wanted size has just changed; other kinds keep theirs."""
    state = State(workload.state)
    if workload.kind != Kind.SERVICE:
        return state
    if state == State.QUEUED and workload.replicas == 0:
        return State.RUNNING
    return State.RESIZING if state == State.RUNNING else state


# --- rules --------------------------------------------------------------------------------------------------------


@transaction.atomic
def save_rules(
    *, actor: Actor, workload: Workload, rules: Sequence[RuleSpec], revision: int | None = None
) -> list[ScalingRule]:
    """Put these rules in place of all before, and apply the size that follows at once."""
    require(actor, "workload.set_rules", workload)
    workload = lock_workload(workload, revision)
    if workload.kind != Kind.SERVICE:
        raise refuse("rules", "invalid", reason="choice", wanted="only services are scaled by rules")
    require_state(workload, LIVE)
    _require_distinct(rules)
    before = [rule.name for rule in workload.rules.all()]
    now = workload.cluster.now()
    lead = lead_of(workload) if any(rule.ready_by for rule in rules) else timedelta()
    workload.rules.all().delete()
    rows = [
        ScalingRule(
            workload=workload,
            next_at=schedules.next_change(rule.as_rule(), now, lead),
            **(dataclasses.asdict(rule) | {"excluded": list(rule.excluded)}),
        )
        for rule in rules
    ]
    ScalingRule.objects.bulk_create(rows)
    Workload.objects.filter(pk=workload.pk).update(size_by="", size_at=None, size_rule_at=None)
    workload.refresh_from_db()
    write_event(workload, actor=actor, verb="rules_saved", at=now, facts={"rules": [rule.name for rule in rules]})
    _apply_level(workload, now, lead)
    note(actor, workload, "rules_saved", {"rules": before}, {"rules": [rule.name for rule in rules]})
    return rows


def _require_distinct(rules: Sequence[RuleSpec]) -> None:
    problems = Problems()
    problems.unless(len(rules) <= RULES_MAX, "rules", "invalid", reason="length", most=RULES_MAX, given=len(rules))
    seen: set[str] = set()
    for index, rule in enumerate(rules):
        problems.unless(rule.name.lower() not in seen, f"rules.{index}.name", "conflict", given=rule.name)
        seen.add(rule.name.lower())
    problems.raise_any()


@transaction.atomic
def add_rule(*, actor: Actor, workload: Workload, spec: RuleSpec) -> ScalingRule:
    """Add one rule behind the others."""
    workload = lock_workload(workload)
    rows = save_rules(actor=actor, workload=workload, rules=[*_specs_of(workload), spec])
    return rows[-1]


@transaction.atomic
def edit_rule(*, actor: Actor, rule: ScalingRule, spec: RuleSpec, revision: int | None = None) -> ScalingRule:
    """Change one rule in its place."""
    workload = lock_workload(rule.workload)
    locked(rule, revision)
    stored = list(workload.rules.order_by("id"))
    place = next(index for index, row in enumerate(stored) if row.pk == rule.pk)
    specs = [spec if index == place else RuleSpec.of(row) for index, row in enumerate(stored)]
    return _one_changed(actor, workload, specs, place)


def _one_changed(actor: Actor, workload: Workload, specs: list[RuleSpec], place: int) -> ScalingRule:
    """Problems of the changed rule are named by its fields, as its form has them."""
    try:
        return save_rules(actor=actor, workload=workload, rules=specs)[place]
    except Refused as refused:
        prefix = f"rules.{place}."
        raise Refused(Problem(p.field.removeprefix(prefix), p.code, p.facts) for p in refused.problems) from refused


@transaction.atomic
def remove_rule(*, actor: Actor, rule: ScalingRule) -> None:
    """Remove one rule; the size then follows from those that are left, and stays where none is."""
    workload = lock_workload(rule.workload)
    kept = [RuleSpec.of(row) for row in workload.rules.order_by("id") if row.pk != rule.pk]
    save_rules(actor=actor, workload=workload, rules=kept)


def _specs_of(workload: Workload) -> list[RuleSpec]:
    return [RuleSpec.of(row) for row in workload.rules.order_by("id")]


# --- the clock ----------------------------------------------------------------------------------------------------


def apply_due_rules(now_by_cluster: Mapping[int, datetime] | None = None) -> int:
    """Apply the sizes of all services that have a rule due; how many services changed.

    ``now_by_cluster``: the clusters to look at and their time; None: all at their own time.
    """
    times = now_by_cluster if now_by_cluster is not None else {c.pk: c.now() for c in Cluster.objects.all()}
    changed = 0
    for cluster_id, now in sorted(times.items()):
        due = Workload.objects.filter(
            cluster_id=cluster_id, rules__enabled=True, rules__next_at__lte=now, deleted_at__isnull=True
        ).exclude(state__in=FINAL)
        for pk in due.order_by("pk").values_list("pk", flat=True).distinct():
            changed += _apply_to(pk, now)
    return changed


@transaction.atomic
def _apply_to(pk: int, now: datetime) -> int:
    workload = Workload.objects.select_for_update(no_key=True, of=("self",)).select_related("cluster").get(pk=pk)
    rows = list(workload.rules.filter(enabled=True, next_at__lte=now))
    if not rows:
        return 0  # another worker was faster
    lead = lead_of(workload) if any(rule.ready_by for rule in workload.rules.all()) else timedelta()
    for row in rows:
        row.next_at = schedules.next_change(RuleSpec.of(row).as_rule(), now, lead)
        row.save(update_fields=["next_at"])
    before = workload.replicas
    if not _apply_level(workload, now, lead):
        return 0
    note(CLOCK, workload, "scaled", {"replicas": before}, {"replicas": workload.replicas, "by": workload.size_by})
    return 1


def _apply_level(workload: Workload, now: datetime, lead: timedelta) -> bool:
    """Set the size that the rules want now; whether that changed it. The workload is locked by the caller."""
    manual_at = workload.size_at if workload.size_by and not workload.size_by.startswith(RULE_MARK) else None
    rules = [spec.as_rule() for spec in _specs_of(workload)]
    wanted = schedules.wanted(rules, now, manual_at, lead)
    if wanted is None or workload.state in (State.STOPPING, *FINAL):
        return False
    before, size = workload.replicas, wanted.size(workload.replicas)
    if before == size and workload.size_rule_at == wanted.firing.at:
        return False
    facts = {"rule": wanted.firing.rule.name, "fired": wanted.firing.at.isoformat(), "ahead": wanted.ahead}
    by = f"{RULE_MARK}{wanted.firing.rule.name}"[:80]
    _set_size(CLOCK, workload, size, by=by, at=now, facts=facts)
    Workload.objects.filter(pk=workload.pk).update(size_rule_at=wanted.firing.at)
    workload.refresh_from_db()
    return before != size


def lead_of(workload: Workload) -> timedelta:
    """How long before its time a rule begins whose size is to be running by then: measured start, and grace."""
    recent = Allocation.objects.filter(workload=workload, running_at__isnull=False).order_by("-id")[:MEASURED]
    took = Allocation.objects.filter(pk__in=recent.values("pk")).aggregate(mean=Avg(F("running_at") - F("ordered_at")))[
        "mean"
    ]
    settings = workload.cluster.settings
    start = took if took is not None else timedelta(seconds=settings.get("start_up_s", 0))
    return start + timedelta(seconds=settings.get("eviction_grace_s", DEFAULT_GRACE_S))
