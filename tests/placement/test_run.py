"""The protocol of the benchmark, and that our own policy is worth having."""

import numpy as np
import pytest

from scheduler.core.placement_room import NodeSpec, Shape
from scheduler.core.placement_run import POLICIES, Figures, arrivals_of, kind_of, run
from tests.placement.makers import some_nodes, some_tasks


def figures(policy: str, seed: int, scale: int = 1, bound_share: float = 0.0) -> Figures:
    tasks = some_tasks(count=300 * scale, bound_share=bound_share)
    return run(some_nodes() * scale, tasks, seed, POLICIES[policy])


def mean_allocated(policy: str, seeds: range, scale: int, bound_share: float) -> float:
    found = [figures(policy, seed, scale, bound_share).allocated[100] for seed in seeds]
    return sum(share for share in found if share is not None) / len(found)


def test_a_short_list_is_drawn_from_again_until_the_next_would_pass_130_percent():
    tasks = [Shape(1, 1, 1, 400), Shape(1, 1, 2, 1000)]
    arrivals = arrivals_of(tasks, 10_000, np.random.default_rng(3))
    asked = sum(tasks[task].gpu_milli_in_all for task in arrivals)
    assert sorted(arrivals[:2]) == [0, 1]
    assert 13_000 - 2000 < asked <= 13_000


def test_a_long_list_loses_tasks_until_it_is_within_130_percent():
    tasks = [Shape(1, 1, 1, 1000)] * 30
    arrivals = arrivals_of(tasks, 10_000, np.random.default_rng(3))
    assert len(arrivals) == len(set(arrivals)) == 13


def test_the_generator_is_asked_for_tasks_then_draws():
    tasks = [Shape(1, 1, 1, 1000)] * 4
    again = np.random.default_rng(5)
    expected = [*again.permutation(4).tolist(), int(again.integers(4))]
    assert arrivals_of(tasks, 4_000, np.random.default_rng(5)) == expected


def test_figures_count_what_was_placed_and_what_was_rejected_by_kind():
    """Four GPUs and ten tasks of one each: with 100 % arrived all is placed, later ones are rejected."""
    nodes = [NodeSpec(8_000, 8_000, 4, "A")]
    found = run(nodes, [Shape(1_000, 1_000, 1, 1000)] * 10, 1, POLICIES["firstfit"])
    assert found.allocated == {100: 100.0, 130: None}
    assert found.rejected == {100: {}, 130: {"whole-1": 1}}
    assert found.decisions == 5


def test_kinds_name_cpu_slices_and_whole_gpus():
    shapes = [Shape(1, 1), Shape(1, 1, 1, 500), Shape(1, 1, 1, 1000), Shape(1, 1, 4, 1000)]
    assert [kind_of(shape) for shape in shapes] == ["cpu", "slice", "whole-1", "whole-4"]


@pytest.mark.parametrize("policy", sorted(POLICIES))
def test_the_same_seed_gives_the_same_figures(policy: str):
    first, second = figures(policy, 42, bound_share=0.3), figures(policy, 42, bound_share=0.3)
    assert (first.allocated, first.rejected) == (second.allocated, second.rejected)


@pytest.mark.long
@pytest.mark.parametrize("bound_share", [0.0, 0.3])
def test_our_own_policy_leaves_less_idle_than_fgd_and_first_fit(bound_share: float):
    seeds = range(42, 45)
    own = mean_allocated("default", seeds, 12, bound_share)
    assert own > mean_allocated("fgd", seeds, 12, bound_share)
    assert own > mean_allocated("firstfit", seeds, 12, bound_share)
