"""The collector rests inside the block, and only there."""

import gc

import pytest

from scheduler.collecting import collector_at_rest


def test_collector_rests_inside_and_works_again_afterwards() -> None:
    with collector_at_rest():
        assert not gc.isenabled()
    assert gc.isenabled()


def test_collector_works_again_after_an_error() -> None:
    with pytest.raises(ZeroDivisionError), collector_at_rest():
        1 / 0  # noqa: B018
    assert gc.isenabled()


def test_collector_that_was_off_stays_off() -> None:
    gc.disable()
    try:
        with collector_at_rest():
            pass
        assert not gc.isenabled()
    finally:
        gc.enable()
