"""Small conformance cases, written from the format's description with its defaults."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

ALL_STEPS = ("allocate", "consolidation", "reclaim", "preempt", "stalegangeviction")


def node(name: str, gpus: int = 0, **more: Any) -> dict[str, Any]:
    """A node with the harness's defaults."""
    return {
        "name": name,
        "gpus": gpus,
        "gpu_count_label": gpus,
        "gpu_memory_mib": 100,
        "cpu_milli": 20_000_000,
        "memory_bytes": 20_000_000_000,
        "max_pods": 110,
        "mig_strategy": None,
        "mig_instances": {},
        "dra_gpus": 0,
        "type": name,
        "labels": {},
        **more,
    }


def queue(name: str, deserved: float | None = 0, parent: str | None = "d0", **more: Any) -> dict[str, Any]:
    """A queue with the harness's defaults."""
    return {
        "name": name,
        "parent": parent,
        "priority": 100,
        "deserved_gpus": deserved,
        "max_allowed_gpus": None,
        "over_quota_weight": 0,
        "deserved_cpu_milli": None,
        "max_allowed_cpu_milli": None,
        "cpu_over_quota_weight": 1,
        "deserved_memory_bytes": None,
        "max_allowed_memory_bytes": None,
        "memory_over_quota_weight": 1,
        "preempt_min_runtime_s": None,
        "reclaim_min_runtime_s": None,
        "creation_offset_min": int(name[1:]),
        **more,
    }


def job(
    name: str,
    queue_name: str = "q0",
    places: Sequence[str | None] = (None,),
    gpus: float = 1,
    age: int = 1,
    minimum: int | None = None,
    **more: Any,
) -> dict[str, Any]:
    """A job of like tasks; a place is the node of a running task, or None for one that waits."""
    tasks = [
        {
            "id": f"{name}-{index}",
            "state": "Running" if place else "Pending",
            "node": place,
            "gpus": gpus,
            "gpu_groups": [],
            "sub_group": "default",
            "priority": None,
            "mig": {},
            "legacy_mig": False,
            "node_affinity": [],
            "pod_affinity": None,
            "claims": [],
        }
        for index, place in enumerate(places)
    ]
    least = len(tasks) if minimum is None else minimum
    return {
        "name": name,
        "namespace": None,
        "queue": queue_name,
        "priority": 50,
        "preemptible": True,
        "preemptibility_explicit": False,
        "best_effort": False,
        "gpus_per_task": gpus,
        "gpu_memory_mib_per_task": 0,
        "cpu_milli_per_task": 1000,
        "memory_bytes_per_task": 1_000_000_000,
        "min_available": least,
        "gang": {
            "name": "root",
            "topology": None,
            "pod_sets": [{"name": "default", "min_available": least, "topology": None}],
            "groups": [],
        },
        "age_min": age,
        "creation_rank": 0,
        "last_start_age_s": None,
        "stale_for_s": None,
        "keep_releasing": False,
        "tasks": tasks,
        **more,
    }


def expects(status: str, node_name: str | None = None, gpus: float = 1) -> dict[str, Any]:
    """One expectation of a job or a task."""
    return {"status": status, "node": node_name, "gpus_required": gpus}


def a_case(
    nodes: Sequence[Mapping[str, Any]],
    queues: Sequence[Mapping[str, Any]],
    jobs: Sequence[Mapping[str, Any]],
    expected: Mapping[str, Mapping[str, Any]],
    *,
    steps: Sequence[str] = ALL_STEPS,
    **config: Any,
) -> dict[str, Any]:
    """A case of the integration suite, or of the other one when it names a single step."""
    department = {**queue("d0", None, None), "over_quota_weight": -1, "implicit": True}
    return {
        "id": "own-case",
        "suite": "single_action" if len(steps) == 1 else "integration",
        "title": "a case of our own",
        "features": [],
        "config": {
            "actions": list(steps),
            "plugins": "default",
            "predicates_active": True,
            "staleness_grace_s": 0,
            "max_consolidation_preemptees": None,
            **config,
        },
        "nodes": list(nodes),
        "topologies": [],
        "departments": [department],
        "queues": list(queues),
        "resource_slices": [],
        "resource_claims": [],
        "jobs": list(jobs),
        "expected": {"jobs": dict(expected), "tasks": {}, "nodes": {}},
        "rounds": {"until_match": 2, "after_match": 5},
    }
