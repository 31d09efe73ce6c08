"""A segment: the nodes that run as one program, how each is cut, and which tensors stay in SRAM between them."""

from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import replace
from functools import cached_property, partial
from itertools import accumulate
from math import isqrt

import numpy as np
from numpy.typing import NDArray

from dovetail.isa.common.sizes import ceil_div, round_up
from dovetail.isa.config.resolved import Config
from dovetail.isa.instructions.table import TABLE_BYTES
from dovetail.sw.compiler.emit import array_layer, masks, pooling, products, rows
from dovetail.sw.compiler.emit.hazards import Range
from dovetail.sw.compiler.emit.stages import Stage, Stages, Wholes
from dovetail.sw.compiler.emit.tail import OVERHEAD, Beside, by_channels, finer, in_passes, of_rows
from dovetail.sw.compiler.options import Options
from dovetail.sw.compiler.partition.outline import Partition
from dovetail.sw.compiler.plan import residency, tiling
from dovetail.sw.compiler.plan.cascades import Link
from dovetail.sw.compiler.plan.choices import Way
from dovetail.sw.compiler.plan.residency import CACHES
from dovetail.sw.errors import CompileError
from dovetail.sw.network import ir

SHARE = 4
"""What is loaded in one transfer takes at most one part in so many of a run of free banks."""
AHEAD = 4
"""Where tasks go along rows, tensors that so many steps make from the next one on better have no buffers of others."""
PRODUCT_PIECES, LAST_PIECES = 2, 4
"""Where variables are updated in place, tiles of a product's columns, or of queries, and of the last layer."""

