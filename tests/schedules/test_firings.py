"""When a rule fires: fixed hours by the clock face, ``*`` in the hour by real time, each instant once."""

from datetime import UTC, date, datetime, timedelta
from itertools import takewhile
from zoneinfo import ZoneInfo

import pytest
from cronsim import CronSim
from hypothesis import given, settings
from hypothesis import strategies as st

from workloads.schedules import (
    BadScheduleError,
    Firing,
    Rule,
    check_cron,
    check_zone,
    cron_for,
    explain,
    firings,
    latest_firing,
    next_firing,
    upcoming,
)

MINUTE = timedelta(minutes=1)


def rule(cron: str, zone: str = "UTC", **fields: object) -> Rule:
    return Rule("rule", check_cron(cron), check_zone(zone), replicas=1, **fields)  # type: ignore[arg-type]


def utc(text: str) -> datetime:
    return datetime.fromisoformat(text).replace(tzinfo=UTC)


def shown(found: list[Firing]) -> list[str]:
    return [firing.local.isoformat() for firing in found]


def test_daily_rule_follows_the_local_clock_over_both_changes() -> None:
    daily = rule("4 16 * * *", "America/New_York")
    assert shown(upcoming(daily, utc("2025-03-08T00:00"), 3)) == [
        "2025-03-08T16:04:00-05:00",
        "2025-03-09T16:04:00-04:00",
        "2025-03-10T16:04:00-04:00",
    ]
    assert shown(upcoming(daily, utc("2025-11-01T00:00"), 3)) == [
        "2025-11-01T16:04:00-04:00",
        "2025-11-02T16:04:00-05:00",
        "2025-11-03T16:04:00-05:00",
    ]


def test_skipped_time_fires_at_the_first_instant_after_the_gap() -> None:
    before, gap, after = upcoming(rule("20 2 * * *", "Europe/Berlin"), utc("2027-03-27T00:00"), 3)
    assert shown([before, gap, after]) == [
        "2027-03-27T02:20:00+01:00",
        "2027-03-28T03:00:00+02:00",
        "2027-03-29T02:20:00+02:00",
    ]
    assert [firing.clock_change for firing in (before, gap, after)] == ["", "gap", ""]
    assert gap.scheduled == datetime(2027, 3, 28, 2, 20)  # noqa: DTZ001 (a clock face)


def test_all_times_that_one_gap_skips_fire_once_together() -> None:
    found = upcoming(rule("*/20 2 * * *", "Europe/Berlin"), utc("2027-03-28T00:30"), 2)
    assert shown(found) == ["2027-03-28T03:00:00+02:00", "2027-03-29T02:00:00+02:00"]


def test_skipped_time_and_the_time_after_the_gap_fire_once_together() -> None:
    found = upcoming(rule("0 2,3 * * *", "Europe/Berlin"), utc("2027-03-28T00:30"), 2)
    assert shown(found) == ["2027-03-28T03:00:00+02:00", "2027-03-29T02:00:00+02:00"]


def test_repeated_time_fires_the_first_time_only() -> None:
    first, next_day = upcoming(rule("30 2 * * *", "Europe/Berlin"), utc("2026-10-24T12:00"), 2)
    assert shown([first, next_day]) == ["2026-10-25T02:30:00+02:00", "2026-10-26T02:30:00+01:00"]
    assert (first.clock_change, next_day.clock_change) == ("fold", "")


def test_latest_firing_inside_the_repeated_hour_is_of_the_first_pass() -> None:
    daily = rule("30 2 * * *", "Europe/Berlin")
    in_second_pass = utc("2026-10-25T01:10")  # 02:10 for the second time
    assert shown([latest_firing(daily, in_second_pass)]) == ["2026-10-25T02:30:00+02:00"]  # type: ignore[list-item]


def test_star_in_the_hour_goes_by_real_time_through_the_repeated_hour() -> None:
    found = upcoming(rule("*/30 * * * *", "Europe/Berlin"), utc("2026-10-24T23:59"), 5)
    assert [firing.at for firing in found] == [utc("2026-10-25T00:00") + 30 * MINUTE * n for n in range(5)]


def test_star_in_the_hour_goes_by_real_time_through_the_gap() -> None:
    found = upcoming(rule("30 * * * *", "Europe/Berlin"), utc("2027-03-27T23:59"), 3)
    assert shown(found) == ["2027-03-28T01:30:00+01:00", "2027-03-28T03:30:00+02:00", "2027-03-28T04:30:00+02:00"]


