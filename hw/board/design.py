"""The top level of a board: accelerator, system memory and host link."""

from typing import Any

from amaranth import Module
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from dovetail.hw.accelerator import HOST_PREFIX, MEMORY_PREFIX, Accelerator
from dovetail.hw.board.link import HostLink
from dovetail.hw.board.memory import BoardMemory
from dovetail.hw.board.sdram import SdramPins
from dovetail.hw.board.uart import divisor_of
from dovetail.hw.common.ports import part
from dovetail.isa.config.resolved import Config
from dovetail.isa.link import VERSION, Board


class BoardDesign(wiring.Component):
    """Everything on a board but its clock and pins; one clock domain, ``sync``.

    Parameters
    ----------
    config: the accelerator.
    clock_hz: frequency of ``sync``.
    baud: bits per second of the UART.
    memory: system memory.
    simulation: build the simulation forms, see :class:`~dovetail.hw.accelerator.Accelerator`.

    Members
    -------
    rx, tx: the UART, seen from the board.
    busy: a request is being taken or answered, or a program that START began is running.
    fault: the last request was broken or refused.
    sdram: pins of the chip, with that kind of memory; see :class:`~dovetail.hw.board.sdram.SdramPins`.

    Raises
    ------
    ValueError
        When the bit rate cannot be had from the clock, or the memory not with bus or clock.
    """

    def __init__(
        self, config: Config, *, clock_hz: int, baud: int, memory: BoardMemory, simulation: bool = False
    ) -> None:
        self.config = config
        self.clock_hz = clock_hz
        self.baud = baud
        self.memory = memory
        self.simulation = simulation
        self._link = HostLink(
            Board(version=VERSION, memory_bytes=memory.bytes, clock_hz=clock_hz), divisor=divisor_of(clock_hz, baud)
        )
        self._memory = memory.component(config, clock_hz=clock_hz, simulation=simulation)
        members: dict[str, Any] = {"rx": In(1), "tx": Out(1), "busy": Out(1), "fault": Out(1)}
        if memory.chip:
            members["sdram"] = Out(SdramPins(memory.chip))
        super().__init__(members)

    def elaborate(self, platform: object) -> Module:
        m = Module()
        link, memory = self._link, self._memory
        accelerator = Accelerator(self.config, simulation=self.simulation, trace=False)
        m.submodules.accelerator = accelerator
        m.submodules.link = link
        m.submodules.memory = memory
        for prefix, port in (
            (HOST_PREFIX, link.registers),
            (MEMORY_PREFIX, memory.port.read),
            (MEMORY_PREFIX, memory.port.write),
        ):
            wiring.connect(m, part(accelerator, port.signature, prefix), port)
        wiring.connect(m, link.memory, memory.port.link)
        if self.memory.chip:
            wiring.connect(m, memory.pins, wiring.flipped(self.sdram))
        m.d.comb += [
            link.rx.eq(self.rx),
            link.irq.eq(accelerator.irq),
            self.tx.eq(link.tx),
            self.busy.eq(~link.idle | link.running),
            self.fault.eq(link.refused),
        ]
        return m
