"""Sessions of ONNX Runtime: sums of products are exact on every processor."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from dovetail.sw.host.onnx_session import open_session


def two_convolutions(shared: str) -> onnx.ModelProto:
    """Two 1 x 1 convolutions of uint8 pixels whose products fill 16 bits.

    ``shared``: what both read, "zero points", "weights" or what is "dequantised" from them.
    """
    names = ["w", "w"] if shared != "zero points" else ["w0", "w1"]
    constants = [
        *(numpy_helper.from_array(np.float32(scale), name) for name, scale in (("s", 1), ("t", 1 << 10))),
        numpy_helper.from_array(np.uint8(0), "z"),
        numpy_helper.from_array(np.zeros(4, np.int8), "zeros"),
        numpy_helper.from_array(np.ones(4, np.float32), "ones"),
        *(numpy_helper.from_array(np.full((4, 8, 1, 1), 127, np.int8), name) for name in sorted(set(names))),
    ]
    nodes = [helper.make_node("DequantizeLinear", ["x", "s", "z"], ["real"])]
    for place, name in enumerate(names):
        weights = "v0" if shared == "dequantised" else f"v{place}"
        if place == 0 or weights != "v0":
            nodes.append(helper.make_node("DequantizeLinear", [name, "ones", "zeros"], [weights], axis=0))
        nodes += [
            helper.make_node("Conv", ["real", weights], [f"c{place}"]),
            helper.make_node("QuantizeLinear", [f"c{place}", "t", "z"], [f"y{place}"]),
        ]
    ports = {"x": (1, 8, 3, 3), "y0": (1, 4, 3, 3), "y1": (1, 4, 3, 3)}
    x, *results = (helper.make_tensor_value_info(name, TensorProto.UINT8, shape) for name, shape in ports.items())
    graph = helper.make_graph(nodes, "pair", [x], results, constants)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8)


@pytest.mark.parametrize("shared", ["zero points", "weights", "dequantised"])
def test_sums_do_not_saturate(shared: str) -> None:
    session = open_session(two_convolutions(shared).SerializeToString())
    for found in session.run(None, {"x": np.full((1, 8, 3, 3), 255, np.uint8)}):
        assert np.all(found == round(8 * 255 * 127 / 1024))


def test_what_cannot_be_opened_is_the_runtimes_error() -> None:
    model = two_convolutions("weights")
    model.graph.node[1].op_type = "Unknown"
    with pytest.raises(Exception, match="Unknown"):
        open_session(model.SerializeToString())
