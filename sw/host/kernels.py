"""What runs on the host: one payload class per way of running a node, each with `run(inputs) -> outputs`.

The reference runtimes are imported when the first payload needs them; sessions are kept per payload.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from math import prod
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from dovetail.isa.numerics.rounding import clamp_to_16
from dovetail.sw.errors import NetworkError, first_line
from dovetail.sw.host.tflite_extract import Extract, extract
from dovetail.sw.network.layout import Array, Layout, Shape, as_signed, as_unsigned

_INFINITY = 0x7F800000
"""Its bits as a float32."""


class Payload(Protocol):
    """Something a `Host` node can run."""

    def run(self, inputs: Sequence[Array]) -> list[Array]:
        """Outputs, in the node's order, for its input tensors."""
        ...


@dataclass(frozen=True)
class Quantize:
    """float32 -> int8: round(x / scale) + zero_point, saturating.

    `ties_even` False rounds ties away from zero (TFLite Micro), True to even (ONNX). What is no number gives -128 in
    ONNX Runtime; in TFLite Micro it is undefined, and gives the zero point here. `wide`: to 16 bits, in int32.
    """

    scale: np.float32
    zero_point: int
    ties_even: bool
    wide: bool = False

    def run(self, inputs: Sequence[Array]) -> list[Array]:
        ratio = (inputs[0].astype(np.float32) / np.float32(self.scale)).astype(np.float64)
        rounded = np.rint(ratio) if self.ties_even else np.trunc(ratio + np.copysign(0.5, ratio))
        rounded = np.nan_to_num(rounded, nan=-np.inf if self.ties_even else 0, posinf=np.inf, neginf=-np.inf)
        rounded += self.zero_point
        return [clamp_to_16(rounded) if self.wide else np.clip(rounded, -128, 127).astype(np.int8)]

    def edges(self) -> NDArray[np.int32]:
        """Where int8 results begin, int32 [256], in ascending order: entry n is the least number that gives n - 128 or
        more.

        A number stands there as its bits, those below the sign inverted if it is negative: such integers are in the
        order of the numbers.
        """
        results = np.arange(-127, 128)
        below, above = (np.full(results.size, end, np.int64) for end in (~_INFINITY, _INFINITY))
        while (above - below > 1).any():
            middle = (below + above) // 2
            bits = np.where(middle < 0, middle ^ 0x7FFFFFFF, middle).astype(np.int32)
            with np.errstate(over="ignore"):
                reached = self.run([bits.view(np.float32)])[0] >= results
            below, above = np.where(reached, below, middle), np.where(reached, middle, above)
        return np.concatenate([[~_INFINITY], above]).astype(np.int32)


@dataclass(frozen=True)
class Dequantize:
    """int8 -> float32: (x - zero_point) * scale."""

    scale: np.float32
    zero_point: int

    def run(self, inputs: Sequence[Array]) -> list[Array]:
        centred = inputs[0].astype(np.int32) - self.zero_point
        return [centred.astype(np.float32) * np.float32(self.scale)]

    def table(self) -> NDArray[np.float32]:
        """What each byte becomes, by its bits: float32 [256]."""
        return np.asarray(self.run([np.arange(256).astype(np.uint8).view(np.int8)])[0], np.float32)


@dataclass(frozen=True, eq=False)
class DequantizeSums:
    """int32 sums [..., C], or elements of 16 bits -> float32: each times the ``steps`` of its channel, [C] or [1]."""

    steps: NDArray[np.float32]

    def run(self, inputs: Sequence[Array]) -> list[Array]:
        return [inputs[0].astype(np.float32) * self.steps]


@dataclass(frozen=True, eq=False)
class Around:
    """int32 sums [..., C] of integers around 0, and a zero point, as the sums around that; it is uint8 in the file,
    int8 (value - 128) here. ``totals``: int32 [C], of the weights of each sum."""

    totals: NDArray[np.int32]

    def run(self, inputs: Sequence[Array]) -> list[Array]:
        return [inputs[0] - (inputs[1].astype(np.int32).ravel() + 128) * self.totals]


