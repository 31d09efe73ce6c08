"""A design as Yosys sees it: which outputs are registers, and which follow an input."""

import json
from collections.abc import Iterator, Mapping
from typing import Any

from amaranth._toolchain.yosys import find_yosys
from amaranth.back import rtlil
from amaranth.lib import wiring

Cell = Mapping[str, Any]


class Netlist:
    """What Yosys makes of a design before it maps or optimises anything: cells and their bits.

    A constant bit is a string, another a number. A cell whose ports Yosys does not know is taken to lead from all of
    them to all that nothing else drives.
    """

    def __init__(self, design: wiring.Component) -> None:
        text = rtlil.convert(design, name="top", emit_src=False)
        yosys = find_yosys(lambda version: version >= (0, 40))
        script = f"read_rtlil <<rtlil\n{text}\nrtlil\nproc -noopt\nflatten\nwrite_json\n"
        top = json.loads(yosys.run(["-q", "-"], script))["modules"]["top"]
        self.ports: dict[str, Cell] = top["ports"]
        self.inputs = {
            bit for name, port in self.ports.items() if port["direction"] == "input" and name not in ("clk", "rst")
            for bit in port["bits"]
        }  # fmt: skip
        self.drivers: dict[int | str, Cell] = {}
        for cell in sorted(top["cells"].values(), key=lambda cell: "port_directions" in cell):  # what is known wins
            self.drivers |= dict.fromkeys(self._bits(cell, "output"), cell)

    def _bits(self, cell: Cell, direction: str) -> Iterator[int | str]:
        """Bits of a cell's inputs or outputs."""
        for port, bits in cell["connections"].items():
            if cell.get("port_directions", {}).get(port, direction) == direction:
                yield from bits

    def outputs(self) -> Iterator[tuple[str, int | str]]:
        """Name and bit of each output's bits."""
        for name, port in self.ports.items():
            if port["direction"] == "output":
                yield from ((name, bit) for bit in port["bits"])

    def from_register(self, bit: int | str) -> bool:
        """Whether a bit comes out of a register, or of a memory's clocked read port, or is constant."""
        if isinstance(bit, str):
            return True
        cell = self.drivers.get(bit)
        if cell is None:
            return False
        return cell["type"] == "$dff" or (cell["type"] == "$memrd_v2" and int(cell["parameters"]["CLK_ENABLE"], 2) == 1)

    def reached_by_inputs(self, bit: int | str) -> bool:
        """Whether an input leads to a bit without a register."""
        seen, todo = {bit}, [bit]
        while todo:
            one = todo.pop()
            if one in self.inputs:
                return True
            if self.from_register(one) or one not in self.drivers:
                continue
            more = set(self._bits(self.drivers[one], "input")) - seen
            seen |= more
            todo += more
        return False
