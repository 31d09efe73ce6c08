"""A tile's instructions: which output channels each of them computes, and from which part of the weight stream.

One instruction does for all channels but where weights exceed int8 (docs/decisions/0011-old-uint8-weights.md).
"""

from itertools import accumulate
from typing import NamedTuple

from dovetail.isa.common.sizes import ceil_div
from dovetail.isa.config.resolved import Config
from dovetail.sw.compiler.layer import ConvLayer


class Run(NamedTuple):
    """What one instruction computes of a tile, or one per group.

    ``channels`` outputs from the tile's ``first`` on; ``stream`` bytes of its weight stream from ``at`` on; whether
    taps are ``repeated``; whether it ``adds`` to int32 sums, and whether it leaves ``int32`` sums.
    """

    first: int
    channels: int
    at: int
    stream: int
    repeated: bool
    adds: bool
    int32: bool


def starts_of(config: Config, layer: ConvLayer, block: int, in_channels: int) -> list[int]:
    """Where the blocks of a pass's weight stream begin, and its end."""
    sizes = [layer.block_bytes(config, in_channels, repeated=more) for more in layer.repeated(block, in_channels)]
    return list(accumulate(sizes, initial=0))


def runs_of(
    config: Config,
    layer: ConvLayer,
    block: int,
    starts: list[int],
    tile: tuple[int, int],
    in_channels: int,
    adds: bool,
    int32: bool,
) -> tuple[int, list[Run]]:
    """(bytes of the weight stream, instructions) of a tile of (first, number of) output channels, ``block`` of them in
    each block of the pass's stream, which ``starts`` there.

    Of a depthwise layer the blocks that take several instructions come first, one by one: their sums lie where results
    of the blocks behind them will.
    """
    channel, count = tile
    begin, end = channel // block, ceil_div(channel + count, block)
    repeated = layer.repeated(block, in_channels)
    ends = [n for n in range(begin + 1, end) if repeated[n] != repeated[n - 1] or (layer.apart and repeated[n])]
    several, others = list[Run](), list[Run]()
    for first, last in zip((begin, *ends), (*ends, end), strict=True):
        at, size = starts[first] - starts[begin], starts[last] - starts[first]
        channels = min(last * block, channel + count) - first * block
        run = Run((first - begin) * block, channels, at, size, repeated[first], adds, int32)
        if layer.apart and run.repeated:
            several += _several(run, layer.block_bytes(config, in_channels), layer.repeats)
        else:
            others.append(run)
    return starts[end] - starts[begin], several + others


def _several(run: Run, first: int, count: int) -> list[Run]:
    """So many instructions in place of one that each add to the sums before, but for the ``first`` bytes' one."""
    size = (run.stream - first) // (count - 1)
    more = [run._replace(at=run.at + first + n * size, stream=size, adds=True, int32=True) for n in range(count - 1)]
    return [run._replace(stream=first, int32=True), *more[:-1], more[-1]._replace(int32=False)]
