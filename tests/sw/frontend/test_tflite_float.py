"""Float TFLite networks as ONNX: what ONNX Runtime makes of them is what LiteRT makes of the file."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import flatbuffers
import numpy as np
import pytest
from ai_edge_litert import schema_py_generated as schema
from ai_edge_litert.interpreter import Interpreter, OpResolverType

from dovetail.sw.errors import NetworkError
from dovetail.sw.frontend import parse
from dovetail.sw.frontend.parsed_file import NetworkFile
from dovetail.sw.host.onnx_session import open_session
from dovetail.sw.network.layout import Array

Operator = schema.BuiltinOperator
MODELS = Path(__file__).parents[4] / "shared" / "models"
needs_models = pytest.mark.skipif(not MODELS.is_dir(), reason="the trained networks are not beside the project")
TYPES = {"float32": 0, "float16": 1, "int32": 2, "uint8": 3, "int64": 4, "bool": 6, "int8": 9}
TOLERANCE = 1e-5
"""Of the largest output: float32 sums in another order."""


class Net:
    """Builds a TFLite file operator by operator; tensors are numbers."""

    def __init__(self, seed: int = 0) -> None:
        self.random = np.random.default_rng(seed)
        self.buffers: list[Any] = [schema.BufferT()]
        self.graph = schema.SubGraphT()
        self.graph.tensors, self.graph.operators, self.graph.inputs, self.graph.outputs = [], [], [], []
        self.codes: list[Any] = []

    def tensor(self, shape: Sequence[int], dtype: str = "float32", buffer: int = 0) -> int:
        made = schema.TensorT()
        made.name, made.shape, made.type, made.buffer = f"t{len(self.graph.tensors)}", list(shape), TYPES[dtype], buffer
        self.graph.tensors.append(made)
        return len(self.graph.tensors) - 1

    def input(self, *shape: int) -> int:
        self.graph.inputs.append(self.tensor(shape))
        return int(self.graph.inputs[-1])

    def constant(self, value: Array, scales: Sequence[float] = (), zeros: Sequence[int] = (), axis: int = 0) -> int:
        buffer = schema.BufferT()
        buffer.data = np.frombuffer(np.ascontiguousarray(value).tobytes(), np.uint8)
        self.buffers.append(buffer)
        index = self.tensor(value.shape, str(value.dtype), len(self.buffers) - 1)
        if scales:
            quant = self.graph.tensors[index].quantization = schema.QuantizationParametersT()
            quant.scale, quant.zeroPoint, quant.quantizedDimension = list(scales), list(zeros), axis
        return index

    def ints(self, *values: Any) -> int:
        return self.constant(np.array(values, np.int32))

    def weights(self, *shape: int) -> int:
        return self.constant(self.random.normal(size=shape).astype(np.float32))

    def op(self, kind: str, inputs: Sequence[int], *shapes: Sequence[int], options: Any = None, **more: Any) -> Any:
        """Append an operator; its result, or results."""
        code, operator = schema.OperatorCodeT(), schema.OperatorT()
        code.builtinCode = getattr(Operator, kind)
        code.deprecatedBuiltinCode, code.version = min(code.builtinCode, 127), more.pop("version", 1)
        self.codes.append(code)
        operator.opcodeIndex, operator.inputs = len(self.codes) - 1, list(inputs)
        operator.outputs = [self.tensor(shape, more.get("dtype", "float32")) for shape in shapes]
        if options is not None:
            operator.builtinOptions = options
            name = type(options).__name__.removesuffix("T")
            operator.builtinOptionsType = getattr(schema.BuiltinOptions, name)
        self.graph.operators.append(operator)
        return operator.outputs[0] if len(shapes) == 1 else operator.outputs

    def pointwise(self, x: int, channels: int) -> int:
        """A 1x1 convolution."""
        *outer, depth = self.graph.tensors[x].shape
        operands = [x, self.weights(channels, 1, 1, depth), self.weights(channels)]
        return int(self.op("CONV_2D", operands, (*outer, channels), options=window("Conv2D")))

    def file(self, *outputs: int) -> bytes:
        self.graph.outputs = list(outputs)
        model = schema.ModelT()
        model.version, model.operatorCodes, model.subgraphs, model.buffers = 3, self.codes, [self.graph], self.buffers
        builder = flatbuffers.Builder(1024)
        builder.Finish(model.Pack(builder), b"TFL3")
        return bytes(builder.Output())


def options(kind: str, **values: Any) -> Any:
    made = getattr(schema, f"{kind}OptionsT")()
    for name, value in values.items():
        assert hasattr(made, name), name
        setattr(made, name, value)
    return made


def window(kind: str, stride: int = 1, padding: int = 0, **more: Any) -> Any:
    """Padding 0 is SAME, 1 VALID."""
    if kind in ("Conv2D", "DepthwiseConv2D"):
        more = {"dilationHFactor": 1, "dilationWFactor": 1, **more}
    return options(kind, strideH=stride, strideW=stride, padding=padding, **more)


def run_litert(data: bytes, values: Sequence[Array]) -> list[Array]:
    resolver = OpResolverType.BUILTIN_WITHOUT_DEFAULT_DELEGATES
    interpreter = Interpreter(model_content=data, experimental_op_resolver_type=resolver)
    interpreter.allocate_tensors()
    for detail, value in zip(interpreter.get_input_details(), values, strict=True):
        interpreter.set_tensor(detail["index"], value)
    interpreter.invoke()
    return [interpreter.get_tensor(detail["index"]) for detail in interpreter.get_output_details()]


def agree(data: bytes, expected: Sequence[Array] | None = None, values: Sequence[Array] | None = None) -> list[str]:
    """Convert, compare on random inputs with LiteRT; returns the ONNX operators in order."""
    model = parse(NetworkFile("net", data)).as_onnx()
    session = open_session(model.SerializeToString())
    rng = np.random.default_rng(0)
    if values is None:
        values = [rng.normal(size=wire.shape).astype(np.float32) for wire in session.get_inputs()]
    ours = session.run(None, {wire.name: value for wire, value in zip(session.get_inputs(), values, strict=True)})
    for result, wanted in zip(ours, expected or run_litert(data, values), strict=True):
        assert result.shape == wanted.shape and result.dtype == wanted.dtype
        np.testing.assert_allclose(result, wanted, rtol=0, atol=TOLERANCE * max(1, np.abs(wanted).max()))
    return [node.op_type for node in model.graph.node]


# Whole networks ----------------------------------------------------------------------------------


@needs_models
@pytest.mark.parametrize(
    "stem", ["ad_autoencoder/ad_float", "ic_resnet8/resnet8_float", "vww_mobilenet_v1_025/vww_float"]
)
def test_trained_networks(stem: str) -> None:
    ops = agree((MODELS / "mlperf_tiny" / f"{stem}.tflite").read_bytes())
    assert ops.count("Transpose") <= 2  # at the borders only


@needs_models
def test_a_network_with_8_bit_weights() -> None:
    """LiteRT quantises the activations of such a file; the README's float form of it is the reference."""
    folder = MODELS / "mlperf_tiny" / "kws_dscnn"
    session = open_session((folder / "kws_float.onnx").read_bytes())
    (wire,) = session.get_inputs()
    x = np.random.default_rng(0).normal(size=(1, *wire.shape[1:])).astype(np.float32) * 10
    agree((folder / "kws_hybrid.tflite").read_bytes(), session.run(None, {wire.name: x}), [x])


