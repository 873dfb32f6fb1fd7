"""Parts of the documentation that are made from the code, so that they cannot drift from it.

A page holds ``<!-- made from the code: NAME -->`` and ``<!-- end -->``; what stands between them is replaced.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from scheduler.core import lawful
from scheduler.core.model import OrderKind, Rule

Row = Sequence[str]
PART = re.compile(r"(<!-- made from the code: (?P<name>[\w-]+) -->\n).*?(<!-- end -->)", re.DOTALL)

PREDICATES: Mapping[Rule, Callable[..., object]] = {
    Rule.GUARANTEE: lawful.guarantee,
    Rule.SHARE: lawful.share,
    Rule.CHILD_LEVEL: lawful.child_level,
    Rule.PRIORITY: lawful.priority,
}
"""The function that decides each rule for one claimant and one victim."""

ORDERS: Mapping[OrderKind, str] = {
    OrderKind.EXCESS: "what a quota uses beyond a guarantee that was cut with `on_excess: preempt`, when it is due",
    OrderKind.DRAIN: "what runs on a node that is being drained",
    OrderKind.STALE: "a gang that has been below its minimum for longer than the grace",
}
"""Rule (d): the standing orders, which need no claimant."""


def rules_table() -> str:
    """The rules under which work may be sent away, each in the words of the function that decides it."""
    rows = [
        (f"({rule.value})", _promise(predicate), f"`{predicate.__module__}.{predicate.__name__}`")
        for rule, predicate in PREDICATES.items()
    ]
    rows += [(f"({Rule.ORDER.value})", f"By order ({kind.value}): {text}.", "-") for kind, text in ORDERS.items()]
    return table(("rule", "when it holds", "decided by"), rows)


def _promise(function: Callable[..., object]) -> str:
    """The first paragraph of its docstring, without the rule's letter in front."""
    text = inspect.getdoc(function) or ""
    return re.sub(r"^\([a-d]'?\) ", "", " ".join(text.split("\n\n")[0].split()))


def table(head: Row, rows: Sequence[Row]) -> str:
    """A table of Markdown."""
    lines = [head, ["---"] * len(head), *rows]
    return "".join(f"| {' | '.join(cell.replace('|', '&#124;') for cell in line)} |\n" for line in lines)


PARTS: Mapping[str, Callable[[], str]] = {"rules": rules_table}


def filled(page: str) -> str:
    """The page with all its made parts made anew; KeyError for a part that nobody makes."""
    return PART.sub(lambda found: f"{found[1]}\n{PARTS[found['name']]()}\n{found[3]}", page)


def stale_pages(folder: Path) -> list[Path]:
    """The pages below the folder that are not as the code says."""
    return [path for path in sorted(folder.rglob("*.md")) if filled(text := path.read_text("utf-8")) != text]
