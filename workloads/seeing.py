"""What of a fact may be told to whom: facts of decisions speak of other teams' work too."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from quotas.actors import Actor
from quotas.permissions import grants_of
from scheduler.core.model import Reason

NAMES_OTHERS = frozenset(
    "ahead ancestor behind best_node blocked_by by claimant claimants common_ancestor ends first head holder holders "
    "id ids of owner quota quotas reservation sibling siblings side sides victim victims workload workloads".split()
)
HARMLESS_TEXT = frozenset(
    "code entry gpu_model kind kinds label level levels missing model nodes node order outcome policy pool pools "
    "reason resource resources rule state states to unit values verb wanted why".split()
)

WORDS = frozenset("available closer ends gone labels larger neighbours ready starts".split())
"""What the scheduler says for a name where it names nobody: ``{"head": "starts"}``."""
BOOKS = frozenset({"limit", "used", "available"})


def facts_for(actor: Actor) -> Callable[[Mapping[str, Any]], dict[str, Any]]:
    """Takes facts to what this actor may read of them.

    The platform's people read all. Others read numbers, and text only under names that never carry somebody
    else's work: whatever names other work or quotas is left out.
    """
    return dict if grants_of(actor).reads_all else of_own_work


def reason_for(actor: Actor) -> Callable[[str, Mapping[str, Any]], dict[str, Any]]:
    """Takes the facts of a reason to wait to what this actor may read of them.

    At a limit above, the books are those of a quota that others use too: only the platform's people read its numbers.
    """
    seen = facts_for(actor)
    hidden = frozenset() if grants_of(actor).reads_all else BOOKS

    def told(code: str, facts: Mapping[str, Any]) -> dict[str, Any]:
        dropped = hidden if code == Reason.QUOTA_ANCESTOR_LIMIT else frozenset()
        return {name: value for name, value in seen(facts).items() if name not in dropped}

    return told


def of_own_work(facts: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in facts.items() if _is_word(value) or _is_harmless(name, value)}


def _is_word(value: Any) -> bool:
    return isinstance(value, str) and value in WORDS


def _is_harmless(name: str, value: Any) -> bool:
    return name not in NAMES_OTHERS and _tells_nothing(name, value)


def _tells_nothing(name: str, value: Any) -> bool:
    if isinstance(value, str):
        return name in HARMLESS_TEXT
    if isinstance(value, Mapping):
        return all(_is_harmless(str(key), inner) for key, inner in value.items())
    if isinstance(value, list | tuple):
        return all(_tells_nothing(name, inner) for inner in value)
    return True
