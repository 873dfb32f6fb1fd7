"""The quota tree: create, edit, move, amounts, history."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

from django.db import transaction

from quotas.actors import Actor
from quotas.audit import changes as differences
from quotas.audit import record
from quotas.errors import Problem, Problems, Refused, refuse
from quotas.models import Cluster, NodePool, Quota, QuotaAmount, QuotaVersion
from quotas.permissions import require
from quotas.promises import Tree, find_problems, shape_problems
from quotas.services._common import as_user, locked, save_changes, taken_is_conflict
from quotas.specs import SETTING_NAMES, AmountSpec, QuotaSpec, quota_settings
from scheduler.triggers import request_cycle, signal

Changes = Mapping[Quota, Mapping[NodePool, AmountSpec]]
SHOWN_FIELDS = ("name", "description", "labels", "parent_id", *SETTING_NAMES)
NEW = 0  # the id under which a quota that is not there yet stands in a tree


def lock_promises(cluster: Cluster) -> Tree:
    """Take the cluster's pools, so that no other change of amounts or shape passes meanwhile; the tree as it is."""
    list(NodePool.objects.select_for_update(no_key=True).filter(cluster=cluster).order_by("id").values_list("id"))
    return Tree.load(cluster)


def state_of(quota: Quota) -> dict[str, Any]:
    """All that a version keeps: settings by field name, amounts by pool id."""
    amounts = {str(row.pool_id): dataclasses.asdict(AmountSpec.of(row)) for row in quota.amounts.order_by("pool_id")}
    return {**{name: getattr(quota, name) for name in SHOWN_FIELDS}, "amounts": amounts}


@transaction.atomic
def create_quota(*, actor: Actor, cluster: Cluster, spec: QuotaSpec) -> Quota:
    """Create a quota under its parent (or as a root) with its amounts, if what it is promised is still free."""
    require(actor, "quota.create", spec.parent or cluster)
    before = lock_promises(cluster)
    _require_in(before, spec.parent)
    placed = before.with_quota(NEW, spec.name, spec.parent.pk if spec.parent else None)
    amounts = {pool.pk: amount for pool, amount in spec.amounts.items()}
    after = placed.with_amounts({NEW: amounts})
    _raise(shape_problems(after, NEW) + _unknown_pools(before, spec.amounts) or find_problems(before, after, [NEW]))
    with taken_is_conflict("name", spec.name):
        quota = Quota.objects.create(
            cluster=cluster,
            parent=spec.parent,
            name=spec.name,
            description=spec.description,
            labels=dict(spec.labels),
            created_by=as_user(actor),
            **spec.settings,
        )
    _write_amounts(quota, spec.amounts)
    _note(actor, quota, "created", {})
    return quota


@transaction.atomic
def edit_quota_settings(
    *, actor: Actor, quota: Quota, changes: Mapping[str, Any], revision: int | None = None
) -> Quota:
    """Change name, description, labels, switches and policies; what is not named stays. Not amounts."""
    require(actor, "quota.edit", quota)
    quota = locked(quota, revision)
    before = state_of(quota)
    values = quota_settings(changes)
    _require_ranges(quota, values)
    for name, value in values.items():
        setattr(quota, name, value)
    with taken_is_conflict("name", quota.name):
        save_changes(quota, list(values))
    _note(actor, quota, "edited", before)
    return quota


def _require_ranges(quota: Quota, values: Mapping[str, Any]) -> None:
    problems = Problems()
    for pair in ("by", "of"):
        low, high = f"priority_{pair}_low", f"priority_{pair}_high"
        lowest, highest = values.get(low, getattr(quota, low)), values.get(high, getattr(quota, high))
        problems.unless(lowest <= highest, low, "invalid", reason="range", low=1, high=highest, given=lowest)
    problems.raise_any()


@transaction.atomic
def move_quota(*, actor: Actor, quota: Quota, parent: Quota | None, revision: int | None = None) -> Quota:
    """Put a quota with all below it under another parent (None: make it a root)."""
    require(actor, "quota.move", quota)
    tree = lock_promises(quota.cluster)
    quota = locked(quota, revision)
    _require_in(tree, parent)
    moved = tree.with_quota(quota.pk, quota.name, parent.pk if parent else None)
    _raise(shape_problems(moved, quota.pk) or find_problems(tree, moved, [quota.pk]))
    before = state_of(quota)
    quota.parent = parent
    save_changes(quota, ["parent"])
    _note(actor, quota, "moved", before)
    return quota


