"""Words for codes, made where people read them. Codes and facts are data; every sentence here can be translated.

Amounts in facts are base units with their ``resource``; sentences show GPUs, cores and GiB.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from django.utils.functional import Promise
from django.utils.translation import gettext
from django.utils.translation import gettext_lazy as _

Facts = Mapping[str, Any]

WAITING: dict[str, Promise] = {
    "policy.head_of_line": _("The queue's policy lets nothing pass the workload ahead of it"),
    "policy.held": _("Held until somebody releases it"),
    "quota.entitlement": _("The quota's promise is used up and this work does not use idle room"),
    "quota.share": _("It would go beyond the quota's share, and that needs an eviction"),
    "quota.limit": _("The quota's limit is reached"),
    "quota.ancestor_limit": _("The limit of a quota above is reached"),
    "configuration.cap": _("A cap of the scheduling configuration is reached"),
    "nodes.full": _("No node has room now"),
    "nodes.gang": _("Not all workers of the gang find room at once"),
    "nodes.fragmented": _("There is enough room, but not on one node"),
    "nodes.topology": _("The workers do not fit as close together as is required"),
    "nodes.affinity": _("The nodes that it may use have no room"),
    "nodes.unhealthy": _("Devices or nodes that it needs are not healthy"),
    "nodes.never_fits": _("No node is large enough, even when empty"),
    "preemption.protected": _("The work in its way may not be stopped now"),
    "preemption.pending": _("Room is being freed for it"),
    "reservation.other": _("The room is kept for another workload"),
    "consolidation.pending": _("Other work is being moved to make room"),
    "engine.unavailable": _("The engine of its nodes does not answer"),
    "schedule.waiting": _("Its time to start has not come"),
}

REFUSALS: dict[str, Promise] = {
    "quota.exceeds_parent": _("More than the parent has left"),
    "quota.exceeds_pool": _("More than the pool has left"),
    "quota.below_children": _("Less than is promised to the quotas below"),
    "quota.limit_below_guaranteed": _("The limit is below the guaranteed amount"),
    "quota.in_use": _("The quota is still in use"),
    "quota.too_deep": _("The tree would be too deep"),
    "quota.loop": _("A quota cannot stand below itself"),
    "workload.never_fits": _("It could never run: no node is large enough"),
    "workload.exceeds_limit": _("It could never run: it asks for more than the limit"),
    "workload.state": _("Not possible in this state"),
    "configuration.kind": _("The scheduling configuration does not allow this kind here"),
    "configuration.priority": _("The scheduling configuration does not allow this priority"),
    "configuration.cap": _("The scheduling configuration does not allow so much"),
    "configuration.template_required": _("The scheduling configuration asks for a template"),
    "configuration.time": _("The scheduling configuration does not allow so long a time"),
    "workspace.not_bound": _("The workspace may not use this quota"),
    "workspace.archived": _("The workspace is archived and takes no new work"),
    "workspace.in_use": _("The workspace is still in use"),
    "member.is_owner": _("The owner's place can only be handed over"),
    "node.in_use": _("Work still runs on the node"),
    "role.in_use": _("Members still hold the role"),
    "request.state": _("The request is no longer open"),
    "permission.denied": _("Your role does not allow this"),
    "not_found": _("Not found"),
    "stale": _("It has changed meanwhile"),
    "invalid": _("Not a valid value"),
    "conflict": _("Already taken"),
    "throttled": _("Too many requests; try again later"),
}

INVALID: dict[str, Promise] = {
    "required": _("This is required."),
    "type": _("This must be: %(wanted)s."),
    "range": _("This must be between %(low)s and %(high)s; it is %(given)s."),
    "length": _("This may have at most %(most)s; it has %(given)s."),
    "choice": _("This must be one of: %(choices)s."),
    "pattern": _("This must match: %(pattern)s."),
    "unknown": _("There is no such field here. Known are: %(known)s."),
    "not_found": _("There is no “%(given)s” that you can use here."),
    "schedule": _("This is no schedule that can be used: %(why)s."),
    "password": _("%(wanted)s"),
    "ready_by": _("%(wanted)s"),
}

DETAILS: dict[str, Promise] = {
    "quota.share": _(
        "It asks for %(asked)s; the quota has %(used)s in use of its share of %(share)s, and more needs an eviction."
    ),
    "quota.entitlement": _("It asks for %(asked)s and does not use idle room; %(available)s of the promise are left."),
    "quota.limit": _("It asks for %(asked)s; %(available)s are left of the quota's limit of %(limit)s."),
    "quota.ancestor_limit": _("It asks for %(asked)s; a quota above has too little left of its limit."),
    "nodes.gang": _("%(placeable)s of its %(members)s workers find room now; they start together."),
    "nodes.fragmented": _(
        "There is enough room, but not on one node: the best reaches %(reaches_gpu_milli)s of %(asked_gpu_milli)s."
    ),
    "nodes.full": _("No node has room now: it asks for %(asked_gpu_milli)s, the best node has %(reaches_gpu_milli)s."),
    "quota.exceeds_parent": _(
        "%(quota)s asks for %(asked)s; %(parent)s has %(available)s left in pool %(pool)s, %(missing)s are missing."
    ),
    "quota.exceeds_pool": _(
        "%(quota)s asks for %(asked)s; pool %(pool)s has %(available)s left of %(capacity)s, %(missing)s are missing."
    ),
    "quota.below_children": _(
        "%(quota)s would have %(asked)s, but the quotas below it are promised %(least)s in pool %(pool)s."
    ),
    "quota.limit_below_guaranteed": _(
        "The limit of %(quota)s would be %(asked)s; it must be at least the guaranteed %(least)s."
    ),
    "quota.too_deep": _("The tree would be %(depth)s levels deep; %(most)s is the most."),
    "quota.in_use": _("Still in the way: %(blockers)s."),
    "workspace.in_use": _("Still in the way: %(blockers)s."),
    "workload.exceeds_limit": _("It asks for %(asked)s; %(quota)s is limited to %(limit)s in pool %(pool)s."),
    "workload.state": _("The workload is %(state)s; this is possible when it is %(allowed)s."),
    "workspace.not_bound": _("Workspace %(workspace)s is not bound to quota %(quota)s."),
    "node.in_use": _("Work still runs on %(nodes)s."),
    "role.in_use": _("Still held by: %(blockers)s."),
    "request.state": _("The request is %(state)s; this is possible while it is %(allowed)s."),
    "configuration.kind": _("Entry “%(entry)s” allows %(choices)s here, not %(given)s."),
    "configuration.priority": _("Entry “%(entry)s” allows priority %(most)s at most; %(given)s is asked."),
    "configuration.cap": _("Entry “%(entry)s” caps what is in use at %(limit)s; this asks for %(asked)s at once."),
    "configuration.template_required": _("Entry “%(entry)s” asks for a template of the workspace."),
    "configuration.time": _("Entry “%(entry)s” allows %(most)s seconds at most; %(given)s are asked."),
    "conflict": _("“%(given)s” is already taken."),
    "member.is_owner": _("%(user)s is the owner; hand the workspace over first."),
}

AMOUNTS = (
    "share",
    "asked",
    "available",
    "missing",
    "least",
    "limit",
    "capacity",
    "parent_has",
    "used",
    "allowed_amount",
)


def sentence(code: str, facts: Facts | None = None) -> str:
    """What the code means here, with the numbers of its facts, in the reader's language."""
    facts = facts or {}
    if code == "invalid":
        return _invalid(facts)
    if code == "workload.never_fits":
        return _never_fits(facts)
    general = REFUSALS.get(code) or WAITING.get(code)
    return _filled(DETAILS.get(code), facts) or (f"{general}." if general else code)


