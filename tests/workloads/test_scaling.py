"""Sizes by hand and by the clock: levels, catching up, and who has the last word."""

from __future__ import annotations

from datetime import datetime, timedelta
from zoneinfo import ZoneInfo

import pytest

from quotas.errors import Refused
from scheduler.clocks import standing_still
from tests.makers import Installation, denied, placed, refused, submitted, verbs
from workloads.models import Workload
from workloads.services import apply_due_rules, edit_rule, remove_rule, save_rules, scale_workload, stop_overdue
from workloads.specs import RuleSpec, read_rules

ISTANBUL = ZoneInfo("Europe/Istanbul")
DAY = RuleSpec("day", "0 8 * * *", "Europe/Istanbul", 40)
NIGHT = RuleSpec("night", "0 22 * * *", "Europe/Istanbul", 4)


def at(hour: int, minute: int = 0, day: int = 2) -> datetime:
    return datetime(2026, 3, day, hour, minute, tzinfo=ISTANBUL)


@pytest.fixture
def chat(here: Installation) -> Workload:
    with standing_still(here.cluster.pk, at(6)):
        return submitted(here["operator"], here, name="chat", kind="service", replicas=0, gpus=2)


def size_at(here: Installation, chat: Workload, when: datetime) -> int:
    with standing_still(here.cluster.pk, when):
        apply_due_rules({here.cluster.pk: when})
    chat.refresh_from_db()
    return chat.replicas


def saved(here: Installation, chat: Workload, *rules: RuleSpec, when: datetime) -> None:
    with standing_still(here.cluster.pk, when):
        save_rules(actor=here["operator"], workload=chat, rules=rules)
    chat.refresh_from_db()


def test_saving_rules_applies_the_level_at_once(here: Installation, chat: Workload) -> None:
    saved(here, chat, DAY, NIGHT, when=at(6))
    assert (chat.replicas, chat.size_by, chat.state) == (4, "rule night", "resizing")
    assert chat.size_rule_at == at(22, day=1)
    assert verbs(chat) == ["submitted", "rules_saved", "scaled", "resizing"]


def test_a_firing_sets_the_size_once(here: Installation, chat: Workload) -> None:
    saved(here, chat, DAY, NIGHT, when=at(6))
    assert size_at(here, chat, at(7, 59)) == 4
    assert size_at(here, chat, at(8)) == 40
    before = verbs(chat)
    assert size_at(here, chat, at(9)) == 40
    assert verbs(chat) == before


def test_whoever_was_down_catches_up(here: Installation, chat: Workload) -> None:
    saved(here, chat, DAY, NIGHT, when=at(6))
    assert size_at(here, chat, at(23, day=5)) == 4
    assert chat.size_rule_at == at(22, day=5)


def test_a_size_set_by_hand_holds_until_the_next_firing(here: Installation, chat: Workload) -> None:
    saved(here, chat, DAY, NIGHT, when=at(6))
    with standing_still(here.cluster.pk, at(9)):
        apply_due_rules()
        scale_workload(actor=here["operator"], workload=chat, replicas=7)
    assert size_at(here, chat, at(12)) == 7
    assert chat.size_by == "operator"
    assert size_at(here, chat, at(22)) == 4


def test_a_rule_may_set_nothing(here: Installation, chat: Workload) -> None:
    saved(here, chat, DAY, RuleSpec("night", "0 22 * * *", "Europe/Istanbul", 0), when=at(12))
    assert chat.replicas == 40
    assert size_at(here, chat, at(22)) == 0


def test_a_disabled_rule_does_not_fire(here: Installation, chat: Workload) -> None:
    saved(here, chat, RuleSpec("day", "0 8 * * *", "Europe/Istanbul", 40, enabled=False), when=at(6))
    assert size_at(here, chat, at(12)) == 0


def test_one_rule_is_edited_and_removed_in_its_place(here: Installation, chat: Workload) -> None:
    saved(here, chat, DAY, NIGHT, when=at(12))
    with standing_still(here.cluster.pk, at(12)):
        day = chat.rules.get(name="day")
        edit_rule(actor=here["operator"], rule=day, spec=RuleSpec("day", "0 8 * * *", "Europe/Istanbul", 30))
        chat.refresh_from_db()
        assert (chat.replicas, [rule.name for rule in chat.rules.all()]) == (30, ["day", "night"])
        remove_rule(actor=here["operator"], rule=chat.rules.get(name="day"))
    chat.refresh_from_db()
    assert chat.replicas == 4


def test_scaling_takes_the_right_and_a_size_in_range(here: Installation, chat: Workload) -> None:
    with denied("workload.scale"):
        scale_workload(actor=here["developer"], workload=chat, replicas=1)
    for wrong in (-1, 10_001, True):
        with refused("invalid", field="replicas"):
            scale_workload(actor=here["operator"], workload=chat, replicas=wrong)
    with denied("workload.set_rules"):
        save_rules(actor=here["developer"], workload=chat, rules=[DAY])


def test_only_services_and_elastic_work_are_scaled(here: Installation) -> None:
    job = submitted(here["developer"], here)
    with refused("invalid", field="replicas"):
        scale_workload(actor=here["developer"], workload=job, replicas=2)
    elastic = submitted(here["developer"], here, name="elastic", min_replicas=2, max_replicas=4)
    scale_workload(actor=here["developer"], workload=elastic, replicas=3)
    elastic.refresh_from_db()
    assert (elastic.replicas, elastic.state) == (3, "queued")
    with refused("invalid", field="replicas"):
        scale_workload(actor=here["developer"], workload=elastic, replicas=5)


@pytest.mark.parametrize(
    ("fields", "field"),
    [
        ({"cron": "0 25 * * *"}, "rules.0.cron"),
        ({"cron": "0 8 * *"}, "rules.0.cron"),
        ({"zone": "Europe/Atlantis"}, "rules.0.zone"),
        ({"replicas": -1}, "rules.0.replicas"),
        ({"replicas": None}, "rules.0.replicas"),
        ({"replicas": 1, "min_replicas": 1}, "rules.0.replicas"),
        ({"valid_from": "2026-03-02", "valid_until": "2026-03-01"}, "rules.0.valid_until"),
        ({"excluded": ["tomorrow"]}, "rules.0.excluded"),
    ],
)
def test_wrong_rules_name_the_field(fields: dict[str, object], field: str) -> None:
    with pytest.raises(Refused) as caught:
        read_rules([{"name": "day", "cron": "0 8 * * *", "zone": "UTC", "replicas": 1, **fields}])
    assert caught.value.problems[0].field == field


def test_two_rules_of_one_name_are_a_conflict(here: Installation, chat: Workload) -> None:
    with refused("conflict", field="rules.1.name"):
        save_rules(actor=here["operator"], workload=chat, rules=[DAY, DAY])


def test_what_has_run_as_long_as_it_may_is_stopped(here: Installation) -> None:
    job = placed(submitted(here["developer"], here, max_runtime_s=3600), (here.nodes[0], [0]))
    assert job.started_at is not None
    assert stop_overdue({here.cluster.pk: job.started_at + timedelta(seconds=3599)}) == 0
    assert stop_overdue({here.cluster.pk: job.started_at + timedelta(seconds=3600)}) == 1
    assert stop_overdue({here.cluster.pk: job.started_at + timedelta(seconds=3601)}) == 0
    job.refresh_from_db()
    assert (job.state, verbs(job)[-1]) == ("stopping", "timed_out")
