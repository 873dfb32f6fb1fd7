"""Which size the rules want at an instant: a level that follows from the latest firing."""

from datetime import UTC, date, datetime, timedelta

from hypothesis import given, settings
from hypothesis import strategies as st

from workloads.schedules import Rule, in_force, next_change, wanted

HOUR = timedelta(hours=1)


def utc(text: str) -> datetime:
    return datetime.fromisoformat(text).replace(tzinfo=UTC)


def target(cron: str, replicas: int, zone: str = "Europe/Prague", **fields: object) -> Rule:
    return Rule(f"to {replicas}", cron, zone, replicas=replicas, **fields)  # type: ignore[arg-type]


WORKDAYS = [target("30 6 * * 1-5", 3), target("10 22 * * *", 0)]


def size(rules: list[Rule], at: datetime, current: int = 1, **given_: object) -> int:
    found = wanted(rules, at, **given_)  # type: ignore[arg-type]
    return current if found is None else found.size(current)


def test_window_over_midnight_and_weekend() -> None:
    friday = datetime(2026, 3, 6, tzinfo=UTC)  # Prague is an hour ahead of UTC
    assert size(WORKDAYS, friday + timedelta(hours=5, minutes=29)) == 0
    assert size(WORKDAYS, friday + timedelta(hours=5, minutes=30)) == 3
    assert size(WORKDAYS, friday + timedelta(hours=21, minutes=9)) == 3
    weekend = [friday + timedelta(hours=21, minutes=10) + HOUR * n for n in range(56)]
    assert {size(WORKDAYS, at) for at in weekend} == {0}
    assert size(WORKDAYS, friday + timedelta(days=3, hours=5, minutes=30)) == 3


def test_rules_leave_the_size_alone_until_one_has_fired() -> None:
    later = [target("0 8 * * *", 5, valid_from=date(2026, 3, 10))]
    assert wanted(later, utc("2026-03-09T12:00")) is None
    assert wanted([], utc("2026-03-09T12:00")) is None


def test_disabled_rule_never_counts() -> None:
    off = target("0 8 * * *", 5, enabled=False)
    assert wanted([off], utc("2026-03-09T12:00")) is None
    assert next_change(off, utc("2026-03-09T12:00")) is None


def test_of_rules_that_fire_together_the_later_in_the_list_decides() -> None:
    at = utc("2026-03-09T12:00")
    assert size([target("0 8 * * *", 5), target("0 8 * * *", 7)], at) == 7
    assert size([target("0 8 * * *", 7), target("0 8 * * *", 5)], at) == 5


def test_size_stays_when_the_days_of_its_rule_are_over() -> None:
    once = target("0 8 * * *", 5, valid_until=date(2026, 3, 9))
    assert size([once], utc("2026-04-01T00:00")) == 5


def test_manual_size_holds_until_the_next_firing() -> None:
    by_hand = utc("2026-03-05T12:00")
    assert wanted(WORKDAYS, utc("2026-03-05T20:00"), manual_at=by_hand) is None
    assert size(WORKDAYS, utc("2026-03-05T21:10"), manual_at=by_hand) == 0


def test_size_set_by_hand_at_the_instant_of_a_firing_comes_after_it() -> None:
    fired = utc("2026-03-05T21:10")
    assert wanted(WORKDAYS, fired, manual_at=fired) is None


def test_bounds_leave_a_size_inside_them_alone() -> None:
    bounds = Rule("day", "0 8 * * *", "UTC", min_replicas=2, max_replicas=6)
    at = utc("2026-03-05T12:00")
    assert [size([bounds], at, current) for current in (0, 2, 4, 6, 9)] == [2, 2, 4, 6, 6]
    open_ended = Rule("day", "0 8 * * *", "UTC", min_replicas=2)
    assert [size([open_ended], at, current) for current in (0, 9)] == [2, 9]


def test_ready_by_begins_ahead_and_only_adds() -> None:
    rules = [target("0 20 * * *", 2, "UTC"), target("0 8 * * *", 6, "UTC", ready_by=True)]
    lead = timedelta(minutes=10)
    assert size(rules, utc("2026-03-05T07:49:59"), lead=lead) == 2
    found = wanted(rules, utc("2026-03-05T07:50"), lead=lead)
    assert found is not None
    assert (found.size(2), found.ahead, found.firing.at) == (6, True, utc("2026-03-05T08:00"))
    assert next_change(rules[1], utc("2026-03-05T07:00"), lead) == utc("2026-03-05T07:50")
    assert next_change(rules[1], utc("2026-03-05T07:50"), lead) == utc("2026-03-05T08:00")


