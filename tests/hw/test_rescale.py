"""The vector lane in the Amaranth simulator against the integer reference, one operation after the other."""

from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from amaranth.sim import Simulator

from dovetail.hw.rescale import VectorLane
from dovetail.hw.scaler import Scaler
from dovetail.isa import latency, numerics
from dovetail.isa.numerics import AddParams, Rounding, VectorOperation

# A refused component is never elaborated.
pytestmark = pytest.mark.filterwarnings("ignore::amaranth.hdl.UnusedElaboratable")

LANES = 8

Ints = npt.NDArray[np.int64]


def params(operation: VectorOperation, rounding: Rounding, **fields: int) -> dict[str, int]:
    base = {"za": 0, "zb": 0, "zy": 0, "lo": -128, "hi": 127, "mult_a": 0, "shift_a": 0, "mult_b": 0, "shift_b": 0}
    base |= {"mult_out": 0, "shift_out": 0, "count": 0}
    return base | fields | {"operation": int(operation), "rounding": int(rounding)}


def run(batches: list[tuple[dict[str, int], Ints, Ints, Ints]]) -> list[Ints]:
    """Every batch (parameters, a, b, sum; multiples of LANES long) streams through, one row per cycle; int8 values."""
    dut = VectorLane(lanes=LANES)
    results: list[Ints] = []

    def pack(values: Ints, width: int) -> int:
        return sum((v & ((1 << width) - 1)) << (width * i) for i, v in enumerate(values.tolist()))

    async def bench(ctx: Any) -> None:
        for fields, a, b, total in batches:
            ctx.set(dut.params, fields)
            rows = len(a) // LANES
            out = b""
            for cycle in range(rows + dut.LATENCY):
                if cycle >= dut.LATENCY:
                    out += ctx.get(dut.result).to_bytes(LANES, "little")
                row = slice(cycle * LANES, (cycle + 1) * LANES)
                if cycle < rows:
                    ctx.set(dut.a, pack(a[row], 8))
                    ctx.set(dut.b, pack(b[row], 8))
                    ctx.set(dut.sum, pack(total[row], 32))
                await ctx.tick()
            results.append(np.frombuffer(out, np.int8).astype(np.int64))

    simulator = Simulator(dut)
    simulator.add_clock(1e-8)
    simulator.add_testbench(bench)
    simulator.run()
    return results


def reference(fields: dict[str, int], a: Ints, b: Ints, total: Ints) -> Ints:
    rounding = Rounding(fields["rounding"])
    lo, hi, zy = fields["lo"], fields["hi"], fields["zy"]
    match VectorOperation(fields["operation"]):
        case VectorOperation.ADD:
            names = set(AddParams.__dataclass_fields__) - {"rounding"}
            return numerics.add_integer(
                a, b, AddParams(rounding=rounding, **{name: fields[name] for name in names})
            ).astype(np.int64)
        case VectorOperation.AVERAGE:
            quotient = numerics.average_product(
                total, fields["count"], fields["mult_out"], fields["shift_out"], rounding
            )
            return np.maximum(np.minimum(quotient + zy, hi), lo)
        case VectorOperation.PASS:
            return np.maximum(np.minimum(a, hi), lo)
        case VectorOperation.REQUANTISE:
            return numerics.requantise_integer(
                total, fields["mult_out"], fields["shift_out"], rounding, zy, lo, hi
            ).astype(np.int64)


def check(batches: list[tuple[dict[str, int], Ints, Ints, Ints]]) -> None:
    for batch, result in zip(batches, run(batches), strict=True):
        expected = reference(*batch)
        wrong = np.flatnonzero(result != expected)[:5]
        assert not len(wrong), (batch[0], [x[wrong] for x in batch[1:]], result[wrong], expected[wrong])


