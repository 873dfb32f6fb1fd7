"""Pictures from numbers: plain values that a template turns into SVG attributes. No queries, no HTML."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from datetime import datetime

from django.utils.translation import gettext as _

from console.amounts import gpus

PERCENT_DIGITS = 3


@dataclass(frozen=True, slots=True)
class Usage:
    """What a bar shows, in thousandths of a GPU; ``limit`` None is no limit."""

    name: str
    used: int = 0
    borrowed: int = 0
    lent: int = 0
    guaranteed: int = 0
    limit: int | None = None


@dataclass(frozen=True, slots=True)
class BarPart:
    name: str  # used, borrowed, lent: also the ending of its class
    start: float  # percent of the track
    width: float
    y: float = 3
    height: float = 10


@dataclass(frozen=True, slots=True)
class UsageBar:
    parts: tuple[BarPart, ...]
    tick: float | None  # percent at which the guarantee ends; None where nothing is promised
    sentence: str


def usage_bar(usage: Usage, *, scale: int | None = None) -> UsageBar:
    """The bar of one quota. ``scale`` is the amount at its right end, by default what the quota may come to."""
    full = max(scale or natural_scale(usage), 1)
    covered = max(usage.used - usage.borrowed, 0)
    lent = min(usage.lent, max(full - usage.used, 0))
    ends = [("used", 0, covered), ("borrowed", covered, usage.used), ("lent", usage.used, usage.used + lent)]
    parts = tuple(_part(name, start, end, full) for name, start, end in ends if end > start)
    tick = _percent(min(usage.guaranteed, full), full) if usage.guaranteed else None
    return UsageBar(parts, tick, usage_sentence(usage))


def natural_scale(usage: Usage) -> int:
    """The limit; without one whatever is largest, so that nothing runs out of the picture."""
    return max(usage.limit or 0, usage.guaranteed, usage.used + usage.lent)


def usage_sentence(usage: Usage) -> str:
    """The whole bar in words, for those who hear the page."""
    words = _("%(name)s: %(used)s of %(guaranteed)s guaranteed GPUs in use, %(borrowed)s borrowed, %(lent)s lent") % {
        "name": usage.name,
        "used": gpus(usage.used),
        "guaranteed": gpus(usage.guaranteed),
        "borrowed": gpus(usage.borrowed),
        "lent": gpus(usage.lent),
    }
    if usage.limit is None:
        return words
    return words + _(", limit %(limit)s") % {"limit": gpus(usage.limit)}


def _part(name: str, start: int, end: int, full: int) -> BarPart:
    first, last = min(start, full), min(end, full)
    return BarPart(name, _percent(first, full), _percent(last - first, full))


def _percent(value: int, full: int) -> float:
    return round(100 * value / full, PERCENT_DIGITS)


@dataclass(frozen=True, slots=True)
class GpuCell:
    x: int
    y: int
    css: str  # class that fills it
    crossed: bool = False


@dataclass(frozen=True, slots=True)
class HeatNode:
    """A node as a block of squares, one a GPU."""

    pk: int
    name: str
    sentence: str
    cells: tuple[GpuCell, ...]
    width: int
    height: int
    is_cordoned: bool = False
    is_lost: bool = False

    @property
    def frame_width(self) -> float:
        return self.width - 1.5

    @property
    def frame_height(self) -> float:
        return self.height - 1.5


@dataclass(frozen=True, slots=True)
class GpuUse:
    """One device: whose work is on it (the number in the legend, from 1; 0 = free), and its health."""

    owner: int = 0
    is_bad: bool = False


CELL = 12
CELL_STEP = 14
SERIES = 8


def heat_node(*, pk: int, name: str, state: str, devices: Sequence[GpuUse]) -> HeatNode:
    """Squares in two rows; a lost node and a bad device are crossed out, not only coloured."""
    columns = max((len(devices) + 1) // 2, 1)
    lost = state == "lost"
    cells = tuple(
        GpuCell(
            x=(at % columns) * CELL_STEP + 1,
            y=(at // columns) * CELL_STEP + 1,
            css=series_class(device.owner),
            crossed=lost or device.is_bad,
        )
        for at, device in enumerate(devices)
    )
    busy = sum(1 for device in devices if device.owner)
    bad = sum(1 for device in devices if device.is_bad)
    sentence = _("%(name)s: %(busy)s of %(all)s GPUs in use, %(bad)s bad, %(state)s") % {
        "name": name,
        "busy": busy,
        "all": len(devices),
        "bad": bad,
        "state": state,
    }
    rows = 2 if len(devices) > 1 else 1
    return HeatNode(
        pk=pk,
        name=name,
        sentence=sentence,
        cells=cells,
        width=columns * CELL_STEP,
        height=rows * CELL_STEP,
        is_cordoned=state in ("cordoned", "draining"),
        is_lost=lost,
    )


def series_class(owner: int) -> str:
    """The class of the n-th entry of a legend, from 1; 0 is free room."""
    return f"swatch-{(owner - 1) % SERIES + 1}" if owner else "swatch-free"


LANE_HATCHES = {"resizing": "hatch-used", "preempting": "hatch-borrowed"}
ENDED = ("succeeded", "failed", "stopped")


@dataclass(frozen=True, slots=True)
class Lane:
    name: str
    x: float
    width: float
    sentence: str

    @property
    def css(self) -> str:
        return "ended" if self.name in ENDED else self.name

    @property
    def fill(self) -> str:
        """The pattern that fills it; empty for a plain colour."""
        return LANE_HATCHES.get(self.name, "")


@dataclass(frozen=True, slots=True)
class Tick:
    x: float
    at: datetime


@dataclass(frozen=True, slots=True)
class Lanes:
    """The states of a workload one after another on a line from its submission until now."""

    lanes: tuple[Lane, ...]
    ticks: tuple[Tick, ...]


@dataclass(frozen=True, slots=True)
class Span:
    name: str
    start: datetime
    end: datetime
    sentence: str = ""


def lanes(spans: Sequence[Span], *, ticks: int = 4) -> Lanes:
    """Spans as parts of one line; the shortest is still wide enough to be seen."""
    if not spans:
        return Lanes((), ())
    first, last = spans[0].start, max(span.end for span in spans)
    whole = max((last - first).total_seconds(), 1.0)

    def share(at: datetime) -> float:
        return round(100 * (at - first).total_seconds() / whole, PERCENT_DIGITS)

    drawn = tuple(
        Lane(span.name, share(span.start), max(share(span.end) - share(span.start), 0.4), span.sentence)
        for span in spans
    )
    marks = tuple(Tick(100 * at / ticks, first + (last - first) * at / ticks) for at in range(ticks + 1))
    return Lanes(drawn, marks)


@dataclass(frozen=True, slots=True)
class StepPicture:
    """A level over time as an SVG path in a box of ``width`` by ``height``."""

    width: int
    height: int
    line: str
    area: str
    top: int
    ticks: tuple[Tick, ...] = field(default=())


def step_picture(
    levels: Iterable[tuple[datetime, int]], *, start: datetime, end: datetime, width: int = 720, height: int = 96
) -> StepPicture:
    """A step line through (from when, level); the first level also holds before it."""
    points = [(max(at, start), level) for at, level in levels if at < end]
    top = max((level for _at, level in points), default=0) or 1
    seconds = max((end - start).total_seconds(), 1.0)

    def place(at: datetime, level: int) -> tuple[float, float]:
        x = width * (at - start).total_seconds() / seconds
        return round(x, 1), round(height - (height - 6) * level / top, 1)

    path = _step_path([place(at, level) for at, level in points], width)
    area = f"{path}V{height}H0Z" if path else ""
    marks = tuple(Tick(width * at / 4, start + (end - start) * at / 4) for at in range(5))
    return StepPicture(width, height, path, area, top, marks)


def _step_path(places: Sequence[tuple[float, float]], width: int) -> str:
    if not places:
        return ""
    steps = [f"M0 {places[0][1]}"]
    for x, y in places:
        steps.append(f"H{x}V{y}")
    return "".join([*steps, f"H{width}"])
