"""Pictures from numbers: where the parts of a bar begin and end, squares, lanes and steps."""

from datetime import UTC, datetime, timedelta

from console.charts import GpuUse, Span, Usage, heat_node, lanes, step_picture, usage_bar

NOON = datetime(2026, 3, 2, 12, tzinfo=UTC)
HOUR = timedelta(hours=1)


def parts(bar):
    return {part.name: (part.start, part.width) for part in bar.parts}


def test_a_bar_runs_from_zero_to_the_limit_with_the_borrowed_part_last():
    bar = usage_bar(Usage("north", used=80_000, borrowed=20_000, guaranteed=60_000, limit=100_000))
    assert parts(bar) == {"used": (0.0, 60.0), "borrowed": (60.0, 20.0)}
    assert bar.tick == 60.0


def test_without_a_limit_the_guarantee_is_the_right_end():
    bar = usage_bar(Usage("south", used=10_000, lent=20_000, guaranteed=40_000))
    assert parts(bar) == {"used": (0.0, 25.0), "lent": (25.0, 50.0)}
    assert bar.tick == 100.0


def test_nothing_runs_out_of_a_bar_on_a_smaller_scale():
    bar = usage_bar(Usage("north", used=80_000, borrowed=20_000, guaranteed=60_000), scale=40_000)
    assert all(start + width <= 100.0 for start, width in parts(bar).values())


def test_a_quota_without_anything_is_an_empty_bar_without_a_tick():
    bar = usage_bar(Usage("empty"))
    assert (bar.parts, bar.tick) == ((), None)


def test_the_sentence_says_all_numbers():
    bar = usage_bar(Usage("north", used=8500, borrowed=500, lent=0, guaranteed=8000, limit=16_000))
    assert bar.sentence == "north: 8.5 of 8 guaranteed GPUs in use, 0.5 borrowed, 0 lent, limit 16"


def test_a_node_has_a_square_a_gpu_and_crosses_for_bad_ones():
    node = heat_node(pk=1, name="n1", state="ready", devices=[GpuUse(owner=1)] * 3 + [GpuUse(is_bad=True)])
    assert [cell.css for cell in node.cells] == ["swatch-1", "swatch-1", "swatch-1", "swatch-free"]
    assert [cell.crossed for cell in node.cells] == [False, False, False, True]
    assert node.sentence == "n1: 3 of 4 GPUs in use, 1 bad, ready"


def test_every_gpu_of_a_lost_node_is_crossed_out():
    node = heat_node(pk=1, name="n1", state="lost", devices=[GpuUse()] * 2)
    assert [cell.crossed for cell in node.cells] == [True, True]


def test_lanes_share_the_line_by_time():
    drawn = lanes([Span("queued", NOON, NOON + HOUR), Span("running", NOON + HOUR, NOON + 4 * HOUR)])
    assert [(lane.name, lane.x, lane.width) for lane in drawn.lanes] == [("queued", 0.0, 25.0), ("running", 25.0, 75.0)]


def test_a_moment_is_still_wide_enough_to_be_seen():
    drawn = lanes([Span("queued", NOON, NOON), Span("running", NOON, NOON + HOUR)])
    assert drawn.lanes[0].width == 0.4


def test_steps_rise_and_fall_at_their_times():
    picture = step_picture([(NOON, 4), (NOON + 6 * HOUR, 40)], start=NOON, end=NOON + 12 * HOUR, width=120, height=106)
    assert picture.line == "M0 96.0H0.0V96.0H60.0V6.0H120"
    assert picture.top == 40
