"""Conformance: what the in-turn way decides, and that the recorded cases come out as recorded."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from scheduler.conformance.cases import BadCase, files_of, read_cases
from scheduler.conformance.runner import Tally, run_case, run_cases
from tests.conformance.makers import a_case, expects, job, node, queue

RECORDED = Path(__file__).parents[3] / "shared" / "conformance"
FILES = sorted(RECORDED.glob("*.json")) if RECORDED.is_dir() else []


def run(folder: Path, raw: dict[str, Any]) -> list[str]:
    """What did not come out as the case expects."""
    path = folder / "case.json"
    path.write_text(json.dumps({"cases": [raw]}), encoding="utf-8")
    (case,) = read_cases(path)
    return run_case(case)


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_recorded_cases_come_out_as_recorded(path: Path) -> None:
    wrong = {case.id: found for case, found in run_cases(read_cases(path)) if found}
    assert wrong == {}


def test_a_starved_queue_takes_one_job_back_and_then_all_is_quiet(tmp_path: Path) -> None:
    nodes = [node("n0", 2)]
    queues = [queue("q0", 1), queue("q1", 1)]
    jobs = [
        job("j0", "q0", ["n0"], age=3),
        job("j1", "q0", ["n0"], age=2),
        job("j2", "q1", [None], age=1),
    ]
    expected = {"j0": expects("Running", "n0"), "j1": expects("Pending"), "j2": expects("Running", "n0")}
    assert run(tmp_path, a_case(nodes, queues, jobs, expected)) == []


def test_a_wrong_expectation_is_told_with_what_came(tmp_path: Path) -> None:
    raw = a_case([node("n0", 1)], [queue("q0", 1)], [job("j0")], {"j0": expects("Pending")})
    (line,) = run(tmp_path, raw)
    assert line == "j0-0: expected Pending, came Running on n0"


def test_work_that_is_not_preemptible_stays_within_the_promise(tmp_path: Path) -> None:
    firm = {"preemptible": False, "priority": 100}
    jobs = [job("j0", places=["n0"], age=2, **firm), job("j1", age=1, **firm)]
    expected = {"j0": expects("Running", "n0"), "j1": expects("Pending")}
    assert run(tmp_path, a_case([node("n0", 2)], [queue("q0", 1)], jobs, expected)) == []


def test_consolidation_moves_nobody_when_it_may_look_at_none(tmp_path: Path) -> None:
    nodes = [node("n0", 2), node("n1", 2)]
    jobs = [
        job("j0", places=["n0"], age=3),
        job("j1", places=["n1"], age=2),
        job("j2", gpus=2, age=1),
    ]
    moved = {"j2": expects("Pipelined", gpus=2)}
    waits = {"j0": expects("Running", "n0"), "j1": expects("Running", "n1"), "j2": expects("Pending", gpus=2)}
    step = ["consolidation"]
    queues = [queue("q0", 4)]
    assert run(tmp_path, a_case(nodes, queues, jobs, moved, steps=step)) == []
    assert run(tmp_path, a_case(nodes, queues, jobs, waits, steps=step, max_consolidation_preemptees=0)) == []


@pytest.mark.parametrize(("plugin", "device_mates"), [("gpupack", True), ("gpuspread", False)])
def test_shares_are_packed_or_spread_by_a_setting(tmp_path: Path, plugin: str, device_mates: bool) -> None:
    jobs = [job("j0", places=["n0"], gpus=0.5, age=2), job("j1", gpus=0.5, age=1)]
    idle = 1 if device_mates else 0
    raw = a_case(
        [node("n0", 2)],
        [queue("q0", 2)],
        jobs,
        {"j1": expects("Binding", "n0", 0.5)},
        steps=["allocate"],
        plugins=[{"name": plugin, "arguments": {}}],
    )
    raw["expected"]["nodes"] = {"n0": {"idle_gpus": idle, "releasing_gpus": 0}}
    assert run(tmp_path, raw) == []


def test_a_stale_gang_is_stopped_after_its_grace(tmp_path: Path) -> None:
    def stopped(stale_for: int) -> bool:
        raw = a_case(
            [node("n0", 4)],
            [queue("q0", 4)],
            [job("j0", places=["n0", "n0"], minimum=3, stale_for_s=stale_for)],
            {"j0": expects("Releasing", gpus=2)},
            steps=["stalegangeviction"],
            staleness_grace_s=60,
        )
        return run(tmp_path, raw) == []

    assert stopped(61)
    assert not stopped(59)


def test_what_is_not_of_the_format_is_refused_with_its_place(tmp_path: Path) -> None:
    path = tmp_path / "broken.json"
    path.write_text('{"cases": [{"id": "x", "jobs": []}]}', encoding="utf-8")
    with pytest.raises(BadCase, match="case 0"):
        read_cases(path)
    with pytest.raises(BadCase, match="no such file"):
        files_of([tmp_path / "missing.json"])


def test_the_closing_line_counts_by_feature(tmp_path: Path) -> None:
    path = tmp_path / "two.json"
    good = a_case([node("n0", 1)], [queue("q0", 1)], [job("j0")], {"j0": expects("Running")})
    bad = a_case([node("n0", 1)], [queue("q0", 1)], [job("j0")], {"j0": expects("Pending")})
    good["features"] = ["whole_gpu"]
    path.write_text(json.dumps({"cases": [good, bad]}), encoding="utf-8")
    tally = Tally()
    for case, found in run_cases(read_cases(path)):
        tally.add(case, is_passed=not found)
    assert tally.as_json() == {
        "passed": 1,
        "failed": 1,
        "skipped": 0,
        "by_feature": {
            "integration": {"passed": 1, "failed": 1},
            "whole_gpu": {"passed": 1, "failed": 0},
        },
    }
