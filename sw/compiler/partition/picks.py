"""Pass: what the host computes from one whole number of a run, such as a token or a position, becomes rows of a table.

Embeddings, their norms, sines and cosines, masks: the host's nodes are run once for every value that the number may
have. A run then picks a row by a parameter, which is added to the address that the row is loaded from.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import onnx
from numpy.typing import NDArray

from dovetail.isa.config.resolved import Config
from dovetail.isa.parameters import MOST_VALUES
from dovetail.sw.compiler.options import Options
from dovetail.sw.compiler.partition.in_place import numbers_of, updates_in_place
from dovetail.sw.compiler.partition.integer_forms import with_integer_forms
from dovetail.sw.compiler.partition.tables import step_of
from dovetail.sw.host.kernels import OnnxOp
from dovetail.sw.network import ir
from dovetail.sw.network.layout import Array
from dovetail.sw.passes.integer.edit import makers, rebuilt
from dovetail.sw.passes.integer.tidy import drop_dead

MOST_WORK = 1 << 28
"""Elements that the host's nodes make, and multiply-accumulates, for all values of an input: at most so many."""
_CHANCE = ("random", "bernoulli", "multinomial", "dropout")
"""What operators begin with that give other results each time."""


def with_picks(
    graph: ir.Graph, config: Config, options: Options, barred: Collection[str] = ()
) -> tuple[ir.Graph, dict[str, str]]:
    """The graph in which rows are picked as far as there are parameters, those that save the host most first; and why
    nodes of the host remain that could do without it, by name.

    ``barred``: tensors that must not be picked.
    """
    kept: dict[str, str] = {}
    found = sources(graph, frozenset(barred))
    if not found:
        return graph, kept
    updates = [node for node in graph.nodes if isinstance(node, ir.Update)]
    host = {node.name for node in updates if updates_in_place(config, options, graph, node)}
    hosted = with_integer_forms(graph, config, options)[1]
    reason = f"the configuration must have more than {config.parameters} parameters"
    if not config.parameters:
        reason = "the configuration has parameters = 0"

    def saved(one: Source) -> float:
        return sum(options.host.cycles(graph, node) for node in one.spared if node.name in hosted)

    picked = list[Source]()
    for one in sorted(found, key=saved, reverse=True):
        keys = {*numbers_of(graph, host), *((each.number, each.step) for each in (*picked, one))}
        if len(keys) <= config.parameters:
            picked.append(one)
        else:
            kept |= {node.name: reason for node in one.spared}
    return _picked(graph, tuple(picked)), kept


def read_by_host(graph: ir.Graph, host: Collection[str]) -> set[str]:
    """The picked tensors that nodes on the host read: it does not know where they lie."""
    readers = _readers(graph)
    picked = [node.outputs[0] for node in graph.nodes if isinstance(node, ir.Pick)]
    return {name for name in picked if any(node.name in host for node in readers[name].nodes)}


@dataclass(frozen=True, eq=False)
class Source:
    """A run input that rows may be picked by.

    Parameters
    ----------
    number: the tensor that holds it.
    count: values that it may have, from 0 on.
    ends: the tensors that follow from it and nothing else, and that the accelerator reads.
    made: the nodes that make these.
    spared: the host's nodes of which nobody needs anything else.
    step: bytes of a row of each.
    """

    number: str
    count: int
    ends: tuple[str, ...]
    made: tuple[ir.Node, ...]
    spared: tuple[ir.Host, ...]
    step: int


@lru_cache(maxsize=16)
def sources(graph: ir.Graph, barred: frozenset[str]) -> tuple[Source, ...]:
    """The run inputs from which tensors of the accelerator follow by the host alone, and that have a known range."""
    origins, counts, readers, made = _origins(graph), _counts(graph), _readers(graph), makers(graph)
    ends: dict[str, list[str]] = {}
    for name, origin in origins.items():
        node, reading = made.get(name), readers[name]
        alone = isinstance(node, ir.Host) and len(node.outputs) == 1 and graph.tensors[name].dtype == "int8"
        others = [reader for reader in reading.nodes if not isinstance(reader, ir.Host)]
        if alone and others and reading.views.isdisjoint(graph.wanted) and name not in barred and origin in counts:
            ends.setdefault(origin, []).append(name)
    found = []
    for origin, names in ends.items():
        names = _alone(graph, names)
        before, after = _needed(graph, {*names}), _needed(graph, {*graph.wanted}, without=names)
        nodes = tuple(node for node in graph.nodes if node.name in before)
        spared = tuple(node for node in nodes if isinstance(node, ir.Host) and node.name not in after)
        each = sum(graph.macs(node) + sum(graph.tensors[name].size for name in node.outputs) for node in nodes)
        if names and counts[origin] <= MOST_VALUES and counts[origin] * each <= MOST_WORK:
            step = step_of(graph.tensors[name].size for name in names)
            found.append(Source(origin, counts[origin], tuple(names), nodes, spared, step))
    return tuple(found)


