"""Single TFLite operators, written here as flatbuffers, against LiteRT's reference kernels and TFLite Micro."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from typing import Any

import flatbuffers
import numpy as np
import pytest
from ai_edge_litert import schema_py_generated as schema
from ai_edge_litert.interpreter import Interpreter, OpResolverType

from dovetail.sw.errors import NetworkError
from dovetail.sw.frontend import load
from dovetail.sw.network import reference
from dovetail.sw.network.ir import Constant, Conv, Elementwise, Graph, MatMul, Move, Rescale, Table
from dovetail.sw.network.layout import Array

Operator = schema.BuiltinOperator
Spec = tuple[tuple[int, ...], float, int] | Array | tuple[Array, float, int]
"""An int8 activation as (shape, scale, zero point), or a constant, with or without scale and zero point."""


_FIRST = {Operator.HARD_SWISH, Operator.ELU, Operator.RELU_N1_TO_1, Operator.DEPTH_TO_SPACE}
"""Operators that the runtimes know in their first version only."""


def tensor(name: str, spec: Spec, buffers: list[Any]) -> Any:
    made = schema.TensorT()
    made.name, made.quantization, made.type = name, schema.QuantizationParametersT(), schema.TensorType.INT8
    content, scale, zero = spec if isinstance(spec, tuple) else (spec, 0.01, 0)
    if isinstance(content, tuple):
        made.shape = list(content)
        made.quantization.scale, made.quantization.zeroPoint = [scale], [zero]
        made.buffer = 0
        return made
    made.shape = list(content.shape)
    if content.dtype == np.int32:
        made.type = schema.TensorType.INT32
    else:
        made.quantization.scale, made.quantization.zeroPoint = [scale], [zero]
    buffer = schema.BufferT()
    buffer.data = np.frombuffer(content.tobytes(), np.uint8)
    buffers.append(buffer)
    made.buffer = len(buffers) - 1
    return made


def network(code: int, inputs: Sequence[Spec], output: Spec, options: Any = None) -> bytes:
    """A file with one operator; activations among `inputs` are the network's inputs."""
    model, graph, operator, opcode = schema.ModelT(), schema.SubGraphT(), schema.OperatorT(), schema.OperatorCodeT()
    buffers: list[Any] = [schema.BufferT()]
    graph.tensors = [tensor(f"t{i}", spec, buffers) for i, spec in enumerate([*inputs, output])]
    graph.inputs = [i for i, spec in enumerate(inputs) if isinstance(spec, tuple) and isinstance(spec[0], tuple)]
    graph.outputs = [len(inputs)]
    operator.inputs, operator.outputs = list(range(len(inputs))), [len(inputs)]
    operator.builtinOptions = options
    name = type(options).__name__.removesuffix("T")
    operator.builtinOptionsType = getattr(schema.BuiltinOptions, name) if options is not None else 0
    opcode.builtinCode, opcode.deprecatedBuiltinCode, opcode.version = code, min(code, 127), 1 if code in _FIRST else 2
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


MICRO: Any = None
"""TFLite Micro; where it is not installed LiteRT alone is the reference."""
with suppress(ImportError):
    MICRO = import_module("tflite_micro").runtime


def micro_output(data: bytes, values: Sequence[Array]) -> Array:
    """What TFLite Micro makes of them."""
    micro = MICRO.Interpreter.from_bytes(data)
    for index, value in enumerate(values):
        micro.set_input(value, index)
    micro.invoke()
    return np.asarray(micro.get_output(0))


def agree(data: bytes, folder: Path, micro: bool = True) -> Graph:
    """Load, run on seeded inputs, compare with LiteRT, and with TFLite Micro if that is here and has the operator;
    returns the graph."""
    path = folder / "op.tflite"
    path.write_bytes(data)
    graph = load(path)
    only = [node.op for node in graph.nodes] == ["elu"]  # has no reference kernel
    kernels = OpResolverType.BUILTIN_WITHOUT_DEFAULT_DELEGATES if only else OpResolverType.BUILTIN_REF
    interpreter = Interpreter(model_content=data, experimental_op_resolver_type=kernels)
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
        if micro and MICRO is not None:
            assert np.array_equal(ours, micro_output(data, values))
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
    assert [node.op for node in agree(data, tmp_path).nodes] == ["quantize"]
    assert isinstance(agree(data, tmp_path).nodes[0], Rescale)


ARITHMETIC = {"add": schema.AddOptionsT, "sub": schema.SubOptionsT, "mul": schema.MulOptionsT}
SHAPES = [((1, 5, 4, 3), (1, 5, 4, 3)), ((1, 5, 4, 3), (1, 1, 1, 3)), ((1, 1, 4, 3), (1, 5, 1, 3)), ((1, 5, 3), (3,))]