# Operators ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("activation", [0, 1, 2, 3])
@pytest.mark.parametrize(("padding", "stride", "shape"), [(0, 2, (4, 3)), (0, 1, (7, 6)), (1, 2, (3, 2))])
def test_convolutions(padding: int, stride: int, shape: tuple[int, int], activation: int) -> None:
    """An odd and an even size: SAME puts the smaller half before."""
    net = Net()
    x = net.input(1, 7, 6, 4)
    form = window("Conv2D", stride, padding, fusedActivationFunction=activation)
    y = net.op("CONV_2D", [x, net.weights(6, 3, 3, 4), net.weights(6)], (1, *shape, 6), options=form)
    form = window("DepthwiseConv2D", depthMultiplier=2, fusedActivationFunction=activation)
    z = net.op("DEPTHWISE_CONV_2D", [y, net.weights(1, 3, 2, 12), net.weights(12)], (1, *shape, 12), options=form)
    assert agree(net.file(z)).count("Transpose") == 2


def test_dilated_grouped_convolution() -> None:
    net = Net()
    form = window("Conv2D", dilationHFactor=2, dilationWFactor=3)
    y = net.op(
        "CONV_2D",
        [net.input(1, 9, 8, 4), net.weights(6, 3, 3, 2), net.weights(6)],
        (1, 9, 8, 6),
        options=form,
        version=2,
    )
    assert agree(net.file(y)) == ["Transpose", "Conv", "Transpose"]


