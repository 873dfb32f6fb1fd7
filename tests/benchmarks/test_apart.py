"""A benchmark's own database and message store are its own, and gone afterwards."""

from urllib.parse import unquote, urlsplit

import psycopg
import pytest
import redis
from django.db import connection
from pytest_django import DjangoDbBlocker

from scheduler.benchmarks.apart import MESSAGE_STORE, OccupiedError, own_database, own_messages
from scheduler.benchmarks.processes import cpu_seconds, database_server, tree


def is_there(name: str) -> bool:
    with connection.cursor() as cursor:
        cursor.execute("SELECT count(*) FROM pg_database WHERE datname = %s", [name])
        return bool(cursor.fetchone()[0])


def test_database_is_there_inside_and_gone_afterwards(django_db_blocker: DjangoDbBlocker) -> None:
    with django_db_blocker.unblock():
        with own_database() as address, psycopg.connect(address) as own:
            name = unquote(urlsplit(address).path[1:])
            assert own.info.dbname == name
            assert is_there(name)
            own.close()
        assert not is_there(name)
        connection.close()


def test_message_store_is_empty_before_and_after() -> None:
    with own_messages() as address, redis.Redis.from_url(address) as store:
        assert store.dbsize() == 0
        store.set("left", "behind")
        with pytest.raises(OccupiedError, match=str(MESSAGE_STORE)), own_messages():
            pytest.fail("somebody else's data would be emptied")
        assert store.get("left") == b"behind"
    with redis.Redis.from_url(address) as store:
        assert store.dbsize() == 0


@pytest.mark.django_db
def test_cpu_time_of_the_database_is_found() -> None:
    server = database_server()
    assert server is not None
    assert len(tree(server)) > 1
    assert cpu_seconds(tree(server)) > 0
