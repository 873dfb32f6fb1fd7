"""Reading a log and the nodes it is replayed on."""

from pathlib import Path

import pytest

from scheduler.replay.log import BEGIN_S, EXTRA_MACHINE, BadLogError, Task, arrivals, read_tasks, sample_machines

HEADER = "job,arrival_s,queued_s,duration_s,gpus,gpu_milli,cpu_milli,memory_mib,qos,phase\n"


def task(job: str, arrival_s: int, duration_s: int | None, qos: str = "LS", queued_s: int = 0) -> Task:
    return Task(job, arrival_s, queued_s, duration_s, 1, 1000, 4000, 1024, qos)


def test_tasks_are_read_with_their_units(tmp_path: Path) -> None:
    path = tmp_path / "jobs.csv"
    path.write_text(HEADER + "7,9900100,5,60,1,460,6000,12288,BE,Running\n8,9900200,0,,2,1000,0,0,LS,Pending\n")
    assert read_tasks(path) == [
        Task("7", 9900100, 5, 60, 1, 460, 6000, 12288, "BE"),
        Task("8", 9900200, 0, None, 2, 1000, 0, 0, "LS"),
    ]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("job,arrival_s\n1,2\n", "no column queued_s"),
        (HEADER + "7,soon,5,60,1,460,6000,12288,BE,Running\n", "line 2: arrival_s is a whole number"),
        (HEADER + "7,1,5,60,1,-1,6000,12288,BE,Running\n", "line 2: gpu_milli is a whole number"),
        (HEADER + "7,1,5\n", "line 2"),
    ],
)
def test_bad_log_is_refused_with_the_place(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "jobs.csv"
    path.write_text(text)
    with pytest.raises(BadLogError, match=message):
        read_tasks(path)


def test_sample_is_every_hundredth_node_and_a_large_one(tmp_path: Path) -> None:
    path = tmp_path / "nodes.csv"
    lines = [f"n{index},{1000 * (index + 1)},1024,2,T4" for index in reversed(range(250))]
    path.write_text("\n".join(["sn,cpu_milli,memory_mib,gpu,model", *lines]))
    found = sample_machines(path)
    assert [machine.cpu_milli for machine in found] == [50_000, 150_000, 250_000, EXTRA_MACHINE.cpu_milli]


def test_arrivals_start_with_what_was_there_and_leave_out_what_never_ran() -> None:
    found = arrivals(
        [
            task("old", BEGIN_S - 100, 500, queued_s=10),
            task("over", BEGIN_S - 1000, 500),
            task("never", BEGIN_S + 5, None),
            task("new", BEGIN_S + 30, 60),
        ]
    )
    assert [(arrival.at_s, arrival.name, arrival.run_s) for arrival in found] == [
        (0.0, "online-old-0", 410),
        (30.0, "online-new-0", 60),
    ]


def test_batch_comes_four_times_and_speed_shortens_the_gaps() -> None:
    found = arrivals([task("b", BEGIN_S + 30, 60, qos="BE"), task("late", BEGIN_S + 90, 60)], speed=1.5, until_s=59)
    assert [(arrival.at_s, arrival.name) for arrival in found] == [(20.0, f"batch-b-{copy}") for copy in range(4)]
