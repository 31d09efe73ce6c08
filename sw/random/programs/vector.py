"""Random registers of the vector unit's operations, and tables and records for them."""

import random

import numpy as np

from dovetail.isa.common.sizes import INT32_BYTES
from dovetail.isa.config.resolved import Config
from dovetail.isa.instructions.table import (
    INSTRUCTIONS,
    REGISTERS,
    Op,
    Unit,
    pack,
    unpack,
)
from dovetail.isa.numerics.average import average_magic
from dovetail.isa.numerics.multiplier import SHIFT_MIN
from dovetail.isa.numerics.norm import EPSILON_BITS, EPSILON_FRACTION, NormRecords
from dovetail.isa.numerics.softmax import onnx_exponentials, tflite_exponentials
from dovetail.sw.random.programs.walks import MASK, Registers, output, random_multiplier, spoil, window


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
    values = window(rng, config, unit, read, kh, kw)
    if not row.taps:
        geometry = unpack(unit, "GEOMETRY", values["GEOMETRY"]) | {"kh": kernel[0], "kw": kernel[1]}
        values["GEOMETRY"] = pack(unit, "GEOMETRY", **geometry)
    output(rng, config, unit, values, count, last, lanes, row.output_bytes)
    b_bytes, b_y, b_x = _operand_b(rng, op, values, read, lanes * count)
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
    if row.records:
        epsilon = rng.choice((0, 1, 1, 1)) * rng.getrandbits(rng.randint(1, EPSILON_BITS))
        if epsilon % 4:  # no larger than the variance: what is much larger makes all elements alike
            epsilon %= 1 << EPSILON_FRACTION + 10 + 2 * read.bit_length()
        values |= {"SUM_BIAS": epsilon & MASK, "B_MULT": epsilon >> 32 | rng.getrandbits(7) << 24}
    if rng.random() < 0.1:
        for name in rng.sample(("B_Y_STEP", "B_X_STEP", "SHIFTS", "A_MULT", "POOL_MAGIC", "POOL_SHIFT"), 2):
            values[name] = rng.getrandbits(32) & REGISTERS[unit][name].mask
    spoil(rng, values)
    return values


def _operand_b(rng: random.Random, op: Op, values: Registers, read: int, channels: int) -> tuple[int, int, int]:
    """(bytes of operand B at most, or of a table or of records; bytes between its rows; between its pixels).

    ``read``: bytes of a pixel.
    """
    row = INSTRUCTIONS[op]
    height, width = values["TILE"] & 0xFFFF, values["TILE"] >> 16
    b_x = rng.choice((read, read, read + rng.randint(1, 5), 0))
    b_y = rng.choice((width * b_x, width * b_x + rng.randint(1, 20), 0))
    b_bytes = (height - 1) * b_y + (width - 1) * b_x + read
    if row.records:
        b_bytes = 2 * INT32_BYTES * channels
    if row.looks_up:
        b_bytes = row.table_bytes
        b_bytes = rng.choice((b_bytes, b_bytes, b_bytes, rng.randint(1, b_bytes + 44)))
    return b_bytes, b_y, b_x


def _softmax(rng: random.Random, n: int) -> Registers:
    """Which of ``n`` elements count, mostly about all of them; and levels."""
    steps = (0, 0, 1, rng.randint(-3, 3))
    return {
        "POOL_COUNT": rng.choice((n, 1, rng.randint(0, n), 32767)),
        "B_X_STEP": rng.choice(steps) & MASK,
        "B_Y_STEP": rng.choice(steps) & MASK,
        "OUT_MULT": rng.choice((256, 254, rng.randint(0, 511), rng.randint(512, 8191), rng.getrandbits(31))),
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


def norm_records(rng: random.Random, config: Config, op: Op, values: Registers) -> bytes:
    """Records for a norm: mostly gains that make a result of as many bits as it has, some of any kind."""
    channels, wild = (values["BLOCKS"] & 0xFFFF) * config.vector_lanes, rng.random() < 0.2
    more = 8 * INSTRUCTIONS[op].int32_output
    made = NormRecords(
        bias=np.array([rng.randint(-(1 << 31), MASK >> 1) >> rng.randint(8, 20) * (not wild) for _ in range(channels)]),
        mult=np.array([rng.getrandbits(24) | (not wild) << 23 for _ in range(channels)]),
        shift=np.array([rng.randint(-32, 31) if wild else rng.randint(-15, -10) + more for _ in range(channels)]),
        negative=np.array([rng.random() < 0.3 for _ in range(channels)]),
    )
    return made.pack(config.vector_lanes)
