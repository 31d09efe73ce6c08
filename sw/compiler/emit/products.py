"""Code for matrix products, one after the other, and for variables of which a run replaces rows."""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from dovetail.isa.common.sizes import round_up
from dovetail.isa.config.resolved import Config
from dovetail.sw.compiler.emit import array_layer, convolution, movement
from dovetail.sw.compiler.emit.arena import Arena
from dovetail.sw.compiler.emit.operations import Task, Transfer
from dovetail.sw.compiler.layer import ConvLayer
from dovetail.sw.compiler.partition.in_place import InPlace
from dovetail.sw.compiler.partition.outline import Partition
from dovetail.sw.compiler.place import Place
from dovetail.sw.compiler.plan.residency import apart_of, kept_banks
from dovetail.sw.compiler.plan.schedule import Space, Tiling
from dovetail.sw.network import ir

SMALL = 32
"""Matrices of at most so many beats are loaded together: a load of its own takes longer than what it moves."""


@dataclass(frozen=True)
class Rows:
    """Rows of a variable that a run replaces.

    Parameters
    ----------
    update: what is done.
    index: the layer's number.
    copy: of the rows to the variable's first place.
    size: bytes of the variable.
    rows, state: where they lie.
    kept: SRAM address of the variable, if it stays there from run to run.
    """

    update: InPlace
    index: int
    copy: ir.Copy
    size: int
    rows: Place
    state: Place
    kept: int | None = None

    def stores(self, config: Config, space: Space, arena: Arena) -> Iterator[Task]:
        """The rows go to their place in system memory by a parameter."""
        for task in movement.copy_tasks(config, self.index, self.copy, self.rows, self.state, space, arena):
            task.stores = [store._replace(param=self.update.number, reach=self.update.reach) for store in task.stores]
            yield task

    def tasks(self, config: Config, at: int, space: Space, arena: Arena) -> Iterator[Task]:
        """The variable is in SRAM as the run before left it, or is loaded, and rows in SRAM are put in their place
        there and in system memory: so the load need not wait for the rows."""
        assert self.state.memory is not None
        loads, inside = [Transfer(self.state.memory, at, self.size)], Place(None, at, self.state.pitch)
        if self.kept is not None:
            loads = []
        for task in movement.copy_tasks(config, self.index, self.copy, self.rows, inside, space, arena):
            task.loads, loads = loads, []
            task.computes = [one.added("OUT_ADDR", self.update.number, self.update.reach) for one in task.computes]
            yield task
        yield from self.stores(config, space, arena)


@dataclass(frozen=True)
class Products:
    """Products of matrices one after the other.

    Parameters
    ----------
    config, graph: the accelerator, and what the node is part of.
    node, layer, tiling: what is computed, and how one product is cut.
    index: the layer's number.
    places: where operands and results lie.
    constants: system memory address of the records.
    ahead: whether matrices are loaded ahead of the products before.
    records: SRAM address of these, if they are there.
    """

    config: Config
    graph: ir.Graph
    node: ir.MatMul
    layer: ConvLayer
    tiling: Tiling
    index: int
    places: tuple[Place, Place, Place]
    constants: int
    ahead: bool
    records: int | None = None

    def tasks(self, space: Space, arena: Arena, rows: Rows | None) -> Iterator[Task]:
        """``rows``: of the variable that the matrices are, if all of it is to be in SRAM."""
        config, layer = self.config, self.layer
        tensors = [self.graph.tensors[name] for name in (*self.node.inputs, *self.node.outputs)]
        sizes = [tensor.shape[-2] * tensor.shape[-1] * tensor.item_bytes for tensor in tensors]
        count = tensors[0].size // sizes[0]
        matrices_at, matrix_bytes = self.places[1], sizes[1]
        start = rows.kept if rows else matrices_at.sram
        # Of few rows the array waits for the matrices: they are loaded ahead of the products before.
        few = self.ahead or layer.height <= config.oc_lanes
        ahead = count if few and start is None else 1
        cut = array_layer.spread(config, layer, self.tiling, space, arena, ahead)
        records = round_up(records_of(config, layer), config.word_bytes)
        loads: list[Transfer] = []
        if rows:
            if start is None:
                (at,) = arena.slots(apart_of(config), records + rows.size, 1)
                cut, start = replace(cut, weights_at=(at,)), at + records
            yield from rows.tasks(config, start, space, arena)
        elif ahead > 1 and matrix_bytes <= SMALL * config.bus_bytes:
            whole = count * matrix_bytes
            wide = array_layer.spread(config, layer, self.tiling, space, arena, together=records + whole)
            if wide is not self.tiling:
                assert matrices_at.memory is not None
                cut, start = wide, wide.weights_at[0] + records
                loads = [Transfer(matrices_at.memory, start, whole)]
        buffers = convolution.Buffers(cut) if ahead > 1 or start is not None else None
        for number in range(count):
            a, b, out = (place.moved(number * size) for place, size in zip(self.places, sizes, strict=True))
            inside = None if start is None else start + number * matrix_bytes
            matrix = convolution.Matrix(b.memory, self.node.zero_b, inside)
            code = convolution.ConvCode(
                config, layer, cut, self.node.requant, self.index, a, out, self.constants, matrix, kept=self.records
            )
            for task in code.tasks(buffers):
                task.loads, loads = [*loads, *task.loads], []
                yield task


def records_of(config: Config, layer: ConvLayer) -> int:
    """Bytes of the records of all columns of a product."""
    return int(layer.stream_bytes(config, layer.out_channels, layer.channels))


def readers_of_updates(
    partition: Partition, nodes: Sequence[ir.Node], *, keeps: bool
) -> tuple[dict[str, ir.Update], int]:
    """By name the products whose matrices are a variable with rows that are replaced and that could be in SRAM: nothing
    else reads it, and the products have few rows, so that they wait for the matrices. And in how many banks all of
    these variables stay from run to run; 0 if there is only room for two of them at a time, or without ``keeps``."""
    config, graph, roots = partition.config, partition.graph, partition.roots
    found: dict[str, ir.Update] = {}
    sizes: dict[str, int] = {}
    readers = Counter(roots[name] for node in nodes for name in node.inputs)
    made = {roots[node.outputs[0]]: node for node in nodes if isinstance(node, ir.Update)}
    room = sum(banks for _, banks in apart_of(config)) * config.bank_bytes
    for node in nodes:
        update = made.get(roots[node.inputs[1]]) if isinstance(node, ir.MatMul) else None
        if update is None:
            continue
        layer, name = partition.layers[node.name], roots[node.inputs[1]]
        others = readers[name] - sum(roots[own] == name for own in update.inputs)
        size = graph.tensors[node.inputs[1]].size + records_of(config, layer) + config.word_bytes
        if others == 1 and layer.height <= config.oc_lanes:
            found[node.name] = update
            sizes[node.name] = round_up(size, config.bank_bytes // 16)
    kept = keeps and kept_banks(config, sum(graph.tensors[update.inputs[0]].size for update in found.values()))
    return {name: update for name, update in found.items() if kept or 2 * sizes[name] <= room}, kept
