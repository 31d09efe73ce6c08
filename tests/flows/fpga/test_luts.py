"""LUTs that a netlist can do without: everything sees what it saw, with fewer of them."""

import copy
import json
from collections import Counter
from pathlib import Path
from random import Random
from typing import Any

import pytest

from dovetail.flows.fpga.luts import save_luts
from dovetail.flows.fpga.rewrite import rewrite
from tests.flows.fpga.netlists import Values, needs_yosys, seen, synthesised

NOT = "01" * 8
"""INIT of a LUT that inverts its input A."""
A, B, C, D, CHOICE, OTHER = range(2, 8)
"""Nets that nothing drives."""


def cell(kind: str, parameters: dict[str, str], inputs: dict[str, Any], outputs: dict[str, Any]) -> dict[str, Any]:
    return {
        "hide_name": 0,
        "type": kind,
        "parameters": parameters,
        "attributes": {},
        "port_directions": dict.fromkeys(inputs, "input") | dict.fromkeys(outputs, "output"),
        "connections": {port: [bit] for port, bit in {**inputs, **outputs}.items()},
    }


def lut(inputs: tuple[Any, ...], output: int, *, seed: int) -> dict[str, Any]:
    init = f"{Random(seed).getrandbits(16):016b}"
    return cell("LUT4", {"INIT": init}, dict(zip("ABCD", (*inputs, "0", "0", "0", "0"), strict=False)), {"Z": output})


def function(*inputs: tuple[Any, ...]) -> dict[str, Any]:
    """A function of four LUTs with these inputs, and a register behind it."""
    cells: dict[str, Any] = {f"lut{n}": lut(each, 20 + n, seed=n) for n, each in enumerate(inputs)}
    for n in range(2):
        cells[f"mux{n}"] = cell("PFUMX", {}, {"C0": CHOICE, "BLUT": 20 + 2 * n, "ALUT": 21 + 2 * n}, {"Z": 30 + n})
    cells["whole"] = cell("L6MUX21", {}, {"SD": OTHER, "D0": 30, "D1": 31}, {"Z": 40})
    cells["ff"] = cell("TRELLIS_FF", {}, {"DI": 40}, {"Q": 41})
    return {"attributes": {"top": "1"}, "ports": {}, "cells": cells}


def saved(module: dict[str, Any]) -> Counter[str]:
    """The cells that are left, by type. Everything sees what it saw."""
    after = copy.deepcopy(module)
    save_luts(after)
    for seed in range(4):
        assert seen(module, Values(module, seed=seed)) == seen(after, Values(after, seed=seed))
    return Counter(found["type"] for found in after["cells"].values() if found["type"] != "TRELLIS_FF")


@pytest.mark.parametrize(
    ("inputs", "left"),
    [
        ([(A, B, C, D)] * 4, {"LUT4": 4, "PFUMX": 2, "L6MUX21": 1}),
        ([(A, B, C), (A, C), (A,), (B, CHOICE, D)], {"LUT4": 2, "PFUMX": 1}),
        ([(A, B, C, D), (A, B, C, D), (A,), ("1", "0")], {"LUT4": 3, "PFUMX": 1}),
        ([(A,), (), (A, B, C, D), (A, B)], {"LUT4": 3, "PFUMX": 1}),
        ([(A, B, C, D), (A, B, C, D), (A, B), (C,)], {"LUT4": 4, "PFUMX": 2, "L6MUX21": 1}),
    ],
    ids=["six inputs", "four in either half", "two in the upper half", "two in the lower half", "four beside five"],
)
def test_functions(inputs: list[tuple[Any, ...]], left: dict[str, int]) -> None:
    assert saved(function(*inputs)) == left


@pytest.mark.parametrize("bit", [20, 23, 30, 31])
def test_what_something_else_reads_stays(bit: int) -> None:
    module = function((A,), (B,), (A,), (B,))
    module["cells"]["other"] = cell("TRELLIS_FF", {}, {"DI": bit}, {"Q": 99})
    found = saved(module)
    assert found["LUT4"] >= 3 and found["PFUMX"] >= 1


def test_half_of_a_function_of_seven_inputs_stays() -> None:
    """nextpnr refuses anything but a multiplexer before its last one."""
    module = function((A,), (B,), (A,), (B,))
    module["cells"]["last"] = cell("L6MUX21", {}, {"SD": 50, "D0": 40, "D1": 51}, {"Z": 52})
    module["cells"]["ff"]["connections"]["DI"] = [52]
    assert saved(module) == {"LUT4": 4, "PFUMX": 2, "L6MUX21": 2}


