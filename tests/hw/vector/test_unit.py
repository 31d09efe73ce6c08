"""The vector unit in the Amaranth simulator against a byte-by-byte reading of docs/architecture.md."""

from collections.abc import Iterable
from dataclasses import dataclass, field
from fractions import Fraction
from functools import cache
from itertools import product
from math import floor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from amaranth.hdl import Value
from amaranth.sim import Simulator

from dovetail.cosim.rtl.block import Bench as VerilatorBench
from dovetail.hw.common.ports import Span
from dovetail.hw.vector.unit import VectorCore
from dovetail.isa.config.resolved import Config
from dovetail.isa.instructions.checks import View, check, claim, has, regions
from dovetail.isa.instructions.table import INSTRUCTIONS, REGISTERS, Cause, Op, Unit, pack
from dovetail.isa.numerics.add import add_integer, onnx_sum, tflite_sum
from dovetail.isa.numerics.average import average_magic, average_product
from dovetail.isa.numerics.multiplier import encode_multiplier
from dovetail.isa.numerics.requantise import requantise_integer, requantise_wide
from dovetail.isa.numerics.rounding import Rounding
from dovetail.isa.numerics.vector import VectorOperation, VectorParameters
from dovetail.isa.timing.memory import SRAM_READ
from dovetail.isa.timing.sequencer import CHECK
from dovetail.isa.timing.vector import groups_of, rows_at_once, vector_duration
from tests.hw.benches import offer_register
from tests.norm import normed, normed16
from tests.slow import slow
from tests.softmax import shares

Registers = dict[str, int]
WORD = 1 << 32
OPS = [op for op, row in INSTRUCTIONS.items() if row.unit == Unit.VECTOR]


def config_of(lanes: int, **changes: Any) -> Config:
    return Config(
        ic_lanes=8, oc_lanes=8, sram="32 KiB", banks=8, requant_lanes=2, stripe=16, vector_lanes=lanes, **changes
    )


@dataclass
class Run:
    """What one instruction did: the cause shown, claimed banks, what it says that it reads and writes as (start, end),
    cycles from start to end, SRAM afterwards."""

    cause: Cause
    reads: int
    writes: int
    spans: tuple[set[tuple[int, int]], set[tuple[int, int]]]
    duration: int
    memory: bytes = field(repr=False)


def signed(value: int, bits: int = 32) -> int:
    value &= (1 << bits) - 1
    return value - (1 << bits) if value >> bits - 1 else value


# --- oracle ------------------------------------------------------------------------------------------------------


