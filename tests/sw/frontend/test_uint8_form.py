"""The uint8 form of int8 QDQ networks: in ONNX Runtime it gives the integers that the graph of the int8 file gives."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from dovetail.sw.errors import NetworkError
from dovetail.sw.frontend import load
from dovetail.sw.frontend.onnx.uint8_form import uint8_form
from dovetail.sw.frontend.parsed_file import NetworkFile
from dovetail.sw.host.onnx_session import open_session
from dovetail.sw.network import reference
from dovetail.sw.zoo import catalogue

CONSTANTS = {
    "s": np.float32(0.05),
    "z": np.int8(-20),
    "t": np.float32(0.09),
    "zt": np.int8(10),
    "w": np.random.default_rng(0).integers(-127, 128, (6, 3, 3, 3)).astype(np.int8),
    "sw": np.float32(0.01),
    "zw": np.int8(0),
    "k": np.random.default_rng(1).integers(-128, 128, (1, 6, 1, 1)).astype(np.int8),
}


def network(*nodes: Any, shape: tuple[int, ...]) -> onnx.ModelProto:
    """Nodes from x to y, both int8."""
    graph = helper.make_graph(
        list(nodes),
        "net",
        [helper.make_tensor_value_info("x", TensorProto.INT8, (1, 3, 8, 8))],
        [helper.make_tensor_value_info("y", TensorProto.INT8, shape)],
        [numpy_helper.from_array(np.asarray(value), name) for name, value in CONSTANTS.items()],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=9)


def node(kind: str, inputs: str, output: str, **attributes: Any) -> Any:
    return helper.make_node(kind, inputs.split(), [output], name=output, **attributes)


def equal(model: onnx.ModelProto) -> onnx.ModelProto:
    """Compare the int8 file's graph and the uint8 form in ONNX Runtime; returns the form."""
    form = uint8_form(model)
    onnx.checker.check_model(form, full_check=True)
    session = open_session(form.SerializeToString())
    graph = load(NetworkFile("net", model.SerializeToString()))
    x = np.random.default_rng(2).integers(-128, 128, graph.inputs[0].shape).astype(np.int8)
    (ours,) = reference.run(graph, x).values()
    (theirs,) = session.run(None, {graph.inputs[0].name: x.view(np.uint8) ^ np.uint8(128)})
    np.testing.assert_array_equal(ours, (theirs ^ np.uint8(128)).view(np.int8))
    return form


def test_every_kind_of_int8_value() -> None:
    """A ReLU that saturation does not do, a zero point of weights and activations, movement and constants of int8."""
    model = network(
        node("DequantizeLinear", "x s z", "x_real"),
        node("DequantizeLinear", "w sw zw", "w_real"),
        node("Conv", "x_real w_real", "c", pads=[1, 1, 1, 1]),
        node("Relu", "c", "r"),
        node("QuantizeLinear", "r t zt", "q"),
        node("MaxPool", "q", "p", kernel_shape=[2, 2], strides=[2, 2]),
        node("DequantizeLinear", "p t zt", "p_real"),
        node("DequantizeLinear", "k t zw", "k_real"),
        node("Add", "p_real k_real", "a"),
        node("QuantizeLinear", "a t zw", "a_q"),
        node("Concat", "a_q k_row", "joined", axis=2),
        node("Transpose", "joined", "y", perm=[0, 2, 3, 1]),
        shape=(1, 5, 4, 6),
    )
    rows = np.random.default_rng(3).integers(-128, 128, (1, 6, 1, 4)).astype(np.int8)
    model.graph.initializer.append(numpy_helper.from_array(rows, "k_row"))
    form = equal(model)
    dtypes = {tensor.name: tensor.data_type for tensor in form.graph.initializer}
    assert dtypes["w"] == dtypes["zw"] == TensorProto.INT8
    ports = [*form.graph.input, *form.graph.output]
    assert [port.type.tensor_type.elem_type for port in ports] == [TensorProto.UINT8] * 2


def test_clamps_of_reals_stay_as_they_are() -> None:
    nodes = [node("Softmax", "x", "f"), node("Relu", "f", "r"), node("QuantizeLinear", "r s z", "q")]
    model = network(*nodes, node("DequantizeLinear", "q s z", "d"), node("QuantizeLinear", "d s z", "y"), shape=(1, 8))
    model.graph.input[0].type.tensor_type.elem_type = TensorProto.FLOAT
    relu = next(one for one in uint8_form(model).graph.node if one.op_type == "Relu")
    assert list(relu.input) == ["f"]


def test_built_in_networks() -> None:
    for name in ("inception_block", "attention_block", "hard_swish_block"):
        equal(onnx.load_model_from_string(catalogue.model_bytes(name)))


def test_the_network_itself_is_left_alone() -> None:
    model = network(node("DequantizeLinear", "x s z", "r"), node("QuantizeLinear", "r t zt", "y"), shape=(1, 3, 8, 8))
    before = model.SerializeToString()
    form = uint8_form(model)
    assert model.SerializeToString() == before
    assert uint8_form(form).SerializeToString() == form.SerializeToString()  # nothing is left to do


def test_arithmetic_on_integers_is_refused() -> None:
    nodes = node("Relu", "x", "r"), node("DequantizeLinear", "r s z", "d"), node("QuantizeLinear", "d s z", "y")
    model = network(*nodes, shape=(1, 3, 8, 8))
    with pytest.raises(NetworkError, match=r"node 'r' \(Relu\): must not compute on int8 values"):
        uint8_form(model)
