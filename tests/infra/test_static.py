"""Static files as production serves them: named by their contents, every reference resolved."""

import json
import re
from pathlib import Path

import pytest
from django.contrib.staticfiles import finders
from django.core.management import call_command
from pytest_django import Settings

_ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def collected(settings: Settings, tmp_path: Path) -> Path:
    """Where the files are; collecting stops at a style sheet that names a file that is not there."""
    settings.STATIC_ROOT = tmp_path
    storage = {"BACKEND": "whitenoise.storage.CompressedManifestStaticFilesStorage"}
    settings.STORAGES = {**settings.STORAGES, "staticfiles": storage}
    settings.STATICFILES_DIRS = [_ROOT / "static"]
    call_command("collectstatic", interactive=False, verbosity=0, ignore_patterns=["drf_spectacular_sidecar"])
    return tmp_path


def test_every_file_that_a_template_names_is_there() -> None:
    templates = "".join(path.read_text() for path in (_ROOT / "templates").rglob("*.html"))
    named = set(re.findall(r"""{% static ["']([^"']+)["']""", templates))
    assert named
    assert {name for name in named if finders.find(name) is None} == set()


def test_files_get_names_made_of_their_contents(collected: Path) -> None:
    known = json.loads((collected / "staticfiles.json").read_text())["paths"]
    assert re.fullmatch(r"css/tokens\.[0-9a-f]{12}\.css", known["css/tokens.css"])
    assert (collected / known["css/tokens.css"]).with_suffix(".css.gz").exists()


def test_no_file_asks_for_a_source_map(collected: Path) -> None:
    asking = [path.name for path in (collected / "vendor").glob("*.[cj]s*") if b"sourceMappingURL" in path.read_bytes()]
    assert asking == []


def test_the_sprite_has_each_listed_icon_once() -> None:
    lines = (_ROOT / "static" / "icons.txt").read_text().splitlines()
    listed = sorted(line for line in lines if line and not line.startswith("#"))
    drawn = re.findall(r'<symbol id="([^"]+)"', (_ROOT / "static" / "vendor" / "icons.svg").read_text())
    assert sorted(drawn) == listed


def test_every_icon_that_a_template_names_is_in_the_sprite() -> None:
    templates = "".join(path.read_text() for path in (_ROOT / "templates").rglob("*.html"))
    used = set(re.findall(r"""{% icon ["']([a-z0-9-]+)["']""", templates))
    assert used
    assert used - set((_ROOT / "static" / "icons.txt").read_text().splitlines()) == set()


def test_licences_of_all_packages_are_kept() -> None:
    kept = (_ROOT / "static" / "vendor" / "LICENSES.txt").read_text()
    wanted = json.loads((_ROOT / "package.json").read_text())["dependencies"]
    assert [f"== {name} {version}: " in kept for name, version in wanted.items()] == [True] * len(wanted)
