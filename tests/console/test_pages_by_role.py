"""Each page as each sort of person: what is not theirs to see does not exist, what is not theirs to do is named."""

from __future__ import annotations

import pytest

from tests.console.conftest import ClientFor
from tests.console.world import World

PEOPLE = ("", "stranger", "viewer-b", "developer-b", "operator-b", "administrator-b", "auditor", "platform")
LOGIN, OK, FORBIDDEN, MISSING = 302, 200, 403, 404

# page: status for nobody, stranger, viewer B, developer B, operator B, administrator B, auditor, platform administrator
TABLE: dict[str, tuple[int, ...]] = {
    "/": (LOGIN, OK, OK, OK, OK, OK, OK, OK),
    "/usage": (LOGIN, MISSING, OK, OK, OK, OK, OK, OK),
    "/usage.json": (LOGIN, MISSING, OK, OK, OK, OK, OK, OK),
    "/quotas": (LOGIN, OK, OK, OK, OK, OK, OK, OK),
    "/quotas/new": (LOGIN, FORBIDDEN, FORBIDDEN, FORBIDDEN, FORBIDDEN, FORBIDDEN, FORBIDDEN, OK),
    "/quotas/rebalance": (LOGIN, MISSING, FORBIDDEN, FORBIDDEN, FORBIDDEN, FORBIDDEN, FORBIDDEN, OK),
    "/quotas/{north}": (LOGIN, MISSING, OK, OK, OK, OK, OK, OK),
    "/quotas/{north}/children": (LOGIN, MISSING, OK, OK, OK, OK, OK, OK),
    "/quotas/{north}/workloads": (LOGIN, MISSING, OK, OK, OK, OK, OK, OK),
    "/quotas/{north}/usage": (LOGIN, MISSING, OK, OK, OK, OK, OK, OK),
    "/quotas/{north}/usage.json": (LOGIN, MISSING, OK, OK, OK, OK, OK, OK),
    "/quotas/{north}/workspaces": (LOGIN, MISSING, OK, OK, OK, OK, OK, OK),
    "/quotas/{north}/policy": (LOGIN, MISSING, OK, OK, OK, OK, OK, OK),
    "/quotas/{north}/history": (LOGIN, MISSING, OK, OK, OK, OK, OK, OK),
    "/quotas/{north}/edit": (LOGIN, MISSING, FORBIDDEN, FORBIDDEN, FORBIDDEN, FORBIDDEN, FORBIDDEN, OK),
    "/quotas/{north}/scale": (LOGIN, MISSING, FORBIDDEN, FORBIDDEN, FORBIDDEN, FORBIDDEN, FORBIDDEN, OK),
    "/quotas/{north}/move": (LOGIN, MISSING, FORBIDDEN, FORBIDDEN, FORBIDDEN, FORBIDDEN, FORBIDDEN, OK),
    "/quotas/{north}/delete": (LOGIN, MISSING, FORBIDDEN, FORBIDDEN, FORBIDDEN, FORBIDDEN, FORBIDDEN, OK),
    "/quotas/{south}": (LOGIN, MISSING, MISSING, MISSING, MISSING, MISSING, OK, OK),
    "/quotas/{south}/scale": (LOGIN, MISSING, MISSING, MISSING, MISSING, MISSING, FORBIDDEN, OK),
    "/quotas/{root}": (LOGIN, MISSING, MISSING, MISSING, MISSING, MISSING, OK, OK),
    "/workspaces": (LOGIN, OK, OK, OK, OK, OK, OK, OK),
    "/workspaces/new": (LOGIN, FORBIDDEN, FORBIDDEN, FORBIDDEN, FORBIDDEN, FORBIDDEN, FORBIDDEN, OK),
    "/workspaces/{b}": (LOGIN, MISSING, OK, OK, OK, OK, OK, OK),
    "/workspaces/{b}/members": (LOGIN, MISSING, OK, OK, OK, OK, OK, OK),
    "/workspaces/{b}/quotas": (LOGIN, MISSING, OK, OK, OK, OK, OK, OK),
    "/workspaces/{b}/scheduling": (LOGIN, MISSING, OK, OK, OK, OK, OK, OK),
    "/workspaces/{b}/templates/new": (LOGIN, MISSING, FORBIDDEN, FORBIDDEN, FORBIDDEN, OK, FORBIDDEN, OK),
    "/workspaces/{b}/settings": (LOGIN, MISSING, OK, OK, OK, OK, OK, OK),
    "/workspaces/{b}/edit": (LOGIN, MISSING, FORBIDDEN, FORBIDDEN, FORBIDDEN, OK, FORBIDDEN, OK),
    "/workspaces/{b}/members/add": (LOGIN, MISSING, FORBIDDEN, FORBIDDEN, FORBIDDEN, OK, FORBIDDEN, OK),
    "/workspaces/{b}/members/{viewer}/roles": (LOGIN, MISSING, FORBIDDEN, FORBIDDEN, FORBIDDEN, OK, FORBIDDEN, OK),
    "/workspaces/{b}/hand-over": (LOGIN, MISSING, FORBIDDEN, FORBIDDEN, FORBIDDEN, FORBIDDEN, FORBIDDEN, OK),
    "/workspaces/{b}/quotas/bind": (LOGIN, MISSING, FORBIDDEN, FORBIDDEN, FORBIDDEN, FORBIDDEN, FORBIDDEN, OK),
    "/workspaces/{c}": (LOGIN, MISSING, MISSING, MISSING, MISSING, MISSING, OK, OK),
    "/workspaces/{c}/scheduling": (LOGIN, MISSING, MISSING, MISSING, MISSING, MISSING, OK, OK),
    "/workspaces/{c}/members": (LOGIN, MISSING, MISSING, MISSING, MISSING, MISSING, OK, OK),
    "/workloads": (LOGIN, OK, OK, OK, OK, OK, OK, OK),
    "/workloads/new": (LOGIN, OK, OK, OK, OK, OK, OK, OK),
    "/workloads/new/service": (LOGIN, OK, OK, OK, OK, OK, OK, OK),
    "/workloads/{train_b}": (LOGIN, MISSING, OK, OK, OK, OK, OK, OK),
    "/workloads/{train_c}": (LOGIN, MISSING, MISSING, MISSING, MISSING, MISSING, OK, OK),
    "/workloads/{chat}": (LOGIN, MISSING, MISSING, MISSING, MISSING, MISSING, OK, OK),
    "/workloads/{chat}/rules/new": (LOGIN, MISSING, MISSING, MISSING, MISSING, MISSING, FORBIDDEN, OK),
    "/queue": (LOGIN, OK, OK, OK, OK, OK, OK, OK),
    "/rules": (LOGIN, OK, OK, OK, OK, OK, OK, OK),
    "/nodes": (LOGIN, FORBIDDEN, FORBIDDEN, FORBIDDEN, FORBIDDEN, FORBIDDEN, OK, OK),
    "/nodes/{node}": (LOGIN, MISSING, MISSING, MISSING, MISSING, MISSING, OK, OK),
    "/nodes/{node}/labels": (LOGIN, MISSING, MISSING, MISSING, MISSING, MISSING, FORBIDDEN, OK),
    "/nodes/new": (LOGIN, FORBIDDEN, FORBIDDEN, FORBIDDEN, FORBIDDEN, FORBIDDEN, FORBIDDEN, OK),
    "/pools": (LOGIN, FORBIDDEN, FORBIDDEN, FORBIDDEN, FORBIDDEN, FORBIDDEN, OK, OK),
    "/nodes/{node}/drain": (LOGIN, MISSING, MISSING, MISSING, MISSING, MISSING, FORBIDDEN, OK),
    "/requests": (LOGIN, OK, OK, OK, OK, OK, OK, OK),
    "/workspaces/{b}/requests/new": (LOGIN, MISSING, FORBIDDEN, FORBIDDEN, FORBIDDEN, OK, FORBIDDEN, OK),
    "/workspaces/{b}/roles/new": (LOGIN, MISSING, FORBIDDEN, FORBIDDEN, FORBIDDEN, OK, FORBIDDEN, OK),
    "/workspaces/{b}/members/invite": (LOGIN, MISSING, FORBIDDEN, FORBIDDEN, FORBIDDEN, OK, FORBIDDEN, OK),
    "/invitations/made-up": (MISSING,) * 8,
    "/roles": (LOGIN, OK, OK, OK, OK, OK, OK, OK),
    "/search?q=n": (LOGIN, OK, OK, OK, OK, OK, OK, OK),
    "/profile": (LOGIN, OK, OK, OK, OK, OK, OK, OK),
    "/tokens": (LOGIN, OK, OK, OK, OK, OK, OK, OK),
    "/audit": (LOGIN, OK, OK, OK, OK, OK, OK, OK),
}
FOREIGN_TO_B = (
    "south",
    "train-c",
    "notes-c",
    "held-c",
    "team-c",
    "developer-c",
    ">chat<",
    "team-a",
    "developer-a",
    ">root<",
)


