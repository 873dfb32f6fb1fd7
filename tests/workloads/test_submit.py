"""Submission: defaults by kind, refusals with their numbers, many at once."""

from __future__ import annotations

import threading
import time
from typing import Any

import pytest
from django.db import connection, transaction
from django.test.utils import CaptureQueriesContext

from quotas.actors import SYSTEM
from quotas.errors import Refused
from quotas.models import AuditEvent, Node
from quotas.specs import AmountSpec
from scheduler.services import scale_quota
from tests.makers import Installation, at_once, denied, install, refused, submitted, verbs
from workloads.models import Event, Workload
from workloads.services import (
    clone_workload,
    delete_workload,
    stop_workload,
    submit_workload,
    submit_workloads,
    unbind_quota,
)
from workloads.specs import WorkloadReader, WorkloadSpec


@pytest.mark.parametrize(
    ("kind", "priority", "preemptible", "gang"),
    [("training", 3, True, True), ("notebook", 6, True, True), ("service", 9, False, False)],
)
def test_defaults_follow_the_kind(here: Installation, kind: str, priority: int, preemptible: bool, gang: bool) -> None:
    made = submitted(here["operator"], here, kind=kind)
    assert (made.priority, made.preemptible, made.gang, made.idle) == (priority, preemptible, gang, "never")
    assert (made.state, made.owner, made.quota) == ("queued", here["operator"], here.quota)
    assert verbs(made) == ["submitted"]
    entry = AuditEvent.objects.order_by("-id").first()
    assert entry is not None
    assert (entry.verb, entry.object_id, entry.workspace_id) == ("workload.submitted", made.pk, here.workspace.pk)


def test_a_service_that_wants_nothing_runs_with_nothing(here: Installation) -> None:
    assert submitted(here["operator"], here, kind="service", replicas=0).state == "running"


def test_a_fraction_is_of_one_gpu(here: Installation) -> None:
    made = submitted(here["developer"], here, gpus=0.6)
    assert (made.gpus, made.gpu_milli) == (1, 600)
    made = submitted(here["developer"], here, name="several", gpus=2, gpu_milli=500)
    assert made.gpu_milli_each == 1000


def test_elastic_work_wants_its_most_and_runs_from_its_least(here: Installation) -> None:
    made = submitted(here["developer"], here, min_replicas=2, max_replicas=6)
    assert (made.min_replicas, made.max_replicas, made.replicas) == (2, 6, 6)


@pytest.mark.parametrize(
    ("fields", "field"),
    [
        ({"priority": 0}, "priority"),
        ({"priority": 10}, "priority"),
        ({"priority": "3"}, "priority"),
        ({"gpus": -1}, "gpus"),
        ({"gpus": 1.5}, "gpus"),
        ({"gpus": 1, "gpu_milli": 1001}, "gpu_milli"),
        ({"replicas": 0}, "replicas"),
        ({"replicas": True}, "replicas"),
        ({"kind": "game"}, "kind"),
        ({"kind": "notebook", "replicas": 2}, "replicas"),
        ({"kind": "notebook", "min_replicas": 1}, "min_replicas"),
        ({"min_replicas": 3, "max_replicas": 2}, "min_replicas"),
        ({"name": ""}, "name"),
        ({"name": "x" * 64}, "name"),
        ({"name": "a\x00b"}, "name"),
        ({"idle": "sometimes"}, "idle"),
        ({"workspace": "workspace_c"}, "workspace"),
        ({"quota": "quota-1.2"}, "quota"),
        ({"pools": ["gold"]}, "pools.0"),
        ({"environment": {"A=B": "x"}}, "environment"),
        ({"max_runtime_s": 0}, "max_runtime_s"),
        ({"colour": "red"}, "colour"),
        ({"cpu_milli": 2**60}, "cpu_milli"),
        ({"master": {"gpus": -1}}, "master.gpus"),
        ({"kind": "service", "gang": True}, "gang"),
    ],
)
def test_wrong_input_names_the_field(here: Installation, fields: dict[str, Any], field: str) -> None:
    given = {"name": "job", "kind": "training", "workspace": "workspace_b", "gpus": 1, **fields}
    with pytest.raises(Refused) as caught:
        WorkloadSpec.from_mapping(given, actor=here["operator"])
    assert field in [problem.field for problem in caught.value.problems]


