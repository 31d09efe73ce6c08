"""Norms in integers against ONNX Runtime's float kernels, the exact formula, and whole numbers of any size."""

from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from dovetail.isa.numerics.norm import (
    NORM_COLUMNS,
    NormRecords,
    NormRows,
    epsilon_error,
    norm,
    norm16,
    norm16_wide,
    norm_epsilon,
)
from tests.norm import row_values

VECTORS = Path(__file__).resolve().parents[4] / "shared/layernorm_vectors.npz"


@pytest.mark.parametrize(("kind", "differing"), [("ln", 14), ("rms", 3)])
def test_every_vector_of_onnx_runtime(kind: str, differing: int) -> None:
    """Of 101,200 and 43,840 elements; those that differ do by one step, and all are close to a tie."""
    if not VECTORS.exists():
        pytest.skip("no measured vectors beside the project")
    with np.load(VECTORS) as file:
        v = {key.removeprefix(f"{kind}_"): file[key] for key in file.files if key.startswith(f"{kind}_")}
    found = 0
    for group, n in enumerate(v["n"].tolist()):
        rows = v["group"] == group
        x, y = v["x"][rows, :n], v["y"][rows, :n].astype(int)
        beta = v["beta"][group, :n] if kind == "ln" else None
        records = NormRecords.of(v["gamma"][group, :n], beta, float(v["y_scale"][group]))
        epsilon = norm_epsilon(n, float(v["eps"][group]), float(v["x_scale"][group]))
        made = norm(x, int(v["x_zp"][group]), epsilon, records, int(v["y_zp"][group]), rms=kind == "rms")
        near = np.unpackbits(v["near_tie"][rows], axis=1)[:, :n].astype(bool)
        assert np.array_equal(made[~near], y[~near]) and np.abs(made - y).max() <= 1
        found += int(np.count_nonzero(made != y))
    assert found == differing


def exact(x: npt.NDArray[Any], eps: float, scale: float, zero: int, rms: bool) -> tuple[Any, Any]:
    """Normalised elements and the root in steps of the operand, float64."""
    c = x.astype(np.float64) - zero
    if not rms:
        c -= c.mean(-1, keepdims=True)
    root = np.sqrt((c * c).mean(-1, keepdims=True) + eps / scale**2)
    return c / np.where(root > 0, root, 1), root


@pytest.mark.parametrize("rms", [False, True])
@pytest.mark.parametrize("columns", [1, 2, 3, 7, 192, 4095, NORM_COLUMNS])
def test_distance_from_the_reals(columns: int, rms: bool) -> None:
    rng = np.random.default_rng(columns)
    for eps, s, t in ((1e-5, 0.02, 0.03), (1e-3, 0.001, 0.05), (1e-12, 0.1, 0.01), (1.0, 3.0, 0.5), (0.0, 1.0, 2e-4)):
        s, t = float(np.float32(s)), float(np.float32(t))
        gamma = (rng.uniform(0.05, 2, columns) * rng.choice([-1, 1], columns)).astype(np.float32)
        beta = None if rms else rng.normal(0, 1, columns).astype(np.float32)
        x = np.clip(rng.normal(0, [[1], [9], [200]] * 6, (18, columns)), -128, 127).astype(np.int8)
        x[3], x[4, 1:], x[5], x[6] = 5, -7, 127, -128  # constant, and all but one
        x[5, 0], x[6, -1] = 126, -127  # the smallest spread
        made = norm(x, 3, norm_epsilon(columns, eps, s), NormRecords.of(gamma, beta, t), -9, rms=rms) + 9.0
        normal, root = exact(x, eps, s, 3, rms)
        gain = np.abs(gamma) / t
        reals = normal * gamma / t + (0 if beta is None else beta / t)
        bound = 0.5 + 2.0**-15 + gain * (3 * 2.0**-18 + (np.abs(normal) + 1 / np.where(root > 0, root, 1)) * 2.0**-20)
        assert np.all(np.abs(made - np.clip(reals, -119, 136)) <= bound)


@pytest.mark.parametrize("rms", [False, True])
@pytest.mark.parametrize("columns", [1, 2, 3, 7, 64, 192, 4095, NORM_COLUMNS])
def test_distance_of_16_bits_from_the_reals(columns: int, rms: bool) -> None:
    """Also where a term of eps is far from whole, and as large as the variance."""
    rng = np.random.default_rng(columns)
    for eps, s, t in ((1e-5, 2.0**-8, 2.0**-11), (0.5, 1.0, 0.01), (1e-5, 2.0**-6, 2.0**-13), (0.0, 1.0, 1e-3)):
        t = float(np.float32(t))
        gamma = (rng.uniform(0.05, 2, columns) * rng.choice([-1, 1], columns)).astype(np.float32)
        beta = None if rms else rng.normal(0, 1, columns).astype(np.float32)
        x = np.clip(rng.normal(0, [[0.6], [9.0], [40000.0]] * 6, (18, columns)).round(), -32768, 32767).astype(np.int64)
        x[3], x[4, 1:], x[5], x[6] = 5, -7, 32767, -32768  # constant, and all but one
        x[5, 0], x[6, -1] = 32766, -32767  # the smallest spread
        records, term = NormRecords.of(gamma, beta, t), norm_epsilon(columns, eps, s, 16)
        normal, root = exact(x, eps, s, 0, rms)
        gain = np.abs(gamma) / t
        reals = normal * gamma / t + (0 if beta is None else beta / t)
        moved = (np.abs(normal) + 1 / np.where(root > 0, root, 1)) * 2.0**-20 + epsilon_error(columns, eps, s)
        bound = 0.5 + gain * (3 * 2.0**-18 + moved)
        wide = norm16_wide(x, term, records, rms=rms)
        assert np.all(np.abs(wide - np.clip(reals, -32768, 32767)) <= bound + 2.0**-7)
        narrow = norm16(x, term, records, -9, rms=rms) + 9.0
        assert np.all(np.abs(narrow - np.clip(reals, -119, 136)) <= bound + 2.0**-15)


