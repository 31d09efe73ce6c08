"""Code for convolution, dense and depthwise layers and matrix products: the tile tasks of a tiling."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import accumulate, product
from typing import NamedTuple

from dovetail.isa.common.sizes import ceil_div
from dovetail.isa.config.resolved import Config
from dovetail.isa.instructions.table import Unit, pack
from dovetail.sw.compiler.emit.arena import check_padding
from dovetail.sw.compiler.emit.array_layer import block_of, passes_of
from dovetail.sw.compiler.emit.hazards import Range
from dovetail.sw.compiler.emit.operations import Compute, Form, Task, Transfer
from dovetail.sw.compiler.emit.weight_streams import Run, runs_of, starts_of
from dovetail.sw.compiler.layer import ConvLayer
from dovetail.sw.compiler.place import Place
from dovetail.sw.compiler.plan.array_time import stripe_of
from dovetail.sw.compiler.plan.schedule import Tiling
from dovetail.sw.network import ir


@dataclass(frozen=True)
class Matrix:
    """The second operand of a matrix product: its place in system memory, if it has one, and its zero point; ``sram``:
    where it is when the product begins, if all of it is there."""

    address: int | None
    zero: int
    sram: int | None = None


class Area(NamedTuple):
    """A tile's part of the output: first row and rows, first column and columns."""

    row: int
    rows: int
    column: int
    columns: int


class _Window(NamedTuple):
    """The input of a tile: first row, rows and rows of padding above, and the same of columns."""

    row: int
    rows: int
    pad_top: int
    column: int
    columns: int
    pad_left: int


class _Steps(NamedTuple):
    """Bytes in SRAM between a tile's lines and between its pixels: of its input, and of its output."""

    line: int
    pixel: int
    out_line: int
    out_pixel: int


class _Piece(NamedTuple):
    """What tiles have in common whose addresses differ: the form of their instructions, the bytes of input, weights and
    output that each of these claims."""

    form: Form
    input: int
    weights: int
    output: int


Follower = Callable[[Area, tuple[int, int], int, int], Iterator[Task]]
"""The tasks that follow those of a tile: its area, (first, number of) channels, SRAM address, bytes between pixels."""

_Loop = tuple[int, int, int]
"""Steps, and the bytes between them in system memory and in SRAM."""


def _block(length: int, outer: _Loop, inner: _Loop) -> tuple[int, ...]:
    """A transfer, but for addresses, of two loops around ``length`` bytes; those that run on in both places are
    joined."""
    for _ in range(2):
        if inner[1:] == (length, length):
            length, inner, outer = length * inner[0], outer, (1, 0, 0)
    return length, inner[0], outer[0], inner[1], outer[1], inner[2], outer[2]


class _Rotation:
    """Buffers of one operand, filled in turn; tells where a piece lies and whether it must be loaded."""

    def __init__(self, addresses: tuple[int, ...]) -> None:
        self.addresses = addresses
        self.keys: list[object] = [None] * len(addresses)
        self.slots: dict[object, int] = {}
        self.next = 0

    def get(self, key: object) -> tuple[int, bool]:
        """(address, must be loaded)."""
        slot = self.slots.get(key)
        if slot is not None:
            return self.addresses[slot], False
        slot = self.next
        self.slots.pop(self.keys[slot], None)
        self.keys[slot] = key
        self.slots[key] = slot
        self.next = (slot + 1) % len(self.addresses)
        return self.addresses[slot], True


class Buffers:
    """What is in a tiling's buffers, from tile to tile, and from one product of matrices to the next."""

    def __init__(self, tiling: Tiling) -> None:
        self.inputs, self.streams = _Rotation(tiling.input_at), _Rotation(tiling.weights_at)
        self.records: int | None = None
        """Where the records of products are, which are the same for all columns, once they are loaded."""
        self.tiles = 0