def operands(rng: np.random.Generator, size: int) -> tuple[Ints, Ints, Ints]:
    a, b = rng.integers(-128, 128, (2, size))
    a[:8], b[:8] = [-128, 127, -128, 127, 0, 0, -1, 1], [-128, 127, 127, -128, 0, -128, 1, -1]
    return a, b, rng.integers(-(2**31), 2**31, size) >> rng.integers(0, 32, size)


def test_latency_is_the_contract() -> None:
    assert VectorLane.LATENCY == latency.VECTOR_LANE == 8 + Scaler.LATENCY


def test_lanes_must_be_positive() -> None:
    with pytest.raises(ValueError, match="lanes must be positive, not 0"):
        VectorLane(lanes=0)


@pytest.mark.parametrize("rounding", list(Rounding))
@pytest.mark.parametrize("operation", list(VectorOperation))
def test_any_registers(operation: VectorOperation, rounding: Rounding) -> None:
    rng = np.random.default_rng(21 + int(operation))
    batches = []
    for _ in range(20):
        bits = rng.integers(0, 31)
        values = {
            **dict(zip(("za", "zb", "zy", "lo", "hi"), rng.integers(-128, 128, 5).tolist(), strict=True)),
            **dict(zip(("mult_a", "mult_b", "mult_out"), rng.integers(0, 2**31, 3).tolist(), strict=True)),
            **dict(zip(("shift_a", "shift_b", "shift_out"), rng.integers(-32, 32, 3).tolist(), strict=True)),
            "count": int(rng.integers(0, 2**15) >> (bits // 2)),
        }
        if rng.integers(0, 2):
            values |= {"lo": -128, "hi": 127}
        batches.append((params(operation, rounding, **values), *operands(rng, 32)))
    check(batches)


ADD_SCALES = [(0.0235, 0.0235, 0.0235), (0.1, 0.05, 0.12), (1.0, 2.0**-12, 0.9), (2.0**-9, 0.3, 0.0042), (1, 1, 2)]


@pytest.mark.parametrize("rounding", list(Rounding))
def test_add(rounding: Rounding) -> None:
    rng = np.random.default_rng(22)
    build = AddParams.tflite if rounding == Rounding.TFLITE else AddParams.onnx
    batches = []
    for sa, sb, sy in ADD_SCALES:
        za, zb, zy = rng.integers(-128, 128, 3).tolist()
        fields = vars(build(sa, za, sb, zb, sy, zy))
        fields = {name: int(value) for name, value in fields.items() if name != "rounding"}
        batches.append((params(VectorOperation.ADD, rounding, **fields), *operands(rng, 400)))
    check(batches)


@pytest.mark.parametrize("rounding", list(Rounding))
def test_average_is_the_quotient(rounding: Rounding) -> None:
    """Against division, not against the product."""
    batches = []
    for count in (1, 2, 4, 6, 9, 49, 64, 1000, 32767):
        sums = (np.arange(0, 256)[:, None] * count // 2 + np.arange(-1, 2)).ravel()[:: 3 if count > 64 else 1]
        sums = np.concatenate([sums, -sums])
        sums = sums[: len(sums) // LANES * LANES]
        mult, shift = numerics.average_magic(count)
        fields = params(VectorOperation.AVERAGE, rounding, mult_out=mult, shift_out=shift, count=count)
        batches.append((fields, np.zeros_like(sums), np.zeros_like(sums), sums))
    for (fields, _, _, sums), result in zip(batches, run(batches), strict=True):
        expected = np.clip(numerics.average(sums, fields["count"], rounding), -128, 127)
        assert np.array_equal(result, expected), fields["count"]


@pytest.mark.parametrize("rounding", list(Rounding))
def test_pass_ignores_the_zero_point(rounding: Rounding) -> None:
    codes = np.arange(-128, 128)
    fields = params(VectorOperation.PASS, rounding, zy=77, lo=-100, hi=90, mult_out=12345, shift_out=-7)
    (result,) = run([(fields, codes, codes, codes)])
    assert np.array_equal(result, np.clip(codes, -100, 90))
