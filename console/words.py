"""Rows in words: what pages say about reasons, events, changes and numbers."""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from django.urls import reverse
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

from console.amounts import gpus, memory, span
from console.selectors import Attention, Branch, QueueLine, is_move, verdict_of
from quotas.models import QuotaVersion, User
from quotas.words import amount_words, sentence
from scheduler.previews import Book, Preview, Touched
from workloads.models import Allocation, Event, Phase, State, Verdict, Workload
from workloads.seeing import facts_for
from workloads.selectors import place_in_queue

# --- why something waits ---------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class PendingRow:
    """A line of a queue as it is read."""

    workload: Workload
    place: int
    kind: str
    gpus: int  # thousandths asked in all
    code: str
    sentence: str
    waited: float  # seconds
    starts: str


@dataclass(frozen=True, slots=True)
class Why:
    code: str
    sentence: str
    position: int | None
    since: datetime | None
    starts: str


def pending_words(lines: Iterable[QueueLine], now: datetime, reader: User) -> list[PendingRow]:
    seen = facts_for(reader)
    return [
        PendingRow(
            workload=line.workload,
            place=line.place,
            kind=line.workload.get_kind_display(),
            gpus=line.workload.gpu_milli_each * line.workload.replicas,
            code=line.code,
            sentence=why_words(line.code, seen(line.facts)),
            waited=(now - line.workload.submitted_at).total_seconds(),
            starts=start_words(verdict_of(line.workload), now),
        )
        for line in lines
    ]


def why_of(workload: Workload, reader: User) -> Why | None:
    """The reason why it waits; None for what does not wait."""
    if workload.state not in (State.QUEUED, State.RESIZING):
        return None
    verdict = verdict_of(workload)
    if verdict is None:
        code = "policy.held" if workload.held else ""
        return Why(code, why_words(code, {}), None, None, "")
    facts = facts_for(reader)(verdict.facts)
    starts = start_words(verdict, workload.cluster.now())
    place = place_in_queue(actor=reader, workload=workload)
    return Why(verdict.code, why_words(verdict.code, facts), place, verdict.since, starts)


def start_words(verdict: Verdict | None, now: datetime) -> str:
    """When it is thought to start; empty where nobody can say."""
    if verdict is None or verdict.earliest_at is None:
        return ""
    earliest = span((verdict.earliest_at - now).total_seconds())
    if verdict.latest_at is None:
        return _("not before %(time)s from now") % {"time": earliest}
    latest = span((verdict.latest_at - now).total_seconds())
    if latest == earliest:
        return _("in %(time)s") % {"time": earliest}
    return _("in %(earliest)s to %(latest)s") % {"earliest": earliest, "latest": latest}


def why_words(code: str, facts: Mapping[str, Any]) -> str:
    """Why something waits; without a verdict the next cycle has yet to look at it."""
    return sentence(code, facts) if code else _("The next scheduling cycle decides.")


UNBLOCK = {
    "head": gettext_lazy("It moves when the workload ahead of it starts or leaves."),
    "release": gettext_lazy("Somebody has to release it."),
    "members": gettext_lazy("%(amount)s more workers would have to find room."),
    "lacking": gettext_lazy("%(amount)s more would let it start."),
    "free_gpu_milli": gettext_lazy("%(amount)s would have to become free."),
    "idle": gettext_lazy("%(amount)s would have to be idle."),
    "on_one_node_gpu_milli": gettext_lazy("%(amount)s would have to be free on one node."),
    "later": gettext_lazy("Time alone will help."),
    "leaving": gettext_lazy("It starts when what is leaving is gone."),
    "reservation": gettext_lazy("It moves when the reservation of the other ends."),
    "engine": gettext_lazy("The engine has to answer again."),
    "at_ms": gettext_lazy("It may start at its time."),
}
UNBLOCK_NODES = {
    "closer": gettext_lazy("Nodes that are closer together would have to be free."),
    "labels": gettext_lazy("Nodes with the labels that it asks for would have to be free."),
    "ready": gettext_lazy("Nodes or devices have to become healthy again."),
    "larger": gettext_lazy("It needs larger nodes, or to ask for less."),
}


