"""Registers behind the multipliers of an ECP5 netlist, moved into them between Yosys and nextpnr.

A MULT18X18D has a register at its output, which Yosys leaves unused: what a design registers right behind a product
costs flip-flops, and wires of their own to them. Here they become that register, if all bits of the product go into
flip-flops of one clock and nowhere else, which are without enable and reset.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

MULTIPLIER, FLIP_FLOP = "MULT18X18D", "TRELLIS_FF"
PRODUCT = re.compile(r"P\d+")
PLAIN = {"CEMUX": "1", "CLKMUX": "CLK", "LSRMUX": "LSR", "REGSET": "RESET"}
"""Parameters of a flip-flop that is always enabled and starts at 0, as the register does."""


def register_products(module: dict[str, Any]) -> None:
    """Does so in a module as Yosys writes it in JSON; changes it in place."""
    cells = module["cells"]
    readers: dict[int, list[str]] = {}
    for name, bit in _read(module):
        readers.setdefault(bit, []).append(name)
    for cell in [cell for cell in cells.values() if cell["type"] == MULTIPLIER]:
        ports = {port: bits[0] for port, bits in cell["connections"].items() if PRODUCT.fullmatch(port) and bits}
        used = {port: readers[bit] for port, bit in ports.items() if readers.get(bit)}
        if any(len(names) > 1 for names in used.values()):
            continue
        behind = {port: names[0] for port, names in used.items()}
        found = {_plain(cells.get(name), ports[port]) for port, name in behind.items()}
        register = found.pop() if len(found) == 1 else None
        if register is None or "REG_OUTPUT_CLK" in cell["parameters"]:
            continue
        clock, gsr = register
        cell["parameters"] |= {"REG_OUTPUT_CLK": "CLK0", "GSR": gsr}
        cell["connections"] |= {"CLK0": [clock], "CE0": ["1"], "RST0": ["0"]}  # 1 where they are not connected
        cell["port_directions"] |= dict.fromkeys(("CLK0", "CE0", "RST0"), "input")
        for port, name in behind.items():
            cell["connections"][port] = cells.pop(name)["connections"]["Q"]


def _read(module: dict[str, Any]) -> Iterator[tuple[str, int]]:
    """All nets that are read, with the cell that does; an empty name for a port of the module."""
    for port in module["ports"].values():
        yield from (("", bit) for bit in port["bits"] if isinstance(bit, int))
    for name, cell in module["cells"].items():
        for port, bits in cell["connections"].items():
            if cell["port_directions"][port] != "output":
                yield from ((name, bit) for bit in bits if isinstance(bit, int))


def _plain(cell: dict[str, Any] | None, product: int) -> tuple[int, str] | None:
    """The clock of a plain flip-flop that takes a bit of a product, and whether the global reset clears it; None for
    anything else."""
    if cell is None or cell["type"] != FLIP_FLOP:
        return None
    parameters = {name: value.strip() for name, value in cell["parameters"].items()}
    pins = {port: bits[0] for port, bits in cell["connections"].items() if bits}
    clock = pins.get("CLK")
    plain = all(parameters.get(name, value) == value for name, value in PLAIN.items())
    if not plain or pins.get("DI") != product or pins.get("LSR", "0") != "0" or "Q" not in pins:
        return None
    return (clock, parameters.get("GSR", "ENABLED")) if isinstance(clock, int) else None
