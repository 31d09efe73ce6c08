"""Every block that scales, Verilated, at the values at which scalers go wrong, against the runtimes' own steps."""

from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dovetail.cosim.rtl.block import Bench
from dovetail.cosim.rtl.rtl_engine import RtlEngine
from dovetail.hw.array.requantiser import Requantiser
from dovetail.hw.common.scaler import SCALE_SHARED, ScaleKind, Scaler
from dovetail.hw.vector.rescale import VECTOR_PARAMS, VectorLane
from dovetail.isa.config.resolved import Config
from dovetail.isa.instructions.table import PAGE_BYTES, PAGE_WORDS, Op, Unit, cfg, pack, pack_some, sync, to_bytes
from dovetail.isa.numerics.rounding import Rounding
from dovetail.isa.numerics.vector import VectorOperation
from dovetail.sw.model.accelerator import Model
from tests.cosim.compare.test_lockstep import SMALL
from tests.scaling import MULTIPLIERS, SCALE, SHIFTS, Ints, accumulators, corner_arrays, sum_of, to_int8

MASK = 0xFFFF_FFFF


def equal(got: Any, expected: Any, *operands: Any) -> None:
    wrong = np.flatnonzero(np.asarray(got) != np.asarray(expected))
    if len(wrong):
        n = int(wrong[0])
        values = ", ".join(str(int(column[n])) for column in operands)
        pytest.fail(f"{len(wrong)} of {len(expected)} differ, first ({values}): must be {expected[n]}, not {got[n]}")


@pytest.mark.parametrize("rounding", list(Rounding))
def test_requantiser(build_cache: Path, rounding: Rounding) -> None:
    dut = Requantiser(lanes=1)
    acc, mult, shift, expected = corner_arrays(rounding)
    inputs: dict[str, Any] = {"acc": acc, "mult": mult, "shift": shift, "rounding": [int(rounding)], "zero_point": [0]}
    with Bench(dut, cache=build_cache) as bench:
        got = bench.pipeline(inputs | {"lo": [-128], "hi": [127]}, ["result"], dut.LATENCY)["result"]
    equal(got.astype(np.uint8).view(np.int8), expected, acc, mult, shift)


def test_five_halves(build_cache: Path) -> None:
    """5 * 2^30 / 2^31 is a tie that goes up, to 3; half of it one that goes away from zero."""
    dut = Requantiser(lanes=1)
    inputs: dict[str, Any] = {
        "acc": [5],
        "mult": [2**30],
        "shift": [-1],
        "rounding": [0],
        "zero_point": [0],
        "lo": [-128],
        "hi": [127],
    }
    with Bench(dut, cache=build_cache) as bench:
        assert bench.pipeline(inputs, ["result"], dut.LATENCY)["result"].tolist() == [2]


# --- the scaler itself ----------------------------------------------------------------------------------------------


def scaled(kind: ScaleKind, value: int, mult: int, right: int) -> int:
    """What the scaler's docstring says, in integers."""
    if kind in (ScaleKind.TFLITE, ScaleKind.ONNX):
        rounding = Rounding(int(kind))
        return SCALE[rounding](value, mult if kind == ScaleKind.TFLITE else mult >> 7, -right)
    magnitude = abs(value) * mult
    floor = magnitude >> 31 + right
    sixteen = (magnitude << 16 >> 31 + right) & 0xFFFF
    if kind == ScaleKind.FLOOR_EVEN and floor & 1 and not sixteen:
        floor -= 1
    return floor if value >= 0 else -floor


def float24(value: int) -> bool:
    """Whether float32 holds an integer."""
    return abs(value) < 2**24 or abs(value) % 2**8 == 0


@pytest.mark.parametrize("kind", list(ScaleKind))
def test_scaler(build_cache: Path, kind: ScaleKind) -> None:
    rounding = Rounding.ONNX if kind == ScaleKind.ONNX else Rounding.TFLITE
    rows = []
    for mult in MULTIPLIERS[rounding]:
        wide = mult << 7 if kind == ScaleKind.ONNX else mult
        for right in range(33):
            values = accumulators(mult, -right, rounding)
            rows += [(v, wide, right) for v in values if kind != ScaleKind.ONNX or float24(v)]
    value, mult, right = np.array(rows).T
    dut = Scaler(lanes=1)
    shared = SCALE_SHARED.const({"kind": kind, "zero_point": 0, "lo": -128, "hi": 127})
    inputs = {
        "negative": (value < 0).astype(np.int64),
        "magnitude": np.abs(value),
        "mult": mult,
        "right": right,
        "shared": [shared.as_bits()],
    }
    with Bench(dut, cache=build_cache) as bench:
        got = bench.pipeline(inputs, ["result"], dut.LATENCY)["result"]
    expected = [to_int8(scaled(kind, *row)) for row in rows]
    equal(got.astype(np.uint8).view(np.int8), expected, value, mult, right)


