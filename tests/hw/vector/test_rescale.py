"""The vector lane in the Amaranth simulator against the integer reference, one operation after the other."""

from functools import cache
from itertools import product
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from amaranth.sim import Simulator

from dovetail.hw.common.scaler import Scaler
from dovetail.hw.vector.rescale import ADDITIONS, VECTOR_PARAMS, VectorLane
from dovetail.isa.instructions.table import SCALING
from dovetail.isa.numerics.add import add_integer, onnx_sum, tflite_sum
from dovetail.isa.numerics.average import average, average_magic, average_product
from dovetail.isa.numerics.multiplier import encode_multiplier
from dovetail.isa.numerics.requantise import requantise_integer
from dovetail.isa.numerics.rounding import Rounding, wrap32
from dovetail.isa.numerics.vector import VectorOperation, VectorParameters
from tests.slow import slow

LANES = 8
OPERATIONS = [operation for operation in VectorOperation if operation != VectorOperation.NORM]
"""Those whose operands and registers are all there is."""

Ints = npt.NDArray[np.int64]
Batch = tuple[dict[str, int], Ints, Ints, Ints]
"""Parameters, a, b and sum; these a multiple of LANES long."""


def params(operation: VectorOperation, rounding: Rounding, **fields: int) -> dict[str, int]:
    base = {"za": 0, "zb": 0, "zy": 0, "lo": -128, "hi": 127, "mult_a": 0, "shift_a": 0, "mult_b": 0, "shift_b": 0}
    base |= {"mult_out": 0, "shift_out": 0, "count": 0}
    return base | fields | {"operation": int(operation), "rounding": int(rounding)}


class Bench:
    """A simulated lane that can do ``operations``. Every batch streams through, one row per cycle."""

    def __init__(self, operations: frozenset[VectorOperation]) -> None:
        self.dut = VectorLane(lanes=LANES, operations=operations)
        self.simulator = Simulator(self.dut)
        self.simulator.add_clock(1e-8)
        self.simulator.add_testbench(self._bench)
        self.fresh = True

    def run(self, batches: list[Batch]) -> list[Ints]:
        """Results of each batch, int8."""
        self.batches = batches
        self.results: list[Ints] = []
        if not self.fresh:
            self.simulator.reset()
        self.fresh = False
        self.simulator.run()
        return self.results

    async def _bench(self, ctx: Any) -> None:
        dut = self.dut
        for fields, a, b, total in self.batches:
            ctx.set(dut.params, fields)
            await ctx.tick().repeat(dut.PARAMS)
            rows = len(a) // LANES
            out = b""
            for cycle in range(rows + dut.LATENCY):
                if cycle >= dut.LATENCY:
                    out += ctx.get(dut.result).to_bytes(LANES, "little")
                row = slice(cycle * LANES, (cycle + 1) * LANES)
                if cycle < rows:
                    ctx.set(dut.a, packed(a[row], 8))
                    ctx.set(dut.b, packed(b[row], 8))
                    ctx.set(dut.sum, packed(total[row], 32))
                await ctx.tick()
            self.results.append(np.frombuffer(out, np.int8).astype(np.int64))


def packed(values: Ints, width: int) -> int:
    return sum((v & ((1 << width) - 1)) << (width * i) for i, v in enumerate(values.tolist()))


@cache
def bench_of(*operations: VectorOperation) -> Bench:
    """Compiling a simulation takes longer than most runs of it."""
    return Bench(frozenset(operations))


def run(batches: list[Batch], *operations: VectorOperation) -> list[Ints]:
    """Results of a lane that can do these operations, or all."""
    return bench_of(*operations or OPERATIONS).run(batches)


def reference(fields: dict[str, int], a: Ints, b: Ints, total: Ints) -> Ints:
    operation, rounding = VectorOperation(fields["operation"]), Rounding(fields["rounding"])
    lo, hi, zy = fields["lo"], fields["hi"], fields["zy"]
    out = fields["mult_out"], fields["shift_out"]
    result: npt.NDArray[np.integer[Any]]
    match operation:
        case VectorOperation.AVERAGE:
            quotient = average_product(total, fields["count"], *out, rounding)
            result = np.maximum(np.minimum(quotient + zy, hi), lo)
        case VectorOperation.PASS:
            result = np.maximum(np.minimum(a, hi), lo)
        case VectorOperation.REQUANTISE | VectorOperation.ABSOLUTE:
            value = wrap32(np.abs(total)) if operation == VectorOperation.ABSOLUTE else total
            result = requantise_integer(value, *out, rounding, zy, lo, hi)
        case VectorOperation.LEAKY:
            below = fields["mult_b"], fields["shift_b"]
            result = np.where(
                total < 0,
                requantise_integer(total, *below, rounding, zy, lo, hi),
                requantise_integer(total, *out, rounding, zy, lo, hi),
            )
        case VectorOperation.MULTIPLY:
            total = (a - fields["za"]) * (b - fields["zb"])
            result = requantise_integer(total, out[0], min(out[1], 0), rounding, zy, lo, hi)
        case _:
            values: dict[str, Any] = {
                name: fields[name] for name in VectorParameters.__dataclass_fields__ if name in fields
            }
            values |= {"rounding": rounding, "operation": operation}
            result = add_integer(a, b, VectorParameters(**values))
    return result.astype(np.int64)