Packer = Callable[[], NDArray[np.uint8]]
Constants = tuple[int, Packer]
"""Bytes, and what makes them."""


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
    way
        What stays in SRAM, and in which order tasks run.
    alone
        Whether no other program runs before these nodes do again, so that something may stay in SRAM until then.

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
        way: Way,
        *,
        alone: bool = False,
    ) -> None:
        config, graph, roots = partition.config, partition.graph, partition.roots
        self.config, self.graph, self.roots, self.parts = config, graph, roots, partition.parts
        self.layers, self.updates, self.picked = partition.layers, partition.updates, partition.picked
        self.outside = stored
        self.rows, self.by_bank = way.rows, way.by_bank
        self.wide = way.wide and (way.rows > 0 or any(isinstance(node, ir.Update) for node in nodes))
        self._in_stages = Stages(partition, way.keeps, matrices=way.matrices)
        self.updates_only = self.wide and not way.rows
        together = way.resident and not self.updates_only
        self.stages = self._in_stages.fused(nodes, stored) if together else [Stage(node) for node in nodes]
        self.nodes = [node for stage in self.stages for node in stage.nodes]
        apart = self.wide and bool(residency.apart_of(config))
        self.in_place = in_place = apart and not self.rows
        """Whether banks are set apart for variables that are updated in place."""
        updates, kept = dict[str, ir.Update](), way.keeps
        if in_place:
            updates, kept = products.readers_of_updates(partition, nodes, keeps=alone)
        self.masks = self._masks(partition, kept, updates) if in_place and kept else {}
        works = [self._work(stage, updates) for stage in self.stages]
        turns, self.copies_all = self._turns(partition.band_of)
        self.turns = turns if way.moves or not self.copies_all else set[int]()
        before = 0
        for number in sorted(self.turns):
            before = before if number - 1 in self.turns else number
            if isinstance(self.stages[number].head, ir.Im2col):
                works[number] = replace(works[number], ahead=number - before)
                before = number + 1
        early = [number for number in range(len(works)) if way.passes and self._may_go_early(number)]
        for number in early:  # its tiles' sums are int32, so they have buffers
            works[number] = replace(works[number], bound=works[number].bound | {works[number].writes})
        sizes = {f"{name} of columns": 0 for name in self.masks} | {
            root: graph.tensors[root].bytes for root in roots.values()
        }
        self.plan = residency.Plan(
            config,
            works,
            sizes,
            stored,
            enabled=way.resident,
            apart=(kept or CACHES) * apart,
            kept=kept,
            along_rows=way.rows > 0,
            shares=way.matrices,
            passes=bool(early),
            moves=way.moves,
        )
        residents = self.plan.residents
        self.whole: Wholes = {name: one for name, one in updates.items() if roots[one.inputs[1]] in residents}
        self._kept_banks = kept
        self.kept = self._kept() if kept else {}
        """By name the updates whose variables, and the nodes whose constants, stay in SRAM from run to run, with the
        bytes before each there."""
        self.stored = {name for work in works for name in (*work.reads, work.writes)}
        self.stored -= self.plan.residents.keys() - stored - self.plan.loaded.keys()
        self.stored &= set(roots.values())
        layers = {stage.head.name: self.plan.layer(number) for number, stage in enumerate(self.stages)}
        self.layers = {**self.layers, **{name: layer for name, layer in layers.items() if layer}}
        self.tilings: dict[str, tiling.Tiling] = {}
        for number, stage in enumerate(self.stages):
            if stage.head.name in self.layers:
                try:
                    chosen = tiling.choose(config, self.layers[stage.head.name], self.plan.space(number), options)
                except CompileError as error:
                    raise CompileError(f"layer {stage.head.name!r}: {error}") from None
                if works[number].whole or together:
                    chosen = self._cut_finer(number, chosen)
                if number in early:
                    layer, space = self.layers[stage.head.name], self.plan.space(number)
                    chosen = in_passes(config, layer, chosen, space, way.passes) or chosen
                self.tilings[stage.head.name] = (self._in_pieces if in_place else self._without_weights)(number, chosen)
        self.overtakes = not config.serial and (way.overtakes or self._waits_for_stores)

    def _masks(self, partition: Partition, banks: int, updates: Mapping[str, ir.Update]) -> dict[str, masks.Mask]:
        """By name the sums that products with variables in SRAM do themselves, if there is room for all their records;
        they come before these products then."""
        found = masks.masks_of(partition, self.nodes, self.outside)
        found = [one for one in found if one.product.name in updates]
        size = sum(self.graph.tensors[update.inputs[0]].size for update in updates.values())
        size += sum(self._records(one) + TABLE_BYTES for one in found)
        if size > banks * self.config.bank_bytes:
            return {}
        for one in found:
            names = [stage.head.name for stage in self.stages]
            stage = self.stages.pop(names.index(one.total.name))
            self.stages.insert(names.index(one.product.name), stage)
        self.nodes = [node for stage in self.stages for node in stage.nodes]
        return {one.total.name: one for one in found}

    def _turns(self, band_of: Mapping[str, str]) -> tuple[set[int], bool]:
        """The stages that compute bands of layers whose rows are copied (im2col), and those that copy them; whether all
        rows are. Others the array computes while the vector unit copies."""
        names = [band_of.get(stage.head.name) for stage in self.stages]
        copies = {n for n, stage in enumerate(self.stages) if names[n] and isinstance(stage.head, ir.Im2col)}
        layers = {name for n in copies for name in names[n + 1 : n + 2]}
        bands = {n for n, name in enumerate(names) if name in layers}
        return copies | bands, 0 < len(bands) == len(copies)

    def _records(self, mask: masks.Mask) -> int:
        return products.records_of(self.config, self.layers[mask.product.name])

    def _work(self, stage: Stage, updates: Wholes) -> residency.Work:
        """What a stage is to the plan of SRAM, where products do the sums that mask them."""
        work, name = self._in_stages.work(stage, updates), stage.head.name
        if mask := self.masks.get(name):
            return replace(work, reads=(self.roots[mask.mask],), writes=f"{name} of columns", cycles=mask.columns)
        masked = any(mask.product is stage.head for mask in self.masks.values())
        return replace(work, writes=self.roots[self.result_of(stage.head)]) if masked else work

    def result_of(self, node: ir.Node) -> str:
        """The tensor that the code of a node makes: of a product that masks its result, the sum."""
        mask = next((one for one in self.masks.values() if one.product is node), None)
        return (mask.total if mask else node).outputs[0]

    def _kept(self) -> dict[str, int]:
        """Variables, records and tables of masked products, and as far as there is room weights: the last layer's,
        which nothing hides, then the first ones', before which there is little to do."""
        config, layers = self.config, self.layers
        sizes = {update.name: self.graph.tensors[update.inputs[0]].size for update in self.whole.values()}
        for mask in self.masks.values():
            sizes |= {mask.product.name: self._records(mask), mask.total.name: TABLE_BYTES}
        room = self._kept_banks * config.bank_bytes - sum(sizes.values())
        for node in (*self.nodes[-1:], *self.nodes):
            if isinstance(node, ir.Conv) and layers[node.name].mode == "conv" and node.name not in sizes:
                size = round_up(residency.layer_constants(config, layers[node.name]), config.word_bytes)
                if size <= room:
                    sizes[node.name], room = size, room - size
        return dict(zip(sizes, accumulate(sizes.values(), initial=0), strict=False))

    def kept_at(self, node: ir.Node, config: Config) -> int | None:
        """SRAM address, on a configuration of so much or more SRAM, of the variable that a node updates, or of its
        weights, if they stay there from run to run."""
        if node.name not in self.kept:
            return None
        return self.plan.banks * config.bank_bytes + self.kept[node.name]

    def _cut_finer(self, number: int, chosen: tiling.Tiling) -> tiling.Tiling:
        """Tiles of a layer that are small enough for the vector unit to work beside the array."""
        stage, space = self.stages[number], self.plan.space(number)
        layer = self.layers[stage.head.name]
        if self.plan.works[number].whole:
            most = self.plan.areas(number)[1][1] // 2 or layer.out_channels
            cycles = self._in_stages.vector_cycles(stage.nodes[-1])
            return by_channels(self.config, layer, chosen, space, cycles, most)
        if self.rows and (cut := of_rows(self.config, layer, chosen, space, self.rows)):
            return cut
        beside = self._beside(number)
        return finer(self.config, layer, chosen, space, beside) if beside else chosen

    def _in_pieces(self, number: int, chosen: tiling.Tiling) -> tiling.Tiling:
        """Where products share their records, those of a tile are all that is loaded, so tiles have fewer channels. Of
        the last layer the array computes a tile while the next one's weights are loaded. Weights of others are loaded
        far ahead, so in one transfer if they take little of the banks, or are there already. Queries are cut in two, as
        products of the first ones can begin early."""
        config, name = self.config, self.stages[number].head.name
        layer, space = self.layers[name], self.plan.space(number)
        whole, queries = chosen.in_channels == layer.channels, self._makes_queries(number)
        last = number == len(self.stages) - 1 and name not in self.kept
        pieces = LAST_PIECES if last else PRODUCT_PIECES if layer.mode == "matmul" or queries else 1
        most = min(round_up(ceil_div(layer.out_channels, pieces), layer.lanes(config)), layer.out_channels)
        if name in self.kept and whole:
            return replace(chosen, out_channels=most, weights_at=())
        self.kept.pop(name, None)
        first, banks = max(space.free, key=lambda run: run[1])
        bank, plane = config.bank_bytes, layer.out_height * layer.out_width
        size = residency.layer_constants(config, layer)
        alone = layer.mode == "conv" and plane == 1 and whole and space.output_at is not None
        if alone and SHARE * size <= banks * bank:
            return replace(chosen, out_channels=most, weights_at=(first * bank,))
        return replace(chosen, out_channels=min(chosen.out_channels, most))

    def _without_weights(self, number: int, chosen: tiling.Tiling) -> tiling.Tiling:
        """Tiles without buffers for weights, if these stay in SRAM: those of all of a window's channels can."""
        name = self.stages[number].head.name
        if name not in self.kept or len(array_layer.passes_of(self.layers[name], chosen)) == 1:
            return replace(chosen, weights_at=()) if name in self.kept else chosen
        del self.kept[name]
        return chosen

    def _may_go_early(self, number: int) -> bool:
        """Whether a stage is a layer of one pixel that reads what the one before it pools, channel by channel."""
        before, stage = self.stages[max(number - 1, 0)], self.stages[number]
        if not isinstance(before.tail, pooling.Global) or not isinstance(stage.head, ir.Conv) or stage.tail:
            return False
        layer = self.layers[stage.head.name]
        plain = layer.mode == "conv" and layer.terms == layer.repeats == 1
        one = layer.height == layer.width == layer.out_height == layer.out_width == 1
        return plain and one and self.roots[stage.head.inputs[0]] == self.roots[before.tail.outputs[0]]

    def goes_early(self, number: int) -> bool:
        """Whether passes of a stage go between the tiles of the one before it."""
        chosen = self.tilings.get(self.stages[number].head.name) if number < len(self.stages) else None
        return chosen is not None and chosen.passes_outer

    def _makes_queries(self, number: int) -> bool:
        """Whether a layer's result is what products read, and what these make is no row of a variable."""
        made = self.plan.works[number].writes
        rows = {self.roots[node.inputs[1]] for node in self.nodes if isinstance(node, ir.Update)}
        products = [node for node in self.nodes if isinstance(node, ir.MatMul) and self.roots[node.inputs[0]] == made]
        return bool(products) and not any(self.roots[node.outputs[0]] in rows for node in products)

    def _beside(self, number: int) -> Beside | None:
        """What the vector unit could do beside a layer of the array; None if there is nothing."""
        if self.config.serial:
            return None
        works, stage = self.plan.works, self.stages[number]
        follows = stage.tail or (stage.head if self.is_copied(number) else None)
        tail = self._in_stages.vector_cycles(follows) if follows else 0
        others, read = 0, False
        if number + 1 < len(works) and works[number].writes in works[number + 1].reads:
            behind = works[number + 1]
            read = behind.array is not None
            if behind.operand == works[number].writes:
                others = self._in_stages.vector_cycles(self.stages[number + 1].nodes[-1])
            elif not read and not self._is_global(self.stages[number + 1].head):
                others = behind.cycles
        if number and works[number - 1].writes in works[number].reads:
            others = max(others, self._left(number - 1))
        (_, operands), (_, results) = self.plan.areas(number)
        piece = min((size // 2 for size in (operands, results // works[number].item) if size), default=0)
        return Beside(tail, others, read, piece) if tail or others else None

    def _left(self, number: int) -> int:
        """About the cycles of the vector unit for a stage that the array's work for it, or before it, does not hide."""
        stage, work = self.stages[number], self.plan.works[number]
        before = number if work.array else number - 1
        tiling = self.tilings.get(self.stages[before].head.name) if before >= 0 else None
        cycles = self._in_stages.vector_cycles(stage.nodes[-1]) if stage.tail or not work.array else 0
        pieces = self.bands(number)
        if work.array and tiling:
            pieces = ceil_div(work.array.out_height, tiling.rows)
        return max(cycles - (tiling.price if tiling else 0), cycles // pieces)

    def needed_next(self, number: int) -> list[Range]:
        """SRAM that the stage behind one takes, and that it must not wait for where the two can run side by side."""
        bank, residents = self.config.bank_bytes, self.plan.residents.values()
        if self.rows:
            near = range(number + 1, number + 1 + AHEAD)
            return [(one.bank * bank, one.banks * bank) for one in residents if one.begin in near]
        if not self.is_beside(number):
            return []
        found = [(one.bank * bank, one.banks * bank) for one in residents if one.begin == number + 1]
        return found + [area for area in self.plan.areas(number + 1) if area[1]]

    def is_beside(self, number: int) -> bool:
        """Whether the vector unit could work for a stage, or for the next one, while the array does for the other."""
        works = self.plan.works
        if number + 1 == len(works) or self.config.serial:
            return False
        work, behind = works[number : number + 2]
        vector = not work.array or work.tail or self.is_copied(number)
        return vector or not behind.array or (behind.tail and work.writes not in behind.reads[:1])

    def _is_global(self, node: ir.Node) -> bool:
        """Whether a node pools over all rows, so that it can begin only when the last one is there."""
        return isinstance(node, pooling.Window) and self.graph.tensors[node.outputs[0]].nhwc[1] == 1

    def is_copied(self, number: int) -> bool:
        """Whether the results of a stage's tiles are copied to their place in SRAM."""
        work = self.plan.works[number]
        return work.copied and work.writes in self.plan.residents

    def constants(self, node: ir.Node) -> Constants | None:
        """What a node needs in system memory besides tensors."""
        if mask := self.masks.get(node.name):
            return mask.top.size, lambda: mask.top
        if isinstance(node, ir.Table):
            return node.values.size, partial(_table, node)
        if isinstance(node, ir.Rows):
            return rows.table_bytes(self.config, node), partial(rows.constants_of, self.config, node)
        if isinstance(node, ir.Conv | ir.Depthwise | ir.MatMul):
            return array_layer.constants_of(self.config, node, self.layers[node.name], self.tilings[node.name])
        return None

    def form_of(self, node: ir.Node) -> Hashable:
        """What a node's constants depend on besides the node."""
        if mask := self.masks.get(node.name):
            return mask.top.tobytes()
        if (layer := self.layers.get(node.name)) is None:
            return None
        tiling = self.tilings[node.name]
        return array_layer.block_of(self.config, layer, tiling), layer.down, tuple(array_layer.passes_of(layer, tiling))

    @property
    def _waits_for_stores(self) -> bool:
        """Whether loads may wait for rows that the program itself has stored: of a variable, or of matrices for
        products of few rows, between which the array has nothing else to do. Also if these stay in SRAM: weights go
        before operands that are still to be made."""
        made = {self.roots[name] for node in self.nodes for name in node.outputs}
        for node in self.nodes:
            if isinstance(node, ir.Update):
                return True
            few = isinstance(node, ir.MatMul) and self.layers[node.name].height <= self.config.oc_lanes
            if few and self.roots[node.inputs[1]] in made:
                return True
        return False

    def links(self) -> list[Link]:
        """What cascades could be made of, in order."""
        found = []
        for number, (stage, work) in enumerate(zip(self.stages, self.plan.works, strict=True)):
            cycles = residency.layer_cycles(self.config, work.array) if work.array else 0
            alone = self.tilings.get(stage.head.name) if not stage.tail else None
            price = alone.price if alone else 0
            found.append(Link(stage.nodes, cycles, price, work.constants, self.plan.free(number)))
        return found

    def least_operations(self, stage: Stage) -> int:
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
            if layer and name not in self.kept and layer.mode != "matmul" and layer.terms == 1 == layer.repeats:
                size = residency.layer_constants(self.config, layer)
                weights, room = weights + size, min(room + min(size, self.plan.free(number)), self.config.sram)
            loads = (weights - room) // bus * beats
            found.append(max(behind, loads))
        return found[::-1]

    def _ends_before_next(self, number: int) -> bool:
        """Whether the array is sure to have done all of a stage before it begins with the next one."""
        if self.wide:
            return False
        if not self.is_beside(number):
            return True
        behind, stage = self.plan.works[number + 1], self.stages[number + 1]
        layer, chosen = behind.array, self.tilings.get(stage.head.name)
        if not layer or not chosen or behind.reads[:1] != (self.plan.works[number].writes,):
            return False
        whole = layer.height == layer.width == 1 and chosen.in_channels == layer.channels
        return whole and not layer.separable  # each tile reads all that the stage makes

    def bands(self, number: int) -> int:
        """Into how many bands of rows a node of the vector unit is cut, so that it runs beside its neighbours."""
        works = self.plan.works
        beside = self.rows > 0 or any(works[n].array for n in (number - 1, number + 1) if 0 <= n < len(works))
        if not beside or self.config.serial:
            return 1
        node, more = self.stages[number].head, OVERHEAD
        if isinstance(node, ir.Rows):  # its constants are read for every tile
            channels = self.graph.tensors[node.outputs[0]].shape[-1]
            once, twice = (rows.cycles_of(self.config, node, (count, channels)) for count in (1, 2))
            more += 2 * once - twice
        bands = max(isqrt(works[number].cycles // more), 1)
        # There are two buffers: loads for a third band, and all behind them, would wait for the first one.
        return min(bands, 2) if self.rows and works[number].reads[0] not in self.plan.residents else bands


def _table(node: ir.Table) -> NDArray[np.uint8]:
    """The bytes of ACT_LUT's table, which is indexed by the operand's bits."""
    return np.roll(np.ascontiguousarray(node.values).view(np.uint8).ravel(), 128)
