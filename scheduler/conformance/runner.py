"""Running a case: rounds through the core, compared with what is expected (README 4.1 and 4.2)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field

from scheduler.conformance.cases import Case
from scheduler.conformance.matching import mismatches
from scheduler.conformance.settings import policy_for
from scheduler.conformance.worlds import apply_plan, next_round, snapshot_of
from scheduler.core.decide import decide

DEFAULT_AFTER = 5


@dataclass(slots=True)
class Tally:
    """What came of the cases so far."""

    passed: int = 0
    failed: int = 0
    by_feature: dict[str, Counter[str]] = field(default_factory=dict)

    def add(self, case: Case, *, is_passed: bool) -> None:
        """Count one case, in all and for each of its features."""
        outcome = "passed" if is_passed else "failed"
        self.passed += is_passed
        self.failed += not is_passed
        for feature in (case.raw["suite"], *case.features):
            self.by_feature.setdefault(feature, Counter())[outcome] += 1

    def as_json(self) -> dict[str, object]:
        """The closing line."""
        return {
            "passed": self.passed,
            "failed": self.failed,
            "skipped": 0,
            "by_feature": {
                name: {"passed": counts["passed"], "failed": counts["failed"]}
                for name, counts in sorted(self.by_feature.items())
            },
        }


def run_case(case: Case) -> list[str]:
    """What did not come out as expected; empty when the case passes."""
    rounds = case.raw["rounds"]
    if case.raw["suite"] == "single_action":
        _round(case)
        return mismatches(case)
    for _ in range(rounds["until_match"] or 2):
        _round(case)
        next_round(case)
    found = mismatches(case)
    for number in range(rounds["after_match"] or DEFAULT_AFTER):
        if found:
            break
        _round(case)
        found = [f"round {number + 1} after the match: {line}" for line in mismatches(case)]
        next_round(case)
    return found


def _round(case: Case) -> None:
    snapshot, names = snapshot_of(case)
    plan = decide(snapshot, policy_for(case))
    apply_plan(case, plan, names)


def run_cases(cases: Iterable[Case]) -> Iterable[tuple[Case, list[str]]]:
    """Each case with what did not come out as expected."""
    for case in cases:
        try:
            found = run_case(case)
        except Exception as error:  # noqa: BLE001  one broken case must not hide the others
            found = [f"{type(error).__name__}: {error}"]
        yield case, found
