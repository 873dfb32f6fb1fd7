"""Pools, nodes, devices, and the audit that nobody changes."""

from __future__ import annotations

import pytest
from django.db import IntegrityError, transaction

from quotas.actors import SYSTEM
from quotas.models import AuditEvent, Node
from quotas.services import (
    add_node,
    create_pool,
    edit_node,
    edit_quota_settings,
    remove_node,
    restore_version,
    set_device_health,
)
from quotas.specs import NodeSpec, PoolSpec
from scheduler.services import scale_quota
from tests.makers import Installation, denied, not_found, placed, refused, submitted
from tests.quotas.test_amounts import gpus


def test_the_first_pool_whose_selector_matches_takes_a_node(here: Installation) -> None:
    create_pool(actor=SYSTEM, cluster=here.cluster, spec=PoolSpec("rest", order=9))
    a100 = create_pool(
        actor=SYSTEM, cluster=here.cluster, spec=PoolSpec("a100", selector={"gpu_model": "A100"}, order=0)
    )
    node = add_node(actor=here["platform"], cluster=here.cluster, spec=NodeSpec("x", gpus=8, gpu_model="A100"))
    assert node.pool in (here.pool, a100)
    first = add_node(actor=here["platform"], cluster=here.cluster, spec=NodeSpec("y", gpus=8, gpu_model="V100"))
    assert first.pool == here.pool


def test_a_label_may_move_a_node_only_when_nothing_runs_on_it(here: Installation) -> None:
    special = create_pool(
        actor=SYSTEM, cluster=here.cluster, spec=PoolSpec("special", selector={"room": "cold"}, order=0)
    )
    type(here.pool).objects.filter(pk=here.pool.pk).update(order=5)
    placed(submitted(here["developer"], here), (here.nodes[0], [0]))
    with refused("node.in_use"):
        edit_node(actor=SYSTEM, node=here.nodes[0], labels={"room": "cold"})
    moved = edit_node(actor=SYSTEM, node=here.nodes[1], labels={"room": "cold"})
    assert moved.pool == special


def test_a_node_goes_only_when_nothing_runs_on_it(here: Installation) -> None:
    job = placed(submitted(here["developer"], here), (here.nodes[0], [0]))
    with refused("node.in_use"):
        remove_node(actor=here["platform"], node=here.nodes[0])
    job.allocations.update(phase="ended", ended_at=job.submitted_at)
    remove_node(actor=here["platform"], node=here.nodes[0])
    assert not Node.objects.filter(name="n0").exists()
    assert job.allocations.get().node.name == "n0"
    add_node(actor=here["platform"], cluster=here.cluster, spec=NodeSpec("n0", gpus=8))


def test_devices_have_health(here: Installation) -> None:
    set_device_health(actor=here["platform"], node=here.nodes[0], index=3, healthy=False)
    here.nodes[0].refresh_from_db()
    assert here.nodes[0].bad_devices == [3]
    with refused("invalid", field="index"):
        set_device_health(actor=here["platform"], node=here.nodes[0], index=8, healthy=False)
    set_device_health(actor=here["platform"], node=here.nodes[0], index=3, healthy=True)
    here.nodes[0].refresh_from_db()
    assert here.nodes[0].bad_devices == []


def test_nodes_are_the_platforms(here: Installation) -> None:
    with not_found():
        set_device_health(actor=here["owner"], node=here.nodes[0], index=0, healthy=False)
    with denied("node.manage"):
        set_device_health(actor=here["auditor"], node=here.nodes[0], index=0, healthy=False)


def test_settings_change_one_by_one_and_say_what_is_wrong(here: Installation) -> None:
    edit_quota_settings(actor=here["platform"], quota=here.root, changes={"child_preemption": True})
    here.root.refresh_from_db()
    assert here.root.child_preemption
    assert here.root.child_claimants == ["service"]
    with refused("invalid", "invalid"):
        edit_quota_settings(
            actor=here["platform"],
            quota=here.root,
            changes={"child_max_victim_priority": 10, "queue_policy": "lottery"},
        )
    with refused("invalid", field="priority_by_low"):
        edit_quota_settings(
            actor=here["platform"], quota=here.root, changes={"priority_by_low": 7, "priority_by_high": 6}
        )


def test_a_version_is_restored_as_a_new_change(here: Installation) -> None:
    first = here.quota.versions.get()
    scale_quota(actor=SYSTEM, quota=here.quota, amounts={here.pool: gpus(10)})
    edit_quota_settings(actor=SYSTEM, quota=here.quota, changes={"queue_policy": "fifo"})
    restored = restore_version(actor=here["platform"], quota=here.quota, version=first)
    assert restored.queue_policy == "intelligent"
    assert restored.amounts.get().guaranteed_gpu_milli == 48_000
    newest = restored.versions.first()
    assert newest is not None
    assert newest.verb == "restored"
    assert newest.after == first.after
    scale_quota(actor=SYSTEM, quota=here.quota, amounts={here.pool: gpus(10)})
    scale_quota(actor=SYSTEM, quota=here.other_quota, amounts={here.pool: gpus(118)})
    with refused("quota.exceeds_parent"):
        restore_version(actor=here["platform"], quota=here.quota, version=first)


def test_the_audit_is_never_changed(here: Installation) -> None:
    with pytest.raises(IntegrityError, match="never changed"), transaction.atomic():
        AuditEvent.objects.update(verb="nothing")
    with pytest.raises(IntegrityError, match="never changed"), transaction.atomic():
        AuditEvent.objects.all().delete()
