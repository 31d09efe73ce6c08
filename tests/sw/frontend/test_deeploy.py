"""Networks with an RMS norm that no runtime knows: what the standard's operators give, of the first set with all."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from dovetail.sw.errors import NetworkError
from dovetail.sw.frontend.onnx.parsed import ParsedOnnx
from dovetail.sw.frontend.parsed_file import NetworkFile
from dovetail.sw.passes.float.normalise import normalise
from tests.sw.frontend.test_contrib_operators import ran, reals

X, GAIN = reals(1, 3, 8), reals(8, seed=1)


def network(kind: str = "RMSNorm", **attributes: Any) -> onnx.ModelProto:
    """Norm, HardSwish, Div and Softmax; operator set 10, as these files say."""
    nodes = [
        helper.make_node(kind, ["x", "gain"], ["normed"], "norm", **attributes),
        helper.make_node("HardSwish", ["normed"], ["bent"], one_over_six=42, six=244, three=122),
        helper.make_node("Div", ["bent", "divisor"], ["scores"], Delta=16384, eps=1, eta=200000),
        helper.make_node("Softmax", ["scores"], ["y"]),
    ]
    ends = [helper.make_tensor_value_info(name, TensorProto.FLOAT, X.shape) for name in "xy"]
    constants = [numpy_helper.from_array(GAIN, "gain"), numpy_helper.from_array(np.array(0.5, np.float32), "divisor")]
    graph = helper.make_graph(nodes, "g", ends[:1], ends[1:], constants)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 10)], ir_version=5)


def parsed(model: onnx.ModelProto) -> ParsedOnnx:
    return ParsedOnnx(NetworkFile("net", model.SerializeToString()))


@pytest.mark.parametrize(("attributes", "epsilon"), [({}, 1e-6), ({"epsilon": 0.5}, 0.5)])
def test_it_gives_the_reals_of_its_operators(attributes: dict[str, Any], epsilon: float) -> None:
    normed = X / np.sqrt(np.mean(X**2, axis=-1, keepdims=True) + np.float32(epsilon)) * GAIN
    powers = np.exp(2 * normed * np.clip(normed / 6 + 0.5, 0, 1))
    wanted = powers / powers.sum(axis=-1, keepdims=True)
    plain = parsed(network(**attributes)).as_onnx()
    assert plain.opset_import[0].version == 14  # the first with HardSwish
    for form in (plain, normalise(plain)):
        np.testing.assert_allclose(ran(form, {"x": X})["y"], wanted, rtol=1e-5)
    assert "RMSNormalization" in [node.op_type for node in normalise(plain).graph.node]


def test_an_attribute_of_the_norm_that_nobody_knows_is_refused() -> None:
    with pytest.raises(NetworkError, match=r"norm.*: attribute shift must be left out"):
        parsed(network(shift=1.0))


def test_other_operators_that_nobody_knows_stay_unknown() -> None:
    with pytest.raises(NetworkError, match="an operator that ONNX and ONNX Runtime do not have"):
        parsed(network("ScaleNorm"))