def unblock_words(workload: Workload, reader: User) -> list[str]:
    """What would let it start, as far as the last cycle said and the reader may know."""
    verdict = verdict_of(workload)
    if verdict is None or workload.state not in (State.QUEUED, State.RESIZING):
        return []
    facts = facts_for(reader)(verdict.would_unblock) if isinstance(verdict.would_unblock, Mapping) else {}
    nodes = UNBLOCK_NODES.get(str(facts.get("nodes")))
    found = [str(words) % {"amount": unblock_amount(name, facts)} for name, words in UNBLOCK.items() if name in facts]
    return [*found, *([str(nodes)] if nodes else [])]


def unblock_amount(name: str, facts: Mapping[str, Any]) -> str:
    """The number of a hint in its unit."""
    unit = "gpu_milli" if name.endswith("gpu_milli") else facts.get("resource")
    return amount_words(unit, facts[name]) if unit else str(facts[name])


# --- what needs a look -----------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class AttentionRow:
    tone: str
    icon: str
    what: str
    pk: int
    name: str
    url: str
    sentence: str


def attention_words(items: Iterable[Attention]) -> list[AttentionRow]:
    return [_attention_row(item) for item in items]


def _attention_row(item: Attention) -> AttentionRow:
    icon, route, words = {
        "starved": (
            "hourglass",
            "quota-detail",
            _("work waits, and %(gpus)s of its guaranteed GPUs are not in its use"),
        ),
        "node": ("server-off", "node-detail", _("is %(state)s")),
        "devices": ("cpu", "node-detail", _("has unhealthy GPUs")),
        "late": ("clock", "", _("The scheduler has not finished a cycle for half a minute.")),
    }[item.what]
    url = reverse(route, args=[item.pk]) if route else ""
    facts = {"gpus": gpus(item.amount), "state": item.state}
    return AttentionRow(item.tone, icon, item.what, item.pk, item.name, url, words % facts)


# --- a workload's past -----------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class EventLine:
    pk: int
    at: datetime
    state: str
    sentence: str
    actor: str


VERBS = {
    "submitted": gettext_lazy("Submitted"),
    "started": gettext_lazy("Placed; the start has been ordered"),
    "running": gettext_lazy("Running"),
    "resized": gettext_lazy("Its size has changed"),
    "scaled": gettext_lazy("A new size was asked for"),
    "preempted": gettext_lazy("Told to leave for other work"),
    "moved": gettext_lazy("Moved to another place to make room"),
    "shrunk": gettext_lazy("Gave workers back"),
    "requeued": gettext_lazy("Back in the queue"),
    "queued": gettext_lazy("Back in the queue"),
    "held": gettext_lazy("Held"),
    "released": gettext_lazy("Released"),
    "stopped": gettext_lazy("Stopped"),
    "stopping": gettext_lazy("Told to stop"),
    "succeeded": gettext_lazy("Finished"),
    "failed": gettext_lazy("Failed"),
    "priority": gettext_lazy("Priority changed"),
    "priority_changed": gettext_lazy("Priority changed"),
    "reordered": gettext_lazy("Moved within its queue"),
    "lost": gettext_lazy("A node was lost"),
}
RULES = {
    "a": gettext_lazy("its room is guaranteed to the other"),
    "a'": gettext_lazy("the other is below its share"),
    "b": gettext_lazy("child-level preemption of the quota above"),
    "c": gettext_lazy("the other has a higher priority"),
    "d": gettext_lazy("by order"),
}

PLAIN_FACTS = ("from", "to", "reason", "replicas", "priority", "quota", "exit_code")


