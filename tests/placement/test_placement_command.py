"""`manage placement`: figures on standard output, progress beside it, clear errors. No database is asked."""

import json
from pathlib import Path

import pytest
from django.core.management import CommandError, call_command

from scheduler.core.placement_run import POLICIES
from tests.placement.makers import some_nodes, some_tasks, write_lists


def place(nodes: Path, tasks: Path, **options: str) -> None:
    arguments = {"nodes": nodes, "tasks": tasks, "seeds": "42", **options}
    call_command("placement", *[f"--{name}={given}" for name, given in arguments.items()])


@pytest.fixture
def lists(tmp_path: Path) -> tuple[Path, Path]:
    return write_lists(tmp_path, some_nodes(), some_tasks())


def test_figures_of_all_seeds_are_printed_as_json(lists: tuple[Path, Path], capsys: pytest.CaptureFixture[str]):
    place(*lists, seeds="42..43,50", policy="firstfit")
    printed = capsys.readouterr()
    report = json.loads(printed.out)
    assert report["seeds"] == [42, 43, 50]
    assert report["nodes"] == {"file": "nodes.csv", "count": 40, "gpus": 212}
    whole = report["gpu_allocation_percent"]["100"]
    assert whole["mean"] == pytest.approx(sum(whole["by_seed"].values()) / 3, abs=0.002)
    assert 80 < whole["mean"] < 100
    assert whole["deviation"] > 0
    assert sum(report["rejected_per_run"]["130"].values()) > sum(report["rejected_per_run"]["100"].values())
    assert report["seconds_per_run"] > 0
    assert [line.split(":")[0] for line in printed.err.splitlines()] == [
        "firstfit, seed 42", "firstfit, seed 43", "firstfit, seed 50",
    ]  # fmt: skip


def test_our_own_policy_is_the_default(lists: tuple[Path, Path], capsys: pytest.CaptureFixture[str]):
    place(*lists)
    report = json.loads(capsys.readouterr().out)
    assert report["policy"] == "default"
    assert report["cpu_ms_per_decision"] > 0
    assert set(POLICIES) == {"bestfit", "default", "dotprod", "fgd", "firstfit", "packing", "random"}


def test_a_list_without_models_has_tasks_that_run_anywhere(
    lists: tuple[Path, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    short = tmp_path / "short.csv"
    short.write_text("\n".join(",".join(line.split(",")[:5]) for line in lists[1].read_text().splitlines()) + "\n")
    allocations = []
    for tasks in (lists[1], short):
        place(lists[0], tasks, policy="bestfit")
        allocations.append(json.loads(capsys.readouterr().out)["gpu_allocation_percent"])
    assert allocations[0] == allocations[1]


@pytest.mark.parametrize(
    ("seeds", "words"),
    [("x", "not a seed"), ("5..3", "from low to high"), ("1..99999", "at most 10000"), ("1,,2", "not a seed")],
)
def test_bad_seeds_are_named(lists: tuple[Path, Path], seeds: str, words: str):
    with pytest.raises(CommandError, match=words):
        place(*lists, seeds=seeds)


@pytest.mark.parametrize(
    ("tasks", "words"),
    [
        ("name,cpu_milli\nt,1\n", "no column gpu_milli, memory_mib, num_gpu"),
        ("cpu_milli,memory_mib,num_gpu,gpu_milli\n1,1,1,x\n", "line 2: invalid literal"),
        ("cpu_milli,memory_mib,num_gpu,gpu_milli\n1,1,2,500\n", "line 2: 2 GPUs of 500 thousandths"),
        ("cpu_milli,memory_mib,num_gpu,gpu_milli\n-1,1,1,500\n", "line 2: cpu_milli is negative"),
        ("cpu_milli,memory_mib,num_gpu,gpu_milli\n1,1\n", "line 2"),
        ("cpu_milli,memory_mib,num_gpu,gpu_milli\n1,1,0,0\n", "no task asks for a GPU"),
    ],
)
def test_a_bad_list_is_refused_with_file_and_line(lists: tuple[Path, Path], tmp_path: Path, tasks: str, words: str):
    bad = tmp_path / "bad.csv"
    bad.write_text(tasks)
    with pytest.raises(CommandError, match=rf"bad\.csv.*{words}"):
        place(lists[0], bad)


def test_a_missing_file_and_a_list_without_gpus_are_refused(lists: tuple[Path, Path], tmp_path: Path):
    with pytest.raises(CommandError, match="No such file"):
        place(tmp_path / "nowhere.csv", lists[1])
    empty = tmp_path / "empty.csv"
    empty.write_text("cpu_milli,memory_mib,gpu,model\n1000,1000,0,A\n")
    with pytest.raises(CommandError, match="no node has a GPU"):
        place(empty, lists[1])
