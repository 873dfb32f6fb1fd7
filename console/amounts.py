"""Amounts and spans of time as people write and read them. Base units inside, words outside."""

from __future__ import annotations

import re
from decimal import Decimal, InvalidOperation

from django.utils import formats
from django.utils.translation import gettext as _

MILLI = 1000
MIB_IN = {"MIB": 1, "M": 1, "MB": 1, "GIB": 1024, "G": 1024, "GB": 1024, "TIB": 1024**2, "T": 1024**2, "TB": 1024**2}
SECONDS_IN = {"s": 1, "m": 60, "min": 60, "h": 3600, "d": 86400}
NOTHING = "–"
LONGEST = 40  # characters of an amount; what is longer is no amount that anybody means

_MEMORY = re.compile(r"^\s*(\d+(?:[.,]\d+)?)\s*([a-z]*)\s*$", re.IGNORECASE)
_SPAN = re.compile(r"(\d+)\s*(min|[smhd])", re.IGNORECASE)


def gpus(milli: int | None) -> str:
    """Thousandths as a number without useless zeros: 8000 -> "8", 500 -> "0.5", None -> "–"."""
    if milli is None:
        return NOTHING
    whole, rest = divmod(abs(milli), MILLI)
    sign = "−" if milli < 0 else ""
    if not rest:
        return sign + formats.number_format(whole, use_l10n=True, force_grouping=True)
    return sign + formats.number_format((Decimal(whole) + Decimal(rest) / MILLI).normalize(), use_l10n=True)


def memory(mib: int | None) -> str:
    """MiB as GiB where that is shorter: 65536 -> "64 GiB", 1536 -> "1.5 GiB", 100 -> "100 MiB"."""
    if mib is None:
        return NOTHING
    if mib < MIB_IN["GIB"]:
        return f"{mib} MiB"
    gib = round(Decimal(mib) / MIB_IN["GIB"], 1)
    return f"{formats.number_format(gib.quantize(1) if gib == int(gib) else gib, use_l10n=True)} GiB"


def parse_memory(text: str) -> int:
    """MiB of "64GiB", "512 MiB" or "1.5 TiB"; a bare number is GiB. ValueError when it is none of these."""
    found = _MEMORY.match(text)
    unit = (found[2].upper() or "GIB") if found else ""
    if found is None or unit not in MIB_IN or len(text) > LONGEST:
        raise ValueError(text)
    try:
        return int(Decimal(found[1].replace(",", ".")) * MIB_IN[unit])
    except InvalidOperation as error:
        raise ValueError(text) from error


def span(seconds: float | None) -> str:
    """The largest unit and the one below it: 5400 -> "1 h 30 min", 45 -> "45 s", None -> "–"."""
    if seconds is None:
        return NOTHING
    rest = max(int(seconds), 0)
    units = ((86400, _("d")), (3600, _("h")), (60, _("min")), (1, _("s")))
    first = next((at for at, (size, _word) in enumerate(units) if rest >= size), len(units) - 1)
    parts: list[str] = []
    for size, word in units[first : first + 2]:
        count, rest = divmod(rest, size)
        if count or not parts:
            parts.append(f"{count} {word}")
    return " ".join(parts)


def short_span(seconds: int | None) -> str:
    """The same as it is typed into a form and read back by ``parse_span``: 5400 -> "1h 30m"."""
    if seconds is None:
        return ""
    rest, parts = int(seconds), []
    for size, word in ((86400, "d"), (3600, "h"), (60, "m"), (1, "s")):
        count, rest = divmod(rest, size)
        if count:
            parts.append(f"{count}{word}")
    return " ".join(parts) or "0s"


def parse_span(text: str) -> int:
    """Seconds of "1h 30m", "45 s", "2d"; a bare number is seconds. ValueError when it is none of these."""
    stripped = text.strip()
    if stripped.isdecimal() and len(stripped) <= LONGEST:
        return int(stripped)
    if not stripped or len(stripped) > LONGEST or _SPAN.sub("", stripped).strip():
        raise ValueError(text)
    return sum(int(count) * SECONDS_IN[unit.lower()] for count, unit in _SPAN.findall(stripped))
