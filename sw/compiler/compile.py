"""The compiler's driver: partition, segments, system memory, words."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial

import numpy as np
from numpy.typing import NDArray

from dovetail.isa.config import Config
from dovetail.isa.instructions import WORD_BYTES
from dovetail.sw import graph as ir
from dovetail.sw.compiler import memory, placement
from dovetail.sw.compiler.emit import Emitter
from dovetail.sw.compiler.lower import Packer, Segment
from dovetail.sw.compiler.options import Options
from dovetail.sw.compiler.partition import Step, host_reasons, is_accelerated, steps_of


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

    System memory holds constants, then tensors, then the instruction stream. ``least_activations``: bytes that tensors
    would need at least, however they were placed.

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
    least_activations: int
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

    What is best for a layer alone need not be for the network, so it is compiled at every effort up to the wanted one,
    and without anything that stays in SRAM; the program with the fewest cycles wins.

    Raises
    ------
    CompileError
        A layer does not fit the configuration; names layer, rule and way out.
    """
    if options.tiling == "free" and not options.keep_tensors:
        ways = [(0, False), *((effort, True) for effort in range(options.effort + 1))]
    else:
        ways = [(effort, False) for effort in (range(options.effort + 1) if options.tiling == "free" else (0,))]
    made = [_generate(graph, config, replace(options, effort=effort), resident=kept) for effort, kept in ways]
    _, code = min(made, key=lambda pair: pair[0])
    return replace(code, options=options)


def _generate(graph: ir.Graph, config: Config, options: Options, *, resident: bool) -> tuple[int, Code]:
    """(cycles, code) of one effort, with or without tensors that stay in SRAM."""
    reasons = host_reasons(config, options, graph)
    steps = steps_of(graph, reasons)
    parts = placement.parts_of(config, graph, steps)
    roots = _aliases(graph, parts)
    pitches = {name: part.pitch for name, part in parts.items()}
    wanted = _outside(graph, steps, roots)
    parted = [
        Segment(config, options, graph, _executed(step, pitches), roots, parts, wanted[number], resident=resident)
        for number, step in enumerate(steps)
        if is_accelerated(step)
    ]
    packers: list[tuple[int, Packer]] = []
    constants: dict[str, int] = {}
    end = 0

    def place(node: ir.Node, needed: tuple[int, Packer]) -> None:
        nonlocal end
        constants[node.name] = end
        packers.append((end, needed[1]))
        end += memory.align(needed[0])

    for step in steps:
        for node in step.nodes:
            if isinstance(node, ir.Constant) and not step.host:
                place(node, (node.value.size, partial(_bytes, node.value)))
    for segment in parted:
        for node in segment.nodes:
            if needed := segment.constants(node):
                place(node, needed)
    stored = {root for segment in parted for root in segment.stored}
    follows = {stage.tail.name: stage.head for segment in parted for stage in segment.stages if stage.tail}
    plan = memory.plan(graph, steps, roots, stored, end, keep=options.keep_tensors, follows=follows)
    where = plan.where | {
        node.outputs[0]: constants[node.name] for node in graph.nodes if isinstance(node, ir.Constant)
    }
    offsets = {name: part.offset for name, part in parts.items()}
    where = {name: where[root] + offsets.get(name, 0) for name, root in roots.items() if root in where}
    address = plan.end
    stream_offset = address
    cycles = 0
    segments: list[SegmentCode] = []
    layers: list[Layer] = []
    for segment in parted:
        emitter = Emitter(config)
        first = len(layers)
        segment.emit(emitter, first, where, constants)
        emitter.end()
        cycles += emitter.clock.ended
        segments.append(SegmentCode(address, emitter.words, emitter.layers))
        address += len(emitter.words) * WORD_BYTES
        for index, node in enumerate(segment.nodes, first):
            layers.append(
                Layer(
                    node.name,
                    node.op,
                    node.outputs[0],
                    len(segments) - 1,
                    graph.macs(node),
                    _least_bytes(graph, node),
                    emitter.moved.get(index, 0),
                    str(segment.tilings.get(node.name, "")),
                )
            )
    code = Code(
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
        least_activations=plan.least,
        stream_offset=stream_offset,
        memory_bytes=max(memory.align(address), memory.ALIGN),
        host_reasons=reasons,
    )
    return cycles, code


def _executed(step: Step, pitches: dict[str, int]) -> list[ir.Node]:
    """The nodes of a step that need instructions."""
    return [node for node in step.nodes if not isinstance(node, ir.FREE) and not _is_placed(node, pitches)]


def _outside(graph: ir.Graph, steps: Sequence[Step], roots: dict[str, str]) -> list[set[str]]:
    """Per step the roots that somebody else reads: other steps, and the network's user."""
    outputs = {roots[port.tensor] for port in graph.outputs}
    reads = [{roots[name] for node in step.nodes for name in node.inputs} for step in steps]
    readers = Counter(name for names in reads for name in names)
    return [outputs | {name for name, count in readers.items() if count > (name in own)} for own in reads]


def _bytes(values: NDArray[np.int8]) -> NDArray[np.uint8]:
    return np.ascontiguousarray(values).view(np.uint8).ravel()


def _is_placed(node: ir.Node, pitches: dict[str, int]) -> bool:
    """Whether all that a node copies is there already, or read where it is."""
    return isinstance(node, ir.Move) and (node.outputs[0] in pitches or all(name in pitches for name in node.inputs))


def _aliases(graph: ir.Graph, parts: dict[str, placement.Part]) -> dict[str, str]:
    """The tensor whose bytes each tensor shares: itself, what its reshapes lead back to, or what it is a part of."""
    roots = {name: parts[name].whole if name in parts else name for name in graph.tensors}
    for node in graph.nodes:
        if isinstance(node, ir.Reshape):
            roots[node.outputs[0]] = roots[node.inputs[0]]
    return roots


def _least_bytes(graph: ir.Graph, node: ir.Node) -> int:
    """Bytes of a layer's int8 operands, weights and int32 biases, each once."""
    size = sum(graph.tensors[name].size for name in (*node.inputs, *node.outputs))
    if isinstance(node, ir.Conv | ir.Depthwise):
        size += node.weights.size + 4 * node.bias.size
    return size
