"""YAML that knows where in its file each value stands, so that a complaint can name the place."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from datetime import timedelta
from decimal import Decimal, InvalidOperation
from pathlib import Path

import yaml
from yaml.nodes import MappingNode, Node, ScalarNode, SequenceNode

NULLS = ("null", "~", "")
UNITS_S = {"ms": Decimal("0.001"), "s": Decimal(1), "m": Decimal(60), "h": Decimal(3600), "d": Decimal(86400)}
DURATION = re.compile(r"(?:\d+(?:\.\d+)?(?:ms|s|m|h|d))+")
DURATION_PART = re.compile(r"(\d+(?:\.\d+)?)(ms|s|m|h|d)")
MEMORY = re.compile(r"(\d+(?:\.\d+)?)\s*(MiB|GiB|TiB)")
MEMORY_MIB = {"MiB": 1, "GiB": 1024, "TiB": 1024 * 1024}


class InvalidScenario(Exception):
    """The file is not a scenario: the place, and what would be right."""

    def __init__(self, place: str, wanted: str) -> None:
        super().__init__(f"{place}: {wanted}")
        self.place = place


class LaterPart(InvalidScenario):
    """The file asks for something that this version does not have yet."""


@dataclass(frozen=True, slots=True)
class Item:
    """A value of the file with its place and the path of names that leads to it."""

    file: str
    node: Node
    path: str = ""

    def bad(self, wanted: str) -> InvalidScenario:
        return InvalidScenario(self.place, f"{self.path or 'the file'}: {wanted}")

    def later(self, what: str) -> LaterPart:
        return LaterPart(self.place, f"{what} is of a later part and not supported yet")

    @property
    def place(self) -> str:
        mark = self.node.start_mark
        return f"{self.file}:{mark.line + 1}:{mark.column + 1}"

    def _inner(self, node: Node, name: str) -> Item:
        return Item(self.file, node, f"{self.path}.{name}" if self.path else name)

    # --- shapes ---

    @property
    def is_mapping(self) -> bool:
        return isinstance(self.node, MappingNode)

    @property
    def is_list(self) -> bool:
        return isinstance(self.node, SequenceNode)

    @property
    def is_null(self) -> bool:
        return isinstance(self.node, ScalarNode) and self.node.value in NULLS and self.node.style is None

    def fields(self) -> dict[str, Item]:
        """The entries of a mapping, by name."""
        if not isinstance(self.node, MappingNode):
            raise self.bad("must be a mapping")
        found: dict[str, Item] = {}
        for key, value in self.node.value:
            if not isinstance(key, ScalarNode):
                raise self._inner(key, "key").bad("names of fields must be plain text")
            if key.value in found:
                raise self._inner(key, key.value).bad("is given twice")
            found[key.value] = self._inner(value, key.value)
        return found

    def known_fields(self, known: Collection[str], required: Collection[str] = ()) -> dict[str, Item]:
        """The entries of a mapping that has no other fields than these, and has the required ones."""
        found = self.fields()
        for name, item in found.items():
            if name not in known:
                raise InvalidScenario(item.place, f"{item.path}: unknown field; known are {', '.join(sorted(known))}")
        for name in required:
            if name not in found:
                raise self.bad(f"needs the field {name}")
        return found

    def entries(self) -> list[Item]:
        """The entries of a list."""
        if not isinstance(self.node, SequenceNode):
            raise self.bad("must be a list")
        return [self._inner(node, str(number)) for number, node in enumerate(self.node.value)]

    def each(self) -> Iterator[Item]:
        """The entries of a list, or the one value itself."""
        yield from self.entries() if self.is_list else [self]

    # --- plain values ---

    def text(self) -> str:
        if not isinstance(self.node, ScalarNode) or self.is_null:
            raise self.bad("must be text")
        return str(self.node.value)

    def choice(self, options: Collection[str]) -> str:
        found = self.text()
        if found not in options:
            raise self.bad(f"must be one of {', '.join(options)}; found {found!r}")
        return found

    def texts(self) -> tuple[str, ...]:
        """One text or a list of them."""
        return tuple(item.text() for item in self.each())

    def choices(self, options: Collection[str]) -> tuple[str, ...]:
        return tuple(item.choice(options) for item in self.each())

    def flag(self) -> bool:
        found = self.text().lower()
        if found not in ("true", "false"):
            raise self.bad("must be true or false")
        return found == "true"

    def number(self, low: float | None = 0) -> Decimal:
        try:
            found = Decimal(self.text())
        except InvalidOperation:
            raise self.bad("must be a number") from None
        if not found.is_finite() or (low is not None and found < Decimal(str(low))):
            raise self.bad(f"must be a number of at least {low}")
        return found

    def whole(self, low: int | None = 0, high: int | None = None) -> int:
        found = self.number(low)
        bounds = f" from {low}" if low is not None else ""
        if found != int(found) or (high is not None and found > high):
            raise self.bad(f"must be a whole number{bounds}{'' if high is None else f' to {high}'}")
        return int(found)

    def milli(self, what: str = "a number", low: int = 0) -> int:
        """A number in thousandths, with at most three digits behind the point."""
        found = self.number(low) * 1000
        if found != int(found):
            raise self.bad(f"must be {what} with at most three digits behind the point")
        return int(found)

    def duration(self) -> timedelta:
        """`90s`, `1h30m`, `200ms`; a plain 0 is none."""
        found = self.text()
        if found == "0":
            return timedelta()
        if not DURATION.fullmatch(found):
            raise self.bad(f"must be a duration such as 30s, 10m or 1h30m; found {found!r}")
        seconds = sum(Decimal(amount) * UNITS_S[unit] for amount, unit in DURATION_PART.findall(found))
        return timedelta(milliseconds=int(seconds * 1000))

    def seconds(self) -> int:
        """A duration of whole seconds."""
        found = self.duration()
        if found % timedelta(seconds=1):
            raise self.bad("must be whole seconds")
        return found // timedelta(seconds=1)

    def mib(self) -> int:
        """Memory with its unit, in MiB; a plain 0 is none."""
        found = self.text()
        if found == "0":
            return 0
        match = MEMORY.fullmatch(found)
        if match is None:
            raise self.bad(f"must be memory with its unit such as 512GiB or 300MiB; found {found!r}")
        amount = Decimal(match[1]) * MEMORY_MIB[match[2]]
        if amount != int(amount):
            raise self.bad("must be whole MiB")
        return int(amount)

    def without_sign(self) -> Item:
        """The text behind its first character, at the same place."""
        inner = ScalarNode(self.node.tag, self.text()[1:], self.node.start_mark, self.node.end_mark)
        return Item(self.file, inner, self.path)

    def labels(self) -> dict[str, str]:
        return {name: item.text() for name, item in self.fields().items()}


def read_file(path: Path) -> Item:
    """The file as one value."""
    try:
        node = yaml.compose(path.read_text(encoding="utf-8"), Loader=yaml.SafeLoader)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        at = f"{path}:{mark.line + 1}:{mark.column + 1}" if mark else str(path)
        raise InvalidScenario(at, f"not YAML: {error.problem}") from error
    except (yaml.YAMLError, UnicodeDecodeError, OSError) as error:
        raise InvalidScenario(str(path), f"can't be read: {error}") from error
    if node is None:
        raise InvalidScenario(f"{path}:1:1", "the file is empty; a scenario has name, nodes, quotas and steps")
    return Item(str(path), node)
