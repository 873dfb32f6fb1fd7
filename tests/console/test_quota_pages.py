"""The quota pages do what their buttons say, and say what is wrong where it was typed."""

from __future__ import annotations

import pytest

from quotas.models import Quota, QuotaAmount, QuotaVersion
from tests.console.conftest import ClientFor
from tests.console.world import GPU, World

PANEL = {"HX-Request": "true", "HX-Target": "panel-body"}
PART = {"HX-Request": "true"}


def new_quota(world: World, **changes: object) -> dict[str, object]:
    """What the form "Add Resource Quota" sends for a child of "root"."""
    return {
        "name": "west",
        "parent": world.quotas["root"].pk,
        f"guaranteed_gpu_milli-{world.pool.pk}": "0",
        f"rank-{world.pool.pk}": "0",
        "queue_policy": "fifo",
        "idle_sharing": "on",
        "child_preemption": "on",
        "child_claimants": ["service"],
        "child_kinds": ["training"],
        "child_max_victim_priority": "5",
        "priority_by_low": "1",
        "priority_by_high": "9",
        "priority_of_low": "1",
        "priority_of_high": "9",
        "priority_kinds": ["training"],
        "reserve_after_s": "10m",
        "min_runtime_reclaim_s": "1h",
        **changes,
    }


def scale(world: World, name: str, gpus: str, **changes: object) -> dict[str, object]:
    quota = Quota.objects.get(name=name)
    return {
        f"guaranteed_gpu_milli-{world.pool.pk}": gpus,
        f"rank-{world.pool.pk}": "0",
        "on_excess": "keep",
        "revision": quota.revision,
        **changes,
    }


def guaranteed(name: str) -> int | None:
    return QuotaAmount.objects.get(quota__name=name).guaranteed_gpu_milli


def test_a_new_child_has_its_amounts_and_switches(world: World, client_for: ClientFor):
    answer = client_for("platform").post("/quotas/new", new_quota(world))
    assert answer.status_code == 302
    quota = Quota.objects.get(name="west")
    assert (quota.parent, quota.queue_policy, quota.idle_sharing) == (world.quotas["root"], "fifo", True)
    assert (quota.child_preemption, quota.child_kinds, quota.child_max_victim_priority) == (True, ["training"], 5)
    assert (quota.min_runtime_reclaim_s, quota.reserve_after_s) == (3600, 600)
    assert guaranteed("west") == 0


def test_more_than_the_parent_has_is_refused_at_the_amount_and_nothing_typed_is_lost(
    world: World, client_for: ClientFor
):
    field = f"guaranteed_gpu_milli-{world.pool.pk}"
    answer = client_for("platform").post("/quotas/new", new_quota(world, **{field: "8", "description": "for the west"}))
    body = answer.content.decode()
    assert answer.status_code == 422
    assert f'href="#id_{field}"' in body
    assert "root has 0 GPUs left" in body
    assert "for the west" in body
    assert not Quota.objects.filter(name="west").exists()


@pytest.mark.parametrize(
    ("field", "value", "words"),
    [
        ("name", "", "This field is required."),
        ("name", "north", "already taken"),
        ("reserve_after_s", "soon", "Write a time such as 45s, 30m, 1h 30m or 2d"),
        ("labels", "no equals", "Write labels as name=value"),
        ("priority_by_low", "10", "Select a valid choice"),
    ],
)
def test_wrong_input_names_the_field_and_what_is_right(
    world: World, client_for: ClientFor, field: str, value: str, words: str
):
    answer = client_for("platform").post("/quotas/new", new_quota(world, **{field: value}))
    assert answer.status_code == 422
    assert words in answer.content.decode()
    assert f'href="#id_{field}"' in answer.content.decode()


def test_a_low_priority_above_the_high_one_is_refused(world: World, client_for: ClientFor):
    answer = client_for("platform").post("/quotas/new", new_quota(world, priority_by_low="8", priority_by_high="2"))
    assert answer.status_code == 422
    assert "between 1 and 2" in answer.content.decode()


def test_scaling_sets_absolute_amounts(world: World, client_for: ClientFor):
    answer = client_for("platform").post(f"/quotas/{world.quotas['south'].pk}/scale", scale(world, "south", "12"))
    assert answer.status_code == 302
    assert guaranteed("south") == 12 * GPU


def test_the_panel_gets_the_form_alone_and_closes_when_it_is_done(world: World, client_for: ClientFor):
    client, path = client_for("platform"), f"/quotas/{world.quotas['south'].pk}/scale"
    form = client.get(path, headers=PANEL)
    assert "<html" not in form.content.decode()
    answer = client.post(path, scale(world, "south", "12"), headers=PANEL)
    assert answer.status_code == 204
    assert "panel:close" in answer["HX-Trigger"]
    assert f"live:quota.{world.quotas['south'].pk}" in answer["HX-Trigger"]


