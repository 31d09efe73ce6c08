"""Networks in forms that others' exporters make: placeholder shapes, sequences, old operator sets, invalid ones."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from ai_edge_litert.interpreter import Interpreter
from onnx import TensorProto, helper, numpy_helper

from dovetail.isa.config.resolved import Config
from dovetail.sw.errors import NetworkError
from dovetail.sw.frontend import load, parse, read
from dovetail.sw.frontend.parsed_file import NetworkFile
from dovetail.sw.host.onnx_session import open_session
from dovetail.sw.quantise.calibration import Calibration
from dovetail.sw.quantise.float_network import FloatGraph, read_float
from dovetail.sw.quantise.quantiser import apply
from dovetail.sw.quantise.samples import RandomSamples
from dovetail.sw.quantise.scheme import Scheme
from dovetail.sw.runtime.compiled_network import compile_network
from dovetail.sw.runtime.reference_runtimes import run as run_reference
from tests.sw.frontend.tflite_writer import Operator, Writer, options


def floats(*shape: int) -> Any:
    return np.random.default_rng(sum(shape)).standard_normal(shape).astype(np.float32)


def write(path: Path, nodes: list[Any], x: tuple[int, list[int]], constants: dict[str, Any], opset: int = 13) -> Path:
    inputs = [helper.make_tensor_value_info("x", *x)]
    if opset < 9:  # initialisers had to be inputs then
        inputs += [
            helper.make_tensor_value_info(name, TensorProto.FLOAT, value.shape) for name, value in constants.items()
        ]
    graph = helper.make_graph(
        nodes,
        "net",
        inputs,
        [helper.make_tensor_value_info("y", x[0], None)],
        [numpy_helper.from_array(value, name) for name, value in constants.items()],
    )
    onnx.save(
        helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=3 if opset < 9 else 8), path
    )
    return path


# Placeholders ----------------------------------------------------------------------------------


def placeholder(inner: bool, signature: bool) -> bytes:
    """Two dense layers in float; shapes of ones where ``inner`` (else the output's alone), open in the signature."""
    w = Writer()
    x = w.tensor((3, 8), "float32", None, name="x")
    form: dict[str, Any] = {"signature": (-1, -1)} if signature else {}
    middle = w.tensor((1, 1) if inner else (3, 6), "float32", None, **(form if inner else {}))
    y = w.tensor((1, 1), "float32", None, name="y", **form)
    for source, result, shape in ((x, middle, (6, 8)), (middle, y, (4, 6))):
        weights = w.constant(floats(*shape))
        w.op(Operator.FULLY_CONNECTED, [source, weights, -1], [result], options("FullyConnectedOptions"))
    w.graph.inputs, w.graph.outputs = [x], [y]
    return w.data()


@pytest.mark.parametrize(("inner", "signature"), [(False, False), (False, True), (True, True)])
def test_a_placeholder_is_not_a_shape(inner: bool, signature: bool) -> None:
    data = placeholder(inner, signature)
    model = parse(NetworkFile("net", data)).as_onnx()
    assert [dim.dim_value for dim in model.graph.output[0].type.tensor_type.shape.dim] == [3, 4]
    (ours,) = open_session(model.SerializeToString()).run(None, {"x": floats(3, 8)})
    runtime = Interpreter(model_content=data)
    runtime.allocate_tensors()
    runtime.set_tensor(0, floats(3, 8))
    runtime.invoke()
    assert np.allclose(ours, runtime.get_tensor(runtime.get_output_details()[0]["index"]), atol=1e-5)


def test_a_placeholder_in_an_int8_network_too() -> None:
    w = Writer()
    x = w.tensor((1, 8), name="x")
    y = w.tensor((1, 1), name="y", signature=(-1, -1))
    weights = w.constant(np.ones((4, 8), np.int8), 0.01)
    bias = w.constant(np.zeros(4, np.int32), 0.0005)
    w.op(Operator.FULLY_CONNECTED, [x, weights, bias], [y], options("FullyConnectedOptions"), version=4)
    w.graph.inputs, w.graph.outputs = [x], [y]
    assert load(NetworkFile("net", w.data())).outputs[0].shape == (1, 4)


# The first axis --------------------------------------------------------------------------------


@pytest.mark.parametrize("shape", [[98, 40], [5, 98, 40]])
def test_the_first_axis_of_a_sequence_is_no_batch(tmp_path: Path, shape: list[int]) -> None:
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["a"]),
        helper.make_node("Relu", ["a"], ["b"]),
        helper.make_node("MatMul", ["b", "v"], ["y"]),
    ]
    path = write(tmp_path / "net.onnx", nodes, (TensorProto.FLOAT, shape), {"w": floats(40, 16), "v": floats(16, 12)})
    graph = FloatGraph(read_float(path))
    quantised = apply(Calibration(graph, RandomSamples(graph.inputs, 2)), Scheme.parse("")).model
    onnx.save(quantised, tmp_path / "q.onnx")
    network = compile_network(tmp_path / "q.onnx", Config(), keep_tensors=True)
    sample = {"x": floats(*shape)}
    result = network.run(sample)
    assert result.outputs["y"].shape == (*shape[:-1], 12)
    reference = run_reference(network.graph, parse(read(tmp_path / "q.onnx")), sample)
    for port in network.graph.outputs:
        assert np.array_equal(result.tensors[port.tensor].ravel(), reference.tensors[port.tensor].ravel())


