"""Copies of flip-flops: every reader reads what it read before, and its copy is near."""

import copy
from typing import Any

import numpy as np
import pytest

from dovetail.flows.fpga.macros.copies import LEVELS, REACH, READERS, copy_flip_flops

CLOCK, DATA = 2, 3
FAR = 100


def cell(kind: str, inputs: dict[str, Any], output: str, bit: int, **parameters: str) -> dict[str, Any]:
    directions = dict.fromkeys(inputs, "input") | {output: "output"}
    connections = {port: [net] for port, net in inputs.items()} | {output: [bit]}
    return {"type": kind, "parameters": parameters, "port_directions": directions, "connections": connections}


def netlist(*, levels: int = 1, enable: str = "1", readers: int = 4 * READERS) -> dict[str, Any]:
    """A flip-flop behind so many LUTs, read by LUTs, each of which has another input from the flip-flop's."""
    nets = iter(range(DATA + 1, 10_000))
    cells: dict[str, Any] = {}
    bit = DATA
    for n in range(levels):
        cells[f"logic{n}"] = cell("LUT4", {"A": bit}, "Z", bit := next(nets))
    cells["register"] = cell("TRELLIS_FF", {"CLK": CLOCK, "DI": bit}, "Q", read := next(nets), CEMUX=enable)
    for n in range(readers):
        cells[f"reader{n}"] = cell("LUT4", {"A": read, "B": bit}, "Z", next(nets))
    return {"ports": {"clk": {"bits": [CLOCK]}, "data": {"bits": [DATA]}}, "cells": cells}


def places(module: dict[str, Any], *, side: float = FAR) -> np.ndarray[Any, np.dtype[np.float64]]:
    return np.random.default_rng(7).uniform(0, side, (len(module["cells"]), 2))


def of(module: dict[str, Any]) -> dict[int, str]:
    """The flip-flops by the net that they drive."""
    return {c["connections"]["Q"][0]: name for name, c in module["cells"].items() if c["type"] == "TRELLIS_FF"}


def test_readers_share_copies_within_reach() -> None:
    module = netlist()
    before, at = copy.deepcopy(module), places(module)
    copy_flip_flops(module, at)
    registers = of(module)
    assert len(registers) > 3
    assert list(module["cells"])[: len(at)] == list(before["cells"])
    groups: dict[str, list[int]] = {}
    for number, (name, was) in enumerate(before["cells"].items()):
        now = module["cells"][name]
        if name.startswith("reader"):
            groups.setdefault(registers[now["connections"]["A"][0]], []).append(number)
            now["connections"]["A"] = was["connections"]["A"]
        assert now == was
    assert groups.keys() == set(registers.values()), "every copy is read"
    for name, members in groups.items():
        box = np.ptp(at[members], axis=0).sum()
        assert box <= REACH or len(members) < READERS
        made = module["cells"][name]
        assert {**made, "connections": {**made["connections"], "Q": None}} == {
            **before["cells"]["register"],
            "connections": {**before["cells"]["register"]["connections"], "Q": None},
        }


@pytest.mark.parametrize(
    ("options", "side"),
    [
        ({"enable": "CE"}, FAR),
        ({"levels": LEVELS + 1}, FAR),
        ({"readers": READERS - 1}, FAR),
        ({}, REACH / 2),
    ],
    ids=["an enable", "late", "few readers", "near readers"],
)
def test_others_are_left_alone(options: dict[str, Any], side: float) -> None:
    module = netlist(**options)
    before = copy.deepcopy(module)
    copy_flip_flops(module, places(module, side=side))
    assert module == before
