"""Small clusters as rows, and a clock that a test moves."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from typing import Any

from quotas.actors import SYSTEM
from quotas.models import Cluster, Node, Quota, Workspace
from quotas.services import add_node, create_cluster, create_pool, create_quota, create_workspace
from quotas.specs import AmountSpec, ClusterSpec, NodeSpec, PoolSpec, QuotaSpec, WorkspaceSpec
from scheduler.scenarios.driver import Driver, driven
from workloads.models import Workload
from workloads.services import submit_workload
from workloads.specs import WorkloadSpec

START = datetime(2026, 3, 2, 7, 0, tzinfo=UTC)


class World:
    """One cluster with a quota for all of it."""

    def __init__(self, *, nodes: int = 2, gpus: int = 4, settings: dict[str, Any] | None = None) -> None:
        self.cluster: Cluster = create_cluster(actor=SYSTEM, spec=ClusterSpec("c", settings=settings or {}))
        self.pool = create_pool(actor=SYSTEM, cluster=self.cluster, spec=PoolSpec("default"))
        self.nodes: list[Node] = [
            add_node(actor=SYSTEM, cluster=self.cluster, spec=NodeSpec(f"n{number}", gpus=gpus))
            for number in range(nodes)
        ]
        self.quota = self.add_quota("q", gpus=nodes * gpus)

    def add_quota(self, name: str, *, gpus: int, parent: Quota | None = None, **settings: Any) -> Quota:
        """A quota, and a workspace of the same name."""
        quota = create_quota(
            actor=SYSTEM,
            cluster=self.cluster,
            spec=QuotaSpec(
                name,
                parent=parent,
                amounts={self.pool: AmountSpec(guaranteed_gpu_milli=gpus * 1000)},
                settings=settings,
            ),
        )
        create_workspace(actor=SYSTEM, spec=WorkspaceSpec(name, quotas=(quota,)))
        return quota

    def submit(self, name: str, *, kind: str = "training", quota: Quota | None = None, **fields: Any) -> Workload:
        quota = quota or self.quota
        data = {"gpus": 1, **fields, "name": name, "kind": kind, "quota": quota}
        data["workspace"] = Workspace.objects.get(name=quota.name)
        return submit_workload(actor=SYSTEM, spec=WorkloadSpec.from_mapping(data, actor=SYSTEM))

    @contextmanager
    def driven(self, at: datetime = START) -> Iterator[Driver]:
        with driven(self.cluster, at, timedelta(seconds=1)) as driver:
            yield driver

    @staticmethod
    def state(name: str) -> str:
        return Workload.objects.get(name=name).state
