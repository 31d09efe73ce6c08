"""Networks with variables: what one run leaves, the next one finds; every run equals TFLite Micro's."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from ai_edge_litert.interpreter import Interpreter, OpResolverType

from dovetail.isa.config.resolved import Config
from dovetail.sw.errors import NetworkError
from dovetail.sw.export.parts.folder import export, run_parts
from dovetail.sw.files.packing import pack
from dovetail.sw.files.portable import unpack
from dovetail.sw.frontend import load, parse, read
from dovetail.sw.frontend.parsed_file import NetworkFile
from dovetail.sw.host import recurrent
from dovetail.sw.network.layout import Array
from dovetail.sw.runtime.compiled_network import CompiledNetwork, compile_network
from dovetail.sw.runtime.reference_runtimes import run as run_reference
from dovetail.sw.runtime.saved_program import load_program
from tests.sw.frontend.tflite_writer import Operator, Writer, options
from tests.sw.runtime.stateful_networks import lstm, streaming, svdf

MICRO: Any = None
"""TFLite Micro; without it the tests that compare with it are skipped."""
with suppress(ImportError):
    MICRO = import_module("tflite_micro").runtime
needs_micro = pytest.mark.skipif(MICRO is None, reason="tflite_micro is not installed")

NETWORKS: dict[str, Callable[[], bytes]] = {
    "lstm": lstm,
    "lstm of 20 steps": lambda: lstm(steps=20, width=30, units=32),
    "lstm, time first": lambda: lstm(time_major=True),
    "lstm, clipped cells": lambda: lstm(clip=0.5),
    "svdf": svdf,
    "svdf, state of int8": lambda: svdf(time="int8"),
    "streaming": streaming,
    "streaming, nothing initialised": lambda: streaming(initial=None),
}


def saved(folder: Path, data: bytes) -> Path:
    path = folder / "net.tflite"
    path.write_bytes(data)
    return path


def samples(network: CompiledNetwork, count: int = 12) -> list[Array]:
    rng = np.random.default_rng(0)
    shape = network.graph.inputs[0].shape
    return [rng.integers(-128, 128, shape).astype(np.int8) for _ in range(count)]


def outputs(network: CompiledNetwork, inputs: list[Array]) -> list[Array]:
    return [network.run(value).outputs["y"] for value in inputs]


@needs_micro
@pytest.mark.parametrize("name", NETWORKS)
def test_every_run_equals_tflite_micro(tmp_path: Path, name: str) -> None:
    data = NETWORKS[name]()
    network = compile_network(saved(tmp_path, data), Config())
    inputs = samples(network)
    micro = MICRO.Interpreter.from_bytes(data, arena_size=1 << 20)
    for value, ours in zip(inputs, outputs(network, inputs), strict=True):
        micro.set_input(value, 0)
        micro.invoke()
        assert np.array_equal(ours, micro.get_output(0))


@pytest.mark.parametrize("name", NETWORKS)
def test_a_reset_gives_the_first_runs_again(tmp_path: Path, name: str) -> None:
    network = compile_network(saved(tmp_path, NETWORKS[name]()), Config())
    inputs = samples(network, 6)
    first = outputs(network, inputs)
    assert not all(np.array_equal(a, b) for a, b in zip(first, outputs(network, inputs), strict=True))
    network.reset()
    again = outputs(network, inputs)
    assert all(np.array_equal(a, b) for a, b in zip(first, again, strict=True))


def test_a_state_can_be_kept_and_given_back(tmp_path: Path) -> None:
    network = compile_network(saved(tmp_path, streaming()), Config())
    inputs = samples(network, 4)
    network.run(inputs[0])
    kept = network.state
    first = outputs(network, inputs[1:])
    network.state = kept
    assert all(np.array_equal(a, b) for a, b in zip(first, outputs(network, inputs[1:]), strict=True))


def test_a_streaming_network_runs_on_the_accelerator(tmp_path: Path) -> None:
    network = compile_network(saved(tmp_path, streaming()), Config())
    assert not network.code.host_reasons
    assert [(state.name, network.code.in_place(state)) for state in network.graph.states] == [("rows", True)]
    assert "state  before: int8[1x2x6x4]" in str(network.graph)


def test_the_rest_of_a_recurrent_network_runs_on_the_accelerator(tmp_path: Path) -> None:
    network = compile_network(saved(tmp_path, lstm()), Config())
    assert list(network.code.host_reasons) == ["00_UNIDIRECTIONAL_SEQUENCE_LSTM"]
    assert network.graph.macs(network.graph.nodes[0]) == 3 * 4 * 5 * (6 + 5)


@pytest.mark.parametrize("make", [lstm, streaming])
def test_a_saved_program_keeps_state(tmp_path: Path, make: Callable[[], bytes]) -> None:
    network = compile_network(saved(tmp_path, make()), Config())
    network.save(tmp_path / "net.dvt")
    loaded, inputs = load_program(tmp_path / "net.dvt"), samples(network, 4)
    assert all(np.array_equal(a, b) for a, b in zip(outputs(network, inputs), outputs(loaded, inputs), strict=True))


def test_a_packed_sample_is_of_the_first_run(tmp_path: Path) -> None:
    network = compile_network(saved(tmp_path, streaming()), Config())
    value = samples(network, 1)[0]
    portable = unpack(pack(parse(read(tmp_path / "net.tflite")), {"x": value}), "net.dnet")
    assert portable.manifest["states"] == [{"name": "rows", "dtype": "int8", "shape": [1, 2, 6, 4]}]
    assert portable.sample is not None
    assert np.array_equal(portable.sample.outputs["y"], network.run(value).outputs["y"])


def test_exported_parts_hand_the_state_on(tmp_path: Path) -> None:
    network = compile_network(saved(tmp_path, streaming()), Config())
    manifest = export(network, tmp_path / "parts")
    assert [(one["reads"], one["writes"]) for one in manifest["states"]] == [("before", "after")]
    state: dict[str, Array] = {}
    for value in samples(network, 4):
        apart = run_parts(tmp_path / "parts", {"x": value}, state)["y"].astype(np.int16)
        assert np.abs(apart - network.run(value).outputs["y"]).max() <= 1  # ONNX Runtime's rounding


def test_who_cannot_keep_state_says_so(tmp_path: Path) -> None:
    network = compile_network(saved(tmp_path, lstm()), Config())
    with pytest.raises(NetworkError, match=r"layer without a state of its own to be exported; `dovetail run`"):
        export(network, tmp_path / "parts")
    assert not (tmp_path / "parts").exists()


@needs_micro
@pytest.mark.parametrize("make", [lstm, svdf, streaming])
def test_the_reference_runtime_sees_the_samples_before(tmp_path: Path, make: Callable[[], bytes]) -> None:
    data = make()
    network = compile_network(saved(tmp_path, data), Config(), keep_tensors=True)
    feeds = [{"x": value} for value in samples(network, 3)]
    results = [network.run(feed) for feed in feeds]
    reference = run_reference(network.graph, parse(NetworkFile("net", data)), feeds[-1], before=feeds[:-1])
    assert reference.runtime == "TFLite Micro"
    for state in network.graph.states:
        ours = results[-1].tensors[state.written]
        assert np.array_equal(ours, np.reshape(reference.tensors[state.written], ours.shape))


@pytest.mark.parametrize(("code", "function"), [(Operator.LOGISTIC, recurrent.sigmoid), (Operator.TANH, None)])
def test_gates_equal_the_runtimes_functions_everywhere(code: int, function: Callable[[Any], Any] | None) -> None:
    w = Writer()
    x, y = w.tensor((1, 65536), "int16", 2.0**-12), w.tensor((1, 65536), "int16", 2.0**-15)
    w.op(code, [x], [y], version=3)
    w.graph.inputs, w.graph.outputs = [x], [y]
    runtime = Interpreter(model_content=w.data(), experimental_op_resolver_type=OpResolverType.BUILTIN_REF)
    runtime.allocate_tensors()
    values = np.arange(-32768, 32768).astype(np.int16)
    runtime.set_tensor(x, values[None])
    runtime.invoke()
    wide = values.astype(np.int64)
    ours = function(wide) if function else recurrent.tanh(wide, -12)
    assert np.array_equal(ours, runtime.get_tensor(y)[0])


def test_a_layer_that_tflite_micro_lacks_keeps_its_state_in_litert() -> None:
    """A float SVDF between int8 tensors."""
    rng = np.random.default_rng(1)
    w = Writer()
    x = w.tensor((1, 4), name="x")
    real = w.tensor((1, 4), "float32", None)
    w.op(Operator.DEQUANTIZE, [x], [real], version=2)
    feature, time = (w.constant(rng.standard_normal(shape).astype(np.float32)) for shape in ((6, 4), (6, 3)))
    bias = w.constant(np.zeros(3, np.float32))
    state = w.tensor((1, 18), "float32", None, name="state", variable=True)
    made, y = w.tensor((1, 3), "float32", None), w.tensor((1, 3), name="y")
    option = options("SVDFOptions", rank=2, fusedActivationFunction=0)
    w.op(Operator.SVDF, [real, feature, time, bias, state], [made], option)
    w.op(Operator.QUANTIZE, [made], [y], version=2)
    w.graph.inputs, w.graph.outputs = [x], [y]
    network = compile_network(load(NetworkFile("net", w.data())), Config())
    inputs = samples(network, 5)
    runtime = Interpreter(model_content=w.data(), experimental_op_resolver_type=OpResolverType.BUILTIN_REF)
    runtime.allocate_tensors()
    for value, ours in zip(inputs, outputs(network, inputs), strict=True):
        runtime.set_tensor(x, value)
        runtime.invoke()
        assert np.array_equal(ours, runtime.get_tensor(y))


def _variable(assign_first: bool, value: Array | None = None) -> bytes:
    """x -> a variable -> y, read before or after it is assigned; or a constant is assigned."""
    w = Writer()
    x, y, handle = w.tensor((1, 4), name="x"), w.tensor((1, 4), name="y"), w.tensor((), "resource", None)
    read = w.tensor((1, 4), name="read")
    w.op(Operator.VAR_HANDLE, [], [handle], options("VarHandleOptions", container="", sharedName="v"))
    source = x if value is None else w.constant(value, 0.05)
    steps = [
        (Operator.READ_VARIABLE, [handle], [read], options("ReadVariableOptions")),
        (Operator.ASSIGN_VARIABLE, [handle, source], [], options("AssignVariableOptions")),
    ]
    for step in reversed(steps) if assign_first else steps:
        w.op(*step)
    w.op(Operator.ADD, [x, read], [y], options("AddOptions"), version=2)
    w.graph.inputs, w.graph.outputs = [x], [y]
    return w.data()


@needs_micro
@pytest.mark.parametrize("assign_first", [False, True])
@pytest.mark.parametrize("value", [None, np.array([[1, 2, 3, 4]], np.int8)])
def test_what_is_kept_may_be_an_input_or_a_constant(tmp_path: Path, assign_first: bool, value: Array | None) -> None:
    data = _variable(assign_first, value)
    network = compile_network(saved(tmp_path, data), Config())
    assert len(network.graph.states) == (not assign_first)
    inputs, micro = samples(network, 4), MICRO.Interpreter.from_bytes(data, arena_size=1 << 20)
    for sample, ours in zip(inputs, outputs(network, inputs), strict=True):
        micro.set_input(sample, 0)
        micro.invoke()
        assert np.array_equal(ours, micro.get_output(0))


def test_a_variable_without_a_handle_is_refused() -> None:
    w = Writer()
    x, handle = w.tensor((1, 4), name="x"), w.tensor((), "resource", None)
    w.op(Operator.ASSIGN_VARIABLE, [handle, x], [], options("AssignVariableOptions"))
    w.graph.inputs, w.graph.outputs = [x], [x]
    with pytest.raises(NetworkError, match="variable must come from VAR_HANDLE in the same subgraph, not otherwise"):
        load(NetworkFile("net", w.data()))


def test_a_float_network_with_variables_is_not_quantised() -> None:
    w = Writer()
    x, handle = w.tensor((1, 4), "float32", None, name="x"), w.tensor((), "resource", None)
    w.op(Operator.VAR_HANDLE, [], [handle], options("VarHandleOptions", container="", sharedName="v"))
    w.op(Operator.ASSIGN_VARIABLE, [handle, x], [], options("AssignVariableOptions"))
    w.graph.inputs, w.graph.outputs = [x], [x]
    with pytest.raises(NetworkError, match="00_VAR_HANDLE: a float network must have no variables to be quantised"):
        parse(NetworkFile("net", w.data())).as_onnx()
