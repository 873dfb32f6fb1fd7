"""Sign-ins, sign-outs and refused changes are in the audit, without what nobody should read there."""

from __future__ import annotations

import pytest
from django.test import Client
from django.urls import reverse

from quotas.models import AuditEvent, User

pytestmark = pytest.mark.django_db


@pytest.fixture
def person() -> User:
    return User.objects.create_user("bob", "bob@example.org", "a-long-and-odd-one")


def last() -> AuditEvent:
    found = AuditEvent.objects.order_by("-id").first()
    assert found is not None
    return found


def sign_in(client: Client, name: str, password: str) -> None:
    client.post(reverse("account_login"), {"login": name, "password": password})


def test_signing_in_and_out_is_recorded(client: Client, person: User) -> None:
    sign_in(client, "bob", "a-long-and-odd-one")
    assert (last().verb, last().actor, last().door, last().address) == (
        "session.opened",
        person,
        "console",
        "127.0.0.1",
    )
    client.post(reverse("account_logout"))
    assert (last().verb, last().actor) == ("session.closed", person)


def test_a_failed_sign_in_names_an_account_only_if_there_is_one(client: Client, person: User) -> None:
    sign_in(client, "bob", "wrong")
    assert (last().verb, last().result, last().object_name) == ("session.refused", "refused", "bob")
    sign_in(client, "a-long-and-odd-one", "bob")
    assert (last().verb, last().object_name) == ("session.refused", "")
    assert "a-long-and-odd-one" not in str(list(AuditEvent.objects.values()))


def test_a_refused_change_is_recorded_and_a_refused_read_is_not(client: Client, person: User) -> None:
    client.force_login(person)
    client.get("/api/v1/workspaces/1")
    before = AuditEvent.objects.count()
    answer = client.post("/api/v1/workspaces", {"name": "mine"}, content_type="application/json")
    assert answer.status_code == 403
    assert AuditEvent.objects.count() == before + 1
    assert (last().result, last().actor, last().facts["status"]) == ("refused", person, 403)


def test_a_new_password_is_recorded_without_it(client: Client, person: User) -> None:
    sign_in(client, "bob", "a-long-and-odd-one")
    new = "another-odd-and-long-one"
    client.post(
        reverse("account_change_password"), {"oldpassword": "a-long-and-odd-one", "password1": new, "password2": new}
    )
    person.refresh_from_db()
    assert person.check_password(new)
    assert (last().verb, last().actor, last().door) == ("user.password_set", person, "console")
    assert new not in str(list(AuditEvent.objects.values()))


def test_nobody_gives_themselves_an_address(client: Client, person: User) -> None:
    client.force_login(person)
    for sent in ({"action_add": ""}, {"action_primary": ""}):
        assert client.post(reverse("account_email"), {**sent, "email": "alice@example.org"}).status_code == 404
    person.refresh_from_db()
    assert person.email == "bob@example.org"
