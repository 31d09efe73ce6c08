"""Random configurations, and random registers of one operation."""

import random

from dovetail.isa.checks import View, check, claim, regions
from dovetail.isa.config import BUS_WIDTHS, Config, ConfigError, MemoryTiming
from dovetail.isa.instructions import (
    INSTRUCTIONS,
    REGISTERS,
    Op,
    Unit,
    pack,
)
from dovetail.isa.numerics import average_magic

DATA_BYTES = 64 << 10
"""System memory, from BASE on, that random programs read and write."""

MASK = 0xFFFF_FFFF
DMA_OPS = {Unit.LOAD: Op.DMA_READ, Unit.STORE: Op.DMA_WRITE}

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
        try:
            return Config(
                ic_lanes=rng.choice((1, 2, 3, 5, 8, 12, 16, 64 if wide else 4)),
                oc_lanes=rng.choice((1, 2, 3, 5, 8, 12, 16, 64 if wide else 4)),
                sram=banks * (8 << 10),
                banks=banks,
                stripe=rng.choice((1, 2, 7, 16, 32, 64)),
                requant_lanes=rng.choice((None, None, 1, 2, 3)),
                vector_lanes=rng.choice((None, 1, 3, 4, 8)),
                depthwise=depthwise,
                depthwise_lanes=rng.choice((None, 3, 8)) if depthwise == "native" else None,
                bus=rng.choice(BUS_WIDTHS),
                outstanding=rng.choice((1, 2, 4, 16)),
                matmul=rng.random() < 0.8,
                pooling=part(),
                elementwise=part(),
                activation=part(),
                memory=MemoryTiming(
                    read_latency=rng.choice((1, 7, 40)),
                    write_latency=rng.choice((1, 5, 20)),
                    beat_cycles=rng.choice((1, 1, 1, 2, 3)),
                ),
            )
        except ConfigError:
            continue


def operations(config: Config) -> list[Op]:
    """The operations that a configuration has."""
    ops = [Op.DMA_READ, Op.DMA_WRITE, Op.CONV, Op.CONV_RELU]
    if config.dw:
        ops.append(Op.DEPTH_CONV)
    if config.vector:
        ops += [Op.POOL, Op.E_ADD]
    return ops


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
        if size > config.sram_bytes // 2 or span > DATA_BYTES // 2:
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
        address = rng.randrange(config.sram_bytes - size)
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


