"""The model's units against loops written from docs/architecture.md, one byte at a time."""

import random
from collections.abc import Callable
from fractions import Fraction
from functools import partial
from typing import Any

import numpy as np
import pytest

from dovetail.isa.config.resolved import Config
from dovetail.isa.instructions.checks import View
from dovetail.isa.instructions.table import (
    INSTRUCTIONS,
    PAGE_BYTES,
    REGISTERS,
    Op,
    Unit,
    cfg,
    pack,
    pack_some,
    sync,
    to_bytes,
)
from dovetail.isa.numerics.add import add_integer
from dovetail.isa.numerics.average import average_product
from dovetail.isa.numerics.requantise import requantise_integer, requantise_wide
from dovetail.isa.numerics.rounding import Rounding
from dovetail.isa.numerics.vector import VectorOperation, VectorParameters
from dovetail.sw.model.accelerator import UNITS, Model
from dovetail.sw.model.base import Sram, SystemMemory
from dovetail.sw.model.dma import LoadModel
from dovetail.sw.random.programs.accelerators import random_config
from dovetail.sw.random.programs.array import weight_stream
from dovetail.sw.random.programs.legal import legal_program
from dovetail.sw.random.programs.registers import legal_registers, operations, strange_registers
from dovetail.sw.random.programs.vector import norm_records, softmax_table
from dovetail.sw.random.programs.walks import DATA_BYTES
from tests.norm import normed, normed16
from tests.slow import slow
from tests.softmax import shares

M32 = 0xFFFF_FFFF
BASE = 4096


def signed(value: int, bits: int) -> int:
    value &= (1 << bits) - 1
    return value - (1 << bits) if value >> bits - 1 else value


class Machine:
    """The unit's view of the world, in plain Python."""

    def __init__(self, config: Config, view: View, sram: bytearray, memory: bytearray) -> None:
        self.config, self.v, self.sram, self.memory = config, view, sram, memory
        self.mask = (1 << config.offset_bits) - 1  # offsets in regions are modulo a power of two
        self.slide, self.beside, self.rows, self.skip, self.chain = 0, 1, 1, 1, False  # of a depthwise convolution

    def byte(self, oy: int, ox: int, ky: int, kx: int, k: int) -> int:
        """Window walk; k = cb * L + l."""
        v = self.v
        off = self.place(oy, ox, ky, kx, k)
        if off is None or off >= v["IN_BYTES"]:
            return signed(v["QUANT", "zero_in"], 8)
        return signed(self.sram[v["IN_ADDR"] + off], 8)

    def word(self, oy: int, ox: int, k: int) -> int:
        """Window walk of int32 values; k = cb * L + l."""
        v = self.v
        off = self.place(oy, ox, 0, 0, 4 * k)
        if off is None or off + 4 > v["IN_BYTES"]:
            return 0
        at = v["IN_ADDR"] + off
        return int.from_bytes(self.sram[at : at + 4], "little", signed=True)

    def place(self, oy: int, ox: int, ky: int, kx: int, k: int) -> int | None:
        """Offset in the region of byte k of a tap; None in the padding."""
        v = self.v
        (ky, row), steps = divmod(ky, self.rows), v["GEOMETRY", "kh"]
        oy = oy * self.skip + row
        if self.chain:  # of the step so many before
            before = self.rows - 1 - row
            oy, ky = divmod((oy + before) * steps + ky - before, steps)
        row = (oy * v["GEOMETRY", "stride_y"] + ky * v["GEOMETRY", "dilation_y"] - v["PAD_TOP"]) & self.mask
        x_step = self.slide * v["KX_STEP"] if self.slide else v["X_STEP"]
        kx_step = v["KX_STEP"] // self.beside
        col = (ox * x_step + kx * kx_step - v["PAD_LEFT"] + k) & self.mask
        off = (v["ORIGIN"] + oy * v["Y_STEP"] + ox * x_step + ky * v["KY_STEP"] + kx * kx_step + k) & self.mask
        return off if row < v["IN_ROWS"] & self.mask and col < v["ROW_BYTES"] & self.mask else None

    def operand_b(self, oy: int, ox: int, k: int, item: int) -> int:
        """VECTOR's second operand; k = cb * L + l."""
        v = self.v
        off = (oy * v["B_Y_STEP"] + ox * v["B_X_STEP"] + k * item) & self.mask
        if off + item > v["B_BYTES"]:
            return signed(v["B_ZERO", "zero_b"], 8) if item == 1 else 0
        at = v["B_ADDR"] + off
        return int.from_bytes(self.sram[at : at + item], "little", signed=True)

    def matrix(self, step: int, i: int, channel: int) -> int:
        """ARRAY's matrix: what input lane i is multiplied with in a step, less its zero point."""
        v = self.v
        row, column = step * self.config.ic_lanes + i, channel
        if v["B_FORM", "transposed"]:
            row, column = column, row
        off = (row * v["B_STEP"] + column) & self.mask
        zero = signed(v["B_FORM", "zero_b"], 8)
        return signed(self.sram[v["B_ADDR"] + off], 8) - zero if off < v["B_BYTES"] else 0

    def write(self, oy: int, ox: int, first: int, item: int, values: list[int]) -> None:
        v = self.v
        off = (oy * v["OUT_Y_STEP"] + ox * v["OUT_X_STEP"] + first * item) & self.mask
        if off + len(values) * item > v["OUT_BYTES"]:
            return
        for n, value in enumerate(values):
            at = v["OUT_ADDR"] + off + n * item
            self.sram[at : at + item] = (value & (1 << 8 * item) - 1).to_bytes(item, "little")

    def old(self, oy: int, ox: int, channel: int) -> int:
        v = self.v
        off = (oy * v["OUT_Y_STEP"] + ox * v["OUT_X_STEP"] + channel * 4) & self.mask
        if off + 4 > v["OUT_BYTES"]:
            return 0
        at = v["OUT_ADDR"] + off
        return int.from_bytes(self.sram[at : at + 4], "little", signed=True)


