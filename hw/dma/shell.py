"""What LOAD and STORE share: registers, checks and claims, addresses on the bus, the walk over the beats."""

from typing import Any

from amaranth import Module, Signal
from amaranth.lib import wiring
from amaranth.utils import exact_log2

from dovetail.hw.common.axi import INCR
from dovetail.hw.common.ports import Check, part
from dovetail.hw.dma.burst import Beat, BeatWalker, BurstWalker
from dovetail.hw.dma.registers import DmaRegisters
from dovetail.isa.config.resolved import Config
from dovetail.isa.instructions.table import Unit


class DmaShell:
    """The shell of a DMA unit, added to its module; the unit's core moves the data.

    Parameters
    ----------
    m: module of the core.
    unit: LOAD or STORE.
    dma: the core, with ``config``, ``core``, ``base``, ``axi`` and ``sram``.

    Attributes
    ----------
    issued: a burst's address goes out.
    answered: to be driven: a burst's last answer comes.
    in_flight: bursts without it, at most ``outstanding``.
    last_address: all addresses are out.
    beats: the walk over the beats; its ``advance`` is to be driven.
    beat, there: the beat of the last ``advance``; that was a cycle ago.
    inside: ``beat`` ends inside its region. Offsets are unsigned, so none is before it.
    """

    def __init__(self, m: Module, unit: Unit, dma: Any) -> None:
        config: Config = dma.config
        core = dma.core
        m.submodules.registers = self.registers = registers = DmaRegisters(config, unit=unit)
        m.submodules.bursts = bursts = BurstWalker(bus_bytes=config.bus_bytes)
        m.submodules.beats = self.beats = beats = BeatWalker(bus_bytes=config.bus_bytes, offset_bits=config.offset_bits)
        wiring.connect(m, part(wiring.flipped(core), Check(config)), part(registers, Check(config)))
        m.d.comb += [
            registers.base.eq(dma.base),
            bursts.transfer.eq(registers.transfer),
            bursts.begin.eq(core.go),
            beats.transfer.eq(registers.transfer),
            beats.begin.eq(core.go),
        ]

        # Addresses.
        channel = "ar" if unit == Unit.LOAD else "aw"
        address, length, size, burst, valid, ready = (
            getattr(dma.axi, channel + name) for name in ("addr", "len", "size", "burst", "valid", "ready")
        )
        in_flight = Signal(range(config.outstanding + 1))
        issued = Signal()
        answered = Signal()
        last_address = Signal()
        m.d.comb += [
            bursts.room.eq(in_flight != config.outstanding),
            address.eq(bursts.o.payload.address),
            length.eq(bursts.o.payload.length),
            size.eq(exact_log2(config.bus_bytes)),
            burst.eq(INCR),
            valid.eq(bursts.o.valid),
            bursts.o.ready.eq(ready),
            issued.eq(valid & ready),
            last_address.eq(~bursts.active),
        ]
        with m.If(issued ^ answered):
            m.d.sync += in_flight.eq(in_flight + issued - answered)
        self.in_flight, self.last_address, self.issued, self.answered = in_flight, last_address, issued, answered

        # Beats: which bytes, then where in SRAM.
        beat = Signal(Beat(config.bus_bytes, config.offset_bits))
        there = Signal()
        inside = Signal()
        bits = config.offset_bits
        room = Signal(bits + 1)  # bytes from its first one to the region's end: a difference of unsigned numbers
        size_bits = len(beat.size)
        m.d.comb += inside.eq(~room[bits] & (room[size_bits:bits].any() | (room[:size_bits] >= beat.size)))
        m.d.sync += there.eq(beats.advance)
        with m.If(beats.advance):
            m.d.sync += [beat.eq(beats.beat), room.eq(registers.sram_bytes[:bits] - beats.beat.offset)]
        with m.If(there):
            m.d.sync += dma.sram.addr.eq((registers.sram_addr + beat.offset)[: len(dma.sram.addr)])
        self.beat, self.there, self.inside = beat, there, inside
