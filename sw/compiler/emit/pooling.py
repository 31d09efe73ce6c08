"""Code for pooling layers, and for padding and im2col, which walk their input like these."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import product
from math import prod
from typing import TypeGuard

from dovetail.isa.common.sizes import ceil_div, round_up
from dovetail.isa.config.resolved import Config
from dovetail.isa.instructions.table import Op, Unit, pack
from dovetail.isa.numerics.average import average_magic
from dovetail.isa.numerics.rounding import Rounding
from dovetail.sw.compiler.emit.arena import Arena, Room, check_padding, tiles
from dovetail.sw.compiler.emit.elementwise import mode_of
from dovetail.sw.compiler.emit.operations import Compute, Form, Task
from dovetail.sw.compiler.emit.slab import Slab, operand_of, result_of, store
from dovetail.sw.compiler.place import Place
from dovetail.sw.compiler.plan.schedule import Space
from dovetail.sw.network import ir
from dovetail.sw.network.layout import Shape

Window = ir.AvgPool | ir.MaxPool | ir.Mean | ir.Pad | ir.Im2col
LOADED_ROWS = 4
"""Rows of a band at least if its input is loaded, as bands have some of that in common."""
Global = ir.AvgPool | ir.MaxPool | ir.Mean


def pool_tasks(
    config: Config,
    index: int,
    graph: ir.Graph,
    node: Window,
    source: Place,
    target: Place,
    space: Space,
    arena: Arena,
    bands: int = 1,
) -> Iterator[Task]:
    """Tasks of a pooling layer, cut in output rows, into ``bands`` at least, and in channels where a row is too large;
    of padding likewise, and of im2col, the channels of which stay together."""
    _, height, width, channels = graph.tensors[node.inputs[0]].nhwc
    _, out_height, out_width, out_channels = graph.tensors[node.outputs[0]].nhwc
    seen, made = (channels, out_channels) if isinstance(node, ir.Im2col) else (1, 1)
    kernel, stride, pads = _window(node, height, width)
    room = Room(config, arena, space.free, operands=source.sram is None, results=target.sram is None)
    word = config.word_bytes
    if source.sram is None:
        bands = min(bands, ceil_div(out_height, LOADED_ROWS))

    def bytes_of(rows: int, part: int) -> tuple[int, int]:
        span = min((rows - 1) * stride[0] + kernel[0], height)
        return (
            0 if source.sram is not None else round_up(span * width * part * seen, word),
            0 if target.sram is not None else round_up(rows * out_width * part * made, word),
        )

    smallest = f"what one output row of one channel needs, {kernel[0]} x {width} bytes"
    op = Op.MOV if isinstance(node, ir.Pad | ir.Im2col) else Op.POOL
    uneven = isinstance(node, ir.AvgPool) and node.counted is None
    columns = _runs(range(out_width), width, kernel[1], stride[1], pads[1], uneven)
    for tile in tiles(room, bytes_of, out_height, channels // seen, smallest, bands):
        first, rows, channel, count = tile.first, tile.rows, tile.channel * seen, tile.channels * seen
        top = first * stride[0] - pads[0]
        # A tile that lies in the padding alone still has a row of input, which it does not see.
        low = min(max(top, 0), height - 1)
        high = max(min(top + (rows - 1) * stride[0] + kernel[0], height), low + 1)
        task = Task(index)
        view = operand_of(task, Slab(low, high - low, width, channel, count), source, tile.operands)
        slab = Slab(first, rows, out_width, channel, tile.channels * made)
        out = result_of(slab, target, tile.results)
        check_padding(config, pads, view.pitch)
        pitch = width * view.pitch
        lines = _runs(range(first, first + rows), height, kernel[0], stride[0], pads[0], uneven)
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
                "BLOCKS": _blocks(config, count),
            }
            for part in _parts(config, node, registers, channels, view.pitch):
                task.computes.append(_compute(op, registers | part))
        store(task, slab, out, target)
        yield task


def _parts(
    config: Config, node: Window, registers: Mapping[str, int], channels: int, pitch: int
) -> Iterator[dict[str, int]]:
    """What differs from ``registers``, instruction by instruction: im2col has one for each row of the kernel, or for
    each tap where between the image's pixels, ``pitch`` bytes apart, there is more than their ``channels``."""
    if not isinstance(node, ir.Im2col):
        yield {}
        return
    taps = node.kernel[1] if pitch > channels else 1
    size = node.kernel[1] * channels // taps
    for row, column in product(range(node.kernel[0]), range(taps)):
        down, skip = row * node.dilation[0], (row * taps + column) * size
        yield {
            "ORIGIN": registers["ORIGIN"] + down * registers["KY_STEP"] + column * pitch,
            "PAD_TOP": registers["PAD_TOP"] - down,
            "PAD_LEFT": registers["PAD_LEFT"] - column * pitch,
            "OUT_ADDR": registers["OUT_ADDR"] + skip,
            "OUT_BYTES": registers["OUT_BYTES"] - skip,
            "BLOCKS": _blocks(config, size),
        }


