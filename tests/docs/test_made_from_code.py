"""Pages that are made from the code say what the code says."""

from pathlib import Path

import pytest

from scheduler.core.model import Reason, Rule
from scheduler.documents import PREDICATES, filled, rules_table, stale_pages, table
from scheduler.reasons import EXAMPLES, FACTS, wait_in

DOCS = Path(__file__).parents[2] / "docs"


def test_no_page_is_stale() -> None:
    assert stale_pages(DOCS) == []


def test_every_rule_with_a_claimant_is_in_the_table() -> None:
    assert set(PREDICATES) == set(Rule) - {Rule.ORDER}
    assert all(f"({rule.value})" in rules_table() for rule in Rule)


def test_only_what_stands_between_the_marks_is_replaced() -> None:
    page = "before\n<!-- made from the code: rules -->\nold\n<!-- end -->\nafter\n"
    assert filled(page) == f"before\n<!-- made from the code: rules -->\n\n{rules_table()}\n<!-- end -->\nafter\n"
    assert filled(filled(page)) == filled(page)


def test_bars_in_cells_do_not_break_the_table() -> None:
    assert table(("a",), [("x|y",)]) == "| a |\n| --- |\n| x&#124;y |\n"


@pytest.mark.parametrize("reason", Reason)
def test_reason_is_given_in_its_example_and_its_facts_are_explained(reason: Reason) -> None:
    _, snapshot = EXAMPLES[reason]()
    wait = wait_in(snapshot)
    assert wait is not None
    assert wait.reason == reason
    assert {*wait.facts, *wait.would_unblock} <= FACTS.keys()
