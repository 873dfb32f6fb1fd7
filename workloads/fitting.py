"""Whether a submission could ever run: judged against empty nodes, limits and pools, never against what runs now.

What idle use, a switch or a later change of amounts could let run is not refused here.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from django.db.models import Count

from quotas.errors import Problem
from quotas.models import Node, NodePool, Quota, QuotaAmount
from quotas.specs import RESOURCES
from scheduler.core.resources import WHOLE_GPU
from workloads.specs import Request, WorkloadSpec


@dataclass(frozen=True, slots=True)
class Machine:
    """A node as if it were empty, and how many there are like it; CPU and memory None have no bound."""

    count: int
    pool: int
    gpus: int
    gpu_memory_mib: int
    cpu_milli: int | None
    memory_mib: int | None
    labels: Mapping[str, str]

    def has(self, resource: str) -> int | None:
        """The amount of one of ``RESOURCES``."""
        return self.gpus * WHOLE_GPU if resource == "gpu_milli" else getattr(self, resource)

    def holds(self, request: Request) -> bool:
        """Whether one replica fits."""
        if request.gpus > self.gpus or request.gpu_memory_mib > (self.gpu_memory_mib if request.gpus else 0):
            return False
        bounds = ((request.cpu_milli, self.cpu_milli), (request.memory_mib, self.memory_mib))
        return all(has is None or asked <= has for asked, has in bounds)


@dataclass
class Fitting:
    """What submissions to the quotas of one cluster are judged against; loaded once for many."""

    quota: Quota
    machines: list[Machine]
    pools: dict[int, NodePool]
    governed: frozenset[int]
    """Pools in which the quota has amounts."""
    limits: dict[tuple[int, str], int]
    """(pool, resource) -> the lowest limit of the quota and all above it."""
    _seen: dict[object, list[Problem]] = field(default_factory=dict)

    @classmethod
    def load(cls, quota: Quota, *, by_labels: bool = True) -> Fitting:
        """A handful of queries; without ``by_labels`` (for work that selects no nodes) like nodes are one row."""
        limits: dict[tuple[int, str], int] = {}
        governed = set()
        for row in QuotaAmount.objects.filter(quota_id__in=_line_up(quota)):
            if row.quota_id == quota.pk:
                governed.add(row.pool_id)
            for resource in RESOURCES:
                limit = getattr(row, f"limit_{resource}")
                if limit is not None:
                    key = (row.pool_id, resource)
                    limits[key] = min(limit, limits.get(key, limit))
        pools = {pool.pk: pool for pool in NodePool.objects.filter(cluster_id=quota.cluster_id)}
        return cls(quota, _machines(quota.cluster_id, by_labels), pools, frozenset(governed), limits)

    def problems(self, spec: WorkloadSpec) -> list[Problem]:
        """Why it could never run; like submissions are judged once."""
        key = (
            spec.request,
            spec.master,
            spec.least_replicas,
            tuple(pool.pk for pool in spec.pools),
            tuple(sorted(spec.node_selector.items())),
            spec.kind,
        )
        if key not in self._seen:
            self._seen[key] = list(self._judge(spec))
        return self._seen[key]

    def pools_for(self, spec: WorkloadSpec) -> list[int]:
        """The pools that it may use: its own, else those of its quota, else all; of those that take its kind."""
        wanted = (
            [pool.pk for pool in spec.pools] or [pk for pk in self.pools if pk in self.governed] or list(self.pools)
        )
        return [pk for pk in wanted if pk in self.pools and spec.kind in (self.pools[pk].kinds or [spec.kind])]

    def _judge(self, spec: WorkloadSpec) -> Iterator[Problem]:
        pools = self.pools_for(spec)
        if not pools:
            choices = [pool.name for pool in self.pools.values() if spec.kind in (pool.kinds or [spec.kind])]
            yield Problem("pools", "invalid", {"reason": "choice", "choices": choices, "given": spec.kind})
            return
        fitting = [pk for pk in pools if self._nodes_hold(pk, spec)]
        if not fitting:
            yield self._too_large_for_nodes(pools, spec)
            return
        found = [problem for pk in fitting if (problem := self._beyond_pool(pk, spec)) is not None]
        if len(found) == len(fitting):
            yield found[0]

    def _selected(self, pool: int, spec: WorkloadSpec) -> Iterable[Machine]:
        wanted = spec.node_selector.items()
        return (m for m in self.machines if m.pool == pool and all(m.labels.get(k) == v for k, v in wanted))

    def _nodes_hold(self, pool: int, spec: WorkloadSpec) -> bool:
        machines = list(self._selected(pool, spec))
        asked = [spec.request] if spec.replicas else []
        return all(any(m.holds(request) for m in machines) for request in (*asked, *_masters(spec)))

    def _too_large_for_nodes(self, pools: Sequence[int], spec: WorkloadSpec) -> Problem:
        machines = [m for pool in pools for m in self._selected(pool, spec)]
        if not machines:
            return Problem("node_selector" if spec.node_selector else "pools", "workload.never_fits", {"nodes": 0})
        for request in (spec.request, *_masters(spec)):
            for resource in (*RESOURCES, "gpu_memory_mib"):
                largest = _largest(machines, resource)
                asked = request.gpus * WHOLE_GPU if resource == "gpu_milli" else request.amount(resource)
                if largest is not None and asked > largest:
                    facts = {"resource": resource, "asked": asked, "largest": largest, "of": "node"}
                    return Problem(_field_of(resource), "workload.never_fits", facts)
        return Problem("", "workload.never_fits", {"of": "node", "nodes": sum(m.count for m in machines)})

    def _beyond_pool(self, pool: int, spec: WorkloadSpec) -> Problem | None:
        for resource in RESOURCES:
            asked = _total(spec, resource)
            limit = self.limits.get((pool, resource))
            if limit is not None and asked > limit:
                names = {"quota": self.quota.name, "pool": self.pools[pool].name}
                facts = {"resource": resource, "asked": asked, "limit": limit, **names}
                return Problem(_field_of(resource), "workload.exceeds_limit", facts)
            has = self._pool_has(pool, resource)
            if has is not None and asked > has:
                facts = {"resource": resource, "asked": asked, "largest": has, "of": "pool"}
                return Problem(_field_of(resource), "workload.never_fits", facts)
        return None

    def _pool_has(self, pool: int, resource: str) -> int | None:
        amounts = [(m.count, m.has(resource)) for m in self.machines if m.pool == pool]
        known = [count * amount for count, amount in amounts if amount is not None]
        return sum(known) if len(known) == len(amounts) else None


SHAPE = ("pool_id", "gpus", "gpu_memory_mib", "cpu_milli", "memory_mib")


def _machines(cluster_id: int, by_labels: bool) -> list[Machine]:
    columns = (*SHAPE, "labels", "gpu_model") if by_labels else SHAPE
    rows = Node.objects.filter(cluster_id=cluster_id).order_by().values(*columns).annotate(count=Count("id"))
    return [
        Machine(
            count=row["count"],
            pool=row["pool_id"],
            gpus=row["gpus"],
            gpu_memory_mib=row["gpu_memory_mib"],
            cpu_milli=row["cpu_milli"],
            memory_mib=row["memory_mib"],
            labels={"gpu_model": row["gpu_model"], **row["labels"]} if by_labels else {},
        )
        for row in rows
    ]


def _masters(spec: WorkloadSpec) -> tuple[Request, ...]:
    return (spec.master,) if spec.master is not None else ()


def _total(spec: WorkloadSpec, resource: str) -> int:
    """What must run together for it to run at all."""
    masters = sum(master.amount(resource) for master in _masters(spec))
    return spec.least_replicas * spec.request.amount(resource) + masters


def _largest(machines: Iterable[Machine], resource: str) -> int | None:
    """The most that one node has; None: some node has no bound."""
    amounts = [m.has(resource) for m in machines]
    return None if None in amounts else max((a for a in amounts if a is not None), default=0)


def _field_of(resource: str) -> str:
    return "gpus" if resource == "gpu_milli" else resource


def _line_up(quota: Quota) -> list[int]:
    """The quota and all above it; as many queries as the tree is deep, which is six."""
    line = [quota.pk]
    parent = quota.parent_id
    while parent is not None and parent not in line:
        line.append(parent)
        parent = Quota.objects.filter(pk=parent).values_list("parent_id", flat=True).first()
    return line
