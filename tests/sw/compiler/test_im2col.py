"""Convolutions of few channels whose kernel's rows become channels."""

from dataclasses import replace
from typing import Any

import pytest

from dovetail.isa.config.resolved import Config
from dovetail.isa.numerics.rounding import Rounding
from dovetail.isa.numerics.softmax import onnx_exponentials
from dovetail.sw.compiler.options import Options
from dovetail.sw.compiler.partition import kernel_rows
from dovetail.sw.compiler.partition.outline import partition
from dovetail.sw.network import ir
from dovetail.sw.random.networks import RandomNet
from tests.sw.compiler.test_along_rows import EIGHT, SIXTEEN
from tests.sw.compiler.test_integer_forms import check


def image(shape: tuple[int, int, int], *, softmax: bool = True, **parameters: Any) -> ir.Graph:
    """A convolution of an image, and perhaps a softmax of each of its pixels."""
    net = RandomNet(7)
    x = net.conv(net.input(1, *shape), **{"channels": 40, **parameters})
    if not softmax:
        return net.graph(x)
    out = net.tensor(*net.shape(x))
    table = onnx_exponentials(0.1, net.shape(x)[-1])
    net.node(ir.Softmax, (x,), out, form=Rounding.ONNX, levels=256, zero_out=-128, exponentials=table)
    return net.graph(out)


def nodes(graph: ir.Graph, config: Config) -> list[str]:
    return [node.op for node in partition(graph, config, Options(effort=0)).graph.nodes]


@pytest.mark.parametrize("config", [EIGHT, SIXTEEN, replace(SIXTEEN, sram=64 << 10)])
@pytest.mark.parametrize(
    ("shape", "parameters"),
    [
        ((32, 32, 3), {"size": 7, "stride": 2}),
        ((19, 23, 3), {"size": 5, "stride": 2, "pads": (0, 1, 0, 2)}),
        ((20, 17, 1), {"size": 5, "stride": 3, "pads": (1, 0, 4, 0)}),
        ((16, 30, 3), {"size": 5, "stride": 1, "pads": (0, 0, 0, 0)}),
    ],
)
def test_bytes(
    config: Config, shape: tuple[int, int, int], parameters: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """With a frame above, below, and without; strides that leave rows out; whether it pays or not."""
    monkeypatch.setattr(kernel_rows, "_pays", lambda *_: True)
    graph = image(shape, **parameters)
    wanted = ["pad"] * ("pads" not in parameters or parameters["pads"][0] > 0) + ["copies", "conv", "qlinearsoftmax"]
    assert nodes(graph, config) == wanted
    check(graph, config)


def test_where_it_does_not_pay() -> None:
    """Full lanes; a single row; more to copy than to compute; no room in SRAM; nothing over rows."""
    good: dict[str, Any] = {"size": 7, "stride": 2}
    assert "copies" in nodes(image((32, 32, 3), **good), SIXTEEN)
    assert "copies" not in nodes(image((32, 32, 16), **good), SIXTEEN)
    assert "copies" not in nodes(image((32, 32, 3), size=1), SIXTEEN)
    assert "copies" not in nodes(image((32, 32, 3), **good, channels=8), SIXTEEN)
    assert "copies" not in nodes(image((32, 32, 3), **good), replace(SIXTEEN, sram=32 << 10))
    assert "copies" not in nodes(image((32, 32, 3), **good, softmax=False), SIXTEEN)


def test_the_array_takes_fewer_cycles() -> None:
    """147 of 160 lanes have a tap instead of 147 of 224."""
    report = check(image((32, 32, 3), size=7, stride=2), SIXTEEN).report()
    assert (report.cycles, report.macs) == (14_971, 16 * 16 * 147 * 40)
