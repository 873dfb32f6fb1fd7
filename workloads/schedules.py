"""The arithmetic of scheduled scaling: when rules fire, and which size follows at an instant. Pure; no database.

How a rule fires
  A rule is a cron expression of five fields, or of six with the seconds in front, read in an IANA time zone.
  Both day fields restricted means either may match, as in Debian's cron; when one starts with ``*`` both must.

What a change of clocks does
  A rule whose hour is fixed (does not start with ``*``) goes by the local clock face. A time that the clock skips
  fires at the first instant after the gap; a time that it shows twice fires once, the first time.
  A rule with ``*`` in the hour goes by real time: it fires at each instant at which the clock shows a matching time.

Which size follows
  The size at an instant is that of the latest firing, whoever was up then; so catching up equals having been up.
  Of firings at one instant the rule that stands later in the list decides. A firing counts only on the days of its
  rule: between ``valid_from`` and ``valid_until``, both included, and not on an excluded date (dates of the rule's
  zone). The size that a firing has set stays when the rule's days are over, until another one fires.

Instants are timezone-aware; those given back are UTC. Clock faces (``scheduled``) are datetimes without a zone.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta
from functools import lru_cache
from itertools import islice
from zoneinfo import ZoneInfo, available_timezones

from cronsim import CronSim, CronSimError

SECOND = timedelta(seconds=1)
DAY = timedelta(days=1)
LAST_SECOND = time(23, 59, 59)
HORIZON = 50 * 366 * DAY  # as far as cronsim looks
PIECE_DAYS = 64  # how far one look for a change of clocks goes
NOT_PLACES = frozenset({"localtime", "Factory"})  # files beside the zones, not names of zones
MAX_FIELDS = 6


class BadScheduleError(ValueError):
    """A cron expression or a zone that cannot be used: which field of the input, and why."""

    def __init__(self, field: str, why: str, given: str) -> None:
        super().__init__(f"{field}: {why}")
        self.field = field
        self.facts = {"why": why, "given": given}


@dataclass(frozen=True)
class Rule:
    """One scaling rule: either a target (``replicas``) or bounds between which something else decides."""

    name: str
    cron: str
    zone: str
    replicas: int | None = None
    min_replicas: int | None = None
    max_replicas: int | None = None
    valid_from: date | None = None
    valid_until: date | None = None
    excluded: frozenset[date] = frozenset()
    ready_by: bool = False
    enabled: bool = True

    @property
    def minimum(self) -> int:
        return self.replicas if self.replicas is not None else self.min_replicas or 0

    @property
    def maximum(self) -> int | None:
        """None: no upper bound."""
        return self.replicas if self.replicas is not None else self.max_replicas


@dataclass(frozen=True)
class Firing:
    """A rule fires at ``at`` (UTC); ``scheduled`` is the clock face that its expression names."""

    rule: Rule
    at: datetime
    scheduled: datetime

    @property
    def local(self) -> datetime:
        """What the clocks of the rule's zone show at that instant."""
        return self.at.astimezone(ZoneInfo(self.rule.zone))

    @property
    def clock_change(self) -> str:
        """``gap``: the scheduled time is skipped that day; ``fold``: it comes twice; empty: an ordinary day."""
        if self.local.replace(tzinfo=None) != self.scheduled:
            return "gap"
        return "fold" if len(_instants_showing(self.scheduled, ZoneInfo(self.rule.zone))) > 1 else ""


@dataclass(frozen=True)
class Wanted:
    """The bounds that the rules set at an instant, and the firing they come from.

    ``ahead``: the firing is still to come, and its rule wants the target running by then.
    """

    minimum: int
    maximum: int | None
    firing: Firing
    ahead: bool = False

    def size(self, current: int) -> int:
        """The size within the bounds that is nearest to the current one; a target leaves no choice."""
        at_least = max(current, self.minimum)
        return at_least if self.maximum is None else min(at_least, self.maximum)


# --- input -----------------------------------------------------------------------------------------------------------


