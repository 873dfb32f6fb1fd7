"""The sum rule of the quota tree: what is promised below never exceeds what is promised, per pool and resource.

A quota that does not govern a resource stands for what its own children are promised, so a promise always has its
cover in the nearest quota above that names the resource, or in the pool. The database keeps the same rule; here it is
checked first, for several changes as one, and the answer says the numbers.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from django.db.models import Sum

from quotas.errors import Problem
from quotas.models import Cluster, Node, NodePool, Quota, QuotaAmount
from quotas.specs import DEPTH_MAX, RESOURCES, AmountSpec
from scheduler.core.resources import WHOLE_GPU

Amounts = Mapping[int, AmountSpec]  # by pool id


@dataclass(frozen=True, slots=True)
class Tree:
    """The quotas of one cluster: parent, name and amounts by quota id; pools by id."""

    parents: dict[int, int | None]
    names: dict[int, str]
    amounts: dict[int, dict[int, AmountSpec]]
    pools: dict[int, NodePool]
    children: dict[int | None, list[int]] = field(default_factory=dict)

    @classmethod
    def load(cls, cluster: Cluster) -> Tree:
        """Reads the tree in three queries."""
        rows = list(Quota.objects.filter(cluster=cluster).values_list("id", "parent_id", "name").order_by("id"))
        amounts: dict[int, dict[int, AmountSpec]] = {}
        for row in QuotaAmount.objects.filter(quota__cluster=cluster):
            amounts.setdefault(row.quota_id, {})[row.pool_id] = AmountSpec.of(row)
        return cls.of(
            {pk: parent for pk, parent, _ in rows},
            {pk: name for pk, _, name in rows},
            amounts,
            {pool.pk: pool for pool in cluster.pools.all()},
        )

    @classmethod
    def of(
        cls,
        parents: dict[int, int | None],
        names: dict[int, str],
        amounts: dict[int, dict[int, AmountSpec]],
        pools: dict[int, NodePool],
    ) -> Tree:
        children: dict[int | None, list[int]] = {}
        for quota, parent in parents.items():
            children.setdefault(parent, []).append(quota)
        return cls(parents, names, amounts, pools, children)

    def with_amounts(self, changes: Mapping[int, Amounts]) -> Tree:
        """The tree after the changes; pools that a change does not name stay."""
        amounts = {**self.amounts, **{q: {**self.amounts.get(q, {}), **new} for q, new in changes.items()}}
        return Tree(self.parents, self.names, amounts, self.pools, self.children)

    def with_quota(self, quota: int, name: str, parent: int | None) -> Tree:
        """The tree with a quota added or put elsewhere."""
        return Tree.of({**self.parents, quota: parent}, {**self.names, quota: name}, self.amounts, self.pools)

    def guaranteed(self, quota: int, pool: int, resource: str) -> int | None:
        spec = self.amounts.get(quota, {}).get(pool)
        return spec.guaranteed(resource) if spec is not None else None

    def promised(self, quota: int, pool: int, resource: str) -> int:
        """Its own guaranteed, or what its children are promised where it does not govern the resource."""
        own = self.guaranteed(quota, pool, resource)
        return own if own is not None else self.promised_below(quota, pool, resource)

    def promised_below(self, quota: int | None, pool: int, resource: str) -> int:
        """What is promised to the children; None: to the roots."""
        return sum(self.promised(child, pool, resource) for child in self.children.get(quota, ()))

    def above(self, quota: int) -> list[int]:
        """The ancestors from the parent up; ends at a loop."""
        found: list[int] = []
        parent = self.parents.get(quota)
        while parent is not None and parent not in found:
            found.append(parent)
            parent = self.parents.get(parent)
        return found

    def below(self, quota: int) -> list[int]:
        """All descendants, parents first."""
        found = list(self.children.get(quota, ()))
        for child in found:
            found.extend(self.children.get(child, ()))
        return found

    def cover_of(self, quota: int, pool: int, resource: str) -> int | None:
        """The nearest quota above that governs the resource; None: the pool itself."""
        return next((up for up in self.above(quota) if self.guaranteed(up, pool, resource) is not None), None)

    def height(self, quota: int) -> int:
        """Levels from this quota down, itself included."""
        return 1 + max((self.height(child) for child in self.children.get(quota, ())), default=0)


def capacity_of(pool: NodePool, resource: str) -> int | None:
    """What the pool's nodes have, in whatever state they are; None: some node has no bound."""
    nodes = Node.objects.filter(pool=pool)
    if resource == "gpu_milli":
        return (nodes.aggregate(n=Sum("gpus"))["n"] or 0) * WHOLE_GPU
    if nodes.filter(**{f"{resource}__isnull": True}).exists():
        return None
    return nodes.aggregate(n=Sum(resource))["n"] or 0


