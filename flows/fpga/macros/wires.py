"""Wires between the cells of a netlist, and where cells come to lie if their wires pull them together."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]

MOST_PINS = 500
"""A net of more pins is the clock or a reset: it has wires of its own, or reaches everywhere."""
NEAREST = 1.0
"""Tiles: two pins that are nearer pull no harder. Bounds the weights of the quadratic form."""
SOLVED = 1e-4
"""Share of the right side that a solution may leave."""
STEPS = 200
"""Steps of the solver, at most."""


@dataclass(frozen=True)
class Wires:
    """Nets of two pins and more, pin after pin, net after net.

    Parameters
    ----------
    cell: the cell of each pin.
    net: the net of each pin, ascending from 0.
    cells: how many cells there are.
    """

    cell: Ints
    net: Ints
    cells: int

    @classmethod
    def of(cls, nets: dict[int, set[int]], cells: int) -> Wires:
        """``nets``: the cells of each. Those of one cell, and of more than `MOST_PINS`, are left out."""
        kept = [sorted(members) for members in nets.values() if 2 <= len(members) <= MOST_PINS]
        sizes = [len(members) for members in kept]
        return cls(
            np.array([cell for members in kept for cell in members], np.int64),
            np.repeat(np.arange(len(kept)), sizes),
            cells,
        )

    @cached_property
    def starts(self) -> Ints:
        """The first pin of each net."""
        return np.flatnonzero(np.diff(self.net, prepend=-1))

    @cached_property
    def sizes(self) -> Ints:
        """Pins of each net."""
        return np.diff(self.starts, append=len(self.net))

    def length(self, places: Floats) -> float:
        """Half the perimeters of the nets' boxes, in all. ``places``: ``[cells, 2]``."""
        if not len(self.net):
            return 0.0
        at = places[self.cell]
        return float((np.maximum.reduceat(at, self.starts) - np.minimum.reduceat(at, self.starts)).sum())

    def springs(self, at: Floats) -> tuple[Ints, Ints, Floats]:
        """Pairs of cells and their weights, whose ``sum(weight * distance ** 2)`` is the length of the nets along one
        axis where the cells are now: each pin is tied to the two ends of its net (P. Spindler, U. Schlichtmann and
        F. M. Johannes, "Kraftwerk2", 2008, section IV). ``at``: ``[cells]``."""
        order = np.lexsort((at[self.cell], self.net))
        cell, net = self.cell[order], self.net
        first = self.starts
        last = first + self.sizes - 1
        to_first = np.setdiff1d(np.arange(len(net)), first, assume_unique=True)
        to_last = np.setdiff1d(to_first, last, assume_unique=True)
        a = np.concatenate([cell[first][net[to_first]], cell[last][net[to_last]]])
        b = np.concatenate([cell[to_first], cell[to_last]])
        size = self.sizes[np.concatenate([net[to_first], net[to_last]])]
        return a, b, 1 / ((size - 1) * np.maximum(np.abs(at[a] - at[b]), NEAREST))


def module_wires(module: Mapping[str, Any]) -> Wires:
    """The wires of a module as Yosys writes it in JSON; cells are counted in its order."""
    nets: dict[int, set[int]] = {}
    for n, cell in enumerate(module["cells"].values()):
        for bits in cell["connections"].values():
            for bit in bits:
                if isinstance(bit, int):
                    nets.setdefault(bit, set()).add(n)
    return Wires.of(nets, len(module["cells"]))


def sums(cells: Ints, values: Floats, count: int) -> Floats:
    """The sum of the values of each of ``count`` cells."""
    return np.bincount(cells, values, count).astype(np.float64, copy=False)


def pulled(wires: Wires, places: Floats, fixed: Bools, anchors: Floats, weights: Floats) -> Floats:
    """Where the cells lie at rest between their wires and anchors.

    ``places``: where they are, which the springs are made for, ``[cells, 2]``; ``fixed``: cells that stay there;
    ``anchors``: a place for each cell, which pulls it with its ``weights``: as a wire's end does if that is 1.
    """
    found = places.copy()
    for axis in range(2):
        at = places[:, axis]
        a, b, weight = wires.springs(at)
        anchor = weights / np.maximum(np.abs(at - anchors[:, axis]), NEAREST)
        free = ~fixed
        diagonal = sums(a, weight, wires.cells) + sums(b, weight, wires.cells) + anchor

        def pull(values: Floats, a: Ints = a, b: Ints = b, weight: Floats = weight) -> Floats:
            return sums(a, weight * values[b], wires.cells) + sums(b, weight * values[a], wires.cells)

        def form(values: Floats, diagonal: Floats = diagonal, free: Bools = free) -> Floats:
            return np.where(free, diagonal * values - pull(values), 0.0)

        right = np.where(free, anchor * anchors[:, axis] + pull(np.where(fixed, at, 0.0)), 0.0)
        start = np.where(free, at, 0.0)
        scale = np.where(free & (diagonal > 0), diagonal, 1.0)
        solved = conjugate_gradient(form, right, start, scale)
        found[:, axis] = np.where(free, solved, at)
    return found


def conjugate_gradient(form: Callable[[Floats], Floats], right: Floats, start: Floats, scale: Floats) -> Floats:
    """Solves ``form(x) = right`` of a symmetric positive form. ``start``: a guess; ``scale``: its diagonal."""
    x = start.copy()
    rest = right - form(x)
    direction = step = rest / scale
    power = float(rest @ step)
    goal = SOLVED * float(np.linalg.norm(right))
    for _ in range(STEPS):
        if float(np.linalg.norm(rest)) <= goal:
            break
        image = form(direction)
        ratio = power / float(direction @ image)
        x += ratio * direction
        rest = rest - ratio * image
        step = rest / scale
        power, before = float(rest @ step), power
        direction = step + power / before * direction
    return x
