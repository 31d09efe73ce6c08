"""Code for the vector unit's layers: addition and pooling."""

from collections.abc import Iterator

from dovetail.isa import numerics
from dovetail.isa.config import Config, ceil_div, format_bytes
from dovetail.isa.instructions import Op, Unit, pack
from dovetail.sw import graph as ir
from dovetail.sw.compiler.emit import Compute, Task, Transfer
from dovetail.sw.errors import CompileError

MAX_BLOCKS = 65535
MIN_TILE = 4096
"""Bytes below which an addition is not cut further to overlap its transfers."""


def _round_up(size: int, to: int) -> int:
    return ceil_div(size, to) * to


def add_tasks(
    config: Config,
    index: int,
    params: numerics.AddParams,
    elements: int,
    sources: tuple[int, int],
    target: int,
) -> Iterator[Task]:
    """Tasks of an element-wise addition, cut along the flat tensor.

    Banks: operands first, results in banks of their own, both doubled.
    """
    half = config.n_banks // 2 * config.bank_bytes
    largest = min(half // 4 // config.word_bytes * config.word_bytes, MAX_BLOCKS * config.vec)
    size = min(largest, max(MIN_TILE, _round_up(ceil_div(elements, 4), config.word_bytes)))
    registers = {
        "GEOMETRY": pack(Unit.VECTOR, "GEOMETRY", kh=1, kw=1, stride_y=1, dilation_y=1),
        "TILE": pack(Unit.VECTOR, "TILE", height=1, width=1),
        "IN_ROWS": 1,
        "ORIGIN": 0,
        "PAD_TOP": 0,
        "PAD_LEFT": 0,
        "QUANT": pack(Unit.VECTOR, "QUANT", zero_in=params.za, zero_out=params.zy, lo=params.lo, hi=params.hi),
        "MODE": pack(Unit.VECTOR, "MODE", rounding=int(params.rounding), average=0, requantise=0, subtract=0),
        "B_ZERO": pack(Unit.VECTOR, "B_ZERO", zero_b=params.zb),
        "A_MULT": params.mult_a,
        "B_MULT": params.mult_b,
        "OUT_MULT": params.mult_out,
        "SHIFTS": pack(Unit.VECTOR, "SHIFTS", a=params.shift_a, b=params.shift_b, out=params.shift_out),
    }
    for number, first in enumerate(range(0, elements, size)):
        count = min(size, elements - first)
        turn = number % 2
        a, b, out = 2 * turn * size, (2 * turn + 1) * size, half + turn * size
        blocks = ceil_div(count, config.vec)
        tile = registers | {
            "IN_ADDR": a,
            "IN_BYTES": count,
            "ROW_BYTES": count,
            "B_ADDR": b,
            "B_BYTES": count,
            "OUT_ADDR": out,
            "OUT_BYTES": count,
            "BLOCKS": pack(Unit.VECTOR, "BLOCKS", count=blocks, last=count - (blocks - 1) * config.vec),
        }
        task = Task(index)
        task.loads = [Transfer(sources[0] + first, a, count), Transfer(sources[1] + first, b, count)]
        task.computes = [Compute(Unit.VECTOR, Op.E_ADD, tile, ((a, count), (b, count)), (out, count))]
        task.stores = [Transfer(target + first, out, count)]
        yield task


def pool_tasks(
    config: Config,
    index: int,
    graph: ir.Graph,
    node: ir.AvgPool | ir.MaxPool | ir.Mean,
    source: int,
    target: int,
) -> Iterator[Task]:
    """Tasks of a pooling layer, cut in output rows, and in channels where a row is too large."""
    _, height, width, channels = graph.tensors[node.inputs[0]].nhwc
    _, out_height, out_width, _ = graph.tensors[node.outputs[0]].nhwc
    kernel, stride, pads = _window(node, height, width)
    half = config.n_banks // 2 * config.bank_bytes
    limit_in = half
    limit_out = config.sram_bytes - half
    part, rows = channels, out_height
    word = config.word_bytes

    def fits(rows: int, part: int) -> bool:
        span = min((rows - 1) * stride[0] + kernel[0], height)
        copies = 1 if rows == out_height and part == channels else 2
        return (
            copies * _round_up(span * width * part, word) <= limit_in
            and copies * _round_up(rows * out_width * part, word) <= limit_out
        )

    while not fits(rows, part) and rows > 1:
        rows = ceil_div(rows, 2)
    while not fits(rows, part) and part > 1:
        part = ceil_div(part, 2)
    if not fits(rows, part):
        raise CompileError(
            f"one output row of one channel needs {kernel[0] * width} bytes, twice, in half of"
            f" {format_bytes(config.sram_bytes)}: give more SRAM or let the layer run on the host"
        )
    common = _pool_registers(graph, node, kernel, stride)
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
            low, high = max(top, 0), min(top + (tile - 1) * stride[0] + kernel[0], height)
            a, out = turn * size_in, half + turn * size_out
            in_bytes, out_bytes = (high - low) * pitch, tile * out_width * count
            blocks = ceil_div(count, config.vec)
            registers = common | {
                "IN_ADDR": a,
                "IN_BYTES": in_bytes,
                "ORIGIN": -((low - top) * pitch + pads[1] * count),
                "Y_STEP": stride[0] * pitch,
                "X_STEP": stride[1] * count,
                "KY_STEP": pitch,
                "KX_STEP": count,
                "IN_ROWS": high - low,
                "ROW_BYTES": pitch,
                "PAD_TOP": low - top,
                "PAD_LEFT": pads[1] * count,
                "TILE": pack(Unit.VECTOR, "TILE", height=tile, width=out_width),
                "OUT_ADDR": out,
                "OUT_BYTES": out_bytes,
                "OUT_Y_STEP": out_width * count,
                "OUT_X_STEP": count,
                "BLOCKS": pack(Unit.VECTOR, "BLOCKS", count=blocks, last=count - (blocks - 1) * config.vec),
            }
            task = Task(index)
            task.loads = [_slab(source, a, low, high - low, width, channels, channel, count)]
            task.computes = [Compute(Unit.VECTOR, Op.POOL, registers, ((a, in_bytes),), (out, out_bytes))]
            task.stores = [_slab(target, out, first, tile, out_width, channels, channel, count)]
            yield task


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


def _window(node: ir.AvgPool | ir.MaxPool | ir.Mean, height: int, width: int) -> tuple[ir.Pair, ir.Pair, ir.Pads]:
    if isinstance(node, ir.Mean):
        return (height, width), (1, 1), (0, 0, 0, 0)
    return node.kernel, node.stride, node.pads


def _pool_registers(
    graph: ir.Graph, node: ir.AvgPool | ir.MaxPool | ir.Mean, kernel: ir.Pair, stride: ir.Pair
) -> dict[str, int]:
    """Registers that do not depend on the tile."""
    zero_in, zero_out, lo, hi = 0, 0, -128, 127
    taps = kernel[0] * kernel[1]
    values: dict[str, int] = {}
    rounding = numerics.Rounding.TFLITE
    if isinstance(node, ir.MaxPool):
        zero_in, lo, hi = -128, node.lo, node.hi
    elif isinstance(node, ir.AvgPool):
        rounding, zero_out, lo, hi = node.rounding, node.zero_point, node.lo, node.hi
        mult, shift = numerics.average_magic(taps, 255 * taps if node.zero_point else None)
        values = {
            "SUM_BIAS": -node.zero_point * taps,
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
    return values | {
        "GEOMETRY": pack(Unit.VECTOR, "GEOMETRY", kh=kernel[0], kw=kernel[1], stride_y=stride[0], dilation_y=1),
        "QUANT": pack(Unit.VECTOR, "QUANT", zero_in=zero_in, zero_out=zero_out, lo=lo, hi=hi),
        "MODE": pack(
            Unit.VECTOR,
            "MODE",
            rounding=int(rounding),
            average=int(not isinstance(node, ir.MaxPool)),
            requantise=int(isinstance(node, ir.Mean)),
            subtract=0,
        ),
    }