def registered(**cells: dict[str, Any]) -> dict[str, Any]:
    """Cells, and a register behind each net that is not read."""
    read = {bit for each in cells.values() for port, (bit,) in each["connections"].items() if port != "Z"}
    ends = [each["connections"]["Z"][0] for each in cells.values() if each["connections"]["Z"][0] not in read]
    behind = {f"ff{n}": cell("TRELLIS_FF", {}, {"DI": bit}, {"Q": 90 + n}) for n, bit in enumerate(ends)}
    return {"attributes": {"top": "1"}, "ports": {}, "cells": {**cells, **behind}}


@pytest.mark.parametrize(
    ("first", "readers", "left"),
    [
        ((A, B), [(20, C, D)], 1),
        ((A, B, C), [(A, 20, D), (B, 20, C, D)], 2),
        ((A, B), [(20, B, C, D)], 1),
        ((A, B), [(20, C, D, OTHER)], 2),
        ((A, B), [(20, C, D), (20, C, D, OTHER)], 3),
    ],
    ids=["room", "room in both", "a common input", "no room", "no room in one"],
)
def test_luts_before_luts(first: tuple[Any, ...], readers: list[tuple[Any, ...]], left: int) -> None:
    luts = {f"lut{n}": lut(each, 20 + n, seed=n) for n, each in enumerate([first, *readers])}
    assert saved(registered(**luts)) == {"LUT4": left}


def test_lut_that_a_register_reads_too_stays() -> None:
    module = registered(lut0=lut((A, B), 20, seed=0), lut1=lut((20, C), 21, seed=1))
    module["cells"]["other"] = cell("TRELLIS_FF", {}, {"DI": 20}, {"Q": 99})
    assert saved(module) == {"LUT4": 2}


def test_lut_that_leaves_the_module_stays() -> None:
    module = registered(lut0=lut((A, B), 20, seed=0), lut1=lut((20, C), 21, seed=1))
    module["ports"]["out"] = {"direction": "output", "bits": [20]}
    assert saved(module) == {"LUT4": 2}


@pytest.mark.parametrize(
    ("halves", "reader", "left"),
    [
        (((A, B, C, D), ()), (30, OTHER), {"LUT4": 2}),
        (((A,), (A, B, C, D)), (30, OTHER), {"LUT4": 2}),
        (((A, B), (A, B, C, D)), (30, OTHER), {"LUT4": 3, "PFUMX": 1}),
    ],
    ids=["a constant half", "half of one input", "no room"],
)
def test_functions_of_five_inputs_before_luts(
    halves: tuple[tuple[Any, ...], ...], reader: tuple[Any, ...], left: dict[str, int]
) -> None:
    luts = {f"lut{n}": lut(each, 20 + n, seed=n) for n, each in enumerate(halves)}
    mux = cell("PFUMX", {}, {"C0": CHOICE, "BLUT": 20, "ALUT": 21}, {"Z": 30})
    assert saved(registered(**luts, mux=mux, reader=lut(reader, 31, seed=2))) == left


def resets(*, data: bool) -> dict[str, Any]:
    """Three flip-flops, of which two are reset by an inverted net; ``data``: the third one takes that as its data."""
    inverter = cell("LUT4", {"INIT": NOT}, {"A": A, "B": "0", "C": "0", "D": "0"}, {"Z": 20})
    cells = {"not": inverter}
    for n in range(3):
        inputs = {"DI": B, "LSR": 20} if n < 2 else {"DI": 20 if data else B, "LSR": C}
        cells[f"ff{n}"] = cell("TRELLIS_FF", {"LSRMUX": "LSR "}, inputs, {"Q": 30 + n})
    return {"attributes": {"top": "1"}, "ports": {}, "cells": cells}


def test_flip_flops_invert_their_reset() -> None:
    assert saved(resets(data=False)) == {}
    module = resets(data=False)
    save_luts(module)
    muxes = {name: found["parameters"]["LSRMUX"].strip() for name, found in module["cells"].items()}
    assert muxes == {"ff0": "INV", "ff1": "INV", "ff2": "LSR"}


def test_inverter_that_something_else_reads_stays() -> None:
    assert saved(resets(data=True)) == {"LUT4": 1}


DESIGN = """
module top(input clk, input [7:0] a, input [2:0] s, input n, output reg x, output reg [7:0] y);
  always @(posedge clk) begin
    case (s) 0: x <= a[0] & a[1]; 1: x <= a[2] ^ a[3]; 2: x <= a[4] | a[5]; 3: x <= a[6]; default: x <= s[0]; endcase
    if (!n) y <= 0; else y <= y + a;
  end
endmodule
"""


@needs_yosys
def test_what_yosys_makes(tmp_path: Path) -> None:
    path = synthesised(DESIGN, tmp_path)
    before = json.loads(path.read_text())["modules"]["top"]
    change = rewrite(path, save_luts)
    after = json.loads(path.read_text())["modules"]["top"]
    for seed in range(8):
        assert seen(before, Values(before, seed=seed)) == seen(after, Values(after, seed=seed))
    assert change["LUT4"] < 0
