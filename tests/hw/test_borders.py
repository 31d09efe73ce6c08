"""The accelerator's borders: every output of a bus is a register, and no input reaches an output without one."""

import json
from collections.abc import Iterator, Mapping
from typing import Any

import pytest
from amaranth import Module, Mux, Signal
from amaranth._toolchain.yosys import find_yosys
from amaranth.back import rtlil
from amaranth.lib import memory, wiring
from amaranth.lib.wiring import In, Out

from dovetail.hw.accelerator import HOST_PREFIX, MEMORY_PREFIX, Accelerator
from dovetail.isa.config.resolved import Config

FORMS = {
    "parallel": Config(pe=8, sram="32 KiB", banks=4, depthwise="none", elementwise=False, activation=False),
    "microcoded": Config.load("icebreaker"),
}
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


@pytest.mark.parametrize("form", FORMS)
def test_buses_end_in_registers(form: str) -> None:
    top = Accelerator(FORMS[form], simulation=False, trace=True)
    netlist = Netlist(top)
    names = {name for name, _ in netlist.outputs()}
    assert names == {name for name, member in top.signature.members.items() if member.flow == Out}
    assert sum(name.startswith((HOST_PREFIX, MEMORY_PREFIX)) for name in names) == 8 + 16, "AXI4-Lite, AXI4"
    loose = {name for name, bit in netlist.outputs() if not netlist.from_register(bit)}
    assert sorted(name for name in loose if name.startswith((HOST_PREFIX, MEMORY_PREFIX))) == []
    assert sorted(name for name, bit in netlist.outputs() if netlist.reached_by_inputs(bit)) == []


class Paths(wiring.Component):
    """Outputs of every kind that the walk tells apart."""

    def __init__(self) -> None:
        members = ("register", "logic", "through", "clocked", "read", "constant")
        super().__init__({"i": In(4)} | {name: Out(1) for name in members})

    def elaborate(self, platform: object) -> Module:
        m = Module()
        m.submodules.cells = cells = memory.Memory(shape=1, depth=16, init=[])
        clocked, read = cells.read_port(), cells.read_port(domain="comb")
        other = Signal()
        m.d.sync += [self.register.eq(self.i[0]), other.eq(~other)]
        m.d.comb += [
            clocked.addr.eq(self.i),
            read.addr.eq(self.i),
            self.logic.eq(self.register & other),
            self.through.eq(Mux(other, self.i[1], self.register)),
            self.clocked.eq(clocked.data),
            self.read.eq(read.data),
            self.constant.eq(1),
        ]
        return m


def test_the_walk_sees_paths() -> None:
    netlist = Netlist(Paths())
    bits = dict(netlist.outputs())
    assert {name for name, bit in bits.items() if netlist.from_register(bit)} == {"register", "clocked", "constant"}
    assert {name for name, bit in bits.items() if netlist.reached_by_inputs(bit)} == {"through", "read"}
