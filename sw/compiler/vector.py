"""Code for the vector unit's layers: element-wise operations, pooling and padding."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import product

from dovetail.isa import numerics
from dovetail.isa.config import Config, ceil_div, format_bytes
from dovetail.isa.instructions import Op, Unit, pack
from dovetail.isa.numerics import Rounding, VectorOperation
from dovetail.isa.timing.vector import TABLE_BYTES
from dovetail.sw import graph as ir
from dovetail.sw.compiler.emit import Compute, Task, Transfer
from dovetail.sw.errors import CompileError

MAX_BLOCKS = 65535
MIN_TILE = 4096
"""Bytes below which an element-wise operation is not cut further to overlap its transfers."""


def _round_up(size: int, to: int) -> int:
    return ceil_div(size, to) * to


@dataclass(frozen=True)
class Operation:
    """An element-wise instruction: opcode, the registers that say what it computes, and its table's bytes."""

    op: Op
    registers: Mapping[str, int]
    table: int = 0


_COMBINE = {
    VectorOperation.ADD: Op.E_ADD,
    VectorOperation.SUBTRACT: Op.E_ADD,
    VectorOperation.MINIMUM: Op.C_MIN,
    VectorOperation.MAXIMUM: Op.C_MAX,
}


def operation_of(node: ir.Elementwise | ir.Rescale | ir.Table) -> Operation:
    """The instruction of an element-wise node."""
    if isinstance(node, ir.Table):
        return Operation(Op.ACT_LUT, {}, table=TABLE_BYTES)
    if isinstance(node, ir.Rescale):
        r = node.requant
        below = node.below or (0, 0)
        op = Op.E_ABS if node.absolute else Op.ACT_LRELU if node.below else Op.ACT_RELU
        shift = int(r.shift[0])
        return Operation(
            op,
            {
                "QUANT": pack(Unit.VECTOR, "QUANT", zero_in=r.zero_in, zero_out=r.zero_out, lo=r.lo, hi=r.hi),
                "MODE": _mode(r.rounding),
                "B_MULT": below[0],
                "OUT_MULT": int(r.mult[0]),
                "SHIFTS": pack(Unit.VECTOR, "SHIFTS", a=0, b=below[1], out=shift),
            },
        )
    params = node.params
    registers = {
        "QUANT": pack(Unit.VECTOR, "QUANT", zero_in=params.za, zero_out=params.zy, lo=params.lo, hi=params.hi),
        "B_ZERO": pack(Unit.VECTOR, "B_ZERO", zero_b=params.zb),
    }
    if isinstance(params, ir.MulParams):
        return Operation(
            Op.E_MUL,
            registers
            | {
                "MODE": _mode(params.rounding),
                "OUT_MULT": params.mult,
                "SHIFTS": pack(Unit.VECTOR, "SHIFTS", a=0, b=0, out=params.shift),
            },
        )
    return Operation(
        _COMBINE[params.combine],
        registers
        | {
            "MODE": _mode(params.rounding, subtract=params.combine == VectorOperation.SUBTRACT),
            "A_MULT": params.mult_a,
            "B_MULT": params.mult_b,
            "OUT_MULT": params.mult_out,
            "SHIFTS": pack(Unit.VECTOR, "SHIFTS", a=params.shift_a, b=params.shift_b, out=params.shift_out),
        },
    )


def _mode(rounding: Rounding, average: bool = False, requantise: bool = False, subtract: bool = False) -> int:
    return pack(
        Unit.VECTOR,
        "MODE",
        rounding=int(rounding),
        average=int(average),
        requantise=int(requantise),
        subtract=int(subtract),
    )


@dataclass(frozen=True)
class Pixels:
    """A result's shape in system memory: ``count`` runs of ``channels`` bytes, ``pitch`` bytes apart."""

    count: int
    channels: int
    pitch: int

    def store(self, target: int, sram: int, first: int, count: int) -> Transfer:
        """The transfer of ``count`` bytes from the flat position ``first`` on, whole pixels if there are gaps."""
        if self.pitch == self.channels:
            return Transfer(target + first, sram, count)
        start = target + first // self.channels * self.pitch
        return Transfer(
            start, sram, self.channels, rows=count // self.channels, memory_row=self.pitch, sram_row=self.channels
        )


