"""Prices tilings from a handful of numbers: close estimates, and bounds that no program of the tiling can beat."""

from dataclasses import dataclass

from dovetail.isa.config import Config, ceil_div
from dovetail.isa.timing.dma import ADDRESS, BOUNDARY, MAX_BURST
from dovetail.sw.compiler.layer import ConvLayer
from dovetail.sw.compiler.schedule import Buffers, Copies, Space, array_cycles, buffer_bytes, stripe_of

OVERHEAD = 12
"""Cycles between two operations of a unit: register writes and waits. For estimates only."""
OVERHEAD_GROUP = 6
"""The same between the operations of two groups."""


@dataclass(frozen=True)
class Shape:
    """A tile: rows, channels and columns (0: all) of the output, input channels of a pass; ``best_stripe`` as in
    ``Tiling``."""

    rows: int
    columns: int
    out_channels: int
    in_channels: int
    best_stripe: bool = False


@dataclass(frozen=True)
class Costs:
    """What the pieces of a shape cost in cycles.

    ``areas``: tiles in the plane, ``columns``: across the output channels; ``passes`` over the input channels, without
    those of the weights' further terms;
    ``array``: all of the array's work, ``last``: that of one tile's last pass; ``input``, ``weights``, ``output``: (one
    transfer, all transfers when every piece is moved once) of each operand, 0 for residents.
    """

    sizes: Buffers
    areas: int
    columns: int
    passes: int
    array: int
    last: int
    input: tuple[int, int]
    weights: tuple[int, int]
    output: tuple[int, int]

    @property
    def tiles(self) -> int:
        """Output tiles."""
        return self.areas * self.columns


def _pieces(total: int, size: int) -> tuple[tuple[int, int], ...]:
    """(pieces, size) of ``total`` cut into equal pieces and a last one."""
    count = ceil_div(total, size)
    last = total - (count - 1) * size
    return ((count, size),) if last == size else ((count - 1, size), (1, last)) if count > 1 else ((1, last),)


def _areas(layer: ConvLayer, shape: Shape) -> list[tuple[int, int, int]]:
    """(number, rows, columns) of equal tiles in the plane."""
    across = _pieces(layer.out_width, shape.columns or layer.out_width)
    return [(n * m, rows, columns) for n, rows in _pieces(layer.out_height, shape.rows) for m, columns in across]