def _invalid(facts: Facts) -> str:
    reason = str(facts.get("reason", ""))
    if reason == "range" and facts.get("high") is None:
        return gettext("This must be at least %(low)s.") % {"low": facts.get("low")}
    if reason == "range" and facts.get("low") is None:
        return gettext("This may be at most %(high)s.") % {"high": facts.get("high")}
    if reason in ("choice", "not_found") and "wanted" in facts and "choices" not in facts:
        reason = "type"
    return _filled(INVALID.get(reason), facts) or f"{REFUSALS['invalid']}."


def _never_fits(facts: Facts) -> str:
    if facts.get("nodes") == 0:
        return gettext("There is no node that it may use.")
    if "largest" not in facts:
        return f"{REFUSALS['workload.never_fits']}."
    asked, largest = (amount_words(facts.get("resource"), facts.get(name)) for name in ("asked", "largest"))
    if facts.get("of") == "pool":
        return gettext("It asks for %(asked)s in all; no pool that it may use has more than %(largest)s.") % {
            "asked": asked,
            "largest": largest,
        }
    return gettext("One replica asks for %(asked)s; the largest node that it may use has %(largest)s.") % {
        "asked": asked,
        "largest": largest,
    }


def _filled(template: Promise | None, facts: Facts) -> str:
    """The template with the facts, or an empty text where one is missing."""
    if template is None:
        return ""
    try:
        return str(template) % {name: _shown(name, value, facts) for name, value in facts.items()}
    except KeyError:
        return ""


def _shown(name: str, value: Any, facts: Facts) -> str:
    if name in AMOUNTS and "resource" in facts:
        return amount_words(facts["resource"], value)
    if name.endswith("_gpu_milli"):
        return amount_words("gpu_milli", value)
    if isinstance(value, list | tuple):
        return ", ".join(str(item) for item in value)
    if isinstance(value, Mapping):
        return "; ".join(f"{key}: {_shown('', item, {})}" for key, item in value.items())
    return str(value)


def amount_words(resource: object, value: Any) -> str:
    """An amount in base units as people say it: 1.5 GPUs, 4 cores, 64 GiB."""
    if value is None:
        return gettext("no limit")
    words: dict[str, Callable[[int], str]] = {
        "gpu_milli": lambda n: gettext("%(n)s GPUs") % {"n": _decimal(n, 1000)},
        "cpu_milli": lambda n: gettext("%(n)s cores") % {"n": _decimal(n, 1000)},
        "memory_mib": lambda n: gettext("%(n)s GiB") % {"n": _decimal(n, 1024)},
        "gpu_memory_mib": lambda n: gettext("%(n)s GiB of GPU memory") % {"n": _decimal(n, 1024)},
    }
    say = words.get(str(resource))
    return say(int(value)) if say else str(value)


def _decimal(value: int, unit: int) -> str:
    return f"{value / unit:.3f}".rstrip("0").rstrip(".")
