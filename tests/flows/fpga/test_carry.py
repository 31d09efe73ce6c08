"""Carry chains made shorter: the same values, in fewer cells."""

import copy
import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from dovetail.flows.fpga.carry import shorten_carries
from dovetail.flows.fpga.rewrite import rewrite
from tests.flows.fpga.netlists import Values, needs_yosys, seen, synthesised

ADD, AND, MUX, XOR3 = "1001011010101010", "1000100010001000", "1100101011001010", "1001011010010110"
"""INIT of half a carry cell that adds A to B, or with C to its complement; of a LUT: A and B; C ? B : A; all three."""


def cell(kind: str, parameters: dict[str, str], inputs: dict[str, Any], outputs: dict[str, Any]) -> dict[str, Any]:
    return {
        "hide_name": 0,
        "type": kind,
        "parameters": parameters,
        "attributes": {},
        "port_directions": dict.fromkeys(inputs, "input") | dict.fromkeys(outputs, "output"),
        "connections": {port: [bit] for port, bit in {**inputs, **outputs}.items()},
    }


def adder(bits: int, *, first: str, carry: bool, lut: str = "", sums: int | None = None) -> dict[str, Any]:
    """A module that adds two numbers as Yosys writes it, with a register behind the sums. ``first``: the carry into it;
    ``carry``: the one out of it is read; ``lut``: INIT of LUTs in front of the second number; ``sums``: which are read.
    """
    nets = iter(range(2, 10_000))
    cells: dict[str, Any] = {}
    before: Any = first
    read = bits if sums is None else sums
    wanted: list[Any] = []
    for n in range(0, bits, 2):
        inputs: dict[str, Any] = {"CIN": before}
        outputs: dict[str, Any] = {}
        parameters: dict[str, str] = {}
        for at in (0, 1):
            b: Any = next(nets) if n + at < bits else "0"
            if lut and n + at < bits:
                cells[f"lut{n + at}"] = cell(
                    "LUT4", {"INIT": lut}, {p: next(nets) for p in "ABC"} | {"D": "1"}, {"Z": b}
                )
            inputs |= {f"A{at}": next(nets) if n + at < bits else "0", f"B{at}": b, f"C{at}": first, f"D{at}": "1"}
            total = next(nets)
            outputs[f"S{at}"] = total
            if n + at < min(read, bits):
                wanted.append(total)
            parameters |= {f"INIT{at}": ADD, f"INJECT1_{at}": "NO"}
        before = next(nets)
        cells[f"carry{n}"] = cell("CCU2C", parameters, inputs, outputs | {"COUT": before})
    if carry:
        wanted.append(before)
    for n, bit in enumerate(wanted):
        cells[f"ff{n}"] = cell("TRELLIS_FF", {}, {"DI": bit}, {"Q": next(nets)})
    return {"attributes": {"top": "1"}, "ports": {}, "cells": cells}


def shortened(module: dict[str, Any]) -> tuple[Counter[str], dict[str, Any]]:
    """The module with shorter chains, and its cells by type. Every register sees what it saw."""
    short = copy.deepcopy(module)
    shorten_carries(short)
    for seed in range(4):
        assert seen(module, Values(module, seed=seed)) == seen(short, Values(short, seed=seed))
    return Counter(found["type"] for found in short["cells"].values()), short


def open_ends(module: dict[str, Any]) -> list[Any]:
    """Carries into and out of chains that are connected to something: for each of them nextpnr adds a cell."""
    carries = [found["connections"] for found in module["cells"].values() if found["type"] == "CCU2C"]
    inside = {c["CIN"][0] for c in carries} & {c["COUT"][0] for c in carries}
    return [c[port][0] for c in carries for port in ("CIN", "COUT") if c[port][0] not in inside | {"x"}]


@pytest.mark.parametrize("first", ["0", "1"])
@pytest.mark.parametrize(
    ("bits", "carry", "sums", "cells"),
    [
        (7, False, None, {"CCU2C": 4}),  # a half to begin with
        (8, False, None, {"CCU2C": 4, "LUT4": 1}),  # the first sum apart
        (8, True, None, {"CCU2C": 5}),
        (8, True, 0, {"CCU2C": 5}),  # a comparison
        (4, True, 0, {"CCU2C": 3}),
        (8, False, 6, {"CCU2C": 3, "LUT4": 1}),  # sums that nobody reads
        (1, False, None, {"CCU2C": 1}),
        (2, False, 0, {}),
    ],
)
def test_chains(first: str, bits: int, carry: bool, sums: int | None, cells: dict[str, int]) -> None:
    found, short = shortened(adder(bits, first=first, carry=carry, sums=sums))
    found.pop("TRELLIS_FF", None)
    assert found == cells
    assert not open_ends(short)


