"""The accelerator's borders: every output of a bus is a register, and no input reaches an output without one."""

import pytest
from amaranth import Module, Mux, Signal
from amaranth.lib import memory, wiring
from amaranth.lib.wiring import In, Out

from dovetail.hw.accelerator import HOST_PREFIX, MEMORY_PREFIX, Accelerator
from dovetail.isa.config.resolved import Config
from tests.hw.netlist import Netlist

FORMS = {
    "parallel": Config(pe=8, sram="32 KiB", banks=4, depthwise="none", elementwise=False, activation=False),
    "microcoded": Config.load("icebreaker"),
}


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
