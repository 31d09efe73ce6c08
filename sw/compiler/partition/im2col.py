"""First layers of few channels, whose kernels become channels (im2col): then the array's input lanes are full.

The pixels of a kernel's row lie side by side, and so run along the lanes, but those of the next row do not. So the last
step of each row has lanes without a tap. Where all pixels of a window are the channels of one pixel, only the last step
of all has: a kernel of 3 x 3 pixels of 3 channels takes 4 steps of 8 lanes instead of 3 times 2. The vector unit copies
the image's rows into that order while the array computes the rows before.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import replace
from itertools import pairwise

from dovetail.isa.common.sizes import ceil_div
from dovetail.isa.config.resolved import Config
from dovetail.sw.compiler.emit.array_layer import layer_of
from dovetail.sw.compiler.emit.pooling import im2col_cycles
from dovetail.sw.compiler.partition.bands import Cascade, bands_of, needed
from dovetail.sw.compiler.plan.residency import layer_cycles
from dovetail.sw.network import ir
from dovetail.sw.passes.integer.edit import Names, with_others

BANDS = 8
"""Into how many bands copies and convolution are cut, at least, so that they run beside each other."""
SHARE = 4
"""A band's copies take about one part in so many of SRAM, at most."""

Form = tuple[tuple[ir.Im2col, ir.Conv], ir.Tensor]
"""What takes the place of a convolution, and the tensor between."""


def with_im2col(graph: ir.Graph, config: Config, host: Collection[str]) -> ir.Graph:
    """The graph in which convolutions have this form where it should take fewer cycles; the graph itself if there are
    none. ``host``: names of nodes that the host computes."""
    if config.serial or not config.vector:
        return graph
    others, added = dict[str, list[ir.Node]](), list[ir.Tensor]()
    for node in graph.nodes:
        if not isinstance(node, ir.Conv) or node.name in host or not _suits(node):
            continue
        least = layer_cycles(config, layer_of(config, graph, node))
        for nodes, copied in _forms(graph, node):
            if (cycles := _cycles(config, graph, nodes, copied)) < least:
                least, others[node.name] = cycles, list(nodes)
                added.append(copied)
    return with_others(graph, others, added)


def in_turn(graph: ir.Graph, config: Config) -> list[Cascade]:
    """Copies and convolutions in bands of rows: then the copies of some rows run beside the convolution of those
    before, and take little SRAM. Not where a band would see nothing but padding."""
    found = list[Cascade]()
    for copies, single in pairwise(graph.nodes):
        if isinstance(copies, ir.Im2col):
            copied, result = graph.tensors[copies.outputs[0]], graph.tensors[single.outputs[0]]
            bands = max(ceil_div(SHARE * copied.bytes, config.sram), BANDS)
            cascade = Cascade((copies, single), min(bands, result.nhwc[1]))
            if all(needed(graph, cascade.nodes, rows) for rows in bands_of(graph, cascade)):
                found.append(cascade)
    return found


def _suits(node: ir.Conv) -> bool:
    """Whether the kernel has rows, and columns that run along the lanes."""
    return node.kernel[0] > 1 and node.dilation[1] == 1 and node.groups == 1 and node.rest is None


def _forms(graph: ir.Graph, node: ir.Conv) -> Iterator[Form]:
    """With whole kernels as channels, and with their rows only, so that a pixel of the image has as many copies as the
    kernel has rows, whatever the stride."""
    source, (rows, columns), (top, left, bottom, right) = graph.tensors[node.inputs[0]], node.kernel, node.pads
    _, _, width, channels = source.nhwc
    _, out_height, out_width, _ = graph.tensors[node.outputs[0]].nhwc
    for across in (columns, 1):
        whole, names = across == columns, Names(graph)
        shape = 1, out_height, out_width if whole else width, rows * across * channels
        copied = names.like(source, shape, f"{node.name}/copied")
        copies = ir.Im2col(
            name=names.fresh(f"{node.name}/im2col"),
            inputs=node.inputs,
            outputs=(copied.name,),
            kernel=(rows, across),
            stride=(node.stride[0], node.stride[1] if whole else 1),
            dilation=(node.dilation[0], 1),
            pads=(top, left, bottom, right) if whole else (top, 0, bottom, 0),
            value=node.requant.zero_in,
        )
        order = (0, 1, 2, 3) if whole else (0, 2, 1, 3)
        single = replace(
            node,
            inputs=(copied.name,),
            weights=node.weights.transpose(order).reshape(len(node.weights), 1, columns // across, shape[-1]),
            stride=(1, 1 if whole else node.stride[1]),
            dilation=(1, 1),
            pads=(0, 0, 0, 0) if whole else (0, left, 0, right),
        )
        yield (copies, single), copied


def _cycles(config: Config, graph: ir.Graph, nodes: tuple[ir.Im2col, ir.Conv], copied: ir.Tensor) -> int:
    """Of array and vector unit beside each other, about."""
    copies, single = nodes
    with_copied = replace(graph, tensors={**graph.tensors, copied.name: copied})
    array = layer_cycles(config, layer_of(config, with_copied, single))
    vector = im2col_cycles(config, copies, copied.shape)
    return max(array, vector) + min(array, vector) // BANDS
