"""Depthwise layers of few channels: a word has several columns of the input, and pixel lanes take pixels."""

import pytest

from dovetail.isa.config.resolved import Config
from dovetail.isa.instructions.checks import View, columns_of
from dovetail.isa.instructions.table import Op, Unit
from dovetail.sw.network import ir
from dovetail.sw.random.networks import RandomNet
from tests.sw.compiler.whole import run_whole


def columns(graph: ir.Graph, config: Config) -> set[int]:
    """Columns of a word of the depthwise convolutions that ran, to the interpreter's bytes."""
    _, result = run_whole(graph, config)
    (timeline,) = result.timeline
    return {
        columns_of(config, Op.DEPTH_CONV, View(Unit.ARRAY, registers))
        for op, registers in zip(timeline.op.tolist(), timeline.registers, strict=True)
        if op == Op.DEPTH_CONV
    }


@pytest.mark.parametrize(("lanes", "wanted"), [((4, 8, 2), 2), ((3, 4, 4), 2), ((4, 4, 8), 4), ((8, 8, 4), 4)])
@pytest.mark.parametrize("more", [False, True])
def test_few_channels(lanes: tuple[int, int, int], wanted: int, more: bool) -> None:
    """Alone, to and from system memory, and between other layers in SRAM."""
    ic, oc, pixel = lanes
    config = Config(ic_lanes=ic, oc_lanes=oc, pixel_lanes=pixel, sram="64 KiB")
    net = RandomNet(pixel)
    channels = config.acc_lanes // wanted
    x = net.input(1, 9, 12, channels)
    x = net.conv(net.conv(x, channels, 1) if more else x, 0, multiplier=1)
    assert columns(net.graph(net.conv(x, 5, 1) if more else x), config) == {wanted}


@pytest.mark.parametrize("lanes", [(4, 8, 2), (3, 4, 2), (4, 2, 8)])
@pytest.mark.parametrize("width", [12, 13])
def test_strides_of_two(lanes: tuple[int, int, int], width: int) -> None:
    """A pixel fills the lanes, and a word has the two columns that it does not share with the one before it."""
    ic, oc, pixel = lanes
    config = Config(ic_lanes=ic, oc_lanes=oc, pixel_lanes=pixel, sram="64 KiB")
    assert config.has_wide_words
    for more in (False, True):
        net = RandomNet(width)
        x = net.input(1, 9, width, config.acc_lanes)
        x = net.conv(net.conv(x, config.acc_lanes, 1) if more else x, 0, 3, 2, multiplier=1)
        assert columns(net.graph(net.conv(x, 5, 1) if more else x), config) == {2}


@pytest.mark.parametrize("lanes", [(4, 8, 2), (3, 4, 4), (8, 8, 4), (4, 2, 8)])
@pytest.mark.parametrize("width", [12, 13])
def test_strides_of_two_of_few_channels(lanes: tuple[int, int, int], width: int) -> None:
    """A pixel fills half of the lanes, and a word has two columns: a pixel reads one word, not two."""
    ic, oc, pixel = lanes
    config = Config(ic_lanes=ic, oc_lanes=oc, pixel_lanes=pixel, sram="64 KiB")
    channels = config.acc_lanes // 2
    for more in (False, True):
        net = RandomNet(width)
        x = net.input(1, 9, width, channels)
        x = net.conv(net.conv(x, channels, 1) if more else x, 0, 3, 2, multiplier=1)
        assert columns(net.graph(net.conv(x, 5, 1) if more else x), config) == {2}


def test_not_where_it_would_not_fit() -> None:
    """Rows that do not end with a word, other numbers of channels, strides, kernels of two, one pixel lane."""
    config = Config(ic_lanes=4, oc_lanes=8, pixel_lanes=2, sram="64 KiB")
    for width, channels, size, stride, lanes in (
        (13, 8, 3, 1, 2),
        (12, 7, 3, 1, 2),
        (12, 16, 3, 1, 2),
        (12, 4, 3, 2, 2),
        (12, 8, 5, 1, 2),
        (12, 8, 3, 1, 1),
    ):
        net = RandomNet(width)
        x = net.conv(net.input(1, 9, width, channels), 0, size, stride, multiplier=1)
        assert columns(net.graph(x), config.replace(pixel_lanes=lanes, stripe=None, requant_lanes=None)) == {1}


def test_tiles_of_part_of_a_row() -> None:
    """A tensor in system memory much larger than the SRAM."""
    config = Config(ic_lanes=4, oc_lanes=4, pixel_lanes=4, sram="32 KiB", banks=4)
    for height, width in ((61, 64), (3, 2000)):
        net = RandomNet(height)
        assert columns(net.graph(net.conv(net.input(1, height, width, 8), 0, multiplier=1)), config) == {2}
