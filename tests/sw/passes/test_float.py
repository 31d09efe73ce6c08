"""Passes on float ONNX networks: the outputs stay, the nodes become what a quantiser takes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from dovetail.sw.errors import NetworkError
from dovetail.sw.host.onnx_session import open_session
from dovetail.sw.network.layout import Array
from dovetail.sw.passes.float.normalise import normalise
from tests.slow import slow

LIGHT = Path(onnx.__file__).parent / "backend" / "test" / "data" / "light"
MODELS = Path(__file__).parents[3].parent / "shared" / "models"

needs_models = pytest.mark.skipif(not MODELS.exists(), reason="reference networks are not here")


class Net:
    """Builds a float network with seeded weights."""

    def __init__(self, *shape: int | str, opset: int = 17) -> None:
        self.opset = opset
        self.random = np.random.default_rng(0)
        self.nodes: list[onnx.NodeProto] = []
        self.constants: list[onnx.TensorProto] = []
        self.inputs = [helper.make_tensor_value_info("x", TensorProto.FLOAT, shape)]

    def constant(self, value: Any, dtype: Any = np.float32) -> str:
        name = f"k{len(self.constants)}"
        self.constants.append(numpy_helper.from_array(np.asarray(value, dtype), name))
        return name

    def integers(self, *values: int) -> str:
        return self.constant(values, np.int64)

    def weights(self, *shape: int) -> str:
        return self.constant(self.random.normal(size=shape))

    def positive(self, *shape: int) -> str:
        return self.constant(self.random.uniform(0.5, 2, shape))

    def op(self, kind: str, *inputs: str, domain: str = "", outputs: int = 1, **attributes: Any) -> str:
        names = [f"n{len(self.nodes)}_{kind}_{k}" for k in range(outputs)]
        self.nodes.append(helper.make_node(kind, inputs, names, domain=domain, **attributes))
        return names[0]

    def model(self, *outputs: str) -> onnx.ModelProto:
        results = [onnx.ValueInfoProto(name=name) for name in outputs or self.nodes[-1].output[:1]]
        graph = helper.make_graph(self.nodes, "net", self.inputs, results, self.constants)
        opsets = [helper.make_opsetid("", self.opset), helper.make_opsetid("com.microsoft", 1)]
        return helper.make_model(graph, opset_imports=opsets, ir_version=8)


def run(model: onnx.ModelProto, feed: Mapping[str, Array]) -> list[Array]:
    session = open_session(model.SerializeToString())
    return [np.asarray(value) for value in session.run(None, feed)]


def shapes_of(model: onnx.ModelProto) -> dict[str, tuple[int, ...]]:
    values = [*model.graph.input, *model.graph.value_info, *model.graph.output]
    return {value.name: tuple(dim.dim_value for dim in value.type.tensor_type.shape.dim) for value in values}


def kinds(model: onnx.ModelProto) -> dict[str, int]:
    return dict(Counter(node.op_type for node in model.graph.node))


def settled(model: onnx.ModelProto, **shapes: Sequence[int]) -> onnx.ModelProto:
    """Normalise; outputs, names and the file itself must stay, and doing it twice must change nothing."""
    before = model.SerializeToString()
    result = normalise(model, shapes=shapes)
    assert model.SerializeToString() == before
    assert normalise(result).SerializeToString() == result.SerializeToString()
    onnx.checker.check_model(result, full_check=True)
    assert [value.name for value in result.graph.output] == [value.name for value in model.graph.output]
    known = shapes_of(result)
    assert all(known.get(name) for node in result.graph.node for name in node.output if name)
    assert len({node.name for node in result.graph.node} - {""}) == len(result.graph.node)
    rng = np.random.default_rng(1)
    feed = {v.name: rng.normal(size=known[v.name]).astype(np.float32) * 3 for v in result.graph.input}
    for ours, theirs in zip(run(result, feed), run(model, feed), strict=True):
        assert ours.shape == theirs.shape
        np.testing.assert_allclose(ours, theirs, rtol=1e-4, atol=1e-4 * np.abs(theirs).max())
    return result


# Borders and operator sets ------------------------------------------------------------------------


def test_batch_becomes_one_and_named_sizes_the_given_ones() -> None:
    net = Net("n", 3, "h", "w")
    net.op("Conv", "x", net.weights(4, 3, 3, 3))
    result = settled(net.model(), x=(1, 3, 9, 10))
    assert shapes_of(result)["x"] == (1, 3, 9, 10)
    net = Net("n", 3, 8, 8)
    net.op("Conv", "x", net.weights(4, 3, 3, 3))
    assert shapes_of(settled(net.model()))["x"] == (1, 3, 8, 8)


def test_a_named_size_is_the_same_in_all_inputs() -> None:
    net = Net("batch", "length", 4)
    net.inputs.append(helper.make_tensor_value_info("y", TensorProto.FLOAT, [2, "batch", "length"]))
    net.op("Mul", "x", net.weights(4))
    net.op("Relu", "y")
    shapes = shapes_of(normalise(net.model(*(node.output[0] for node in net.nodes)), shapes={"x": (3, 5, 4)}))
    assert shapes["x"] == (3, 5, 4) and shapes["y"] == (2, 3, 5)
    with pytest.raises(NetworkError, match="give one: --shape x=1x224x4"):
        normalise(net.model())


def test_open_shapes_are_named_with_the_way_out() -> None:
    net = Net("n", 3, "height", 8)
    net.op("Relu", "x")
    with pytest.raises(NetworkError, match=r"input 'x': axis 2 .* not height; give one: --shape x=1x3x224x8"):
        normalise(net.model())
    with pytest.raises(NetworkError, match=r"shape of 'y': must be of an input \(x\)"):
        normalise(net.model(), shapes={"y": (1, 3, 8, 8)})
    with pytest.raises(NetworkError, match=r"input 'x': must have 4 axes, not 2"):
        normalise(net.model(), shapes={"x": (3, 8)})
    with pytest.raises(NetworkError, match=r"input 'x': sizes must be positive"):
        normalise(net.model(), shapes={"x": (1, 3, 0, 8)})


def test_shapes_that_depend_on_values_are_refused() -> None:
    net = Net(1, 8)
    net.op("Relu", net.op("Cast", net.op("NonZero", "x"), to=TensorProto.FLOAT))
    with pytest.raises(NetworkError, match=r"node .*NonZero.*\(NonZero\): result must have a shape"):
        normalise(net.model())


def test_initialisers_are_no_inputs() -> None:
    net = Net(1, 3, 8, 8, opset=9)
    net.op("Conv", "x", net.weights(4, 3, 3, 3))
    model = net.model()
    model.ir_version = 3
    model.graph.input.append(helper.make_tensor_value_info("k0", TensorProto.FLOAT, (4, 3, 3, 3)))
    assert [value.name for value in normalise(model).graph.input] == ["x"]


@pytest.mark.parametrize("opset", [9, 10, 11, 12, 13, 15, 17, 18, 19, 20, 21])
def test_operator_sets(opset: int) -> None:
    net = Net(1, 3, 8, 8, opset=opset)
    x = net.op("Relu", net.op("Conv", "x", net.weights(4, 3, 3, 3), net.weights(4)))
    if opset < 13:
        x = net.op("Squeeze", net.op("ReduceMean", x, axes=[2, 3]), axes=[2, 3])
    elif opset < 18:
        x = net.op("Squeeze", net.op("ReduceMean", x, axes=[2, 3]), net.integers(2, 3))
    else:
        x = net.op("Squeeze", net.op("ReduceMean", x, net.integers(2, 3)), net.integers(2, 3))
    net.op("Softmax", net.op("Gemm", net.op("Dropout", x), net.weights(4, 5), net.weights(5)), axis=1)
    result = settled(net.model())
    assert result.opset_import[0].version == 21
    assert kinds(result) == {"Conv": 1, "Relu": 1, "GlobalAveragePool": 1, "Reshape": 1, "Gemm": 1, "Softmax": 1}


def test_old_operator_sets_are_refused() -> None:
    net = Net(1, 8, opset=5)
    net.op("Relu", "x")
    with pytest.raises(NetworkError, match="operator set must be 6 or newer, not 5"):
        normalise(net.model())


def test_operators_that_the_runtime_knew_first() -> None:
    net = Net(1, 6, 8, opset=12)
    x = net.op("LayerNormalization", "x", net.weights(8), net.weights(8), epsilon=1e-5)
    x = net.op("FastGelu", x, net.weights(8), domain="com.microsoft")
    net.op("Gelu", x, domain="com.microsoft")
    assert kinds(settled(net.model())) == {"LayerNormalization": 1, "Add": 1, "Gelu": 2}


def test_quantised_networks_and_control_flow_are_refused() -> None:
    net = Net(1, 8)
    net.op("DequantizeLinear", net.op("QuantizeLinear", "x", net.constant(0.1)), net.constant(0.1))
    with pytest.raises(NetworkError, match="must be float, not quantised already"):
        normalise(net.model())
    net = Net(1, 8)
    branch = helper.make_graph([helper.make_node("Relu", ["x"], ["b"])], "b", [], [onnx.ValueInfoProto(name="b")])
    condition = net.op("Greater", net.op("ReduceMax", "x", keepdims=0), net.constant(0))
    net.op("If", condition, then_branch=branch, else_branch=branch)
    with pytest.raises(NetworkError, match="free of control flow"):
        normalise(net.model())


def test_branches_that_shapes_decide() -> None:
    """PyTorch's squeeze of an axis whose size it does not know."""
    net = Net("n", 1, 8)
    size = net.op("Gather", net.op("Shape", "x"), net.constant(1, np.int64))
    one = net.integers(1)
    squeeze = helper.make_node("Squeeze", ["x", one], ["squeezed"])
    keep = helper.make_node("Identity", ["x"], ["kept"])
    taken = helper.make_graph([squeeze], "then", [], [onnx.ValueInfoProto(name="squeezed")])
    other = helper.make_graph([keep], "else", [], [onnx.ValueInfoProto(name="kept")])
    condition = net.op("Equal", size, net.constant(1, np.int64))
    net.op("Relu", net.op("If", condition, then_branch=taken, else_branch=other))
    result = settled(net.model())
    assert sorted(kinds(result)) == ["Relu", "Reshape"]


