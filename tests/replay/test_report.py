"""The figures of a replay."""

from scheduler.replay.report import Held, Waited, gpu_group, lost_gpu_hours, percentile, table, use, waits


def test_waits_are_grouped_by_class_and_gpus() -> None:
    found = waits(
        [
            Waited("online", "1", 0.0),
            Waited("online", "1", 10.0),
            Waited("online", "8", 50.0),
            Waited("batch", "<1", None),
        ]
    )
    assert list(found) == ["batch", "online"]
    assert found["online"] == {
        "started": 3,
        "waiting_at_end": 0,
        "mean_s": 20.0,
        "median_s": 10.0,
        "p95_s": 50.0,
        "by_gpus": {
            "1": {"started": 2, "waiting_at_end": 0, "mean_s": 5.0, "median_s": 5.0, "p95_s": 10.0},
            "8": {"started": 1, "waiting_at_end": 0, "mean_s": 50.0, "median_s": 50.0, "p95_s": 50.0},
        },
    }
    assert found["batch"]["mean_s"] is None
    assert found["batch"]["waiting_at_end"] == 1


def test_percentile_is_the_value_that_so_many_do_not_exceed() -> None:
    assert percentile([1.0], 0.95) == 1.0
    assert percentile([float(n) for n in range(1, 101)], 0.95) == 95.0


def test_use_counts_held_time_inside_the_interval() -> None:
    held = [Held(1000, 0, 50), Held(500, 50, 200, lost=True)]
    assert use(held, capacity_milli=1000, end_s=100) == 0.75
    assert lost_gpu_hours([Held(2000, 0, 5400, lost=True), Held(8000, 0, 3600)]) == 3.0


def test_groups_of_requests() -> None:
    assert [gpu_group(0, 0), gpu_group(1, 460), gpu_group(1, 1000), gpu_group(8, 1000)] == ["0", "<1", "1", "8"]


def test_table_has_a_column_for_each_way() -> None:
    way = {
        "waits": {"batch": {"mean_s": 12.5, "median_s": None, "p95_s": 99.0}},
        "gpu_use": 0.613,
        "evictions": 3,
        "lost_gpu_hours": 1.5,
        "refused": 0,
        "seconds": 9,
    }
    lines = table([{"way": "static", **way}, {"way": "borrowing", **way}]).splitlines()
    assert lines[0].split() == ["static", "borrowing"]
    assert lines[2].split() == ["batch", "median", "wait", "(s)", "-", "-"]
    assert "61.3%" in lines[4]
