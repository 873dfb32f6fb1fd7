"""Quotas, workspaces and the audit through the API: what is changed is so, what is refused changes nothing."""

from __future__ import annotations

import json
from typing import Any

import pytest

from quotas.models import Member, Quota, QuotaAmount
from tests.api.world import FOREIGN, World
from workloads.models import UsageEntry


def guaranteed(quota: Quota) -> int | None:
    return QuotaAmount.objects.get(quota=quota).guaranteed_gpu_milli


def test_a_child_is_made_below_its_parent_in_the_parents_cluster(world: World) -> None:
    QuotaAmount.objects.filter(quota=world.quota).update(guaranteed_gpu_milli=4000)
    body = {
        "parent": world.root.pk,
        "name": "new",
        "amounts": {"default": {"guaranteed_gpu_milli": 4000, "limit_gpu_milli": 6000, "weight": 2000}},
        "child_preemption": True,
        "labels": {"team": "new"},
    }
    answer = world.client("platform").post("/quotas", body)
    assert answer.status_code == 201, answer.content
    made = answer.json()
    assert made["parent"]["id"] == world.root.pk
    assert made["cluster"]["name"] == "tide"
    assert made["amounts"]["default"]["limit_gpu_milli"] == 6000
    assert (made["child_preemption"], made["labels"]) == (True, {"team": "new"})


def test_what_a_caller_reads_of_a_quota_can_be_sent_back(world: World) -> None:
    client, path = world.client("platform"), f"/quotas/{world.quota.pk}"
    read = client.get(path).json()
    settings = {name: read[name] for name in ("queue_policy", "child_claimants", "priority_kinds", "node_affinity")}
    amounts = {"default": {k: v for k, v in read["amounts"]["default"].items() if k != "excess_due_at"}}
    assert client.patch(path, settings).status_code == 200
    assert client.post(f"{path}/scale", {"amounts": amounts}).status_code == 200
    assert client.get(path).json()["amounts"] == read["amounts"]


def test_scale_leaves_alone_what_it_does_not_name(world: World) -> None:
    QuotaAmount.objects.filter(quota=world.quota).update(limit_gpu_milli=9000, rank=2)
    path = f"/quotas/{world.quota.pk}/scale"
    world.client("platform").post(path, {"amounts": {"default": {"guaranteed_gpu_milli": 4000}}})
    row = QuotaAmount.objects.get(quota=world.quota)
    assert (row.guaranteed_gpu_milli, row.limit_gpu_milli, row.rank) == (4000, 9000, 2)
    world.client("platform").post(path, {"amounts": {str(world.pool.pk): {"limit_gpu_milli": None}}})
    row.refresh_from_db()
    assert (row.guaranteed_gpu_milli, row.limit_gpu_milli) == (4000, None)


def test_more_than_the_parent_has_is_refused_with_the_numbers(world: World) -> None:
    path = f"/quotas/{world.quota.pk}/scale"
    answer = world.client("platform").post(path, {"amounts": {"default": {"guaranteed_gpu_milli": 9000}}})
    assert answer.status_code == 422
    (problem,) = answer.json()["problems"]
    assert problem["code"] == "quota.exceeds_parent"
    assert (problem["facts"]["asked"], problem["facts"]["missing"]) == (9000, 1000)
    assert guaranteed(world.quota) == 8000


def test_shares_change_hands_in_one_step_and_not_in_the_wrong_order(world: World) -> None:
    client = world.client("platform")
    more = {"default": {"guaranteed_gpu_milli": 10_000}}
    assert client.post(f"/quotas/{world.quota.pk}/scale", {"amounts": more}).status_code == 422
    changes = {"quota-a": more, str(world.foreign_quota.pk): {"default": {"guaranteed_gpu_milli": 6000}}}
    answer = client.post("/quotas/rebalance", {"changes": changes})
    assert answer.status_code == 200
    assert (guaranteed(world.quota), guaranteed(world.foreign_quota)) == (10_000, 6000)
    assert {quota["revision"] for quota in answer.json()["quotas"]} == {2}


