"""Locks between several runs of ./dev. The kernel drops them with the process, however it ends."""

import fcntl
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def alone(path: Path) -> Iterator[None]:
    """Wait until no other run is inside, then enter."""
    with _opened(path) as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


@contextmanager
def alone_or_none(path: Path) -> Iterator[bool]:
    """Enter at once; False when another run is inside."""
    with _opened(path) as lock:
        yield _taken(lock, fcntl.LOCK_EX)


@contextmanager
def shared_use(path: Path, door: Path, *, start: Callable[[], None], stop: Callable[[], None]) -> Iterator[None]:
    """Use something that several runs share: each makes sure that it runs, the last one out stops it.

    Starts and stops happen behind the door, one at a time. `start` must accept that the thing runs already: a run
    that was killed leaves it behind.
    """
    with _opened(path) as users:
        with alone(door):
            start()
            fcntl.flock(users, fcntl.LOCK_SH)
        try:
            yield
        finally:
            with alone(door):
                if _taken(users, fcntl.LOCK_EX):
                    stop()


def stop_if_unused(path: Path, door: Path, stop: Callable[[], None]) -> bool:
    """Stop something that runs share; False when a run still uses it."""
    with alone(door), alone_or_none(path) as unused:
        if unused:
            stop()
        return unused


@contextmanager
def _opened(path: Path) -> Iterator[int]:
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def _taken(lock: int, kind: int) -> bool:
    try:
        fcntl.flock(lock, kind | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
