"""SOFTMAX in the vector unit against the formula in fractions: rows, masks, tables and sums of any kind."""

import random
from collections.abc import Sequence
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from amaranth import Module
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out
from amaranth.sim import Simulator

from dovetail.hw.vector.softmax import added
from dovetail.isa.config.resolved import Config
from dovetail.isa.instructions.table import Cause, Op
from dovetail.isa.numerics.rounding import Rounding
from dovetail.isa.numerics.softmax import onnx_exponentials, tflite_exponentials
from tests.hw.vector.test_unit import WORD, Registers, config_of, vec, verify
from tests.slow import slow
from tests.softmax import TABLE, instruction, measured, softmax

FRACTIONS = 23


def lanes_of(*lanes: int) -> list[Any]:
    """Lanes, and rows at once, for tests; simulators take long, so the default tests have three lanes and two rows."""
    pairs = [(n, rows) for n in lanes for rows in (1, 2, 4) if rows <= n]
    return [pair if pair == (3, 2) else slow(*pair) for pair in pairs]


def memory_of(config: Config, rows: Sequence[int], table: bytes) -> bytes:
    memory = bytearray(np.random.default_rng(0).bytes(config.sram))
    memory[: len(rows)] = bytes(value & 0xFF for value in rows)
    memory[TABLE : TABLE + len(table)] = table
    return bytes(memory)


def table_of(rounding: Rounding, scale: float, count: int = 100) -> bytes:
    exponentials = onnx_exponentials(scale, count) if rounding == Rounding.ONNX else tflite_exponentials(1.0, scale)
    return exponentials.tobytes()


def words(values: Sequence[int]) -> bytes:
    return b"".join(value.to_bytes(4, "little") for value in values)


@pytest.mark.parametrize("rounding", list(Rounding))
@pytest.mark.parametrize(("lanes", "at_once"), lanes_of(1, 2, 3, 4, 8, 16))
def test_rows(lanes: int, at_once: int, rounding: Rounding) -> None:
    """Of one element, of some, with blocks that are not full; near each other and far apart; groups that a line does
    not fill, beside which results keep a place free."""
    config = config_of(lanes, softmax=at_once)
    rng = random.Random(lanes)
    for shape, scale in (((3, 2, 1), 0.1), ((1, 3, lanes), 0.02), ((2, 5, 2 * lanes + 1), 0.3), ((1, 2, 29), 0.005)):
        size, line = shape[0] * shape[1] * shape[2], (shape[1] + 1) * shape[2]
        rows = [max(-128, min(127, round(rng.gauss(0, 60)))) for _ in range(size)]
        places = {"OUT_Y_STEP": line, "OUT_BYTES": shape[0] * line}
        verify(
            config,
            [(Op.SOFTMAX, softmax(config, shape, rounding, **places))],
            memory=memory_of(config, rows, table_of(rounding, scale)),
        )


@pytest.mark.parametrize("rounding", [Rounding.TFLITE, slow(Rounding.ONNX)])
@pytest.mark.parametrize(("lanes", "at_once"), lanes_of(3, 4))
def test_masks(lanes: int, at_once: int, rounding: Rounding) -> None:
    """Padding, causal rows, rows of which nothing counts, counts that wrap around."""
    config = config_of(lanes, softmax=at_once)
    rng = random.Random(7)
    shape = (3, 4, 5)
    memory = memory_of(config, [rng.randint(-128, 127) for _ in range(60)], table_of(rounding, 0.02))
    for count, x, y in ((5, 0, 0), (0, 1, 4), (6, -1, -1), (3, 1 << 16, -1), (5, 65533, 3)):
        masks = {"POOL_COUNT": count, "B_X_STEP": x % WORD, "B_Y_STEP": y % WORD}
        verify(config, [(Op.SOFTMAX, softmax(config, shape, rounding, **masks))], memory=memory)


