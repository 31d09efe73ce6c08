"""Random configurations, and random registers of one operation."""

import random

import numpy as np

from dovetail.isa.common.sizes import INT32_BYTES, round_up
from dovetail.isa.config.given import BUS_WIDTHS, PIXEL_LANES, ConfigError, MemoryTiming
from dovetail.isa.config.resolved import COLUMN_TAPS, PAIR_STEPS, Config
from dovetail.isa.instructions.checks import (
    View,
    array_lanes,
    check,
    claim,
    has,
    lanes_of,
    pairs_of,
    stream_words,
    weight_rows,
    weight_sets,
)
from dovetail.isa.instructions.table import (
    DMA_OPS,
    INSTRUCTIONS,
    REGISTERS,
    Op,
    Unit,
    pack,
    unpack,
)
from dovetail.isa.numerics.average import average_magic
from dovetail.isa.numerics.multiplier import SHIFT_MIN
from dovetail.isa.numerics.norm import EPSILON_BITS, NormRecords
from dovetail.isa.numerics.softmax import onnx_exponentials, tflite_exponentials

DATA_BYTES = 64 << 10
"""System memory, from BASE on, that random programs read and write."""

MASK = 0xFFFF_FFFF

Registers = dict[str, int]
"""Values of a unit's registers, all of them, by name."""


def random_config(rng: random.Random, *, vector: bool | None = None) -> Config:
    """A small accelerator with any lanes, banks, bus and memory timing."""

    def part() -> bool:
        return rng.random() < 0.8 if vector is None else vector

    while True:
        banks = rng.randint(4, 12)
        depthwise = rng.choice(("native", "native", "emulated", "none"))
        wide = rng.random() < 0.2
        pixel_lanes = rng.choice((1, 1, *PIXEL_LANES))
        try:
            config = Config(
                ic_lanes=rng.choice((1, 2, 3, 5, 8, 12, 16, 64 if wide else 4)),
                oc_lanes=rng.choice((1, 2, 3, 5, 8, 12, 16, 64 if wide else 4)),
                pixel_lanes=pixel_lanes,
                sram=banks * (8 << 10),
                banks=banks,
                stripe=rng.choice((1, 2, 7, 16, 32, 64 * pixel_lanes)),
                requant_lanes=rng.choice((None, None, 1, 2, 3)),
                vector_lanes=rng.choice((None, 1, 3, 4, 8)),
                depthwise=depthwise,
                bus=rng.choice(BUS_WIDTHS),
                outstanding=rng.choice((1, 2, 4, 16)),
                matmul=rng.random() < 0.8,
                pooling=part(),
                elementwise=part(),
                activation=part(),
                # These draw no number: seeds stay what they were.
                softmax=int(vector is not False and banks % 3 == 0),
                norm=vector is not False and banks % 4 == 1,
                memory=MemoryTiming(
                    read_latency=rng.choice((1, 7, 40)),
                    write_latency=rng.choice((1, 5, 20)),
                    beat_cycles=rng.choice((1, 1, 1, 2, 3)),
                ),
            )
        except ConfigError:
            continue
        return with_rows(config, 4) if config.softmax and banks % 6 == 0 else config


def with_rows(config: Config, most: int) -> Config:
    """With as many rows of a softmax at once as the vector unit's lanes allow, up to ``most``."""
    return config.replace(softmax=min(most, 1 << config.vector_lanes.bit_length() - 1))


def operations(config: Config) -> list[Op]:
    """The operations that a configuration has."""
    return [op for op, row in INSTRUCTIONS.items() if row.unit is not None and has(config, op)]


