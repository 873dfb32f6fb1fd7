"""Roles that a workspace makes for itself."""

from __future__ import annotations

from typing import Any

import pytest

from quotas.errors import Refused
from quotas.models import CustomRole, Member
from quotas.permissions import allowed, visible_audit
from quotas.services import add_member, create_custom_role, delete_custom_role, edit_custom_role, invite, set_roles
from quotas.services.roles import CustomRoleSpec
from tests.makers import Installation, denied, refused, submitted


def made(here: Installation, name: str = "queue master", **levels: str) -> CustomRole:
    spec = CustomRoleSpec.from_mapping({"name": name, "levels": levels})
    return create_custom_role(actor=here["administrator"], workspace=here.workspace, spec=spec)


def test_a_role_is_made_given_changed_and_works_at_once(here: Installation) -> None:
    role = made(here, queue="read")
    person = here["stranger"]
    add_member(actor=here["administrator"], workspace=here.workspace, user=person, roles=[], custom_roles=[role])
    assert not allowed(person, "queue.reorder", here.workspace)
    spec = CustomRoleSpec.from_mapping({"name": "queue master", "levels": {"queue": "all"}})
    edit_custom_role(actor=here["administrator"], role=role, spec=spec, revision=1)
    assert allowed(person, "queue.reorder", here.workspace)
    assert not allowed(person, "workload.submit", here.workspace)


def test_a_role_that_is_held_stays(here: Installation) -> None:
    role = made(here)
    member = add_member(
        actor=here["owner"], workspace=here.workspace, user=here["stranger"], roles=[], custom_roles=[role]
    )
    with refused("role.in_use"):
        delete_custom_role(actor=here["owner"], role=role)
    set_roles(actor=here["owner"], member=member, roles=["viewer"])
    delete_custom_role(actor=here["owner"], role=role)
    assert not CustomRole.objects.exists()


@pytest.mark.parametrize(
    ("data", "field"),
    [
        ({"name": "x", "levels": {"queue": "some"}}, "levels.queue"),
        ({"name": "x", "levels": {"kitchen": "all"}}, "levels.kitchen"),
        ({"name": "x", "levels": ["queue"]}, "levels"),
        ({"levels": {}}, "name"),
    ],
)
def test_wrong_roles_name_the_field(data: dict[str, Any], field: str) -> None:
    with pytest.raises(Refused) as caught:
        CustomRoleSpec.from_mapping(data)
    assert field in [problem.field for problem in caught.value.problems]


def test_roles_of_another_workspace_are_not_there(here: Installation) -> None:
    spec = CustomRoleSpec.from_mapping({"name": "foreign", "levels": {}})
    foreign = create_custom_role(actor=here["rival"], workspace=here.other_workspace, spec=spec)
    with refused("not_found", field="custom_roles"):
        add_member(
            actor=here["owner"], workspace=here.workspace, user=here["stranger"], roles=[], custom_roles=[foreign]
        )
    with refused("conflict", field="name"):
        create_custom_role(actor=here["rival"], workspace=here.other_workspace, spec=spec)
    with denied("member.manage"):
        create_custom_role(actor=here["operator"], workspace=here.workspace, spec=spec)


def test_nobody_gives_more_than_they_have(here: Installation) -> None:
    role = made(here, "people", members="all", training="own")
    person = here["stranger"]
    own = add_member(actor=here["owner"], workspace=here.workspace, user=person, roles=[], custom_roles=[role])
    with denied("workload.read"):
        add_member(actor=person, workspace=here.workspace, user=here["rival"], roles=["operator"])
    with denied("workload.read"):
        set_roles(actor=person, member=own, roles=["administrator"])
    with denied("configuration.read"):
        spec = CustomRoleSpec.from_mapping({"name": "people", "levels": {"configuration": "all"}})
        edit_custom_role(actor=person, role=role, spec=spec)
    with denied("workload.read"):
        invite(actor=person, workspace=here.workspace, email="a@example.org", roles=["operator"], link=str)
    less = CustomRoleSpec.from_mapping({"name": "people", "levels": {"members": "all"}})
    edit_custom_role(actor=person, role=role, spec=less)
    assert not allowed(person, "workload.submit", here.workspace)


def test_roles_that_a_member_has_already_may_stay(here: Installation) -> None:
    role = made(here, "people", members="all")
    person = here["stranger"]
    add_member(actor=here["owner"], workspace=here.workspace, user=person, roles=[], custom_roles=[role])
    operator = Member.objects.get(workspace=here.workspace, user=here["operator"])
    assert set_roles(actor=person, member=operator, roles=["operator"], custom_roles=[role]).custom_roles == [role.pk]


def test_who_manages_people_alone_reads_of_no_work_in_the_audit(here: Installation) -> None:
    role = made(here, "people", members="all")
    add_member(actor=here["owner"], workspace=here.workspace, user=here["stranger"], roles=[], custom_roles=[role])
    submitted(here["developer"], here)
    assert set(visible_audit(here["stranger"]).values_list("object_type", flat=True)) == {"workspace", "customrole"}
    assert visible_audit(here["administrator"]).filter(object_type="workload").exists()