def test_a_rebalance_of_what_has_moved_meanwhile_changes_nothing(world: World) -> None:
    body: dict[str, Any] = {"changes": {"quota-a": {"default": {"guaranteed_gpu_milli": 4000}}}}
    client = world.client("platform")
    assert client.post("/quotas/rebalance", body | {"revisions": {"quota-a": 7}}).status_code == 409
    assert guaranteed(world.quota) == 8000
    assert client.post("/quotas/rebalance", body | {"revisions": {"quota-a": 1}}).status_code == 200


def test_a_preview_of_a_scale_changes_nothing(world: World) -> None:
    body = {"amounts": {"default": {"guaranteed_gpu_milli": 4000}}, "on_excess": "preempt"}
    answer = world.client("platform").post(f"/quotas/{world.quota.pk}/scale/preview", body)
    books = {book["quota"]["name"]: book["guaranteed"] for book in answer.json()["after"]}
    assert books["quota-a"] == 4000
    assert guaranteed(world.quota) == 8000


def test_a_quota_in_use_is_not_deleted_and_every_blocker_is_listed(world: World) -> None:
    answer = world.client("platform").delete(f"/quotas/{world.quota.pk}")
    (problem,) = answer.json()["problems"]
    assert problem["code"] == "quota.in_use"
    assert problem["facts"]["blockers"] == {"workspaces": ["team-a"], "workloads": ["chat", "hidden", "train"]}


def test_an_earlier_version_can_be_brought_back(world: World) -> None:
    client, path = world.client("platform"), f"/quotas/{world.quota.pk}"
    client.patch(path, {"queue_policy": "fifo"})
    assert client.post(f"{path}/restore", {"version": world.ids["version"]}).json()["queue_policy"] == "intelligent"
    verbs = [version["verb"] for version in client.get(f"{path}/history").json()["items"]]
    assert verbs == ["restored", "edited", "created"]


def test_members_do_not_read_of_ancestors(world: World) -> None:
    client, path = world.client("administrator"), f"/quotas/{world.quota.pk}"
    Quota.objects.filter(pk=world.quota.pk).update(parent=world.root)
    assert client.get(path).json()["parent"] is None
    world.client("platform").patch(path, {"queue_policy": "fifo"})
    for text in (client.get(path).content.decode(), client.get(f"{path}/history").content.decode()):
        assert str(FOREIGN + 1) not in text
        assert "lighthouse" not in text
    assert world.client("platform").get(path).json()["parent"]["id"] == world.root.pk


@pytest.mark.parametrize(("who", "sees"), [("developer", False), ("auditor", True)])
def test_the_history_names_only_people_whom_the_reader_sees(world: World, who: str, sees: bool) -> None:
    path = f"/quotas/{world.quota.pk}"
    assert world.client("platform").patch(path, {"description": "new"}).status_code == 200
    newest = world.client(who).get(f"{path}/history").json()["items"][0]
    assert newest["by"] == ({"id": world.people["platform"].pk, "username": "platform"} if sees else None)


def test_the_configuration_is_saved_whole_and_refuses_a_late_save(world: World) -> None:
    client, path = world.client("owner"), f"/workspaces/{world.workspace.pk}/configuration"
    assert client.get(path).json() == {"entries": [], "revision": 0}
    entry = {"quota": "quota-a", "name": "small", "role": "developer", "cap_gpu_milli": 4000, "max_priority": 4}
    saved = client.put(path, {"entries": [entry]}, headers={"If-Match": '"0"'})
    assert (saved.status_code, saved["ETag"]) == (200, '"1"')
    assert client.put(path, {"entries": []}, headers={"If-Match": '"0"'}).status_code == 412
    assert UsageEntry.objects.get().name == "small"
    limits = world.client("developer").get(f"/workspaces/{world.workspace.pk}/limits").json()
    assert limits["max_priority"] == {"value": 4, "entry": "small"}
    ask = {"name": "new", "kind": "training", "gpus": 1, "priority": 5}
    (problem,) = world.client("developer").post("/workloads", ask).json()["problems"]
    assert (problem["code"], problem["facts"]["entry"]) == ("configuration.priority", "small")


