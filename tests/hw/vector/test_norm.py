"""Sums and roots of NORM in the Amaranth simulator, against isa.numerics."""

from typing import Any

import numpy as np
import pytest
from amaranth import signed, unsigned
from amaranth.sim import Simulator

from dovetail.hw.vector.norm import RowRoot, RowSum, row_squares, row_sum
from dovetail.hw.vector.rescale import VECTOR_PARAMS, VectorLane
from dovetail.isa.common.sizes import ceil_div
from dovetail.isa.instructions.table import Cause, Op
from dovetail.isa.numerics.norm import NormRecords, NormRows, norm, norm16, norm16_wide, norm_epsilon
from dovetail.isa.numerics.vector import VectorOperation
from tests.hw.vector.test_unit import config_of, vec, verify
from tests.slow import slow


@pytest.mark.parametrize(("lanes", "rows"), [(1, 1), (3, 4), (8, 1), (16, 4)])
def test_sums_of_rows(lanes: int, rows: int) -> None:
    """Rows of one to nine steps, with holes between the steps: each total is there LATENCY cycles after its last, of
    rows that take turns with the last one of the last row."""
    rng = np.random.default_rng(lanes)
    for element, total, low, high in (
        (signed(8), row_sum(8), -128, 128),
        (unsigned(16), row_squares(8), 0, 1 << 16),
        (signed(16), row_sum(16), -(1 << 15), 1 << 15),
        (unsigned(32), row_squares(16), 0, 1 << 32),
    ):
        block = RowSum(lanes=lanes, rows=rows, element=element, total=total)
        steps: list[tuple[int, bool, list[int], list[int]]] = []
        for _ in range(12):
            sums, length = [0] * rows, int(rng.integers(1, 10))
            for n in range(length * rows):
                values = [int(value) for value in rng.integers(low, high, lanes)]
                sums[n % rows] += sum(values)
                steps.append((int(rng.integers(0, 3)), n < rows, values, list(sums) if n % rows == rows - 1 else []))

        async def bench(ctx: Any, block: RowSum = block, element: Any = element, steps: Any = steps) -> None:
            due: list[tuple[int, list[int]]] = []
            now = 0

            async def tick() -> None:
                nonlocal now
                await ctx.tick()
                now += 1
                if due and due[0][0] == now:
                    expected = due.pop(0)[1]
                    assert not expected or [ctx.get(block.totals[n]) for n in range(rows)] == expected

            for holes, first, values, expected in steps:
                ctx.set(block.valid, 0)
                for _ in range(holes):
                    await tick()
                word = sum((v & (1 << element.width) - 1) << i * element.width for i, v in enumerate(values))
                ctx.set(block.valid, 1)
                ctx.set(block.first, first)
                ctx.set(block.elements, word)
                due.append((now + block.LATENCY, expected))
                await tick()
            ctx.set(block.valid, 0)
            while due:
                await tick()

        simulator = Simulator(block)
        simulator.add_clock(1e-6)
        simulator.add_testbench(bench)
        simulator.run()


