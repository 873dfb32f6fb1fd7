"""The database and the message server of a run: given by address, or embedded and shared with other runs."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tools.devtool import locks, say
from tools.devtool.layout import Checkout
from tools.devtool.place import find_place
from tools.devtool.postgres import Postgres, find_installation
from tools.devtool.redis import Program, Redis, find_program


@contextmanager
def main_servers(checkout: Checkout) -> Iterator[dict[str, str]]:
    """Environment for Django with this clone's own data; servers run until their last user is gone."""
    with _database(checkout, "main") as database_url, _messages(checkout) as redis_url:
        yield django_environment(checkout, database_url, redis_url)


@contextmanager
def test_servers(checkout: Checkout) -> Iterator[dict[str, str]]:
    """The same for tests: a throw-away database server, and a message server of this run alone."""
    with _database(checkout, "test") as database_url, _messages_alone(checkout) as redis_url:
        yield django_environment(checkout, database_url, redis_url)


def django_environment(checkout: Checkout, database_url: str, redis_url: str) -> dict[str, str]:
    return {
        "TIDEGATE_LOCAL": "1",
        "TIDEGATE_SECRET_KEY": checkout.secret_key(),
        "DATABASE_URL": database_url,
        "REDIS_URL": redis_url,
        "PYTHONUNBUFFERED": "1",
        **os.environ,
    }


@contextmanager
def _database(checkout: Checkout, purpose: str) -> Iterator[str]:
    if given := os.environ.get("DATABASE_URL"):
        yield given
        return
    server = _database_server(checkout, purpose)
    lock, door = _lock(checkout, purpose, "postgres"), _door(checkout, purpose)
    with locks.shared_use(lock, door, start=server.start, stop=server.stop):
        yield server.url


def _lock(checkout: Checkout, purpose: str, name: str) -> Path:
    return checkout.var / f"{purpose}-{name}.lock"


def _door(checkout: Checkout, purpose: str) -> Path:
    """One for all servers of a purpose, since their sockets share a folder that comes and goes with them."""
    return checkout.var / f"{purpose}.door"


def _database_server(checkout: Checkout, purpose: str) -> Postgres:
    installation = find_installation(checkout)
    place = find_place(checkout, purpose, installation.bin / "postgres")
    return Postgres(installation, place, checkout.logs / f"postgres-{purpose}.log", throw_away=purpose == "test")


@contextmanager
def _messages(checkout: Checkout) -> Iterator[str]:
    if given := os.environ.get("REDIS_URL"):
        yield given
        return
    server = _redis(checkout, "main", "redis")
    lock, door = _lock(checkout, "main", "redis"), _door(checkout, "main")
    with locks.shared_use(lock, door, start=server.start, stop=server.stop):
        yield server.url


@contextmanager
def _messages_alone(checkout: Checkout) -> Iterator[str]:
    """A message server under a name of its own: two test runs at once never read each other's messages."""
    if given := os.environ.get("REDIS_URL"):
        yield given
        return
    server = _redis(checkout, "test", f"redis-{os.getpid()}")
    with locks.alone(_door(checkout, "test")):
        server.start()
    try:
        yield server.url
    finally:
        with locks.alone(_door(checkout, "test")):
            server.stop()
        server.log.unlink(missing_ok=True)


def _redis(checkout: Checkout, purpose: str, name: str) -> Redis:
    program: Program = find_program(checkout)
    place = find_place(checkout, purpose, program.path or Path("/bin/sh"))
    return Redis(program, place, checkout, name)


def stop_all(checkout: Checkout) -> int:
    """Stop the embedded servers that nobody uses; the exit status is 1 when some are still in use."""
    used = False
    for purpose in ("main", "test"):
        for name in ("postgres", "redis"):
            server = _database_server(checkout, purpose) if name == "postgres" else _redis(checkout, purpose, "redis")
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
