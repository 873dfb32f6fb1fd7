"""The walk through the API in the docs, run as it stands."""

from __future__ import annotations

import json
import os
import re
import subprocess
from pathlib import Path
from typing import Any

import pytest
from django.core.cache import cache
from pytest_django.live_server_helper import LiveServer

from quotas.models import PlatformRole, QuotaAmount, User
from workloads.models import Workload

PAGE = Path(__file__).parents[2] / "docs" / "api.md"
PASSWORD = "a-password-for-the-walk"


@pytest.fixture
def printed(live_server: LiveServer, settings: Any) -> str:
    """What the page's commands print."""
    settings.SESSION_COOKIE_SECURE = settings.CSRF_COOKIE_SECURE = False  # the test's server speaks plain HTTP
    cache.clear()
    User.objects.create_user("walk-admin", password=PASSWORD, platform_role=PlatformRole.ADMINISTRATOR)
    script = "set -eu\n" + "\n".join(re.findall(r"^```sh\n(.*?)^```", PAGE.read_text(), re.DOTALL | re.MULTILINE))
    where = {"TIDEGATE": live_server.url, "ADMIN": "walk-admin", "ADMIN_PASSWORD": PASSWORD, "no_proxy": "*"}
    done = subprocess.run(
        ["bash", "-c", script], env={**os.environ, **where}, capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr
    return done.stdout


@pytest.mark.django_db(transaction=True)
def test_the_walk_through_the_api_does_what_the_page_says(printed: str) -> None:
    amounts = dict(QuotaAmount.objects.values_list("quota__name", "guaranteed_gpu_milli"))
    assert amounts == {"walk-1": 128_000, "walk-1.1": 56_000, "walk-1.2": 72_000}
    work = set(Workload.objects.values_list("workspace__name", "name", "owner__username"))
    assert work == {
        ("walk_b", "train", "walk-bob"),
        ("walk_c", "dev-1", "walk-carol"),
        ("walk_c", "dev-2", "walk-carol"),
        ("walk_c", "night", "walk-carol"),
        ("walk_a", "chat", "walk-admin"),
    }
    assert Workload.objects.get(name="chat").replicas in (4, 40)
    codes = [
        problem["code"]
        for text in re.findall(r'\{"type":.*?"request_id":"[^"]*"\}', printed)
        for problem in json.loads(text)["problems"]
    ]
    assert codes == ["quota.exceeds_parent", "configuration.priority", "stale"]