def test_night_that_loses_midnight_still_fires_a_midnight_rule() -> None:
    found = upcoming(rule("0 0 * * 5", "Africa/Cairo"), utc("2025-04-20T00:00"), 2)
    assert shown(found) == ["2025-04-25T01:00:00+03:00", "2025-05-02T00:00:00+03:00"]


def test_day_that_a_zone_skips_fires_when_the_next_begins() -> None:
    found = upcoming(rule("0 12 30 12 *", "Pacific/Apia"), utc("2011-12-01T00:00"), 1)
    assert shown(found) == ["2011-12-31T00:00:00+14:00"]


def test_half_hour_change_of_lord_howe() -> None:
    found = upcoming(rule("15 2 * * *", "Australia/Lord_Howe"), utc("2026-10-02T20:00"), 2)
    assert shown(found) == ["2026-10-04T02:30:00+11:00", "2026-10-05T02:15:00+11:00"]


@pytest.mark.parametrize(
    ("zone", "at"),
    [("Asia/Shanghai", "2026-03-02T00:00"), ("UTC", "2026-03-02T08:00"), ("Asia/Kolkata", "2026-03-02T02:30")],
)
def test_zone_without_changes(zone: str, at: str) -> None:
    assert next_firing(rule("0 8 * * 1-5", zone), utc("2026-02-27T12:00")).at == utc(at)  # type: ignore[union-attr]


def test_six_fields_have_the_seconds_in_front() -> None:
    found = upcoming(rule("*/20 59 23 * * *"), utc("2026-03-02T23:59:10"), 3)
    assert shown(found) == ["2026-03-02T23:59:20+00:00", "2026-03-02T23:59:40+00:00", "2026-03-03T23:59:00+00:00"]


def test_firing_counts_at_its_own_instant_and_next_is_strictly_later() -> None:
    eight = rule("0 8 * * *")
    at = utc("2026-03-02T08:00")
    assert latest_firing(eight, at).at == at  # type: ignore[union-attr]
    assert next_firing(eight, at).at == at + timedelta(days=1)  # type: ignore[union-attr]
    assert latest_firing(eight, at - timedelta(microseconds=1)).at == at - timedelta(days=1)  # type: ignore[union-attr]


def test_days_of_a_rule_are_dates_of_its_zone_and_both_ends_belong() -> None:
    spring = rule(
        "0 1 * * *",
        "Asia/Tokyo",
        valid_from=date(2026, 3, 2),
        valid_until=date(2026, 3, 5),
        excluded=frozenset({date(2026, 3, 3)}),
    )
    expected = ["2026-03-02T01:00:00+09:00", "2026-03-04T01:00:00+09:00", "2026-03-05T01:00:00+09:00"]
    assert shown(upcoming(spring, utc("2020-01-01T00:00"), 9)) == expected
    assert latest_firing(spring, utc("2026-03-01T15:59")) is None
    assert shown([latest_firing(spring, utc("2026-03-03T12:00"))]) == expected[:1]  # type: ignore[list-item]
    assert shown([latest_firing(spring, utc("2030-01-01T00:00"))]) == expected[-1:]  # type: ignore[list-item]


def test_excluded_days_of_a_rule_of_every_second_cost_nothing() -> None:
    year = frozenset(date(2026, 1, 1) + timedelta(days=n) for n in range(365))
    each_second = rule("* * * * * *", excluded=year, valid_until=date.max)
    assert latest_firing(each_second, utc("2026-12-31T12:00")).at == utc("2025-12-31T23:59:59")  # type: ignore[union-attr]
    assert next_firing(each_second, utc("2026-01-01T00:00")).at == utc("2027-01-01T00:00")  # type: ignore[union-attr]


def test_rule_of_a_rare_day_is_found_both_ways() -> None:
    leap = rule("0 */6 29 2 *", "Asia/Tokyo")
    assert shown([next_firing(leap, utc("2025-03-01T00:00"))]) == ["2028-02-29T00:00:00+09:00"]  # type: ignore[list-item]
    assert shown([latest_firing(leap, utc("2027-03-01T00:00"))]) == ["2024-02-29T18:00:00+09:00"]  # type: ignore[list-item]


@pytest.mark.parametrize(
    "text",
    [
        "",
        "* * * *",
        "* * * * * * *",
        "60 * * * *",
        "0 24 * * *",
        "0 0 31 2 *",
        "0 0 31 4,6 *",
        "x * * * *",
        "@daily",
        "*/0 * * * *",
    ],
)
def test_expression_that_cannot_be_used_is_refused(text: str) -> None:
    with pytest.raises(BadScheduleError) as refused:
        check_cron(text)
    assert refused.value.field == "cron"
    assert refused.value.facts["given"] == text


