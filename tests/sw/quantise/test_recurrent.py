"""Recurrent layers in 8 bits: what they keep has one quantisation, and is near float after many steps."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from dovetail.isa.config.resolved import Config
from dovetail.sw.frontend.onnx.uint8_form import uint8_form
from dovetail.sw.frontend.parsed_file import NetworkFile
from dovetail.sw.host.onnx_session import open_session
from dovetail.sw.network.layout import Array, Sample
from dovetail.sw.quantise.network import quantise_network
from dovetail.sw.runtime.compiled_network import compile_network
from tests.slow import slow
from tests.sw.passes.test_recurrent import GATES
from tests.sw.quantise.test_quantise import scales_of

WIDTH, UNITS, CLASSES = 10, 32, 6
LENGTH = 100


def network(kind: str, steps: int = 1, *, kept: bool = True) -> onnx.ModelProto:
    """A layer and a dense one behind it; weights as PyTorch draws them, twice as large, and a forget gate of 1."""
    random = np.random.default_rng(4)
    rows = GATES[kind] * UNITS
    constants = {
        "w": random.uniform(-0.35, 0.35, (1, rows, WIDTH)),
        "r": random.uniform(-0.35, 0.35, (1, rows, UNITS)),
        "b": np.zeros((1, 2 * rows)),
        "v": random.uniform(-0.35, 0.35, (UNITS, CLASSES)),
        "d": random.uniform(-0.1, 0.1, CLASSES),
    }
    if kind == "LSTM":
        constants["b"][:, 2 * UNITS : 3 * UNITS] = 1
    inputs = [helper.make_tensor_value_info("x", TensorProto.FLOAT, (steps, 1, WIDTH))]
    names = ["h", "c"][: 2 if kind == "LSTM" else 1] if kept else []
    inputs += [helper.make_tensor_value_info(f"past_{name}", TensorProto.FLOAT, (1, 1, UNITS)) for name in names]
    reads = ["x", "w", "r", "b", *([""] if names else []), *(f"past_{name}" for name in names)]
    ends = [f"present_{name}" for name in names] or ["last"]
    layer = {"linear_before_reset": 1} if kind == "GRU" else {}
    nodes = [
        helper.make_node(kind, reads, ["", *ends], "cell", hidden_size=UNITS, **layer),
        helper.make_node("Squeeze", [ends[0], "axis"], ["row"]),
        helper.make_node("Gemm", ["row", "v", "d"], ["y"], "dense"),
    ]
    tensors = [numpy_helper.from_array(value.astype(np.float32), name) for name, value in constants.items()]
    tensors.append(numpy_helper.from_array(np.array([0]), "axis"))
    outputs = [onnx.ValueInfoProto(name=name) for name in ("y", *(ends if kept else []))]
    graph = helper.make_graph(nodes, "net", inputs, outputs, tensors)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def file(model: onnx.ModelProto) -> NetworkFile:
    return NetworkFile("net", model.SerializeToString())


def signal(count: int, seed: int) -> list[Array]:
    """Noise that changes slowly, as features of a sound do."""
    random = np.random.default_rng(seed)
    value, found = np.zeros(WIDTH), []
    for _ in range(count):
        value = 0.8 * value + 0.6 * random.standard_normal(WIDTH)
        found.append(value.reshape(1, 1, WIDTH).astype(np.float32))
    return found


def walk(model: onnx.ModelProto, sequence: list[Array]) -> Iterator[dict[str, Array]]:
    """Results of ONNX Runtime step by step, the state handed on."""
    session = open_session(model.SerializeToString())
    names = [value.name for value in session.get_outputs()]
    kept = {v.name: np.zeros((1, 1, UNITS), np.float32) for v in session.get_inputs() if v.name != "x"}
    for value in sequence:
        results = dict(zip(names, session.run(None, {"x": value, **kept}), strict=True))
        kept = {name: results[name.replace("past", "present")] for name in kept}
        yield results


@cache
def quantised(kind: str) -> onnx.ModelProto:
    samples: list[Sample] = [{"x": value} for value in signal(400, 0)]
    return onnx.load_model_from_string(quantise_network(file(network(kind)), samples, "minmax").data)


def decibel(exact: list[Array], found: list[Array]) -> float:
    one, other = (np.array(values, np.float64) for values in (exact, found))
    return float(10 * np.log10((one**2).sum() / ((one - other) ** 2).sum()))


@pytest.mark.parametrize(("kind", "least"), [("LSTM", 26), ("GRU", 28), ("RNN", 28)])
def test_outputs_are_near_float_after_a_hundred_steps(kind: str, least: float) -> None:
    """In dB, of the last half of the steps."""
    sequence = signal(LENGTH, 1)
    exact, found = ([*walk(model, sequence)] for model in (network(kind), quantised(kind)))
    for name in ("present_h", "y"):
        measured = decibel(*([step[name] for step in steps[LENGTH // 2 :]] for steps in (exact, found)))
        assert measured > least, (name, measured)


@pytest.mark.parametrize("kind", GATES)
def test_steps_on_the_accelerator_equal_the_integer_kernels(kind: str) -> None:
    compiled = compile_network(file(quantised(kind)), Config())
    hosted = {node.op for node in compiled.code.graph.nodes if node.name in compiled.code.host_reasons}
    assert hosted == {"quantize", "dequantize"}
    sequence = signal(12, 2)
    for value, wanted in zip(sequence, walk(uint8_form(quantised(kind)), sequence), strict=True):
        np.testing.assert_array_equal(compiled.run({"x": value}).outputs["y"], wanted["y"])


@pytest.mark.parametrize("kind", GATES)
def test_what_is_kept_has_one_quantisation(kind: str) -> None:
    """So it is 8 bits from run to run, and not rounded again."""
    scales = scales_of(quantised(kind))
    compiled = compile_network(file(quantised(kind)), Config())
    assert {compiled.graph.tensors[state.read].dtype for state in compiled.graph.states} == {"int8"}
    for state in compiled.graph.states:
        name = state.name.replace("past", "present")
        assert scales[state.name] == scales[f"{name}_QuantizeLinear_Input"]


def test_a_cell_saturates() -> None:
    """A forget gate of nearly 1 and a new value of 1: the cell would reach 100."""
    model = network("LSTM")
    bias = next(tensor for tensor in model.graph.initializer if tensor.name == "b")
    values = numpy_helper.to_array(bias).copy()
    values[:, : 4 * UNITS] = 8
    bias.CopyFrom(numpy_helper.from_array(values, "b"))
    samples = [{"x": value} for value in signal(LENGTH, 0)]
    wide = [*walk(model, signal(LENGTH, 1))]
    assert np.abs(wide[-1]["present_c"]).max() > 50
    found = onnx.load_model_from_string(quantise_network(file(model), samples, "minmax").data)
    scale, zero = scales_of(found)["past_c"]
    assert scale * (127 - zero) <= 6 + scale
    assert decibel([wide[-1]["present_h"]], [[*walk(found, signal(LENGTH, 1))][-1]["present_h"]]) > 30


@pytest.mark.parametrize("kind", [slow(kind) if kind == "GRU" else kind for kind in GATES])
def test_weights_of_a_sequence_are_stored_once(kind: str) -> None:
    """In system memory, where each step adds its tables alone."""
    samples: list[Sample] = [{"x": np.concatenate(signal(8, seed))} for seed in range(4)]
    sizes = []
    for steps in (4, 8):
        given = [{"x": sample["x"][:steps]} for sample in samples]
        result = quantise_network(file(network(kind, steps, kept=False)), given)
        model = onnx.load_model_from_string(result.data)
        compiled = compile_network(result, Config(), effort=0)
        sizes.append(
            (compiled.code.constants_bytes, sum(layer.kind in ("sigmoid", "tanh") for layer in compiled.code.layers))
        )
        wanted = open_session(uint8_form(model).SerializeToString()).run(None, given[0])
        np.testing.assert_array_equal(compiled.run(given[0]).outputs["y"], wanted[0])
    (few, tables), (many, more) = sizes
    assert many - few == 4096 * (more - tables) + (4 * 4096 if kind == "GRU" else 0)  # and 1 - update
