"""What the API takes about clusters, quotas, workspaces, people and tokens; ``quotas.specs`` judges what it means."""

from __future__ import annotations

from typing import Any

from rest_framework import serializers

from quotas.api.fields import Choice, Flag, Id, Labels, Moment, Name, Reference, Text, Whole
from quotas.api.serializers import Judged, Write
from quotas.api.shapes import KIND_CHOICES
from quotas.models import EngineKind, Placement, PlatformRole, QueuePolicy, Role
from quotas.specs import (
    AMOUNT_FIELDS,
    CLOCK_SPEED_HIGH,
    CLOCK_SPEED_LOW,
    DESCRIPTION_MAX,
    GPUS_OF_NODE_MAX,
    LABEL_KEY_MAX,
    NAME_MAX,
    NODE_NAME_MAX,
    PRIORITY_HIGH,
    PRIORITY_LOW,
    RANK_HIGH,
    RANK_LOW,
    SECONDS_MAX,
    USERNAME_PATTERN,
    WEIGHT_MAX_MILLI,
)
from scheduler.core.resources import LARGEST


def optional_whole(low: int, high: int, *, null: bool = False, **kwargs: Any) -> Whole:
    return Whole(min_value=low, max_value=high, required=False, allow_null=null, **kwargs)


def amount() -> Whole:
    return optional_whole(0, LARGEST, null=True)


def seconds(*, null: bool = False) -> Whole:
    return optional_whole(0, SECONDS_MAX, null=null)


def priority() -> Whole:
    return optional_whole(PRIORITY_LOW, PRIORITY_HIGH)


class KindsBody(serializers.ListField):
    """Kinds of work."""

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(child=Choice(KIND_CHOICES), required=False, **kwargs)


def description(*, null: bool = False) -> Text:
    return Text(max_length=DESCRIPTION_MAX, required=False, allow_blank=True, allow_null=null)


# --- clusters, pools, nodes -------------------------------------------------------------------------------------------


class ClusterBody(Judged):
    """A new cluster."""

    name = Name()
    engine = Choice(EngineKind.choices, required=False)
    settings = serializers.DictField(required=False, help_text="Of the engine, in seconds: `start_up_s`, `stop_s`, ...")
    topology_levels = serializers.ListField(
        child=Text(max_length=LABEL_KEY_MAX), max_length=8, required=False, help_text="Outermost first."
    )
    clock_speed = serializers.FloatField(min_value=CLOCK_SPEED_LOW, max_value=CLOCK_SPEED_HIGH, required=False)


class PoolBody(Judged):
    """A node pool as a whole."""

    name = Name()
    selector = Labels(required=False)
    placement = Choice(Placement.choices, required=False)
    kinds = KindsBody()
    oversubscription = Flag(required=False)
    order = optional_whole(0, 10_000)


class NewPoolBody(PoolBody):
    """A new node pool."""

    cluster = Reference()


class NodeBody(Judged):
    """A new node."""

    cluster = Reference()
    name = Name(most=NODE_NAME_MAX)
    gpus = optional_whole(0, GPUS_OF_NODE_MAX)
    gpu_model = Text(max_length=NAME_MAX, required=False, allow_blank=True)
    gpu_memory_mib = optional_whole(0, LARGEST)
    cpu_milli = amount()
    memory_mib = amount()
    labels = Labels(required=False)
    pool = Reference(required=False, help_text="Without it the first pool whose selector matches.")


class LabelsBody(Write):
    """All labels of a node, in place of those before."""

    labels = Labels()


class ReasonBody(Write):
    """Why a node changes its state."""

    reason = Text(max_length=200, required=False, allow_blank=True)


class HealthBody(Write):
    """The health of one GPU."""

    index = Whole(min_value=0, max_value=GPUS_OF_NODE_MAX - 1)
    healthy = Flag()


# --- quotas -----------------------------------------------------------------------------------------------------------


class AmountBody(Judged):
    """What a quota has in one pool; what is left out or null is not governed (guaranteed) or not bounded."""

    weight = optional_whole(0, WEIGHT_MAX_MILLI, null=True, help_text="Thousandths; default: the guaranteed GPUs.")
    rank = optional_whole(RANK_LOW, RANK_HIGH)

    def get_fields(self) -> dict[str, serializers.Field[Any, Any, Any, Any]]:
        return {**{name: amount() for name in AMOUNT_FIELDS}, **super().get_fields()}


class Amounts(serializers.DictField):
    """Amounts by pool (name or number)."""

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(child=AmountBody(), **kwargs)


