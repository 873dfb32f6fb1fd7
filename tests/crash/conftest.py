"""One stand with a real worker for all tests of this folder."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from pytest_django.plugin import DjangoDbBlocker

from scheduler.triggers import quiet
from tests.crash.stand import Stand
from tests.scheduler.world import World


@pytest.fixture(scope="session")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("stand")


@pytest.fixture(scope="package")
def stand(folder: Path, django_db_setup: None, django_db_blocker: DjangoDbBlocker) -> Iterator[Stand]:
    """One stand for the tests of this folder: a worker takes seconds to start, its processes come back at once.

    It ends with them: at the database of other tests its worker would be in the way.
    """
    with django_db_blocker.unblock():
        stand = Stand(folder)
    stand.start_worker()
    yield stand
    stand.end()


@pytest.fixture
def world(stand: Stand) -> Iterator[World]:
    with quiet():  # the messages of this process would go to the suite's own broker
        yield World(nodes=1, gpus=4)
    stand.rest()