@pytest.mark.parametrize(("padding", "size"), [(0, 10), (0, 9), (1, 11)])
def test_transposed_convolution(padding: int, size: int) -> None:
    net = Net()
    operands = [net.ints(1, size, size, 3), net.weights(3, 3, 3, 4), net.input(1, 5, 5, 4)]
    y = net.op("TRANSPOSE_CONV", operands, (1, size, size, 3), options=window("TransposeConv", 2, padding))
    agree(net.file(y))


def test_the_custom_transposed_convolution_of_mediapipe() -> None:
    net = Net()
    source, weights, bias = net.input(1, 5, 4, 4), net.weights(3, 3, 2, 4), net.weights(3)
    form = window("TransposeConv", 2)
    standard = net.op("TRANSPOSE_CONV", [net.ints(1, 10, 8, 3), weights, source, bias], (1, 10, 8, 3), options=form)
    custom = net.op("CUSTOM", [source, weights, bias], (1, 10, 8, 3))
    net.codes[-1].customCode = "Convolution2DTransposeBias"
    net.graph.operators[-1].customOptions = list(np.array([1, 2, 2], np.int32).tobytes())
    session = open_session(parse(NetworkFile("net", net.file(standard, custom))).as_onnx().SerializeToString())
    x = net.random.normal(size=(1, 5, 4, 4)).astype(np.float32)
    first, second = session.run(None, {session.get_inputs()[0].name: x})
    np.testing.assert_array_equal(first, second)


@pytest.mark.parametrize("kind", ["MAX_POOL_2D", "AVERAGE_POOL_2D"])
def test_pooling_of_a_border(kind: str) -> None:
    net = Net()
    form = window("Pool2D", 2, filterHeight=3, filterWidth=2, fusedActivationFunction=1)
    y = net.op(kind, [net.input(1, 7, 6, 3)], (1, 4, 3, 3), options=form)
    agree(net.file(y))


@pytest.mark.parametrize("keep", [False, True])
def test_dense_layers(keep: bool) -> None:
    net = Net()
    x = net.input(1, 2, 3, 4)
    form = options("FullyConnected", keepNumDims=keep, fusedActivationFunction=1)
    shape = (1, 2, 3, 5) if keep else (6, 5)
    y = net.op("FULLY_CONNECTED", [x, net.weights(5, 4), net.weights(5)], shape, options=form)
    z = net.op("FULLY_CONNECTED", [y, net.weights(7, 30), -1], (1, 7), options=options("FullyConnected"))
    agree(net.file(z))


@pytest.mark.parametrize("adjoint", [(False, True), (True, False)])
def test_products(adjoint: tuple[bool, bool]) -> None:
    net = Net()
    shapes = (2, 4, 3) if adjoint[0] else (2, 3, 4), (2, 5, 4) if adjoint[1] else (2, 4, 5)
    a, b = (net.input(*shape) for shape in shapes)
    y = net.op("BATCH_MATMUL", [a, b], (2, 3, 5), options=options("BatchMatMul", adjX=adjoint[0], adjY=adjoint[1]))
    agree(net.file(y))


