"""Caches that grow by a row in each run get a fixed length."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from dovetail.isa.config.resolved import Config
from dovetail.sw.errors import NetworkError
from dovetail.sw.frontend import parse, read
from dovetail.sw.frontend.onnx.parsed import ParsedOnnx
from dovetail.sw.frontend.parsed_file import NetworkFile
from dovetail.sw.host.onnx_session import open_session
from dovetail.sw.network import ir
from dovetail.sw.network.layout import Array
from dovetail.sw.quantise.calibration import Calibration
from dovetail.sw.quantise.float_network import FloatGraph, float_model
from dovetail.sw.quantise.patterns import Masked, masked
from dovetail.sw.quantise.quantiser import apply
from dovetail.sw.quantise.samples import FileSamples, Steps, without_states
from dovetail.sw.quantise.scheme import Scheme
from dovetail.sw.runtime.compiled_network import compile_network
from tests.sw.quantise.test_caches import CHANNELS, DEPTH, HEADS, LENGTH, Step

STORIES = Path(__file__).parents[4] / "shared/transformers/stories260k"


class Growing(Step):
    """The step of a decoder that appends a row to its cache."""

    def __init__(self, rows: int = 1) -> None:
        super().__init__()
        self.rows = rows
        gone = ("keep", "kept", "added", "cache_out")
        concat = helper.make_node("Concat", ["past_k", "k_rotated"], ["present_k"], "append", axis=-2)
        index = next(k for k, node in enumerate(self.nodes) if node.name == "cache_out")
        self.nodes = [
            *(node for node in self.nodes[:index] if node.name not in gone),
            concat,
            *self.nodes[index + 1 :],
        ]
        for node in self.nodes:
            node.input[:] = ["present_k" if name == "cache_out" else name for name in node.input]
        self.constants["apart"] = np.array([1, rows, HEADS, DEPTH])
        self.constants["together"] = np.array([1, rows, CHANNELS])

    def model(self) -> onnx.ModelProto:
        inputs = [
            helper.make_tensor_value_info("x", TensorProto.FLOAT, (1, self.rows, CHANNELS)),
            helper.make_tensor_value_info("pos", TensorProto.INT64, (1,)),
            helper.make_tensor_value_info("past_k", TensorProto.FLOAT, (1, HEADS, "past", DEPTH)),
        ]
        outputs = [
            helper.make_tensor_value_info("y", TensorProto.FLOAT, (1, self.rows, CHANNELS)),
            helper.make_tensor_value_info("present_k", TensorProto.FLOAT, (1, HEADS, "all", DEPTH)),
        ]
        tensors = [numpy_helper.from_array(value, name) for name, value in self.constants.items()]
        graph = helper.make_graph(self.nodes, "growing", inputs, outputs, tensors)
        return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=9)


SHAPES = {"past_k": (1, HEADS, LENGTH, DEPTH)}
INPUTS = np.random.default_rng(1).normal(0, 1, (LENGTH, 1, 1, CHANNELS)).astype(np.float32)


def parsed(model: onnx.ModelProto) -> ParsedOnnx:
    return ParsedOnnx(NetworkFile("growing", model.SerializeToString()), SHAPES)


def walked(model: onnx.ModelProto, cache: Array) -> list[Array]:
    """Results of each step in ONNX Runtime."""
    session = open_session(model.SerializeToString())
    found = []
    for position, x in enumerate(INPUTS):
        y, cache = session.run(["y", "present_k"], {"x": x, "pos": np.array([position]), "past_k": cache})
        found.append(y)
    return found


def test_a_fixed_length_gives_the_same_results() -> None:
    fixed = parsed(Growing().model())
    assert fixed.states == {"past_k": "present_k"}
    expected = walked(Growing().model(), np.zeros((1, HEADS, 0, DEPTH), np.float32))
    found = walked(fixed.as_onnx(), np.zeros(SHAPES["past_k"], np.float32))
    np.testing.assert_allclose(found, expected, atol=1e-6)


def quantised(folder: Path) -> onnx.ModelProto:
    source = parsed(Growing().model())
    graph = FloatGraph(float_model(source))
    np.savez(folder / "x.npz", x=INPUTS, pos=np.arange(LENGTH).reshape(LENGTH, 1))
    samples = FileSamples(folder / "x.npz", without_states(graph.inputs, source.states))
    return apply(Calibration(graph, Steps(graph, source.states, samples)), Scheme()).model


def test_a_quantised_step_puts_its_row_in_place(tmp_path: Path) -> None:
    model = quantised(tmp_path)
    network = compile_network(parsed(model).graph, Config())
    assert [port.name for port in network.graph.inputs] == ["x", "pos"]
    (state,) = network.graph.states
    assert network.graph.tensors[state.read].dtype == "int8"
    (update,) = (node for node in network.graph.nodes if state.written in node.outputs)
    assert (update.inputs[0], update.inputs[2]) == (state.read, "pos")
    expected = walked(model, np.zeros(SHAPES["past_k"], np.float32))
    for position, x in enumerate(INPUTS):
        found = network.run({"x": x, "pos": np.array([position])}).outputs["y"]
        np.testing.assert_allclose(found, expected[position], atol=1e-6)
    with pytest.raises(NetworkError, match=r"must run it, not fail.*out of data bounds, idx=8"):
        network.run({"x": INPUTS[0], "pos": np.array([LENGTH])})


def test_masks_are_in_the_integer_scores(tmp_path: Path) -> None:
    """So softmax is of integers, and hidden rows have no share at any position."""
    network = compile_network(parsed(quantised(tmp_path)).graph, Config(softmax=1, parameters=1), keep_tensors=True)
    kinds = {node.op for node in network.graph.nodes if node.name in network.code.host_reasons}
    assert not {"add", "softmax", "qlinearsoftmax", "update"} & kinds
    (softmax,) = (node for node in network.code.graph.nodes if isinstance(node, ir.Softmax))
    for position, x in enumerate(INPUTS):
        shares = network.run({"x": x, "pos": np.array([position])}).tensors[softmax.outputs[0]]
        shares = shares.reshape(HEADS, LENGTH).astype(int) + 128
        assert not shares[:, position + 1 :].any()
        assert (shares[:, : position + 1].sum(axis=1) > 240).all()


def hides(value: float) -> Masked | None:
    """What a sum is in whose mask a hidden row has this value."""
    model = parsed(Growing().model()).as_onnx()
    for tensor in model.graph.initializer:
        if tensor.name.endswith("/hidden"):
            tensor.CopyFrom(numpy_helper.from_array(np.array(value, np.float32), tensor.name))
    graph = FloatGraph(model)
    (softmax,) = (node for node in graph.nodes if node.op_type == "Softmax")
    return masked(graph, graph.producers[softmax.input[0]])


def test_only_what_hides_is_a_mask() -> None:
    found = hides(-1e9)
    assert found is not None
    assert (found.scores, found.mask, found.factor) == ("scores", "pos/mask", 1.0)
    assert hides(-3.0) is None
    assert hides(2.0) is None


def test_a_network_without_a_position_gets_one() -> None:
    model = Growing().model()
    for node in model.graph.node:
        node.input[:] = ["angle" if name == "pos" else name for name in node.input]
    model.graph.input[1].name = "angle"
    fixed = parsed(model).as_onnx()
    assert [value.name for value in fixed.graph.input] == ["x", "angle", "past_k", "position"]


def test_the_length_must_be_given() -> None:
    with pytest.raises(
        NetworkError, match="input 'past_k': axis 2 must have a fixed size, not past; give one: --shape"
    ):
        parse(NetworkFile("growing", Growing().model().SerializeToString()))


def shape_read(model: onnx.ModelProto) -> None:
    model.graph.node.append(helper.make_node("Shape", ["past_k"], ["sizes"], "length"))


def over_other_axis(model: onnx.ModelProto) -> None:
    node = next(node for node in model.graph.node if node.op_type == "Softmax")
    node.attribute.append(helper.make_attribute("axis", 1))


def summed(model: onnx.ModelProto) -> None:
    model.graph.node.append(helper.make_node("ReduceMean", ["present_k"], ["mean"], "mean"))


@pytest.mark.parametrize(
    ("edit", "message"),
    [
        (shape_read, r"growing: state 'past_k': a cache that grows must be read by one Concat alone, not by 'length'"),
        (
            over_other_axis,
            r"growing: node 'shares' \(Softmax\): must be over the last axis, the rows of a cache that grow",
        ),
        (summed, r"growing: node 'mean' \(ReduceMean\): rows of a cache that grows must go by products to one Softmax"),
    ],
)
def test_what_cannot_be_settled_is_said_in_one_line(edit: Callable[[onnx.ModelProto], None], message: str) -> None:
    model = Growing().model()
    edit(model)
    with pytest.raises(NetworkError, match=message):
        parsed(model)


def test_a_run_adds_one_row() -> None:
    with pytest.raises(
        NetworkError, match=r"node 'append' \(Concat\): a cache that grows must grow by one row in each"
    ):
        parsed(Growing(rows=2).model())


@pytest.mark.skipif(not STORIES.exists(), reason="../shared/transformers is not there")
def test_a_trained_decoder_writes_the_same_words() -> None:
    """Grouped queries: heads and queries share an axis of the scores."""
    source = ParsedOnnx(read(STORIES / "stories260k_decode_past.onnx"), {"past_k_0": (1, 4, 48, 8)})
    session = open_session(source.as_onnx().SerializeToString())
    names = [value.name for value in session.get_outputs()]
    tokens = json.loads((STORIES / "greedy.json").read_text())[0]["tokens"]
    states = {name: np.zeros((1, 4, 48, 8), np.float32) for name in source.states}
    for position, token in enumerate(tokens[:48]):
        feed = {"tokens": np.array([[token]]), "pos": np.array([position]), **states}
        results = dict(zip(names, session.run(None, feed), strict=True))
        assert results["logits"].argmax() == tokens[position + 1]
        states = {name: results[output] for name, output in source.states.items()}
