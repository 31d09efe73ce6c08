"""Ports of a board's system memory: AXI4 for the accelerator and the beats of its bursts, words for the host link."""

from typing import Any

from amaranth import Module, Mux, Signal
from amaranth.lib import data, memory, stream, wiring
from amaranth.lib.wiring import In, Out
from amaranth.utils import exact_log2

from dovetail.hw.common.axi import AxiRead, AxiWrite
from dovetail.hw.dma.burst import Burst
from dovetail.isa.link import WORD


class LinkMemory(wiring.Signature):
    """Words of 4 bytes, seen from the link. A request is taken when ``ready`` and stays as it is until then, its
    address until the next one; the data of a read come with ``answer``, in a later cycle. One request at a time.

    Between requests, ``settle`` asks memory to forget its history, until ``settled``: the cycles of what comes next
    depend on nothing before."""

    def __init__(self, memory_bytes: int) -> None:
        self.memory_bytes = memory_bytes
        super().__init__(
            {
                "valid": Out(1),
                "write": Out(1),
                "address": Out(range(memory_bytes // WORD)),
                "data": Out(32),
                "ready": In(1),
                "answer": In(1),
                "read_data": In(32),
                "settle": Out(1),
                "settled": In(1),
            }
        )


class SystemMemory(wiring.Signature):
    """A memory of ``memory_bytes`` bytes from address 0 on, seen from its users: AXI4 with ``bus`` data bits, and the
    link. The manager on AXI4 must always take read data and answers (``rready``, ``bready``), as the accelerator does.
    """

    def __init__(self, bus: int, memory_bytes: int) -> None:
        self.bus = bus
        self.memory_bytes = memory_bytes
        read, write = AxiRead(bus), AxiWrite(bus)
        super().__init__({"read": Out(read), "write": Out(write), "link": Out(LinkMemory(memory_bytes))})


def check_size(memory_bytes: int) -> None:
    """Raises ValueError unless a burst is always inside or outside a memory of this size."""
    if memory_bytes < 4096 or memory_bytes % 4096:
        raise ValueError(f"memory must be a multiple of 4096 bytes, not {memory_bytes}")


class Row(data.StructLayout):
    """A beat: the bus-wide ``row`` of memory, whether there is such a row, and whether the burst ends with it."""

    def __init__(self, rows: int) -> None:
        super().__init__({"row": range(rows), "inside": 1, "last": 1})


class Beats(wiring.Component):
    """Takes bursts and gives their beats, those of one right behind those of the one before it.

    Parameters
    ----------
    bus_bytes: bytes of a beat.
    memory_bytes: bytes there are, from address 0 on; a multiple of 4096, so that a burst is inside or not.
    outstanding: bursts held, the one under way included.

    Members
    -------
    i: the bursts.
    o: the beats.

    Latency
    -------
    A burst's first beat shows in the cycle after the burst was taken, or after the last beat before it.
    """

    def __init__(self, *, bus_bytes: int, memory_bytes: int, outstanding: int) -> None:
        check_size(memory_bytes)
        self.bus_bytes = bus_bytes
        self.memory_bytes = memory_bytes
        self.outstanding = outstanding
        self.beat = Row(memory_bytes // bus_bytes)
        super().__init__({"i": In(stream.Signature(Burst)), "o": Out(stream.Signature(self.beat))})

    def elaborate(self, platform: object) -> Module:
        m = Module()
        low = exact_log2(self.bus_bytes)
        came = Signal(data.StructLayout({"row": self.beat["row"].shape, "inside": 1, "length": 8}))
        begun = Signal.like(came)
        m.d.comb += [
            came.row.eq(self.i.payload.address >> low),
            came.inside.eq(self.i.payload.address < self.memory_bytes),
            came.length.eq(self.i.payload.length),
        ]
        beat = self.o.payload
        left = Signal(8)
        done = Signal()
        m.d.comb += [
            beat.last.eq(left == 0),
            done.eq(~self.o.valid | (self.o.ready & beat.last)),
        ]
        # A burst is written to the queue even if it begins at once: whether it does is known late in the cycle.
        depth = self.outstanding - 1
        m.submodules.queue = queue = memory.Memory(
            shape=came.shape(), depth=1 << max(depth - 1, 0).bit_length(), init=[]
        )
        write, read = queue.write_port(), queue.read_port(domain="comb")
        waiting = Signal(range(depth + 1))
        m.d.comb += [
            self.i.ready.eq(waiting != depth if depth else done),
            write.data.eq(came),
            write.en.eq(self.i.valid & self.i.ready),
            begun.eq(Mux(waiting.any(), read.data, came)),
        ]
        with m.If(write.en):
            m.d.sync += write.addr.eq(write.addr + 1)
        begins = Signal()
        m.d.comb += begins.eq(done & (waiting.any() | self.i.valid))
        with m.If(begins):
            m.d.sync += read.addr.eq(read.addr + 1)
        m.d.sync += waiting.eq(waiting + write.en - begins)
        with m.If(done):
            m.d.sync += [
                self.o.valid.eq(waiting.any() | self.i.valid),
                beat.row.eq(begun.row),
                beat.inside.eq(begun.inside),
            ]
            m.d.sync += left.eq(begun.length)
        with m.Elif(self.o.ready):
            m.d.sync += [beat.row.eq(beat.row + 1), left.eq(left - 1)]
        return m


def beats_of(m: Module, memory: Any, axi: Any, channel: str) -> Beats:
    """The beats of the bursts on an address channel of AXI4, ``"ar"`` or ``"aw"``; ``memory``: a memory with ``bus``,
    ``memory_bytes`` and ``outstanding``."""
    beats = Beats(bus_bytes=memory.bus // 8, memory_bytes=memory.memory_bytes, outstanding=memory.outstanding)
    m.submodules[{"ar": "reads", "aw": "writes"}[channel]] = beats
    address, length, valid, ready = (getattr(axi, channel + name) for name in ("addr", "len", "valid", "ready"))
    m.d.comb += [
        beats.i.valid.eq(valid),
        beats.i.payload.address.eq(address),
        beats.i.payload.length.eq(length),
        ready.eq(beats.i.ready),
    ]
    return beats
