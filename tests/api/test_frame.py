"""What every call has in common: who calls, what is refused and how, pages, trial runs, repeated creations."""

from __future__ import annotations

import base64
import json
from typing import Any

import pytest
from django.db import OperationalError
from django.test import Client

from quotas.models import Cluster, IdempotencyKey, NodePool, Quota, Token, Workspace
from quotas.services import create_token
from quotas.specs import TokenSpec
from tests.api.world import ApiClient, World, give_token

# --- who calls --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("who", ["nobody", "revoked", "expired"])
def test_without_a_live_token_or_session_the_answer_is_401(world: World, who: str) -> None:
    answer = world.client(who).get("/me")
    assert answer.status_code == 401
    assert answer["WWW-Authenticate"] == 'Bearer realm="tidegate"'
    assert answer.json()["code"] == "not_authenticated"


@pytest.mark.parametrize("header", ["Bearer", "Bearer tg_00000000_short", "Bearer a b", "Bearer tg_" + "0" * 52])
def test_a_header_that_is_no_token_is_refused(world: World, header: str) -> None:
    assert ApiClient(None, Authorization=header).get("/me").status_code == 401


def test_a_token_is_refused_at_once_after_it_was_revoked(world: World) -> None:
    client = world.client("developer")
    assert client.get("/me").status_code == 200
    token = client.get("/tokens").json()["items"][0]
    assert client.delete(f"/tokens/{token['id']}").status_code == 204
    assert client.get("/me").status_code == 401


def test_the_token_of_a_closed_account_is_refused(world: World) -> None:
    world.people["developer"].is_active = False
    world.people["developer"].save()
    assert world.client("developer").get("/me").status_code == 401


def test_use_of_a_token_is_noted_once_a_minute(world: World) -> None:
    client = world.client("developer")
    client.get("/me")
    token = Token.objects.get(user=world.people["developer"])
    assert token.last_used_at is not None
    assert token.last_used_from == "127.0.0.1"
    client.get("/me")
    assert Token.objects.get(pk=token.pk).last_used_at == token.last_used_at


def test_what_one_person_may_read_stays_in_no_cache(world: World) -> None:
    assert world.client("developer").get("/me")["Cache-Control"] == "private, no-store"
    browser = Client()
    browser.force_login(world.people["developer"], backend="allauth.account.auth_backends.AuthenticationBackend")
    assert browser.get("/workloads")["Cache-Control"] == "private, no-store"


def test_a_session_needs_the_csrf_header_for_changes(world: World) -> None:
    browser = Client(enforce_csrf_checks=True)
    browser.force_login(world.people["platform"], backend="allauth.account.auth_backends.AuthenticationBackend")
    assert browser.get("/api/v1/me").status_code == 200
    body = {"name": "new"}
    assert browser.post("/api/v1/workspaces", body, content_type="application/json").status_code == 403
    browser.get("/accounts/login/")
    token = "t" * 32
    browser.cookies["tidegate_csrf"] = token
    sent = browser.post("/api/v1/workspaces", body, content_type="application/json", headers={"X-CSRFToken": token})
    assert sent.status_code == 201


# --- what is refused, and how -----------------------------------------------------------------------------------------


def test_a_problem_document_names_fields_codes_facts_and_the_request(world: World) -> None:
    answer = world.client("platform").post("/workspaces", {"name": "x" * 64}, headers={"X-Request-ID": "my-request-1"})
    assert answer.status_code == 422
    assert answer["Content-Type"] == "application/problem+json"
    body = answer.json()
    assert body["request_id"] == answer["X-Request-ID"] == "my-request-1"
    (problem,) = body["problems"]
    assert problem["field"] == "name"
    assert problem["code"] == "invalid"
    assert problem["facts"]["most"] == 63
    assert "63" in problem["message"]
    assert body["title"] == "Unprocessable Entity"
    assert body["status"] == 422


