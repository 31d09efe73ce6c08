"""Timing of the array unit: CONV, CONV_RELU and DEPTH_CONV.

The sequencer walks, per block of output channels: requantisation records, first weight block, then per stripe the
(ky, kx, input block) steps. A step lasts as long as its pixels, the load of the next weight block and the
accumulator's read-modify-write need. Results of a stripe drain through the requantiser while the next stripe
runs in the other accumulator buffer.
"""

from functools import lru_cache

from dovetail.isa.config import Config, ceil_div
from dovetail.isa.timing.common import CHECK

ACCUMULATE = 3
"""Least cycles between two visits of one accumulator: a step of fewer pixels is padded to this."""

FILL = 4
"""Cycles from the last row of a block's first weights (and the last record) to the first pixel."""

TO_ACCUMULATOR = 10
"""Cycles from a step's last cycle to the first in which the stripe may drain."""

PRELOAD = 10
"""Cycles between the last int32 read of an accumulate stripe and its first step."""

DRAIN = 20
"""Cycles from the last drained group of the instruction to its end."""


@lru_cache(maxsize=65536)
def array_duration(
    config: Config, *, depthwise: bool, taps: int, kc: int, pixels: int, stripe: int, blocks: int, last: int,
    accumulate: bool,
) -> int:
    """Cycles from an instruction's start to its end (end = start + duration).

    ``taps`` = kh * kw, ``kc`` input blocks per tap (ignored for depthwise), ``pixels`` = height * width,
    ``blocks`` of output channels with ``last`` channels in the last.
    """
    lanes = config.dw if depthwise else config.oc
    steps = taps * (1 if depthwise else kc)
    rows = 1 if depthwise else config.weight_rows
    full, rest = divmod(pixels, stripe)
    sizes = [stripe] * full + [rest] * (rest > 0)
    time = CHECK + 1
    free = [time, time]  # when each accumulator buffer is drained, and with it the record buffer of that turn
    drained = time  # first cycle in which the drain is free
    records = [time, time]
    turn = 0
    for block in range(blocks):
        channels = last if block == blocks - 1 else lanes
        groups = ceil_div(channels, config.requant)
        words = ceil_div(4 * channels, config.word_bytes)
        time = max(time, records[block & 1]) + lanes + rows + FILL
        for size in sizes:
            time = max(time, free[turn])
            if accumulate:
                time += size * words + PRELOAD
            time += steps * max(size, rows, ACCUMULATE)
            drained = max(drained, time + TO_ACCUMULATOR) + size * groups
            free[turn] = drained
            turn ^= 1
        records[block & 1] = drained
    return drained + DRAIN