@pytest.mark.parametrize(("built", "bits"), [(8, 8), (16, 8), (16, 16)])
def test_root_and_reciprocal_of_rows(built: int, bits: int) -> None:
    """Every result of rows of any length and spread, ``latency`` cycles after the start, and that they stay; of 8-bit
    rows also where there are 16-bit ones."""
    rng = np.random.default_rng(5)
    block = RowRoot(built)
    most = (1 << bits - 1) - 1
    spreads = [0, 0.02, 1, 30, 400, *((8000, 50000) if bits > 8 else ())]

    async def bench(ctx: Any) -> None:
        for case in range(90):
            n = int(rng.choice(np.array([1, 2, 3, 5, 64, 200, 2048, 2049, 4095, 4096, rng.integers(1, 4097)])))
            rms, zero = bool(case % 3 == 0), int(rng.integers(-128, 128)) if bits == 8 else 0
            epsilon = int(rng.choice(np.array([0, 1, rng.integers(1 << 40), rng.integers(1 << 56), (1 << 56) - 1])))
            row = np.clip(rng.normal(zero, rng.choice(spreads), n).round(), -most - 1, most).astype(np.int64)
            if case < 4:
                row[:] = (-most - 1, most)[case % 2]
            if 4 <= case < 8:
                row[1:] = (most, -most - 1)[case % 2]
                row[0] = (-most - 1, most)[case % 2]
            known = NormRows.of(row[None] - (zero if rms else 0), epsilon, rms=rms, bits=bits)
            for name, value in {
                "sum": row.sum(),
                "squares": ((row - (zero if rms else 0)) ** 2).sum(),
                "count": n,
                "epsilon": epsilon,
                "rms": rms,
            }.items():
                ctx.set(getattr(block, name), int(value))
            if built > 8:
                ctx.set(block.wide, bits > 8)
            ctx.set(block.start, 1)
            await ctx.tick()
            ctx.set(block.start, 0)
            await ctx.tick().repeat(block.latency(bits) - 1)
            for _ in range(3):
                found = [ctx.get(value) for value in (block.mean, block.factor, block.offset)]
                assert found == [int(value.item()) for value in (known.mean, known.factor, known.offset)], case
                if known.factor.item():
                    assert ctx.get(block.right) == known.right.item()
                await ctx.tick()

    simulator = Simulator(block)
    simulator.add_clock(1e-6)
    simulator.add_testbench(bench)
    simulator.run()


def test_lanes_of_a_sum() -> None:
    with pytest.raises(ValueError, match=r"^lanes must be 1\.\.16, not 17$"):
        RowSum(lanes=17, element=signed(8), total=row_sum(8))


@pytest.mark.parametrize(("built", "bits", "wide"), [(8, 8, False), (16, 8, False), (16, 16, False), (16, 16, True)])
def test_norm_in_the_lanes(built: int, bits: int, wide: bool) -> None:
    """Rows and records of any kind, also such as no row has: results of every element, and products of the first pass,
    of rows of so many ``bits`` in lanes that are ``built`` for so many; ``wide`` results have 16.

    Each row is a batch: its first cycle has products, the others are blocks of channels. What is known of the row is
    there with its blocks only, a cycle later.
    """
    rng = np.random.default_rng(11)
    lanes, blocks = 3, 7
    lane = VectorLane(lanes=lanes, bits=built)
    n = lanes * blocks
    most = (1 << bits - 1) - 1
    spreads = [0, 0.5, 10, 300, *((3000, 60000) if bits > 8 else ())]

    def word(values: Any, width: int) -> int:
        return sum((int(v) & (1 << width) - 1) << width * i for i, v in enumerate(values))

    async def bench(ctx: Any) -> None:
        for case in range(120):
            zero, zero_out = (int(v) for v in rng.integers(-128, 128, 2))
            zero *= bits == 8
            lo, hi = sorted(int(v) for v in rng.integers(-128, 128, 2)) if case % 4 == 0 else (-128, 127)
            row = np.clip(rng.normal(zero, rng.choice(spreads), n).round(), -most - 1, most).astype(np.int16)
            if case % 7 == 6:
                row[:], row[0] = most, -most - 1
            epsilon = int(rng.integers(1 << int(rng.integers(1, 57))))
            rows = NormRows.of(row[None].astype(np.int64), epsilon, rms=False, bits=bits)
            records = NormRecords(
                bias=rng.integers(-(1 << 31), 1 << 31, n) >> rng.integers(0, 31, n),
                mult=rng.integers(1 << 24, size=n) | (rng.integers(0, 2, n) << 23),
                shift=rng.integers(-32, 32, n) if case % 5 == 0 else rng.integers(-20, -8, n) + 8 * wide,
                negative=rng.integers(0, 2, n) == 1,
            )
            if bits == 8:
                expected: Any = norm(row.astype(np.int8), 0, epsilon, records, zero_out, lo, hi, rms=False)
            elif wide:
                expected = norm16_wide(row, epsilon, records, rms=False)
            else:
                expected = norm16(row, epsilon, records, zero_out, lo, hi, rms=False)
            stream = np.frombuffer(records.pack(lanes), "<u4").reshape(blocks, 2, lanes)
            fields = dict.fromkeys(VECTOR_PARAMS.members, 0)
            fields |= {"operation": int(VectorOperation.NORM), "rounding": case % 2, "za": zero, "zb": zero}
            if built > 8:
                ctx.set(lane.to_wide, wide)
            ctx.set(lane.params, fields | {"zy": zero_out, "lo": lo, "hi": hi, "mult_out": 77, "mult_b": 99})
            of_row = {name: int(getattr(rows, name).item()) for name in ("mean", "factor", "offset", "right")}
            of_another = {"mean": 5, "factor": 12345, "offset": 54321, "right": 11}
            await ctx.tick().repeat(lane.PARAMS + 1)
            for cycle in range(1 + blocks + lane.LATENCY):
                if cycle == lane.PRODUCTS:
                    squares = (row[:lanes].astype(int) - zero) ** 2
                    assert ctx.get(lane.products) == word(squares, 2 * built)
                if cycle > lane.LATENCY:
                    block = cycle - lane.LATENCY - 1
                    assert ctx.get(lane.result) == word(expected[block * lanes :][:lanes], built), (case, block)
                ctx.set(lane.product, cycle == 0)
                ctx.set(lane.row, of_row if 1 <= cycle - lane.ROW <= blocks else of_another)
                for port, after, values in (
                    (lane.a, 0, row.reshape(blocks, lanes)),
                    (lane.bias, lane.BIAS, stream[:, 0]),
                    (lane.words, lane.WORDS, stream[:, 1]),
                ):
                    block = cycle - 1 - after
                    known = row[:lanes] if cycle == 0 and after == 0 else values[block] if 0 <= block < blocks else None
                    width = built if after == 0 else 32
                    ctx.set(port, word(known, width) if known is not None else int(rng.integers(1 << 24)))
                ctx.set(lane.b, word(row[:lanes], built) if cycle == 0 else int(rng.integers(1 << 24)))
                await ctx.tick()

    simulator = Simulator(lane)
    simulator.add_clock(1e-6)
    simulator.add_testbench(bench)
    simulator.run()


