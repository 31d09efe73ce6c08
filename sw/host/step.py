"""A run of nodes on the host: neighbouring ONNX operators go to ONNX Runtime as one model.

The results are those of one session per operator: nothing is fused or rewritten, so the same kernels get the same
operands. The runtime is imported when there is such an operator.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from dovetail.sw.host.kernels import OnnxOp, Wire
from dovetail.sw.network import ir, reference
from dovetail.sw.network.layout import Array

_LAID_OUT = {"Conv", "AveragePool", "GlobalAveragePool"}
"""Alone, these get another layout by default, in which sums are taken in another order."""

_KERNELS = {
    *("Clip", "DepthToSpace", "Elu", "HardSigmoid", "LayerNormalization", "LeakyRelu", "LogSoftmax", "PRelu"),
    *("ReduceL1", "ReduceL2", "ReduceSumSquare", "Relu", "Selu", "Softmax", "Softplus", "Softsign", "SpaceToDepth"),
}
"""Operators with a definition by other operators which ONNX Runtime does not use."""


@dataclass(frozen=True)
class HostUnit:
    """Nodes that run at once; ``inputs`` and ``outputs`` are tensors. ``joined``: the model of several nodes."""

    nodes: tuple[ir.Node, ...]
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    joined: OnnxOp | None = None

    def run(self, graph: ir.Graph, values: Mapping[str, Array]) -> dict[str, Array]:
        """Every tensor that the nodes make, by name, from the tensors before them."""
        inputs = [values[name] for name in self.inputs]
        if self.joined is None:
            return dict(zip(self.outputs, reference.execute(graph, self.nodes[0], inputs), strict=True))
        results = self.joined.run(inputs)
        return {
            name: value.reshape(graph.tensors[name].shape) for name, value in zip(self.outputs, results, strict=True)
        }


def units_of(nodes: Sequence[ir.Node]) -> list[HostUnit]:
    """The nodes of a host step, in order, joined where they can be."""
    runs: list[_Run] = []
    for node in nodes:
        payload = node.payload if isinstance(node, ir.Host) else None
        if not isinstance(payload, OnnxOp):
            runs.append(_Run([node]))
            continue
        if not runs or not runs[-1].takes(node, payload):
            runs.append(_Run([]))
        runs[-1].add(node, payload)
    return [run.unit() for run in runs]


def can_join(payload: OnnxOp) -> bool:
    """Whether ONNX Runtime computes an operator the same among its neighbours as alone."""
    import onnx

    nodes = onnx.load_model_from_string(payload.model).graph.node
    if len(nodes) > 1:  # that are fused
        return False
    for node in nodes:
        if node.op_type in _LAID_OUT or node.domain not in ("", "ai.onnx") or not onnx.defs.has(node.op_type):
            return False
        schema = onnx.defs.get_schema(node.op_type)
        defined = schema.has_function or schema.has_context_dependent_function
        if defined and node.op_type not in _KERNELS:
            return False
    return True


class _Run:
    """Neighbouring nodes, and the file's names that their models read and make."""

    def __init__(self, nodes: list[ir.Node]) -> None:
        self.nodes = nodes
        self.payloads: list[OnnxOp] = []
        self.read: dict[str, Wire] = {}
        self.made: dict[str, Wire] = {}

    def takes(self, node: ir.Node, payload: OnnxOp) -> bool:
        """Whether a node's model can follow: every tensor has one name and one form in both."""
        known = self.read | self.made
        names = {wire.name for wire in known.values()}
        for tensor, wire in zip(node.inputs, payload.inputs, strict=True):
            if known.get(tensor, wire) != wire or (tensor not in known and wire.name in names):
                return False
        return bool(self.payloads) and can_join(payload) and can_join(self.payloads[-1])

    def add(self, node: ir.Node, payload: OnnxOp) -> None:
        self.nodes.append(node)
        self.payloads.append(payload)
        for tensor, wire in zip(node.inputs, payload.inputs, strict=True):
            if tensor not in self.made:
                self.read[tensor] = wire
        self.made |= dict(zip(node.outputs, payload.outputs, strict=True))

    def unit(self) -> HostUnit:
        if len(self.nodes) == 1:
            (node,) = self.nodes
            return HostUnit((node,), node.inputs, node.outputs)
        model = joined([payload.model for payload in self.payloads])
        label = f"{self.payloads[0].label} to {self.payloads[-1].label}"
        payload = OnnxOp(model, label, tuple(self.read.values()), tuple(self.made.values()), apart=True)
        return HostUnit(tuple(self.nodes), tuple(self.read), tuple(self.made), payload)


def joined(models: Sequence[bytes]) -> bytes:
    """One model of several of the same file, in order; every result is an output."""
    import onnx

    first = onnx.load_model_from_string(models[0])
    graph = first.graph
    constants = {tensor.name for tensor in graph.initializer}
    read = {value.name for value in graph.input}
    made = {value.name for value in graph.output}
    domains = {opset.domain for opset in first.opset_import}
    for data in models[1:]:
        model = onnx.load_model_from_string(data)
        graph.node.extend(model.graph.node)
        graph.output.extend(model.graph.output)
        graph.initializer.extend(tensor for tensor in model.graph.initializer if tensor.name not in constants)
        graph.input.extend(value for value in model.graph.input if value.name not in read | made)
        first.opset_import.extend(opset for opset in model.opset_import if opset.domain not in domains)
        constants |= {tensor.name for tensor in model.graph.initializer}
        read |= {value.name for value in model.graph.input}
        made |= {value.name for value in model.graph.output}
        domains |= {opset.domain for opset in model.opset_import}
    return bytes(first.SerializeToString())
