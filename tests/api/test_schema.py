"""The published schema is sound, and the API does what it says, whatever is sent."""

from __future__ import annotations

import json
import random
import re
from collections.abc import Iterator
from typing import Any

import pytest
import schemathesis
from django.core.signals import request_finished, request_started
from django.core.wsgi import get_wsgi_application
from django.db import close_old_connections
from django.test import Client
from hypothesis import HealthCheck, settings
from schemathesis import Case, GenerationMode
from schemathesis.config import SchemathesisConfig
from schemathesis.specs.openapi.checks import positive_data_acceptance

from console.api.reference import schema_text
from quotas.words import REFUSALS
from scheduler.core.model import Reason
from tests.api.world import World

pytestmark = pytest.mark.django_db

# What a schema cannot say - names that are taken, cursors, sums - is refused with 422 though the shape is right.
NOT_FOR_US = [positive_data_acceptance]
KNOWN = {
    "cluster": "tide",
    "pool": "default",
    "quota": "quota-a",
    "workspace": "team-a",
    "parent": "lighthouse-root",
    "user": "developer",
}
ASKED: set[str] = set()
REACHED: set[str] = set()
CONFIG = SchemathesisConfig.from_dict({"generation": {"allow-x00": False}, "phases": {"coverage": {"enabled": False}}})
APPLICATION = get_wsgi_application()
api = schemathesis.openapi.from_wsgi("/api/v1/openapi.json", APPLICATION, config=CONFIG).exclude(path="/api/v1/watch")
thorough = schemathesis.openapi.from_wsgi("/api/v1/openapi.json", APPLICATION).exclude(path="/api/v1/watch")


def test_the_codes_are_enums_of_the_schema() -> None:
    schemas = json.loads(schema_text())["components"]["schemas"]
    assert schemas["Refusal"]["enum"] == sorted(REFUSALS)
    assert set(schemas["WaitReason"]["enum"]) == {str(reason) for reason in Reason}


def test_bodies_take_no_unknown_fields() -> None:
    schemas = json.loads(schema_text())["components"]["schemas"]
    bodies = {name: schema for name, schema in schemas.items() if name.endswith("Request")}
    assert len(bodies) > 20
    assert all(schema["additionalProperties"] is False for schema in bodies.values())


def test_each_change_can_be_tried_and_each_creation_repeated() -> None:
    paths = json.loads(schema_text())["paths"]
    for path, item in paths.items():
        for method, operation in item.items():
            parameters = {parameter["name"] for parameter in operation.get("parameters", [])}
            assert ("dry_run" in parameters) == (method != "get"), f"{method} {path}"
            if "201" in operation["responses"]:
                assert "Idempotency-Key" in parameters, f"{method} {path}"


def test_the_reference_page_shows_every_call_and_code_without_scripts(client: Client) -> None:
    page = client.get("/api/v1/docs").content.decode()
    calls = [operation for item in json.loads(schema_text())["paths"].values() for operation in item.values()]
    assert all(f'id="{operation["operationId"]}"' in page for operation in calls)
    assert all(f"<code>{code}</code>" in page for code in REFUSALS)
    assert re.findall(r"<script[^>]*>", page) == ['<script src="/static/js/theme.js">']
    assert "style=" not in page


@pytest.fixture
def open_house(shared_world: World, settings: Any) -> Iterator[World]:
    """Nobody is slowed down, and the connection outlives a request as the test's transaction needs it."""
    settings.API_REQUESTS_PER_MINUTE = 10**9
    for moment in (request_started, request_finished):
        moment.disconnect(close_old_connections)
    yield shared_world
    for moment in (request_started, request_finished):
        moment.connect(close_old_connections)


@api.parametrize()
@settings(max_examples=3, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
def test_any_input_gets_a_documented_answer(case: Case, open_house: World) -> None:
    send(case, open_house)


@pytest.mark.long
@thorough.parametrize()
@settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))
def test_thousands_of_inputs_get_documented_answers(case: Case, open_house: World) -> None:
    send(case, open_house)


@pytest.mark.long
def test_most_operations_were_reached_by_inputs_that_are_right() -> None:
    assert len(REACHED) >= 0.6 * len(ASKED), sorted(ASKED - REACHED)


def send(case: Case, world: World) -> None:
    """Send it as the platform's administrator, with every check on the answer."""
    if case.meta is not None and case.meta.generation.mode is GenerationMode.POSITIVE:
        aim(case, world)
    headers = {"Authorization": f"Bearer {world.tokens['platform']}"}
    answer = case.call(headers=headers)
    ASKED.add(case.operation.label)
    if answer.status_code < 300:
        REACHED.add(case.operation.label)
    case.validate_response(answer, headers=headers, excluded_checks=NOT_FOR_US)


def aim(case: Case, world: World) -> None:
    """Point most cases at things that are there, so that they get past the search."""
    dice = random.Random(repr((case.path_parameters, case.body)))
    own = {"workloads": "service", "quota_requests": "request"}
    kind = case.path.split("/")[3]
    for name in case.path_parameters or {}:
        if dice.random() < 0.8:
            wanted = own.get(kind, kind.removesuffix("s")) if name == "id" else name
            case.path_parameters[name] = world.ids[wanted]
    if isinstance(case.body, dict):
        case.body = {name: KNOWN[name] if name in KNOWN and dice.random() < 0.8 else v for name, v in case.body.items()}
