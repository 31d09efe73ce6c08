"""Channels that are brought to like ranges before a network is quantised."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from dovetail.flows.cli import main
from dovetail.sw.host.onnx_session import Session
from dovetail.sw.network.layout import Array, Sample
from dovetail.sw.quantise.calibration import Calibration
from dovetail.sw.quantise.float_network import FloatGraph
from dovetail.sw.quantise.quality import Comparison
from dovetail.sw.quantise.quantiser import apply
from dovetail.sw.quantise.scheme import Scheme
from dovetail.sw.quantise.smoothing import places, smooth

TOKENS, CHANNELS, HIDDEN = 6, 16, 12


def network(norm: str = "RMSNormalization", *, read_twice: bool = False) -> onnx.ModelProto:
    """A norm with a few large channels, a gated layer, and what reads both."""
    random = np.random.default_rng(4)
    gain = np.ones(CHANNELS)
    gain[[3, 9]] = 30
    constants: dict[str, Array] = {
        "gain": gain,
        "offset": random.normal(0, 1, CHANNELS) * gain,
        "gate": random.normal(0, 0.2, (CHANNELS, HIDDEN)) / gain[:, None],
        "widen": random.normal(0, 0.2, (CHANNELS, HIDDEN)) / gain[:, None] * np.geomspace(0.05, 20, HIDDEN),
        "narrow": random.normal(0, 0.2, (HIDDEN, CHANNELS)) / np.geomspace(0.05, 20, HIDDEN)[:, None],
    }
    parameters = ["gain", "offset"] if norm == "LayerNormalization" else ["gain"]
    nodes = [
        helper.make_node(norm, ["x", *parameters], ["normed"], "norm", axis=-1),
        helper.make_node("MatMul", ["normed", "gate"], ["gate_row"], "gate"),
        helper.make_node("Sigmoid", ["gate_row"], ["opened"], "sigmoid"),
        helper.make_node("MatMul", ["normed", "widen"], ["wide"], "widen"),
        helper.make_node("Mul", ["opened", "wide"], ["gated"], "product"),
        helper.make_node("MatMul", ["gated", "narrow"], ["y"], "narrow"),
    ]
    if read_twice:
        nodes += [
            helper.make_node("Relu", ["normed"], ["other"], "relu"),
            helper.make_node("Relu", ["wide"], ["another"], "relu2"),
        ]
    values = [helper.make_tensor_value_info("x", TensorProto.FLOAT, (1, TOKENS, CHANNELS))]
    outputs = [helper.make_tensor_value_info("y", TensorProto.FLOAT, (1, TOKENS, CHANNELS))]
    if read_twice:
        outputs.append(helper.make_tensor_value_info("other", TensorProto.FLOAT, (1, TOKENS, CHANNELS)))
        outputs.append(helper.make_tensor_value_info("another", TensorProto.FLOAT, (1, TOKENS, HIDDEN)))
    tensors = [numpy_helper.from_array(value.astype(np.float32), name) for name, value in constants.items()]
    graph = helper.make_graph(nodes, "gated", values, outputs, tensors)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 23)], ir_version=10)


def inputs(count: int = 6) -> list[Sample]:
    random = np.random.default_rng(5)
    return [{"x": random.normal(0, 1, (1, TOKENS, CHANNELS)).astype(np.float32)} for _ in range(count)]


def spread(graph: FloatGraph, name: str) -> float:
    """Largest by smallest range of a tensor's channels."""
    session = Session(graph.model, (name,))
    largest = np.max([np.abs(session.run(sample)[name]).max(axis=(0, 1)) for sample in inputs()], axis=0)
    return float(largest.max() / largest.min())


@pytest.mark.parametrize("norm", ["RMSNormalization", "LayerNormalization"])
def test_channels_become_alike_and_results_stay(norm: str) -> None:
    before = FloatGraph(network(norm))
    after = smooth(before, inputs())
    for name in ("normed", "gated"):
        assert spread(after, name) < spread(before, name) / 4
    old, new = Session(before.model), Session(after.model)
    for sample in inputs():
        np.testing.assert_allclose(new.run(sample)["y"], old.run(sample)["y"], rtol=1e-4, atol=1e-5)


def test_eight_bits_keep_more() -> None:
    found = []
    for graph in (FloatGraph(network()), smooth(FloatGraph(network()), inputs())):
        quantised = apply(Calibration(graph, inputs()), Scheme(clipping="minmax"))
        found.append(Comparison(graph).quality(quantised.model, inputs()).worst)
    assert found[1] > found[0] + 3


def test_who_else_reads_a_channel_keeps_it() -> None:
    """A norm that other nodes read, and a factor that does."""
    assert [place.activation for place in places(FloatGraph(network()))] == ["normed", "gated"]
    assert not [*places(FloatGraph(network(read_twice=True)))]


def test_a_channel_that_is_never_used_does_no_harm() -> None:
    model = network()
    for tensor in model.graph.initializer:
        if tensor.name in ("gain", "gate"):
            values = numpy_helper.to_array(tensor).copy()
            values[0] = 0
            tensor.CopyFrom(numpy_helper.from_array(values, tensor.name))
    graph = smooth(FloatGraph(model), inputs())
    for tensor in graph.model.graph.initializer:
        assert np.isfinite(numpy_helper.to_array(tensor)).all()


def test_the_command_smooths(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "net.onnx").write_bytes(network().SerializeToString())
    np.savez(tmp_path / "x.npz", x=np.concatenate([sample["x"] for sample in inputs()]))
    told = []
    for more in ([], ["--smooth"]):
        options = ["--calibration", str(tmp_path / "x.npz"), "--output", str(tmp_path / "q.onnx"), *more]
        assert main(["quantise", str(tmp_path / "net.onnx"), *options]) == 0
        line = next(line for line in capsys.readouterr().out.splitlines() if line.startswith("output SNR"))
        told.append(float(line.split()[2]))
    assert told[1] > told[0] + 2
