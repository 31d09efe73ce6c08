"""From the nodes of a segment to tile tasks: what each kind of node becomes, and where its tensors lie."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial

import numpy as np
from numpy.typing import NDArray

from dovetail.isa.config import Config, ceil_div
from dovetail.isa.timing.vector import TABLE_BYTES
from dovetail.sw import graph as ir
from dovetail.sw.compiler import convolution, movement, residency, schedule, tiling, vector
from dovetail.sw.compiler.arena import Arena
from dovetail.sw.compiler.emit import Emitter, Task
from dovetail.sw.compiler.options import Options
from dovetail.sw.compiler.placement import Part
from dovetail.sw.compiler.residency import Place
from dovetail.sw.errors import CompileError

Packer = Callable[[], NDArray[np.uint8]]
Constants = tuple[int, Packer]
"""Bytes, and what makes them."""


class Segment:
    """The nodes that run as one program, how each is cut, and which of their tensors stay in SRAM.

    Parameters
    ----------
    config, options, graph
        What to compile, and for what.
    nodes
        Nodes that execute instructions, in order.
    roots
        The tensor whose bytes each tensor shares.
    parts
        The tensors inside another one.
    stored
        Roots that must be in system memory, as somebody outside reads them.
    resident
        Whether tensors may stay in SRAM.

    Raises
    ------
    CompileError
        A layer does not fit the configuration; names layer, rule and way out.
    """

    def __init__(
        self,
        config: Config,
        options: Options,
        graph: ir.Graph,
        nodes: Sequence[ir.Node],
        roots: Mapping[str, str],
        parts: Mapping[str, Part],
        stored: set[str],
        *,
        resident: bool,
    ) -> None:
        self.config, self.graph, self.nodes, self.roots, self.parts = config, graph, nodes, roots, parts
        self.layers = {
            node.name: convolution.layer_of(config, graph, node)
            for node in nodes
            if isinstance(node, ir.Conv | ir.Depthwise | ir.MatMul)
        }
        works = [self._work(node) for node in nodes]
        sizes = {root: graph.tensors[root].size for root in roots.values()}
        self.plan = residency.Plan(config, works, sizes, stored, enabled=resident)
        self.stored = {name for work in works for name in (*work.reads, work.writes)}
        self.stored -= self.plan.residents.keys() - stored
        self.tilings: dict[str, tiling.Tiling] = {}
        for number, node in enumerate(nodes):
            if layer := self.layers.get(node.name):
                try:
                    self.tilings[node.name] = tiling.choose(config, layer, self.plan.space(number), options)
                except CompileError as error:
                    raise CompileError(f"layer {node.name!r}: {error}") from None

    def constants(self, node: ir.Node) -> Constants | None:
        """What a node needs in system memory besides tensors."""
        if isinstance(node, ir.Table):
            return node.values.size, partial(_table, node)
        if isinstance(node, ir.Conv | ir.Depthwise | ir.MatMul):
            return convolution.constants_of(self.config, node, self.layers[node.name], self.tilings[node.name])
        return None

    def emit(self, emitter: Emitter, first: int, where: Mapping[str, int], constants: Mapping[str, int]) -> None:
        """Give all tasks to an emitter. ``first``: the number of the first layer; ``where``, ``constants``: system
        memory addresses of tensors, and of what nodes need besides."""
        for number, node in enumerate(self.nodes):
            emitter.add(self._tasks(emitter.arena, number, node, first + number, where, constants.get(node.name, 0)))

    def _work(self, node: ir.Node) -> residency.Work:
        reads = tuple(self.roots[name] for name in self._inputs(node))
        layer, channels = self.layers.get(node.name), self.graph.tensors[node.outputs[0]].shape[-1]
        bound: set[str] = set()
        if isinstance(node, ir.MatMul):
            bound = {reads[1]}
        elif isinstance(node, ir.Move) and not self.config.vector:
            bound = {*reads, self.roots[node.outputs[0]]}
        if layer:
            cycles = residency.array_cycles(self.config, layer)
            constants = layer.weight_bytes(self.config, layer.out_channels, layer.channels)
        else:
            pixels = self.graph.tensors[node.outputs[0]].size // channels
            cycles = pixels * ceil_div(channels, self.config.vec) * self._steps(node) if self.config.vector else 0
            constants = TABLE_BYTES if isinstance(node, ir.Table) else 0
        return residency.Work(reads, self.roots[node.outputs[0]], layer, cycles, constants, frozenset(bound))

    def _steps(self, node: ir.Node) -> int:
        """Steps of the vector unit per result."""
        if isinstance(node, ir.AvgPool | ir.MaxPool):
            return node.kernel[0] * node.kernel[1]
        if isinstance(node, ir.Mean):
            return self.graph.tensors[node.inputs[0]].nhwc[1] * self.graph.tensors[node.inputs[0]].nhwc[2]
        return len(node.inputs) if isinstance(node, ir.Elementwise) else 1

    def _inputs(self, node: ir.Node) -> tuple[str, ...]:
        """What a node reads: of a move, not what lies where it belongs."""
        if isinstance(node, ir.Move):
            return tuple(name for name in node.inputs if name not in self.parts)
        return node.inputs

    def _place(self, name: str, where: Mapping[str, int]) -> Place:
        root, part = self.roots[name], self.parts.get(name)
        resident = self.plan.residents.get(root)
        offset = part.offset if part else 0
        memory = where.get(name) if root in self.stored else None
        sram = resident.bank * self.config.bank_bytes + offset if resident else None
        return Place(memory, sram, part.pitch if part else self.graph.tensors[name].shape[-1])

    def _tasks(
        self, arena: Arena, number: int, node: ir.Node, index: int, where: Mapping[str, int], constants: int
    ) -> Iterator[Task]:
        config, graph, space = self.config, self.graph, self.plan.space(number)
        sources = [self._place(name, where) for name in node.inputs]
        target = self._place(node.outputs[0], where)
        if isinstance(node, ir.Conv | ir.Depthwise):
            layer = self.layers[node.name]
            cut = convolution.spread(config, layer, self.tilings[node.name], space, arena)
            code = convolution.ConvCode(config, layer, cut, node.requant, index, sources[0], target, constants)
            return code.tasks()
        if isinstance(node, ir.MatMul):
            return self._products(arena, node, index, space, (sources[0], sources[1], target), constants)
        if isinstance(node, ir.Elementwise | ir.Rescale | ir.Table):
            operation = vector.operation_of(node)
            tensors = [graph.tensors[name] for name in node.inputs]
            if len({tensor.shape for tensor in tensors}) > 1:
                shapes = [tensor.nhwc for tensor in tensors]
                return vector.broadcast_tasks(config, index, operation, shapes, sources, target, space, arena)
            channels = graph.tensors[node.outputs[0]].shape[-1]
            shape = tensors[0].size // channels, channels
            return vector.flat_tasks(config, index, operation, shape, sources, target, constants, space, arena)
        if isinstance(node, ir.AvgPool | ir.MaxPool | ir.Mean | ir.Pad):
            return vector.pool_tasks(config, index, graph, node, sources[0], target, space, arena)
        if isinstance(node, ir.Move):
            return (
                task
                for name, copy, source in zip(node.inputs, node.copies, sources, strict=True)
                if name not in self.parts
                for task in movement.copy_tasks(config, index, copy, source, target, space, arena)
            )
        raise AssertionError(f"{node.name}: {node.op} was placed on the accelerator but has no code")

    def _products(
        self,
        arena: Arena,
        node: ir.MatMul,
        index: int,
        space: schedule.Space,
        places: tuple[Place, Place, Place],
        constants: int,
    ) -> Iterator[Task]:
        """One product after the other."""
        config, layer = self.config, self.layers[node.name]
        cut = convolution.spread(config, layer, self.tilings[node.name], space, arena)
        tensors = [self.graph.tensors[name] for name in (*node.inputs, *node.outputs)]
        sizes = [tensor.shape[-2] * tensor.shape[-1] for tensor in tensors]
        for number in range(tensors[0].size // sizes[0]):
            a, b, out = (place.moved(number * size) for place, size in zip(places, sizes, strict=True))
            assert b.memory is not None
            matrix = convolution.Matrix(b.memory, node.zero_b)
            yield from convolution.ConvCode(config, layer, cut, node.requant, index, a, out, constants, matrix).tasks()


def _table(node: ir.Table) -> NDArray[np.uint8]:
    """The bytes of ACT_LUT's table, which is indexed by the operand's bits."""
    return np.roll(np.ascontiguousarray(node.values).view(np.uint8).ravel(), 128)
