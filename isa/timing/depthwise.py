"""Timing of DEPTH_CONV: kernel rows on the input lanes of the adder trees.

Input lanes carry taps, output lanes channels, pixel lanes *sets* of oc_lanes channels beside each other, all of one
pixel. A block of output channels is ``sets`` of them; if that is more than there are pixel lanes, the others follow in
another *visit*. A window of time belongs to a kernel row, or to ic_lanes of its taps where it has more. The pixels of a
stripe, all of one output row, pass one after the other. Tap i of a pixel is in the i-th of a row of words, one per
input column:

- *Sliding* (MODE.slide, 1 or 2): the next pixel's words begin so many further on. So the first pixel of a window reads
  all words that it needs, the others only the new ones.
- Otherwise every pixel reads a word per tap.
- With MODE.columns a word has several columns, and a pixel slides by a word and sees two of them. Of few channels the
  pixel lanes take several pixels, which are one here.

With MODE.rows a step has several kernel rows: a line reads the last one's words, those of the others come from the row
buffer. Lines that only fill it are *dry*: their windows are as long as others, but nothing is added up.

A pixel takes a *slot* of time: as many cycles as it reads words, and at least one per visit. At its end the words that
it has read move to the operands of the multipliers; there they meet the weights of a visit per cycle, while the next
pixel reads. Every visit has a row of accumulators of its own. All else is as in :mod:`dovetail.isa.timing.array`.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple

from dovetail.isa.common.sizes import ceil_div
from dovetail.isa.config.resolved import Config
from dovetail.isa.timing.array import ACCUMULATE, NOTHING, Advance, Dry, Free, Stripe, in_turn, of_widths, tree_stages
from dovetail.isa.timing.memory import SRAM_READ
from dovetail.isa.timing.sequencer import CHECK

WORDS_OF_COLUMNS = 2
"""Words that a pixel sees where each has several columns: its own, and the one that its last taps are in."""


def to_accumulator(config: Config, visits: int) -> int:
    """Cycles from the end of a pixel's slot to the first in which the sums of its last visit can be read: address (4),
    bytes, words in order (2), a visit's, operand, product, adder tree, term, sum, write; a visit per cycle."""
    return 4 + SRAM_READ + 6 + tree_stages(config) + visits


@dataclass(frozen=True)
class Depthwise:
    """What the cycles of an instruction depend on but for its output: ``taps`` at once, ``rows`` words of a weight set,
    ``sets`` of a block in ``visits``, ``slide`` (0: no sliding), channels of a block (``lanes``). A write ends with
    ``span`` channels at the latest. The first pixel of a window reads ``words``. ``before`` a block's first line with
    results are so many dry ones, and ``between`` two lines with results."""

    pixel_lanes: int
    oc_lanes: int
    requant_lanes: int
    word_bytes: int
    buffers: int
    records_at_once: int
    fill: int
    taps: int
    steps: int
    rows: int
    sets: int
    visits: int
    slide: int
    lanes: int
    span: int
    words: int
    before: int
    between: int

    @classmethod
    def of(
        cls,
        config: Config,
        *,
        kh: int,
        kw: int,
        sets: int,
        slide: int,
        multiplier: int = 1,
        int32: bool = False,
        columns: int = 1,
        rows: int = 1,
        skip: int = 1,
    ) -> "Depthwise":
        """Of kernels of kh steps of ``rows`` x kw taps, ``multiplier`` output channels per input channel, ``columns``
        in a word. Every ``skip``-th line has results."""
        across, visits = min(config.ic_lanes, kw), config.depthwise_visits(sets)
        taps = rows * across
        return cls(
            config.pixel_lanes,
            config.oc_lanes,
            config.requant_lanes,
            config.word_bytes,
            config.stripe_buffers,
            config.records_at_once,
            to_accumulator(config, visits) - 1,
            taps,
            kh * ceil_div(kw, across),
            config.depthwise_rows(taps),
            sets,
            visits,
            slide,
            sets * config.oc_lanes - sets * config.oc_lanes % multiplier,
            config.depthwise_span(int32=int32),
            WORDS_OF_COLUMNS if columns > 1 else across,
            rows - 1,
            skip - 1,
        )

    def passing(self, pixels: int) -> int:
        """Cycles in which the pixels of a stripe pass in a window."""
        return max(self.words, self.visits) + (pixels - 1) * max(self.slide or self.words, self.visits)

    def writes(self, channels: int) -> int:
        """Writes of a pixel's results."""
        whole, rest = divmod(channels, self.span)
        return whole * ceil_div(self.span, self.requant_lanes) + ceil_div(rest, self.requant_lanes)


class _Pass(NamedTuple):
    """Of a stripe: its pixels; cycles of a window, of all its windows, and of old values."""

    pixels: int
    window: int
    work: int
    old: int


