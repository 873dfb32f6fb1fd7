"""The live stream tells each reader what concerns the page, and nothing of others."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing

import httpx
import pytest
from django.test import Client, RequestFactory

from console.live import Reader, granted_topics, plurals_for
from quotas.models import User
from scheduler.triggers import signal
from tests.console.conftest import Served
from tests.console.world import PASSWORD, World, make_world


@pytest.fixture
def world(transactional_db: None) -> World:
    """Committed, because the stream's questions go over a connection of their own."""
    return make_world()


@pytest.mark.parametrize(
    ("person", "seen"), [("viewer-b", {"train-b"}), ("operator-c", {"train-c"}), ("auditor", {"train-b", "train-c"})]
)
def test_only_topics_of_visible_things_are_granted(world: World, person: str, seen: set[str]):
    wanted = {f"workload.{world.workloads[name].pk}" for name in ("train-b", "train-c")}
    expected = {f"workload.{world.workloads[name].pk}" for name in seen}
    assert granted_topics(world.users[person], wanted) == expected


def test_topics_that_name_nothing_are_everybodys(world: World):
    odd = {"quotas", "made.up", "workload.x", "workload.²", f"workload.{'9' * 5000}"}
    assert granted_topics(world.users["stranger"], {"queue", "overview", *odd}) == {"queue", "overview"}


def test_a_list_hears_only_of_what_it_shows(world: World):
    theirs = [
        f"workload.{world.workloads['train-c'].pk}",
        f"node.{world.nodes[0].pk}",
        f"quota.{world.quotas['south'].pk}",
    ]
    assert plurals_for(world.users["viewer-b"], theirs) == set()
    assert plurals_for(world.users["platform"], theirs) == {"workloads", "nodes", "quotas"}


def session_of(served: Served, person: str) -> httpx.Client:
    """A client that has signed in through the login form."""
    client = httpx.Client(base_url=served.address, timeout=20, follow_redirects=True)
    form = client.get("/accounts/login/").text
    token = re.search(r'name="csrfmiddlewaretoken" value="([^"]+)"', form)
    assert token is not None
    client.post("/accounts/login/", data={"login": person, "password": PASSWORD, "csrfmiddlewaretoken": token[1]})
    return client


def told(lines: Iterator[str]) -> str:
    """The topics of the next message that is no beat."""
    kind = ""
    for line in lines:
        if line.startswith("event:"):
            kind = line
        elif line.startswith("data:") and kind == "":
            return line.removeprefix("data:").strip()
        elif not line:
            kind = ""
    raise AssertionError("the stream ended")


def test_a_stream_carries_ones_own_and_nothing_of_others(served: Served):
    own, foreign = (served.world.workloads[name].pk for name in ("train-b", "chat"))
    with closing(session_of(served, "viewer-b")) as client:
        topics = f"workload.{own},workload.{foreign},workloads"
        with client.stream("GET", "/events", params={"topics": topics}) as stream:
            lines = stream.iter_lines()
            assert told(lines) == "*"  # the subscription stands
            signal(f"workload.{foreign}", "workloads")
            signal(f"workload.{own}")
            assert set(told(lines).split()) == {f"workload.{own}", "workloads"}


def test_nobody_in_particular_gets_no_stream(served: Served):
    assert httpx.get(f"{served.address}/events", timeout=20).status_code == 401


def welcome(reader: Reader) -> bool:
    """The answer from a thread of its own: a browser test of the same process may have left its loop running here."""
    with ThreadPoolExecutor(max_workers=1) as pool:
        return pool.submit(asyncio.run, reader.is_welcome()).result()


def test_a_closed_account_is_welcome_no_more(world: World):
    client = Client()
    client.force_login(world.users["viewer-b"])
    request = RequestFactory().get("/events")
    request.session = client.session
    reader = Reader(request, frozenset())
    assert welcome(reader) is True
    User.objects.filter(username="viewer-b").update(is_active=False)
    reader.checked_at = float("-inf")
    assert welcome(reader) is False
