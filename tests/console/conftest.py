"""What the page tests share: the world, and a signed-in client for each of its people."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from django.test import Client

from tests.console.world import World, make_world

ClientFor = Callable[[str], Client]


@pytest.fixture
def world(db: None) -> World:
    return make_world()


@pytest.fixture
def client_for(world: World) -> ClientFor:
    """A client signed in as the person with that name; "" is nobody."""

    def sign_in(name: str) -> Client:
        client = Client()
        if name:
            client.force_login(world.users[name])
        return client

    return sign_in