def test_a_scale_in_the_wrong_order_says_how_much_is_missing(world: World, client_for: ClientFor):
    answer = client_for("platform").post(f"/quotas/{world.quotas['north'].pk}/scale", scale(world, "north", "14"))
    assert answer.status_code == 422
    assert "2 GPUs are missing" in answer.content.decode()
    assert guaranteed("north") == 12 * GPU


def test_a_stale_revision_keeps_what_was_typed(world: World, client_for: ClientFor):
    sent = scale(world, "south", "12", revision=0)
    answer = client_for("platform").post(f"/quotas/{world.quotas['south'].pk}/scale", sent)
    assert answer.status_code == 409
    assert 'value="12"' in answer.content.decode()
    assert guaranteed("south") == 20 * GPU


def test_after_a_conflict_saving_again_puts_ones_own_in_place(world: World, client_for: ClientFor):
    client, path = client_for("platform"), f"/quotas/{world.quotas['south'].pk}/scale"
    shown = client.post(path, scale(world, "south", "12", revision=0)).content.decode()
    newest = Quota.objects.get(name="south").revision
    assert f'name="revision" value="{newest}"' in shown
    assert client.post(path, scale(world, "south", "12", revision=newest)).status_code == 302


def test_rebalancing_moves_a_guarantee_in_one_step(world: World, client_for: ClientFor):
    pks = {name: quota.pk for name, quota in world.quotas.items()}
    sent = {
        f"guaranteed-{pks['root']}": "32",
        f"guaranteed-{pks['north']}": "14",
        f"guaranteed-{pks['south']}": "18",
        "on_excess": "keep",
    }
    assert client_for("platform").post("/quotas/rebalance", sent).status_code == 302
    assert (guaranteed("north"), guaranteed("south")) == (14 * GPU, 18 * GPU)


def test_rebalancing_beyond_the_parent_changes_nothing(world: World, client_for: ClientFor):
    pks = {name: quota.pk for name, quota in world.quotas.items()}
    sent = {
        f"guaranteed-{pks['root']}": "32",
        f"guaranteed-{pks['north']}": "14",
        f"guaranteed-{pks['south']}": "20",
        "on_excess": "keep",
    }
    answer = client_for("platform").post("/quotas/rebalance", sent)
    assert answer.status_code == 422
    assert "2 GPUs are missing" in answer.content.decode()
    assert (guaranteed("north"), guaranteed("south")) == (12 * GPU, 20 * GPU)


def test_the_switch_on_the_overview_tab_is_saved_at_once(world: World, client_for: ClientFor):
    quota = world.quotas["north"]
    sent = {"to": "on", "revision": quota.revision}
    answer = client_for("platform").post(f"/quotas/{quota.pk}/switch/child_preemption", sent)
    assert answer.status_code == 302
    assert Quota.objects.get(pk=quota.pk).child_preemption is True
    assert 'aria-checked="true"' in client_for("platform").get(f"/quotas/{quota.pk}").content.decode()


def test_the_policy_tab_saves_the_policy(world: World, client_for: ClientFor):
    quota = world.quotas["north"]
    client_for("platform").post(
        f"/quotas/{quota.pk}/queue-policy", {"queue_policy": "balance", "revision": quota.revision}
    )
    assert Quota.objects.get(pk=quota.pk).queue_policy == "balance"


def test_every_change_is_in_the_history_and_can_be_restored(world: World, client_for: ClientFor):
    client, quota = client_for("platform"), world.quotas["north"]
    for policy in ("fifo", "balance"):
        revision = Quota.objects.get(pk=quota.pk).revision
        client.post(f"/quotas/{quota.pk}/queue-policy", {"queue_policy": policy, "revision": revision})
    history = client.get(f"/quotas/{quota.pk}/history").content.decode()
    assert "fifo → <strong>balance</strong>" in history
    first = QuotaVersion.objects.filter(quota=quota).order_by("revision").first()
    assert first is not None
    client.post(f"/quotas/{quota.pk}/restore/{first.pk}")
    assert Quota.objects.get(pk=quota.pk).queue_policy == "fifo"


def test_deleting_wants_the_name_typed(world: World, client_for: ClientFor):
    quota = Quota.objects.create(cluster=world.cluster, name="empty", parent=world.quotas["root"])
    client = client_for("platform")
    wrong = client.post(f"/quotas/{quota.pk}/delete", {"typed": "emtpy"})
    assert (wrong.status_code, Quota.objects.filter(pk=quota.pk).exists()) == (422, True)
    assert client.post(f"/quotas/{quota.pk}/delete", {"typed": "empty"}).status_code == 302
    assert not Quota.objects.filter(pk=quota.pk).exists()


