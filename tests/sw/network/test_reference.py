"""The graph interpreter against brute-force loops in Python integers."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest

from dovetail.isa.numerics.requantise import requantise_integer
from dovetail.isa.numerics.rounding import Rounding
from dovetail.sw.network import ir, reference
from dovetail.sw.network.layout import Array

ROUNDINGS = [Rounding.TFLITE, Rounding.ONNX]


def requant(channels: int, rounding: Rounding, zero_in: int = 5, zero_out: int = -7) -> ir.Requant:
    real = np.linspace(0.0005, 0.02, channels)
    return ir.Requant.encode(real, rounding, zero_in, zero_out, -100, 120, where="test")


def one(acc: int, r: ir.Requant, channel: int) -> int:
    mult, shift = int(r.mult[channel]), int(r.shift[channel])
    value = requantise_integer(np.array(acc), mult, shift, r.rounding, r.zero_out, r.lo, r.hi)
    return int(value)


def taps(
    node: ir.Conv | ir.Depthwise | ir.AvgPool | ir.MaxPool, size: tuple[int, int], y: int, x: int
) -> list[tuple[int, int, int, int]]:
    """(ky, kx, input y, input x) of the taps of output pixel (y, x) that lie inside the image."""
    dilation = node.dilation if isinstance(node, ir.Conv | ir.Depthwise) else (1, 1)
    found = []
    for ky, kx in product(range(node.kernel[0]), range(node.kernel[1])):
        iy = y * node.stride[0] + ky * dilation[0] - node.pads[0]
        ix = x * node.stride[1] + kx * dilation[1] - node.pads[1]
        if 0 <= iy < size[0] and 0 <= ix < size[1]:
            found.append((ky, kx, iy, ix))
    return found


def image(rng: np.random.Generator, rows: int, cols: int, channels: int) -> Array:
    return rng.integers(-128, 128, (1, rows, cols, channels)).astype(np.int8)


@pytest.mark.parametrize("rounding", ROUNDINGS)
@pytest.mark.parametrize(("stride", "dilation"), [((1, 1), (1, 1)), ((2, 1), (1, 1)), ((1, 1), (2, 1))])
def test_convolution(rounding: Rounding, stride: ir.Pair, dilation: ir.Pair) -> None:
    rng = np.random.default_rng(1)
    pixels = image(rng, 6, 5, 3)
    node = ir.Conv(
        name="c",
        inputs=("x",),
        outputs=("y",),
        weights=rng.integers(-128, 128, (4, 3, 2, 3)).astype(np.int8),
        bias=rng.integers(-5000, 5000, 4).astype(np.int32),
        requant=requant(4, rounding),
        stride=stride,
        pads=(1, 0, 2, 1),
        dilation=dilation,
    )
    got = reference.conv(node, pixels)
    for y, x, c in product(*(range(n) for n in got.shape)):
        acc = int(node.bias[c])
        for ky, kx, iy, ix in taps(node, (6, 5), y, x):
            acc += sum((int(pixels[0, iy, ix, i]) - 5) * int(node.weights[c, ky, kx, i]) for i in range(3))
        assert got[y, x, c] == one(acc, node.requant, c)


@pytest.mark.parametrize("rounding", ROUNDINGS)
def test_depthwise(rounding: Rounding) -> None:
    rng = np.random.default_rng(2)
    pixels = image(rng, 5, 6, 4)
    node = ir.Depthwise(
        name="d",
        inputs=("x",),
        outputs=("y",),
        weights=rng.integers(-128, 128, (3, 3, 4)).astype(np.int8),
        bias=rng.integers(-5000, 5000, 4).astype(np.int32),
        requant=requant(4, rounding),
        stride=(2, 2),
        pads=(0, 1, 1, 1),
    )
    got = reference.depthwise(node, pixels)
    for y, x, c in product(*(range(n) for n in got.shape)):
        acc = int(node.bias[c])
        for ky, kx, iy, ix in taps(node, (5, 6), y, x):
            acc += (int(pixels[0, iy, ix, c]) - 5) * int(node.weights[ky, kx, c])
        assert got[y, x, c] == one(acc, node.requant, c)


def test_deep_convolution_is_exact_beyond_float32() -> None:
    depth = 4096
    pixels = np.full((1, 1, 1, depth), 127, np.int8)
    pixels[0, 0, 0, 0] = 126
    node = ir.Conv(
        name="c",
        inputs=("x",),
        outputs=("y",),
        weights=np.full((1, 1, 1, depth), 127, np.int8),
        bias=np.array([3], np.int32),
        requant=requant(1, Rounding.TFLITE, zero_in=-128),
    )
    assert int(reference.conv_accumulators(node, pixels)[0, 0, 0]) == 255 * 127 * depth - 127 + 3


def test_accumulators_wrap_at_32_bits() -> None:
    node = ir.Depthwise(
        name="d",
        inputs=("x",),
        outputs=("y",),
        weights=np.full((1, 1, 1), 1, np.int8),
        bias=np.array([2**31 - 1], np.int32),
        requant=requant(1, Rounding.TFLITE, zero_in=0),
    )
    pixels = np.array([[[[1]]]], np.int8)
    assert int(reference.depthwise_accumulators(node, pixels)[0, 0, 0]) == -(2**31)


@pytest.mark.parametrize("counted", [None, -9])
@pytest.mark.parametrize("rounding", ROUNDINGS)
def test_average_pool(rounding: Rounding, counted: int | None) -> None:
    rng = np.random.default_rng(3)
    pixels = image(rng, 5, 5, 2)
    node = ir.AvgPool(
        name="a",
        inputs=("x",),
        outputs=("y",),
        kernel=(2, 2),
        stride=(2, 2),
        pads=(1, 0, 0, 1),
        rounding=rounding,
        lo=-50,
        hi=60,
        counted=counted,
    )
    got = reference.average_pool(node, pixels)
    for y, x, c in product(*(range(n) for n in got.shape)):
        values = [int(pixels[0, iy, ix, c]) for _, _, iy, ix in taps(node, (5, 5), y, x)]
        if counted is not None:
            values += [counted] * (4 - len(values))
        exact = sum(values) / len(values)
        tie = int(exact + 0.5 if exact > 0 else exact - 0.5)
        rounded = tie if rounding == Rounding.TFLITE else round(exact)
        assert got[y, x, c] == min(60, max(-50, rounded))


def test_max_pool_ignores_padding() -> None:
    rng = np.random.default_rng(4)
    pixels = image(rng, 4, 4, 2)
    node = ir.MaxPool(name="m", inputs=("x",), outputs=("y",), kernel=(3, 3), stride=(2, 2), pads=(1, 1, 0, 0), lo=-9)
    got = reference.max_pool(node, pixels)
    for y, x, c in product(*(range(n) for n in got.shape)):
        values = [int(pixels[0, iy, ix, c]) for _, _, iy, ix in taps(node, (4, 4), y, x)]
        assert got[y, x, c] == max(-9, *values)


@pytest.mark.parametrize("rounding", ROUNDINGS)
def test_mean_requantises_the_sum(rounding: Rounding) -> None:
    rng = np.random.default_rng(5)
    pixels = image(rng, 3, 5, 2)
    node = ir.Mean(name="m", inputs=("x",), outputs=("y",), requant=requant(1, rounding))
    got = reference.mean(node, pixels)
    for c in range(2):
        acc = sum(int(v) - 5 for v in pixels[0, :, :, c].ravel())
        assert got[c] == one(acc, node.requant, 0)