def _tile_cycles(config: Config, layer: ConvLayer, shape: Shape, pixels: int, out_channels: int, overhead: int) -> int:
    """The array's cycles for a tile, all passes, with ``overhead`` per instruction."""
    total = 0
    for first, count, channels in _slices(layer, shape):
        stripe = stripe_of(config, layer, pixels, out_channels, channels, shape.best_stripe)
        one = array_cycles(config, layer, pixels, out_channels, channels, stripe, accumulate=not first)
        total += count * (one + overhead)
    if layer.terms > 1:
        stripe = stripe_of(config, layer, pixels, out_channels, layer.span[1], shape.best_stripe)
        more = array_cycles(config, layer, pixels, out_channels, layer.span[1], stripe, accumulate=True)
        total += (layer.terms - 1) * (more + overhead)
    return total * (out_channels // layer.group[1] if layer.mode == "grouped" else 1)


def _slices(layer: ConvLayer, shape: Shape) -> list[tuple[bool, int, int]]:
    """(is the first, number, input channels) of equal passes."""
    if layer.separable or shape.in_channels >= layer.channels:
        return [(True, 1, layer.channels)]
    (count, size), *rest = _pieces(layer.channels, shape.in_channels)
    later = [(False, count - 1, size)] if count > 1 else []
    return [(True, 1, size), *later, *((False, n, channels) for n, channels in rest)]


def _streams(layer: ConvLayer, slices: list[tuple[int, int]]) -> list[tuple[int, int]]:
    """(number, input channels) of equal weight streams: those of the slices, and of the weights' further terms."""
    return [*slices, (layer.terms - 1, layer.span[1])] if layer.terms > 1 else slices


def array_total(config: Config, layer: ConvLayer, shape: Shape, overhead: int) -> int:
    """The array's cycles for the layer, with ``overhead`` per instruction."""
    return sum(
        areas * across * _tile_cycles(config, layer, shape, rows * columns, channels, overhead)
        for areas, rows, columns in _areas(layer, shape)
        for across, channels in _pieces(layer.out_channels, shape.out_channels)
    )


def _transfer(config: Config, latency: int, length: int, rows: int = 1) -> int:
    """About the cycles of a DMA of ``rows`` rows, aligned ones if there is one."""
    memory = config.memory
    beats = ceil_div(length, config.bus_bytes) + (rows > 1 and length % config.bus_bytes > 0)
    longest = min(MAX_BURST, BOUNDARY // config.bus_bytes)
    bursts = ceil_div(beats, longest)
    in_flight = (latency + ceil_div(beats, bursts) * memory.beat_cycles) * bursts // config.outstanding
    return rows * max(beats * memory.beat_cycles, bursts * ADDRESS, in_flight) + latency + OVERHEAD


def costs_of(config: Config, layer: ConvLayer, shape: Shape, space: Space) -> Costs | None:
    """The costs of a shape, or None when it exceeds the SRAM whatever the buffers."""
    sizes = buffer_bytes(config, layer, shape.rows, shape.out_channels, shape.in_channels, space, shape.columns)
    if sizes.input + sizes.weights + sizes.output > config.sram_bytes:
        return None
    overhead = OVERHEAD_GROUP if layer.mode == "grouped" else OVERHEAD
    areas, across = _areas(layer, shape), _pieces(layer.out_channels, shape.out_channels)
    slices = [(count, channels) for _, count, channels in _slices(layer, shape)]
    streams = _streams(layer, slices)
    passes = sum(count for count, _ in slices)
    _, rows, columns = areas[0]
    load_input = store = (0, 0)
    if space.input_at is None:
        # The transfers of separable layers depend on the output channels, of others on the pass.
        parts = [(count, layer.inputs_of(n, 0)) for count, n in across] if layer.separable else slices
        load_input = (
            _load_input(config, layer, *_window(layer, rows, columns), parts[0][1]),
            sum(
                n * m * _load_input(config, layer, height, width, channels)
                for n, height, width in _loaded(layer, shape)
                for m, channels in parts
            ),
        )
    if space.output_at is None:
        store = (
            _store(config, layer, rows, columns, shape.out_channels),
            sum(n * m * _store(config, layer, h, w, channels) for n, h, w in areas for m, channels in across),
        )
    return Costs(
        sizes=sizes,
        areas=sum(count for count, _, _ in areas),
        columns=ceil_div(layer.out_channels, shape.out_channels),
        passes=passes,
        array=array_total(config, layer, shape, overhead),
        last=_tile_cycles(config, layer, shape, rows * columns, shape.out_channels, overhead)
        // (passes + layer.terms - 1),
        input=load_input,
        weights=(
            _load_weights(config, layer, across[0][1], slices[0][1]),
            sum(n * m * _load_weights(config, layer, channels, seen) for n, channels in across for m, seen in streams),
        ),
        output=store,
    )


def _window(layer: ConvLayer, rows: int, columns: int) -> tuple[int, int]:
    """Input rows and columns that output rows and columns need, away from padding."""
    height = min((rows - 1) * layer.stride[0] + (layer.kernel[0] - 1) * layer.dilation[0] + 1, layer.height)
    if columns == layer.out_width:
        return height, layer.width
    return height, min((columns - 1) * layer.stride[1] + (layer.kernel[1] - 1) * layer.dilation[1] + 1, layer.width)


def _loaded(layer: ConvLayer, shape: Shape) -> list[tuple[int, int, int]]:
    """(number, rows, columns) of the input of equal tiles; the last rows without what is padding."""
    *most, last = _pieces(layer.out_height, shape.rows)
    across = _pieces(layer.out_width, shape.columns or layer.out_width)
    end = layer.input_rows(layer.out_height - last[1], last[1])[1]
    found = []
    for m, columns in across:
        found += [(n * m, *_window(layer, rows, columns)) for n, rows in (*most, (last[0] - 1, last[1]))]
        found.append((m, end, _window(layer, 1, columns)[1]))
    return found


def _load_input(config: Config, layer: ConvLayer, rows: int, columns: int, channels: int) -> int:
    return _plane(config, config.memory.read_latency, rows, columns, channels, layer.width, layer.channels)


def _store(config: Config, layer: ConvLayer, rows: int, columns: int, channels: int) -> int:
    return _plane(config, config.memory.write_latency, rows, columns, channels, layer.out_width, layer.out_channels)


def _plane(config: Config, latency: int, rows: int, columns: int, channels: int, width: int, pitch: int) -> int:
    """The transfer of a part of ``width`` pixels of ``pitch`` channels."""
    if channels < pitch:
        return _transfer(config, latency, channels, rows * columns)
    if columns < width:
        return _transfer(config, latency, columns * channels, rows)
    return _transfer(config, latency, rows * columns * channels)


def _load_weights(config: Config, layer: ConvLayer, out_channels: int, in_channels: int) -> int:
    latency = config.memory.read_latency
    stream = _transfer(config, latency, layer.stream_bytes(config, out_channels, in_channels))
    if layer.mode != "matmul":
        return stream
    (outer, pitch), inner = (in_channels, layer.out_channels), out_channels
    if layer.transposed:
        (outer, pitch), inner = (out_channels, layer.channels), in_channels
    whole = inner == pitch
    return stream + _transfer(config, latency, outer * inner if whole else inner, 1 if whole else outer)


def transfers(layer: ConvLayer, space: Space, costs: Costs, rows_outer: bool, copies: Copies) -> Copies:
    """Transfers of input, weights and output. A piece that is still in one of its buffers is not loaded again."""
    areas, columns, passes = costs.areas, costs.columns, costs.passes
    every = costs.tiles * passes
    streams = passes + layer.terms - 1
    inputs, weights = every, costs.tiles * streams
    if not layer.separable and _stays(areas, columns, passes, rows_outer, copies[0]):
        inputs = areas * passes
    if _stays(columns, areas, streams, not rows_outer, copies[1]):
        weights = columns * streams
    return (
        0 if space.input_at is not None else inputs,
        weights,
        0 if space.output_at is not None else costs.tiles,
    )


def _stays(own: int, other: int, passes: int, outer: bool, copies: int) -> bool:
    """Whether pieces of an operand, ``own`` x ``passes``, are loaded once though each is used ``other`` times."""
    return copies >= passes * (1 if outer or own == 1 else own)


def estimate(layer: ConvLayer, space: Space, costs: Costs, rows_outer: bool, copies: Copies, shared: bool) -> int:
    """About the cycles of a layer. ``shared``: input and output take turns at the ports of their banks.

    Loads, computation and stores of different tiles overlap where buffers are doubled, and half of the first loads and
    of the last store with other layers.
    """
    loads = transfers(layer, space, costs, rows_outer, copies)
    one = costs.input[0], costs.weights[0], costs.output[0]
    pieces = costs.tiles if layer.separable else costs.areas * costs.passes
    total_input = costs.input[1] * loads[0] // pieces
    total_weights = costs.weights[1] * loads[1] // (costs.columns * (costs.passes + layer.terms - 1))
    waits = [(n - 1) * cycles if c < min(n, 2) else 0 for n, cycles, c in zip(loads, one, copies, strict=True)]
    if shared:
        return total_input + one[1] + max(costs.array + waits[1], total_weights - one[1]) + costs.output[1]
    ends = (one[0] + one[1] + one[2]) // 2
    loading = total_input + total_weights - waits[0] - waits[1]
    return ends + max(costs.array + sum(waits), loading + costs.last // 2, costs.output[1] + costs.last // 2)


def lower_bound(config: Config, layer: ConvLayer, shape: Shape, space: Space, loads: Copies) -> int:
    """Cycles that no exact price of a shape can beat; ``loads`` as of :func:`transfers`.

    Each unit does one thing at a time. The array starts behind the first loads, the last store behind all of it. All
    weights may stay, however often they are used.
    """
    memory = config.memory

    def read(length: int) -> int:
        return ceil_div(length, config.bus_bytes) * memory.beat_cycles + memory.read_latency

    def write(length: int) -> int:
        return ceil_div(length, config.bus_bytes) * memory.beat_cycles + memory.write_latency

    areas, across = _areas(layer, shape), _pieces(layer.out_channels, shape.out_channels)
    slices = [(count, channels) for _, count, channels in _slices(layer, shape)]
    streams = _streams(layer, slices)
    channels = layer.inputs_of(across[-1][1], slices[-1][1])
    width = shape.columns or layer.out_width
    inputs = [
        read(
            layer.input_rows(y, min(shape.rows, layer.out_height - y))[1]
            * layer.input_columns(x, min(width, layer.out_width - x))[1]
            * channels
        )
        for y in range(0, layer.out_height, shape.rows)
        for x in range(0, layer.out_width, width)
    ]
    weights = [
        (count * taken, read(layer.weight_bytes(config, made, seen)))
        for count, made in across
        for taken, seen in streams
    ]
    stores = sum(n * m * write(rows * columns * made) for n, rows, columns in areas for m, made in across)
    first = min(cycles for _, cycles in weights) + (inputs[0] if loads[0] else 0)
    store = write(areas[-1][1] * areas[-1][2] * across[-1][1]) if loads[2] else 0
    loaded = sum(inputs) * loads[0] // len(inputs) + sum(count * cycles for count, cycles in weights)
    busy = array_total(config, layer, shape, 1)
    return ceil_div(max(first + 2 * busy + store, 2 * loaded + store, first + 2 * stores if loads[2] else 0), 2)