@pytest.mark.parametrize("kind", ["ADD", "SUB", "MUL", "DIV", "MAXIMUM", "MINIMUM", "SQUARED_DIFFERENCE", "PRELU"])
def test_two_operands_after_a_convolution(kind: str) -> None:
    """Channels first inside: the constant turns with the image."""
    net = Net()
    x = net.input(1, 5, 4, 3)
    y = net.pointwise(x, 3)
    names = {"MAXIMUM": "MaximumMinimum", "MINIMUM": "MaximumMinimum", "SQUARED_DIFFERENCE": "SquaredDifference"}
    form = None if kind == "PRELU" else options(names.get(kind, kind.capitalize()))
    constant = net.weights(1, 1, 3) if kind == "PRELU" else net.weights(3)
    z = net.op(kind, [y, constant], (1, 5, 4, 3), options=form)
    if kind != "PRELU":
        z = net.op(kind, [z, y], (1, 5, 4, 3), options=form)
    assert agree(net.file(z)).count("Transpose") == 2


FUNCTIONS = ["LOGISTIC", "TANH", "RELU", "RELU6", "RELU_N1_TO_1", "HARD_SWISH", "ELU", "ABS", "NEG", "EXP", "SQUARE"]


@pytest.mark.parametrize("kind", [*FUNCTIONS, "SQRT", "RSQRT", "LOG", "SIN", "COS", "FLOOR", "CEIL", "ROUND"])
def test_functions(kind: str) -> None:
    net = Net()
    y = net.op(kind, [net.input(1, 2, 30, 4)], (1, 2, 30, 4))
    positive = np.random.default_rng(0).uniform(0.1, 9, (1, 2, 30, 4)).astype(np.float32)
    agree(net.file(y), values=[positive] if kind in ("SQRT", "RSQRT", "LOG") else None)


@pytest.mark.parametrize(
    ("kind", "form"),
    [
        ("LEAKY_RELU", options("LeakyRelu", alpha=0.3)),
        ("GELU", options("Gelu", approximate=True)),
        ("GELU", options("Gelu", approximate=False)),
        ("SOFTMAX", options("Softmax", beta=1.0)),
        ("SOFTMAX", options("Softmax", beta=0.5)),
        ("LOG_SOFTMAX", options("LogSoftmax")),
    ],
)
def test_functions_with_options(kind: str, form: Any) -> None:
    net = Net()
    agree(net.file(net.op(kind, [net.input(1, 30, 4)], (1, 30, 4), options=form)))


COMPARISONS = ("EQUAL", "NOT_EQUAL", "GREATER", "GREATER_EQUAL", "LESS", "LESS_EQUAL")


@pytest.mark.parametrize("kind", COMPARISONS)
def test_comparisons_choose(kind: str) -> None:
    """Behind a convolution, whose result is NCHW, and of rounded values, some of which are equal."""
    net = Net()
    shape = (1, 5, 4, 6)
    x = net.op("ROUND", [net.pointwise(net.input(1, 5, 4, 3), 6)], shape)
    y = net.constant(np.array([-1, 0, 1, 0, 2, 0], np.float32))
    holds = net.op(kind, [x, y], shape, dtype="bool")
    chosen = net.op("SELECT_V2", [holds, x, y], shape)
    both = net.op("LOGICAL_AND", [holds, net.op("LOGICAL_NOT", [holds], shape, dtype="bool")], shape, dtype="bool")
    agree(net.file(chosen, net.op("SELECT", [both, chosen, x], shape), net.op("SIGN", [x], shape)))


def test_a_condition_by_rows_is_refused() -> None:
    net = Net()
    x = net.input(3, 4)
    rows = net.constant(np.array([True, False, True]))
    y = net.op("SELECT", [rows, x, x], (3, 4))
    with pytest.raises(NetworkError, match="00_SELECT: condition must be one, or one for each of"):
        parse(NetworkFile("net", net.file(y))).as_onnx()


