"""Rotary positions of one token as one matrix product: the outputs stay, and what is none stays as it is."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from dovetail.sw.host.onnx_session import open_session
from dovetail.sw.passes.float import rotations
from dovetail.sw.passes.float.normalise import normalise

POSITIONS, HEADS, HEAD = 12, 3, 8


def tables(head: int = HEAD, positions: int = POSITIONS) -> tuple[Any, Any]:
    """Cosines and sines [positions, head], the angles of the first half twice."""
    angles = np.outer(np.arange(positions), 10000.0 ** (-2 * np.arange(head // 2) / head))
    angles = np.concatenate([angles, angles], axis=1)
    return np.cos(angles).astype(np.float32), np.sin(angles).astype(np.float32)


def rotary(form: str, *, head: int = HEAD, positions: int = POSITIONS, tokens: int = 1) -> onnx.ModelProto:
    """``x * cos + turned(x) * sin`` of one head size, ``turned`` spelled in one of some forms."""
    cosine, sine = tables(head, positions)
    half = head // 2
    constants = {
        "cosines": cosine,
        "sines": sine,
        "shape": np.array([1, tokens, 1, head]),
        "zero": np.array([0]),
        "half": np.array([half]),
        "head": np.array([head]),
        "axis": np.array([-1]),
        "sizes": np.array([half, half]),
        "pairs": np.array([1, tokens, HEADS, half, 2]),
        "whole": np.array([1, tokens, HEADS, head]),
        "two": np.array([2]),
        "one": np.array([1]),
    }
    node = helper.make_node
    row = {
        "cos": [node("Gather", ["cosines", "pos"], ["cos_row"]), node("Reshape", ["cos_row", "shape"], ["cos"])],
        "sin": [node("Gather", ["sines", "pos"], ["sin_row"]), node("Reshape", ["sin_row", "shape"], ["sin"])],
    }
    halves = {
        "slices": [
            node("Slice", ["x", "zero", "half", "axis"], ["first"]),
            node("Slice", ["x", "half", "head", "axis"], ["second"]),
        ],
        "split": [node("Split", ["x", "sizes"], ["first", "second"], axis=-1)],
    }
    halves |= dict.fromkeys(("tanh", "unlike", "swapped"), halves["split"])
    if form == "interleaved":
        turned = [
            node("Reshape", ["x", "pairs"], ["as_pairs"]),
            node("Slice", ["as_pairs", "zero", "one", "axis"], ["even"]),
            node("Slice", ["as_pairs", "one", "two", "axis"], ["odd"]),
            node("Neg", ["odd"], ["minus"]),
            node("Concat", ["minus", "even"], ["turned_pairs"], axis=-1),
            node("Reshape", ["turned_pairs", "whole"], ["turned"]),
        ]
    else:
        negative = node("Tanh" if form == "tanh" else "Neg", ["second"], ["minus"])
        parts = ["minus", "minus"] if form == "unlike" else ["minus", "first"]
        turned = [*halves[form], negative, node("Concat", parts, ["turned"], axis=-1)]
    ends = (["sin", "turned"], ["cos", "x"]) if form == "swapped" else (["x", "cos"], ["turned", "sin"])
    nodes = [*row["cos"], *row["sin"], *turned, node("Mul", ends[0], ["a"]), node("Mul", ends[1], ["b"])]
    nodes.append(node("Add", ["a", "b"], ["y"]))
    shape = [1, tokens, HEADS, head]
    inputs = [
        helper.make_tensor_value_info("x", TensorProto.FLOAT, shape),
        helper.make_tensor_value_info("pos", TensorProto.INT64, [tokens]),
    ]
    output = helper.make_tensor_value_info("y", TensorProto.FLOAT, shape)
    held = [numpy_helper.from_array(np.asarray(value), name) for name, value in constants.items()]
    graph = helper.make_graph(nodes, "rotary", inputs, [output], held)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)


def kinds(model: onnx.ModelProto) -> Counter[str]:
    return Counter(node.op_type for node in model.graph.node)


def outputs(model: onnx.ModelProto, x: Any, position: int) -> Any:
    session = open_session(model.SerializeToString())
    return session.run(None, {"x": x, "pos": np.array([position])})[0]


@pytest.mark.parametrize("form", ["slices", "split", "swapped", "interleaved"])
def test_a_rotation_is_a_product(form: str) -> None:
    """At every position the sum of the same two products."""
    model = rotary(form)
    joined = normalise(model)
    found = kinds(joined)
    assert (found["MatMul"], found["Mul"], found["Add"]) == (1, 0, 0)
    rng = np.random.default_rng(3)
    for position in range(POSITIONS):
        x = rng.normal(size=(1, 1, HEADS, HEAD)).astype(np.float32)
        np.testing.assert_allclose(outputs(joined, x, position), outputs(model, x, position), rtol=0, atol=1e-6)


@pytest.mark.parametrize("form", ["tanh", "unlike"])
def test_what_is_no_rotation_stays(form: str) -> None:
    """Another function of the elements, or elements that occur twice."""
    found = kinds(normalise(rotary(form)))
    assert (found["MatMul"], found["Mul"]) == (0, 2)


def test_several_tokens_stay() -> None:
    """They would need a matrix each."""
    found = kinds(normalise(rotary("split", tokens=2)))
    assert (found["MatMul"], found["Mul"]) == (0, 2)


def test_table_of_matrices_has_a_limit() -> None:
    """The matrices of all positions are the head's size as many as the sines."""
    head = 64
    most = rotations.MOST_ENTRIES // head**2
    for positions, products in ((most, 1), (most + 1, 0)):
        assert kinds(normalise(rotary("split", head=head, positions=positions)))["MatMul"] == products


def test_heads_share_their_matrix() -> None:
    """Two rotations by the same position pick one matrix."""
    model = rotary("split")
    graph = model.graph
    twin = [node for node in graph.node if node.op_type not in ("Gather", "Reshape")]
    named = {name: f"{name}_2" for node in twin for name in node.output} | {"x": "x_2"}
    for node in twin:
        names = ([named.get(name, name) for name in ends] for ends in (node.input, node.output))
        graph.node.append(
            helper.make_node(node.op_type, *names, **{a.name: helper.get_attribute_value(a) for a in node.attribute})
        )
    for ports, name in ((graph.input, "x"), (graph.output, "y")):
        ports.append(helper.make_tensor_value_info(f"{name}_2", TensorProto.FLOAT, [1, 1, HEADS, HEAD]))
    found = kinds(normalise(model))
    assert (found["MatMul"], found["Gather"]) == (2, 1)
