"""Layers of few input channels: a read has the input of two pixels, also where rows have an odd number of them."""

import numpy as np
import pytest

from dovetail.isa.config.resolved import Config
from dovetail.isa.instructions.checks import View, pairs_of, result_pairs_of
from dovetail.isa.instructions.table import Op, Unit
from dovetail.sw.network import ir
from dovetail.sw.random.networks import RandomNet
from tests.sw.compiler.whole import run_whole

SHAPES = {"4x8x2": (4, 8, 2), "4x8x4": (4, 8, 4), "8x16x4": (8, 16, 4), "3x5x8": (3, 5, 8)}


def pairs(graph: ir.Graph, config: Config) -> list[bool]:
    """Of each convolution that ran, to the interpreter's bytes, whether reads had two pixels."""
    _, result = run_whole(graph, config)
    (timeline,) = result.timeline
    return [
        pairs_of(config, Op(op), View(Unit.ARRAY, registers))
        for op, registers in zip(timeline.op.tolist(), timeline.registers, strict=True)
        if op in (Op.CONV, Op.CONV_RELU)
    ]


@pytest.mark.parametrize("shape", SHAPES.values(), ids=SHAPES)
@pytest.mark.parametrize(
    ("channels", "size", "stride", "width"), [(1, 3, 2, 12), (1, 3, 1, 7), (3, 2, 1, 9), (2, 3, 2, 13), (1, 1, 1, 5)]
)
def test_first_layers(shape: tuple[int, int, int], channels: int, size: int, stride: int, width: int) -> None:
    """The results go to system memory, and stay in SRAM beside those of other rows. Without a vector unit, which could
    make other pixels of the image."""
    ic, oc, lanes = shape
    config = Config(ic_lanes=ic, oc_lanes=oc, pixel_lanes=lanes, sram="64 KiB").replace(
        pooling=False, elementwise=False, activation=False
    )
    for more in (False, True):
        net = RandomNet(width)
        x = net.conv(net.input(1, 11, width, channels), 2 * oc + 1, size, stride)
        found = pairs(net.graph(net.conv(x, 8, 3) if more else x), config)
        fits = -(-channels * size // ic) <= config.pair_sets
        assert not fits or size == 1 or found[0]


def test_tiles_of_part_of_a_row() -> None:
    """A tensor in system memory much larger than the SRAM: tiles of several rows, and of parts of one."""
    config = Config(ic_lanes=4, oc_lanes=4, pixel_lanes=2, sram="32 KiB", banks=4)
    for height, width in ((61, 35), (3, 2001)):
        net = RandomNet(height)
        found = pairs(net.graph(net.conv(net.input(1, height, width, 1), 9, 3)), config)
        assert len(found) > 1
        assert all(found)


def test_not_where_it_would_not_help() -> None:
    """Enough input channels, pixels too far apart, one pixel lane."""
    cases = [((4, 8, 2), 8, 1), ((4, 8, 4), 3, 5), ((8, 8, 1), 1, 1)]
    for (ic, oc, lanes), channels, stride in cases:
        net = RandomNet(channels)
        config = Config(ic_lanes=ic, oc_lanes=oc, pixel_lanes=lanes, sram="64 KiB")
        assert not any(pairs(net.graph(net.conv(net.input(1, 9, 12, channels), 8, 3, stride)), config))


@pytest.mark.parametrize(
    ("channels", "made", "together"), [(16, 24, True), (8, 8, True), (16, 20, False), (8, 32, False)]
)
def test_narrow_layers(channels: int, made: int, together: bool) -> None:
    """Of fewer input blocks than pixel lanes; results of two pixels leave together where they are one to three whole
    blocks apart."""
    config = Config(ic_lanes=8, oc_lanes=8, pixel_lanes=4, requant_lanes=16, sram="64 KiB")
    net = RandomNet(channels + made)
    graph = net.graph(net.conv(net.input(1, 12, 32, channels), made, 1))
    _, result = run_whole(graph, config)
    (timeline,) = result.timeline
    operations = zip(timeline.op.tolist(), timeline.registers, strict=True)
    layers = [View(Unit.ARRAY, registers) for op, registers in operations if op == Op.CONV_RELU]
    assert layers
    assert all(pairs_of(config, Op.CONV_RELU, view) for view in layers)
    assert [result_pairs_of(config, Op.CONV_RELU, view) for view in layers] == [together] * len(layers)


@pytest.mark.parametrize("seed", range(6))
def test_random_layers(seed: int) -> None:
    rng = np.random.default_rng(seed)
    for _ in range(6):
        ic, oc, lanes = (int(rng.choice(values)) for values in ([2, 3, 4, 8], [4, 5, 8], [2, 4, 8]))
        config = Config(
            ic_lanes=ic, oc_lanes=oc, pixel_lanes=lanes, sram="64 KiB", stripe=int(rng.integers(2, 9 * lanes)),
            requant_lanes=2 * oc,
        )  # fmt: skip
        net = RandomNet(int(rng.integers(1 << 30)))
        x = net.input(1, int(rng.integers(1, 20)), int(rng.integers(1, 30)), int(rng.integers(1, 17)))
        x = net.conv(
            x, int(rng.choice([int(rng.integers(1, 20)), oc, 2 * oc])), int(rng.integers(1, 5)), int(rng.integers(1, 4))
        )
        pairs(net.graph(x), config)