@dataclass(frozen=True)
class Permute:
    """Move bytes from one layout of the file's array to another."""

    before: Layout
    after: Layout

    def run(self, inputs: Sequence[Array]) -> list[Array]:
        return [self.after.inside(self.before.outside(inputs[0]))]


@dataclass(frozen=True)
class Wire:
    """An operand of an ONNX operator.

    Parameters
    ----------
    name: in the one-node model.
    layout: how the tensor's bytes appear in the file.
    unsigned: uint8 in the file, int8 (value - 128) here.
    """

    name: str
    layout: Layout
    unsigned: bool = False


def _macs(kind: str, shapes: Sequence[Shape]) -> int:
    """Of an operator with its first operands and its result; () stands for an unknown shape."""
    if not all((*shapes[:2], shapes[-1])):
        return 0
    match kind:
        case "Conv":
            return prod(shapes[-1]) * prod(shapes[1][1:])
        case "ConvTranspose":
            return prod(shapes[0]) * prod(shapes[1][1:])
        case "MatMul" | "Gemm":
            return prod(shapes[0]) * shapes[-1][-1]
        case "LSTM" | "GRU" | "RNN":
            return prod(shapes[0][:2]) * (prod(shapes[1]) + prod(shapes[2]))
        case _:
            return 0


@dataclass(frozen=True)
class OnnxOp:
    """One ONNX operator, as a one-node model for ONNX Runtime; or several of them.

    Parameters
    ----------
    model: serialised model; constants are its initialisers.
    label: names node and operator in messages.
    inputs, outputs: its operands.
    apart: ONNX Runtime must neither fuse nor rewrite nodes.
    """

    model: bytes = field(repr=False)
    label: str
    inputs: tuple[Wire, ...]
    outputs: tuple[Wire, ...]
    apart: bool = False

    def __getstate__(self) -> dict[str, Any]:
        """Without the session, which no other process can use."""
        return {name: value for name, value in vars(self).items() if name != "_session"}

    @cached_property
    def macs(self) -> int:
        """Multiply-accumulates, as far as constant weights and the operands tell."""
        import onnx

        graph = onnx.load_model_from_string(self.model).graph
        shapes = {wire.name: wire.layout.shape for wire in (*self.inputs, *self.outputs)}
        shapes |= {tensor.name: tuple(tensor.dims) for tensor in graph.initializer}
        ends = [(node.op_type, (*node.input[:3], next(filter(None, node.output)))) for node in graph.node]
        return sum(_macs(kind, [shapes.get(name, ()) for name in names]) for kind, names in ends)

    def run(self, inputs: Sequence[Array]) -> list[Array]:
        feed = {}
        for wire, value in zip(self.inputs, inputs, strict=True):
            outside = wire.layout.outside(value)
            feed[wire.name] = as_unsigned(outside) if wire.unsigned else outside
        return [
            wire.layout.inside(as_signed(value) if wire.unsigned else value)
            for wire, value in zip(self.outputs, self.raw(feed), strict=True)
        ]

    def raw(self, feed: dict[str, Array]) -> list[Array]:
        """Outputs as the file has them, for inputs as the file has them."""
        try:
            values = self._session.run([wire.name for wire in self.outputs], feed)
        except NetworkError:
            raise
        except Exception as error:  # the runtime raises its own classes, undocumented
            raise NetworkError(f"{self.label}: ONNX Runtime must run it, not fail: {first_line(error)}") from error
        return [np.asarray(value) for value in values]

    @cached_property
    def _session(self) -> Any:
        from dovetail.sw.host.onnx_session import open_session

        try:
            return open_session(self.model, optimises=not self.apart)
        except Exception as error:  # the runtime raises its own classes, undocumented
            raise NetworkError(
                f"{self.label}: must be an operator that ONNX Runtime knows: {first_line(error)}"
            ) from error