@transaction.atomic
def set_amounts(
    *, actor: Actor, changes: Changes, verb: str, revisions: Mapping[int, int] | None = None
) -> list[Quota]:
    """Set absolute amounts of quotas of one cluster, checked as a whole. Pools that are not named stay.

    The caller has checked the permission. ``revisions``: by id of the quota, what the caller has read.
    """
    changed = _change_amounts(changes, revisions or {})
    for quota, before in changed:
        _note(actor, quota, verb, before)
    return [quota for quota, _ in changed]


def _change_amounts(changes: Changes, revisions: Mapping[int, int]) -> list[tuple[Quota, dict[str, Any]]]:
    """Check and write; the quotas in id order, each with its state before."""
    clusters = {quota.cluster_id for quota in changes}
    if len(clusters) != 1:
        raise refuse("changes", "invalid", reason="required" if not clusters else "choice", wanted="one cluster")
    cluster = next(iter(changes)).cluster
    before = lock_promises(cluster)
    quotas = [locked(quota, revisions.get(quota.pk)) for quota in sorted(changes, key=lambda quota: quota.pk)]
    wanted = {quota.pk: amounts for quota, amounts in changes.items()}
    after = before.with_amounts({pk: {pool.pk: a for pool, a in new.items()} for pk, new in wanted.items()})
    unknown = [problem for new in wanted.values() for problem in _unknown_pools(before, new)]
    _raise(unknown or find_problems(before, after, list(wanted)))
    changed = []
    for quota in quotas:
        changed.append((quota, state_of(quota)))
        _write_amounts(quota, wanted[quota.pk])
        save_changes(quota, [])
    return changed


def _require_in(tree: Tree, parent: Quota | None) -> None:
    """A parent of another cluster, or one that has been deleted meanwhile, is not there."""
    if parent is not None and parent.pk not in tree.parents:
        raise refuse("parent", "not_found", given=parent.name)


def _unknown_pools(tree: Tree, amounts: Mapping[NodePool, AmountSpec]) -> list[Problem]:
    return [
        Problem(f"amounts.{pool.name}", "not_found", {"given": pool.name})
        for pool in amounts
        if pool.pk not in tree.pools
    ]


def _raise(problems: list[Problem]) -> None:
    if problems:
        raise Refused(problems)


def _write_amounts(quota: Quota, amounts: Mapping[NodePool, AmountSpec]) -> None:
    for pool, spec in sorted(amounts.items(), key=lambda item: item[0].pk):
        QuotaAmount.objects.update_or_create(quota=quota, pool=pool, defaults=dataclasses.asdict(spec))


def _note(actor: Actor, quota: Quota, verb: str, before: dict[str, Any], **facts: object) -> None:
    """History, audit, a cycle and the signals of a change."""
    after = state_of(quota)
    QuotaVersion.objects.create(
        quota=quota, revision=quota.revision, verb=verb, by=as_user(actor), before=before, after=after
    )
    had, has = differences(before, after)
    record(actor=actor, verb=f"quota.{verb}", thing=quota, before=had, after=has, facts=facts)
    request_cycle(quota.cluster_id, f"quota {verb}")
    signal(f"quota.{quota.pk}", "quotas", "overview")


@transaction.atomic
def restore_version(*, actor: Actor, quota: Quota, version: QuotaVersion, revision: int | None = None) -> Quota:
    """Bring settings and amounts of a version back, as a new change; place and name stay as they are."""
    require(actor, "quota.edit", quota)
    require(actor, "quota.scale", quota)
    if version.quota_id != quota.pk:
        raise refuse("version", "not_found")
    pools = {str(pool.pk): pool for pool in quota.cluster.pools.all()}
    kept = {pools[pk]: AmountSpec(**amount) for pk, amount in version.after["amounts"].items() if pk in pools}
    gone = {row.pool: AmountSpec() for row in quota.amounts.select_related("pool") if row.pool not in kept}
    read = {} if revision is None else {quota.pk: revision}
    ((quota, before),) = _change_amounts({quota: {**gone, **kept}}, read)
    for name in SETTING_NAMES:
        setattr(quota, name, version.after.get(name, getattr(quota, name)))
    save_changes(quota, list(SETTING_NAMES))
    _note(actor, quota, "restored", before, restored=version.revision)
    return quota
