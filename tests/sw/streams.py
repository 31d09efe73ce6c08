"""QDQ files of small networks whose residual sums have 16 bits."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from dovetail.sw.network.layout import Array

STEP = 2.0**-9
"""The scale of the streams."""
LARGEST = 1 << 15


class StreamFile:
    """A QDQ file that grows node by node; methods take and give names of float tensors.

    Parameters
    ----------
    domain: of QuantizeLinear and DequantizeLinear of int16: ONNX's own or ONNX Runtime's.
    """

    def __init__(self, seed: int = 0, domain: str = "com.microsoft") -> None:
        self.rng = np.random.default_rng(seed)
        self.nodes: list[onnx.NodeProto] = []
        self.constants: list[onnx.TensorProto] = []
        self.inputs: list[onnx.ValueInfoProto] = []
        self.outputs: list[onnx.ValueInfoProto] = []
        self.domain = domain

    def constant(self, value: Array) -> str:
        name = f"c{len(self.constants)}"
        self.constants.append(numpy_helper.from_array(np.ascontiguousarray(value), name))
        return name

    def node(self, op: str, *inputs: str, **attributes: Any) -> str:
        name = f"{op.lower()}{len(self.nodes)}"
        self.nodes.append(helper.make_node(op, inputs, [name], name, **attributes))
        return name

    def quantised(self, x: str, scale: float, zero: int = 0, dtype: str = "int8") -> str:
        """Through QuantizeLinear and DequantizeLinear."""
        return self.real(self.integers(x, scale, zero, dtype), scale, zero, dtype)

    def integers(self, x: str, scale: float, zero: int = 0, dtype: str = "int8") -> str:
        return self.node("QuantizeLinear", x, *self._quant(scale, zero, dtype), **self._own(dtype))

    def real(self, x: str, scale: float, zero: int = 0, dtype: str = "int8") -> str:
        return self.node("DequantizeLinear", x, *self._quant(scale, zero, dtype), **self._own(dtype))

    def wide(self, x: str, step: float = STEP) -> str:
        """In the stream's form."""
        return self.quantised(x, step, 0, "int16")

    def held(self, values: Array, step: float = STEP) -> str:
        """A constant in the stream's form."""
        return self.real(self.constant(values.astype(np.int16)), step, 0, "int16")

    def random(self, *shape: int) -> str:
        return self.held(self.rng.integers(-600, 600, shape))

    def input(self, *shape: int, scale: float = 0.031, zero: int = 3) -> str:
        self.inputs.append(helper.make_tensor_value_info("x", TensorProto.INT8, shape))
        return self.real("x", scale, zero)

    def output(self, x: str, shape: tuple[int, ...], scale: float = 0.04) -> None:
        name = self.integers(x, scale, -5)
        self.outputs.append(helper.make_tensor_value_info(name, TensorProto.INT8, shape))

    def norm(self, x: str, count: int, epsilon: float = 1e-3) -> str:
        """Of rows as short as some of these an epsilon of 1e-5 can be more than a step off (`epsilon_error`)."""
        gain, offset = self.rng.normal(1, 0.2, count), self.rng.normal(0, 0.2, count)
        constants = [self.constant(part.astype(np.float32)) for part in (gain, offset)]
        return self.node("LayerNormalization", x, *constants, axis=-1, epsilon=epsilon)

    def product(self, x: str, count: int, columns: int, scale: float = 0.05) -> str:
        """Of int8 and constant weights, in int8."""
        weights = self.constant(self.rng.integers(-127, 128, (count, columns)).astype(np.int8))
        return self.quantised(self.node("MatMul", x, self.real(weights, 0.01)), scale, 7)

    def model(self) -> onnx.ModelProto:
        graph = helper.make_graph(self.nodes, "streams", self.inputs, self.outputs, self.constants)
        opsets = [helper.make_opsetid("", 21), helper.make_opsetid("com.microsoft", 1)]
        return helper.make_model(graph, opset_imports=opsets, ir_version=10)

    def _quant(self, scale: float, zero: int, dtype: str) -> tuple[str, str]:
        return self.constant(np.array(scale, np.float32)), self.constant(np.array(zero, dtype))

    def _own(self, dtype: str) -> dict[str, Any]:
        return {"domain": self.domain} if dtype == "int16" and self.domain else {}