def dma_registers(rng: random.Random, config: Config, unit: Unit) -> Registers:
    """A strided transfer inside the data area."""
    while True:
        length = rng.choice((rng.randint(1, 40), rng.randint(1, 300), rng.randint(1, 5000)))
        rows = rng.choice((1, 1, 2, rng.randint(1, 8)))
        planes = rng.choice((1, 1, 1, 2, 3))
        if rows * planes * length > 12000:
            continue
        row_step = length + rng.choice((0, 0, 1, rng.randint(0, 64)))
        plane_step = rows * row_step + rng.choice((0, rng.randint(0, 100)))
        sram_row = length + rng.choice((0, 0, 3, rng.randint(0, 64)))
        sram_plane = rows * sram_row + rng.choice((0, rng.randint(0, 50)))
        size = (planes - 1) * sram_plane + (rows - 1) * sram_row + length
        span = (planes - 1) * plane_step + (rows - 1) * row_step + length
        if size > config.sram // 2 or span > DATA_BYTES // 2:
            continue
        start = rng.randrange(DATA_BYTES - span)
        if rng.random() < 0.3:
            start &= ~63
        if rng.random() < 0.15:  # rows from the last to the first
            start += (rows - 1) * row_step
            row_step = -row_step & MASK
        if rng.random() < 0.1:
            size = max(1, size - rng.randint(1, length))  # parts of it are dropped
        if rng.random() < 0.05:
            sram_row = rng.getrandbits(32)
        address = rng.randrange(config.sram - size)
        if rng.random() < 0.3:
            address &= ~63
        return {
            "MEM_ADDR": start,
            "MEM_ROW_STEP": row_step,
            "MEM_PLANE_STEP": plane_step,
            "SRAM_ADDR": address,
            "SRAM_BYTES": size,
            "SRAM_ROW_STEP": sram_row,
            "SRAM_PLANE_STEP": sram_plane,
            "LENGTH": length,
            "COUNT": pack(unit, "COUNT", rows=rows, planes=planes),
        }


def contiguous(unit: Unit, memory: int, address: int, size: int) -> Registers:
    """A transfer of ``size`` bytes between ``memory`` and SRAM ``address``."""
    steps = dict.fromkeys(("MEM_ROW_STEP", "MEM_PLANE_STEP", "SRAM_ROW_STEP", "SRAM_PLANE_STEP"), 0)
    return steps | {
        "MEM_ADDR": memory,
        "SRAM_ADDR": address,
        "SRAM_BYTES": size,
        "LENGTH": size,
        "COUNT": pack(unit, "COUNT", rows=1, planes=1),
    }


def _window(rng: random.Random, config: Config, unit: Unit, channels: int, kh: int, kw: int) -> Registers:
    """Window, tile and quantisation registers over an input of ``channels`` bytes per pixel and tap."""
    height, width = rng.randint(1, 6), rng.randint(1, 8)
    stride_y, stride_x = rng.randint(1, 3), rng.randint(1, 3)
    dilation_y, dilation_x = rng.randint(1, 2), rng.randint(1, 2)
    pixel = channels + rng.choice((0, 0, 0, rng.randint(1, 9)))
    top, left = rng.randint(0, kh - 1), rng.randint(0, kw - 1)
    rows = (height - 1) * stride_y + (kh - 1) * dilation_y + 1 - top - rng.choice((0, 0, 1))
    columns = (width - 1) * stride_x + (kw - 1) * dilation_x + 1 - left - rng.choice((0, 0, 1))
    rows, columns = max(rows, 1), max(columns, 1)
    pitch = columns * pixel + rng.choice((0, 0, rng.randint(1, 20)))
    size = rows * pitch
    if rng.random() < 0.08:
        size = max(1, size - rng.randint(1, pitch))
    values = {
        "IN_ADDR": rng.randrange(config.sram),
        "IN_BYTES": size,
        "ORIGIN": -(top * pitch + left * pixel) & MASK,
        "Y_STEP": stride_y * pitch,
        "X_STEP": stride_x * pixel,
        "KY_STEP": dilation_y * pitch,
        "KX_STEP": dilation_x * pixel,
        "IN_ROWS": rows,
        "ROW_BYTES": columns * pixel,
        "PAD_TOP": top,
        "PAD_LEFT": left * pixel,
        "GEOMETRY": pack(unit, "GEOMETRY", kh=kh, kw=kw, stride_y=stride_y, dilation_y=dilation_y),
        "TILE": pack(unit, "TILE", height=height, width=width),
    }
    lo, hi = sorted((rng.randint(-128, 127), rng.randint(-128, 127)))
    if rng.random() < 0.7:
        lo, hi = -128, 127
    values["QUANT"] = pack(unit, "QUANT", zero_in=rng.randint(-128, 127), zero_out=rng.randint(-128, 127), lo=lo, hi=hi)
    return values


