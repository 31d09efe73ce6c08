"""Reads a TFLite file: from the flatbuffer to checked Python values. Quantisation comes later."""

from __future__ import annotations

from collections.abc import Callable
from copy import copy
from dataclasses import dataclass, replace
from math import prod
from typing import Any, TypeVar

import numpy as np
from ai_edge_litert import schema_py_generated as schema
from numpy.typing import NDArray

from dovetail.sw.errors import NetworkError, first_line
from dovetail.sw.frontend.tflite.flatbuffer import TFLITE, FlatbufferError, verify
from dovetail.sw.network.ir import Pads, Pair, Tensor, same_pads
from dovetail.sw.network.layout import Array, Shape, as_signed

RESOURCE = "resource"
"""Element type of a handle to a variable, which has no elements."""
_DTYPES = {
    0: "float32",
    1: "float16",
    2: "int32",
    3: "uint8",
    4: "int64",
    6: "bool",
    7: "int16",
    9: "int8",
    13: RESOURCE,
}
_OP_NAMES = {
    value: name for name, value in vars(schema.BuiltinOperator).items() if isinstance(value, int) and name.isupper()
}
MEDIAPIPE_TRANSPOSE_CONV = "CUSTOM Convolution2DTransposeBias"
"""The one custom operator that has a counterpart in ONNX."""
_DENSEST = 1024
"""At most this many elements of a sparse constant for each stored one: damaged files must not fill memory."""


@dataclass(frozen=True)
class Info:
    """One tensor of the file: its record plus the value if it is a constant.

    Parameters
    ----------
    scales, zero_points: as in the file: none, one, or one per entry of axis ``axis``.
    variable: whether an operator reads it and writes it for the next run.
    signature: the shape with -1 for axes that the file leaves open; empty if it leaves none.
    """

    tensor: Tensor
    scales: NDArray[np.float32]
    zero_points: NDArray[np.int64]
    axis: int
    value: Array | None
    variable: bool = False
    signature: tuple[int, ...] = ()


@dataclass(frozen=True)
class Operator:
    """One operator of the file; -1 stands for an input that is left out. A custom one is of kind "CUSTOM NAME"."""

    index: int
    kind: str
    name: str
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    raw: Any

    def options(self, table: Any) -> Any:
        """The builtin options, read as generated class `table`."""
        raw = self.raw.BuiltinOptions()
        if raw is None or self.raw.BuiltinOptionsType() != getattr(schema.BuiltinOptions, table.__name__):
            raise NetworkError(f"{self.name}: options must be present and of its kind, not missing")
        options = table()
        options.Init(raw.Bytes, raw.Pos)
        return options


Function = TypeVar("Function")


class Operators(dict[str, Function]):
    """Functions by the kinds of operators that they read; a function is entered by decoration."""

    def __call__(self, *kinds: str) -> Callable[[Function], Function]:
        """Enter what is decorated under these kinds."""

        def enter(function: Function) -> Function:
            self.update(dict.fromkeys(kinds, function))
            return function

        return enter