def numbers_of(world: World) -> dict[str, int]:
    viewer = world.workspaces["b"].members.get(user=world.users["viewer-b"])
    return {
        **{name: quota.pk for name, quota in world.quotas.items()},
        **{name: workspace.pk for name, workspace in world.workspaces.items()},
        **{name.replace("-", "_"): workload.pk for name, workload in world.workloads.items()},
        "node": world.nodes[0].pk,
        "viewer": viewer.pk,
    }


@pytest.mark.parametrize("column", range(len(PEOPLE)), ids=[name or "nobody" for name in PEOPLE])
def test_every_page_answers_each_person_as_the_table_says(world: World, client_for: ClientFor, column: int):
    client = client_for(PEOPLE[column])
    numbers = numbers_of(world)
    got = {page: client.get(page.format(**numbers)).status_code for page in TABLE}
    assert got == {page: row[column] for page, row in TABLE.items()}


@pytest.mark.parametrize("person", ["viewer-b", "developer-b", "administrator-b", "stranger"])
def test_nothing_of_other_teams_is_on_any_page(world: World, client_for: ClientFor, person: str):
    client = client_for(person)
    numbers = numbers_of(world)
    for page in TABLE:
        body = client.get(page.format(**numbers)).content.decode()
        assert [name for name in FOREIGN_TO_B if name in body] == [], page