def test_unknown_operators_are_named() -> None:
    for domain, name in (("", "Wobble"), ("my.domain", "my.domain.Wobble")):
        net = Net(1, 8, opset=21)
        net.op("Wobble", net.op("Relu", "x"), domain=domain)
        with pytest.raises(
            NetworkError, match=rf"\(Wobble\): operator must be one of ONNX or ONNX Runtime, not {name};"
        ):
            normalise(net.model())


def test_damaged_networks_give_one_line() -> None:
    net = Net(1, 8)
    net.op("MatMul", "x", net.weights(5, 4))
    with pytest.raises(NetworkError, match=r"node 'n0_MatMul_0' \(MatMul\): shapes must fit, not: .*MatMul"):
        normalise(net.model())


# Constants ----------------------------------------------------------------------------------------


def test_weights_made_by_nodes() -> None:
    net = Net(1, 3, 8, 8)
    weights = net.op(
        "ConstantOfShape", net.integers(4, 3, 3, 3), value=numpy_helper.from_array(np.array([0.3], np.float32))
    )
    bias = net.op("Constant", value=numpy_helper.from_array(np.arange(4, dtype=np.float32)))
    net.op("Conv", "x", net.op("Mul", weights, net.constant(2)), bias)
    assert kinds(settled(net.model())) == {"Conv": 1}