def test_the_term_of_epsilon_can_move_an_element_far() -> None:
    """Where it is about as small as the least variance, and is no whole number."""
    assert norm_epsilon(2, 0.1, 1.0, 16) == 0 and norm_epsilon(2, 0.25, 1.0, 16) == 1
    assert epsilon_error(2, 0.1, 1.0) > 0.2
    assert epsilon_error(2, 0.25, 1.0) == epsilon_error(64, 0.0, 1.0) == 0


@pytest.mark.parametrize("bits", [8, 16])
@pytest.mark.parametrize("rms", [False, True])
def test_rows_in_whole_numbers(rms: bool, bits: int) -> None:
    """Every value of a row against another way to it, and that all fit: 24 bits, a shift of 0 to 27, a product of 32
    bits, a normalised element of 24; of 16-bit elements a shift of 0 to 35, and 40 bits."""
    rng, most = np.random.default_rng(7 + rms), 1 << bits - 1
    spreads = [0.02, 1, 30, 400, *([5000, 90000] if bits == 16 else [])]
    for _ in range(400):
        n = int(rng.choice([1, 2, 3, 5, 64, 200, 2048, 2049, 4095, 4096]))
        zero, epsilon = (
            int(rng.integers(-128, 128)) * (bits == 8),
            int(rng.choice(np.array([0, 1, rng.integers(1 << 56), (1 << 56) - 1]))),
        )
        row = np.clip(rng.normal(zero, rng.choice(spreads), n).round(), -most, most - 1).astype(np.int64)
        made = NormRows.of(row[None] - zero, epsilon, rms=rms, bits=bits)
        values = [int(value.item()) for value in (made.mean, made.factor, made.offset, made.right)]
        assert values == list(row_values(row.tolist(), zero, epsilon, rms=rms, bits=bits))
        mean, factor, offset, right = values
        assert 0 <= offset <= factor < 1 << 24 and 0 <= right <= bits + 19 and -most <= mean + zero < most
        assert np.abs((row - zero - mean) * factor - offset).max() < 1 << bits + 24
        assert np.abs(made.normalised(row[None] - zero)).max() < 1 << 24


def test_records_as_bytes() -> None:
    gains, offsets = np.array([0.5, -2, 0, 2**-10, 3], np.float32), np.array([1, 2, 0, -0.5, 0], np.float32)
    records = NormRecords.of(gains, offsets, 0.25)
    words = np.frombuffer(records.pack(3), "<i4").reshape(2, 2, 3)
    assert words[1, :, 2].tolist() == [0, 0]
    again = NormRecords.unpack(words[:, 0].reshape(-1)[:5], words[:, 1].reshape(-1)[:5])
    for name in ("bias", "mult", "shift", "negative"):
        assert np.array_equal(getattr(again, name), getattr(records, name))
    assert records.bias.tolist() == [2 << 17, -1 << 17, 0, -512 << 17, 0]
    assert records.mult[[0, 1]].tolist() == [1 << 23, 1 << 23] and records.mult[2] == 0
    assert records.shift[[0, 1]].tolist() == [-15, -13] and records.negative.tolist() == [
        False,
        True,
        False,
        False,
        False,
    ]


def test_what_a_norm_cannot_be() -> None:
    one = np.ones(4, np.float32)
    with pytest.raises(ValueError, match=r"^offset of channel 1 must be below 2\*\*14 times its gain, 0, not 1$"):
        NormRecords.of(np.array([1, 0, 1, 1], np.float32), one, 1.0)
    with pytest.raises(ValueError, match=r"^offset of channel 0 must be below 2\*\*14 times its gain, 1, not 20000$"):
        NormRecords.of(one, 20000 * one, 1.0)
    with pytest.raises(ValueError, match=r"^gains must be below 2\*\*17 steps of the result, not 131072$"):
        NormRecords.of(one, None, 2.0**-17)
    with pytest.raises(ValueError, match=r"^eps must be 0 or more and below 6.87195e-08, not 1$"):
        norm_epsilon(4, 1.0, 1e-9)