def in_rows(
    shape: tuple[int, int],
    source: tuple[int, int],
    target: tuple[int, int],
    records: tuple[int, int],
    epsilon: int,
    layer: int,
) -> dict[str, int]:
    """Registers of a norm of (rows, elements) in one piece. ``source``, ``target``: address, and bytes of an element;
    ``records``: address, bytes."""
    (rows, n), (at, item), (to, result) = shape, source, target
    return {
        "IN_ADDR": at,
        "IN_BYTES": rows * n * item,
        "ROW_BYTES": rows * n * item,
        "IN_ROWS": 1,
        "X_STEP": n * item,
        "OUT_ADDR": to,
        "OUT_BYTES": rows * n * result,
        "OUT_X_STEP": n * result,
        "B_ADDR": records[0],
        "B_BYTES": records[1],
        "GEOMETRY": vec("GEOMETRY", kh=1, kw=1, stride_y=1, dilation_y=1),
        "TILE": vec("TILE", height=1, width=rows),
        "BLOCKS": vec("BLOCKS", count=ceil_div(n, 4), last=(n - 1) % 4 + 1),
        "MODE": vec("MODE", rounding=0, average=0, requantise=0, subtract=layer),
        "SUM_BIAS": epsilon & 0xFFFF_FFFF,
        "B_MULT": epsilon >> 32,
    }


