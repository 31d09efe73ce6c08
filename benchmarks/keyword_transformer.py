"""A float keyword transformer as PyTorch exports one, with random weights: what transformers lose by quantisation.

Of the shape of the published KWT-1 (98 spectra of 40 features, a class token, learnt positions, 12 blocks of 64
channels with one head, normalised behind their sums), weights uniform as PyTorch starts them.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import TensorProto, helper, numpy_helper

Reals = NDArray[np.float32]


def keyword_transformer(
    depth: int = 12, width: int = 64, tokens: int = 98, features: int = 40, classes: int = 35, learnt: float = 1.0
) -> onnx.ModelProto:
    """The network; input `x` (1, tokens, features), output `logits` (1, classes).

    `learnt` is the standard deviation of the class token and of the positions.
    """
    net = _Net(1)
    x = net.linear("embedding", "x", features, width)
    x = net.op("classed", "Concat", net.normal(learnt, 1, 1, width), x, axis=1)
    x = net.op("positioned", "Add", x, net.normal(learnt, 1, tokens + 1, width))
    for block in range(depth):
        name = f"block{block}_"
        x = net.norm(f"{name}norm1", net.op(f"{name}sum1", "Add", net.attention(name, x, width), x), width)
        hidden = net.gelu(f"{name}gelu", net.linear(f"{name}widen", x, width, 4 * width))
        narrow = net.linear(f"{name}narrow", hidden, 4 * width, width)
        x = net.norm(f"{name}norm2", net.op(f"{name}sum2", "Add", narrow, x), width)
    x = net.norm("norm", net.op("class_row", "Gather", x, net.constant(np.array(0)), axis=1), width)
    net.linear("logits", x, width, classes)
    return net.model((1, tokens, features), (1, classes))


class _Net:
    def __init__(self, seed: int) -> None:
        self.random = np.random.default_rng(seed)
        self.nodes: list[onnx.NodeProto] = []
        self.constants: list[onnx.TensorProto] = []

    def op(self, name: str, kind: str, *inputs: str, **attributes: Any) -> str:
        self.nodes.append(helper.make_node(kind, inputs, [name], name, **attributes))
        return name

    def constant(self, values: NDArray[Any]) -> str:
        self.constants.append(numpy_helper.from_array(values, f"constant{len(self.constants)}"))
        return str(self.constants[-1].name)

    def real(self, value: float) -> str:
        return self.constant(np.array(value, np.float32))

    def normal(self, spread: float, *shape: int) -> str:
        return self.constant(self.random.normal(0, spread, shape).astype(np.float32))

    def uniform(self, reach: float, *shape: int) -> str:
        return self.constant(self.random.uniform(-reach, reach, shape).astype(np.float32))

    def linear(self, name: str, x: str, width: int, channels: int) -> str:
        reach = width**-0.5
        product = self.op(f"{name}_product", "MatMul", x, self.uniform(reach, width, channels))
        return self.op(name, "Add", product, self.uniform(reach, channels))

    def norm(self, name: str, x: str, width: int) -> str:
        gain, offset = self.constant(np.ones(width, np.float32)), self.constant(np.zeros(width, np.float32))
        return self.op(name, "LayerNormalization", x, gain, offset, axis=-1)

    def gelu(self, name: str, x: str) -> str:
        erf = self.op(f"{name}_erf", "Erf", self.op(f"{name}_scaled", "Div", x, self.real(2**0.5)))
        product = self.op(f"{name}_product", "Mul", x, self.op(f"{name}_raised", "Add", erf, self.real(1)))
        return self.op(name, "Mul", product, self.real(0.5))

    def attention(self, name: str, x: str, width: int) -> str:
        query, key, value = (
            self.op(f"{name}{part}", "MatMul", x, self.uniform(width**-0.5, width, width))
            for part in ("query", "key", "value")
        )
        turned = self.op(f"{name}turned", "Transpose", key, perm=[0, 2, 1])
        scores = self.op(f"{name}scores", "MatMul", query, turned)
        scaled = self.op(f"{name}scaled", "Mul", scores, self.real(width**-0.5))
        mixed = self.op(f"{name}mix", "MatMul", self.op(f"{name}softmax", "Softmax", scaled, axis=-1), value)
        return self.linear(f"{name}output", mixed, width, width)

    def model(self, shape: tuple[int, ...], result: tuple[int, ...]) -> onnx.ModelProto:
        x = helper.make_tensor_value_info("x", TensorProto.FLOAT, shape)
        y = helper.make_tensor_value_info("logits", TensorProto.FLOAT, result)
        graph = helper.make_graph(self.nodes, "keyword_transformer", [x], [y], self.constants)
        return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def spectra(count: int, first: int = 0, tokens: int = 98, features: int = 40) -> list[dict[str, Reals]]:
    """Normally distributed inputs; others from another `first`."""
    shape = (1, tokens, features)
    seeds = range(first, first + count)
    return [{"x": np.random.default_rng(seed).normal(size=shape).astype(np.float32)} for seed in seeds]
