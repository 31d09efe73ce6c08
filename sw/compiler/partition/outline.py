"""A graph divided between the devices: its steps, and which tensors share bytes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

from dovetail.isa.config.resolved import Config
from dovetail.sw.compiler.emit.array_layer import layer_of
from dovetail.sw.compiler.layer import ConvLayer
from dovetail.sw.compiler.options import Options
from dovetail.sw.compiler.partition.bands import Cascade, cut
from dovetail.sw.compiler.partition.im2col import in_turn, with_im2col
from dovetail.sw.compiler.partition.in_place import InPlace, Picked, in_place, picked_rows
from dovetail.sw.compiler.partition.integer_forms import with_integer_forms
from dovetail.sw.compiler.partition.parts import parts_of
from dovetail.sw.compiler.partition.picks import read_by_host, with_picks
from dovetail.sw.compiler.partition.segments import Step, host_reasons, steps_of
from dovetail.sw.compiler.partition.tables import Records, records_of
from dovetail.sw.compiler.place import Given, Part
from dovetail.sw.network import ir


@dataclass(frozen=True)
class Partition:
    """What all programs of a graph have in common.

    Parameters
    ----------
    graph, config, options: what is compiled, and for what.
    network: the graph before nodes took forms that suit the configuration.
    reasons: why the host computes a node, by its name.
    steps: in the order of execution.
    parts: the tensors that lie inside another one.
    roots: the tensor whose bytes each tensor shares: itself, what its reshapes lead back to, what it is a part of, or
        the state that it is the next value of.
    band_of: of nodes that compute some rows only, by name, the node of ``whole``'s graph that they are a band of.
    whole: the same without bands.
    given: what is settled about system memory.
    """

    graph: ir.Graph
    network: ir.Graph
    config: Config
    options: Options
    reasons: dict[str, str]
    steps: tuple[Step, ...]
    parts: dict[str, Part]
    roots: dict[str, str]
    band_of: Mapping[str, str] = field(default_factory=dict)
    whole: Partition | None = None
    given: Given = field(default_factory=Given)

    def executed(self, step: Step) -> list[ir.Node]:
        """The nodes of a step that need instructions."""
        return [node for node in step.nodes if not isinstance(node, ir.FREE) and not self._is_placed(node)]

    @cached_property
    def updates(self) -> dict[str, InPlace]:
        """The updates of states in place, by the node's name."""
        return in_place(self.graph, self.reasons)

    @cached_property
    def picked(self) -> dict[str, Picked]:
        """The rows that a run picks, by tensor."""
        return picked_rows(self.graph, self.reasons)

    @cached_property
    def records(self) -> list[Records]:
        """The tables of which a run picks rows."""
        return records_of(self.graph.nodes)

    @cached_property
    def layers(self) -> dict[str, ConvLayer]:
        """What the array computes, by the node's name."""
        nodes = [node for step in self.steps if step.is_program for node in self.executed(step)]
        array = [node for node in nodes if isinstance(node, ir.Conv | ir.Depthwise | ir.MatMul)]
        found = {
            node.name: layer_of(
                self.config, self.graph, node, dense=self.parts.keys().isdisjoint(node.inputs + node.outputs)
            )
            for node in array
        }
        if not any(isinstance(node, ir.Rows) for node in nodes):
            return found
        return {name: layer.as_rows for name, layer in found.items()}

    @cached_property
    def im2col(self) -> Partition | None:
        """The same where kernels of first layers become channels; None if that pays for none, or one would not fit."""
        graph = with_im2col(self.graph, self.config, self.reasons, partly=self.options.effort > 0)
        if graph is self.graph or host_reasons(self.config, self.options, graph).keys() - self.reasons.keys():
            return None
        found = _divided(graph, self.reasons, self.config, self.options, self.given)
        return replace(found, network=self.network)

    @cached_property
    def in_turn(self) -> list[list[Cascade]]:
        """The ways in which layers of `im2col` run band by band."""
        if not self.im2col:
            return []
        return in_turn(self.im2col.graph, self.config, self.graph, partly=self.options.effort > 0)

    def _is_placed(self, node: ir.Node) -> bool:
        """Whether all that a node copies is there already, or read where it is."""
        if not isinstance(node, ir.Move):
            return False
        return node.outputs[0] in self.parts or all(name in self.parts for name in node.inputs)

    def outside(self) -> list[set[str]]:
        """Per step the roots that are read outside it: by other steps, or by the network's user."""
        outputs = {self.roots[name] for name in self.graph.wanted}
        reads = [{self.roots[name] for node in step.nodes for name in node.inputs} for step in self.steps]
        readers = Counter(name for names in reads for name in names)
        return [outputs | {name for name, count in readers.items() if count > (name in own)} for own in reads]


def partition(graph: ir.Graph, config: Config, options: Options, given: Given | None = None) -> Partition:
    """Divide a graph, in which instructions and tables do what they can of the host's nodes; ``given``: what is settled
    about system memory, where a program shares it with others. These have no parameters.

    Raises
    ------
    CompileError: a node reads a tensor that nothing makes, or that follows from the node itself.
    """
    barred, kept = set[str](), dict[str, str]()
    while True:
        picked = graph
        if not given:
            picked, kept = with_picks(graph, config, options, barred)
        found, reasons = with_integer_forms(picked, config, options)
        lost = read_by_host(found, reasons)
        if not lost:
            break
        barred |= lost
    reasons = {name: kept.get(name, reason) for name, reason in reasons.items()}
    return replace(_divided(found, reasons, config, options, given), network=graph)


def _divided(
    graph: ir.Graph, reasons: dict[str, str], config: Config, options: Options, given: Given | None
) -> Partition:
    """Divide a graph as it is."""
    steps = tuple(steps_of(graph, reasons))
    given = given or Given()
    parts = {**parts_of(config, graph, steps), **given.parts}
    roots = {name: parts[name].whole if name in parts else name for name in graph.tensors}
    for node in graph.nodes:
        if isinstance(node, ir.Reshape) or (isinstance(node, ir.Update) and node.name not in reasons):
            roots[node.outputs[0]] = roots[node.inputs[0]]
    return Partition(graph, graph, config, options, reasons, steps, parts, roots, given=given)


def in_bands(whole: Partition, cascades: Sequence[Cascade]) -> Partition | None:
    """A partition whose cascades are cut into bands; None if more would be copied, or run elsewhere."""
    if whole.given.parts:
        return None
    graph, band_of = cut(whole.graph, cascades)
    reasons = host_reasons(whole.config, whole.options, graph)
    divided = _divided(graph, reasons, whole.config, whole.options, whole.given)
    found = replace(divided, band_of=band_of, whole=whole)
    programs = [
        [step.device for step in one.steps if not all(isinstance(n, ir.FREE) for n in step.nodes)]
        for one in (found, whole)
    ]
    moves = [sum(isinstance(n, ir.Move) for step in one.steps for n in one.executed(step)) for one in (found, whole)]
    return found if programs[0] == programs[1] and moves[0] == moves[1] else None
