"""A lost node: what it held ends, gangs queue again, services are short of replicas."""

from __future__ import annotations

from datetime import timedelta

from scheduler.clocks import standing_still
from tests.makers import Installation, denied, not_found, placed, refused, submitted, verbs
from workloads.services import restart_workload, set_node_state


def test_a_gang_that_lost_all_queues_again_with_its_first_submission(here: Installation) -> None:
    job = placed(submitted(here["developer"], here, checkpoint_every_s=600), (here.nodes[0], [0]))
    assert job.started_at is not None
    with standing_still(here.cluster.pk, job.started_at + timedelta(seconds=1500)):
        set_node_state(actor=here["platform"], node=here.nodes[0], state="lost", reason="power")
    first = job.submitted_at
    job.refresh_from_db()
    allocation = job.allocations.get()
    assert (job.state, job.submitted_at, job.done_s) == ("queued", first, 1200)
    assert (allocation.phase, allocation.outcome) == ("ended", "lost")
    assert verbs(job) == ["submitted", "lost"]


def test_a_gang_that_lost_a_part_is_stale_for_now(here: Installation) -> None:
    job = placed(submitted(here["developer"], here, replicas=2), (here.nodes[0], [0]), (here.nodes[1], [0]))
    set_node_state(actor=here["platform"], node=here.nodes[0], state="lost")
    job.refresh_from_db()
    assert job.state == "running"
    assert [row.outcome for row in job.allocations.order_by("index")] == ["lost", ""]
    assert verbs(job) == ["submitted", "worker_lost"]


def test_a_service_is_short_of_a_replica(here: Installation) -> None:
    chat = submitted(here["operator"], here, kind="service", replicas=2)
    placed(chat, (here.nodes[0], [0]), (here.nodes[1], [0]))
    set_node_state(actor=here["platform"], node=here.nodes[0], state="lost")
    chat.refresh_from_db()
    assert chat.state == "resizing"


def test_work_that_was_leaving_has_left(here: Installation) -> None:
    leaving = placed(submitted(here["developer"], here, name="a"), (here.nodes[0], [0]), state="preempting")
    restarting = placed(submitted(here["developer"], here, name="b"), (here.nodes[0], [1]))
    restart_workload(actor=here["developer"], workload=restarting)
    set_node_state(actor=here["platform"], node=here.nodes[0], state="lost")
    leaving.refresh_from_db()
    restarting.refresh_from_db()
    assert (leaving.state, restarting.state) == ("queued", "queued")


def test_cordon_and_drain_only_mark(here: Installation) -> None:
    job = placed(submitted(here["developer"], here), (here.nodes[0], [0]))
    for state in ("cordoned", "draining", "ready"):
        node = set_node_state(actor=here["platform"], node=here.nodes[0], state=state)
        assert node.state == state
    job.refresh_from_db()
    assert job.state == "running"


def test_states_of_nodes_are_the_platforms_and_known(here: Installation) -> None:
    with not_found():
        set_node_state(actor=here["owner"], node=here.nodes[0], state="cordoned")
    with denied("node.manage"):
        set_node_state(actor=here["auditor"], node=here.nodes[0], state="cordoned")
    with refused("invalid", field="state"):
        set_node_state(actor=here["platform"], node=here.nodes[0], state="asleep")
