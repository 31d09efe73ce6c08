"""Events of one operation, from its registers (docs/architecture.md says what they make the hardware do)."""

from __future__ import annotations

from collections.abc import Callable
from operator import itemgetter

import numpy as np

from dovetail.isa.common.sizes import INT32_BYTES, ceil_div, round_up
from dovetail.isa.config.resolved import RECORD_BYTES, Config
from dovetail.isa.instructions.checks import (
    INDEX,
    View,
    array_lanes,
    columns_at_once,
    columns_of,
    input_blocks,
    kernel_columns,
    lanes_of,
    lines_of,
    multiplier_of,
    pairs_of,
    result_pairs_of,
    sets_of,
    weight_rows,
    weight_sets,
)
from dovetail.isa.instructions.table import INSTRUCTIONS, REGISTERS, Op, Unit, unit_of
from dovetail.isa.timing.array import matrix_reads
from dovetail.isa.timing.depthwise import WORDS_OF_COLUMNS
from dovetail.isa.timing.dma import BOUNDARY, Shape
from dovetail.isa.timing.vector import (
    RECORDS_LATE,
    drain_steps,
    groups_of,
    record_reads,
    rows_at_once,
    table_lanes,
    table_reads,
    turn_of,
    vector_passes,
    vector_reads,
    vector_steps,
)
from dovetail.sw.analysis.cost.accesses import Image, Lanes, Offsets, bus_use

Counts = dict[str, int]
Registers = tuple[int, ...]

_IDLE = {
    Unit.ARRAY: {"IN_ADDR", "W_ADDR", "OUT_ADDR", "B_ADDR", "B_BYTES", "B_STEP", "QUANT"},
    Unit.VECTOR: {"IN_ADDR", "OUT_ADDR", "B_ADDR", "QUANT", "MODE", "B_ZERO", "A_MULT", "B_MULT", "OUT_MULT", "SHIFTS"}
    | {"SUM_BIAS", "POOL_COUNT", "POOL_MAGIC", "POOL_SHIFT"},
}
"""Registers that change nothing that is counted."""


_TRANSFER = ("MEM_ADDR", "MEM_ROW_STEP", "MEM_PLANE_STEP", "SRAM_ROW_STEP", "SRAM_PLANE_STEP", "SRAM_BYTES", "LENGTH",
             "COUNT")  # fmt: skip
_of_transfer = itemgetter(*(INDEX[Unit.LOAD][name] for name in _TRANSFER))


def _transfer_key(registers: Registers) -> Registers:
    """Of the address in system memory only the place within 4 KiB matters, and of that in SRAM nothing."""
    address, *others = _of_transfer(registers)
    return address % BOUNDARY, *others


KEYS: dict[Unit, Callable[[Registers], Registers]] = {
    unit: itemgetter(*(INDEX[unit][name] for name in REGISTERS[unit] if name not in idle))
    for unit, idle in _IDLE.items()
} | {Unit.LOAD: _transfer_key, Unit.STORE: _transfer_key}
"""Of a unit's registers, those that decide the counts of an operation."""


def counts_of(config: Config, op: Op, registers: Registers) -> Counts:
    """The events of an operation that passes its checks; names as in `dovetail.sw.analysis.cost.activity.EVENTS`."""
    unit = unit_of(op)
    view = View(unit, registers)
    if unit == Unit.ARRAY:
        return _array(config, op, view)
    if unit == Unit.VECTOR:
        return _vector(config, op, view)
    return _transfer(config, unit, view)


def _window_reads(offsets: Offsets, view: View, lines: int, kh: int, column: np.ndarray, lanes: Lanes) -> int:
    """Reads of the window walk over so many lines, at these offsets of each row."""
    names = ("IN_ROWS", "ROW_BYTES", "PAD_TOP", "PAD_LEFT")
    image = Image(*(view[name] % offsets.modulus for name in names))
    geometry = view["GEOMETRY", "stride_y"], view["GEOMETRY", "dilation_y"]
    # Per line and kernel row, the number of the input row and its offset.
    number = offsets.grid((lines, geometry[0]), (kh, geometry[1]))
    row = offsets.grid((lines, view["Y_STEP"]), (kh, view["KY_STEP"]))
    return offsets.reads((number, row), column, view["ORIGIN"], image, lanes)


