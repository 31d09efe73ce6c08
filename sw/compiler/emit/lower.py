"""From the nodes of a segment to tile tasks: what each kind of node becomes, and where its tensors lie."""

from collections import Counter
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from math import isqrt

import numpy as np
from numpy.typing import NDArray

from dovetail.isa.common.sizes import ceil_div, round_up
from dovetail.isa.instructions.table import TABLE_BYTES
from dovetail.sw.compiler.emit import convolution, elementwise, movement, pooling, products, rows
from dovetail.sw.compiler.emit.arena import Arena
from dovetail.sw.compiler.emit.beside import Order
from dovetail.sw.compiler.emit.convolution import Follower
from dovetail.sw.compiler.emit.hazards import Range
from dovetail.sw.compiler.emit.overlap import overlapped
from dovetail.sw.compiler.emit.tail import OVERHEAD, WHOLE, Beside, Tail, by_channels, finer
from dovetail.sw.compiler.emit.words import Emitter, Task, Transfer
from dovetail.sw.compiler.options import Options
from dovetail.sw.compiler.partition.outline import Partition
from dovetail.sw.compiler.place import Place
from dovetail.sw.compiler.plan import residency, tiling
from dovetail.sw.compiler.plan.cascades import Link
from dovetail.sw.errors import CompileError
from dovetail.sw.network import ir

SHARE = 4
"""What is loaded in one transfer takes at most one part in so many of a run of free banks."""
PRODUCT_PIECES, LAST_PIECES = 2, 4
"""Where variables are updated in place, tiles of a product's columns, and of the last layer's channels."""

Packer = Callable[[], NDArray[np.uint8]]
Constants = tuple[int, Packer]
"""Bytes, and what makes them."""


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