@pytest.mark.parametrize(("lut", "left"), [(AND, 0), (MUX, 0), (XOR3, 7)])
def test_luts_in_front_go_into_the_carry_cells(lut: str, left: int) -> None:
    """A sum of three cannot: with two inputs low, its third would have to be what is carried."""
    found, _ = shortened(adder(7, first="0", carry=False, lut=lut))
    assert (found["CCU2C"], found["LUT4"]) == (4, left)


def test_luts_that_all_halves_read_go_in_where_that_takes_no_further_input() -> None:
    """A register that counts down or is loaded: its LUTs, and the inverter that turns the step off."""
    module = adder(7, first="0", carry=False, lut=MUX)
    for n in range(7):
        module["cells"][f"lut{n}"]["connections"]["C"] = [9000]
        module["cells"][f"carry{n - n % 2}"]["connections"][f"A{n % 2}"] = [9001]
    module["cells"]["not"] = cell("LUT4", {"INIT": "01" * 8}, {"A": 9000, "B": "0", "C": "0", "D": "0"}, {"Z": 9001})
    found, _ = shortened(module)
    assert (found["CCU2C"], found["LUT4"]) == (4, 0)


def test_lut_that_two_halves_read_goes_into_both_where_that_takes_no_further_input() -> None:
    """Two registers that step by one number, or are loaded together."""
    module = adder(3, first="0", carry=False)
    module["cells"]["step"] = cell("LUT4", {"INIT": AND}, {"A": 9000, "B": 9001, "C": "0", "D": "0"}, {"Z": 9002})
    for n, loads in ((0, 9000), (1, 9000)):
        module["cells"][f"lut{n}"] = cell(
            "LUT4", {"INIT": MUX}, {"A": 9100 + n, "B": 9200 + n, "C": loads, "D": "0"}, {"Z": 9300 + n}
        )
        connections = module["cells"]["carry0"]["connections"]
        connections[f"A{n}"], connections[f"B{n}"] = [9002], [9300 + n]
    found, _ = shortened(module)
    assert (found["CCU2C"], found["LUT4"]) == (2, 0)


def test_lut_that_something_else_reads_stays() -> None:
    module = adder(3, first="0", carry=False, lut=MUX)
    module["cells"]["other"] = cell(
        "TRELLIS_FF", {}, {"DI": module["cells"]["lut1"]["connections"]["Z"][0]}, {"Q": 9999}
    )
    found, short = shortened(module)
    assert found["LUT4"] == 1 and "lut1" in short["cells"]


def test_carry_that_is_read_within_a_chain_leaves_it_alone() -> None:
    module = adder(8, first="0", carry=False)
    inner = module["cells"]["carry2"]["connections"]["COUT"][0]
    module["cells"]["other"] = cell("TRELLIS_FF", {}, {"DI": inner}, {"Q": 9999})
    found, _ = shortened(module)
    assert found["CCU2C"] == 4


def test_values_tell_a_wrong_netlist() -> None:
    module = adder(7, first="0", carry=False)
    wrong = copy.deepcopy(module)
    wrong["cells"]["carry4"]["parameters"]["INIT0"] = ADD[::-1]
    assert seen(module, Values(module)) != seen(wrong, Values(wrong))


DESIGN = """
module top(input clk, input [23:0] a, b, c, input [2:0] s, output reg [23:0] x, y, z, output reg [3:0] f);
  reg [15:0] n = 0;
  wire [23:0] d = s[0] ? a : b;
  always @(posedge clk) begin
    x <= c + d; y <= a - (b & c); z <= s[1] ? z + a : c - z; n <= n + s[2];
    f <= {a < b, $signed(b) >= $signed(c), a == c, n[15]};
  end
endmodule
"""


@needs_yosys
def test_what_yosys_makes(tmp_path: Path) -> None:
    """Sums, differences, comparisons and counts of a netlist of Yosys's, before and after."""
    path = synthesised(DESIGN, tmp_path)
    before = json.loads(path.read_text())["modules"]["top"]
    change = rewrite(path, shorten_carries)
    after = json.loads(path.read_text())["modules"]["top"]
    for seed in range(8):
        assert seen(before, Values(before, seed=seed)) == seen(after, Values(after, seed=seed))
    assert change["LUT4"] < 0 and not open_ends(after) and open_ends(before)
