"""Single TFLite operators, written here as flatbuffers, against LiteRT's reference kernels."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import flatbuffers
import numpy as np
import pytest
from ai_edge_litert import schema_py_generated as schema
from ai_edge_litert.interpreter import Interpreter, OpResolverType

from dovetail.sw import reference
from dovetail.sw.errors import NetworkError
from dovetail.sw.frontend import load
from dovetail.sw.graph import Graph
from dovetail.sw.layout import Array

Operator = schema.BuiltinOperator
Spec = tuple[tuple[int, ...], float, int] | Array
"""An int8 activation as (shape, scale, zero point), or a constant."""


def tensor(name: str, spec: Spec, buffers: list[Any]) -> Any:
    made = schema.TensorT()
    made.name, made.quantization, made.type = name, schema.QuantizationParametersT(), schema.TensorType.INT8
    if isinstance(spec, tuple):
        made.shape, scale, zero = list(spec[0]), spec[1], spec[2]
        made.quantization.scale, made.quantization.zeroPoint = [scale], [zero]
        made.buffer = 0
        return made
    made.shape = list(spec.shape)
    if spec.dtype == np.int32:
        made.type = schema.TensorType.INT32
    else:
        made.quantization.scale, made.quantization.zeroPoint = [0.01], [0]
    buffer = schema.BufferT()
    buffer.data = np.frombuffer(spec.tobytes(), np.uint8)
    buffers.append(buffer)
    made.buffer = len(buffers) - 1
    return made


def network(code: int, inputs: Sequence[Spec], output: Spec, options: Any = None) -> bytes:
    """A file with one operator; activations among `inputs` are the network's inputs."""
    model, graph, operator, opcode = schema.ModelT(), schema.SubGraphT(), schema.OperatorT(), schema.OperatorCodeT()
    buffers: list[Any] = [schema.BufferT()]
    graph.tensors = [tensor(f"t{i}", spec, buffers) for i, spec in enumerate([*inputs, output])]
    graph.inputs = [i for i, spec in enumerate(inputs) if isinstance(spec, tuple)]
    graph.outputs = [len(inputs)]
    operator.inputs, operator.outputs = list(range(len(inputs))), [len(inputs)]
    operator.builtinOptions = options
    name = type(options).__name__.removesuffix("T")
    operator.builtinOptionsType = getattr(schema.BuiltinOptions, name) if options is not None else 0
    opcode.builtinCode, opcode.deprecatedBuiltinCode, opcode.version = code, min(code, 127), 2
    graph.operators = [operator]
    model.version, model.operatorCodes, model.subgraphs, model.buffers = 3, [opcode], [graph], buffers
    builder = flatbuffers.Builder(1024)
    builder.Finish(model.Pack(builder), b"TFL3")
    return bytes(builder.Output())


def options(kind: Any, **values: Any) -> Any:
    made = kind()
    for name, value in values.items():
        setattr(made, name, value)
    return made


def agree(data: bytes, folder: Path) -> Graph:
    """Load, run on seeded inputs, compare with LiteRT; returns the graph."""
    path = folder / "op.tflite"
    path.write_bytes(data)
    graph = load(path)
    interpreter = Interpreter(model_content=data, experimental_op_resolver_type=OpResolverType.BUILTIN_REF)
    interpreter.allocate_tensors()
    rng = np.random.default_rng(0)
    for _ in range(5):
        values = [rng.integers(-128, 128, port.shape).astype(np.int8) for port in graph.inputs]
        for detail, value in zip(interpreter.get_input_details(), values, strict=True):
            interpreter.set_tensor(detail["index"], value)
        interpreter.invoke()
        expected = interpreter.get_tensor(interpreter.get_output_details()[0]["index"])
        ours = reference.run(graph, values)[graph.outputs[0].name]
        assert np.array_equal(ours, expected)
    return graph


def pool(padding: int, kernel: tuple[int, int], stride: int, activation: int = 0) -> Any:
    return options(
        schema.Pool2DOptionsT,
        padding=padding,
        filterHeight=kernel[0],
        filterWidth=kernel[1],
        strideH=stride,
        strideW=stride,
        fusedActivationFunction=activation,
    )


@pytest.mark.parametrize("activation", [0, 1, 3])
@pytest.mark.parametrize("code", [Operator.MAX_POOL_2D, Operator.AVERAGE_POOL_2D])
def test_pooling(tmp_path: Path, code: int, activation: int) -> None:
    source, output = ((1, 7, 6, 5), 0.05, -20), ((1, 4, 3, 5), 0.05, -20)
    graph = agree(network(code, [source], output, pool(0, (3, 2), 2, activation)), tmp_path)
    assert [node.op for node in graph.nodes] == ["maxpool" if code == Operator.MAX_POOL_2D else "avgpool"]


