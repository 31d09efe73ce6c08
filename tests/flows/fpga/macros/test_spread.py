"""Cells on top of each other get room."""

import numpy as np

from dovetail.flows.fpga.macros.spread import BIN, spread

SIZE = (30, 24)


def fullest(places: np.ndarray, areas: np.ndarray) -> float:
    """Area in the fullest bin."""
    at = (places // BIN).astype(int)
    return float(np.bincount(at[:, 0] * 100 + at[:, 1], areas).max())


def test_a_heap_gets_room_in_the_same_order() -> None:
    draw = np.random.default_rng(1)
    places = draw.normal((4, 12), 0.5, (1000, 2))  # near an edge
    areas = np.ones(len(places))
    found = spread(places, areas, SIZE, room=4)
    assert fullest(places, areas) > 200
    assert fullest(found, areas) <= 2 * BIN * BIN * 4
    assert (found >= 0).all() and (found < SIZE).all()
    left, right = places[:, 0].argsort()[[50, -50]]
    assert found[left, 0] < found[right, 0]


def test_who_has_room_stays() -> None:
    places = np.random.default_rng(2).uniform((0, 0), SIZE, (200, 2))
    assert (spread(places, np.ones(200), SIZE, room=100) == places).all()


def test_more_than_the_chip_holds_is_spread_all_over() -> None:
    places = np.full((5000, 2), 7.0)
    found = spread(places, np.ones(5000), SIZE, room=1)
    assert (found >= 0).all() and (found < SIZE).all()
    assert fullest(found, np.ones(5000)) < 5000 / 20
