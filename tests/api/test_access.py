"""Every call as everybody, against ``access.yaml``: the status, and that nothing of another team shows."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import yaml
from django.urls import URLPattern

from console.api_urls import urlpatterns
from tests.api.world import FOREIGN, SECRET_WORD, World

pytestmark = pytest.mark.django_db
SEES_ALL = ("auditor", "platform")
OUTSIDE_DOORS = {"api-openapi", "api-docs"}  # the schema and its page are open to all


@cache
def table() -> dict[str, Any]:
    found: dict[str, Any] = yaml.safe_load(Path(__file__).with_name("access.yaml").read_text())
    return found


def routes() -> set[str]:
    """Every call that the API has: ``GET /quotas/{}``."""
    found = set()
    for pattern in urlpatterns:
        actions = getattr(getattr(pattern, "callback", None), "actions", None)
        if isinstance(pattern, URLPattern) and actions:
            path = re.sub(r"<[^>]+>", "{}", str(pattern.pattern))
            found |= {f"{method.upper()} /{path}" for method in actions if method != "head"}
    return found


def test_each_route_has_a_row_and_each_row_a_route() -> None:
    listed = {re.sub(r"\{\w+\}", "{}", row["call"].partition("?")[0]) for row in table()["calls"]}
    assert listed == routes()


def test_each_row_has_a_status_for_everybody() -> None:
    for row in table()["calls"]:
        assert len(str(row["gives"]).split()) == len(table()["who"]), row["call"]


def test_only_the_schema_and_its_page_stand_outside() -> None:
    plain = {
        pattern.name
        for pattern in urlpatterns
        if isinstance(pattern, URLPattern) and not hasattr(pattern.callback, "actions")
    }
    assert plain == OUTSIDE_DOORS | {None}


@pytest.mark.parametrize("row", table()["calls"], ids=lambda row: row["call"])
def test_access(shared_world: World, row: dict[str, Any], settings: Any) -> None:
    settings.API_REQUESTS_PER_MINUTE = 10_000
    world = shared_world
    method, path = filled(row["call"], world).split(" ", 1)
    body = filled(row.get("body"), world)
    found, leaks = [], []
    for who in table()["who"]:
        answer = ask(world, who, method, path, body)
        found.append(str(answer.status_code))
        if who not in SEES_ALL and not answer.streaming and shows_foreign(answer.content.decode(), path, body):
            leaks.append((who, answer.content.decode()))
    assert dict(zip(table()["who"], found, strict=True)) == dict(
        zip(table()["who"], str(row["gives"]).split(), strict=True)
    )
    assert not leaks


def ask(world: World, who: str, method: str, path: str, body: Any) -> Any:
    """Changes are trial runs, so that everybody meets the same installation."""
    if method == "GET":
        return world.client(who).get(path)
    return world.client(who).call(method, f"{path}?dry_run=true", {} if body is None and method != "DELETE" else body)


def shows_foreign(text: str, path: str, body: Any) -> bool:
    """Whether the text has a name or number of the other team that the caller did not say itself."""
    said = f"{path} {body}"
    found = re.findall(rf"{SECRET_WORD}[\w-]*|{str(FOREIGN)[:-3]}\d{{3}}", text)
    return any(word not in said for word in found)


def filled(thing: Any, world: World) -> Any:
    """The text, or all texts of a body, with the numbers of the installation in the places of ``{names}``."""
    if isinstance(thing, dict):
        return {name: filled(value, world) for name, value in thing.items()}
    if isinstance(thing, list):
        return [filled(value, world) for value in thing]
    if not isinstance(thing, str):
        return thing
    whole = re.fullmatch(r"\{(\w+)\}", thing)
    if whole:
        return world.ids[whole.group(1)]
    return re.sub(r"\{(\w+)\}", lambda match: str(world.ids[match.group(1)]), thing)
