"""Submitting, looking at and acting on workloads through the pages."""

from __future__ import annotations

import re
from datetime import timedelta

import pytest

from tests.console.conftest import ClientFor
from tests.console.world import World, waiting
from workloads.models import Event, State, Verdict, Workload


def submission(world: World, team: str, quota: str, **changes: object) -> dict[str, object]:
    place = f"{world.workspaces[team].pk}:{world.quotas[quota].pk}"
    return {
        "name": "fresh",
        "place": place,
        "visibility": "shared",
        "gpus": "2",
        "replicas": "1",
        "priority": "4",
        "idle": "allow",
        "gang": "on",
        "restart": "never",
        "retries": "0",
        **changes,
    }


def test_a_training_job_waits_with_everything_that_was_typed(world: World, client_for: ClientFor):
    sent = submission(
        world,
        "b",
        "north",
        replicas="3",
        command="python train.py --name 'big one'",
        environment="A=1\nB=two",
        checkpoint_every_s="15m",
        duration_s="1h",
        memory_mib="64GiB",
        cpu_milli="1.5",
        node_selector="gpu_model=H100",
    )
    answer = client_for("developer-b").post("/workloads/new/training", sent)
    workload = Workload.objects.get(name="fresh")
    assert answer["Location"] == f"/workloads/{workload.pk}"
    assert (workload.kind, workload.quota, workload.owner) == (
        "training",
        world.quotas["north"],
        world.users["developer-b"],
    )
    assert (workload.gpus, workload.replicas, workload.idle, workload.priority) == (2, 3, "allow", 4)
    assert (workload.cpu_milli, workload.memory_mib) == (1500, 65536)
    assert workload.command == ["python", "train.py", "--name", "big one"]
    assert workload.environment == {"A": "1", "B": "two"}
    assert (workload.checkpoint_every_s, workload.duration_s) == (900, 3600)
    assert workload.node_selector == {"gpu_model": "H100"}


def test_a_part_of_a_gpu_is_asked_as_thousandths_of_one(world: World, client_for: ClientFor):
    client_for("developer-c").post("/workloads/new/notebook", submission(world, "c", "south", gpus="0.5"))
    workload = Workload.objects.get(name="fresh")
    assert (workload.kind, workload.gpus, workload.gpu_milli) == ("notebook", 1, 500)


def test_a_service_may_be_submitted_by_an_operator(world: World, client_for: ClientFor):
    answer = client_for("operator-a").post(
        "/workloads/new/service", submission(world, "a", "root", replicas="0", idle="never")
    )
    assert answer.status_code == 302
    assert Workload.objects.get(name="fresh").replicas == 0


def test_a_developer_has_no_place_for_a_service(world: World, client_for: ClientFor):
    body = client_for("developer-a").get("/workloads/new/service").content.decode()
    assert "no place where you may submit this" in body


@pytest.mark.parametrize(
    ("field", "value", "words"),
    [
        ("name", "", "required"),
        ("name", "train-b", "already taken"),
        ("gpus", "-1", "Write a number from 0 to 64."),
        ("gpus", "2.5", "fraction below 1"),
        ("gpus", "16", "largest node"),
        ("replicas", "0", "between 1 and"),
        ("priority", "12", "Select a valid choice"),
        ("command", "echo 'open", "A quote is not closed."),
        ("environment", "NOEQUALS", "One NAME=value a line"),
        ("duration_s", "later", "Write a time such as"),
        ("memory_mib", "lots", "Write a size such as 64GiB"),
    ],
)
def test_wrong_input_is_named_and_nothing_is_submitted(
    world: World, client_for: ClientFor, field: str, value: str, words: str
):
    sent = submission(world, "b", "north", **{"image": "kept.example/train:1", field: value})
    answer = client_for("developer-b").post("/workloads/new/training", sent)
    body = answer.content.decode()
    assert answer.status_code == 422
    assert words.casefold() in body.casefold()
    assert f'href="#id_{field}"' in body
    assert "kept.example/train:1" in body
    assert not Workload.objects.filter(name="fresh").exists()


def test_a_place_of_another_team_cannot_be_chosen(world: World, client_for: ClientFor):
    answer = client_for("developer-b").post("/workloads/new/training", submission(world, "c", "south"))
    assert answer.status_code == 422
    assert not Workload.objects.filter(name="fresh").exists()


def test_why_it_waits_stands_on_its_page_with_its_code(world: World, client_for: ClientFor):
    body = client_for("developer-b").get(f"/workloads/{world.workloads['wide-b'].pk}").content.decode()
    assert "1 of its 2 workers find room now" in body
    assert "nodes.gang" in body
    assert "1 more workers would have to find room." in body


def test_the_timeline_lists_every_move(world: World, client_for: ClientFor):
    body = client_for("viewer-b").get(f"/workloads/{world.workloads['train-b'].pk}").content.decode()
    for event in Event.objects.filter(workload=world.workloads["train-b"]):
        assert f'id="e-{event.pk}"' in body
    assert 'class="lane-running"' in body


