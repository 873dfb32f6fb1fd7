"""Every scenario file holds: those of this folder, the examples, and shared ones if there."""

from __future__ import annotations

from pathlib import Path

import pytest
from pytest_django import DjangoDbBlocker

from scheduler.scenarios.format import read_scenario
from scheduler.scenarios.runner import run_scenario

ROOT = Path(__file__).resolve().parents[2]
FOLDERS = (ROOT / "tests" / "scenarios", ROOT / "examples" / "scenarios", ROOT.parent / "shared" / "scenarios")
FILES = [path for folder in FOLDERS for path in sorted(folder.rglob("*.yaml"))]


@pytest.mark.parametrize("path", FILES, ids=lambda path: f"{path.parent.name}/{path.stem}")
def test_scenario(path: Path, django_db_blocker: DjangoDbBlocker) -> None:
    with django_db_blocker.unblock():
        assert run_scenario(read_scenario(path)).failures == []