def test_all_problems_are_told_at_once(here: Installation) -> None:
    with pytest.raises(Refused) as caught:
        WorkloadSpec.from_mapping({"kind": "training", "gpus": -1, "priority": 99}, actor=here["developer"])
    assert {problem.field for problem in caught.value.problems} == {"name", "gpus", "priority"}


def test_what_is_larger_than_any_node_is_refused_with_the_numbers(here: Installation) -> None:
    with pytest.raises(Refused) as caught:
        submitted(here["developer"], here, gpus=9)
    (problem,) = caught.value.problems
    assert (problem.field, problem.code) == ("gpus", "workload.never_fits")
    assert (problem.facts["asked"], problem.facts["largest"]) == (9_000, 8_000)
    with refused("workload.never_fits", field="cpu_milli"):
        submitted(here["developer"], here, cpu_milli=192_001)
    with refused("workload.never_fits", field="gpus"):
        submitted(here["developer"], here, gpus=8, replicas=17)


def test_what_is_larger_than_a_limit_is_refused_unless_it_may_wait(here: Installation) -> None:
    scale_quota(
        actor=SYSTEM,
        quota=here.root,
        amounts={here.pool: AmountSpec(guaranteed_gpu_milli=128_000, limit_gpu_milli=128_000)},
    )
    scale_quota(
        actor=SYSTEM,
        quota=here.quota,
        amounts={here.pool: AmountSpec(guaranteed_gpu_milli=48_000, limit_gpu_milli=64_000)},
    )
    with refused("workload.exceeds_limit", field="gpus"):
        submitted(here["developer"], here, gpus=8, replicas=9)
    assert submitted(here["developer"], here, gpus=8, replicas=8).state == "queued"
    assert submitted(here["developer"], here, name="big", gpus=8, replicas=9, allow_unsatisfiable=True).pk


def test_only_nodes_that_the_selector_takes_count(here: Installation) -> None:
    Node.objects.filter(pk__in=[node.pk for node in here.nodes[:2]]).update(labels={"rack": "r1"})
    assert submitted(here["developer"], here, gpus=8, replicas=2, node_selector={"rack": "r1"}).pk
    with refused("workload.never_fits", field="node_selector"):
        submitted(here["developer"], here, name="nowhere", node_selector={"rack": "r9"})


def test_more_than_the_promise_is_not_refused(here: Installation) -> None:
    assert submitted(here["developer"], here, gpus=8, replicas=16).state == "queued"


def test_a_service_is_judged_by_one_replica_and_elastic_work_by_its_least(here: Installation) -> None:
    assert submitted(here["operator"], here, kind="service", gpus=8, replicas=100).state == "queued"
    assert submitted(here["operator"], here, name="elastic", gpus=8, min_replicas=16, max_replicas=100).pk


def test_names_are_unique_among_live_work(here: Installation) -> None:
    job = submitted(here["developer"], here)
    with refused("conflict", field="name"):
        submitted(here["developer"], here)
    stop_workload(actor=here["developer"], workload=job)
    again = submitted(here["developer"], here)
    delete_workload(actor=here["developer"], workload=again)
    assert submitted(here["developer"], here).pk


def test_submitting_takes_the_right_for_the_kind(here: Installation) -> None:
    with denied("workload.submit_training"):
        submitted(here["viewer"], here)
    with denied("workload.submit_service"):
        submitted(here["developer"], here, kind="service")
    spec = WorkloadSpec.from_mapping({"name": "job", "kind": "training", "gpus": 1}, actor=here["developer"])
    with denied("workload.submit"):
        submit_workload(actor=here["developer"], spec=WorkloadSpec(**{**_fields(spec), "owner": here["owner"]}))


