"""Transformers of the zoo, with seeded random weights; layer norms are in float.

Attention's factor is part of the queries' scale, so that their products are softmax's operands as they are: ONNX
Runtime computes it on integers then.
"""

from __future__ import annotations

import numpy as np
from onnx import helper

from dovetail.sw.errors import NetworkError
from dovetail.sw.zoo.onnx_builder import LINEAR, RELU, Act, Builder, Range, in_range

GELU = Range("", -0.2, 5.6, 2.0, 1.3)

OPSET = 17
"""The first with LayerNormalization."""


class TransformerBuilder(Builder):
    """With the layers that only transformers have."""

    def softmax(self, name: str, act: Act, axis: int = -1) -> Act:
        """Softmax along an axis, by default the last one."""
        self.nodes.append(helper.make_node("Softmax", [self.dequantised(act)], [f"{name}_float"], name=name, axis=axis))
        return self.quantised(name, act.shape, 1 / 256, -128, 0.2)

    def layer_norm(self, name: str, act: Act) -> Act:
        """Layer norm of the last axis, with gains and offsets, in float."""
        gain = 1 + 0.1 * self.random.standard_normal(act.shape[-1], dtype=np.float32)
        offset = 0.1 * self.random.standard_normal(act.shape[-1], dtype=np.float32)
        inputs = [
            self.dequantised(act),
            self.constant(f"{name}_gain", gain),
            self.constant(f"{name}_offset", offset),
        ]
        self.nodes.append(helper.make_node("LayerNormalization", inputs, [f"{name}_float"], name=name, axis=-1))
        return self.quantised(name, act.shape, 8 / 255, 0, 1.0)

    def gelu(self, name: str, act: Act) -> Act:
        """x / 2 * (1 + erf(x / sqrt 2)), as exporters write it."""
        constants = {"root": np.sqrt(2), "one": 1, "half": 0.5}
        root, one, half = (
            self.constant(f"{name}_{key}", np.array(value, np.float32)) for key, value in constants.items()
        )
        x = self.dequantised(act)
        for op, inputs, result in (
            ("Div", [x, root], "scaled"),
            ("Erf", [f"{name}_scaled"], "erf"),
            ("Add", [f"{name}_erf", one], "raised"),
            ("Mul", [x, f"{name}_raised"], "product"),
            ("Mul", [f"{name}_product", half], "float"),
        ):
            self.nodes.append(helper.make_node(op, inputs, [f"{name}_{result}"], name=f"{name}_{result}"))
        return self.activated(name, act.shape, GELU)

    def product(self, name: str, a: Act, b: Act, result: Range) -> Act:
        """Matrix product of two activations."""
        return self.operator("MatMul", name, [a, b], (*a.shape[:-1], b.shape[-1]), result)

    def first_row(self, name: str, act: Act) -> Act:
        """(1, N, C) -> (1, 1, C)"""
        ends = {"from": 0, "to": 1, "axis": 1}
        bounds = [self.constant(f"{name}_{key}", np.array([value])) for key, value in ends.items()]
        return self.kept("Slice", name, act, (1, 1, act.shape[2]), bounds)

    def parameter(self, name: str, like: Act, shape: tuple[int, ...]) -> Act:
        """A learnt constant, distributed and quantised as `like`."""
        levels = self.random.standard_normal(shape, dtype=np.float32) * (like.rms / like.scale) + like.zero
        self.constant(name, np.clip(np.rint(levels), -128, 127).astype(np.int8))
        return Act(name, shape, like.scale, like.zero, like.rms)


def attention_block(tokens: int = 16, channels: int = 32, heads: int = 2, seed: int = 9) -> bytes:
    """Self-attention with a residual; input (1, tokens, channels)."""
    _check(channels, heads)
    in_range("tokens", tokens, 1, 4096)
    build = TransformerBuilder("attention_block", seed)
    start = build.start((1, tokens, channels), 1 / 32, 0)
    return build.finish(build.add("residual", start, _attention(build, "", start, heads), LINEAR))


