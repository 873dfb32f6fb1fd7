"""Workloads through the API: what is submitted and done is there, and nobody reads of other people's work."""

from __future__ import annotations

from typing import Any

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from quotas.models import AuditEvent
from tests.api.world import FOREIGN, World, give_workload
from workloads.api.bodies import WorkloadBody
from workloads.models import Verdict, Workload
from workloads.seeing import of_own_work

TRAINING = {"name": "new", "kind": "training", "quota": "quota-a", "gpus": 2, "idle": "allow", "replicas": 2}


def test_a_submission_takes_the_defaults_of_its_kind(world: World) -> None:
    answer = world.client("developer").post("/workloads", TRAINING)
    assert answer.status_code == 201
    body = answer.json()
    assert (body["state"], body["priority"], body["preemptible"], body["gang"]) == ("queued", 3, True, True)
    assert (body["workspace"]["name"], body["owner"]["username"]) == ("team-a", "developer")
    assert Workload.objects.get(pk=body["id"]).idle == "allow"
    entry = AuditEvent.objects.get(verb="workload.submitted")
    assert (entry.actor_name, entry.door, entry.address) == ("developer", "api", "127.0.0.1")


def test_null_is_as_good_as_leaving_a_field_out(world: World) -> None:
    optional = {name: None for name, field in WorkloadBody().fields.items() if not field.required}
    answer = world.client("developer").post("/workloads", optional | {"name": "new", "kind": "training"})
    assert answer.status_code == 201, answer.content
    assert (answer.json()["priority"], answer.json()["quota"]["name"]) == (3, "quota-a")


@pytest.mark.parametrize(
    ("change", "field", "code"),
    [
        ({"gpus": 9}, "gpus", "workload.never_fits"),
        ({"gpus": -4}, "gpus", "invalid"),
        ({"gpus": 2**63}, "gpus", "invalid"),
        ({"memory_mib": 2**63}, "memory_mib", "invalid"),
        ({"priority": 10}, "priority", "invalid"),
        ({"kind": "party"}, "kind", "invalid"),
        ({"name": "train"}, "name", "conflict"),
        ({"quota": "lighthouse-quota"}, "quota", "invalid"),
        ({"gpu": 1}, "gpu", "invalid"),
    ],
)
def test_a_wrong_submission_names_its_field(world: World, change: dict[str, Any], field: str, code: str) -> None:
    before = Workload.objects.count()
    answer = world.client("developer").post("/workloads", TRAINING | change)
    assert answer.status_code == 422
    assert (field, code) in [(problem["field"], problem["code"]) for problem in answer.json()["problems"]]
    assert Workload.objects.count() == before


def test_a_bulk_submission_is_taken_whole_or_not_at_all(world: World) -> None:
    client = world.client("developer")
    good = [TRAINING | {"name": f"many-{number}"} for number in range(3)]
    refused = client.post("/workloads/bulk", {"workloads": [*good, TRAINING | {"gpus": 9}]})
    assert refused.status_code == 422
    assert refused.json()["problems"][0]["field"] == "workloads.3.gpus"
    assert not Workload.objects.filter(name__startswith="many").exists()
    taken = client.post("/workloads/bulk", {"workloads": good})
    assert taken.status_code == 201
    assert [item["name"] for item in taken.json()["workloads"]] == ["many-0", "many-1", "many-2"]


def test_what_is_done_to_many_is_judged_one_by_one(world: World) -> None:
    ids = [world.ids["workload"], world.ids["private"], world.ids["foreign_workload"]]
    answer = world.client("developer").post("/workloads/act", {"action": "hold", "workloads": ids}).json()
    assert [result["done"] for result in answer["results"]] == [True, False, False]
    assert [result["problems"][0]["code"] for result in answer["results"][1:]] == ["not_found", "not_found"]
    assert list(Workload.objects.filter(held=True).values_list("pk", flat=True)) == ids[:1]
    client = world.client("operator")
    again = client.post("/workloads/act", {"action": "priority", "workloads": ids[:2], "priority": 7}).json()
    assert all(result["done"] for result in again["results"])
    assert set(Workload.objects.filter(pk__in=ids[:2]).values_list("priority", flat=True)) == {7}


def test_a_missing_right_is_told_for_each_of_many(world: World) -> None:
    body = {"action": "stop", "workloads": [world.ids["workload"]]}
    (result,) = world.client("viewer").post("/workloads/act", body).json()["results"]
    assert result["problems"][0]["code"] == "permission.denied"
    assert result["problems"][0]["facts"] == {"permission": "workload.stop"}


def test_why_tells_the_reason_and_nothing_of_other_teams(world: World) -> None:
    path = f"/workloads/{world.ids['workload']}/why"
    why = world.client("developer").get(path).json()
    assert why["code"] == "reservation.other"
    assert why["facts"] == {"needed": 8000}
    assert why["would_unblock"] == {}
    assert why["message"]
    assert world.client("platform").get(path).json()["facts"]["holder"] == FOREIGN + 6


