"""Translations are compiled by us; Python's own gettext reads them."""

import gettext
import io
from pathlib import Path

import pytest

from tools.devtool import messages
from tools.devtool.say import Failed

_CATALOGUE = r"""
#, fuzzy
msgid ""
msgstr ""
"Content-Type: text/plain; charset=UTF-8\n"
"Plural-Forms: nplurals=2; plural=(n != 1);\n"

#: console/views.py:1
msgid "Queue"
msgstr "Cola"

msgctxt "verb"
msgid "Queue"
msgstr "Poner en cola"

msgid "%(count)s node"
msgid_plural "%(count)s nodes"
msgstr[0] "%(count)s nodo"
msgstr[1] "%(count)s nodos"

msgid ""
"A \"long\" text\n"
"of two lines"
msgstr ""
"Un texto \"largo\"\n"
"de dos líneas"

#, fuzzy
msgid "Guessed"
msgstr "Adivinado"

msgid "Untranslated"
msgstr ""

#~ msgid "Gone"
#~ msgstr "Ido"
"""


@pytest.fixture
def catalogue(tmp_path: Path) -> Path:
    folder = tmp_path / "es" / "LC_MESSAGES"
    folder.mkdir(parents=True)
    source = folder / "django.po"
    source.write_text(_CATALOGUE, encoding="utf-8")
    return source


def _read(source: Path) -> gettext.GNUTranslations:
    return gettext.GNUTranslations(io.BytesIO(source.with_suffix(".mo").read_bytes()))


def test_texts_contexts_and_plurals_are_found(catalogue: Path, tmp_path: Path) -> None:
    messages.ensure(tmp_path)
    spanish = _read(catalogue)
    assert spanish.gettext("Queue") == "Cola"
    assert spanish.pgettext("verb", "Queue") == "Poner en cola"
    assert [spanish.ngettext("%(count)s node", "%(count)s nodes", n) for n in (1, 2)] == [
        "%(count)s nodo",
        "%(count)s nodos",
    ]
    assert spanish.gettext('A "long" text\nof two lines') == 'Un texto "largo"\nde dos líneas'


@pytest.mark.parametrize("text", ["Guessed", "Untranslated", "Gone"])
def test_what_is_not_translated_stays_as_it_is(catalogue: Path, tmp_path: Path, text: str) -> None:
    messages.ensure(tmp_path)
    assert _read(catalogue).gettext(text) == text


def test_an_unchanged_file_is_not_compiled_again(catalogue: Path, tmp_path: Path) -> None:
    messages.ensure(tmp_path)
    first = catalogue.with_suffix(".mo").stat().st_mtime_ns
    messages.ensure(tmp_path)
    assert catalogue.with_suffix(".mo").stat().st_mtime_ns == first


def test_a_broken_file_is_named_with_its_line(catalogue: Path, tmp_path: Path) -> None:
    catalogue.write_text('msgid "a"\nmsgstr nothing\n', encoding="utf-8")
    with pytest.raises(Failed, match=r"django\.po:2 is not a quoted text: nothing"):
        messages.ensure(tmp_path)