def run_array(machine: Machine, op: Op) -> None:
    config, v = machine.config, machine.v
    depthwise = op == Op.DEPTH_CONV
    matmul = op == Op.MAT_MUL
    sets = v["KC", "group"] + 1 if depthwise else 1
    stored = sets * config.oc_lanes  # channels per block of the weight stream
    times = v["MODE", "extra"] + 1 if depthwise else 1
    lanes = stored - stored % times
    machine.slide = v["MODE", "slide"] if depthwise else 0
    machine.beside = 1 << v["MODE", "columns"] if depthwise and config.pixel_lanes > 1 else 1
    machine.rows, machine.skip = (1 + v["MODE", name] if depthwise else 1 for name in ("rows", "skip"))
    machine.chain = depthwise and bool(v["MODE", "chain"])
    zero_in = signed(v["QUANT", "zero_in"], 8)
    kc = 1 if depthwise else v["KC", "blocks"]
    word = config.word_bytes
    w_addr, w_bytes = v.region("W")
    stream = bytes(machine.sram[w_addr : w_addr + w_bytes])

    def fetch(at: int, size: int) -> bytes:
        return stream[at : at + size].ljust(size, b"\0")

    kh, kw = v["GEOMETRY", "kh"], v["GEOMETRY", "kw"]
    height, width = v["TILE", "height"], v["TILE", "width"]
    count, last = v["BLOCKS", "count"], v["BLOCKS", "last"]
    rounding = Rounding(v["MODE", "rounding"])
    item = 4 if v["MODE", "int32"] else 1
    lo, hi = (-128, 127) if op == Op.CONV else (signed(v["QUANT", "lo"], 8), signed(v["QUANT", "hi"], 8))
    rows = 0 if matmul or depthwise else config.weight_rows
    block_bytes = (config.param_rows(stored) + kh * kw * kc * rows) * word
    if depthwise:  # whole groups of taps, the last tap of each first
        together = min(kw, config.ic_lanes)
        kw, kh = -(-kw // together) * together, kh * machine.rows
        together *= machine.rows
        set_bytes = -(-together * config.oc_lanes // word) * word
        block_bytes += kh * kw // together * sets * set_bytes
    for block in range(count):
        at = block * block_bytes
        channels = last if block == count - 1 else lanes
        pixels = [(oy, ox) for oy in range(height) for ox in range(width)]
        line = width if depthwise else len(pixels)
        for start in (y + x for y in range(0, len(pixels), line) for x in range(0, line, v["STRIPE", "pixels"])):
            stripe = pixels[start : min(start + v["STRIPE", "pixels"], (start // line + 1) * line)]
            old = {(p, o): machine.old(*p, block * lanes + o) for p in stripe for o in range(channels)}
            for oy, ox in stripe:
                values = []
                for o in range(channels):
                    acc = 0
                    step = at + config.param_rows(stored) * word
                    number = 0
                    for ky in range(kh):
                        for kx in range(kw):
                            for cb in range(kc):
                                if depthwise:
                                    x = machine.byte(oy, ox, ky, kx, block * (lanes // times) + o // times)
                                    group, tap = divmod(ky * kw + kx, together)
                                    place = (group * sets + o // config.oc_lanes) * set_bytes
                                    place += (together - 1 - tap) * config.oc_lanes + o % config.oc_lanes
                                    acc += x * signed(fetch(step + place, 1)[0], 8)
                                elif matmul:
                                    for i in range(config.ic_lanes):
                                        w = machine.matrix(number, i, block * lanes + o)
                                        x = machine.byte(oy, ox, ky, kx, cb * config.ic_lanes + i) if w else 0
                                        acc += (x - zero_in) * w
                                else:
                                    for i in range(config.ic_lanes):
                                        w = signed(fetch(step + i * stored + o, 1)[0], 8)
                                        if w:
                                            acc += machine.byte(oy, ox, ky, kx, cb * config.ic_lanes + i) * w
                                step += rows * word
                                number += 1
                    record = fetch(at + 16 * o, 16)
                    bias, mult, shift = (int.from_bytes(record[n : n + 4], "little", signed=n == 0) for n in (0, 4, 8))
                    if v["MODE", "accumulate"]:
                        bias = old[(oy, ox), o]
                    acc = signed(acc + bias, 32)
                    if item == 1:
                        zero_out = signed(v["QUANT", "zero_out"], 8)
                        acc = int(
                            requantise_integer(acc, mult & 0x7FFFFFFF, signed(shift, 6), rounding, zero_out, lo, hi)
                        )
                    values.append(acc)
                # Of a depthwise convolution the sets on all pixel lanes leave together, but for int32 values.
                span = config.oc_lanes * (config.pixel_lanes if depthwise and item == 1 else 1)
                for part in range(0, channels, span):
                    past = min(part + span, channels)
                    for g in range(part, past, config.requant_lanes):
                        machine.write(oy, ox, block * lanes + g, item, values[g : min(g + config.requant_lanes, past)])


def softmax(machine: Machine, oy: int, ox: int, k: int) -> int:
    """Element k of a row, of which all are made."""
    v, n = machine.v, (machine.v["BLOCKS", "count"] - 1) * machine.config.vector_lanes + machine.v["BLOCKS", "last"]
    valid = (v["POOL_COUNT", "count"] + oy * v["B_Y_STEP"] + ox * v["B_X_STEP"]) % (1 << 16)
    zero_b = signed(v["B_ZERO", "zero_b"], 8) & 0xFF
    table = [machine.sram[v["B_ADDR"] + i] if i < v["B_BYTES"] else zero_b for i in range(1024)]
    return shares(
        [machine.byte(oy, ox, 0, 0, i) for i in range(n)],
        [int.from_bytes(table[i : i + 4], "little") for i in range(0, 1024, 4)],
        onnx=bool(v["MODE", "rounding"]),
        counts=[i < valid for i in range(n)],
        levels=v["OUT_MULT", "mult"],
        zero=signed(v["QUANT", "zero_out"], 8),
    )[k]


def norm(machine: Machine, oy: int, ox: int, k: int, bits: int = 8, wide: bool = False) -> int:
    """Element k of a row, of which all are made."""
    v, lanes = machine.v, machine.config.vector_lanes
    n = (v["BLOCKS", "count"] - 1) * lanes + v["BLOCKS", "last"]

    def word(i: int, number: int) -> int:
        offset = 4 * (2 * lanes * (i // lanes) + lanes * number + i % lanes)
        place = v["B_ADDR"] + offset
        return int.from_bytes(machine.sram[place : place + 4], "little") if offset + 4 <= v["B_BYTES"] else 0

    quant = {name: signed(v["QUANT", name], 8) for name in ("zero_in", "zero_out", "lo", "hi")}
    records = [(word(i, 0), word(i, 1)) for i in range(n)]
    epsilon = v["SUM_BIAS"] | v["B_MULT"] % (1 << 24) << 32
    rest: dict[str, Any] = quant | {"epsilon": epsilon, "rms": not v["MODE", "subtract"]}
    if bits == 8:
        return normed([machine.byte(oy, ox, 0, 0, i) for i in range(n)], records, **rest)[k]
    return normed16([machine.word(oy, ox, i) for i in range(n)], records, wide=wide, **rest)[k]


def widened(machine: Machine, oy: int, ox: int, k: int) -> int:
    v = machine.v
    s = Scale(v)
    x = machine.byte(oy, ox, 0, 0, k) - s.zero_in
    return int(requantise_wide(x, v["OUT_MULT", "mult"], s.shift, s.rounding))


def run_vector(machine: Machine, op: Op) -> None:
    config, v = machine.config, machine.v
    lanes = config.vector_lanes
    count, last = v["BLOCKS", "count"], v["BLOCKS", "last"]
    item = 4 if op in (Op.E32_ADD, Op.E32_SHIFT, Op.WIDEN, Op.NORM16_WIDE) else 1
    for oy in range(v["TILE", "height"]):
        for ox in range(v["TILE", "width"]):
            for block in range(count):
                channels = range(block * lanes, block * lanes + (last if block == count - 1 else lanes))
                values = [FORMULAS[op](machine, oy, ox, k) for k in channels]
                machine.write(oy, ox, block * lanes, item, values)


class Scale:
    """What rescales results, from VECTOR's registers."""

    def __init__(self, v: View) -> None:
        self.rounding = Rounding(v["MODE", "rounding"])
        self.zero_in, self.zero_out, self.lo, self.hi = (
            signed(v["QUANT", n], 8) for n in ("zero_in", "zero_out", "lo", "hi")
        )
        self.mult, self.shift = v["OUT_MULT", "mult"], signed(v["SHIFTS", "out"], 6)
        self.bias = signed(v["SUM_BIAS"], 32)

    def __call__(self, total: int, mult: int, shift: int) -> int:
        return int(requantise_integer(total, mult, shift, self.rounding, self.zero_out, self.lo, self.hi))

    def by_out_mult(self, total: int) -> int:
        return self(total, self.mult, self.shift)


def pool(machine: Machine, oy: int, ox: int, k: int) -> int:
    v = machine.v
    s = Scale(v)
    taps = [(ky, kx) for ky in range(v["GEOMETRY", "kh"]) for kx in range(v["GEOMETRY", "kw"])]
    xs = [machine.byte(oy, ox, ky, kx, k) for ky, kx in taps]
    total = signed(s.bias + sum(xs), 32)
    if not v["MODE", "average"]:
        y = max(xs)
    elif v["MODE", "requantise"]:
        y = s.by_out_mult(total)
    else:
        magic, right = v["POOL_MAGIC"] & 0x7FFFFFFF, signed(v["POOL_SHIFT"], 6)
        y = int(average_product(total, v["POOL_COUNT"], magic, right, s.rounding)) + s.zero_out
    return max(min(y, s.hi), s.lo)


def combined(operation: VectorOperation) -> Callable[[Machine, int, int, int], int]:
    def formula(machine: Machine, oy: int, ox: int, k: int) -> int:
        v = machine.v
        s = Scale(v)
        subtract = operation == VectorOperation.ADD and v["MODE", "subtract"]
        params = VectorParameters(
            rounding=s.rounding,
            za=s.zero_in,
            zb=signed(v["B_ZERO", "zero_b"], 8),
            zy=s.zero_out,
            mult_a=v["A_MULT", "mult"],
            shift_a=signed(v["SHIFTS", "a"], 6),
            mult_b=v["B_MULT", "mult"],
            shift_b=signed(v["SHIFTS", "b"], 6),
            mult_out=s.mult,
            shift_out=s.shift,
            lo=s.lo,
            hi=s.hi,
            operation=VectorOperation.SUBTRACT if subtract else operation,
        )
        a, b = machine.byte(oy, ox, 0, 0, k), machine.operand_b(oy, ox, k, 1)
        return int(add_integer(np.int8(a), np.int8(b), params))

    return formula


def product(machine: Machine, oy: int, ox: int, k: int) -> int:
    s, zero_b = Scale(machine.v), signed(machine.v["B_ZERO", "zero_b"], 8)
    a, b = machine.byte(oy, ox, 0, 0, k) - s.zero_in, machine.operand_b(oy, ox, k, 1) - zero_b
    return s(a * b, s.mult, min(s.shift, 0))


def absolute(machine: Machine, oy: int, ox: int, k: int) -> int:
    s = Scale(machine.v)
    return s.by_out_mult(abs(machine.byte(oy, ox, 0, 0, k) - s.zero_in))


def relu(machine: Machine, oy: int, ox: int, k: int) -> int:
    s = Scale(machine.v)
    return s.by_out_mult(machine.byte(oy, ox, 0, 0, k) - s.zero_in)


def leaky(machine: Machine, oy: int, ox: int, k: int) -> int:
    v = machine.v
    s = Scale(v)
    x = machine.byte(oy, ox, 0, 0, k) - s.zero_in
    return s.by_out_mult(x) if x >= 0 else s(x, v["B_MULT", "mult"], signed(v["SHIFTS", "b"], 6))


def look_up(machine: Machine, oy: int, ox: int, k: int) -> int:
    v = machine.v
    place = machine.byte(oy, ox, 0, 0, k) % 256
    if place >= v["B_BYTES"]:
        return signed(v["B_ZERO", "zero_b"], 8)
    return signed(machine.sram[v["B_ADDR"] + place], 8)


def copy(machine: Machine, oy: int, ox: int, k: int) -> int:
    return machine.byte(oy, ox, 0, 0, k)


def add32(machine: Machine, oy: int, ox: int, k: int) -> int:
    return machine.word(oy, ox, k) + machine.operand_b(oy, ox, k, 4) + Scale(machine.v).bias


def shifted(machine: Machine, oy: int, ox: int, k: int) -> int:
    s = Scale(machine.v)
    value = signed(machine.word(oy, ox, k) + s.bias, 32)
    if s.shift >= 0:
        return value << s.shift
    exact = Fraction(value, 1 << -s.shift)
    if s.rounding == Rounding.ONNX:
        return round(exact)
    return (1 if exact >= 0 else -1) * int(abs(exact) + Fraction(1, 2))


def requantised(machine: Machine, oy: int, ox: int, k: int) -> int:
    s = Scale(machine.v)
    return s.by_out_mult(signed(machine.word(oy, ox, k) + s.bias, 32))


FORMULAS: dict[Op, Callable[[Machine, int, int, int], int]] = {
    Op.POOL: pool,
    Op.E_ADD: combined(VectorOperation.ADD),
    Op.C_MIN: combined(VectorOperation.MINIMUM),
    Op.C_MAX: combined(VectorOperation.MAXIMUM),
    Op.E_MUL: product,
    Op.E_ABS: absolute,
    Op.ACT_RELU: relu,
    Op.ACT_LRELU: leaky,
    Op.ACT_LUT: look_up,
    Op.MOV: copy,
    Op.E32_ADD: add32,
    Op.E32_SHIFT: shifted,
    Op.REQUANT: requantised,
    Op.SOFTMAX: softmax,
    Op.NORM: norm,
    Op.WIDEN: widened,
    Op.NORM16: partial(norm, bits=16),
    Op.NORM16_WIDE: partial(norm, bits=16, wide=True),
}
"""What VECTOR's operations make of an output pixel and channel, one by one."""


def run_dma(machine: Machine, op: Op) -> None:
    config, v = machine.config, machine.v
    bus, size = config.bus_bytes, v["SRAM_BYTES"]
    for plane in range(v["COUNT", "planes"]):
        for row in range(v["COUNT", "rows"]):
            start = (BASE + v["MEM_ADDR"] + plane * v["MEM_PLANE_STEP"] + row * v["MEM_ROW_STEP"]) & M32
            offset = plane * v["SRAM_PLANE_STEP"] + row * v["SRAM_ROW_STEP"]
            for beat in range(start // bus, (start + v["LENGTH"] - 1) // bus + 1):
                lanes = [a for a in range(beat * bus, beat * bus + bus) if start <= a < start + v["LENGTH"]]
                outside = lanes[-1] >= len(machine.memory)
                if outside and op == Op.DMA_READ:
                    return
                places = [(offset + a - start) & M32 for a in lanes]
                inside = all(p < size for p in places)
                for a, p in zip(lanes, places, strict=True):
                    if op == Op.DMA_READ and inside:
                        machine.sram[v["SRAM_ADDR"] + p] = machine.memory[a]
                    if op == Op.DMA_WRITE and not outside:
                        machine.memory[a] = machine.sram[v["SRAM_ADDR"] + p] if inside else 0


RUN: dict[Unit, Callable[[Machine, Op], None]] = {
    Unit.LOAD: run_dma,
    Unit.ARRAY: run_array,
    Unit.VECTOR: run_vector,
    Unit.STORE: run_dma,
}


def compare(seed: int, op: Op, *, memory_bytes: int = BASE + DATA_BYTES, spoil: bool = False) -> None:
    rng = random.Random(seed)
    feature = INSTRUCTIONS[op].feature
    more = {"softmax": {"softmax": 1}, "norm": {"norm": 1}, "norm16": {"norm": 1, "norm_bits": 16}}.get(
        feature or "", {}
    )
    config = random_config(rng, vector=True).replace(**more)
    while op not in operations(config) or config.macs_per_cycle > 300:
        config = random_config(rng, vector=True).replace(**more)
    unit = INSTRUCTIONS[op].unit
    assert unit is not None
    values = legal_registers(rng, config, op)
    if spoil:
        values = strange_registers(rng, config, op, values)
    view = View(unit, [values[name] for name in REGISTERS[unit]])
    sram, memory = Sram(config.sram), np.frombuffer(rng.randbytes(memory_bytes), np.uint8).copy()
    sram.data[:] = np.frombuffer(rng.randbytes(config.sram), np.uint8)
    if unit == Unit.ARRAY and rng.random() < 0.8:
        stream = weight_stream(rng, config, op, values)[: values["W_BYTES"]]
        sram.data[values["W_ADDR"] : values["W_ADDR"] + len(stream)] = np.frombuffer(stream, np.uint8)
    if INSTRUCTIONS[op].passes and rng.random() < 0.8:
        made = softmax_table(rng, values) if op == Op.SOFTMAX else norm_records(rng, config, op, values)
        table = made[: values["B_BYTES"]]
        sram.data[values["B_ADDR"] : values["B_ADDR"] + len(table)] = np.frombuffer(table, np.uint8)
    sram.touch(0, config.sram)
    machine = Machine(config, view, bytearray(sram.data.tobytes()), bytearray(memory.tobytes()))
    UNITS[unit](config).execute(op, view, sram, SystemMemory(memory, BASE))
    RUN[unit](machine, op)
    assert sram.data.tobytes() == machine.sram, (seed, values)
    assert memory.tobytes() == machine.memory, (seed, values)


@pytest.mark.parametrize("seed", [slow(n) if n >= 10 else n for n in range(40)])
@pytest.mark.parametrize("op", [op for op, row in INSTRUCTIONS.items() if row.unit in (Unit.ARRAY, Unit.VECTOR)])
def test_compute_matches_loops(op: Op, seed: int) -> None:
    compare(seed, op)
    compare(seed, op, spoil=True)


@pytest.mark.parametrize("seed", range(40))
@pytest.mark.parametrize("op", [Op.DMA_READ, Op.DMA_WRITE])
def test_dma_matches_loops(op: Op, seed: int) -> None:
    compare(seed, op)
    compare(seed, op, memory_bytes=BASE + DATA_BYTES // 2)  # often leaves memory


def test_wide_sums_stay_exact() -> None:
    """A sum beyond 2^24, and one that wraps around 2^31 with its bias."""
    config = Config(ic_lanes=64, oc_lanes=1)
    model = Model(config)
    model.sram.data[:9216] = 0x80  # -128
    at = config.bank_bytes
    record = ((1 << 31) - 5).to_bytes(4, "little") + bytes(12)
    stream = record.ljust(config.param_rows(1) * config.word_bytes, b"\0") + b"\x81" * 9216  # -127
    model.sram.data[at : at + len(stream)] = np.frombuffer(stream, np.uint8)
    model.sram.touch(0, config.sram)
    values = dict.fromkeys(REGISTERS[Unit.ARRAY], 0) | {
        "IN_BYTES": 9216,
        "IN_ROWS": 1,
        "ROW_BYTES": 9216,
        "GEOMETRY": pack(Unit.ARRAY, "GEOMETRY", kh=1, kw=1, stride_y=1, dilation_y=1),
        "TILE": pack(Unit.ARRAY, "TILE", height=1, width=1),
        "OUT_ADDR": 3 * config.bank_bytes,
        "OUT_BYTES": 4,
        "BLOCKS": pack(Unit.ARRAY, "BLOCKS", count=1, last=1),
        "KC": 144,
        "W_ADDR": at,
        "W_BYTES": len(stream),
        "STRIPE": 1,
        "MODE": pack_some(Unit.ARRAY, "MODE", int32=1),
    }
    view = View(Unit.ARRAY, list(values.values()))
    model.units[Unit.ARRAY].execute(Op.CONV, view, model.sram, SystemMemory(np.zeros(0, np.uint8), 0))
    out = model.sram.data[3 * config.bank_bytes :][:4].view("<i4")
    assert int(out[0]) == signed((1 << 31) - 5 + 9216 * 128 * 127, 32)


def program_memory(words: list[int], data: bytes) -> np.ndarray:
    memory = np.zeros(8192, np.uint8)
    stream = to_bytes(words)
    memory[: len(stream)] = np.frombuffer(stream, np.uint8)
    memory[4096 : 4096 + len(data)] = np.frombuffer(data, np.uint8)
    return memory


def copy_words() -> list[int]:
    """100 bytes from 4096 to SRAM, and on to 5000."""
    words = []
    for unit, address in ((Unit.LOAD, 4096), (Unit.STORE, 5000)):
        words += [
            cfg(unit, "MEM_ADDR", address),
            cfg(unit, "SRAM_BYTES", 100),
            cfg(unit, "LENGTH", 100),
            cfg(unit, "COUNT", pack(unit, "COUNT", rows=1, planes=1)),
        ]
    return [*words, int(Op.DMA_READ), sync(Unit.STORE, Unit.LOAD), int(Op.DMA_WRITE), int(Op.END)]


def test_program_copies() -> None:
    memory = program_memory(copy_words(), bytes(range(100)))
    result = Model(Config()).run(memory, 0, 1)
    assert result.fault is None
    assert result.memory[5000:5100].tobytes() == bytes(range(100))
    assert all(c.busy + c.config + c.token + c.idle == result.cycles for c in result.counters.values())


def test_nothing_is_written_past_a_fault() -> None:
    words = copy_words()
    words.insert(-2, 0xFF)
    memory = program_memory(words, bytes(range(100)))
    result = Model(Config()).run(memory, 0, 1)
    assert result.fault is not None
    assert result.fault.pc == words.index(0xFF)
    assert not result.memory[5000:5100].any()


def test_unit_can_be_replaced() -> None:
    class Inverting(LoadModel):
        def execute(self, op: Op, registers: View, sram: Sram, memory: SystemMemory) -> None:
            super().execute(op, registers, sram, memory)
            address, size = registers.region("SRAM")
            sram.data[address : address + size] ^= 0xFF

    config = Config()
    memory = program_memory(copy_words(), bytes(range(100)))
    Model(config, units={Unit.LOAD: Inverting(config)}).run(memory, 0, 1)
    assert memory[5000:5100].tobytes() == bytes(255 - n for n in range(100))


def test_runs_repeat_and_reset_forgets() -> None:
    config = random_config(random.Random(3), vector=True)
    program = legal_program(random.Random(4), config)
    model = Model(config)
    results = []
    for _ in range(2):
        memory = program.fresh_memory()
        model.run(memory, *program.arguments)
        results.append(memory.tobytes() + model.read_sram().tobytes())
        model.reset()
    assert results[0] == results[1]
    assert not model.read_sram().any()


def test_pages_must_be_positive() -> None:
    with pytest.raises(ValueError, match="pages must be at least 1, not 0"):
        Model(Config()).run(np.zeros(4096, np.uint8), 0, 0)


def test_sram_must_have_its_size() -> None:
    with pytest.raises(ValueError, match="contents must be 262144 bytes, not 3"):
        Model(Config()).write_sram(np.zeros(3, np.uint8))


def test_program_occupies_whole_pages() -> None:
    program = legal_program(random.Random(1), random_config(random.Random(1)))
    assert program.program % PAGE_BYTES == 0
    assert len(program.words) <= program.pages * PAGE_BYTES // 8
