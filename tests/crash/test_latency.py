"""How long a submission takes until it is placed, at real speed, through the API and a real worker."""

from __future__ import annotations

import statistics
import time
from collections.abc import Iterator

import pytest
from rest_framework.test import APIClient

from quotas.actors import SYSTEM
from quotas.models import Role, User, Workspace
from quotas.services import add_member, create_user
from quotas.specs import UserSpec
from scheduler import triggers
from scheduler.cycles import is_wanted
from scheduler.triggers import quiet
from tests.crash.stand import Stand, until
from tests.scheduler.world import World
from workloads.models import Allocation

TIMES = 20
LONGEST_S = 1.0

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def world(stand: Stand) -> Iterator[World]:
    """A cluster that is settled; from then on messages go to the stand's worker."""
    with quiet():
        world = World(nodes=1, gpus=4)
        with stand.beating():
            until(lambda: not is_wanted(world.cluster.pk), "the new cluster is settled")
    yield world
    stand.rest()


@pytest.fixture
def developer(world: World) -> User:
    user = create_user(actor=SYSTEM, spec=UserSpec("dev"))
    add_member(actor=SYSTEM, workspace=Workspace.objects.get(name="q"), user=user, roles=[Role.DEVELOPER])
    return user


def test_a_submission_is_placed_within_a_second(
    stand: Stand, world: World, developer: User, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(triggers, "current_app", stand.app)
    client = APIClient()
    client.force_authenticate(developer)
    took = []
    for number in range(TIMES):
        began = time.monotonic()
        body = {"name": f"job-{number}", "kind": "notebook", "workspace": "q", "quota": "q", "gpus": 0.1}
        answer = client.post("/api/v1/workloads", body, format="json")
        assert answer.status_code == 201, answer.content
        until(lambda placed=number + 1: Allocation.objects.count() == placed, "it is placed")
        took.append(time.monotonic() - began)
    median = statistics.median(took)
    assert median <= LONGEST_S, f"median {median:.3f} s, longest {max(took):.3f} s"