# --- the vector lane ------------------------------------------------------------------------------------------------


class Lane:
    """A Verilated vector lane that can do everything; one set of parameters at a time."""

    def __init__(self, cache: Path) -> None:
        self.dut = VectorLane(lanes=1)
        self.bench = Bench(self.dut, cache=cache)

    def run(self, operation: VectorOperation, rounding: Rounding, operands: dict[str, Any], **fields: int) -> Ints:
        """Results, int8, of rows of operands (``a``, ``b`` or ``sum``)."""
        values = {"lo": -128, "hi": 127, **fields, "operation": operation, "rounding": rounding}
        self.bench.poke("params", VECTOR_PARAMS.const(values).as_bits())
        self.bench.tick(self.dut.PARAMS)
        rows = {name: np.asarray(column) for name, column in operands.items()}
        got = self.bench.pipeline(rows, ["result"], self.dut.LATENCY)["result"]
        return got.astype(np.uint8).view(np.int8).astype(np.int64)


@pytest.fixture(scope="module")
def lane(build_cache: Path) -> Lane:
    return Lane(build_cache)


OTHER = {Rounding.TFLITE: (2**30, -3), Rounding.ONNX: (2**23, -3)}
"""Multiplier and shift of the sums that are not negative."""


@pytest.mark.parametrize("operation", [VectorOperation.REQUANTISE, VectorOperation.ABSOLUTE, VectorOperation.LEAKY])
@pytest.mark.parametrize("rounding", list(Rounding))
def test_sums(lane: Lane, operation: VectorOperation, rounding: Rounding) -> None:
    scale, (other, shift_other) = SCALE[rounding], OTHER[rounding]
    for mult, shift in product(MULTIPLIERS[rounding], SHIFTS):
        sums = [v for v in accumulators(mult, shift, rounding) if v > -(2**31)]
        if operation == VectorOperation.LEAKY:
            fields = {"mult_b": mult, "shift_b": shift, "mult_out": other, "shift_out": shift_other}
            expected = [to_int8(scale(v, mult, shift) if v < 0 else scale(v, other, shift_other)) for v in sums]
        else:
            fields = {"mult_out": mult, "shift_out": shift}
            expected = [
                to_int8(scale(abs(v) if operation == VectorOperation.ABSOLUTE else v, mult, shift)) for v in sums
            ]
        equal(
            lane.run(operation, rounding, {"sum": sums}, **fields),
            expected,
            sums,
            [mult] * len(sums),
            [shift] * len(sums),
        )


A, B = (grid.ravel() for grid in np.meshgrid([-128, -127, -3, -1, 0, 1, 2, 5, 64, 127], range(-128, 128, 3)))


@pytest.mark.parametrize("rounding", list(Rounding))
def test_products(lane: Lane, rounding: Rounding) -> None:
    for mult, shift in product(MULTIPLIERS[rounding], range(-15, 2)):
        got = lane.run(VectorOperation.MULTIPLY, rounding, {"a": A, "b": B}, za=-1, mult_out=mult, shift_out=shift)
        expected = [
            to_int8(SCALE[rounding]((a + 1) * b, mult, min(shift, 0)))
            for a, b in zip(A.tolist(), B.tolist(), strict=True)
        ]
        equal(got, expected, A, B, [mult] * len(A), [shift] * len(A))


