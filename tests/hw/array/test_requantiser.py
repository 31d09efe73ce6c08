"""The requantiser in the Amaranth simulator against the measured vectors and the integer reference."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from amaranth.sim import Simulator

from dovetail.hw.array.requantiser import Requantiser
from dovetail.hw.common.scaler import Scaler
from dovetail.isa.numerics.multiplier import encode_multiplier
from dovetail.isa.numerics.requantise import requantise_integer, scale_onnx
from dovetail.isa.numerics.rounding import Rounding, round_half_even_shift, round_to_24
from dovetail.isa.timing.array import REQUANTISE

VECTORS = Path(__file__).resolve().parents[4] / "shared/models/requantisation/requant_vectors.npz"

CORNERS = [0, 1, -1, 3, -3, 2**24 + 1, -(2**24) - 3, 2**30, -(2**30), 2**31 - 1, -(2**31) + 1, -(2**31)]

Job = tuple[Rounding, int, int, int, list[int], list[int], list[int]]
"""rounding, zero point, lo, hi; accumulator, mult and shift per lane."""


def pack(values: list[int], width: int) -> int:
    return sum((v & ((1 << width) - 1)) << (width * i) for i, v in enumerate(values))


def unpack(word: int, lanes: int) -> list[int]:
    octets = word.to_bytes(lanes, "little")
    return [b - 256 if b > 127 else b for b in octets]


def run(lanes: int, jobs: list[Job]) -> list[list[int]]:
    """One job per cycle, back to back, each with its own parameters; int8 per job and lane."""
    dut = Requantiser(lanes=lanes)
    results: list[list[int]] = []

    async def bench(ctx: Any) -> None:
        for cycle in range(len(jobs) + dut.LATENCY):
            if cycle >= dut.LATENCY:
                results.append(unpack(ctx.get(dut.result), lanes))
            if cycle < len(jobs):
                rounding, zero_point, lo, hi, acc, mult, shift = jobs[cycle]
                ctx.set(dut.acc, pack(acc, 32))
                ctx.set(dut.mult, pack(mult, 32))
                ctx.set(dut.shift, pack(shift, 8))
                ctx.set(dut.rounding, int(rounding))
                ctx.set(dut.zero_point, zero_point)
                ctx.set(dut.lo, lo)
                ctx.set(dut.hi, hi)
            await ctx.tick()

    simulator = Simulator(dut)
    simulator.add_clock(1e-8)
    simulator.add_testbench(bench)
    simulator.run()
    return results


def reference(job: Job) -> list[int]:
    rounding, zero_point, lo, hi, acc, mult, shift = job
    values = np.array(acc), np.array(mult), np.array(shift)
    return requantise_integer(*values, rounding, zero_point, lo, hi).tolist()


def check(lanes: int, jobs: list[Job]) -> None:
    for job, result in zip(jobs, run(lanes, jobs), strict=True):
        assert result == reference(job), job


def chunks(values: npt.NDArray[Any], lanes: int) -> Iterator[list[int]]:
    for start in range(0, len(values) - lanes + 1, lanes):
        yield values[start : start + lanes].tolist()


def test_latency_is_the_contract() -> None:
    assert Requantiser.LATENCY == REQUANTISE == 3 + Scaler.LATENCY


def test_lanes_must_be_positive() -> None:
    with pytest.raises(ValueError, match="lanes must be positive, not 0"):
        Requantiser(lanes=0)
    with pytest.raises(ValueError, match="lanes must be positive, not -1"):
        Scaler(lanes=-1)


@pytest.mark.parametrize("rounding", list(Rounding))
def test_corners(rounding: Rounding) -> None:
    mults = {
        Rounding.TFLITE: [0, 1, 2**30, 2**30 + 1, 2**31 - 1],
        Rounding.ONNX: [0, 1, 2**23, 2**23 + 1, 2**24 - 1, 2**31 - 1],
    }[rounding]
    lanes = len(CORNERS)
    jobs: list[Job] = [
        (rounding, 0, -128, 127, CORNERS, [mult] * lanes, [shift] * lanes) for mult in mults for shift in range(-32, 32)
    ]
    check(lanes, jobs)


def test_random_registers() -> None:
    """Any register contents, normalised or not, changing every cycle."""
    rng = np.random.default_rng(11)
    lanes = 5
    jobs: list[Job] = []
    for _ in range(400):
        acc = rng.integers(-(2**31), 2**31, lanes) >> rng.integers(0, 32, lanes)
        mult = rng.integers(0, 2**31, lanes) >> rng.integers(0, 12, lanes)
        shift = rng.integers(-32, 32, lanes)
        zero_point, lo, hi = rng.integers(-128, 128, 3).tolist()
        rounding = Rounding(int(rng.integers(0, 2)))
        jobs.append((rounding, zero_point, lo, hi, acc.tolist(), mult.tolist(), shift.tolist()))
    check(lanes, jobs)


def near_ties(rng: np.random.Generator, size: int) -> tuple[npt.NDArray[np.int64], ...]:
    """ONNX operands whose product is within a few units of 24 bits of a tie: where the two roundings meet."""
    mult = rng.integers(2**23, 2**24, size)
    shift = rng.integers(-24, 1, size)
    target = rng.integers(0, 300, size) + 0.5
    acc = np.rint(target / np.ldexp(mult.astype(np.float64), shift - 24)).astype(np.int64)
    return np.clip(acc * rng.choice([-1, 1], size), -(2**31), 2**31 - 1), mult, shift


def test_onnx_near_ties() -> None:
    acc, mult, shift = near_ties(np.random.default_rng(12), 1 << 16)
    once = round_half_even_shift(acc * mult, 24 - shift)
    twice = scale_onnx(acc, mult, shift)
    chosen = np.flatnonzero((once != twice) & (np.abs(acc) < 2**24))[:100]
    assert len(chosen) == 100, "rounding to 24 bits must matter in these"
    chosen = np.concatenate([chosen, np.arange(1000)])
    lanes = 10
    check(
        lanes,
        [
            (Rounding.ONNX, 0, -128, 127, a, q, e)
            for a, q, e in zip(
                chunks(acc[chosen], lanes), chunks(mult[chosen], lanes), chunks(shift[chosen], lanes), strict=True
            )
        ],
    )


def exact_double_ties() -> Iterator[tuple[int, int, int]]:
    """ONNX operands whose product is exactly half a unit of 24 bits beside a tie, so that both roundings are ties.

    The product is ``(2k + 1) * 2^17 + 1`` or ``- 1``, 25 bits, times 2^20. The first rounding drops the one, the binary
    point is above the 2^17. It is split into an accumulator below 2^24 and a normalised multiplier.
    """
    for k in range(64, 128):
        for product in ((2 * k + 1 << 17) - 1, (2 * k + 1 << 17) + 1):
            factors = (n for n in range(3, 1 << 12, 2) if product % n == 0 and product // n < 1 << 24)
            for factor in factors:
                other = product // factor
                lift = 24 - other.bit_length()
                yield factor << 20 - lift, other << lift, 24 - (17 + 20 + 1)


def test_onnx_exact_double_ties() -> None:
    operands = [v for v in exact_double_ties() if v[0] < 1 << 24]
    assert len(operands) > 100
    for acc, mult, shift in operands:
        assert mult >> 23 == 1
        assert (acc * mult).bit_length() == 45 and (acc * mult) % (1 << 21) == 1 << 20, "half a unit of 24 bits"
        assert int(round_to_24(acc * mult)) % (1 << 24 - shift) == 1 << 23 - shift, "a tie"
    jobs: list[Job] = [
        (Rounding.ONNX, 0, -128, 127, [acc, -acc], [mult, mult], [shift, shift]) for acc, mult, shift in operands
    ]
    check(2, jobs)


@pytest.mark.parametrize(("rounding", "column"), [(Rounding.TFLITE, "tflm_conv"), (Rounding.ONNX, "ort_qlinearconv")])
def test_measured_vectors(rounding: Rounding, column: str) -> None:
    if not VECTORS.exists():
        pytest.skip("the trained networks are not beside the project")
    with np.load(VECTORS) as file:
        v = {name: file[name] for name in file.files}
    if rounding == Rounding.TFLITE:
        mult, shift = v["q31_multiplier"], v["q31_shift"]
    else:
        mult, shift = encode_multiplier(v["f32_multiplier"], rounding)
    lanes = 10
    jobs: list[Job] = [
        (rounding, 3, -128, 127, a, q, e)
        for a, q, e in zip(
            chunks(v["acc"], lanes), chunks(np.asarray(mult), lanes), chunks(np.asarray(shift), lanes), strict=True
        )
    ]
    assert len(jobs) * lanes == 14_200
    assert np.array_equal(np.array(run(lanes, jobs)).ravel(), v[column])