def vit_tiny(
    depth: int = 12,
    channels: int = 192,
    heads: int = 3,
    patch: int = 16,
    resolution: int = 224,
    classes: int = 1000,
    seed: int = 14,
) -> bytes:
    """ViT-tiny with patches of 16 x 16 and a class token: 1.25 G MACs; input (1, 3, resolution, resolution)."""
    _check(channels, heads)
    in_range("depth", depth, 1, 1000)
    in_range("patch", patch, 1, 64)
    in_range("resolution", resolution, patch, 1024)
    in_range("classes", classes, 1, 100_000)
    if resolution % patch:
        raise NetworkError(f"resolution must be a multiple of patch, {patch}, not {resolution}")
    build = TransformerBuilder("vit_tiny", seed)
    act = build.start((1, 3, resolution, resolution), 1 / 32, 0)
    act = build.conv("patches", act, channels, (patch, patch), patch, LINEAR)
    tokens = act.shape[2] * act.shape[3]
    act = build.transpose("tokens", build.reshape("rows", act, (1, channels, tokens)), (0, 2, 1))
    act = _embedded(build, act)
    for layer in range(depth):
        name = f"layer{layer}_"
        normed = build.layer_norm(f"{name}norm1", act)
        act = build.residual(f"{name}add1", act, _attention(build, name, normed, heads))
        normed = build.layer_norm(f"{name}norm2", act)
        act = build.residual(f"{name}add2", act, _feed_forward(build, name, normed))
    act = build.flatten("class", build.first_row("class_row", build.layer_norm("norm", act)))
    return build.finish(build.dense("logits", act, classes, LINEAR), OPSET)


def bert_tiny(depth: int = 2, channels: int = 128, heads: int = 2, tokens: int = 128, seed: int = 15) -> bytes:
    """Encoder of BERT-tiny: 58.7 M MACs; input: embeddings, (1, tokens, channels)."""
    _check(channels, heads)
    in_range("depth", depth, 1, 1000)
    in_range("tokens", tokens, 1, 4096)
    build = TransformerBuilder("bert_tiny", seed)
    act = build.start((1, tokens, channels), 1 / 64, 0)
    for layer in range(depth):
        act = _post_norm_layer(build, f"layer{layer}_", act, heads)
    return build.finish(act, OPSET)


def kwt(depth: int = 12, channels: int = 64, heads: int = 1, classes: int = 35, seed: int = 16) -> bytes:
    """Keyword transformer KWT-1 on 98 frames of 40 coefficients, norms behind the sums: 73.7 M MACs; 128 channels and 2
    heads are KWT-2, 192 and 3 KWT-3; input (1, 98, 40)."""
    _check(channels, heads)
    in_range("depth", depth, 1, 1000)
    in_range("classes", classes, 1, 100_000)
    build = TransformerBuilder("kwt", seed)
    act = build.matmul("frames", build.start((1, 98, 40), 1 / 32, 0), channels, LINEAR)
    act = _embedded(build, act)
    for layer in range(depth):
        act = _post_norm_layer(build, f"layer{layer}_", act, heads)
    act = build.flatten("class", build.layer_norm("norm", build.first_row("class_row", act)))
    return build.finish(build.dense("logits", act, classes, LINEAR), OPSET)


