"""Timing of the array unit: CONV, CONV_RELU and MAT_MUL; of DEPTH_CONV see :mod:`dovetail.isa.timing.depthwise`.

The array's loops cut time into windows, see ``hw.array.loops``. The first only loads weights. Then every step (ky, kx,
group of input blocks) of every stripe has one: as long as its pixels, the weights of the next step, the records of a
block in the block's first, and ACCUMULATE demand. Old int32 values pass in windows of their own before the stripe's
steps. The results of a stripe drain through the requantiser while the next stripes run in other accumulator buffers.

With pixel lanes, that many pixels pass together. A window holds the weights of several input blocks. Of each pixel it
reads the bytes that all of these need at once, a cycle per pixel, or per two of them with MODE.pairs; then the pixels
meet the weights of one block per cycle. While they do, the next pixels are read. Results leave pixel by pixel, or those
of a pair together.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache, lru_cache
from typing import NamedTuple

from dovetail.isa.common.sizes import ceil_div
from dovetail.isa.config.resolved import Config
from dovetail.isa.timing.memory import SRAM_READ
from dovetail.isa.timing.sequencer import CHECK, repeat

REQUANTISE = 10
"""Latency from an int32 accumulator to its int8 (`hw.array.requantiser.Requantiser`): the result in cycle ``t + 10``
belongs to the operand in cycle ``t``.

Left shift, magnitude, rounding to 24 bits, partial products, their inner sum, product, right shift, rounding, zero
point, clamp.
"""

ACCUMULATE = 3
"""Least cycles from the end of a visit of an accumulator to the next: a window has no fewer. A visit is a cycle, or
with pixel lanes as many as there are blocks in a step. Pixels that pass at once, all of a stripe, are visited once."""

RADIX = 4
"""Values that one stage of an adder tree sums up."""

SETTLE = 2 + REQUANTISE
"""Cycles from the end of a stripe's drain to the first window whose reads see its results."""

DRAIN = 4 + REQUANTISE
"""Cycles from the end of the last drain to the end of the instruction."""


@lru_cache(maxsize=64)
def tree_stages(config: Config) -> int:
    """Register stages of an adder tree over the input lanes."""
    stages, rows = 0, config.ic_lanes
    while rows > 1:
        rows = ceil_div(rows, RADIX)
        stages += 1
    return stages


def to_accumulator(config: Config) -> int:
    """Cycles from a step to the first in which its sum can be read: address (4), bytes, operand (2), product, adder
    tree, term, sum, write. With pixel lanes it begins with the bytes of the last pixel, and chooses a block's."""
    return 4 + SRAM_READ + 5 + tree_stages(config) + gather(config)


def gather(config: Config) -> int:
    """Cycles that the bytes of the first pixel wait until a step can begin: for those of the others, and a register."""
    return config.pixel_lanes if config.pixel_lanes > 1 else 0


class Machine(NamedTuple):
    """What an instruction's cycles depend on: lanes of each kind, :func:`to_accumulator`, words of SRAM."""

    oc_lanes: int
    pixel_lanes: int
    requant_lanes: int
    to_accumulator: int
    word_bytes: int
    weight_rows: int
    buffers: int
    records_at_once: int


@lru_cache(maxsize=64)
def machine_of(config: Config) -> Machine:
    """The same for configurations that differ in system memory, size of SRAM or input lanes of equally deep trees."""
    return Machine(
        config.oc_lanes,
        config.pixel_lanes,
        config.requant_lanes,
        to_accumulator(config),
        config.word_bytes,
        config.weight_rows,
        config.stripe_buffers,
        config.records_at_once,
    )


def matrix_reads(config: Config, *, transposed: bool) -> int:
    """Reads of the matrix per input block of a matrix product: per output lane, one of ic_lanes bytes; or per input
    lane, one of oc_lanes bytes, or as many as it takes where these are more than a word."""
    return config.oc_lanes if transposed else config.ic_lanes * ceil_div(config.oc_lanes, config.word_bytes)


