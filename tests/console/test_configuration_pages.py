"""The scheduling configuration of a workspace through its tab: added line by line, saved as one."""

from __future__ import annotations

import pytest

from tests.console.conftest import ClientFor
from tests.console.world import GPU, World
from workloads.models import Configuration, Template, UsageEntry, Workload


def entry(world: World, index: int, **changes: object) -> dict[str, object]:
    """What one entry of the form sends."""
    values = {
        "quota": world.quotas["north"].pk,
        "name": f"entry {index}",
        "subject": "role:developer",
        "kinds": ["training"],
        "priority_low": "1",
        "priority_high": "9",
        **changes,
    }
    return {f"entry-{index}-{name}": value for name, value in values.items()}


def path_of(world: World) -> str:
    return f"/workspaces/{world.workspaces['b'].pk}/scheduling"


def test_entries_are_saved_as_one(world: World, client_for: ClientFor):
    sent = {
        "total": "2",
        "revision": "0",
        "do": "save",
        **entry(world, 0, cap_gpu_milli="4", cap_memory_mib="64GiB", max_runtime_s="8h"),
        **entry(world, 1, subject="user:viewer-b", max_priority="5", template_required="on"),
    }
    assert client_for("administrator-b").post(path_of(world), sent).status_code == 302
    first, second = UsageEntry.objects.order_by("id")
    assert (first.role, first.kinds, first.cap_gpu_milli, first.cap_memory_mib) == (
        "developer",
        ["training"],
        4 * GPU,
        65536,
    )
    assert first.max_runtime_s == 8 * 3600
    assert (second.user, second.max_priority, second.template_required) == (world.users["viewer-b"], 5, True)


def test_adding_a_line_keeps_what_was_typed_and_saves_nothing(world: World, client_for: ClientFor):
    sent = {
        "total": "1",
        "revision": "0",
        "do": f"add:{world.quotas['north'].pk}",
        **entry(world, 0, name="half typed"),
    }
    answer = client_for("administrator-b").post(path_of(world), sent)
    body = answer.content.decode()
    assert answer.status_code == 200
    assert 'value="half typed"' in body
    assert 'name="entry-1-name"' in body
    assert not UsageEntry.objects.exists()


def test_a_line_that_is_marked_goes_with_the_next_save(world: World, client_for: ClientFor):
    client = client_for("administrator-b")
    client.post(path_of(world), {"total": "2", "revision": "0", "do": "save", **entry(world, 0), **entry(world, 1)})
    revision = Configuration.objects.get().revision
    sent = {"total": "2", "revision": revision, "do": "save", **entry(world, 0, gone="on"), **entry(world, 1)}
    assert client.post(path_of(world), sent).status_code == 302
    assert [found.name for found in UsageEntry.objects.all()] == ["entry 1"]


@pytest.mark.parametrize(
    ("changes", "field", "words"),
    [
        ({"name": ""}, "name", "required"),
        ({"priority_low": "7", "priority_high": "2"}, "priority_low", "between 1 and 2"),
        ({"subject": "user:nobody"}, "subject", "Select a valid choice"),
        ({"cap_memory_mib": "plenty"}, "cap_memory_mib", "Write a size"),
        ({"max_runtime_s": "0"}, "max_runtime_s", "between 1 and"),
    ],
)
def test_wrong_entries_are_named_at_their_field(
    world: World, client_for: ClientFor, changes: dict[str, str], field: str, words: str
):
    sent = {"total": "2", "revision": "0", "do": "save", **entry(world, 0), **entry(world, 1, **changes)}
    answer = client_for("administrator-b").post(path_of(world), sent)
    body = answer.content.decode()
    assert (answer.status_code, words in body) == (422, True)
    assert f'href="#id_entry-1-{field}"' in body
    assert not UsageEntry.objects.exists()


def test_two_entries_of_one_name_are_refused_at_the_second(world: World, client_for: ClientFor):
    sent = {"total": "2", "revision": "0", "do": "save", **entry(world, 0, name="same"), **entry(world, 1, name="SAME")}
    answer = client_for("administrator-b").post(path_of(world), sent)
    assert answer.status_code == 422
    assert 'href="#id_entry-1-name"' in answer.content.decode()


def test_who_saves_later_is_told_and_keeps_what_was_typed(world: World, client_for: ClientFor):
    client = client_for("administrator-b")
    client.post(path_of(world), {"total": "1", "revision": "0", "do": "save", **entry(world, 0)})
    sent = {"total": "1", "revision": "0", "do": "save", **entry(world, 0, name="mine")}
    answer = client.post(path_of(world), sent)
    body = answer.content.decode()
    assert (answer.status_code, 'value="mine"' in body) == (409, True)
    assert f'name="revision" value="{Configuration.objects.get().revision}"' in body


@pytest.mark.parametrize(("person", "status"), [("viewer-b", 403), ("operator-b", 403), ("developer-c", 404)])
def test_only_who_manages_the_configuration_saves_it(world: World, client_for: ClientFor, person: str, status: int):
    sent = {"total": "1", "revision": "0", "do": "save", **entry(world, 0)}
    assert client_for(person).post(path_of(world), sent).status_code == status
    assert not UsageEntry.objects.exists()


def test_the_tester_gives_the_strictest_limit_and_the_entry_it_comes_from(world: World, client_for: ClientFor):
    client = client_for("administrator-b")
    lines = {**entry(world, 0, name="loose", cap_gpu_milli="8"), **entry(world, 1, name="tight", cap_gpu_milli="2")}
    client.post(path_of(world), {"total": "2", "revision": "0", "do": "save", **lines})
    body = client.get(f"{path_of(world)}?person=developer-b").content.decode()
    assert "<td>2</td><td>tight</td>" in body


def test_a_refusal_at_submission_names_the_entry(world: World, client_for: ClientFor):
    sent = {"total": "1", "revision": "0", "do": "save", **entry(world, 0, name="small jobs", cap_gpu_milli="1")}
    client_for("administrator-b").post(path_of(world), sent)
    place = f"{world.workspaces['b'].pk}:{world.quotas['north'].pk}"
    job = {"name": "big", "place": place, "visibility": "shared", "gpus": "2", "replicas": "1", "priority": "3"}
    answer = client_for("developer-b").post("/workloads/new/training", {**job, "idle": "never", "restart": "never"})
    assert answer.status_code == 422
    assert "small jobs" in answer.content.decode()


def test_templates_are_made_changed_used_and_removed(world: World, client_for: ClientFor):
    client, pk = client_for("administrator-b"), world.workspaces["b"].pk
    client.post(f"/workspaces/{pk}/templates/new", {"name": "half", "gpus": "0.5", "memory_mib": "16GiB"})
    template = Template.objects.get(name="half")
    assert (template.gpus, template.gpu_milli, template.memory_mib) == (1, 500, 16384)
    client.post(f"/workspaces/{pk}/templates/{template.pk}/edit", {"name": "half", "gpus": "0.25"})
    place = f"{pk}:{world.quotas['north'].pk}"
    job = {"name": "sized", "place": place, "visibility": "shared", "template": "half", "gpus": "1", "replicas": "1"}
    rest = {"priority": "3", "idle": "never", "restart": "never"}
    assert client_for("developer-b").post("/workloads/new/training", {**job, **rest}).status_code == 302
    assert Workload.objects.get(name="sized").gpu_milli == 250
    client.post(f"/workspaces/{pk}/templates/{template.pk}/delete")
    assert not Template.objects.exists()
