"""What the page tests share: the world, and a signed-in client for each of its people."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from urllib.parse import urlsplit, urlunsplit

import pytest
from django.db import connection
from django.test import Client

from tests.console.world import World, make_world

ClientFor = Callable[[str], Client]


@dataclass(frozen=True, slots=True)
class Served:
    """A running server and what is in its database."""

    world: World
    address: str


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


@pytest.fixture
def served(transactional_db: None) -> Iterator[Served]:
    """The world behind a real server with live events, which sees what the test has committed."""
    world = make_world()
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    command = [sys.executable, "-m", "gunicorn", "console.asgi:application", "--worker-class", "asgi"]
    command += [
        "--bind",
        f"127.0.0.1:{port}",
        "--log-level",
        "warning",
        "--no-control-socket",
        "--graceful-timeout",
        "1",
    ]
    environment = {**os.environ, "DATABASE_URL": _address_of_test_database(), "TIDEGATE_DATABASE_POOL": "0"}
    environment |= {"DJANGO_SETTINGS_MODULE": "tests.settings", "TIDEGATE_LOCAL": "1"}
    with subprocess.Popen(command, env=environment) as server:
        try:
            _wait_for(port, server)
            yield Served(world, f"http://127.0.0.1:{port}")
        finally:
            server.terminate()


def _address_of_test_database() -> str:
    """The address of the servers with the name of this run's database in it."""
    parts = urlsplit(os.environ["DATABASE_URL"])
    return urlunsplit(parts._replace(path=f"/{connection.settings_dict['NAME']}"))


def _wait_for(port: int, server: subprocess.Popen[bytes]) -> None:
    deadline = time.monotonic() + 30
    while time.monotonic() < deadline:
        assert server.poll() is None, "the server ended at once"
        with suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=1):
            return
        time.sleep(0.1)
    raise AssertionError("the server did not answer")
