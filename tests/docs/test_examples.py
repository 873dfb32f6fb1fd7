"""The examples of the documentation are scenarios, and they hold."""

import re
from pathlib import Path

import pytest
from pytest_django import DjangoDbBlocker

from scheduler.scenarios.format import read_scenario
from scheduler.scenarios.runner import run_scenario

ROOT = Path(__file__).parents[2]
BLOCK = re.compile(r"^```yaml\n(.*?)^```$", re.DOTALL | re.MULTILINE)
PAGES = sorted(path for path in (ROOT / "docs" / "rules").glob("*.md") if path.name != "README.md")
FILES = sorted((ROOT / "examples" / "scenarios").glob("*.yaml"))


def test_every_page_has_one_example_and_stands_in_the_index() -> None:
    index = (ROOT / "docs" / "rules" / "README.md").read_text("utf-8")
    for page in PAGES:
        assert len(BLOCK.findall(page.read_text("utf-8"))) == 1, page.name
        assert f"({page.name})" in index


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_example_of_the_page_holds(page: Path, tmp_path: Path, django_db_blocker: DjangoDbBlocker) -> None:
    (example,) = BLOCK.findall(page.read_text("utf-8"))
    path = tmp_path / f"{page.stem}.yaml"
    path.write_text(example, "utf-8")
    with django_db_blocker.unblock():
        assert run_scenario(read_scenario(path)).failures == []


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_example_file_holds(path: Path, django_db_blocker: DjangoDbBlocker) -> None:
    with django_db_blocker.unblock():
        assert run_scenario(read_scenario(path)).failures == []
