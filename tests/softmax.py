"""SOFTMAX of one row in plain integers and fractions, written from docs/architecture.md, for models and hardware."""

from collections.abc import Iterator, Sequence
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from dovetail.isa.config.resolved import Config
from dovetail.isa.instructions.table import Unit, pack
from dovetail.isa.numerics.rounding import Rounding
from dovetail.isa.numerics.softmax import onnx_exponentials, tflite_exponentials

VECTORS = Path(__file__).resolve().parents[2] / "shared/softmax_vectors.npz"
TABLE = 24 << 10
"""Where `softmax` has its table."""

RECIPROCAL = round(Fraction(48 << 29, 17)), -round(Fraction(32 << 29, 17))
"""Newton's first guess, 48 / 17 - 32 / 17 * x, with 29 fraction bits."""


def shares(
    row: Sequence[int], words: Sequence[int], *, onnx: bool, counts: Sequence[bool], levels: int, zero: int
) -> list[int]:
    """int8 of a row whose elements count or not; 256 ``words`` of 32 bits."""
    used = [x for x, is_in in zip(row, counts, strict=True) if is_in]
    if not used:
        return [zero] * len(row)
    entries = [words[max(used) - x] % (1 << 31) if is_in else 0 for x, is_in in zip(row, counts, strict=True)]
    made = _floats(entries, levels % 8192) if onnx else _integers(entries)
    return [max(-128, min(127, y + zero)) if is_in else zero for y, is_in in zip(made, counts, strict=True)]


def _integers(entries: Sequence[int]) -> list[int]:
    total = max(1, sum(entry + (1 << 11) >> 12 for entry in entries))
    zeros = 32 - total.bit_length()
    half = total << zeros >> 1

    def times(a: int, b: int) -> int:
        return a * b + (1 << 30) >> 31

    guess = RECIPROCAL[0] + times(half, RECIPROCAL[1])
    for _ in range(3):
        guess += times(guess, (1 << 29) - times(half, guess)) << 2
    reciprocal = min(2 * guess, (1 << 31) - 1)
    return [(times(entry, reciprocal) >> 34 - zeros) + 1 >> 1 for entry in entries]


def _floats(entries: Sequence[int], levels: int) -> list[int]:
    values = [_value(entry) for entry in entries]
    total = Fraction(0)
    for value in values:
        total = _rounded(total + value)
    return [round(value * levels / total) if total else 0 for value in values]


def _value(word: int) -> Fraction:
    """Of a float32, whatever its exponent."""
    exponent, mantissa = word >> 23, word % (1 << 23) + (1 << 23) * (word >= 1 << 23)
    return mantissa * Fraction(2) ** max(exponent, 1)


def _rounded(value: Fraction) -> Fraction:
    """To 24 significant bits, none below those of the smallest exponent, ties to even."""
    step = Fraction(2) ** max(1, int(value).bit_length() - 24)
    return round(value / step) * step


def vec(name: str, **values: int) -> int:
    return pack(Unit.VECTOR, name, **values)


def softmax(config: Config, shape: tuple[int, int, int], rounding: Rounding, **registers: int) -> dict[str, int]:
    """Registers of SOFTMAX of a dense tensor [height, width, n] at 0, all of whose elements count, to one at 12 KiB."""
    height, width, n = shape
    count = -(-n // config.vector_lanes)
    return {
        "IN_BYTES": height * width * n,
        "Y_STEP": width * n,
        "X_STEP": n,
        "IN_ROWS": height,
        "ROW_BYTES": width * n,
        "GEOMETRY": vec("GEOMETRY", kh=1, kw=1, stride_y=1, dilation_y=1),
        "TILE": vec("TILE", height=height, width=width),
        "QUANT": vec("QUANT", zero_in=0, zero_out=-128, lo=5, hi=7),
        "OUT_ADDR": 12 << 10,
        "OUT_BYTES": height * width * n,
        "OUT_Y_STEP": width * n,
        "OUT_X_STEP": n,
        "BLOCKS": vec("BLOCKS", count=count, last=n - (count - 1) * config.vector_lanes),
        "MODE": vec("MODE", rounding=int(rounding), average=0, requantise=0, subtract=0),
        "B_ADDR": TABLE,
        "B_BYTES": 1024,
        "OUT_MULT": 256,
        "POOL_COUNT": n,
    } | registers


def measured(prefix: str) -> Iterator[tuple[npt.NDArray[np.int8], npt.NDArray[np.int16], dict[str, Any]]]:
    """Input, result and parameters of every vector of a runtime; uint8 as int8."""
    if not VECTORS.exists():
        pytest.skip("no measured vectors beside the project")
    with np.load(VECTORS) as file:
        arrays = {key.removeprefix(prefix): file[key] for key in file.files if key.startswith(prefix)}
    offset, shift = arrays.pop("offset"), 128 if arrays["x"].dtype == np.uint8 else 0
    x, y = (arrays.pop(key).astype(np.int16) - shift for key in "xy")
    for index in range(len(offset) - 1):
        part = slice(offset[index], offset[index + 1])
        given = {key: array[index].item() for key, array in arrays.items()}
        given |= {"y_zp": given["y_zp"] - shift} if "y_zp" in given else {}
        yield x[part].astype(np.int8), y[part], given


def instruction(
    config: Config, prefix: str, n: int, given: dict[str, Any], rows: int = 1
) -> tuple[dict[str, int], bytes]:
    """Registers and table for rows of a measured vector's parameters."""
    if prefix == "tflm_":
        return softmax(config, (rows, 1, n), Rounding.TFLITE), tflite_exponentials(1.0, given["x_scale"]).tobytes()
    levels = int(np.floor(np.float32(1) / np.float32(given["y_scale"])))
    quant = vec("QUANT", zero_in=0, zero_out=given["y_zp"], lo=0, hi=0)
    registers = softmax(config, (rows, 1, n), Rounding.ONNX, OUT_MULT=levels, QUANT=quant)
    return registers, onnx_exponentials(given["x_scale"], n).tobytes()
