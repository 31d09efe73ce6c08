"""Depthwise layers of planes higher than wide: the array goes along columns."""

from dataclasses import replace

import numpy as np
import pytest

from dovetail.isa.config.resolved import Config
from dovetail.isa.instructions.checks import View
from dovetail.isa.instructions.table import Op, Unit
from dovetail.sw.compiler.emit import array_layer
from dovetail.sw.compiler.layer import ConvLayer
from dovetail.sw.compiler.plan.array_time import sets_of
from dovetail.sw.network import ir
from dovetail.sw.random.networks import RandomNet
from tests.sw.compiler.whole import run_whole


def tiles(graph: ir.Graph, config: Config) -> set[tuple[int, int]]:
    """Rows and columns, to the array, of the depthwise convolutions that ran, to the interpreter's bytes."""
    _, result = run_whole(graph, config)
    (timeline,) = result.timeline
    views = (
        View(Unit.ARRAY, registers)
        for op, registers in zip(timeline.op.tolist(), timeline.registers, strict=True)
        if op == Op.DEPTH_CONV
    )
    return {(view["TILE", "height"], view["TILE", "width"]) for view in views}


@pytest.mark.parametrize("lanes", [(8, 8, 1), (4, 8, 2), (3, 4, 4), (2, 4, 1)])
@pytest.mark.parametrize("channels", [5, 24])
@pytest.mark.parametrize("more", [False, True])
def test_high_planes(lanes: tuple[int, int, int], channels: int, more: bool) -> None:
    """Alone, to and from system memory, and between other layers in SRAM."""
    ic, oc, pixel = lanes
    config = Config(ic_lanes=ic, oc_lanes=oc, pixel_lanes=pixel, sram="64 KiB")
    net = RandomNet(channels)
    x = net.input(1, 19, 4, channels)
    x = net.conv(net.conv(x, channels, 1) if more else x, 0, multiplier=1)
    assert {rows for rows, _ in tiles(net.graph(net.conv(x, 5, 1) if more else x), config)} == {4}


@pytest.mark.parametrize("kernel", [(3, 1), (1, 3), (5, 3), (2, 5), (4, 4)])
@pytest.mark.parametrize("stride", [(1, 1), (2, 1), (1, 2), (3, 3)])
@pytest.mark.parametrize("dilation", [(1, 1), (2, 3)])
def test_kernels(monkeypatch: pytest.MonkeyPatch, kernel: ir.Pair, stride: ir.Pair, dilation: ir.Pair) -> None:
    """Rows and columns of the kernel, strides, dilations and padding change places too, wherever that is done."""

    def always(config: Config, layer: ConvLayer, along_rows: ConvLayer) -> ConvLayer:
        down = replace(layer, down=layer.mode == "depthwise")
        return replace(down, sets=sets_of(config, down))

    monkeypatch.setattr(array_layer, "down_columns", always)
    config = Config(ic_lanes=4, oc_lanes=4, pixel_lanes=2, sram="64 KiB")
    net, pads = RandomNet(sum((*kernel, *stride))), (3, 2, 1, 4)
    x = net.conv(net.input(1, 40, 7, 12), 12, 1)
    height, width = net.window(x, kernel, stride, pads, dilation)
    out = net.tensor(1, height, width, 12)
    net.node(
        ir.Depthwise,
        (x,),
        out,
        weights=net.random.integers(-127, 128, (*kernel, 12)).astype(np.int8),
        bias=net.random.integers(-5000, 5000, 12).astype(np.int32),
        requant=net.requant(x, out, 0.003, 12),
        stride=stride,
        pads=pads,
        dilation=dilation,
    )
    assert {rows for rows, _ in tiles(net.graph(out), config)} == {width}


def test_not_where_it_would_not_fit() -> None:
    """Planes as wide as high, and planes that take more than half of the SRAM."""
    config = Config(ic_lanes=8, oc_lanes=8, sram="32 KiB")
    for height, width, channels in ((12, 12, 8), (5, 20, 8), (300, 5, 8)):
        net = RandomNet(height)
        x = net.conv(net.input(1, height, width, channels), 0, multiplier=1)
        assert {columns for _, columns in tiles(net.graph(x), config)} == {width}
