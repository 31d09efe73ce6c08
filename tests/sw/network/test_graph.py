"""The graph: its verifier, its ports and layouts."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper

from dovetail.isa.numerics.rounding import Rounding
from dovetail.sw.errors import DovetailError, NetworkError
from dovetail.sw.host import kernels
from dovetail.sw.network import ir
from dovetail.sw.network.layout import Layout


def small(stride: int = 2) -> ir.Graph:
    """int8 (1, 5, 7, 3) -> 3x3 convolution to 4 channels -> reshape."""
    tensors = {
        "x": ir.Tensor("x", (1, 5, 7, 3), np.float32(0.5), 3),
        "y": ir.Tensor("y", (1, 3, 4, 4), np.float32(0.25), -1),
        "z": ir.Tensor("z", (1, 48), np.float32(0.25), -1),
    }
    requant = ir.Requant.encode(np.full(4, 0.01), Rounding.TFLITE, 3, -1, where="c")
    conv = ir.Conv(
        name="c",
        inputs=("x",),
        outputs=("y",),
        weights=np.ones((4, 3, 3, 3), np.int8),
        bias=np.zeros(4, np.int32),
        requant=requant,
        stride=(stride, stride),
        pads=(1, 1, 1, 1),
    )
    view = ir.Reshape(name="r", inputs=("y",), outputs=("z",), shape=(1, 48))
    ports = [ir.Port(name, name, "int8", None, 0, Layout.plain(tensors[name].shape)) for name in ("x", "z")]
    return ir.Graph((ports[0],), (ports[1],), tensors, (conv, view), "test")


def test_a_sound_graph_passes_and_counts_macs() -> None:
    graph = small().check()
    assert [graph.macs(node) for node in graph.nodes] == [3 * 4 * 4 * 27, 0]
    assert graph.total_macs == 1296
    assert graph.producer("z") is graph.nodes[1]
    assert graph.consumers("y") == (graph.nodes[1],)


def test_text_names_nodes_shapes_and_quantisation() -> None:
    text = str(small())
    assert "c = conv(x) 3x3 stride 2x2 pads 1,1,1,1 clamp [-128, 127] -> y: int8[1x3x4x4]" in text
    assert "1,296 MACs" in text


@pytest.mark.parametrize(
    ("change", "rule"),
    [
        (lambda g: replace(g, nodes=g.nodes[::-1]), "'r': input 'y' must be computed before its use"),
        (lambda g: replace(g, nodes=(*g.nodes, g.nodes[0])), "'c': node name must be unique"),
        (
            lambda g: replace(g, nodes=(*g.nodes, replace(g.nodes[0], name="d"))),
            "'d': output 'y' must be written once",
        ),
        (
            lambda g: replace(g, nodes=(replace(g.nodes[0], stride=(1, 1)), g.nodes[1])),
            r"'c': output must be \(1, 5, 7, 4\), not \(1, 3, 4, 4\)",
        ),
        (
            lambda g: replace(g, nodes=(replace(g.nodes[0], bias=np.zeros(3, np.int32)), g.nodes[1])),
            "'c': bias must have 4 entries",
        ),
        (
            lambda g: replace(g, tensors={**g.tensors, "y": replace(g.tensors["y"], dtype="float32")}),
            "'c': 'y' must be int8, not float32",
        ),
        (
            lambda g: replace(g, tensors={**g.tensors, "y": replace(g.tensors["y"], zero_point=200)}),
            "'y': zero point must be -128..127, not 200",
        ),
        (lambda g: replace(g, nodes=g.nodes[:1]), "'z': output tensor 'z' must be computed"),
    ],
)
def test_check_names_the_node_and_the_rule(change: object, rule: str) -> None:
    assert callable(change)
    with pytest.raises(NetworkError, match=rule):
        change(small()).check()


def test_bind_refuses_wrong_types_shapes_and_names() -> None:
    graph = small()
    good = np.zeros((1, 5, 7, 3), np.int8)
    assert graph.bind(good)["x"].shape == (1, 5, 7, 3)
    assert graph.bind({"x": good[0]})["x"].shape == (1, 5, 7, 3)
    with pytest.raises(NetworkError, match="input 'x' must be int8, not float32"):
        graph.bind(good.astype(np.float32))
    with pytest.raises(NetworkError, match="must have shape"):
        graph.bind(good[:, :4])
    with pytest.raises(NetworkError, match="inputs must be named x, not w"):
        graph.bind({"w": good})
    with pytest.raises(NetworkError, match="must get 1 input"):
        graph.bind([good, good])


def test_uint8_nchw_port_is_a_shifted_transposition_both_ways() -> None:
    port = ir.Port("x", "x", "uint8", np.float32(1), 128, Layout.image((1, 3, 4, 5)), 128)
    value = np.arange(60, dtype=np.uint8).reshape(1, 3, 4, 5) + np.uint8(100)
    tensor = port.to_tensor(value, (1, 4, 5, 3))
    assert tensor.dtype == np.int8
    assert tensor[0, 2, 1, 2] == int(value[0, 2, 2, 1]) - 128
    back = port.from_tensor(tensor)
    assert back.dtype == np.uint8
    assert np.array_equal(back, value)


def test_layouts_follow_numpy() -> None:
    rng = np.random.default_rng(0)
    memory = rng.integers(-128, 128, (1, 4, 5, 3)).astype(np.int8)
    layout = Layout.image((1, 3, 4, 5))
    outside = memory.transpose(0, 3, 1, 2)
    assert np.array_equal(layout.outside(memory), outside)
    assert np.array_equal(layout.inside(outside), memory)
    assert np.array_equal(memory.ravel()[layout.order()], outside.ravel())
    turned = layout.transposed((0, 2, 3, 1))
    assert turned is not None
    assert turned.is_plain
    flat = layout.reshaped((1, 60))
    assert np.array_equal(flat.outside(memory), outside.reshape(1, 60))
    joined = flat.transposed((1, 0))
    assert joined is not None
    assert np.array_equal(joined.outside(memory), outside.reshape(1, 60).T)
    assert layout.reshaped((10, 6)).transposed((1, 0)) is None
    split = layout.reshaped((3, 2, 2, 5)).transposed((1, 3, 0, 2))
    assert split is not None
    assert np.array_equal(split.outside(memory), outside.reshape(3, 2, 2, 5).transpose(1, 3, 0, 2))
    assert Layout.image((1, 3, 1, 1)).same_memory(Layout.plain((1, 3, 1, 1)))
    assert not layout.same_memory(Layout.plain((1, 3, 4, 5)))


def test_errors_are_one_line() -> None:
    assert str(DovetailError("two\n  lines")) == "two lines"


@pytest.mark.parametrize(
    ("kind", "operands", "out", "macs"),
    [
        ("Conv", [(1, 4, 6, 6), (8, 2, 3, 3)], (1, 8, 4, 4), 8 * 16 * 18),
        ("ConvTranspose", [(1, 4, 6, 6), (4, 2, 3, 3)], (1, 2, 8, 8), 4 * 36 * 18),
        ("MatMul", [(1, 5, 7), (7, 3)], (1, 5, 3), 5 * 7 * 3),
        ("LSTM", [(9, 1, 6), (1, 16, 6), (1, 16, 4)], (9, 1, 1, 4), 9 * 16 * 10),
        ("Relu", [(1, 8)], (1, 8), 0),
    ],
)
def test_macs_of_host_nodes(kind: str, operands: list[tuple[int, ...]], out: tuple[int, ...], macs: int) -> None:
    names = "xwr"[: len(operands)]
    weights = [numpy_helper.from_array(np.zeros(shape), name) for name, shape in zip("wr", operands[1:], strict=False)]
    ports = [helper.make_tensor_value_info(n, TensorProto.FLOAT, s) for n, s in (("x", operands[0]), ("y", out))]
    graph = helper.make_graph([helper.make_node(kind, list(names), ["y"])], "node", ports[:1], ports[1:], weights)
    read, made = ((kernels.Wire(name, Layout.plain(shape)),) for name, shape in (("x", operands[0]), ("y", out)))
    assert kernels.OnnxOp(helper.make_model(graph).SerializeToString(), "node", read, made).macs == macs
