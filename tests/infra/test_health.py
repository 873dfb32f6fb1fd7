"""The two health addresses."""

import pytest
from django.test import Client
from pytest_django import Settings


@pytest.mark.django_db
def test_ready_when_database_and_redis_answer(client: Client) -> None:
    answer = client.get("/readyz")
    assert (answer.status_code, answer.json()) == (200, {"database": "ok", "redis": "ok"})


@pytest.mark.django_db
def test_not_ready_without_redis_and_says_so(client: Client, settings: Settings) -> None:
    settings.REDIS_URL = "unix:///nowhere/redis.sock"
    answer = client.get("/readyz")
    assert (answer.status_code, answer.json()) == (503, {"database": "ok", "redis": "no answer"})


def test_alive_asks_nobody(client: Client) -> None:
    answer = client.get("/healthz")
    assert (answer.status_code, answer.content) == (200, b"ok\n")


def test_pages_carry_a_strict_policy(client: Client) -> None:
    policy = dict(part.strip().split(" ", 1) for part in client.get("/healthz")["Content-Security-Policy"].split(";"))
    assert policy["default-src"] == "'none'"
    assert policy["script-src"] == policy["style-src"] == "'self'"