def _fields(spec: WorkloadSpec) -> dict[str, Any]:
    return {name: getattr(spec, name) for name in spec.__dataclass_fields__}


def test_a_quota_must_be_bound(here: Installation) -> None:
    spec = WorkloadSpec("job", "training", here.workspace, here.other_quota)
    with refused("workspace.not_bound", field="quota"):
        submit_workload(actor=SYSTEM, spec=spec)


def test_many_are_taken_or_none(here: Installation) -> None:
    reader = WorkloadReader(here["developer"])
    specs = [reader.read({"name": f"job-{i}", "kind": "training", "gpus": 1}) for i in range(3)]
    with refused("conflict", field="workloads.3.name"):
        submit_workloads(actor=here["developer"], specs=[*specs, specs[0]])
    assert not Workload.objects.exists()


def test_five_hundred_cost_as_many_queries_as_one(here: Installation) -> None:
    def submit(count: int, prefix: str) -> int:
        with CaptureQueriesContext(connection) as queries:
            reader = WorkloadReader(here["developer"])
            given = ({"name": f"{prefix}{i}", "kind": "training", "gpus": 1} for i in range(count))
            submit_workloads(actor=here["developer"], specs=[reader.read(fields) for fields in given])
        return len(queries)

    one = submit(1, "one")
    began = time.perf_counter()
    assert submit(500, "many") == one
    assert time.perf_counter() - began < 2
    assert Workload.objects.count() == Event.objects.filter(verb="submitted").count() == 501


@pytest.mark.parametrize("name", ["", "A=B", "A\nB", "A\x1b[2J"])
def test_a_name_in_the_environment_is_one_that_can_be_told_apart(here: Installation, name: str) -> None:
    with refused("invalid", field="environment"):
        submitted(here["developer"], here, environment={name: "1"})


def test_a_submission_names_no_endless_list_of_pools(here: Installation) -> None:
    with refused("invalid", field="pools"):
        submitted(here["developer"], here, pools=["h100"] * 33)


@pytest.mark.parametrize(("cloner", "seen"), [("developer", {}), ("operator", {"KEY": "secret"})])
def test_a_clone_has_the_environment_only_for_those_who_may_read_it(
    here: Installation, cloner: str, seen: dict[str, str]
) -> None:
    job = submitted(here["owner"], here, environment={"KEY": "secret"})
    assert clone_workload(actor=here[cloner], workload=job, name="copy").environment == seen


def test_a_clone_asks_for_the_same_in_the_cloners_name(here: Installation) -> None:
    job = submitted(here["developer"], here, gpus=4, replicas=2, idle="allow", command=["train"], labels={"a": "b"})
    clone = clone_workload(actor=here["operator"], workload=job, name="copy")
    same = ("kind", "gpus", "replicas", "idle", "command", "labels", "priority", "quota_id")
    assert [getattr(clone, name) for name in same] == [getattr(job, name) for name in same]
    assert (clone.name, clone.owner) == ("copy", here["operator"])


def test_secrets_in_an_environment_are_in_no_record(here: Installation) -> None:
    submitted(here["developer"], here, environment={"API_KEY": "hush-hush"})
    records = [*AuditEvent.objects.values(), *Event.objects.values()]
    assert "hush-hush" not in str(records)


@pytest.mark.django_db(transaction=True)
def test_a_quota_is_not_unbound_while_work_is_being_submitted_to_it() -> None:
    here = install()
    meet = threading.Barrier(2)

    def submit() -> None:
        with transaction.atomic():
            submitted(here["developer"], here)
            meet.wait(timeout=10)
            time.sleep(0.2)

    def unbind() -> None:
        meet.wait(timeout=10)
        unbind_quota(actor=SYSTEM, workspace=here.workspace, quota=here.quota)

    results = at_once(submit, unbind)
    assert results[0] is None
    assert isinstance(results[1], Refused)
    assert results[1].codes == ["quota.in_use"]
