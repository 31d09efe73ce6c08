"""Decides which nodes run on the accelerator, and groups them into segments between host steps."""

from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass

from dovetail.isa.common.sizes import ceil_div
from dovetail.isa.config.resolved import Config
from dovetail.isa.instructions.checks import has
from dovetail.isa.instructions.table import INSTRUCTIONS, Op
from dovetail.isa.numerics.norm import NORM_COLUMNS
from dovetail.isa.numerics.rounding import Rounding
from dovetail.isa.numerics.softmax import MAX_LEVELS, TFLITE_COLUMNS
from dovetail.sw.compiler.emit import array_layer, elementwise, pooling, rows
from dovetail.sw.compiler.emit.arena import Arena, check_padding
from dovetail.sw.compiler.options import Options
from dovetail.sw.compiler.partition.in_place import updates_in_place
from dovetail.sw.compiler.place import Place
from dovetail.sw.compiler.plan import tiling
from dovetail.sw.errors import CompileError
from dovetail.sw.host.kernels import Dequantize, Quantize
from dovetail.sw.network import ir

ACCELERATOR, HOST = "accelerator", "host"
"""Devices."""


@dataclass(frozen=True)
class Step:
    """Nodes that run together on one device: a segment of the accelerator, or a run of nodes on the host."""

    device: str
    nodes: tuple[ir.Node, ...]

    @property
    def is_program(self) -> bool:
        """Whether it executes instructions; views and constants alone do not."""
        return self.device == ACCELERATOR and any(not isinstance(node, ir.FREE) for node in self.nodes)


