"""The SoC: processor, accelerator and peripheral before one memory."""

from amaranth import Module
from amaranth.lib import wiring
from amaranth.lib.wiring import Out

from dovetail.hw.accelerator import HOST_PREFIX, MEMORY_PREFIX, Accelerator
from dovetail.hw.common.axi import AxiRead, AxiWrite
from dovetail.hw.common.ports import part
from dovetail.hw.soc.bridge import POSTED, Bridge
from dovetail.hw.soc.peripheral import Peripheral
from dovetail.hw.soc.vexriscv import VexRiscv
from dovetail.hw.system.channels import id_bits
from dovetail.hw.system.decoder import HostDecoder
from dovetail.hw.system.interconnect import Interconnect, Manager
from dovetail.isa.config.resolved import Config
from dovetail.isa.host import ADDRESS_BITS

REGISTERS = 0xF000_0000
"""Where the processor finds the accelerator's registers; those of the peripheral come behind them."""
PERIPHERAL = REGISTERS + (1 << ADDRESS_BITS)
ACCELERATOR, PROCESSOR = range(2)
"""Ids at memory."""
TRACE = "trace_"


class SocDesign(wiring.Component):
    """Clock ``clk`` and reset ``rst`` come with the sync domain and are those of all. The processor begins at address 0
    of memory. The module of the processor is that of :func:`~dovetail.hw.soc.vexriscv.vexriscv_verilog`.

    Parameters
    ----------
    config: the accelerator.
    simulation: build the simulation form, see :class:`~dovetail.hw.accelerator.Accelerator`.

    Members
    -------
    m_axi_*: AXI4 manager, system memory; the id says who asks.
    told, topic, value: of the :class:`~dovetail.hw.soc.peripheral.Peripheral`.
    error: an access of the processor was answered with an error; stays set.
    trace_*: what the accelerator shows, with the simulation form.

    Latency
    -------
    See :class:`~dovetail.hw.soc.bridge.Bridge`, :class:`~dovetail.hw.system.interconnect.Interconnect` and
    :class:`~dovetail.hw.system.decoder.HostDecoder`.
    """

    def __init__(self, config: Config, *, simulation: bool) -> None:
        self.config = config
        self._accelerator = Accelerator(config, simulation=simulation)
        bits = id_bits(2)
        members = {"told": Out(1), "topic": Out(ADDRESS_BITS), "value": Out(32), "error": Out(1)}
        for channels in (AxiRead(config.bus, bits), AxiWrite(config.bus, bits)):
            members |= {f"{MEMORY_PREFIX}{name}": member for name, member in channels.members.items()}
        self._traces = [name for name in self._accelerator.signature.members if name.startswith(TRACE)]
        members |= {name: self._accelerator.signature.members[name] for name in self._traces}
        super().__init__(members)

    def elaborate(self, platform: object) -> Module:
        m = Module()
        config = self.config
        m.submodules.accelerator = accelerator = self._accelerator
        m.submodules.processor = processor = VexRiscv()
        m.submodules.bridge = bridge = Bridge()
        m.submodules.peripheral = peripheral = Peripheral()
        m.submodules.decoder = decoder = HostDecoder([REGISTERS, PERIPHERAL])
        m.submodules.interconnect = interconnect = Interconnect(
            [Manager(config.bus, config.outstanding), Manager(32, POSTED)], bus=config.bus
        )
        wiring.connect(m, processor.instructions, bridge.instructions)
        wiring.connect(m, processor.data, bridge.data)
        wiring.connect(m, bridge.registers, decoder.bus)
        wiring.connect(m, part(accelerator, decoder.accelerators[0].signature, HOST_PREFIX), decoder.accelerators[0])
        wiring.connect(m, decoder.accelerators[1], peripheral.bus)
        wiring.connect(m, bridge.read, getattr(interconnect, f"read{PROCESSOR}"))
        wiring.connect(m, bridge.write, getattr(interconnect, f"write{PROCESSOR}"))
        for way in ("read", "write"):
            port = getattr(interconnect, f"{way}{ACCELERATOR}")
            wiring.connect(m, part(accelerator, port.signature, MEMORY_PREFIX), port)
            memory = getattr(interconnect, f"memory_{way}")
            wiring.connect(m, part(wiring.flipped(self), memory.signature, MEMORY_PREFIX), memory)
        m.d.comb += [processor.irq.eq(accelerator.irq), self.error.eq(bridge.error)]
        m.d.comb += [getattr(self, name).eq(getattr(peripheral, name)) for name in ("told", "topic", "value")]
        m.d.comb += [getattr(self, name).eq(getattr(accelerator, name)) for name in self._traces]
        return m
