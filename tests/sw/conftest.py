"""Networks that several tests take."""

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper


@pytest.fixture
def norm_network() -> bytes:
    """A quantised product, a layer normalisation in pieces, a float convolution, quantised again."""
    rng = np.random.default_rng(0)
    constants = {
        "s": np.float32(0.05),
        "z": np.int8(3),
        "w": rng.integers(-127, 128, (16, 16)).astype(np.int8),
        "sw": np.float32(0.01),
        "zw": np.int8(0),
        "two": np.float32(2),
        "eps": np.float32(1e-5),
        "gain": rng.standard_normal(16).astype(np.float32),
        "k": rng.standard_normal((4, 1, 3, 3)).astype(np.float32),
        "shape": np.array([1, 1, 8, 16]),
    }
    nodes = [
        helper.make_node("DequantizeLinear", ["x", "s", "z"], ["xr"]),
        helper.make_node("DequantizeLinear", ["w", "sw", "zw"], ["wr"]),
        helper.make_node("MatMul", ["xr", "wr"], ["p"]),
        helper.make_node("QuantizeLinear", ["p", "s", "z"], ["q"]),
        helper.make_node("DequantizeLinear", ["q", "s", "z"], ["r"]),
        helper.make_node("ReduceMean", ["r"], ["m"], axes=[-1]),
        helper.make_node("Sub", ["r", "m"], ["d"]),
        helper.make_node("Pow", ["d", "two"], ["d2"]),
        helper.make_node("ReduceMean", ["d2"], ["v"], axes=[-1]),
        helper.make_node("Add", ["v", "eps"], ["ve"]),
        helper.make_node("Sqrt", ["ve"], ["sd"]),
        helper.make_node("Div", ["d", "sd"], ["n"]),
        helper.make_node("Mul", ["n", "gain"], ["g"]),
        helper.make_node("Reshape", ["g", "shape"], ["image"]),
        helper.make_node("Conv", ["image", "k"], ["c"], pads=[1, 1, 1, 1]),
        helper.make_node("Erf", ["c"], ["e"]),
        helper.make_node("QuantizeLinear", ["e", "s", "z"], ["y"]),
    ]
    graph = helper.make_graph(
        nodes,
        "net",
        [helper.make_tensor_value_info("x", TensorProto.INT8, [1, 8, 16])],
        [helper.make_tensor_value_info("y", TensorProto.INT8, [1, 4, 8, 16])],
        [numpy_helper.from_array(np.asarray(value), name) for name, value in constants.items()],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)])
    model.ir_version = 8
    return bytes(model.SerializeToString())
