"""ONNX Runtime's own operators of transformers, spelled out in standard ones: norms with the sum in front of them,
rotary positions, attention.

Only float networks are changed: in a quantised one these nodes are the runtime's, whose rounding they have. What an
operator computes is in ONNX Runtime's ContribOperators.md.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import onnx
from onnx import helper, numpy_helper

from dovetail.sw.errors import NetworkError
from dovetail.sw.host.onnx_session import set_nodes
from dovetail.sw.network.layout import Array, Shape
from dovetail.sw.network.names import unused
from dovetail.sw.passes.float.model_proto import opset_of

DOMAIN = "com.microsoft"
RMS_NORM = "SimplifiedLayerNormalization"
"""ONNX Runtime's RMS norm, in the standard's own domain."""


def spell_out(model: onnx.ModelProto) -> bool:
    """Replace the operators, in place; returns whether there was one.

    Raises
    ------
    NetworkError: an operator has an input or attribute whose meaning is not spelled out here; the text names it.
    """
    found = [node for node in model.graph.node if _known(node)]
    if found:
        _Spelling(model).run()
    return bool(found)


def _known(node: onnx.NodeProto) -> bool:
    return node.op_type in _SPELLED and node.domain == ("" if node.op_type == RMS_NORM else DOMAIN)


class _Spelling:
    """The change of one model."""

    def __init__(self, model: onnx.ModelProto) -> None:
        self.model, self.graph = model, model.graph
        self.opset = opset_of(model)
        self.constants = {tensor.name: tensor for tensor in self.graph.initializer}
        self.names = {name for node in self.graph.node for name in node.output} | {*self.constants}
        self.names |= {value.name for value in self.graph.input}
        self.nodes: list[onnx.NodeProto] = []

    def run(self) -> None:
        read = {name for node in self.graph.node for name in node.input}
        for node in self.graph.node:
            if _known(node):
                _SPELLED[node.op_type](self, _Node(node))
            else:
                self.nodes.append(node)
        set_nodes(self.graph, self.nodes)
        still = {name for node in self.graph.node for name in node.input}
        kept = [value for value in self.graph.input if value.name in still or value.name not in read]
        del self.graph.input[:]
        self.graph.input.extend(kept)

    def add(self, kind: str, result: str, *inputs: str, count: int = 0, **attributes: Any) -> str:
        """A node; ``result``: name of its output, a new one where that is taken; ``count``: of outputs, if several."""
        names = [self._new(f"{result}_{k}") for k in range(count)] if count else [self._new(result)]
        self.nodes.append(helper.make_node(kind, inputs, names, names[0], **attributes))
        return names[0]

    def _new(self, wanted: str) -> str:
        name = unused(wanted, self.names)
        self.names.add(name)
        return name

    def give(self, name: str, value: str) -> None:
        """Let a value have the name that a replaced node's output had."""
        if name:
            self.nodes.append(helper.make_node("Identity", [value], [name], name))

    def constant(self, wanted: str, value: Array) -> str:
        """A new constant."""
        name = self._new(wanted)
        self.constants[name] = numpy_helper.from_array(value, name)
        self.graph.initializer.append(self.constants[name])
        return name

    def shape(self, name: str) -> Shape:
        """Sizes of a tensor made so far; empty where they are not known."""
        part = onnx.ModelProto()
        part.CopyFrom(self.model)
        del part.graph.node[:]
        part.graph.node.extend(self.nodes)
        del part.graph.output[:]
        part.graph.output.append(onnx.ValueInfoProto(name=name))
        inferred = onnx.shape_inference.infer_shapes(part, data_prop=True).graph
        for value in (*inferred.input, *inferred.value_info, *inferred.output):
            if value.name == name and value.type.tensor_type.HasField("shape"):
                return tuple(dim.dim_value for dim in value.type.tensor_type.shape.dim)
        return ()

    # Pieces ------------------------------------------------------------------------------------------

    def reshape(self, result: str, value: str, *sizes: int) -> str:
        """Sizes of 0 stay, one of -1 is what is left."""
        return self.add("Reshape", result, value, self.constant(f"{result}/sizes", np.array(sizes, np.int64)))

    def heads(self, result: str, value: str, count: int) -> str:
        """(1, rows, heads * depth) -> (1, heads, rows, depth)"""
        apart = self.reshape(f"{result}/apart", value, 0, 0, count, -1)
        return self.add("Transpose", f"{result}/heads", apart, perm=[0, 2, 1, 3])

    def joined(self, result: str, value: str) -> str:
        """The other way round."""
        turned = self.add("Transpose", f"{result}/turned", value, perm=[0, 2, 1, 3])
        return self.reshape(f"{result}/joined", turned, 0, 0, -1)

    def rms_norm(self, result: str, value: str, gain: str, epsilon: float) -> str:
        """x / sqrt(mean(x^2) + epsilon) * gain"""
        square = self.add("Mul", f"{result}/square", value, value)
        if self.opset < 18:
            mean = self.add("ReduceMean", f"{result}/mean", square, axes=[-1], keepdims=1)
        else:
            axes = self.constant(f"{result}/axes", np.array([-1], np.int64))
            mean = self.add("ReduceMean", f"{result}/mean", square, axes, keepdims=1)
        raised = self.add(
            "Add", f"{result}/raised", mean, self.constant(f"{result}/epsilon", np.array(epsilon, np.float32))
        )
        quotient = self.add("Div", f"{result}/quotient", value, self.add("Sqrt", f"{result}/root", raised))
        return self.add("Mul", f"{result}/scaled", quotient, gain)

    def summed(self, result: str, values: Sequence[str]) -> str:
        """The sum of all that are given."""
        total = values[0]
        for value in filter(None, values[1:]):
            total = self.add("Add", f"{result}/sum", total, value)
        return total

    def rotated(self, result: str, value: str, places: str, tables: Sequence[str]) -> str:
        """Rotary positions of (1, heads, rows, depth): x * cos + (-second half, first half) * sin."""
        halves = {"num_outputs": 2} if self.opset >= 18 else {}
        low = self.add("Split", f"{result}/half", value, count=2, axis=3, **halves)
        high = self.nodes[-1].output[1]
        turned = self.add("Concat", f"{result}/turned", self.add("Neg", f"{result}/negated", high), low, axis=3)
        rows = []
        for name, table in zip(("cos", "sin"), tables, strict=True):
            if table in self.constants:
                values = numpy_helper.to_array(self.constants[table])
                twice = self.constant(f"{result}/{name}_table", np.concatenate([values, values], axis=1))
            else:
                twice = self.add("Concat", f"{result}/{name}_table", table, table, axis=1)
            rows.append(self.add("Gather", f"{result}/{name}", twice, places, axis=0))
        straight = self.add("Mul", f"{result}/straight", value, rows[0])
        across = self.add("Mul", f"{result}/across", turned, rows[1])
        return self.add("Add", f"{result}/rotated", straight, across)

    def attended(self, node: _Node, query: str, key: str, value: str, bias: str = "") -> str:
        """softmax(query * key^T * scale + bias) * value, of (1, heads, rows, depth)."""
        result = node.outputs[0]
        scale = node.number("scale", 0.0)
        if not scale:
            depth = (self.shape(query) or (0,))[-1]
            if not depth:
                raise node.error("query must have a known size; export with static shapes")
            scale = depth**-0.5
        turned = self.add("Transpose", f"{result}/keys", key, perm=[0, 1, 3, 2])
        scores = self.add("MatMul", f"{result}/scores", query, turned)
        scores = self.add(
            "Mul", f"{result}/factor", scores, self.constant(f"{result}/scale", np.array(scale, np.float32))
        )
        if bias:
            scores = self.add("Add", f"{result}/biased", scores, bias)
        return self.add("MatMul", f"{result}/mixed", self.add("Softmax", f"{result}/shares", scores, axis=-1), value)

    def appended(self, past: str, new: str, present: str) -> str:
        """A cache with new rows behind its own."""
        if not past:
            self.give(present, new)
            return new
        name = present or self._new(f"{new}/present")
        self.nodes.append(helper.make_node("Concat", [past, new], [name], name, axis=2))
        return name

    # Operators ---------------------------------------------------------------------------------------

    def simplified(self, node: _Node) -> None:
        """SimplifiedLayerNormalization."""
        node.check({"axis": -1, "epsilon": None, "stash_type": 1}, outputs=1)
        result = self.rms_norm(node.outputs[0], node.input(0), node.input(1), node.number("epsilon", 1e-5))
        self.give(node.outputs[0], result)

    def skip_simplified(self, node: _Node) -> None:
        """SkipSimplifiedLayerNormalization: of the sum of two tensors, and a bias."""
        node.check({"epsilon": None})
        total = self.summed(node.outputs[0], [node.input(0), node.input(1), node.input(3)])
        result = self.rms_norm(node.outputs[0], total, node.input(2), node.number("epsilon", 1e-12))
        self._skipped(node, result, total)

    def skip_norm(self, node: _Node) -> None:
        """SkipLayerNormalization: the same with a layer norm."""
        node.check({"epsilon": None})
        total = self.summed(node.outputs[0], [node.input(0), node.input(1), node.input(4)])
        inputs = [total, node.input(2), *filter(None, [node.input(3)])]
        epsilon = node.number("epsilon", 1e-12)
        result = self.add("LayerNormalization", f"{node.outputs[0]}/norm", *inputs, axis=-1, epsilon=epsilon)
        self._skipped(node, result, total)

    def _skipped(self, node: _Node, result: str, total: str) -> None:
        if any(node.outputs[1:3]):
            raise node.error("mean and deviation must not be read; export for inference")
        self.give(node.outputs[0], result)
        if len(node.outputs) > 3:
            self.give(node.outputs[3], total)

    def rotary(self, node: _Node) -> None:
        """RotaryEmbedding."""
        known = {"interleaved": 0, "rotary_embedding_dim": 0, "scale": 1.0, "is_packed_batching": 0, "num_heads": None}
        node.check(known)
        result, heads = node.outputs[0], int(node.number("num_heads", 0))
        value = self.heads(result, node.input(0), heads) if heads else node.input(0)
        rows, places = self.shape(value), self.shape(node.input(1))
        if len(rows) != 4 or len(places) not in (1, 2):
            raise node.error("sizes of input and positions must be known; export with static shapes")
        flat = self.reshape(f"{result}/places", node.input(1), -1)
        if len(places) == 1 and rows[2] > 1:  # the first position; the others follow
            flat = self.add("Add", f"{result}/all_places", flat, self.constant(f"{result}/rows", np.arange(rows[2])))
        turned = self.rotated(result, value, flat, (node.input(2), node.input(3)))
        self.give(result, self.joined(result, turned) if heads else turned)

    def multi_head(self, node: _Node) -> None:
        """MultiHeadAttention on three tensors, with a bias of the scores and a cache."""
        node.check({"num_heads": None, "scale": None, "unidirectional": 0, "mask_filter_value": None})
        node.without({4: "key_padding_mask", 8: "past_sequence_length", 9: "cache_indirection"})
        if not (node.input(1) and node.input(2)):
            raise node.error("query, key and value must be inputs of their own; export them apart")
        count, result = int(node.number("num_heads", 0)), node.outputs[0]
        values = [node.input(k) for k in range(3)]
        if node.input(3):
            widths = [(self.shape(value) or (0,))[-1] for value in values]
            sizes = self.constant(f"{result}/widths", np.array(widths, np.int64))
            first = self.add("Split", f"{result}/bias", node.input(3), sizes, count=3, axis=0)
            biases = [first, *self.nodes[-1].output[1:]]
            values = [self.add("Add", f"{v}/biased", v, b) for v, b in zip(values, biases, strict=True)]
        query, key, value = (
            self.heads(f"{result}/{name}", each, count)
            for name, each in zip(("query", "key", "value"), values, strict=True)
        )
        presents = [*node.outputs[1:3], "", ""]
        key, value = (self.appended(node.input(6 + k), each, presents[k]) for k, each in enumerate((key, value)))
        self.give(result, self.joined(result, self.attended(node, query, key, value, node.input(5))))

    def attention(self, node: _Node) -> None:
        """Attention: the product with the weights of queries, keys and values, too."""
        node.check({"num_heads": None, "scale": None, "unidirectional": 0, "do_rotary": 0, "mask_filter_value": None})
        node.without({3: "mask_index", 4: "past", 6: "past_sequence_length"})
        if node.attributes.get("qkv_hidden_sizes"):
            raise node.error("queries, keys and values must be equally wide; leave out qkv_hidden_sizes")
        result, count = node.outputs[0], int(node.number("num_heads", 0))
        product = self.add("MatMul", f"{result}/product", node.input(0), node.input(1))
        product = self.summed(result, [product, node.input(2)])
        parts = {"num_outputs": 3} if self.opset >= 18 else {}
        self.add("Split", f"{result}/part", product, count=3, axis=2, **parts)
        query, key, value = (self.heads(name, name, count) for name in [*self.nodes[-1].output])
        self.give(result, self.joined(result, self.attended(node, query, key, value, node.input(5))))

    def group_query(self, node: _Node) -> None:
        """GroupQueryAttention of one token: queries that share keys and values, rotary positions, a cache."""
        fixed = {"rotary_interleaved": 0, "local_window_size": -1, "softcap": 0.0, "smooth_softmax": 0, "qk_output": 0}
        own = {"num_heads": None, "kv_num_heads": None, "scale": None, "do_rotary": None}
        node.check({**fixed, **own})
        node.without({9: "position_ids", 10: "attention_bias", 11: "head_sink", 12: "k_scale", 13: "v_scale"})
        if not (node.input(1) and node.input(2)):
            raise node.error("query, key and value must be inputs of their own; export them apart")
        rows = self.shape(node.input(0))
        if len(rows) != 3 or rows[:2] != (1, 1):
            raise node.error(f"query must be of one token, (1, 1, C), not {rows}; export a step of one token")
        result, groups, count = node.outputs[0], int(node.number("kv_num_heads", 0)), int(node.number("num_heads", 0))
        query, key, value = (
            self.heads(f"{result}/{name}", node.input(k), count if k == 0 else groups)
            for k, name in enumerate(("query", "key", "value"))
        )
        if node.number("do_rotary", 0):
            place = self.reshape(f"{result}/place", node.input(5), -1)
            tables = node.input(7), node.input(8)
            query, key = (self.rotated(f"{each}/rope", each, place, tables) for each in (query, key))
        presents = [*node.outputs[1:3], "", ""]
        key, value = (self.appended(node.input(3 + k), each, presents[k]) for k, each in enumerate((key, value)))
        shared = self.reshape(f"{result}/groups", query, 1, groups, count // groups, -1)
        self.give(result, self.reshape(f"{result}/joined", self.attended(node, shared, key, value), 1, 1, -1))


class _Node:
    """A node that is replaced."""

    def __init__(self, proto: onnx.NodeProto) -> None:
        self.proto = proto
        self.outputs = [*proto.output]
        self.attributes = {a.name: helper.get_attribute_value(a) for a in proto.attribute}

    def input(self, index: int) -> str:
        """Name of an input, "" if left out."""
        return self.proto.input[index] if index < len(self.proto.input) else ""

    def number(self, name: str, default: float) -> float:
        """An attribute."""
        return float(self.attributes.get(name, default))

    def error(self, text: str) -> NetworkError:
        """What is wrong with the node."""
        return NetworkError(f"node {self.proto.name or self.outputs[0]!r} ({self.proto.op_type}): {text}")

    def check(self, known: Mapping[str, float | None], outputs: int = 9) -> None:
        """Raises NetworkError for an attribute that is not among the known ones, or has not its value there."""
        for name, value in self.attributes.items():
            wanted = known.get(name)
            if name not in known:
                raise self.error(f"attribute {name} must be left out, it is not spelled out here")
            if wanted is not None and value != wanted:
                raise self.error(f"{name} must be {wanted:g}, not {value}; export without it")
        if any(self.outputs[outputs:]):
            raise self.error(f"must have {outputs} output(s), not {len(self.outputs)}")

    def without(self, inputs: Mapping[int, str]) -> None:
        """Raises NetworkError for an input that is given."""
        for index, name in inputs.items():
            if self.input(index):
                raise self.error(f"input {name} must be left out, not {self.input(index)!r}; export without it")


_SPELLED: Mapping[str, Callable[[_Spelling, _Node], None]] = {
    RMS_NORM: _Spelling.simplified,
    "SkipSimplifiedLayerNormalization": _Spelling.skip_simplified,
    "SkipLayerNormalization": _Spelling.skip_norm,
    "RotaryEmbedding": _Spelling.rotary,
    "MultiHeadAttention": _Spelling.multi_head,
    "Attention": _Spelling.attention,
    "GroupQueryAttention": _Spelling.group_query,
}