@pytest.mark.parametrize(
    ("path", "person", "status"),
    [
        ("/quotas/{north}/switch/child_preemption", "administrator-b", 403),
        ("/quotas/{north}/queue-policy", "operator-b", 403),
        ("/quotas/{south}/switch/child_preemption", "administrator-b", 404),
        ("/workloads/{train_b}/do/stop", "viewer-b", 403),
        ("/workloads/{train_c}/do/stop", "operator-b", 404),
        ("/workloads/{chat}/do/scale", "viewer-a", 403),
        ("/workspaces/{b}/archive", "administrator-b", 403),
        ("/workspaces/{b}/members/{viewer}/remove", "developer-b", 403),
        ("/queue/{wide_b}/move", "developer-b", 403),
        ("/nodes/{node}/cordon", "operator-b", 404),
        ("/nodes/{node}/cordon", "auditor", 403),
        ("/quotas/{north}/fold", "stranger", 404),
    ],
)
def test_a_change_is_refused_to_who_may_not_make_it(
    world: World, client_for: ClientFor, path: str, person: str, status: int
):
    answer = client_for(person).post(
        path.format(**numbers_of(world)), {"to": "up", "replicas": "1", "queue_policy": "fifo"}
    )
    assert answer.status_code == status


def test_a_refusal_for_want_of_a_right_names_the_permission(world: World, client_for: ClientFor):
    answer = client_for("administrator-b").get(f"/quotas/{world.quotas['north'].pk}/scale")
    assert "quota.scale" in answer.content.decode()


def test_a_page_asks_a_fixed_number_of_queries(world: World, client_for: ClientFor, django_assert_max_num_queries):
    client = client_for("platform")
    for page, most in (
        ("/", 34),
        ("/quotas", 22),
        ("/workloads", 22),
        ("/queue", 22),
        ("/nodes", 28),
        ("/workspaces", 18),
    ):
        with django_assert_max_num_queries(most):
            client.get(page)
