"""What both DMA units keep: their registers, the checks of a transfer and the banks it claims."""

from amaranth import Module, Mux, Signal
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from dovetail.hw.common.ports import Check
from dovetail.hw.common.regions import Region, hold_registers, register_layout
from dovetail.hw.dma.burst import Transfer
from dovetail.isa.config.resolved import Config
from dovetail.isa.instructions.table import PAGE_BYTES, Cause, Unit
from dovetail.isa.timing.sequencer import CHECK


class DmaRegisters(wiring.Component):
    """Registers and checks of LOAD or STORE.

    Parameters
    ----------
    config: the accelerator.
    unit: LOAD or STORE.

    Members
    -------
    cfg .. target: see :class:`~dovetail.hw.common.ports.Check`. A fetch claims nothing.
    base: what ``MEM_ADDR`` is relative to.
    transfer, sram_addr, sram_bytes: the transfer and its SRAM region.
    fetching: the transfer is an instruction page (no registers, no region).

    Latency
    -------
    Everything is valid CHECK = 3 cycles after ``start`` and until the next one, claims a cycle earlier.
    """

    def __init__(self, config: Config, *, unit: Unit) -> None:
        if unit not in (Unit.LOAD, Unit.STORE):
            raise ValueError(f"unit must be LOAD or STORE, not {unit!r}")
        self.config = config
        self.unit = unit
        super().__init__(
            {
                **Check(config).flip().members,
                "base": In(32),
                "transfer": Out(Transfer),
                "fetching": Out(1),
                "sram_addr": Out(32),
                "sram_bytes": Out(32),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        config = self.config
        assert CHECK == 3, "sums, comparisons, decision: one cycle each"
        regs = Signal(register_layout(self.unit))
        hold_registers(m, self.cfg, self.unit, regs)
        region = Region(config, regs, "SRAM")
        banks, span = (self.writes, self.target) if self.unit == Unit.LOAD else (self.reads, self.sources[0])

        page = Signal(32)
        if self.unit == Unit.LOAD:  # STORE never fetches
            with m.If(self.start):
                m.d.sync += [self.fetching.eq(self.fetch), page.eq(self.address)]
        t = self.transfer
        m.d.comb += [
            self.sram_addr.eq(regs.SRAM_ADDR),
            self.sram_bytes.eq(regs.SRAM_BYTES),
            t.row_step.eq(regs.MEM_ROW_STEP),
            t.plane_step.eq(regs.MEM_PLANE_STEP),
            t.region_row_step.eq(regs.SRAM_ROW_STEP),
            t.region_plane_step.eq(regs.SRAM_PLANE_STEP),
            *region.show(span, ~self.fetching),
        ]
        m.d.sync += [
            t.address.eq(Mux(self.fetching, page, self.base) + Mux(self.fetching, 0, regs.MEM_ADDR)),
            t.span.eq(Mux(self.fetching, PAGE_BYTES, regs.LENGTH) - 1),
            t.rows.eq(Mux(self.fetching, 1, regs.COUNT.rows)),
            t.planes.eq(Mux(self.fetching, 1, regs.COUNT.planes)),
        ]

        # Registered steps, always running: region's end and zeroes; range and banks; cause.
        zero, zero_later, outside = Signal(), Signal(), Signal()
        m.d.sync += [
            region.end.eq(region.sum()),
            zero.eq(~(regs.SRAM_BYTES.any() & regs.LENGTH.any() & regs.COUNT.rows.any() & regs.COUNT.planes.any())),
            zero_later.eq(zero),
            outside.eq(region.outside()),
            *region.touched(),
        ]
        m.d.comb += banks.eq(Mux(self.fetching, 0, region.banks))
        with m.If(self.fetching):
            m.d.sync += self.cause.eq(0)
        with m.Elif(zero_later):
            m.d.sync += self.cause.eq(Cause.ZERO_SIZE)
        with m.Elif(outside):
            m.d.sync += self.cause.eq(Cause.SRAM_RANGE)
        with m.Else():
            m.d.sync += self.cause.eq(0)
        return m