@pytest.mark.parametrize("activation", [0, 1])
@pytest.mark.parametrize("shapes", SHAPES)
@pytest.mark.parametrize("op", ARITHMETIC)
def test_arithmetic(tmp_path: Path, op: str, shapes: tuple[tuple[int, ...], ...], activation: int) -> None:
    sources = [(shapes[0], 0.05, -20), (shapes[1], 0.021, 9)]
    out = tuple(int(n) for n in np.broadcast_shapes(*shapes)), 0.061, -3
    form = options(ARITHMETIC[op], fusedActivationFunction=activation)
    graph = agree(network(getattr(Operator, op.upper()), sources, out, form), tmp_path)
    assert [node.op for node in graph.nodes] == [op]


@pytest.mark.parametrize("size", [1, 3])
@pytest.mark.parametrize("op", ARITHMETIC)
def test_arithmetic_with_a_constant(tmp_path: Path, op: str, size: int) -> None:
    """One element makes it a function of the other operand: a table."""
    constant = np.random.default_rng(4).integers(-128, 128, (size,)).astype(np.int8)
    sources: list[Spec] = [((1, 5, 4, 3), 0.05, -20), constant]
    data = network(getattr(Operator, op.upper()), sources, ((1, 5, 4, 3), 0.061, -3), ARITHMETIC[op]())
    nodes = agree(data, tmp_path).nodes
    assert [type(node) for node in nodes] == ([Table] if size == 1 else [Constant, Elementwise])


@pytest.mark.parametrize("shapes", [((1, 4, 5, 3), (1, 4, 5, 1)), ((1, 1, 5, 1), (1, 4, 1, 3)), ((1, 5, 3), (1, 5, 1))])
@pytest.mark.parametrize("op", ARITHMETIC)
def test_arithmetic_with_one_channel(tmp_path: Path, op: str, shapes: tuple[tuple[int, ...], ...]) -> None:
    sources = [(shapes[0], 0.05, -20), (shapes[1], 0.021, 9)]
    out = tuple(int(n) for n in np.broadcast_shapes(*shapes)), 0.061, -3
    data = network(getattr(Operator, op.upper()), sources, out, ARITHMETIC[op]())
    assert [node.op for node in agree(data, tmp_path).nodes] == ["repeat", op]


@pytest.mark.parametrize("op", ["MINIMUM", "MAXIMUM"])
def test_minimum_and_maximum(tmp_path: Path, op: str) -> None:
    sources = [((1, 5, 4, 3), 0.05, -20), ((1, 5, 4, 3), 0.05, -20)]
    data = network(getattr(Operator, op), sources, ((1, 5, 4, 3), 0.05, -20), schema.MaximumMinimumOptionsT())
    assert [node.op for node in agree(data, tmp_path).nodes] == [op[:3].lower()]


@pytest.mark.parametrize("scales", [(0.05, 0.05), (0.05, 0.083), (0.07, 0.0311)])
@pytest.mark.parametrize(
    ("op", "form", "kind"),
    [
        ("RELU", None, Rescale),
        ("RELU6", None, Rescale),
        ("RELU_N1_TO_1", None, Rescale),
        ("ABS", schema.AbsOptionsT(), Rescale),
        ("LEAKY_RELU", options(schema.LeakyReluOptionsT, alpha=0.1), Rescale),
        ("LEAKY_RELU", options(schema.LeakyReluOptionsT, alpha=-0.3), Table),
        ("ELU", None, Table),
        ("GELU", schema.GeluOptionsT(), Table),
        ("HARD_SWISH", schema.HardSwishOptionsT(), Table),
    ],
)
def test_functions(tmp_path: Path, op: str, form: Any, kind: type, scales: tuple[float, float]) -> None:
    every = ((1, 2, 32, 8), scales[0], -20), ((1, 2, 32, 8), scales[1], -20 if scales[0] == scales[1] else 11)
    # TFLite Micro has no RELU_N1_TO_1 and no GELU, and does not rescale in RELU6.
    micro = op not in ("RELU_N1_TO_1", "GELU") and (op != "RELU6" or scales[0] == scales[1])
    graph = agree(network(getattr(Operator, op), [every[0]], every[1], form), tmp_path, micro)
    assert [type(node) for node in graph.nodes] == [kind]


@pytest.mark.parametrize("scale", [0.003, 0.0471, 0.21])
@pytest.mark.parametrize(("op", "output"), [("LOGISTIC", (1 / 256, -128)), ("TANH", (1 / 128, 0))])
def test_functions_of_fixed_output_scale(tmp_path: Path, op: str, output: tuple[float, int], scale: float) -> None:
    data = network(getattr(Operator, op), [((1, 2, 32, 8), scale, 7)], ((1, 2, 32, 8), *output))
    assert [type(node) for node in agree(data, tmp_path).nodes] == [Table]