def check_cron(text: str) -> str:
    """The expression with single spaces, or ``BadScheduleError``: malformed, or never on any day."""
    fields = text.split()
    if len(fields) not in (MAX_FIELDS - 1, MAX_FIELDS):
        raise BadScheduleError("cron", f"needs 5 or 6 fields, not {len(fields)}", text)
    cron = " ".join(fields)
    try:
        next(CronSim(cron, datetime(2000, 1, 1)))  # noqa: DTZ001 (a clock face)
    except CronSimError as error:
        raise BadScheduleError("cron", str(error), text) from error
    except StopIteration as error:
        raise BadScheduleError("cron", "never fires", text) from error
    return cron


def check_zone(name: str) -> str:
    """The name of an IANA time zone, or ``BadScheduleError``."""
    if name not in _zone_names():
        raise BadScheduleError("zone", "is not an IANA time zone such as Europe/Istanbul", name)
    return name


@lru_cache(maxsize=1)
def _zone_names() -> frozenset[str]:
    return frozenset(available_timezones() - NOT_PLACES)


def cron_for(weekdays: Sequence[int], at: time) -> str:
    """The expression behind the day and week picker; weekdays count from Monday = 1 to Sunday = 7, all when none."""
    days = "*" if not weekdays or len(set(weekdays)) == len(range(1, 8)) else ",".join(map(str, sorted(set(weekdays))))
    if at.second:
        return f"{at.second} {at.minute} {at.hour} * * {days}"
    return f"{at.minute} {at.hour} * * {days}"


def explain(cron: str, zone: str) -> str:
    """The rule's times in English, for example "At 08:00 on Monday through Friday (Europe/Istanbul)"."""
    return f"{CronSim(cron, datetime(2000, 1, 1)).explain()} ({zone})"  # noqa: DTZ001 (a clock face)


# --- firings of one rule ---------------------------------------------------------------------------------------------


def firings(rule: Rule, after: datetime) -> Iterator[Firing]:
    """The firings later than ``after`` in order, of the fifty years to come."""
    zone = ZoneInfo(rule.zone)
    forward = _real_time_forward if _goes_by_real_time(rule.cron) else _clock_face_forward
    last = after
    for face, at in forward(rule, zone, after.astimezone(UTC)):
        if at > last:  # all faces that a gap skips fire at one instant
            yield Firing(rule, at, face)
            last = at


def next_firing(rule: Rule, after: datetime) -> Firing | None:
    """The first firing later than ``after``; None when the rule's days are over."""
    return next(firings(rule, after), None)


def upcoming(rule: Rule, after: datetime, count: int) -> list[Firing]:
    """The next firings, at most ``count``."""
    return list(islice(firings(rule, after), count))


def latest_firing(rule: Rule, at: datetime) -> Firing | None:
    """The last firing at or before ``at``; None when there has been none in fifty years."""
    zone = ZoneInfo(rule.zone)
    backward = _real_time_backward if _goes_by_real_time(rule.cron) else _clock_face_backward
    found = next(backward(rule, zone, at.astimezone(UTC)), None)
    return Firing(rule, found[1], found[0]) if found is not None else None


# --- the size that follows -------------------------------------------------------------------------------------------


def in_force(rules: Sequence[Rule], at: datetime) -> Firing | None:
    """The firing that decides at ``at``: the latest of all enabled rules, of equal ones the later in the list."""
    decided: Firing | None = None
    for rule in rules:
        firing = latest_firing(rule, at) if rule.enabled else None
        if firing is not None and (decided is None or firing.at >= decided.at):
            decided = firing
    return decided