def event_lines(events: Iterable[Event], reader: User) -> list[EventLine]:
    seen = facts_for(reader)
    return [
        EventLine(
            event.pk,
            event.at,
            event.after if is_move(event) else "",
            event_words(event.verb, seen(event.facts)),
            event.actor,
        )
        for event in events
    ]


def event_words(verb: str, facts: Mapping[str, Any]) -> str:
    """The event in a sentence, with those of its facts that have words."""
    words = str(VERBS.get(verb, verb.replace("_", " ").capitalize()))
    told = []
    if (rule := facts.get("rule")) in RULES:
        told.append(str(RULES[rule]))
    if "claimant" in facts:
        told.append(_("for %(name)s") % {"name": facts["claimant"]})
    if "code" in facts:
        told.append(sentence(str(facts["code"]), facts).rstrip("."))
    plain = [name for name in PLAIN_FACTS if name in facts and not isinstance(facts[name], Mapping | list)]
    told += [f"{name.replace('_', ' ')} {facts[name]}" for name in plain]
    return f"{words}: {', '.join(told)}." if told else f"{words}."


@dataclass(frozen=True, slots=True)
class PlacementRow:
    pk: int
    index: int
    phase: str
    node: str
    devices: Sequence[int]
    gpu_milli: int
    since: datetime


def placement_rows(workload: Workload) -> list[PlacementRow]:
    """Where its replicas are, those that are leaving last. One query."""
    held: Iterable[Allocation] = (
        workload.allocations.filter(ended_at__isnull=True).select_related("node").order_by("group", "index", "id")
    )
    rows = [
        PlacementRow(
            row.pk, row.index, row.phase, row.node.name, row.devices, row.gpu_milli, row.running_at or row.ordered_at
        )
        for row in held
    ]
    return sorted(rows, key=lambda row: row.phase == Phase.LEAVING)


# --- quotas ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class LedgerLine:
    title: str
    help: str
    values: Sequence[int | None]


@dataclass(frozen=True, slots=True)
class LedgerTable:
    pools: Sequence[str]
    lines: Sequence[LedgerLine]


def ledger_lines(branch: Branch) -> LedgerTable:
    """The quota's ledger, a column a pool."""
    pools = [amount.pool for amount in branch.amounts]
    counted = {
        "used": (_("In use"), _("by this quota and all below it")),
        "own": (_("In use by itself"), ""),
        "ancestors": (_("Work from above on its room"), ""),
        "borrowed": (_("Borrowed"), _("beyond what it is entitled to now")),
        "lent": (_("Lent"), _("of its unused promise, held by others now")),
        "waiting": (_("Waiting"), _("asked for by waiting work")),
        "free": (_("Free now"), _("promised, not used, and idle")),
        "entitlement": (_("Entitled to now"), _("what the guarantee is worth to what it asks for")),
        "share": (_("Share now"), _("with its part of the surplus")),
    }
    lines = [
        LedgerLine(_("Guaranteed"), "", [amount.guaranteed_gpu_milli for amount in branch.amounts]),
        LedgerLine(_("Limit"), _("– is none"), [amount.limit_gpu_milli for amount in branch.amounts]),
    ]
    for name, (title, words) in counted.items():
        values = [getattr(branch.entries[pool.pk], name) if pool.pk in branch.entries else 0 for pool in pools]
        lines.append(LedgerLine(title, words, values))
    return LedgerTable([pool.name for pool in pools], lines)


@dataclass(frozen=True, slots=True)
class Change:
    name: str
    before: str
    after: str


@dataclass(frozen=True, slots=True)
class VersionLine:
    pk: int
    at: datetime
    by: str
    verb: str
    changes: Sequence[Change]


