"""First layers of few channels, whose kernel's rows become channels: then the array's input lanes are full.

The pixels of a kernel's row lie side by side, and so run along the lanes, but those of the next row do not. Where every
row of the result has copies of the rows of the image that it needs, channel beside channel, all of the kernel does: a
kernel of 7 x 7 pixels of 3 channels takes 10 steps of 16 lanes instead of 7 times 2. The vector unit makes the copies
while the array computes the rows before.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace

from dovetail.isa.common.sizes import ceil_div
from dovetail.isa.config.resolved import Config
from dovetail.sw.compiler.emit.array_layer import layer_of
from dovetail.sw.compiler.plan.residency import layer_cycles
from dovetail.sw.network import ir
from dovetail.sw.passes.integer.edit import Names, with_others

SHARE = 8
"""Image and copies take at most one part in so many of SRAM, so that they stay there."""


def with_kernel_rows(graph: ir.Graph, config: Config, host: Collection[str]) -> ir.Graph:
    """The graph in which convolutions have this form where it takes fewer cycles; only with nodes over rows, where the
    vector unit works beside the array in many steps. ``host``: names of nodes that the host computes."""
    if config.serial or not config.vector or not any(isinstance(node, ir.Rows) for node in graph.nodes):
        return graph
    names, others, added = Names(graph), dict[str, list[ir.Node]](), list[ir.Tensor]()
    for node in graph.nodes:
        if not isinstance(node, ir.Conv) or node.name in host or not _suits(node):
            continue
        nodes, tensors = _copied(graph, node, names)
        if _pays(config, graph, node, nodes, tensors):
            others[node.name] = nodes
            added += tensors
    return with_others(graph, others, added)


def _suits(node: ir.Conv) -> bool:
    """Whether the kernel has rows, and columns that run along the lanes."""
    return node.kernel[0] > 1 and node.dilation[1] == 1 and node.groups == 1 and node.rest is None


def _copied(graph: ir.Graph, node: ir.Conv, names: Names) -> tuple[list[ir.Node], list[ir.Tensor]]:
    """What takes the place of a convolution, and the tensors between: a frame above and below, copies, a convolution of
    a single row."""
    source, (rows, columns), (top, left, _, right) = graph.tensors[node.inputs[0]], node.kernel, node.pads
    _, height, width, channels = source.nhwc
    out_height = graph.tensors[node.outputs[0]].nhwc[1]
    needed = (out_height - 1) * node.stride[0] + (rows - 1) * node.dilation[0] + 1
    nodes, tensors, image = list[ir.Node](), list[ir.Tensor](), source
    if top or needed > top + height:
        image = names.like(source, (1, max(needed, top + height), width, channels), f"{node.name}/framed")
        frame = top, 0, image.shape[1] - top - height, 0
        name = names.fresh(f"{node.name}/frame")
        nodes.append(
            ir.Pad(name=name, inputs=node.inputs, outputs=(image.name,), pads=frame, value=node.requant.zero_in)
        )
        tensors.append(image)
    copied = names.like(source, (1, out_height, width, rows * channels), f"{node.name}/copied")
    copies = tuple(
        ir.Copy(
            (out_height, width, channels),
            row * node.dilation[0] * width * channels,
            (node.stride[0] * width * channels, channels, 1),
            row * channels,
            (width * rows * channels, rows * channels, 1),
        )
        for row in range(rows)
    )
    name = names.fresh(f"{node.name}/copies")
    nodes.append(ir.Move(name=name, inputs=(image.name,) * rows, outputs=(copied.name,), copies=copies, kind="copies"))
    weights = node.weights.transpose(0, 2, 1, 3).reshape(len(node.weights), 1, columns, rows * channels)
    single = replace(
        node,
        inputs=(copied.name,),
        weights=weights,
        stride=(1, node.stride[1]),
        dilation=(1, 1),
        pads=(0, left, 0, right),
    )
    return [*nodes, single], [*tensors, copied]


def _pays(config: Config, graph: ir.Graph, node: ir.Conv, nodes: list[ir.Node], tensors: list[ir.Tensor]) -> bool:
    """Whether the array takes fewer cycles, and the vector unit no more than it for frame and copies."""
    with_others = replace(graph, tensors={**graph.tensors, **{tensor.name: tensor for tensor in tensors}})
    single = nodes[-1]
    assert isinstance(single, ir.Conv)
    before = layer_cycles(config, layer_of(config, graph, node))
    after = layer_cycles(config, layer_of(config, with_others, single))
    channels = graph.tensors[node.inputs[0]].shape[-1]
    moved = sum(tensor.size // channels for tensor in tensors) * ceil_div(channels, config.vector_lanes)
    size = sum(tensor.bytes for tensor in tensors)
    return max(after, moved) < before and moved <= after and SHARE * size <= config.sram
