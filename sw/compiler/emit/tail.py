"""Element-wise nodes that follow a convolution tile by tile, so that its result is never in SRAM as a whole; and tiles
that suit what runs beside a layer."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import product

from dovetail.isa.common.sizes import ceil_div, round_up
from dovetail.isa.config.resolved import Config
from dovetail.isa.instructions.table import INSTRUCTIONS
from dovetail.sw.compiler.emit.convolution import Area
from dovetail.sw.compiler.emit.elementwise import Operation, Walk, instruction
from dovetail.sw.compiler.emit.operations import Task, Transfer
from dovetail.sw.compiler.emit.slab import Slab, operand_of, result_of, store
from dovetail.sw.compiler.layer import ConvLayer
from dovetail.sw.compiler.place import Place
from dovetail.sw.compiler.plan.residency import TABLE, Extent
from dovetail.sw.compiler.plan.schedule import Buffers, Copies, Space, Tiling, buffer_bytes, place
from dovetail.sw.compiler.plan.tiling import array_cycles

MAX_ROWS = 65535
"""Rows that an instruction can have."""
FINER = (1, 2, 3, 4, 6, 8, 12, 16)
"""Into how many parts a tile's rows are cut for an element-wise node that follows."""
WHOLE = 8
"""Weights of all channels are held in one buffer if they take at most one part in so many of SRAM."""
OVERHEAD = 40
"""Cycles of one more tile, on either unit. For estimates only."""