def _output(
    rng: random.Random, config: Config, unit: Unit, values: Registers, count: int, last: int, lanes: int, item: int
) -> None:
    """Add the output registers for ``count`` blocks."""
    height, width = values["TILE"] & 0xFFFF, values["TILE"] >> 16
    pixel = ((count - 1) * lanes + last) * item
    x_step = pixel + rng.choice((0, 0, 0, rng.randint(1, 9)))
    y_step = width * x_step + rng.choice((0, 0, rng.randint(1, 30)))
    size = (height - 1) * y_step + (width - 1) * x_step + pixel
    if rng.random() < 0.08:
        size = max(1, size - rng.randint(1, pixel))
    values |= {
        "OUT_ADDR": rng.randrange(config.sram),
        "OUT_BYTES": size,
        "OUT_Y_STEP": y_step,
        "OUT_X_STEP": x_step,
        "BLOCKS": pack(unit, "BLOCKS", count=count, last=last),
    }


_STEPS = ("ORIGIN", "Y_STEP", "X_STEP", "KY_STEP", "KX_STEP", "IN_ROWS", "ROW_BYTES", "PAD_TOP", "PAD_LEFT")


def _spoil(rng: random.Random, values: Registers) -> None:
    """Now and then, steps that no compiler would choose: still one defined outcome."""
    if rng.random() < 0.12:
        for name in rng.sample(_STEPS, rng.randint(1, 3)):
            values[name] = rng.choice((0, rng.randint(0, 300), rng.getrandbits(32), MASK - rng.randint(0, 99)))
    if rng.random() < 0.08:
        for name in rng.sample(("OUT_Y_STEP", "OUT_X_STEP"), rng.randint(1, 2)):
            values[name] = rng.choice((0, rng.randint(0, 300), rng.getrandbits(32)))