def cct(
    depth: int = 2, channels: int = 128, heads: int = 2, resolution: int = 32, classes: int = 10, seed: int = 17
) -> bytes:
    """Compact convolutional transformer CCT-2 with one convolution of 7 x 7, whose tokens are pooled by a softmax over
    the sequence: 19.5 M MACs; input (1, 3, resolution, resolution)."""
    _check(channels, heads)
    in_range("depth", depth, 1, 1000)
    in_range("resolution", resolution, 4, 1024)
    in_range("classes", classes, 1, 100_000)
    build = TransformerBuilder("cct", seed)
    act = build.start((1, 3, resolution, resolution), 1 / 32, 0)
    act = build.conv("patches", act, channels, (7, 7), 2, RELU, centred=True)
    act = build.max_pool("patches_pool", act, 3, 2)
    tokens = act.shape[2] * act.shape[3]
    act = build.transpose("tokens", build.reshape("rows", act, (1, channels, tokens)), (0, 2, 1))
    for layer in range(depth):
        name = f"layer{layer}_"
        normed = build.layer_norm(f"{name}norm1", act)
        act = build.residual(f"{name}add1", act, _attention(build, name, normed, heads))
        normed = build.layer_norm(f"{name}norm2", act)
        act = build.residual(f"{name}add2", normed, _feed_forward(build, name, normed, 1))
    act = build.layer_norm("norm", act)
    weights = build.softmax("softmax", build.matmul("importance", act, 1, LINEAR), 1)
    act = build.product("pool", build.transpose("importance_turned", weights, (0, 2, 1)), act, LINEAR.times(0.25))
    return build.finish(build.dense("logits", build.flatten("pooled", act), classes, LINEAR), OPSET)


def _embedded(build: TransformerBuilder, rows: Act) -> Act:
    """A class token in front of the rows, and positions."""
    act = build.concat("classed", build.parameter("class_token", rows, (1, 1, rows.shape[-1])), rows)
    return build.residual("embedded", act, build.parameter("positions", act, act.shape))


def _post_norm_layer(build: TransformerBuilder, prefix: str, act: Act, heads: int) -> Act:
    """An encoder's layer, with norms behind the sums."""
    act = build.residual(f"{prefix}add1", act, _attention(build, prefix, act, heads))
    act = build.layer_norm(f"{prefix}norm1", act)
    act = build.residual(f"{prefix}add2", act, _feed_forward(build, prefix, act))
    return build.layer_norm(f"{prefix}norm2", act)


def _attention(build: TransformerBuilder, prefix: str, start: Act, heads: int) -> Act:
    """Multi-head self-attention with its output projection."""
    _, tokens, channels = start.shape
    depth = channels // heads

    def part(name: str, perm: tuple[int, ...], result: Range = LINEAR) -> Act:
        act = build.matmul(f"{prefix}{name}", start, channels, result)
        apart = build.reshape(f"{prefix}{name}_heads", act, (1, tokens, heads, depth))
        return build.transpose(f"{prefix}{name}_turned", apart, perm)

    factor = 0.5 / depth**0.5
    query = part("query", (0, 2, 1, 3), LINEAR.times(factor))
    key, value = part("key", (0, 2, 3, 1)), part("value", (0, 2, 1, 3))
    wide = factor * 4.0 * depth**0.5
    scores = build.product(f"{prefix}scores", query, key, Range("", -3 * wide, 3 * wide, wide, wide))
    weights = build.softmax(f"{prefix}softmax", scores)
    act = build.product(f"{prefix}mix", weights, value, LINEAR)
    turned = build.transpose(f"{prefix}mix_turned", act, (0, 2, 1, 3))
    act = build.reshape(f"{prefix}mix_joined", turned, (1, tokens, channels))
    return build.matmul(f"{prefix}output_dense", act, channels, LINEAR)


def _feed_forward(build: TransformerBuilder, prefix: str, act: Act, ratio: int = 4) -> Act:
    """Two layers with GELU between them, of ``ratio`` times the channels."""
    channels = act.shape[-1]
    act = build.gelu(f"{prefix}gelu", build.matmul(f"{prefix}widen", act, ratio * channels, LINEAR))
    return build.matmul(f"{prefix}narrow", act, channels, LINEAR)


def _check(channels: int, heads: int) -> None:
    in_range("heads", heads, 1, 64)
    in_range("channels", channels, heads, 4096)
    if channels % heads:
        raise NetworkError(f"channels must be a multiple of heads, {heads}, not {channels}")