class TfliteFile:
    """Tensors and operators, in order, of a subgraph; inputs and outputs as tensor indices.

    The network is subgraph 0; ``subgraphs`` says how many there are. Others are initialisation, branches or loops.

    Raises
    ------
    NetworkError: no sound flatbuffer, no such subgraph, element types that are no numbers; a damaged file may raise
        anything else.
    """

    def __init__(self, data: bytes) -> None:
        try:
            verify(data, TFLITE, "Model")
        except FlatbufferError as error:
            raise NetworkError(f"the file must be a sound flatbuffer: {error}") from None
        self.data = data
        self._model = schema.Model.GetRootAsModel(data, 0)
        self._open(0)

    def other(self, subgraph: int) -> TfliteFile:
        """Another subgraph of the same file. Raises NetworkError."""
        other = copy(self)
        other._open(subgraph)
        return other

    def _open(self, subgraph: int) -> None:
        self.subgraph = subgraph
        self.subgraphs = int(self._model.SubgraphsLength())
        if not 0 <= subgraph < self.subgraphs:
            raise NetworkError(f"the file must have a subgraph {subgraph}, not {self.subgraphs} in all")
        graph = self._graph = self._model.Subgraphs(subgraph)
        if not graph.TensorsLength() or not graph.OperatorsLength():
            raise NetworkError("the file must have tensors and operators, not none")
        self._used: set[str] = set()
        self.infos = [self._tensor(index) for index in range(graph.TensorsLength())]
        self.inputs = [int(graph.Inputs(i)) for i in range(graph.InputsLength())]
        self.outputs = [int(graph.Outputs(i)) for i in range(graph.OutputsLength())]
        self.operators = [self._operator(index) for index in range(graph.OperatorsLength())]

    def _tensor(self, index: int) -> Info:
        raw = self._graph.Tensors(index)
        dtype = _DTYPES.get(raw.Type())
        name = (raw.Name() or b"").decode(errors="replace") or f"tensor_{index}"
        while name in self._used:
            name += f"_{index}"
        self._used.add(name)
        if dtype is None:
            raise NetworkError(f"tensor {name!r}: element type must be a plain number, not code {raw.Type()}")
        shape = tuple(int(raw.Shape(i)) for i in range(raw.ShapeLength()))
        quant = raw.Quantization()
        scales, zeros, axis = np.zeros(0, np.float32), np.zeros(0, np.int64), 0
        if quant is not None and quant.ScaleLength():
            scales = np.array(quant.ScaleAsNumpy(), np.float32)
            zeros = np.array(quant.ZeroPointAsNumpy(), np.int64) if quant.ZeroPointLength() else zeros
            axis = quant.QuantizedDimension()
        value = None
        buffer = self._model.Buffers(raw.Buffer())
        if buffer.Offset() > 1:
            raise NetworkError(f"tensor {name!r}: value must lie within the flatbuffer, not behind it")
        if buffer.DataLength():
            stored = np.frombuffer(np.array(buffer.DataAsNumpy(), np.uint8).tobytes(), dtype)
            value = stored.reshape(shape) if raw.Sparsity() is None else self._whole(raw.Sparsity(), stored, shape)
        scale = scales[0] if scales.size == 1 else None
        zero = int(zeros[0]) if scales.size == 1 and zeros.size else 0
        signature = tuple(int(raw.ShapeSignature(i)) for i in range(raw.ShapeSignatureLength()))
        tensor = Tensor(name, shape, scale, zero, dtype)
        return Info(tensor, scales, zeros, axis, value, bool(raw.IsVariable()), signature)

    def _whole(self, sparsity: Any, stored: Array, shape: tuple[int, ...]) -> Array:
        if prod(shape) > _DENSEST * stored.size + _DENSEST:
            raise NetworkError(f"a sparse constant must store at least one element in {_DENSEST}, not {stored.size}")
        return _expand(sparsity, stored, shape)

    def _operator(self, index: int) -> Operator:
        raw = self._graph.Operators(index)
        code = self._model.OperatorCodes(raw.OpcodeIndex())
        number = max(code.BuiltinCode(), code.DeprecatedBuiltinCode())
        kind, label = (_OP_NAMES.get(number, f"operator {number}"),) * 2
        if kind == "CUSTOM":
            label = (code.CustomCode() or b"CUSTOM").decode(errors="replace")
            kind = f"CUSTOM {label}"
        ins = tuple(int(raw.Inputs(i)) for i in range(raw.InputsLength()))
        outs = tuple(int(raw.Outputs(i)) for i in range(raw.OutputsLength()))
        return Operator(index, kind, f"{index:02d}_{label}", ins, outs, raw)


def is_float(file: TfliteFile) -> bool:
    """Whether activations are float32, and none is of integers; weights may be of any type."""
    dtypes = {info.tensor.dtype for info in file.infos if info.value is None}
    return "float32" in dtypes and not dtypes & {"int8", "uint8", "int16"}


def is_unsigned(file: TfliteFile) -> bool:
    """Whether activations are uint8, and none int8."""
    dtypes = {info.tensor.dtype for info in file.infos if info.value is None}
    return "uint8" in dtypes and "int8" not in dtypes


def signed_ends(file: TfliteFile) -> set[int]:
    """The uint8 tensors that are int8 in the graph, with values 128 lower: all, where no activation is int8; else those
    that QUANTIZE alone makes of int8 or reads to make int8 of, as at the ends of networks whose users have uint8."""
    found = {index for index, info in enumerate(file.infos) if info.tensor.dtype == "uint8"}
    if is_unsigned(file):
        return found
    touching = [(op, index) for op in file.operators for index in (*op.inputs, *op.outputs) if index in found]
    return {index for _, index in touching} - {index for op, index in touching if not _rescales(file, op)}


def _rescales(file: TfliteFile, op: Operator) -> bool:
    """Whether an operator makes 8 bits of 8 bits, neither of them constant."""
    if op.kind != "QUANTIZE":
        return False
    ends = [file.infos[index] for index in (op.inputs[0], op.outputs[0])]
    return all(
        info.value is None and info.tensor.dtype in ("int8", "uint8") and info.tensor.scale is not None for info in ends
    )


