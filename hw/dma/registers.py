"""What both DMA units keep: their registers, the checks of a transfer and the banks it claims."""

from amaranth import Cat, Module, Mux, Signal, Value
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out
from amaranth.utils import ceil_log2, exact_log2

from dovetail.hw.common.ports import Span
from dovetail.hw.dma.burst import Transfer
from dovetail.isa.config import Config
from dovetail.isa.instructions.table import PAGE_BYTES, REGISTERS, Cause, Unit


def reaches(room: Value, size: Value) -> Value:
    """Whether ``size`` bytes fit into ``room``, a difference of unsigned 32-bit numbers in 33 bits, signed."""
    bits = len(size)
    return ~room[32] & (room[bits:32].any() | (room[:bits] >= size))


class DmaRegisters(wiring.Component):
    """Registers and checks of LOAD or STORE.

    Parameters
    ----------
    config: the accelerator.
    unit: LOAD or STORE.

    Members
    -------
    clear, cfg_en, cfg_index, cfg_value, start, fetch, address: as in :class:`~dovetail.hw.common.ports.Core`.
    base: what ``MEM_ADDR`` is relative to.
    transfer, sram_addr, sram_bytes: the transfer and its SRAM region.
    fetching: the transfer is an instruction page (no registers, no region).
    cause, banks, span: failed check; claimed banks; what a transfer, but no fetch, touches in SRAM.

    Latency
    -------
    Everything is valid CHECK = 3 cycles after ``start`` and until the next one, ``banks`` and ``span`` a cycle earlier.
    """

    def __init__(self, config: Config, *, unit: Unit) -> None:
        if unit not in (Unit.LOAD, Unit.STORE):
            raise ValueError(f"unit must be LOAD or STORE, not {unit!r}")
        self.config = config
        self.unit = unit
        super().__init__(
            {
                "clear": In(1),
                "cfg_en": In(1),
                "cfg_index": In(6),
                "cfg_value": In(32),
                "start": In(1),
                "fetch": In(1),
                "address": In(32),
                "base": In(32),
                "transfer": Out(Transfer),
                "fetching": Out(1),
                "sram_addr": Out(32),
                "sram_bytes": Out(32),
                "cause": Out(4),
                "banks": Out(config.n_banks),
                "span": Out(Span(config)),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        config = self.config
        table = REGISTERS[self.unit]
        regs = {name: Signal(32, name=name.lower()) for name in table}
        with m.If(self.clear):
            m.d.sync += [r.eq(0) for r in regs.values()]
        with m.Elif(self.cfg_en), m.Switch(self.cfg_index):
            for name, register in table.items():
                with m.Case(register.index):
                    m.d.sync += regs[name].eq(self.cfg_value)
        counts = {f.name: regs["COUNT"][f.low : f.low + f.width] for f in table["COUNT"].fields}

        page, end = Signal(32), Signal(33)
        with m.If(self.start):
            m.d.sync += [self.fetching.eq(self.fetch), page.eq(self.address)]
        t = self.transfer
        m.d.comb += [
            self.sram_addr.eq(regs["SRAM_ADDR"]),
            self.sram_bytes.eq(regs["SRAM_BYTES"]),
            t.row_step.eq(regs["MEM_ROW_STEP"]),
            t.plane_step.eq(regs["MEM_PLANE_STEP"]),
            t.region_row_step.eq(regs["SRAM_ROW_STEP"]),
            t.region_plane_step.eq(regs["SRAM_PLANE_STEP"]),
            self.span.start.eq(regs["SRAM_ADDR"]),
            self.span.end.eq(end),
            self.span.valid.eq(~self.fetching),
        ]
        m.d.sync += [
            t.address.eq(Mux(self.fetching, page, self.base + regs["MEM_ADDR"])),
            t.span.eq(Mux(self.fetching, PAGE_BYTES - 1, regs["LENGTH"] - 1)),
            t.rows.eq(Mux(self.fetching, 1, counts["rows"])),
            t.planes.eq(Mux(self.fetching, 1, counts["planes"])),
        ]

        # Registered steps, always running: region's end and zeroes, first and last bank, cause.
        bank_bits = exact_log2(config.bank_bytes)
        index_bits = ceil_log2(config.n_banks)
        zero = Signal()
        zero_later, range_later = Signal(), Signal()
        first, last = Signal(index_bits), Signal(index_bits)
        m.d.sync += [
            end.eq(regs["SRAM_ADDR"] + regs["SRAM_BYTES"]),
            zero.eq(~(regs["SRAM_BYTES"].any() & regs["LENGTH"].any() & counts["rows"].any() & counts["planes"].any())),
            zero_later.eq(zero),
            range_later.eq(end > config.sram_bytes),
            first.eq(regs["SRAM_ADDR"] >> bank_bits),
            last.eq((end - 1)[bank_bits : bank_bits + index_bits]),
        ]
        touched = Cat((first <= n) & (last >= n) for n in range(config.n_banks))
        m.d.comb += self.banks.eq(Mux(self.fetching, 0, touched))
        with m.If(self.fetching):
            m.d.sync += self.cause.eq(0)
        with m.Elif(zero_later):
            m.d.sync += self.cause.eq(Cause.ZERO_SIZE)
        with m.Elif(range_later):
            m.d.sync += self.cause.eq(Cause.SRAM_RANGE)
        with m.Else():
            m.d.sync += self.cause.eq(0)
        return m