def depthwise_duration(
    config: Config,
    *,
    kh: int,
    kw: int,
    sets: int,
    slide: int,
    height: int,
    width: int,
    stripe: int,
    blocks: int,
    last: int,
    accumulate: bool,
    int32: bool = False,
    multiplier: int = 1,
    columns: int = 1,
    rows: int = 1,
    skip: int = 1,
    free: Free = NOTHING,
) -> int:
    """Cycles from an instruction's start to its end (end = start + duration).

    ``height`` x ``width`` output pixels, ``stripe`` of them at a time, ``blocks`` of output channels with ``last``
    channels in the last. ``sets``, ``slide``, ``columns``, ``rows`` and ``skip`` as of :class:`Depthwise`. ``free``:
    see :class:`~dovetail.isa.timing.array.Free`.
    """
    machine = Depthwise.of(
        config,
        kh=kh,
        kw=kw,
        sets=sets,
        slide=slide,
        multiplier=multiplier,
        int32=int32,
        columns=columns,
        rows=rows,
        skip=skip,
    )
    (cycles,) = depthwise_durations(
        machine, height=height, width=width, stripe=stripe, widths=((blocks, last),), accumulate=accumulate, free=free
    )
    return cycles


@lru_cache(maxsize=65536)
def depthwise_durations(
    machine: Depthwise,
    *,
    height: int,
    width: int,
    stripe: int,
    widths: tuple[tuple[int, int], ...],
    accumulate: bool,
    free: Free = NOTHING,
) -> tuple[int, ...]:
    """The same of instructions that differ in ``widths``, their (blocks, last) in ascending order, only."""
    least = 0 if free.steps else ACCUMULATE
    records = machine.oc_lanes // machine.records_at_once  # reads of them, of a set
    loads, reads = (0, 0) if free.weights else (machine.sets * machine.rows, machine.sets * records)
    words = machine.sets * ceil_div(4 * machine.oc_lanes, machine.word_bytes) if accumulate else 0
    together = machine.pixel_lanes

    def passing(pixels: int) -> int:
        return 0 if free.steps else machine.passing(pixels)

    def kind(pixels: int) -> _Pass:
        window = max(passing(pixels), loads, least)
        old = 0 if free.steps else max(ceil_div(pixels, together) * together, together - 1 + ACCUMULATE)
        return _Pass(pixels, window, machine.steps * window, words * old)

    # Stripes of a line, and those of all lines but for the very first and the very last of a block.
    many, rest = divmod(width, stripe)
    row = [(kind(stripe), many)] * (many > 0) + [(kind(rest), 1)] * (rest > 0)
    first, final = row[0][0], row[-1][0]
    records = max(first.window, loads + reads) - first.window  # longer first window of a block
    single = height * (many + (rest > 0)) == 1
    before, between = machine.before, machine.between

    def block(channels: int, shorter: int) -> Advance:
        writes = 0 if free.results else machine.writes(channels)

        def stripe_of(one: _Pass, more: int = 0) -> Advance:
            return Stripe(one.work + more, one.old, machine.fill, one.pixels * writes)

        def stripes(row: Sequence[tuple[_Pass, int]]) -> Advance:
            return in_turn([(stripe_of(one), count) for one, count in row])

        if before:
            dry, ends = Dry(first.work), stripe_of(first, -shorter)  # a line is a stripe
            begins = [(Dry(first.work + records, begins=True), 1), (dry, before - 1)]
            if height == 1:
                return in_turn([*begins, (ends, 1)])
            line = in_turn([(dry, between), (stripe_of(first), 1)])
            return in_turn([*begins, (stripe_of(first), 1), (line, height - 2), (dry, between), (ends, 1)])
        if single:
            return stripe_of(first, records - shorter)
        parts: list[tuple[Advance, int]] = [(stripe_of(first, records), 1)]
        if height > 1:
            parts += [(stripes(_without(row, 0)), 1), (stripes(row), height - 2), (stripes(_without(row, -1)), 1)]
        else:
            parts += [(stripes(_without(_without(row, 0), -1)), 1)]
        parts += [(stripe_of(final, -shorter), 1)]
        return in_turn(parts)

    # No weights load in the very last window.
    if single and machine.steps == 1 and not before:
        shorter = first.window + records - max(passing(first.pixels), reads, least)
    else:
        shorter = final.window - max(passing(final.pixels), least)
    start = CHECK + 1 + max(loads, least)
    return of_widths(start, machine.buffers, block, machine.lanes, shorter, widths)


def _without(row: Sequence[tuple[_Pass, int]], which: int) -> list[tuple[_Pass, int]]:
    """A row's stripes without the first (0) or the last (-1)."""
    fewer = list(row)
    one, count = fewer[which]
    fewer[which] = one, count - 1
    return [(one, count) for one, count in fewer if count]