@pytest.mark.parametrize("at_once", [1, slow(4)])
def test_rows_of_16_bits(at_once: int) -> None:
    """Rows of any spread, one of them constant, one of nearly the whole range; the upper halves of their words do not
    count. Results of 8 and of 16 bits are the reals', but for their error."""
    config, rng = config_of(4, norm=at_once, norm_bits=16), np.random.default_rng(8)
    memory, jobs, wanted, at = bytearray(rng.bytes(config.sram)), [], [], 0
    for n, rows, layer in ((64, 4, 1), (191, 2, 1), (66, 3, 0), (5, 3, 1), (1, 1, 0)):
        spread = np.array([60, 12000, 0, 300])[:rows, None]
        x = np.clip(rng.normal(spread, spread, (rows, n)).round(), -32768, 32767).astype(np.int64)
        words = (x & 0xFFFF | rng.integers(0, 1 << 16, x.shape) << 16).astype("<u4").tobytes()
        gain, offset = rng.normal(1, 0.3, n).astype(np.float32), rng.normal(0, 0.5, n).astype(np.float32) * layer
        scale_in = 2.0**-9
        reals = x * scale_in - layer * (x * scale_in).mean(axis=1, keepdims=True)
        normal = gain.astype(float) * reals / np.sqrt((reals**2).mean(axis=1, keepdims=True) + 1e-5) + offset
        for op, scale, size in ((Op.NORM16, 0.03, 1), (Op.NORM16_WIDE, 2.0**-11, 4)):
            records, epsilon = NormRecords.of(gain, offset, scale).pack(4), norm_epsilon(n, 1e-5, scale_in, 16)
            start = at + len(words)
            target = start + len(records)
            memory[at:target] = words + records
            registers = in_rows((rows, n), (at, 4), (target, size), (start, len(records)), epsilon, layer)
            registers["QUANT"] = vec("QUANT", zero_in=-3, zero_out=0, lo=-128, hi=127)
            jobs.append((op, registers))
            wanted.append((target, "<i4" if size == 4 else "i1", normal / scale))
            at = target + rows * n * size
    for result, (target, kind, exact) in zip(verify(config, jobs, memory=bytes(memory)), wanted, strict=True):
        made = np.frombuffer(result.memory, kind, exact.size, target).reshape(exact.shape)
        bounds = (-128, 127) if kind == "i1" else (-32768, 32767)
        assert np.abs(made - np.clip(exact, *bounds)).max() < (0.51 if kind == "i1" else 0.6)


@pytest.mark.parametrize(
    ("others", "at_once"),
    [(True, 4), *(slow(*kind) for kind in ((False, 1), (True, 1), (False, 4)))],
)
def test_rows_of_real_lengths(others: bool, at_once: int) -> None:
    """Tiles as compilers make them, one after the other: layer and RMS norms, among them constant rows; then rows that
    are too long, by a block and by many. Without other operations there is a second operand all the same."""
    config = config_of(4, norm=at_once, **dict.fromkeys(("pooling", "elementwise", "activation"), others))
    rng = np.random.default_rng(5)
    memory, jobs, at = bytearray(rng.bytes(config.sram)), [], 0
    for n, rows, layer in ((64, 3, 1), (191, 2, 1), (66, 6, 0), (5, 9, 1), (1, 1, 0), (300, 1, 1)):
        x = np.clip(rng.normal(-5, 40, (rows, n)), -128, 127).astype(np.int8)
        if n == 66:
            x[1] = -3
        gain = rng.normal(1, 0.3, n).astype(np.float32)
        offset = rng.normal(0, 0.5, n).astype(np.float32) if layer else None
        records, epsilon = NormRecords.of(gain, offset, 0.03).pack(4), norm_epsilon(n, 1e-5, 0.02)
        size, start, target = rows * n, at + rows * n, at + rows * n + len(records)
        memory[at:target] = x.tobytes() + records
        registers = in_rows((rows, n), (at, 1), (target, 1), (start, len(records)), epsilon, layer)
        registers["QUANT"] = vec("QUANT", zero_in=-3, zero_out=2, lo=-128, hi=127)
        jobs.append((Op.NORM, registers))
        at = target + size
    lengths = [(Op.NORM, jobs[0][1] | {"BLOCKS": vec("BLOCKS", count=count, last=4)}) for count in (1025, 4097, 65535)]
    results = verify(config, [*jobs, *lengths], memory=bytes(memory))
    assert [result.cause for result in results] == [Cause.NONE] * 6 + [Cause.TOO_LARGE] * 3
