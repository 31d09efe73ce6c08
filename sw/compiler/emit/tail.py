"""Element-wise nodes that follow a convolution tile by tile, so that its result is never in SRAM as a whole."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import product

from dovetail.isa.common.sizes import ceil_div
from dovetail.isa.config.resolved import Config
from dovetail.sw.compiler.emit.convolution import Area
from dovetail.sw.compiler.emit.elementwise import Operation, Walk, instruction
from dovetail.sw.compiler.emit.slab import Slab, operand_of, result_of, store
from dovetail.sw.compiler.emit.words import Task, Transfer
from dovetail.sw.compiler.layer import ConvLayer
from dovetail.sw.compiler.place import Place
from dovetail.sw.compiler.plan.estimate import array_total
from dovetail.sw.compiler.plan.grid import Grid
from dovetail.sw.compiler.plan.residency import TABLE, Extent
from dovetail.sw.compiler.plan.schedule import Space, Tiling, buffer_bytes, place

MAX_ROWS = 65535
"""Rows that an instruction can have."""
FINER = (1, 2, 3, 4, 6, 8, 12, 16)
"""Into how many parts a tile's rows are cut for an element-wise node that follows."""
OVERHEAD = 40
"""Cycles of one more tile, on either unit. For estimates only."""


def finer(config: Config, layer: ConvLayer, tiling: Tiling, space: Space, cycles: int) -> Tiling:
    """A tiling or one of fewer rows, whichever suits a node of so many ``cycles`` best that lags a tile behind.

    Rows are cut where that loads nothing twice.
    """
    columns = ceil_div(layer.out_channels, tiling.out_channels)
    if columns > 1 and (tiling.rows_outer or space.input_at is None):
        return tiling
    across = ceil_div(layer.out_width, tiling.columns or layer.out_width)
    best = None
    for parts in FINER:
        rows = ceil_div(tiling.rows, parts)
        count = columns * across * ceil_div(layer.out_height, rows)
        array = array_total(
            config, layer, Grid.of(layer, replace(tiling, rows=rows, best_stripe=False)), OVERHEAD
        ).item()
        price = max(array + cycles // count, array // count + cycles + count * OVERHEAD)
        if best is not None and price >= best[0]:
            continue
        if parts == 1:
            best = price, tiling
            continue
        sizes = buffer_bytes(config, layer, rows, tiling.out_channels, tiling.in_channels, space, tiling.columns)
        copies = 2 * (space.input_at is None), len(tiling.weights_at), 2
        if (placed := place(config, sizes, copies, space)) and not placed[1]:
            input_at, weights_at, output_at = placed[0]
            cut = replace(tiling, rows=rows, input_at=input_at, weights_at=weights_at, output_at=output_at)
            best = price, replace(cut, rows_outer=columns == 1)
    assert best is not None
    return best[1]


@dataclass
class Tail:
    """The tasks of an element-wise node on the tiles of the node before it.

    ``index``: the layer's number; ``width``: of the tensors; ``first``: whether the tile is the first operand;
    ``other``: the second one, if there is one; ``table``: system memory address of the table; ``areas``: SRAM for
    operand and table, and for results, where these are not resident.
    """

    config: Config
    index: int
    operation: Operation
    width: int
    first: bool
    other: Place | None
    target: Place
    table: int
    areas: tuple[Extent, Extent]
    _pieces: int = 0

    def tasks(self, area: Area, col: tuple[int, int], at: int, pixel: int) -> Iterator[Task]:
        """The tasks behind a tile: its area, (first, number of) channels, address, bytes between its pixels."""
        width = area.columns
        rows, part = self._piece(width, col[1])
        rows = rows if width == self.width else 1
        starts = product(range(area.row, area.row + area.rows, rows), range(col[0], sum(col), part))
        for first, channel in starts:
            count = min(part, sum(col) - channel)
            if width == self.width:
                slab = Slab(first, min(rows, area.row + area.rows - first), width, channel, count)
            else:
                slab = Slab(0, 1, width, channel, count, skip=first * self.width + area.column)
            task = Task(self.index)
            if self.operation.table and not self._pieces:
                task.loads.append(Transfer(self.table, self.areas[0][0], self.operation.table))
            operands, results = (start + self._pieces % 2 * half for start, half in self._halves)
            self._pieces += 1
            views = [slab.seen(at + (first - area.row) * width * pixel + channel - col[0], pixel)]
            if self.other:
                views.append(operand_of(task, slab, self.other, operands))
            if not self.first:
                views.reverse()
            out = result_of(slab, self.target, results)
            walks = [Walk(view.at, view.bytes, width * view.pitch, view.pitch) for view in (*views, out)]
            table = (self.areas[0][0], self.operation.table) if self.operation.table else None
            tile = slab.rows, width, slab.channels
            task.computes = [instruction(self.config, self.operation, tile, walks[:-1], walks[-1], table)]
            store(task, slab, out, self.target)
            yield task

    @property
    def _halves(self) -> tuple[Extent, Extent]:
        """(first byte, half the bytes) of the areas for operands and for results."""
        base = TABLE if self.operation.table else 0
        (at, size), (to, space) = self.areas
        return (at + base, (size - base) // 2), (to, space // 2)

    def _piece(self, width: int, channels: int) -> tuple[int, int]:
        """Rows and channels of a piece of a tile."""
        operands, results = self._halves
        limits = [operands[1]] if self.other and self.other.sram is None else []
        limits += [results[1]] if self.target.sram is None else []
        if not limits:
            return MAX_ROWS, channels
        pixels = min(limits) // width
        if pixels >= channels:
            return pixels // channels, channels
        return 1, max(pixels // self.config.vector_lanes * self.config.vector_lanes, 1)
