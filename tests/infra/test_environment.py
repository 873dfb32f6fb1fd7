"""Settings come from environment variables, and wrong ones are refused by name."""

import pytest
from django.core.exceptions import ImproperlyConfigured

from console import environment


def test_database_address_names_host_and_account() -> None:
    found = environment.database("postgresql://ada:p%40ss@db.internal:6432/tide?sslmode=require")
    assert found == {
        "ENGINE": "django.db.backends.postgresql",
        "NAME": "tide",
        "USER": "ada",
        "PASSWORD": "p@ss",
        "HOST": "db.internal",
        "PORT": "6432",
        "OPTIONS": {"sslmode": "require"},
    }


def test_database_address_may_name_a_socket_folder() -> None:
    found = environment.database("postgresql://tidegate@/tidegate?host=%2Ftmp%2Fa%20folder")
    assert (found["HOST"], found["PORT"], found["OPTIONS"]) == ("/tmp/a folder", "", {})


def test_only_postgresql_is_taken() -> None:
    with pytest.raises(ImproperlyConfigured, match="PostgreSQL only"):
        environment.database("sqlite:///db.sqlite3")


@pytest.mark.parametrize(("word", "meaning"), [("1", True), (" Yes ", True), ("off", False), ("", False)])
def test_flag_takes_the_usual_words(monkeypatch: pytest.MonkeyPatch, word: str, meaning: bool) -> None:
    monkeypatch.setenv("TIDEGATE_EXAMPLE", word)
    assert environment.flag("TIDEGATE_EXAMPLE", default=not meaning) is meaning


def test_flag_refuses_other_words(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TIDEGATE_EXAMPLE", "maybe")
    with pytest.raises(ImproperlyConfigured, match="TIDEGATE_EXAMPLE must be one of"):
        environment.flag("TIDEGATE_EXAMPLE", default=True)


@pytest.mark.parametrize("value", ["-1", "0", "many", "1.5"])
def test_whole_number_refuses_what_is_not_in_range(monkeypatch: pytest.MonkeyPatch, value: str) -> None:
    monkeypatch.setenv("TIDEGATE_EXAMPLE", value)
    with pytest.raises(ImproperlyConfigured, match="at least 1"):
        environment.whole_number("TIDEGATE_EXAMPLE", default=3, least=1)


def test_a_missing_variable_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TIDEGATE_EXAMPLE", raising=False)
    with pytest.raises(ImproperlyConfigured, match=r"TIDEGATE_EXAMPLE is not set\. Start with"):
        environment.required("TIDEGATE_EXAMPLE", "Start with ./dev.")


def test_list_has_no_blanks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TIDEGATE_EXAMPLE", " a.example , ,b.example")
    assert environment.words("TIDEGATE_EXAMPLE") == ["a.example", "b.example"]


@pytest.mark.parametrize(
    ("redis", "broker"),
    [
        ("redis://:secret@queue:6379/2", "redis://:secret@queue:6379/2"),
        ("unix:///tmp/t/redis.sock?db=3", "redis+socket:///tmp/t/redis.sock?virtual_host=3"),
        ("unix:///tmp/t/redis.sock", "redis+socket:///tmp/t/redis.sock?virtual_host=0"),
    ],
)
def test_celery_gets_the_same_redis(redis: str, broker: str) -> None:
    assert environment.celery_broker(redis) == broker
