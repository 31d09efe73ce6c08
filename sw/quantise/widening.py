"""Residual streams of a QDQ network get 16 bits.

Behind every tensor of a stream stands a pair of QuantizeLinear and DequantizeLinear with int16. The stream's nodes and
norms read it, and so does the pair of 8 bits for all others. A branch has one more pair, behind that of its 8 bits. A
constant is int16. These pairs are ONNX Runtime's, of com.microsoft: the standard has int16 from operator set 21 on.
"""

from __future__ import annotations

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from dovetail.sw.host.onnx_session import set_nodes
from dovetail.sw.network.layout import Shape
from dovetail.sw.network.names import unused
from dovetail.sw.quantise.float_network import FloatGraph
from dovetail.sw.quantise.streams import Stream, operands

DOMAIN = "com.microsoft"


def widen(model: onnx.ModelProto, graph: FloatGraph, stream: Stream, step: np.float32) -> None:
    """Insert the pairs of 16 bits of one stream, in place.

    Parameters
    ----------
    model: the QDQ network, with 8 bits for the branches, and for what others read of the stream.
    graph: the float network.
    stream: what gets 16 bits.
    step: the real that 1 stands for.
    """
    _Widening(model.graph, graph, step).run(stream)
    if DOMAIN not in {each.domain for each in model.opset_import}:
        model.opset_import.append(helper.make_opsetid(DOMAIN, 1))


class _Widening:
    def __init__(self, graph: onnx.GraphProto, floats: FloatGraph, step: np.float32) -> None:
        self.graph, self.floats, self.step = graph, floats, step
        self.constants = {tensor.name: tensor for tensor in graph.initializer}
        self.taken = {name for node in graph.node for name in (*node.input, *node.output)}
        self.parameters = [self._constant("stream/scale", step), self._constant("stream/zero_point", np.int16(0))]
        quantised = {node.output[0]: node.input[0] for node in graph.node if node.op_type == "QuantizeLinear"}
        self.before = {
            node.output[0]: quantised[node.input[0]]
            for node in graph.node
            if node.op_type == "DequantizeLinear" and node.input[0] in quantised
        }
        """Result of a pair -> what the pair reads."""
        self.nodes: list[onnx.NodeProto] = []
        self.wide: dict[str, str] = {}
        """What has 16 bits -> its dequantised form."""

    def run(self, stream: Stream) -> None:
        """Insert all pairs."""
        members = {node.name: node for node in stream.nodes}
        readers = {*members, *(node.name for node in stream.norms)}
        for node in self.graph.node:
            member = members.get(node.name)
            if node.name in readers or node.op_type == "QuantizeLinear":
                node.input[:] = [self.wide.get(self.before.get(name, name), name) for name in node.input]
            if member is None:
                self.nodes.append(node)
                continue
            for place, name in enumerate(operands(member)):
                if name not in stream.tensors:
                    node.input[place] = self._pair(node.input[place], self.floats.shape(name))
            self.nodes.append(node)
            for name, result in zip(member.output, node.output, strict=True):
                self._pair(result, self.floats.shape(name))
        set_nodes(self.graph, self.nodes)

    def _pair(self, name: str, shape: Shape) -> str:
        """The dequantised form of a tensor, for which nodes are added if there is none."""
        if name in self.wide:
            return self.wide[name]
        integer, real = self._name(f"{name}/int16"), self._name(f"{name}/wide")
        if name in self.constants:
            tensor = self.constants[name]
            rounded = np.rint(numpy_helper.to_array(tensor) / self.step).astype(np.int16)
            tensor.CopyFrom(numpy_helper.from_array(rounded, integer))
        else:
            self._add("QuantizeLinear", name, integer)
            self.graph.value_info.append(helper.make_tensor_value_info(integer, TensorProto.INT16, shape))
        self._add("DequantizeLinear", integer, real)
        self.graph.value_info.append(helper.make_tensor_value_info(real, TensorProto.FLOAT, shape))
        self.wide[name] = real
        return real

    def _add(self, kind: str, source: str, result: str) -> None:
        self.nodes.append(helper.make_node(kind, [source, *self.parameters], [result], result, domain=DOMAIN))

    def _constant(self, name: str, value: np.generic) -> str:
        own = self._name(name)
        self.graph.initializer.append(numpy_helper.from_array(np.asarray(value), own))
        return own

    def _name(self, wanted: str) -> str:
        name = unused(wanted, self.taken)
        self.taken.add(name)
        return name
