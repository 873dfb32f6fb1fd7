"""What is done to one workload: the effect, the event, and on refusal that nothing changed."""

from __future__ import annotations

import pytest

from quotas.errors import Stale
from quotas.models import WorkspaceQuota
from quotas.services import archive_workspace, bind_quota
from tests.makers import Installation, denied, not_found, placed, refused, submitted, verbs
from workloads.models import State, Workload
from workloads.selectors import visible_workloads
from workloads.services import (
    change_priority,
    change_visibility,
    delete_workload,
    extend_workload,
    hold_workload,
    move_workload,
    release_workload,
    reorder_workload,
    restart_workload,
    stop_workload,
)
from workloads.states import MOVES, IllegalMoveError, Move, is_allowed, move, move_many


def test_waiting_work_stops_at_once(here: Installation) -> None:
    job = submitted(here["developer"], here)
    stopped = stop_workload(actor=here["developer"], workload=job)
    assert stopped.state == "stopped"
    assert stopped.finished_at is not None
    assert verbs(job) == ["submitted", "stopped"]


def test_running_work_is_told_to_stop_and_a_second_stop_changes_nothing(here: Installation) -> None:
    job = placed(submitted(here["developer"], here), (here.nodes[0], [0]))
    stop_workload(actor=here["developer"], workload=job)
    again = stop_workload(actor=here["developer"], workload=job)
    assert again.state == "stopping"
    assert verbs(job) == ["submitted", "stopping"]
    assert again.allocations.get().phase == "running"


def test_what_has_ended_cannot_be_stopped(here: Installation) -> None:
    job = stop_workload(actor=here["developer"], workload=submitted(here["developer"], here))
    with refused("workload.state"):
        stop_workload(actor=here["developer"], workload=job)


def test_who_may_stop_what(here: Installation) -> None:
    job = submitted(here["operator"], here)
    for name in ("developer", "viewer", "auditor"):
        with denied("workload.stop"):
            stop_workload(actor=here[name], workload=job)
    for name in ("stranger", "rival"):
        with not_found():
            stop_workload(actor=here[name], workload=job)


def test_deleted_work_is_gone_for_everybody_but_its_past_stays(here: Installation) -> None:
    job = placed(submitted(here["developer"], here), (here.nodes[0], [0]))
    delete_workload(actor=here["developer"], workload=job)
    assert not visible_workloads(here["platform"]).exists()
    job.refresh_from_db()
    assert (job.state, job.allocations.count()) == ("stopping", 1)
    submitted(here["developer"], here)


def test_held_work_keeps_its_place(here: Installation) -> None:
    job = submitted(here["developer"], here)
    held = hold_workload(actor=here["developer"], workload=job)
    assert (held.held, held.state) == (True, "queued")
    hold_workload(actor=here["developer"], workload=job)
    released = release_workload(actor=here["developer"], workload=job)
    assert (released.held, released.position, released.submitted_at) == (False, job.position, job.submitted_at)
    assert verbs(job) == ["submitted", "held", "released"]


def test_only_waiting_work_is_held(here: Installation) -> None:
    job = placed(submitted(here["developer"], here), (here.nodes[0], [0]))
    with refused("workload.state"):
        hold_workload(actor=here["developer"], workload=job)


def test_what_has_ended_is_restarted_as_new(here: Installation) -> None:
    job = stop_workload(actor=here["developer"], workload=submitted(here["developer"], here))
    again = restart_workload(actor=here["developer"], workload=job)
    assert (again.state, again.finished_at, again.done_s) == ("queued", None, 0)
    assert again.submitted_at > job.submitted_at
    assert verbs(job) == ["submitted", "stopped", "restarted"]


def test_what_runs_stops_before_it_is_restarted(here: Installation) -> None:
    job = placed(submitted(here["developer"], here), (here.nodes[0], [0]))
    restarting = restart_workload(actor=here["developer"], workload=job)
    assert (restarting.state, restarting.restart_wanted) == ("stopping", True)
    stopped = stop_workload(actor=here["developer"], workload=restarting)
    assert (stopped.state, stopped.restart_wanted) == ("stopping", False)


def test_what_has_ended_comes_back_only_where_new_work_is_taken(here: Installation) -> None:
    job = stop_workload(actor=here["developer"], workload=submitted(here["developer"], here))
    archive_workspace(actor=here["owner"], workspace=here.workspace)
    with refused("workspace.archived", field="workspace"):
        restart_workload(actor=here["developer"], workload=job)
    archive_workspace(actor=here["owner"], workspace=here.workspace, archived=False)
    WorkspaceQuota.objects.filter(workspace=here.workspace).delete()
    with refused("workspace.not_bound", field="quota"):
        restart_workload(actor=here["developer"], workload=job)
    job.refresh_from_db()
    assert job.state == "stopped"


def test_a_restart_needs_the_name(here: Installation) -> None:
    job = stop_workload(actor=here["developer"], workload=submitted(here["developer"], here))
    submitted(here["developer"], here)
    with refused("conflict"):
        restart_workload(actor=here["developer"], workload=job)