def test_places_lengths_and_repetitions() -> None:
    net = Net()
    x = net.input(2, 5, 4)
    outputs = [
        net.op(
            "ARG_MAX", [x, net.ints(1)], (2, 4), options=options("ArgMax", outputType=TYPES["int32"]), dtype="int32"
        ),
        net.op(
            "ARG_MIN", [x, net.ints(-1)], (2, 5), options=options("ArgMin", outputType=TYPES["int64"]), dtype="int64"
        ),
        net.op("L2_NORMALIZATION", [x], (2, 5, 4), options=options("L2Norm")),
        net.op("TILE", [x, net.ints(1, 3, 2)], (2, 15, 8)),
        net.op(
            "BROADCAST_TO",
            [net.op("SLICE", [x, net.ints(0, 0, 0), net.ints(2, 1, 4)], (2, 1, 4)), net.ints(2, 7, 4)],
            (2, 7, 4),
            version=2,
        ),
        net.op("ADD_N", [x, x, x], (2, 5, 4)),
    ]
    agree(net.file(*outputs))


@pytest.mark.parametrize("keep", [False, True])
@pytest.mark.parametrize("kind", ["MEAN", "SUM", "REDUCE_MAX", "REDUCE_MIN", "REDUCE_PROD"])
def test_reductions(kind: str, keep: bool) -> None:
    net = Net()
    x = net.input(1, 5, 4, 3)
    y = net.pointwise(x, 6)
    over = (1, 1, 1, 6) if keep else (1, 6)
    z = net.op(kind, [y, net.ints(1, -2)], over, options=options("Reducer", keepDims=keep))
    w = net.op(kind, [y, net.ints(3)], (1, 5, 4, 1) if keep else (1, 5, 4), options=options("Reducer", keepDims=keep))
    agree(net.file(z, w))


def test_frames() -> None:
    net = Net()
    x = net.input(1, 4, 5, 3)
    y = net.pointwise(x, 3)
    table = net.ints([0, 0], [1, 2], [0, 3], [2, 0])
    value = net.constant(np.array(1.5, np.float32))
    a = net.op("PAD", [y, table], (1, 7, 8, 5), options=options("Pad"))
    b = net.op("PADV2", [x, table, value], (1, 7, 8, 5), options=options("PadV2"))
    c = net.op("MIRROR_PAD", [y, table], (1, 7, 8, 5), options=options("MirrorPad", mode=0))
    once = net.ints([0, 0], [1, 1], [0, 1], [1, 0])
    d = net.op("MIRROR_PAD", [y, once], (1, 6, 6, 4), options=options("MirrorPad", mode=1))
    agree(net.file(a, b, c, d))


def test_movement() -> None:
    net = Net()
    x = net.input(1, 6, 8, 12)
    slices = net.op("SLICE", [x, net.ints(0, 2, 0, 5), net.ints(1, 3, -1, 4)], (1, 3, 8, 4), options=options("Slice"))
    masks = options("StridedSlice", beginMask=1, endMask=8, shrinkAxisMask=2)
    strides = [net.ints(0, -2, -2, 2), net.ints(1, 9, 1, 9), net.ints(1, 1, -2, 3)]
    strided = net.op("STRIDED_SLICE", [x, *strides], (1, 3, 4), options=masks)
    halves = net.op("SPLIT", [net.ints(3), x], (1, 6, 8, 6), (1, 6, 8, 6), options=options("Split", numSplits=2))
    parts = [x, net.ints(1, 5), net.ints(-3)]
    split = net.op("SPLIT_V", parts, (1, 1, 8, 12), (1, 5, 8, 12), options=options("SplitV", numSplits=2))
    joined = net.op("CONCATENATION", halves, (1, 12, 8, 6), options=options("Concatenation", axis=-3))
    turned = net.op("TRANSPOSE", [x, net.ints(0, 2, 1, 3)], (1, 8, 6, 12), options=options("Transpose"))
    flat = net.op("RESHAPE", [turned, net.ints(48, 12)], (48, 12), options=options("Reshape"))
    rows = net.op("UNPACK", [flat], *[(48,)] * 12, options=options("Unpack", num=12, axis=1))
    packed = net.op("PACK", rows[:3], (48, 3), options=options("Pack", valuesCount=3, axis=-1))
    some = net.op("GATHER", [flat, net.ints(3, 0, 3)], (3, 12), options=options("Gather", axis=0))
    wide = net.op("EXPAND_DIMS", [some, net.ints(0)], (1, 3, 12), options=options("ExpandDims"))
    thin = net.op("SQUEEZE", [wide], (3, 12), options=options("Squeeze"))
    agree(net.file(slices, strided, *split, joined, packed, wide, thin))


