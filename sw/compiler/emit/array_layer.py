"""A node of the array as a layer: its shape, its passes, its constants, and buffers for its tiles."""

from collections.abc import Callable
from dataclasses import replace
from functools import partial

import numpy as np
from numpy.typing import NDArray

from dovetail.isa.common.sizes import ceil_div, round_up
from dovetail.isa.config.resolved import Config
from dovetail.sw.compiler.emit import weight_streams
from dovetail.sw.compiler.emit.arena import Arena, Runs
from dovetail.sw.compiler.emit.weight_streams import starts_of
from dovetail.sw.compiler.layer import ConvLayer, use_packing
from dovetail.sw.compiler.plan.array_time import down_columns, has_pairs, in_columns, in_rows, sets_of
from dovetail.sw.compiler.plan.schedule import Space, Tiling, buffer_bytes
from dovetail.sw.network import ir

MAX_SLOTS = 64
"""The most weight buffers of a layer."""

MAX_EXTRA = 7
"""The channel multiplier less one that DEPTH_CONV can hold."""


def layer_of(
    config: Config, graph: ir.Graph, node: ir.Conv | ir.Depthwise | ir.MatMul, *, dense: bool = True
) -> ConvLayer:
    """The layer's shape on this configuration; ``dense``: between pixels of its input and its output there is
    nothing else in SRAM."""
    item = graph.tensors[node.outputs[0]].item_bytes
    if isinstance(node, ir.MatMul):
        *_, rows, depth = graph.tensors[node.inputs[0]].shape
        columns = graph.tensors[node.outputs[0]].shape[-1]
        return ConvLayer(
            rows, 1, depth, rows, 1, columns, (1, 1), (1, 1), (1, 1), 0, 0, "matmul", False, transposed=node.transposed,
            item=item,
        )  # fmt: skip
    _, height, width, channels = graph.tensors[node.inputs[0]].nhwc
    _, out_height, out_width, out_channels = graph.tensors[node.outputs[0]].nhwc
    packed, group = False, (1, 1)
    if isinstance(node, ir.Depthwise):
        group = (1, out_channels // channels)
        native = config.depth_conv and group[1] <= min(MAX_EXTRA + 1, config.oc_lanes)
        mode = "depthwise" if native else "grouped"
    elif node.groups > 1:
        mode, group = "grouped", (channels // node.groups, out_channels // node.groups)
    else:
        mode = "conv"
        packed = use_packing(config, channels, node.kernel, node.dilation[1])
    terms, repeats, span, spot = 1, 1, (0, 0), (0, 0, 0, 0)
    wide: tuple[int, ...] = ()
    if node.rest is not None and node.rest.any():
        if mode == "depthwise":
            repeats, (down, across, wide) = 1 + len(node.rest), _seen(node.rest, 1, 2, 3)
            spot = down[0], down[-1] - down[0] + 1, across[0], across[-1] - across[0] + 1
        elif mode == "conv" and (packed or node.kernel[1] == 1):
            repeats, (wide,) = 1 + len(node.rest), _seen(node.rest, 1)
        elif mode == "conv":
            terms, (seen,) = 1 + len(node.rest), _seen(node.rest, 4)
            span = seen[0], seen[-1] - seen[0] + 1
    layer = ConvLayer(
        height, width, channels, out_height, out_width, out_channels, node.kernel, node.stride, node.dilation,
        node.pads[0], node.pads[1], mode, packed, group, terms=terms, span=span, repeats=repeats, wide=wide,
        spot=spot, item=item,
    )  # fmt: skip
    layer = replace(layer, sets=sets_of(config, layer), pairs=has_pairs(config, layer))
    return down_columns(config, layer, in_rows(config, in_columns(config, layer) if dense else layer))


def _seen(rest: NDArray[np.int8], *axes: int) -> list[tuple[int, ...]]:
    """Per axis where not all is zero."""
    others = (tuple(n for n in range(rest.ndim) if n != axis) for axis in axes)
    return [tuple(np.flatnonzero(rest.any(axis=rows)).tolist()) for rows in others]


def passes_of(layer: ConvLayer, tiling: Tiling) -> list[weight_streams.Pass]:
    """The passes of a tile, each of which adds to the sums of those before it."""
    step = layer.channels if layer.separable else tiling.in_channels
    passes = []
    for first in range(0, layer.channels, step):
        loaded = first, min(step, layer.channels - first)
        passes.append(weight_streams.Pass(*loaded, 0, loaded))
        begin, end = max(first, layer.span[0]), min(sum(loaded), sum(layer.span))
        if begin < end:
            passes += [weight_streams.Pass(begin, end - begin, term, loaded) for term in range(1, layer.terms)]
    return passes


def block_of(config: Config, layer: ConvLayer, tiling: Tiling) -> int:
    """Output channels of a weight block."""
    return min(layer.lanes(config), tiling.out_channels)


def constants_of(
    config: Config, node: ir.Conv | ir.Depthwise | ir.MatMul, layer: ConvLayer, tiling: Tiling
) -> tuple[int, Callable[[], weight_streams.Bytes]]:
    """(bytes, what makes them) of a layer's weight streams."""
    block, passes = block_of(config, layer, tiling), passes_of(layer, tiling)
    blocks = ceil_div(layer.out_channels, block)
    if isinstance(node, ir.MatMul):
        # The zero points are the instruction's; every pass has the same records.
        bias = np.zeros(layer.out_channels, np.int64)
        size = blocks * layer.stream_bytes(config, 1, layer.channels)
        return size, lambda: weight_streams.records(bias, node.requant, block, config.oc_lanes, config).ravel()
    size = sum(starts_of(config, layer, block, one.channels)[-1] for one in passes)
    return size, partial(weight_streams.pack, node, layer, config, block, passes)


def spread(
    config: Config,
    layer: ConvLayer,
    tiling: Tiling,
    space: Space,
    arena: Arena,
    products: int = 1,
    results: Runs | None = None,
    together: int = 0,
    few: bool = False,
) -> Tiling:
    """The same tiling with its buffers where SRAM has been out of use for longest, and with as many buffers for weights
    as there is room for, so that loads can go far ahead; or the unchanged tiling if that is not possible. ``products``:
    of matrices, that follow one another; ``results``: banks for these, if not any that are free; ``together``: bytes of
    one buffer for all weights, if there is to be but one; ``few``: no more of them than the tiling has."""
    bank, free = config.bank_bytes, space.free
    sizes = buffer_bytes(config, layer, tiling.rows, tiling.out_channels, tiling.in_channels, space, tiling.columns)
    places: list[tuple[int, ...]] = []
    for at, size, own in ((tiling.input_at, sizes.input, None), (tiling.output_at, sizes.output, results)):
        padded = round_up(size, config.word_bytes)
        found = arena.banks(free if own is None else own, ceil_div(len(at) * padded, bank))
        if found is None:
            return tiling
        first, rest = found
        free = rest if own is None else free
        places.append(tuple(first * bank + i * padded for i in range(len(at))))
    streams = ceil_div(layer.out_channels, tiling.out_channels) * len(passes_of(layer, tiling)) * products
    size, least, most = (
        (together, 1, 1) if together else (sizes.weights, len(tiling.weights_at), min(streams, MAX_SLOTS))
    )
    most = least if few else most
    slots = arena.slots(free, size, most)
    if len(slots) < least:
        return tiling
    return replace(tiling, input_at=places[0], weights_at=tuple(slots), output_at=places[1])
