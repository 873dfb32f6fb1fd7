"""A short log through the real services: batch that borrows waits less, and online gets back what is its own."""

from datetime import timedelta

import pytest
from pytest_django import DjangoDbBlocker

from scheduler.replay.log import BEGIN_S, Machine, Task, arrivals
from scheduler.replay.report import Summary
from scheduler.replay.run import WAYS, Job

MACHINES = [Machine("G2", 8, 96_000, 393_216)] * 8 + [Machine("T4", 6, 96_000, 393_216)]
STATIC, BORROWING, _ = WAYS
GRACE_S = 30


def task(job: str, at_s: int, run_s: int, gpus: int, qos: str) -> Task:
    return Task(job, BEGIN_S + at_s, 0, run_s, gpus, 1000, 4000, 1024, qos)


LOG = [
    task("b", 0, 1000, 8, "BE"),  # comes four times; 10 GPUs are promised to batch
    *(task(f"o{index}", 500, 3000, 8, "LS") for index in range(6)),
    task("wide", 600, 60, 16, "LS"),  # on no node
]


@pytest.fixture(scope="module")
def ways(django_db_blocker: DjangoDbBlocker) -> dict[str, Summary]:
    with django_db_blocker.unblock():
        found = [
            Job(way, MACHINES, arrivals(LOG, way.speed), timedelta(seconds=1)).run() for way in (STATIC, BORROWING)
        ]
    return {way["way"]: way for way in found}


def test_static_batch_runs_one_after_the_other(ways: dict[str, Summary]) -> None:
    batch = ways["static"]["waits"]["batch"]
    assert (batch["started"], batch["mean_s"], batch["p95_s"]) == (4, 1500.0, 3000.0)
    assert ways["static"]["evictions"] == 0


def test_borrowing_batch_starts_at_once_and_gives_back(ways: dict[str, Summary]) -> None:
    found = ways["borrowing"]
    assert found["waits"]["batch"]["p95_s"] == 0.0
    assert found["evictions"] == 2
    assert found["lost_gpu_hours"] == pytest.approx(2 * 8 * 500 / 3600, abs=0.2)


def test_online_waits_no_longer_than_the_grace(ways: dict[str, Summary]) -> None:
    assert ways["static"]["waits"]["online"]["p95_s"] == 0.0
    assert ways["borrowing"]["waits"]["online"]["p95_s"] <= GRACE_S + 1


def test_more_of_the_gpus_are_used(ways: dict[str, Summary]) -> None:
    assert ways["borrowing"]["gpu_use"] > ways["static"]["gpu_use"]


def test_what_can_never_fit_is_refused_and_counted(ways: dict[str, Summary]) -> None:
    assert ways["static"]["refused_by_code"] == {"workload.never_fits": 1}
    assert ways["static"]["submitted"] == 4 + 6 + 1
