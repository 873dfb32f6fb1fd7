"""The steps of a scenario, each by the service that people use for it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from functools import singledispatch

from django.db import transaction

from quotas.actors import SYSTEM
from quotas.errors import Denied, DomainError, NotFound, Refused, Stale
from quotas.models import Workspace
from quotas.services import edit_quota_settings, move_quota, remove_node, set_device_health
from scheduler.engines.simulated import SimulatedEngine
from scheduler.previews import preview
from scheduler.scenarios import script
from scheduler.scenarios.driver import Driver
from scheduler.scenarios.stage import Stage, add_nodes, make_quota, make_workspace
from scheduler.services import rebalance, scale_quota
from workloads.models import FINAL, Allocation, Phase, Workload
from workloads.services import (
    change_priority,
    delete_quota,
    delete_workload,
    hold_workload,
    release_workload,
    save_rules,
    scale_workload,
    set_node_state,
    stop_workload,
    submit_workloads,
    unbind_quota,
)
from workloads.specs import RuleSpec, WorkloadSpec

MOST_AT_ONCE = 500
VERBS: dict[str, Callable[..., object]] = {
    "stop": stop_workload,
    "delete": delete_workload,
    "hold": hold_workload,
    "release": release_workload,
}


class Unexpected(Exception):
    """The step did not go as the file says it would."""


@singledispatch
def perform(action: object, stage: Stage, driver: Driver) -> None:
    """Do what the step says, now; raises `Unexpected` when it is refused, or not refused as it should be."""
    raise TypeError(f"no step for {type(action).__name__}")


@contextmanager
def refusal(expected: str | None) -> Iterator[None]:
    """What the block does is refused with the expected code, or not at all."""
    try:
        with transaction.atomic():
            yield
    except DomainError as error:
        codes = codes_of(error)
        if expected is None or (expected != script.ANY and expected not in codes):
            wanted = "to be done" if expected is None else f"to be refused with {expected}"
            raise Unexpected(f"expected {wanted}, was refused with {', '.join(codes)} ({error})") from error
    else:
        if expected is not None:
            raise Unexpected(f"expected to be refused with {expected}, was done")


def codes_of(error: DomainError) -> list[str]:
    if isinstance(error, Refused):
        return error.codes
    return [error.code] if isinstance(error, Denied | NotFound | Stale) else []


@perform.register
def _(action: script.Submit, stage: Stage, driver: Driver) -> None:
    with refusal(action.refused):
        quota = stage.quota(action.quota)
        workspace = stage.workspace_of(quota, action.workspace)
        actor = stage.actor(action.user, workspace)
        names = action.names
        for first in range(0, len(names), MOST_AT_ONCE):
            specs = [
                WorkloadSpec.from_mapping(
                    {**action.spec, "name": name, "workspace": workspace, "quota": quota}, actor=actor
                )
                for name in names[first : first + MOST_AT_ONCE]
            ]
            submit_workloads(actor=actor, specs=specs)


@perform.register
def _(action: script.OnWorkloads, stage: Stage, driver: Driver) -> None:
    with refusal(None):
        for name in action.names:
            VERBS[action.verb](actor=SYSTEM, workload=stage.workload(name))


@perform.register
def _(action: script.Priority, stage: Stage, driver: Driver) -> None:
    with refusal(None):
        change_priority(actor=SYSTEM, workload=stage.workload(action.workload), priority=action.to)


@perform.register
def _(action: script.Scale, stage: Stage, driver: Driver) -> None:
    with refusal(None):
        scale_workload(actor=SYSTEM, workload=stage.workload(action.workload), replicas=action.replicas)


@perform.register
def _(action: script.Schedule, stage: Stage, driver: Driver) -> None:
    with refusal(None):
        rules = [RuleSpec.from_mapping(rule) for rule in action.rules]
        save_rules(actor=SYSTEM, workload=stage.workload(action.workload), rules=rules)


@perform.register
def _(action: script.EditQuota, stage: Stage, driver: Driver) -> None:
    with refusal(action.refused):
        fields = action.fields
        quota = stage.quota(fields.name)
        if fields.has_parent:
            parent = stage.quota(fields.parent) if fields.parent is not None else None
            quota = move_quota(actor=SYSTEM, quota=quota, parent=parent)
        if fields.settings:
            quota = edit_quota_settings(actor=SYSTEM, quota=quota, changes=fields.settings)
        amounts = stage.amounts(fields, quota)
        if amounts:
            excess = action.excess
            scale_quota(actor=SYSTEM, quota=quota, amounts=amounts, on_excess=excess.on_excess, after=excess.after)


@perform.register
def _(action: script.Rebalance, stage: Stage, driver: Driver) -> None:
    with refusal(action.refused):
        changes = {}
        for name, fields in action.changes.items():
            quota = stage.quota(name)
            changes[quota] = stage.amounts(fields, quota)
        excess = action.excess
        rebalance(actor=SYSTEM, changes=changes, on_excess=excess.on_excess, after=excess.after)


@perform.register
def _(action: script.CreateQuota, stage: Stage, driver: Driver) -> None:
    with refusal(action.refused):
        quota = make_quota(stage, action.fields)
        if stage.own_workspaces:
            stage.own_workspaces.add(make_workspace(stage, quota.name, [quota.name]).pk)


@perform.register
def _(action: script.DeleteQuota, stage: Stage, driver: Driver) -> None:
    """The workspace that the runner made for the quota does not stand in the way."""
    with refusal(action.refused):
        quota = stage.quota(action.name)
        for workspace in Workspace.objects.filter(pk__in=stage.own_workspaces, bindings__quota=quota).order_by("id"):
            if not Workload.objects.filter(workspace=workspace, quota=quota).exclude(state__in=FINAL).exists():
                unbind_quota(actor=SYSTEM, workspace=workspace, quota=quota)
        delete_quota(actor=SYSTEM, quota=quota)


@perform.register
def _(action: script.ChangeNode, stage: Stage, driver: Driver) -> None:
    with refusal(None):
        node = stage.node(action.name)
        if action.state is not None:
            set_node_state(actor=SYSTEM, node=node, state=action.state)
        if action.gpu is not None:
            set_device_health(actor=SYSTEM, node=node, index=action.gpu, healthy=action.healthy)


@perform.register
def _(action: script.AddNodes, stage: Stage, driver: Driver) -> None:
    with refusal(None):
        add_nodes(stage, action.nodes)


@perform.register
def _(action: script.RemoveNode, stage: Stage, driver: Driver) -> None:
    with refusal(None):
        remove_node(actor=SYSTEM, node=stage.node(action.name))


@perform.register
def _(action: script.Fail, stage: Stage, driver: Driver) -> None:
    """The engine reports it as it reports everything: when somebody looks."""
    workload = stage.workload(action.workload)
    live = Allocation.objects.filter(workload=workload, phase__in=(Phase.STARTING, Phase.RUNNING), index=action.worker)
    worker = live.order_by("-group").values_list("id", flat=True).first()
    if worker is None:
        raise Unexpected(f"{action.workload} has no worker {action.worker} that runs")
    SimulatedEngine(stage.cluster).fail(str(worker))
    driver.take_note()


@perform.register
def _(action: script.Restart, stage: Stage, driver: Driver) -> None:
    driver.restart()


@perform.register
def _(action: script.Cycles, stage: Stage, driver: Driver) -> None:
    for _number in range(action.count):
        driver.cycle()


@perform.register
def _(action: script.Preview, stage: Stage, driver: Driver) -> None:
    after = action.change.excess.after or timedelta()
    found = preview(cluster=stage.cluster, change=lambda: perform(action.change, stage, driver), ahead=after)
    for what, wanted, touched in (
        ("preempted", action.preempted, found.preempted),
        ("starts", action.starts, found.starts),
    ):
        names = sorted(one.name for one in touched)
        if wanted is not None and names != sorted(wanted):
            raise Unexpected(f"expected the preview to have {what} {sorted(wanted)}, found {names}")
