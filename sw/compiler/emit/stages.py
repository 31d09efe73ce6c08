"""Stages of a segment: which nodes run together, what each of them reads and writes, and about how long it takes."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

from dovetail.isa.common.sizes import ceil_div
from dovetail.isa.instructions.table import TABLE_BYTES
from dovetail.sw.compiler.emit import pooling, rows
from dovetail.sw.compiler.emit.tail import WHOLE
from dovetail.sw.compiler.partition.outline import Partition
from dovetail.sw.compiler.plan import residency
from dovetail.sw.network import ir

BLOCKS = 4
"""Of a plane that is pooled channel by channel so many blocks of output lanes are in SRAM at once, in two buffers."""

Wholes = Mapping[str, ir.Update]
"""By name the products whose matrices are a variable that is all in SRAM, and what replaces rows of it."""


@dataclass(frozen=True)
class Stage:
    """A node, and perhaps an element-wise one that follows it tile by tile and reads its result, ``between``."""

    head: ir.Node
    tail: ir.Node | None = None
    between: str = ""

    @property
    def nodes(self) -> tuple[ir.Node, ...]:
        """Both."""
        return (self.head, self.tail) if self.tail else (self.head,)

    @property
    def operands(self) -> tuple[str, ...]:
        """What the second node reads besides the first one's result."""
        return tuple(name for name in self.tail.inputs if name != self.between) if self.tail else ()


class Stages:
    """How the nodes of a partition become stages.

    Parameters
    ----------
    partition
        What is compiled.
    keeps
        Banks that no stage has.
    matrices
        Whether matrices of products may stay in SRAM.
    """

    def __init__(self, partition: Partition, keeps: int, *, matrices: bool) -> None:
        self.config, self.graph, self.roots = partition.config, partition.graph, partition.roots
        self.parts, self.layers, self.keeps, self.matrices = partition.parts, partition.layers, keeps, matrices

    def fused(self, nodes: Sequence[ir.Node], stored: set[str]) -> list[Stage]:
        """The nodes in order, element-wise ones, and those that pool over the whole plane, behind the convolution that
        makes the last of their operands, if nothing else reads that. Where nodes go over rows also through a view, so
        that these can begin earlier."""
        through = any(isinstance(node, ir.Rows) for node in nodes)
        made = {self.roots[name]: number for number, node in enumerate(nodes) for name in node.outputs}
        readers = Counter(self.roots[name] for node in nodes for name in node.inputs)
        stages = {number: Stage(node) for number, node in enumerate(nodes)}
        for number, node in enumerate(nodes):
            if not isinstance(node, ir.Pointwise) and not self._pools_tiles(node):
                continue
            tensors = [self.graph.tensors[name] for name in (*node.inputs, *node.outputs)]
            if len({tensor.shape for tensor in tensors[:-1]}) > 1 or any(one.item_bytes > 1 for one in tensors[:-1]):
                continue
            last = max(node.inputs, key=lambda name: made.get(self.roots[name], -1))
            source = self.roots[last] if through and last not in self.parts else last
            head = made.get(source, -1)
            if head not in stages or stages[head].tail or not isinstance(nodes[head], ir.Conv | ir.Depthwise):
                continue
            alone = nodes[head].outputs == (source,) and readers[source] == 1 and source not in stored
            stage = Stage(nodes[head], node, last)
            plan = residency.Plan(self.config, [self.work(stage)], {}, (), enabled=False, kept=self.keeps)
            if alone and plan.suffices(0):
                stages[head] = stage
                del stages[number]
                if node.outputs[0] in made:
                    made[node.outputs[0]] = head
        return [stages[number] for number in sorted(stages)]

    def _pools_tiles(self, node: ir.Node) -> bool:
        """Whether a node pools over a plane that is small enough to be computed channel by channel."""
        if self.config.serial or not node.inputs:
            return False
        plane = self.graph.tensors[node.inputs[0]]
        tiles = plane.size // plane.shape[-1] * min(plane.shape[-1], BLOCKS * self.config.oc_lanes)
        return WHOLE * tiles <= self.config.sram and pooling.is_global(self.graph, node)

    def work(self, stage: Stage, whole: Wholes = MappingProxyType({})) -> residency.Work:
        """What a stage is to the plan of SRAM."""
        node, last = stage.head, stage.nodes[-1]
        operands = stage.operands
        reads = tuple(self.roots[name] for name in (*self._inputs(node), *operands))
        layer, writes = self.layers.get(node.name), self.roots[last.outputs[0]]
        bound: set[str] = set()
        if isinstance(node, ir.MatMul) and (reads[0] == reads[1] or not self.matrices):
            bound = {reads[1]}  # rows and matrix must be in different banks
        elif isinstance(node, ir.Update):
            bound = {writes}
        elif isinstance(node, ir.Move) and not self.config.vector:
            bound = {*reads, writes}
        elif layer and layer.spread and not stage.tail and not self.config.vector:
            bound = {writes}  # in SRAM its pixels lie apart
        cycles = constants = 0
        if layer:
            cycles = residency.layer_cycles(self.config, layer)
            constants = residency.layer_constants(self.config, layer)
        copied = bool(layer and layer.spread and not stage.tail and self.config.vector)
        if not layer or stage.tail or copied:
            cycles = max(cycles, self.vector_cycles(last))
        table, row = isinstance(last, ir.Table), 0
        if update := whole.get(node.name):
            reads = *reads, self.roots[update.inputs[1]]
        if isinstance(node, ir.Rows):
            channels = self.graph.tensors[node.outputs[0]].shape[-1]
            constants, row = rows.table_bytes(self.config, node), max(rows.row_bytes(node, channels))
        return residency.Work(
            reads,
            writes,
            layer,
            cycles,
            constants + TABLE_BYTES * table,
            frozenset(bound),
            tail=stage.tail is not None,
            operand=self.roots[operands[0]] if operands else None,
            table=table,
            copied=copied,
            whole=isinstance(stage.tail, pooling.Global),
            row=row,
            item=self.graph.tensors[last.outputs[0]].item_bytes,
        )

    def vector_cycles(self, node: ir.Node) -> int:
        """About the cycles of a node on the vector unit."""
        if not self.config.vector:
            return 0
        tensor = self.graph.tensors[node.outputs[0]]
        if isinstance(node, ir.Rows):
            return rows.cycles_of(self.config, node, tensor.shape)
        if isinstance(node, ir.Im2col):
            return pooling.im2col_cycles(self.config, node, tensor.shape)
        channels = tensor.shape[-1]
        return tensor.size // channels * ceil_div(channels, self.config.vector_lanes) * self._steps(node)

    def _steps(self, node: ir.Node) -> int:
        """Steps of the vector unit per result."""
        if isinstance(node, ir.AvgPool | ir.MaxPool):
            return node.kernel[0] * node.kernel[1]
        if isinstance(node, ir.Mean):
            return self.graph.tensors[node.inputs[0]].nhwc[1] * self.graph.tensors[node.inputs[0]].nhwc[2]
        return len(node.inputs) if isinstance(node, ir.Elementwise) else 1

    def _inputs(self, node: ir.Node) -> tuple[str, ...]:
        """What a node reads: of a move, not what lies where it belongs; of an update, the rows."""
        if isinstance(node, ir.Move):
            return tuple(name for name in node.inputs if name not in self.parts)
        return node.inputs[1:2] if isinstance(node, ir.Update) else node.inputs
