"""Chooses tiles: how many output rows and channels at a time, in which order, in which banks.

Candidates are priced with the exact durations of the array and close estimates of transfers; the price of a whole
layer assumes that loads, computation and stores of different tiles overlap where buffers are doubled.
"""

from dataclasses import dataclass
from functools import lru_cache

from dovetail.isa.config import Config, ceil_div, format_bytes
from dovetail.isa.timing.array import array_duration, matrix_reads
from dovetail.isa.timing.dma import ADDRESS, BOUNDARY, MAX_BURST
from dovetail.sw.compiler.layer import ConvLayer
from dovetail.sw.compiler.options import Options
from dovetail.sw.errors import CompileError

OVERHEAD = 12
"""Cycles between two operations of a unit: register writes and waits. For pricing only."""

COUNTS = (
    1,
    2,
    3,
    4,
    5,
    6,
    7,
    8,
    10,
    12,
    14,
    16,
    20,
    24,
    28,
    32,
    40,
    48,
    56,
    64,
    96,
    128,
    192,
    256,
    512,
    1024,
)


@dataclass(frozen=True)
class Tiling:
    """A layer's schedule.

    ``rows`` x ``out_channels``: output tile; ``in_channels``: input channels per pass (all unless split);
    ``rows_outer``: the order of the two loops; ``*_at``: SRAM byte addresses of each operand's buffers (two when
    doubled).
    """

    rows: int
    out_channels: int
    in_channels: int
    rows_outer: bool
    input_at: tuple[int, ...]
    weights_at: tuple[int, ...]
    output_at: tuple[int, ...]
    price: int

    def __str__(self) -> str:
        order = "rows outer" if self.rows_outer else "channels outer"
        copies = "/".join(str(len(at)) for at in (self.input_at, self.weights_at, self.output_at))
        return f"{self.rows} rows x {self.out_channels} of {self.in_channels} channels, {order}, buffers {copies}"


@dataclass(frozen=True)
class Space:
    """The SRAM that a layer's schedule may use.

    ``free``: runs of whole banks, as (first bank, banks). ``input_at``, ``output_at``: SRAM byte address of the whole
    input, or output, which needs no buffers then; None where it comes from, or goes to, system memory tile by tile.
    Residents lie in banks that are not free.
    """

    free: tuple[tuple[int, int], ...]
    input_at: int | None = None
    output_at: int | None = None

    @classmethod
    def whole(cls, config: Config) -> "Space":
        """All of SRAM, nothing in it."""
        return cls(((0, config.n_banks),))


@dataclass(frozen=True)
class Buffers:
    """Bytes of one buffer of each operand."""

    input: int
    weights: int
    output: int


def buffer_bytes(
    config: Config, layer: ConvLayer, rows: int, out_channels: int, in_channels: int, space: Space
) -> Buffers:
    """SRAM that a tile needs besides residents. With split input channels the output is held as int32."""
    span = (rows - 1) * layer.stride[0] + (layer.kernel[0] - 1) * layer.dilation[0] + 1
    channels = layer.inputs_of(out_channels, in_channels)
    split = not layer.separable and in_channels < layer.channels
    return Buffers(
        0 if space.input_at is not None else min(span, layer.height) * layer.width * channels,
        layer.weight_bytes(config, out_channels, in_channels),
        0 if space.output_at is not None else rows * layer.out_width * out_channels * (4 if split else 1),
    )


Placed = tuple[tuple[int, ...], ...]


def place(config: Config, sizes: Buffers, copies: tuple[int, int, int], space: Space) -> tuple[Placed, bool] | None:
    """Addresses of (input, weights, output) buffers in banks of their own, or None when they do not fit.

    Where three groups of banks do not fit, output shares the input's banks (the second value says so): more fits, and
    the ports take turns. An operand that is resident has no buffers.
    """
    bank, word = config.bank_bytes, config.word_bytes
    sides = (sizes.input, sizes.weights, sizes.output)
    padded = [ceil_div(size, word) * word for size in sides]
    need = [size * count for size, count in zip(padded, copies, strict=True)]
    shareable = space.input_at is None and space.output_at is None
    for shared in (False, True) if shareable else (False,):
        groups = [need[0] + need[2], need[1], 0] if shared else need
        firsts = _banks(space.free, [ceil_div(size, bank) for size in groups])
        if firsts is None:
            continue
        starts = [first * bank for first in firsts]
        if shared:
            starts[2] = starts[0] + need[0]
        places = tuple(
            tuple(start + i * size for i in range(count))
            for start, size, count in zip(starts, padded, copies, strict=True)
        )
        return places, shared
    return None