class ConvCode:
    """Generates the tasks of one layer, or of one matrix product.

    ``source``, ``target``: where input and output lie; ``constants``: system memory address of the weight streams;
    ``index``: the layer's number; ``matrix``: what a product takes instead of weights; ``tail``: what follows a tile;
    ``kept``: SRAM address of the weight streams, if they are there; ``part``: the most bytes of them that a transfer
    loads, 0: any.
    """

    def __init__(
        self,
        config: Config,
        layer: ConvLayer,
        tiling: Tiling,
        requant: ir.Requant,
        index: int,
        source: Place,
        target: Place,
        constants: int,
        matrix: Matrix | None = None,
        tail: Follower | None = None,
        kept: int | None = None,
        part: int = 0,
    ) -> None:
        self.config, self.layer, self.tiling, self.requant, self.index = config, layer, tiling, requant, index
        self.source, self.target, self.matrix = source, target, matrix
        self.tail, self.part = tail, part
        self.kept = None if kept is None else kept - constants
        kh, kw = layer.taps
        stride_y, dilation_y = self.line_steps = layer.line_steps
        self.geometry, self.repeated, self.spot = (
            pack(Unit.ARRAY, "GEOMETRY", kh=rows, kw=columns, stride_y=stride_y, dilation_y=dilation_y)
            for rows, columns in ((kh, kw), (kh, layer.repeats), layer.spot[1::2])
        )
        quant = {"zero_in": requant.zero_in, "zero_out": requant.zero_out, "lo": requant.lo, "hi": requant.hi}
        self.quant = pack(Unit.ARRAY, "QUANT", **quant)
        self.passes = passes_of(layer, tiling)
        self.block = block_of(config, layer, tiling)
        self.starts = [starts_of(config, layer, self.block, one.channels) for one in self.passes]
        sizes = [0 if matrix else starts[-1] for starts in self.starts]
        self.streams = [constants + size for size in accumulate(sizes, initial=0)]
        self._pieces: dict[tuple[int, ...], _Piece] = {}

    def tasks(self, buffers: Buffers | None = None) -> Iterator[Task]:
        """One task per tile and pass; ``buffers``: of the products before, which share their records."""
        shared, buffers = buffers is not None, buffers or Buffers(self.tiling)
        tiling, layer = self.tiling, self.layer
        width = tiling.columns or layer.out_width
        areas = [
            Area(y, min(tiling.rows, layer.out_height - y), x, min(width, layer.out_width - x))
            for y in range(0, layer.out_height, tiling.rows)
            for x in range(0, layer.out_width, width)
        ]
        step = tiling.out_channels
        cols = [(c, min(step, layer.out_channels - c)) for c in range(0, layer.out_channels, step)]
        order = [(a, c) for a in areas for c in cols] if tiling.rows_outer else [(a, c) for c in cols for a in areas]
        inputs, streams = buffers.inputs, buffers.streams
        windows = {area: self._window(area) for area in areas}
        resident, stores = self.source.sram is not None, self.target.memory is not None
        turns = range(len(self.passes))
        for together, (area, col) in product([[turn] for turn in turns] if tiling.passes_outer else [turns], order):
            window, (channel, count) = windows[area], col
            output = self._output(buffers.tiles, area, col)
            buffers.tiles += 1
            for turn in together:
                first, channels, _, part = self.passes[turn]
                task = Task(self.index)
                skip = first - part[0]
                if layer.separable:
                    part = layer.inputs_of(channel, 0), layer.inputs_of(count, 0)
                    channels = part[1]
                inner = turn > 0, layer.item > 1 or turn < len(self.passes) - 1
                stream, runs = runs_of(
                    self.config, layer, self.block, self.starts[turn], col, self.passes[turn].channels, *inner
                )
                at = self.streams[turn] + self.starts[turn][channel // self.block]
                if self.kept is None:
                    weights_at, missing = streams.get((self.matrix, col, turn))
                else:
                    weights_at, missing = self.kept + at, False
                above = weights_at + stream
                if shared:
                    above = weights_at + int(layer.stream_bytes(self.config, tiling.out_channels, channels))
                if missing and (not shared or buffers.records is None):
                    most = self.part or stream
                    for begin in range(0, stream, most):
                        task.loads.append(Transfer(at + begin, weights_at + begin, min(most, stream - begin)))
                if self.matrix and self.matrix.sram is not None:
                    row, column = (channel, first) if layer.transposed else (first, channel)
                    above = self.matrix.sram + row * self._matrix_step(channels, count) + column
                elif missing and self.matrix:
                    task.loads.append(self._load_matrix(self.matrix, col, (first, channels), above))
                if shared and self.kept is None:
                    weights_at = buffers.records = weights_at if buffers.records is None else buffers.records
                if resident:
                    input_at = self._input(self.source.sram, window, part[0])
                else:
                    input_at, missing = inputs.get((self.source, area, part))
                    if missing:
                        start = self._input(self.source.memory, window, part[0])
                        task.loads.append(Transfer(start, input_at, *self._load(window, part[1])))
                places = input_at + skip, output[0], weights_at, above
                steps = self._steps(area, window, part[1], output[1])
                for run in runs:
                    for band in self._bands(area, run, channels):
                        of = self._window(band)
                        piece = self._piece(band, of, steps, run, channels)
                        seen = (of.row - window.row) * steps.line + (of.column - window.column) * steps.pixel
                        made = (band.row - area.row) * steps.out_line + (band.column - area.column) * steps.out_pixel
                        addresses = places[0] + seen, places[1] + made, *places[2:]
                        task.computes += self._computes(piece, run, turn, *addresses)
                if stores and turn == len(self.passes) - 1:
                    end = self._result(self.target.memory, area, channel)
                    task.stores.append(Transfer(end, output[0], *self._store(area, count, output[1])))
                yield task
            if self.tail:
                yield from self.tail(area, col, *output)

    def _window(self, area: Area) -> _Window:
        """The input of an area."""
        return _Window(*self.layer.input_rows(*area[:2]), *self.layer.input_columns(*area[2:]))

    def _bands(self, area: Area, run: Run, channels: int) -> Iterator[Area]:
        """A tile's part of the output, an instruction each: where the array takes several kernel rows at once, its
        lines are no longer than a stripe."""
        layer = self.layer
        if layer.rows == 1:
            yield area
            return
        size = self._stripe(area, run, channels) * layer.beside
        row, rows, column, columns = area
        if layer.down:
            yield from (Area(n, min(size, row + rows - n), column, columns) for n in range(row, row + rows, size))
        else:
            yield from (
                Area(row, rows, n, min(size, column + columns - n)) for n in range(column, column + columns, size)
            )

    def _stripe(self, area: Area, run: Run, channels: int) -> int:
        """Pixels per stripe of an area."""
        layer = self.layer
        seen = layer.channels if layer.separable else channels
        extent = layer.extent(area.rows, area.columns)
        return stripe_of(self.config, layer, extent, run.channels, seen, self.tiling.best_stripe)

    def _steps(self, area: Area, window: _Window, part: int, out_pixel: int) -> _Steps:
        """Of a tile, ``part`` channels of whose input are loaded."""
        inside = self.source.sram is not None
        pixel = self.source.pitch if inside else part
        line = pixel * (self.layer.width if inside else window.columns)
        return _Steps(line, pixel, self._out_line(area, out_pixel), out_pixel)

    def _output(self, number: int, area: Area, col: tuple[int, int]) -> tuple[int, int]:
        """(SRAM address, bytes between pixels) of the results of a tile."""
        if self.target.sram is None:
            at = self.tiling.output_at[number % len(self.tiling.output_at)]
            return at, 4 * col[1] if len(self.passes) > 1 else int(self.layer.pixel_bytes(self.config, col[1]))
        return self._result(self.target.sram, area, col[0]), self.target.pitch

    def _input(self, base: int | None, window: _Window, channel: int) -> int:
        """Where a tile's input begins in a tensor at ``base``."""
        assert base is not None
        return base + (window.row * self.layer.width + window.column) * self.source.pitch + channel

    def _result(self, base: int | None, area: Area, channel: int) -> int:
        """Where a tile's results begin in a tensor at ``base``."""
        assert base is not None
        pixel = area.row * self.layer.out_width + area.column
        return base + pixel * self.target.pitch + channel * self.layer.item

    def _load(self, window: _Window, part: int) -> tuple[int, ...]:
        """The transfer of a tile's input, ``part`` channels, but for addresses."""
        pitch, columns = self.source.pitch, window.columns
        lines = window.rows, self.layer.width * pitch, columns * part
        return _block(part, lines, (columns, pitch, part))

    def _store(self, area: Area, count: int, out_pixel: int) -> tuple[int, ...]:
        """The transfer of a tile's results, ``count`` channels, but for addresses."""
        pitch = self.target.pitch
        lines = area.rows, self.layer.out_width * pitch, self._out_line(area, out_pixel)
        return _block(count * self.layer.item, lines, (area.columns, pitch, out_pixel))

    def _load_matrix(self, matrix: Matrix, col: tuple[int, int], part: tuple[int, int], at: int) -> Transfer:
        """Columns ``col`` and rows ``part`` of the matrix, in the matrix's order."""
        layer = self.layer
        (outer, pitch), inner = ((col, layer.channels), part) if layer.transposed else ((part, layer.out_channels), col)
        assert matrix.address is not None
        start = matrix.address + outer[0] * pitch + inner[0]
        if inner[1] == pitch:
            return Transfer(start, at, outer[1] * pitch)
        return Transfer(start, at, inner[1], rows=outer[1], memory_row=pitch, sram_row=inner[1])

    def _out_line(self, area: Area, pixel: int) -> int:
        """Bytes between the rows of results in SRAM."""
        return pixel * (area.columns if self.target.sram is None else self.layer.out_width)

    def _computes(
        self, piece: _Piece, run: Run, turn: int, source: int, target: int, weights: int, matrix: int
    ) -> list[Compute]:
        """A run's instructions; SRAM addresses of the tile's input, output, weight stream and matrix."""
        layer, (form, in_bytes, w_bytes, out_bytes) = self.layer, piece
        channels = run.channels
        source, target, weights = source + layer.inputs_of(run.first, 0), target + run.first, weights + run.at
        if layer.mode == "grouped":
            seen, made = layer.group
            groups = range(channels // made)
            return [
                Compute(form, (a, b, c), ((a, in_bytes), (c, w_bytes)), (b, out_bytes))
                for a, b, c in ((source + n * seen, target + n * made, weights + n * w_bytes) for n in groups)
            ]
        addresses: tuple[int, ...] = source, target, weights
        reads: tuple[Range, ...] = (source, in_bytes), (weights, w_bytes)
        if self.matrix:
            addresses = *addresses, matrix
            reads = *reads, (matrix, self._matrix_bytes(self.passes[turn].channels, channels))
        if run.adds:
            reads = *reads, (target, out_bytes)
        return [Compute(form, addresses, reads, (target, out_bytes))]

    def _piece(self, area: Area, window: _Window, steps: _Steps, run: Run, channels: int) -> _Piece:
        """Of a tile's area: a run of its output channels, of the input ``channels`` that count."""
        sizes = area.rows, area.columns, window.rows, window.pad_top, window.columns, window.pad_left, *steps
        key = *sizes, run.channels, *run[3:], channels
        piece = self._pieces.get(key)
        if piece is None:
            layer = self.layer
            registers = self._registers(area, window, steps, run, channels)
            addresses = ("IN_ADDR", "OUT_ADDR", "W_ADDR", "B_ADDR")[: 3 + bool(self.matrix)]
            form = Form(Unit.ARRAY, layer.op, registers, addresses)
            piece = _Piece(form, registers["IN_BYTES"], registers["W_BYTES"], registers["OUT_BYTES"])
            self._pieces[key] = piece
        return piece

    def _matrix_step(self, channels: int, count: int) -> int:
        """Bytes between the rows of a matrix in its own order, of which a run takes ``channels`` and ``count``."""
        whole = self.matrix is not None and self.matrix.sram is not None
        if self.layer.transposed:
            return self.layer.channels if whole else channels
        return self.layer.out_channels if whole else count

    def _matrix_bytes(self, channels: int, count: int) -> int:
        """Bytes from the first to the last that a run takes."""
        rows, row = (count, channels) if self.layer.transposed else (channels, count)
        return (rows - 1) * self._matrix_step(channels, count) + row

    def _column_step(self, pixel: int) -> int:
        """Bytes between kernel columns, ``pixel`` of them between neighbours; where pixels slide over a single one,
        between pixels, and where they slide over words, between these."""
        layer = self.layer
        if layer.columns > 1:
            return layer.columns * pixel
        steps = layer.stride if layer.mode == "depthwise" and layer.taps[1] == 1 else layer.dilation
        return layer.turned(*steps)[1] * pixel

    def _registers(self, area: Area, window: _Window, steps: _Steps, run: Run, channels: int) -> dict[str, int]:
        """Of a run's instructions, but for addresses."""
        layer, config, count = self.layer, self.config, run.channels
        grouped = layer.mode == "grouped"
        _, rows, pad_top, _, columns, pad_left = window
        line, pixel, out_line, out_pixel = steps
        across = 1 if layer.packed else layer.kernel[1]
        reach = (area.columns - 1) * layer.stride[1] + (across - 1) * layer.dilation[1] + 1
        check_padding(config, (0, pad_left, 0, max(0, reach - pad_left - columns)), pixel)
        seen, made = layer.group if grouped else (int(layer.inputs_of(count, channels)), count)
        lanes = config.oc_lanes if grouped else layer.lanes(config)
        of_blocks = made * layer.beside
        blocks = ceil_div(of_blocks, lanes)
        item = 4 if run.adds or run.int32 else 1
        out_bytes = (area.rows - 1) * out_line + area.columns * out_pixel - (out_pixel - made * item)
        trim = pixel - seen
        spot = run.adds and layer.apart
        row, column = (layer.spot[0] * layer.dilation[0], layer.spot[2] * layer.dilation[1]) if spot else (0, 0)
        geometry = self.spot if spot else self.repeated if run.repeated and not layer.apart else self.geometry
        beside = self.target.sram is None or area.columns == layer.out_width  # rows of results
        pairs = layer.pairs and not run.adds and layer.stride[1] * pixel <= config.pair_step
        pairs = pairs and (beside or area.columns % 2 == 0)
        width = layer.computed(area.columns) if pairs else area.columns // layer.beside
        # The array's rows and columns: bytes between pixels, what there is of the input, and padding.
        near, out_near, seen_size, pads = (
            layer.turned(*of)
            for of in ((line, pixel), (out_line, out_pixel), (rows, columns), (pad_top - row, pad_left - column))
        )
        above, left = pads[0] + layer.lead, pads[1]
        height, width = layer.turned(area.rows, width)
        registers = {
            "IN_ADDR": 0,
            "IN_BYTES": (rows - 1) * line + columns * pixel - trim,
            "ORIGIN": -above * near[0] - left * near[1],
            "Y_STEP": self.line_steps[0] * near[0],
            "X_STEP": layer.turned(*layer.stride)[1] * near[1],
            "KY_STEP": self.line_steps[1] * near[0],
            "KX_STEP": 0 if run.repeated and not layer.apart else self._column_step(near[1]),
            "IN_ROWS": seen_size[0],
            "ROW_BYTES": (seen_size[1] - 1) * near[1] + pixel - trim,
            "PAD_TOP": above,
            "PAD_LEFT": left * near[1],
            "GEOMETRY": geometry,
            "TILE": pack(Unit.ARRAY, "TILE", height=height, width=width),
            "QUANT": self.quant,
            "OUT_ADDR": 0,
            "OUT_BYTES": out_bytes,
            "OUT_Y_STEP": out_near[0],
            "OUT_X_STEP": out_near[1] * layer.beside,
            "BLOCKS": pack(Unit.ARRAY, "BLOCKS", count=blocks, last=of_blocks - (blocks - 1) * lanes),
            "KC": pack(Unit.ARRAY, "KC", blocks=layer.kc(config, channels), group=layer.together(config, channels) - 1),
            "W_ADDR": 0,
            "W_BYTES": run.stream * made // count,
            "STRIPE": width if layer.rows > 1 else self._stripe(area, run, channels),
            "MODE": pack(
                Unit.ARRAY,
                "MODE",
                rounding=int(self.requant.rounding),
                int32=int(run.int32),
                accumulate=int(run.adds),
                extra=layer.group[1] - 1 if layer.mode == "depthwise" else 0,
                slide=layer.slide,
                pairs=int(pairs),
                columns=layer.columns.bit_length() - 1,
                rows=layer.rows - 1,
                skip=layer.skip - 1,
                chain=int(layer.chain),
            ),
        }
        if self.matrix:
            registers |= {
                "B_ADDR": 0,
                "B_BYTES": self._matrix_bytes(channels, count),
                "B_STEP": self._matrix_step(channels, count),
                "B_FORM": pack(Unit.ARRAY, "B_FORM", zero_b=self.matrix.zero, transposed=int(layer.transposed)),
            }
        return registers
