"""The Verilated requantiser on every vector measured on the reference engines, and against the integer reference."""

import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dovetail.cosim.rtl.block import Bench
from dovetail.isa.numerics.requantise import requantise
from dovetail.isa.numerics.rounding import Rounding

requantiser = pytest.importorskip("dovetail.hw.array.requantiser")

DATA = Path(os.environ.get("DOVETAIL_MODELS", Path(__file__).resolve().parents[4] / "shared/models"))
VECTORS = DATA / "requantisation/requant_vectors.npz"


def run(
    cache: Path,
    lanes: int,
    rounding: Rounding,
    acc: np.ndarray,
    mult: np.ndarray,
    shift: np.ndarray,
    zero: np.ndarray,
    lo: int = -128,
    hi: int = 127,
) -> np.ndarray:
    """Requantise ``lanes`` values per cycle; ``zero`` has one value per cycle."""
    dut = requantiser.Requantiser(lanes=lanes)
    rows = len(acc) // lanes
    inputs = {
        "acc": acc.astype("<i4").view(np.uint8).reshape(rows, 4 * lanes),
        "mult": mult.astype("<i4").view(np.uint8).reshape(rows, 4 * lanes),
        "shift": shift.astype(np.int8).view(np.uint8).reshape(rows, lanes),
        "zero_point": zero,
        "rounding": np.full(rows, int(rounding)),
        "lo": np.full(rows, lo),
        "hi": np.full(rows, hi),
    }
    with Bench(dut, cache=cache) as bench:
        for name, array in inputs.items():
            port = bench.ports[name]
            if port.width <= 64 and array.ndim == 2:
                wide = np.zeros((rows, 8), np.uint8)
                wide[:, : array.shape[1]] = array
                inputs[name] = wide.view(np.uint64).reshape(-1)
        result = bench.pipeline(inputs, ["result"], dut.LATENCY)["result"]
        width = bench.ports["result"].width
    if width <= 64:
        result = result.astype(np.uint64).view(np.uint8).reshape(rows, 8)[:, : width // 8]
    return np.ascontiguousarray(result).view(np.int8).reshape(-1)


@pytest.mark.skipif(not VECTORS.exists(), reason="the trained networks are not beside the project")
@pytest.mark.parametrize("rounding", list(Rounding))
def test_measured_vectors(build_cache: Path, rounding: Rounding) -> None:
    data = np.load(VECTORS)
    if rounding == Rounding.TFLITE:
        mult, shift = data["q31_multiplier"], data["q31_shift"]
        expected = data["tflm_conv"]
    else:
        fraction, exponent = np.frexp(data["f32_multiplier"])
        mult, shift = np.ldexp(fraction, 24).astype(np.int64), exponent
        expected = data["ort_qlinearconv"]
    assert len(expected) == 14200
    got = run(build_cache, 1, rounding, data["acc"], mult, shift, data["zero_point"])
    wrong = np.flatnonzero(got != expected)
    assert not len(wrong), f"{len(wrong)} differ, first at {wrong[0]}: {got[wrong[0]]}, not {expected[wrong[0]]}"


@pytest.mark.parametrize("lanes", [1, 4])
@pytest.mark.parametrize("rounding", list(Rounding))
def test_random_against_reference(build_cache: Path, rounding: Rounding, lanes: int) -> None:
    rng = np.random.default_rng(lanes)
    n = 40_000
    acc = (rng.integers(-(1 << 31), 1 << 31, n) >> rng.integers(0, 31, n)).astype(np.int64)
    mult = rng.integers(0, 1 << 31, n) >> rng.integers(0, 31, n)
    shift = rng.integers(-32, 32, n)
    zero = rng.integers(-128, 128, n // lanes)
    got = run(build_cache, lanes, rounding, acc, mult, shift, zero, -100, 90)
    zeros: Any = np.repeat(zero, lanes)
    expected = requantise(acc, mult, shift, rounding, zeros, -100, 90)
    wrong = np.flatnonzero(got != np.asarray(expected))
    assert not len(wrong), (acc[wrong[0]], mult[wrong[0]], shift[wrong[0]], got[wrong[0]])