def wanted(
    rules: Sequence[Rule], at: datetime, manual_at: datetime | None = None, lead: timedelta = timedelta()
) -> Wanted | None:
    """What the rules want at ``at``; None: they leave the size as it is.

    ``manual_at`` is when a person has set the size: it holds until a firing after that. ``lead`` is how long before
    its time a rule with ``ready_by`` begins; until its time such a rule only adds, it takes nothing away early.
    """
    firing = in_force(rules, at)
    base = None
    if firing is not None and (manual_at is None or firing.at > manual_at):
        base = Wanted(firing.rule.minimum, firing.rule.maximum, firing)
    for coming in _begun_ahead(rules, at, lead):
        if manual_at is None or coming.at - lead > manual_at:
            base = _with_ahead(base, coming)
    return base


def next_change(rule: Rule, after: datetime, lead: timedelta = timedelta()) -> datetime | None:
    """The first instant later than ``after`` at which the rule may change a size: a firing, or its beginning ahead."""
    if not rule.enabled:
        return None
    firing = next_firing(rule, after)
    ahead = next_firing(rule, after + lead) if rule.ready_by else None
    instants = [firing.at] if firing is not None else []
    if ahead is not None:
        instants.append(ahead.at - lead)
    return min(instants, default=None)


def _begun_ahead(rules: Sequence[Rule], at: datetime, lead: timedelta) -> list[Firing]:
    """The firings to come of ``ready_by`` rules whose beginning is due, the earliest first."""
    coming = [next_firing(rule, at) for rule in rules if rule.enabled and rule.ready_by]
    begun = [firing for firing in coming if firing is not None and firing.at - lead <= at]
    return sorted(begun, key=lambda firing: firing.at)


def _with_ahead(base: Wanted | None, coming: Firing) -> Wanted:
    """The bounds raised to those of a firing to come, never lowered."""
    if base is None:
        return Wanted(coming.rule.minimum, None, coming, ahead=True)
    if coming.rule.minimum <= base.minimum:
        return base
    open_ended = base.maximum is None or coming.rule.maximum is None
    maximum = None if open_ended else max(base.maximum or 0, coming.rule.maximum or 0)
    return Wanted(coming.rule.minimum, maximum, coming, ahead=True)


# --- clock faces and instants ----------------------------------------------------------------------------------------


def _goes_by_real_time(cron: str) -> bool:
    return cron.split()[-4].startswith("*")


def _clock_face_forward(rule: Rule, zone: ZoneInfo, after: datetime) -> Iterator[tuple[datetime, datetime]]:
    for face in _faces(rule, _face(after, zone)):
        at = _instant_of(face, zone)
        if at > after:
            yield face, at


def _clock_face_backward(rule: Rule, zone: ZoneInfo, until: datetime) -> Iterator[tuple[datetime, datetime]]:
    shown = until.astimezone(zone)
    shown_first = shown.replace(fold=0).astimezone(UTC)
    repeated = until - shown_first  # faces still to come a second time; their only firing was the first time
    for face in _faces(rule, _face(until, zone) + repeated + SECOND, reverse=True):
        at = _instant_of(face, zone)
        if at <= until:
            yield face, at


def _real_time_forward(rule: Rule, zone: ZoneInfo, after: datetime) -> Iterator[tuple[datetime, datetime]]:
    """Piece by piece between changes of clocks, where a clock face is the instant plus one offset."""
    begin = after.replace(microsecond=0) + SECOND
    last = _last_to_look_at(rule, begin, zone)
    while begin <= last:
        offset, end = _offset(begin, zone), _piece_end(begin, zone)
        for face in _faces(rule, (begin + offset).replace(tzinfo=None) - SECOND):
            at = (face - offset).replace(tzinfo=UTC)
            if at >= end:
                break
            yield face, at
        begin = end


def _real_time_backward(rule: Rule, zone: ZoneInfo, until: datetime) -> Iterator[tuple[datetime, datetime]]:
    end = until.replace(microsecond=0)
    first = _first_to_look_at(rule, end, zone)
    while end >= first:
        offset, begin = _offset(end, zone), _piece_begin(end, zone)
        for face in _faces(rule, (end + offset).replace(tzinfo=None) + SECOND, reverse=True):
            at = (face - offset).replace(tzinfo=UTC)
            if at < begin:
                break
            yield face, at
        end = begin - SECOND