@dataclass(frozen=True)
class TfliteOp:
    """One operator of a TFLite file, run by LiteRT's reference kernels where there are such.

    Parameters
    ----------
    data: the whole file.
    index: operator in the subgraph.
    inputs, outputs: tensor indices of the activations.
    unsigned: uint8 activations of the file are int8 (value - 128) here.
    variables: tensor indices of what the operator keeps between runs; operands after `inputs`, results after `outputs`.
    subgraph: of the file.
    """

    data: bytes = field(repr=False)
    index: int
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    unsigned: bool = False
    variables: tuple[int, ...] = ()
    subgraph: int = 0
    _interpreter: list[Any] = field(default_factory=list, repr=False, compare=False)

    def run(self, inputs: Sequence[Array]) -> list[Array]:
        interpreter, states = self._open()
        details, results = interpreter.get_input_details(), interpreter.get_output_details()
        try:
            for detail, value in zip([*details, *states], inputs, strict=True):
                interpreter.set_tensor(detail["index"], self._outside(value).reshape(detail["shape"]))
            interpreter.invoke()
        except (ValueError, RuntimeError) as error:
            raise NetworkError(f"operator {self.index}: LiteRT must run it, not fail: {first_line(error)}") from error
        return [self._inside(interpreter.get_tensor(detail["index"])) for detail in (*results, *states)]

    def _outside(self, value: Array) -> Array:
        return value.view(np.uint8) ^ np.uint8(128) if self.unsigned and value.dtype == np.int8 else value

    def _inside(self, value: Array) -> Array:
        return (value ^ np.uint8(128)).view(np.int8) if self.unsigned and value.dtype == np.uint8 else value

    def table(self) -> Array:
        """Results int8 [256] of an element-wise operator on one int8 tensor, for -128 up to 127."""
        interpreter = self._interpret(self._extract((1, 256)).data)
        (source,), (result,) = interpreter.get_input_details(), interpreter.get_output_details()
        interpreter.set_tensor(source["index"], self._outside(np.arange(-128, 128).astype(np.int8))[None])
        interpreter.invoke()
        return np.asarray(self._inside(interpreter.get_tensor(result["index"])[0]))

    def shapes(self) -> list[Shape]:
        """Of the results, as the runtime finds them for operands of the file's shapes.

        Raises
        ------
        NetworkError: LiteRT does not know the operator, or cannot run it on zeros.
        """
        interpreter, states = self._open()
        zeros = [np.zeros(detail["shape"], detail["dtype"]) for detail in (*interpreter.get_input_details(), *states)]
        return [value.shape for value in self.run(zeros)][: len(self.outputs)]

    def _open(self) -> tuple[Any, list[Any]]:
        """The interpreter, and its tensors of the variables."""
        if not self._interpreter:
            try:
                alone = self._extract()
            except Exception as error:  # a damaged file fails anywhere in the generated classes
                raise NetworkError(f"operator {self.index}: must be well formed, not damaged") from error
            interpreter = self._interpret(alone.data)
            details = {detail["index"]: detail for detail in interpreter.get_tensor_details()}
            self._interpreter.append((interpreter, [details[alone.places[index]] for index in self.variables]))
        interpreter, states = self._interpreter[0]
        return interpreter, states

    def _interpret(self, model: bytes) -> Any:
        from ai_edge_litert.interpreter import Interpreter, OpResolverType

        # A few operators have no reference kernel; their only one serves.
        for resolver in (OpResolverType.BUILTIN_REF, OpResolverType.BUILTIN_WITHOUT_DEFAULT_DELEGATES):
            try:
                interpreter = Interpreter(model_content=model, experimental_op_resolver_type=resolver)
                interpreter.allocate_tensors()
                return interpreter
            except (ValueError, RuntimeError) as error:
                text = first_line(error)
        raise NetworkError(f"operator {self.index}: must be an operator that LiteRT knows: {text}")

    def single(self) -> bytes:
        """A flatbuffer that holds this operator alone."""
        return self._extract().data

    def _extract(self, shape: tuple[int, ...] = ()) -> Extract:
        """The operator alone, its activations in another `shape` if one is given."""
        ends = self.inputs, self.outputs
        return extract(self.data, [self.index], *ends, subgraph=self.subgraph, shape=shape)