def test_constants_without_bounds_are_refused() -> None:
    net = Net(1, 8)
    net.op("Add", "x", net.op("ReduceSum", net.op("ConstantOfShape", net.integers(1 << 20, 1 << 20)), keepdims=0))
    with pytest.raises(NetworkError, match=r"a tensor must have at most 2\*\*27 elements"):
        normalise(net.model())


def test_shapes_computed_by_exporters() -> None:
    net = Net("n", 3, 8, 8)
    x = net.op("Conv", "x", net.weights(4, 3, 3, 3))
    batch = net.op("Gather", net.op("Shape", x), net.constant(0, np.int64))
    size = net.op("Concat", net.op("Unsqueeze", batch, net.integers(0)), net.integers(-1), axis=0)
    net.op("Gemm", net.op("Reshape", x, size), net.weights(144, 5))
    assert kinds(settled(net.model())) == {"Conv": 1, "Reshape": 1, "Gemm": 1}


# Factors and offsets ------------------------------------------------------------------------------


def norm(net: Net, x: str, channels: int) -> str:
    parameters = net.weights(channels), net.weights(channels), net.weights(channels), net.positive(channels)
    return net.op("BatchNormalization", x, *parameters, epsilon=1e-3)


@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("groups", [1, 2, 4])
def test_normalisation_behind_a_convolution(groups: int, bias: bool) -> None:
    net = Net(1, 4, 8, 8)
    more = [net.weights(8)] if bias else []
    norm(net, net.op("Conv", "x", net.weights(8, 4 // groups, 3, 3), *more, group=groups), 8)
    assert kinds(settled(net.model())) == {"Conv": 1}


@pytest.mark.parametrize("groups", [1, 2])
def test_normalisation_behind_a_transposed_convolution(groups: int) -> None:
    net = Net(1, 4, 8, 8)
    norm(net, net.op("ConvTranspose", "x", net.weights(4, 6 // groups, 3, 3), net.weights(6), group=groups), 6)
    assert kinds(settled(net.model())) == {"Conv": 1}


@pytest.mark.parametrize("turned", [0, 1])
def test_normalisation_behind_a_matrix_product(turned: int) -> None:
    net = Net(1, 6)
    weights = net.weights(5, 6) if turned else net.weights(6, 5)
    norm(net, net.op("Gemm", "x", weights, net.weights(1, 5), alpha=0.5, beta=0.25, transB=turned), 5)
    result = settled(net.model())
    assert kinds(result) == {"Gemm": 1}
    assert not result.graph.node[0].attribute


def test_normalisation_of_what_others_read_stays_apart() -> None:
    """As a depthwise convolution: the convolution's own result is still needed."""
    net = Net(1, 4, 8, 8)
    x = net.op("Conv", "x", net.weights(4, 4, 1, 1))
    net.op("Add", x, norm(net, x, 4))
    result = settled(net.model())
    assert kinds(result) == {"Conv": 2, "Add": 1}


def test_normalisation_first_is_a_depthwise_convolution() -> None:
    """Together with the factors that old exporters put behind it."""
    net = Net(1, 4, 8, 8)
    x = net.op("Mul", norm(net, "x", 4), net.weights(4, 1, 1))
    net.op("Conv", net.op("Relu", net.op("Add", x, net.weights(4, 1, 1))), net.weights(6, 4, 1, 1))
    result = settled(net.model())
    assert kinds(result) == {"Conv": 2, "Relu": 1}
    assert {a.name: a.i for a in result.graph.node[0].attribute}["group"] == 4


def test_normalisation_of_flat_data() -> None:
    net = Net(1, 6)
    norm(net, net.op("Relu", "x"), 6)
    assert kinds(settled(net.model())) == {"Relu": 1, "Mul": 1, "Add": 1}


@pytest.mark.parametrize("shape", [(6, 1, 1), (1, 6, 1, 1), (1,), ()])
def test_factors_and_offsets_behind_a_convolution(shape: tuple[int, ...]) -> None:
    net = Net(1, 4, 8, 8)
    x = net.op("Mul", net.op("Conv", "x", net.weights(6, 4, 3, 3)), net.positive(*shape))
    x = net.op("Sub", net.op("Div", x, net.positive(*shape)), net.weights(*shape))
    net.op("Sub", net.weights(*shape), net.op("Add", net.weights(*shape), x))
    assert kinds(settled(net.model())) == {"Conv": 1}


def test_means_and_deviations_of_channels_before_the_network() -> None:
    net = Net(1, 3, 8, 8)
    x = net.op("Div", net.op("Sub", "x", net.weights(1, 3, 1, 1)), net.positive(1, 3, 1, 1))
    net.op("Conv", x, net.weights(4, 3, 3, 3), pads=[1, 1, 1, 1])
    assert kinds(settled(net.model())) == {"Conv": 2}


def test_factors_along_other_axes_stay() -> None:
    net = Net(1, 4, 8, 8)
    net.op("Mul", net.op("Conv", "x", net.weights(8, 4, 1, 1)), net.weights(8))
    assert kinds(settled(net.model())) == {"Conv": 1, "Mul": 1}


def test_attention_is_scaled_in_its_weights() -> None:
    net = Net(1, 6, 8)

    def head(perm: list[int]) -> str:
        x = net.op("Add", net.op("MatMul", "x", net.weights(8, 8)), net.weights(8))
        return net.op("Transpose", net.op("Reshape", x, net.integers(1, 6, 2, 4)), perm=perm)

    scores = net.op("Div", net.op("MatMul", head([0, 2, 1, 3]), head([0, 2, 3, 1])), net.constant(2))
    net.op("Softmax", scores)
    assert kinds(settled(net.model())) == {"Gemm": 2, "Reshape": 4, "Transpose": 2, "MatMul": 1, "Softmax": 1}


# Activations --------------------------------------------------------------------------------------


def gelu_of_erf(net: Net, x: str) -> str:
    inner = net.op("Add", net.op("Erf", net.op("Div", x, net.constant(2**0.5))), net.constant(1))
    return net.op("Mul", net.op("Mul", x, inner), net.constant(0.5))


def gelu_of_erf_otherwise(net: Net, x: str) -> str:
    inner = net.op("Erf", net.op("Mul", net.constant(0.7071067811865476), x))
    half = net.op("Mul", x, net.constant(0.5))
    return net.op("Mul", net.op("Add", net.constant(1), inner), half)


def gelu_of_tanh(net: Net, x: str) -> str:
    inner = net.op("Add", x, net.op("Mul", net.op("Pow", x, net.constant(3)), net.constant(0.044715)))
    inner = net.op("Add", net.op("Tanh", net.op("Mul", inner, net.constant(0.7978845608))), net.constant(1))
    return net.op("Mul", net.op("Mul", x, net.constant(0.5)), inner)


def gelu_of_tanh_otherwise(net: Net, x: str) -> str:
    cubic = net.op("Mul", net.op("Mul", x, x), x)
    inner = net.op("Mul", net.op("Add", net.op("Mul", cubic, net.constant(0.044715)), x), net.constant(0.797884583))
    return net.op("Mul", x, net.op("Mul", net.op("Add", net.op("Tanh", inner), net.constant(1)), net.constant(0.5)))


def hard_swish(net: Net, x: str) -> str:
    inner = net.op("Clip", net.op("Add", x, net.constant(3)), net.constant(0), net.constant(6))
    return net.op("Div", net.op("Mul", x, inner), net.constant(6))


def hard_swish_otherwise(net: Net, x: str) -> str:
    return net.op("Mul", net.op("HardSigmoid", x, alpha=1 / 6, beta=0.5), x)


def hard_sigmoid(net: Net, x: str) -> str:
    inner = net.op("Min", net.op("Relu", net.op("Add", x, net.constant(3))), net.constant(6))
    return net.op("Mul", inner, net.constant(1 / 6))


def mish(net: Net, x: str) -> str:
    return net.op("Mul", x, net.op("Tanh", net.op("Softplus", x)))


def sigmoid(net: Net, x: str) -> str:
    return net.op("Reciprocal", net.op("Add", net.op("Exp", net.op("Neg", x)), net.constant(1)))


@pytest.mark.parametrize(
    ("spelt", "operator"),
    [
        (gelu_of_erf, "Gelu"),
        (gelu_of_erf_otherwise, "Gelu"),
        (gelu_of_tanh, "Gelu"),
        (gelu_of_tanh_otherwise, "Gelu"),
        (hard_swish, "HardSwish"),
        (hard_swish_otherwise, "HardSwish"),
        (hard_sigmoid, "HardSigmoid"),
        (mish, "Mish"),
        (sigmoid, "Sigmoid"),
    ],
)
def test_activations_are_known_by_their_values(spelt: Callable[[Net, str], str], operator: str) -> None:
    net = Net(1, 4, 8, 8)
    net.op("Conv", spelt(net, net.op("Conv", "x", net.weights(6, 4, 1, 1))), net.weights(4, 6, 1, 1))
    result = settled(net.model())
    assert kinds(result) == {"Conv": 2, operator: 1}


def test_the_two_forms_of_gelu_are_told_apart() -> None:
    found = []
    for spelt in (gelu_of_erf, gelu_of_tanh):
        net = Net(1, 8)
        spelt(net, "x")
        (node,) = settled(net.model()).graph.node
        found += [attribute.s for attribute in node.attribute]
    assert found == [b"none", b"tanh"]


def test_values_read_elsewhere_keep_their_nodes() -> None:
    net = Net(1, 8)
    inner = net.op("Clip", net.op("Add", "x", net.constant(3)), net.constant(0), net.constant(6))
    net.op("Div", net.op("Mul", "x", inner), net.constant(6))
    assert "HardSwish" not in kinds(settled(net.model(net.nodes[-1].output[0], inner)))


def test_almost_an_activation_stays() -> None:
    net = Net(1, 8)
    net.op("Mul", "x", net.op("Sigmoid", net.op("Mul", "x", net.constant(1.702))))
    assert kinds(settled(net.model())) == {"Mul": 2, "Sigmoid": 1}


def test_half_and_double_precision() -> None:
    net = Net(1, 4, 8, 8)
    net.inputs[0].type.tensor_type.elem_type = TensorProto.FLOAT16
    x = net.op("Conv", "x", net.constant(net.random.normal(size=(6, 4, 1, 1)), np.float16))
    x = net.op("Mul", net.op("Cast", x, to=TensorProto.DOUBLE), net.constant([0.5], np.float64))
    made = net.op("ConstantOfShape", net.integers(1), value=numpy_helper.from_array(np.array([0.3], np.float64)))
    net.op("Cast", net.op("Add", x, made), to=TensorProto.FLOAT16)
    model = net.model()
    result = normalise(model)
    assert kinds(result) == {"Conv": 1}
    values = np.random.default_rng(1).normal(size=(1, 4, 8, 8)).astype(np.float16)
    (ours,), (theirs,) = run(result, {"x": values.astype(np.float32)}), run(model, {"x": values})
    np.testing.assert_allclose(ours, theirs.astype(np.float32), rtol=1e-2, atol=1e-2)


@pytest.mark.parametrize(
    ("lowest", "highest", "wanted"),
    [
        (-0.5, 0.9, {"Conv": 1, "Max": 1}),
        (1.1, 2, {"Conv": 1, "Min": 1}),
        (0.5, 2, {"Conv": 2, "Max": 1, "Min": 1}),
    ],
)
def test_slopes_of_channels_are_products_and_maxima(lowest: float, highest: float, wanted: dict[str, int]) -> None:
    net = Net(1, 5, 4, 4)
    net.op("PRelu", "x", net.constant(np.linspace(lowest, highest, 5).reshape(5, 1, 1)))
    assert kinds(settled(net.model())) == wanted


def test_slopes_of_flat_data_and_one_slope() -> None:
    net = Net(1, 5)
    net.op("PRelu", net.op("PRelu", "x", net.constant(np.linspace(0, 0.9, 5))), net.constant([0.2]))
    assert kinds(settled(net.model())) == {"Mul": 1, "Max": 1, "PRelu": 1}


def test_clamps_in_a_row_are_one() -> None:
    net = Net(1, 8)
    net.op("Min", net.op("Max", "x", net.constant(0)), net.constant(6))
    assert kinds(settled(net.model())) == {"Clip": 1}


# Windows ------------------------------------------------------------------------------------------

PADS = (0, 0, 1, 2, 0, 0, 0, 1)


def test_padding_in_front_of_a_convolution() -> None:
    net = Net(1, 4, 8, 8)
    net.op("Conv", net.op("Pad", "x", net.integers(*PADS)), net.weights(6, 4, 3, 3), pads=[1, 0, 0, 0])
    result = settled(net.model())
    assert kinds(result) == {"Conv": 1}
    assert {a.name: list(a.ints) for a in result.graph.node[0].attribute}["pads"] == [2, 2, 0, 1]


def test_padding_in_front_of_poolings() -> None:
    net = Net(1, 4, 8, 8)
    x = net.op("AveragePool", net.op("Pad", "x", net.integers(*PADS)), kernel_shape=[3, 3])
    x = net.op("Pad", net.op("Relu", x), net.integers(*PADS))
    net.op("MaxPool", x, kernel_shape=[3, 3])
    assert kinds(settled(net.model())) == {"AveragePool": 1, "Relu": 1, "MaxPool": 1}


def test_padding_that_no_operator_can_do_stays() -> None:
    net = Net(1, 4, 8, 8)
    x = net.op("MaxPool", net.op("Pad", "x", net.integers(*PADS)), kernel_shape=[3, 3])
    x = net.op("Conv", net.op("Pad", x, net.integers(*PADS), net.constant(1)), net.weights(4, 4, 1, 1))
    net.op("Conv", net.op("Pad", x, net.integers(*PADS), mode="reflect"), net.weights(4, 4, 1, 1))
    assert kinds(settled(net.model())) == {"Pad": 3, "MaxPool": 1, "Conv": 2}


def test_padding_of_named_axes() -> None:
    net = Net(1, 4, 8, 8, opset=18)
    x = net.op("Pad", "x", net.integers(1, 0, 2, 1), net.constant(0), net.integers(-1, 2))
    net.op("Pad", net.op("Conv", x, net.weights(6, 4, 3, 3)), net.integers(1, 1), "", net.integers(3))
    result = settled(net.model())
    assert kinds(result) == {"Conv": 1, "Pad": 1}
    assert len(result.graph.node[1].input) == 2


def test_poolings_over_everything() -> None:
    net = Net(1, 4, 6, 5, opset=13)
    results = [
        net.op("AveragePool", "x", kernel_shape=[6, 5]),
        net.op("ReduceMean", "x", axes=[2, 3], keepdims=0),
        net.op("ReduceMean", net.op("Transpose", "x", perm=[0, 2, 3, 1]), axes=[1, 2], keepdims=0),
        net.op("GlobalMaxPool", "x"),
        net.op("ReduceMax", "x", axes=[-1, -2], keepdims=0),
        net.op("ReduceMean", net.op("Reshape", "x", net.integers(1, 4, 30)), axes=[1]),
    ]
    result = settled(net.model(*results))
    assert kinds(result) == {"GlobalAveragePool": 4, "MaxPool": 2, "Reshape": 6, "Transpose": 1}


@pytest.mark.parametrize(
    ("kernel", "stride", "attributes", "wanted"),
    [
        ((2, 2), 2, {}, {"Conv": 1, "DepthToSpace": 1}),
        ((4, 4), 2, {"pads": [1, 1, 1, 1]}, {"Conv": 1, "DepthToSpace": 1, "Slice": 1}),
        ((3, 3), 2, {"pads": [1, 1, 1, 1], "output_padding": [1, 1]}, {"Conv": 1, "DepthToSpace": 1, "Slice": 1}),
        ((3, 2), 2, {"pads": [0, 0, 1, 0]}, {"Conv": 1, "DepthToSpace": 1}),
        ((5, 4), 3, {"pads": [1, 0, 4, 3]}, {"Conv": 1, "DepthToSpace": 1, "Slice": 1}),
        ((2, 3), 3, {"output_padding": [1, 0]}, {"Conv": 1, "DepthToSpace": 1}),
        ((3, 3), 1, {"pads": [1, 0, 1, 0]}, {"Conv": 1}),
    ],
)
@pytest.mark.parametrize("groups", [1, 2])
def test_transposed_convolutions(
    kernel: tuple[int, int], stride: int, attributes: dict[str, Any], wanted: dict[str, int], groups: int
) -> None:
    net = Net(1, 4, 5, 6)
    operands = ["x", net.weights(4, 6 // groups, *kernel), net.weights(6)]
    net.op("Relu", net.op("ConvTranspose", *operands, strides=[stride] * 2, group=groups, **attributes))
    assert kinds(settled(net.model())) == {**wanted, "Relu": 1}


def test_transposed_convolutions_that_stay() -> None:
    unusual: list[dict[str, Any]] = [
        {"strides": [2, 1]},
        {"dilations": [2, 2]},
        {"output_shape": [9, 9], "strides": [2, 2]},
    ]
    for attributes in unusual:
        net = Net(1, 4, 5, 5)
        net.op("ConvTranspose", "x", net.weights(4, 2, 3, 3), **attributes)
        assert kinds(settled(net.model())) == {"ConvTranspose": 1}


@pytest.mark.parametrize("factor", [2, 3, 4])
@pytest.mark.parametrize("where", ["half_pixel", "pytorch_half_pixel", "asymmetric"])
def test_bilinear_enlargement(where: str, factor: int) -> None:
    net = Net(1, 3, 4, 5)
    scales = net.constant([1, 1, factor, factor])
    net.op("Resize", "x", "", scales, mode="linear", coordinate_transformation_mode=where)
    found = kinds(settled(net.model()))
    assert found["Conv"] == factor**2 and found["DepthToSpace"] == 1 and "Resize" not in found


@pytest.mark.parametrize(
    ("factors", "attributes"),
    [
        ((2, 2), {"coordinate_transformation_mode": "align_corners"}),
        ((2, 3), {}),
        ((8, 8), {}),
        ((0.5, 0.5), {}),
        ((2, 2), {"mode": "cubic"}),
    ],
)
def test_other_resizing_stays(factors: tuple[float, float], attributes: dict[str, Any]) -> None:
    net = Net(1, 3, 4, 6)
    net.op("Resize", "x", "", net.constant([1, 1, *factors]), **{"mode": "linear", **attributes})
    assert kinds(settled(net.model())) == {"Resize": 1}


def test_one_dimension_becomes_two() -> None:
    net = Net(1, 4, 20)
    x = net.op("Conv", "x", net.weights(6, 4, 3), net.weights(6), strides=[2], pads=[1, 0], dilations=[2])
    x = net.op("MaxPool", norm(net, net.op("Relu", x), 6), kernel_shape=[2], strides=[2])
    net.op("GlobalAveragePool", net.op("AveragePool", x, kernel_shape=[2], pads=[0, 1]))
    result = settled(net.model())
    assert kinds(result) == {
        "Reshape": 2,
        "Conv": 2,
        "Relu": 1,
        "MaxPool": 1,
        "AveragePool": 1,
        "GlobalAveragePool": 1,
    }


# Matrix products, sums, views ----------------------------------------------------------------------


@pytest.mark.parametrize("rows", [(), (6,), (2, 3)])
def test_product_and_offset(rows: tuple[int, ...]) -> None:
    net = Net(1, *rows, 8)
    net.op("Relu", net.op("Add", net.weights(5), net.op("MatMul", "x", net.weights(8, 5))))
    result = settled(net.model())
    assert [node.op_type for node in result.graph.node if node.op_type != "Reshape"] == ["Gemm", "Relu"]


def test_offsets_that_an_exporter_has_repeated() -> None:
    net = Net(1, 6, 8)
    bias = net.random.normal(size=(1, 1, 5)).astype(np.float32)
    net.op("Add", net.op("MatMul", "x", net.weights(8, 5)), net.constant(np.broadcast_to(bias, (1, 6, 5))))
    assert kinds(settled(net.model())) == {"Reshape": 2, "Gemm": 1}


def test_gathers_of_parts() -> None:
    """Heads of attention, a token, every other channel; any other order stays."""
    net = Net(3, 6, 8)
    parts = [net.op("Gather", "x", net.constant(k, np.int64), axis=0) for k in (0, 1, -1)]
    token = net.op("Gather", parts[0], net.constant(0, np.int64), axis=0)
    every = net.op("Gather", parts[1], net.integers(1, 3, 5, 7), axis=1)
    other = net.op("Gather", parts[2], net.integers(3, 1), axis=1)
    assert kinds(settled(net.model(token, every, other))) == {"Slice": 5, "Reshape": 4, "Gather": 1}


def test_sums_of_many() -> None:
    net = Net(1, 8)
    a, b = net.op("Relu", "x"), net.op("Neg", "x")
    net.op("Sum", net.op("Max", a, b, net.op("Exp", "x")), net.op("Sum", a), b, net.op("Sum", a, b))
    assert kinds(settled(net.model())) == {"Relu": 1, "Neg": 1, "Exp": 1, "Max": 2, "Add": 4}


def test_what_changes_nothing_goes() -> None:
    net = Net(1, 4, 6, 5)
    x = net.op("Identity", net.op("Dropout", "x"))
    x = net.op("Transpose", net.op("Transpose", x, perm=[0, 2, 3, 1]), perm=[0, 3, 1, 2])
    x = net.op("Reshape", net.op("Cast", x, to=TensorProto.FLOAT), net.integers(1, 4, 6, 5))
    x = net.op("Slice", x, net.integers(0), net.integers(99), net.integers(2))
    net.op("Exp", "x")
    x = net.op("Add", net.op("Concat", x, axis=1), net.constant(0))
    result = settled(net.model(net.op("Relu", net.op("Pad", x, net.integers(*[0] * 8)))))
    assert kinds(result) == {"Relu": 1}


def test_a_network_that_does_nothing() -> None:
    net = Net(1, 4)
    net.op("Identity", net.op("Identity", "x"))
    assert kinds(settled(net.model())) == {"Identity": 1}


def test_activations_follow_their_operator() -> None:
    """Views and transpositions of NHWC exporters go behind them, and then meet their opposite."""
    net = Net(1, 4, 6, 5)
    x = net.op("Transpose", net.op("Conv", "x", net.weights(6, 4, 1, 1)), perm=[0, 2, 3, 1])
    x = net.op("Transpose", net.op("Relu", x), perm=[0, 3, 1, 2])
    net.op("Sigmoid", net.op("Flatten", net.op("Conv", x, net.weights(4, 6, 1, 1))))
    result = settled(net.model())
    assert [node.op_type for node in result.graph.node] == ["Conv", "Relu", "Conv", "Sigmoid", "Reshape"]


@pytest.mark.parametrize("shape", [(6,), (5, 6), (6, 5, 6)])
def test_channels_last_factors_follow_their_convolution(shape: tuple[int, ...]) -> None:
    net = Net(1, 4, 6, 5)
    x = net.op("Transpose", net.op("Conv", "x", net.weights(6, 4, 1, 1)), perm=[0, 2, 3, 1])
    x = net.op("Relu", net.op("Sub", net.weights(*shape), net.op("Mul", x, net.positive(6))))
    net.op("Conv", net.op("Transpose", x, perm=[0, 3, 1, 2]), net.weights(4, 6, 1, 1))
    result = settled(net.model())
    assert "Transpose" not in kinds(result)
    assert kinds(result)["Conv"] == 2
    assert ("Sub" in kinds(result)) == (len(shape) > 1)


def test_offsets_shared_by_convolutions_are_copied() -> None:
    net = Net(1, 4, 6, 5)
    bias = net.weights(4)
    net.op("Conv", net.op("Conv", "x", net.weights(4, 4, 1, 1), bias), net.weights(4, 4, 1, 1), bias)
    first, second = settled(net.model()).graph.node
    assert first.input[2] != second.input[2]


def layer_norm(
    net: Net, square: str = "Mul", quotient: str = "Div", axis: int = -1, width: int = 8, swapped: bool = False
) -> None:
    """Of a (1, 6, 8) tensor, with a factor of `width` elements."""
    x = net.op("Relu", "x")
    centred = net.op("Sub", x, net.op("ReduceMean", x, axes=[2 if square == "Mul" else axis]))
    squared = net.op(square, centred, centred if square == "Mul" else net.constant(2))
    root = net.op("Sqrt", net.op("Add", net.op("ReduceMean", squared, axes=[axis], keepdims=1), net.constant(1e-5)))
    normal = net.op("Mul", centred, net.op("Reciprocal", root)) if quotient == "Mul" else net.op("Div", centred, root)
    factors = net.weights(width)
    scaled = net.op("Mul", *((factors, normal) if swapped else (normal, factors)))
    net.op("Add", net.weights(8), scaled)


@pytest.mark.parametrize("swapped", [False, True])
@pytest.mark.parametrize("quotient", ["Div", "Mul"])
@pytest.mark.parametrize("square", ["Mul", "Pow"])
def test_layer_normalisation(square: str, quotient: str, swapped: bool) -> None:
    net = Net(1, 6, 8)
    layer_norm(net, square, quotient, swapped=swapped)
    result = settled(net.model())
    assert kinds(result) == {"Relu": 1, "LayerNormalization": 1}
    assert len(result.graph.node[1].input) == 3


@pytest.mark.parametrize("given", [{"axis": 1}, {"width": 1}])
def test_what_is_no_layer_normalisation(given: dict[str, int]) -> None:
    """A variance over another axis, a factor for all channels."""
    net = Net(1, 6, 8)
    layer_norm(net, **given)  # type: ignore[arg-type]
    assert "LayerNormalization" not in kinds(settled(net.model()))


def rms_norm(net: Net, square: str, quotient: str, axis: int = -1, width: int = 8) -> None:
    """Of a (1, 6, 8) tensor, with a factor of `width` elements."""
    x = net.op("Relu", "x")
    squared = net.op(square, x, x if square == "Mul" else net.constant(2))
    root = net.op("Sqrt", net.op("Add", net.op("ReduceMean", squared, axes=[axis], keepdims=1), net.constant(1e-5)))
    match quotient:
        case "Div":
            normal = net.op("Div", x, root)
        case "Reciprocal":
            normal = net.op("Mul", x, net.op("Reciprocal", root))
        case _:
            normal = net.op("Mul", x, net.op("Div", net.constant(1), root))
    net.op("Mul", net.weights(width), normal)


@pytest.mark.parametrize("quotient", ["Div", "Reciprocal", "one by root"])
@pytest.mark.parametrize("square", ["Mul", "Pow"])
def test_rms_normalisation(square: str, quotient: str) -> None:
    net = Net(1, 6, 8)
    rms_norm(net, square, quotient)
    result = settled(net.model())
    assert kinds(result) == {"Relu": 1, "RMSNormalization": 1}
    assert {opset.domain: opset.version for opset in result.opset_import}[""] == 23


@pytest.mark.parametrize("given", [{"axis": 1}, {"width": 1}])
def test_what_is_no_rms_normalisation(given: dict[str, int]) -> None:
    net = Net(1, 6, 8)
    rms_norm(net, "Mul", "Div", **given)
    assert "RMSNormalization" not in kinds(settled(net.model()))


# Networks -----------------------------------------------------------------------------------------

LIGHT_KINDS = {
    "squeezenet": {"Conv": 26, "Relu": 26, "MaxPool": 3, "Concat": 8},
    "shufflenet": {"Conv": 49, "Relu": 33, "Reshape": 33, "Transpose": 16, "Add": 13, "Concat": 3, "Gemm": 1},
    "inception_v2": {"Conv": 69, "Relu": 69, "AveragePool": 7, "GlobalAveragePool": 1, "Concat": 10, "Gemm": 1},
    "densenet121": {"Conv": 183, "Relu": 121, "AveragePool": 3, "GlobalAveragePool": 1, "Concat": 58},
    "resnet50": {"Conv": 53, "Relu": 49, "Add": 16, "GlobalAveragePool": 1, "Gemm": 1},
}


@pytest.mark.parametrize("name", ["squeezenet", *(slow(n) for n in LIGHT_KINDS if n != "squeezenet")])
def test_architectures(name: str) -> None:
    result = normalise(onnx.load(LIGHT / f"light_{name}.onnx"))
    found = kinds(result)
    assert {kind: found[kind] for kind in LIGHT_KINDS[name]} == LIGHT_KINDS[name]
    assert not {"BatchNormalization", "ConstantOfShape", "Mul", "Sum", "Dropout", "Unsqueeze"} & set(found)


@needs_models
@pytest.mark.parametrize(
    "stem",
    [
        "mlperf_tiny/ic_resnet8/resnet8_float",
        "mlperf_tiny/kws_dscnn/kws_float",
        "mlperf_tiny/ad_autoencoder/ad_float",
        "architectures_only/cct_1_32_32_32",
        "architectures_only/tinyvit_demo",
    ],
)
def test_trained_networks(stem: str) -> None:
    settled(onnx.load(MODELS / f"{stem}.onnx"))
