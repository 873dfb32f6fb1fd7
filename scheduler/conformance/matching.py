"""Whether a case's world is what the case expects: the matching rule of the format's README (4.4)."""

from __future__ import annotations

from scheduler.conformance.cases import Case, Job, Raw, Task

RUNNING = ("Allocated", "Bound", "Binding", "Running")


def mismatches(case: Case) -> list[str]:
    """What differs, in words; empty when everything expected holds."""
    expected = case.raw["expected"]
    jobs = {job.name: job for job in case.jobs}
    tasks = {task.id: (job, task) for job, task in case.tasks()}
    found: list[str] = []
    for name, wanted in expected["jobs"].items():
        found.extend(_job_differs(jobs[name], wanted))
    for name, wanted in expected["tasks"].items():
        job, task = tasks[name]
        found.extend(_task_differs(task, wanted, _gpus(job, task)))
    for name, wanted in expected["nodes"].items():
        found.extend(_node_differs(case, name, wanted))
    return found


def _job_differs(job: Job, wanted: Raw) -> list[str]:
    found = [line for task in job.tasks for line in _state_differs(task, wanted)]
    gpus = sum(_gpus(job, task) for task in job.tasks)
    if abs(gpus - wanted["gpus_required"]) > 1e-6:
        found.append(f"{job.name}: asks {gpus} GPUs, expected {wanted['gpus_required']}")
    return found


def _task_differs(task: Task, wanted: Raw, gpus: float) -> list[str]:
    found = _state_differs(task, wanted)
    if abs(gpus - wanted["gpus_required"]) > 1e-6:
        found.append(f"{task.id}: asks {gpus} GPUs, expected {wanted['gpus_required']}")
    return found


def _state_differs(task: Task, wanted: Raw) -> list[str]:
    found = []
    if task.state != wanted["status"]:
        found.append(f"{task.id}: expected {_on(wanted['status'], wanted['node'])}, came {_on(task.state, task.node)}")
    elif wanted["node"] and task.node != wanted["node"]:
        found.append(f"{task.id}: expected on {wanted['node']}, came on {task.node}")
    return found


def _on(state: str, node: str | None) -> str:
    return f"{state} on {node}" if node else state


def _gpus(job: Job, task: Task) -> float:
    return 0 if job.raw["gpu_memory_mib_per_task"] else task.gpus


def _node_differs(case: Case, name: str, wanted: Raw) -> list[str]:
    """Idle and releasing whole devices of a node."""
    total = next(raw["gpus"] for raw in case.raw["nodes"] if raw["name"] == name)
    held: set[int] = set()
    staying: set[int] = set()
    for _, task in case.tasks():
        if task.node == name and task.is_held:
            held.update(case.devices.get(task.id, ()))
            if task.state != "Releasing":
                staying.update(case.devices.get(task.id, ()))
    found = []
    for key, value in (("idle_gpus", total - len(held)), ("releasing_gpus", len(held - staying))):
        if wanted.get(key) is not None and wanted[key] != value:
            found.append(f"{name}: expected {key} {wanted[key]}, came {value}")
    return found