def test_joined_convolutions_stay_channels_first() -> None:
    net = Net()
    x = net.input(1, 5, 4, 3)
    parts = [net.pointwise(x, n) for n in (2, 5)]
    y = net.op("CONCATENATION", parts, (1, 5, 4, 7), options=options("Concatenation", axis=3))
    halved = options("SplitV", numSplits=2)
    halves = net.op("SPLIT_V", [y, net.ints(3, 4), net.ints(-1)], (1, 5, 4, 3), (1, 5, 4, 4), options=halved)
    z = net.pointwise(halves[1], 2)
    assert agree(net.file(z)) == ["Transpose", "Conv", "Conv", "Concat", "Split", "Conv", "Transpose"]


@pytest.mark.parametrize("form", [{}, {"alignCorners": True}, {"halfPixelCenters": True}])
@pytest.mark.parametrize("kind", ["ResizeBilinear", "ResizeNearestNeighbor"])
def test_resizing(kind: str, form: dict[str, bool]) -> None:
    net = Net()
    name = {"ResizeBilinear": "RESIZE_BILINEAR", "ResizeNearestNeighbor": "RESIZE_NEAREST_NEIGHBOR"}[kind]
    y = net.op(name, [net.input(1, 5, 4, 3), net.ints(8, 12)], (1, 8, 12, 3), options=options(kind, **form), version=3)
    agree(net.file(y))


@pytest.mark.parametrize(("kind", "shape"), [("SpaceToDepth", (1, 3, 2, 48)), ("DepthToSpace", (1, 12, 8, 3))])
def test_blocks(kind: str, shape: tuple[int, ...]) -> None:
    net = Net()
    name = {"SpaceToDepth": "SPACE_TO_DEPTH", "DepthToSpace": "DEPTH_TO_SPACE"}[kind]
    y = net.op(name, [net.input(1, 6, 4, 12)], shape, options=options(kind, blockSize=2))
    agree(net.file(y))


def level(size: int = 0, segments: Sequence[int] = (), indices: Sequence[int] = ()) -> Any:
    """An axis of a sparse constant: all of `size`, or those of `indices`."""
    made = schema.DimensionMetadataT()
    made.denseSize = size
    if segments:
        made.format = schema.DimensionType.SPARSE_CSR
        made.arraySegmentsType = schema.SparseIndexVector.Int32Vector
        made.arrayIndicesType = schema.SparseIndexVector.Uint8Vector
        made.arraySegments, made.arrayIndices = schema.Int32VectorT(), schema.Uint8VectorT()
        made.arraySegments.values, made.arrayIndices.values = list(segments), list(indices)
    return made


@pytest.mark.parametrize(
    ("order", "blocks", "levels", "stored"),
    [
        ([0, 1], [], [level(4), level(0, [0, 1, 1, 3, 4], [2, 0, 3, 1])], 4),
        ([1, 0], [], [level(4), level(0, [0, 1, 1, 3, 4], [2, 0, 3, 1])], 4),
        ([0, 1, 2, 3], [0, 1], [level(2), level(0, [0, 1, 2], [1, 0]), level(2), level(2)], 8),
    ],
)
def test_sparse_weights(order: list[int], blocks: list[int], levels: list[Any], stored: int) -> None:
    net = Net()
    weights = net.weights(stored)
    tensor = net.graph.tensors[weights]
    tensor.shape, tensor.sparsity = [4, 4], schema.SparsityParametersT()
    tensor.sparsity.traversalOrder, tensor.sparsity.blockMap, tensor.sparsity.dimMetadata = order, blocks, levels
    whole = net.op("DENSIFY", [weights], (4, 4))
    y = net.op("FULLY_CONNECTED", [net.input(1, 4), whole], (1, 4), options=options("FullyConnected"))
    agree(net.file(y))


