"""Amounts and spans as people write and read them."""

import re

import pytest

from console.amounts import gpus, memory, parse_memory, parse_span, short_span, span


@pytest.mark.parametrize(
    ("milli", "words"),
    [(8000, "8"), (500, "0.5"), (1250, "1.25"), (0, "0"), (-2000, "−2"), (None, "–"), (1_200_000, "1,200")],
)
def test_gpus_are_written_without_useless_zeros(milli, words):
    assert gpus(milli) == words


@pytest.mark.parametrize(("mib", "words"), [(100, "100 MiB"), (1024, "1 GiB"), (1536, "1.5 GiB"), (None, "–")])
def test_memory_is_written_in_the_larger_unit(mib, words):
    assert memory(mib) == words


@pytest.mark.parametrize(("text", "mib"), [("64GiB", 65536), ("512 MiB", 512), ("1.5 TiB", 1_572_864), ("2", 2048)])
def test_memory_is_read_with_its_unit(text, mib):
    assert parse_memory(text) == mib


@pytest.mark.parametrize("text", ["", "much", "5 parsecs", "-1GiB", "9" * 5000])
def test_memory_that_is_none_is_an_error(text):
    with pytest.raises(ValueError, match=re.escape(text)):
        parse_memory(text)


@pytest.mark.parametrize(
    ("text", "seconds"), [("45s", 45), ("1h 30m", 5400), ("2d", 172_800), ("90", 90), ("5min", 300)]
)
def test_spans_are_read(text, seconds):
    assert parse_span(text) == seconds


@pytest.mark.parametrize("text", ["", "soon", "1h and", "h", "²", "9" * 5000, "1h" * 30])
def test_spans_that_are_none_are_an_error(text):
    with pytest.raises(ValueError, match=re.escape(text)):
        parse_span(text)


@pytest.mark.parametrize("seconds", [0, 45, 5400, 90_061, 172_800])
def test_what_a_form_shows_is_read_back_the_same(seconds):
    assert parse_span(short_span(seconds)) == seconds


@pytest.mark.parametrize(
    ("seconds", "words"), [(5400, "1 h 30 min"), (45, "45 s"), (0, "0 s"), (90_061, "1 d 1 h"), (None, "–")]
)
def test_spans_are_written_with_their_two_largest_units(seconds, words):
    assert span(seconds) == words
