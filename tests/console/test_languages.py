"""Pages in four languages: words follow the reader, numbers in pictures do not."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.console.conftest import ClientFor
from tests.console.world import World
from tools.devtool import messages

LOCALES = Path(__file__).resolve().parents[2] / "locale"
PLACEHOLDER = re.compile(r"%\((\w+)\)s")
TITLES = {"en": "Resource Quotas", "es": "Cuotas de recursos", "tr": "Kaynak kotaları", "zh-hans": "资源配额"}


@pytest.mark.parametrize("folder", ["es", "tr", "zh_Hans"])
def test_every_message_is_translated_with_the_same_placeholders(folder: str):
    catalogue = messages.parse(LOCALES / folder / "LC_MESSAGES" / "django.po")
    texts = {key: text for key, text in catalogue.items() if key}
    wrong = [key for key, text in texts.items() if not text or places(key) != places(text)]
    assert len(texts) > 800
    assert wrong == []


def test_every_text_of_the_templates_has_a_translation():
    catalogue = messages.parse(LOCALES / "es" / "LC_MESSAGES" / "django.po")
    templates = (LOCALES.parent / "templates").rglob("*.html")
    used = {text for page in templates for text in re.findall(r'{% translate "([^"]+)"', page.read_text())}
    assert len(used) > 300
    assert sorted(used - set(catalogue)) == []


def places(text: str) -> set[str]:
    return set(PLACEHOLDER.findall(text))


@pytest.mark.parametrize(("language", "title"), TITLES.items())
def test_pages_speak_the_language_that_was_chosen(world: World, client_for: ClientFor, language: str, title: str):
    client = client_for("platform")
    client.post("/i18n/setlang/", {"language": language, "next": "/quotas"})
    body = client.get("/quotas").content.decode()
    assert f"<h1>{title}</h1>" in body
    assert f'<html lang="{language}"' in body


def test_numbers_in_pictures_keep_their_point(world: World, client_for: ClientFor):
    client = client_for("platform")
    client.post("/i18n/setlang/", {"language": "tr"})
    for page in ("/", "/quotas", "/nodes", f"/workloads/{world.workloads['chat'].pk}"):
        body = client.get(page).content.decode()
        numbers = re.findall(r' (?:x|y|width|height)="([^"]+)"', body)
        assert numbers != []
        assert [number for number in numbers if "," in number] == []


def test_a_refusal_is_said_in_the_readers_language(world: World, client_for: ClientFor):
    client = client_for("developer-b")
    client.post("/i18n/setlang/", {"language": "es"})
    answer = client.post(f"/workloads/{world.workloads['train-b'].pk}/do/hold")
    assert "La carga está en running" in answer.content.decode()