class SettingsBody(Write):
    """Switches and settings of a quota; what is left out stays as it is."""

    queue_policy = Choice(QueuePolicy.choices, required=False)
    child_preemption = Flag(required=False)
    child_claimants = KindsBody()
    child_max_victim_priority = priority()
    child_kinds = KindsBody()
    priority_inside = Flag(required=False)
    priority_siblings = Flag(required=False)
    priority_by_low = priority()
    priority_by_high = priority()
    priority_of_low = priority()
    priority_of_high = priority()
    priority_kinds = KindsBody()
    idle_sharing = Flag(required=False)
    min_runtime_reclaim_s = seconds()
    min_runtime_preempt_s = seconds()
    min_runtime_override_after_s = seconds(null=True)
    reserve_after_s = seconds()
    node_affinity = serializers.DictField(required=False, help_text="`{kind: {required|preferred: {label: [values]}}}`")


class EditQuotaBody(SettingsBody):
    """Changes of a quota that are not amounts."""

    name = Name(required=False)
    description = description(null=True)
    labels = Labels(required=False, allow_null=True)


class NewQuotaBody(SettingsBody):
    """A new quota."""

    cluster = Reference(required=False, allow_null=True, help_text="Needed for a root; else the parent's.")
    parent = Reference(required=False, allow_null=True)  # type: ignore[assignment]
    name = Name()
    description = description(null=True)
    labels = Labels(required=False, allow_null=True)
    amounts = Amounts(required=False, allow_null=True)


GIVEN_ROLES = [(role.value, role.label) for role in Role if role != Role.OWNER]
EXCESS = (("keep", "keep"), ("preempt", "preempt"))


class ExcessBody(Write):
    """What happens to use above the new amounts."""

    on_excess = Choice(EXCESS, required=False, help_text="Default: keep.")
    after_s = optional_whole(0, SECONDS_MAX, help_text="With `preempt`: after so many seconds; default: now.")


class ScaleBody(ExcessBody):
    """New absolute amounts by pool; pools that are left out stay."""

    amounts = Amounts()


class RebalanceBody(ExcessBody):
    """New absolute amounts of several quotas of one tree, checked as a whole."""

    changes = serializers.DictField(child=Amounts(), help_text="By quota (name or number).")
    revisions = serializers.DictField(
        child=Whole(min_value=1, max_value=2**31 - 1),
        required=False,
        help_text="The revision by quota on which the change is based; another one in force is answered with 409.",
    )


class MoveQuotaBody(Write):
    """The new parent; null: a root."""

    parent = Reference(allow_null=True)  # type: ignore[assignment]


class RestoreBody(Write):
    """The version of the quota's history that is wanted back."""

    version = Id(help_text="Its `id` in the history.")


# --- workspaces and people --------------------------------------------------------------------------------------------


class WorkspaceBody(Judged):
    """A new workspace."""

    name = Name()
    description = description()
    quotas = serializers.ListField(child=Reference(), required=False, help_text="The first is the default.")
    owner = Reference(required=False, help_text="Default: the caller.")


class EditWorkspaceBody(Write):
    """Changes of a workspace."""

    name = Name(required=False)
    description = description()


class BindBody(Write):
    """A quota to bind."""

    quota = Reference()
    default = Flag(required=False)


class RolesBody(Write):
    """All roles of a member, in place of those before: given ones, and the workspace's own by number or name."""

    roles = serializers.ListField(child=Choice(GIVEN_ROLES), required=False)
    custom_roles = serializers.ListField(child=Reference(), required=False)


class MemberBody(RolesBody):
    """A person with roles."""

    user = Reference(help_text="Number or login name.")


class HandOverBody(Write):
    """The next owner."""

    to = Reference(help_text="Number or login name of a member.")


class UserBody(Judged):
    """A new person or service account."""

    username = Name(most=150, pattern=USERNAME_PATTERN)
    email = serializers.EmailField(required=False, max_length=254)
    password = Text(max_length=4096, required=False, write_only=True, trim_whitespace=False)
    platform_role = Choice(PlatformRole.choices, required=False, allow_blank=True)
    time_zone = Text(max_length=64, required=False)


class ActiveBody(Write):
    """Whether the account is open."""

    is_active = Flag()


class TokenBody(Judged):
    """A new token of the caller's: of all its rights, or of one workspace with at most one role's rights."""

    name = Name()
    workspace = Reference(required=False)
    role = Choice(Role.choices, required=False)
    expires_at = Moment(required=False, allow_null=True)
