"""A PostgreSQL database of one's own, made from a migrated template and thrown away afterwards.

The template's name holds a digest of all migrations, so it is made once for each state of the code; runs beside each
other have databases with different names and only wait for each other while the template is being made.
"""

from __future__ import annotations

import hashlib
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any, LiteralString, TypeAlias

import psycopg
from django.apps import apps
from django.conf import settings
from django.core.management import call_command
from django.db import connection
from psycopg import sql
from psycopg.conninfo import make_conninfo

PREFIX = "tidegate_scenario"
TEMPLATE_LOCK = 0x71DE_5CE0
DAY_S = 86_400


@contextmanager
def throwaway_database() -> Iterator[None]:
    """Inside, the default connection of this thread is a new, migrated, empty database."""
    name = f"{PREFIX}_{int(time.time())}_{uuid.uuid4().hex[:8]}"
    with _server() as server:
        _drop_forgotten(server)
        with _alone(server):
            _run(server, "CREATE DATABASE {} TEMPLATE {} STRATEGY wal_log", name, _template(server))
        _run(server, "ALTER DATABASE {} SET synchronous_commit = off", name)
    try:
        with _connected_to(name):
            yield
    finally:
        with _server() as server:
            _run(server, "DROP DATABASE IF EXISTS {} WITH (FORCE)", name)


@contextmanager
def _connected_to(name: str) -> Iterator[None]:
    """The default connection speaks to another database of the same server, without the pool."""
    before = connection.settings_dict
    connection.close()
    options = {key: value for key, value in before["OPTIONS"].items() if key != "pool"}
    connection.settings_dict = {**before, "NAME": name, "OPTIONS": options}
    try:
        yield
    finally:
        connection.close()
        connection.settings_dict = before


Server: TypeAlias = psycopg.Connection[tuple[Any, ...]]


@contextmanager
def _server() -> Iterator[Server]:
    """A connection that may make databases; on the maintenance database, outside transactions."""
    found = settings.DATABASES["default"]
    where = {"user": found["USER"], "password": found["PASSWORD"], "host": found["HOST"], "port": found["PORT"]}
    options = {key: value for key, value in found["OPTIONS"].items() if key != "pool"}
    address = make_conninfo(dbname="postgres", **{key: value for key, value in (where | options).items() if value})
    with psycopg.connect(address, autocommit=True) as server:
        yield server


def _run(server: Server, statement: LiteralString, *names: str) -> None:
    server.execute(sql.SQL(statement).format(*(sql.Identifier(name) for name in names)))


def _drop_forgotten(server: Server) -> None:
    """Databases of runs that were killed; none lasts a day."""
    pattern = f"^{PREFIX}_([0-9]+)_[0-9a-f]+$"
    rows = server.execute(
        "SELECT datname FROM pg_database WHERE datname ~ %s AND substring(datname from %s)::bigint < %s",
        [pattern, pattern, int(time.time()) - DAY_S],
    ).fetchall()
    for (name,) in rows:
        _run(server, "DROP DATABASE IF EXISTS {} WITH (FORCE)", str(name))


@contextmanager
def _alone(server: Server) -> Iterator[None]:
    """Nobody else makes, copies or drops a template meanwhile."""
    server.execute("SELECT pg_advisory_lock(%s)", [TEMPLATE_LOCK])
    try:
        yield
    finally:
        server.execute("SELECT pg_advisory_unlock(%s)", [TEMPLATE_LOCK])


def _template(server: Server) -> str:
    """The name of the migrated template, made if it is not there."""
    name = f"{PREFIX}_template_{_migrations_digest()}"
    if not _exists(server, name):
        _make_template(server, name)
    return name


def _exists(server: Server, name: str) -> bool:
    return server.execute("SELECT 1 FROM pg_database WHERE datname = %s", [name]).fetchone() is not None


def _make_template(server: Server, name: str) -> None:
    """Migrated under another name first, so that a template that stands is whole. Those of old code go."""
    old = server.execute(
        "SELECT datname FROM pg_database WHERE datname LIKE %s"
        " AND coalesce(shobj_description(oid, 'pg_database'), '0')::bigint < %s",
        [f"{PREFIX}_template_%", int(time.time()) - DAY_S],
    ).fetchall()
    for (other,) in old:
        _run(server, "DROP DATABASE IF EXISTS {}", str(other))
    raw = f"{PREFIX}_making"
    _run(server, "DROP DATABASE IF EXISTS {} WITH (FORCE)", raw)
    _run(server, "CREATE DATABASE {}", raw)
    with _connected_to(raw):
        call_command("migrate", verbosity=0, interactive=False)
    made_at = sql.Literal(str(int(time.time())))
    server.execute(sql.SQL("COMMENT ON DATABASE {} IS {}").format(sql.Identifier(raw), made_at))
    _run(server, "ALTER DATABASE {} RENAME TO {}", raw, name)


@cache
def _migrations_digest() -> str:
    """Changes with every migration of every app."""
    digest = hashlib.sha256()
    for app in sorted(apps.get_app_configs(), key=lambda config: config.label):
        for file in sorted(Path(app.path, "migrations").glob("*.py")):
            digest.update(f"{app.label}/{file.name}\0".encode())
            digest.update(file.read_bytes())
    return digest.hexdigest()[:16]