@pytest.mark.parametrize(
    ("facts", "seen"),
    [
        ({"asked": 8000, "available": 2000, "resource": "gpu_milli"}, None),
        ({"head": 17, "policy": "fifo"}, {"policy": "fifo"}),
        ({"head": "starts"}, None),
        ({"nodes": "larger", "pool": 3}, None),
        ({"best_node": 4, "reaches_gpu_milli": 6000}, {"reaches_gpu_milli": 6000}),
        ({"inner": {"claimant": "chat", "share": 1}}, {}),
        ({"asked": {"gpu_milli": 8}, "names": ["chat"]}, {"asked": {"gpu_milli": 8}}),
    ],
)
def test_facts_keep_numbers_and_lose_names(facts: dict[str, Any], seen: dict[str, Any] | None) -> None:
    assert of_own_work(facts) == (facts if seen is None else seen)


def test_a_limit_above_is_told_without_the_books_of_the_others(world: World) -> None:
    facts = {"quota": world.root.pk, "resource": "gpu_milli", "asked": 1000, "limit": 9, "used": 8, "available": 1}
    Verdict.objects.filter(workload=world.ids["workload"]).update(code="quota.ancestor_limit", facts=facts)
    path = f"/workloads/{world.ids['workload']}/why"
    assert world.client("developer").get(path).json()["facts"] == {"resource": "gpu_milli", "asked": 1000}
    assert world.client("auditor").get(path).json()["facts"] == facts


def test_a_place_in_the_queue_counts_only_what_one_sees(world: World) -> None:
    private = Workload.objects.get(pk=world.ids["private"])
    common = {"code": "nodes.full", "since": private.submitted_at, "cycle": 1}
    Verdict.objects.create(workload=private, queue_position=1, **common)
    Verdict.objects.create(workload=give_workload(world, "first", "colleague"), queue_position=2, **common)
    path = f"/workloads/{world.ids['workload']}/why"
    assert world.client("developer").get(path).json()["position"] == 2
    assert world.client("operator").get(path).json()["position"] == 3
    names = [item["name"] for item in world.client("developer").get(f"/quotas/{world.quota.pk}/queue").json()["items"]]
    assert names == ["first", "train"]


def test_the_environment_is_for_those_who_may_edit(world: World) -> None:
    path = f"/workloads/{world.ids['workload']}"
    Workload.objects.filter(pk=world.ids["workload"]).update(environment={"KEY": "hush"})
    assert world.client("developer").get(path).json()["environment"] == {"KEY": "hush"}
    assert world.client("viewer").get(path).json()["environment"] is None
    assert "hush" not in world.client("colleague").get("/workloads").content.decode()


def test_may_says_what_the_caller_may_do(world: World) -> None:
    path = f"/workloads/{world.ids['workload']}"
    assert "workload.stop" in world.client("developer").get(path).json()["may"]
    assert world.client("viewer").get(path).json()["may"] == ["workload.read", "workload.read_logs"]


def test_a_list_costs_the_same_number_of_queries_however_long_it_is(world: World) -> None:
    client = world.client("operator")
    client.get("/workloads")
    with CaptureQueriesContext(
        connection,
    ) as few:
        client.get("/workloads")
    for number in range(30):
        give_workload(world, f"more-{number}", "developer")
    with CaptureQueriesContext(connection) as many:
        assert len(client.get("/workloads").json()["items"]) == 33
    assert len(many) == len(few)


@pytest.mark.parametrize(
    ("query", "names"),
    [
        ("state=running", ["chat"]),
        ("state=queued&state=running&ordering=name", ["chat", "hidden", "train"]),
        ("kind=service", ["chat"]),
        ("name=TRA", ["train"]),
        ("reason=reservation.other", ["train"]),
        ("reason=nodes.full", []),
        ("held=true", []),
        ("priority=9", ["chat"]),
        ("quota={quota}&workspace={workspace}&cluster={cluster}&owner={user}", ["train"]),
        ("quota={foreign_quota}", []),
    ],
)
def test_lists_are_filtered_and_ordered(world: World, query: str, names: list[str]) -> None:
    found = world.client("operator").get(f"/workloads?{query.format(**world.ids)}").json()["items"]
    assert [item["name"] for item in found] == names


def test_rules_are_saved_whole_and_apply_at_once(world: World) -> None:
    path = f"/workloads/{world.ids['service']}/rules"
    rules = [{"name": "always", "cron": "* * * * *", "zone": "UTC", "replicas": 4}]
    saved = world.client("operator").put(path, {"rules": rules})
    assert saved.status_code == 200
    assert [rule["name"] for rule in saved.json()["rules"]] == ["always"]
    assert Workload.objects.get(pk=world.ids["service"]).replicas == 4
    bad = world.client("operator").put(path, {"rules": [{**rules[0], "cron": "0 0 31 2 *"}]})
    assert [problem["field"] for problem in bad.json()["problems"]] == ["rules.0.cron"]


def test_an_eviction_hides_the_claimant_of_another_team(world: World) -> None:
    path = f"/evictions/{world.ids['eviction']}"
    mine = world.client("developer").get(path).json()
    assert mine["claimant"] is None
    assert mine["facts"] == {"share_before": 2000}
    assert world.client("auditor").get(path).json()["claimant"]["id"] == FOREIGN + 6