def test_priority_changes_also_while_running(here: Installation) -> None:
    job = placed(submitted(here["developer"], here), (here.nodes[0], [0]))
    changed = change_priority(actor=here["developer"], workload=job, priority=7)
    assert (changed.priority, changed.state) == (7, "running")
    event = job.events.order_by("-id").first()
    assert event is not None
    assert (event.verb, event.facts) == ("priority_changed", {"before": 3, "after": 7})
    for wrong in (0, 10, True):
        with refused("invalid", field="priority"):
            change_priority(actor=here["developer"], workload=job, priority=wrong)


def test_waiting_work_moves_to_another_bound_quota(here: Installation) -> None:
    job = submitted(here["developer"], here)
    with refused("workspace.not_bound", field="quota"):
        move_workload(actor=here["developer"], workload=job, quota=here.other_quota)
    bind_quota(actor=here["platform"], workspace=here.workspace, quota=here.other_quota)
    moved = move_workload(actor=here["developer"], workload=job, quota=here.other_quota)
    assert moved.quota == here.other_quota
    placed(moved, (here.nodes[0], [0]))
    with refused("workload.state"):
        move_workload(actor=here["developer"], workload=moved, quota=here.quota)
    assert WorkspaceQuota.objects.filter(workspace=here.workspace).count() == 2


def test_operators_reorder_inside_a_priority(here: Installation) -> None:
    jobs = [submitted(here["developer"], here, name=f"job-{i}") for i in range(4)]
    reorder_workload(actor=here["operator"], workload=jobs[3], before=jobs[0])
    reorder_workload(actor=here["operator"], workload=jobs[2], after=jobs[0])
    line = Workload.objects.filter(quota=here.quota).order_by("position", "submitted_at", "id")
    assert [job.name for job in line] == ["job-3", "job-0", "job-2", "job-1"]
    with denied("queue.reorder"):
        reorder_workload(actor=here["developer"], workload=jobs[3], before=jobs[0])
    other = submitted(here["developer"], here, name="urgent", priority=9)
    with refused("not_found", field="before"):
        reorder_workload(actor=here["operator"], workload=jobs[3], before=other)


def test_a_limit_of_time_is_extended_by_who_manages_all(here: Installation) -> None:
    job = placed(submitted(here["developer"], here, max_runtime_s=60), (here.nodes[0], [0]))
    with denied("workload.extend"):
        extend_workload(actor=here["developer"], workload=job, seconds=60)
    assert extend_workload(actor=here["operator"], workload=job, seconds=60).max_runtime_s == 120
    with refused("invalid", field="seconds"):
        extend_workload(actor=here["operator"], workload=job, seconds=0)
    endless = submitted(here["developer"], here, name="endless")
    with refused("invalid", field="seconds"):
        extend_workload(actor=here["operator"], workload=endless, seconds=60)


def test_visibility_is_one_of_two(here: Installation) -> None:
    job = submitted(here["developer"], here)
    change_visibility(actor=here["developer"], workload=job, visibility="private")
    assert not visible_workloads(here["viewer"]).exists()
    with refused("invalid", field="visibility"):
        change_visibility(actor=here["developer"], workload=job, visibility="secret")


# --- the table of moves -------------------------------------------------------------------------------------------


def test_final_states_lead_back_to_the_queue_only() -> None:
    for state in (State.SUCCEEDED, State.FAILED, State.STOPPED):
        assert MOVES[state] == {State.QUEUED}
    assert not is_allowed("running", "starting")
    assert not is_allowed("queued", "preempting")


def test_a_move_that_lost_its_race_is_stale(here: Installation) -> None:
    job = submitted(here["developer"], here)
    old = Workload.objects.get(pk=job.pk)
    move(job, State.STARTING, by=here["operator"], at=job.submitted_at, verb="started")
    with pytest.raises(Stale):
        move(old, State.STOPPED, by=here["operator"], at=job.submitted_at, verb="stopped")
    assert verbs(job) == ["submitted", "started"]


def test_many_moves_are_made_where_the_workload_still_stands(here: Installation) -> None:
    jobs = [submitted(here["developer"], here, name=f"job-{i}") for i in range(3)]
    stop_workload(actor=here["developer"], workload=jobs[1])
    moves = [Move(job.pk, State.QUEUED, State.STARTING, "started", {"why": "room"}) for job in jobs]
    moved = move_many(moves, at=jobs[0].submitted_at, by=here["operator"])
    assert moved == {jobs[0].pk, jobs[2].pk}
    jobs[0].refresh_from_db()
    assert (jobs[0].state, jobs[0].starts, jobs[0].started_at) == ("starting", 1, jobs[0].submitted_at)
    back = Move(jobs[0].pk, State.STARTING, State.QUEUED, "lost", done_s=60, failed=True)
    move_many([back], at=jobs[0].submitted_at, by=here["operator"])
    jobs[0].refresh_from_db()
    assert (jobs[0].state, jobs[0].starts, jobs[0].started_at) == ("queued", 1, None)
    assert (jobs[0].done_s, jobs[0].failures) == (60, 1)
    assert verbs(jobs[1]) == ["submitted", "stopped"]


def test_an_illegal_move_is_a_fault(here: Installation) -> None:
    job = submitted(here["developer"], here)
    with pytest.raises(IllegalMoveError):
        move_many([Move(job.pk, State.QUEUED, State.PREEMPTING, "x")], at=job.submitted_at, by=here["operator"])
