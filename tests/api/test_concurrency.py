"""Many clients change the same tree at once: the sum rule holds at every read, and no change is lost in silence."""

from __future__ import annotations

import random
import threading
import time
from collections import Counter
from itertools import pairwise
from typing import Any

import pytest
from django.core.cache import cache
from django.db import connection

from quotas.models import Quota, QuotaVersion, Workspace
from tests.api.world import ApiClient, World, make_world

pytestmark = pytest.mark.django_db(transaction=True)
FINE = {200, 204}
LOST = {409, 412}
REFUSED = {422}


class Hand(threading.Thread):
    """One client with a mind of its own; it notes every answer."""

    def __init__(self, world: World, number: int, until: float, most: int) -> None:
        super().__init__()
        self.world, self.until, self.most = world, until, most
        self.dice = random.Random(number)
        self.client: ApiClient = world.client("platform")
        self.answers: Counter[int] = Counter()
        self.sums: set[int] = set()
        self.errors: list[BaseException] = []

    def run(self) -> None:
        try:
            for _ in range(self.most):
                if time.monotonic() > self.until:
                    break
                self.act()
        except BaseException as error:  # noqa: BLE001 - told by the test's own thread
            self.errors.append(error)
        finally:
            connection.close()

    def act(self) -> None:
        quotas = {item["name"]: item for item in self.client.get("/quotas").json()["items"]}
        children = [item for item in quotas.values() if item["parent"] is not None]
        self.sums.add(sum(item["amounts"]["default"]["guaranteed_gpu_milli"] for item in children))
        answer = self.dice.choice([self.scale, self.rebalance, self.bind])(children)
        self.answers[answer.status_code] += 1

    def scale(self, children: list[dict[str, Any]]) -> Any:
        quota = self.dice.choice(children)
        amounts = {"default": {"guaranteed_gpu_milli": self.dice.randrange(2, 12) * 1000}}
        revision = {"If-Match": f'"{quota["revision"]}"'}
        return self.client.post(f"/quotas/{quota['id']}/scale", {"amounts": amounts}, headers=revision)

    def rebalance(self, children: list[dict[str, Any]]) -> Any:
        first = self.dice.randrange(2, 14) * 1000
        wanted = dict(zip((quota["name"] for quota in children), (first, 16_000 - first), strict=True))
        changes = {name: {"default": {"guaranteed_gpu_milli": amount}} for name, amount in wanted.items()}
        read = {quota["name"]: quota["revision"] for quota in children}
        return self.client.post("/quotas/rebalance", {"changes": changes, "revisions": read})

    def bind(self, children: list[dict[str, Any]]) -> Any:
        """Bind the other team's quota to the workspace, or take it away again."""
        path, quota = f"/workspaces/{self.world.workspace.pk}/quotas", self.world.foreign_quota.pk
        if self.dice.random() < 0.5:
            return self.client.post(path, {"quota": quota})
        return self.client.delete(f"{path}/{quota}")


def change_at_once(settings: Any, *, hands: int, seconds: float, most: int) -> Counter[int]:
    """Let so many clients loose; how often each status was the answer."""
    settings.API_REQUESTS_PER_MINUTE = 10**9
    cache.clear()
    world = make_world()
    Quota.objects.filter(pk__in=[world.quota.pk, world.foreign_quota.pk]).update(parent=world.root)
    until = time.monotonic() + seconds
    clients = [Hand(world, number, until, most) for number in range(hands)]
    for client in clients:
        client.start()
    for client in clients:
        client.join()
    assert [error for client in clients for error in client.errors] == []
    assert max(total for client in clients for total in client.sums) <= 16_000
    for quota in Quota.objects.filter(parent=world.root):
        history_explains(quota)
    return sum((client.answers for client in clients), Counter())


def history_explains(quota: Quota) -> None:
    """Each version begins where the one before ended, and the last one is what is in force."""
    versions = list(QuotaVersion.objects.filter(quota=quota).exclude(verb="created").order_by("revision"))
    assert quota.revision == 1 + len(versions)
    for earlier, later in pairwise(versions):
        assert later.before == earlier.after
    row = quota.amounts.get()
    if versions:
        assert versions[-1].after["amounts"][str(row.pool_id)]["guaranteed_gpu_milli"] == row.guaranteed_gpu_milli


def test_changes_at_once_are_done_refused_or_told_to_be_late(settings: Any) -> None:
    answers = change_at_once(settings, hands=6, seconds=20, most=8)
    assert set(answers) <= FINE | LOST | REFUSED
    assert any(answers[status] for status in FINE)


def test_the_same_creation_at_once_creates_once(settings: Any) -> None:
    settings.API_REQUESTS_PER_MINUTE = 10**9
    world = make_world()
    answers: list[Any] = []

    def create() -> None:
        ask = {"headers": {"Idempotency-Key": "once"}}
        answers.append(world.client("platform").post("/workspaces", {"name": "new"}, **ask))
        connection.close()

    threads = [threading.Thread(target=create) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert {answer.status_code for answer in answers} == {201}
    assert len({answer.json()["id"] for answer in answers}) == 1
    assert sum("Idempotency-Replayed" in answer for answer in answers) == 3
    assert Workspace.objects.filter(name="new").count() == 1


@pytest.mark.long
def test_twenty_clients_for_a_minute(settings: Any) -> None:
    answers = change_at_once(settings, hands=20, seconds=60, most=10**6)
    assert set(answers) <= FINE | LOST | REFUSED
    assert sum(answers[status] for status in LOST) > 0