@pytest.mark.parametrize(
    ("raw", "status"),
    [
        (b"{", 400),
        (b"\xff", 400),
        (b'{"name": NaN}', 400),
        (b'{"name": "a\\u0000b"}', 400),
        (b'{"name": "\\ud800"}', 400),
        (b'{"name": 1e999}', 400),
        (b'{"name": "b", "name": "a"}', 400),
        (b"[" * 100_000, 400),
        (b"[]", 422),
        (b"null", 422),
        (b'{"name": "a", "colour": 1}', 422),
        (b'{"name": 5}', 422),
        (b'"' + b"x" * 2**21 + b'"', 413),
    ],
)
def test_a_body_that_cannot_be_taken_is_refused_with_a_problem(world: World, raw: bytes, status: int) -> None:
    client = world.client("platform")
    answer = client.client.post("/api/v1/workspaces", raw, content_type="application/json", headers=client.headers)
    assert answer.status_code == status, answer.content
    assert answer["Content-Type"] == "application/problem+json"
    assert not Workspace.objects.filter(name="a").exists()


def test_a_form_body_is_no_json(world: World) -> None:
    client = world.client("platform")
    assert client.client.post("/api/v1/workspaces", {"name": "a"}, headers=client.headers).status_code == 415


@pytest.mark.parametrize("path", ["/nothing", "/quotas/", "/quotas/x", "/quotas/999999999999999999999999"])
def test_an_address_that_is_not_there_answers_with_a_problem(world: World, path: str) -> None:
    answer = world.client("platform").get(path)
    assert answer.status_code == 404
    assert answer.json()["code"] == "not_found"


