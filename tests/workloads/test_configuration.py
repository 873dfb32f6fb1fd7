"""Resource Usage entries: the strictest wins, refusals name the entry, caps let work wait."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from quotas.errors import Refused, Stale
from quotas.models import CustomRole, Member, User
from quotas.words import sentence
from scheduler.snapshots import load
from tests.makers import Installation, denied, not_found, refused, submitted
from workloads.models import UsageEntry
from workloads.services import (
    change_priority,
    create_template,
    limits_of,
    read_entries,
    save_configuration,
    stop_overdue,
)
from workloads.services.configuring import TemplateSpec
from workloads.specs import Request, WorkloadSpec


def saved(here: Installation, *entries: dict[str, Any], revision: int | None = None) -> None:
    given = [{"quota": "quota-1.1", **entry} for entry in entries]
    specs = read_entries(given, workspace=here.workspace)
    save_configuration(actor=here["administrator"], workspace=here.workspace, entries=specs, revision=revision)


def test_without_entries_everybody_may_use_the_quota(here: Installation) -> None:
    limits = limits_of(actor=here["developer"], workspace=here.workspace, quota=here.quota, user=here["developer"])
    assert all(limit.value == 1 for limit in limits.kinds.values())
    assert (limits.cap_gpu_milli.value, limits.max_priority.value) == (None, 9)


def test_entries_are_saved_as_one_and_counted(here: Installation) -> None:
    saved(here, {"name": "one", "role": "developer"}, {"name": "two", "user": "viewer"}, revision=0)
    assert here.workspace.configuration.revision == 1
    saved(here, {"name": "three", "role": "viewer"}, revision=1)
    assert list(UsageEntry.objects.values_list("name", flat=True)) == ["three"]
    with pytest.raises(Stale):
        saved(here, revision=1)
    assert list(UsageEntry.objects.values_list("name", flat=True)) == ["three"]


@pytest.mark.parametrize(
    ("entry", "field"),
    [
        ({"name": "x"}, "entries.0.role"),
        ({"name": "x", "role": "developer", "user": "viewer"}, "entries.0.role"),
        ({"name": "x", "user": "rival"}, "entries.0.user"),
        ({"name": "x", "role": "developer", "quota": "quota-1.2"}, "entries.0.quota"),
        ({"name": "x", "role": "developer", "priority_low": 5, "priority_high": 4}, "entries.0.priority_low"),
        ({"name": "x", "role": "developer", "cap_gpu_milli": -1}, "entries.0.cap_gpu_milli"),
        ({"name": "x", "role": "developer", "kinds": ["games"]}, "entries.0.kinds"),
    ],
)
def test_wrong_entries_name_the_field(here: Installation, entry: dict[str, Any], field: str) -> None:
    with pytest.raises(Refused) as caught:
        saved(here, entry)
    assert caught.value.problems[0].field == field
    assert not UsageEntry.objects.exists()


def test_configuring_takes_the_right(here: Installation) -> None:
    for name in ("operator", "developer", "viewer"):
        with denied("configuration.manage"):
            save_configuration(actor=here[name], workspace=here.workspace, entries=[])
    with not_found():
        save_configuration(actor=here["rival"], workspace=here.workspace, entries=[])


def test_a_kind_that_is_not_allowed_is_refused_by_the_entrys_name(here: Installation) -> None:
    saved(here, {"name": "notebooks only", "role": "developer", "kinds": ["notebook"]})
    with refused("configuration.kind", field="kind"):
        submitted(here["developer"], here)
    with pytest.raises(Refused) as caught:
        submitted(here["developer"], here)
    (problem,) = caught.value.problems
    assert problem.facts["entry"] == "notebooks only"
    assert "notebooks only" in sentence(problem.code, problem.facts)
    assert submitted(here["developer"], here, name="ok", kind="notebook").pk
    assert submitted(here["operator"], here).pk


def test_priority_is_limited_at_submission_and_later(here: Installation) -> None:
    saved(here, {"name": "modest", "role": "developer", "max_priority": 5})
    with refused("configuration.priority", field="priority"):
        submitted(here["developer"], here, priority=6)
    job = submitted(here["developer"], here, priority=5)
    with refused("configuration.priority", field="priority"):
        change_priority(actor=here["developer"], workload=job, priority=6)
    change_priority(actor=here["operator"], workload=job, priority=9)


def test_the_strictest_of_several_wins_with_its_name(here: Installation) -> None:
    saved(
        here,
        {"name": "role", "role": "developer", "cap_gpu_milli": 16_000, "max_runtime_s": 3600},
        {"name": "person", "user": "developer", "cap_gpu_milli": 8_000, "max_runtime_s": 7200},
    )
    limits = limits_of(actor=here["viewer"], workspace=here.workspace, quota=here.quota, user=here["developer"])
    assert (limits.cap_gpu_milli.value, limits.cap_gpu_milli.entry) == (8_000, "person")
    assert (limits.max_runtime_s.value, limits.max_runtime_s.entry) == (3600, "role")
    with refused("configuration.cap", field="gpus"):
        submitted(here["developer"], here, gpus=8, replicas=2)
    job = submitted(here["developer"], here)
    assert job.max_runtime_s == 3600
    with refused("configuration.time", field="max_runtime_s"):
        submitted(here["developer"], here, name="long", max_runtime_s=3601)


def test_a_change_of_priority_leads_past_no_entry(here: Installation) -> None:
    saved(
        here, {"name": "urgent", "role": "developer", "priority_low": 7, "cap_gpu_milli": 1_000, "kinds": ["service"]}
    )
    job = submitted(here["developer"], here, gpus=2, priority=6)
    with refused("configuration.kind", "configuration.cap", field="priority"):
        change_priority(actor=here["developer"], workload=job, priority=7)
    assert change_priority(actor=here["developer"], workload=job, priority=2).priority == 2


def test_caps_concern_their_priority_range(here: Installation) -> None:
    saved(here, {"name": "urgent", "role": "developer", "priority_low": 7, "cap_gpu_milli": 1_000})
    assert submitted(here["developer"], here, gpus=2, priority=6).pk
    with refused("configuration.cap"):
        submitted(here["developer"], here, name="urgent", gpus=2, priority=7)


def test_caps_of_persons_reach_the_core(here: Installation) -> None:
    saved(here, {"name": "each", "role": "developer", "cap_gpu_milli": 8_000})
    colleague = User.objects.create(username="colleague")
    Member.objects.create(workspace=here.workspace, user=colleague, roles=["developer"])
    jobs = [submitted(here[who], here, name=who) for who in ("developer", "operator")]
    jobs += [submitted(here["developer"], here, name="second"), submitted(colleague, here, name="third")]
    snapshot = load(here.cluster, here.cluster.now()).snapshot
    caps = {workload.id: workload.caps for workload in snapshot.workloads}
    mine, operators, second, other = (caps[job.pk] for job in jobs)
    assert mine == second
    assert operators == ()
    assert len(mine) == len(other) == 1
    assert mine != other
    assert {cap.id: cap.bound.gpu_milli for cap in snapshot.caps} == {mine[0]: 8_000, other[0]: 8_000}
    assert dict(snapshot.caps[0].facts) == {"entry": "each"}


def test_custom_roles_are_subjects(here: Installation) -> None:
    role = CustomRole.objects.create(workspace=here.workspace, name="interns", levels={"training": "own"})
    intern = User.objects.create(username="intern")
    Member.objects.create(workspace=here.workspace, user=intern, custom_roles=[role.pk])
    saved(here, {"name": "small", "custom_role": "interns", "cap_gpu_milli": 500})
    fields = {"name": "x", "kind": "training", "gpus": 1, "workspace": here.workspace, "quota": here.quota}
    with refused("configuration.cap"):
        submitted(intern, here, **fields)


def test_a_template_may_be_required(here: Installation) -> None:
    create_template(
        actor=here["administrator"],
        workspace=here.workspace,
        spec=TemplateSpec("worker", Request(gpus=8, cpu_milli=64_000), idle="allow"),
    )
    saved(here, {"name": "sizes", "role": "developer", "template_required": True})
    with refused("configuration.template_required", field="template"):
        submitted(here["developer"], here)
    given = {"name": "job", "kind": "training", "workspace": "workspace_b", "template": "worker"}
    spec = WorkloadSpec.from_mapping(given, actor=here["developer"])
    assert (spec.request.gpus, spec.request.cpu_milli, spec.idle, spec.template) == (8, 64_000, "allow", "worker")
    with pytest.raises(Refused) as caught:
        WorkloadSpec.from_mapping({**given, "gpus": 1}, actor=here["developer"])
    assert caught.value.problems[0].field == "gpus"
    with pytest.raises(Refused):
        WorkloadSpec.from_mapping({**given, "template": "giant"}, actor=here["developer"])


def test_what_has_waited_as_long_as_it_may_is_stopped(here: Installation) -> None:
    saved(here, {"name": "patience", "role": "developer", "max_wait_s": 600})
    job = submitted(here["developer"], here)
    assert stop_overdue({here.cluster.pk: job.submitted_at + timedelta(seconds=599)}) == 0
    assert stop_overdue({here.cluster.pk: job.submitted_at + timedelta(seconds=600)}) == 1
    job.refresh_from_db()
    assert job.state == "stopped"


def test_limits_of_others_are_for_members(here: Installation) -> None:
    with not_found():
        limits_of(actor=here["rival"], workspace=here.workspace, quota=here.quota, user=here["developer"])
    with refused("not_found", field="user"):
        limits_of(actor=here["administrator"], workspace=here.workspace, quota=here.quota, user=here["stranger"])