def steps_of_tap(blocks: int, group: int) -> tuple[int, int]:
    """(steps of ``group`` input blocks, blocks of the step behind them) of a tap: what is left is the last step's."""
    before = ceil_div(blocks, group) - 1
    return before, blocks - before * group


class Free(NamedTuple):
    """What takes no time, to see what an instruction would take without it; the hardware has none of it.

    ``steps``: pixels that pass the multipliers, and the least length of windows; old values are there at once;
    ``weights``: reads of weights and records; ``results``: groups that pass the requantiser.
    """

    steps: bool = False
    weights: bool = False
    results: bool = False


NOTHING = Free()

State = tuple[int, ...]
"""Between two stripes, of as many stripes as there are accumulator buffers when they have drained, the oldest first, in
cycles from now; what no longer matters is negative. The accumulators are free one cycle later."""
Advance = Callable[[State], tuple[int, State]]
"""Cycles that something takes, and the state behind it."""


@dataclass(slots=True)
class Stripe:
    """``work`` cycles of windows for steps, ``old`` for old values, then ``fill`` to the drain of ``out`` cycles."""

    work: int
    old: int
    fill: int
    out: int

    def __call__(self, state: State) -> tuple[int, State]:
        oldest, *others, latest = state
        end = max(oldest + 1, 0)
        if self.old:
            end = max(end, latest + SETTLE) + self.old
        end += self.work
        drained = max(latest - end, self.fill) + self.out
        return end, (*_since(others, end), max(latest - end, -1), drained)


@dataclass(slots=True)
class Dry:
    """``work`` cycles of windows that leave the accumulators alone; if records come in them, ``begins``, they wait for
    a buffer, as these take the place of those that a stripe in it needs."""

    work: int
    begins: bool = False

    def __call__(self, state: State) -> tuple[int, State]:
        *others, latest = state
        end = (max(others[0] + 1, 0) if self.begins else 0) + self.work
        return end, (*_since(others, end), max(latest - end, -SETTLE))


def _since(drained: Sequence[int], time: int) -> list[int]:
    """When all but the latest stripe have drained, from ``time`` on."""
    return [max(end - time, -1) for end in drained]


def in_turn(parts: Sequence[tuple[Advance, int]]) -> Advance:
    """One after the other, each so many times."""

    def advance(state: State) -> tuple[int, State]:
        time = 0
        for part, count in parts:
            elapsed, state = repeat(part, state, count)
            time += elapsed
        return time, state

    return advance


def of_widths(
    start: int,
    buffers: int,
    block: Callable[[int, int], Advance],
    lanes: int,
    shorter: int,
    widths: Sequence[tuple[int, int]],
) -> tuple[int, ...]:
    """Cycles of instructions of such (blocks, last), in ascending order. The first stripe begins in cycle ``start``;
    there are so many ``buffers`` of accumulators. ``block(channels, less)`` is a block the last window of which is
    ``less`` cycles shorter, as the very last one's is by ``shorter``."""
    whole = cache(block(lanes, 0))
    ending = cache(lambda channels, state: block(channels, shorter)(state))
    time, passed, found = start, 0, list[int]()
    state: State = (*[-1] * (buffers - 1), -SETTLE)
    for blocks, last in widths:
        elapsed, state = repeat(whole, state, blocks - 1 - passed)
        time, passed = time + elapsed, blocks - 1
        elapsed, (*_, drained) = ending(last, state)
        found.append(time + elapsed + drained + DRAIN)
    return tuple(found)


def array_duration(
    config: Config,
    *,
    taps: int,
    kc: int,
    group: int = 1,
    pixels: int,
    stripe: int,
    blocks: int,
    last: int,
    accumulate: bool,
    matrix_rows: int = 0,
    pairs: bool = False,
    result_pairs: bool = False,
    free: Free = NOTHING,
) -> int:
    """Cycles from an instruction's start to its end (end = start + duration).

    ``taps`` = kh * kw, ``kc`` input blocks per tap, ``group`` of them in a step, ``pixels`` = height * width,
    ``blocks`` of output channels with ``last`` channels in the last. ``matrix_rows``: of a matrix product,
    :func:`matrix_reads`. ``pairs``: two pixels share a read; ``result_pairs``: their results leave together. ``free``:
    see :class:`Free`.
    """
    (cycles,) = array_durations(
        machine_of(config),
        taps=taps,
        kc=kc,
        group=group,
        pixels=pixels,
        stripe=stripe,
        widths=((blocks, last),),
        accumulate=accumulate,
        matrix_rows=matrix_rows,
        pairs=pairs,
        result_pairs=result_pairs,
        free=free,
    )
    return cycles


