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
from dovetail.sw.compiler.arena import Arena
from dovetail.sw.compiler.emit import Compute, Task, Transfer
from dovetail.sw.compiler.residency import Place
from dovetail.sw.compiler.room import Room
from dovetail.sw.compiler.schedule import Space
from dovetail.sw.compiler.slab import Slab, operand_of, result_of, store
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


def flat_tasks(
    config: Config,
    index: int,
    operation: Operation,
    shape: tuple[int, int],
    sources: Sequence[Place],
    target: Place,
    table: int,
    space: Space,
    arena: Arena,
) -> Iterator[Task]:
    """Tasks of an element-wise operation on tensors of one shape, cut along the flat tensors.

    ``shape``: pixels, channels; ``table``: system memory address of the operation's table. What is not resident has
    doubled buffers, operands behind the table.
    """
    pixels, channels = shape
    elements = pixels * channels
    streamed = [place for place in sources if place.sram is None]
    base = _round_up(operation.table, config.word_bytes)
    room = Room(config, arena, space.free, operands=bool(streamed or base), results=target.sram is None)
    limits = [MAX_BLOCKS * config.vec]
    if streamed:
        limits.append((room.operands - base) // (2 * len(streamed)))
    if target.sram is None:
        limits.append(room.results // 2)
    size = min(limits) // config.word_bytes * config.word_bytes
    size = min(size, max(MIN_TILE, _round_up(ceil_div(elements, 4), config.word_bytes)))
    if any(place.pitch != channels for place in (*sources, target)):
        size = min(size // channels, MAX_BLOCKS) * channels
    start, results = room.place(base + 2 * len(streamed) * size, 0 if target.sram is not None else 2 * size)
    registers = {
        "GEOMETRY": pack(Unit.VECTOR, "GEOMETRY", kh=1, kw=1, stride_y=1, dilation_y=1),
        "IN_ROWS": 1,
        "ORIGIN": 0,
        "PAD_TOP": 0,
        "PAD_LEFT": 0,
        **operation.registers,
    }
    # In SRAM, buffers have no gaps.
    *steps, step = (channels if place.sram is None else place.pitch for place in (*sources, target))
    registers |= {"X_STEP": steps[0], "B_X_STEP": steps[-1]}
    flat = {*steps, step} == {channels}
    for number, first in enumerate(range(0, elements, size)):
        count = min(size, elements - first)
        task = Task(index)
        if operation.table and number == 0:
            task.loads.append(Transfer(table, start, operation.table))
        buffer = start + base + number % 2 * len(streamed) * size
        runs, length = (1, count) if flat else (count // channels, channels)
        regions = []
        for place, gap in zip(sources, steps, strict=True):
            at = buffer
            if place.sram is None:
                task.loads.append(_load_flat(place, buffer, first, count, channels))
                buffer += size
            else:
                at = place.sram + first // channels * place.pitch + first % channels
            regions.append((at, (runs - 1) * gap + length))
        if operation.table:
            regions.append((start, operation.table))
        out = results + number % 2 * size
        if target.sram is not None:
            out = target.sram + first // channels * target.pitch + first % channels
        written = (out, (runs - 1) * step + length)
        blocks = ceil_div(length, config.vec)
        tile = registers | {
            "TILE": pack(Unit.VECTOR, "TILE", height=1, width=runs),
            "IN_ADDR": regions[0][0],
            "IN_BYTES": regions[0][1],
            "ROW_BYTES": regions[0][1],
            "OUT_ADDR": out,
            "OUT_BYTES": written[1],
            "OUT_X_STEP": step,
            "BLOCKS": pack(Unit.VECTOR, "BLOCKS", count=blocks, last=length - (blocks - 1) * config.vec),
        }
        if len(regions) > 1:
            tile |= {"B_ADDR": regions[1][0], "B_BYTES": regions[1][1]}
        task.computes = [Compute(Unit.VECTOR, operation.op, tile, tuple(regions), written)]
        if target.memory is not None:
            task.stores = [_store_flat(target, out, first, count, channels, step)]
        yield task


def _load_flat(source: Place, sram: int, first: int, count: int, channels: int) -> Transfer:
    """The transfer of ``count`` bytes from the flat position ``first`` on, whole pixels if there are gaps."""
    assert source.memory is not None
    if source.pitch == channels:
        return Transfer(source.memory + first, sram, count)
    start = source.memory + first // channels * source.pitch
    return Transfer(start, sram, channels, rows=count // channels, memory_row=source.pitch, sram_row=channels)


def _store_flat(target: Place, sram: int, first: int, count: int, channels: int, pitch: int) -> Transfer:
    """The transfer of ``count`` bytes to the flat position ``first`` on, whole pixels if there are gaps; in SRAM pixels
    are ``pitch`` bytes apart."""
    assert target.memory is not None
    if target.pitch == channels:
        return Transfer(target.memory + first, sram, count)
    start = target.memory + first // channels * target.pitch
    return Transfer(start, sram, channels, rows=count // channels, memory_row=target.pitch, sram_row=pitch)


def broadcast_tasks(
    config: Config,
    index: int,
    operation: Operation,
    shapes: Sequence[tuple[int, int, int, int]],
    sources: Sequence[Place],
    target: Place,
    space: Space,
    arena: Arena,
) -> Iterator[Task]:
    """Tasks of an operation on two tensors, one of which has one row or column only, cut in rows and channels.

    ``shapes``: NHWC of the operands.
    """
    height, width, channels = (max(shape[axis] for shape in shapes) for axis in (1, 2, 3))
    word = config.word_bytes
    streamed = any(place.sram is None for place in sources)
    room = Room(config, arena, space.free, operands=streamed, results=target.sram is None)

    def operand_bytes(place: Place, shape: tuple[int, int, int, int], rows: int, part: int) -> int:
        return 0 if place.sram is not None else _round_up(min(shape[1], rows) * shape[2] * part, word)

    def result_bytes(rows: int, part: int) -> int:
        return 0 if target.sram is not None else _round_up(rows * width * part, word)

    def fits(rows: int, part: int) -> bool:
        copies = 1 if rows == height and part == channels else 2
        operands = sum(operand_bytes(place, shape, rows, part) for place, shape in zip(sources, shapes, strict=True))
        return copies * operands <= room.operands and copies * result_bytes(rows, part) <= room.results

    rows, part = _largest(fits, height, channels, f"a row of {width} pixels of one channel of each operand", config)
    sizes = [operand_bytes(place, shape, rows, part) for place, shape in zip(sources, shapes, strict=True)]
    size_out = result_bytes(rows, part)
    copies = 1 if rows == height and part == channels else 2
    start, results = room.place(copies * sum(sizes), copies * size_out)
    number = 0
    for channel in range(0, channels, part):
        count = min(part, channels - channel)
        blocks = ceil_div(count, config.vec)
        for first in range(0, height, rows):
            tile = min(rows, height - first)
            turn = number % copies
            number += 1
            places = [start + turn * sum(sizes), start + turn * sum(sizes) + sizes[0]]
            task = Task(index)
            views, steps = [], []
            for shape, source, at in zip(shapes, sources, places, strict=True):
                whole = shape[1] == height
                slab = Slab(first if whole else 0, tile if whole else 1, shape[2], channel, count)
                views.append(operand_of(task, slab, source, at))
                steps.append((views[-1].pitch * shape[2] if whole else 0, views[-1].pitch if shape[2] == width else 0))
            slab = Slab(first, tile, width, channel, count)
            out = result_of(slab, target, results + turn * size_out)
            registers = {
                **operation.registers,
                "GEOMETRY": pack(Unit.VECTOR, "GEOMETRY", kh=1, kw=1, stride_y=1, dilation_y=1),
                "TILE": pack(Unit.VECTOR, "TILE", height=tile, width=width),
                "IN_ADDR": views[0].at,
                "IN_BYTES": views[0].bytes,
                "ORIGIN": 0,
                "Y_STEP": steps[0][0],
                "X_STEP": steps[0][1],
                "IN_ROWS": tile,
                "ROW_BYTES": (shapes[0][2] - 1) * views[0].pitch + count,
                "PAD_TOP": 0,
                "PAD_LEFT": 0,
                "B_ADDR": views[1].at,
                "B_BYTES": views[1].bytes,
                "B_Y_STEP": steps[1][0],
                "B_X_STEP": steps[1][1],
                "OUT_ADDR": out.at,
                "OUT_BYTES": out.bytes,
                "OUT_Y_STEP": width * out.pitch,
                "OUT_X_STEP": out.pitch,
                "BLOCKS": pack(Unit.VECTOR, "BLOCKS", count=blocks, last=count - (blocks - 1) * config.vec),
            }
            reads = tuple((view.at, view.bytes) for view in views)
            task.computes = [Compute(Unit.VECTOR, operation.op, registers, reads, (out.at, out.bytes))]
            store(task, slab, out, target)
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
    config: Config,
    index: int,
    graph: ir.Graph,
    node: Window,
    source: Place,
    target: Place,
    space: Space,
    arena: Arena,
) -> Iterator[Task]:
    """Tasks of a pooling layer, cut in output rows, and in channels where a row is too large; of padding likewise."""
    _, height, width, channels = graph.tensors[node.inputs[0]].nhwc
    _, out_height, out_width, _ = graph.tensors[node.outputs[0]].nhwc
    kernel, stride, pads = _window(node, height, width)
    room = Room(config, arena, space.free, operands=source.sram is None, results=target.sram is None)
    word = config.word_bytes

    def bytes_of(rows: int, part: int) -> tuple[int, int]:
        span = min((rows - 1) * stride[0] + kernel[0], height)
        return (
            0 if source.sram is not None else _round_up(span * width * part, word),
            0 if target.sram is not None else _round_up(rows * out_width * part, word),
        )

    def fits(rows: int, part: int) -> bool:
        copies = 1 if rows == out_height and part == channels else 2
        size_in, size_out = bytes_of(rows, part)
        return copies * size_in <= room.operands and copies * size_out <= room.results

    smallest = f"what one output row of one channel needs, {kernel[0]} x {width} bytes"
    rows, part = _largest(fits, out_height, channels, smallest, config)
    op = Op.MOV if isinstance(node, ir.Pad) else Op.POOL
    uneven = isinstance(node, ir.AvgPool) and node.counted is None
    columns = _runs(range(out_width), width, kernel[1], stride[1], pads[1], uneven)
    size_in, size_out = bytes_of(rows, part)
    copies = 1 if rows == out_height and part == channels else 2
    operands, results = room.place(copies * size_in, copies * size_out)
    number = 0
    for channel in range(0, channels, part):
        count = min(part, channels - channel)
        for first in range(0, out_height, rows):
            tile = min(rows, out_height - first)
            turn = number % copies
            number += 1
            top = first * stride[0] - pads[0]
            # A tile that lies in the padding alone still has a row of input, which it does not see.
            low = min(max(top, 0), height - 1)
            high = max(min(top + (tile - 1) * stride[0] + kernel[0], height), low + 1)
            blocks = ceil_div(count, config.vec)
            task = Task(index)
            view = operand_of(task, Slab(low, high - low, width, channel, count), source, operands + turn * size_in)
            slab = Slab(first, tile, out_width, channel, count)
            out = result_of(slab, target, results + turn * size_out)
            pitch = width * view.pitch
            lines = _runs(range(first, first + tile), height, kernel[0], stride[0], pads[0], uneven)
            for (y, y_size, y_taps), (x, x_size, x_taps) in product(lines, columns):
                y -= first
                skip = y * out_width * out.pitch + x * out.pitch
                registers = _pool_registers(node, kernel, stride, y_taps * x_taps) | {
                    "IN_ADDR": view.at,
                    "IN_BYTES": view.bytes,
                    "ORIGIN": (y * stride[0] - low + top) * pitch + (x * stride[1] - pads[1]) * view.pitch,
                    "Y_STEP": stride[0] * pitch,
                    "X_STEP": stride[1] * view.pitch,
                    "KY_STEP": pitch,
                    "KX_STEP": view.pitch,
                    "IN_ROWS": high - low,
                    "ROW_BYTES": pitch - (view.pitch - count),
                    "PAD_TOP": low - top - y * stride[0],
                    "PAD_LEFT": (pads[1] - x * stride[1]) * view.pitch,
                    "TILE": pack(Unit.VECTOR, "TILE", height=y_size, width=x_size),
                    "OUT_ADDR": out.at + skip,
                    "OUT_BYTES": out.bytes - skip,
                    "OUT_Y_STEP": out_width * out.pitch,
                    "OUT_X_STEP": out.pitch,
                    "BLOCKS": pack(Unit.VECTOR, "BLOCKS", count=blocks, last=count - (blocks - 1) * config.vec),
                }
                written = (out.at + skip, out.bytes - skip)
                task.computes.append(Compute(Unit.VECTOR, op, registers, ((view.at, view.bytes),), written))
            store(task, slab, out, target)
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
        zero_in, zero_out = node.counted or 0, node.origin
        mult, shift = numerics.average_magic(taps)
        values = {
            "SUM_BIAS": -node.origin * taps,
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
