"""The database and the message server of a run: given by address, or embedded and shared with other runs."""

import os
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from tools.devtool import locks, say
from tools.devtool.layout import Checkout
from tools.devtool.place import find_place
from tools.devtool.postgres import Postgres, find_installation
from tools.devtool.redis import Redis, find_program

_MESSAGES = "redis"


class Server(Protocol):
    """An embedded server. `start` accepts that it runs already, `stop` that it does not."""

    @property
    def url(self) -> str: ...

    def is_running(self) -> bool: ...

    def start(self) -> None: ...

    def stop(self) -> None: ...


@dataclass(frozen=True)
class Servers:
    """The environment that points Django at its servers, and those of them that are ours to look after."""

    environment: dict[str, str]
    embedded: dict[str, Server]
    door: Path

    def revive(self) -> None:
        """Start an embedded server again that somebody killed."""
        for variable, server in self.embedded.items():
            if not server.is_running():
                say.note(f"the server of {variable} is gone; starting it again")
                with locks.alone(self.door):
                    server.start()


@contextmanager
def main_servers(checkout: Checkout) -> Iterator[Servers]:
    """Servers with this clone's own data; they run until their last user is gone."""
    with _running(checkout, "main", _MESSAGES) as servers:
        yield servers


@contextmanager
def test_servers(checkout: Checkout) -> Iterator[Servers]:
    """Servers for tests: the database's data may be lost, and two runs at once never read each other's messages."""
    name = f"{_MESSAGES}-{os.getpid()}"
    try:
        with _running(checkout, "test", name) as servers:
            yield servers
    finally:
        for leftover in (_redis(checkout, "test", name).log, _lock(checkout, "test", name)):
            leftover.unlink(missing_ok=True)


@contextmanager
def _running(checkout: Checkout, purpose: str, messages: str) -> Iterator[Servers]:
    embedded: dict[str, Server] = {}
    door = _door(checkout, purpose)
    with ExitStack() as stack:
        if not os.environ.get("DATABASE_URL"):
            embedded["DATABASE_URL"] = _postgres(checkout, purpose)
        if not os.environ.get("REDIS_URL"):
            embedded["REDIS_URL"] = _redis(checkout, purpose, messages)
        for variable, server in embedded.items():
            lock = _lock(checkout, purpose, messages if variable == "REDIS_URL" else "postgres")
            stack.enter_context(locks.shared_use(lock, door, start=server.start, stop=server.stop))
        addresses = {variable: server.url for variable, server in embedded.items()}
        yield Servers(_environment(checkout, addresses), embedded, door)


def _environment(checkout: Checkout, addresses: dict[str, str]) -> dict[str, str]:
    own = {"TIDEGATE_LOCAL": "1", "TIDEGATE_SECRET_KEY": checkout.secret_key(), "PYTHONUNBUFFERED": "1"}
    return {**own, **os.environ, **addresses}


def _lock(checkout: Checkout, purpose: str, name: str) -> Path:
    return checkout.var / f"{purpose}-{name}.lock"


def _door(checkout: Checkout, purpose: str) -> Path:
    """One for all servers of a purpose, since their sockets share a folder that comes and goes with them."""
    return checkout.var / f"{purpose}.door"


def _postgres(checkout: Checkout, purpose: str) -> Postgres:
    installation = find_installation(checkout)
    place = find_place(checkout, purpose, installation.bin / "postgres")
    return Postgres(installation, place, checkout.logs / f"postgres-{purpose}.log", throw_away=purpose == "test")


def _redis(checkout: Checkout, purpose: str, name: str) -> Redis:
    program = find_program(checkout)
    place = find_place(checkout, purpose, program.path or Path("/bin/sh"))
    return Redis(program, place, checkout, name)


def stop_all(checkout: Checkout) -> int:
    """Stop the embedded servers that nobody uses; the exit status is 1 when some are still in use."""
    used = False
    for purpose in ("main", "test"):
        servers: dict[str, Server] = {
            "postgres": _postgres(checkout, purpose),
            _MESSAGES: _redis(checkout, purpose, _MESSAGES),
        }
        for name, server in servers.items():
            used |= not locks.stop_if_unused(_lock(checkout, purpose, name), _door(checkout, purpose), server.stop)
    if used:
        say.line("Some servers are in use by another ./dev; they stop with it.")
    return int(used)


def describe(checkout: Checkout) -> None:
    """Say which servers a run uses."""
    if not os.environ.get("DATABASE_URL"):
        found = find_installation(checkout)
        say.line(f"  database: embedded PostgreSQL {found.major} ({found.origin}); not for production")
    if not os.environ.get("REDIS_URL"):
        say.line(f"  messages: embedded Redis ({find_program(checkout).origin}); not for production")