def flat_tasks(
    config: Config,
    index: int,
    operation: Operation,
    pixels: Pixels,
    sources: Sequence[int],
    target: int,
    table: int = 0,
) -> Iterator[Task]:
    """Tasks of an element-wise operation on tensors of one shape, cut along the flat tensors.

    ``table``: system memory address of the operation's table. Banks: table and operands first, results in banks of
    their own; operands and results doubled.
    """
    half = config.n_banks // 2 * config.bank_bytes
    base = _round_up(operation.table, config.word_bytes)
    count_in = len(sources)
    largest = min((half - base) // (2 * count_in) // config.word_bytes * config.word_bytes, MAX_BLOCKS * config.vec)
    elements = pixels.count * pixels.channels
    size = min(largest, max(MIN_TILE, _round_up(ceil_div(elements, 4), config.word_bytes)))
    if pixels.pitch != pixels.channels:
        size = min(size // pixels.channels, MAX_BLOCKS) * pixels.channels
    registers = {
        "GEOMETRY": pack(Unit.VECTOR, "GEOMETRY", kh=1, kw=1, stride_y=1, dilation_y=1),
        "TILE": pack(Unit.VECTOR, "TILE", height=1, width=1),
        "IN_ROWS": 1,
        "ORIGIN": 0,
        "PAD_TOP": 0,
        "PAD_LEFT": 0,
        **operation.registers,
    }
    for number, first in enumerate(range(0, elements, size)):
        count = min(size, elements - first)
        turn = number % 2
        places = [base + (count_in * turn + i) * size for i in range(count_in)]
        out = half + turn * size
        blocks = ceil_div(count, config.vec)
        regions = [(place, count) for place in places]
        task = Task(index)
        if operation.table:
            regions.append((0, operation.table))
            if number == 0:
                task.loads.append(Transfer(table, 0, operation.table))
        tile = registers | {
            "IN_ADDR": places[0],
            "IN_BYTES": count,
            "ROW_BYTES": count,
            "OUT_ADDR": out,
            "OUT_BYTES": count,
            "BLOCKS": pack(Unit.VECTOR, "BLOCKS", count=blocks, last=count - (blocks - 1) * config.vec),
        }
        if len(regions) > 1:
            tile |= {"B_ADDR": regions[1][0], "B_BYTES": regions[1][1]}
        task.loads += [Transfer(source + first, place, count) for source, place in zip(sources, places, strict=True)]
        task.computes = [Compute(Unit.VECTOR, operation.op, tile, tuple(regions), (out, count))]
        task.stores = [pixels.store(target, out, first, count)]
        yield task


def broadcast_tasks(
    config: Config,
    index: int,
    operation: Operation,
    shapes: Sequence[tuple[int, int, int, int]],
    sources: Sequence[int],
    target: int,
    pitch: int,
) -> Iterator[Task]:
    """Tasks of an operation on two tensors, one of which has one row or column only, cut in rows and channels.

    ``shapes``: NHWC of the operands; ``pitch``: bytes between the result's pixels in system memory.
    """
    height, width, channels = (max(shape[axis] for shape in shapes) for axis in (1, 2, 3))
    half, word = config.n_banks // 2 * config.bank_bytes, config.word_bytes

    def operand_bytes(shape: tuple[int, int, int, int], rows: int, part: int) -> int:
        return _round_up(min(shape[1], rows) * shape[2] * part, word)

    def fits(rows: int, part: int) -> bool:
        copies = 1 if rows == height and part == channels else 2
        return (
            copies * sum(operand_bytes(shape, rows, part) for shape in shapes) <= half
            and copies * _round_up(rows * width * part, word) <= config.sram_bytes - half
        )

    rows, part = _largest(fits, height, channels, f"a row of {width} pixels of one channel of each operand", config)
    sizes = [operand_bytes(shape, rows, part) for shape in shapes]
    size_out = _round_up(rows * width * part, word)
    number = 0
    for channel in range(0, channels, part):
        count = min(part, channels - channel)
        blocks = ceil_div(count, config.vec)
        for first in range(0, height, rows):
            tile = min(rows, height - first)
            turn = number % 2
            number += 1
            places = [turn * sum(sizes), turn * sum(sizes) + sizes[0]]
            out, out_bytes = half + turn * size_out, tile * width * count
            task = Task(index)
            regions, steps = [], []
            for shape, source, place in zip(shapes, sources, places, strict=True):
                whole = shape[1] == height
                taken = tile if whole else 1
                task.loads.append(
                    _slab(source, place, first if whole else 0, taken, shape[2], channels, channel, count)
                )
                regions.append((place, taken * shape[2] * count))
                steps.append((shape[2] * count if whole else 0, count if shape[2] == width else 0))
            registers = {
                **operation.registers,
                "GEOMETRY": pack(Unit.VECTOR, "GEOMETRY", kh=1, kw=1, stride_y=1, dilation_y=1),
                "TILE": pack(Unit.VECTOR, "TILE", height=tile, width=width),
                "IN_ADDR": regions[0][0],
                "IN_BYTES": regions[0][1],
                "ORIGIN": 0,
                "Y_STEP": steps[0][0],
                "X_STEP": steps[0][1],
                "IN_ROWS": tile,
                "ROW_BYTES": shapes[0][2] * count,
                "PAD_TOP": 0,
                "PAD_LEFT": 0,
                "B_ADDR": regions[1][0],
                "B_BYTES": regions[1][1],
                "B_Y_STEP": steps[1][0],
                "B_X_STEP": steps[1][1],
                "OUT_ADDR": out,
                "OUT_BYTES": out_bytes,
                "OUT_Y_STEP": width * count,
                "OUT_X_STEP": count,
                "BLOCKS": pack(Unit.VECTOR, "BLOCKS", count=blocks, last=count - (blocks - 1) * config.vec),
            }
            task.computes = [Compute(Unit.VECTOR, operation.op, registers, tuple(regions), (out, out_bytes))]
            task.stores = [_slab(target, out, first, tile, width, pitch, channel, count)]
            yield task


def _largest(
    fits: Callable[[int, int], bool], rows: int, channels: int, smallest: str, config: Config
) -> tuple[int, int]:
    """(rows, channels) of a tile: halved, rows first, until it fits. Raises CompileError."""
    while not fits(rows, channels) and rows > 1:
        rows = ceil_div(rows, 2)
    while not fits(rows, channels) and channels > 1:
        channels = ceil_div(channels, 2)
    if not fits(rows, channels):
        raise CompileError(f"{smallest}, twice, must fit in half of {format_bytes(config.sram_bytes)}: give more SRAM")
    return rows, channels


Window = ir.AvgPool | ir.MaxPool | ir.Mean | ir.Pad


def pool_tasks(
    config: Config, index: int, graph: ir.Graph, node: Window, source: int, target: int, out_pitch: int
) -> Iterator[Task]:
    """Tasks of a pooling layer, cut in output rows, and in channels where a row is too large; of padding likewise.

    ``out_pitch``: bytes between the output's pixels in system memory.
    """
    _, height, width, channels = graph.tensors[node.inputs[0]].nhwc
    _, out_height, out_width, _ = graph.tensors[node.outputs[0]].nhwc
    kernel, stride, pads = _window(node, height, width)
    half = config.n_banks // 2 * config.bank_bytes
    limit_in = half
    limit_out = config.sram_bytes - half
    word = config.word_bytes

    def fits(rows: int, part: int) -> bool:
        span = min((rows - 1) * stride[0] + kernel[0], height)
        copies = 1 if rows == out_height and part == channels else 2
        return (
            copies * _round_up(span * width * part, word) <= limit_in
            and copies * _round_up(rows * out_width * part, word) <= limit_out
        )

    smallest = f"what one output row of one channel needs, {kernel[0]} x {width} bytes"
    rows, part = _largest(fits, out_height, channels, smallest, config)
    op = Op.MOV if isinstance(node, ir.Pad) else Op.POOL
    uneven = isinstance(node, ir.AvgPool) and node.counted is None
    columns = _runs(range(out_width), width, kernel[1], stride[1], pads[1], uneven)
    size_in = _round_up(min((rows - 1) * stride[0] + kernel[0], height) * width * part, word)
    size_out = _round_up(rows * out_width * part, word)
    number = 0
    for channel in range(0, channels, part):
        count = min(part, channels - channel)
        pitch = width * count
        for first in range(0, out_height, rows):
            tile = min(rows, out_height - first)
            turn = number % 2 if 2 * size_in <= limit_in and 2 * size_out <= limit_out else 0
            number += 1
            top = first * stride[0] - pads[0]
            # A tile that lies in the padding alone still has a row of input, which it does not see.
            low = min(max(top, 0), height - 1)
            high = max(min(top + (tile - 1) * stride[0] + kernel[0], height), low + 1)
            a, out = turn * size_in, half + turn * size_out
            in_bytes, out_bytes = (high - low) * pitch, tile * out_width * count
            blocks = ceil_div(count, config.vec)
            task = Task(index)
            task.loads = [_slab(source, a, low, high - low, width, channels, channel, count)]
            lines = _runs(range(first, first + tile), height, kernel[0], stride[0], pads[0], uneven)
            for (y, y_size, y_taps), (x, x_size, x_taps) in product(lines, columns):
                y -= first
                skip = y * out_width * count + x * count
                registers = _pool_registers(node, kernel, stride, y_taps * x_taps) | {
                    "IN_ADDR": a,
                    "IN_BYTES": in_bytes,
                    "ORIGIN": (y * stride[0] - low + top) * pitch + (x * stride[1] - pads[1]) * count,
                    "Y_STEP": stride[0] * pitch,
                    "X_STEP": stride[1] * count,
                    "KY_STEP": pitch,
                    "KX_STEP": count,
                    "IN_ROWS": high - low,
                    "ROW_BYTES": pitch,
                    "PAD_TOP": low - top - y * stride[0],
                    "PAD_LEFT": (pads[1] - x * stride[1]) * count,
                    "TILE": pack(Unit.VECTOR, "TILE", height=y_size, width=x_size),
                    "OUT_ADDR": out + skip,
                    "OUT_BYTES": out_bytes - skip,
                    "OUT_Y_STEP": out_width * count,
                    "OUT_X_STEP": count,
                    "BLOCKS": pack(Unit.VECTOR, "BLOCKS", count=blocks, last=count - (blocks - 1) * config.vec),
                }
                written = (out + skip, out_bytes - skip)
                task.computes.append(Compute(Unit.VECTOR, op, registers, ((a, in_bytes),), written))
            task.stores = [_slab(target, out, first, tile, out_width, out_pitch, channel, count)]
            yield task


def _runs(outputs: range, size: int, kernel: int, stride: int, pad: int, uneven: bool) -> list[tuple[int, int, int]]:
    """(first, outputs, taps that count) of runs of outputs along one axis with equally many taps inside the image.

    One run with all taps unless ``uneven``.
    """
    if not uneven:
        return [(outputs.start, len(outputs), kernel)]
    runs: list[tuple[int, int, int]] = []
    for at in outputs:
        begin = at * stride - pad
        taps = min(begin + kernel, size) - max(begin, 0)
        if runs and runs[-1][2] == taps:
            runs[-1] = (runs[-1][0], runs[-1][1] + 1, taps)
        else:
            runs.append((at, 1, taps))
    return runs


def _slab(base: int, sram: int, first: int, rows: int, width: int, channels: int, channel: int, count: int) -> Transfer:
    """Rows of a tensor, all channels or some, as a dense block in SRAM."""
    memory = base + first * width * channels + channel
    if count == channels:
        return Transfer(memory, sram, rows * width * channels)
    return Transfer(
        memory,
        sram,
        count,
        rows=width,
        planes=rows,
        memory_row=channels,
        memory_plane=width * channels,
        sram_row=count,
        sram_plane=width * count,
    )


def _window(node: Window, height: int, width: int) -> tuple[ir.Pair, ir.Pair, ir.Pads]:
    if isinstance(node, ir.Mean):
        return (height, width), (1, 1), (0, 0, 0, 0)
    if isinstance(node, ir.Pad):
        return (1, 1), (1, 1), node.pads
    return node.kernel, node.stride, node.pads


def _pool_registers(node: Window, kernel: ir.Pair, stride: ir.Pair, taps: int) -> dict[str, int]:
    """Registers that do not depend on the tile; ``taps`` count in an average."""
    zero_in, zero_out, lo, hi = 0, 0, -128, 127
    values: dict[str, int] = {}
    rounding = Rounding.TFLITE
    if isinstance(node, ir.Pad):
        zero_in = node.value
    elif isinstance(node, ir.MaxPool):
        zero_in, lo, hi = -128, node.lo, node.hi
    elif isinstance(node, ir.AvgPool):
        rounding, lo, hi = node.rounding, node.lo, node.hi
        zero_in = node.counted or 0
        mult, shift = numerics.average_magic(taps)
        values = {
            "SUM_BIAS": 0,
            "POOL_COUNT": taps,
            "POOL_MAGIC": mult,
            "POOL_SHIFT": pack(Unit.VECTOR, "POOL_SHIFT", shift=shift),
        }
    else:
        requant = node.requant
        rounding, zero_out, lo, hi = requant.rounding, requant.zero_out, requant.lo, requant.hi
        values = {
            "SUM_BIAS": -requant.zero_in * taps,
            "OUT_MULT": int(requant.mult[0]),
            "SHIFTS": pack(Unit.VECTOR, "SHIFTS", a=0, b=0, out=int(requant.shift[0])),
        }
    average = isinstance(node, ir.AvgPool | ir.Mean)
    return values | {
        "GEOMETRY": pack(Unit.VECTOR, "GEOMETRY", kh=kernel[0], kw=kernel[1], stride_y=stride[0], dilation_y=1),
        "QUANT": pack(Unit.VECTOR, "QUANT", zero_in=zero_in, zero_out=zero_out, lo=lo, hi=hi),
        "MODE": _mode(rounding, average=average, requantise=isinstance(node, ir.Mean)),
    }
