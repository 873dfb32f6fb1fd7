"""What the replay command says about its arguments and files."""

from pathlib import Path

import pytest
from django.core.management import CommandError, call_command

NODES = "\n".join(["cpu_milli,memory_mib,gpu,model", *(["64000,262144,2,T4"] * 60)])


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--ways", "static,none"], "no such way: none"),
        (["--days", "0"], "number above 0"),
        (["--tick", "x"], "number above 0"),
        (["--at-once", "9"], "invalid choice"),
    ],
)
def test_bad_argument_is_named(arguments: list[str], message: str, tmp_path: Path) -> None:
    with pytest.raises(CommandError, match=message):
        call_command("replay", str(tmp_path / "jobs.csv"), "--nodes", str(tmp_path / "nodes.csv"), *arguments)


def test_file_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    (tmp_path / "nodes.csv").write_text(NODES)
    with pytest.raises(CommandError, match=r"jobs\.csv"):
        call_command("replay", str(tmp_path / "jobs.csv"), "--nodes", str(tmp_path / "nodes.csv"))
