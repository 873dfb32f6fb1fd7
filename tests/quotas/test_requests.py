"""A workspace asks for more quota until an instant; it ends by itself."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from quotas.actors import SYSTEM
from quotas.errors import Refused
from quotas.models import QuotaRequest
from quotas.services import approve_request, decline_request, end_requests, request_quota, withdraw_request
from quotas.services.requests import QuotaRequestSpec
from scheduler.services import scale_quota
from tests.makers import Installation, a_quota, denied, refused
from tests.quotas.test_amounts import gpus


def asked(here: Installation, more: int = 8_000, days: int = 2) -> QuotaRequest:
    until = (here.cluster.now() + timedelta(days=days)).isoformat()
    data = {"quota": "quota-1.1", "more_gpu_milli": more, "until": until, "reason": "a deadline"}
    spec = QuotaRequestSpec.from_mapping(data, workspace=here.workspace)
    return request_quota(actor=here["administrator"], workspace=here.workspace, spec=spec)


def guaranteed(here: Installation) -> int | None:
    return here.quota.amounts.get().guaranteed_gpu_milli


def test_an_approved_request_is_promised_until_its_end(here: Installation) -> None:
    scale_quota(actor=SYSTEM, quota=here.other_quota, amounts={here.pool: gpus(72)})
    request = approve_request(actor=here["platform"], request=asked(here))
    assert (request.state, request.decided_by, guaranteed(here)) == ("approved", here["platform"], 56_000)
    assert end_requests({here.cluster.pk: request.until - timedelta(seconds=1)}) == 0
    assert end_requests({here.cluster.pk: request.until}) == 1
    assert end_requests({here.cluster.pk: request.until}) == 0
    request.refresh_from_db()
    assert (request.state, guaranteed(here)) == ("ended", 48_000)
    assert [version.verb for version in here.quota.versions.order_by("revision")] == [
        "created",
        "request approved",
        "request ended",
    ]


def test_what_the_tree_has_not_cannot_be_approved(here: Installation) -> None:
    request = asked(here)
    with refused("quota.exceeds_parent"):
        approve_request(actor=here["platform"], request=request)
    request.refresh_from_db()
    assert request.state == "open"


def test_the_end_takes_no_more_than_the_quotas_below_leave(here: Installation) -> None:
    scale_quota(actor=SYSTEM, quota=here.other_quota, amounts={here.pool: gpus(72)})
    request = approve_request(actor=here["platform"], request=asked(here))
    a_quota(here.cluster, "below", gpus=52, parent=here.quota)
    end_requests({here.cluster.pk: request.until})
    assert guaranteed(here) == 52_000


def test_declined_and_withdrawn_requests_change_nothing_and_are_closed(here: Installation) -> None:
    declined = decline_request(actor=here["platform"], request=asked(here), answer="not this month")
    assert (declined.state, declined.answer, guaranteed(here)) == ("declined", "not this month", 48_000)
    withdrawn = withdraw_request(actor=here["owner"], request=asked(here))
    assert withdrawn.state == "withdrawn"
    for request in (declined, withdrawn):
        with refused("request.state"):
            approve_request(actor=here["platform"], request=request)


def test_who_asks_and_who_decides(here: Installation) -> None:
    request = asked(here)
    with denied("quota.decide_request"):
        approve_request(actor=here["owner"], request=request)
    spec = QuotaRequestSpec(here.quota, here.pool, request.until, more_gpu_milli=1)
    with denied("quota.request"):
        request_quota(actor=here["operator"], workspace=here.workspace, spec=spec)


@pytest.mark.parametrize(
    ("fields", "field"),
    [
        ({"more_gpu_milli": 0}, "more_gpu_milli"),
        ({"until": None}, "until"),
        ({"until": "tomorrow"}, "until"),
        ({"quota": "quota-1.2"}, "quota"),
        ({"pool": "gold"}, "pool"),
    ],
)
def test_wrong_requests_name_the_field(here: Installation, fields: dict[str, Any], field: str) -> None:
    data = {"quota": "quota-1.1", "more_gpu_milli": 1000, "until": "2099-01-01T00:00:00Z", **fields}
    with pytest.raises(Refused) as caught:
        QuotaRequestSpec.from_mapping(data, workspace=here.workspace)
    assert field in [problem.field for problem in caught.value.problems]


def test_an_end_in_the_past_is_refused(here: Installation) -> None:
    with pytest.raises(Refused) as caught:
        asked(here, days=-1)
    assert caught.value.problems[0].field == "until"


@pytest.mark.parametrize("until", ["9999-12-31T23:59:59-14:00", "0001-01-01T00:00:00+14:00", "9999-06-01T00:00:00Z"])
def test_an_end_that_no_database_could_keep_is_refused(here: Installation, until: str) -> None:
    with pytest.raises(Refused) as caught:
        QuotaRequestSpec.from_mapping(
            {"quota": "quota-1.1", "more_gpu_milli": 1, "until": until}, workspace=here.workspace
        )
    assert [(problem.field, problem.facts["reason"]) for problem in caught.value.problems] == [("until", "range")]
