"""Decides which nodes run on the accelerator, and groups them into segments between host steps."""

from collections.abc import Callable
from dataclasses import dataclass

from dovetail.isa.config import Config
from dovetail.sw import graph as ir


@dataclass(frozen=True)
class Step:
    """Nodes that run together: an accelerator segment, or one node on the host."""

    host: bool
    nodes: tuple[ir.Node, ...]


def has_array(config: Config, graph: ir.Graph, node: ir.Node) -> str | None:
    """Depthwise convolutions need depthwise = "emulated" or "native", products of two activations matmul = true."""
    if isinstance(node, ir.Depthwise) and config.depthwise == "none":
        return 'the configuration has depthwise = "none"'
    if isinstance(node, ir.MatMul) and not config.matmul:
        return "the configuration has matmul = false"
    return None


def has_vector(config: Config, graph: ir.Graph, node: ir.Node) -> str | None:
    """Pooling, element-wise operations and activations need the parts of the vector unit that do them, padding any of
    these parts."""
    feature = None
    match node:
        case ir.AvgPool() | ir.MaxPool() | ir.Mean():
            feature = "pooling"
        case ir.Elementwise() | ir.Rescale(absolute=True):
            feature = "elementwise"
        case ir.Rescale() | ir.Table():
            feature = "activation"
        case ir.Pad():
            return None if config.vector else "the configuration has no vector unit"
    if feature and not getattr(config, feature):
        return f"the configuration has {feature} = false"
    return None


def fits_fields(config: Config, graph: ir.Graph, node: ir.Node) -> str | None:
    """Kernel, stride, dilation and a convolution's or pooling's padding are at most 255; height, width and channels,
    and rows and columns of matrices, at most 65535."""
    if isinstance(node, ir.Conv | ir.Depthwise | ir.AvgPool | ir.MaxPool):
        small = [*node.kernel, *node.stride, *node.pads]
        small += node.dilation if isinstance(node, ir.Conv | ir.Depthwise) else ()
        if max(small) > 255:
            return f"kernel, stride, dilation and padding must be at most 255, not {max(small)}"
    if isinstance(node, ir.Rescale | ir.Table | ir.Move):
        return None  # cut along the flat tensor
    tensors = [graph.tensors[name] for name in (*node.inputs, *node.outputs)]
    if isinstance(node, ir.Elementwise) and len({tensor.shape for tensor in tensors}) == 1:
        return None
    shapes = [tensor.shape[-2:] if isinstance(node, ir.MatMul) else tensor.nhwc for tensor in tensors]
    largest = max(size for shape in shapes for size in shape)
    return f"height, width and channels must be at most 65535, not {largest}" if largest > 65535 else None


def product_below_one(config: Config, graph: ir.Graph, node: ir.Node) -> str | None:
    """An element-wise product is scaled by less than one."""
    if isinstance(node, ir.Elementwise) and isinstance(node.params, ir.MulParams) and node.params.shift > 0:
        return "the product's scale is above that of the result"
    return None


def averages_fit(config: Config, graph: ir.Graph, node: ir.Node) -> str | None:
    """An average is over at most 16384 taps, a mean over at most 255 x 255 pixels."""
    if isinstance(node, ir.AvgPool) and node.kernel[0] * node.kernel[1] > 1 << 14:
        return f"average pooling must have at most 16384 taps, not {node.kernel[0] * node.kernel[1]}"
    if isinstance(node, ir.Mean):
        _, height, width, _ = graph.tensors[node.inputs[0]].nhwc
        if max(height, width) > 255:
            return f"a mean must be over at most 255 x 255 pixels, not {height} x {width}"
    return None


def pads_inside(config: Config, graph: ir.Graph, node: ir.Node) -> str | None:
    """Every window touches the input: padding is smaller than the (dilated) kernel."""
    if isinstance(node, ir.Conv | ir.Depthwise | ir.MaxPool | ir.AvgPool):
        dilation = node.dilation if isinstance(node, ir.Conv | ir.Depthwise) else (1, 1)
        reach = [(k - 1) * d + 1 for k, d in zip(node.kernel, dilation, strict=True)]
        if max(node.pads[::2]) >= reach[0] or max(node.pads[1::2]) >= reach[1]:
            return f"padding must be smaller than the kernel, not {node.pads}"
    return None


RULES: tuple[Callable[[Config, ir.Graph, ir.Node], str | None], ...] = (
    has_array,
    has_vector,
    fits_fields,
    product_below_one,
    averages_fit,
    pads_inside,
)
"""What a node must satisfy to run on the accelerator; each rule's docstring is its text for users."""


def reason_for_host(config: Config, graph: ir.Graph, node: ir.Node) -> str | None:
    """Why a node runs on the host, or None when the accelerator takes it."""
    if isinstance(node, ir.Host):
        return f"{node.label} is not an accelerator operation"
    if isinstance(node, ir.FREE):
        return None
    for rule in RULES:
        if text := rule(config, graph, node):
            return text
    return None


def steps_of(config: Config, graph: ir.Graph) -> list[Step]:
    """Steps in execution order: as few accelerator segments as a greedy order finds."""
    host = {node.name for node in graph.nodes if reason_for_host(config, graph, node)}
    ready = {port.tensor for port in graph.inputs}
    waiting = list(graph.nodes)
    steps: list[Step] = []
    while waiting:
        run: list[ir.Node] = []
        left: list[ir.Node] = []
        for node in waiting:
            if node.name not in host and all(name in ready for name in node.inputs):
                run.append(node)
                ready.update(node.outputs)
            else:
                left.append(node)
        if run:
            steps.append(Step(False, tuple(run)))
        waiting = []
        for node in left:
            if node.name in host and all(name in ready for name in node.inputs):
                steps.append(Step(True, (node,)))
                ready.update(node.outputs)
            else:
                waiting.append(node)
    return steps


def host_reasons(config: Config, graph: ir.Graph) -> dict[str, str]:
    """Name -> reason of every node that runs on the host."""
    return {node.name: text for node in graph.nodes if (text := reason_for_host(config, graph, node))}
