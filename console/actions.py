"""Which buttons a workload has: what its state makes possible and the person may do."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from django.utils.translation import gettext_lazy

from quotas.models import User
from quotas.permissions import allowed, grants_of
from workloads.models import Kind, State, Workload


@dataclass(frozen=True, slots=True)
class Action:
    """A button; ``asks``: it leads to a form first."""

    name: str
    permission: str
    title: Any
    icon: str
    asks: bool = False
    danger: bool = False


STOP = Action("stop", "workload.stop", gettext_lazy("Stop"), "player-stop", danger=True)
HOLD = Action("hold", "workload.hold", gettext_lazy("Hold"), "hand-stop")
RELEASE = Action("release", "workload.release", gettext_lazy("Release"), "player-play")
SCALE = Action("scale", "workload.scale", gettext_lazy("Scale"), "adjustments-horizontal", asks=True)
PRIORITY = Action("priority", "workload.change_priority", gettext_lazy("Priority"), "arrow-up", asks=True)
MOVE = Action("move", "workload.move", gettext_lazy("Move to quota"), "arrows-exchange-2", asks=True)
RESTART = Action("restart", "workload.restart", gettext_lazy("Restart"), "refresh")
CLONE = Action("clone", "workload.submit", gettext_lazy("Clone"), "copy", asks=True)
DELETE = Action("delete", "workload.delete", gettext_lazy("Delete"), "trash", danger=True)
ACTIONS = {action.name: action for action in (STOP, HOLD, RELEASE, SCALE, PRIORITY, MOVE, RESTART, CLONE, DELETE)}


def possible_actions(workload: Workload) -> list[Action]:
    """What the state makes possible, most wanted first."""
    if workload.is_final:
        return [RESTART, CLONE, DELETE]
    found = []
    if workload.state == State.QUEUED:
        found += [RELEASE if workload.held else HOLD]
    if workload.kind == Kind.SERVICE or workload.min_replicas is not None:
        found += [SCALE]
    found += [PRIORITY]
    if workload.state == State.QUEUED:
        found += [MOVE]
    if workload.state in (State.RUNNING, State.RESIZING):
        found += [RESTART]
    if workload.state not in (State.STOPPING,):
        found += [STOP]
    return [*found, CLONE]


def workload_actions(user: User, workload: Workload) -> list[Action]:
    grants = grants_of(user)
    return [
        action for action in possible_actions(workload) if allowed(user, action.permission, workload, grants=grants)
    ]