def test_what_blocks_a_deletion_is_named(world: World, client_for: ClientFor):
    answer = client_for("platform").post(f"/quotas/{world.quotas['north'].pk}/delete", {"typed": "north"})
    body = answer.content.decode()
    assert answer.status_code == 422
    assert "team-b" in body
    assert "train-b" in body


def test_a_folded_row_hides_what_is_below_it_until_it_is_unfolded(world: World, client_for: ClientFor):
    client, root = client_for("platform"), world.quotas["root"].pk
    north = f'id="q-{world.quotas["north"].pk}"'
    assert north in client.get("/quotas").content.decode()
    folded = client.post(f"/quotas/{root}/fold", headers={**PART, "HX-Target": "board"}).content.decode()
    assert north not in folded
    assert 'aria-expanded="false"' in folded
    assert north not in client.get("/quotas").content.decode()
    client.post(f"/quotas/{root}/fold")
    assert north in client.get("/quotas").content.decode()


@pytest.mark.parametrize(
    ("query", "rows"),
    [("q=nor", ["north"]), ("only=borrowing", ["north"]), ("layout=list", ["root", "north", "south"])],
)
def test_filters_show_what_fits_as_a_list(world: World, client_for: ClientFor, query: str, rows: list[str]):
    body = client_for("platform").get(f"/quotas?{query}").content.decode()
    assert [name for name, quota in world.quotas.items() if f'id="q-{quota.pk}"' in body] == rows


def test_a_bar_says_its_numbers_in_a_sentence(world: World, client_for: ClientFor):
    body = client_for("platform").get("/quotas").content.decode()
    assert "north: 8 of 12 guaranteed GPUs in use, 2 borrowed, 0 lent, limit 32" in body


def test_a_history_tells_members_nothing_of_what_is_above(world: World, client_for: ClientFor):
    north = world.quotas["north"]
    after = {"name": "north", "parent_id": north.parent_id, "description": "the first"}
    north.versions.create(revision=99, verb="created", before={}, after=after)
    path = f"/quotas/{north.pk}/history"
    members = client_for("viewer-b").get(path).content.decode()
    assert ("the first" in members, "parent id" in members) == (True, False)
    assert "parent id" in client_for("auditor").get(path).content.decode()


def test_usage_history_comes_from_allocation_rows(world: World, client_for: ClientFor):
    client, root = client_for("platform"), world.quotas["root"].pk
    series = client.get(f"/quotas/{root}/usage.json?period=1h").json()["series"]
    assert [(entry["name"], entry["values"][-1]) for entry in series] == [
        ("root (own work)", 8.0),
        ("north", 8.0),
        ("south", 5.0),
    ]
    world.workloads["train-b"].allocations.all().delete()
    series = client.get(f"/quotas/{root}/usage.json?period=1h").json()["series"]
    assert [entry["values"][-1] for entry in series] == [8.0, 0.0, 5.0]


def test_a_preview_names_what_would_follow_and_changes_nothing(world: World, client_for: ClientFor):
    path = f"/quotas/{world.quotas['south'].pk}/scale"
    answer = client_for("platform").post(path, scale(world, "south", "1", do="preview", on_excess="preempt"))
    body = answer.content.decode()
    assert answer.status_code == 200
    assert "What would happen" in body
    assert "20 → 1" in body
    assert guaranteed("south") == 20 * GPU


def test_a_preview_of_what_is_not_possible_is_refused_like_the_change(world: World, client_for: ClientFor):
    path = f"/quotas/{world.quotas['north'].pk}/scale"
    answer = client_for("platform").post(path, scale(world, "north", "14", do="preview"))
    assert answer.status_code == 422
    assert "2 GPUs are missing" in answer.content.decode()


@pytest.mark.parametrize("amount", ["-1", "eight", "2000000"])
def test_a_wrong_amount_is_told_the_range(world: World, client_for: ClientFor, amount: str):
    path = f"/quotas/{world.quotas['south'].pk}/scale"
    answer = client_for("platform").post(path, scale(world, "south", amount))
    assert (answer.status_code, "Write a number from 0 to 1000000." in answer.content.decode()) == (422, True)


def test_a_quota_moves_to_another_parent(world: World, client_for: ClientFor):
    QuotaAmount.objects.filter(quota=world.quotas["north"]).update(guaranteed_gpu_milli=4 * GPU)
    quota, client = world.quotas["north"], client_for("platform")
    sent = {"parent": world.quotas["south"].pk, "revision": Quota.objects.get(pk=quota.pk).revision}
    assert client.post(f"/quotas/{quota.pk}/move", sent).status_code == 302
    assert Quota.objects.get(pk=quota.pk).parent == world.quotas["south"]
    loop = {"parent": quota.pk, "revision": Quota.objects.get(name="south").revision}
    refused = client.post(f"/quotas/{world.quotas['south'].pk}/move", loop)
    assert (refused.status_code, "cannot stand below itself" in refused.content.decode()) == (422, True)
