"""Depthwise layers that take several kernel rows at once: a buffer keeps the rows of the input."""

from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dovetail.cosim.compare.networks import verify
from dovetail.isa.config.resolved import Config
from dovetail.isa.instructions.checks import View, longest_line, rows_of, skip_of
from dovetail.isa.instructions.table import Op, Unit
from dovetail.sw.network import ir
from dovetail.sw.random.networks import RandomNet
from dovetail.sw.runtime.compiled_network import CompiledNetwork, compile_network
from tests.sw.compiler.whole import run_whole

LANES = {(8, 8, 1): 2, (16, 8, 1): 3, (8, 8, 4): 2, (9, 4, 2): 3}
"""Shapes, and the kernel rows of a step."""


def config_of(lanes: tuple[int, int, int], **parameters: Any) -> Config:
    ic, oc, pixel = lanes
    return Config(ic_lanes=ic, oc_lanes=oc, pixel_lanes=pixel, sram="64 KiB", **parameters)


def layer(height: int, width: int, channels: int, size: int = 3, stride: int = 1, *, more: bool = False) -> ir.Graph:
    """A depthwise layer, alone, to and from system memory, or between others in SRAM."""
    net = RandomNet(width)
    x = net.input(1, height, width, channels)
    x = net.conv(net.conv(x, channels, 1) if more else x, 0, size, stride, multiplier=1)
    return net.graph(net.conv(x, 5, 1) if more else x)


CHAIN = "chain"


def forms(graph: ir.Graph, config: Config) -> Counter[tuple[int, int | str]]:
    """(kernel rows of a step, lines from one with results to the next or CHAIN) of the depthwise convolutions that ran,
    to the interpreter's bytes. Lines of several rows are no longer than a stripe, nor than the buffer."""
    _, result = run_whole(graph, config)
    (timeline,) = result.timeline
    found = Counter[tuple[int, int | str]]()
    for op, registers in zip(timeline.op.tolist(), timeline.registers, strict=True):
        if op == Op.DEPTH_CONV:
            view = View(Unit.ARRAY, registers)
            rows, skip = rows_of(op, view), skip_of(op, view)
            found[rows, CHAIN if view["MODE", "chain"] else skip] += 1
            if rows > 1:
                assert view["TILE", "width"] <= longest_line(config, view["MODE", "slide"])
    return found


def with_rows(config: Config, rows: int) -> Config:
    return config.replace(kernel_rows=rows, requant_lanes=None)


@pytest.mark.parametrize(("lanes", "rows"), LANES.items())
@pytest.mark.parametrize("more", [False, True])
def test_kernels_of_three(lanes: tuple[int, int, int], rows: int, more: bool) -> None:
    config = config_of(lanes)
    assert config.kernel_rows == rows
    assert forms(layer(12, 14, 24, more=more), config).keys() == {(rows, 1)}
    assert forms(layer(12, 14, 24, more=more), with_rows(config, 1)).keys() == {(1, 1)}


@pytest.mark.parametrize("more", [False, True])
@pytest.mark.parametrize("height", [15, 16])
def test_strides(height: int, more: bool) -> None:
    """Lines are skipped where all rows of a kernel are one step. Where they are two, steps are a chain."""
    assert forms(layer(height, 21, 24, stride=2, more=more), config_of((16, 8, 1))).keys() == {(3, 2)}
    for lanes in ((8, 8, 1), (8, 8, 4)):
        assert forms(layer(height, 21, 24, stride=2, more=more), config_of(lanes)).keys() == {(2, CHAIN)}
    assert forms(layer(height, 21, 24, stride=3, more=more), config_of((8, 8, 1))).keys() == {(1, 1)}


@pytest.mark.parametrize("more", [False, True])
@pytest.mark.parametrize(("width", "size", "stride"), [(70, 3, 1), (70, 5, 1), (141, 3, 2)])
def test_long_lines_are_cut(width: int, size: int, stride: int, more: bool) -> None:
    """An instruction for each band of columns, or of rows where the array goes along columns."""
    found = forms(layer(width, width, 8, size, stride, more=more), config_of((16, 8, 1)))
    assert found.keys() == {(3, stride)} and found[3, stride] >= 3
    if stride == 2:
        found = forms(layer(width, width, 8, size, stride, more=more), config_of((8, 8, 1)))
        assert found.keys() == {(2, CHAIN)} and found[2, CHAIN] >= 3
    narrow = forms(layer(9, 30, 8, size, stride, more=more), config_of((16, 8, 1), stripe=4))
    assert {rows for rows, _ in narrow} <= {1, 3}


