"""Lengths of wires, and cells at rest between them."""

import numpy as np

from dovetail.flows.fpga.macros.wires import MOST_PINS, NEAREST, Wires, module_wires, pulled

NETS = {7: {0, 1}, 9: {1, 2, 3}, 4: {0, 2, 3, 4}, 5: {3}}
PLACES = np.array([[0, 0], [10, 3], [4, 20], [30, 9], [17, 14]], np.float64)


def test_length_is_half_of_the_boxes() -> None:
    wires = Wires.of(NETS, 5)
    assert wires.length(PLACES) == (10 + 3) + (26 + 17) + (30 + 20)
    assert Wires.of({1: {2}}, 5).length(PLACES) == 0


def test_springs_have_the_length() -> None:
    wires = Wires.of(NETS, 5)
    total = 0.0
    for axis in range(2):
        a, b, weight = wires.springs(PLACES[:, axis])
        total += float((weight * (PLACES[a, axis] - PLACES[b, axis]) ** 2).sum())
    assert np.isclose(total, wires.length(PLACES))


def test_at_rest_all_pulls_are_even() -> None:
    wires = Wires.of(NETS, 5)
    fixed = np.array([True, False, False, False, False])
    weights = np.array([1, 1, 2, 3, 4], np.float64)
    anchors = PLACES[::-1].copy()
    found = pulled(wires, PLACES, fixed, anchors, weights)
    assert (found[0] == PLACES[0]).all()
    for axis in range(2):
        a, b, weight = wires.springs(PLACES[:, axis])
        anchor = weights / np.maximum(np.abs(PLACES - anchors)[:, axis], NEAREST)
        pull = anchor * (anchors - found)[:, axis]
        np.add.at(pull, a, weight * (found[b] - found[a])[:, axis])
        np.add.at(pull, b, weight * (found[a] - found[b])[:, axis])
        assert np.abs(pull[~fixed]).max() < 1e-2 < np.abs(pull[0])


def test_nets_of_a_module() -> None:
    clocked = {f"ff{n}": {"connections": {"CLK": [3], "Q": [100 + n]}} for n in range(MOST_PINS + 1)}
    cells = {
        "a": {"connections": {"Z": [5], "A": ["0"], "B": [5]}},
        "b": {"connections": {"Z": [100], "A": [5]}},
        **clocked,
    }
    wires = module_wires({"cells": cells})  # not the clock, and no pin twice
    assert [(int(net), int(cell)) for net, cell in zip(wires.net, wires.cell, strict=True)] == [
        (0, 0),
        (0, 1),
        (1, 1),
        (1, 2),
    ]
