"""The compiler's driver: partition, plan, tile, emit."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
from numpy.typing import NDArray

from dovetail.isa.config import Config
from dovetail.isa.instructions import WORD_BYTES
from dovetail.sw import graph as ir
from dovetail.sw.compiler import convolution, memory, movement, placement, tiling, vector
from dovetail.sw.compiler.emit import Emitter, Task
from dovetail.sw.compiler.layer import ConvLayer
from dovetail.sw.compiler.options import Options
from dovetail.sw.compiler.partition import Step, host_reasons, is_accelerated, steps_of
from dovetail.sw.errors import CompileError

Packer = Callable[[], NDArray[np.uint8]]
Plans = dict[str, tuple[ConvLayer, tiling.Tiling]]


@dataclass(frozen=True)
class Layer:
    """A layer on the accelerator, for reports.

    ``macs``; ``least_bytes``: input, weights, biases and output moved once; ``moved_bytes``: what the program moves;
    ``segment``: the program's part it is in; ``tiles``: a convolution's tiling in words.
    """

    name: str
    kind: str
    output: str
    segment: int
    macs: int
    least_bytes: int
    moved_bytes: int
    tiles: str


@dataclass(frozen=True)
class SegmentCode:
    """Words of one segment, its address in system memory, and the layer of each operation's word index."""

    address: int
    words: list[int]
    layers: dict[int, int]


@dataclass(frozen=True)
class Code:
    """Everything a compilation produces; weights are packed on demand (`constants`).

    ``where``: system memory address of each tensor the accelerator touches; ``pitches``: bytes between the pixels of
    those that lie inside another tensor; ``steps`` as executed,
    ``segments`` in order.
    """

    config: Config
    options: Options
    graph: ir.Graph
    steps: tuple[Step, ...]
    segments: tuple[SegmentCode, ...]
    layers: tuple[Layer, ...]
    where: dict[str, int]
    pitches: dict[str, int]
    packers: tuple[tuple[int, Packer], ...]
    constants_bytes: int
    stream_offset: int
    memory_bytes: int
    host_reasons: dict[str, str]

    def constants(self) -> bytes:
        """The constant image: every layer's weight streams at its place."""
        image = np.zeros(self.constants_bytes, np.uint8)
        for address, packer in self.packers:
            packed = packer()
            image[address : address + len(packed)] = packed
        return image.tobytes()


def generate(graph: ir.Graph, config: Config, options: Options) -> Code:
    """Compile a graph.

    Raises
    ------
    CompileError
        A layer does not fit the configuration; names layer, rule and way out.
    """
    reasons = host_reasons(config, options, graph)
    steps = steps_of(graph, reasons)
    parts = placement.parts_of(graph, steps)
    roots = _aliases(graph, parts)
    plans: Plans = {}
    packers: list[tuple[int, Packer]] = []
    constants: dict[str, int] = {}
    end = 0

    def place(node: ir.Node, size: int, packer: Packer) -> None:
        nonlocal end
        constants[node.name] = end
        packers.append((end, packer))
        end += memory.align(size)

    for node in (node for step in steps if not step.host for node in step.nodes):
        if isinstance(node, ir.Table):
            place(node, node.values.size, partial(_table, node))
        elif isinstance(node, ir.Constant):
            place(node, node.value.size, partial(_bytes, node.value))
        elif isinstance(node, ir.Conv | ir.Depthwise | ir.MatMul):
            layer = convolution.layer_of(config, graph, node)
            try:
                plan = tiling.choose(config, layer, tiling.Space.whole(config), options)
            except CompileError as error:
                raise CompileError(f"layer {node.name!r}: {error}") from None
            plans[node.name] = layer, plan
            place(node, *convolution.constants_of(config, node, layer, plan))
    where, tensors_end = memory.allocate(_lifetimes(graph, steps, roots, options.keep_tensors), end)
    where |= {node.outputs[0]: constants[node.name] for node in graph.nodes if isinstance(node, ir.Constant)}
    offsets = {name: part.offset for name, part in parts.items()}
    where = {name: where[root] + offsets.get(name, 0) for name, root in roots.items() if root in where}
    pitches = {name: part.pitch for name, part in parts.items()}
    address = memory.align(tensors_end)
    stream_offset = address
    segments: list[SegmentCode] = []
    layers: list[Layer] = []
    for step in steps:
        if not is_accelerated(step):
            continue
        emitter = Emitter(config)
        first = len(layers)
        nodes = [node for node in step.nodes if not isinstance(node, ir.FREE) and not _is_placed(node, pitches)]

        def tasks(nodes: Sequence[ir.Node] = nodes, first: int = first) -> Iterator[Task]:
            for index, node in enumerate(nodes, first):
                yield from _tasks(config, graph, node, index, where, pitches, constants, plans)

        emitter.emit(tasks())
        emitter.end()
        segments.append(SegmentCode(address, emitter.words, emitter.layers))
        address += len(emitter.words) * WORD_BYTES
        for index, node in enumerate(nodes, first):
            layers.append(
                Layer(
                    node.name,
                    node.op,
                    node.outputs[0],
                    len(segments) - 1,
                    graph.macs(node),
                    _least_bytes(graph, node),
                    emitter.moved.get(index, 0),
                    str(plans[node.name][1]) if node.name in plans else "",
                )
            )
    return Code(
        config=config,
        options=options,
        graph=graph,
        steps=tuple(steps),
        segments=tuple(segments),
        layers=tuple(layers),
        where=where,
        pitches=pitches,
        packers=tuple(packers),
        constants_bytes=end,
        stream_offset=stream_offset,
        memory_bytes=max(memory.align(address), memory.ALIGN),
        host_reasons=reasons,
    )


