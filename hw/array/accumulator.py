"""The accumulators: one row per stripe pixel and buffer, one int32 per channel."""

from amaranth import Cat, Module, Mux, Signal
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from dovetail.hw.array.multipliers import SUM
from dovetail.hw.common.pipeline import delayed
from dovetail.hw.memory.cells import block_ram, read_row
from dovetail.isa.config.resolved import Config


class Accumulator(wiring.Component):
    """Accumulators with a port that adds and one that reads.

    Parameters
    ----------
    config
        The accelerator.

    Members
    -------
    valid, row, first
        Add to a row, or set it if ``first``. Additions to one row are at least ACCUMULATE = 3 cycles apart.
    term
        What to add, SUM bits a channel, ``TERM`` cycles later.
    drain_row
        Row to read.
    drained
        The row, one cycle later. It has what was added to it with ``valid`` up to ``VISIBLE`` cycles before.

    Latency
    -------
    Row from memory, its register and that of what to add, addition and write.
    """

    TERM = 1
    VISIBLE = TERM + 2

    def __init__(self, config: Config, *, rows: int) -> None:
        self.config = config
        self.rows = rows
        super().__init__(
            {
                "valid": In(1),
                "row": In(range(rows)),
                "first": In(1),
                "term": In(SUM * config.acc_lanes),
                "drain_row": In(range(rows)),
                "drained": Out(SUM * config.acc_lanes),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        width = SUM * self.config.acc_lanes
        m.submodules.cells = cells = block_ram(width=width, depth=self.rows)
        write = cells.write_port()
        valid = delayed(m, "valid", self.valid, 2)
        row = delayed(m, "row", self.row, 2)
        first = delayed(m, "first", self.first, 1)
        held, term = (Signal(width, name=name, reset_less=True) for name in ("held", "term"))
        old = read_row(m, cells, name="old", addr=self.row, en=self.valid, platform=platform)
        with m.If(valid[1]):
            m.d.sync += [held.eq(Mux(first[1], 0, old)), term.eq(self.term)]
        sums = ((held.word_select(n, SUM) + term.word_select(n, SUM))[:SUM] for n in range(self.config.acc_lanes))
        m.d.comb += [
            write.en.eq(valid[2]),
            write.addr.eq(row[2]),
            write.data.eq(Cat(sums)),
            self.drained.eq(read_row(m, cells, name="drain", addr=self.drain_row, platform=platform)),
        ]
        return m
