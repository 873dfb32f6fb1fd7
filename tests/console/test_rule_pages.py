"""A service's scaling rules through the pages."""

from __future__ import annotations

import pytest

from tests.console.conftest import ClientFor
from tests.console.world import World
from workloads.models import ScalingRule


def rule(**changes: object) -> dict[str, object]:
    return {
        "name": "day",
        "how": "cron",
        "cron": "0 8 * * *",
        "zone": "Europe/Istanbul",
        "target": "replicas",
        "replicas": "40",
        "enabled": "on",
        "do": "save",
        **changes,
    }


def test_a_rule_is_added_edited_and_removed(world: World, client_for: ClientFor):
    client, chat = client_for("operator-a"), world.workloads["chat"]
    assert client.post(f"/workloads/{chat.pk}/rules/new", rule()).status_code == 302
    added = ScalingRule.objects.get(workload=chat)
    assert (added.cron, added.zone, added.replicas, added.enabled) == ("0 8 * * *", "Europe/Istanbul", 40, True)
    assert client.post(f"/rules/{added.pk}/edit", rule(replicas="30")).status_code == 302
    edited = ScalingRule.objects.get(workload=chat)
    assert edited.replicas == 30
    assert client.post(f"/rules/{edited.pk}/remove").status_code == 302
    assert not ScalingRule.objects.filter(workload=chat).exists()


def test_days_and_time_become_a_cron_expression(world: World, client_for: ClientFor):
    chat = world.workloads["chat"]
    sent = rule(how="days", cron="", days=["1", "2", "3", "4", "5"], time="22:00", replicas="0")
    client_for("operator-a").post(f"/workloads/{chat.pk}/rules/new", sent)
    added = ScalingRule.objects.get(workload=chat)
    assert (added.cron, added.replicas) == ("0 22 * * 1,2,3,4,5", 0)


def test_a_preview_shows_the_next_times_and_saves_nothing(world: World, client_for: ClientFor):
    chat = world.workloads["chat"]
    answer = client_for("operator-a").post(f"/workloads/{chat.pk}/rules/new", rule(do="preview"))
    body = answer.content.decode()
    assert answer.status_code == 200
    assert body.count("08:00 Europe/Istanbul") == 5
    assert "<path" in body
    assert not ScalingRule.objects.exists()


@pytest.mark.parametrize(
    ("changes", "field", "words"),
    [
        ({"cron": "every day"}, "cron", "needs 5 or 6 fields"),
        ({"cron": "0 0 31 2 *"}, "cron", "no schedule that can be used"),
        ({"cron": ""}, "cron", "five or six fields"),
        ({"how": "days", "time": ""}, "time", "Give a time of day"),
        ({"zone": "Mars/Olympus"}, "zone", "Select a valid choice"),
        ({"replicas": ""}, "replicas", "either replicas"),
        ({"replicas": "-1"}, "replicas", "Write a whole number from 0 to 10000."),
        ({"target": "bounds", "min_replicas": "5", "max_replicas": "2"}, "min_replicas", "between 0 and 2"),
        ({"excluded": "Christmas"}, "excluded", "dates like 2026-03-02"),
    ],
)
def test_wrong_rules_are_named_at_their_field(
    world: World, client_for: ClientFor, changes: dict[str, object], field: str, words: str
):
    chat = world.workloads["chat"]
    answer = client_for("operator-a").post(f"/workloads/{chat.pk}/rules/new", rule(**changes))
    body = answer.content.decode()
    assert answer.status_code == 422
    assert words in body
    assert f'href="#id_{field}"' in body
    assert not ScalingRule.objects.exists()


def test_a_viewer_sees_the_rules_without_their_buttons(world: World, client_for: ClientFor):
    chat = world.workloads["chat"]
    client_for("operator-a").post(f"/workloads/{chat.pk}/rules/new", rule())
    body = client_for("viewer-a").get(f"/workloads/{chat.pk}").content.decode()
    assert "At 08:00 every day" in body
    assert "/rules/new" not in body