def check(batches: list[Batch], *operations: VectorOperation) -> None:
    for batch, result in zip(batches, run(batches, *operations), strict=True):
        expected = reference(*batch)
        wrong = np.flatnonzero(result != expected)[:5]
        assert not len(wrong), (batch[0], [x[wrong] for x in batch[1:]], result[wrong], expected[wrong])


def operands(rng: np.random.Generator, size: int) -> tuple[Ints, Ints, Ints]:
    a, b = rng.integers(-128, 128, (2, size))
    a[:8], b[:8] = [-128, 127, -128, 127, 0, 0, -1, 1], [-128, 127, 127, -128, 0, -128, 1, -1]
    total = rng.integers(-(2**31) + 1, 2**31, size) >> rng.integers(0, 32, size)
    total[8:16] = [0, 1, -1, 255, -255, 2**31 - 1, -(2**31) + 1, -(2**30)]
    return a, b, total


def test_latency_is_the_contract() -> None:
    assert VectorLane.LATENCY == SCALING.latency == 11 + Scaler.LATENCY


def test_lanes_must_be_positive() -> None:
    with pytest.raises(ValueError, match="lanes must be positive, not 0"):
        VectorLane(lanes=0)


def test_there_must_be_an_operation() -> None:
    with pytest.raises(ValueError, match="operations must name at least one operation"):
        VectorLane(lanes=1, operations=())


def any_batch(rng: np.random.Generator, operation: VectorOperation, rounding: Rounding) -> Batch:
    values = {
        **dict(zip(("za", "zb", "zy", "lo", "hi"), rng.integers(-128, 128, 5).tolist(), strict=True)),
        **dict(zip(("mult_a", "mult_b", "mult_out"), rng.integers(0, 2**31, 3).tolist(), strict=True)),
        "count": int(rng.integers(0, 2**15) >> rng.integers(0, 15)),
    }
    # Half the shifts leave something of the value.
    for name in ("shift_a", "shift_b", "shift_out"):
        values[name] = int(rng.integers(-12, 4) if rng.integers(0, 2) else rng.integers(-32, 32))
    if rng.integers(0, 2):
        values |= {"lo": -128, "hi": 127}
    return (params(operation, rounding, **values), *operands(rng, 32))


@pytest.mark.parametrize("times", [5, slow(20)])
@pytest.mark.parametrize("operation", [slow(each) if n % 2 else each for n, each in enumerate(OPERATIONS)])
def test_any_registers(operation: VectorOperation, times: int) -> None:
    """Built with this operation alone."""
    rng = np.random.default_rng(21 + int(operation))
    check([any_batch(rng, operation, rounding) for rounding in list(Rounding) * times], operation)


def test_all_operations_in_one() -> None:
    rng = np.random.default_rng(20)
    check([any_batch(rng, *kind) for kind in list(product(OPERATIONS, Rounding)) * 4])


def add_fields(values: VectorParameters) -> dict[str, int]:
    others = {name for name, _ in VECTOR_PARAMS} - {"rounding", "operation"}
    return {name: int(value) for name, value in vars(values).items() if name in others}


ADD_SCALES = [(0.0235, 0.0235, 0.0235), (0.1, 0.05, 0.12), (1.0, 2.0**-12, 0.9), (2.0**-9, 0.3, 0.0042), (1, 1, 2)]


@pytest.mark.parametrize("rounding", list(Rounding))
@pytest.mark.parametrize("combine", sorted(ADDITIONS))
def test_add(combine: VectorOperation, rounding: Rounding) -> None:
    rng = np.random.default_rng(22)
    build = tflite_sum if rounding == Rounding.TFLITE else onnx_sum
    batches = []
    for sa, sb, sy in ADD_SCALES:
        za, zb, zy = rng.integers(-128, 128, 3).tolist()
        fields = add_fields(build(sa, za, sb, zb, sy, zy))
        batches.append((params(combine, rounding, **fields), *operands(rng, 400)))
    check(batches)


