"""What must hold on every small cluster, whatever happens on it: random trees, work and events."""

from __future__ import annotations

import os
import random
import subprocess
import sys
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from scheduler.core.decide import decide
from scheduler.core.model import (
    ChildPreemption,
    Device,
    ExcessOrder,
    IdleUse,
    Kind,
    Match,
    MinRuntime,
    Node,
    NodeState,
    PoolAmounts,
    PriorityPreemption,
    QueuePolicy,
    Quota,
    Shape,
    Topology,
    WorkerGroup,
    Workload,
)
from scheduler.core.resources import Bound
from tests.core.player import MINUTE, SECOND, Cluster

SEEN: Counter[str] = Counter()
"""How many sequences there were, and in how many something was evicted."""


def a_random_cluster(rng: random.Random) -> Cluster:
    """A tree of up to three levels on a handful of GPUs."""
    cluster = Cluster(stop_ms=rng.choice((0, 0, 10 * SECOND)))
    sizes = [rng.choice((2, 4, 8)) for _ in range(rng.randint(1, 3))]
    for number, size in enumerate(sizes, start=1):
        rack = (("rack", f"r{number % 2}"),)
        cluster.nodes[number] = Node(number, 1, labels=rack, devices=tuple(Device() for _ in range(size)))
    total = sum(sizes)
    cluster.quotas[1] = a_random_quota(rng, 1, None, total)
    left = total
    for number in range(2, 2 + rng.randint(2, 3)):
        part = rng.randint(0, left)
        left -= part
        cluster.quotas[number] = a_random_quota(rng, number, 1, part)
    if rng.random() < 0.5:
        part = cluster.quotas[2].amounts[0][1].guaranteed.gpu_milli or 0
        cluster.quotas[9] = a_random_quota(rng, 9, 2, rng.randint(0, part // 1000))
    return cluster


def a_random_quota(rng: random.Random, number: int, parent: int | None, gpus: int) -> Quota:
    """A quota with random switches."""
    limit = rng.choice((None, None, None, gpus + 2))
    lending = rng.choice((None, None, None, 1))
    return Quota(
        number,
        parent,
        f"q{number}",
        (
            (
                1,
                PoolAmounts(
                    guaranteed=Bound(gpu_milli=gpus * 1000),
                    limit=Bound(gpu_milli=None if limit is None or parent is None else limit * 1000),
                    lending_limit=Bound(gpu_milli=None if lending is None else 1000),
                    rank=rng.choice((0, 0, 1)),
                ),
            ),
        ),
        queue_policy=rng.choice(list(QueuePolicy)),
        idle_sharing=rng.random() < 0.9,
        child_preemption=ChildPreemption(enabled=rng.random() < 0.5, max_victim_priority=rng.choice((9, 9, 4))),
        priority_preemption=PriorityPreemption(siblings=rng.random() < 0.3),
        min_runtime=rng.choice((MinRuntime(), MinRuntime(), MinRuntime(2 * MINUTE, MINUTE, 5 * MINUTE))),
        reserve_after_ms=rng.choice((None, 30 * MINUTE, 3 * MINUTE)),
    )


def a_random_workload(rng: random.Random, cluster: Cluster, number: int) -> Workload:
    """Trainings, notebooks and services of all sorts."""
    kind = rng.choice((Kind.TRAINING, Kind.TRAINING, Kind.TRAINING, Kind.NOTEBOOK, Kind.SERVICE))
    milli = rng.choice((1000, 1000, 1000, 2000, 500))
    workers = rng.randint(1, 3) if kind is not Kind.NOTEBOOK else 1
    minimum = 0 if kind is Kind.SERVICE else (workers if rng.random() < 0.7 else 1)
    where = (Match("rack", (rng.choice(("r0", "r1")),)),) if rng.random() < 0.2 else ()
    shape = Shape(gpu_count=max(1, milli // 1000), gpu_milli=min(milli, 1000), select=where)
    topology = rng.choice((Topology(), Topology(), Topology(required="rack"), Topology(preferred="rack")))
    return Workload(
        id=number,
        quota=rng.choice(sorted(cluster.quotas)),
        kind=kind,
        groups=(WorkerGroup(shape, workers, minimum, topology=topology),),
        submitted_ms=0,
        priority=rng.choice((2, 3, 3, 5, 8)),
        idle=rng.choice((IdleUse.NEVER, IdleUse.ALLOW, IdleUse.ALLOW, IdleUse.ALLOW, IdleUse.ONLY)),
        preemptible=kind is not Kind.SERVICE and rng.random() < 0.9,
        gang=kind is not Kind.SERVICE,
        estimate_ms=rng.choice((None, None, 5 * MINUTE)),
    )


def an_event(rng: random.Random, cluster: Cluster, number: int) -> None:
    """Something that people, nodes or work do."""
    live = [i for i, job in cluster.jobs.items() if job.state in ("queued", "running")]
    what = rng.random()
    if what < 0.6 or not live:
        duration = rng.choice((None, None, 5 * MINUTE))
        cluster.submit(a_random_workload(rng, cluster, number), duration_ms=duration)
    elif what < 0.75:
        cluster.stop(rng.choice(live))
    elif what < 0.85:
        identifier = rng.choice(live)
        group = cluster.jobs[identifier].workload.groups[0]
        if cluster.jobs[identifier].workload.kind is Kind.SERVICE:
            cluster.change(identifier, groups=(replace(group, wanted=rng.randint(0, 3)),))
    elif what < 0.88:
        edit_a_quota(rng, cluster)
    elif what < 0.90:
        cluster.lose(rng.choice(sorted(cluster.nodes)))
    elif what < 0.95:
        node = rng.choice(sorted(cluster.nodes))
        state = rng.choice((NodeState.READY, NodeState.READY, NodeState.CORDONED, NodeState.DRAINING))
        cluster.nodes[node] = replace(cluster.nodes[node], state=state)
    else:
        cluster.change(rng.choice(live), priority=rng.randint(1, 9))


def edit_a_quota(rng: random.Random, cluster: Cluster) -> None:
    """Another amount for a quota without children, now and then with an order to stop the excess."""
    leaves = [number for number in cluster.quotas if number not in {q.parent for q in cluster.quotas.values()}]
    quota = cluster.quotas[rng.choice(leaves)]
    less = max(0, (quota.amounts[0][1].guaranteed.gpu_milli or 0) - 1000 * rng.randint(0, 2))
    amounts = replace(quota.amounts[0][1], guaranteed=Bound(gpu_milli=less))
    cluster.quotas[quota.id] = replace(quota, amounts=((1, amounts),))
    if rng.random() < 0.5:
        due = cluster.now_ms + rng.choice((0, MINUTE))
        cluster.orders[quota.id] = ExcessOrder(quota.id, quota.id, 1, due)


def play(seed: int, events: int) -> Cluster:
    """A whole sequence; the player checks the invariants after every cycle."""
    rng = random.Random(seed)
    cluster = a_random_cluster(rng)
    for number in range(101, 109):  # full from the start, so that later ones must take
        cluster.submit(replace(a_random_workload(rng, cluster, number), idle=IdleUse.ALLOW))
    for number in range(1, events + 1):
        an_event(rng, cluster, number)
        before = len(cluster.evicted)
        cluster.settle()
        nobody_evicts_back(cluster, before)
        cluster.run(rng.choice((SECOND, MINUTE, 2 * MINUTE)), step_ms=MINUTE)
    SEEN["sequences"] += 1
    SEEN["with evictions"] += bool(cluster.evicted)
    return cluster


def nobody_evicts_back(cluster: Cluster, since: int) -> None:
    """In one state of demand no victim evicts its evictor, directly or by way of others' claims."""
    pairs = {(victim, claimant) for victim, claimant in cluster.evicted[since:] if claimant}
    assert not [pair for pair in pairs if pair[::-1] in pairs], pairs


@settings(max_examples=40, deadline=None, suppress_health_check=list(HealthCheck))
@given(st.integers(min_value=0, max_value=10**9))
def test_invariants_hold_and_a_settled_cluster_stays_settled(seed: int) -> None:
    play(seed, events=12)


@pytest.mark.long
@settings(max_examples=1500, deadline=None, suppress_health_check=list(HealthCheck))
@given(st.integers(min_value=0, max_value=10**9))
def test_invariants_hold_over_thousands_of_cycles(seed: int) -> None:
    play(seed, events=20)


@settings(max_examples=25, deadline=None, suppress_health_check=list(HealthCheck))
@given(st.integers(min_value=0, max_value=10**9))
def test_the_order_of_the_input_changes_nothing(seed: int) -> None:
    cluster = play(seed, events=6)
    snapshot = cluster.snapshot()
    rng = random.Random(seed)

    def shuffled(values: tuple[object, ...]) -> tuple[object, ...]:
        return tuple(rng.sample(values, len(values)))

    mixed = replace(
        snapshot,
        nodes=shuffled(snapshot.nodes),
        quotas=shuffled(snapshot.quotas),
        workloads=shuffled(snapshot.workloads),
        allocations=shuffled(snapshot.allocations),
        reservations=shuffled(snapshot.reservations),
    )
    assert decide(snapshot) == decide(snapshot)
    assert decide(mixed) == decide(snapshot)


def test_evictions_are_not_too_rare_for_these_properties(capsys: pytest.CaptureFixture[str]) -> None:
    while SEEN["sequences"] < 20:
        play(SEEN["sequences"], events=12)
    share = SEEN["with evictions"] / SEEN["sequences"]
    with capsys.disabled():
        sys.stdout.write(f"\nsequences in which something was evicted: {share:.0%} of {SEEN['sequences']}\n")
    assert share >= 0.3


def test_the_same_plan_under_two_hash_seeds() -> None:
    program = (
        "from scheduler.core.decide import decide; from tests.core.generators import mixed;"
        "print(repr(decide(mixed(12, 8, 60, 120, 8))))"
    )
    plans = {
        subprocess.run(
            [sys.executable, "-c", program],
            env={**os.environ, "PYTHONHASHSEED": seed, "PYTHONPATH": str(Path(__file__).parents[2])},
            capture_output=True,
            check=True,
            text=True,
        ).stdout
        for seed in ("0", "4711")
    }
    assert len(plans) == 1
    assert "Eviction(" in plans.pop()
