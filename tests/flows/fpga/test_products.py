"""Registers behind multipliers: which ones go into them."""

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from dovetail.flows.fpga.products import register_products
from dovetail.flows.fpga.rewrite import rewrite
from tests.flows.fpga.netlists import needs_yosys, synthesised

PLAIN = {"GSR": "DISABLED", "CEMUX": "1 ", "CLKMUX": "CLK", "LSRMUX": "LSR", "REGSET": "RESET"}
"""As Yosys writes them, blanks too."""


def module() -> dict[str, Any]:
    """A product of two bits, each with a flip-flop that a LUT reads."""
    cells: dict[str, Any] = {
        "product": {
            "type": "MULT18X18D",
            "parameters": {},
            "port_directions": {"A0": "input", "P0": "output", "P1": "output", "P2": "output"},
            "connections": {"A0": [5], "P0": [10], "P1": [11], "P2": [12]},
        },
        "sum": {
            "type": "LUT4",
            "parameters": {},
            "port_directions": {"A": "input", "B": "input", "Z": "output"},
            "connections": {"A": [20], "B": [21], "Z": [30]},
        },
    }
    for n in range(2):
        cells[f"ff{n}"] = {
            "type": "TRELLIS_FF",
            "parameters": dict(PLAIN),
            "port_directions": {"CLK": "input", "DI": "input", "LSR": "input", "Q": "output"},
            "connections": {"CLK": [2], "DI": [10 + n], "LSR": ["0"], "Q": [20 + n]},
        }
    return {"attributes": {"top": "1"}, "ports": {"out": {"direction": "output", "bits": [30]}}, "cells": cells}


def test_they_become_the_multipliers_own() -> None:
    netlist = module()
    register_products(netlist)
    assert set(netlist["cells"]) == {"product", "sum"}
    product = netlist["cells"]["product"]
    assert product["parameters"] == {"REG_OUTPUT_CLK": "CLK0", "GSR": "DISABLED"}
    pins = {"CLK0": [2], "CE0": ["1"], "RST0": ["0"]}  # always enabled, never reset
    assert product["connections"] == {"A0": [5], "P0": [20], "P1": [21], "P2": [12], **pins}
    assert all(product["port_directions"][pin] == "input" for pin in pins)


@pytest.mark.parametrize(
    ("cell", "key", "value"),
    [
        ("ff1", "CEMUX", "CE"),
        ("ff1", "CLKMUX", "INV"),
        ("ff1", "REGSET", "SET"),
        ("ff1", "GSR", "ENABLED"),
        ("ff1", "LSRMUX", "INV"),
        ("ff1", "LSR", [9]),
        ("ff1", "CLK", [3]),
        ("ff1", "CLK", ["0"]),
        ("sum", "A", [11]),
        ("sum", "A", [12]),
        ("product", "REG_OUTPUT_CLK", "NONE"),
    ],
)
def test_what_has_to_stay(cell: str, key: str, value: Any) -> None:
    netlist = module()
    netlist["cells"][cell]["connections" if isinstance(value, list) else "parameters"][key] = value
    before = json.dumps(netlist)
    register_products(netlist)
    assert json.dumps(netlist) == before


def test_a_product_that_leaves_the_design_stays() -> None:
    netlist = module()
    netlist["ports"]["out"]["bits"] = [11]
    before = json.dumps(netlist)
    register_products(netlist)
    assert json.dumps(netlist) == before


DESIGN = """
module top (
    input clk, input en, input signed [17:0] a, b, c, output reg signed [35:0] plain, output reg signed [35:0] enabled
);
    always @(posedge clk) plain <= a * b;
    always @(posedge clk) if (en) enabled <= a * c;
endmodule
"""


@needs_yosys
def test_what_yosys_makes(tmp_path: Path) -> None:
    change = rewrite(synthesised(DESIGN, tmp_path), register_products)
    assert change == Counter({"TRELLIS_FF": -36})  # the other product has an enable