@pytest.mark.parametrize("keep", [True, False])
def test_mean_over_pixels(tmp_path: Path, keep: bool) -> None:
    shape = (1, 1, 1, 5) if keep else (1, 5)
    axes = np.array([1, 2], np.int32)
    reducer = options(schema.ReducerOptionsT, keepDims=keep)
    data = network(Operator.MEAN, [((1, 7, 6, 5), 0.05, -20), axes], (shape, 0.031, 11), reducer)
    assert [node.op for node in agree(data, tmp_path).nodes] == ["mean"]


def test_requantisation(tmp_path: Path) -> None:
    data = network(Operator.QUANTIZE, [((1, 7, 6, 5), 0.05, -20)], ((1, 7, 6, 5), 0.083, 11))
    assert [node.op for node in agree(data, tmp_path).nodes] == ["depthwise"]


@pytest.mark.parametrize("activation", [0, 1])
def test_addition(tmp_path: Path, activation: int) -> None:
    sources = [((1, 4, 4, 3), 0.05, -20), ((1, 4, 4, 3), 0.021, 9)]
    adder = options(schema.AddOptionsT, fusedActivationFunction=activation)
    graph = agree(network(Operator.ADD, sources, ((1, 4, 4, 3), 0.061, -3), adder), tmp_path)
    assert [node.op for node in graph.nodes] == ["add"]


def test_addition_of_other_shapes_stays_on_the_host(tmp_path: Path) -> None:
    sources = [((1, 4, 4, 3), 0.05, -20), ((1, 1, 1, 3), 0.021, 9)]
    data = network(Operator.ADD, sources, ((1, 4, 4, 3), 0.061, -3), schema.AddOptionsT())
    assert type(agree(data, tmp_path).nodes[0]).__name__ == "Host"


@pytest.mark.parametrize(("multiplier", "channels", "op"), [(1, 4, "depthwise"), (6, 1, "conv"), (2, 3, "host")])
def test_depthwise_multipliers(tmp_path: Path, multiplier: int, channels: int, op: str) -> None:
    rng = np.random.default_rng(1)
    count = multiplier * channels
    weights = rng.integers(-127, 128, (1, 3, 3, count)).astype(np.int8)
    bias = rng.integers(-3000, 3000, count).astype(np.int32)
    window = options(
        schema.DepthwiseConv2DOptionsT,
        padding=0,
        strideH=2,
        strideW=2,
        depthMultiplier=multiplier,
        dilationHFactor=1,
        dilationWFactor=1,
        fusedActivationFunction=1,
    )
    sources: list[Spec] = [((1, 7, 6, channels), 0.05, -20), weights, bias]
    graph = agree(network(Operator.DEPTHWISE_CONV_2D, sources, ((1, 4, 3, count), 0.09, -128), window), tmp_path)
    assert [type(node).__name__.lower() for node in graph.nodes] == [op]


@pytest.mark.parametrize("padding", [0, 1])
def test_dilated_convolution(tmp_path: Path, padding: int) -> None:
    rng = np.random.default_rng(2)
    weights = rng.integers(-127, 128, (4, 3, 3, 2)).astype(np.int8)
    bias = rng.integers(-3000, 3000, 4).astype(np.int32)
    window = options(schema.Conv2DOptionsT, padding=padding, strideH=1, strideW=1, dilationHFactor=2, dilationWFactor=1)
    shape = (1, 8, 7, 4) if padding == 0 else (1, 4, 5, 4)
    sources: list[Spec] = [((1, 8, 7, 2), 0.05, -20), weights, bias]
    agree(network(Operator.CONV_2D, sources, (shape, 0.09, 4), window), tmp_path)


def test_padding_without_a_convolution_stays_on_the_host(tmp_path: Path) -> None:
    sizes = np.array([[0, 0], [1, 2], [0, 3], [0, 0]], np.int32)
    data = network(Operator.PAD, [((1, 4, 4, 3), 0.05, -20), sizes], ((1, 7, 7, 3), 0.05, -20), schema.PadOptionsT())
    assert [node.op for node in agree(data, tmp_path).nodes] == ["pad"]


def test_concatenation_stays_on_the_host(tmp_path: Path) -> None:
    sources = [((1, 4, 4, 3), 0.05, -20), ((1, 4, 4, 2), 0.05, -20)]
    joined = options(schema.ConcatenationOptionsT, axis=3)
    graph = agree(network(Operator.CONCATENATION, sources, ((1, 4, 4, 5), 0.05, -20), joined), tmp_path)
    assert [node.op for node in graph.nodes] == ["concatenation"]


def test_stateful_operators_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "op.tflite"
    path.write_bytes(network(Operator.CALL_ONCE, [((1, 4), 0.05, 0)], ((1, 4), 0.05, 0), schema.CallOnceOptionsT()))
    with pytest.raises(NetworkError, match="00_CALL_ONCE: operator must be a TFLite builtin without state"):
        load(path)
