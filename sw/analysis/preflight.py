"""Where each node of a network would run on a configuration, known before any run."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from inspect import getdoc
from itertools import pairwise
from pathlib import Path

from dovetail.isa.config.resolved import Config
from dovetail.isa.instructions.table import INSTRUCTIONS, Op
from dovetail.sw import frontend
from dovetail.sw.analysis.operator_list import ROWS
from dovetail.sw.compiler.compile import Code, generate
from dovetail.sw.compiler.options import Options
from dovetail.sw.compiler.partition.integer_forms import Forms
from dovetail.sw.compiler.partition.segments import ACCELERATOR, HOST, broken_rule, pays_for_its_round_trip
from dovetail.sw.frontend.parsed_file import FileNode, ParsedFile
from dovetail.sw.host.work import HostWork, host_work
from dovetail.sw.network import ir
from dovetail.sw.passes.integer.simplify import simplify

FREE = "nothing to do"


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
    distance: the result is less than so many steps away from the reals', and so at most one step off the runtime's
        float kernel; None: it is the runtime's.
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
    distance: float | None = None


@dataclass(frozen=True)
class Preflight:
    """The outcome for a network.

    Parameters
    ----------
    is_float: the network is float; this is what holds once it is quantised.
    nodes: in execution order.
    gone: the file's nodes that left nothing behind, as "operator name".
    host_work: what the host takes, an estimate.
    segments, host_steps: runs of nodes on the accelerator and on the host.
    left: operators behind what Dovetail does, which are the user's to run, and why.
    """

    name: str
    is_float: bool
    nodes: tuple[NodeReport, ...]
    gone: tuple[str, ...]
    host_work: HostWork
    segments: int
    host_steps: int
    left: tuple[str, ...] = ()
    why_left: str = ""

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
        return not self.is_float and not self.left and all(node.place != HOST for node in self.nodes)


def inspect(
    network: str | Path,
    config: Config,
    options: Options,
    shapes: Mapping[str, Sequence[int]] | None = None,
    states: Mapping[str, str] | None = None,
) -> Preflight:
    """The preflight of a network file, or of a ``zoo:`` network.

    A float network is quantised by a random input first: that decides no node's place. ``shapes``: sizes of inputs, by
    name, where the file leaves them open. ``states``: output by input of its variables.

    Raises
    ------
    NetworkError, CompileError
        The network cannot be read at all, or not compiled.
    """
    source = frontend.parse(frontend.read(network, states), shapes)
    stages = [source.nodes]
    parsed = source
    if source.is_float:
        parsed, more = _quantised(source)
        stages += more
    graph = simplify(parsed.graph)
    stages.append(_graph_nodes(graph))
    code = generate(graph, config, options)
    stages.append(_graph_nodes(code.graph))
    instructions = _instructions(code)
    forms = {form.host: form.node for form in Forms(code.network)}
    held: dict[str, list[FileNode]] = {}
    found = {node.name: node.name for node in stages[0]}
    for before, after in pairwise(stages):
        places = destinations(before, after)
        found = {name: places[place] for name, place in found.items() if place in places}
    for node in stages[0]:
        held.setdefault(found.get(node.name, ""), []).append(node)
    return Preflight(
        name=source.name,
        is_float=source.is_float,
        nodes=tuple(
            _report(code, node, forms.get(node.name, node), held.get(node.name, []), instructions.get(node.name, ()))
            for step in code.steps
            for node in step.nodes
        ),
        gone=tuple(map(str, held.get("", []))),
        host_work=host_work(graph, code.steps, options.host, code.where),
        segments=sum(step.is_program for step in code.steps),
        host_steps=sum(step.device == HOST for step in code.steps),
        left=source.remainder.left if source.remainder else (),
        why_left=source.remainder.reason if source.remainder else "",
    )


def _graph_nodes(graph: ir.Graph) -> list[FileNode]:
    return [FileNode(node.name, node.op, node.inputs, node.outputs) for node in graph.nodes]


def _quantised(source: ParsedFile) -> tuple[ParsedFile, list[list[FileNode]]]:
    """A float network quantised by a random input, and the nodes of its forms on the way."""
    # Imported late: other networks do not need ONNX Runtime's quantiser.
    from dovetail.sw.frontend.onnx.parsed import ParsedOnnx
    from dovetail.sw.quantise.float_network import FloatGraph, float_model
    from dovetail.sw.quantise.quantiser import quantise
    from dovetail.sw.quantise.samples import RandomSamples

    states = source.states if isinstance(source, ParsedOnnx) else {}
    in_onnx = ParsedOnnx.of_model(source.as_onnx(), source.name, states)
    model = float_model(in_onnx)
    samples = RandomSamples(FloatGraph(model).inputs, 1, 0)
    quantised = ParsedOnnx.of_model(quantise(model, samples), source.name, states)
    return quantised, [in_onnx.nodes, quantised.nodes]


def destinations(nodes: Sequence[FileNode], made: Iterable[FileNode]) -> dict[str, str]:
    """Which of the nodes ``made`` of a file's holds each of them, by name; those that left nothing are missing.

    A node that is not there by name has gone where its result is made, under its name or one made of it ("name/form"),
    or else where it is used, or else where its operand is made.
    """
    names: set[str] = set()
    makers: dict[str, str] = {}
    forms: dict[str, str] = {}
    for new in made:
        names.add(new.name)
        makers |= dict.fromkeys(new.outputs, new.name)
        forms |= {stem: new.name for name in new.outputs if (stem := name.rpartition("/")[0]) not in forms}
    makers = forms | makers
    found: dict[str, str] = {}
    users: dict[str, str] = {}
    for node in reversed(nodes):
        places = [node.name] if node.name in names else [makers[name] for name in node.outputs if name in makers]
        places += [users[name] for name in node.outputs if name in users]
        if places:
            found[node.name] = places[0]
            users |= dict.fromkeys(node.inputs, places[0])
    sources: dict[str, str] = {}
    for node in nodes:
        places = [sources[name] for name in node.inputs if name in sources]
        place = found.setdefault(node.name, places[0]) if places else found.get(node.name)
        if place is not None:
            sources |= dict.fromkeys(node.outputs, place)
    return found


# --- a node -----------------------------------------------------------------------------------------------------


def _report(
    code: Code, node: ir.Node, form: ir.Node, held: list[FileNode], instructions: tuple[str, ...]
) -> NodeReport:
    """``form``: what an instruction could do in the place of a node of the host."""
    graph = code.graph
    place = HOST if node.name in code.host_reasons else ACCELERATOR
    if isinstance(node, ir.Pick):  # the loads of what reads it
        instructions = (Op.DMA_READ.name,)
    elif isinstance(node, ir.FREE):
        place = FREE
    return NodeReport(
        name=node.name,
        kind=node.op,
        file_nodes=tuple(map(str, held)),
        place=place,
        rule=_rule(code, node, form, held, instructions),
        reason=code.host_reasons.get(node.name, ""),
        instructions=instructions,
        macs=graph.macs(node),
        weight_bytes=_weight_bytes(node),
        activation_bytes=sum(graph.tensors[name].bytes for name in (*node.inputs, *node.outputs)),
        distance=node.distance if isinstance(node, ir.Rows) else None,
    )


def _rule(code: Code, node: ir.Node, form: ir.Node, held: list[FileNode], instructions: tuple[str, ...]) -> str:
    """The text of the rule that decides."""
    graph = code.graph if form is node else code.network
    broken = broken_rule(code.config, code.options, graph, form)
    if broken:
        return " ".join((getdoc(broken[0]) or "").split())
    if node.name in code.host_reasons and not isinstance(node, ir.Host):
        return " ".join((getdoc(pays_for_its_round_trip) or "").split())
    if isinstance(node, ir.Pick):
        return PICKED
    if isinstance(node, ir.Elementwise) and node.own not in (None, Op.E32_ADD):
        return f"{INSTRUCTIONS[node.own].doc} It is the runtime's operator for every pair of bytes."
    operators = {file_node.op for file_node in held}
    operators = operators - _MARKS or operators
    rows = [row for row in ROWS if operators.intersection(row.tflite + row.onnx)]
    used = [row for row in rows if any(op.name in instructions for op in row.instructions)]
    row = next(iter([*used, *rows]), None)
    if isinstance(node, ir.Host):
        return f"between int8 tensors: {row.rule}" if row else "the accelerator has no such operator"
    return row.rule if row else ""


PICKED = (
    "what the host would compute from one whole number of the network's inputs, such as a token or a position, and from"
    " constants: rows of a table, which loads pick by a parameter"
)
"""The rule of nodes that are rows of tables."""
_MARKS = {"QuantizeLinear", "DequantizeLinear"}
"""Part of every quantised operator."""


def _instructions(code: Code) -> dict[str, tuple[str, ...]]:
    """Mnemonics of each layer's operations, in the order of their first use."""
    used: dict[int, dict[Op, None]] = {}
    for segment in code.segments:
        for at, layer in segment.layers.items():
            used.setdefault(layer, {})[Op(segment.words[at] & 0xFF)] = None
    return {
        code.layers[layer].name: tuple(op.name for op in [op for op in ops if not INSTRUCTIONS[op].moves] or ops)
        for layer, ops in used.items()
    }


def _weight_bytes(node: ir.Node) -> int:
    match node:
        case ir.Table():
            return node.values.nbytes
        case ir.Constant():
            return node.value.nbytes
        case ir.Pick():
            return node.table.nbytes
    return node.weight_bytes
