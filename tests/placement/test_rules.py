"""The published policies, each on a choice small enough to work out by hand."""

import numpy as np
import pytest

from scheduler.core.placement_room import NodeSpec, Room, Shape, Spot
from scheduler.core.placement_rules import BestFit, DotProduct, Fgd, FirstFit, Packing, Policy
from scheduler.core.scoring import Placer

BIG, SMALL = NodeSpec(96_000, 400_000, 8, "G2"), NodeSpec(32_000, 130_000, 4, "V100")
SLICE = Shape(4_000, 8_000, 1, 400)


def choice(policy: Policy, room: Room, shape: Shape) -> Spot | None:
    return Placer(room, policy).choose(shape)


def a_room_with_a_started_gpu() -> Room:
    """The big node first and empty; on the small one GPU 2 has 500 thousandths left."""
    room = Room([BIG, SMALL])
    room.take(Shape(4_000, 8_000, 1, 500), Spot(1, (2,)))
    return room


@pytest.mark.parametrize(
    ("policy", "row"),
    [(FirstFit(), 0), (BestFit(), 1), (Packing(), 1), (DotProduct(), 1)],
    ids=["first fit", "best fit", "packing", "dot product"],
)
def test_a_slice_goes_where_the_policy_says(policy: Policy, row: int):
    spot = choice(policy, a_room_with_a_started_gpu(), SLICE)
    assert spot == Spot(row, (0,) if row == 0 else (2,))


def test_packing_prefers_nodes_in_use_and_then_smaller_empty_nodes():
    assert choice(Packing(), a_room_with_a_started_gpu(), Shape(4_000, 8_000, 1, 1000)) == Spot(1, (0,))
    assert choice(Packing(), Room([BIG, SMALL]), SLICE) == Spot(1, (0,))


def test_fgd_uses_up_the_gpu_that_is_no_good_for_the_mix():
    """With half the tasks asking for whole GPUs, a started GPU loses least by a further slice."""
    fgd = Fgd([Shape(4_000, 8_000, 1, 1000)] * 50 + [SLICE] * 50)
    assert choice(fgd, a_room_with_a_started_gpu(), SLICE) == Spot(1, (2,))


def test_fgd_scores_are_whole_and_fifty_means_that_nothing_is_lost():
    """Taking the whole only GPU of a node leaves no fragment where there was none."""
    room = Room([NodeSpec(96_000, 400_000, 1, "G2")])
    scores = Placer(room, Fgd([Shape(4_000, 8_000, 1, 1000)])).scores(Shape(4_000, 8_000, 1, 1000))
    assert scores.tolist() == [50.0]


def test_equal_scores_go_to_the_first_row():
    room = Room([BIG, BIG, BIG])
    assert choice(BestFit(), room, SLICE) == Spot(0, (0,))
    assert np.ptp(Placer(room, BestFit()).scores(SLICE)) == 0