@pytest.mark.parametrize("rounding", [Rounding.ONNX, slow(Rounding.TFLITE)])
@pytest.mark.parametrize(("lanes", "at_once"), lanes_of(1, 3, 8))
def test_any_table(lanes: int, at_once: int, rounding: Rounding) -> None:
    """Words that no exponential is: all 0, all alike, exponents at both ends of their range, sums at ties."""
    config = config_of(lanes, softmax=at_once)
    rng = random.Random(lanes)
    tables = [
        [0] * 256,
        [1] * 256,
        [(1 << 32) - 1] * 256,
        [rng.getrandbits(32) for _ in range(256)],
        [rng.getrandbits(24) for _ in range(256)],
        [rng.randint(0, 3) for _ in range(256)],
        [0x7F000000 + rng.getrandbits(24) for _ in range(256)],
        [rng.randint(100, 112) << FRACTIONS | rng.getrandbits(23) & -(1 << 21) for _ in range(256)],
        [rng.randint(120, 160) << FRACTIONS | rng.choice((0, 1, (1 << 23) - 1)) for _ in range(256)],
    ]
    shape = (1, 2, 21)
    for number, table in enumerate(tables):
        rows = [rng.randint(-9, 9) if number % 2 else rng.randint(-128, 127) for _ in range(42)]
        quant = vec("QUANT", zero_in=0, zero_out=rng.randint(-128, 127), lo=-128, hi=127)
        levels = rng.choice((0, 1, 254, 256, 511, 512, 4096, 8191, 8192, (1 << 31) - 1))
        job = softmax(config, shape, rounding, QUANT=quant, OUT_MULT=levels)
        verify(config, [(Op.SOFTMAX, job)], memory=memory_of(config, rows, words(table)))


def test_quotients_beside_a_tie() -> None:
    """A half and less than the divisor's exponent leaves of it: 3 times 11,184,811 is 2^25 + 1, and the sum 2^26."""
    config = config_of(3, softmax=1)
    share, rest = 11184811, 13981013
    table = [102 << 23 | rest % (1 << 23), 100 << 23 | share % (1 << 23), *[0] * 254]
    quant = vec("QUANT", zero_in=0, zero_out=0, lo=0, hi=0)
    job = softmax(config, (1, 1, 2), Rounding.ONNX, OUT_MULT=3, QUANT=quant)
    (result,) = verify(config, [(Op.SOFTMAX, job)], memory=memory_of(config, [10, 9], words(table)))
    assert result.memory[job["OUT_ADDR"] :][:2] == bytes([2, 1])


def test_shares_of_many_steps() -> None:
    """What the quotient's bits do not hold saturates: all of 8191 steps, half of them or a few, beside small and large
    sums."""
    config = config_of(3, softmax=1)
    quant = vec("QUANT", zero_in=0, zero_out=-128, lo=0, hi=0)
    rows = [9, 8, 7, 9, 9, 7, 9, 7, 7, 9, 9, 9]
    for power, small in ((126, 117), (100, 92)):
        table = [power << FRACTIONS, power << FRACTIONS | 0x7FFFFF, small << FRACTIONS | 1, *[0] * 253]
        jobs = [
            (Op.SOFTMAX, softmax(config, (1, 4, 3), Rounding.ONNX, OUT_MULT=levels, QUANT=quant))
            for levels in (511, 1024, 8191)
        ]
        verify(config, jobs, memory=memory_of(config, rows, words(table)))


class Adder(wiring.Component):
    """Sums of two floats."""

    a: In(33)
    b: In(33)
    result: Out(33)

    def elaborate(self, platform: object) -> Module:
        m = Module()
        m.d.comb += self.result.eq(added(m, self.a[:24], self.a[24:], self.b[:24], self.b[24:]))
        return m