def test_a_sparse_constant_of_almost_nothing_is_refused() -> None:
    net = Net()
    weights = net.weights(1)
    tensor = net.graph.tensors[weights]
    tensor.shape, tensor.sparsity = [4096, 4096], schema.SparsityParametersT()
    tensor.sparsity.traversalOrder, tensor.sparsity.dimMetadata = [0, 1], [level(4096), level(4096)]
    y = net.op("DENSIFY", [weights], (4096, 4096))
    with pytest.raises(NetworkError, match="a sparse constant must store at least one element in 1024"):
        parse(NetworkFile("net", net.file(y))).as_onnx()


def test_weights_in_other_types() -> None:
    """float16, and 8 bits per tensor and per channel, by way of DEQUANTIZE and as they are."""
    net = Net()
    x = net.input(1, 8)
    half = net.constant(net.random.normal(size=(6, 8)).astype(np.float16))
    real = net.op("DEQUANTIZE", [half], (6, 8), options=options("Dequantize"), version=3)
    y = net.op("FULLY_CONNECTED", [x, real], (1, 6), options=options("FullyConnected"))
    levels = net.random.integers(-128, 128, (5, 6)).astype(np.int8)
    real = net.op("DEQUANTIZE", [net.constant(levels, [0.5], [3])], (5, 6), options=options("Dequantize"), version=2)
    z = net.op("FULLY_CONNECTED", [y, real], (1, 5), options=options("FullyConnected"))
    assert agree(net.file(z)) == ["Gemm", "Gemm"]

    scales = [0.5, 0.25, 1.0, 2.0, 0.125]
    net = Net()
    direct = net.constant(levels, scales, [0] * 5)
    y = net.op("FULLY_CONNECTED", [net.input(1, 6), direct], (1, 5), options=options("FullyConnected"))
    one = np.eye(6, dtype=np.float32)[:1]
    wanted = (levels[:, 0] * np.array(scales)).astype(np.float32)
    agree(net.file(y), [wanted[None]], [one])


def test_casts_and_known_shapes() -> None:
    net = Net()
    x = net.input(2, 6)
    shape = net.op("SHAPE", [x], (2,), options=options("Shape", outType=2), dtype="int32")
    down = net.op("CAST", [x], (2, 6), options=options("Cast", inDataType=0, outDataType=2), dtype="int32")
    up = net.op("CAST", [down], (2, 6), options=options("Cast", inDataType=2, outDataType=0))
    y = net.op("RESHAPE", [up, shape], (2, 6), options=options("Reshape"))
    agree(net.file(y))


# Errors ------------------------------------------------------------------------------------------


def test_what_has_no_counterpart_is_named() -> None:
    net = Net()
    y = net.op("RELU", [net.input(1, 4)], (1, 4))
    z = net.op("LOCAL_RESPONSE_NORMALIZATION", [y], (1, 4), options=options("LocalResponseNormalization"))
    rule = "01_LOCAL_RESPONSE_NORMALIZATION: operator must be one that Dovetail can write in ONNX"
    with pytest.raises(NetworkError, match=rule):
        parse(NetworkFile("net", net.file(z))).as_onnx()


def test_integer_activations_are_refused() -> None:
    net = Net()
    x = net.input(1, 4)
    net.graph.tensors[x].type = TYPES["int8"]
    y = net.op("RELU", [x], (1, 4), dtype="int8")
    with pytest.raises(NetworkError, match="00_RELU: activations must be float32, not int8"):
        parse(NetworkFile("net", net.file(y))).as_onnx()


def test_symmetric_frames_of_more_than_one_are_refused() -> None:
    net = Net()
    y = net.op("MIRROR_PAD", [net.input(1, 4), net.ints([0, 0], [2, 0])], (1, 6), options=options("MirrorPad", mode=1))
    with pytest.raises(NetworkError, match="00_MIRROR_PAD: symmetric padding must be at most 1, not 2"):
        parse(NetworkFile("net", net.file(y))).as_onnx()


def test_damaged_files_are_refused() -> None:
    net = Net()
    data = net.file(net.op("RELU", [net.input(1, 4)], (1, 4)))
    for end in range(8, len(data), 40):
        with pytest.raises(NetworkError, match="the file must be a sound flatbuffer"):
            parse(NetworkFile("net", data[:end])).as_onnx()