def _alone(graph: ir.Graph, names: list[str]) -> list[str]:
    """Those of some tensors that no node of the host needs where all of them are picked."""
    readers = _readers(graph)
    while True:
        needed = _needed(graph, {*graph.wanted}, without=names)
        hosts = {node.name for node in graph.nodes if isinstance(node, ir.Host) and node.name in needed}
        left = [name for name in names if hosts.isdisjoint(node.name for node in readers[name].nodes)]
        if left == names:
            return names
        names = left


def _needed(graph: ir.Graph, tensors: set[str], without: Collection[str] = ()) -> set[str]:
    """Names of the nodes that tensors follow from; those of ``without`` are given."""
    found = set[str]()
    for node in reversed(graph.nodes):
        if not tensors.isdisjoint(node.outputs):
            found.add(node.name)
            tensors = tensors.union(name for name in node.inputs if name not in without)
    return found


@dataclass(frozen=True)
class _Reading:
    """Who reads a tensor, also through views, and the tensor with its views."""

    nodes: tuple[ir.Node, ...]
    views: frozenset[str]


def _readers(graph: ir.Graph) -> Mapping[str, _Reading]:
    found = {name: _Reading((), frozenset({name})) for name in graph.tensors}
    for node in reversed(graph.nodes):
        for name in dict.fromkeys(node.inputs):
            nodes, views = found[name].nodes, found[name].views
            if isinstance(node, ir.Reshape):
                seen = found[node.outputs[0]]
                found[name] = _Reading((*seen.nodes, *nodes), views | seen.views)
            else:
                found[name] = _Reading((node, *nodes), views)
    return found


def _origins(graph: ir.Graph) -> dict[str, str]:
    """The whole number of a run that each tensor follows from, by nodes of the host and nothing else."""
    numbers = (graph.tensors[port.tensor] for port in graph.inputs)
    found = {one.name: one.name for one in numbers if one.dtype in ("int32", "int64") and one.size == 1}
    for node in graph.nodes:
        origins = {found.get(name, "") for name in node.inputs}
        follows = isinstance(node, ir.Host) and not node.label.startswith(_CHANCE)
        if (follows or isinstance(node, ir.Reshape)) and len(origins) == 1 and "" not in origins:
            found |= dict.fromkeys(node.outputs, origins.pop())
    return found


def _counts(graph: ir.Graph) -> dict[str, int]:
    """How many values inputs may have, from 0 on, where nodes say so: constants of which one picks, and variables of
    which one says the rows that are replaced."""
    same = {port.tensor: port.tensor for port in graph.inputs}
    found: dict[str, int] = {}
    for node in graph.nodes:
        count, number = None, node.inputs[-1] if node.inputs else ""
        if isinstance(node, ir.Reshape) and number in same:
            same[node.outputs[0]] = same[number]
        elif isinstance(node, ir.Update):
            count = node.places(graph)
        elif isinstance(node, ir.Host) and type(node.payload) is OnnxOp:
            count = _rows_of(node.payload)
        if count and number in same:
            found[same[number]] = min(found.get(same[number], count), count)
    return found


def _rows_of(payload: OnnxOp) -> int | None:
    """Of a Gather that is given numbers, the rows of the constant that it picks from."""
    model = onnx.load_model_from_string(payload.model)
    if [node.op_type for node in model.graph.node] != ["Gather"]:
        return None
    (operator,) = model.graph.node
    constants = {tensor.name: tensor.dims for tensor in model.graph.initializer}
    if operator.input[0] not in constants or operator.input[1] in constants:
        return None
    axis = next((attribute.i for attribute in operator.attribute if attribute.name == "axis"), 0)
    return int(constants[operator.input[0]][axis])


@lru_cache(maxsize=16)
def _picked(graph: ir.Graph, picked: tuple[Source, ...]) -> ir.Graph:
    """The graph in which rows are picked by some inputs."""
    if not picked:
        return graph
    tables = {name: (one.number, table) for one in picked for name, table in _tables(graph, one).items()}
    nodes: list[ir.Node] = []
    for node in graph.nodes:
        if node.outputs[0] in tables:
            number, table = tables[node.outputs[0]]
            node = ir.Pick(name=node.name, inputs=(number,), outputs=node.outputs, table=table)
        nodes.append(node)
    return drop_dead(rebuilt(graph, nodes))


def _tables(graph: ir.Graph, source: Source) -> dict[str, NDArray[np.int8]]:
    """The rows of what is picked, by tensor: what the host computes for every number."""
    tensor = graph.tensors[source.number]
    found: dict[str, list[Array]] = {name: [] for name in source.ends}
    for number in range(source.count):
        values: dict[str, Array] = {source.number: np.full(tensor.shape, number, tensor.dtype)}
        for node in source.made:
            inputs = [values[name] for name in node.inputs]
            if isinstance(node, ir.Host):
                values |= zip(node.outputs, node.payload.run(inputs), strict=True)
            else:
                values[node.outputs[0]] = inputs[0].reshape(graph.tensors[node.outputs[0]].shape)
        for name in source.ends:
            found[name].append(values[name].ravel())
    return {name: np.stack(rows) for name, rows in found.items()}
