"""The command prints one line of JSON for each measurement, and says what is wrong with its arguments."""

import json

import pytest
from django.core.management import CommandError, call_command

from scheduler.management.commands.bench import BENCHES, STANDARD

SMALL = {
    "allocate": ["--nodes", "4", "--jobs", "6"],
    "reclaim-large": ["--nodes", "20"],
    "gang": ["--nodes", "16", "--topology", "2x2x2x2"],
    "cannot-fit": ["--nodes", "8", "--workers", "3"],
    "consolidate": ["--nodes", "10", "--gangs", "1", "--workers", "3"],
    "decide": ["--nodes", "4", "--running", "15", "--pending", "20", "--quotas", "4"],
}
EXPECTED = {
    "allocate": {"placements": 6, "evictions": 0},
    "reclaim-large": {"placements": 0, "evictions": 16, "waits": 1},
    "gang": {"placements": 16, "waits": 0},
    "cannot-fit": {"placements": 0, "evictions": 0, "waits": 1},
    "consolidate": {"moves": 3, "evictions": 0, "waits": 1},
}


@pytest.mark.parametrize("name", SMALL)
def test_small_size_gives_one_line_with_what_the_plan_holds(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    call_command("bench", name, *SMALL[name], "--runs", "1")
    found = json.loads(capsys.readouterr().out)
    assert found["bench"] == name
    assert found["runs"] == 1
    assert found["median_s"] > 0
    assert found["peak_mib"] > 0
    assert EXPECTED.get(name, {}).items() <= found.items()


def test_standard_set_needs_no_database() -> None:
    assert set(STANDARD) == set(SMALL) <= set(BENCHES)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["allocate", "--nodes", "0"], "whole number from 1"),
        (["allocate", "--nodes", "many"], "whole number from 1"),
        (["gang", "--topology", "2x2"], "four sizes"),
        (["churn", "--part", "2"], "above 0 and up to 1"),
        (["speed"], "invalid choice"),
    ],
)
def test_bad_argument_is_named(arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises((CommandError, SystemExit)) as refused:
        call_command("bench", *arguments)
    assert message in f"{refused.value}{capsys.readouterr().err}"


@pytest.mark.parametrize(
    "arguments", [["gang", "--nodes", "100", "--topology", "4x8x8x2"], ["cannot-fit", "--nodes", "5", "--workers", "6"]]
)
def test_sizes_that_do_not_go_together_are_refused(arguments: list[str]) -> None:
    with pytest.raises(CommandError, match="--nodes"):
        call_command("bench", *arguments)
