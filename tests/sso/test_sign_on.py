"""Single sign-on against a real OpenID Connect provider that runs in a process of its own."""

from __future__ import annotations

import json
import re
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest
from django.conf import settings
from django.test import Client
from pytest_django.live_server_helper import LiveServer

from quotas.actors import SYSTEM
from quotas.errors import Denied, Refused
from quotas.models import AuditEvent, GroupRole, Member, Role, User, Workspace
from quotas.services.groups import follow_groups, map_group, unmap_group
from tests.sso.provider import PASSWORD

ROOT = Path(__file__).parents[2]
CLIENT, SECRET = "tidegate-tests", "a secret that only the tests know"
pytestmark = pytest.mark.django_db(transaction=True)


@dataclass
class Provider:
    """The running provider: its address, and who is in which group."""

    address: str
    folder: Path

    def put(self, **groups: list[str]) -> None:
        """Put people into groups; everybody has an address of their own."""
        people = {name: {"email": f"{name}@example.org", "groups": names} for name, names in groups.items()}
        (self.folder / "people.json").write_text(json.dumps(people), encoding="utf-8")


@pytest.fixture
def provider(tmp_path: Path, live_server: LiveServer, settings: Any) -> Iterator[Provider]:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    found = Provider(f"http://127.0.0.1:{port}/o", tmp_path)
    found.put(mira=[], omar=[], admin=[])
    redirect = f"{live_server.url}/accounts/oidc/sso/login/callback/"
    command = [sys.executable, "-m", "tests.sso.provider", str(tmp_path), str(port), CLIENT, SECRET, redirect]
    process = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        settings.OIDC_SERVER = found.address
        settings.SOCIALACCOUNT_PROVIDERS = _providers(found.address)
        yield found
    finally:
        process.kill()
        process.wait()


def _providers(address: str) -> dict[str, Any]:
    app = {
        "provider_id": "sso",
        "name": "Sign in with the tests",
        "client_id": CLIENT,
        "secret": SECRET,
        "settings": {"server_url": address},
    }
    return {"openid_connect": {**settings.SOCIALACCOUNT_PROVIDERS["openid_connect"], "APPS": [app]}}


SignIn = Callable[[str], httpx.Response]


@pytest.fixture
def sign_in(provider: Provider, live_server: LiveServer) -> SignIn:
    """Signs a person in as a browser does, and returns the page that they land on."""

    def go(name: str) -> httpx.Response:
        with httpx.Client(follow_redirects=True, timeout=20) as browser:
            page = browser.get(f"{live_server.url}/accounts/login/")
            door = browser.post(f"{live_server.url}/accounts/oidc/sso/login/", data=_form(page))
            assert str(door.url).startswith(provider.address.removesuffix("/o") + "/login/")
            return browser.post(str(door.url), data={**_form(door), "username": name, "password": PASSWORD})

    return go


def _form(page: httpx.Response) -> dict[str, str]:
    """What a browser sends along with the page's form."""
    key = re.search(r'name="csrfmiddlewaretoken" value="([^"]+)"', page.text)
    assert key is not None
    return {"csrfmiddlewaretoken": key[1]}


def a_workspace(name: str) -> Workspace:
    owner = User.objects.create_user(f"owner-of-{name}")
    workspace = Workspace.objects.create(name=name)
    Member.objects.create(workspace=workspace, user=owner, roles=[Role.OWNER])
    return workspace


def test_groups_give_roles_at_sign_in_and_take_them_back(provider: Provider, sign_in: SignIn) -> None:
    team = a_workspace("team-b")
    map_group(actor=SYSTEM, group="b", workspace=team, role="developer")
    map_group(actor=SYSTEM, group="b-leads", workspace=team, role="administrator")
    map_group(actor=SYSTEM, group="platform", platform_role="auditor")

    provider.put(mira=["b", "b-leads", "platform", "of no meaning here"])
    landed = sign_in("mira")
    mira = User.objects.get(username="mira")
    assert landed.status_code == 200
    assert "team-b" in landed.text or "Overview" in landed.text
    assert mira.email == "mira@example.org"
    assert not mira.has_usable_password()
    assert mira.platform_role == "auditor"
    assert Member.objects.get(user=mira).roles == ["administrator", "developer"]

    provider.put(mira=["b"])
    sign_in("mira")
    mira.refresh_from_db()
    assert mira.platform_role == ""
    assert Member.objects.get(user=mira).roles == ["developer"]

    provider.put(mira=[])
    sign_in("mira")
    assert not Member.objects.filter(user=mira).exists()
    verbs = list(AuditEvent.objects.filter(facts__user="mira").order_by("id").values_list("verb", flat=True))
    assert verbs == ["member.added", "member.roles_set", "member.removed"]
    assert AuditEvent.objects.filter(verb="session.opened", actor=mira).count() == 3


