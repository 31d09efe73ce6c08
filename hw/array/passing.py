"""What happens in a window of the array's loops: pixels pass, and weights load."""

from amaranth import Const, Module, Mux, Signal
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out
from amaranth.utils import exact_log2

from dovetail.isa.config.resolved import Config
from dovetail.isa.timing.array import group_reads


def pixel_bits(config: Config) -> int:
    """Bits of the number of a pixel in its stripe."""
    return 6 + exact_log2(config.pixel_lanes)


def records_at_most(config: Config) -> int:
    """Channels of a block of output channels, at most."""
    return config.oc_lanes * (config.depthwise_sets if config.depth_conv else 1)


class PixelPass(wiring.Component):
    """Counts the pixels of a window, in groups of ``pixel_lanes``, and the cycles of each group.

    Parameters
    ----------
    config
        The accelerator.

    Members
    -------
    clear
        Pulse: no window is under way.
    begin
        Pulse: pixels pass from the next cycle on.
    last
        With ``begin``: number of the last pixel.
    visits
        With ``begin``: cycles in which an accumulator is visited.
    pairs
        A read has the input of two pixels; constant.
    visit
        The same of the window under way.
    busy
        A group has its time: as many cycles as it reads, or visits if these are more.
    index
        Number of the cycle in the group's time.
    reads, at_last
        A pixel is read, or a pair of them; the next one that is, or this one, is the window's last. Behind it there is
        none.
    steps
        The group's accumulators are visited.
    group
        Number of the group.
    passed
        The window is in its last cycle with pixels, or past it. From the second cycle on.
    """

    def __init__(self, config: Config) -> None:
        self.config = config
        self.most = max(config.weight_sets, config.pixel_lanes)
        super().__init__(
            {
                "clear": In(1),
                "begin": In(1),
                "last": In(pixel_bits(config)),
                "visits": In(range(self.most + 1)),
                "pairs": In(1),
                "visit": Out(range(self.most + 1)),
                "busy": Out(1),
                "index": Out(4),
                "reads": Out(1),
                "at_last": Out(1),
                "steps": Out(1),
                "group": Out(6),
                "passed": Out(1),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        lanes = self.config.pixel_lanes
        pixel, last = Signal.like(self.last), Signal.like(self.last)
        at_last, ends = self.at_last, Signal()  # `pixel` is `last`; and is read
        with m.If(self.begin):
            m.d.sync += [pixel.eq(0), last.eq(self.last), at_last.eq(self.last == 0), self.busy.eq(1)]
        with m.Elif(self.reads):
            m.d.sync += [pixel.eq(pixel + 1), at_last.eq(pixel + 1 == last)]
        m.d.comb += ends.eq(self.reads & at_last)
        if lanes == 1:
            m.d.sync += self.passed.eq(~self.busy | at_last | (pixel + 1 == last))
            m.d.comb += [
                self.reads.eq(self.busy),
                self.steps.eq(self.busy),
                self.group.eq(pixel),
                self.visit.eq(1),
            ]
            with m.If(self.clear | (ends & ~self.begin)):
                m.d.sync += self.busy.eq(0)
            return m

        reading = Signal()  # there are pixels to be read
        share = Mux(self.pairs, group_reads(lanes, pairs=True), lanes)
        final = Signal(4)  # last cycle of a group's time
        done, ends_group, following = Signal(), Signal(), Signal(4)
        m.d.comb += [
            self.reads.eq(reading & (self.index < share)),
            self.steps.eq(self.busy & (self.index < self.visit)),
            done.eq(ends | ~reading),
            ends_group.eq(self.index == final),
            following.eq(Mux(ends_group, 0, self.index + 1)),
        ]
        with m.If(self.begin):
            longest = Mux(self.visits > share, self.visits, share)
            m.d.sync += [
                reading.eq(1),
                self.index.eq(0),
                self.group.eq(0),
                self.visit.eq(self.visits),
                final.eq(longest - 1),
            ]
        with m.Elif(self.busy):
            m.d.sync += [reading.eq(~done), self.index.eq(following), self.group.eq(self.group + ends_group)]
            with m.If(ends_group & done):
                m.d.sync += self.busy.eq(0)
        with m.If(self.clear):
            m.d.sync += [self.busy.eq(0), reading.eq(0), self.visit.eq(1)]
        last_next = (following < share) & Mux(self.reads, pixel + 1 == last, at_last)
        m.d.sync += self.passed.eq(~self.busy | (ends_group & done) | ((following == final) & (done | last_next)))
        return m


class WeightLoads(wiring.Component):
    """Counts the reads of weights, then of records, in a window.

    Parameters
    ----------
    config
        The accelerator.
    most
        Reads per input block, at most.

    Members
    -------
    clear
        Pulse: nothing is to be read. A cycle later, or with ``begin``, the counts return to their start.
    start
        Pulse: weights are read from the next cycle on, for the first time since ``clear``.
    begin
        Pulse: what follows is read from the next cycle on:
    weights, records
        with ``begin``: weights, and then records.
    blocks
        With ``start`` and ``begin``: input blocks whose weights are read.
    rows, lanes
        Reads per input block; records. Constant from ``clear`` on.
    loading, recording
        Weights or records are read.
    further
        The first weights of an input block are read, but for the first one's.
    completes
        The last weights of an input block are read.
    read
        The window is in its last cycle with reads, or past it. From the second cycle on.
    """

    def __init__(self, config: Config, *, most: int) -> None:
        self.config = config
        self.most = most
        super().__init__(
            {
                "clear": In(1),
                "start": In(1),
                "begin": In(1),
                "weights": In(1),
                "records": In(1),
                "blocks": In(range(config.most_sets + 1)),
                "rows": In(range(most + 1)),
                "lanes": In(range(records_at_most(config) + 1)),
                "loading": Out(1),
                "recording": Out(1),
                "further": Out(1),
                "completes": Out(1),
                "read": Out(1),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        loading, recording = Signal(), Signal()
        row, record = Signal(range(max(self.most, 2))), Signal(range(max(records_at_most(self.config), 2)))
        row_last, record_last = Signal(), Signal()
        set_, sets = Signal.like(self.blocks), Signal.like(self.blocks)
        set_last, ends, ends_next = Signal(), Signal(), Signal()
        single = self.config.weight_sets == 1
        m.d.comb += [
            set_last.eq(Const(1) if single else set_ + 1 == sets),
            ends.eq(row_last & set_last),
            ends_next.eq(
                set_last & (row + 2 == self.rows)
                if single
                else Mux(row_last, (self.rows == 1) & (set_ + 2 == sets), set_last & (row + 2 == self.rows))
            ),
            self.loading.eq(loading),
            self.recording.eq(~loading & recording),
            self.completes.eq(loading & row_last),
            self.further.eq(loading & (row == 0) & (set_ != 0)),
        ]
        m.d.sync += self.read.eq(
            Mux(
                loading,
                Mux(ends, ~recording | record_last, ~recording & ends_next),
                ~recording | record_last | (record + 2 == self.lanes),
            )
        )
        with m.If(loading):
            m.d.sync += [
                row.eq(Mux(row_last, 0, row + 1)),
                row_last.eq(Mux(row_last, self.rows == 1, row + 2 == self.rows)),
                set_.eq(set_ + row_last),
                loading.eq(~ends),
            ]
        with m.Elif(recording):
            m.d.sync += [
                record.eq(record + 1),
                record_last.eq(record + 2 == self.lanes),
                recording.eq(~record_last),
            ]
        cleared = Signal()
        m.d.sync += cleared.eq(self.clear)
        with m.If(self.clear):
            m.d.sync += [loading.eq(0), recording.eq(0)]
        with m.If(self.start):  # comes late in its cycle
            m.d.sync += loading.eq(1)
        with m.If(self.begin):
            m.d.sync += [loading.eq(self.weights), recording.eq(self.records)]
        with m.If(self.start | self.begin):
            m.d.sync += sets.eq(self.blocks)
        with m.If(self.begin | cleared):
            m.d.sync += [
                row.eq(0),
                row_last.eq(self.rows == 1),
                record.eq(0),
                record_last.eq(self.lanes == 1),
                set_.eq(0),
            ]
        return m