def _banks(free: tuple[tuple[int, int], ...], groups: list[int]) -> list[int] | None:
    """The first bank of each group of banks: first fit in their order, else the largest group first."""
    for order in (range(len(groups)), sorted(range(len(groups)), key=lambda i: -groups[i])):
        runs = [list(run) for run in free]
        firsts = [0] * len(groups)
        for i in order:
            run = next((run for run in runs if run[1] >= groups[i]), None)
            if run is None:
                break
            firsts[i] = run[0]
            run[0] += groups[i]
            run[1] -= groups[i]
        else:
            return firsts
    return None


def stripe_of(config: Config, pixels: int) -> int:
    """Pixels per stripe: as few stripes as the accumulators allow, equally long."""
    return ceil_div(pixels, ceil_div(pixels, config.stripe))


def _array_cycles(config: Config, layer: ConvLayer, rows: int, out_channels: int, in_channels: int) -> int:
    kh, kw = layer.taps
    pixels = rows * layer.out_width
    grouped = layer.mode == "grouped"
    lanes = config.oc if grouped else layer.lanes(config)
    channels = layer.group[1] if grouped else out_channels
    blocks = ceil_div(channels, lanes)
    passes = ceil_div(layer.channels, in_channels) if not layer.separable else 1
    one = array_duration(
        config,
        depthwise=layer.mode == "depthwise",
        taps=kh * kw,
        kc=layer.kc(config, in_channels),
        pixels=pixels,
        stripe=stripe_of(config, pixels),
        blocks=blocks,
        last=channels - (blocks - 1) * lanes,
        accumulate=passes > 1,
        multiplier=layer.group[1] if layer.mode == "depthwise" else 1,
        matrix_rows=matrix_reads(config, transposed=layer.transposed) if layer.mode == "matmul" else 0,
    )
    return passes * (out_channels // channels * (one + 6) if grouped else one + OVERHEAD)


def _transfer(config: Config, latency: int, length: int, rows: int = 1) -> int:
    """About the cycles of a DMA of ``rows`` rows, aligned ones if there is one: for pricing only."""
    memory = config.memory
    beats = ceil_div(length, config.bus_bytes) + (rows > 1 and length % config.bus_bytes > 0)
    longest = min(MAX_BURST, BOUNDARY // config.bus_bytes)
    bursts = ceil_div(beats, longest)
    in_flight = (latency + ceil_div(beats, bursts) * memory.beat_cycles) * bursts // config.outstanding
    return rows * max(beats * memory.beat_cycles, bursts * ADDRESS, in_flight) + latency + OVERHEAD


def _candidates(total: int, quantum: int, limit: int | None = None) -> list[int]:
    """Tile sizes worth trying: ``total`` cut into equal parts, rounded up to ``quantum``."""
    sizes = []
    for count in COUNTS:
        size = ceil_div(ceil_div(total, count), quantum) * quantum
        size = min(size, total)
        if size not in sizes:
            sizes.append(size)
        if size <= quantum:
            break
    if quantum not in sizes and quantum < total:
        sizes.append(quantum)
    return sizes


@lru_cache(maxsize=4096)
def choose(config: Config, layer: ConvLayer, space: Space, options: Options) -> Tiling:
    """The cheapest tiling within ``space``; an output that is resident rules out passes over the input channels.

    Raises
    ------
    CompileError
        Not even the smallest tile fits the SRAM.
    """
    best: Tiling | None = None
    mode = options.tiling
    lanes = layer.lanes(config)
    heights = [layer.out_height] if mode == "channels" else _candidates(layer.out_height, 1)
    channel_tiles = _candidates(layer.out_channels, min(lanes, layer.out_channels))
    if mode == "channels" and lanes > 1:
        group = layer.group[1]
        channel_tiles += list(range((min(lanes, layer.out_channels) - 1) // group * group, 0, -group))
    splits = [layer.channels]
    if not layer.separable and not layer.packed and space.output_at is None:
        splits += [c for c in _candidates(layer.channels, min(config.ic, layer.channels)) if c < layer.channels]
    for in_channels in splits:
        for height in heights:
            for out_channels in channel_tiles:
                found = _price(config, layer, height, out_channels, in_channels, space)
                if found and (best is None or found.price < best.price):
                    best = found
        if best:
            return best
    smallest = buffer_bytes(config, layer, heights[-1], channel_tiles[-1], splits[-1], space)
    raise CompileError(
        f"its smallest tile ({heights[-1]} row(s) of {layer.out_width} pixels, {channel_tiles[-1]} channel(s)) needs"
        f" {smallest.input} + {smallest.weights} + {smallest.output} bytes of input, weights and output, in banks of"
        f" their own; {format_bytes(config.sram_bytes)} of SRAM in {config.n_banks} banks is too small:"
        " give more SRAM or let the layer run on the host"
    )


def _price(
    config: Config, layer: ConvLayer, height: int, out_channels: int, in_channels: int, space: Space
) -> Tiling | None:
    """The best buffering and loop order of one tile size, or None when it does not fit."""
    sizes = buffer_bytes(config, layer, height, out_channels, in_channels, space)
    rows = ceil_div(layer.out_height, height)
    cols = ceil_div(layer.out_channels, out_channels)
    passes = 1 if layer.separable else ceil_div(layer.channels, in_channels)
    if sizes.input + sizes.weights + sizes.output > config.sram_bytes:
        return None
    array = _array_cycles(config, layer, height, out_channels, in_channels)
    last_rows = layer.out_height - (rows - 1) * height
    last_channels = layer.out_channels - (cols - 1) * out_channels
    total_array = (rows - 1) * (cols - 1) * array
    if rows > 1:
        total_array += (rows - 1) * _array_cycles(config, layer, height, last_channels, in_channels)
    if cols > 1:
        total_array += (cols - 1) * _array_cycles(config, layer, last_rows, out_channels, in_channels)
    total_array += _array_cycles(config, layer, last_rows, last_channels, in_channels)
    load_input = store = 0
    if space.input_at is None:
        whole = layer.inputs_of(out_channels, in_channels)
        runs = 1 if whole == layer.channels else sizes.input // whole
        load_input = _transfer(config, config.memory.read_latency, sizes.input // runs, runs)
    load_weights = _transfer(config, config.memory.read_latency, sizes.weights)
    pixels = height * layer.out_width
    if space.output_at is None:
        runs = 1 if out_channels == layer.out_channels else pixels
        store = _transfer(config, config.memory.write_latency, pixels * out_channels // runs, runs)
    best: Tiling | None = None
    tiles = rows * cols
    for rows_outer in (True, False) if rows > 1 and cols > 1 else (rows > 1,):
        if passes > 1:
            inputs = weights = tiles * passes
        elif layer.separable:
            inputs = tiles
            weights = cols if not rows_outer or cols == 1 else tiles
        else:
            inputs = rows if rows_outer or rows == 1 else tiles
            weights = cols if not rows_outer or cols == 1 else tiles
        inputs = 0 if space.input_at is not None else inputs
        outputs = 0 if space.output_at is not None else tiles
        loads = inputs * load_input + weights * load_weights
        first = load_input + load_weights
        for doubled in (
            (min(inputs, 2), min(weights, 2), min(outputs, 2)),
            (min(inputs, 2), min(weights, 2), min(outputs, 1)),
            (min(inputs, 1), min(weights, 2), min(outputs, 1)),
            (min(inputs, 2), 1, min(outputs, 1)),
            (min(inputs, 1), 1, min(outputs, 1)),
        ):
            placed = place(config, sizes, doubled, space)
            if placed is None:
                continue
            at, shared = placed
            alone = 0
            if doubled[0] < min(inputs, 2):
                alone += (inputs - 1) * load_input
            if doubled[1] < min(weights, 2):
                alone += (weights - 1) * load_weights
            if doubled[2] < min(outputs, 2):
                alone += (tiles - 1) * store
            hidden = max(loads - first - alone, 0)
            if shared:  # the ports take turns
                price = loads + total_array + tiles * store
            else:
                price = first + max(total_array + alone, hidden + array, (tiles - 1) * store + array) + store
            if best is None or price < best.price:
                best = Tiling(height, out_channels, in_channels, rows_outer, at[0], at[1], at[2], price)
            if not alone:
                break
    return best