def find_problems(before: Tree, after: Tree, changed: Iterable[int]) -> list[Problem]:
    """What is wrong with the changed quotas and with whatever they lean on."""
    problems: dict[tuple[str, str, object], Problem] = {}
    for quota in changed:
        for pool in after.pools:
            for resource in RESOURCES:
                for problem in _of_resource(before, after, quota, pool, resource):
                    key = (problem.field, problem.code, problem.facts.get("quota"))
                    problems.setdefault(key, problem)
    return list(problems.values())


def _of_resource(before: Tree, after: Tree, quota: int, pool: int, resource: str) -> Iterable[Problem]:
    own = after.guaranteed(quota, pool, resource)
    spec = after.amounts.get(quota, {}).get(pool)
    facts: dict[str, object] = {"quota": after.names[quota], "pool": after.pools[pool].name, "resource": resource}
    name = f"amounts.{after.pools[pool].name}.guaranteed_{resource}"
    limit = spec.limit(resource) if spec is not None else None
    if limit is not None and own is not None and limit < own:
        limited = name.replace("guaranteed_", "limit_")
        yield Problem(limited, "quota.limit_below_guaranteed", {**facts, "asked": limit, "least": own})
    below = after.promised_below(quota, pool, resource)
    if own is not None and own < below and _blames_parent(before, quota, pool, resource, own):
        yield Problem(name, "quota.below_children", {**facts, "asked": own, "least": below, "missing": below - own})
    yield from _of_cover(before, after, quota, pool, resource, name, facts)


def _blames_parent(before: Tree, quota: int, pool: int, resource: str, own: int) -> bool:
    """Whether the quota's own amount went down; otherwise its children's problem says it."""
    had = before.guaranteed(quota, pool, resource)
    return had is None or own < had


def _of_cover(
    before: Tree, after: Tree, quota: int, pool: int, resource: str, name: str, facts: dict[str, object]
) -> Iterable[Problem]:
    """The quota's promise against what covers it."""
    asked = after.promised(quota, pool, resource)
    had = before.promised(quota, pool, resource) if quota in before.parents else 0
    same_place = before.parents.get(quota, -1) == after.parents[quota]
    if asked == 0 or (asked <= had and same_place):
        return
    cover = after.cover_of(quota, pool, resource)
    total = after.promised_below(cover, pool, resource)
    of: dict[str, object]
    if cover is None:
        if after.pools[pool].oversubscription:
            return
        room = capacity_of(after.pools[pool], resource)
        code, of = "quota.exceeds_pool", {"capacity": room}
    else:
        room = after.guaranteed(cover, pool, resource)
        code, of = "quota.exceeds_parent", {"parent": after.names[cover], "parent_has": room}
    if room is not None and total > room:
        available = max(0, room - (total - asked))
        yield Problem(name, code, {**facts, **of, "asked": asked, "available": available, "missing": asked - available})


def shape_problems(tree: Tree, quota: int) -> list[Problem]:
    """Whether the quota stands where it may: no loop, not too deep."""
    above = tree.above(quota)
    if quota in above:
        return [Problem("parent", "quota.loop", {"quota": tree.names[quota]})]
    depth = len(above) + tree.height(quota)
    if depth > DEPTH_MAX:
        return [Problem("parent", "quota.too_deep", {"most": DEPTH_MAX, "depth": depth})]
    return []


def uncommitted(tree: Tree, quota: int | None, pool: int, resource: str = "gpu_milli") -> int | None:
    """What is not promised yet of a quota (None: of the pool); None where the resource is not governed or bounded."""
    room = tree.guaranteed(quota, pool, resource) if quota is not None else capacity_of(tree.pools[pool], resource)
    return None if room is None else room - tree.promised_below(quota, pool, resource)