def test_where_it_runs_names_node_and_gpus(world: World, client_for: ClientFor):
    body = client_for("viewer-c").get(f"/workloads/{world.workloads['train-c'].pk}").content.decode()
    assert "<td>n02</td>" in body
    assert "1, 2, 3, 4" in body


@pytest.mark.parametrize(
    ("name", "person", "present", "absent"),
    [
        ("train-b", "developer-b", {"stop", "priority", "clone"}, {"scale", "move", "hold"}),
        ("train-b", "viewer-b", set(), {"stop", "priority", "clone"}),
        ("wide-b", "developer-b", {"hold", "move", "stop"}, {"release", "restart"}),
        ("held-c", "operator-c", {"release", "stop"}, {"hold"}),
        ("chat", "operator-a", {"scale", "stop"}, {"move"}),
    ],
)
def test_buttons_follow_state_and_rights(
    world: World, client_for: ClientFor, name: str, person: str, present: set[str], absent: set[str]
):
    pk = world.workloads[name].pk
    body = client_for(person).get(f"/workloads/{pk}").content.decode()
    shown = {action for action in present | absent if f'"/workloads/{pk}/do/{action}"' in body}
    assert shown == present


@pytest.mark.parametrize(("action", "held"), [("hold", True), ("release", False)])
def test_hold_and_release(world: World, client_for: ClientFor, action: str, held: bool):
    workload = world.workloads["wide-b" if held else "held-c"]
    person = "developer-b" if held else "developer-c"
    assert client_for(person).post(f"/workloads/{workload.pk}/do/{action}").status_code == 302
    workload.refresh_from_db()
    assert workload.held is held


def test_stopping_a_running_job_tells_it_to_stop(world: World, client_for: ClientFor):
    workload = world.workloads["train-b"]
    client_for("developer-b").post(f"/workloads/{workload.pk}/do/stop")
    workload.refresh_from_db()
    assert workload.state == State.STOPPING


def test_an_action_that_the_state_forbids_is_refused_in_words(world: World, client_for: ClientFor):
    answer = client_for("developer-b").post(f"/workloads/{world.workloads['train-b'].pk}/do/hold")
    assert answer.status_code == 422
    assert "The workload is running" in answer.content.decode()


def test_the_same_refusal_reaches_a_fragment_as_a_note(world: World, client_for: ClientFor):
    answer = client_for("developer-b").post(
        f"/workloads/{world.workloads['train-b'].pk}/do/hold", headers={"HX-Request": "true"}
    )
    assert (answer.status_code, answer["HX-Reswap"]) == (422, "none")
    assert "toast" in answer["HX-Trigger"]


def test_scaling_a_service(world: World, client_for: ClientFor):
    chat = world.workloads["chat"]
    assert client_for("operator-a").post(f"/workloads/{chat.pk}/do/scale", {"replicas": "3"}).status_code == 302
    chat.refresh_from_db()
    assert chat.replicas == 3
    wrong = client_for("operator-a").post(f"/workloads/{chat.pk}/do/scale", {"replicas": "-1"})
    assert (wrong.status_code, "Write a whole number from 0 to 10000." in wrong.content.decode()) == (422, True)


def test_priority_and_clone(world: World, client_for: ClientFor):
    client, workload = client_for("developer-b"), world.workloads["wide-b"]
    client.post(f"/workloads/{workload.pk}/do/priority", {"priority": "5"})
    client.post(f"/workloads/{workload.pk}/do/clone", {"name": "wide-b-2"})
    workload.refresh_from_db()
    copy = Workload.objects.get(name="wide-b-2")
    assert (workload.priority, copy.state, copy.gpus, copy.replicas) == (5, State.QUEUED, 8, 2)


@pytest.mark.parametrize(
    ("query", "names"),
    [
        ("kind=service", {"chat"}),
        ("state=waiting", {"wide-b", "held-c"}),
        ("q=train", {"train-b", "train-c"}),
        ("q=developer-c&state=running", {"notes-c", "train-c"}),
        ("quota=99999", set()),
    ],
)
def test_filters_of_the_list_are_in_the_address(world: World, client_for: ClientFor, query: str, names: set[str]):
    body = client_for("platform").get(f"/workloads?{query}").content.decode()
    assert {name for name, workload in world.workloads.items() if f'id="w-{workload.pk}"' in body} == names


def test_a_fragment_of_the_list_is_its_rows_alone(world: World, client_for: ClientFor):
    answer = client_for("platform").get("/workloads", headers={"HX-Request": "true", "HX-Target": "board"})
    body = answer.content.decode()
    assert body.lstrip().startswith('<div id="board"')
    assert f'id="w-{world.workloads["chat"].pk}"' in body