def _depthwise(config: Config, op: Op, view: View) -> Counts:
    offsets = Offsets(config.offset_bits)
    together, sets, slide = columns_at_once(config, op, view), sets_of(op, view), view["MODE", "slide"]
    seen = WORDS_OF_COLUMNS if columns_of(config, op, view) > 1 else together  # words of a pixel
    channels = lanes_of(config, op, view)
    lines, width, blocks = lines_of(op, view), view["TILE", "width"], view["BLOCKS", "count"]
    kh, kx = view["GEOMETRY", "kh"], view["KX_STEP"]
    steps = kernel_columns(config, op, view) // together
    lengths = [min(view["STRIPE", "pixels"], width - x) for x in range(0, width, view["STRIPE", "pixels"])]

    # Words of a row, one read each.
    if slide:
        starts = range(0, width, view["STRIPE", "pixels"])
        spans = [range(x * slide, (x + n - 1) * slide + seen) for x, n in zip(starts, lengths, strict=True)]
        words = np.concatenate([np.arange(span.start, span.stop, dtype=np.int64) for span in spans]) * kx
    else:
        words = offsets.grid((width, view["X_STEP"]), (together, kx))
    across = offsets.grid((steps, together * kx), (blocks, channels // multiplier_of(op, view)))
    column = (words[:, None] + across).ravel() % offsets.modulus
    inputs = _window_reads(offsets, view, lines, kh, column, Lanes(config.input_bytes, 1, view["IN_BYTES"]))

    visits = blocks * view.pixels * config.depthwise_visits(sets) * kh * steps
    old_words = ceil_div(INT32_BYTES * config.oc_lanes, config.word_bytes) if view["MODE", "accumulate"] else 0
    accumulates = (visits + old_words * sets * blocks * view.pixels) * config.acc_lanes
    span = config.depthwise_span(int32=bool(view["MODE", "int32"]))
    writes_, written = _results(config, view, channels, span)
    return {
        "multiplies": visits * config.macs_per_cycle,
        "accumulates": accumulates,
        "accumulator_visits": accumulates,
        "requantises": view.pixels * writes_ * config.requant_lanes,
        "sram_read_input": inputs + _old_reads(config, view, channels, old_words, sets),
        "sram_read_weights": _stream_reads(config, op, view, lines * len(lengths)),
        "sram_write_array": written,
    }


def _array(config: Config, op: Op, view: View) -> Counts:
    if INSTRUCTIONS[op].depthwise:
        return _depthwise(config, op, view)
    offsets = Offsets(config.offset_bits)
    channels = config.oc_lanes
    height, width, blocks = view["TILE", "height"], view["TILE", "width"], view["BLOCKS", "count"]
    kh, kw, kc = view["GEOMETRY", "kh"], view["GEOMETRY", "kw"], view["KC", "blocks"]
    pixels, steps = height * width, kh * kw * kc
    stripes, rest = divmod(pixels, view["STRIPE", "pixels"])
    # Pixels that pass together, how often that is, and how many input blocks' weights they meet.
    together = config.pixel_lanes
    whole, short = ceil_div(view["STRIPE", "pixels"], together), ceil_div(rest, together)
    passes = stripes * whole + short
    held = sets_of(op, view)
    # All of a stripe that passes at once stays beside the accumulators from step to step.
    visits_of = kh * kw * ceil_div(kc, held)
    visits = stripes * whole * (visits_of if whole > 1 else 1) + short * (visits_of if short > 1 else 1)

    # A block of output channels walks over the same window as the one before.
    across = ceil_div(kc, held), held * config.ic_lanes
    shared = 1 + pairs_of(config, op, view)  # pixels of a read
    column = offsets.grid((width // shared, shared * view["X_STEP"]), (kw, view["KX_STEP"]), across)
    window = Lanes(config.input_bytes, 1, view["IN_BYTES"])
    inputs = _window_reads(offsets, view, height, kh, column, window) * blocks

    old_words = ceil_div(INT32_BYTES * channels, config.word_bytes) if view["MODE", "accumulate"] else 0
    leaving = 1 + result_pairs_of(config, op, view)  # pixels whose results leave together
    groups, written = _results(config, view, channels, channels, leaving)
    return {
        "multiplies": steps * passes * blocks * config.macs_per_cycle,
        "accumulates": (steps + old_words * together) * passes * blocks * config.acc_lanes,
        "accumulator_visits": (visits + old_words * passes) * blocks * config.acc_lanes,
        "requantises": pixels // leaving * groups * config.requant_lanes,
        "sram_read_input": inputs + _old_reads(config, view, channels, old_words),
        "sram_read_weights": _stream_reads(config, op, view, stripes + (rest > 0)),
        "sram_write_array": written,
    }


def _old_reads(config: Config, view: View, channels: int, words: int, sets: int = 1) -> int:
    """Reads of old int32 values that are added to, ``words`` per pixel, block and set."""
    offsets = Offsets(config.offset_bits)
    place = offsets.grid(
        (view["TILE", "height"], view["OUT_Y_STEP"]),
        (view["TILE", "width"], view["OUT_X_STEP"]),
        (view["BLOCKS", "count"], INT32_BYTES * channels),
        (sets, INT32_BYTES * config.oc_lanes),
        (words, config.word_bytes),
    )
    whole = max(view["OUT_BYTES"] - (INT32_BYTES - 1), 0)
    return offsets.reads_inside(place, Lanes(config.word_bytes // INT32_BYTES, INT32_BYTES, whole))


def _results(config: Config, view: View, channels: int, span: int, leaving: int = 1) -> tuple[int, int]:
    """Groups of `requant_lanes` channels in which the results of ``leaving`` pixels, one or two, leave, the last of a
    block and of every ``span`` channels shorter; all writes."""
    offsets = Offsets(config.offset_bits)
    height, width, blocks = view["TILE", "height"], view["TILE", "width"], view["BLOCKS", "count"]
    item = INT32_BYTES if view["MODE", "int32"] else 1
    spans = range(0, channels, span)
    group = np.concatenate([np.arange(n, min(n + span, channels), config.requant_lanes, dtype=np.int64) for n in spans])
    first = (np.arange(blocks, dtype=np.int64)[:, None] * channels + group).ravel()
    in_block = np.full(blocks, channels)
    in_block[-1] = view["BLOCKS", "last"]
    left = (in_block[:, None] - group).ravel()
    width_of = np.tile(np.minimum(config.requant_lanes, span - group % span), blocks)
    first, size = first[left > 0], np.minimum(left, width_of)[left > 0]
    step, width = view["OUT_X_STEP"], width // leaving
    column = (offsets.grid((width, leaving * step))[:, None] + first * item).ravel()
    row = offsets.grid((height, view["OUT_Y_STEP"]))
    written = offsets.writes(row, column, np.tile(size * item, width), view["OUT_BYTES"], step * (leaving - 1))
    return len(first), written


def _stream_reads(config: Config, op: Op, view: View, stripes: int) -> int:
    """Reads of records, once per block, and of weights, once per stripe; of those that are in the stream,
    and of the matrix in any case."""
    lanes, sets = array_lanes(config, op, view), weight_sets(config, op, view)
    rows = weight_rows(config, op, view)
    blocks, words = view["BLOCKS", "count"], view["W_BYTES"] // config.word_bytes
    params = config.param_rows(lanes)
    left = words - np.arange(blocks, dtype=np.int64) * (params + sets * rows)
    reads = config.records_at_once
    records = np.clip(left * (config.word_bytes // RECORD_BYTES // reads), 0, lanes // reads).sum()
    weights = np.clip(left - params, 0, sets * rows).sum() * stripes
    if INSTRUCTIONS[op].matrix:
        steps = view.taps * input_blocks(op, view)
        weights += matrix_reads(config, transposed=bool(view["B_FORM", "transposed"])) * steps * stripes * blocks
    return int(records + weights)


def _vector(config: Config, op: Op, view: View) -> Counts:
    offsets = Offsets(config.offset_bits)
    row, lanes = INSTRUCTIONS[op], config.vector_lanes
    item, result = row.input_bytes, row.output_bytes
    height, width, blocks = view["TILE", "height"], view["TILE", "width"], view["BLOCKS", "count"]
    kh, kw = (view["GEOMETRY", "kh"], view["GEOMETRY", "kw"]) if row.taps else (1, 1)
    steps = groups_of(config, op, view) * vector_steps(config, op, vector_reads(op, view)) * blocks
    if row.records:
        steps += groups_of(config, op, view) * 2 * (blocks + RECORDS_LATE // len(turn_of(rows_at_once(config, op))))
    outputs = height * width * blocks
    records = record_reads(op, blocks)

    def whole(size: int, item: int = item) -> int:
        """Where a value of a region can begin."""
        return size if item == 1 else max(size - (INT32_BYTES - 1), 0)

    rows = rows_at_once(config, op)  # the last group of a line is read whole
    column = offsets.grid((round_up(width, rows), view["X_STEP"]), (blocks, lanes * item), (kw, view["KX_STEP"]))
    window = Lanes(lanes, item, whole(view["IN_BYTES"]))
    made = _window_reads(offsets, view, height, kh, column, window) * vector_passes(config, op)
    second = Lanes(lanes, item, whole(view["B_BYTES"]))
    if row.two_operands:
        place = offsets.grid((height, view["B_Y_STEP"]), (width, view["B_X_STEP"]), (blocks, lanes * item))
        made += offsets.reads_inside(place, second)
    if records:
        words = offsets.grid((records, lanes * INT32_BYTES))
        inside = offsets.reads_inside(words, Lanes(lanes, INT32_BYTES, whole(view["B_BYTES"], INT32_BYTES)))
        made += groups_of(config, op, view) * inside
    table = table_reads(config, op)
    if table:
        made += offsets.reads_inside(offsets.grid((table, table_lanes(config))), second)

    size = np.full(blocks, lanes)
    size[-1] = view["BLOCKS", "last"]
    column = offsets.grid((width, view["OUT_X_STEP"]), (blocks, lanes * result))
    return {
        "vector_taps": (steps + drain_steps(config, op, blocks) + table) * lanes,
        "vector_results": outputs * lanes,
        "sram_read_vector": made,
        "sram_write_vector": offsets.writes(
            offsets.grid((height, view["OUT_Y_STEP"])), column, np.tile(size * result, width), view["OUT_BYTES"]
        ),
    }


def _transfer(config: Config, unit: Unit, view: View) -> Counts:
    address, row_step, plane_step, sram_row_step, sram_plane_step, size, length, _ = _transfer_key(tuple(view.values))
    rows, planes = view["COUNT", "rows"], view["COUNT", "planes"]
    transfer = Shape(address, rows, planes, row_step, plane_step, length)
    beats, bursts = bus_use(transfer, config.bus_bytes)
    way, port = ("read", "sram_write_load") if unit == Unit.LOAD else ("write", "sram_read_store")
    return {
        f"dram_{way}_bytes": rows * planes * length,
        f"dram_{way}_beats": beats,
        f"dram_{way}_bursts": bursts,
        port: Offsets(config.offset_bits).beats_inside(
            transfer, beats, sram_row_step, sram_plane_step, config.bus_bytes, size
        ),
    }