def test_roles_are_taken_at_once(world: World) -> None:
    member = Member.objects.get(user=world.people["operator"])
    path = f"/workspaces/{world.workspace.pk}/members/{member.pk}"
    stop = f"/workloads/{world.ids['workload']}/stop"
    assert world.client("operator").post(f"{stop}?dry_run=true").status_code == 200
    assert world.client("administrator").put(path, {"roles": ["viewer"]}).status_code == 200
    assert world.client("operator").post(stop).status_code == 403
    assert world.client("administrator").delete(path).status_code == 204
    assert world.client("operator").post(stop).status_code == 404


def test_the_owner_is_handed_over_and_not_removed(world: World) -> None:
    owner = Member.objects.get(user=world.people["owner"])
    path = f"/workspaces/{world.workspace.pk}"
    assert world.client("administrator").delete(f"{path}/members/{owner.pk}").status_code == 422
    assert world.client("owner").post(f"{path}/hand_over", {"to": "operator"}).status_code == 200
    assert Member.objects.get(user=world.people["operator"]).roles == ["owner"]


def test_the_audit_is_filtered_and_exported_as_lines(world: World) -> None:
    world.client("platform").patch(f"/quotas/{world.quota.pk}", {"queue_policy": "fifo"})
    client = world.client("auditor")
    (entry,) = client.get("/audit?verb=quota.edited").json()["items"]
    assert (entry["actor"], entry["door"], entry["object"]["name"]) == ("platform", "api", "quota-a")
    assert (entry["before"], entry["after"]) == ({"queue_policy": "intelligent"}, {"queue_policy": "fifo"})
    export = client.get("/audit/export?object_type=quota")
    assert export["Content-Type"] == "application/x-ndjson"
    lines = [json.loads(line) for line in b"".join(export.streaming_content).splitlines()]
    assert [line["id"] for line in lines] == [entry["id"]]


def test_a_refused_change_is_in_the_audit(world: World) -> None:
    world.client("owner").post("/workspaces", {"name": "new"})
    (entry,) = world.client("auditor").get("/audit?result=refused").json()["items"]
    assert entry["actor"] == "owner"
    assert (entry["facts"]["method"], entry["facts"]["status"]) == ("POST", 403)


def test_the_tree_comes_from_the_top_down_and_shows_only_what_one_sees(world: World) -> None:
    Quota.objects.exclude(pk=world.root.pk).update(parent=world.root)
    whole = world.client("platform").get("/quotas/tree").json()["quotas"]
    assert [(quota["name"], quota["depth"]) for quota in whole] == [
        ("lighthouse-root", 0),
        ("quota-a", 1),
        ("lighthouse-quota", 1),
    ]
    mine = world.client("viewer").get("/quotas/tree").json()["quotas"]
    assert [(quota["name"], quota["depth"], quota["parent"]) for quota in mine] == [("quota-a", 0, None)]


def test_a_filter_does_not_confirm_what_one_does_not_see(world: World) -> None:
    Quota.objects.filter(pk=world.quota.pk).update(parent=world.root)
    world.quota.bindings.create(workspace=world.foreign_workspace)
    for query in (f"parent={world.root.pk}", f"workspace={world.foreign_workspace.pk}"):
        assert world.client("viewer").get(f"/quotas?{query}").json()["items"] == []
        assert "quota-a" in [item["name"] for item in world.client("platform").get(f"/quotas?{query}").json()["items"]]


def test_a_token_of_one_workspace_knows_no_other_token(world: World) -> None:
    seen = world.client("owner as viewer").get("/tokens").json()["items"]
    assert [token["role"] for token in seen] == ["viewer"]
    assert len(world.client("owner").get("/tokens").json()["items"]) == 2


@pytest.mark.parametrize("samples", [1, 4])
def test_use_over_time_has_a_value_for_each_time(world: World, samples: int) -> None:
    answer = world.client("developer").get(f"/usage?samples={samples}").json()
    assert len(answer["times"]) == samples + 1
    ((quota, held),) = [(item["quota"]["name"], item["held_gpu_milli"]) for item in answer["quotas"]]
    assert (quota, held) == ("quota-a", [0] * (samples + 1))
