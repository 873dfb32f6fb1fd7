"""The command: exit status, closing line, and that it leaves the installation's own data alone."""

from __future__ import annotations

import json
from io import StringIO
from pathlib import Path

import pytest
from django.core.management import call_command

from quotas.models import Cluster

GOOD = """\
name: one job runs
nodes:
  - {count: 1, gpus: 1}
quotas:
  - {name: q, guaranteed: 1}
steps:
  - {at: 0s, submit: {name: j, kind: training, quota: q, gpus: 1}, expect: {workloads: {j: running}}}
"""

pytestmark = pytest.mark.django_db(transaction=True)


def play(*paths: Path, **options: bool) -> tuple[int, list[str], str]:
    """Exit status, lines of output, and what was complained about."""
    out, err = StringIO(), StringIO()
    status = 0
    try:
        call_command("scenario", *map(str, paths), stdout=out, stderr=err, **options)
    except SystemExit as ended:
        status = int(ended.code or 0)
    return status, out.getvalue().splitlines(), err.getvalue()


def write(folder: Path, name: str, text: str) -> Path:
    file = folder / name
    file.write_text(text, encoding="utf-8")
    return file


def test_what_holds_passes_and_leaves_no_trace(tmp_path: Path) -> None:
    mine = Cluster.objects.create(name="mine")
    status, lines, _ = play(write(tmp_path, "good.yaml", GOOD))
    closing = json.loads(lines[-1])
    assert (status, closing["scenarios"], closing["passed"], closing["failed"]) == (0, 1, 1, 0)
    assert len(lines) == 1
    assert list(Cluster.objects.all()) == [mine]


def test_what_does_not_hold_is_told_with_file_time_expected_and_found(tmp_path: Path) -> None:
    file = write(tmp_path, "bad.yaml", GOOD.replace("{j: running}", "{j: queued}"))
    status, lines, _ = play(file)
    assert status == 1
    assert lines[0] == f"{file} at 2026-01-05T00:00:00+00:00 (+0s): expected j queued, found running"
    assert json.loads(lines[-1])["failed"] == 1


def test_a_file_that_is_not_valid_ends_with_two_and_its_place(tmp_path: Path) -> None:
    write(tmp_path, "good.yaml", GOOD)
    file = write(tmp_path, "odd.yaml", GOOD.replace("kind: training", "kind: job"))
    status, lines, complaints = play(tmp_path)
    assert status == 2
    assert f"{file}:7:38: steps.0.submit.kind: must be one of" in complaints
    assert json.loads(lines[-1])["scenarios"] == 2
    assert json.loads(lines[-1])["passed"] == 1


def test_a_refusal_that_was_not_expected_fails_the_scenario(tmp_path: Path) -> None:
    status, lines, _ = play(write(tmp_path, "much.yaml", GOOD.replace("gpus: 1},", "gpus: 2},")))
    assert status == 1
    assert "was refused with" in lines[0]


def test_trace_tells_events_and_json_one_object_a_scenario(tmp_path: Path) -> None:
    file = write(tmp_path, "good.yaml", GOOD)
    _, traced, _ = play(file, trace=True)
    assert any("j: started queued -> starting by scheduler" in line for line in traced)
    _, lines, _ = play(file, json=True)
    assert json.loads(lines[0])["passed"] is True
