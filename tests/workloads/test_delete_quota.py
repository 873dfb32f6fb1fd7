"""A quota goes only when nothing leans on it, and what it promised is free at once."""

from __future__ import annotations

from quotas.actors import SYSTEM
from quotas.models import Quota
from scheduler.services import scale_quota
from tests.makers import Installation, a_quota, denied, refused, submitted
from tests.quotas.test_amounts import gpus
from workloads.services import delete_quota, stop_workload, unbind_quota


def test_every_blocker_is_listed(here: Installation) -> None:
    submitted(here["developer"], here)
    with refused("quota.in_use") as _:
        delete_quota(actor=SYSTEM, quota=here.root)
    with refused("quota.in_use"):
        delete_quota(actor=SYSTEM, quota=here.quota)


def test_a_quota_without_children_workspaces_and_work_is_deleted(here: Installation) -> None:
    job = stop_workload(actor=SYSTEM, workload=submitted(here["developer"], here))
    unbind_quota(actor=SYSTEM, workspace=here.workspace, quota=here.quota)
    delete_quota(actor=here["platform"], quota=here.quota)
    assert not Quota.objects.filter(pk=here.quota.pk).exists()
    job.refresh_from_db()
    assert job.quota.name == "quota-1.1"
    scale_quota(actor=SYSTEM, quota=here.other_quota, amounts={here.pool: gpus(128)})
    a_quota(here.cluster, "quota-1.1", gpus=0, parent=here.root)


def test_only_the_platform_deletes_quotas(here: Installation) -> None:
    with denied("quota.delete"):
        delete_quota(actor=here["owner"], quota=here.quota)