def test_sums() -> None:
    """Of floats near each other and far apart, at ties and beside them, with a carry and without."""
    rng = random.Random(5)
    dut = Adder()

    def number() -> tuple[int, int]:
        mantissa = rng.choice((rng.getrandbits(23), rng.getrandbits(3), (1 << 23) - 1 - rng.getrandbits(3)))
        exponent = rng.choice((1, 1, *range(100, 128), 255))
        return mantissa + (exponent > 1 or rng.random() < 0.5) * (1 << 23), exponent

    async def bench(ctx: Any) -> None:
        for _ in range(3000):
            (a, ea), (b, eb) = number(), number()
            ctx.set(dut.a, a | ea << 24)
            ctx.set(dut.b, b | eb << 24)
            await ctx.delay(1e-9)
            result = ctx.get(dut.result)
            exact = (a << ea) + (b << eb)
            unit = max(1, exact.bit_length() - 24)
            rounded = round(Fraction(exact, 1 << unit)) << unit
            assert (result % (1 << 24)) << (result >> 24) == rounded, (a, ea, b, eb)

    simulator = Simulator(dut)
    simulator.add_testbench(bench)
    simulator.run()


@pytest.mark.parametrize("at_once", [slow(1), 2])
def test_cut_tables_and_other_operations_between(at_once: int) -> None:
    """What lies beyond a table's region is its zero point; tables of ACT_LUT leave SOFTMAX's place where it was."""
    config = config_of(3, softmax=at_once)
    memory = memory_of(config, list(range(-40, 40)), table_of(Rounding.ONNX, 0.05))
    jobs: list[tuple[Op, Registers]] = []
    for rounding, size in ((Rounding.ONNX, 130), (Rounding.TFLITE, 1024), (Rounding.ONNX, 1), (Rounding.ONNX, 1024)):
        registers = softmax(config, (2, 1, 40), rounding, B_BYTES=size, B_ZERO=93)
        jobs += [(Op.SOFTMAX, registers), (Op.ACT_LUT, registers | {"B_BYTES": 256}), (Op.MOV, registers)]
    verify(config, jobs, memory=memory)


def test_without_other_features() -> None:
    config = config_of(3, softmax=1, pooling=False, elementwise=False, activation=False)
    memory = memory_of(config, list(range(-30, 30)), table_of(Rounding.ONNX, 0.05))
    registers = softmax(config, (2, 3, 10), Rounding.ONNX)
    verify(config, [(Op.SOFTMAX, registers), (Op.MOV, registers), (Op.SOFTMAX, registers)], memory=memory)


def test_rows_that_are_too_long() -> None:
    config = config_of(3, softmax=1)
    registers = softmax(config, (1, 1, 4095), Rounding.ONNX)
    longer = {"BLOCKS": vec("BLOCKS", count=1366, last=1)}
    (result,) = verify(config, [(Op.SOFTMAX, registers | longer)])
    assert result.cause == Cause.TOO_LARGE


@pytest.mark.slow
@pytest.mark.parametrize("rounding", list(Rounding))
def test_the_longest_row(rounding: Rounding) -> None:
    config = config_of(8, softmax=1)
    rows = [*np.random.default_rng(3).integers(-128, 128, 4096).tolist(), *[5] * 4096]  # the largest sum, too
    verify(
        config,
        [(Op.SOFTMAX, softmax(config, (1, 2, 4096), rounding))],
        memory=memory_of(config, rows, table_of(rounding, 0.01)),
    )


@pytest.mark.slow
@pytest.mark.parametrize("prefix", ["tflm_", "ort_s8_", "ort_u8_"])
def test_measured_vectors(prefix: str) -> None:
    """A sample: the bytes of the runtimes come out of the hardware."""
    config = config_of(8, softmax=1)
    for x, y, given in list(measured(prefix))[::80]:
        registers, table = instruction(config, prefix, len(x), given)
        (result,) = verify(config, [(Op.SOFTMAX, registers)], memory=memory_of(config, x.tolist(), table))
        out = registers["OUT_ADDR"]
        assert np.array_equal(np.frombuffer(result.memory, np.int8)[out : out + len(x)], y)
