"""Residual streams of a transformer: the tensors that keep 16 bits between its layers.

A stream begins with the sums that a norm reads, perhaps through moves and cuts. It has what these sums read and other
sums make of it: sums, results of norms, concatenations, moves and cuts. Layers end it: their results are branches.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import onnx

from dovetail.sw.frontend.onnx.operators.movement import CUTS, MOVES
from dovetail.sw.host.norm import NORMS
from dovetail.sw.network.intervals import Interval, Join, intervals, of_norm, of_reals
from dovetail.sw.quantise.float_network import FloatGraph, attribute
from dovetail.sw.quantise.patterns import is_single

Reals = tuple[float, float]

_EXPONENTS = range(-64, 128)
"""Of steps."""


@dataclass(frozen=True)
class Stream:
    """Connected tensors of one scale.

    Parameters
    ----------
    nodes: what makes them, in order: sums, norms, concatenations, moves and cuts.
    tensors: the results of these.
    branches: other tensors that these nodes read; they have 8 bits of their own.
    constants: constants that they add or concatenate.
    norms: those that read the stream and give 8 bits.
    """

    nodes: tuple[onnx.NodeProto, ...]
    tensors: frozenset[str]
    branches: tuple[str, ...]
    constants: tuple[str, ...]
    norms: tuple[onnx.NodeProto, ...]


def is_norm(graph: FloatGraph, node: onnx.NodeProto) -> bool:
    """Whether a node normalises rows, the last axis, with constant gains, and gives nothing else."""
    if node.op_type not in NORMS or len(node.output) != 1 or not graph.is_activation(node.input[0]):
        return False
    shape = graph.shape(node.input[0])
    parameters = [name for name in node.input[1:] if name]
    constant = all(graph.is_constant(name) and graph.shape(name) == shape[-1:] for name in parameters)
    return constant and int(attribute(node, "axis", -1)) % len(shape) == len(shape) - 1


def operands(node: onnx.NodeProto) -> list[str]:
    """The data that a node of a stream reads."""
    return list(node.input if node.op_type in ("Add", "Concat") else node.input[:1])


def streams(graph: FloatGraph, kept: Collection[str]) -> list[Stream]:
    """The residual streams of a network; ``kept``: names of nodes that belong to none."""
    makers: dict[str, onnx.NodeProto] = {}
    summed: set[str] = set()
    for node in graph.nodes:
        if node.name not in kept and _may_be_wide(graph, node, makers):
            makers |= dict.fromkeys(node.output, node)
            if node.op_type == "Add" or summed.intersection(operands(node)):
                summed.update(node.output)
    wide: set[str] = set()
    while True:
        for node in reversed(graph.nodes):
            seed = node.output[0] in makers and node.op_type in NORMS and node.input[0] in summed
            if seed or wide.intersection(node.output):
                wide.update(name for source in operands(node) if source in makers for name in makers[source].output)
        more = _sums_of(wide, makers) - wide
        if not more:
            norms = [node for node in makers.values() if node.op_type in NORMS and node.output[0] not in wide]
            return [_stream(graph, nodes, norms) for nodes in _apart(graph, wide)]
        wide |= more


def _may_be_wide(graph: FloatGraph, node: onnx.NodeProto, makers: Collection[str]) -> bool:
    """Whether a node's results could have 16 bits, given those of the nodes before it."""
    result = node.output[0]
    if not graph.is_activation(result):
        return False
    if node.op_type in (*MOVES, *CUTS):
        return node.input[0] in makers and graph.activations(node) == [node.input[0]]
    if node.op_type == "Concat":
        return all(graph.is_activation(name) or graph.is_constant(name) for name in node.input)
    if node.op_type != "Add":
        return is_norm(graph, node)
    constants = graph.constants(node)
    data = graph.activations(node)
    plain = len(constants) < 2 and all(value.dtype == np.float32 and not is_single(value) for value in constants)
    return plain and all(graph.is_activation(each) and graph.shape(each) == graph.shape(result) for each in data)


def _sums_of(wide: Collection[str], makers: dict[str, onnx.NodeProto]) -> set[str]:
    """Sums that read a stream, perhaps through moves, cuts and each other."""
    carried, found = set(wide), set[str]()
    for name, node in makers.items():
        if node.op_type in (*MOVES, *CUTS, "Add") and carried.intersection(operands(node)):
            carried.add(name)
            if node.op_type == "Add":
                found.add(name)
    return found


def _apart(graph: FloatGraph, wide: Collection[str]) -> list[list[onnx.NodeProto]]:
    """The nodes of each stream."""
    nodes = [node for node in graph.nodes if node.output[0] in wide]
    groups: list[set[str]] = []
    for node in nodes:
        ends = {*node.output, *(name for name in operands(node) if name in wide)}
        others = [group for group in groups if not group & ends]
        groups = [*others, ends.union(*(group for group in groups if group & ends))]
    return [[node for node in nodes if node.output[0] in group] for group in groups]


def _stream(graph: FloatGraph, nodes: Sequence[onnx.NodeProto], norms: Iterable[onnx.NodeProto]) -> Stream:
    tensors = frozenset(name for node in nodes for name in node.output)
    others = [name for node in nodes for name in operands(node) if name not in tensors]
    branches, constants = ([n for n in others if graph.is_constant(n) == fixed] for fixed in (False, True))
    readers = tuple(node for node in norms if node.input[0] in tensors)
    return Stream(tuple(nodes), tensors, tuple(dict.fromkeys(branches)), tuple(constants), readers)


def step(graph: FloatGraph, stream: Stream, branches: Mapping[str, Reals]) -> np.float32:
    """The smallest power of two in steps of which nothing in a stream can saturate.

    ``branches``: the least and the largest real of each, as its 8 bits stand for them.
    """
    steps = (np.float32(2.0**exponent) for exponent in _EXPONENTS)
    return next(size for size in steps if all(each.fits for each in reach(graph, stream, branches, size).values()))


def reach(graph: FloatGraph, stream: Stream, branches: Mapping[str, Reals], size: np.float32) -> dict[str, Interval]:
    """The integers that a stream's tensors, branches and constants may have in steps of this size."""
    known = {name: of_reals(*branches[name], size) for name in stream.branches}
    joins = []
    for node in stream.nodes:
        if node.op_type in NORMS:
            gain, *offset = (value for name in node.input[1:] if (value := graph.constant(name)) is not None)
            known[node.output[0]] = of_norm(gain, offset[0] if offset else np.zeros(1), size)
        else:
            joins += [Join(result, operands(node), node.op_type == "Add") for result in node.output]
    for name in stream.constants:
        values = graph.constant(name)
        assert values is not None
        known[name] = of_reals(float(values.min()), float(values.max()), size)
    return intervals(joins, known)