def _faces(rule: Rule, start: datetime, reverse: bool = False) -> Iterator[datetime]:
    """The clock faces after ``start`` (before it in reverse) that match, on the rule's days alone."""
    start = _within_the_days(rule, start, reverse)
    while True:
        for face in CronSim(rule.cron, start, reverse=reverse):
            day = face.date()
            if _is_past_the_days(rule, day, reverse):
                return
            if day in rule.excluded:
                start = datetime.combine(day, time() if reverse else LAST_SECOND)
                break
            yield face
        else:
            return


def _within_the_days(rule: Rule, start: datetime, reverse: bool) -> datetime:
    """Where to begin so that the days before the first (after the last in reverse) are not gone through."""
    if reverse and rule.valid_until is not None:
        return min(start, datetime.combine(rule.valid_until, time.max))
    if not reverse and rule.valid_from is not None and start.date() < rule.valid_from:
        return datetime.combine(rule.valid_from - DAY, LAST_SECOND)
    return start


def _is_past_the_days(rule: Rule, day: date, reverse: bool) -> bool:
    if reverse:
        return rule.valid_from is not None and day < rule.valid_from
    return rule.valid_until is not None and day > rule.valid_until


def _last_to_look_at(rule: Rule, begin: datetime, zone: ZoneInfo) -> datetime:
    """The horizon, or a day after the last of the rule's days: clocks set back may show its end again."""
    horizon = begin + HORIZON
    if rule.valid_until is None or rule.valid_until >= horizon.date():
        return horizon
    return _instant_of(datetime.combine(rule.valid_until, time()), zone) + 2 * DAY


def _first_to_look_at(rule: Rule, end: datetime, zone: ZoneInfo) -> datetime:
    horizon = end - HORIZON
    if rule.valid_from is None or rule.valid_from <= horizon.date():
        return horizon
    return _instant_of(datetime.combine(rule.valid_from, time()), zone) - DAY


def _face(instant: datetime, zone: ZoneInfo) -> datetime:
    """What the clocks show, in whole seconds."""
    return instant.astimezone(zone).replace(tzinfo=None, microsecond=0, fold=0)


def _instant_of(face: datetime, zone: ZoneInfo) -> datetime:
    """When the clocks show the face for the first time; the first instant after the gap when they skip it."""
    first, second = (face.replace(tzinfo=zone, fold=fold).astimezone(UTC) for fold in (0, 1))
    return first if first <= second else _change_between(second, first, zone)


def _instants_showing(face: datetime, zone: ZoneInfo) -> set[datetime]:
    both = {face.replace(tzinfo=zone, fold=fold).astimezone(UTC) for fold in (0, 1)}
    return {instant for instant in both if _face(instant, zone) == face}


def _offset(instant: datetime, zone: ZoneInfo) -> timedelta:
    return instant.astimezone(zone).utcoffset() or timedelta()


def _piece_end(begin: datetime, zone: ZoneInfo) -> datetime:
    """The first instant later than ``begin`` with another offset, or one up to which there is none."""
    day = begin
    for _ in range(PIECE_DAYS):
        if _offset(day + DAY, zone) != _offset(begin, zone):
            return _change_between(day, day + DAY, zone)
        day += DAY
    return day


def _piece_begin(end: datetime, zone: ZoneInfo) -> datetime:
    """The earliest instant from which the offset has been that of ``end``, or one since which it has."""
    day = end
    for _ in range(PIECE_DAYS):
        if _offset(day - DAY, zone) != _offset(end, zone):
            return _change_between(day - DAY, day, zone)
        day -= DAY
    return day


def _change_between(before: datetime, after: datetime, zone: ZoneInfo) -> datetime:
    """The first second of the offset of ``after``, given that the offset changes once between the two."""
    while after - before > SECOND:
        middle = before + (after - before) // 2
        middle = middle.replace(microsecond=0)
        if _offset(middle, zone) == _offset(after, zone):
            after = middle
        else:
            before = middle
    return after
