"""A database and a message store of a benchmark's own: it neither reads nor disturbs the data of the installation."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from urllib.parse import parse_qsl, quote, urlencode, urlsplit, urlunsplit

import redis
from django.conf import settings
from django.db import connection

INSIDE = "TIDEGATE_BENCH_INSIDE"
MESSAGE_STORE = 15  # the number of the Redis database; a benchmark may empty what it finds empty


class OccupiedError(Exception):
    """The message store that a benchmark would use holds somebody's data."""


def is_apart() -> bool:
    """Whether this process runs on a database of its own."""
    return bool(os.environ.get(INSIDE))


def run_apart(arguments: Sequence[str]) -> int:
    """Run a Django command on a new database that is thrown away afterwards; returns its exit status."""
    with own_database() as database_url, own_messages() as redis_url:
        environment = {**os.environ, "DATABASE_URL": database_url, "REDIS_URL": redis_url, INSIDE: "1"}
        manage = [sys.executable, str(settings.BASE_DIR / "manage.py")]
        subprocess.run([*manage, "migrate", "--verbosity", "0"], env=environment, check=True)  # noqa: S603
        return subprocess.run([*manage, *arguments], env=environment, check=False).returncode  # noqa: S603


@contextmanager
def own_database() -> Iterator[str]:
    """The address of a new database on the server of the installation."""
    name = f"{connection.settings_dict['NAME']}_bench_{os.getpid()}"
    parts = urlsplit(os.environ["DATABASE_URL"])
    quoted = connection.ops.quote_name(name)
    _execute(f"CREATE DATABASE {quoted}")
    try:
        yield urlunsplit(parts._replace(path=f"/{quote(name)}"))
    finally:
        _execute(f"DROP DATABASE IF EXISTS {quoted} WITH (FORCE)")


def _execute(statement: str) -> None:
    with connection.cursor() as cursor:
        cursor.execute(statement)


@contextmanager
def own_messages() -> Iterator[str]:
    """The address of an empty message store; it is emptied again at the end."""
    address = _with_number(settings.REDIS_URL, MESSAGE_STORE)
    with redis.Redis.from_url(address) as store:
        if store.dbsize():
            raise OccupiedError(f"Redis database {MESSAGE_STORE} is not empty; benchmarks need one that is.")
        try:
            yield address
        finally:
            store.flushdb()


def _with_number(address: str, number: int) -> str:
    parts = urlsplit(address)
    if parts.scheme != "unix":
        return urlunsplit(parts._replace(path=f"/{number}"))
    query = {**dict(parse_qsl(parts.query)), "db": str(number)}
    return f"unix://{parts.path}?{urlencode(query)}"