@dataclass
class Pooled:
    """The tasks of a node that pools over all of the plane, on the tiles of the convolution before it.

    Each of these has some channels of the plane. ``index``: the layer's number; ``shape``: height and width of the
    plane; ``results``: address and bytes of SRAM for results where these are not resident.
    """

    config: Config
    index: int
    node: Global
    shape: ir.Pair
    target: Place
    results: tuple[int, int]
    _pieces: int = 0

    def tasks(self, _: object, col: tuple[int, int], at: int, pixel: int) -> Iterator[Task]:
        """The task behind a tile: (first, number of) channels, address, bytes between its pixels."""
        (height, width), (channel, count) = self.shape, col
        view = Slab(0, height, width, channel, count).seen(at, pixel)
        slab, task = Slab(0, 1, 1, channel, count), Task(self.index)
        out = result_of(slab, self.target, self.results[0] + self._pieces % 2 * (self.results[1] // 2))
        self._pieces += 1
        registers = _pool_registers(self.node, self.shape, (1, 1), height * width) | {
            "IN_ADDR": at,
            "IN_BYTES": view.bytes,
            "KY_STEP": width * pixel,
            "KX_STEP": pixel,
            "IN_ROWS": height,
            "ROW_BYTES": width * pixel - (pixel - count),
            "TILE": pack(Unit.VECTOR, "TILE", height=1, width=1),
            "OUT_ADDR": out.at,
            "OUT_BYTES": out.bytes,
            "BLOCKS": _blocks(self.config, count),
        }
        zeros = dict.fromkeys(("ORIGIN", "Y_STEP", "X_STEP", "PAD_TOP", "PAD_LEFT", "OUT_Y_STEP", "OUT_X_STEP"), 0)
        task.computes.append(_compute(Op.POOL, registers | zeros))
        store(task, slab, out, self.target)
        yield task


def im2col_cycles(config: Config, node: ir.Im2col, shape: Shape) -> int:
    """About the cycles of the copies that make a tensor: one for so many bytes of a window's row as there are vector
    lanes."""
    pixels, rows = prod(shape[:-1]), node.kernel[0]
    return pixels * rows * ceil_div(shape[-1] // rows, config.vector_lanes)


def is_global(graph: ir.Graph, node: ir.Node) -> TypeGuard[Global]:
    """Whether a node makes one pixel of all pixels."""
    if not isinstance(node, Global):
        return False
    _, height, width, _ = graph.tensors[node.inputs[0]].nhwc
    kernel, _, pads = _window(node, height, width)
    return kernel == (height, width) and not any(pads)


def _blocks(config: Config, channels: int) -> int:
    count = ceil_div(channels, config.vector_lanes)
    return pack(Unit.VECTOR, "BLOCKS", count=count, last=channels - (count - 1) * config.vector_lanes)


def _compute(op: Op, registers: Mapping[str, int]) -> Compute:
    read, written = ((registers[f"{name}_ADDR"], registers[f"{name}_BYTES"]) for name in ("IN", "OUT"))
    return Compute(Form(Unit.VECTOR, op, registers), (), (read,), written)


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
    if isinstance(node, ir.Im2col):
        return ((node.kernel[0] - 1) * node.dilation[0] + 1, node.kernel[1]), node.stride, node.pads
    return node.kernel, node.stride, node.pads


def _pool_registers(node: Window, kernel: ir.Pair, stride: ir.Pair, taps: int) -> dict[str, int]:
    """Registers that do not depend on the tile; ``taps`` count in an average."""
    zero_in, zero_out, lo, hi = 0, 0, -128, 127
    values: dict[str, int] = {}
    rounding = Rounding.TFLITE
    if isinstance(node, ir.Pad | ir.Im2col):
        zero_in, kernel = node.value, (1, 1)
    elif isinstance(node, ir.MaxPool):
        zero_in, lo, hi = -128, node.lo, node.hi
    elif isinstance(node, ir.AvgPool):
        rounding, lo, hi = node.rounding, node.lo, node.hi
        zero_in, zero_out = node.counted or 0, node.origin
        mult, shift = average_magic(taps)
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
        "MODE": mode_of(rounding, average=average, requantise=isinstance(node, ir.Mean)),
    }
