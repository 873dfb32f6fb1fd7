"""From a file to a scenario. Whatever is wrong is told with its place and what would be right."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import UTC, date, datetime, time, timedelta
from pathlib import Path
from typing import Any

from scheduler.scenarios import script
from scheduler.scenarios.reading import InvalidScenario, Item, read_file
from scheduler.scenarios.script import Expect, Range, Scenario, Step, When

KINDS = ("training", "notebook", "service")
STATES = ("queued", "starting", "running", "resizing", "preempting", "stopping", "succeeded", "failed", "stopped")
POLICIES = ("fifo", "round_robin", "balance", "intelligent")
NODE_STATES = ("ready", "cordoned", "draining", "lost")
RESOURCES = {"gpu": "gpu_milli", "cpu": "cpu_milli", "memory": "memory_mib"}
CLOCK_TIME = re.compile(r"([01]\d|2[0-3]):([0-5]\d)(?::([0-5]\d))?")
TOP = ("name", "about", "start", "cycle_seconds", "settings", "pools", "nodes", "quotas", "workspaces", "steps")
NODE_FIELDS = ("name", "count", "gpus", "gpu_model", "gpu_memory", "cpu", "memory", "labels", "pool")
QUOTA_FIELDS = (
    *("name", "parent", "guaranteed", "limit", "lending_limit", "weight", "rank", "idle_sharing", "queue_policy"),
    *("child_preemption", "priority_preemption", "min_runtime", "node_affinity", "reserve_after"),
)
EXCESS_FIELDS = ("on_excess", "after")


def read_scenario(path: Path) -> Scenario:
    """The scenario of a file; raises `InvalidScenario`."""
    root = read_file(path)
    found = root.known_fields(TOP, required=("name", "nodes", "quotas", "steps"))
    pools = tuple(_pool(item) for item in found["pools"].entries()) if "pools" in found else ()
    nodes = _all_nodes(found["nodes"])
    steps = tuple(_step(item) for item in found["steps"].entries())
    scenario = Scenario(
        file=str(path),
        name=found["name"].text(),
        start=_start(found["start"]) if "start" in found else script.DEFAULT_START,
        cycle=timedelta(seconds=float(found["cycle_seconds"].number(0.001))) if "cycle_seconds" in found else SECOND,
        settings=_settings(found["settings"]) if "settings" in found else {},
        levels=_levels(nodes, steps),
        pools=pools,
        nodes=nodes,
        quotas=tuple(_quota(item) for item in found["quotas"].entries()),
        workspaces=tuple(_workspace(item) for item in found["workspaces"].entries()) if "workspaces" in found else (),
        steps=steps,
    )
    _check_names(scenario, found)
    _check_times(scenario, found["steps"])
    return scenario


SECOND = timedelta(seconds=1)


# --- the cluster --------------------------------------------------------------------------------------------------


def _start(item: Item) -> datetime:
    try:
        found = datetime.fromisoformat(item.text())
    except ValueError:
        raise item.bad("must be a time such as 2026-03-02T07:00:00+03:00") from None
    return found if found.tzinfo is not None else found.replace(tzinfo=UTC)


def _settings(item: Item) -> dict[str, Any]:
    names = ("ageing_step", "balance_timeout", "eviction_grace", "start_up", "stop")
    found = item.known_fields((*names, "hang"))
    settings: dict[str, Any] = {
        f"{name}_s": entry.duration().total_seconds() for name, entry in found.items() if name != "hang"
    }
    if "hang" in found:
        settings["hang"] = {name: entry.duration().total_seconds() for name, entry in found["hang"].fields().items()}
    return settings


def _pool(item: Item) -> script.Pool:
    found = item.known_fields(("name", "select", "placement", "kinds", "oversubscription"), required=("name",))
    spec: dict[str, Any] = {}
    if "select" in found:
        spec["selector"] = found["select"].labels()
    if "placement" in found:
        spec["placement"] = found["placement"].choice(("binpack", "spread"))
    if "kinds" in found:
        spec["kinds"] = found["kinds"].choices(KINDS)
    if "oversubscription" in found:
        spec["oversubscription"] = found["oversubscription"].flag()
    return script.Pool(found["name"].text(), spec)


def _all_nodes(item: Item) -> tuple[script.Nodes, ...]:
    """Nodes without a name are numbered through: n0, n1, ..."""
    groups = []
    unnamed = 0
    for entry in item.entries():
        nodes, is_named = _nodes(entry, unnamed)
        unnamed += 0 if is_named else len(nodes.names)
        groups.append(nodes)
    return tuple(groups)


def _nodes(item: Item, first: int = 0) -> tuple[script.Nodes, bool]:
    found = item.known_fields(NODE_FIELDS)
    count = found["count"].whole(1, 100_000) if "count" in found else None
    name = found["name"].text() if "name" in found else None
    if name is None:
        names = tuple(f"n{first + number}" for number in range(count or 1))
    else:
        names = (name,) if count is None else tuple(f"{name}{number}" for number in range(count))
    readers: dict[str, tuple[str, Callable[[Item], Any]]] = {
        "gpus": ("gpus", lambda entry: entry.whole(0)),
        "gpu_model": ("gpu_model", Item.text),
        "gpu_memory": ("gpu_memory_mib", Item.mib),
        "cpu": ("cpu_milli", lambda entry: entry.milli("cores")),
        "memory": ("memory_mib", Item.mib),
        "labels": ("labels", Item.labels),
        "pool": ("pool", Item.text),
    }
    spec = {key: read(found[field]) for field, (key, read) in readers.items() if field in found}
    return script.Nodes(names, spec), name is not None


def _levels(groups: Sequence[script.Nodes], steps: Iterable[Step]) -> tuple[str, ...]:
    """The topology levels that submissions name, widest first: the fewer values a label has, the wider it is."""
    wanted = {
        wish
        for step in steps
        if isinstance(step.action, script.Submit)
        for key in ("topology_required", "topology_preferred")
        if (wish := step.action.spec.get(key))
    }
    values = {label: {group.spec.get("labels", {}).get(label) for group in groups} for label in wanted}
    return tuple(sorted(wanted, key=lambda label: (len(values[label]), label)))


def _workspace(item: Item) -> script.Workspace:
    found = item.known_fields(("name", "quotas"), required=("name", "quotas"))
    return script.Workspace(found["name"].text(), found["quotas"].texts())


# --- quotas -------------------------------------------------------------------------------------------------------


def _quota(item: Item, more: Sequence[str] = ()) -> script.QuotaFields:
    found = item.known_fields((*QUOTA_FIELDS, *more), required=("name",))
    parent = found.get("parent")
    amounts = {
        what: _amounts(found[field])
        for field, what in (("guaranteed", "guaranteed"), ("limit", "limit"), ("lending_limit", "lending"))
        if field in found
    }
    weight = found.get("weight")
    return script.QuotaFields(
        name=found["name"].text(),
        parent=None if parent is None or parent.is_null else parent.text(),
        has_parent=parent is not None,
        amounts=amounts,
        weight=None if weight is None or weight.is_null else weight.milli("a weight"),
        has_weight=weight is not None,
        rank=found["rank"].whole(None) if "rank" in found else None,
        settings=_quota_settings(found),
    )


def _amounts(item: Item) -> dict[str, script.Amount | None]:
    """By pool; the empty name is every pool. None: no bound."""
    if item.is_null:
        return {"": None}
    if not item.is_mapping:
        return {"": {"gpu_milli": item.milli("GPUs")}}
    fields = item.fields()
    if fields and all(name in RESOURCES for name in fields):
        return {"": _amount(item)}
    return {pool: _amount(entry) for pool, entry in fields.items()}


def _amount(item: Item) -> script.Amount | None:
    if item.is_null:
        return None
    if not item.is_mapping:
        return {"gpu_milli": item.milli("GPUs")}
    found = item.known_fields(tuple(RESOURCES))
    return {RESOURCES[name]: _resource(name, entry) for name, entry in found.items()}


def _resource(name: str, item: Item) -> int | None:
    if item.is_null:
        return None
    return item.mib() if name == "memory" else item.milli("GPUs" if name == "gpu" else "cores")


def _quota_settings(found: Mapping[str, Item]) -> dict[str, Any]:
    settings: dict[str, Any] = {}
    if "idle_sharing" in found:
        settings["idle_sharing"] = found["idle_sharing"].flag()
    if "queue_policy" in found:
        settings["queue_policy"] = found["queue_policy"].choice(POLICIES)
    if "child_preemption" in found:
        settings |= _child_preemption(found["child_preemption"])
    if "priority_preemption" in found:
        settings |= _priority_preemption(found["priority_preemption"])
    if "min_runtime" in found:
        settings |= _min_runtime(found["min_runtime"])
    if "node_affinity" in found:
        settings["node_affinity"] = _node_affinity(found["node_affinity"])
    if "reserve_after" in found:
        settings["reserve_after_s"] = found["reserve_after"].seconds()
    return settings


def _child_preemption(item: Item) -> dict[str, Any]:
    found = item.known_fields(("enabled", "claimants", "max_victim_priority", "kinds"))
    return {
        "child_preemption": found["enabled"].flag() if "enabled" in found else False,
        "child_claimants": list(found["claimants"].choices(KINDS)) if "claimants" in found else ["service"],
        "child_max_victim_priority": found["max_victim_priority"].whole(1, 9) if "max_victim_priority" in found else 9,
        "child_kinds": list(found["kinds"].choices(KINDS)) if "kinds" in found else ["training", "notebook"],
    }


def _priority_preemption(item: Item) -> dict[str, Any]:
    found = item.known_fields(("inside", "siblings", "by", "of", "kinds"))
    settings: dict[str, Any] = {
        "priority_inside": found["inside"].flag() if "inside" in found else True,
        "priority_siblings": found["siblings"].flag() if "siblings" in found else False,
        "priority_kinds": list(found["kinds"].choices(KINDS)) if "kinds" in found else ["training", "notebook"],
    }
    for name in ("by", "of"):
        low, high = _priorities(found[name]) if name in found else (1, 9)
        settings |= {f"priority_{name}_low": low, f"priority_{name}_high": high}
    return settings


def _priorities(item: Item) -> tuple[int, int]:
    bounds = [entry.whole(1, 9) for entry in item.entries()]
    if len(bounds) != 2 or bounds[0] > bounds[1]:
        raise item.bad("must be two priorities, the lower first, such as [1, 9]")
    return bounds[0], bounds[1]


def _min_runtime(item: Item) -> dict[str, Any]:
    found = item.known_fields(("reclaim", "preempt", "override_after"))
    override = found.get("override_after")
    return {
        "min_runtime_reclaim_s": found["reclaim"].seconds() if "reclaim" in found else 0,
        "min_runtime_preempt_s": found["preempt"].seconds() if "preempt" in found else 0,
        "min_runtime_override_after_s": None if override is None or override.is_null else override.seconds(),
    }


def _node_affinity(item: Item) -> dict[str, Any]:
    affinity = {}
    for kind, wish in item.known_fields(KINDS).items():
        found = wish.known_fields(("required", "preferred"))
        affinity[kind] = {
            name: {label: list(values.texts()) for label, values in entry.fields().items()}
            for name, entry in found.items()
        }
    return affinity


# --- steps --------------------------------------------------------------------------------------------------------


def _step(item: Item) -> Step:
    found = item.known_fields(("at", "expect", *ACTIONS, *LATER), required=("at",))
    actions = [name for name in found if name not in ("at", "expect")]
    for name in actions:
        if name in LATER:
            raise found[name].later(f"step {name!r}")
    if len(actions) > 1:
        raise item.bad(f"a step has one action, this one has {', '.join(actions)}")
    if not actions and "expect" not in found:
        raise item.bad(f"a step has an action ({', '.join(ACTIONS)}) or an expect")
    return Step(
        when=_when(found["at"]),
        place=item.place,
        action=ACTIONS[actions[0]](found[actions[0]]) if actions else None,
        expect=_expect(found["expect"]) if "expect" in found else None,
    )


def _when(item: Item) -> When:
    text = item.text()
    clock = CLOCK_TIME.fullmatch(text)
    if clock:
        return When(local=time(int(clock[1]), int(clock[2]), int(clock[3] or 0)))
    try:
        if text.startswith("+"):
            return When(after_previous=item.without_sign().duration())
        return When(since_start=item.duration())
    except InvalidScenario:
        forms = 'a duration (10s), one after "+" or a time of day ("08:00")'
        raise item.bad(f"must be {forms}; found {text!r}") from None


SUBMIT_FIELDS = (
    *("name", "kind", "quota", "workspace", "workers", "replicas", "gpus", "gpu_memory", "cpu", "memory", "gang"),
    *("min_workers", "max_workers", "priority", "idle", "preemptible", "duration", "estimate", "max_runtime", "grace"),
    *("checkpoint_every", "topology", "select", "pools", "repeat", "as", "refused", "labels", "allow_unsatisfiable"),
)


def _submit(item: Item) -> script.Submit:
    found = item.known_fields(SUBMIT_FIELDS, required=("name", "kind", "quota"))
    if "workers" in found and "replicas" in found:
        raise found["replicas"].bad("workers and replicas are the same; give one")
    spec: dict[str, Any] = {"kind": found["kind"].choice(KINDS)}
    for field, (key, read) in SPEC_READERS.items():
        if field in found:
            spec[key] = read(found[field])
    spec |= _gpu_request(found)
    if "topology" in found:
        wishes = found["topology"].known_fields(("required", "preferred"))
        spec |= {f"topology_{name}": wish.text() for name, wish in wishes.items()}
    return script.Submit(
        name=found["name"].text(),
        quota=found["quota"].text(),
        spec=spec,
        workspace=_text(found, "workspace"),
        repeat=found["repeat"].whole(1, 100_000) if "repeat" in found else None,
        user=_text(found, "as"),
        refused=_text(found, "refused"),
    )


SPEC_READERS: dict[str, tuple[str, Callable[[Item], Any]]] = {
    "workers": ("replicas", lambda item: item.whole(0)),
    "replicas": ("replicas", lambda item: item.whole(0)),
    "cpu": ("cpu_milli", lambda item: item.milli("cores")),
    "memory": ("memory_mib", Item.mib),
    "gang": ("gang", Item.flag),
    "min_workers": ("min_replicas", lambda item: item.whole(1)),
    "max_workers": ("max_replicas", lambda item: item.whole(1)),
    "priority": ("priority", lambda item: item.whole(1, 9)),
    "idle": ("idle", lambda item: item.choice(("never", "allow", "only"))),
    "preemptible": ("preemptible", Item.flag),
    "duration": ("duration_s", Item.seconds),
    "estimate": ("estimate_s", Item.seconds),
    "max_runtime": ("max_runtime_s", Item.seconds),
    "grace": ("grace_s", Item.seconds),
    "checkpoint_every": ("checkpoint_every_s", Item.seconds),
    "select": ("node_selector", Item.labels),
    "labels": ("labels", Item.labels),
    "pools": ("pools", Item.texts),
    "allow_unsatisfiable": ("allow_unsatisfiable", Item.flag),
}


def _gpu_request(found: Mapping[str, Item]) -> dict[str, int]:
    """`gpus` whole or a fraction below 1 of one device; `gpu_memory` of each device (one unless `gpus` says more)."""
    spec: dict[str, int] = {}
    if "gpus" in found:
        milli = found["gpus"].milli("GPUs")
        if milli > 1000 and milli % 1000:
            raise found["gpus"].bad("must be 0, whole, or a fraction below 1")
        whole = milli % 1000 == 0
        spec |= {"gpus": milli // 1000} if whole else {"gpus": 1, "gpu_milli": milli}
    if "gpu_memory" in found:
        memory = found["gpu_memory"].mib()
        if memory:
            spec = {"gpus": spec.get("gpus") or 1, "gpu_memory_mib": memory}
    return spec


def _text(found: Mapping[str, Item], name: str) -> str | None:
    return found[name].text() if name in found else None


def _on_workloads(verb: str) -> Callable[[Item], script.OnWorkloads]:
    return lambda item: script.OnWorkloads(verb, item.texts())


def _priority(item: Item) -> script.Priority:
    found = item.known_fields(("workload", "to"), required=("workload", "to"))
    return script.Priority(found["workload"].text(), found["to"].whole(1, 9))


def _scale(item: Item) -> script.Scale:
    found = item.known_fields(("workload", "replicas"), required=("workload", "replicas"))
    return script.Scale(found["workload"].text(), found["replicas"].whole(0))


RULE_FIELDS: dict[str, tuple[str, Callable[[Item], Any]]] = {
    "name": ("name", Item.text),
    "cron": ("cron", Item.text),
    "zone": ("zone", Item.text),
    "replicas": ("replicas", lambda item: item.whole(0)),
    "min": ("min_replicas", lambda item: item.whole(0)),
    "max": ("max_replicas", lambda item: item.whole(0)),
    "from": ("valid_from", lambda item: _date(item)),
    "until": ("valid_until", lambda item: _date(item)),
    "exclude": ("excluded", lambda item: tuple(_date(entry) for entry in item.each())),
    "ready_by": ("ready_by", Item.flag),
    "enabled": ("enabled", Item.flag),
}


def _date(item: Item) -> date:
    try:
        return date.fromisoformat(item.text())
    except ValueError:
        raise item.bad("must be a date such as 2026-03-02") from None


def _schedule(item: Item) -> script.Schedule:
    found = item.known_fields(("workload", "rules"), required=("workload", "rules"))
    return script.Schedule(found["workload"].text(), tuple(_rule(entry) for entry in found["rules"].entries()))


def _rule(item: Item) -> dict[str, Any]:
    found = item.known_fields(tuple(RULE_FIELDS), required=("name", "cron"))
    rule = {RULE_FIELDS[name][0]: RULE_FIELDS[name][1](entry) for name, entry in found.items()}
    return {"zone": "UTC", **rule}


def _excess(found: Mapping[str, Item]) -> script.Excess:
    return script.Excess(
        found["on_excess"].choice(("keep", "preempt")) if "on_excess" in found else "keep",
        found["after"].duration() if "after" in found else None,
    )


def _edit_quota(item: Item) -> script.EditQuota:
    fields = _quota(item, (*EXCESS_FIELDS, "refused"))
    found = item.fields()
    return script.EditQuota(fields, _excess(found), _text(found, "refused"))


def _rebalance(item: Item) -> script.Rebalance:
    found = item.known_fields(("changes", *EXCESS_FIELDS, "refused"), required=("changes",))
    changes = {
        name: script.QuotaFields(name, amounts={"guaranteed": _amounts(entry)})
        for name, entry in found["changes"].fields().items()
    }
    return script.Rebalance(changes, _excess(found), _text(found, "refused"))


def _create_quota(item: Item) -> script.CreateQuota:
    return script.CreateQuota(_quota(item, ("refused",)), _text(item.fields(), "refused"))


def _delete_quota(item: Item) -> script.DeleteQuota:
    if not item.is_mapping:
        return script.DeleteQuota(item.text())
    found = item.known_fields(("name", "refused"), required=("name",))
    return script.DeleteQuota(found["name"].text(), _text(found, "refused"))


def _change_node(item: Item) -> script.ChangeNode:
    found = item.known_fields(("name", "state", "gpu", "health"), required=("name",))
    if ("gpu" in found) != ("health" in found) or ("state" in found) == ("gpu" in found):
        raise item.bad("needs a state, or gpu and health")
    return script.ChangeNode(
        name=found["name"].text(),
        state=found["state"].choice(NODE_STATES) if "state" in found else None,
        gpu=found["gpu"].whole(0) if "gpu" in found else None,
        healthy=found["health"].choice(("good", "bad")) == "good" if "health" in found else True,
    )


def _add_node(item: Item) -> script.AddNodes:
    nodes, is_named = _nodes(item)
    if not is_named:
        raise item.bad("needs the field name")
    return script.AddNodes(nodes)


def _remove_node(item: Item) -> script.RemoveNode:
    if not item.is_mapping:
        return script.RemoveNode(item.text())
    return script.RemoveNode(item.known_fields(("name",), required=("name",))["name"].text())


def _fail(item: Item) -> script.Fail:
    found = item.known_fields(("workload", "worker"), required=("workload",))
    return script.Fail(found["workload"].text(), found["worker"].whole(0) if "worker" in found else 0)


def _restart(item: Item) -> script.Restart:
    item.choice(("controller",))
    return script.Restart()


def _preview(item: Item) -> script.Preview:
    found = item.known_fields(("quota", "rebalance", "expect"), required=("expect",))
    if ("quota" in found) == ("rebalance" in found):
        raise item.bad("needs quota or rebalance")
    expected = found["expect"].known_fields(("preempted", "starts"))
    return script.Preview(
        change=_edit_quota(found["quota"]) if "quota" in found else _rebalance(found["rebalance"]),
        preempted=expected["preempted"].texts() if "preempted" in expected else None,
        starts=expected["starts"].texts() if "starts" in expected else None,
    )


ACTIONS: dict[str, Callable[[Item], script.Action]] = {
    "submit": _submit,
    "stop": _on_workloads("stop"),
    "delete": _on_workloads("delete"),
    "hold": _on_workloads("hold"),
    "release": _on_workloads("release"),
    "priority": _priority,
    "scale": _scale,
    "schedule": _schedule,
    "quota": _edit_quota,
    "rebalance": _rebalance,
    "create_quota": _create_quota,
    "delete_quota": _delete_quota,
    "node": _change_node,
    "add_node": _add_node,
    "remove_node": _remove_node,
    "fail": _fail,
    "restart": _restart,
    "cycles": lambda item: script.Cycles(item.whole(1)),
    "preview": _preview,
}
LATER = ("metric",)
"""Steps that the format has and this version does not."""


# --- expectations -------------------------------------------------------------------------------------------------

EXPECT_FIELDS = (
    *("workloads", "quotas", "count", "used_gpus", "idle_gpus", "evictions", "moves", "utilisation", "any_of", "not"),
)
LEDGER_FIELDS = ("used", "own", "borrowed", "lent", "waiting", "free", "guaranteed", "entitlement")


def _expect(item: Item) -> Expect:
    found = item.known_fields(EXPECT_FIELDS)
    if not found:
        raise item.bad(f"expects nothing; known are {', '.join(EXPECT_FIELDS)}")
    return Expect(
        place=item.place,
        workloads={name: _workload(entry) for name, entry in _fields(found, "workloads").items()},
        quotas={name: _ledger(entry) for name, entry in _fields(found, "quotas").items()},
        count=tuple(_count(entry) for entry in found["count"].each()) if "count" in found else (),
        used_gpus=_range(found["used_gpus"], _milli) if "used_gpus" in found else None,
        idle_gpus=_range(found["idle_gpus"], _milli) if "idle_gpus" in found else None,
        evictions=_evictions(found["evictions"]) if "evictions" in found else None,
        moves=_evictions(found["moves"]) if "moves" in found else None,
        utilisation=_utilisation(found["utilisation"]) if "utilisation" in found else None,
        any_of=tuple(_expect(entry) for entry in found["any_of"].entries()) if "any_of" in found else (),
        none_of=(_expect(found["not"]),) if "not" in found else (),
    )


def _fields(found: Mapping[str, Item], name: str) -> dict[str, Item]:
    return found[name].fields() if name in found else {}


def _milli(item: Item) -> int:
    return item.milli("GPUs")


def _plain(item: Item) -> int:
    return item.whole(0)


def _range(item: Item, read: Callable[[Item], int]) -> Range:
    if not item.is_mapping:
        return Range.exactly(read(item))
    return _bounds(item, item.known_fields(("at_least", "at_most", "is")), read)


def _bounds(item: Item, found: Mapping[str, Item], read: Callable[[Item], int]) -> Range:
    if "is" in found:
        return Range.exactly(read(found["is"]))
    if "at_least" not in found and "at_most" not in found:
        raise item.bad("needs is, at_least or at_most")
    return Range(
        read(found["at_least"]) if "at_least" in found else None,
        read(found["at_most"]) if "at_most" in found else None,
    )


def _workload(item: Item) -> script.WorkloadExpected:
    if not item.is_mapping:
        return script.WorkloadExpected(states=item.choices(STATES))
    known = ("state", "replicas", "gpus", "borrowed", "node", "nodes", "quota", "reason", "restarts")
    found = item.known_fields(known)
    return script.WorkloadExpected(
        states=found["state"].choices(STATES) if "state" in found else None,
        replicas=found["replicas"].whole(0) if "replicas" in found else None,
        gpus=_milli(found["gpus"]) if "gpus" in found else None,
        borrowed=_milli(found["borrowed"]) if "borrowed" in found else None,
        node=_text(found, "node"),
        nodes=found["nodes"].whole(0) if "nodes" in found else None,
        quota=_text(found, "quota"),
        reason=found["reason"].texts() if "reason" in found else None,
        restarts=found["restarts"].whole(0) if "restarts" in found else None,
    )


def _ledger(item: Item) -> dict[str, Range]:
    return {name: _range(entry, _milli) for name, entry in item.known_fields(LEDGER_FIELDS).items()}


def _count(item: Item) -> script.CountExpected:
    found = item.known_fields(("match", "quota", "state", "is", "at_least", "at_most"))
    return script.CountExpected(
        prefix=found["match"].text() if "match" in found else "",
        range=_bounds(item, found, _plain),
        quota=_text(found, "quota"),
        states=found["state"].choices(STATES) if "state" in found else None,
    )


def _evictions(item: Item) -> script.EvictionsExpected:
    if not item.is_mapping:
        return script.EvictionsExpected(Range.exactly(item.whole(0)))
    found = item.known_fields(("is", "at_least", "at_most", "of", "never", "since"))
    if "since" in found:
        found["since"].choice(("last", "start"))
    bounded = any(name in found for name in ("is", "at_least", "at_most"))
    return script.EvictionsExpected(
        range=_bounds(item, found, _plain) if bounded else None,
        only=found["of"].texts() if "of" in found else None,
        never=found["never"].texts() if "never" in found else (),
        since_last="since" in found and found["since"].text() == "last",
    )


def _utilisation(item: Item) -> script.UtilisationExpected:
    found = item.known_fields(("from", "to", "at_least", "at_most"), required=("from", "to"))
    if "at_least" not in found and "at_most" not in found:
        raise item.bad("needs at_least or at_most")
    return script.UtilisationExpected(
        begin=_when(found["from"]),
        end=_when(found["to"]),
        least=float(found["at_least"].number()) if "at_least" in found else None,
        most=float(found["at_most"].number()) if "at_most" in found else None,
    )


# --- what must hold between parts ---------------------------------------------------------------------------------


def _check_names(scenario: Scenario, found: Mapping[str, Item]) -> None:
    """Quotas after their parents, workspaces of quotas that are there, no name twice."""
    seen: set[str] = set()
    for quota, item in zip(scenario.quotas, found["quotas"].entries(), strict=True):
        if quota.parent is not None and quota.parent not in seen:
            raise item.fields()["parent"].bad(f"there is no quota {quota.parent!r} above this one")
        if quota.name in seen:
            raise item.fields()["name"].bad(f"there is a quota {quota.name!r} already")
        seen.add(quota.name)
    created = {step.action.fields.name for step in scenario.steps if isinstance(step.action, script.CreateQuota)}
    workspaces = found["workspaces"].entries() if "workspaces" in found else []
    for workspace, item in zip(scenario.workspaces, workspaces, strict=True):
        unknown = [name for name in workspace.quotas if name not in seen]
        if unknown:
            raise item.fields()["quotas"].bad(f"there is no quota {unknown[0]!r}")
    _check_steps(scenario, found["steps"], seen | created)


def _check_steps(scenario: Scenario, item: Item, quotas: set[str]) -> None:
    for step, entry in zip(scenario.steps, item.entries(), strict=True):
        action = step.action
        if isinstance(action, script.Submit) and action.quota not in quotas and action.refused is None:
            raise entry.fields()["submit"].fields()["quota"].bad(f"there is no quota {action.quota!r}")
        if isinstance(action, script.EditQuota) and action.fields.name not in quotas and action.refused is None:
            raise entry.fields()["quota"].fields()["name"].bad(f"there is no quota {action.fields.name!r}")


def _check_times(scenario: Scenario, item: Item) -> None:
    """Steps never go back in time."""
    now = scenario.start
    for step, entry in zip(scenario.steps, item.entries(), strict=True):
        at = step.when.resolve(scenario.start, now)
        if at < now:
            raise entry.fields()["at"].bad("is before the previous step")
        now = at
