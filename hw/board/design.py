"""The top level of a board: accelerator or system, system memory and host link."""

from typing import Any

from amaranth import Module
from amaranth.lib import wiring
from amaranth.lib.fifo import SyncFIFO
from amaranth.lib.wiring import In, Out

from dovetail.hw.accelerator import HOST_PREFIX, MEMORY_PREFIX, Accelerator
from dovetail.hw.board.link import HostLink
from dovetail.hw.board.memory import BoardMemory
from dovetail.hw.board.sdram import SdramPins
from dovetail.hw.board.uart import divisor_of
from dovetail.hw.common.ports import part
from dovetail.hw.system.design import TRACE, SystemDesign, prefix_of
from dovetail.isa.config.memory import PLACES
from dovetail.isa.config.resolved import Config
from dovetail.isa.config.system import System, configs_of
from dovetail.isa.host import ADDRESS_BITS
from dovetail.isa.link import MEMORIES, VERSION, Board


class BoardDesign(wiring.Component):
    """Everything on a board but its clock and pins; one clock domain, ``sync``.

    Parameters
    ----------
    design: the accelerator, or a system of them. The memory of a system is the board's, whatever its file says.
    clock_hz: frequency of ``sync``.
    baud: bits per second of the UART.
    memory: system memory.
    simulation: build the simulation forms, see :class:`~dovetail.hw.accelerator.Accelerator`, and the members
        ``a<number>_trace_*``: what accelerators show.

    Members
    -------
    rx, tx: the UART, seen from the board.
    busy: a request is being taken or answered, or a program that START began is running.
    fault: the last request was broken or refused.
    sdram: pins of the chip, with that kind of memory; see :class:`~dovetail.hw.board.sdram.SdramPins`.

    Raises
    ------
    ValueError
        When the bit rate cannot be had from the clock, the memory not with bus or clock, when accelerators have
        different buses, or more bursts outstanding than the rule of SDRAM has places for.
    """

    def __init__(
        self, design: Config | System, *, clock_hz: int, baud: int, memory: BoardMemory, simulation: bool = False
    ) -> None:
        self.configs = configs_of(design)
        bus = self.configs[0].bus
        if any(config.bus != bus for config in self.configs) or getattr(design, "memory_bus", bus) != bus:
            raise ValueError("accelerators of a board must all have the bus of its memory")
        self._in_flight = sum(config.outstanding for config in self.configs)
        if memory.chip and self._in_flight > PLACES:
            bursts = f"at most {PLACES} bursts outstanding, all together"
            raise ValueError(f"accelerators of a board with SDRAM must have {bursts}, not {self._in_flight}")
        windows: tuple[int, ...] = (0,)
        bits = ADDRESS_BITS
        self._inner: Any
        if isinstance(design, System):
            windows, bits = tuple(part.registers for part in design.accelerators), 32
            self._inner = SystemDesign(design, simulation=simulation)
        else:
            self._inner = Accelerator(design, simulation=simulation)
        self.memory = memory
        board = Board(VERSION, memory.bytes, clock_hz, MEMORIES.index(memory.kind), len(self.configs))
        self._link = HostLink(board, divisor=divisor_of(clock_hz, baud), windows=windows, address_bits=bits)
        self._memory = memory.component(bus=bus, outstanding=self._in_flight, clock_hz=clock_hz, simulation=simulation)
        members: dict[str, Any] = {"rx": In(1), "tx": Out(1), "busy": Out(1), "fault": Out(1)}
        if memory.chip:
            members["sdram"] = Out(SdramPins(memory.chip))
        self._traces = {
            name if isinstance(design, System) else prefix_of(0) + name: name
            for name in self._inner.signature.members
            if TRACE in name
        }
        members |= {shown: self._inner.signature.members[name] for shown, name in self._traces.items()}
        super().__init__(members)

    def elaborate(self, platform: object) -> Module:
        m = Module()
        link, memory, inner = self._link, self._memory, self._inner
        m.submodules.accelerator = inner
        m.submodules.link = link
        m.submodules.memory = memory
        for prefix, port in (
            (HOST_PREFIX, link.registers),
            (MEMORY_PREFIX, memory.port.read),
            (MEMORY_PREFIX, memory.port.write),
        ):
            wiring.connect(m, part(inner, port.signature, prefix), port)
        if isinstance(inner, SystemDesign):
            self._return_ids(m, memory.port)
        wiring.connect(m, link.memory, memory.port.link)
        if self.memory.chip:
            wiring.connect(m, memory.pins, wiring.flipped(self.sdram))
        m.d.comb += [getattr(self, shown).eq(getattr(inner, name)) for shown, name in self._traces.items()]
        m.d.comb += [
            link.rx.eq(self.rx),
            link.irq.eq(inner.irq),
            self.tx.eq(link.tx),
            self.busy.eq(~link.idle | link.running.any()),
            self.fault.eq(link.refused),
        ]
        return m

    def _return_ids(self, m: Module, port: Any) -> None:
        """Memory answers in order and knows no ids: the interconnect gets back those that came with the addresses."""
        for way, address, answer, ends in (
            (port.read, "ar", "r", port.read.rlast),
            (port.write, "aw", "b", 1),
        ):
            given, back = (getattr(self._inner, f"{MEMORY_PREFIX}{channel}id") for channel in (address, answer))
            m.submodules[f"{answer}_ids"] = ids = SyncFIFO(width=len(given), depth=self._in_flight)
            m.d.comb += [
                ids.w_data.eq(given),
                ids.w_en.eq(getattr(way, f"{address}valid") & getattr(way, f"{address}ready")),
                ids.r_en.eq(getattr(way, f"{answer}valid") & ends),
                back.eq(ids.r_data),
            ]
