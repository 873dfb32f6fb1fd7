"""The policy that the cases assume, as settings."""

from __future__ import annotations

from scheduler.conformance.cases import Case
from scheduler.core.in_turn.settings import InTurn, Step
from scheduler.core.policy import Policy

STEP_OF = {
    "allocate": Step.ALLOCATE,
    "consolidation": Step.CONSOLIDATE,
    "reclaim": Step.RECLAIM,
    "preempt": Step.PREEMPT,
    "stalegangeviction": Step.STALE,
}


def policy_for(case: Case) -> Policy:
    """The settings of one case: its steps, its grace, and which plugins are on."""
    config = case.config
    plugins = config["plugins"]
    named = None if plugins == "default" else {plugin["name"] for plugin in plugins}

    def has(*names: str) -> bool:
        return named is None or bool(named & set(names))

    return Policy(
        stale_grace_ms=round(config["staleness_grace_s"] * 1000),
        memory_share_step_milli=10,
        in_turn=InTurn(
            steps=tuple(STEP_OF[action] for action in config["actions"]),
            most_movers=config["max_consolidation_preemptees"],
            judge_quotas=has("proportion"),
            rank_nodes=has("nodeplacement"),
            rank_devices=has("gpupack", "gpuspread"),
            spread_devices=named is not None and "gpuspread" in named,
        ),
    )
