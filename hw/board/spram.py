"""System memory in the single-port RAM of an iCE40 UP5K."""

from amaranth import Cat, ClockSignal, Const, Instance, Module, Mux, Signal, unsigned
from amaranth.lib import memory, wiring
from amaranth.lib.wiring import In, Out
from amaranth.utils import exact_log2

from dovetail.hw.board.ports import SystemMemory, beats_of
from dovetail.isa.config.given import MemoryTiming
from dovetail.isa.host import DECERR, OKAY

BLOCK_ROWS, BLOCK_BITS = 1 << 14, 16
"""Rows of a block, and bits of a row."""
BLOCKS = 4
"""Blocks of the device."""
TIMING = MemoryTiming(read_latency=2, write_latency=3, beat_cycles=2)
"""Exact as long as the link does not access the memory."""


class SpramBlock(wiring.Component):
    """A block of single-port RAM: 16384 rows of 16 bits.

    Parameters
    ----------
    simulation: behaves like the device's primitive, without it.

    Members
    -------
    en: an access; a write of the bytes in ``strobe`` if that is not 0, else a read.
    read_data: of the last read, from the cycle after it until the next access.
    """

    def __init__(self, *, simulation: bool) -> None:
        self.simulation = simulation
        super().__init__(
            {
                "en": In(1),
                "address": In(range(BLOCK_ROWS)),
                "strobe": In(BLOCK_BITS // 8),
                "data": In(BLOCK_BITS),
                "read_data": Out(BLOCK_BITS),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        write = self.strobe.any()
        if self.simulation:
            m.submodules.cells = cells = memory.Memory(shape=unsigned(BLOCK_BITS), depth=BLOCK_ROWS, init=[])
            writes, reads = cells.write_port(granularity=8), cells.read_port()
            m.d.comb += [
                writes.en.eq(Mux(self.en, self.strobe, 0)),
                writes.addr.eq(self.address),
                writes.data.eq(self.data),
                reads.en.eq(self.en & ~write),
                reads.addr.eq(self.address),
                self.read_data.eq(reads.data),
            ]
        else:
            m.submodules.cells = Instance(
                "SB_SPRAM256KA",
                i_CLOCK=ClockSignal(),
                i_CHIPSELECT=self.en,
                i_ADDRESS=self.address,
                i_WREN=write,
                i_MASKWREN=Cat(bit.replicate(2) for bit in self.strobe),
                i_DATAIN=self.data,
                o_DATAOUT=self.read_data,
                i_STANDBY=Const(0, 1),
                i_SLEEP=Const(0, 1),
                i_POWEROFF=Const(1, 1),
            )
        return m


class SpramMemory(wiring.Component):
    """Single-port RAM: a beat every other cycle in each direction. A read is served at once, a write waits a cycle if a
    read comes first, so both directions keep their rate. An access of the link has priority and costs a cycle.

    Parameters
    ----------
    bus: data bits of AXI4: 32 or 64.
    memory_bytes: bytes, a multiple of 2048 times ``bus``: all of some blocks.
    outstanding: bursts taken per direction before the first is done.
    simulation: see :class:`SpramBlock`.

    Members
    -------
    port: see :class:`~dovetail.hw.board.ports.SystemMemory`.

    Latency
    -------
    See :data:`TIMING`. A read of the link is answered in the cycle after its request.
    """

    def __init__(self, *, bus: int, memory_bytes: int, outstanding: int, simulation: bool) -> None:
        layer = BLOCK_ROWS * bus // 8
        if bus not in (32, 64):
            raise ValueError(f"bus must be 32 or 64 bits with single-port RAM, not {bus}")
        if memory_bytes % layer or not 0 < memory_bytes <= BLOCKS * BLOCK_ROWS * BLOCK_BITS // 8:
            sizes = " or ".join(str(layer * n) for n in range(1, BLOCKS * BLOCK_BITS // bus + 1))
            raise ValueError(f"memory must be {sizes} bytes of single-port RAM with a bus of {bus}, not {memory_bytes}")
        self.bus = bus
        self.memory_bytes = memory_bytes
        self.outstanding = outstanding
        self.simulation = simulation
        super().__init__({"port": In(SystemMemory(bus, memory_bytes))})

    def elaborate(self, platform: object) -> Module:
        m = Module()
        link = self.port.link
        lane_bits = exact_log2(self.bus // 32)
        cells = _Cells(self.bus, self.memory_bytes)
        reading = self._reads(m, cells)
        self._writes(m, cells, reading)
        self._blocks(m, cells)
        m.d.comb += [link.ready.eq(1), link.settled.eq(1)]
        m.d.comb += [link.read_data.eq(cells.read_data.word_select(link.address[:lane_bits], 32))]
        m.d.sync += link.answer.eq(link.valid & ~link.write)
        with m.If(link.valid):
            m.d.comb += [
                cells.en.eq(1),
                cells.row.eq(link.address >> lane_bits),
                cells.data.eq(link.data.replicate(self.bus // 32)),
                cells.strobe.eq(Mux(link.write, 0xF << (link.address[:lane_bits] << 2), 0)),
            ]
        return m

    def _blocks(self, m: Module, cells: "_Cells") -> None:
        """The blocks: side by side for the bus, and layers of them."""
        layers = self.memory_bytes // (BLOCK_ROWS * self.bus // 8)
        layer = cells.row[exact_log2(BLOCK_ROWS) :]
        last_layer = Signal.like(layer)
        with m.If(cells.en):
            m.d.sync += last_layer.eq(layer)
        for n in range(layers):
            parts = []
            for lane in range(self.bus // BLOCK_BITS):
                m.submodules[f"block{n}_{lane}"] = block = SpramBlock(simulation=self.simulation)
                m.d.comb += [
                    block.en.eq(cells.en & (layer == n)),
                    block.address.eq(cells.row),
                    block.strobe.eq(cells.strobe.word_select(lane, BLOCK_BITS // 8)),
                    block.data.eq(cells.data.word_select(lane, BLOCK_BITS)),
                ]
                parts.append(block.read_data)
            with m.If(last_layer == n):
                m.d.comb += cells.read_data.eq(Cat(parts))

    def _reads(self, m: Module, cells: "_Cells") -> Signal:
        """Reads for AXI4; high in their cycles."""
        axi = self.port.read
        reading = Signal()
        beats = beats_of(m, self, axi, "ar")
        m.d.comb += [
            reading.eq(beats.o.valid & ~axi.rvalid & ~self.port.link.valid),
            beats.o.ready.eq(reading),
            axi.rdata.eq(cells.read_data),
        ]
        m.d.sync += [
            axi.rvalid.eq(reading),
            axi.rlast.eq(beats.o.payload.last),
            axi.rresp.eq(Mux(beats.o.payload.inside, OKAY, DECERR)),
        ]
        with m.If(reading):
            m.d.comb += [cells.en.eq(1), cells.row.eq(beats.o.payload.row)]
        return reading

    def _writes(self, m: Module, cells: "_Cells", reading: Signal) -> None:
        """Writes from AXI4. Each is kept until nothing else uses the cells."""
        axi = self.port.write
        beats = beats_of(m, self, axi, "aw")
        beat = beats.o.payload
        kept, writing = Signal(), Signal()
        row, data, strobe = Signal.like(cells.row), Signal.like(cells.data), Signal.like(cells.strobe)
        accepted, recent, last, closing, outside = Signal(), Signal(), Signal(), Signal(), Signal()
        m.d.comb += [
            writing.eq(kept & ~reading & ~self.port.link.valid),
            axi.wready.eq(beats.o.valid & ~recent & (~kept | writing)),
            accepted.eq(axi.wvalid & axi.wready),
            beats.o.ready.eq(accepted),
        ]
        with m.If(accepted):
            m.d.sync += [
                kept.eq(1),
                row.eq(beat.row),
                data.eq(axi.wdata),
                strobe.eq(axi.wstrb),
                last.eq(beat.last),
                outside.eq(~beat.inside),
            ]
        with m.Elif(writing):
            m.d.sync += kept.eq(0)
        m.d.sync += [
            recent.eq(accepted),
            closing.eq(recent & last),
            axi.bvalid.eq(closing),
            axi.bresp.eq(Mux(outside, DECERR, OKAY)),
        ]
        with m.If(writing):
            m.d.comb += [cells.en.eq(~outside), cells.row.eq(row), cells.data.eq(data), cells.strobe.eq(strobe)]


class _Cells:
    """The one port of all blocks together."""

    def __init__(self, bus: int, memory_bytes: int) -> None:
        self.en = Signal()
        self.row = Signal(range(memory_bytes * 8 // bus))
        self.strobe = Signal(bus // 8)
        self.data = Signal(bus)
        self.read_data = Signal(bus)
