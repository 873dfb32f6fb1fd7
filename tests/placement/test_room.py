"""What fits where, and that taking and giving back are inverse."""

import numpy as np

from scheduler.core.placement_room import NodeSpec, Room, Shape, Spot

NODES = [NodeSpec(16_000, 64_000, 2, "T4"), NodeSpec(8_000, 64_000, 1, "P100"), NodeSpec(64_000, 64_000, 0, "")]
ALL = np.arange(len(NODES))


def test_whole_gpus_need_untouched_ones():
    room = Room(NODES)
    room.take(Shape(1000, 1000, 1, 300), Spot(0, (0,)))
    assert room.fits(Shape(1000, 1000, 2, 1000), ALL).tolist() == [False, False, False]
    assert room.fits(Shape(1000, 1000, 1, 1000), ALL).tolist() == [True, True, False]


def test_a_slice_needs_one_gpu_with_enough_left():
    room = Room(NODES)
    room.take(Shape(1000, 1000, 1, 600), Spot(0, (0,)))
    room.take(Shape(1000, 1000, 1, 600), Spot(0, (1,)))
    assert room.fits(Shape(1000, 1000, 1, 400), ALL).tolist() == [True, True, False]
    assert room.fits(Shape(1000, 1000, 1, 410), ALL).tolist() == [False, True, False]


def test_cpu_memory_and_models_are_honoured():
    room = Room(NODES)
    assert room.fits(Shape(12_000, 1000, 1, 1000), ALL).tolist() == [True, False, False]
    assert room.fits(Shape(1000, 70_000), ALL).tolist() == [False, False, False]
    assert room.fits(Shape(1000, 1000, 1, 500, ("P100", "V100")), ALL).tolist() == [False, True, False]
    assert room.fits(Shape(32_000, 1000), ALL).tolist() == [False, False, True]


def test_giving_back_restores_what_was_taken():
    room, fresh = Room(NODES), Room(NODES)
    shape = Shape(3000, 2000, 2, 1000)
    spot = room.spot(shape, 0, 0)
    room.take(shape, spot)
    assert spot == Spot(0, (0, 1))
    assert (room.untouched[0], room.largest[0], room.cpu_milli[0], room.memory_mib[0]) == (0, 0, 13_000, 62_000)
    room.give_back(shape, spot)
    for name in ("cpu_milli", "memory_mib", "gpu_milli", "untouched", "largest"):
        assert np.array_equal(getattr(room, name), getattr(fresh, name))
    assert room.changes == [0, 0]