def border_of(graph: ir.Graph, nodes: Iterable[ir.Node]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """(tensors that nodes read from before them, those that they make for others, user or next run), each once."""
    nodes = tuple(nodes)
    names = {node.name for node in nodes}
    made = dict.fromkeys(name for node in nodes for name in node.outputs)
    read = dict.fromkeys(name for node in nodes for name in node.inputs if name not in made)
    wanted = set(graph.wanted)
    wanted |= {name for node in graph.nodes if node.name not in names for name in node.inputs}
    return tuple(read), tuple(name for name in made if name in wanted)


def has_array(config: Config, options: Options, graph: ir.Graph, node: ir.Node) -> str | None:
    """Depthwise convolutions need depthwise = "emulated" or "native", and products of two activations need
    matmul = true."""
    if isinstance(node, ir.Depthwise) and config.depthwise == "none":
        return 'the configuration has depthwise = "none"'
    if isinstance(node, ir.MatMul) and not config.matmul:
        return "the configuration has matmul = false"
    return None


def fits_int8(config: Config, options: Options, graph: ir.Graph, node: ir.Node) -> str | None:
    """Weights minus their zero point fit int8. Convolutions without groups are exempt, and so are depthwise ones with
    depthwise = "native"."""
    if not isinstance(node, ir.Conv | ir.Depthwise) or node.rest is None:
        return None
    grouped = array_layer.layer_of(config, graph, node).mode == "grouped"
    return "weights minus their zero point must fit int8 here" if grouped else None


def has_vector(config: Config, options: Options, graph: ir.Graph, node: ir.Node) -> str | None:
    """Pooling, element-wise operations, activations, softmax and norms need the part of the vector unit that performs
    them, those of 16 bits need norm_bits = 16. Padding needs a vector unit with at least one of these parts."""
    op = None
    match node:
        case ir.AvgPool() | ir.MaxPool() | ir.Mean():
            op = Op.POOL
        case ir.Pad() | ir.Im2col():
            op = Op.MOV
        case ir.Elementwise() | ir.Rescale() | ir.Table():
            op = elementwise.operation_of(node).op
        case ir.Softmax() | ir.Norm():
            op = rows.op_of(node)
    if is_wide(graph, node) and not config.norm16:
        return f"the configuration has norm_bits = {config.norm_bits}"
    if op is None or has(config, op):
        return None
    row = INSTRUCTIONS[op]
    if row.feature == "softmax":
        return "the configuration has softmax = 0"
    if row.extension not in (None, *config.extensions):
        return f"the configuration has no {op.name} (extension {row.extension})"
    return "the configuration has no vector unit" if op == Op.MOV else f"the configuration has {row.feature} = false"


def is_wide(graph: ir.Graph, node: ir.Node) -> bool:
    """Whether a node computes with, or moves, elements of 16 bits."""
    if isinstance(node, ir.Conv | ir.MatMul | ir.Update):
        return False
    return any(graph.tensors[name].dtype == "int32" for name in (*node.inputs, *node.outputs))


def fits_fields(config: Config, options: Options, graph: ir.Graph, node: ir.Node) -> str | None:
    """Kernel, stride, dilation and a convolution's or pooling's padding are at most 255; height, width and channels,
    and rows and columns of matrices, at most 65535."""
    if isinstance(node, ir.Conv | ir.Depthwise | ir.AvgPool | ir.MaxPool):
        small = [*node.kernel, *node.stride, *node.pads]
        small += node.dilation if isinstance(node, ir.Conv | ir.Depthwise) else ()
        if max(small) > 255:
            return f"kernel, stride, dilation and padding must be at most 255, not {max(small)}"
    if isinstance(node, ir.Rescale | ir.Table | ir.Move | ir.Rows):
        return None  # cut along the flat tensor
    if isinstance(node, ir.Update):
        return None  # copied piece by piece
    tensors = [graph.tensors[name] for name in (*node.inputs, *node.outputs)]
    if isinstance(node, ir.Elementwise) and len({tensor.shape for tensor in tensors}) == 1:
        return None
    shapes = [tensor.shape[-2:] if isinstance(node, ir.MatMul) else tensor.nhwc for tensor in tensors]
    largest = max(size for shape in shapes for size in shape)
    return f"height, width and channels must be at most 65535, not {largest}" if largest > 65535 else None


def product_below_one(config: Config, options: Options, graph: ir.Graph, node: ir.Node) -> str | None:
    """The scale factor of an element-wise product is below one."""
    if isinstance(node, ir.Elementwise) and node.op == "mul" and node.params.shift_out > 0:
        return "the product's scale is above that of the result"
    return None


def averages_fit(config: Config, options: Options, graph: ir.Graph, node: ir.Node) -> str | None:
    """An average is over at most 16384 taps, a mean over at most 255 x 255 pixels."""
    if isinstance(node, ir.AvgPool) and node.kernel[0] * node.kernel[1] > 1 << 14:
        return f"average pooling must have at most 16384 taps, not {node.kernel[0] * node.kernel[1]}"
    if isinstance(node, ir.Mean):
        _, height, width, _ = graph.tensors[node.inputs[0]].nhwc
        if max(height, width) > 255:
            return f"a mean must be over at most 255 x 255 pixels, not {height} x {width}"
    return None


def rows_fit(config: Config, options: Options, graph: ir.Graph, node: ir.Node) -> str | None:
    """Rows of a softmax or a norm have at most 4096 elements, 4095 of TFLite's softmax. Behind a softmax, at most 8191
    steps are 1."""
    if not isinstance(node, ir.Rows):
        return None
    most = TFLITE_COLUMNS if isinstance(node, ir.Softmax) and node.form == Rounding.TFLITE else NORM_COLUMNS
    count = graph.tensors[node.inputs[0]].shape[-1]
    if count > most:
        return f"rows must have at most {most} elements, not {count}"
    if isinstance(node, ir.Softmax) and node.levels > MAX_LEVELS:
        return f"at most {MAX_LEVELS} steps may be 1, not {node.levels}"
    if isinstance(node, ir.Softmax) and node.valid is not None:
        first, step = node.valid
        last = first + step * (graph.tensors[node.inputs[0]].shape[-2] - 1)
        if not 0 <= min(first, step) <= max(first, last) <= rows.MAX_COUNT:
            return f"at most {rows.MAX_COUNT} elements of a row may count, not {max(first, last)}"
    return None


def pads_inside(config: Config, options: Options, graph: ir.Graph, node: ir.Node) -> str | None:
    """Padding is smaller than the kernel in maximum pooling, and in average pooling that does not count padding. So
    every window touches the input."""
    if not isinstance(node, ir.MaxPool | ir.AvgPool) or (isinstance(node, ir.AvgPool) and node.counted is not None):
        return None
    if max(node.pads[::2]) >= node.kernel[0] or max(node.pads[1::2]) >= node.kernel[1]:
        return f"padding must be smaller than the kernel, not {node.pads}"
    return None


def pads_near(config: Config, options: Options, graph: ir.Graph, node: ir.Node) -> str | None:
    """A row's padding on one side has no more bytes than the SRAM, and there are no more rows of it above or below."""
    if isinstance(node, ir.Conv | ir.Depthwise | ir.AvgPool | ir.MaxPool | ir.Pad | ir.Im2col):
        try:
            check_padding(config, node.pads, graph.tensors[node.inputs[0]].nhwc[-1])
        except CompileError as error:
            return str(error)
    return None


def fits_sram(config: Config, options: Options, graph: ir.Graph, node: ir.Node) -> str | None:
    """The smallest tile of a layer fits the SRAM, with each of its operands in separate banks."""
    space, arena, place = tiling.Space.whole(config), Arena(config), Place(0, None, 1)
    try:
        match node:
            case ir.Conv() | ir.Depthwise() | ir.MatMul():
                layer = array_layer.layer_of(config, graph, node)
                tiling.check(config, layer, space, whole_rows=options.tiling == "channels")
            case ir.AvgPool() | ir.MaxPool() | ir.Mean() | ir.Pad() | ir.Im2col():
                next(pooling.pool_tasks(config, 0, graph, node, place, place, space, arena))
            case ir.Softmax() | ir.Norm():
                shape = 1, 2, graph.tensors[node.inputs[0]].shape[-1]
                next(rows.RowTasks(config, 0, node, shape, place, place, 0).tasks(space, arena, 1))
            case ir.Elementwise():
                tensors = [graph.tensors[name] for name in node.inputs]
                if len({tensor.shape for tensor in tensors}) > 1:
                    shapes, operation = [tensor.nhwc for tensor in tensors], elementwise.operation_of(node)
                    next(elementwise.broadcast_tasks(config, 0, operation, shapes, (place, place), place, space, arena))
    except CompileError as error:
        return str(error)
    return None


Rule = Callable[[Config, Options, ir.Graph, ir.Node], str | None]

RULES: tuple[Rule, ...] = (
    has_array,
    has_vector,
    fits_fields,
    fits_int8,
    product_below_one,
    averages_fit,
    rows_fit,
    pads_inside,
    pads_near,
    updates_in_place,
    fits_sram,
)
"""What a node must satisfy to run on the accelerator; each rule's docstring is its text for users."""


def broken_rule(config: Config, options: Options, graph: ir.Graph, node: ir.Node) -> tuple[Rule, str] | None:
    """The first rule that a node breaks, and how; None when there is none, or the node is not an operation at all."""
    if isinstance(node, (*ir.FREE, ir.Host)):
        return None
    for rule in RULES:
        if text := rule(config, options, graph, node):
            return rule, text
    return None


def why_host(graph: ir.Graph, node: ir.Host) -> str:
    """Why the host computes a node that is no operation of the accelerator."""
    text = node.reason or f"{node.label} is not an accelerator operation"
    inputs, outputs = ({port.tensor for port in ports} for ports in (graph.inputs, graph.outputs))
    converts_input = isinstance(node.payload, Quantize) and inputs.issuperset(node.inputs)
    if converts_input or (isinstance(node.payload, Dequantize) and outputs.issuperset(node.outputs)):
        text += "; inputs and outputs that are integers need none (`dovetail quantise --integer-ends`)"
    return text


def host_reasons(config: Config, options: Options, graph: ir.Graph) -> dict[str, str]:
    """Name -> reason of every node that runs on the host, in the graph's order: it breaks a rule, or is in a segment
    that does not pay for its round trip."""
    reasons: dict[str, str] = {}
    for node in graph.nodes:
        if isinstance(node, ir.Host):
            reasons[node.name] = why_host(graph, node)
        elif broken := broken_rule(config, options, graph, node):
            reasons[node.name] = broken[1]
    while reasons and options.host.round_trip:
        segments = [step.nodes for step in steps_of(graph, reasons) if step.is_program]
        cycles = [least_cycles(config, graph, nodes) for nodes in segments]
        small: dict[str, str] = {}
        for nodes, least in zip(segments, cycles, strict=True):
            if least < max(cycles) and (text := pays_for_its_round_trip(options, graph, nodes, least)):
                small |= {node.name: text for node in nodes if not isinstance(node, ir.FREE)}
        if not small:
            break
        reasons |= small
    return {node.name: reasons[node.name] for node in graph.nodes if node.name in reasons}


def least_cycles(config: Config, graph: ir.Graph, nodes: tuple[ir.Node, ...]) -> int:
    """Cycles that a segment takes at least: its multiply-accumulates, or its bytes over the bus, and their latency."""
    size = sum(graph.tensors[name].bytes for names in border_of(graph, nodes) for name in names)
    size += sum(node.weight_bytes for node in nodes)
    memory = config.like_fixed
    beats = ceil_div(size, config.bus_bytes) * memory.beat_cycles + memory.read_latency + memory.write_latency
    return max(ceil_div(sum(map(graph.macs, nodes)), config.macs_per_cycle), beats)


def pays_for_its_round_trip(options: Options, graph: ir.Graph, nodes: tuple[ir.Node, ...], least: int) -> str | None:
    """A segment, with the cycles of its round trip (`--round-trip`), is no slower than the host would be. The network's
    longest segment is exempt: it always runs on the accelerator."""
    host = sum(options.host.cycles(graph, node) for node in nodes if not isinstance(node, ir.FREE))
    trip = options.host.round_trip
    if host >= trip + least:
        return None
    return (
        f"its segment costs {trip} cycles for the round trip and at least {least} on the accelerator,"
        f" about {host} on the host"
    )


def steps_of(graph: ir.Graph, host: Collection[str]) -> list[Step]:
    """Steps in execution order, with as few accelerator segments as there can be.

    ``host``: names of the nodes that run on the host. Accelerator and host take turns, each with all that is ready;
    whichever turn comes first, only that may cost a segment more.

    Raises
    ------
    CompileError
        A node reads a tensor that nothing makes, or that follows from the node itself.
    """
    orders = [_take_turns(graph, host, first) for first in (ACCELERATOR, HOST)]
    return min(orders, key=lambda steps: sum(step.is_program for step in steps))


def _take_turns(graph: ir.Graph, host: Collection[str], device: str) -> list[Step]:
    """``device``: the one that begins. Constants, and tables to pick from, lie in system memory before anything
    runs."""
    constants = tuple(node for node in graph.nodes if isinstance(node, ir.Constant | ir.Pick))
    steps = [Step(ACCELERATOR, constants)] if constants else []
    ready = set(graph.given) | {name for node in constants for name in node.outputs}
    waiting: list[ir.Node] = [node for node in graph.nodes if not isinstance(node, ir.Constant | ir.Pick)]
    stuck = False
    while waiting:
        taken: list[ir.Node] = []
        left: list[ir.Node] = []
        for node in waiting:
            mine = isinstance(node, ir.Reshape) or (node.name in host) == (device == HOST)
            if mine and all(name in ready for name in node.inputs):
                taken.append(node)
                ready.update(node.outputs)
            else:
                left.append(node)
        if taken:
            steps.append(Step(device, tuple(taken)))
        elif stuck:
            missing = next(name for name in left[0].inputs if name not in ready)
            raise CompileError(f"node {left[0].name!r}: tensor {missing!r} must be made before it is read")
        stuck = not taken
        waiting, device = left, ACCELERATOR if device == HOST else HOST
    return steps