def test_a_sample_of_a_sequence_has_its_first_axis() -> None:
    w = Writer()
    x, y = w.tensor((3, 8), name="x"), w.tensor((3, 8), name="y")
    w.op(Operator.ADD, [x, x], [y], options("AddOptions"), version=2)
    w.graph.inputs, w.graph.outputs = [x], [y]
    graph = load(NetworkFile("net", w.data()))
    with pytest.raises(NetworkError, match=r"input 'x' must have shape \(3, 8\), not \(8,\)"):
        graph.bind(np.zeros(8, np.int8))


def test_a_batch_of_images_is_refused(tmp_path: Path) -> None:
    nodes = [helper.make_node("Conv", ["x", "w"], ["y"])]
    path = write(tmp_path / "net.onnx", nodes, (TensorProto.FLOAT, [8, 3, 6, 6]), {"w": floats(4, 3, 3, 3)})
    graph = FloatGraph(read_float(path))
    quantised = apply(Calibration(graph, RandomSamples(graph.inputs, 2)), Scheme.parse("")).model
    with pytest.raises(NetworkError, match="input 'x': batch must be 1, not 8; export with batch 1"):
        load(NetworkFile("net", quantised.SerializeToString()))


# Old operator sets -----------------------------------------------------------------------------


@pytest.mark.parametrize("opset", [6, 7, 8])
def test_old_operator_sets_compute_the_same(tmp_path: Path, opset: int) -> None:
    """In operator set 6 dropout and normalisation say that this is no training, and Gemm that it broadcasts."""

    def nodes(opset: int) -> list[Any]:
        tested: dict[str, int] = {"is_test": 1} if opset < 7 else {}
        return [
            helper.make_node("Conv", ["x", "w", "b"], ["a"], pads=[1] * 4),
            helper.make_node("BatchNormalization", ["a", "g", "o", "m", "s"], ["n"], **tested),
            helper.make_node("Relu", ["n"], ["r"]),
            helper.make_node("MaxPool", ["r"], ["p"], kernel_shape=[2, 2], strides=[2, 2]),
            helper.make_node("Dropout", ["p"], ["d"], **tested),
            helper.make_node("Flatten", ["d"], ["f"]),
            helper.make_node("Gemm", ["f", "q", "c"], ["y"], transB=1, **({"broadcast": 1} if opset < 7 else {})),
        ]

    constants = {"w": floats(4, 3, 3, 3), "b": floats(4), "g": np.abs(floats(4)), "o": floats(4), "m": floats(4)}
    constants |= {"s": np.abs(floats(4)) + 1, "q": floats(5, 36), "c": floats(5)}
    x = TensorProto.FLOAT, [1, 3, 6, 6]
    model = read_float(write(tmp_path / "old.onnx", nodes(opset), x, constants, opset))
    new = write(tmp_path / "new.onnx", nodes(13), x, constants).read_bytes()
    found, wanted = (
        open_session(data).run(None, {"x": floats(1, 3, 6, 6)})[0] for data in (model.SerializeToString(), new)
    )
    assert np.allclose(found, wanted, atol=1e-4)


def test_older_operator_sets_are_refused(tmp_path: Path) -> None:
    path = write(tmp_path / "net.onnx", [helper.make_node("Relu", ["x"], ["y"])], (TensorProto.FLOAT, [1, 4]), {}, 5)
    with pytest.raises(NetworkError, match="operator set must be 6 or newer, not 5; export again with a newer one"):
        read_float(path)


# Invalid networks ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("op", "dtype", "weights", "reason"),
    [
        ("Gemm", TensorProto.INT8, np.ones((8, 4), np.int8), "A typestr: T, has unsupported type: tensor\\(int8\\)"),
        ("MatMul", TensorProto.FLOAT, np.ones((8, 4), np.int32), "B has inconsistent type tensor\\(int32\\)"),
        ("MatMul", TensorProto.FLOAT, np.ones((9, 4), np.float32), "Incompatible dimensions for matrix multiplication"),
    ],
)
def test_an_invalid_network_is_called_that(tmp_path: Path, op: str, dtype: int, weights: Any, reason: str) -> None:
    nodes = [helper.make_node(op, ["x", "w"], ["y"])]
    path = write(tmp_path / "net.onnx", nodes, (dtype, [1, 8]), {"w": weights})
    for opened in (read_float, load):
        with pytest.raises(NetworkError, match=f"(breaks its rules|shapes must fit, not): .*{reason}"):
            opened(path)


def test_what_onnx_runtime_takes_is_not_called_invalid(tmp_path: Path) -> None:
    """LayerNormalization before the standard had it."""
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["a"]),
        helper.make_node("LayerNormalization", ["a", "g", "b"], ["y"], axis=-1),
    ]
    constants = {"w": floats(8, 4), "g": floats(4), "b": floats(4)}
    path = write(tmp_path / "net.onnx", nodes, (TensorProto.FLOAT, [1, 3, 8]), constants, 12)
    assert "LayerNormalization" in [node.op_type for node in read_float(path).graph.node]