@dataclass(frozen=True)
class Beside:
    """About the cycles of the vector unit that could run beside a layer.

    ``tail``: of the node that follows it tile by tile; ``others``: of the steps before and behind it, which go along
    its rows; ``read``: whether the array's next layer reads what comes of it, and so hides what is left of the tail;
    ``piece``: bytes of a tile that the tail takes at once, 0 if that is all.
    """

    tail: int = 0
    others: int = 0
    read: bool = False
    piece: int = 0

    def price(self, array: int, tiles: int, bands: int, size: int = 0) -> int:
        """About the cycles of it all; ``array``: of the layer, in so many tiles of ``size`` bytes, and in so many bands
        of rows."""
        price = max(array + self.tail // tiles, array // tiles + self.tail + tiles * OVERHEAD)
        # There are two buffers: loads for a third piece, and for the next tile behind it, wait for the first one.
        pieces = ceil_div(size, self.piece) if self.piece else 0
        if pieces > 2:
            price += self.tail * (pieces - 2) // pieces
        price = max(price + self.others // bands, array // bands + self.others + bands * OVERHEAD)
        left = max(self.tail - array, self.tail // tiles) if self.read else 0
        return price - left + left // bands


def finer(config: Config, layer: ConvLayer, tiling: Tiling, space: Space, beside: Beside) -> Tiling:
    """A tiling or one of fewer rows, whichever suits the vector unit's work beside it best.

    Rows are cut where that loads nothing twice: also with all channels in one tile, so that rows are complete early.
    """
    columns = ceil_div(layer.out_channels, tiling.out_channels)
    across = ceil_div(layer.out_width, tiling.columns or layer.out_width)

    def price(cut: Tiling, columns: int) -> int:
        down = ceil_div(layer.out_height, cut.rows)
        array = array_cycles(config, layer, replace(cut, best_stripe=False), OVERHEAD)
        size = cut.rows * (cut.columns or layer.out_width) * cut.out_channels
        return beside.price(array, columns * across * down, down if columns == 1 or cut.rows_outer else 1, size)

    best, least = tiling, price(tiling, columns)
    ways = [(tiling.out_channels, len(tiling.weights_at))]
    if columns > 1 and (tiling.rows_outer or space.input_at is None):
        ways = []
    if columns > 1 and tiling.in_channels == layer.channels and layer.terms == 1:
        ways.append((layer.out_channels, 1))
    for (channels, streams), parts in product(ways, FINER):
        rows = ceil_div(tiling.rows, parts)
        whole = channels == layer.out_channels
        cut = replace(tiling, rows=rows, out_channels=channels, rows_outer=whole)
        if (parts == 1 and channels == tiling.out_channels) or (cost := price(cut, 1 if whole else columns)) >= least:
            continue
        if channels > tiling.out_channels and WHOLE * _sizes(config, layer, cut, space).weights > config.sram:
            continue
        if placed := _placed(config, layer, cut, space, (2 * (space.input_at is None), streams, 2)):
            best, least = placed, cost
    return best


def of_rows(config: Config, layer: ConvLayer, tiling: Tiling, space: Space, rows: int) -> Tiling | None:
    """Tiles of so many rows of all channels, where a row is a pixel; None if these do not fit, or for more rows than
    there are."""
    if layer.out_width > 1 or layer.out_height <= rows or tiling.in_channels != layer.channels or layer.terms > 1:
        return None
    cut = replace(tiling, rows=rows, columns=0, out_channels=layer.out_channels, rows_outer=True, best_stripe=False)
    return _placed(config, layer, cut, space, (2 * (space.input_at is None), 1, 2))


def in_passes(config: Config, layer: ConvLayer, tiling: Tiling, space: Space, passes: int) -> Tiling | None:
    """Tiles of a layer of one pixel for so many passes, each with about as many weights as before, but of a bank at
    most, so that little room is left between them; None if these do not fit, or for fewer channels, or where the pixel
    is not in SRAM."""
    part = round_up(ceil_div(layer.channels, passes), config.ic_lanes)
    if space.input_at is None or part >= layer.channels:
        return None
    channels, lanes = min(tiling.out_channels * max(tiling.in_channels // part, 1), layer.out_channels), config.oc_lanes
    while channels > lanes and layer.weight_bytes(config, channels, part) > config.bank_bytes:
        channels = round_up(channels // 2, lanes)
    cut = replace(tiling, out_channels=channels, in_channels=part, rows_outer=False, passes_outer=True)
    return _placed(config, layer, cut, space, (0, 2, ceil_div(layer.out_channels, channels)))


def by_channels(config: Config, layer: ConvLayer, tiling: Tiling, space: Space, cycles: int, most: int) -> Tiling:
    """Tiles of all rows, and as many channels, at ``most`` so many and no more than before, as suit a node best that
    lags a tile behind, of so many ``cycles``."""
    lanes = min(layer.lanes(config), layer.out_channels)
    found, most = list[Tiling](), min(most, tiling.out_channels)
    for blocks in range(1, ceil_div(layer.out_channels, lanes) + 1):
        channels = min(blocks * lanes, layer.out_channels)
        cut = replace(tiling, rows=layer.out_height, columns=0, out_channels=channels, in_channels=layer.channels)
        cut = replace(cut, rows_outer=False, best_stripe=False)
        copies = int(space.input_at is None), 2, 2
        if (found and channels > most) or not (placed := _placed(config, layer, cut, space, copies, shared=True)):
            break
        tiles = ceil_div(layer.out_channels, channels)
        array = array_cycles(config, layer, cut, OVERHEAD)
        first = _sizes(config, layer, cut, space).weights // config.bus_bytes * config.like_fixed.beat_cycles
        found.append(replace(placed, price=Beside(tail=cycles).price(array, tiles, 1) + first))
    return min(found, key=lambda cut: cut.price)


def _sizes(config: Config, layer: ConvLayer, cut: Tiling, space: Space) -> Buffers:
    return buffer_bytes(config, layer, cut.rows, cut.out_channels, cut.in_channels, space, cut.columns)


def _placed(
    config: Config, layer: ConvLayer, cut: Tiling, space: Space, copies: Copies, *, shared: bool = False
) -> Tiling | None:
    """The tiling with so many buffers; None if they do not fit. ``shared``: output may be in the input's banks."""
    placed = place(config, _sizes(config, layer, cut, space), copies, space)
    if not placed or (placed[1] and not shared):
        return None
    input_at, weights_at, output_at = placed[0]
    return replace(cut, input_at=input_at, weights_at=weights_at, output_at=output_at)


@dataclass
class Tail:
    """The tasks of an element-wise node of int8 operands on the tiles of the node before it.

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
            made = replace(slab, channel=channel * self._item, channels=count * self._item)
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
            out = result_of(made, self.target, results)
            walks = [Walk(view.at, view.bytes, width * view.pitch, view.pitch) for view in (*views, out)]
            table = (self.areas[0][0], self.operation.table) if self.operation.table else None
            tile = slab.rows, width, slab.channels
            task.computes = [instruction(self.config, self.operation, tile, walks[:-1], walks[-1], table)]
            store(task, made, out, self.target)
            yield task

    @property
    def _item(self) -> int:
        """Bytes of a result."""
        return INSTRUCTIONS[self.operation.op].output_bytes

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
        limits += [results[1] // self._item] if self.target.sram is None else []
        if not limits:
            return MAX_ROWS, channels
        pixels = min(limits) // width
        if pixels >= channels:
            return pixels // channels, channels
        return 1, max(pixels // self.config.vector_lanes * self.config.vector_lanes, 1)
