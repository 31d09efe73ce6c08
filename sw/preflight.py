"""What becomes of a network on a configuration, node by node, before anybody waits for a run."""

from __future__ import annotations

from dataclasses import dataclass
from inspect import getdoc
from pathlib import Path

import numpy as np
import onnx

from dovetail.isa.config import Config
from dovetail.isa.instructions import Op
from dovetail.sw import frontend
from dovetail.sw import graph as ir
from dovetail.sw.compiler import Code, Options, generate
from dovetail.sw.compiler.partition import broken_rule, is_accelerated, pays_for_its_round_trip
from dovetail.sw.errors import NetworkError
from dovetail.sw.file_nodes import FileNode, destinations, nodes_of, nodes_of_model
from dovetail.sw.frontend.tflite_file import TfliteFile, is_tflite
from dovetail.sw.operators import ROWS

ACCELERATOR, HOST, FREE = "accelerator", "host", "nothing to do"
_TRANSFERS = (Op.DMA_READ, Op.DMA_WRITE)


@dataclass(frozen=True)
class NodeReport:
    """A node of the network after fusion.

    Parameters
    ----------
    name, kind: of the node; the name is the file's where one of the file's nodes became it.
    file_nodes: the file's nodes in it, as "operator name".
    place: `ACCELERATOR`, `HOST` or `FREE`.
    rule: what decides: the rule that the node breaks, or the one by which its operator runs on the accelerator.
    reason: how a node on the host breaks the rule.
    instructions: mnemonics; transfers are named only where there is nothing else.
    macs, weight_bytes, activation_bytes: multiply-accumulates; weights, biases and tables; inputs and outputs.
    """

    name: str
    kind: str
    file_nodes: tuple[str, ...]
    place: str
    rule: str
    reason: str
    instructions: tuple[str, ...]
    macs: int
    weight_bytes: int
    activation_bytes: int


@dataclass(frozen=True)
class Preflight:
    """The outcome for a network.

    Parameters
    ----------
    is_float: the network is float; this is what holds once it is quantised.
    nodes: in execution order.
    gone: the file's nodes that left nothing behind, as "operator name".
    segments, host_steps: runs of nodes on the accelerator and on the host.
    """

    name: str
    is_float: bool
    nodes: tuple[NodeReport, ...]
    gone: tuple[str, ...]
    segments: int
    host_steps: int

    def macs(self, place: str | None = None) -> int:
        """Multiply-accumulates of all nodes, or of those in a place."""
        return sum(node.macs for node in self.nodes if place in (None, node.place))

    @property
    def share(self) -> float:
        """The accelerator's share of the multiply-accumulates; 1 where there are none."""
        return self.macs(ACCELERATOR) / self.macs() if self.macs() else 1.0

    @property
    def round_trips(self) -> int:
        """How often data go from the accelerator to the host and back in the middle of the network."""
        return max(self.segments - 1, 0)

    @property
    def is_complete(self) -> bool:
        """Whether everything runs on the accelerator as the file is."""
        return not self.is_float and all(node.place != HOST for node in self.nodes)


def inspect(network: str | Path, config: Config, options: Options) -> Preflight:
    """The preflight of a network file, or of a ``zoo:`` network.

    A float network is quantised by random inputs first: that decides no node's place.

    Raises
    ------
    NetworkError, CompileError
        The network cannot be read at all, or not compiled.
    """
    name, data = frontend.read(network)
    folder = Path(network).parent
    model = _float_model(data, name, folder)
    if model is None:
        graph = frontend.parse(data, name, folder)
        nodes = nodes_of(data)
        found = destinations(nodes, _graph_nodes(graph))
    else:
        quantised = _quantised(model)
        graph = frontend.parse(quantised.SerializeToString(), name, None)
        nodes, between = nodes_of_model(model), nodes_of_model(quantised)
        first, second = destinations(nodes, between), destinations(between, _graph_nodes(graph))
        found = {node: second[place] for node, place in first.items() if place in second}
    code = generate(graph, config, options)
    instructions = _instructions(code)
    held: dict[str, list[FileNode]] = {}
    for node in nodes:
        held.setdefault(found.get(node.name, ""), []).append(node)
    return Preflight(
        name=name,
        is_float=model is not None,
        nodes=tuple(
            _report(code, node, held.get(node.name, []), instructions.get(node.name, ()))
            for step in code.steps
            for node in step.nodes
        ),
        gone=tuple(map(str, held.get("", []))),
        segments=sum(map(is_accelerated, code.steps)),
        host_steps=sum(step.host for step in code.steps),
    )


