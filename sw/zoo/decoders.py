"""A language model's decoder, with seeded random weights: one token in, the next one's logits out, and a cache.

Its RMS norms are in float. The caches are inputs and outputs that Dovetail takes as variables.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from onnx import TensorProto, helper

from dovetail.sw.errors import NetworkError
from dovetail.sw.zoo.onnx_builder import LINEAR, Act, Range, in_range
from dovetail.sw.zoo.transformers import TransformerBuilder

OPSET = 23
"""The first with RMSNormalization."""
_IR = 11

SILU = Range("", -0.3, 5.6, 2.0, 1.2)
_BASE = 10_000.0
_HIDDEN = -32.0
"""What is added to the scores of rows behind the position: a share of exp(-32) is nothing in 8 bits."""


class DecoderBuilder(TransformerBuilder):
    """With the layers that only decoders have, for one token.

    Parameters
    ----------
    name, seed: of the network.
    length: rows of the cache.
    depth: channels of a head.
    """

    def __init__(self, name: str, seed: int, length: int, depth: int) -> None:
        super().__init__(name, seed)
        self.length, self.depth = length, depth
        self.inputs = [
            helper.make_tensor_value_info("tokens", TensorProto.INT64, (1, 1)),
            helper.make_tensor_value_info("position", TensorProto.INT64, (1,)),
        ]
        self.outputs: list[Any] = []
        angles = np.outer(np.arange(length), _BASE ** (-np.arange(depth // 2) / (depth // 2)))
        sines = np.sin(angles)
        self.cosine = self.picked("cosine", np.tile(np.cos(angles), 2) * 127, "position", 1 / 127)
        self.sine = self.picked("sine", np.concatenate([-sines, sines], axis=1) * 127, "position", 1 / 127)
        rows = self.constant("rows", np.arange(length))
        self.nodes.append(helper.make_node("Greater", [rows, "position"], ["behind"], "behind"))
        ends = [self.constant(name, np.array(real, np.float32)) for name, real in (("hidden", _HIDDEN), ("seen", 0))]
        self.nodes.append(helper.make_node("Where", ["behind", *ends], ["mask_float"], "mask"))
        self.mask = self.quantised("mask", (length,), -_HIDDEN / 128, 0, 0.0)

    def picked(self, name: str, levels: np.ndarray[Any, Any], index: str, scale: float) -> Act:
        """A row of an int8 table."""
        table = self.constant(f"{name}_table", np.rint(levels).astype(np.int8))
        self.nodes.append(helper.make_node("Gather", [table, index], [name], name, axis=0))
        shape = (1, 1, levels.shape[1]) if index == "tokens" else (1, levels.shape[1])
        return Act(name, shape, float(np.float32(scale)), 0, scale * float(levels.std()))

    def rms_norm(self, name: str, act: Act) -> Act:
        """RMS norm of the last axis, with gains, in float."""
        gain = 1 + 0.1 * self.random.standard_normal(act.shape[-1], dtype=np.float32)
        inputs = [self.dequantised(act), self.constant(f"{name}_gain", gain)]
        self.nodes.append(helper.make_node("RMSNormalization", inputs, [f"{name}_float"], name, axis=-1))
        return self.quantised(name, act.shape, 8 / 255, 0, 1.0)

    def silu(self, name: str, act: Act) -> Act:
        """x * sigmoid(x)"""
        x = self.dequantised(act)
        self.nodes.append(helper.make_node("Sigmoid", [x], [f"{name}_sigmoid"], f"{name}_sigmoid"))
        self.nodes.append(helper.make_node("Mul", [x, f"{name}_sigmoid"], [f"{name}_float"], name))
        return self.activated(name, act.shape, SILU)

    def rotated(self, name: str, act: Act, result: Range) -> Act:
        """Rotary positions: halves of a head are the coordinates of points, which turn by angles times the position."""
        halves = [f"{name}_{part}" for part in ("low", "high")]
        x = self.dequantised(act)
        self.nodes.append(helper.make_node("Split", [x], halves, f"{name}_split", axis=3, num_outputs=2))
        self.nodes.append(helper.make_node("Concat", halves[::-1], [f"{name}_turned_float"], f"{name}_turned", axis=3))
        turned = self.quantised(f"{name}_turned", act.shape, act.scale, act.zero, act.rms)
        straight = self.multiply(f"{name}_straight", act, self.cosine, result)
        across = self.multiply(f"{name}_across", turned, self.sine, result)
        return self.add(name, straight, across, result)

    def kept_rows(self, name: str, new: Act) -> Act:
        """The cache with the new row at the position."""
        shape = (1, new.shape[1], self.length, self.depth)
        past, present = f"past_{name}", f"present_{name}"
        self.inputs.append(helper.make_tensor_value_info(past, TensorProto.INT8, shape))
        self.outputs.append(helper.make_tensor_value_info(present, TensorProto.INT8, shape))
        if not any(node.name == "place" for node in self.nodes):
            sizes = self.constant("place_sizes", np.array(new.shape))
            self.nodes.append(helper.make_node("Expand", ["position", sizes], ["place"], "place"))
        act = Act(past, shape, new.scale, new.zero, new.rms)
        inputs = [self.dequantised(act), "place", self.dequantised(new)]
        self.nodes.append(helper.make_node("ScatterElements", inputs, [f"{present}_float"], present, axis=2))
        whole = self.quantised(present, shape, new.scale, new.zero, new.rms)
        self.nodes[-1].output[0] = present
        return Act(present, shape, whole.scale, whole.zero, whole.rms)

    def masked_softmax(self, name: str, scores: Act, most: float) -> Act:
        """Softmax over the rows up to the position; ``most``: the largest score. Scores of the others saturate so far
        below it that their shares are nothing."""
        result = self.exact_sum(scores, self.mask, Range("", most + 1.25 * _HIDDEN, most, scores.rms, scores.rms))
        return self.softmax(name, self.add(f"{name}_masked", scores, self.mask, result))

    def finish_decoder(self, act: Act) -> bytes:
        """The file."""
        self.nodes[-1].output[0] = "logits"
        outputs = [helper.make_tensor_value_info("logits", TensorProto.INT8, act.shape), *self.outputs]
        return self.written(self.inputs, outputs, OPSET, _IR)


def decoder_tiny(
    depth: int = 5,
    channels: int = 64,
    heads: int = 8,
    groups: int = 4,
    hidden: int = 172,
    words: int = 512,
    length: int = 256,
    seed: int = 17,
) -> bytes:
    """Llama's decoder in the size of stories260K, one token in each run: `groups` heads of keys and values, rotary
    positions, a gated feed-forward layer; inputs: number of the token and position."""
    for name, value, least, most in (
        ("depth", depth, 1, 1000),
        ("heads", heads, 1, 64),
        ("groups", groups, 1, heads),
        ("channels", channels, 2 * heads, 4096),
        ("hidden", hidden, 1, 65536),
        ("words", words, 1, 100_000),
        ("length", length, 1, 4096),
    ):
        in_range(name, value, least, most)
    if channels % (2 * heads):
        raise NetworkError(f"channels must be a multiple of 2 * heads, {2 * heads}, not {channels}")
    if heads % groups:
        raise NetworkError(f"heads must be a multiple of groups, {groups}, not {heads}")
    build = DecoderBuilder("decoder_tiny", seed, length, channels // heads)
    levels = np.clip(40 * build.random.standard_normal((words, channels), dtype=np.float32), -128, 127)
    act = build.picked("embedding", levels, "tokens", 1 / 40)
    for layer in range(depth):
        normed = build.rms_norm(f"layer{layer}_norm1", act)
        act = build.residual(f"layer{layer}_add1", act, _attention(build, layer, normed, heads, groups))
        normed = build.rms_norm(f"layer{layer}_norm2", act)
        act = build.residual(f"layer{layer}_add2", act, _gated(build, f"layer{layer}_", normed, hidden))
    return build.finish_decoder(build.matmul("logits", build.rms_norm("norm", act), words, LINEAR))


def _attention(build: DecoderBuilder, layer: int, start: Act, heads: int, groups: int) -> Act:
    """The token's row attends to all rows up to its own. The factor of the scores is in the queries' weights."""
    prefix, channels = f"layer{layer}_", start.shape[-1]
    fine = LINEAR.times(1 / build.depth**0.5)

    def part(name: str, count: int, result: Range) -> Act:
        act = build.matmul(f"{prefix}{name}", start, count * build.depth, result)
        apart = build.reshape(f"{prefix}{name}_heads", act, (1, 1, count, build.depth))
        return build.transpose(f"{prefix}{name}_apart", apart, (0, 2, 1, 3))

    query = build.rotated(f"{prefix}query_rotated", part("query", heads, fine), fine)
    key = build.rotated(f"{prefix}key_rotated", part("key", groups, LINEAR), LINEAR)
    keys = build.kept_rows(f"k_{layer}", key)
    values = build.kept_rows(f"v_{layer}", part("value", groups, LINEAR))
    query = build.reshape(f"{prefix}query_groups", query, (1, groups, heads // groups, build.depth))
    wide = LINEAR.rms**2
    turned = build.transpose(f"{prefix}keys_turned", keys, (0, 1, 3, 2))
    scores = build.product(f"{prefix}scores", query, turned, Range("", -3 * wide, 3 * wide, wide, wide))
    mixed = build.product(f"{prefix}mix", build.masked_softmax(f"{prefix}softmax", scores, 3 * wide), values, LINEAR)
    joined = build.reshape(f"{prefix}mix_joined", mixed, (1, 1, channels))
    return build.matmul(f"{prefix}output_dense", joined, channels, LINEAR)


def _gated(build: DecoderBuilder, prefix: str, act: Act, hidden: int) -> Act:
    """w2(silu(w1 x) * w3 x)"""
    gate = build.silu(f"{prefix}silu", build.matmul(f"{prefix}gate", act, hidden, LINEAR))
    product = build.multiply(f"{prefix}gated", gate, build.matmul(f"{prefix}widen", act, hidden, LINEAR), LINEAR)
    return build.matmul(f"{prefix}narrow", product, act.shape[-1], LINEAR)
