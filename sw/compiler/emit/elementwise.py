"""Code for element-wise layers: their instructions, and the tasks of one alone."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from dovetail.isa.common.sizes import ceil_div, round_up
from dovetail.isa.config.resolved import Config
from dovetail.isa.instructions.table import INSTRUCTIONS, TABLE_BYTES, Op, Unit, pack
from dovetail.isa.numerics.rounding import Rounding
from dovetail.isa.numerics.vector import VectorOperation
from dovetail.sw.compiler.emit.arena import Arena, Room, tiles
from dovetail.sw.compiler.emit.hazards import Range
from dovetail.sw.compiler.emit.operations import Compute, Form, Task, Transfer
from dovetail.sw.compiler.emit.slab import Slab, operand_of, result_of, store
from dovetail.sw.compiler.place import Place
from dovetail.sw.compiler.plan.schedule import Space
from dovetail.sw.network import ir

MAX_BLOCKS = 65535
MIN_TILE = 4096
"""Bytes below which an element-wise operation is not cut further to overlap its transfers."""
POINTWISE = pack(Unit.VECTOR, "GEOMETRY", kh=1, kw=1, stride_y=1, dilation_y=1)
"""The register GEOMETRY of whatever walks no taps."""


@dataclass(frozen=True)
class Operation:
    """An element-wise instruction: opcode, the registers that say what it computes, and its table's bytes."""

    op: Op
    registers: Mapping[str, int]
    table: int = 0


def operation_of(node: ir.Pointwise) -> Operation:
    """The instruction of an element-wise node."""
    if isinstance(node, ir.Table):
        return Operation(Op.ACT_LUT, {}, table=TABLE_BYTES)
    bias = {"SUM_BIAS": 0} if INSTRUCTIONS[node.instruction].int32_input else {}
    if isinstance(node, ir.Rescale):
        r = node.requant
        below = node.below or (0, 0)
        shift = int(r.shift[0])
        return Operation(
            node.instruction,
            {
                "QUANT": pack(Unit.VECTOR, "QUANT", zero_in=r.zero_in, zero_out=r.zero_out, lo=r.lo, hi=r.hi),
                "MODE": mode_of(r.rounding),
                "B_MULT": below[0],
                "OUT_MULT": int(r.mult[0]),
                "SHIFTS": pack(Unit.VECTOR, "SHIFTS", a=0, b=below[1], out=shift),
                **bias,
            },
        )
    params = node.params
    operands = {"A_MULT": params.mult_a, "B_MULT": params.mult_b}
    registers = {
        "QUANT": pack(Unit.VECTOR, "QUANT", zero_in=params.za, zero_out=params.zy, lo=params.lo, hi=params.hi),
        "B_ZERO": pack(Unit.VECTOR, "B_ZERO", zero_b=params.zb),
        "MODE": mode_of(params.rounding, subtract=params.operation == VectorOperation.SUBTRACT),
        **(operands if node.instruction != Op.E_MUL else {}),
        "OUT_MULT": params.mult_out,
        "SHIFTS": pack(Unit.VECTOR, "SHIFTS", a=params.shift_a, b=params.shift_b, out=params.shift_out),
        **bias,
    }
    return Operation(node.instruction, registers)


def mode_of(rounding: Rounding, average: bool = False, requantise: bool = False, subtract: bool = False) -> int:
    """The register MODE of the vector unit."""
    return pack(
        Unit.VECTOR,
        "MODE",
        rounding=int(rounding),
        average=int(average),
        requantise=int(requantise),
        subtract=int(subtract),
    )


@dataclass(frozen=True)
class Walk:
    """How an instruction goes through a region of SRAM: address and bytes of the region, bytes between rows and between
    pixels; 0 where it stays on one row, or pixel."""

    at: int
    bytes: int
    row: int
    pixel: int


