"""What the person at the terminal sees."""

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager


class Failed(Exception):
    """Something a person must know or do; the text is the whole message."""


def line(text: str = "") -> None:
    print(text, file=sys.stderr, flush=True)


def note(text: str) -> None:
    line(f"  note: {text}")


@contextmanager
def step(name: str) -> Iterator[None]:
    """Name a step when it starts and, on one line with it, the seconds it took."""
    started = time.monotonic()
    print(f"  {name} ...", end="", file=sys.stderr, flush=True)
    try:
        yield
    except BaseException:
        line(" failed")
        raise
    line(f" {time.monotonic() - started:.1f} s")


def tick() -> None:
    """One more dot behind the step that is running."""
    print(".", end="", file=sys.stderr, flush=True)
