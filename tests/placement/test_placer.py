"""What holds for every policy: whatever fits is placed, kept scores are right, room is never exceeded."""

import numpy as np
import pytest

from scheduler.core.placement_room import Room, Shape, Spot
from scheduler.core.placement_run import POLICIES
from scheduler.core.scoring import NO_ROOM, Placer
from tests.placement.makers import some_nodes, some_tasks

STEADY = sorted(set(POLICIES) - {"random"})


def a_placer(policy: str, tasks: list[Shape]) -> Placer:
    return Placer(Room(some_nodes()), POLICIES[policy](tasks, np.random.default_rng(1)))


@pytest.mark.parametrize("policy", sorted(POLICIES))
@pytest.mark.parametrize("bound_share", [0.0, 0.4])
def test_what_fits_is_placed_and_what_does_not_is_not(policy: str, bound_share: float):
    tasks = some_tasks(bound_share=bound_share)
    placer = a_placer(policy, tasks)
    rejected = 0
    for task in tasks:
        placer.seen(task)
        fits = placer.room.fits(task, np.arange(len(placer.room)))
        spot = placer.choose(task)
        assert (spot is not None) == fits.any()
        if spot is None:
            rejected += 1
            continue
        assert fits[spot.row]
        assert (placer.room.gpu_milli[spot.row, list(spot.devices)] >= task.gpu_milli).all()
        assert len(set(spot.devices)) == task.gpus
        placer.place(task, spot)
        assert min(placer.room.cpu_milli.min(), placer.room.memory_mib.min(), placer.room.gpu_milli.min()) >= 0
    assert 0 < rejected < len(tasks) / 2


@pytest.mark.parametrize("policy", STEADY)
def test_kept_scores_are_those_of_a_fresh_look_while_work_comes_and_goes(policy: str):
    tasks = some_tasks(count=150)
    placer = a_placer(policy, tasks)
    for task in tasks:
        placer.seen(task)
    running: list[tuple[Shape, Spot]] = []
    for turn, task in enumerate(tasks):
        spot = placer.choose(task)
        if spot is not None:
            placer.place(task, spot)
            running.append((task, spot))
        if turn % 3 == 2:
            placer.leave(*running.pop(turn % len(running)))
        if turn % 25 == 0:
            kept = placer.scores(task).copy()
            placer.forget()
            assert np.array_equal(kept, placer.scores(task))


def test_a_choice_can_be_narrowed_to_some_rows():
    placer = a_placer("default", [])
    task = Shape(1_000, 1_000, 1, 1000)
    placer.seen(task)
    allowed = np.zeros(len(placer.room), dtype=np.bool_)
    assert placer.choose(task, allowed) is None
    allowed[33] = True
    assert placer.choose(task, allowed) == Spot(33, (0,))


def test_rows_without_room_have_the_lowest_score():
    placer = a_placer("default", [])
    task = Shape(1_000, 1_000, 1, 500, ("P100",))
    placer.seen(task)
    scores = placer.scores(task)
    assert np.flatnonzero(scores != NO_ROOM).tolist() == [39]
