"""LSTM, GRU and RNN become products, functions and sums; ONNX Runtime's own kernels say what they compute."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from dovetail.sw.host.onnx_session import open_session
from dovetail.sw.network.layout import Array
from dovetail.sw.passes.float import recurrent
from dovetail.sw.passes.float.normalise import normalise

GATES = {"LSTM": 4, "GRU": 3, "RNN": 1}
KINDS = ({"kind": "LSTM"}, {"kind": "GRU"}, {"kind": "GRU", "linear_before_reset": 1}, {"kind": "RNN"})


def layer(
    kind: str,
    *,
    steps: int = 3,
    batch: int = 1,
    width: int = 5,
    units: int = 4,
    direction: str = "forward",
    initial: str = "",
    biased: bool = True,
    batch_first: bool = False,
    results: tuple[str, ...] = ("y", "y_h", "y_c"),
    more: Mapping[str, Array] | None = None,
    **attributes: Any,
) -> onnx.ModelProto:
    """A network of one layer; ``initial``: "" for zeros, "input" or "constant". ``more``: constants of other inputs."""
    random = np.random.default_rng(0)
    directions, rows = (2 if direction == "bidirectional" else 1), GATES[kind] * units
    held = {
        "w": random.normal(0, 0.5, (directions, rows, width)),
        "r": random.normal(0, 0.5, (directions, rows, units)),
    }
    if biased:
        held["b"] = random.normal(0, 0.3, (directions, 2 * rows))
    sizes = (batch, steps, width) if batch_first else (steps, batch, width)
    inputs = [helper.make_tensor_value_info("x", TensorProto.FLOAT, sizes)]
    states = ["h0", "c0"] if kind == "LSTM" else ["h0"]
    for name in states if initial else ():
        shape = (batch, directions, units) if batch_first else (directions, batch, units)
        if initial == "input":
            inputs.append(helper.make_tensor_value_info(name, TensorProto.FLOAT, shape))
        else:
            held[name] = random.normal(0, 0.5, shape)
    constants = {name: value.astype(np.float32) for name, value in held.items()} | dict(more or {})
    names = ["x", "w", "r", "b", "lengths", "h0", "c0", "p"]
    given = [name if name in constants or name in [one.name for one in inputs] else "" for name in names]
    while not given[-1]:
        given.pop()
    outputs = list(results if kind == "LSTM" else results[:2])
    if direction != "forward":
        attributes["direction"] = direction
    if batch_first:
        attributes["layout"] = 1
    node = helper.make_node(kind, given, outputs, "cell", hidden_size=units, **attributes)
    ends = [onnx.ValueInfoProto(name=name) for name in outputs if name]
    tensors = [numpy_helper.from_array(value, name) for name, value in constants.items()]
    graph = helper.make_graph([node], "net", inputs, ends, tensors)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def run(model: onnx.ModelProto, feed: Mapping[str, Array]) -> list[Array]:
    found: list[Array] = open_session(model.SerializeToString()).run(None, dict(feed))
    return found


def feed_of(model: onnx.ModelProto) -> dict[str, Array]:
    random = np.random.default_rng(1)
    shapes = {v.name: [dim.dim_value for dim in v.type.tensor_type.shape.dim] for v in model.graph.input}
    return {name: random.normal(size=shape).astype(np.float32) for name, shape in shapes.items()}


def operators(model: onnx.ModelProto) -> set[str]:
    return {node.op_type for node in model.graph.node}


def check(model: onnx.ModelProto) -> onnx.ModelProto:
    """Normalise; the layer is gone, the outputs stay."""
    result = normalise(model)
    assert not operators(result) & GATES.keys()
    onnx.checker.check_model(result, full_check=True)
    assert [value.name for value in result.graph.output] == [value.name for value in model.graph.output]
    feed = feed_of(model)
    for ours, theirs in zip(run(result, feed), run(model, feed), strict=True):
        assert ours.shape == theirs.shape
        np.testing.assert_allclose(ours, theirs, atol=2e-6)
    return result


@pytest.mark.parametrize("direction", ["forward", "reverse", "bidirectional"])
@pytest.mark.parametrize("initial", ["", "input", "constant"])
@pytest.mark.parametrize("kind", KINDS, ids=str)
def test_results_are_those_of_the_layer(kind: dict[str, Any], initial: str, direction: str) -> None:
    result = check(layer(**kind, initial=initial, direction=direction))
    assert normalise(result).SerializeToString() == result.SerializeToString()


@pytest.mark.parametrize("form", [{"steps": 1}, {"batch": 2}, {"biased": False}, {"results": ("y", "", "")}], ids=str)
@pytest.mark.parametrize("kind", KINDS, ids=str)
def test_one_step_several_rows_no_bias_and_one_output(kind: dict[str, Any], form: dict[str, Any]) -> None:
    check(layer(**kind, **form, initial="input"))


@pytest.mark.parametrize("kind", KINDS, ids=str)
def test_the_batch_may_come_first(kind: dict[str, Any]) -> None:
    """ONNX Runtime has no kernel for it; the results are those of the usual order, turned."""
    form: dict[str, Any] = {"steps": 3, "batch": 2, "direction": "bidirectional", "initial": "input"}
    usual, turned = layer(**kind, **form), normalise(layer(**kind, **form, batch_first=True))
    feed = feed_of(usual)
    results = run(turned, {name: value.swapaxes(0, 1) for name, value in feed.items()})
    for ours, theirs in zip(results, run(usual, feed), strict=True):
        np.testing.assert_allclose(
            ours, theirs.transpose(2, 0, 1, 3) if theirs.ndim == 4 else theirs.swapaxes(0, 1), atol=2e-6
        )


@pytest.mark.parametrize("kind", KINDS, ids=str)
def test_steps_share_their_weights(kind: dict[str, Any]) -> None:
    few, many = (normalise(layer(**kind, steps=steps)) for steps in (2, 7))

    def weights(model: onnx.ModelProto) -> int:
        return sum(int(np.prod(tensor.dims)) for tensor in model.graph.initializer if len(tensor.dims) == 2)

    assert weights(few) == weights(many)


def test_a_step_of_an_lstm_is_two_products() -> None:
    """Three gates of one function, and the cell's."""
    result = normalise(layer("LSTM", steps=1, initial="input"))
    kinds = [node.op_type for node in result.graph.node if node.op_type not in ("Reshape", "Slice")]
    assert sorted(kinds) == ["Add", "Concat", "Gemm", "Gemm", "Mul", "Mul", "Mul", "Sigmoid", "Tanh", "Tanh"]


def test_what_is_not_spelled_out_stays() -> None:
    """Peepholes, clipped gates, other functions, lengths of their own, long sequences."""
    peepholes = {"p": np.ones((1, 12), np.float32)}
    lengths = {"lengths": np.array([2], np.int32)}
    for model in (
        layer("LSTM", initial="constant", more=peepholes),
        layer("LSTM", clip=0.5),
        layer("LSTM", input_forget=1),
        layer("GRU", activations=["Sigmoid", "Relu"]),
        layer("LSTM", more=lengths),
        layer("LSTM", steps=recurrent.MOST_STEPS + 1),
        layer("RNN", steps=recurrent.MOST_STEPS // 2 + 1, direction="bidirectional"),
    ):
        assert operators(normalise(model)) & GATES.keys()


def test_what_changes_nothing_is_spelled_out() -> None:
    check(layer("LSTM", initial="constant", more={"p": np.zeros((1, 12), np.float32)}))
    check(layer("LSTM", more={"lengths": np.array([3], np.int32)}))
    check(layer("LSTM", activations=["Sigmoid", "Tanh", "Tanh"]))