def _window(
    rng: random.Random, config: Config, unit: Unit, op: Op, channels: int, kh: int, kw: int, lanes: int
) -> Registers:
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
        "IN_ADDR": rng.randrange(config.sram_bytes),
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
        "OUT_ADDR": rng.randrange(config.sram_bytes),
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
    """A convolution or depthwise convolution."""
    unit = Unit.ARRAY
    depthwise = op == Op.DEPTH_CONV
    lanes = config.dw if depthwise else config.oc
    kh, kw = rng.choice((1, 1, 2, 3)), rng.choice((1, 1, 2, 3))
    count, last = rng.randint(1, 3), rng.randint(1, lanes)
    kc = 1
    if depthwise:
        channels = (count - 1) * lanes + last
    else:
        kc = rng.randint(1, max(1, min(3, 48 // config.ic)))
        channels = max(1, kc * config.ic - rng.randint(0, config.ic - 1))
    values = _window(rng, config, unit, op, channels, kh, kw, lanes)
    mode = {
        "rounding": rng.randint(0, 1),
        "int32": int(rng.random() < 0.2),
        "accumulate": int(rng.random() < 0.2),
        "extra": 0,
    }
    item = 4 if mode["int32"] or mode["accumulate"] else 1  # accumulation reads int32 slots whatever it writes
    _output(rng, config, unit, values, count, last, lanes, item)
    rows = 1 if depthwise else config.weight_rows
    steps = kh * kw * (1 if depthwise else kc)
    stream = count * (config.param_rows(lanes) + steps * rows) * config.word_bytes
    if rng.random() < 0.08:
        stream = max(config.word_bytes, stream - rng.randint(0, 3) * config.word_bytes)
    values |= {
        "KC": kc if not depthwise else rng.randint(0, 3),
        "W_ADDR": rng.randrange(config.sram_bytes) // config.word_bytes * config.word_bytes,
        "W_BYTES": stream,
        "STRIPE": rng.choice((config.stripe, rng.randint(1, config.stripe))),
        "MODE": pack(unit, "MODE", **mode),
        "B_ADDR": 0,
        "B_BYTES": 0,
        "B_STEP": 0,
        "B_FORM": 0,
    }
    _spoil(rng, values)
    return values


def vector_registers(rng: random.Random, config: Config, op: Op) -> Registers:
    """A pooling or an addition."""
    unit = Unit.VECTOR
    lanes = config.vec
    count, last = rng.randint(1, 4), rng.randint(1, lanes)
    channels = (count - 1) * lanes + last
    kh, kw = (1, 1) if op == Op.E_ADD else (rng.randint(1, 4), rng.randint(1, 4))
    values = _window(rng, config, unit, op, channels, kh, kw, lanes)
    _output(rng, config, unit, values, count, last, lanes, 1)
    height, width = values["TILE"] & 0xFFFF, values["TILE"] >> 16
    b_x = channels + rng.choice((0, 0, rng.randint(1, 5)))
    b_y = width * b_x + rng.choice((0, rng.randint(1, 20)))
    taps = rng.choice((kh * kw, rng.randint(1, 100)))
    magic, shift = average_magic(taps)
    onnx = rng.random() < 0.5
    values |= {
        "MODE": pack(
            unit,
            "MODE",
            rounding=onnx,
            average=int(rng.random() < 0.6),
            requantise=int(rng.random() < 0.4),
            subtract=rng.randint(0, 1),
        ),
        "B_ADDR": rng.randrange(config.sram_bytes),
        "B_BYTES": max(1, height * b_y - rng.choice((0, 0, rng.randint(0, 40)))),
        "B_Y_STEP": b_y,
        "B_X_STEP": b_x,
        "B_ZERO": pack(unit, "B_ZERO", zero_b=rng.randint(-128, 127)),
        "A_MULT": random_multiplier(rng, onnx)[0],
        "B_MULT": random_multiplier(rng, onnx)[0],
        "OUT_MULT": random_multiplier(rng, onnx)[0],
        "SHIFTS": pack(unit, "SHIFTS", a=rng.choice((0, -1, -3)), b=rng.choice((0, -1, -3)), out=rng.randint(-22, 2)),
        "SUM_BIAS": rng.choice((0, rng.randint(-5000, 5000) & MASK, rng.getrandbits(32))),
        "POOL_COUNT": taps,
        "POOL_MAGIC": magic,
        "POOL_SHIFT": pack(unit, "POOL_SHIFT", shift=shift),
    }
    if rng.random() < 0.1:
        for name in rng.sample(("B_Y_STEP", "B_X_STEP", "SHIFTS", "A_MULT", "POOL_MAGIC", "POOL_SHIFT"), 2):
            values[name] = rng.getrandbits(32) & REGISTERS[unit][name].mask
    apart = height == 1 or values["Y_STEP"] >= (width - 1) * values["X_STEP"] + channels
    if op == Op.E_ADD and apart and rng.random() < 0.2:  # in place
        values |= {"OUT_ADDR": values["IN_ADDR"], "OUT_BYTES": values["IN_BYTES"]}
        values |= {"OUT_X_STEP": values["X_STEP"], "OUT_Y_STEP": values["Y_STEP"]}
    else:
        _spoil(rng, values)
    return values


def random_multiplier(rng: random.Random, onnx: bool) -> tuple[int, int]:
    """(mult, shift), usually normalised and of a size that makes int8 of a sum."""
    if rng.random() < 0.1:
        return rng.getrandbits(31), rng.randint(-32, 31)
    return rng.randrange(1 << 23, 1 << 24) if onnx else rng.randrange(1 << 30, 1 << 31), rng.randint(-12, -2)


def weight_stream(rng: random.Random, config: Config, op: Op, values: Registers) -> bytes:
    """Bytes for an ARRAY operation's weight stream: records that make sense, random weights."""
    lanes = config.dw if op == Op.DEPTH_CONV else config.oc
    view = View(Unit.ARRAY, sequence(Unit.ARRAY, values))
    taps = view["GEOMETRY", "kh"] * view["GEOMETRY", "kw"]
    steps = taps * (1 if op == Op.DEPTH_CONV else view["KC", "blocks"] * config.weight_rows)
    onnx = view["MODE", "rounding"] == 1
    stream = b""
    for _ in range(view["BLOCKS", "count"]):
        records = b""
        for _ in range(lanes):
            mult, shift = random_multiplier(rng, onnx)
            bias = rng.choice((rng.randint(-20000, 20000), rng.randint(-(1 << 31), (1 << 31) - 1)))
            records += (bias & MASK).to_bytes(4, "little") + mult.to_bytes(4, "little")
            records += (shift & MASK).to_bytes(4, "little") + bytes(4)
        stream += records.ljust(config.param_rows(lanes) * config.word_bytes, b"\0")
        stream += rng.randbytes(steps * config.word_bytes)
    return stream


def sequence(unit: Unit, values: Registers) -> list[int]:
    return [values[name] for name in REGISTERS[unit]]


def overlap(a: tuple[int, int], b: tuple[int, int]) -> bool:
    return a[0] < b[0] + b[1] and b[0] < a[0] + a[1]


def legal_registers(rng: random.Random, config: Config, op: Op) -> Registers:
    """Registers for ``op`` that pass its checks; its output does not overlap what it reads, unless in place."""
    unit = INSTRUCTIONS[op].unit
    assert unit is not None
    while True:
        if unit in DMA_OPS:
            values = dma_registers(rng, config, unit)
        elif unit == Unit.ARRAY:
            values = array_registers(rng, config, op)
        else:
            values = vector_registers(rng, config, op)
        view = View(unit, sequence(unit, values))
        if check(config, op, view) or claim(config, op, view).twice:
            continue
        spaces = regions(op, view)
        targets = spaces.writes
        sources = [s for s in spaces.reads if s not in targets]
        if not any(overlap(s, t) for s in sources for t in targets):
            return values
