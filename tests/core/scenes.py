"""Plays scenario files (the format of `docs/scenarios.md`) against the core alone, as far as they need no services."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from datetime import datetime, timedelta
from fractions import Fraction
from pathlib import Path
from typing import Any

import yaml

from scheduler.core.model import (
    Checkpoint,
    ChildPreemption,
    Device,
    ExcessOrder,
    IdleUse,
    Kind,
    Match,
    MinRuntime,
    Node,
    NodeState,
    NodeWish,
    Placement,
    Pool,
    PoolAmounts,
    PriorityPreemption,
    QueuePolicy,
    Quota,
    Shape,
    Topology,
    WorkerGroup,
    Workload,
)
from scheduler.core.policy import PRODUCT
from scheduler.core.resources import Bound
from tests.core.player import HOUR, MINUTE, SECOND, Cluster

UNITS = {"s": SECOND, "m": MINUTE, "h": HOUR}
PRIORITY = {"training": 3, "notebook": 6, "service": 9}


def ms(text: Any) -> int:
    """A duration such as `10m`."""
    number, unit = re.fullmatch(r"(\d+(?:\.\d+)?)([smh])", str(text)).groups()  # type: ignore[union-attr]
    return int(float(number) * UNITS[unit])


def mib(text: Any) -> int:
    """Memory such as `16GiB`."""
    number, unit = re.fullmatch(r"(\d+)(MiB|GiB|TiB)", str(text)).groups()  # type: ignore[union-attr]
    return int(number) * {"MiB": 1, "GiB": 1024, "TiB": 1024 * 1024}[unit]


def milli(number: Any) -> int:
    """Thousandths of a number."""
    return int(Fraction(str(number)) * 1000)


class Scene:
    """A scenario that is being played; problems are collected as sentences."""

    def __init__(self, path: Path) -> None:
        self.data = yaml.safe_load(path.read_text())
        settings = self.data.get("settings", {})
        self.cluster = Cluster(stop_ms=ms(settings.get("stop", "0s")))
        self.cluster.policy = replace(
            PRODUCT,
            ageing_step_ms=ms(settings.get("ageing_step", "10m")),
            balance_timeout_ms=ms(settings.get("balance_timeout", "5m")),
        )
        self.grace_ms = ms(settings.get("eviction_grace", "30s"))
        self.begin = self.cluster.now_ms
        start = self.data.get("start")
        self.start = (
            datetime.fromisoformat(str(start)) if start else datetime.fromisoformat("2026-03-02T00:00:00+00:00")
        )
        self.quota_ids: dict[str, int] = {}
        self.work_ids: dict[str, int] = {}
        self.names: dict[int, str] = {}
        self.workspaces = {w["name"]: w["quotas"] for w in self.data.get("workspaces", [])}
        self.schedules: dict[str, list[dict[str, Any]]] = {}
        self.problems: list[str] = []
        self.seen_evictions = self.seen_moves = 0
        self._build()

    def _build(self) -> None:
        pools = self.data.get("pools") or [{"name": "default"}]
        self.pool_ids = {pool["name"]: number for number, pool in enumerate(pools, start=1)}
        self.cluster.pools = {
            number: Pool(number, pool["name"], Placement(pool.get("placement", "binpack")), moves_left=20)
            for pool, number in zip(pools, self.pool_ids.values(), strict=True)
        }
        self.node_ids: dict[str, int] = {}
        for entry in self.data["nodes"]:
            self._nodes(entry, pools)
        for quota in self.data["quotas"]:
            self.quota(quota)

    def _nodes(self, entry: dict[str, Any], pools: list[dict[str, Any]]) -> None:
        for _ in range(entry.get("count", 1)):
            number = len(self.node_ids)
            name = f"{entry.get('name', 'n')}{number}"
            self.node_ids[name] = number + 1
            labels = {**entry.get("labels", {}), "gpu_model": entry.get("gpu_model", "")}
            pool = next(p for p in pools if all(labels.get(k) == v for k, v in p.get("select", {}).items()))
            memory = mib(entry["gpu_memory"]) if "gpu_memory" in entry else 0
            self.cluster.nodes[number + 1] = Node(
                id=number + 1,
                pool=self.pool_ids[pool["name"]],
                name=name,
                labels=tuple(labels.items()),
                devices=tuple(Device(memory) for _ in range(entry.get("gpus", 0))),
                cpu_milli=milli(entry["cpu"]) if "cpu" in entry else None,
                memory_mib=mib(entry["memory"]) if "memory" in entry else None,
            )

    # --- quotas ----------------------------------------------------------------------------------------

    def bound(self, value: Any) -> Bound:
        if not isinstance(value, dict):
            return Bound(gpu_milli=milli(value))
        return Bound(
            milli(value["gpu"]) if "gpu" in value else None,
            milli(value["cpu"]) if "cpu" in value else None,
            mib(value["memory"]) if "memory" in value else None,
        )

    def per_pool(self, value: Any) -> dict[int, Bound]:
        if isinstance(value, dict) and set(value) <= set(self.pool_ids):
            return {self.pool_ids[name]: self.bound(amount) for name, amount in value.items()}
        return {pool: self.bound(value) for pool in self.pool_ids.values()}

    def quota(self, fields: dict[str, Any]) -> None:
        """Add or change a quota."""
        name = fields["name"]
        number = self.quota_ids.setdefault(name, len(self.quota_ids) + 1)
        quota = self.cluster.quotas.get(number) or Quota(number, name=name)
        if "parent" in fields:
            quota = replace(quota, parent=self.quota_ids[fields["parent"]])
        amounts = dict(quota.amounts)
        for field in ("guaranteed", "limit", "lending_limit"):
            if fields.get(field) is not None:
                for pool, bound in self.per_pool(fields[field]).items():
                    amounts[pool] = replace(amounts.get(pool, PoolAmounts()), **{field: bound})
        more = {"weight_milli": milli(fields["weight"])} if "weight" in fields else {}
        more |= {"rank": fields["rank"]} if "rank" in fields else {}
        amounts = {pool: replace(amount, **more) for pool, amount in amounts.items()}
        quota = replace(quota, amounts=tuple(amounts.items()))
        self.cluster.quotas[number] = self._switches(quota, fields)
        if fields.get("on_excess") == "preempt":
            due = self.cluster.now_ms + (ms(fields["after"]) if "after" in fields else 0)
            for pool in amounts:
                key = number * 100 + pool
                self.cluster.orders[key] = ExcessOrder(key, number, pool, due)
        elif "guaranteed" in fields and self.cluster.cycles:
            self._end_orders(number, keep=fields.get("on_excess") == "keep")

    def _end_orders(self, number: int, *, keep: bool) -> None:
        for key, order in list(self.cluster.orders.items()):
            amounts = dict(self.cluster.quotas[number].amounts)[order.pool]
            enough = self.cluster.used(number) <= (amounts.guaranteed.gpu_milli or 0)
            if order.quota == number and (enough or keep):
                del self.cluster.orders[key]

    def _switches(self, quota: Quota, fields: dict[str, Any]) -> Quota:
        changes: dict[str, Any] = {}
        if "queue_policy" in fields:
            changes["queue_policy"] = QueuePolicy(fields["queue_policy"])
        if "idle_sharing" in fields:
            changes["idle_sharing"] = fields["idle_sharing"]
        if "child_preemption" in fields:
            given = fields["child_preemption"]
            changes["child_preemption"] = ChildPreemption(
                enabled=given.get("enabled", False),
                claimants=tuple(Kind(k) for k in given.get("claimants", ["service"])),
                max_victim_priority=given.get("max_victim_priority", 9),
                kinds=tuple(Kind(k) for k in given.get("kinds", ["training", "notebook"])),
            )
        if "priority_preemption" in fields:
            given = fields["priority_preemption"]
            changes["priority_preemption"] = PriorityPreemption(
                inside=given.get("inside", True),
                siblings=given.get("siblings", False),
                by=tuple(given.get("by", [1, 9])),
                of=tuple(given.get("of", [1, 9])),
                kinds=tuple(Kind(k) for k in given.get("kinds", ["training", "notebook"])),
            )
        if "min_runtime" in fields:
            given = fields["min_runtime"]
            override = given.get("override_after")
            changes["min_runtime"] = MinRuntime(
                ms(given.get("reclaim", "0s")),
                ms(given.get("preempt", "0s")),
                None if override is None else ms(override),
            )
        if "node_affinity" in fields:
            changes["node_affinity"] = tuple(
                NodeWish(Kind(kind), _matches(wish.get("required", {})), _matches(wish.get("preferred", {})))
                for kind, wish in fields["node_affinity"].items()
            )
        if "reserve_after" in fields:
            changes["reserve_after_ms"] = ms(fields["reserve_after"])
        return replace(quota, **changes)

    # --- steps -----------------------------------------------------------------------------------------

    def play(self) -> list[str]:
        """Play all steps; what did not hold is returned."""
        now = 0
        for step in self.data["steps"]:
            at = self._instant(step["at"], now)
            self._pass(at)
            now = at
            for action, value in step.items():
                if action not in ("at", "expect") and getattr(self, f"do_{action}")(value):
                    break
            self.cluster.settle()
            if "expect" in step:
                self.expect(step["expect"], str(step["at"]))
        return self.problems

    def _instant(self, text: Any, now: int) -> int:
        text = str(text)
        if text.startswith("+"):
            return now + ms(text[1:])
        if ":" in text:
            return self._next(text, now)
        return ms(text)

    def _next(self, clock: str, after: int) -> int:
        hour, minute = map(int, clock.split(":"))
        instant = self.start + timedelta(milliseconds=after)
        due = instant.replace(hour=hour, minute=minute, second=0, microsecond=0)
        if due <= instant:
            due += timedelta(days=1)
        return int((due - self.start).total_seconds() * 1000)

    def _pass(self, at: int) -> None:
        while self.cluster.now_ms - self.begin < at:
            now = self.cluster.now_ms - self.begin
            due = min([at, *(self._next(f"{h}:{m}", now) for h, m, _, _ in self._rules())])
            self.cluster.run(due - now, step_ms=MINUTE)
            for name in self.schedules:
                self._apply_schedule(name)
            self.cluster.settle()

    def _rules(self) -> Iterator[tuple[int, int, str, int]]:
        for name, rules in self.schedules.items():
            for rule in rules:
                minute, hour, *_ = rule["cron"].split()
                yield int(hour), int(minute), name, rule["replicas"]

    def _apply_schedule(self, name: str) -> None:
        local = self.start + timedelta(milliseconds=self.cluster.now_ms - self.begin)
        fired = [
            ((local - timedelta(hours=h, minutes=m)).time(), replicas)
            for h, m, whose, replicas in self._rules()
            if whose == name
        ]
        self.do_scale({"workload": name, "replicas": min(fired)[1]})

    def do_submit(self, step: dict[str, Any]) -> bool:
        repeat = step.get("repeat")
        for number in range(repeat or 1):
            self._submit(step, f"{step['name']}-{number}" if repeat else step["name"])
        return False

    def _submit(self, step: dict[str, Any], name: str) -> None:
        kind = Kind(step["kind"])
        self.work_ids[name] = identifier = len(self.work_ids) + 1
        self.names[identifier] = name
        gpus = milli(step.get("gpus", 0))
        shape = Shape(
            gpu_count=(1 if gpus < 1000 else gpus // 1000) if gpus else (1 if "gpu_memory" in step else 0),
            gpu_milli=(gpus if gpus < 1000 else 1000) if gpus else 0,
            gpu_memory_mib=mib(step["gpu_memory"]) if "gpu_memory" in step else 0,
            cpu_milli=milli(step.get("cpu", 0)),
            memory_mib=mib(step["memory"]) if "memory" in step else 0,
            select=tuple(Match(k, (v,)) for k, v in step.get("select", {}).items()),
        )
        wanted = step.get("max_workers", step.get("workers", step.get("replicas", 1)))
        gang = step.get("gang", kind is not Kind.SERVICE)
        minimum = step.get("min_workers", wanted) if gang else 0
        wish = step.get("topology", {})
        topology = Topology(wish.get("required"), wish.get("preferred"))
        quota = step.get("quota") or self.workspaces[step["workspace"]][0]
        workload = Workload(
            id=identifier,
            quota=self.quota_ids[quota],
            kind=kind,
            groups=(WorkerGroup(shape, wanted, minimum, topology=topology),),
            submitted_ms=0,
            name=name,
            priority=step.get("priority", PRIORITY[kind]),
            idle=IdleUse(step.get("idle", "never")),
            preemptible=step.get("preemptible", kind is not Kind.SERVICE),
            gang=gang,
            grace_ms=ms(step["grace"]) if "grace" in step else self.grace_ms,
            estimate_ms=ms(step["estimate"]) if "estimate" in step else None,
            pools=tuple(self.pool_ids[pool] for pool in step.get("pools", [])),
            checkpoint=Checkpoint(),
        )
        self.cluster.submit(
            workload,
            duration_ms=ms(step["duration"]) if "duration" in step else None,
            checkpoint_ms=ms(step["checkpoint_every"]) if "checkpoint_every" in step else None,
        )

    def _each(self, value: Any) -> list[int]:
        return [self.work_ids[name] for name in ([value] if isinstance(value, str) else value)]

    def do_stop(self, value: Any) -> bool:
        for identifier in self._each(value):
            self.cluster.stop(identifier)
        return False

    do_delete = do_stop

    def do_hold(self, value: Any) -> bool:
        for identifier in self._each(value):
            self.cluster.change(identifier, held=True)
        return False

    def do_release(self, value: Any) -> bool:
        for identifier in self._each(value):
            self.cluster.change(identifier, held=False)
        return False

    def do_priority(self, value: dict[str, Any]) -> bool:
        self.cluster.change(self.work_ids[value["workload"]], priority=value["to"])
        return False

    def do_scale(self, value: dict[str, Any]) -> bool:
        identifier = self.work_ids[value["workload"]]
        group = self.cluster.jobs[identifier].workload.groups[0]
        self.cluster.change(identifier, groups=(replace(group, wanted=value["replicas"]),))
        return False

    def do_schedule(self, value: dict[str, Any]) -> bool:
        self.schedules[value["workload"]] = value["rules"]
        self._apply_schedule(value["workload"])
        return False

    def do_quota(self, value: dict[str, Any]) -> bool:
        if "refused" not in value:
            self.quota(value)
        return False

    def do_rebalance(self, value: dict[str, Any]) -> bool:
        if "refused" not in value:
            for name, amount in value["changes"].items():
                self.quota({"name": name, "guaranteed": amount})
        return False

    def do_create_quota(self, value: dict[str, Any]) -> bool:
        return self.do_quota(value)

    def do_restart(self, _: Any) -> bool:
        return False

    def do_node(self, value: dict[str, Any]) -> bool:
        number = self.node_ids[value["name"]]
        node = self.cluster.nodes[number]
        if value.get("state") == "lost":
            self.cluster.lose(number)
        elif "state" in value:
            self.cluster.nodes[number] = replace(node, state=NodeState(value["state"]))
        else:
            devices = list(node.devices)
            devices[value["gpu"]] = replace(devices[value["gpu"]], healthy=value["health"] != "bad")
            self.cluster.nodes[number] = replace(node, devices=tuple(devices))
        return False

    def do_cycles(self, value: int) -> bool:
        for _ in range(min(value, 5)):
            plan = self.cluster.cycle()
            if plan.starts or plan.evictions or plan.shrinks or plan.moves:
                self.problems.append(f"a settled cluster changed: {plan.starts} {plan.evictions} {plan.moves}")
        return False

    # --- expectations ----------------------------------------------------------------------------------

    def expect(self, wanted: dict[str, Any], where: str) -> None:
        for problem in self._unmet(wanted):
            self.problems.append(f"at {where}: {problem}")
        self.seen_evictions = len(self.cluster.evicted)
        self.seen_moves = len(self.cluster.moved)

    def _unmet(self, wanted: dict[str, Any]) -> list[str]:
        problems: list[str] = []
        for key, value in wanted.items():
            problems += getattr(self, f"check_{key}", lambda _: [])(value)
        return problems

    def check_any_of(self, options: list[dict[str, Any]]) -> list[str]:
        each = [self._unmet(option) for option in options]
        return [] if any(not problems for problems in each) else [f"none of {each}"]

    def check_not(self, value: dict[str, Any]) -> list[str]:
        return [] if self._unmet(value) else [f"holds but should not: {value}"]

    def check_workloads(self, wanted: dict[str, Any]) -> list[str]:
        problems = []
        for name, value in wanted.items():
            value = {"state": value} if isinstance(value, (str, list)) else value
            found = self._facts(name)
            for key, want in value.items():
                alternatives = want if isinstance(want, list) else [want]
                if found[key] not in alternatives:
                    problems.append(f"{name}.{key} is {found[key]}, not {want} ({self._why(name)})")
        return problems

    def _why(self, name: str) -> str:
        wait = self.cluster.plan.wait_of(self.work_ids[name])
        return "" if wait is None else f"{wait.reason.value} {dict(wait.facts)}"

    def _facts(self, name: str) -> dict[str, Any]:
        identifier = self.work_ids[name]
        job, held = self.cluster.jobs[identifier], self.cluster.held(identifier)
        all_of = [a for a in self.cluster.allocations if a.place.workload == identifier]
        nodes = {a.place.node for a in held}
        wait = self.cluster.plan.wait_of(identifier)
        return {
            "state": self._state(identifier),
            "replicas": len(held),
            "gpus": _number(sum(a.place.amount.gpu_milli for a in all_of)),
            "borrowed": _number(dict(self.cluster.plan.borrowed).get(identifier, 0)),
            "nodes": len(nodes),
            "node": self.cluster.nodes[min(nodes)].name if len(nodes) == 1 else None,
            "quota": self.cluster.quotas[job.workload.quota].name,
            "restarts": max(0, job.starts - 1),
            "reason": None if wait is None else wait.reason.value,
        }

    def _state(self, identifier: int) -> str:
        job = self.cluster.jobs[identifier]
        if job.state in ("stopped", "succeeded"):
            return job.state
        if any(a.place.workload == identifier for a in self.cluster.allocations) and not self.cluster.held(identifier):
            return "preempting"
        workload = job.workload
        if workload.kind is Kind.SERVICE:
            wanted = sum(group.wanted for group in workload.groups)
            running = len(self.cluster.held(identifier))
            return "running" if running == wanted else ("resizing" if running else "queued")
        return "running" if self.cluster.is_running(identifier) else "queued"

    def check_quotas(self, wanted: dict[str, Any]) -> list[str]:
        problems = []
        rows = {(row.quota, row.pool): row for row in self.cluster.plan.ledger}
        for name, values in wanted.items():
            own = [row for (quota, _), row in rows.items() if quota == self.quota_ids[name]]
            for key, want in values.items():
                found = _number(sum(getattr(row, key).gpu_milli or 0 for row in own))
                if key == "used":
                    found = _number(self.cluster.used(self.quota_ids[name]))
                if found != want:
                    problems.append(f"{name}.{key} is {found}, not {want}")
        return problems

    def check_used_gpus(self, want: Any) -> list[str]:
        used = _number(sum(a.place.amount.gpu_milli for a in self.cluster.allocations))
        return _compare("used_gpus", used, want)

    def check_idle_gpus(self, want: Any) -> list[str]:
        nodes = [node for node in self.cluster.nodes.values() if node.state is not NodeState.LOST]
        there = sum(1000 for node in nodes for device in node.devices if device.healthy)
        used = sum(a.place.amount.gpu_milli for a in self.cluster.allocations)
        return _compare("idle_gpus", _number(there - used), want)

    def check_count(self, wanted: list[dict[str, Any]]) -> list[str]:
        problems = []
        for want in wanted:
            found = sum(
                1
                for name, identifier in self.work_ids.items()
                if name.startswith(want.get("match", ""))
                and want.get("state") in (None, self._state(identifier))
                and want.get("quota") in (None, self._facts(name)["quota"])
            )
            bounds = {key: want[key] for key in ("at_least", "at_most") if key in want} or want["is"]
            problems += _compare(f"count {want}", found, bounds)
        return problems

    def check_evictions(self, want: Any) -> list[str]:
        since = isinstance(want, dict) and want.get("since") == "last"
        evicted = self.cluster.evicted[self.seen_evictions if since else 0 :]
        names = [self.names[victim] for victim, _ in evicted]
        if not isinstance(want, dict):
            return _compare(f"evictions {names}", len(names), want)
        problems = _compare(f"evictions {names}", len(names), {k: v for k, v in want.items() if k == "at_most"})
        if "of" in want and not set(names) <= set(want["of"]):
            problems.append(f"evicted {names}, not only of {want['of']}")
        if "never" in want and set(names) & set(want["never"]):
            problems.append(f"evicted {set(names) & set(want['never'])}")
        return problems

    def check_moves(self, want: Any) -> list[str]:
        return _compare("moves", len(self.cluster.moved), want)


def _matches(labels: dict[str, list[str]]) -> tuple[Match, ...]:
    return tuple(Match(label, tuple(values)) for label, values in labels.items())


def _number(value: int) -> float | int:
    return value // 1000 if value % 1000 == 0 else value / 1000


def _compare(what: str, found: Any, want: Any) -> list[str]:
    if isinstance(want, dict):
        low = want.get("at_least", found) <= found
        high = found <= want.get("at_most", found)
        return [] if low and high else [f"{what} is {found}, not {want}"]
    return [] if found == want else [f"{what} is {found}, not {want}"]