def test_kernels_of_five() -> None:
    """Fifteen lanes: two steps for five rows. Eight lanes have one row."""
    assert forms(layer(14, 12, 24, 5), config_of((16, 8, 1))).keys() == {(3, 1)}
    assert forms(layer(14, 12, 24, 5, 2), config_of((16, 8, 1))).keys() == {(3, 2)}
    assert forms(layer(14, 12, 24, 5), config_of((8, 8, 1))).keys() == {(1, 1)}


@pytest.mark.parametrize("lanes", [(16, 8, 1), (8, 8, 1)])
def test_high_planes(lanes: tuple[int, int, int]) -> None:
    assert forms(layer(25, 5, 64), config_of(lanes)).keys() == {(LANES[lanes], 1)}


@pytest.mark.parametrize("dilation", [0, 2, 3])
@pytest.mark.parametrize("stride", [1, 2, 3, 4, 6])
def test_dilated_kernels(dilation: int, stride: int) -> None:
    """Lines are as far apart as kernel rows, so strides are multiples of the dilation. A file may have one of 0."""
    net = RandomNet(dilation)
    x, pads = net.input(1, 31, 29, 16), (dilation,) * 4
    height, width = net.window(x, (2 * dilation + 1,) * 2, (stride, stride), pads)
    out = net.tensor(1, height, width, 16)
    net.node(
        ir.Depthwise,
        (x,),
        out,
        weights=net.random.integers(-127, 128, (3, 3, 16)).astype(np.int8),
        bias=net.random.integers(-5000, 5000, 16).astype(np.int32),
        requant=net.requant(x, out, 0.003, 16),
        stride=(stride, stride),
        pads=pads,
        dilation=(dilation, dilation),
    )
    expected = {(3, stride // dilation)} if stride in (dilation, 2 * dilation) else {(1, 1)}
    assert forms(net.graph(out), config_of((16, 8, 1))).keys() == expected
    in_two_steps = {dilation: {(2, 1)}, 2 * dilation: {(2, CHAIN)}}.get(stride, {(1, 1)})
    assert forms(net.graph(out), config_of((8, 8, 1))).keys() == in_two_steps


def test_what_takes_a_row_at_a_time() -> None:
    """Kernels of two and seven columns, channel multipliers."""
    config = config_of((16, 8, 1))
    for size in (2, 7):
        assert forms(layer(9, 12, 8, size), config).keys() == {(1, 1)}
    net = RandomNet(1)
    assert forms(net.graph(net.conv(net.input(1, 9, 9, 4), 0, multiplier=2)), config).keys() == {(1, 1)}


@pytest.mark.slow
def test_cycles() -> None:
    """MobileNetV2 with a kernel row at a time, and with as many as fit."""

    def cycles(config: Config) -> int:
        return compile_network("zoo:mobilenet_v2", config).report().cycles

    found = {}
    for lanes, bus in (((8, 8, 1), 64), ((16, 16, 1), 128)):
        ic, oc, pixel = lanes
        config = Config(ic_lanes=ic, oc_lanes=oc, pixel_lanes=pixel, sram="1 MiB", bus=bus)
        found[lanes] = cycles(with_rows(config, 1)), cycles(config)
    assert found == {(8, 8, 1): (5_637_291, 5_312_676), (16, 16, 1): (1_769_301, 1_475_464)}


@pytest.mark.slow
@pytest.mark.parametrize("lanes", [(16, 8, 1), (8, 8, 4)], ids=str)
def test_on_rtl(lanes: tuple[int, int, int], build_cache: Path) -> None:
    """Bands, strides, several blocks, two steps: bytes, timeline and counters."""
    net = RandomNet(4)
    x = net.conv(net.input(1, 19, 47, 20), 0, multiplier=1)
    x = net.conv(net.conv(x, 40, 1), 0, 3, 2, multiplier=1)
    graph = net.graph(net.conv(net.conv(x, 0, 5, multiplier=1), 7, 1))
    compiled: CompiledNetwork = compile_network(graph, config_of(lanes))
    samples = [np.random.default_rng(5).integers(-128, 128, port.shape).astype(np.int8) for port in graph.inputs]
    (verdict,) = verify(compiled, samples, cache=build_cache)
    assert verdict.equal, verdict.first_difference
