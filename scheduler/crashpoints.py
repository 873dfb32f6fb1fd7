"""Named points at which a test may end the process as a power cut would; without a test nothing happens here."""

from __future__ import annotations

import os
import signal
from pathlib import Path

from django.conf import settings


def reach(point: str) -> None:
    """End this process if the settings name the point. `CRASH_AT` is set by the settings of the test suite only."""
    if getattr(settings, "CRASH_AT", "") == point:
        _crash_once()


def _crash_once() -> None:
    """SIGKILL to this process, unless the file `CRASH_MARK` says that it has happened before."""
    mark = Path(settings.CRASH_MARK)
    try:
        mark.touch(exist_ok=False)
    except FileExistsError:
        return
    os.kill(os.getpid(), signal.SIGKILL)
