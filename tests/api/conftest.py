"""The installation that the tests of the API knock at."""

from collections.abc import Iterator

import pytest
from django.core.cache import cache
from django.db import transaction
from pytest_django import DjangoDbBlocker

from tests.api.world import World, make_world


@pytest.fixture
def world(db: None) -> World:
    """An installation of the test's own."""
    cache.clear()
    return make_world()


@pytest.fixture(scope="module")
def shared_world(django_db_setup: None, django_db_blocker: DjangoDbBlocker) -> Iterator[World]:
    """One installation for all tests of a module, which need the mark ``django_db``: each starts with it as it was."""
    with django_db_blocker.unblock(), transaction.atomic():
        yield make_world()
        transaction.set_rollback(True)
