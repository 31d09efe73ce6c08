"""The processor: VexRiscv, as the Python package pythondata-cpu-vexriscv brings it."""

import importlib.util
from pathlib import Path

from amaranth import Cat, ClockSignal, Const, Instance, Module, ResetSignal, Signal
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from dovetail.isa.common.cplusplus import ToolError

PACKAGE = "pythondata_cpu_vexriscv"
MODULE = "VexRiscv"
"""RV32IM; caches of 4 KiB for instructions and for data, lines of 32 bytes, written through; fast multiplier."""
LINE_WORDS = 8
UNCACHED_BIT = 31
"""Of an address: set where the data cache is passed by."""
BURST = 2
"""Wishbone's CTI of a word that another one of the same line follows."""


class Wishbone(wiring.Signature):
    """Wishbone with words of 32 bits, seen from the manager. A cache line is read word by word, in order."""

    def __init__(self) -> None:
        super().__init__(
            {
                "cyc": Out(1),
                "stb": Out(1),
                "we": Out(1),
                "adr": Out(30),
                "sel": Out(4),
                "cti": Out(3),
                "dat_mosi": Out(32),
                "dat_miso": In(32),
                "ack": In(1),
            }
        )


class VexRiscv(wiring.Component):
    """The core. It begins at address 0; an error on its buses passes it by unseen.

    Members
    -------
    instructions: reads of whole lines.
    data: reads of whole lines, or single accesses where addresses have :data:`UNCACHED_BIT`; writes, always single.
    irq: bit 0 of the external interrupts (CSR 0xBC0 masks them, 0xFC0 shows them).
    """

    def __init__(self) -> None:
        super().__init__({"instructions": Out(Wishbone()), "data": Out(Wishbone()), "irq": In(1)})

    def elaborate(self, platform: object) -> Module:
        m = Module()
        ports = {}
        for name, bus in (("iBusWishbone", self.instructions), ("dBusWishbone", self.data)):
            for member, way in Wishbone().members.items():
                letter = "o" if way.flow == Out else "i"
                ports[f"{letter}_{name}_{member.upper()}"] = getattr(bus, member)
            ports[f"i_{name}_ERR"] = Const(0)
            ports[f"o_{name}_BTE"] = Signal(2, name=f"{name}_bte")
        m.submodules.core = Instance(
            MODULE,
            i_clk=ClockSignal(),
            i_reset=ResetSignal(),
            i_externalResetVector=Const(0, 32),
            i_timerInterrupt=Const(0),
            i_softwareInterrupt=Const(0),
            i_externalInterruptArray=Cat(self.irq, Const(0, 31)),
            **ports,
        )
        return m


def vexriscv_verilog() -> dict[str, str]:
    """The core's Verilog, by file name. Raises :class:`ToolError` where the package is missing."""
    spec = importlib.util.find_spec(PACKAGE)
    if spec is None or spec.origin is None:
        raise ToolError('the SoC needs the processor VexRiscv: pip install "dovetail[soc]"')
    path = Path(spec.origin).parent / "verilog" / f"{MODULE}.v"
    if not path.is_file():
        raise ToolError(f"{path} must be there; reinstall the Python package pythondata-cpu-vexriscv")
    return {path.name: path.read_text()}