def signed(info: Info) -> Info:
    """A uint8 tensor as int8, with values and zero point 128 lower; any other as it is."""
    if info.tensor.dtype != "uint8":
        return info
    return replace(
        info,
        tensor=replace(info.tensor, dtype="int8", zero_point=info.tensor.zero_point - 128),
        zero_points=info.zero_points - 128,
        value=None if info.value is None else as_signed(info.value),
    )


def settle(file: TfliteFile) -> None:
    """Replace the shapes of computed tensors by those that follow from the inputs' shapes, if the file leaves some
    open behind the batch.

    Raises
    ------
    NetworkError: LiteRT cannot take the network.
    """
    computed = {index for op in file.operators for index in op.outputs}
    if not any(index in computed and -1 in info.signature[1:] for index, info in enumerate(file.infos)):
        return
    from ai_edge_litert.interpreter import Interpreter, OpResolverType

    try:
        interpreter = Interpreter(
            model_content=file.data, experimental_op_resolver_type=OpResolverType.BUILTIN_WITHOUT_DEFAULT_DELEGATES
        )
        interpreter.allocate_tensors()
    except (ValueError, RuntimeError) as error:
        raise NetworkError(
            f"shapes of computed tensors must follow from the inputs', as LiteRT finds them: {first_line(error)}"
        ) from error
    for detail in interpreter.get_tensor_details():
        index = int(detail["index"])
        if index in computed and index < len(file.infos):
            info, shape = file.infos[index], tuple(int(size) for size in detail["shape"])
            file.infos[index] = replace(info, tensor=replace(info.tensor, shape=shape))


def pads_of(source: Tensor, out: Tensor, kernel: Pair, stride: Pair, dilation: Pair, padding: int) -> Pads:
    """TFLite's padding: SAME puts the smaller half before."""
    if padding == schema.Padding.VALID:
        return 0, 0, 0, 0
    ends: list[tuple[int, int]] = []
    for axis in range(2):
        step, length = max(stride[axis], 1), source.nhwc[axis + 1]
        size = -(-length // step)
        if out.nhwc[axis + 1] != size:
            raise NetworkError(f"tensor {out.name!r}: axis {axis + 1} must be {size} long, not {out.nhwc[axis + 1]}")
        ends.append(same_pads(length, (kernel[axis] - 1) * dilation[axis] + 1, step))
    (top, bottom), (left, right) = ends
    return top, left, bottom, right


# Sparse constants ------------------------------------------------------------------------------

_VECTORS = {
    schema.SparseIndexVector.Int32Vector: schema.Int32Vector,
    schema.SparseIndexVector.Uint16Vector: schema.Uint16Vector,
    schema.SparseIndexVector.Uint8Vector: schema.Uint8Vector,
}


def _expand(sparsity: Any, stored: Array, shape: Shape) -> Array:
    """The whole of a sparse constant: only some elements are stored, level by level as in a tree.

    Parameters
    ----------
    sparsity: the tensor's `SparsityParameters`. Each level of the tree is an axis: those of the shape first, then
        those inside blocks.
    stored: the elements that the file holds, in the order of the tree's leaves.
    shape: of the result.

    Raises KeyError, IndexError or ValueError if the file is damaged.
    """
    whole = np.zeros(shape, stored.dtype)
    order = sparsity.TraversalOrderAsNumpy()
    blocked = list(sparsity.BlockMapAsNumpy()) if sparsity.BlockMapLength() else []
    places = np.zeros((1, len(order)), np.int64)
    sizes = np.ones(len(order), np.int64)
    for level, axis in enumerate(order):
        metadata = sparsity.DimMetadata(level)
        if metadata.Format() == schema.DimensionType.DENSE:
            sizes[axis] = metadata.DenseSize()
            if len(places) * sizes[axis] > whole.size:
                raise ValueError("more branches than elements")
            parents, along = np.indices((len(places), sizes[axis])).reshape(2, -1)
        else:
            segments = _vector(metadata.ArraySegmentsType(), metadata.ArraySegments())
            along = _vector(metadata.ArrayIndicesType(), metadata.ArrayIndices())
            parents = np.repeat(np.arange(len(places)), np.diff(segments))
        places = places[parents]
        places[:, axis] = along
    for block, axis in enumerate(blocked):
        places[:, axis] = places[:, axis] * sizes[len(shape) + block] + places[:, len(shape) + block]
    whole[tuple(places[:, : len(shape)].T)] = stored
    return whole


def _vector(kind: int, table: Any) -> NDArray[np.int64]:
    values = _VECTORS[kind]()
    values.Init(table.Bytes, table.Pos)
    return np.array(values.ValuesAsNumpy(), np.int64)
