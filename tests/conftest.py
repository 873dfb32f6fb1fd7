"""Fixtures that several folders share."""

import os
from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser, Playwright

from tools.devtool.checks import find_chromium

# Playwright's synchronous calls run inside an event loop, where Django would refuse to ask the database.
os.environ.setdefault("DJANGO_ALLOW_ASYNC_UNSAFE", "true")

_QUIET = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)


@pytest.fixture(scope="session")
def browser(playwright: Playwright) -> Iterator[Browser]:
    """The machine's own Chromium, which asks nobody outside this machine for anything."""
    program = find_chromium()
    assert program is not None, "Chromium is missing: apt install chromium, or set TIDEGATE_CHROMIUM"
    browser = playwright.chromium.launch(executable_path=program, args=list(_QUIET))
    yield browser
    browser.close()
