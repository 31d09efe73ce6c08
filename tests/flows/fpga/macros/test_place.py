"""Multipliers and block RAMs at sites: legal ones, each once, near what they are wired to."""

import copy
from itertools import pairwise
from typing import Any

import numpy as np

from dovetail.flows.fpga.macros.place import place_macros
from dovetail.flows.fpga.macros.sites import Sites, place_of

SITES = Sites(
    {
        "MULT18X18D": [f"X{x}/Y{y}/MULT18_0" for y in (10, 34) for x in range(4, 60, 4)],
        "DP16KD": [f"X{x}/Y{y}/EBR0" for y in (22, 46) for x in range(4, 60, 5)],
    },
    {"left": "X0/Y20/PIOA", "right": "X62/Y40/PIOA"},
)
STAGES = 8


def module() -> dict[str, Any]:
    """From the left pin to the right one: eight times a multiplier, LUTs and a block RAM, eight wires wide; the cells
    are not in this order."""
    nets = iter(range(2, 10_000))
    cells: dict[str, Any] = {}

    def cell(name: str, kind: str, inputs: list[int], width: int = 1) -> list[int]:
        outputs = [next(nets) for _ in range(width)]
        cells[name] = {"type": kind, "attributes": {}, "connections": {"I": inputs, "O": outputs}}
        return outputs

    bits = cell("left", "TRELLIS_IO", [], 8)
    for stage in range(STAGES):
        bits = cell(f"dsp{stage}", "MULT18X18D", bits, 8)
        bits = [cell(f"lut{stage}.{n}", "LUT4", [bit])[0] for n, bit in enumerate(bits)]
        bits = cell(f"ram{stage}", "DP16KD", bits, 8)
    cell("right", "TRELLIS_IO", bits)
    order = np.random.default_rng(5).permutation(sorted(cells))
    return {"cells": {str(name): cells[str(name)] for name in order}}


def chain(places: dict[str, tuple[int, int]]) -> int:
    """Tiles from pin to pin through all multipliers and block RAMs."""
    names = ["left", *(f"{kind}{n}" for n in range(STAGES) for kind in ("dsp", "ram")), "right"]
    at = [place_of(SITES.pads[name]) if name in SITES.pads else places[name] for name in names]
    return sum(abs(a[0] - b[0]) + abs(a[1] - b[1]) for a, b in pairwise(at))


def bels(netlist: dict[str, Any]) -> dict[str, str]:
    return {name: cell["attributes"]["BEL"] for name, cell in netlist["cells"].items() if cell["attributes"]}


def test_legal_sites_each_once_and_always_the_same() -> None:
    first, second = module(), module()
    before = copy.deepcopy(first)
    place_macros(first, SITES)
    place_macros(second, SITES)
    found = bels(first)
    assert found == bels(second)
    assert set(found) == {f"{kind}{n}" for kind in ("dsp", "ram") for n in range(STAGES)}
    assert len(set(found.values())) == len(found)
    assert all(bel in SITES.macros[first["cells"][name]["type"]] for name, bel in found.items())
    for name in found:
        del first["cells"][name]["attributes"]["BEL"]
    assert first == before


def test_shorter_than_in_order_and_than_by_chance() -> None:
    netlist = module()
    place_macros(netlist, SITES)
    placed = chain({name: place_of(bel) for name, bel in bels(netlist).items()})
    draw = np.random.default_rng(3)
    others = []
    for n in range(50):
        places: dict[str, tuple[int, int]] = {}
        for name, kind in (("dsp", "MULT18X18D"), ("ram", "DP16KD")):
            sites = SITES.macros[kind]
            order = np.arange(STAGES) if n == 0 else draw.permutation(len(sites))
            places |= {f"{name}{stage}": place_of(sites[order[stage]]) for stage in range(STAGES)}
        others.append(chain(places))
    in_order, by_chance = others[0], min(others[1:])
    assert placed < in_order and placed < by_chance / 1.5


def test_a_design_without_any() -> None:
    netlist = {"cells": {"a": {"type": "LUT4", "attributes": {}, "connections": {"A": [2], "Z": [3]}}}}
    place_macros(netlist, SITES)
    assert not bels(netlist)
