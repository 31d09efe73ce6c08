"""Multipliers and block RAMs of a netlist, each at a site that keeps wires short.

All cells are placed roughly, between the pads of the chip: wires pull them together, those on top of each other are
spread, and each multiplier and block RAM is assigned a site. Spread places and sites pull back, harder from round to
round, until both agree (M. Kim, D. Lee and I. Markov, "SimPL", 2012). Only multipliers and block RAMs keep their
places; nextpnr places everything else.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from dovetail.flows.fpga.macros.assign import assigned
from dovetail.flows.fpga.macros.sites import Sites, place_of
from dovetail.flows.fpga.macros.spread import spread
from dovetail.flows.fpga.macros.wires import Bools, Floats, Ints, Wires, module_wires, pulled

AREAS = {"LUT4": 1, "TRELLIS_FF": 1, "CCU2C": 2, "TRELLIS_DPR16X4": 8}
"""What cells take of a tile, which has 8 LUTs and 8 flip-flops."""
ROOM = 8.0
"""What of a tile is filled: nextpnr fills about half, as few cells share enable and reset."""
FIRST = 3
"""Rounds in which only wires pull: the springs of each are made for the places of the one before."""
ROUNDS = 40
"""Rounds in which cells are spread and macros assigned."""
SPREAD_PULL = 0.02
"""What each round adds to the pull of a cell's spread place; 1 is that of a wire of two pins."""
SITE_PULL = 1.0
"""The pull of a macro's site in the last round, for each of its pins; it grows with the square of the round."""
FAINT = 1e-6
"""A pull to where a cell is, so that those without wires have a place."""


@dataclass(frozen=True)
class Kind:
    """Macros of one type. ``cells``: which; ``bels``: names of their sites; ``places``: ``[sites, 2]`` in tiles."""

    cells: Ints
    bels: tuple[str, ...]
    places: Floats


@dataclass(frozen=True)
class Problem:
    """A netlist before placement. ``areas``: of the cells; ``fixed``: those that stay; ``places``: first ones,
    ``[cells, 2]`` in tiles; ``size``: of the chip, in tiles."""

    wires: Wires
    areas: Floats
    fixed: Bools
    places: Floats
    kinds: tuple[Kind, ...]
    size: tuple[int, int]

    @classmethod
    def of(cls, module: Mapping[str, Any], sites: Sites) -> Problem:
        """``module``: as Yosys writes it in JSON."""
        types = [cell["type"] for cell in module["cells"].values()]
        kinds = []
        for kind, bels in sites.macros.items():
            cells = np.array([n for n, each in enumerate(types) if each == kind], np.int64)
            kinds.append(Kind(cells, tuple(bels), np.array([place_of(bel) for bel in bels], np.float64)))
        pads = {n: place_of(sites.pads[name]) for n, name in enumerate(module["cells"]) if name in sites.pads}
        every = np.array([*pads.values(), *(place for kind in kinds for place in kind.places)])
        columns, rows = (int(side) + 1 for side in every.max(axis=0))
        fixed = np.zeros(len(types), bool)
        fixed[list(pads)] = True
        places = np.tile(np.array([columns, rows]) / 2, (len(types), 1))
        for n, place in pads.items():
            places[n] = place
        areas = np.array([AREAS.get(each, 0) for each in types], np.float64)
        return cls(module_wires(module), areas, fixed, places, tuple(kinds), (columns, rows))


def place_macros(module: dict[str, Any], sites: Sites) -> Floats:
    """Gives each macro of a module its site, as an attribute that nextpnr obeys. Changes the module.

    Returns where its cells are, roughly: ``[cells, 2]``, in tiles.
    """
    problem = Problem.of(module, sites)
    cells = list(module["cells"].values())
    sites_of, places = placed(problem)
    for kind, chosen in zip(problem.kinds, sites_of, strict=True):
        for cell, site in zip(kind.cells, chosen, strict=True):
            cells[cell]["attributes"]["BEL"] = kind.bels[site]
    return places


def placed(problem: Problem) -> tuple[list[Ints], Floats]:
    """The site of each macro, by kind, and the places of all cells."""
    wires = problem.wires
    pins = np.bincount(wires.cell, minlength=wires.cells)
    macros = np.zeros(wires.cells, bool)
    for kind in problem.kinds:
        macros[kind.cells] = True
    places = problem.places
    for _ in range(FIRST):
        places = pulled(wires, places, problem.fixed, places, np.full(wires.cells, FAINT))
    chosen: list[Ints] = []
    for n in range(1, ROUNDS + 1):
        goal = spread(places, problem.areas, problem.size, ROOM)
        chosen = [nearest(places[kind.cells], pins[kind.cells], kind.places) for kind in problem.kinds]
        for kind, at in zip(problem.kinds, chosen, strict=True):
            goal[kind.cells] = kind.places[at]
        weights = np.where(macros, pins * SITE_PULL * (n / ROUNDS) ** 2, SPREAD_PULL * n)
        places = pulled(wires, places, problem.fixed, goal, weights + FAINT)
    return chosen, places


def nearest(places: Floats, pins: Ints, sites: Floats) -> Ints:
    """A site for each macro, so that the distances times the pins are least in all."""
    return assigned(pins[:, None] * np.abs(places[:, None] - sites[None]).sum(axis=2))
