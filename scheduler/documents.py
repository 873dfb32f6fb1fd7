"""Parts of the documentation that are made from the code, so that they cannot drift from it.

A page holds ``<!-- made from the code: NAME -->`` and ``<!-- end -->``; what stands between them is replaced.
"""

from __future__ import annotations

import inspect
import json
import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from django.utils import translation

from quotas.models import Role
from quotas.permissions import KIND_MODULES, LEVELS, MODULES, PERMISSIONS, Level, Permission
from quotas.words import DETAILS, REFUSALS, WAITING
from scheduler import reasons
from scheduler.core import lawful
from scheduler.core.model import OrderKind, Reason, Rule

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


def examples() -> str:
    """Each reason with its words, and what the core says in the smallest cluster in which it gives it."""
    with translation.override("en"):
        return "\n".join(_reason(reason) for reason in Reason)


def _reason(reason: Reason) -> str:
    text, snapshot = reasons.EXAMPLES[reason]()
    wait = reasons.wait_in(snapshot)
    if wait is None or wait.reason != reason:
        raise ValueError(f"the example of {reason} gives {wait}")
    said = {"reason": reason.value, "facts": dict(wait.facts), "would_unblock": dict(wait.would_unblock)}
    body = json.dumps(said, indent=2, sort_keys=True)
    return f"### `{reason.value}`\n\n{WAITING[reason.value]}.\n\nExample: {text}\n\n```json\n{body}\n```\n"


def facts_table() -> str:
    return table(("fact", "what it is"), [(f"`{name}`", meaning) for name, meaning in sorted(reasons.FACTS.items())])


def table(head: Row, rows: Sequence[Row]) -> str:
    """A table of Markdown."""
    lines = [head, ["---"] * len(head), *rows]
    return "".join(f"| {' | '.join(cell.replace('|', '&#124;') for cell in line)} |\n" for line in lines)


def roles_table() -> str:
    """The level of each role in each module."""
    rows = [(f"**{role}**", *(LEVELS[role][module].name.lower() for module in MODULES)) for role in Role.values]
    return table(("role", *MODULES), rows)


def permissions_table() -> str:
    """Each permission with the roles that have it, on one's own objects and on those of others."""
    rows = []
    for name, needs in PERMISSIONS.items():
        if needs.module is None:
            who = "platform administrator" + (", platform auditor" if needs.reads else "")
            rows.append((f"`{name}`", "platform", who, who))
        else:
            own, others = (_roles_with(needs, level) for level in (needs.own, needs.any))
            rows.append((f"`{name}`", "of the kind" if needs.module == "kind" else needs.module, own, others))
    return table(("permission", "module", "on one's own", "on others'"), rows)


def _roles_with(needs: Permission, least: Level) -> str:
    """Roles whose level suffices in every module that may decide, and those for which it depends on the kind."""
    modules = tuple(KIND_MODULES.values()) if needs.module == "kind" else (str(needs.module),)
    found = []
    for role in Role.values:
        enough = [module for module in modules if LEVELS[role][module] >= least]
        if len(enough) == len(modules):
            found.append(role)
        elif enough:
            found.append(f"{role} ({', '.join(enough)})")
    return ", ".join(found)


def reasons_table() -> str:
    """Why work waits, by code."""
    return table(("code", "meaning"), [(f"`{reason.value}`", str(WAITING[reason.value])) for reason in Reason])


def refusals_table() -> str:
    """Why something is refused, by code, with the facts that its sentence uses."""
    rows = [(f"`{code}`", str(words), ", ".join(_facts_in(code))) for code, words in REFUSALS.items()]
    return table(("code", "meaning", "facts"), rows)


def _facts_in(code: str) -> list[str]:
    return [f"`{name}`" for name in re.findall(r"%\((\w+)\)s", str(DETAILS.get(code, "")))]


PARTS: Mapping[str, Callable[[], str]] = {
    "rules": rules_table,
    "roles": roles_table,
    "permissions": permissions_table,
    "reasons": reasons_table,
    "refusals": refusals_table,
    "examples": examples,
    "facts": facts_table,
}


def filled(page: str) -> str:
    """The page with all its made parts made anew; KeyError for a part that nobody makes."""
    return PART.sub(lambda found: f"{found[1]}\n{PARTS[found['name']]()}\n{found[3]}", page)


def stale_pages(folder: Path) -> list[Path]:
    """The pages below the folder that are not as the code says."""
    return [path for path in sorted(folder.rglob("*.md")) if filled(text := path.read_text("utf-8")) != text]