@pytest.mark.parametrize("scales", [(0.05, 0.05), (0.0471, 0.03), (0.21, 0.15)])
@pytest.mark.parametrize(
    ("op", "form"),
    [
        ("LOGISTIC", None),
        ("TANH", None),
        ("HARD_SWISH", schema.HardSwishOptionsT()),
        ("ELU", None),
        ("RELU", None),
        ("LEAKY_RELU", options(schema.LeakyReluOptionsT, alpha=0.1)),
        ("ABS", schema.AbsOptionsT()),
    ],
)
def test_functions_equal_tflite_micro(tmp_path: Path, op: str, form: Any, scales: tuple[float, float]) -> None:
    """All 256 values."""
    pytest.importorskip("tflite_micro")
    fixed = {"LOGISTIC": (1 / 256, -128), "TANH": (1 / 128, 0)}
    out = fixed.get(op, (scales[1], 11))
    data = network(getattr(Operator, op), [((1, 1, 16, 16), scales[0], -20)], ((1, 1, 16, 16), *out), form)
    path = tmp_path / "op.tflite"
    path.write_bytes(data)
    levels = np.arange(-128, 128).astype(np.int8).reshape(1, 1, 16, 16)
    (ours,) = reference.run(load(path), levels).values()
    np.testing.assert_array_equal(ours, micro_output(data, [levels]))


@pytest.mark.parametrize(
    ("multiplier", "channels", "op"), [(1, 4, "depthwise"), (6, 1, "conv"), (2, 3, "depthwise"), (11, 2, "depthwise")]
)
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