def array_registers(rng: random.Random, config: Config, op: Op) -> Registers:
    """A convolution, depthwise convolution or matrix product."""
    unit = Unit.ARRAY
    mode = {
        "rounding": rng.randint(0, 1),
        "int32": int(rng.random() < 0.2),
        "accumulate": int(rng.random() < 0.2),
        "extra": rng.choice((0, 0, rng.randint(0, 7))),
        "slide": 0,
        "pairs": int(rng.random() < 0.3 and config.stripe > 1),
        "columns": 0,
    }
    multiplier = 1
    row = INSTRUCTIONS[op]
    if row.depthwise:
        mode["extra"] = min(mode["extra"], config.oc_lanes - 1)
        mode["slide"] = rng.choice((0, 1, 1, 2))
        if config.word_columns > 1 and rng.random() < 0.3:
            beside = rng.randint(1, config.word_columns.bit_length() - 1)
            mode |= {"extra": 0, "slide": 1, "columns": beside}
        multiplier += mode["extra"]
    values = dict.fromkeys(REGISTERS[unit], 0) | {"MODE": pack(unit, "MODE", **mode)}
    paired = pairs_of(config, op, View(unit, sequence(unit, values)))
    if paired:
        mode["accumulate"] = 0
        values["MODE"] = pack(unit, "MODE", **mode)
    most = config.pair_sets if paired else config.weight_sets
    if row.depthwise:
        most = min(config.depthwise_sets, config.stripe_rows * config.pixel_lanes)
    sets = rng.randint(1, 1 if multiplier > 1 else most) if most > 1 else 1
    sets = config.pixel_lanes if mode["columns"] else sets
    values["KC"] = pack(unit, "KC", blocks=1, group=sets - 1)
    lanes = lanes_of(config, op, View(unit, sequence(unit, values)))
    kh, kw = rng.choice((1, 1, 2, 3)), rng.choice((1, 1, 2, 3))
    if row.matrix and rng.random() < 0.7:
        kh = kw = 1
    if row.depthwise and rng.random() < 0.3:
        kw = rng.choice((4, 5, 7))
    if mode["columns"]:
        kw = COLUMN_TAPS
    count, last = rng.randint(1, 3), rng.randint(1, lanes)
    channels = (count - 1) * lanes + last
    kc = rng.randint(1, max(1, min(3 + 2 * (config.weight_sets - 1), 48 // config.ic_lanes)))
    if row.depthwise:
        read, kc = -(-channels // multiplier), rng.randint(0, 3)
    else:
        read = max(1, kc * config.ic_lanes - rng.randint(0, config.ic_lanes - 1))
    values |= _window(rng, config, unit, read, kh, kw)
    if paired:
        height, width = values["TILE"] & 0xFFFF, values["TILE"] >> 16
        values["TILE"] = pack(unit, "TILE", height=height, width=round_up(width, 2))
    item = 4 if mode["int32"] or mode["accumulate"] else 1  # accumulation reads int32 slots whatever it writes
    _output(rng, config, unit, values, count, last, lanes, item)
    values["KC"] = pack(unit, "KC", blocks=kc, group=sets - 1)
    view = View(unit, sequence(unit, values))
    if mode["slide"]:
        values["KX_STEP"] = values["X_STEP"] // mode["slide"]
        if rng.random() < 0.5:
            values["X_STEP"] = rng.randint(0, 300)
    stripe = config.stripe_rows // config.depthwise_visits(sets) if row.depthwise else config.stripe
    stream = stream_words(config, op, view) * config.word_bytes
    if rng.random() < 0.08:
        stream = max(config.word_bytes, stream - rng.randint(0, 3) * config.word_bytes)
    values |= {
        "W_ADDR": rng.randrange(config.sram) // config.word_bytes * config.word_bytes,
        "W_BYTES": stream,
        "STRIPE": rng.choice((stripe, rng.randint(1, stripe))),
    }
    values |= _matrix(rng, config, kh * kw * kc * config.ic_lanes, channels)
    _spoil(rng, values)
    if mode["columns"]:
        wide = mode["columns"] == 1 and config.has_wide_words and rng.random() < 0.5
        values["KX_STEP"] = config.acc_lanes * (1 + wide)
    if paired:
        values |= {"X_STEP": rng.randrange(PAIR_STEPS), "STRIPE": round_up(min(values["STRIPE"], stripe - 1), 2)}
    return values


def _matrix(rng: random.Random, config: Config, terms: int, channels: int) -> Registers:
    """The registers of a matrix of ``terms`` x ``channels``; operations other than MAT_MUL ignore them."""
    transposed = rng.randint(0, 1)
    rows, columns = (channels, terms) if transposed else (terms, channels)
    # The last block of terms is often not full, as the last one of channels.
    rows, columns = (max(1, n - rng.choice((0, 0, rng.randint(0, n)))) for n in (rows, columns))
    step = columns + rng.choice((0, 0, rng.randint(1, 9)))
    size = (rows - 1) * step + columns
    if rng.random() < 0.08:
        step = rng.choice((0, rng.randint(0, 300), rng.getrandbits(32), MASK - rng.randint(0, 99)))
    return {
        "B_ADDR": rng.randrange(config.sram),
        "B_BYTES": size,
        "B_STEP": step,
        "B_FORM": pack(Unit.ARRAY, "B_FORM", zero_b=rng.randint(-128, 127), transposed=transposed),
    }


def vector_registers(rng: random.Random, config: Config, op: Op) -> Registers:
    """An operation of the vector unit; what it does not look at is random as well."""
    unit = Unit.VECTOR
    lanes = config.vector_lanes
    count, last = rng.randint(1, 4), rng.randint(1, lanes)
    row = INSTRUCTIONS[op]
    if row.records and rng.random() < 0.3:
        count = rng.randint(5, 40)
    read = ((count - 1) * lanes + last) * row.input_bytes
    kernel = rng.randint(1, 4), rng.randint(1, 4)
    kh, kw = kernel if row.taps else (1, 1)
    values = _window(rng, config, unit, read, kh, kw)
    if not row.taps:
        geometry = unpack(unit, "GEOMETRY", values["GEOMETRY"]) | {"kh": kernel[0], "kw": kernel[1]}
        values["GEOMETRY"] = pack(unit, "GEOMETRY", **geometry)
    _output(rng, config, unit, values, count, last, lanes, row.output_bytes)
    height, width = values["TILE"] & 0xFFFF, values["TILE"] >> 16
    b_x = rng.choice((read, read, read + rng.randint(1, 5), 0))
    b_y = rng.choice((width * b_x, width * b_x + rng.randint(1, 20), 0))
    b_bytes = (height - 1) * b_y + (width - 1) * b_x + read
    if row.records:
        b_bytes = 2 * INT32_BYTES * lanes * count
    if row.looks_up:
        b_bytes = row.table_bytes
        b_bytes = rng.choice((b_bytes, b_bytes, b_bytes, rng.randint(1, b_bytes + 44)))
    taps = rng.choice((kh * kw, rng.randint(1, 100)))
    magic, shift = average_magic(taps)
    onnx = rng.random() < 0.5
    shift_a, shift_b = rng.choice((0, -1, -3)), rng.choice((0, -1, -3))
    least, most = rng.choice((row.shifts, row.shifts, row.shifts, (SHIFT_MIN, 4)))
    values |= {
        "MODE": pack(
            unit,
            "MODE",
            rounding=onnx,
            average=int(rng.random() < 0.6),
            requantise=int(rng.random() < 0.4),
            subtract=rng.randint(0, 1),
        ),
        "B_ADDR": rng.randrange(config.sram),
        "B_BYTES": max(1, b_bytes - rng.choice((0, 0, rng.randint(0, 40)))),
        "B_Y_STEP": b_y,
        "B_X_STEP": b_x,
        "B_ZERO": pack(unit, "B_ZERO", zero_b=rng.randint(-128, 127)),
        "A_MULT": random_multiplier(rng, onnx)[0],
        "B_MULT": random_multiplier(rng, onnx)[0],
        "OUT_MULT": random_multiplier(rng, onnx)[0],
        "SHIFTS": pack(unit, "SHIFTS", a=shift_a, b=shift_b, out=rng.randint(least, most)),
        "SUM_BIAS": rng.choice((0, 0, rng.randint(-300, 300), rng.randint(-5000, 5000), rng.getrandbits(32))) & MASK,
        "POOL_COUNT": taps,
        "POOL_MAGIC": magic,
        "POOL_SHIFT": pack(unit, "POOL_SHIFT", shift=shift),
    }
    if op == Op.SOFTMAX:
        values |= _softmax(rng, read)
    if op == Op.NORM:
        epsilon = rng.choice((0, 1, 1, 1)) * rng.getrandbits(rng.randint(1, EPSILON_BITS))
        values |= {"SUM_BIAS": epsilon & MASK, "B_MULT": epsilon >> 32 | rng.getrandbits(7) << 24}
    if rng.random() < 0.1:
        for name in rng.sample(("B_Y_STEP", "B_X_STEP", "SHIFTS", "A_MULT", "POOL_MAGIC", "POOL_SHIFT"), 2):
            values[name] = rng.getrandbits(32) & REGISTERS[unit][name].mask
    _spoil(rng, values)
    return values


def _softmax(rng: random.Random, n: int) -> Registers:
    """Which of ``n`` elements count, mostly about all of them; and levels."""
    steps = (0, 0, 1, rng.randint(-3, 3))
    return {
        "POOL_COUNT": rng.choice((n, 1, rng.randint(0, n), 32767)),
        "B_X_STEP": rng.choice(steps) & MASK,
        "B_Y_STEP": rng.choice(steps) & MASK,
        "OUT_MULT": rng.choice((256, 254, rng.randint(0, 511), rng.getrandbits(31))),
    }


def softmax_table(rng: random.Random, values: Registers) -> bytes:
    """A table for SOFTMAX: exponentials of the rounding's form, or words that are near each other."""
    scale = 2 ** rng.uniform(-11, 0)
    if rng.random() < 0.3:
        least = rng.choice((0, 0x7F000000, rng.getrandbits(31))) & MASK >> 1
        return b"".join((least ^ rng.getrandbits(25)).to_bytes(4, "little") for _ in range(256))
    onnx = values["MODE"] & 1
    table = onnx_exponentials(scale, rng.randint(1, 500)) if onnx else tflite_exponentials(1.0, scale)
    return table.tobytes()


def norm_records(rng: random.Random, config: Config, values: Registers) -> bytes:
    """Records for NORM: mostly gains that make int8 of a normalised element, some of any kind."""
    channels, wild = (values["BLOCKS"] & 0xFFFF) * config.vector_lanes, rng.random() < 0.2
    made = NormRecords(
        bias=np.array([rng.randint(-(1 << 31), MASK >> 1) >> rng.randint(8, 20) * (not wild) for _ in range(channels)]),
        mult=np.array([rng.getrandbits(24) | (not wild) << 23 for _ in range(channels)]),
        shift=np.array([rng.randint(-32, 31) if wild else rng.randint(-15, -10) for _ in range(channels)]),
        negative=np.array([rng.random() < 0.3 for _ in range(channels)]),
    )
    return made.pack(config.vector_lanes)


def random_multiplier(rng: random.Random, onnx: bool) -> tuple[int, int]:
    """(mult, shift), usually normalised and of a size that makes int8 of a sum."""
    if rng.random() < 0.1:
        return rng.getrandbits(31), rng.randint(-32, 31)
    least = 1 << (23 if onnx else 30)
    mult, shift = rng.randrange(least, 2 * least), rng.randint(-12, -2)
    # A quarter is at a corner: a power of two, which makes ties, and what is beside it. Which one the number drawn
    # decides, as elsewhere where only values change: a seed then stays the program that it was.
    corner = mult % 16
    if corner < 4:
        mult = (least, least, least + 1, 2 * least - 1)[corner]
    return mult, shift


def near_tie(drawn: int, shift: int) -> int:
    """A sum that a power of two and ``shift`` bring to a half between two int8, or beside one; or ``drawn`` itself."""
    if drawn % 2:
        return drawn
    drawn //= 2
    return ((drawn >> 3) % 511 - 255 << max(0, -shift)) + (0, 0, 0, 0, 1, -1, 2, -2)[drawn % 8]


def weight_stream(rng: random.Random, config: Config, op: Op, values: Registers) -> bytes:
    """Bytes for an ARRAY operation's weight stream: records that make sense, random weights."""
    view = View(Unit.ARRAY, sequence(Unit.ARRAY, values))
    lanes = array_lanes(config, op, view)
    words = weight_sets(config, op, view) * weight_rows(config, op, view)
    onnx = view["MODE", "rounding"] == 1
    stream = b""
    for _ in range(view["BLOCKS", "count"]):
        records = b""
        for _ in range(lanes):
            mult, shift = random_multiplier(rng, onnx)
            small, any_size = rng.randint(-20000, 20000), rng.randint(-(1 << 31), (1 << 31) - 1)
            bias = rng.choice((near_tie(small, shift), any_size))
            records += (bias & MASK).to_bytes(4, "little") + mult.to_bytes(4, "little")
            records += (shift & MASK).to_bytes(4, "little") + bytes(4)
        stream += records.ljust(config.param_rows(lanes) * config.word_bytes, b"\0")
        weights = rng.randbytes(words * config.word_bytes)
        # A quarter of the blocks scales biases alone.
        stream += bytes(len(weights)) if weights and weights[0] < 64 else weights
    return stream


def sequence(unit: Unit, values: Registers) -> list[int]:
    return [values[name] for name in REGISTERS[unit]]


_FIXED = {"TILE", "BLOCKS", "KC", "STRIPE", "LENGTH", "COUNT"}
"""Registers that decide how long an operation takes; so do the taps."""
_MAX_TAPS = 16


def strange_registers(rng: random.Random, config: Config, op: Op, values: Registers) -> Registers:
    """Other registers of an ARRAY or VECTOR operation that pass its checks, a few of them as nobody would choose."""
    unit = INSTRUCTIONS[op].unit
    assert unit is not None
    while True:
        changed = values.copy()
        for name in rng.sample(sorted(values.keys() - _FIXED), rng.randint(1, 6)):
            near = values[name] + rng.randint(-9, 9)
            value = rng.choice((near, rng.randint(0, 9), -rng.randint(1, 300), rng.getrandbits(32)))
            changed[name] = value & REGISTERS[unit][name].mask
        view = View(unit, sequence(unit, changed))
        if view.taps <= _MAX_TAPS and _passes(config, op, view):
            return changed


def _passes(config: Config, op: Op, view: View) -> bool:
    return not check(config, op, view) and not claim(config, op, view).twice


def legal_registers(rng: random.Random, config: Config, op: Op) -> Registers:
    """Registers for ``op`` that pass its checks and do not put it in its own way."""
    unit = INSTRUCTIONS[op].unit
    assert unit is not None
    while True:
        if unit in DMA_OPS:
            values = dma_registers(rng, config, unit)
        elif unit == Unit.ARRAY:
            values = array_registers(rng, config, op)
        else:
            values = vector_registers(rng, config, op)
        if _passes(config, op, View(unit, sequence(unit, values))):
            break
    if unit not in DMA_OPS and rng.random() < 0.08:
        return strange_registers(rng, config, op, values)
    return values
