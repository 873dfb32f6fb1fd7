import pytest

from tests.makers import Installation, install


@pytest.fixture
def here(db: None) -> Installation:
    return install()