def test_a_name_that_a_local_account_has_is_refused(provider: Provider, sign_in: SignIn) -> None:
    User.objects.create_user("Admin", password="quite another pass phrase", platform_role="administrator")
    landed = sign_in("admin")
    assert landed.status_code == 403
    assert "belongs to another account" in landed.text
    assert User.objects.filter(username__iexact="admin").count() == 1
    assert not AuditEvent.objects.filter(verb="session.opened").exists()


def test_an_address_that_a_local_account_has_is_refused(provider: Provider, sign_in: SignIn) -> None:
    User.objects.create_user("somebody-else", email="Mira@example.org", password="quite another pass phrase")
    landed = sign_in("mira")
    assert landed.status_code == 403
    assert "mira@example.org" in landed.text
    assert not User.objects.filter(username="mira").exists()


@pytest.mark.parametrize("path", ["signup", "connections"])
def test_pages_that_nobody_needs_are_not_there(client: Client, path: str) -> None:
    client.force_login(User.objects.create_user("omar"))
    assert client.get(f"/accounts/sso/{path}/").status_code == 404


def test_a_closed_account_stays_closed(provider: Provider, sign_in: SignIn) -> None:
    team = a_workspace("team-b")
    map_group(actor=SYSTEM, group="b", workspace=team, role="developer")
    sign_in("omar")
    User.objects.filter(username="omar").update(is_active=False)
    provider.put(omar=["b"])
    sign_in("omar")
    assert not Member.objects.filter(user__username="omar").exists()
    assert AuditEvent.objects.filter(verb="session.opened", actor__username="omar").count() == 1


def test_roles_given_by_hand_are_not_touched() -> None:
    team, other = a_workspace("team-b"), a_workspace("team-c")
    nina = User.objects.create_user("nina", platform_role="auditor")
    Member.objects.create(workspace=team, user=nina, roles=["operator"])
    map_group(actor=SYSTEM, group="b", workspace=team, role="viewer")
    map_group(actor=SYSTEM, group="c", workspace=other, role="viewer")
    follow_groups(user=nina, groups=["b", "c"])
    follow_groups(user=nina, groups=[])
    nina.refresh_from_db()
    assert nina.platform_role == "auditor"
    assert list(nina.memberships.values_list("workspace__name", "roles")) == [("team-b", ["operator"])]


def test_a_mapping_that_is_removed_takes_its_role_along() -> None:
    team = a_workspace("team-b")
    mapped = map_group(actor=SYSTEM, group="b", workspace=team, role="viewer")
    omar = User.objects.create_user("omar")
    follow_groups(user=omar, groups=["b"])
    assert omar.memberships.count() == 1
    unmap_group(actor=SYSTEM, mapped=mapped)
    follow_groups(user=omar, groups=["b"])
    assert omar.memberships.count() == 0


@pytest.mark.parametrize(
    ("given", "field"),
    [
        ({"group": ""}, "group"),
        ({"group": "g" * 201}, "group"),
        ({"group": "g"}, "platform_role"),
        ({"group": "g", "platform_role": "king"}, "platform_role"),
        ({"group": "g", "workspace": True, "role": "owner"}, "role"),
        ({"group": "g", "workspace": True, "role": "developer", "platform_role": "auditor"}, "role"),
    ],
)
def test_a_wrong_mapping_names_the_field_and_changes_nothing(given: dict[str, Any], field: str) -> None:
    team = a_workspace("team-b")
    if given.pop("workspace", False):
        given["workspace"] = team
    with pytest.raises(Refused) as refused:
        map_group(actor=SYSTEM, **given)
    assert [problem.field for problem in refused.value.problems] == [field]
    assert not GroupRole.objects.exists()


def test_only_who_manages_people_maps_groups() -> None:
    team = a_workspace("team-b")
    with pytest.raises(Denied):
        map_group(actor=User.objects.get(username="owner-of-team-b"), group="b", workspace=team, role="viewer")