@pytest.mark.parametrize("rounding", list(Rounding))
@pytest.mark.parametrize("sign", [1, -1], ids=["add", "subtract"])
def test_additions(lane: Lane, rounding: Rounding, sign: int) -> None:
    """Operands with multipliers that make ties, each by itself, in the sum, and in both."""
    operation = VectorOperation.ADD if sign == 1 else VectorOperation.SUBTRACT
    tflite = rounding == Rounding.TFLITE
    one = 2**30 if tflite else 2**23
    rows = range(0, len(A), 7)
    a, b = A[rows], B[rows]
    for mult_a, mult_b in ((one, one), (one + 1, one), (2 * one - 1, one), (one + one // 2, one + 1)):
        for shift_a, shift_b in product((0, -1, -2, -5), (0, -1, -16)):
            for mult_out, shift_out in ((2**30, -19), (2**30, -20), (2**30 + 1, -19)) if tflite else ((0, 0),):
                fields = {"mult_a": mult_a, "shift_a": shift_a, "mult_b": mult_b, "shift_b": shift_b, "zb": 2}
                got = lane.run(operation, rounding, {"a": a, "b": b}, **fields, mult_out=mult_out, shift_out=shift_out)
                operands = zip(a.tolist(), b.tolist(), strict=True)
                expected = [
                    to_int8(
                        sum_of(rounding, sign, (x, mult_a, shift_a), (y - 2, mult_b, shift_b), (mult_out, shift_out))
                    )
                    for x, y in operands
                ]
                equal(got, expected, a, b, *([n] * len(a) for n in (mult_a, shift_a, mult_b, shift_b)))


# --- whole accelerators ---------------------------------------------------------------------------------------------


def program(config: Config, rounding: Rounding, records: Ints) -> tuple[list[int], bytes]:
    """1 x 1 convolutions with weights of 0, as many as it takes: each channel scales its bias. Words, and the weights
    with their records as they lie in memory from 0 on; the bytes come behind them.

    ``records``: bias, multiplier and shift per channel, a multiple of the output lanes.
    """
    size = config.param_rows(config.oc_lanes) * config.word_bytes
    block = size + config.weight_rows * config.word_bytes
    lanes = np.zeros((len(records), 4), "<u4")
    lanes[:, :3] = records & MASK
    rows = lanes.reshape(-1, 4 * config.oc_lanes).view(np.uint8)
    stream = np.zeros((len(rows), block), np.uint8)
    stream[:, : rows.shape[1]] = rows
    most = config.bank_bytes // block
    words = [
        cfg(Unit.ARRAY, name, value)
        for name, value in {
            "IN_ADDR": config.sram - config.bank_bytes,
            "IN_BYTES": config.ic_lanes,
            "IN_ROWS": 1,
            "ROW_BYTES": config.ic_lanes,
            "OUT_ADDR": config.sram - 2 * config.bank_bytes,
            "STRIPE": 1,
            "KC": pack(Unit.ARRAY, "KC", blocks=1, group=0),
            "GEOMETRY": pack(Unit.ARRAY, "GEOMETRY", kh=1, kw=1, stride_y=1, dilation_y=1),
            "TILE": pack(Unit.ARRAY, "TILE", height=1, width=1),
            "QUANT": pack(Unit.ARRAY, "QUANT", zero_in=0, zero_out=0, lo=-128, hi=127),
            "MODE": pack_some(Unit.ARRAY, "MODE", rounding=int(rounding)),
        }.items()
    ]
    for first in range(0, len(rows), most):
        count = min(most, len(rows) - first)
        moves = {
            Unit.LOAD: (first * block, 0, count * block),
            Unit.STORE: (
                stream.size + first * config.oc_lanes,
                config.sram - 2 * config.bank_bytes,
                count * config.oc_lanes,
            ),
        }
        for unit, (memory, sram, length) in moves.items():
            values = {"MEM_ADDR": memory, "SRAM_ADDR": sram, "SRAM_BYTES": length, "LENGTH": length}
            values["COUNT"] = pack(unit, "COUNT", rows=1, planes=1)
            words += [cfg(unit, name, value) for name, value in values.items()]
        changes = dict.fromkeys(("OUT_BYTES", "OUT_Y_STEP", "OUT_X_STEP"), count * config.oc_lanes)
        changes |= {"W_BYTES": count * block, "BLOCKS": pack(Unit.ARRAY, "BLOCKS", count=count, last=config.oc_lanes)}
        words += [cfg(Unit.ARRAY, name, value) for name, value in changes.items()]
        words += [sync(Unit.LOAD, Unit.ARRAY), int(Op.DMA_READ), sync(Unit.ARRAY, Unit.LOAD)]
        words += [sync(Unit.ARRAY, Unit.STORE), int(Op.CONV_RELU), sync(Unit.STORE, Unit.ARRAY), int(Op.DMA_WRITE)]
    return [*words, int(Op.END)], stream.tobytes()


@pytest.mark.parametrize("rounding", list(Rounding))
@pytest.mark.parametrize("config", [SMALL["3x5"], Config.load("icebreaker")], ids=["3x5", "microcoded"])
def test_accelerator(build_cache: Path, config: Config, rounding: Rounding) -> None:
    """Through the program, whichever hardware scales: model and microprogram have no scaler of the blocks above."""
    acc, mult, shift, expected = corner_arrays(rounding, lanes=config.oc_lanes)
    words, stream = program(config, rounding, np.stack([acc, mult, shift], axis=1))
    pages = -(-len(words) // PAGE_WORDS)
    start = -(-(len(stream) + len(acc)) // 4096) * 4096
    memory = np.zeros(start + -(-pages * PAGE_BYTES // 4096) * 4096, np.uint8)
    memory[: len(stream)] = np.frombuffer(stream, np.uint8)
    memory[start : start + 8 * len(words)] = np.frombuffer(to_bytes(words), np.uint8)
    for engine in (Model(config), RtlEngine(config, cache=build_cache)):
        result = engine.run(memory.copy(), start, pages)
        assert result.fault is None
        got = result.memory[len(stream) : len(stream) + len(acc)].view(np.int8)
        equal(got, expected, acc, mult, shift)