def pre_norm(tokens: int = 6, channels: int = 24, blocks: int = 2, domain: str = "com.microsoft") -> onnx.ModelProto:
    """Patches, a class token, positions; blocks that are added to the stream; the first row's norm and classes."""
    file = StreamFile(domain=domain)
    patches = file.wide(file.input(1, tokens, channels))
    joined = file.wide(file.node("Concat", file.random(1, 1, channels), patches, axis=1))
    stream = file.wide(file.node("Add", joined, file.random(1, tokens + 1, channels)))
    for _ in range(blocks):
        inner = file.quantised(file.norm(stream, channels), 0.03, -2)
        branch = file.product(file.product(inner, channels, 2 * channels), 2 * channels, channels)
        stream = file.wide(file.node("Add", stream, file.wide(branch)))
    cut = [file.constant(np.array([value], np.int64)) for value in (0, 1, 1)]
    first = file.wide(file.node("Slice", stream, *cut))
    row = file.wide(file.node("Reshape", first, file.constant(np.array([1, channels], np.int64))))
    file.output(file.product(file.quantised(file.norm(row, channels), 0.02), channels, 5), (1, 5))
    return file.model()


def post_norm(tokens: int = 6, channels: int = 24, blocks: int = 2, domain: str = "com.microsoft") -> onnx.ModelProto:
    """Norms behind the sums: they make the stream, which products read in int8."""
    file = StreamFile(seed=1, domain=domain)
    x = file.wide(file.input(1, tokens, channels))
    stream = file.wide(file.norm(file.wide(file.node("Add", x, file.random(tokens, channels))), channels))
    for _ in range(blocks):
        branch = file.product(file.quantised(stream, 0.027, 4), channels, channels)
        stream = file.wide(file.norm(file.wide(file.node("Add", file.wide(branch), stream)), channels))
    file.output(stream, (1, tokens, channels))
    return file.model()


def sums_only(tokens: int = 6, channels: int = 24, domain: str = "com.microsoft") -> onnx.ModelProto:
    """No norm: products of the stream in int8."""
    file = StreamFile(seed=2, domain=domain)
    stream = file.wide(file.input(1, tokens, channels))
    for _ in range(2):
        branch = file.product(file.quantised(stream, 0.027, 4), channels, channels)
        stream = file.wide(file.node("Add", stream, file.wide(branch)))
    turned = file.wide(file.node("Transpose", stream, perm=[0, 2, 1]))
    file.output(turned, (1, channels, tokens))
    return file.model()


def random_stream(seed: int, steps: int = 8, norms: bool = True) -> onnx.ModelProto:
    """Sums, movement, products and perhaps norms in a random order, on [1, rows, channels]. Sums fit 16 bits."""
    file = StreamFile(seed=seed)
    rng = np.random.default_rng(seed)
    rows, channels = (int(size) for size in rng.integers(2, 40, 2))
    streams = [(file.wide(file.input(1, rows, channels)), rows, channels)]
    reach = {streams[0][0]: 5e3}  # of every tensor about the largest element

    def cut(x: str, axis: int, size: int) -> tuple[str, int]:
        first = int(rng.integers(size))
        last = int(rng.integers(first + 1, size + 1))
        ends = [file.constant(np.array([value], np.int64)) for value in (first, last, axis)]
        return file.wide(file.node("Slice", x, *ends)), last - first

    for _ in range(steps):
        x, rows, channels = streams[rng.integers(len(streams))]
        most = reach[x]
        kind = rng.choice(["sum", "constant", "rows", "channels", "cut", "turn", "shape", "product", "norm"])
        if kind == "sum":
            others = [name for name, *sizes in streams if sizes == [rows, channels]]
            other = others[rng.integers(len(others))]
            if most + reach[other] >= LARGEST:
                continue
            x, most = file.wide(file.node("Add", x, other)), most + reach[other]
        elif kind == "constant" and most + 600 < LARGEST:
            most += 600
            shapes = [(channels,), (rows, channels), (1, rows, channels)]
            x = file.wide(file.node("Add", file.random(*shapes[rng.integers(3)]), x))
        elif kind == "rows":
            x, rows = file.wide(file.node("Concat", file.random(1, 2, channels), x, axis=1)), rows + 2
        elif kind == "channels":
            x, channels = file.wide(file.node("Concat", x, file.random(1, rows, 3), x, axis=2)), 2 * channels + 3
        elif kind == "cut" and rng.integers(2):
            x, rows = cut(x, 1, rows)
        elif kind == "cut":
            x, channels = cut(x, 2, channels)
        elif kind == "turn":
            x, rows, channels = file.wide(file.node("Transpose", x, perm=[0, 2, 1])), channels, rows
        elif kind == "shape":
            rows, channels = (1, rows * channels) if rng.integers(2) else (rows * channels, 1)
            x = file.wide(file.node("Reshape", x, file.constant(np.array([1, rows, channels], np.int64))))
        elif kind == "product" and channels < 200:
            x, channels = file.wide(file.product(file.quantised(x, 0.05, 3), channels, 20, 0.2)), 20
            most = 0.2 * 135 / STEP
        elif kind == "norm" and norms:
            x, most = file.wide(file.norm(x, channels)), (2 * channels**0.5 + 1) / STEP
        reach[x] = most
        streams.append((x, rows, channels))
    for x, rows, channels in streams[-2:]:
        file.output(x, (1, rows, channels), 0.06)
    return file.model()
