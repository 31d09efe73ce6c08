"""Padding of any size that has a meaning, also where windows lie in it alone."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from dovetail.isa.config.resolved import Config
from dovetail.sw import frontend
from dovetail.sw.compiler.partition.segments import HOST
from dovetail.sw.frontend.onnx.uint8_form import uint8_form
from dovetail.sw.network import ir
from dovetail.sw.passes.integer.windows import fold_pads
from dovetail.sw.random.networks import RandomNet
from dovetail.sw.runtime.compiled_network import compile_network
from tests.sw.compiler.whole import run_whole
from tests.sw.quantise.test_quantise import run

SQUARE = Config(ic_lanes=8, oc_lanes=8, sram="64 KiB")
EMULATED = Config(ic_lanes=4, oc_lanes=8, sram="32 KiB", depthwise="emulated")
NARROW = Config(ic_lanes=3, oc_lanes=5, sram="32 KiB", requant_lanes=3)
CONFIGS = {"8x8": SQUARE, "emulated": EMULATED, "narrow": NARROW}


@pytest.mark.parametrize("config", CONFIGS.values(), ids=CONFIGS)
@pytest.mark.parametrize(
    ("size", "stride", "pads"),
    [
        (1, 1, (1, 1, 1, 1)),
        (1, 2, (1, 1, 1, 1)),
        (1, 1, (0, 3, 2, 0)),
        (1, 3, (7, 0, 0, 5)),
        (3, 1, (3, 3, 3, 3)),
        (3, 2, (9, 1, 0, 12)),
        (2, 1, (0, 0, 6, 2)),
        (5, 4, (20, 20, 20, 20)),
    ],
)
def test_convolutions(size: int, stride: int, pads: ir.Pads, config: Config) -> None:
    """Dense, in groups and depthwise, from the input and from a tensor that stays in SRAM."""
    net = RandomNet(size + stride)
    x = net.input(1, 6, 7, 8)
    for more in ({"channels": 12}, {"channels": 12, "groups": 4}, {"channels": 0, "multiplier": 1}):
        run_whole(net.graph(net.conv(x, size=size, stride=stride, pads=pads, **more)), config)
        del net.nodes[:]
    x = net.conv(x, 16)
    x = net.conv(net.conv(x, 0, size, stride, multiplier=1, pads=pads), 8, size, stride, pads=pads)
    run_whole(net.graph(x), config)


def test_tiles_in_the_padding_alone() -> None:
    """Rows of single pixels, more of which are padding than not: tiles of each kind."""
    net = RandomNet(4)
    x = net.input(1, 3, 300, 64)
    compiled, _ = run_whole(net.graph(net.conv(x, 24, 1, pads=(2, 200, 3, 200))), EMULATED)
    assert "columns" in compiled.code.layers[0].tiles


def test_padding_as_large_as_the_memory() -> None:
    """Offsets tell twice the SRAM apart: so many bytes beside a row are padding, and no more."""
    config = Config(ic_lanes=8, oc_lanes=8, sram="32 KiB", banks=4)
    for size, pads in ((1, (0, 128, 0, 127)), (2, (1, 100, 0, 128))):
        net = RandomNet(size)
        run_whole(net.graph(net.conv(net.input(1, 2, 3, 256), 8, size, pads=pads)), config)
    net = RandomNet(7)
    graph = net.graph(net.conv(net.input(1, 2, 3, 256), 8, 1, pads=(0, 129, 0, 0)))
    (reason,) = compile_network(graph, config).code.host_reasons.values()
    assert reason == ("padding beside a row must be at most 32 KiB, not 129 pixels of 256 bytes: give more SRAM")


@pytest.mark.parametrize("config", [SQUARE, NARROW], ids=["8x8", "narrow"])
def test_an_average_that_counts_padding(config: Config) -> None:
    net = RandomNet(5)
    x = net.input(1, 6, 7, 8)
    x = net.average(x, (2, 3), (1, 2), (2, 3, 5, 9), counted=net.zero(x))
    run_whole(net.graph(net.average(net.conv(x, 12), (1, 1), (1, 1), (1, 0, 0, 4), counted=-100)), config)


def test_other_pools_keep_their_rule() -> None:
    """What no input is seen by has no maximum."""
    net = RandomNet(6)
    graph = net.graph(net.maximum(net.input(1, 6, 7, 8), (2, 2), (2, 0, 0, 0)))
    reasons = compile_network(graph, SQUARE).code.host_reasons
    assert list(reasons.values()) == ["padding must be smaller than the kernel, not (2, 0, 0, 0)"]


def test_padding_layers_fold_however_large_they_are() -> None:
    net = RandomNet(7)
    x = net.input(1, 6, 7, 8)

    def network(pads: ir.Pads) -> ir.Graph:
        net.nodes.clear()
        padded = net.pad(x, pads)
        net.tensors[padded] = replace(net.tensors[padded], zero_point=-77)
        return net.graph(net.conv(padded, 8, 1, pads=(0, 0, 1, 0)))

    node = fold_pads(network((1, 2, 3, 4))).nodes[-1]
    assert isinstance(node, ir.Conv)
    assert node.pads == (1, 2, 4, 4)
    run_whole(fold_pads(network((1, 2, 3, 4))), SQUARE)
    far = network((256, 0, 0, 0))
    assert fold_pads(far) is far


def squeeze(path: Path) -> Path:
    """A 1 x 1 convolution with padding 1, as in the published SqueezeNet, in QDQ form."""
    rng = np.random.default_rng(8)
    weights = rng.integers(-127, 128, (12, 8, 1, 1)).astype(np.int8)
    values = {"s": np.float32(0.05), "z": np.int8(9), "ws": np.float32(0.01), "wz": np.int8(0), "w": weights}
    values |= {"os": np.float32(0.08), "oz": np.int8(-20)}
    nodes = [
        helper.make_node("QuantizeLinear", ["x", "s", "z"], ["q"]),
        helper.make_node("DequantizeLinear", ["q", "s", "z"], ["d"]),
        helper.make_node("DequantizeLinear", ["w", "ws", "wz"], ["wd"]),
        helper.make_node("Conv", ["d", "wd"], ["c"], kernel_shape=[1, 1], pads=[1, 1, 1, 1]),
        helper.make_node("QuantizeLinear", ["c", "os", "oz"], ["o"]),
        helper.make_node("DequantizeLinear", ["o", "os", "oz"], ["y"]),
    ]
    ports = [helper.make_tensor_value_info(n, TensorProto.FLOAT, s) for n, s in (("x", (1, 8, 5, 6)), ("y", None))]
    constants = [numpy_helper.from_array(np.asarray(value), name) for name, value in values.items()]
    graph = helper.make_graph(nodes, "squeeze", ports[:1], ports[1:], constants)
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8), path)
    return path


def test_an_onnx_file(tmp_path: Path) -> None:
    """To ONNX Runtime's bytes."""
    graph = frontend.load(squeeze(tmp_path / "squeeze.onnx"))
    (conv,) = (node for node in graph.nodes if isinstance(node, ir.Conv))
    assert conv.pads == (1, 1, 1, 1)
    compiled = compile_network(tmp_path / "squeeze.onnx", SQUARE)
    assert not any(
        step.device == HOST and any(isinstance(node, ir.Conv) for node in step.nodes) for step in compiled.code.steps
    )
    sample = {"x": np.random.default_rng(9).normal(0, 4, (1, 8, 5, 6)).astype(np.float32)}
    wanted = run(uint8_form(onnx.load(tmp_path / "squeeze.onnx")), sample)
    np.testing.assert_array_equal(compiled.run(sample).outputs["y"], wanted)