def instruction(
    config: Config,
    operation: Operation,
    tile: tuple[int, int, int],
    operands: Sequence[Walk],
    result: Walk,
    table: Range | None = None,
) -> Compute:
    """An element-wise instruction on a ``tile`` of rows, pixels in each and channels of each; ``table``: its region."""
    rows, width, channels = tile
    first, *others = operands
    blocks = ceil_div(channels, config.vector_lanes)
    registers = {
        **operation.registers,
        "GEOMETRY": POINTWISE,
        "TILE": pack(Unit.VECTOR, "TILE", height=rows, width=width),
        "IN_ADDR": first.at,
        "IN_BYTES": first.bytes,
        "ORIGIN": 0,
        "Y_STEP": first.row,
        "X_STEP": first.pixel,
        "IN_ROWS": rows,
        "ROW_BYTES": (width - 1) * first.pixel + channels * INSTRUCTIONS[operation.op].input_bytes,
        "PAD_TOP": 0,
        "PAD_LEFT": 0,
        "OUT_ADDR": result.at,
        "OUT_BYTES": result.bytes,
        "OUT_Y_STEP": result.row,
        "OUT_X_STEP": result.pixel,
        "BLOCKS": pack(Unit.VECTOR, "BLOCKS", count=blocks, last=channels - (blocks - 1) * config.vector_lanes),
    }
    reads = [(operand.at, operand.bytes) for operand in operands]
    if others:
        registers |= {"B_Y_STEP": others[0].row, "B_X_STEP": others[0].pixel}
    if table:
        reads.append(table)
    if len(reads) > 1:
        registers |= {"B_ADDR": reads[1][0], "B_BYTES": reads[1][1]}
    return Compute(Form(Unit.VECTOR, operation.op, registers), (), tuple(reads), (result.at, result.bytes))


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
    rows: int = 0,
) -> Iterator[Task]:
    """Tasks of an element-wise operation on tensors of one shape, cut along the flat tensors, into pieces of ``rows``
    pixels if given.

    ``shape``: pixels, channels; ``table``: system memory address of the operation's table. What is not resident has
    doubled buffers, operands behind the table.
    """
    pixels, channels = shape
    elements, row = pixels * channels, INSTRUCTIONS[operation.op]
    before, after = row.input_bytes, row.output_bytes
    pixel, result = channels * before, channels * after
    streamed = [place for place in sources if place.sram is None]
    base = round_up(operation.table, config.word_bytes)
    room = Room(config, arena, space.free, operands=bool(streamed or base), results=target.sram is None)
    limits = [MAX_BLOCKS * config.vector_lanes]
    if streamed:
        limits.append((room.operands - base) // (2 * len(streamed) * before))
    if target.sram is None:
        limits.append(room.results // (2 * after))
    size = min(limits) // config.word_bytes * config.word_bytes
    least = rows * channels or max(MIN_TILE // max(before, after), ceil_div(elements, 4))
    size = min(size, round_up(least, config.word_bytes))
    if target.pitch != result or any(place.pitch != pixel for place in sources):
        size = min(size // channels, MAX_BLOCKS) * channels
    streams = 2 * len(streamed) * size * before
    start, results = room.place(base + streams, 0 if target.sram is not None else 2 * size * after)
    registers = {
        "GEOMETRY": POINTWISE,
        "IN_ROWS": 1,
        "ORIGIN": 0,
        "PAD_TOP": 0,
        "PAD_LEFT": 0,
        **operation.registers,
    }
    # In SRAM, buffers have no gaps.
    steps = [pixel if place.sram is None else place.pitch for place in sources]
    step = result if target.sram is None else target.pitch
    registers |= {"X_STEP": steps[0], "B_X_STEP": steps[-1]}
    flat = {*steps} == {pixel} and step == result
    for number, first in enumerate(range(0, elements, size)):
        count = min(size, elements - first)
        task = Task(index)
        if operation.table and number == 0:
            task.loads.append(Transfer(table, start, operation.table))
        buffer = start + base + number % 2 * len(streamed) * size * before
        runs, length = (1, count) if flat else (count // channels, channels)
        regions = []
        for place, gap in zip(sources, steps, strict=True):
            at = buffer
            if place.sram is None:
                task.loads.append(_load_flat(place, buffer, first * before, count * before, pixel))
                buffer += size * before
            else:
                at = place.sram + first // channels * place.pitch + first % channels * before
            regions.append((at, (runs - 1) * gap + length * before))
        if operation.table:
            regions.append((start, operation.table))
        out = results + number % 2 * size * after
        if target.sram is not None:
            out = target.sram + first // channels * target.pitch + first % channels * after
        written = (out, (runs - 1) * step + length * after)
        blocks = ceil_div(length, config.vector_lanes)
        tile = registers | {
            "TILE": pack(Unit.VECTOR, "TILE", height=1, width=runs),
            "IN_ADDR": regions[0][0],
            "IN_BYTES": regions[0][1],
            "ROW_BYTES": regions[0][1],
            "OUT_ADDR": out,
            "OUT_BYTES": written[1],
            "OUT_X_STEP": step,
            "BLOCKS": pack(Unit.VECTOR, "BLOCKS", count=blocks, last=length - (blocks - 1) * config.vector_lanes),
        }
        if len(regions) > 1:
            tile |= {"B_ADDR": regions[1][0], "B_BYTES": regions[1][1]}
        task.computes = [Compute(Form(Unit.VECTOR, operation.op, tile), (), tuple(regions), written)]
        if target.memory is not None:
            task.stores = [_store_flat(target, out, first * after, count * after, result, step)]
        yield task


def _load_flat(source: Place, sram: int, first: int, count: int, pixel: int) -> Transfer:
    """The transfer of ``count`` bytes from the flat position ``first`` on, whole pixels of ``pixel`` bytes if there are
    gaps."""
    assert source.memory is not None
    if source.pitch == pixel:
        return Transfer(source.memory + first, sram, count)
    start = source.memory + first // pixel * source.pitch
    return Transfer(start, sram, pixel, rows=count // pixel, memory_row=source.pitch, sram_row=pixel)


def _store_flat(target: Place, sram: int, first: int, count: int, pixel: int, pitch: int) -> Transfer:
    """The transfer of ``count`` bytes to the flat position ``first`` on, whole pixels of ``pixel`` bytes if there are
    gaps; in SRAM pixels are ``pitch`` bytes apart."""
    assert target.memory is not None
    if target.pitch == pixel:
        return Transfer(target.memory + first, sram, count)
    start = target.memory + first // pixel * target.pitch
    return Transfer(start, sram, pixel, rows=count // pixel, memory_row=target.pitch, sram_row=pitch)


def broadcast_tasks(
    config: Config,
    index: int,
    operation: Operation,
    shapes: Sequence[tuple[int, int, int, int]],
    sources: Sequence[Place],
    target: Place,
    space: Space,
    arena: Arena,
    bands: int = 1,
) -> Iterator[Task]:
    """Tasks of an operation on two tensors, one of which has one row or column only, cut in rows, into ``bands`` at
    least, and channels.

    ``shapes``: NHWC of the operands.
    """
    height, width, channels = (max(shape[axis] for shape in shapes) for axis in (1, 2, 3))
    word = config.word_bytes
    streamed = any(place.sram is None for place in sources)
    room = Room(config, arena, space.free, operands=streamed, results=target.sram is None)

    def operand_bytes(place: Place, shape: tuple[int, int, int, int], rows: int, part: int) -> int:
        return 0 if place.sram is not None else round_up(min(shape[1], rows) * shape[2] * part, word)

    def bytes_of(rows: int, part: int) -> tuple[int, int]:
        operands = sum(operand_bytes(place, shape, rows, part) for place, shape in zip(sources, shapes, strict=True))
        return operands, 0 if target.sram is not None else round_up(rows * width * part, word)

    smallest = f"a row of {width} pixels of one channel of each operand"
    kept: dict[tuple[int, int], int] = {}  # where rows are that all tiles have, by operand and first channel
    for tile in tiles(room, bytes_of, height, channels, smallest, bands):
        places = [tile.operands, tile.operands + operand_bytes(sources[0], shapes[0], *tile.uncut)]
        task = Task(index)
        operands = []
        for number, (shape, source, at) in enumerate(zip(shapes, sources, places, strict=True)):
            whole = shape[1] == height
            slab = Slab(tile.first if whole else 0, tile.rows if whole else 1, shape[2], tile.channel, tile.channels)
            key = number, tile.channel
            view = operand_of(Task(index) if key in kept else task, slab, source, kept.get(key, at))
            if not whole:
                kept[key] = view.at
            row, pixel = view.pitch * shape[2] if whole else 0, view.pitch if shape[2] == width else 0
            operands.append(Walk(view.at, view.bytes, row, pixel))
        slab = Slab(tile.first, tile.rows, width, tile.channel, tile.channels)
        out = result_of(slab, target, tile.results)
        result = Walk(out.at, out.bytes, width * out.pitch, out.pitch)
        task.computes = [instruction(config, operation, (tile.rows, width, tile.channels), operands, result)]
        store(task, slab, out, target)
        yield task
