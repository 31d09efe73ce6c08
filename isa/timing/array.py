"""Timing of the array unit: CONV, CONV_RELU and DEPTH_CONV.

The sequencer cuts time into windows, see ``hw.array_sequencer``. The first only loads weights. Then every step (ky, kx,
input block) of every stripe has one: as long as its pixels, the weights of the next step, the records of a block in
the block's first, and ACCUMULATE demand. Old int32 values pass in windows of their own before the stripe's steps. The
results of a stripe drain through the requantiser while the next stripe runs in the other accumulator buffer.
"""

from collections.abc import Callable
from functools import lru_cache, partial

from dovetail.isa.config import Config, ceil_div
from dovetail.isa.latency import REQUANTISE
from dovetail.isa.timing.common import CHECK, SRAM_READ

ACCUMULATE = 3
"""Least cycles between two visits of one accumulator: a window has no fewer."""

RADIX = 4
"""Values that one stage of an adder tree sums up."""

SETTLE = 1 + REQUANTISE
"""Cycles from the end of a stripe's drain to the first window whose reads see its results."""

DRAIN = 3 + REQUANTISE
"""Cycles from the end of the last drain to the end of the instruction."""


def tree_stages(config: Config) -> int:
    """Register stages of an adder tree over the input lanes."""
    stages, rows = 0, config.ic
    while rows > 1:
        rows = ceil_div(rows, RADIX)
        stages += 1
    return stages


def to_accumulator(config: Config) -> int:
    """Cycles from a step to the first in which its sum can be read: address (4), bytes, operand, product, adder tree,
    sum, write."""
    return 4 + SRAM_READ + 3 + tree_stages(config)


State = tuple[int, int]
"""Between two stripes, in cycles from now: when the accumulators for the next stripe are free (0 if they are), and when
the drain is. Those for the stripe after it are free one cycle later than the drain."""
Advance = Callable[[State], tuple[int, State]]
"""Cycles that a stripe or a block of them takes, and the state behind it."""


def _stripe(config: Config, size: int, groups: int, work: int, old: int, state: State) -> tuple[int, State]:
    """``old``: cycles of the windows for old values, 0 if there are none."""
    free, drained = state
    if old:
        free = max(free, drained + SETTLE) + old
    end = free + work
    return end, (max(drained + 1 - end, 0), max(drained - end, to_accumulator(config) - 1) + size * groups)


def _repeat(advance: Advance, count: int, state: State) -> tuple[int, State]:
    """``count`` times ``advance``: a state that was there before leads to what it led to before."""
    time = n = 0
    seen: dict[State, tuple[int, int]] = {}
    while n < count:
        if state in seen:
            n_before, time_before = seen[state]
            rounds = (count - n) // (n - n_before)
            time += rounds * (time - time_before)
            n += rounds * (n - n_before)
            seen.clear()
            continue
        seen[state] = n, time
        elapsed, state = advance(state)
        time += elapsed
        n += 1
    return time, state


@lru_cache(maxsize=65536)
def array_duration(
    config: Config,
    *,
    depthwise: bool,
    taps: int,
    kc: int,
    pixels: int,
    stripe: int,
    blocks: int,
    last: int,
    accumulate: bool,
) -> int:
    """Cycles from an instruction's start to its end (end = start + duration).

    ``taps`` = kh * kw, ``kc`` input blocks per tap (ignored for depthwise), ``pixels`` = height * width,
    ``blocks`` of output channels with ``last`` channels in the last.
    """
    lanes = config.dw if depthwise else config.oc
    steps = taps * (1 if depthwise else kc)
    rows = 1 if depthwise else config.weight_rows
    words = ceil_div(4 * lanes, config.word_bytes) if accumulate else 0
    stripes = ceil_div(pixels, stripe)
    rest = pixels - (stripes - 1) * stripe

    def one(size: int, groups: int, *, first: bool = False, final: bool = False) -> Advance:
        """A stripe: the ``first`` of its block, the ``final`` one of the instruction."""
        step = max(size, rows, ACCUMULATE)
        work = steps * step
        if first and not (final and steps == 1):
            work += max(step, rows + lanes) - step
        if final:
            work += max(size, lanes * (first and steps == 1), ACCUMULATE) - step
        return partial(_stripe, config, size, groups, work, words * max(size, ACCUMULATE))

    def block(channels: int, *, final: bool = False) -> Advance:
        groups = ceil_div(channels, config.requant)
        begin, end = (
            one(stripe if stripes > 1 else rest, groups, first=True, final=final and stripes == 1),
            one(rest, groups, final=final),
        )
        middle = one(stripe, groups)

        def advance(state: State) -> tuple[int, State]:
            time, state = begin(state)
            if stripes > 2:
                elapsed, state = _repeat(middle, stripes - 2, state)
                time += elapsed
            if stripes > 1:
                elapsed, state = end(state)
                time += elapsed
            return time, state

        return advance

    time, state = _repeat(block(lanes), blocks - 1, (0, -SETTLE))
    elapsed, (_, drained) = block(last, final=True)(state)
    return CHECK + 1 + max(rows, ACCUMULATE) + time + elapsed + drained + DRAIN
