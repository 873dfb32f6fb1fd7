"""A workspace with a quota of its own in one step, from one of three models."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from django.db import models, transaction

from quotas.actors import Actor
from quotas.errors import Problems
from quotas.models import Cluster, NodePool, Quota, Role, User, Workspace
from quotas.permissions import require
from quotas.services.people import add_member, create_workspace
from quotas.services.trees import create_quota
from quotas.specs import AmountSpec, QuotaSpec, WorkspaceSpec


class Model(models.TextChoices):
    """What the workspace is for. A person works alone; a team and an initiative have members."""

    PERSON = "person", "a person"
    TEAM = "team", "a team"
    INITIATIVE = "initiative", "an initiative"


@dataclass(frozen=True, slots=True)
class OnboardingSpec:
    """Workspace and quota have the same name; ``members`` are people with the role each of them gets."""

    model: str
    name: str
    cluster: Cluster
    owner: User
    parent: Quota | None = None
    amounts: Mapping[NodePool, AmountSpec] = field(default_factory=dict)
    members: Mapping[User, str] = field(default_factory=dict)
    description: str = ""


@transaction.atomic
def set_up_workspace(*, actor: Actor, spec: OnboardingSpec) -> Workspace:
    """Make the quota, the workspace bound to it, and its members; all of it or nothing."""
    require(actor, "workspace.create")
    _require_model(spec)
    quota = create_quota(
        actor=actor,
        cluster=spec.cluster,
        spec=QuotaSpec(
            spec.name,
            parent=spec.parent,
            amounts=spec.amounts,
            description=spec.description,
            labels={"model": spec.model},
        ),
    )
    workspace = create_workspace(
        actor=actor, spec=WorkspaceSpec(spec.name, spec.description, quotas=(quota,), owner=spec.owner)
    )
    for user, role in spec.members.items():
        add_member(actor=actor, workspace=workspace, user=user, roles=[role])
    return workspace


def _require_model(spec: OnboardingSpec) -> None:
    problems = Problems()
    problems.unless(spec.model in Model.values, "model", "invalid", reason="choice", choices=Model.values)
    alone = spec.model == Model.PERSON
    problems.unless(not (alone and spec.members), "members", "invalid", reason="choice", wanted="none for a person")
    problems.unless(
        spec.owner not in spec.members, "members", "invalid", reason="choice", wanted="people other than the owner"
    )
    problems.unless(
        all(role in Role.values for role in spec.members.values()),
        "members",
        "invalid",
        reason="choice",
        choices=[role for role in Role.values if role != Role.OWNER],
    )
    problems.raise_any()