def group_reads(pixel_lanes: int, *, pairs: bool) -> int:
    """Reads of the input of as many pixels as there are lanes."""
    return pixel_lanes // (1 + pairs)


def least_window(several: bool, visit: int) -> int:
    """Cycles of a window at least; ``several``: more pixels than pass at once, so accumulators are visited again."""
    return visit - 1 + ACCUMULATE if several else max(visit, ACCUMULATE)


@lru_cache(maxsize=65536)
def array_durations(
    machine: Machine,
    *,
    taps: int,
    kc: int,
    group: int = 1,
    pixels: int,
    stripe: int,
    widths: tuple[tuple[int, int], ...],
    accumulate: bool,
    matrix_rows: int = 0,
    pairs: bool = False,
    result_pairs: bool = False,
    free: Free = NOTHING,
) -> tuple[int, ...]:
    """The same of instructions that differ in ``widths``, their (blocks, last) in ascending order, only."""
    fill, requant = machine.to_accumulator - 1, machine.requant_lanes
    lanes, together, rows = machine.oc_lanes, machine.pixel_lanes, matrix_rows or machine.weight_rows
    share = group_reads(together, pairs=pairs)
    words = -(-4 * lanes // machine.word_bytes) if accumulate else 0
    stripes = -(-pixels // stripe)
    rest = pixels - (stripes - 1) * stripe
    size = stripe if stripes > 1 else pixels
    rows, reads = (0, 0) if free.weights else (rows, lanes // machine.records_at_once)  # reads of records

    def window(pixels: int, visit: int, loads: int) -> int:
        """Cycles of a window: of pixels, each of which meets so many blocks, and of reads."""
        if free.steps:
            return loads
        return max(-(-pixels // together) * max(share, visit), least_window(pixels > together, visit), loads)

    def old_values(pixels: int) -> int:
        """Cycles of a window of old values, one after the other to each pixel lane."""
        if free.steps:
            return 0
        return max(-(-pixels // together) * max(share, together), least_window(True, together))

    before, last = steps_of_tap(kc, group)
    first = group if before else last

    def work(pixels: int) -> int:
        """Cycles of a stripe's steps: those of a tap, and the last one's with the first of the next tap or stripe."""
        inner = (before - 1) * window(pixels, group, rows * group) + window(pixels, group, rows * last)
        return taps * ((inner if before else 0) + window(pixels, last, rows * first))

    follows = first if before != 1 else last  # blocks of the second step
    usual = window(size, first, rows * follows)
    records = max(usual, rows * follows + reads) - usual  # longer first window of a block
    old, old_rest = words * old_values(size), words * old_values(rest)
    whole_stripe, rest_stripe = work(size), work(rest)

    def block(channels: int, shorter: int) -> Advance:
        groups = 0 if free.results else -(-channels // requant)
        out, out_rest = (size >> result_pairs) * groups, (rest >> result_pairs) * groups
        if stripes == 1:
            return Stripe(whole_stripe + records - shorter, old, fill, out)
        begins, middle = Stripe(whole_stripe + records, old, fill, out), Stripe(whole_stripe, old, fill, out)
        final = Stripe(rest_stripe - shorter, old_rest, fill, out_rest)
        return in_turn(((begins, 1), (middle, stripes - 2), (final, 1)))

    # No weights load in the very last window.
    if stripes == taps == 1 and not before:
        shorter = usual + records - window(size, last, reads)
    else:
        shorter = window(rest, last, rows * first) - window(rest, last, 0)
    start = CHECK + 1 + (rows * first if free.steps else max(rows * first, ACCUMULATE))
    return of_widths(start, machine.buffers, block, lanes, shorter, widths)