class Segment:
    """The nodes that run as one program, how each is cut, and which of their tensors stay in SRAM.

    Parameters
    ----------
    partition, options
        What to compile, and for what.
    nodes
        Nodes that execute instructions, in order.
    stored
        Roots that must be in system memory, as somebody outside reads them.
    resident
        Whether tensors may stay in SRAM.
    wide
        Whether the tasks of many steps run beside each other (`overlapped`), which is for variables that are updated in
        place. Then no step follows another one tile by tile.

    Raises
    ------
    CompileError
        A layer does not fit the configuration; names layer, rule and way out.
    """

    def __init__(
        self,
        partition: Partition,
        options: Options,
        nodes: Sequence[ir.Node],
        stored: set[str],
        *,
        resident: bool,
        wide: bool = False,
    ) -> None:
        config, graph, roots = partition.config, partition.graph, partition.roots
        self.config, self.graph, self.roots, self.parts = config, graph, roots, partition.parts
        self.layers, self.updates = partition.layers, partition.updates
        self.outside = stored
        self.whole: dict[str, ir.Update] = {}
        """By name the products whose matrices are a variable that is all in SRAM, and what replaces rows of it."""
        self.wide = wide and any(isinstance(node, ir.Update) for node in nodes)
        self.stages = self._fused(nodes, stored) if resident and not self.wide else [Stage(node) for node in nodes]
        self.nodes = [node for stage in self.stages for node in stage.nodes]
        apart = self.wide and bool(residency.apart_of(config))
        updates = products.readers_of_updates(config, graph, roots, self.layers, nodes) if apart else {}
        self.whole = updates
        works = [self._work(stage) for stage in self.stages]
        sizes = {root: graph.tensors[root].size for root in roots.values()}
        self.plan = residency.Plan(config, works, sizes, stored, enabled=resident, apart=apart)
        residents = self.plan.residents
        self.whole = {name: one for name, one in updates.items() if roots[one.inputs[1]] in residents}
        self.stored = {name for work in works for name in (*work.reads, work.writes)}
        self.stored -= self.plan.residents.keys() - stored - self.plan.loaded.keys()
        self.tilings: dict[str, tiling.Tiling] = {}
        for number, stage in enumerate(self.stages):
            if layer := self.layers.get(stage.head.name):
                space = self.plan.space(number)
                try:
                    chosen = tiling.choose(config, layer, space, options)
                except CompileError as error:
                    raise CompileError(f"layer {stage.head.name!r}: {error}") from None
                if works[number].whole:
                    most = self.plan.areas(number)[1][1] // 2 or layer.out_channels
                    chosen = by_channels(config, layer, chosen, space, self._vector_cycles(stage.nodes[-1]), most)
                elif resident and not self.wide and (beside := self._beside(number)):
                    chosen = finer(config, layer, chosen, space, beside)
                if apart:
                    chosen = self._in_pieces(number, chosen)
                self.tilings[stage.head.name] = chosen

    def _in_pieces(self, number: int, chosen: tiling.Tiling) -> tiling.Tiling:
        """Where products share their records, those of a tile are all that is loaded, so tiles have fewer channels. Of
        the last layer the array computes a tile while the next one's weights are loaded. Weights of others are loaded
        far ahead, so in one transfer if they take little of the banks."""
        layer, space = self.layers[self.stages[number].head.name], self.plan.space(number)
        last = number == len(self.stages) - 1
        pieces = LAST_PIECES if last else PRODUCT_PIECES if layer.mode == "matmul" else 1
        most = round_up(ceil_div(layer.out_channels, pieces), layer.lanes(self.config))
        first, banks = max(space.free, key=lambda run: run[1])
        bank, plane = self.config.bank_bytes, layer.out_height * layer.out_width
        size, whole = residency.layer_constants(self.config, layer), chosen.in_channels == layer.channels
        inside = space.input_at is not None and space.output_at is not None
        if layer.mode == "conv" and plane == 1 and inside and whole and SHARE * size <= banks * bank:
            return replace(chosen, out_channels=most, weights_at=(first * bank,))
        return replace(chosen, out_channels=min(chosen.out_channels, most))

    def _beside(self, number: int) -> Beside | None:
        """What the vector unit could do beside a layer of the array; None if there is nothing."""
        if self.config.serial:
            return None
        works, stage = self.plan.works, self.stages[number]
        follows = stage.tail or (stage.head if self._is_copied(number) else None)
        tail = self._vector_cycles(follows) if follows else 0
        others, read = 0, False
        if number + 1 < len(works) and works[number].writes in works[number + 1].reads:
            behind = works[number + 1]
            read = behind.array is not None
            if behind.operand == works[number].writes:
                others = self._vector_cycles(self.stages[number + 1].nodes[-1])
            elif not read and not self._is_global(self.stages[number + 1].head):
                others = behind.cycles
        if number and works[number - 1].writes in works[number].reads:
            others = max(others, self._left(number - 1))
        piece = min((size // 2 for _, size in self.plan.areas(number) if size), default=0)
        return Beside(tail, others, read, piece) if tail or others else None

    def _left(self, number: int) -> int:
        """About the cycles of the vector unit for a stage that the array's work for it, or before it, does not hide."""
        stage, work = self.stages[number], self.plan.works[number]
        before = number if work.array else number - 1
        tiling = self.tilings.get(self.stages[before].head.name) if before >= 0 else None
        cycles = self._vector_cycles(stage.nodes[-1]) if stage.tail or not work.array else 0
        pieces = self._bands(number)
        if work.array and tiling:
            pieces = ceil_div(work.array.out_height, tiling.rows)
        return max(cycles - (tiling.price if tiling else 0), cycles // pieces)

    def _needed_next(self, number: int) -> list[Range]:
        """SRAM that the stage behind one takes, and that it must not wait for where the two can run side by side."""
        if not self._is_beside(number):
            return []
        bank = self.config.bank_bytes
        residents = self.plan.residents.values()
        found = [(one.bank * bank, one.banks * bank) for one in residents if one.begin == number + 1]
        return found + [area for area in self.plan.areas(number + 1) if area[1]]

    def _is_beside(self, number: int) -> bool:
        """Whether the vector unit could work for a stage, or for the next one, while the array does for the other."""
        works = self.plan.works
        if number + 1 == len(works) or self.config.serial:
            return False
        work, behind = works[number : number + 2]
        vector = not work.array or work.tail or self._is_copied(number)
        return vector or not behind.array or (behind.tail and work.writes not in behind.reads[:1])

    def _pools_tiles(self, node: ir.Node) -> bool:
        """Whether a node pools over a plane that is small enough to be computed channel by channel."""
        small = WHOLE * self.graph.tensors[node.inputs[0]].size <= self.config.sram if node.inputs else False
        return small and not self.config.serial and pooling.is_global(self.graph, node)

    def _is_global(self, node: ir.Node) -> bool:
        """Whether a node pools over all rows, so that it can begin only when the last one is there."""
        return isinstance(node, pooling.Window) and self.graph.tensors[node.outputs[0]].nhwc[1] == 1

    def _is_copied(self, number: int) -> bool:
        """Whether the results of a stage's tiles are copied to their place in SRAM."""
        work = self.plan.works[number]
        return work.copied and work.writes in self.plan.residents

    def _fused(self, nodes: Sequence[ir.Node], stored: set[str]) -> list[Stage]:
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
            if len({self.graph.tensors[name].shape for name in node.inputs}) > 1:
                continue
            last = max(node.inputs, key=lambda name: made.get(self.roots[name], -1))
            source = self.roots[last] if through and last not in self.parts else last
            head = made.get(source, -1)
            if head not in stages or stages[head].tail or not isinstance(nodes[head], ir.Conv | ir.Depthwise):
                continue
            alone = nodes[head].outputs == (source,) and readers[source] == 1 and source not in stored
            stage = Stage(nodes[head], node, last)
            if alone and residency.Plan(self.config, [self._work(stage)], {}, (), enabled=False).suffices(0):
                stages[head] = stage
                del stages[number]
                if node.outputs[0] in made:
                    made[node.outputs[0]] = head
        return [stages[number] for number in sorted(stages)]

    def constants(self, node: ir.Node) -> Constants | None:
        """What a node needs in system memory besides tensors."""
        if isinstance(node, ir.Table):
            return node.values.size, partial(_table, node)
        if isinstance(node, ir.Rows):
            return rows.table_bytes(self.config, node), partial(rows.constants_of, self.config, node)
        if isinstance(node, ir.Conv | ir.Depthwise | ir.MatMul):
            return convolution.constants_of(self.config, node, self.layers[node.name], self.tilings[node.name])
        return None

    def form_of(self, node: ir.Node) -> Hashable:
        """What a node's constants depend on besides the node."""
        if (layer := self.layers.get(node.name)) is None:
            return None
        tiling = self.tilings[node.name]
        return convolution.block_of(self.config, layer, tiling), tuple(convolution.passes_of(layer, tiling))

    @property
    def waits_for_stores(self) -> bool:
        """Whether loads wait for rows that the program itself has stored."""
        return any(isinstance(node, ir.Update) for node in self.nodes)

    def links(self) -> list[Link]:
        """What cascades could be made of, in order."""
        found = []
        for number, (stage, work) in enumerate(zip(self.stages, self.plan.works, strict=True)):
            cycles = residency.layer_cycles(self.config, work.array) if work.array else 0
            alone = self.tilings.get(stage.head.name) if not stage.tail else None
            price = alone.price if alone else 0
            found.append(Link(stage.nodes, cycles, price, work.constants, self.plan.free(number)))
        return found

    def emit(
        self,
        emitter: Emitter,
        first: int,
        where: Mapping[str, int],
        constants: Mapping[str, int],
        later: Mapping[str, int],
        limit: int | None,
    ) -> bool:
        """Write the program.

        ``first``: the number of the first layer; ``where``, ``constants``: system memory addresses of tensors, and of
        what nodes need besides; ``later``: as of `residency.Plan.alive`.

        Returns False, as soon as that is sure, if it would take more than ``limit`` cycles; it is of no use then.
        """
        more = sum(map(self._least_operations, self.stages))
        order, arena, gathered = Order(self.config), Arena(self.config, small=self.wide), list[Task]()
        for number, stage in enumerate(self.stages):
            arena.keep(self._needed_next(number))
            tasks = list(self._tasks(arena, number, stage, first, where, constants))
            if tasks:
                tasks[0].loads += self._kept(number, where)
            arena.take(regions for task in tasks for regions in task.touched)
            emitter.place(tasks, self.plan.alive(number, later))
            first += len(stage.nodes)
            if self.wide:
                gathered += tasks
                continue
            emitter.add(order.follow(tasks, beside=number > 0 and self._is_beside(number - 1)))
            more -= self._least_operations(stage)
            rest = self.least_cycles[number + (order.waiting < len(tasks))]
            if not emitter.overtakes and not emitter.advance(limit, rest=rest, more=more):
                return False
        emitter.add(overlapped(self.config, gathered) if gathered else order.rest())
        return emitter.end(limit)

    def _kept(self, number: int, where: Mapping[str, int]) -> list[Transfer]:
        """Loads of what a stage is the first one to read, and others read again."""
        found = []
        for name, resident in self.plan.loaded.items():
            if resident.begin == number:
                at = resident.bank * self.config.bank_bytes + resident.skip
                found.append(Transfer(where[name], at, self.graph.tensors[name].size))
        return found

    def _least_operations(self, stage: Stage) -> int:
        """The least number of operations of a stage: one for each of its tiles, and a load of each tile's weights."""
        chosen = self.tilings.get(stage.head.name)
        if chosen is None:
            return 1
        layer = self.layers[stage.head.name]
        columns = chosen.columns or layer.out_width
        pieces = ceil_div(layer.out_height, chosen.rows) * ceil_div(layer.out_width, columns)
        return (pieces + 1) * ceil_div(layer.out_channels, chosen.out_channels)

    @cached_property
    def least_cycles(self) -> list[int]:
        """Per stage, the least cycles from when the array has done all before it to the end of the program; 0 behind
        the last.

        The array computes all that time; or, when it begins with the stage, no more weights for it and for all behind
        it are there than there is room for: the others come over the bus, each at least once.
        """
        bus, beats = self.config.bus_bytes, self.config.like_fixed.beat_cycles
        found, behind, weights, room, loads = [0], 0, 0, 0, 0
        for number in reversed(range(len(self.stages))):
            name = self.stages[number].head.name
            layer, chosen = self.layers.get(name), self.tilings.get(name)
            array = tiling.array_cycles(self.config, layer, chosen) if layer and chosen else 0
            behind = array + max(behind, loads if self._ends_before_next(number) else 0)
            if layer and layer.mode != "matmul" and layer.terms == 1 == layer.repeats:
                size = residency.layer_constants(self.config, layer)
                weights, room = weights + size, min(room + min(size, self.plan.free(number)), self.config.sram)
            loads = (weights - room) // bus * beats
            found.append(max(behind, loads))
        return found[::-1]

    def _ends_before_next(self, number: int) -> bool:
        """Whether the array is sure to have done all of a stage before it begins with the next one."""
        if not self._is_beside(number):
            return True
        behind, stage = self.plan.works[number + 1], self.stages[number + 1]
        layer, chosen = behind.array, self.tilings.get(stage.head.name)
        if not layer or not chosen or behind.reads[:1] != (self.plan.works[number].writes,):
            return False
        whole = layer.height == layer.width == 1 and chosen.in_channels == layer.channels
        return whole and not layer.separable  # each tile reads all that the stage makes

    def _work(self, stage: Stage) -> residency.Work:
        node, last = stage.head, stage.nodes[-1]
        operands = stage.operands
        reads = tuple(self.roots[name] for name in (*self._inputs(node), *operands))
        layer, writes = self.layers.get(node.name), self.roots[last.outputs[0]]
        bound: set[str] = set()
        if isinstance(node, ir.MatMul):
            bound = {reads[1]}
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
            cycles = max(cycles, self._vector_cycles(last))
        table, row = isinstance(last, ir.Table), 0
        if update := self.whole.get(node.name):
            reads = *reads, self.roots[update.inputs[1]]
        if isinstance(node, ir.Rows):
            constants, row = rows.table_bytes(self.config, node), self.graph.tensors[node.outputs[0]].shape[-1]
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
        )

    def _vector_cycles(self, node: ir.Node) -> int:
        """About the cycles of a node on the vector unit."""
        if not self.config.vector:
            return 0
        tensor = self.graph.tensors[node.outputs[0]]
        if isinstance(node, ir.Rows):
            return rows.cycles_of(self.config, node, tensor.shape)
        channels = tensor.shape[-1]
        return tensor.size // channels * ceil_div(channels, self.config.vector_lanes) * self._steps(node)

    def _steps(self, node: ir.Node) -> int:
        """Steps of the vector unit per result."""
        if isinstance(node, ir.AvgPool | ir.MaxPool):
            return node.kernel[0] * node.kernel[1]
        if isinstance(node, ir.Mean):
            return self.graph.tensors[node.inputs[0]].nhwc[1] * self.graph.tensors[node.inputs[0]].nhwc[2]
        return len(node.inputs) if isinstance(node, ir.Elementwise) else 1

    def _bands(self, number: int) -> int:
        """Into how many bands of rows a node of the vector unit is cut, so that it runs beside its neighbours."""
        works = self.plan.works
        beside = any(works[n].array for n in (number - 1, number + 1) if 0 <= n < len(works))
        if not beside or self.config.serial:
            return 1
        node, more = self.stages[number].head, OVERHEAD
        if isinstance(node, ir.Rows):  # its constants are read for every tile
            channels = self.graph.tensors[node.outputs[0]].shape[-1]
            once, twice = (rows.cycles_of(self.config, node, (count, channels)) for count in (1, 2))
            more += 2 * once - twice
        return max(isqrt(works[number].cycles // more), 1)

    def _inputs(self, node: ir.Node) -> tuple[str, ...]:
        """What a node reads: of a move, not what lies where it belongs; of an update, the rows."""
        if isinstance(node, ir.Move):
            return tuple(name for name in node.inputs if name not in self.parts)
        return node.inputs[1:2] if isinstance(node, ir.Update) else node.inputs

    def _place(self, name: str, where: Mapping[str, int]) -> Place:
        root, part = self.roots[name], self.parts.get(name)
        resident = self.plan.residents.get(root)
        offset = part.offset if part else 0
        memory = where.get(name) if root in self.stored else None
        sram = resident.bank * self.config.bank_bytes + resident.skip + offset if resident else None
        return Place(memory, sram, part.pitch if part else self.graph.tensors[name].shape[-1])

    def _tasks(
        self,
        arena: Arena,
        number: int,
        stage: Stage,
        index: int,
        where: Mapping[str, int],
        addresses: Mapping[str, int],
    ) -> Iterator[Task]:
        config, graph, space, node = self.config, self.graph, self.plan.space(number), stage.head
        constants = addresses.get(node.name, 0)
        sources = [self._place(name, where) for name in node.inputs]
        target = self._place(node.outputs[0], where)
        if isinstance(node, ir.Conv | ir.Depthwise):
            layer = self.layers[node.name]
            cut = convolution.spread(config, layer, self.tilings[node.name], space, arena)
            tail = None
            if stage.tail:
                tail = self._tail(number, stage, index + 1, where, addresses.get(stage.tail.name, 0))
                target = Place(None, None, layer.out_channels)
            elif self._is_copied(number):
                copies = Tail(config, index, movement.MOV, layer.out_width, True, None, target, 0, ((0, 0), (0, 0)))
                tail, target = copies.tasks, Place(None, None, layer.out_channels)
            code = convolution.ConvCode(
                config, layer, cut, node.requant, index, sources[0], target, constants, tail=tail
            )
            return code.tasks()
        if isinstance(node, ir.MatMul):
            places = sources[0], sources[1], target
            layer, cut = self.layers[node.name], self.tilings[node.name]
            many = products.Products(config, graph, node, layer, cut, index, places, constants)
            update = self.whole.get(node.name)
            first = index - self.nodes.index(node)
            return many.tasks(
                space, arena, self._rows(update, first + self.nodes.index(update), where) if update else None
            )
        if isinstance(node, ir.Pointwise):
            operation = elementwise.operation_of(node)
            tensors = [graph.tensors[name] for name in node.inputs]
            if len({tensor.shape for tensor in tensors}) > 1:
                shapes = [tensor.nhwc for tensor in tensors]
                bands = self._bands(number) if self.wide else 1
                return elementwise.broadcast_tasks(
                    config, index, operation, shapes, sources, target, space, arena, bands
                )
            channels = graph.tensors[node.outputs[0]].shape[-1]
            shape = tensors[0].size // channels, channels
            return elementwise.flat_tasks(config, index, operation, shape, sources, target, constants, space, arena)
        if isinstance(node, ir.Rows):
            *_, height, channels = (1, *graph.tensors[node.outputs[0]].shape)
            matrices = graph.tensors[node.outputs[0]].size // (height * channels)
            own = rows.RowTasks(config, index, node, (matrices, height, channels), sources[0], target, constants)
            return own.tasks(space, arena, self._bands(number))
        if isinstance(node, ir.AvgPool | ir.MaxPool | ir.Mean | ir.Pad):
            bands = self._bands(number)
            return pooling.pool_tasks(config, index, graph, node, sources[0], target, space, arena, bands)
        if isinstance(node, ir.Move):
            return (
                task
                for name, copy, source in zip(node.inputs, node.copies, sources, strict=True)
                if name not in self.parts
                for task in movement.copy_tasks(config, index, copy, source, target, space, arena)
            )
        if isinstance(node, ir.Update):
            if node in self.whole.values():  # what reads them puts them in their place
                return iter(())
            return self._rows(node, index, where).stores(config, space, arena)
        raise AssertionError(f"{node.name}: {node.op} was placed on the accelerator but has no code")

    def _rows(self, node: ir.Update, index: int, where: Mapping[str, int]) -> products.Rows:
        size = self.graph.tensors[node.inputs[0]].size
        rows, state = (self._place(name, where) for name in (node.inputs[1], node.outputs[0]))
        return products.Rows(self.updates[node.name], index, node.copy(self.graph), size, rows, state)

    def _tail(self, number: int, stage: Stage, index: int, where: Mapping[str, int], table: int) -> Follower:
        if isinstance(stage.tail, pooling.Global):
            layer, target = self.layers[stage.head.name], self._place(stage.tail.outputs[0], where)
            plane, results = (layer.out_height, layer.out_width), self.plan.areas(number)[1]
            return pooling.Pooled(self.config, index, stage.tail, plane, target, results).tasks
        assert isinstance(stage.tail, ir.Pointwise)
        others = [self._place(name, where) for name in stage.operands]
        return Tail(
            config=self.config,
            index=index,
            operation=elementwise.operation_of(stage.tail),
            width=self.layers[stage.head.name].out_width,
            first=stage.tail.inputs[0] == stage.between,
            other=others[0] if others else None,
            target=self._place(stage.tail.outputs[0], where),
            table=table,
            areas=self.plan.areas(number),
        ).tasks


def _table(node: ir.Table) -> NDArray[np.uint8]:
    """The bytes of ACT_LUT's table, which is indexed by the operand's bits."""
    return np.roll(np.ascontiguousarray(node.values).view(np.uint8).ravel(), 128)
