"""Compile translations (`locale/*/LC_MESSAGES/*.po`) without gettext's tools, which few machines have."""

import ast
import struct
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from tools.devtool import say

_MAGIC = 0x950412DE
_HEADER_BYTES = 28


def ensure(locale: Path) -> None:
    """Compile each file whose compiled form is missing or older."""
    for source in sorted(locale.glob("*/LC_MESSAGES/*.po")):
        compiled = source.with_suffix(".mo")
        if not compiled.exists() or compiled.stat().st_mtime_ns < source.stat().st_mtime_ns:
            unfinished = compiled.with_suffix(".unfinished")
            unfinished.write_bytes(compile_catalogue(parse(source)))
            unfinished.rename(compiled)


@dataclass
class _Entry:
    fields: dict[str, str] = field(default_factory=dict)
    fuzzy: bool = False

    def message(self) -> tuple[str, str] | None:
        """Key and text in the compiled form; None where there is nothing to show."""
        texts = [text for name, text in sorted(self.fields.items()) if name.startswith("msgstr")]
        is_header = self.fields.get("msgid") == ""
        if "msgid" not in self.fields or not all(texts) or (self.fuzzy and not is_header):
            return None
        context = f"{self.fields['msgctxt']}\x04" if "msgctxt" in self.fields else ""
        plural = f"\0{self.fields['msgid_plural']}" if "msgid_plural" in self.fields else ""
        return f"{context}{self.fields['msgid']}{plural}", "\0".join(texts)


def parse(source: Path) -> dict[str, str]:
    """Messages by key (the header's is empty) without fuzzy, obsolete and untranslated ones.

    Raises Failed with the line at fault.
    """
    return dict(filter(None, (entry.message() for entry in _entries(source))))


def _entries(source: Path) -> Iterator[_Entry]:
    """Entries one by one; a blank line or a comment after a text ends one."""
    entry, name = _Entry(), ""
    for number, line in enumerate(source.read_text(encoding="utf-8").splitlines(), 1):
        stripped = line.strip()
        if not stripped or stripped.startswith("#"):
            if entry.fields:
                yield entry
                entry, name = _Entry(), ""
            entry.fuzzy |= stripped.startswith("#,") and "fuzzy" in stripped
            continue
        if not stripped.startswith('"'):
            name, _, stripped = stripped.partition(" ")
        entry.fields[name] = entry.fields.get(name, "") + _unquoted(stripped, f"{source}:{number}")
    if entry.fields:
        yield entry


def _unquoted(text: str, place: str) -> str:
    try:
        value = ast.literal_eval(text)
    except (SyntaxError, ValueError):
        value = None
    if not isinstance(value, str):
        raise say.Failed(f"{place} is not a quoted text: {text}")
    return value


def compile_catalogue(messages: dict[str, str]) -> bytes:
    """The binary form that gettext reads: header, table of keys, table of texts, then all of them."""
    pairs = [(key.encode(), text.encode()) for key, text in messages.items()]
    pairs.sort()
    start = _HEADER_BYTES + 16 * len(pairs)
    tables, blob = bytearray(), bytearray()
    for column in (0, 1):
        for pair in pairs:
            tables += struct.pack("<II", len(pair[column]), start + len(blob))
            blob += pair[column] + b"\0"
    header = struct.pack("<7I", _MAGIC, 0, len(pairs), _HEADER_BYTES, _HEADER_BYTES + 8 * len(pairs), 0, 0)
    return header + bytes(tables) + bytes(blob)