def test_an_operator_moves_a_job_up_inside_its_priority(world: World, client_for: ClientFor):
    first, second = (
        waiting(world, name, "b", "north", gpus=1, replicas=1, code="nodes.full") for name in ("one", "two")
    )
    Workload.objects.filter(pk=second.pk).update(position=first.position + 1)
    client_for("operator-b").post(f"/queue/{second.pk}/move", {"to": "up"})
    order = Workload.objects.filter(pk__in=[first.pk, second.pk]).order_by("position", "id")
    assert [workload.name for workload in order] == ["two", "one"]


def test_the_queue_gives_each_line_its_reason(world: World, client_for: ClientFor):
    body = client_for("viewer-b").get("/queue").content.decode()
    assert "1 of its 2 workers find room now" in body
    assert f'id="l-{world.workloads["held-c"].pk}"' not in body


def test_a_start_that_can_be_estimated_is_told(world: World, client_for: ClientFor):
    verdict = world.workloads["wide-b"].verdict
    now = world.cluster.now()
    verdict.earliest_at, verdict.latest_at = (
        now + timedelta(minutes=30, seconds=30),
        now + timedelta(hours=2, minutes=1),
    )
    verdict.save()
    body = client_for("viewer-b").get(f"/workloads/{world.workloads['wide-b'].pk}").content.decode()
    assert re.search(r"Thought to start in 30 min( \d+ s)? to 2 h( \d+ min)?\.", body)


def test_a_place_in_the_queue_counts_only_what_the_reader_may_see(world: World, client_for: ClientFor):
    hidden = waiting(world, "secret", "b", "north", gpus=1, replicas=1, code="nodes.full")
    Workload.objects.filter(pk=hidden.pk).update(visibility="private", owner=world.users["operator-b"])
    Verdict.objects.filter(workload=world.workloads["wide-b"]).update(queue_position=2)
    path = f"/workloads/{world.workloads['wide-b'].pk}"
    assert "Place 1 in its queue." in client_for("developer-b").get(path).content.decode()
    assert "Place 2 in its queue." in client_for("operator-b").get(path).content.decode()


@pytest.mark.parametrize("page", ["/workloads?kind=service&state=live", "/quotas", "/nodes"])
def test_a_list_can_be_taken_along_as_a_table(world: World, client_for: ClientFor, page: str):
    client = client_for("platform")
    link = re.search(r'href="(/api/v1/[^"]+format=csv[^"]*)"', client.get(page).content.decode())
    assert link is not None
    answer = client.get(link[1].replace("&amp;", "&"))
    assert (answer.status_code, answer["Content-Type"]) == (200, "text/csv; charset=utf-8")
    assert answer.content.decode().count("\n") > 1


def test_a_submission_can_be_tried_first(world: World, client_for: ClientFor):
    sent = {**submission(world, "b", "north", gpus="1"), "do": "check"}
    answer = client_for("developer-b").post("/workloads/new/training", sent)
    body = answer.content.decode()
    assert answer.status_code == 200
    assert "What would happen" in body
    assert "fresh (1 GPUs)" in body
    assert "train-c" not in body
    assert not Workload.objects.filter(name="fresh").exists()


def test_one_action_on_several_is_done_for_all_or_none(world: World, client_for: ClientFor):
    client, waits, runs = client_for("platform"), world.workloads["wide-b"], world.workloads["train-b"]
    refused = client.post("/workloads/bulk", {"action": "hold", "pk": [waits.pk, runs.pk]})
    waits.refresh_from_db()
    assert (refused.status_code, waits.held) == (422, False)
    assert client.post("/workloads/bulk", {"action": "stop", "pk": [waits.pk, runs.pk]}).status_code == 302
    states = Workload.objects.filter(pk__in=[waits.pk, runs.pk]).order_by("name").values_list("state", flat=True)
    assert list(states) == [State.STOPPING, State.STOPPED]


def test_what_one_does_not_see_is_not_among_the_chosen(world: World, client_for: ClientFor):
    foreign = world.workloads["train-c"]
    client_for("operator-b").post("/workloads/bulk", {"action": "stop", "pk": [foreign.pk]})
    foreign.refresh_from_db()
    assert foreign.state == State.RUNNING


def test_work_that_has_started_meanwhile_has_no_place_to_move_to(world: World, client_for: ClientFor):
    running = world.workloads["train-b"]
    answer = client_for("operator-b").post(f"/queue/{running.pk}/move", {"to": "up"}, headers={"HX-Request": "true"})
    assert answer.status_code == 422
    assert "is running" in answer["HX-Trigger"]


@pytest.mark.parametrize(
    "address", ["/workloads?size=²", "/search?q=a%00b", "/audit?q=%00", "/nodes?q=%00", "/queue?quota=²"]
)
def test_odd_addresses_are_pages_all_the_same(world: World, client_for: ClientFor, address: str):
    assert client_for("platform").get(address).status_code == 200