def test_a_fault_of_ours_is_a_problem_document_too(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("quotas.api.people.permissions_on", None)
    client = world.client("developer")
    client.client.raise_request_exception = False
    answer = client.get("/me")
    assert answer.status_code == 500
    assert answer["Content-Type"] == "application/problem+json"
    assert answer.json()["request_id"] == answer["X-Request-ID"]
    assert "NoneType" not in answer.content.decode()


def test_a_database_that_does_not_answer_is_told_from_a_fault(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    def away(*_args: object) -> None:
        raise OperationalError("connection refused by 10.0.0.7")

    monkeypatch.setattr("quotas.api.people.permissions_on", away)
    answer = world.client("developer").get("/me")
    assert (answer.status_code, answer.json()["code"]) == (503, "unavailable")
    assert "10.0.0.7" not in answer.content.decode()


def test_a_missing_right_is_named(world: World) -> None:
    answer = world.client("owner").post("/workspaces", {"name": "new"})
    assert answer.status_code == 403
    assert answer.json()["problems"][0]["facts"] == {"permission": "workspace.create"}


def test_too_many_requests_are_told_when_to_come_back(
    world: World, settings: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings.API_REQUESTS_PER_MINUTE = 2
    settings.CACHES = {"default": {"BACKEND": "django.core.cache.backends.locmem.LocMemCache"}}  # nobody else clears it
    monkeypatch.setattr("quotas.api.throttling.time.time", lambda: 1_800_000_010.0)
    client = world.client("developer")
    answers = [client.get("/me") for _ in range(3)]
    assert [answer.status_code for answer in answers] == [200, 200, 429]
    assert answers[-1]["Retry-After"] == "51"
    assert answers[-1].json()["code"] == "throttled"
    assert world.client("operator").get("/me").status_code == 200


# --- queries and pages ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("query", "field"),
    [
        ("limit=-1", "limit"),
        ("limit=0", "limit"),
        ("limit=many", "limit"),
        ("cursor=nonsense", "cursor"),
        ("ordering=password", "ordering"),
        ("colour=red", "colour"),
        ("cluster=0", "cluster"),
        ("cluster=99999999999999999999", "cluster"),
        ("name=%00", "name"),
    ],
)
def test_a_query_that_makes_no_sense_names_its_parameter(world: World, query: str, field: str) -> None:
    answer = world.client("platform").get(f"/quotas?{query}")
    assert answer.status_code == 422
    assert [problem["field"] for problem in answer.json()["problems"]] == [field]


@pytest.mark.parametrize(
    ("ordering", "held"),
    [
        ("name", '["\\ud800",1]'),
        ("name", '["\\u0000",1]'),
        ("submitted_at", '["0001-01-01T00:00:00+23:59",1]'),
        ("submitted_at", '["soon",1]'),
        ("priority", "[5,1]"),
    ],
)
def test_a_cursor_made_by_hand_is_refused(world: World, ordering: str, held: str) -> None:
    cursor = base64.urlsafe_b64encode(held.encode()).decode().rstrip("=")
    answer = world.client("developer").get(f"/workloads?ordering={ordering}&cursor={cursor}")
    assert answer.status_code == 422
    assert [problem["field"] for problem in answer.json()["problems"]] == ["cursor"]


@pytest.mark.parametrize("until", ["0001-01-01T00:00:00Z", "0001-06-01T00:00:00Z"])
def test_use_before_all_clocks_is_refused(world: World, until: str) -> None:
    answer = world.client("developer").get(f"/usage?until={until}")
    assert [problem["field"] for problem in answer.json()["problems"]] == ["until"]


@pytest.mark.parametrize("ordering", ["id", "-id", "name", "-name"])
def test_pages_show_each_row_once_in_either_order(world: World, ordering: str) -> None:
    Workspace.objects.bulk_create(Workspace(name=f"w{n % 5}{n}") for n in range(23))
    client, seen, cursor = world.client("platform"), [], None
    while True:
        tail = f"&cursor={cursor}" if cursor else ""
        page = client.get(f"/workspaces?limit=7&ordering={ordering}{tail}").json()
        assert len(page["items"]) <= 7
        seen += [item[ordering.lstrip("-")] for item in page["items"]]
        cursor = page["next"]
        if cursor is None:
            break
    assert len(seen) == 25
    assert seen == sorted(seen, reverse=ordering.startswith("-"))


def test_a_page_has_200_rows_at_most(world: World) -> None:
    Workspace.objects.bulk_create(Workspace(name=f"w{n:04}") for n in range(230))
    assert len(world.client("platform").get("/workspaces?limit=1000000000").json()["items"]) == 200


def test_a_list_as_csv_has_all_rows_and_no_formulas(world: World) -> None:
    Workspace.objects.bulk_create(Workspace(name=f"w{n:04}", description="=1+1") for n in range(230))
    for ask in ({"path": "/workspaces?format=csv"}, {"path": "/workspaces", "headers": {"Accept": "text/csv"}}):
        answer = world.client("platform").get(**ask)
        assert answer["Content-Type"] == "text/csv; charset=utf-8"
        lines = answer.content.decode().splitlines()
        assert lines[0].startswith("id,name,description,")
        assert len(lines) == 1 + 232
        assert "'=1+1" in lines[1] + lines[2] + lines[3]


# --- changes ----------------------------------------------------------------------------------------------------------


def test_a_trial_run_answers_like_a_real_call_and_keeps_nothing(world: World) -> None:
    answer = world.client("platform").post("/workspaces?dry_run=true", {"name": "new"})
    assert answer.status_code == 201
    assert answer["Dry-Run"] == "true"
    assert answer.json()["name"] == "new"
    assert not Workspace.objects.filter(name="new").exists()


def test_a_trial_run_refuses_like_a_real_call(world: World) -> None:
    assert world.client("platform").post("/workspaces?dry_run=true", {"name": "team-a"}).status_code == 422
    assert world.client("owner").post("/workspaces?dry_run=true", {"name": "new"}).status_code == 403


def test_the_same_creation_under_one_key_creates_once(world: World) -> None:
    client, headers = world.client("platform"), {"Idempotency-Key": "a-key-of-mine"}
    first = client.post("/workspaces", {"name": "new"}, headers=headers)
    second = client.post("/workspaces", {"name": "new"}, headers=headers)
    assert (first.status_code, second.status_code) == (201, 201)
    assert first.json() == second.json()
    assert second["Idempotency-Replayed"] == "true"
    assert Workspace.objects.filter(name="new").count() == 1


def test_another_creation_under_a_used_key_is_refused(world: World) -> None:
    client, headers = world.client("platform"), {"Idempotency-Key": "a-key-of-mine"}
    client.post("/workspaces", {"name": "new"}, headers=headers)
    answer = client.post("/workspaces", {"name": "other"}, headers=headers)
    assert answer.status_code == 422
    assert answer.json()["problems"][0]["field"] == "Idempotency-Key"
    assert not Workspace.objects.filter(name="other").exists()


def test_a_refused_creation_leaves_its_key_free(world: World) -> None:
    client, headers = world.client("platform"), {"Idempotency-Key": "a-key-of-mine"}
    assert client.post("/workspaces", {"name": "team-a"}, headers=headers).status_code == 422
    assert client.post("/workspaces", {"name": "new"}, headers=headers).status_code == 201


@pytest.mark.parametrize("key", ["", "with blank", "x" * 65])
def test_a_key_of_another_shape_is_refused(world: World, key: str) -> None:
    answer = world.client("platform").post("/workspaces", {"name": "new"}, headers={"Idempotency-Key": key})
    assert answer.status_code == 422


def test_the_secret_of_a_token_is_shown_once_and_never_kept(world: World) -> None:
    browser = Client()
    browser.force_login(world.people["developer"], backend="allauth.account.auth_backends.AuthenticationBackend")
    ask = {
        "path": "/api/v1/tokens",
        "data": {"name": "ci"},
        "content_type": "application/json",
        "headers": {"Idempotency-Key": "k"},
    }
    first, second = browser.post(**ask), browser.post(**ask)
    secret = first.json()["secret"]
    assert ApiClient(secret).get("/me").json()["username"] == "developer"
    assert second.json() == {**first.json(), "secret": None}
    assert secret not in json.dumps(list(IdempotencyKey.objects.values("answer")))
    assert secret not in browser.get("/api/v1/tokens").content.decode()


def test_a_change_based_on_an_old_revision_is_answered_with_412(world: World) -> None:
    client, path = world.client("platform"), f"/quotas/{world.quota.pk}"
    etag = client.get(path)["ETag"]
    assert etag == '"1"'
    changed = client.patch(path, {"description": "one"}, headers={"If-Match": etag})
    assert (changed.status_code, changed["ETag"]) == (200, '"2"')
    late = client.patch(path, {"description": "two"}, headers={"If-Match": etag})
    assert late.status_code == 412
    assert late.json()["code"] == "stale"
    assert Quota.objects.get(pk=world.quota.pk).description == "one"
    assert client.patch(path, {"description": "three"}, headers={"If-Match": "*"}).status_code == 200
    assert client.patch(path, {"description": "four"}, headers={"If-Match": "2"}).status_code == 422


def test_a_token_of_one_workspace_says_what_it_may_do(world: World) -> None:
    spec = TokenSpec(name="narrow", workspace=world.workspace, role="viewer")
    _token, secret = create_token(actor=world.people["owner"], spec=spec)
    me = ApiClient(secret).get("/me").json()
    (rights,) = me["workspaces"]
    assert rights["workspace"]["name"] == "team-a"
    assert "workload.read" in rights["permissions"]
    assert "member.manage" not in rights["permissions"]


def test_no_call_finds_what_belongs_to_others(world: World) -> None:
    give_token(world.people["outsider"])
    for path in ("/clusters", "/pools", "/quotas", "/workspaces", "/users", "/tokens", "/audit", "/nodes"):
        body = world.client("developer").get(path).content.decode()
        assert "lighthouse" not in body, path
        assert "77700000" not in body, path
    assert Cluster.objects.count() == NodePool.objects.count() == 1