def version_lines(versions: Iterable[QuotaVersion], known: set[int] | None = None) -> list[VersionLine]:
    """A quota's history. People outside ``known`` (None: everybody is known, and every quota) are only called
    administrators, and of what is above the quota nothing is told."""
    hidden = () if known is None else ("parent_id",)
    return [
        VersionLine(
            version.pk, version.at, by_words(version.by, known), verb_words(version.verb), change_list(version, hidden)
        )
        for version in versions
    ]


def by_words(person: User | None, known: set[int] | None) -> str:
    if person is None:
        return _("the system")
    return person.get_username() if known is None or person.pk in known else _("an administrator")


def verb_words(verb: str) -> str:
    return verb.rsplit(".", 1)[-1].replace("_", " ").capitalize()


def change_list(version: QuotaVersion, hidden: Container[str] = ()) -> list[Change]:
    """The fields that differ between before and after, amounts in GPUs, cores and GiB."""
    before, after = _flat(version.before), _flat(version.after)
    names = [name for name in after if before.get(name) != after[name] and name not in hidden]
    return [
        Change(label_of(name), value_words(name, before.get(name, "")), value_words(name, after[name]))
        for name in names
    ]


def _flat(state: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name, value in state.items():
        if isinstance(value, Mapping) and value:
            found |= _flat(value, f"{prefix}{name}.")
        else:
            found[f"{prefix}{name}"] = value
    return found


def label_of(name: str) -> str:
    short = name.removeprefix("amounts.").removesuffix("_gpu_milli").removesuffix("_milli").removesuffix("_s")
    return short.replace(".", " · ").replace("_", " ")


def value_words(name: str, value: Any) -> str:
    """A stored value as people write it."""
    if value == "":
        return ""
    if value is None:
        return _("none")
    if isinstance(value, bool):
        return _("on") if value else _("off")
    if isinstance(value, int) and name.endswith(("_milli", "weight")):
        return gpus(value)
    if isinstance(value, int) and name.endswith("_mib"):
        return memory(value)
    if isinstance(value, int) and name.endswith("_s"):
        return span(value)
    return ", ".join(map(str, value)) if isinstance(value, list) else str(value)


# --- previews --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class NamedGroup:
    title: str
    names: Sequence[str]


@dataclass(frozen=True, slots=True)
class BookChange:
    """A quota's books before and after, where they differ."""

    name: str
    guaranteed: str
    used: str
    borrowed: str


@dataclass(frozen=True, slots=True)
class Consequences:
    groups: Sequence[NamedGroup]
    rows: Sequence[BookChange]


def consequences(seen: Preview, names: Mapping[int, str], shown: Callable[[Touched], bool]) -> Consequences:
    """A preview in words: of the quotas that have names here, and of the work that may be shown."""
    titles = (
        (_("Preempted"), seen.preempted),
        (_("Gives workers back"), seen.shrunk),
        (_("Moved"), seen.moved),
        (_("Starts"), seen.starts),
        (_("Waits then"), seen.waits),
    )
    groups = [
        NamedGroup(title, [touched_words(work) for work in touched if shown(work)])
        for title, touched in titles
        if any(map(shown, touched))
    ]
    before = {(book.quota_id, book.pool_id): book for book in seen.before}
    rows = [
        _book_change(names[after.quota_id], before.get((after.quota_id, after.pool_id)), after)
        for after in seen.after
        if after.quota_id in names and before.get((after.quota_id, after.pool_id)) != after
    ]
    return Consequences(groups, rows)


def touched_words(work: Touched) -> str:
    """The workload with its size, and why it would wait."""
    words = f"{work.name} ({gpus(work.gpu_milli)} GPUs)"
    return f"{words}: {sentence(work.code, {}).rstrip('.')}" if work.code else words


def _book_change(name: str, before: Book | None, after: Book) -> BookChange:
    def words(field: str) -> str:
        had, has = getattr(before, field, None), getattr(after, field)
        return gpus(has) if had == has else f"{gpus(had)} → {gpus(has)}"

    return BookChange(name, words("guaranteed"), words("used"), words("borrowed"))