@pytest.mark.parametrize("groups", [2, 6])
def test_grouped_convolution(tmp_path: Path, groups: int) -> None:
    rng = np.random.default_rng(2)
    weights = rng.integers(-127, 128, (12, 3, 3, 6 // groups)).astype(np.int8)
    bias = rng.integers(-3000, 3000, 12).astype(np.int32)
    window = options(schema.Conv2DOptionsT, padding=0, strideH=1, strideW=1, dilationHFactor=1, dilationWFactor=1)
    sources: list[Spec] = [((1, 8, 7, 6), 0.05, -20), weights, bias]
    (node,) = agree(network(Operator.CONV_2D, sources, ((1, 8, 7, 12), 0.09, 4), window), tmp_path).nodes
    assert isinstance(node, Conv) and node.groups == groups


@pytest.mark.parametrize("value", [None, 99])
@pytest.mark.parametrize(
    ("sizes", "ops"),
    [
        ([[0, 0], [1, 2], [0, 3], [0, 0]], ["pad"]),
        ([[0, 0], [0, 0], [0, 0], [2, 1]], ["reshape", "pad", "reshape"]),
        ([[0, 0], [1, 0], [0, 0], [0, 5]], ["reshape", "pad", "reshape", "pad", "reshape"]),
    ],
)
def test_padding(tmp_path: Path, sizes: list[list[int]], ops: list[str], value: int | None) -> None:
    table = np.array(sizes, np.int32)
    shape = tuple(int(n) for n in np.array([1, 4, 5, 3]) + table.sum(axis=1))
    sources: list[Spec] = [((1, 4, 5, 3), 0.05, -20), table]
    if value is None:
        data = network(Operator.PAD, sources, (shape, 0.05, -20), schema.PadOptionsT())
    else:
        sources.append((np.array([value], np.int8), 0.05, -20))
        data = network(Operator.PADV2, sources, (shape, 0.05, -20), schema.PadV2OptionsT())
    assert [node.op for node in agree(data, tmp_path).nodes] == ops


@pytest.mark.parametrize("axis", [1, 2, 3, -1])
def test_concatenation(tmp_path: Path, axis: int) -> None:
    shapes = [[1, 4, 5, 3], [1, 4, 5, 3]]
    shapes[1][axis] += 2
    total = [*shapes[0]]
    total[axis] += shapes[1][axis]
    sources = [(tuple(shape), 0.05, -20) for shape in shapes]
    joined = options(schema.ConcatenationOptionsT, axis=axis)
    graph = agree(network(Operator.CONCATENATION, sources, (tuple(total), 0.05, -20), joined), tmp_path)
    assert [type(node) for node in graph.nodes] == [Move]


def moved(code: int, parameters: Sequence[Spec], shape: tuple[int, ...], form: Any, folder: Path) -> None:
    """An operator on (1, 6, 8, 12) that moves bytes only."""
    out = shape, 0.05, -20
    graph = agree(network(code, [((1, 6, 8, 12), 0.05, -20), *parameters], out, form), folder)
    assert [type(node) for node in graph.nodes] == [Move]


def test_slices(tmp_path: Path) -> None:
    begin, size = np.array([0, 2, 0, 5], np.int32), np.array([1, 3, -1, 4], np.int32)
    moved(Operator.SLICE, [begin, size], (1, 3, 8, 4), schema.SliceOptionsT(), tmp_path)
    bounds = [np.array(v, np.int32) for v in ([0, 1, -5, 2], [1, 6, 8, 9], [1, 2, 1, 3])]
    masks = options(schema.StridedSliceOptionsT, beginMask=1, endMask=12, shrinkAxisMask=0)
    moved(Operator.STRIDED_SLICE, bounds, (1, 3, 5, 4), masks, tmp_path)
    masks = options(schema.StridedSliceOptionsT, shrinkAxisMask=2)
    moved(Operator.STRIDED_SLICE, bounds, (1, 5, 3), masks, tmp_path)


@pytest.mark.parametrize("perm", [(0, 3, 1, 2), (0, 2, 1, 3), (0, 2, 3, 1)])
def test_transposition(tmp_path: Path, perm: tuple[int, ...]) -> None:
    shape = tuple((1, 6, 8, 12)[p] for p in perm)
    moved(Operator.TRANSPOSE, [np.array(perm, np.int32)], shape, schema.TransposeOptionsT(), tmp_path)


def test_blocks(tmp_path: Path) -> None:
    form = options(schema.SpaceToDepthOptionsT, blockSize=2)
    moved(Operator.SPACE_TO_DEPTH, [], (1, 3, 4, 48), form, tmp_path)
    form = options(schema.DepthToSpaceOptionsT, blockSize=2)
    moved(Operator.DEPTH_TO_SPACE, [], (1, 12, 16, 3), form, tmp_path)


@pytest.mark.parametrize("half", [False, True])
@pytest.mark.parametrize("factors", [(2, 2), (3, 1), (1, 4)])
def test_larger_images(tmp_path: Path, factors: tuple[int, int], half: bool) -> None:
    size = np.array([5 * factors[0], 3 * factors[1]], np.int32)
    form = options(schema.ResizeNearestNeighborOptionsT, halfPixelCenters=half)
    sources: list[Spec] = [((1, 5, 3, 7), 0.05, -20), size]
    data = network(Operator.RESIZE_NEAREST_NEIGHBOR, sources, ((1, *map(int, size), 7), 0.05, -20), form)
    assert [node.op for node in agree(data, tmp_path).nodes] == ["resize"]


@pytest.mark.parametrize("corners, size", [(False, (7, 6)), (True, (10, 6))])
def test_other_sizes_stay_on_the_host(tmp_path: Path, corners: bool, size: tuple[int, int]) -> None:
    form = options(schema.ResizeNearestNeighborOptionsT, alignCorners=corners)
    sources: list[Spec] = [((1, 5, 3, 7), 0.05, -20), np.array(size, np.int32)]
    data = network(Operator.RESIZE_NEAREST_NEIGHBOR, sources, ((1, *size, 7), 0.05, -20), form)
    assert [node.op for node in agree(data, tmp_path).nodes] == ["resize_nearest_neighbor"]


@pytest.mark.parametrize("adjoint", [(False, False), (False, True), (True, False), (True, True)])
def test_products_of_activations(tmp_path: Path, adjoint: tuple[bool, bool]) -> None:
    shapes = [(1, 2, 5, 7), (1, 2, 7, 9)]
    turned = [(*s[:2], s[3], s[2]) if adj else s for s, adj in zip(shapes, adjoint, strict=True)]
    sources = [(turned[0], 0.05, -20), (turned[1], 0.021, 9)]
    form = options(schema.BatchMatMulOptionsT, adjX=adjoint[0], adjY=adjoint[1])
    graph = agree(network(Operator.BATCH_MATMUL, sources, ((1, 2, 5, 9), 0.09, -3), form), tmp_path)
    assert [type(node) for node in graph.nodes] == [Move] * adjoint[0] + [MatMul]


@pytest.mark.parametrize("activation", [0, 1])
def test_dense_layer_with_computed_weights(tmp_path: Path, activation: int) -> None:
    sources = [((1, 2, 3, 8), 0.05, -20), ((5, 8), 0.021, 9)]
    form = options(schema.FullyConnectedOptionsT, fusedActivationFunction=activation, keepNumDims=True)
    graph = agree(network(Operator.FULLY_CONNECTED, sources, ((1, 2, 3, 5), 0.09, -3), form), tmp_path)
    assert [node.op for node in graph.nodes] == ["reshape", "matmul", "reshape"]


def test_a_network_that_initialises_itself_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "op.tflite"
    path.write_bytes(network(Operator.CALL_ONCE, [((1, 4), 0.05, 0)], ((1, 4), 0.05, 0), schema.CallOnceOptionsT()))
    with pytest.raises(NetworkError, match="00_CALL_ONCE of subgraph 0: initialisation must be of constants"):
        load(path)