def oracle(config: Config, op: Op, registers: Registers, memory: bytes) -> bytes:
    """SRAM after an instruction that passes its checks: the document, lane by lane."""
    r = dict.fromkeys(REGISTERS[Unit.VECTOR], 0) | registers
    view = View(Unit.VECTOR, list(r.values()))
    quant = {name: signed(view["QUANT", name], 8) for name in ("zero_in", "zero_out", "lo", "hi")}
    zero_b = signed(view["B_ZERO", "zero_b"], 8)
    shift = {name: signed(view["SHIFTS", name], 6) for name in ("a", "b", "out")}
    rounding = Rounding(view["MODE", "rounding"])
    blocks, last = view["BLOCKS", "count"], view["BLOCKS", "last"]
    after = bytearray(memory)

    item = INSTRUCTIONS[op].input_bytes
    result_bytes = INSTRUCTIONS[op].output_bytes
    wrap = 2 << (config.sram - 1).bit_length()  # twice the SRAM, as a power of two

    def load(region: str, offset: int, absent: int) -> int:
        if offset + item > r[f"{region}_BYTES"]:
            return absent
        start = r[f"{region}_ADDR"] + offset
        return int.from_bytes(memory[start : start + item], "little", signed=True)

    def operand_a(oy: int, ox: int, ky: int, kx: int, c: int) -> int:
        row = oy * view["GEOMETRY", "stride_y"] + ky * view["GEOMETRY", "dilation_y"] - r["PAD_TOP"]
        col = ox * r["X_STEP"] + kx * r["KX_STEP"] - r["PAD_LEFT"] + c * item
        off = r["ORIGIN"] + oy * r["Y_STEP"] + ox * r["X_STEP"] + ky * r["KY_STEP"] + kx * r["KX_STEP"] + c * item
        absent = 0 if INSTRUCTIONS[op].int32_input else quant["zero_in"]
        inside = row % wrap < r["IN_ROWS"] % wrap and col % wrap < r["ROW_BYTES"] % wrap
        return load("IN", off % wrap, absent) if inside else absent

    def operand_b(oy: int, ox: int, c: int) -> int:
        off = (oy * r["B_Y_STEP"] + ox * r["B_X_STEP"] + c * item) % wrap
        return load("B", off, 0 if INSTRUCTIONS[op].int32_input else zero_b)

    def clamp(value: int) -> int:
        return max(min(value, quant["hi"]), quant["lo"])

    def requantise(value: int, mult: int, shift: int) -> int:
        return int(requantise_integer(value, mult, shift, rounding, quant["zero_out"], quant["lo"], quant["hi"]))

    def combine(a: int, b: int, how: VectorOperation) -> int:
        params = VectorParameters(
            rounding=rounding,
            za=quant["zero_in"],
            zb=zero_b,
            zy=quant["zero_out"],
            mult_a=r["A_MULT"],
            shift_a=shift["a"],
            mult_b=r["B_MULT"],
            shift_b=shift["b"],
            mult_out=r["OUT_MULT"],
            shift_out=shift["out"],
            lo=quant["lo"],
            hi=quant["hi"],
            operation=how,
        )
        return int(add_integer(a, b, params))

    def pool(oy: int, ox: int, c: int) -> int:
        taps = [
            operand_a(oy, ox, ky, kx, c) for ky in range(view["GEOMETRY", "kh"]) for kx in range(view["GEOMETRY", "kw"])
        ]
        if not view["MODE", "average"]:
            return clamp(max(taps))
        total = signed(r["SUM_BIAS"] + sum(taps))
        if view["MODE", "requantise"]:
            return requantise(total, r["OUT_MULT"], shift["out"])
        pool_shift = signed(view["POOL_SHIFT", "shift"], 6)
        quotient = average_product(total, r["POOL_COUNT"], r["POOL_MAGIC"], pool_shift, rounding)
        return clamp(int(quotient) + quant["zero_out"])

    @cache
    def softmax(oy: int, ox: int) -> list[int]:
        n = (blocks - 1) * config.vector_lanes + last
        valid = (view["POOL_COUNT", "count"] + oy * r["B_Y_STEP"] + ox * r["B_X_STEP"]) % (1 << 16)
        table = bytes(load("B", i, zero_b) & 0xFF for i in range(1024))
        return shares(
            [operand_a(oy, ox, 0, 0, c) for c in range(n)],
            [int.from_bytes(table[i : i + 4], "little") for i in range(0, 1024, 4)],
            onnx=rounding == Rounding.ONNX,
            counts=[i < valid for i in range(n)],
            levels=view["OUT_MULT", "mult"],
            zero=quant["zero_out"],
        )

    @cache
    def norm(oy: int, ox: int) -> list[int]:
        n, lanes = (blocks - 1) * config.vector_lanes + last, config.vector_lanes

        def word(number: int, c: int) -> int:
            offset = 4 * (2 * lanes * (c // lanes) + number * lanes + c % lanes)
            place = r["B_ADDR"] + offset
            return int.from_bytes(memory[place : place + 4], "little") if offset + 4 <= r["B_BYTES"] else 0

        row, records = [operand_a(oy, ox, 0, 0, c) for c in range(n)], [(word(0, c), word(1, c)) for c in range(n)]
        epsilon = r["SUM_BIAS"] % WORD | r["B_MULT"] % (1 << 24) << 32
        rest: dict[str, Any] = quant | {"epsilon": epsilon, "rms": not view["MODE", "subtract"]}
        if op == Op.NORM:
            return normed(row, records, **rest)
        return normed16(row, records, wide=op == Op.NORM16_WIDE, **rest)

    def value(oy: int, ox: int, c: int) -> int:
        if op == Op.POOL:
            return pool(oy, ox, c)
        a = operand_a(oy, ox, 0, 0, c)
        b = operand_b(oy, ox, c) if INSTRUCTIONS[op].two_operands else 0
        difference = a - quant["zero_in"]
        biased = signed(a + r["SUM_BIAS"])
        match op:
            case Op.E_ADD:
                return combine(a, b, VectorOperation.SUBTRACT if view["MODE", "subtract"] else VectorOperation.ADD)
            case Op.C_MIN:
                return combine(a, b, VectorOperation.MINIMUM)
            case Op.C_MAX:
                return combine(a, b, VectorOperation.MAXIMUM)
            case Op.E_MUL:
                return requantise(difference * (b - zero_b), r["OUT_MULT"], min(shift["out"], 0))
            case Op.E_ABS:
                return requantise(abs(difference), r["OUT_MULT"], shift["out"])
            case Op.ACT_LRELU if difference < 0:
                return requantise(difference, r["B_MULT"], shift["b"])
            case Op.ACT_RELU | Op.ACT_LRELU:
                return requantise(difference, r["OUT_MULT"], shift["out"])
            case Op.ACT_LUT:
                return load("B", a % 256, zero_b)
            case Op.MOV:
                return a
            case Op.E32_ADD:
                return signed(biased + b)
            case Op.E32_SHIFT:
                if shift["out"] >= 0:
                    return signed(biased << shift["out"])
                exact = Fraction(biased, 1 << -shift["out"])
                if rounding == Rounding.ONNX:
                    return round(exact)  # ties to even
                return floor(abs(exact) + Fraction(1, 2)) * (1 if exact > 0 else -1)
            case Op.SOFTMAX:
                return softmax(oy, ox)[c]
            case Op.NORM | Op.NORM16 | Op.NORM16_WIDE:
                return norm(oy, ox)[c]
            case Op.WIDEN:
                return int(requantise_wide(difference, r["OUT_MULT"], shift["out"], rounding))
            case Op.REQUANT:
                return requantise(biased, r["OUT_MULT"], shift["out"])
        raise AssertionError(op)

    def store(oy: int, ox: int, block: int) -> None:
        channels = last if block == blocks - 1 else config.vector_lanes
        first = block * config.vector_lanes
        off = (oy * r["OUT_Y_STEP"] + ox * r["OUT_X_STEP"] + first * result_bytes) % wrap
        if off + channels * result_bytes <= r["OUT_BYTES"]:
            for c in range(channels):
                place = r["OUT_ADDR"] + off + c * result_bytes
                result = value(oy, ox, first + c).to_bytes(result_bytes, "little", signed=True)
                after[place : place + result_bytes] = result

    width, together = view["TILE", "width"], rows_at_once(config, op)
    for oy in range(view["TILE", "height"]):
        for group in range(0, width, together):
            for block in range(blocks):
                for ox in range(group, min(group + together, width)):
                    store(oy, ox, block)
    return bytes(after)


# --- bench -------------------------------------------------------------------------------------------------------


class Bench:
    """A simulated unit with its SRAM. Runs instructions one after the other; SRAM and registers are kept between
    them, and a failed check does not stop the bench. Registers not named are zero.

    Reads give noise for everything outside the claimed banks; a write outside them is an error.
    """

    def __init__(self, config: Config) -> None:
        self.config = config
        self.dut = VectorCore(config)
        self.simulator = Simulator(self.dut)
        self.simulator.add_clock(1e-8)
        self.simulator.add_testbench(self._bench)
        self.fresh = True

    def run(self, jobs: Iterable[tuple[Op, Registers]], memory: bytes) -> list[Run]:
        self.jobs = jobs
        self.sram = bytearray(memory)
        self.rng = np.random.default_rng(1)
        self.claims = (0, 0)
        self.flying = [bytes(self.config.word_bytes)] * SRAM_READ
        self.results: list[Run] = []
        self.simulate()
        return self.results

    def simulate(self) -> None:
        if not self.fresh:
            self.simulator.reset()
        self.fresh = False
        self.simulator.run()

    def _claimed(self, port: int, address: int) -> bool:
        return bool(self.claims[port] >> address // self.config.bank_bytes & 1)

    async def _tick(self, ctx: Any) -> None:
        """To the next cycle, and the SRAM's part of it."""
        await ctx.tick()
        dut, word_bytes = self.dut, self.config.word_bytes
        word = self.rng.bytes(word_bytes)
        if ctx.get(dut.input.en):
            address = ctx.get(dut.input.addr)
            mask = (1 << len(dut.input.addr)) - 1
            places = [address + n & mask for n in range(word_bytes)]
            assert any(self._claimed(0, at) for at in places), "a read must touch a claimed bank"
            word = bytes(self.sram[at] if self._claimed(0, at) else w for at, w in zip(places, word, strict=True))
        self.flying.append(word)
        ctx.set(dut.input.data, int.from_bytes(self.flying.pop(0), "little"))
        if ctx.get(dut.output.en):
            address, size = ctx.get(dut.output.addr), ctx.get(dut.output.size)
            assert 0 < size <= word_bytes
            assert all(self._claimed(1, address + n) for n in range(size)), "a write must stay in claimed banks"
            self.sram[address : address + size] = ctx.get(dut.output.data).to_bytes(word_bytes, "little")[:size]

    def _quiet(self, ctx: Any) -> bool:
        return not (ctx.get(self.dut.core.done) or ctx.get(self.dut.input.en) or ctx.get(self.dut.output.en))

    async def _bench(self, ctx: Any) -> None:
        core = self.dut.core
        held = dict.fromkeys(REGISTERS[Unit.VECTOR], 0)
        for op, registers in self.jobs:
            for name, register in REGISTERS[Unit.VECTOR].items():
                value = registers.get(name, 0)
                if held[name] != value:
                    held[name] = value
                    offer_register(ctx, core.cfg, register.index, value)
                    await self._tick(ctx)
            ctx.set(core.cfg.en, 0)
            self.results.append(await self._execute(ctx, op))
        ctx.set(core.cfg.clear, 1)
        await self._tick(ctx)
        ctx.set(core.cfg.clear, 0)
        if self.jobs:
            assert (await self._execute(ctx, Op.MOV)).cause == Cause.ZERO_SIZE

    def _spans(self, ctx: Any) -> tuple[set[tuple[int, int]], set[tuple[int, int]]]:
        """(start, end) of what the operation reads, and of what it writes."""
        core = self.dut.core
        layout = Span(self.config)
        read, written = (
            {(span.start, span.end) for span in shown if span.valid}
            for shown in (
                [layout.from_bits(ctx.get(view.as_value())) for view in views]
                for views in (core.sources, [core.target])
            )
        )
        return read, written

    async def _execute(self, ctx: Any, op: Op) -> Run:
        core = self.dut.core
        assert self._quiet(ctx)
        ctx.set(core.start, 1)
        ctx.set(core.op, int(op))
        await self._tick(ctx)
        ctx.set(core.start, 0)
        ctx.set(core.op, 0)
        for _ in range(CHECK - 2):
            await self._tick(ctx)
        spans = self._spans(ctx)
        await self._tick(ctx)
        assert self._spans(ctx) == spans
        cause, duration = Cause(ctx.get(core.cause)), CHECK
        if cause:
            for _ in range(8):
                await self._tick(ctx)
                assert self._quiet(ctx)
            return Run(cause, 0, 0, spans, duration, bytes(self.sram))
        self.claims = reads, writes = ctx.get(core.reads), ctx.get(core.writes)
        ctx.set(core.go, 1)
        while not ctx.get(core.done):
            await self._tick(ctx)
            ctx.set(core.go, 0)
            duration += 1
            assert duration < 100_000
        assert not ctx.get(core.error)
        assert self._spans(ctx) == spans
        await self._tick(ctx)
        self.claims = (0, 0)
        return Run(cause, reads, writes, spans, duration, bytes(self.sram))


@cache
def bench_of(config: Config) -> Bench:
    """Compiling a simulation takes longer than most runs of it."""
    return Bench(config)


def verify(
    config: Config,
    jobs: list[tuple[Op, Registers]],
    seed: int = 0,
    bench: Bench | None = None,
    memory: bytes | None = None,
) -> list[Run]:
    """Run the jobs and compare causes, claims, durations and every byte of SRAM, at first noise."""
    memory = memory or np.random.default_rng(seed).bytes(config.sram)
    results = (bench or bench_of(config)).run(jobs, memory)
    for (op, registers), result in zip(jobs, results, strict=True):
        values = dict.fromkeys(REGISTERS[Unit.VECTOR], 0) | registers
        view = View(Unit.VECTOR, list(values.values()))
        cause = check(config, op, view)
        claims = claim(config, op, view) if not cause else None
        assert result.cause == (Cause.BANK_CONFLICT if claims and claims.twice else cause), (op, registers)
        if claims is None or claims.twice:
            assert result.memory == memory
            continue
        assert (result.reads, result.writes) == (claims.reads, claims.writes)
        spaces = regions(op, view)
        assert result.spans == tuple({(at, at + size) for at, size in space} for space in (spaces.reads, spaces.writes))
        taps = view["GEOMETRY", "kh"] * view["GEOMETRY", "kw"]
        assert result.duration == vector_duration(
            config,
            op,
            groups=groups_of(config, op, view),
            blocks=view["BLOCKS", "count"],
            reads=taps if op == Op.POOL else 2 if INSTRUCTIONS[op].two_operands else 1,
            rounding=view["MODE", "rounding"],
        )
        memory = oracle(config, op, registers, memory)
        assert result.memory == memory, (op, registers)
    return results


# --- instructions ------------------------------------------------------------------------------------------------


def vec(name: str, **values: int) -> int:
    return pack(Unit.VECTOR, name, **values)


def blocks_of(config: Config, channels: int) -> int:
    count = -(-channels // config.vector_lanes)
    return vec("BLOCKS", count=count, last=channels - (count - 1) * config.vector_lanes)


def pool(
    config: Config,
    *,
    height: int = 4,
    width: int = 5,
    channels: int = 3,
    kernel: tuple[int, int] = (3, 3),
    stride: tuple[int, int] = (1, 1),
    pad: tuple[int, int] = (0, 0),
    out: tuple[int, int] | None = None,
    dilation: tuple[int, int] = (1, 1),
    **registers: int,
) -> Registers:
    """A pooling of a dense NHWC tensor at 100 to one at 20 KiB."""
    reach = [(k - 1) * d + 1 for k, d in zip(kernel, dilation, strict=True)]
    rows, columns = out or (
        (height + 2 * pad[0] - reach[0]) // stride[0] + 1,
        (width + 2 * pad[1] - reach[1]) // stride[1] + 1,
    )
    pitch = width * channels
    return {
        "IN_ADDR": 100,
        "IN_BYTES": height * pitch,
        "ORIGIN": (-pad[0] * pitch - pad[1] * channels) % WORD,
        "Y_STEP": stride[0] * pitch,
        "X_STEP": stride[1] * channels,
        "KY_STEP": dilation[0] * pitch,
        "KX_STEP": dilation[1] * channels,
        "IN_ROWS": height,
        "ROW_BYTES": pitch,
        "PAD_TOP": pad[0],
        "PAD_LEFT": pad[1] * channels,
        "GEOMETRY": vec("GEOMETRY", kh=kernel[0], kw=kernel[1], stride_y=stride[0], dilation_y=dilation[0]),
        "TILE": vec("TILE", height=rows, width=columns),
        "QUANT": vec("QUANT", zero_in=-128, zero_out=0, lo=-128, hi=127),
        "OUT_ADDR": 20 << 10,
        "OUT_BYTES": rows * columns * channels,
        "OUT_Y_STEP": columns * channels,
        "OUT_X_STEP": channels,
        "BLOCKS": blocks_of(config, channels),
    } | registers


def average(taps: int, rounding: Rounding, zero_point: int = 0, **quant: int) -> Registers:
    mult, shift = average_magic(taps, 255 * taps)
    quant = {"zero_in": zero_point, "zero_out": zero_point, "lo": -128, "hi": 127} | quant
    return {
        "MODE": vec("MODE", rounding=int(rounding), average=1, requantise=0, subtract=0),
        "QUANT": vec("QUANT", **quant),
        "SUM_BIAS": -zero_point * taps % WORD,
        "POOL_COUNT": taps,
        "POOL_MAGIC": mult,
        "POOL_SHIFT": vec("POOL_SHIFT", shift=shift),
    }


def addition(config: Config, elements: int, params: VectorParameters, **registers: int) -> Registers:
    """A flat element-wise addition."""
    return {
        "IN_ADDR": 77,
        "IN_BYTES": elements,
        "IN_ROWS": 1,
        "ROW_BYTES": elements,
        "GEOMETRY": vec("GEOMETRY", kh=1, kw=1, stride_y=1, dilation_y=1),
        "TILE": vec("TILE", height=1, width=1),
        "QUANT": vec("QUANT", zero_in=params.za, zero_out=params.zy, lo=params.lo, hi=params.hi),
        "OUT_ADDR": 24 << 10,
        "OUT_BYTES": elements,
        "BLOCKS": blocks_of(config, elements),
        "MODE": vec("MODE", rounding=int(params.rounding), average=0, requantise=0, subtract=0),
        "B_ADDR": 5000,
        "B_BYTES": elements,
        "B_ZERO": vec("B_ZERO", zero_b=params.zb),
        "A_MULT": params.mult_a,
        "B_MULT": params.mult_b,
        "OUT_MULT": params.mult_out,
        "SHIFTS": vec("SHIFTS", a=params.shift_a, b=params.shift_b, out=params.shift_out),
    } | registers


def add_params(rounding: Rounding) -> VectorParameters:
    make = tflite_sum if rounding == Rounding.TFLITE else onnx_sum
    return make(0.021, 3, 0.034, -7, 0.041, 5)


def scaling(rounding: Rounding, out: float, below: float = 0.0, **mode: int) -> Registers:
    """Rounding, multiplier of the result and another for what is below zero."""
    (mult, shift), (mult_b, shift_b) = (
        (int(v) for v in encode_multiplier(np.float32(real), rounding)) for real in (out, below)
    )
    flags = {"average": 0, "requantise": 0, "subtract": 0} | mode
    return {
        "MODE": vec("MODE", rounding=int(rounding), **flags),
        "OUT_MULT": mult,
        "B_MULT": mult_b,
        "SHIFTS": vec("SHIFTS", a=0, b=shift_b, out=shift),
    }


def rows(config: Config, op: Op, **registers: int) -> Registers:
    """Registers of an element-wise operation on 3 x 2 pixels of 7 channels with gaps on every side, padding on top and
    to the left, operand B repeated along the columns, regions that end early."""
    item, result = INSTRUCTIONS[op].input_bytes, INSTRUCTIONS[op].output_bytes
    return {
        "IN_ADDR": 1234,
        "IN_BYTES": 61 * item + 1,
        "ORIGIN": (-29 - 8) * item % WORD,
        "Y_STEP": 29 * item,
        "X_STEP": 11 * item,
        "IN_ROWS": 2,
        "ROW_BYTES": 19 * item,
        "PAD_TOP": 1,
        "PAD_LEFT": 8 * item,
        "GEOMETRY": vec("GEOMETRY", kh=5, kw=7, stride_y=1, dilation_y=3),
        "TILE": vec("TILE", height=3, width=2),
        "QUANT": vec("QUANT", zero_in=3, zero_out=-5, lo=-120, hi=119),
        "OUT_ADDR": 10_001,
        "OUT_BYTES": 70 * result - 1,
        "OUT_Y_STEP": 25 * result,
        "OUT_X_STEP": 9 * result,
        "BLOCKS": blocks_of(config, 7),
        "B_ADDR": 20_003,
        "B_BYTES": 256 if op == Op.ACT_LUT else 28 * item + 2,
        "B_Y_STEP": 13 * item,
        "B_ZERO": vec("B_ZERO", zero_b=-9),
    } | registers


# --- tests -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("lanes", [1, 3, 4])
def test_pooling(lanes: int) -> None:
    config = config_of(lanes)
    jobs = [
        (Op.POOL, pool(config)),
        (Op.POOL, pool(config, kernel=(2, 2), stride=(2, 2), channels=lanes)),
        (Op.POOL, pool(config, kernel=(3, 2), stride=(2, 1), pad=(1, 1), channels=5, height=5)),
        (
            Op.POOL,
            pool(
                config,
                kernel=(2, 2),
                dilation=(2, 3),
                channels=2,
                QUANT=vec("QUANT", zero_in=9, zero_out=99, lo=-20, hi=30),
            ),
        ),
        (Op.POOL, pool(config, kernel=(2, 3)) | average(6, Rounding.TFLITE, 5)),
        (Op.POOL, pool(config, kernel=(2, 3)) | average(6, Rounding.ONNX, -11, lo=-9)),
        (Op.POOL, pool(config, kernel=(4, 5), channels=7) | average(20, Rounding.ONNX)),
        (Op.POOL, pool(config, kernel=(3, 3), pad=(1, 1), out=(2, 3)) | average(9, Rounding.TFLITE)),
    ]
    verify(config, jobs)


@pytest.mark.parametrize("rounding", list(Rounding))
def test_average_rounds_ties(rounding: Rounding) -> None:
    """Every sum of two small taps: x.5 in both signs."""
    config = config_of(4)
    memory = bytearray(config.sram)
    memory[:16] = [v & 0xFF for v in (1, 0, -1, 0, 2, 1, -2, -1, 3, 2, -3, -2, 127, 126, -128, -127)]
    registers = pool(config, height=1, width=2, channels=1, kernel=(1, 2), out=(1, 8)) | average(2, rounding)
    registers |= {"IN_ADDR": 0, "IN_BYTES": 16, "ROW_BYTES": 16, "X_STEP": 2}
    (result,) = bench_of(config).run([(Op.POOL, registers)], bytes(memory))
    got = [signed(v, 8) for v in result.memory[20 << 10 : (20 << 10) + 8]]
    away = [1, -1, 2, -2, 3, -3, 127, -128]
    even = [0, 0, 2, -2, 2, -2, 126, -128]
    assert got == (away if rounding == Rounding.TFLITE else even)


@pytest.mark.parametrize("rounding", list(Rounding))
def test_average_with_requantisation(rounding: Rounding) -> None:
    config = config_of(4)
    mult, shift = encode_multiplier(np.float32(0.0437), rounding)
    changes = {
        "MODE": vec("MODE", rounding=int(rounding), average=1, requantise=1, subtract=0),
        "QUANT": vec("QUANT", zero_in=0, zero_out=-4, lo=-100, hi=100),
        "SUM_BIAS": -1000 % WORD,
        "OUT_MULT": int(mult),
        "SHIFTS": vec("SHIFTS", a=0, b=0, out=int(shift)),
    }
    results = verify(config, [(Op.POOL, pool(config, channels=6) | changes)])
    assert len(set(results[0].memory[20 << 10 : (20 << 10) + 36])) > 10


@pytest.mark.parametrize("lanes", [1, 3, 4])
@pytest.mark.parametrize("rounding", list(Rounding))
def test_addition(lanes: int, rounding: Rounding) -> None:
    config = config_of(lanes)
    params = add_params(rounding)
    jobs = [
        (Op.E_ADD, addition(config, 67, params)),
        (Op.E_ADD, addition(config, 1, params)),
        # Rows with gaps on every side, operand B's region ends early.
        (
            Op.E_ADD,
            addition(config, 9, params)
            | {
                "TILE": vec("TILE", height=3, width=2),
                "GEOMETRY": vec("GEOMETRY", kh=5, kw=7, stride_y=1, dilation_y=3),
                "IN_ROWS": 3,
                "IN_BYTES": 80,
                "Y_STEP": 23,
                "X_STEP": 10,
                "ROW_BYTES": 18,
                "B_Y_STEP": 40,
                "B_X_STEP": 15,
                "B_BYTES": 100,
                "OUT_Y_STEP": 30,
                "OUT_X_STEP": 11,
                "OUT_BYTES": 100,
            },
        ),
    ]
    verify(config, jobs)


@pytest.mark.parametrize("rounding", list(Rounding))
@pytest.mark.parametrize("more", [{}, {"norm": 1, "norm_bits": 16}], ids=["8 bits", "16 bits"])
def test_rescaled_operands(rounding: Rounding, more: dict[str, int]) -> None:
    """Multipliers as networks have them: results take many values."""
    config = config_of(3, **more)
    params = add_params(rounding)
    sums = {name: addition(config, 7, params)[name] for name in ("A_MULT", "B_MULT", "OUT_MULT", "SHIFTS", "QUANT")}
    jobs = [
        (
            op,
            rows(config, op)
            | sums
            | {"MODE": vec("MODE", rounding=int(rounding), average=1, requantise=0, subtract=n)},
        )
        for op in (Op.E_ADD, Op.C_MIN, Op.C_MAX)
        for n in (0, 1)
    ]
    jobs += [
        (op, rows(config, op) | scaling(rounding, out, below))
        for op, out, below in (
            (Op.E_MUL, 0.011, 0.5),
            (Op.E_ABS, 0.83, 0.1),
            (Op.E_ABS, 1.9, 0.1),
            (Op.ACT_RELU, 0.77, 0.1),
            (Op.ACT_LRELU, 1.7, 0.3),
            (Op.ACT_LRELU, 0.3, 2.1),
            (Op.REQUANT, 2.0**-26, 0.1),
        )
    ]
    for (op, registers), result in zip(jobs, verify(config, jobs), strict=True):
        start = registers["OUT_ADDR"]
        assert len(set(result.memory[start : start + 60])) > 20, op


@pytest.mark.parametrize("rounding", list(Rounding))
@pytest.mark.parametrize("real", [1.5, 77.7, 128.5, 12345.5 / 101, 12346.5 / 101, 3.0e4])
def test_every_byte_to_16_bits(rounding: Rounding, real: float) -> None:
    """Ties, also such as the product's rounding to 24 bits makes, and what saturates."""
    config = config_of(4, norm=1, norm_bits=16)
    registers = addition(config, 256, add_params(rounding), OUT_BYTES=1024) | scaling(rounding, real)
    registers |= {"QUANT": vec("QUANT", zero_in=-7, zero_out=9, lo=-3, hi=5), "B_BYTES": 1, "B_ADDR": 0}
    memory = bytearray(config.sram)
    memory[registers["IN_ADDR"] : registers["IN_ADDR"] + 256] = bytes(range(256))
    (result,) = verify(config, [(Op.WIDEN, registers)], memory=bytes(memory))
    made = np.frombuffer(result.memory[registers["OUT_ADDR"] :][:1024], "<i4")
    exact = (np.arange(256, dtype=np.uint8).view(np.int8).astype(int) + 7) * float(np.float32(real))
    assert np.abs(made - np.clip(exact, -32768, 32767)).max() < 0.5 + 2**-9


@pytest.mark.parametrize("lanes", [1, 3, 4])
def test_copies_and_sums(lanes: int) -> None:
    config = config_of(lanes)
    jobs = [(op, rows(config, op, SUM_BIAS=bias)) for op in (Op.MOV, Op.E32_ADD) for bias in (0, WORD - 1, 12345678)]
    jobs += [
        (op, rows(config, op, IN_BYTES=size, B_BYTES=size)) for op in (Op.E32_ADD, Op.REQUANT) for size in (1, 3, 4)
    ]
    verify(config, jobs)


@pytest.mark.parametrize("lanes", [1, 3, 4])
def test_tables(lanes: int) -> None:
    config = config_of(lanes)
    jobs = [
        (Op.ACT_LUT, rows(config, Op.ACT_LUT, B_BYTES=size, B_ADDR=20_000 + size)) for size in (256, 1, 77, 255, 999)
    ]
    # Every byte once.
    every = addition(config, 256, add_params(Rounding.TFLITE))
    memory = bytearray(np.random.default_rng(5).bytes(config.sram))
    memory[every["IN_ADDR"] : every["IN_ADDR"] + 256] = bytes(range(256))
    (result,) = bench_of(config).run([(Op.ACT_LUT, every)], bytes(memory))
    assert result.memory[every["OUT_ADDR"] :][:256] == memory[every["B_ADDR"] :][:256]
    verify(config, jobs)


@pytest.mark.parametrize("rounding", list(Rounding))
def test_shifts(rounding: Rounding) -> None:
    """All counts, of values that make ties, that round up past the sign, and of both ends of int32."""
    config = config_of(4)
    values = [
        0,
        1,
        -1,
        2,
        -2,
        3,
        -3,
        5,
        -5,
        6,
        -6,
        2**30,
        -(2**30),
        3 << 29,
        2**31 - 1,
        -(2**31),
        1 - 2**31,
        0x1234_5678,
    ]
    memory = bytearray(config.sram)
    jobs = []
    for shift in range(-32, 32):
        registers = addition(config, len(values), add_params(rounding))
        sizes = {name: 4 * len(values) for name in ("IN_BYTES", "ROW_BYTES", "OUT_BYTES")}
        jobs.append((Op.E32_SHIFT, registers | sizes | {"SHIFTS": vec("SHIFTS", a=0, b=0, out=shift)}))
    start = jobs[0][1]["IN_ADDR"]
    memory[start : start + 4 * len(values)] = b"".join(v.to_bytes(4, "little", signed=True) for v in values)
    verify(config, jobs, memory=bytes(memory))


def test_results_of_either_path_follow_each_other() -> None:
    """Scaled results are longer on their way than direct ones; nothing of one operation reaches the next."""
    config = config_of(3)
    registers = rows(config, Op.E32_ADD) | scaling(Rounding.TFLITE, 0.5, 0.25)
    ops = [Op.MOV, Op.ACT_RELU, Op.ACT_LUT, Op.ACT_LUT, Op.E_MUL, Op.E32_ADD, Op.POOL, Op.E32_SHIFT, Op.REQUANT, Op.MOV]
    verify(config, [(op, registers) for op in ops * 2])


def test_one_read_of_each_kind_ends_at_once() -> None:
    """Shortest instructions back to back: the registers are taken anew each time."""
    config = config_of(4)
    one = pool(config, height=1, width=1, channels=4, kernel=(1, 1))
    verify(config, [(Op.POOL, one), (Op.POOL, one | {"OUT_ADDR": 0x5100}), (Op.POOL, one | {"BLOCKS": 1 << 16 | 1})])


def test_lanes_that_begin_below_the_region() -> None:
    """Only upper lanes count: the read begins before the region, or before the SRAM."""
    for lanes in (3, 4):
        config = config_of(lanes)
        registers = pool(config, height=2, width=6, channels=1, kernel=(1, 1), out=(2, 3))
        jobs = []
        for back in range(1, lanes + 1):
            start = {"ORIGIN": -back % WORD, "PAD_LEFT": back, "BLOCKS": vec("BLOCKS", count=2, last=lanes)}
            for address in (0, 100):
                jobs.append(
                    (Op.POOL, registers | start | {"IN_ADDR": address, "OUT_X_STEP": 2 * lanes, "OUT_BYTES": 90})
                )
        verify(config, jobs)


def test_memory_that_is_not_a_power_of_two() -> None:
    config = Config(ic_lanes=8, oc_lanes=8, sram=5 << 13, banks=5, requant_lanes=2, vector_lanes=4)
    registers = pool(config, channels=6, pad=(1, 1), IN_ADDR=0, OUT_ADDR=(5 << 13) - 200, OUT_BYTES=200)
    verify(config, [(Op.POOL, registers), (Op.POOL, registers | {"OUT_BYTES": 201})])


def test_writes_not_wholly_inside_are_dropped() -> None:
    config = config_of(4)
    registers = pool(config, height=1, width=4, channels=6, kernel=(1, 1))
    jobs = [(Op.POOL, registers | {"OUT_BYTES": size}) for size in (1, 3, 4, 5, 6, 9, 10, 11, 12, 23)]
    jobs += [(Op.POOL, registers | {"OUT_X_STEP": step % WORD}) for step in (-1, -2, -8, 1 << 31)]
    verify(config, jobs)


FAULTS = [
    ({"IN_BYTES": 0}, Cause.ZERO_SIZE),
    ({"OUT_BYTES": 0}, Cause.ZERO_SIZE),
    ({"GEOMETRY": 0x0101_0100}, Cause.ZERO_SIZE),
    ({"GEOMETRY": 0x0101_0001}, Cause.ZERO_SIZE),
    ({"GEOMETRY": 0x0000_0101}, Cause.NONE),
    ({"TILE": 0x0001_0000}, Cause.ZERO_SIZE),
    ({"TILE": 0x0000_0001}, Cause.ZERO_SIZE),
    ({"BLOCKS": 0x0001_0000}, Cause.ZERO_SIZE),
    ({"BLOCKS": 0x0000_0001}, Cause.ZERO_SIZE),
    ({"BLOCKS": 0x0004_0001}, Cause.NONE),
    ({"BLOCKS": 0x0005_0001}, Cause.TOO_LARGE),
    ({"BLOCKS": 0x00FF_0000}, Cause.ZERO_SIZE),
    ({"IN_ADDR": 32 << 10, "IN_BYTES": 1}, Cause.SRAM_RANGE),
    ({"IN_ADDR": (32 << 10) - 1, "IN_BYTES": 1}, Cause.NONE),
    ({"IN_ADDR": (32 << 10) - 1, "IN_BYTES": 2}, Cause.SRAM_RANGE),
    ({"IN_ADDR": WORD - 1, "IN_BYTES": 2}, Cause.SRAM_RANGE),
    ({"IN_BYTES": WORD - 1}, Cause.SRAM_RANGE),
    ({"OUT_ADDR": (32 << 10) - 11, "OUT_BYTES": 12}, Cause.SRAM_RANGE),
    ({"OUT_ADDR": (32 << 10) - 12, "OUT_BYTES": 12}, Cause.NONE),
    ({"OUT_BYTES": 33 << 10, "BLOCKS": 0x0005_0001}, Cause.TOO_LARGE),
    ({"OUT_BYTES": 33 << 10, "BLOCKS": 0x0005_0000}, Cause.ZERO_SIZE),
]
B_FAULTS: list[tuple[Registers, Cause]] = [
    ({"B_BYTES": 0}, Cause.ZERO_SIZE),
    ({"B_ADDR": (32 << 10) - 4, "B_BYTES": 5}, Cause.SRAM_RANGE),
]


def test_faults() -> None:
    config = config_of(4)
    small = pool(config, height=1, width=1, channels=4, kernel=(1, 1))
    both = addition(config, 4, add_params(Rounding.TFLITE))
    cases = [(Op.POOL, small | change, cause) for change, cause in FAULTS]
    cases += [(op, both | change, cause) for op in (Op.E_ADD, Op.ACT_LUT) for change, cause in FAULTS + B_FAULTS]
    cases += [(op, small | change, Cause.NONE) for op in (Op.POOL, Op.MOV, Op.E_ABS) for change, _ in B_FAULTS]
    divided, requantised = (vec("MODE", rounding=0, average=1, requantise=n, subtract=0) for n in (0, 1))
    cases += [
        (Op.POOL, small | {"MODE": divided}, Cause.ZERO_SIZE),
        (Op.POOL, small | {"MODE": requantised}, Cause.NONE),
        (Op.E_ADD, both | {"MODE": divided}, Cause.NONE),
    ]
    results = verify(config, [(op, registers) for op, registers, _ in cases])
    assert [r.cause for r in results] == [cause for _, _, cause in cases]


def test_borders_of_regions() -> None:
    """A region may end where the SRAM or another region does; what an operation does not read may be anywhere."""
    config = config_of(4)
    regs = addition(config, 4, add_params(Rounding.TFLITE))
    places = {name: (regs[f"{name}_ADDR"], regs[f"{name}_BYTES"]) for name in ("IN", "B", "OUT")}
    behind, before = sum(places["IN"]), places["OUT"][0] - places["B"][1]
    cases: list[tuple[Op, Registers, Cause]] = [
        *((Op.E_ADD, {f"{name}_ADDR": config.sram - size}, Cause.NONE) for name, (_, size) in places.items()),
        (Op.E_ADD, {"OUT_ADDR": behind, "B_ADDR": behind + places["OUT"][1]}, Cause.NONE),
        (Op.E_ADD, {"OUT_ADDR": behind - 1}, Cause.BANK_CONFLICT),
        (Op.E_ADD, {"B_ADDR": before}, Cause.NONE),
        (Op.E_ADD, {"B_ADDR": before + 1}, Cause.BANK_CONFLICT),
        *((op, {"B_ADDR": places["OUT"][0]}, Cause.NONE) for op in (Op.POOL, Op.MOV, Op.E_ABS)),
    ]
    results = verify(config, [(op, regs | changes) for op, changes, _ in cases])
    assert [r.cause for r in results] == [cause for _, _, cause in cases]


def random_registers(config: Config, rng: np.random.Generator, op: Op) -> Registers:
    """Legal sizes and regions; all else near what is sensible, near the corners of 32 bits, or anything.

    The output does not overlap what is read: the outcome would be open.
    """

    def wild(sensible: int) -> int:
        kind = rng.integers(0, 8)
        if kind < 4:
            return int(rng.integers(0, sensible + 1))
        if kind < 6:
            return int(-rng.integers(0, sensible + 1)) % WORD
        return int(rng.integers(0, WORD)) if kind == 6 else int(rng.integers(-20, 20)) % WORD

    def region(name: str) -> Registers:
        size = int(rng.integers(1, 200))
        address = int(rng.choice([0, config.sram - size, int(rng.integers(0, config.sram - size))]))
        return {f"{name}_ADDR": address, f"{name}_BYTES": size}

    registers = {name: wild(40) for name in ("ORIGIN", "Y_STEP", "X_STEP", "KY_STEP", "KX_STEP", "PAD_LEFT")}
    registers |= {name: wild(60) for name in ("ROW_BYTES", "OUT_Y_STEP", "OUT_X_STEP", "B_Y_STEP", "B_X_STEP")}
    registers |= {name: wild(4) for name in ("PAD_TOP", "IN_ROWS")}
    registers |= {
        name: int(rng.integers(0, 1 << 31)) >> int(rng.integers(0, 9))
        for name in ("A_MULT", "B_MULT", "OUT_MULT", "POOL_MAGIC")
    }
    kh, kw = int(rng.integers(1, 4)), int(rng.integers(1, 4))
    near = rng.integers(0, 2)  # shifts that leave something of the value
    a, b, out, pool_shift = (int(rng.integers(-14, 3) if near else rng.integers(-32, 32)) for _ in range(4))
    registers |= region("IN") | region("B")
    if op == Op.ACT_LUT and rng.integers(0, 2):
        registers |= {"B_ADDR": min(registers["B_ADDR"], config.sram - 256), "B_BYTES": 256}
    sources = [(registers[f"{name}_ADDR"], registers[f"{name}_BYTES"]) for name in ("IN", "B")]
    while True:
        registers |= region("OUT")
        low, high = registers["OUT_ADDR"], registers["OUT_ADDR"] + registers["OUT_BYTES"]
        if not any(low < start + size and start < high for start, size in sources):
            break
    registers |= {
        "GEOMETRY": vec("GEOMETRY", kh=kh, kw=kw, stride_y=wild(2) & 0xFF, dilation_y=wild(2) & 0xFF),
        "TILE": vec("TILE", height=int(rng.integers(1, 4)), width=int(rng.integers(1, 4))),
        "BLOCKS": vec("BLOCKS", count=int(rng.integers(1, 4)), last=int(rng.integers(1, config.vector_lanes + 1))),
        "QUANT": int(rng.integers(0, WORD)),
        "B_ZERO": int(rng.integers(0, 256)),
        "MODE": int(rng.integers(0, 16)),
        "SHIFTS": vec("SHIFTS", a=a, b=b, out=out),
        "SUM_BIAS": int(rng.choice([0, 1 << 31, WORD - 1, int(rng.integers(0, WORD)), int(rng.integers(0, 4096))])),
        "POOL_COUNT": int(rng.integers(1, 1 << 15)) >> int(rng.integers(0, 15)) or 1,
        "POOL_SHIFT": vec("POOL_SHIFT", shift=pool_shift),
    }
    if rng.integers(0, 2):
        registers["QUANT"] = vec("QUANT", zero_in=int(rng.integers(-128, 128)), zero_out=0, lo=-128, hi=127)
    return registers


@pytest.mark.parametrize(
    ("lanes", "softmax", "norm"),
    [
        (3, 2, 1),
        *(slow(*sizes) for sizes in ((1, 1, 4), (4, 4, 4), (3, 1, 1), (4, 1, 4), (3, 1, 4))),
    ],
)
def test_any_registers(lanes: int, softmax: int, norm: int) -> None:
    config = config_of(lanes, softmax=softmax, norm=norm, norm_bits=16)
    rng = np.random.default_rng(40 + lanes)
    ops = [Op.POOL, *OPS] * 2
    verify(config, [(op, random_registers(config, rng, op)) for op in ops], seed=lanes)


@pytest.mark.parametrize("flags", [slow(f) if sum(f) > 1 else f for f in product((False, True), repeat=3) if any(f)])
def test_every_combination_of_features(flags: tuple[bool, bool, bool]) -> None:
    config = config_of(3, **dict(zip(("pooling", "elementwise", "activation"), flags, strict=True)))
    rng = np.random.default_rng(60)
    verify(config, [(op, random_registers(config, rng, op)) for op in OPS * 2 if has(config, op)])


def test_results_over_what_is_read() -> None:
    config = config_of(4)
    registers = addition(config, 39, add_params(Rounding.TFLITE))
    places = [(registers[f"{name}_ADDR"] + n, name) for name in ("IN", "B") for n in (-39, -38, 0, 38, 39)]
    jobs = [(op, registers | {"OUT_ADDR": place}) for op in (Op.E_ADD, Op.ACT_RELU, Op.MOV) for place, _ in places]
    causes = [result.cause for result in verify(config, jobs)]
    one, none = [Cause.NONE, *[Cause.BANK_CONFLICT] * 3, Cause.NONE], [Cause.NONE] * 5
    assert causes == [*one, *one, *one, *none, *one, *none]
    tables = [(Op.ACT_LUT, registers | {"OUT_ADDR": place}) for place, _ in places]
    assert [result.cause for result in verify(config, tables)] == [*one, *one]


class Verilated:
    """What a testbench uses of a simulator's context, for a Verilated component."""

    def __init__(self, bench: VerilatorBench, component: VectorCore) -> None:
        self.bench = bench
        members = component.signature.flatten(component)
        self.names = {id(Value.cast(value)): "__".join(map(str, path)) for path, _, value in members}

    def get(self, signal: Any) -> int:
        return int(self.bench.peek(self.names[id(signal)]))

    def set(self, signal: Any, value: int) -> None:
        self.bench.poke(self.names[id(signal)], value)

    async def tick(self) -> None:
        self.bench.tick()


class VerilatedBench(Bench):
    """The same under Verilator. Registers and SRAM are kept between runs."""

    def __init__(self, config: Config, cache: Path) -> None:
        self.config = config
        self.dut = VectorCore(config)
        self.context = Verilated(VerilatorBench(self.dut, cache=cache), self.dut)

    def simulate(self) -> None:
        with pytest.raises(StopIteration):
            self._bench(self.context).send(None)


@pytest.mark.slow
@pytest.mark.parametrize(("lanes", "softmax", "norm"), [(1, 1, 4), (7, 2, 1), (8, 1, 4), (16, 4, 4)])
def test_any_registers_under_verilator(lanes: int, softmax: int, norm: int, build_cache: Path) -> None:
    config = config_of(lanes, softmax=softmax, norm=norm, norm_bits=16)
    rng = np.random.default_rng(900 + lanes)
    bench = VerilatedBench(config, build_cache)
    for seed in range(20):
        ops = [Op.POOL, *OPS] * 3
        verify(config, [(op, random_registers(config, rng, op)) for op in ops], seed, bench)
