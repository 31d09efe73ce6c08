"""From the stages of a segment to tile tasks and words: what each kind of node becomes, and where tensors lie."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from itertools import chain, zip_longest

from dovetail.sw.compiler.emit import array_layer, convolution, elementwise, movement, pooling, products, rows
from dovetail.sw.compiler.emit.arena import Arena, without
from dovetail.sw.compiler.emit.beside import Order, early
from dovetail.sw.compiler.emit.convolution import Follower
from dovetail.sw.compiler.emit.masks import Mask
from dovetail.sw.compiler.emit.operations import Task, Transfer
from dovetail.sw.compiler.emit.overlap import overlapped
from dovetail.sw.compiler.emit.segment import Segment
from dovetail.sw.compiler.emit.stages import Stage
from dovetail.sw.compiler.emit.tail import Tail
from dovetail.sw.compiler.emit.words import Emitter
from dovetail.sw.compiler.place import Place
from dovetail.sw.network import ir

LOADED = 4096
"""Where LOAD has time to spare, as variables stay in SRAM, it loads at most so many bytes of weights at once: a fetch
of instructions comes behind them."""


def emit(
    segment: Segment,
    emitter: Emitter,
    first: int,
    where: Mapping[str, int],
    constants: Mapping[str, int],
    later: Mapping[str, int],
    limit: int | None,
) -> bool:
    """Write the program of a segment.

    ``first``: the number of the first layer; ``where``, ``constants``: system memory addresses of tensors, and of
    what nodes need besides; ``later``: as of `residency.Plan.alive`.

    Returns False, as soon as that is sure, if it would take more than ``limit`` cycles; it is of no use then.
    """
    more = sum(map(segment.least_operations, segment.stages))
    order, gathered, turns = Order(segment.config), list[Task](), list[Task]()
    arena = Arena(segment.config, small=segment.wide, by_bank=segment.by_bank)
    lowering = _Lowering(segment, arena, where, constants)
    for number, stage in enumerate(segment.stages):
        arena.keep(segment.needed_next(number))
        tasks = list(lowering.tasks(number, first))
        if tasks:
            tasks[0].loads += lowering.kept(number)
        lowering.pick(tasks)
        arena.take(regions for task in tasks for regions in task.touched)
        emitter.place(tasks, segment.plan.alive(number, later))
        first += len(stage.nodes)
        if segment.goes_early(number + 1):
            lowering.held = tasks
            continue
        begin = number
        if lowering.held:
            tasks, lowering.held, begin = early(segment.config, lowering.held, tasks), [], number - 1
        if segment.wide:
            gathered += tasks
            continue
        if number in segment.turns:
            turns += tasks
            if number + 1 in segment.turns:
                continue
            tasks, turns = overlapped(segment.config, turns), []
            while begin - 1 in segment.turns:
                begin -= 1
        emitter.add(order.follow(tasks, beside=begin > 0 and segment.is_beside(begin - 1)))
        more -= sum(map(segment.least_operations, segment.stages[begin : number + 1]))
        rest = segment.least_cycles[number + 1 if order.waiting < len(tasks) else begin]
        if not emitter.overtakes and not emitter.advance(limit, rest=rest, more=more):
            return False
    emitter.add(overlapped(segment.config, gathered, brief=segment.in_place) if gathered else order.rest())
    return emitter.end(limit)


class _Lowering:
    """Tasks of a segment's stages; ``where``, ``constants``: as of `emit`. Everywhere ``number`` is that of a stage,
    ``index`` that of its first layer."""

    def __init__(self, segment: Segment, arena: Arena, where: Mapping[str, int], constants: Mapping[str, int]) -> None:
        self.segment, self.config, self.graph, self.plan = segment, segment.config, segment.graph, segment.plan
        self.arena, self.where, self.constants = arena, where, constants
        self.rows = [(where[name], one) for name, one in segment.picked.items() if name in where]
        self.held: list[Task] = []
        """The tasks of the stage before, if those of the next one go between them."""

    def kept(self, number: int) -> list[Transfer]:
        """Loads of what a stage is the first one to read, and others read again."""
        found = []
        for name, resident in self.plan.loaded.items():
            if resident.begin == number:
                found.append(Transfer(self.where[name], resident.at(self.config), self.graph.tensors[name].bytes))
        return found

    def pick(self, tasks: Iterable[Task]) -> None:
        """Loads of a row that the run picks come from the place of the table's first row, and a parameter."""
        for task in tasks if self.rows else ():
            for number, load in enumerate(task.loads):
                for first, one in self.rows:
                    if first <= load.memory < first + one.size:
                        task.loads[number] = load._replace(param=one.number, reach=one.reach)

    def tasks(self, number: int, index: int) -> Iterator[Task]:
        """The tiles of a stage."""
        stage = self.segment.stages[number]
        match stage.head:
            case ir.Conv() | ir.Depthwise() as node:
                return self._convolution(node, stage, number, index)
            case ir.MatMul() as node:
                return self._product(node, number, index)
            case node if mask := self.segment.masks.get(node.name):
                return self._mask(mask, number, index)
            case node if isinstance(node, ir.Pointwise):
                return self._pointwise(node, number, index)
            case node if isinstance(node, ir.Rows):
                return self._over_rows(node, number, index)
            case ir.AvgPool() | ir.MaxPool() | ir.Mean() | ir.Pad() | ir.Im2col() as node:
                places = self._place(node.inputs[0]), self._place(node.outputs[0])
                space, bands = self.plan.space(number), self.segment.bands(number)
                return pooling.pool_tasks(self.config, index, self.graph, node, *places, space, self.arena, bands)
            case ir.Move() as node:
                return self._move(node, number, index)
            case ir.Update() as node:
                if node in self.segment.whole.values():  # what reads them puts them in their place
                    return iter(())
                return self._rows(node, index).stores(self.config, self.plan.space(number), self.arena)
            case node:
                raise AssertionError(f"{node.name}: {node.op} was placed on the accelerator but has no code")

    def _convolution(self, node: ir.Conv | ir.Depthwise, stage: Stage, number: int, index: int) -> Iterator[Task]:
        config, layer = self.config, self.segment.layers[node.name]
        tiling, space = self.segment.tilings[node.name], self.plan.space(number)
        if self.held:  # some of them come behind some of these
            taken = (region for task in self.held for regions in task.touched for region in regions)
            space = replace(space, free=without(config, space.free, taken))
        few = self.segment.goes_early(number + 1)
        cut = array_layer.spread(config, layer, tiling, space, self.arena, results=self.plan.results, few=few)
        source, target = self._place(node.inputs[0]), self._place(node.outputs[0])
        tail: Follower | None = None
        if stage.tail:
            tail = self._tail(number, stage, index + 1)
        elif self.segment.is_copied(number):
            copies = Tail(config, index, movement.MOV, layer.out_width, True, None, target, 0, ((0, 0), (0, 0)))
            tail = copies.tasks
        if tail:
            target = Place(None, None, layer.out_channels)
        constants = self.constants.get(node.name, 0)
        kept, part = self.segment.kept_at(node, config), LOADED * bool(self.segment.kept)
        return convolution.ConvCode(
            config, layer, cut, node.requant, index, source, target, constants, tail=tail, kept=kept, part=part
        ).tasks()

    def _product(self, node: ir.MatMul, number: int, index: int) -> Iterator[Task]:
        segment = self.segment
        places = self._place(node.inputs[0]), self._place(node.inputs[1]), self._place(segment.result_of(node))
        layer, cut, constants = segment.layers[node.name], segment.tilings[node.name], self.constants.get(node.name, 0)
        kept = segment.kept_at(node, self.config)
        many = products.Products(
            self.config, self.graph, node, layer, cut, index, places, constants, self.segment.rows > 0, kept
        )
        update = segment.whole.get(node.name)
        first = index - segment.nodes.index(node)
        rows = self._rows(update, first + segment.nodes.index(update)) if update else None
        return many.tasks(self.plan.space(number), self.arena, rows)

    def _mask(self, mask: Mask, number: int, index: int) -> Iterator[Task]:
        table, records = (self.segment.kept_at(node, self.config) for node in (mask.total, mask.product))
        assert table is not None and records is not None
        place, space = self._place(mask.mask), self.plan.space(number)
        return mask.tasks(self.config, index, place, table, records, space, self.arena)

    def _pointwise(self, node: ir.Pointwise, number: int, index: int) -> Iterator[Task]:
        config, space, operation = self.config, self.plan.space(number), elementwise.operation_of(node)
        sources, target = [self._place(name) for name in node.inputs], self._place(node.outputs[0])
        tensors = [self.graph.tensors[name] for name in node.inputs]
        if len({tensor.shape for tensor in tensors}) > 1:
            shapes = [tensor.nhwc for tensor in tensors]
            bands = self.segment.bands(number) if self.segment.updates_only else 1
            return elementwise.broadcast_tasks(
                config, index, operation, shapes, sources, target, space, self.arena, bands
            )
        channels = self.graph.tensors[node.outputs[0]].shape[-1]
        shape, constants = (tensors[0].size // channels, channels), self.constants.get(node.name, 0)
        wide = any(tensor.item_bytes > 1 for tensor in (*tensors, self.graph.tensors[node.outputs[0]]))
        return elementwise.flat_tasks(
            config,
            index,
            operation,
            shape,
            sources,
            target,
            constants,
            space,
            self.arena,
            rows=self.segment.rows if wide else 0,
        )

    def _over_rows(self, node: ir.Rows, number: int, index: int) -> Iterator[Task]:
        result = self.graph.tensors[node.outputs[0]]
        *_, height, channels = (1, *result.shape)
        shape, constants = (result.size // (height * channels), height, channels), self.constants.get(node.name, 0)
        source, target = self._place(node.inputs[0]), self._place(node.outputs[0])
        own = rows.RowTasks(self.config, index, node, shape, source, target, constants)
        bands, tapers = self.segment.bands(number), self.segment.in_place
        return own.tasks(self.plan.space(number), self.arena, bands, self.segment.rows, tapers=tapers)

    def _move(self, node: ir.Move, number: int, index: int) -> Iterator[Task]:
        space, target = self.plan.space(number), self._place(node.outputs[0])

        def tasks(name: str, copy: ir.Copy) -> Iterator[Task]:
            bands = movement.bands_of(self.config, copy) if self.segment.rows else 0
            return movement.copy_tasks(self.config, index, copy, self._place(name), target, space, self.arena, bands)

        item = self.graph.tensors[node.outputs[0]].item_bytes
        copies_of = zip(node.inputs, (movement.in_bytes(copy, item) for copy in node.copies), strict=True)
        named = [pair for pair in copies_of if pair[0] not in self.segment.parts]
        copies = (tasks(name, copy) for name, copy in named)
        if self.segment.rows:  # first boxes first, for what comes behind
            return (task for together in zip_longest(*copies) for task in together if task)
        return chain.from_iterable(copies)

    def _rows(self, node: ir.Update, index: int) -> products.Rows:
        size = self.graph.tensors[node.inputs[0]].size
        rows, state = (self._place(name) for name in (node.inputs[1], node.outputs[0]))
        update, kept = self.segment.updates[node.name], self.segment.kept_at(node, self.config)
        return products.Rows(update, index, node.copy(self.graph), size, rows, state, kept)

    def _tail(self, number: int, stage: Stage, index: int) -> Follower:
        layer, areas = self.segment.layers[stage.head.name], self.plan.areas(number)
        assert stage.tail
        target = self._place(stage.tail.outputs[0])
        if isinstance(stage.tail, pooling.Global):
            plane = layer.out_height, layer.out_width
            return pooling.Pooled(self.config, index, stage.tail, plane, target, areas[1]).tasks
        assert isinstance(stage.tail, ir.Pointwise)
        others = [self._place(name) for name in stage.operands]
        return Tail(
            config=self.config,
            index=index,
            operation=elementwise.operation_of(stage.tail),
            width=layer.out_width,
            first=stage.tail.inputs[0] == stage.between,
            other=others[0] if others else None,
            target=target,
            table=self.constants.get(stage.tail.name, 0),
            areas=areas,
        ).tasks

    def _place(self, name: str) -> Place:
        segment = self.segment
        root, part = segment.roots[name], segment.parts.get(name)
        resident = self.plan.residents.get(root)
        offset = part.offset if part else 0
        memory = self.where.get(name) if root in segment.stored else None
        sram = resident.at(self.config) + offset if resident else None
        tensor = self.graph.tensors[name]
        return Place(memory, sram, part.pitch if part else tensor.shape[-1] * tensor.item_bytes)