def _tasks(
    config: Config,
    graph: ir.Graph,
    node: ir.Node,
    index: int,
    where: dict[str, int],
    pitches: dict[str, int],
    constants: dict[str, int],
    plans: Plans,
) -> Iterator[Task]:
    sources = [where[name] for name in node.inputs]
    target = where[node.outputs[0]]
    channels = graph.tensors[node.outputs[0]].shape[-1]
    pitch = pitches.get(node.outputs[0], channels)
    if isinstance(node, ir.Conv | ir.Depthwise):
        layer, plan = plans[node.name]
        code = convolution.ConvCode(
            config, layer, plan, node.requant, index, sources[0], target, constants[node.name], pitch=pitch
        )
        return code.tasks()
    if isinstance(node, ir.MatMul):
        return _product_tasks(config, graph, node, index, sources, target, constants[node.name], *plans[node.name])
    if isinstance(node, ir.Elementwise | ir.Rescale | ir.Table):
        operation = vector.operation_of(node)
        tensors = [graph.tensors[name] for name in node.inputs]
        if len({tensor.shape for tensor in tensors}) > 1:
            shapes = [tensor.nhwc for tensor in tensors]
            return vector.broadcast_tasks(config, index, operation, shapes, sources, target, pitch)
        pixels = vector.Pixels(tensors[0].size // channels, channels, pitch)
        return vector.flat_tasks(config, index, operation, pixels, sources, target, constants.get(node.name, 0))
    if isinstance(node, ir.AvgPool | ir.MaxPool | ir.Mean | ir.Pad):
        return vector.pool_tasks(config, index, graph, node, sources[0], target, pitch)
    if isinstance(node, ir.Move):
        return (
            task
            for name, copy, source in zip(node.inputs, node.copies, sources, strict=True)
            if name not in pitches
            for task in movement.copy_tasks(config, index, copy, source, target)
        )
    raise AssertionError(f"{node.name}: {node.op} was placed on the accelerator but has no code")


def _product_tasks(
    config: Config,
    graph: ir.Graph,
    node: ir.MatMul,
    index: int,
    sources: list[int],
    target: int,
    constants: int,
    layer: ConvLayer,
    plan: tiling.Tiling,
) -> Iterator[Task]:
    """One product after the other."""
    tensors = [graph.tensors[name] for name in (*node.inputs, *node.outputs)]
    sizes = [tensor.shape[-2] * tensor.shape[-1] for tensor in tensors]
    for number in range(tensors[0].size // sizes[0]):
        a, b, out = (at + number * size for at, size in zip((*sources, target), sizes, strict=True))
        matrix = convolution.Matrix(b, node.zero_b)
        code = convolution.ConvCode(config, layer, plan, node.requant, index, a, out, constants, matrix)
        yield from code.tasks()


def _bytes(values: NDArray[np.int8]) -> NDArray[np.uint8]:
    return np.ascontiguousarray(values).view(np.uint8).ravel()


def _table(node: ir.Table) -> NDArray[np.uint8]:
    """The bytes of ACT_LUT's table, which is indexed by the operand's bits."""
    return np.roll(_bytes(node.values), 128)


def _is_placed(node: ir.Node, pitches: dict[str, int]) -> bool:
    """Whether all that a node copies is there already."""
    return isinstance(node, ir.Move) and all(name in pitches for name in node.inputs)


def _aliases(graph: ir.Graph, parts: dict[str, placement.Part]) -> dict[str, str]:
    """The tensor whose bytes each tensor shares: itself, what its reshapes lead back to, or what it is a part of."""
    roots = {name: parts[name].whole if name in parts else name for name in graph.tensors}
    for node in graph.nodes:
        if isinstance(node, ir.Reshape):
            roots[node.outputs[0]] = roots[node.inputs[0]]
    return roots


def _lifetimes(
    graph: ir.Graph, steps: list[Step], roots: dict[str, str], keep: bool
) -> dict[str, tuple[int, int, int]]:
    """name -> (bytes, first, last) of every tensor an accelerator node touches; ``keep``: last is the end."""
    first: dict[str, int] = {roots[port.tensor]: -1 for port in graph.inputs}
    last: dict[str, int] = {}
    touched: set[str] = set()
    number = 0
    for step in steps:
        for node in step.nodes:
            for name in node.inputs:
                last[roots[name]] = number
            for name in node.outputs:
                first.setdefault(roots[name], number)
                last[roots[name]] = max(last.get(roots[name], number), number)
            if not step.host and not isinstance(node, ir.FREE):
                touched.update(roots[name] for name in (*node.inputs, *node.outputs))
            number += 1
    for port in graph.outputs:
        last[roots[port.tensor]] = number
    touched -= {name for node in graph.nodes if isinstance(node, ir.Constant) for name in node.outputs}
    return {name: (graph.tensors[name].size, first[name], number if keep else last[name]) for name in touched}


def _least_bytes(graph: ir.Graph, node: ir.Node) -> int:
    """Bytes of a layer's int8 operands, weights and int32 biases, each once."""
    size = sum(graph.tensors[name].size for name in (*node.inputs, *node.outputs))
    if isinstance(node, ir.Conv | ir.Depthwise):
        size += node.weights.size + 4 * node.bias.size
    return size