@pytest.mark.parametrize("rounding", list(Rounding))
@pytest.mark.parametrize("combine", [VectorOperation.MINIMUM, VectorOperation.MAXIMUM])
def test_choice_of_every_pair(combine: VectorOperation, rounding: Rounding) -> None:
    """Operands of one scale come out as they went in."""
    codes = np.arange(-128, 128)
    a, b = (grid.ravel() for grid in np.meshgrid(codes[::3], codes[::8]))
    a, b = a[: len(a) // LANES * LANES], b[: len(b) // LANES * LANES]
    build = tflite_sum if rounding == Rounding.TFLITE else onnx_sum
    fields = add_fields(build(0.5, 9, 0.5, 9, 0.5, 9))
    (result,) = run([(params(combine, rounding, **fields), a, b, np.zeros_like(a))])
    assert np.array_equal(result, np.minimum(a, b) if combine == VectorOperation.MINIMUM else np.maximum(a, b))


@pytest.mark.parametrize("rounding", list(Rounding))
def test_product(rounding: Rounding) -> None:
    """All that two int8 can be multiplied to at the corners, by multipliers as a network has them."""
    rng = np.random.default_rng(23)
    corners = np.array([-128, -127, -1, 0, 1, 2, 126, 127])
    a, b = (grid.ravel() for grid in np.meshgrid(corners, corners))
    batches = []
    for real in (1 / 255, 0.0041, 1e-4, 0.5, 0.99):
        mult, shift = (int(v) for v in encode_multiplier(np.float32(real), rounding))
        za, zb, zy = rng.choice([-128, -3, 0, 127], 3).tolist()
        fields = params(VectorOperation.MULTIPLY, rounding, za=za, zb=zb, zy=zy, mult_out=mult, shift_out=shift)
        batches.append((fields, a, b, np.zeros_like(a)))
    check(batches)


@pytest.mark.parametrize("rounding", list(Rounding))
@pytest.mark.parametrize("operation", [VectorOperation.ABSOLUTE, VectorOperation.LEAKY])
def test_every_difference(operation: VectorOperation, rounding: Rounding) -> None:
    """All values of an int8 less a zero point, shifted to either side."""
    totals = np.arange(-255, 257)
    none = np.zeros_like(totals)
    batches = []
    for positive, negative in ((1.0, 0.1), (0.3, 2.5), (2.0**30, 2.0**-9), (3.7, 1e6)):
        (mult_out, shift_out), (mult_b, shift_b) = (
            (int(v) for v in encode_multiplier(np.float32(real), rounding)) for real in (positive, negative)
        )
        fields = {"mult_out": mult_out, "shift_out": shift_out, "mult_b": mult_b, "shift_b": shift_b, "zy": -7}
        batches.append((params(operation, rounding, **fields), none, none, totals))
    check(batches)


@pytest.mark.parametrize("rounding", list(Rounding))
def test_average_is_the_quotient(rounding: Rounding) -> None:
    """Against division, not against the product."""
    batches = []
    for count in (1, 2, 4, 6, 9, 49, 64, 1000, 32767):
        sums = (np.arange(0, 256)[:, None] * count // 2 + np.arange(-1, 2)).ravel()[:: 3 if count > 64 else 1]
        sums = np.concatenate([sums, -sums])
        sums = sums[: len(sums) // LANES * LANES]
        mult, shift = average_magic(count)
        fields = params(VectorOperation.AVERAGE, rounding, mult_out=mult, shift_out=shift, count=count)
        batches.append((fields, np.zeros_like(sums), np.zeros_like(sums), sums))
    for (fields, _, _, sums), result in zip(batches, run(batches), strict=True):
        expected = np.clip(average(sums, fields["count"], rounding), -128, 127)
        assert np.array_equal(result, expected), fields["count"]


@pytest.mark.parametrize("rounding", list(Rounding))
def test_pass_ignores_the_zero_point(rounding: Rounding) -> None:
    codes = np.arange(-128, 128)
    fields = params(VectorOperation.PASS, rounding, zy=77, lo=-100, hi=90, mult_out=12345, shift_out=-7)
    (result,) = run([(fields, codes, codes, codes)])
    assert np.array_equal(result, np.clip(codes, -100, 90))
