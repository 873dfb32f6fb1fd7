"""The same calls through the asynchronous server interface, which production runs."""

from __future__ import annotations

import asyncio
import json

import pytest
from asgiref.sync import sync_to_async
from django.core.cache import cache
from django.db import connections
from django.test import AsyncClient

from tests.api.world import World, make_world


@pytest.mark.django_db(transaction=True)
def test_bodies_lists_and_exports_pass_through_the_asynchronous_server() -> None:
    cache.clear()
    asyncio.run(converse(make_world()))


async def converse(world: World) -> None:
    client, headers = AsyncClient(), {"Authorization": f"Bearer {world.tokens['platform']}"}
    made = await client.post("/api/v1/workspaces", {"name": "new"}, content_type="application/json", headers=headers)
    assert made.status_code == 201
    table = await client.get("/api/v1/workspaces?format=csv", headers=headers)
    assert ",new," in table.content.decode()
    export = await client.get("/api/v1/audit/export?verb=workspace.created", headers=headers)
    lines = [line async for line in export.streaming_content]
    assert [json.loads(line)["object"]["name"] for line in lines] == ["new"]
    await sync_to_async(connections.close_all)()  # the one of the thread in which the calls were answered