@pytest.mark.parametrize("name", ["", "Mars/Olympus", "Europe", "../etc/passwd", "localtime", "CEST+2"])
def test_zone_that_is_no_iana_name_is_refused(name: str) -> None:
    with pytest.raises(BadScheduleError) as refused:
        check_zone(name)
    assert refused.value.field == "zone"


@given(st.text(alphabet="0123456789*/-,#L WMONFRI²", max_size=20))
def test_any_text_is_a_schedule_or_refused(text: str) -> None:
    try:
        cron = check_cron(text)
    except BadScheduleError:
        return
    assert next_firing(Rule("rule", cron, "Europe/Berlin", replicas=1), utc("2026-01-01T00:00")) is not None


def test_picker_and_words() -> None:
    eight = datetime(2026, 1, 1, 8, 30, tzinfo=UTC).time()
    assert cron_for([5, 1, 3], eight) == "30 8 * * 1,3,5"
    assert cron_for(range(1, 8), eight) == cron_for([], eight) == "30 8 * * *"
    assert cron_for([7], eight.replace(second=5)) == "5 30 8 * * 7"
    assert explain("0 8 * * 1-5", "Europe/Istanbul") == "At 08:00 on Monday through Friday (Europe/Istanbul)"


# --- against a walk through every minute ----------------------------------------------------------------------------

CRONS = st.sampled_from(
    [
        "30 2 * * *",
        "*/20 2 * * *",
        "0 * * * *",
        "*/45 * * * *",
        "15 0,2-4 * * *",
        "0 */3 * * 1-5",
        "10 23 * * 7",
        "59 1 * * *",
        "0 3 28 * *",
    ]
)
ZONES = st.sampled_from(
    [
        "Europe/Berlin",
        "America/New_York",
        "Australia/Lord_Howe",
        "Africa/Cairo",
        "America/Havana",
        "Africa/Casablanca",
        "Asia/Kolkata",
    ]
)
YEAR = datetime(2025, 1, 1, tzinfo=UTC)
CHANGES = {
    zone: [
        day
        for day in (YEAR + timedelta(days=n) for n in range(365))
        if (day + timedelta(days=1)).astimezone(ZoneInfo(zone)).utcoffset()
        != day.astimezone(ZoneInfo(zone)).utcoffset()
    ]
    for zone in ZONES.elements  # type: ignore[attr-defined]
}


def faces(instant: datetime, zone: ZoneInfo) -> datetime:
    return instant.astimezone(zone).replace(tzinfo=None, fold=0)


def matches(cron: str, face: datetime) -> bool:
    return next(CronSim(cron, face - timedelta(seconds=1))) == face


def walked(cron: str, zone: ZoneInfo, start: datetime, minutes: int) -> list[datetime]:
    """The instants at which a clock watched minute by minute would have fired."""
    found, highest = [], faces(start, zone)
    for instant in (start + MINUTE * n for n in range(1, minutes + 1)):
        face = faces(instant, zone)
        if cron.split()[1].startswith("*"):
            new = [face]
        else:
            new = [highest + MINUTE * n for n in range(1, int((face - highest) / MINUTE) + 1)]
        if any(matches(cron, each) for each in new):
            found.append(instant)
        highest = max(highest, face)
    return found


@given(CRONS, ZONES, st.data())
@settings(max_examples=60, deadline=None)
def test_firings_are_those_of_a_clock_watched_minute_by_minute(cron: str, zone: str, data: st.DataObject) -> None:
    around = data.draw(st.sampled_from(CHANGES[zone] or [YEAR]))
    start = around - MINUTE * data.draw(st.integers(600, 1200))
    length = 3 * 1440
    expected = walked(cron, ZoneInfo(zone), start, length)
    one = rule(cron, zone)
    assert [
        firing.at for firing in takewhile(lambda f: f.at <= start + length * MINUTE, firings(one, start))
    ] == expected
    for at in data.draw(st.lists(st.sampled_from(range(length)), min_size=5, max_size=5)):
        instant = start + at * MINUTE + timedelta(seconds=17)
        before = [each for each in expected if each <= instant]
        if before:
            assert latest_firing(one, instant).at == before[-1]  # type: ignore[union-attr]
