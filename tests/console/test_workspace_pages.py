"""Workspaces, members and their roles through the pages."""

from __future__ import annotations

import pytest

from quotas.models import Member, Role, Workspace, WorkspaceQuota
from tests.console.conftest import ClientFor
from tests.console.world import World


def member(world: World, person: str, team: str = "b") -> Member:
    return Member.objects.get(workspace=world.workspaces[team], user=world.users[person])


def test_a_new_workspace_has_its_owner_and_quotas(world: World, client_for: ClientFor):
    sent = {"name": "team-d", "description": "new", "owner": "STRANGER", "quotas": [world.quotas["south"].pk]}
    assert client_for("platform").post("/workspaces/new", sent).status_code == 302
    workspace = Workspace.objects.get(name="team-d")
    assert Member.objects.get(workspace=workspace).roles == [Role.OWNER]
    assert Member.objects.get(workspace=workspace).user == world.users["stranger"]
    assert WorkspaceQuota.objects.get(workspace=workspace).quota == world.quotas["south"]


@pytest.mark.parametrize(
    ("changes", "field", "words"),
    [
        ({"name": ""}, "name", "required"),
        ({"name": "team-b"}, "name", "already taken"),
        ({"owner": "nobody"}, "owner", "no “nobody”"),
    ],
)
def test_wrong_workspaces_are_refused_at_the_field(
    world: World, client_for: ClientFor, changes: dict[str, str], field: str, words: str
):
    answer = client_for("platform").post(
        "/workspaces/new", {"name": "team-d", "description": "", "owner": "", **changes}
    )
    body = answer.content.decode()
    assert (answer.status_code, words in body, f'href="#id_{field}"' in body) == (422, True, True)


def test_members_are_added_with_several_roles_and_removed(world: World, client_for: ClientFor):
    client, workspace = client_for("administrator-b"), world.workspaces["b"]
    sent = {"user": "stranger", "roles": ["developer", "operator"]}
    assert client.post(f"/workspaces/{workspace.pk}/members/add", sent).status_code == 302
    added = member(world, "stranger")
    assert added.roles == [Role.OPERATOR, Role.DEVELOPER]
    assert client.post(f"/workspaces/{workspace.pk}/members/{added.pk}/roles", {"roles": ["viewer"]}).status_code == 302
    assert member(world, "stranger").roles == [Role.VIEWER]
    assert client.post(f"/workspaces/{workspace.pk}/members/{added.pk}/remove").status_code == 302
    assert not Member.objects.filter(pk=added.pk).exists()


@pytest.mark.parametrize(
    ("sent", "field", "words"),
    [
        ({"user": "nobody", "roles": ["viewer"]}, "user", "no “nobody”"),
        ({"user": "viewer-b", "roles": ["viewer"]}, "user", "already taken"),
        ({"user": "stranger", "roles": []}, "roles", "Choose at least one role"),
        ({"user": "stranger", "roles": ["owner"]}, "roles", "Select a valid choice"),
    ],
)
def test_wrong_members_are_refused_at_the_field(
    world: World, client_for: ClientFor, sent: dict[str, object], field: str, words: str
):
    answer = client_for("administrator-b").post(f"/workspaces/{world.workspaces['b'].pk}/members/add", sent)
    body = answer.content.decode()
    anchor = "field-roles" if field == "roles" else f"id_{field}"
    assert (answer.status_code, words in body, f'href="#{anchor}"' in body) == (422, True, True)


def test_the_owner_stays_until_the_workspace_is_handed_over(world: World, client_for: ClientFor):
    client, workspace, owner = client_for("owner-b"), world.workspaces["b"], member(world, "owner-b")
    refused = client.post(f"/workspaces/{workspace.pk}/members/{owner.pk}/remove")
    assert (refused.status_code, "hand the workspace over first" in refused.content.decode()) == (422, True)
    client.post(f"/workspaces/{workspace.pk}/hand-over", {"to": world.users["developer-b"].pk})
    assert member(world, "developer-b").roles == [Role.OWNER]
    assert member(world, "owner-b").roles == [Role.ADMINISTRATOR]


def test_anybody_but_the_owner_may_leave(world: World, client_for: ClientFor):
    viewer = member(world, "viewer-b")
    answer = client_for("viewer-b").post(f"/workspaces/{world.workspaces['b'].pk}/members/{viewer.pk}/remove")
    assert answer["Location"] == "/workspaces"
    assert not Member.objects.filter(pk=viewer.pk).exists()


def test_quotas_are_bound_made_default_and_unbound(world: World, client_for: ClientFor):
    client, pk = client_for("platform"), world.workspaces["b"].pk
    south = world.quotas["south"].pk
    client.post(f"/workspaces/{pk}/quotas/bind", {"quota": south, "default": "on"})
    assert WorkspaceQuota.objects.get(workspace_id=pk, is_default=True).quota_id == south
    client.post(f"/workspaces/{pk}/quotas/{world.quotas['north'].pk}/default")
    assert WorkspaceQuota.objects.get(workspace_id=pk, is_default=True).quota == world.quotas["north"]
    client.post(f"/workspaces/{pk}/quotas/{south}/unbind")
    assert not WorkspaceQuota.objects.filter(workspace_id=pk, quota_id=south).exists()


def test_settings_are_saved_and_a_stale_edit_is_told(world: World, client_for: ClientFor):
    client, workspace = client_for("administrator-b"), world.workspaces["b"]
    sent = {"name": "team-b", "description": "Renamed", "revision": workspace.revision}
    assert client.post(f"/workspaces/{workspace.pk}/edit", sent).status_code == 302
    workspace.refresh_from_db()
    assert workspace.description == "Renamed"
    assert client.post(f"/workspaces/{workspace.pk}/edit", sent).status_code == 409


def test_an_archived_workspace_can_be_opened_again(world: World, client_for: ClientFor):
    client, workspace = client_for("owner-b"), world.workspaces["b"]
    client.post(f"/workspaces/{workspace.pk}/archive", {"to": "archived"})
    workspace.refresh_from_db()
    assert workspace.archived_at is not None
    client.post(f"/workspaces/{workspace.pk}/archive", {"to": "open"})
    workspace.refresh_from_db()
    assert workspace.archived_at is None


def test_a_workspace_with_live_work_is_not_deleted_and_says_why(world: World, client_for: ClientFor):
    answer = client_for("owner-b").post(f"/workspaces/{world.workspaces['b'].pk}/delete")
    assert answer.status_code == 422
    assert "train-b" in answer.content.decode()
