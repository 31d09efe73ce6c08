"""Constants that a run picks from, such as embeddings, positions and masks: integers before they are picked.

What the host would compute of every picked value in every run is computed once, of the whole table.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
import onnx
from onnx import TensorProto, numpy_helper

from dovetail.sw.host.kernels import OnnxOp, Quantize
from dovetail.sw.host.norm import FloatNorm
from dovetail.sw.network import ir
from dovetail.sw.network.layout import Array
from dovetail.sw.passes.integer.edit import makers, rebuilt
from dovetail.sw.passes.integer.tidy import MAX_ELEMENTS

_PART = 1 << 20
"""Elements of a table that are quantised at a time, which keeps what is in between small."""
_CONSTANTS = {"Gather": (0,), "Where": (1, 2)}
"""Operators that pick, and which of their operands they pick from."""


def compute_tables(graph: ir.Graph) -> ir.Graph:
    """Quantise constants, and normalise rows of them, before the host picks from them instead of behind that.

    Only where one operator of the host picks from float constants. A norm's table has at most `tidy.MAX_ELEMENTS`
    elements, and an element that is picked twice is computed once; each result is the byte that it was.
    """
    made = makers(graph)
    nodes: list[ir.Node] = []
    for node in graph.nodes:
        picks = _picked(made.get(node.inputs[0])) if isinstance(node, ir.Host) and len(node.inputs) == 1 else None
        computed = picks.behind(node) if picks is not None and isinstance(node, ir.Host) else None
        if computed is not None:
            made[node.outputs[0]] = computed
        nodes.append(computed or node)
    return graph if all(a is b for a, b in zip(nodes, graph.nodes, strict=True)) else rebuilt(graph, nodes)


@dataclass(frozen=True)
class _Picks:
    """A node of the host that picks from float constants, and the model that it runs."""

    node: ir.Host
    payload: OnnxOp
    model: onnx.ModelProto
    constants: tuple[onnx.TensorProto, ...]

    def behind(self, node: ir.Host) -> ir.Host | None:
        """What picks the results of a node that reads what is picked; None where that depends on more than a value."""
        payload = node.payload
        if isinstance(payload, Quantize) and not payload.wide:
            return self._of(node, lambda table: _by_parts(payload, table), TensorProto.INT8)
        if isinstance(payload, FloatNorm) and self._has_rows(payload):
            return self._of(node, lambda table: _rows_of(payload, table), TensorProto.FLOAT)
        return None

    def _has_rows(self, payload: FloatNorm) -> bool:
        """Whether rows are picked whole that a norm normalises."""
        (operator,) = self.model.graph.node
        axes = [attribute.i for attribute in operator.attribute if attribute.name == "axis"]
        dims = list(self.constants[0].dims)
        return (
            operator.op_type == "Gather"
            and not any(axes)
            and dims[1:] == [payload.gain.size]
            and dims[0] * dims[1] <= MAX_ELEMENTS
            and payload.inputs[0].layout.shape[-1] == payload.gain.size
            and payload.inputs[0].layout == self.payload.outputs[0].layout
        )

    def _of(self, node: ir.Host, computed: Callable[[Array], Array], element: int) -> ir.Host:
        """The node that picks from computed constants."""
        model = onnx.ModelProto()
        model.CopyFrom(self.model)
        (result,), (operator,), (wire,) = model.graph.output, model.graph.node, self.payload.outputs
        tables = {constant.name: f"{node.outputs[0]}/{constant.name}" for constant in self.constants}
        for constant in model.graph.initializer:
            if constant.name in tables:
                values = computed(numpy_helper.to_array(constant))
                constant.CopyFrom(numpy_helper.from_array(values, tables[constant.name]))
        operator.input[:] = [tables.get(name, name) for name in operator.input]
        result.name = operator.output[0] = node.outputs[0]
        result.type.tensor_type.elem_type = element
        operator.name = node.name
        wire = replace(wire, name=result.name)
        payload = replace(self.payload, model=model.SerializeToString(), outputs=(wire,))
        return replace(self.node, name=node.name, outputs=node.outputs, payload=payload)


def _picked(node: ir.Node | None) -> _Picks | None:
    if not isinstance(node, ir.Host) or type(node.payload) is not OnnxOp or len(node.outputs) != 1:
        return None
    model = onnx.load_model_from_string(node.payload.model)
    if len(model.graph.node) != 1 or model.graph.node[0].op_type not in _CONSTANTS:
        return None
    (operator,) = model.graph.node
    known = {tensor.name: tensor for tensor in model.graph.initializer}
    names = [operator.input[index] for index in _CONSTANTS[operator.op_type]]
    constants = tuple(known[name] for name in names if name in known)
    others = [name for name in operator.input if name not in names]
    if len(constants) < len(names) or any(tensor.data_type != TensorProto.FLOAT for tensor in constants):
        return None
    return _Picks(node, node.payload, model, constants) if all(name not in known for name in others) else None


def _by_parts(payload: Quantize, table: Array) -> Array:
    """A table quantised."""
    flat, result = table.ravel(), np.empty(table.size, np.int8)
    for first in range(0, flat.size, _PART):
        (result[first : first + _PART],) = payload.run([flat[first : first + _PART]])
    return result.reshape(table.shape)


def _rows_of(payload: FloatNorm, table: Array) -> Array:
    """Every row of a table normalised, as many at a time as the operator takes: by the same kernel, the same floats."""
    (before,) = payload.inputs
    shape = before.layout.shape
    count = int(np.prod(shape[:-1]))
    result = np.empty_like(table)
    for first in range(0, len(table), count):
        rows = np.zeros((count, table.shape[1]), table.dtype)
        part = table[first : first + count]
        rows[: len(part)] = part
        (found,) = payload.raw({before.name: rows.reshape(shape)})
        result[first : first + count] = found.reshape(rows.shape)[: len(part)]
    return result
