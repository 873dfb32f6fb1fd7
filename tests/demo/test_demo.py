"""The demo: who is there, what its past shows, and teams that never stop."""

from __future__ import annotations

from datetime import timedelta

import pytest
from django.core.management import call_command

from quotas.actors import SYSTEM
from quotas.models import AuditEvent, Cluster, Quota, User, Workspace
from quotas.permissions import visible_quotas, visible_workspaces
from quotas.services import archive_workspace
from scheduler import demo, past
from scheduler.demo_teams import keep_submitting
from scheduler.past import clusters_behind, live_through
from workloads.models import Allocation, Workload
from workloads.services import clone_workload

HOUR = timedelta(hours=1)


@pytest.fixture
def short_past(monkeypatch: pytest.MonkeyPatch) -> None:
    """Three hours of the past instead of a day: the clocks of the two clusters end where they always do."""
    for name in demo.PAST:
        monkeypatch.setitem(demo.PAST, name, demo.Past(3 * HOUR, timedelta(minutes=10)))


@pytest.mark.django_db(transaction=True)
def test_the_past_is_made_by_the_scheduler_and_ends_where_the_clock_goes_on(short_past: None) -> None:
    demo.seed()
    tide = Cluster.objects.get(name="tide")
    assert (tide.clock_speed, clusters_behind()) == (past.STANDING, list(Cluster.objects.values_list("id", flat=True)))
    assert not Allocation.objects.exists()
    live_through(tide.pk)
    tide.refresh_from_db()
    assert tide.clock_speed == 240
    assert "past" not in tide.settings
    ordered = (
        Allocation.objects.filter(workload__cluster=tide).order_by("ordered_at").values_list("ordered_at", flat=True)
    )
    assert tide.clock_at - 3 * HOUR <= ordered[0] < tide.clock_at - 2 * HOUR
    held = sum(row.gpu_milli_total for row in Allocation.objects.filter(ended_at=None, workload__cluster=tide))
    assert held >= 120_000
    chat = Workload.objects.get(name="chat")
    assert (chat.replicas, chat.size_by) == (4, "rule night")
    live_through(tide.pk)
    assert Cluster.objects.get(name="tide").clock_speed == 240


@pytest.mark.django_db
def test_everybody_is_there_with_one_password_and_sees_only_ones_own(short_past: None) -> None:
    call_command("seed_demo")
    call_command("seed_demo")
    assert User.objects.count() == len(demo.LOGINS)
    assert all(user.check_password(demo.PASSWORD) for user in User.objects.filter(username__in=("admin", "bob")))
    bob = User.objects.get(username="bob")
    assert [workspace.name for workspace in visible_workspaces(bob)] == ["workspace_b"]
    assert [quota.name for quota in visible_quotas(bob)] == ["quota-1.1"]
    amounts = dict(Quota.objects.filter(cluster__name="tide").values_list("name", "amounts__guaranteed_gpu_milli"))
    assert amounts == {"quota-1": 128_000, "quota-1.1": 48_000, "quota-1.2": 80_000}
    assert not AuditEvent.objects.filter(result="refused").exists()


@pytest.mark.django_db
def test_teams_fill_their_queues_up_and_bear_what_visitors_do(short_past: None) -> None:
    demo.seed()
    tide = Cluster.objects.get(name="tide")
    first = keep_submitting(tide)
    assert first == 3 + 2 + 6 + 4 + 8
    assert keep_submitting(tide) == 0
    Workload.objects.filter(name__startswith="vision").update(state="succeeded")
    clone_workload(actor=SYSTEM, workload=Workload.objects.get(name="vision-0001"), name="mine")
    Workload.objects.filter(name="mine").update(state="succeeded")
    assert keep_submitting(tide) == 6
    assert Workload.objects.filter(name__startswith="vision").latest("id").name == "vision-0012"
    archive_workspace(actor=SYSTEM, workspace=Workspace.objects.get(name="workspace_c"))
    Workload.objects.filter(name__startswith="vision").update(state="succeeded")
    assert keep_submitting(tide) == 0
    Quota.objects.filter(name="quota-1.1").update(name="renamed")
    Workload.objects.filter(name__startswith="tune").update(state="succeeded")
    assert keep_submitting(tide) == 0
