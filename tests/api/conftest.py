"""The installation that the tests of the API knock at."""

import pytest
from django.core.cache import cache

from tests.api.world import World, make_world


@pytest.fixture
def world(db: None) -> World:
    cache.clear()
    return make_world()