def test_ready_by_takes_nothing_away_early() -> None:
    rules = [target("0 20 * * *", 6, "UTC"), target("0 8 * * *", 2, "UTC", ready_by=True)]
    lead = timedelta(minutes=10)
    assert size(rules, utc("2026-03-05T07:55"), lead=lead) == 6
    assert size(rules, utc("2026-03-05T08:00"), lead=lead) == 2


def test_beginning_ahead_ends_a_manual_hold_that_is_older() -> None:
    rules = [target("0 20 * * *", 2, "UTC"), target("0 8 * * *", 6, "UTC", ready_by=True)]
    lead = timedelta(minutes=10)
    at = utc("2026-03-05T07:55")
    assert size(rules, at, current=4, manual_at=utc("2026-03-05T07:00"), lead=lead) == 6
    assert size(rules, at, current=9, manual_at=utc("2026-03-05T07:00"), lead=lead) == 9
    assert wanted(rules, at, manual_at=utc("2026-03-05T07:52"), lead=lead) is None


def test_two_bounds_ahead_of_each_other_are_joined_upwards() -> None:
    night = Rule("night", "0 20 * * *", "UTC", min_replicas=1, max_replicas=3)
    day = Rule("day", "0 8 * * *", "UTC", min_replicas=2, max_replicas=8, ready_by=True)
    found = wanted([night, day], utc("2026-03-05T07:55"), lead=timedelta(minutes=10))
    assert found is not None
    assert (found.minimum, found.maximum) == (2, 8)


# --- properties -----------------------------------------------------------------------------------------------------

RULES = st.lists(
    st.builds(
        Rule,
        name=st.just("rule"),
        cron=st.sampled_from(["30 2 * * *", "0 8 * * 1-5", "10 22 * * *", "0 */5 * * *", "0 0 1 * *", "*/50 1 * * 7"]),
        zone=st.sampled_from(["Europe/Berlin", "America/New_York", "Asia/Shanghai", "Africa/Cairo"]),
        replicas=st.integers(0, 9),
        enabled=st.sampled_from([True, True, False]),
        excluded=st.frozensets(st.dates(date(2025, 10, 20), date(2025, 11, 10)), max_size=3),
        valid_until=st.none() | st.dates(date(2025, 10, 20), date(2025, 11, 10)),
    ),
    max_size=4,
)
INSTANTS = st.integers(0, 40 * 86_400).map(lambda s: datetime(2025, 10, 10, tzinfo=UTC) + timedelta(seconds=s))


def first_change(rules: list[Rule], after: datetime) -> datetime | None:
    return min((at for rule in rules if (at := next_change(rule, after)) is not None), default=None)


@given(RULES, INSTANTS, INSTANTS)
@settings(max_examples=150, deadline=None)
def test_catching_up_equals_having_been_up(rules: list[Rule], one: datetime, other: datetime) -> None:
    start, end = min(one, other), max(one, other)
    current, at = size(rules, start, current=1), start
    while (change := first_change(rules, at)) is not None and change <= end:
        current, at = size(rules, change, current), change
    assert current == size(rules, end, current=size(rules, start, current=1))


@given(RULES, INSTANTS)
@settings(max_examples=150, deadline=None)
def test_level_changes_at_firings_and_nowhere_else(rules: list[Rule], at: datetime) -> None:
    change = first_change(rules, at)
    quiet_until = at + 3 * HOUR if change is None else min(change, at + 3 * HOUR)
    just_before = quiet_until - timedelta(seconds=1)
    if just_before > at:
        assert in_force(rules, just_before) == in_force(rules, at)
    if change is not None:
        assert in_force(rules, change).at == change  # type: ignore[union-attr]


@given(RULES, INSTANTS)
@settings(max_examples=100, deadline=None)
def test_decision_depends_on_order_only_among_equal_instants(rules: list[Rule], at: datetime) -> None:
    forward, backward = in_force(rules, at), in_force(rules[::-1], at)
    assert (forward and forward.at) == (backward and backward.at)
