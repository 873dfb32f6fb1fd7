"""The stream of changes: what it tells to whom, and when it ends."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest
from asgiref.sync import sync_to_async
from django.core.cache import cache
from django.test import AsyncClient

from console.api import watch
from console.api.watch import Watcher
from quotas.models import Token
from scheduler.triggers import signal
from tests.api.world import World, give_workload, make_world
from workloads.models import State, Workload
from workloads.services import hold_workload

WAIT_S = 10


def watcher(world: World, who: str, *kinds: str) -> Watcher:
    """A stream of somebody with a token, as after its first message."""
    live = Token.objects.filter(workspace=None, revoked_at=None, expires_at=None)
    token = live.select_related("user").get(user=world.people[who])
    found = Watcher(request=None, token=token, kinds=list(kinds or watch.KINDS))  # type: ignore[arg-type]
    found.begin()
    return found


def test_a_change_is_told_with_the_object_as_it_is_now(world: World) -> None:
    stream, pk = watcher(world, "developer"), world.ids["workload"]
    Workload.objects.filter(pk=pk).update(held=True, revision=2)
    ((event, data),) = stream.news({f"workload.{pk}", "queue"})
    assert event == "workload"
    assert (data["id"], data["held"], data["revision"]) == (pk, True, 2)


def test_new_work_is_told_when_only_the_list_was_signalled(world: World) -> None:
    stream = watcher(world, "viewer", "workload")
    new = give_workload(world, "new", "developer")
    assert [(event, data["id"]) for event, data in stream.news({"workloads"})] == [("workload", new.pk)]
    assert stream.news({"workloads"}) == []


def test_what_belongs_to_others_is_never_told(world: World) -> None:
    stream = watcher(world, "viewer")
    foreign, private = world.ids["foreign_workload"], world.ids["private"]
    Workload.objects.filter(pk__in=[foreign, private]).update(revision=2)
    topics = {f"workload.{foreign}", f"workload.{private}", f"quota.{world.foreign_quota.pk}", "workloads", "quotas"}
    assert stream.news(topics | {f"workspace.{world.foreign_workspace.pk}", f"node.{world.node.pk}"}) == []


def test_what_is_gone_or_out_of_sight_is_told_once(world: World) -> None:
    stream, pk = watcher(world, "viewer", "workload"), world.ids["workload"]
    Workload.objects.filter(pk=pk).update(visibility="private", revision=2)
    assert stream.news({f"workload.{pk}"}) == [("workload.gone", {"id": pk})]
    assert stream.news({f"workload.{pk}"}) == []


def test_a_finished_workload_is_told_once_more(world: World) -> None:
    stream, pk = watcher(world, "viewer", "workload"), world.ids["workload"]
    Workload.objects.filter(pk=pk).update(state=State.SUCCEEDED, revision=2)
    ((event, data),) = stream.news({"workloads"})
    assert (event, data["state"]) == ("workload", "succeeded")


def test_too_many_changes_ask_for_a_new_list(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watch, "MOST_CHANGES", 1)
    stream = watcher(world, "platform", "workload")
    Workload.objects.update(revision=2)
    assert stream.news({"workloads"}) == [("workload.resync", {})]
    assert stream.news({"workloads"}) == []


def test_a_stream_is_not_welcome_once_its_token_is_revoked(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    stream = watcher(world, "developer")
    assert watch.RIGHTS_LAST_S + 10 < 60, "rights are asked again soon enough, heartbeats included"
    Token.objects.update(revoked_at="2026-01-01T00:00:00Z")
    assert stream.is_welcome(), "the answer is kept for a while"
    stream.checked_at -= watch.RIGHTS_LAST_S
    assert not stream.is_welcome()


@pytest.mark.django_db(transaction=True)
def test_the_stream_speaks_server_sent_events_and_ends_with_the_token(monkeypatch: pytest.MonkeyPatch) -> None:
    cache.clear()
    monkeypatch.setattr(watch, "RIGHTS_LAST_S", 0.0)
    world = make_world()
    asyncio.run(listen(world))


async def listen(world: World) -> None:
    headers = {"Authorization": f"Bearer {world.tokens['developer']}", "Accept": "text/event-stream"}
    answer: Any = await AsyncClient().get("/api/v1/watch?kind=workload", headers=headers)
    assert answer["Content-Type"] == "text/event-stream"
    stream = aiter(answer.streaming_content)
    assert "event: open" in await until(stream, "open")
    workload = await Workload.objects.aget(pk=world.ids["workload"])
    await asyncio.sleep(0.2)
    await sync_to_async(hold_workload)(actor=world.people["developer"], workload=workload)
    told = await until(stream, "event: workload")
    assert '"held": true' in told
    await Token.objects.aupdate(revoked_at="2026-01-01T00:00:00Z")
    await sync_to_async(signal)("queue")
    assert "not_authenticated" in await until(stream, "event: end")


async def until(stream: AsyncIterator[bytes], word: str) -> str:
    """The first piece of the stream with this word in it."""
    async with asyncio.timeout(WAIT_S):
        async for piece in stream:
            if word in piece.decode():
                return piece.decode()
    raise AssertionError(f"the stream ended without {word}")
