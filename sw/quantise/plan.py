"""Which tensors of a float network are quantised, and which of them share a quantisation.

The front end turns operators between DequantizeLinear and QuantizeLinear into instructions. So there is no pair of
these between an operator and its activation, and none inside a function that becomes one table. Both sides of an
operator that only moves or picks bytes have equal pairs.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass, field
from difflib import get_close_matches
from fnmatch import fnmatchcase

import numpy as np
import onnx

from dovetail.sw.errors import NetworkError
from dovetail.sw.frontend.onnx.mapping import mappings
from dovetail.sw.frontend.onnx.operators.elementwise import BINARY, COMBINATIONS, FUNCTIONS
from dovetail.sw.frontend.onnx.operators.movement import CUTS, MOVES
from dovetail.sw.quantise.float_network import FloatGraph, attribute
from dovetail.sw.quantise.patterns import LAYERS, Weight, has_weights, is_single, masked, next, picks_rows, weight
from dovetail.sw.quantise.scheme import Scheme
from dovetail.sw.quantise.streams import Stream, streams

_MEANS = ("AveragePool", "GlobalAveragePool", "ReduceMean")

_SAME = (*MOVES, *CUTS, "MaxPool", "Pad", "Concat", "Resize", "ScatterElements")
"""Operators whose results are elements of their operands: all of these share one quantisation."""

_CLAMPS = ("Relu", "Clip")


@dataclass
class Plan:
    """Outcome of `plan`.

    Parameters
    ----------
    tensors: activations to quantise, with the representative of those that share a quantisation, in the file's order.
    weights: the layers' constants.
    operands: constants that are quantised as activations are.
    clamps: Relu and Clip nodes right behind an operator, by name, with the tensor that is quantised behind them.
    layers: names of all nodes with weights, in order, quantised or not.
    results: the quantised result of each quantised layer.
    floating: names of the nodes that stay float.
    streams: residual streams of 16 bits; `tensors` has those of their tensors that are needed in 8 bits, too.
    """

    tensors: dict[str, str] = field(default_factory=dict)
    weights: list[Weight] = field(default_factory=list)
    operands: list[str] = field(default_factory=list)
    clamps: dict[str, str] = field(default_factory=dict)
    layers: list[str] = field(default_factory=list)
    results: dict[str, str] = field(default_factory=dict)
    floating: list[str] = field(default_factory=list)
    streams: list[Stream] = field(default_factory=list)


def plan(graph: FloatGraph, scheme: Scheme) -> Plan:
    """Decide what is quantised.

    Raises
    ------
    NetworkError: `keep_float` names no node, or nothing is left to quantise.
    """
    layers = [node.name for node in graph.nodes if has_weights(graph, node)]
    kept = _kept(graph, scheme, layers)
    of_sums = leaves_sums(graph, layers[-1:] if scheme.int32_last else ())
    wide = streams(graph, kept) if scheme.int16_sums else []
    while True:
        planner = _Planner(graph, layers, kept, of_sums, wide)
        found = planner.plan()
        in_vain = set() if scheme.integer_sums or scheme.int16_sums else planner.joined_in_vain()
        if not in_vain:
            return found
        kept |= in_vain


def leaves_sums(graph: FloatGraph, layers: Collection[str]) -> set[str]:
    """Those of some layers whose results need not be quantised, as int32 sums become floats: matrix products."""
    return {node.name for node in graph.nodes if node.name in layers and node.op_type in ("Gemm", "MatMul")}


class _Planner:
    """``of_sums``: products whose results are not quantised; ``wide``: streams of 16 bits."""

    def __init__(
        self, graph: FloatGraph, layers: list[str], kept: set[str], of_sums: set[str], wide: list[Stream]
    ) -> None:
        self.graph = graph
        self.layers = layers
        self.streams = wide
        self.streamed = {node.name for stream in wide for node in stream.nodes}
        self.kept = kept | self.streamed
        self.of_sums = of_sums
        own = {mapping.operator for mapping in mappings().values() if not mapping.domain and not mapping.integers}
        self.pairs = {*BINARY, *own}
        self.parents: dict[str, str] = {}
        self.touched: set[str] = set()
        self.inside: set[str] = set()
        self.clamps: dict[str, str] = {}
        self.results: dict[str, str] = {}
        self.integer = set(self.streamed)
        self.picked = {node.output[0] for node in graph.nodes if node.name not in kept and picks_rows(graph, node)}

    def plan(self) -> Plan:
        self._fuse_clamps()
        roots = self._functions()
        neutral = [node for node in self.graph.nodes if self._is_neutral(node)]
        for node in neutral:
            self._share(node)
        for node in self.graph.nodes:
            self._share_update(node)
        self._share_states()
        self._share_layers()
        for stream in self.streams:
            self._touch([*stream.branches, *self._left(stream)])
        for node in self.graph.nodes:
            if self._is_strong(node) or (node.name not in self.kept and masked(self.graph, node)):
                self._mark(node)
        for node in self.graph.nodes:
            if node.op_type in (*FUNCTIONS, *COMBINATIONS) and node.name not in self.kept:
                self._weak(node, roots)
        self.integer |= {node.name for node in neutral if self._is_touched(node.output[0])}
        return self._result()

    # Groups ------------------------------------------------------------------------------------

    def _fuse_clamps(self) -> None:
        """Activations directly behind an operator: the tensor between them is not quantised."""
        apart = self.kept | self.of_sums
        for node in reversed(self.graph.nodes):
            operator = self.graph.producers.get(node.input[0]) if node.op_type in _CLAMPS else None
            if operator is None or {node.name, operator.name} & apart or not self._is_fixed(node):
                continue
            if not (self._is_strong(operator) or self._is_binary(operator) or operator.op_type in _CLAMPS):
                continue
            if operator.op_type in _CLAMPS and not self._clamps_an_operator(operator):
                continue
            between = node.input[0]
            if between not in self.graph.outputs and len(self.graph.consumers[between]) == 1:
                self.inside.add(between)
                self.clamps[node.name] = self.clamps.get(next(self.graph, node.output[0]), node.output[0])
                self.results[between] = self.results.get(node.output[0], node.output[0])

    def _clamps_an_operator(self, node: onnx.NodeProto) -> bool:
        """Whether a chain of clamps begins behind an operator."""
        before = self.graph.producers.get(node.input[0])
        while before is not None and before.op_type in _CLAMPS:
            before = self.graph.producers.get(before.input[0])
        return before is not None and (self._is_strong(before) or self._is_binary(before))

    def _is_fixed(self, node: onnx.NodeProto) -> bool:
        return all(self.graph.is_constant(name) for name in node.input[1:] if name)

    def _functions(self) -> dict[str, str]:
        """Tensors that are a function of one other tensor. Those that only the function reads are not quantised."""
        borders: set[str] = set()
        while True:
            roots: dict[str, str] = {}
            for node in self.graph.nodes:
                if node.op_type in (*FUNCTIONS, *COMBINATIONS) and self._may_be_function(node):
                    names = self.graph.activations(node)
                    variables = {name if name in borders else roots.get(name, name) for name in names}
                    if len(variables) == 1:
                        roots[node.output[0]] = variables.pop()
            outer = {name for name in roots if not self._read_inside(name, roots)}
            read_on = {name for name in outer for user in self._users(name) if user.output[0] in roots}
            if read_on <= borders:
                self.inside |= set(roots) - outer
                return roots
            borders |= read_on

    def _may_be_function(self, node: onnx.NodeProto) -> bool:
        if node.name in self.kept or node.name in self.clamps:
            return False
        return self._reads_floats(node) and all(is_single(value) for value in self.graph.constants(node))

    def _reads_floats(self, node: onnx.NodeProto) -> bool:
        return all(self.graph.is_activation(name) for name in self.graph.activations(node))

    def _read_inside(self, name: str, roots: dict[str, str]) -> bool:
        users = self._users(name)
        inside = all(roots.get(user.output[0]) == roots[name] for user in users)
        return bool(users) and inside and name not in self.graph.outputs

    def _users(self, name: str) -> list[onnx.NodeProto]:
        return self.graph.consumers.get(name, [])

    # Classes of equal quantisation ---------------------------------------------------------------

    def _find(self, name: str) -> str:
        while name in self.parents:
            name = self.parents[name]
        return name

    def _share(self, node: onnx.NodeProto) -> None:
        outputs = [self._result_of(name) for name in node.output if self.graph.is_activation(name)]
        names = [*filter(self.graph.is_activation, self.graph.activations(node)), *outputs]
        self._unite(names)

    def _unite(self, names: list[str]) -> None:
        first = self._find(names[0])
        for name in names[1:]:
            other = self._find(name)
            if other != first:
                self.parents[other] = first

    def _share_update(self, node: onnx.NodeProto) -> None:
        """A cache that comes in and leaves with some rows replaced, ``cache * keep + new * (1 - keep)``: all but the
        masks share one quantisation. So a row is rounded once, and not again in every run."""
        if node.op_type != "Add" or node.output[0] not in self.graph.outputs:
            return
        shape = self.graph.shape(node.output[0])
        caches = {value.name for value in self.graph.inputs if value.shape == shape}
        products = [self.graph.producers.get(name) for name in node.input]
        ends = [each.input for each in products if each is not None and each.op_type == "Mul"]
        for (one, other), new in zip(ends, reversed(ends), strict=True) if len(ends) == 2 else ():
            cache, keep = (one, other) if one in caches else (other, one)
            rows = [name for name in new if self.graph.shape(name) != self.graph.shape(keep)]
            if cache in caches and cache not in new and len(rows) == 1:
                self._unite([cache, *node.input, *rows, node.output[0]])

    def _share_states(self) -> None:
        """What a run leaves in a variable and what the next one finds there share one quantisation: it is kept in 8
        bits from run to run, and not rounded again."""
        for before, after in self.graph.states.items():
            if self.graph.is_activation(before) and self.graph.is_activation(after):
                self._unite([before, self._result_of(after)])

    def _share_layers(self) -> None:
        """Layers with the same weights are one, as in the steps of a recurrent layer: their data have one quantisation,
        and so their weights are the same integers."""
        firsts: dict[str, list[str]] = {}
        for node in self.graph.nodes:
            if has_weights(self.graph, node) and self.graph.is_activation(node.input[0]):
                ends = [node.input[0], self._result_of(node.output[0])]
                original = self.graph.originals.get(node.input[1], node.input[1])
                for one, other in zip(firsts.setdefault(original, ends), ends, strict=True):
                    self._unite([one, other])

    def _left(self, stream: Stream) -> Iterator[str]:
        """Tensors of a stream that are needed in 8 bits: other nodes read them, or they leave the network."""
        readers = self.streamed | {node.name for node in stream.norms}
        for name in stream.tensors:
            if name in self.graph.outputs or any(user.name not in readers for user in self._users(name)):
                yield name

    def _touch(self, names: Iterable[str]) -> None:
        self.touched |= {self._find(name) for name in names}

    def _is_touched(self, name: str) -> bool:
        return self._find(name) in self.touched

    def _result_of(self, name: str) -> str:
        """The tensor that is quantised for a node's output: the one behind its activation."""
        return self.results.get(name, name)

    # Kinds of nodes ------------------------------------------------------------------------------

    def _is_neutral(self, node: onnx.NodeProto) -> bool:
        """Only moves or picks elements."""
        same = node.op_type in _SAME or node.op_type == "AveragePool"
        if not same or node.name in self.kept or not self.graph.is_activation(node.output[0]):
            return False
        if node.op_type == "Resize" and attribute(node, "mode", b"nearest") != b"nearest":
            return False
        if node.op_type == "Concat":
            return self._reads_floats(node) and all(v.dtype == np.float32 for v in self.graph.constants(node))
        if node.op_type == "ScatterElements":
            kept = attribute(node, "reduction", b"none") == b"none"
            return kept and all(map(self.graph.is_activation, (node.input[0], node.input[2])))
        if node.op_type == "Pad":
            fill = self.graph.constant(node.input[2]) if len(node.input) > 2 and node.input[2] else np.zeros(1)
            if attribute(node, "mode", b"constant") != b"constant" or fill is None or np.any(fill):
                return False
        return self.graph.activations(node) == [node.input[0]]

    def _is_strong(self, node: onnx.NodeProto) -> bool:
        """Worth running on the accelerator by itself."""
        if node.name in self.kept or not self._reads_floats(node):
            return False
        if node.op_type in LAYERS:
            return has_weights(self.graph, node) or (node.op_type == "MatMul" and self._multiplies_activations(node))
        return node.op_type in _MEANS and self._is_image_mean(node)

    def _multiplies_activations(self, node: onnx.NodeProto) -> bool:
        if any(self.graph.is_constant(name) for name in node.input):
            return False
        left, right = (self.graph.shape(name) for name in node.input)
        return len(left) >= 2 and (len(right) == 2 or left[:-2] == right[:-2])

    def _is_image_mean(self, node: onnx.NodeProto) -> bool:
        if len(self.graph.shape(node.input[0])) != 4:
            return False
        if node.op_type != "ReduceMean":
            return True
        given = self.graph.constant(node.input[1]) if len(node.input) > 1 and node.input[1] else None
        axes = attribute(node, "axes", ()) if given is None else given.ravel()
        return sorted(int(axis) % 4 for axis in axes) == [2, 3]

    def _is_binary(self, node: onnx.NodeProto) -> bool:
        """Combines two tensors, of which one may be a constant."""
        if node.op_type not in self.pairs or len(node.input) != 2 or node.name in self.kept:
            return False
        constants = self.graph.constants(node)
        return len(constants) < 2 and all(v.dtype == np.float32 and not is_single(v) for v in constants)

    def _mark(self, node: onnx.NodeProto) -> None:
        self.integer.add(node.name)
        results = [] if node.name in self.of_sums else [self._result_of(node.output[0])]
        self._touch([*self.graph.activations(node), *results])

    def _weak(self, node: onnx.NodeProto, roots: dict[str, str]) -> None:
        """An element-wise node is integer if its operands are."""
        name = node.output[0]
        if node.name in self.clamps:
            if self.graph.producers[node.input[0]].name in self.integer:
                self.integer.add(node.name)
                self._touch([self.clamps[node.name]])
            return
        if name in roots:
            source = roots[name]
            if self._available(source):
                self.integer.add(node.name)
                self._touch([source] if name in self.inside else [source, name])
        elif self._is_binary(node):
            computed = [operand for operand in self.graph.activations(node) if self._find(operand) not in self.picked]
            if computed and all(self._available(operand) for operand in computed):
                self._mark(node)

    def _available(self, name: str) -> bool:
        """Whether an operand is quantised already, or is an input of the network, which can be."""
        inputs = {self._find(value.name) for value in self.graph.inputs if value.dtype == "float32"}
        return self._find(name) in self.touched | inputs

    # What gains nothing ----------------------------------------------------------------------------

    def joined_in_vain(self) -> set[str]:
        """Integer sums, products and concatenations that are better left in float.

        Their result has one scale, which is coarse for the smaller operand. If it is needed in float only, the host can
        compute it at little cost: the residual stream of a transformer keeps float32 between its normalisations. A
        constant operand, such as learnt positions, would be quantised for this node alone, so the node stays in float
        if any reader needs float.
        """
        found: set[str] = set()
        for node in reversed(self.graph.nodes):
            joins = node.op_type == "Concat" or self._is_binary(node)
            if joins and node.name in self.integer and masked(self.graph, node) is None:
                enough = all if any(map(self.graph.is_constant, node.input)) else any
                if not enough(self._readings(node.output[0], found)):
                    found.add(node.name)
        return found

    def _readings(self, name: str, besides: set[str]) -> Iterator[bool]:
        """Whether each reader of a tensor reads integers; moves are looked through. An output may be either."""
        if name in self.graph.outputs:
            yield True
        for user in self._users(name):
            integer = user.name in self.integer - besides
            if integer and (user.op_type in (*MOVES, *CUTS) or user.name in self.clamps):
                for result in user.output:
                    yield from self._readings(result, besides)
            else:
                yield integer

    # Outcome -------------------------------------------------------------------------------------

    def _result(self) -> Plan:
        graph, result = self.graph, Plan(layers=self.layers, streams=self.streams)
        order = [value.name for value in graph.inputs] + [name for node in graph.nodes for name in node.output]
        for name in order:
            if name not in self.inside and graph.is_activation(name) and self._is_touched(name):
                result.tensors[name] = self._find(name)
        for node in graph.nodes:
            if node.name in self.streamed:
                continue
            if node.name not in self.integer:
                result.floating.append(node.name)
            elif has_weights(graph, node):
                result.weights.append(weight(node))
                if node.name not in self.of_sums:
                    result.results[node.name] = self._result_of(node.output[0])
            elif self._is_binary(node) or node.op_type == "Concat":
                result.operands += [name for name in node.input if graph.is_constant(name)]
        result.clamps = {name: tensor for name, tensor in self.clamps.items() if name in self.integer}
        if not result.tensors:
            raise NetworkError("network must have something to quantise, not only nodes that stay float")
        return result


def _kept(graph: FloatGraph, scheme: Scheme, layers: list[str]) -> set[str]:
    """Names of the nodes that the scheme keeps float."""
    names = [node.name for node in graph.nodes]
    kept = set(layers[: int(scheme.float_first)]) | set(layers[-1:] if scheme.float_last else ())
    for pattern in scheme.keep_float:
        found = {name for name in names if name == pattern or fnmatchcase(name, pattern)}
        if not found:
            close = get_close_matches(pattern, names, 3) or names[:3]
            raise NetworkError(f"float={pattern} must name a node, such as {', '.join(close)}")
        kept |= found
    return kept