def _graph_nodes(graph: ir.Graph) -> list[FileNode]:
    return [FileNode(node.name, node.op, node.inputs, node.outputs) for node in graph.nodes]


# --- float networks ---------------------------------------------------------------------------------------------


def _float_model(data: bytes, name: str, folder: Path) -> onnx.ModelProto | None:
    """A float network as ONNX; None if it is quantised, or damaged, which the front end reports."""
    try:
        if is_tflite(data):
            if any(info.tensor.dtype in ("int8", "uint8") and info.scales.size for info in TfliteFile(data).infos):
                return None
        else:
            model = onnx.load_model_from_string(data)
            if any("Quantize" in node.op_type or node.op_type.startswith("Q") for node in model.graph.node):
                return None
            if any(node.op_type in ("ConvInteger", "MatMulInteger") for node in model.graph.node):
                return None
    except Exception:  # readers of damaged files raise anything
        return None
    if is_tflite(data):
        from dovetail.sw.frontend.tflite_float import to_onnx

        return to_onnx(data, name)
    try:
        onnx.external_data_helper.load_external_data_for_model(model, str(folder))
    except Exception as error:  # the library's own classes, and OSError
        raise NetworkError(f"{name}: must be an ONNX file with all its external data, not: {error}") from error
    return model


def _quantised(model: onnx.ModelProto) -> onnx.ModelProto:
    """The network quantised by one random input."""
    from dovetail.sw.onnx_passes import normalise
    from dovetail.sw.quantise import FloatGraph, quantise
    from dovetail.sw.quantise.samples import RandomSamples

    normal = normalise(model)
    return quantise(normal, RandomSamples(FloatGraph(normal).inputs, 1))


# --- a node -----------------------------------------------------------------------------------------------------


def _report(code: Code, node: ir.Node, held: list[FileNode], instructions: tuple[str, ...]) -> NodeReport:
    graph = code.graph
    place = FREE if isinstance(node, ir.FREE) else HOST if node.name in code.host_reasons else ACCELERATOR
    return NodeReport(
        name=node.name,
        kind=node.op,
        file_nodes=tuple(map(str, held)),
        place=place,
        rule=_rule(code, node, held, instructions),
        reason=code.host_reasons.get(node.name, ""),
        instructions=instructions,
        macs=graph.macs(node),
        weight_bytes=_weight_bytes(node),
        activation_bytes=sum(
            graph.tensors[name].size * np.dtype(graph.tensors[name].dtype).itemsize
            for name in (*node.inputs, *node.outputs)
        ),
    )


def _rule(code: Code, node: ir.Node, held: list[FileNode], instructions: tuple[str, ...]) -> str:
    """The text of the rule that decides."""
    broken = broken_rule(code.config, code.options, code.graph, node)
    if broken:
        return " ".join((getdoc(broken[0]) or "").split())
    if node.name in code.host_reasons and not isinstance(node, ir.Host):
        return " ".join((getdoc(pays_for_its_round_trip) or "").split())
    operators = {file_node.op for file_node in held}
    operators = operators - _MARKS or operators
    rows = [row for row in ROWS if operators.intersection(row.tflite + row.onnx)]
    used = [row for row in rows if any(op.name in instructions for op in row.instructions)]
    row = next(iter([*used, *rows]), None)
    if isinstance(node, ir.Host):
        return f"between int8 tensors: {row.rule}" if row else "the accelerator has no such operator"
    return row.rule if row else ""


_MARKS = {"QuantizeLinear", "DequantizeLinear"}
"""Part of every quantised operator."""


def _instructions(code: Code) -> dict[str, tuple[str, ...]]:
    """Mnemonics of each layer's operations, in the order of their first use."""
    used: dict[int, dict[Op, None]] = {}
    for segment in code.segments:
        for at, layer in segment.layers.items():
            used.setdefault(layer, {})[Op(segment.words[at] & 0xFF)] = None
    return {
        code.layers[layer].name: tuple(op.name for op in [op for op in ops if op not in _TRANSFERS] or ops)
        for layer, ops in used.items()
    }


def _weight_bytes(node: ir.Node) -> int:
    match node:
        case ir.Conv() | ir.Depthwise():
            return node.weights.size + 4 * node.bias.size
        case ir.Table():
            return node.values.size
        case ir.Constant():
            return node.value.size
    return 0
