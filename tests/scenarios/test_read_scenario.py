"""What a scenario file may say, and what is said about one that may not."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path

import pytest

from scheduler.scenarios import script
from scheduler.scenarios.format import read_scenario
from scheduler.scenarios.reading import InvalidScenario, LaterPart

HEAD = """\
name: a test
nodes:
  - {count: 2, gpus: 4, cpu: 2.5, memory: 1GiB}
  - {name: big, gpus: 8}
quotas:
  - {name: q, guaranteed: 8}
steps:
"""


def scenario(tmp_path: Path, steps: str, head: str = HEAD) -> script.Scenario:
    file = tmp_path / "s.yaml"
    file.write_text(head + steps, encoding="utf-8")
    return read_scenario(file)


def complaint(tmp_path: Path, steps: str, head: str = HEAD) -> str:
    with pytest.raises(InvalidScenario) as caught:
        scenario(tmp_path, steps, head)
    return str(caught.value).removeprefix(f"{tmp_path}/")


def test_nodes_are_numbered_and_amounts_are_base_units(tmp_path: Path) -> None:
    found = scenario(tmp_path, "  - {at: 0s, cycles: 1}\n")
    assert [group.names for group in found.nodes] == [("n0", "n1"), ("big",)]
    assert found.nodes[0].spec == {"gpus": 4, "cpu_milli": 2500, "memory_mib": 1024}
    assert found.quotas[0].amounts == {"guaranteed": {"": {"gpu_milli": 8000}}}


def test_the_three_ways_to_say_when(tmp_path: Path) -> None:
    start = "start: 2026-03-02T07:00:00+03:00\n"
    steps = '  - {at: 10s, cycles: 1}\n  - {at: +1h30m, cycles: 1}\n  - {at: "08:00", cycles: 1}\n'
    found = scenario(tmp_path, steps, start + HEAD)
    zone = timezone(timedelta(hours=3))
    at = [datetime(2026, 3, 2, 7, 0, 10, tzinfo=zone), datetime(2026, 3, 2, 8, 30, 10, tzinfo=zone)]
    assert found.steps[0].when.resolve(found.start, found.start) == at[0]
    assert found.steps[1].when.resolve(found.start, at[0]) == at[1]
    assert found.steps[2].when.resolve(found.start, at[1]) == datetime(2026, 3, 3, 8, 0, tzinfo=zone)


def test_a_submission_has_the_fields_of_the_services_spec(tmp_path: Path) -> None:
    steps = (
        "  - {at: 0s, submit: {name: j, repeat: 2, kind: training, quota: q, workers: 3, gpus: 0.5, duration: 90s,"
        " grace: 1m, topology: {required: rack}, as: ada, refused: any}}\n"
    )
    action = scenario(tmp_path, steps).steps[0].action
    assert isinstance(action, script.Submit)
    assert action.names == ["j-0", "j-1"]
    assert (action.user, action.refused) == ("ada", "any")
    assert action.spec == {
        "kind": "training",
        "replicas": 3,
        "gpus": 1,
        "gpu_milli": 500,
        "duration_s": 90,
        "grace_s": 60,
        "topology_required": "rack",
    }


def test_a_mapping_given_anew_takes_its_defaults(tmp_path: Path) -> None:
    action = scenario(tmp_path, "  - {at: 0s, quota: {name: q, child_preemption: {enabled: true}}}\n").steps[0].action
    assert isinstance(action, script.EditQuota)
    assert action.fields.settings == {
        "child_preemption": True,
        "child_claimants": ["service"],
        "child_max_victim_priority": 9,
        "child_kinds": ["training", "notebook"],
    }


def test_without_a_start_the_clock_begins_at_a_fixed_instant(tmp_path: Path) -> None:
    assert scenario(tmp_path, "  - {at: 0s, cycles: 1}\n").start == datetime(2026, 1, 5, tzinfo=UTC)


@pytest.mark.parametrize(
    ("steps", "said"),
    [
        ("  - {cycles: 1}\n", "s.yaml:8:5: steps.0: needs the field at"),
        ("  - {at: 5 minutes, cycles: 1}\n", "s.yaml:8:10: steps.0.at: must be a duration (10s)"),
        ("  - {at: 0s}\n", "s.yaml:8:5: steps.0: a step has an action"),
        ("  - {at: 0s, cycles: 1, stop: x}\n", "s.yaml:8:5: steps.0: a step has one action"),
        ("  - {at: 0s, jump: 1}\n", "s.yaml:8:20: steps.0.jump: unknown field"),
        ("  - {at: 0s, cycles: 0}\n", "s.yaml:8:22: steps.0.cycles: must be a number of at least 1"),
        ("  - {at: 9s, cycles: 1}\n  - {at: 5s, cycles: 1}\n", "s.yaml:9:10: steps.1.at: is before the previous step"),
        ("  - {at: 0s, submit: {name: j, kind: job, quota: q}}\n", "must be one of training, notebook, service"),
        ("  - {at: 0s, submit: {name: j, kind: training, quota: r}}\n", "there is no quota 'r'"),
        ("  - {at: 0s, submit: {name: j, kind: training, quota: q, gpus: 1.5}}\n", "a fraction below 1"),
        ("  - {at: 0s, submit: {name: j, kind: training, quota: q, gpus: 0.0001}}\n", "at most three digits"),
        ("  - {at: 0s, submit: {name: j, kind: training, quota: q, memory: 4}}\n", "memory with its unit"),
        ("  - {at: 0s, expect: {workloads: {j: runing}}}\n", "must be one of queued, starting, running"),
        ("  - {at: 0s, expect: {count: [{match: j}]}}\n", "needs is, at_least or at_most"),
        ("  - {at: 0s, expect: {}}\n", "expects nothing"),
        ("  - {at: 0s, node: {name: n0}}\n", "needs a state, or gpu and health"),
        ("  - {at: 0s, cycles: 1, cycles: 2}\n", "is given twice"),
        ("  - {at: 0s, cycles: [1\n", "not YAML"),
    ],
)
def test_what_is_wrong_is_told_with_its_place(tmp_path: Path, steps: str, said: str) -> None:
    assert said in complaint(tmp_path, steps)


def test_a_parent_stands_before_its_children(tmp_path: Path) -> None:
    head = HEAD.replace("{name: q, guaranteed: 8}", "{name: q, parent: root, guaranteed: 8}")
    assert "s.yaml:6:23: quotas.0.parent: there is no quota 'root' above" in complaint(
        tmp_path, "  - {at: 0s, cycles: 1}\n", head
    )


def test_a_step_of_a_later_part_is_named(tmp_path: Path) -> None:
    with pytest.raises(LaterPart, match="step 'metric' is of a later part"):
        scenario(tmp_path, "  - {at: 0s, metric: {workload: w, name: load, value: 1}}\n")


def test_an_empty_file_is_told_what_it_lacks(tmp_path: Path) -> None:
    assert "the file is empty" in complaint(tmp_path, "", "")
