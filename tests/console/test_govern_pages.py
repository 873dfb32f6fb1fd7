"""Own roles, invitations and requests for more quota through the pages."""

from __future__ import annotations

import re
from datetime import timedelta

import pytest
from django.core import mail
from django.test import Client

from quotas.models import CustomRole, Invitation, Member, QuotaAmount, QuotaRequest, User
from tests.console.conftest import ClientFor
from tests.console.world import GPU, World

LEVELS = {"training": "own", "notebooks": "none", "services": "none", "queue": "read", "members": "none"}


def test_a_role_of_ones_own_is_made_given_and_removed(world: World, client_for: ClientFor):
    client, pk = client_for("administrator-b"), world.workspaces["b"].pk
    sent = {"name": "intern", **LEVELS, "configuration": "none", "quotas": "read"}
    assert client.post(f"/workspaces/{pk}/roles/new", sent).status_code == 302
    role = CustomRole.objects.get()
    assert (role.name, role.levels["training"], role.levels["services"]) == ("intern", "own", "none")
    client.post(f"/workspaces/{pk}/members/add", {"user": "stranger", "roles": [f"custom:{role.pk}"]})
    assert Member.objects.get(user=world.users["stranger"]).custom_roles == [role.pk]
    assert "intern" in client.get(f"/workspaces/{pk}/members").content.decode()
    wrong = client.post(f"/workspaces/{pk}/roles/new", {**sent, "name": "INTERN"})
    assert (wrong.status_code, "already taken" in wrong.content.decode()) == (422, True)


@pytest.mark.django_db(transaction=True)
def test_an_invitation_leads_to_an_account_and_into_the_workspace(world: World, client_for: ClientFor):
    client, pk = client_for("administrator-b"), world.workspaces["b"].pk
    sent = {"email": "new@team-b.example", "roles": ["developer"]}
    assert client.post(f"/workspaces/{pk}/members/invite", sent).status_code == 302
    found = re.search(r"/invitations/\S+", str(mail.outbox[0].body))
    assert found is not None
    door = Client()
    assert "team-b" in door.get(found[0]).content.decode()
    weak = door.post(found[0], {"username": "newcomer", "password": "12345"})
    assert (weak.status_code, "too short" in weak.content.decode()) == (422, True)
    assert door.post(found[0], {"username": "newcomer", "password": "tides come and go"}).status_code == 302
    assert Member.objects.get(user=User.objects.get(username="newcomer")).roles == ["developer"]
    assert door.get(found[0]).status_code == 404


def test_an_invitation_can_be_made_void(world: World, client_for: ClientFor):
    client, pk = client_for("administrator-b"), world.workspaces["b"].pk
    client.post(f"/workspaces/{pk}/members/invite", {"email": "new@team-b.example", "roles": ["viewer"]})
    invitation = Invitation.objects.get()
    client.post(f"/workspaces/{pk}/invitations/{invitation.pk}/revoke")
    invitation.refresh_from_db()
    assert invitation.revoked_at is not None


def ask(world: World, client: Client, **changes: object) -> QuotaRequest | None:
    until = (world.cluster.now() + timedelta(days=2)).strftime("%Y-%m-%dT%H:%M")
    sent = {"quota": world.quotas["north"].pk, "more_gpu_milli": "4", "until": until, "reason": "a deadline", **changes}
    client.post(f"/workspaces/{world.workspaces['b'].pk}/requests/new", sent)
    return QuotaRequest.objects.first()


def test_more_quota_is_asked_for_and_given(world: World, client_for: ClientFor):
    QuotaAmount.objects.filter(quota=world.quotas["south"]).update(guaranteed_gpu_milli=10 * GPU)
    asked = ask(world, client_for("administrator-b"))
    assert asked is not None
    assert (asked.more_gpu_milli, asked.state) == (4 * GPU, "open")
    assert client_for("platform").post(f"/requests/{asked.pk}/approve", {"answer": "until Friday"}).status_code == 302
    asked.refresh_from_db()
    assert (asked.state, asked.answer) == ("approved", "until Friday")
    assert QuotaAmount.objects.get(quota=world.quotas["north"]).guaranteed_gpu_milli == 16 * GPU


def test_a_request_that_does_not_fit_is_refused_with_the_numbers(world: World, client_for: ClientFor):
    asked = ask(world, client_for("administrator-b"))
    assert asked is not None
    answer = client_for("platform").post(f"/requests/{asked.pk}/approve", {"answer": ""})
    assert (answer.status_code, "4 GPUs are missing" in answer.content.decode()) == (422, True)


@pytest.mark.parametrize(
    ("changes", "field"), [({"more_gpu_milli": ""}, "more_gpu_milli"), ({"until": "2001-01-01T00:00"}, "until")]
)
def test_wrong_requests_are_named_at_their_field(
    world: World, client_for: ClientFor, changes: dict[str, str], field: str
):
    client = client_for("administrator-b")
    until = (world.cluster.now() + timedelta(days=2)).strftime("%Y-%m-%dT%H:%M")
    sent = {"quota": world.quotas["north"].pk, "more_gpu_milli": "4", "until": until, **changes}
    answer = client.post(f"/workspaces/{world.workspaces['b'].pk}/requests/new", sent)
    assert (answer.status_code, f'href="#id_{field}"' in answer.content.decode()) == (422, True)
    assert not QuotaRequest.objects.exists()


@pytest.mark.parametrize(("person", "status"), [("administrator-b", 403), ("administrator-c", 404), ("auditor", 403)])
def test_only_the_platform_decides(world: World, client_for: ClientFor, person: str, status: int):
    asked = ask(world, client_for("administrator-b"))
    assert asked is not None
    assert client_for(person).post(f"/requests/{asked.pk}/approve", {"answer": ""}).status_code == status


def test_the_role_table_shows_what_one_may_do_where(world: World, client_for: ClientFor):
    body = client_for("developer-b").get("/roles").content.decode()
    assert "What you may do, by workspace" in body
    assert "team-b" in body
    assert "team-c" not in body


def test_a_role_that_reads_neither_members_nor_configuration_is_told_of_neither(world: World, client_for: ClientFor):
    team, north = world.workspaces["b"], world.quotas["north"]
    role = CustomRole.objects.create(workspace=team, name="trainer", levels={"training": "own"})
    Member.objects.create(workspace=team, user=world.users["stranger"], roles=[], custom_roles=[role.pk])
    QuotaRequest.objects.create(
        workspace=team,
        quota=north,
        pool=world.pool,
        more_gpu_milli=GPU,
        until=world.now + timedelta(days=1),
        reason="a deadline",
    )
    client = client_for("stranger")
    workspaces = client.get("/workspaces").content.decode()
    assert team.name in workspaces
    assert Member.objects.get(workspace=team, roles=["owner"]).user.get_username() not in workspaces
    assert "a deadline" not in client.get("/requests").content.decode()
    assert "a deadline" in client_for("viewer-b").get("/requests").content.decode()
