"""Nodes of the host that an instruction can do: softmax, and norms between conversions from and to int8.

Softmax of integers is exact. What is float in the file has no integer reference: its integer form may be one step off
the runtime's result, and is taken unless the options ask for that result.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypedDict

import numpy as np

from dovetail.isa.config.resolved import Config
from dovetail.isa.instructions.table import Op
from dovetail.isa.numerics.norm import NormRecords, epsilon_error, norm_epsilon
from dovetail.isa.numerics.rounding import Rounding
from dovetail.isa.numerics.softmax import onnx_exponentials
from dovetail.sw.compiler.options import Options
from dovetail.sw.compiler.partition.segments import broken_rule, host_reasons
from dovetail.sw.host import kernels
from dovetail.sw.host.norm import FloatNorm
from dovetail.sw.host.softmax import WHOLE, FloatSoftmax, OnnxSoftmax, TfliteSoftmax, factor_of
from dovetail.sw.network import ir
from dovetail.sw.passes.integer.edit import Names, makers, rebuilt
from dovetail.sw.passes.integer.tidy import drop_dead

INEXACT = "its integer form may be one step off the runtime's float kernel, which --exact asks for"


class Wires(TypedDict):
    """What every node has."""

    name: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]


@dataclass(frozen=True)
class Form:
    """What can stand for some nodes of the host: ``node`` makes the result of the last of ``nodes``, and the node
    ``host`` is the one that computes; ``columns``: elements of a row; ``exact``: the result is always the host's."""

    node: ir.Rows
    host: str
    nodes: tuple[ir.Host, ...]
    columns: int
    exact: bool

    @property
    def last(self) -> str:
        """Name of the node whose result it makes."""
        return self.nodes[-1].name


def with_integer_forms(graph: ir.Graph, config: Config, options: Options) -> tuple[ir.Graph, dict[str, str]]:
    """The graph in which instructions do what they can, and why the host computes a node, by name in the graph's order.

    A node that the rules leave to the host, or that is in a segment that does not pay, keeps the form of its file.
    """
    candidates = Forms(graph)
    forms, kept = list[Form](), candidates.refused
    for form in candidates:
        if broken := broken_rule(config, options, graph, form.node):
            kept[form.host] = broken[1]
        elif options.exact and not form.exact:
            kept[form.host] = INEXACT
        else:
            forms.append(form)
    while True:
        found = _replaced(graph, forms)
        reasons = host_reasons(config, options, found)
        left = {form.host: reasons[form.node.name] for form in forms if form.node.name in reasons}
        if not left:
            return found, {name: kept.get(name, reason) for name, reason in reasons.items()}
        kept |= left
        forms = [form for form in forms if form.host not in left]


def _replaced(graph: ir.Graph, forms: Collection[Form]) -> ir.Graph:
    """The graph with forms in place of the nodes that they stand for."""
    if not forms:
        return graph
    names, views = Names(graph), list[ir.Tensor]()
    places = {form.last: form for form in forms}
    # What nothing reads any more goes first, as a form may have its name.
    gone = {form.host for form in forms if form.node.name == form.host != form.last}
    kept = list[ir.Node]()
    for node in graph.nodes:
        if node.name in places:
            kept += _seen_as_rows(graph, places[node.name], names, views)
        elif node.name not in gone:
            kept.append(node)
    return drop_dead(rebuilt(graph, _side_by_side(kept), added=views))


def _seen_as_rows(graph: ir.Graph, form: Form, names: Names, views: list[ir.Tensor]) -> Iterator[ir.Node]:
    """A form's node, between reshapes where an operand or result is not seen as its rows; their views go to
    ``views``."""
    before, after = (graph.tensors[name] for name in (*form.node.inputs, *form.node.outputs))
    shapes = [tensor.shape for tensor in (after, before) if tensor.shape[-1] == form.columns]
    shape = shapes[0] if shapes else (before.size // form.columns, form.columns)
    ends = [before.name, after.name]
    for k, tensor in enumerate((before, after)):
        if tensor.shape != shape:
            views.append(names.like(tensor, shape, f"{tensor.name}/rows"))
            ends[k] = views[-1].name
    if ends[0] != before.name:
        name = names.fresh(f"{form.node.name}/rows")
        yield ir.Reshape(name=name, inputs=(before.name,), outputs=(ends[0],), shape=shape)
    yield replace(form.node, inputs=(ends[0],), outputs=(ends[1],))
    if ends[1] != after.name:
        name = names.fresh(f"{form.node.name}/reshape")
        yield ir.Reshape(name=name, inputs=(ends[1],), outputs=(after.name,), shape=after.shape)


def _side_by_side(nodes: Sequence[ir.Node]) -> list[ir.Node]:
    """The nodes in an order in which nothing stands between a softmax, what makes its operand and what reads its
    result, if it need not: the units can work on these three at once."""
    found = list(nodes)
    for softmax in [node for node in nodes if isinstance(node, ir.Softmax)]:
        places = {name: place for place, node in enumerate(found) for name in node.outputs}
        first = places.get(softmax.inputs[0], found.index(softmax))
        users = (place for place, node in enumerate(found) if softmax.outputs[0] in node.inputs)
        last = min(users, default=found.index(softmax) + 1)
        after = set(found[first].outputs)
        before, behind = list[ir.Node](), [found[first]]
        for node in found[first + 1 : last]:
            follows = not after.isdisjoint(node.inputs)
            (behind if follows else before).append(node)
            after.update(node.outputs if follows else ())
        found[first:last] = [*before, *behind]
    return found


class Forms:
    """The forms that a graph's nodes have, in its order; ``refused``: why a node has none, where that is not plain."""

    def __init__(self, graph: ir.Graph) -> None:
        self.refused: dict[str, str] = {}
        self._graph = graph
        self._makers = makers(graph)
        self._readers = Counter([*(name for node in graph.nodes for name in node.inputs), *graph.wanted])

    def __iter__(self) -> Iterator[Form]:
        for node in self._graph.nodes:
            if not isinstance(node, ir.Host):
                continue
            payload = node.payload
            wires: Wires = {"name": node.name, "inputs": node.inputs, "outputs": node.outputs}
            match payload:
                case TfliteSoftmax():
                    softmax = ir.Softmax(**wires, form=Rounding.TFLITE, exponentials=payload.exponentials)
                    columns = self._graph.tensors[node.inputs[0]].shape[-1]
                    yield Form(softmax, node.name, (node,), columns, exact=True)
                case OnnxSoftmax() if _has_rows(payload):
                    own: dict[str, Any] = {"levels": payload.levels, "zero_out": payload.zero_point}
                    softmax = ir.Softmax(**wires, form=Rounding.ONNX, exponentials=payload.exponentials, **own)
                    yield Form(softmax, node.name, (node,), payload.sizes[1], exact=True)
                case kernels.Quantize(ties_even=True):
                    yield from self._between(node, payload)

    def _host(self, tensor: str) -> ir.Host | None:
        """The host's node that makes a tensor, of one operand."""
        node = self._makers.get(tensor)
        return node if isinstance(node, ir.Host) and len(node.inputs) == 1 else None

    def _scale(self, node: ir.Host) -> float | None:
        """Of the integers that a node dequantises: of 8 bits, or of a stream. None of others, such as int32 sums, which
        may need more than 16 bits."""
        tensor = self._graph.tensors[node.inputs[0]]
        known = isinstance(node.payload, kernels.Dequantize | kernels.DequantizeSums)
        return float(tensor.scale) if known and tensor.scale is not None else None

    def _between(self, last: ir.Host, quantise: kernels.Quantize) -> Iterator[Form]:
        """What stands between DequantizeLinear and a node that quantises its result."""
        host = self._host(last.inputs[0])
        first, factor = self._host(host.inputs[0]) if host is not None else None, 1.0
        nodes = [last]
        while first is not None and first.label in ("mul", "div") and (more := factor_of(first.payload)):
            nodes.append(first)
            first, factor = self._host(first.inputs[0]), factor * more
        scale = self._scale(first) if first is not None else None
        if host is None or first is None or scale is None:
            return
        # A node whose result is read as float too remains, and its name with it.
        name = host.name if self._readers[last.inputs[0]] == 1 else last.name
        wires: Wires = {"name": name, "inputs": first.inputs, "outputs": last.outputs}
        in_bytes = isinstance(first.payload, kernels.Dequantize) and not quantise.wide
        try:
            match host.payload:
                case FloatSoftmax() as payload if _has_rows(payload) and in_bytes:
                    columns = payload.sizes[1]
                    node: ir.Rows = _of_floats(payload, factor * scale, quantise, wires)
                case FloatNorm() as payload if factor == 1:
                    columns = payload.gain.size
                    node = _norm(payload, first.payload, scale, quantise, wires)
                case _:
                    return
        except ValueError as error:
            self.refused[host.name] = str(error)
        else:
            yield Form(node, host.name, (first, *nodes[:0:-1], host, last), columns, exact=False)


def _has_rows(payload: OnnxSoftmax | FloatSoftmax) -> bool:
    """Whether rows along the axis lie in memory one after the other, in the same order in operand and result."""
    (before,), (after,) = payload.inputs, payload.outputs
    return before.layout.has_rows(payload.sizes) and after.layout.same_memory(before.layout)


def _of_floats(payload: FloatSoftmax, scale: float, quantise: kernels.Quantize, wires: Wires) -> ir.Softmax:
    """Softmax of integers of a ``scale``. Raises ValueError: its result would be more than a step off."""
    factor, levels = scale * payload.factor, payload.levels(quantise.scale)
    if not factor > 0:
        raise ValueError(f"what is in front of softmax must be multiplied by more than 0, not {factor:.6g}")
    if levels is None:
        raise ValueError(f"a whole number of steps must be 1 behind softmax, not {1 / float(quantise.scale):.6g}")
    count = payload.sizes[1]
    # The number of levels, and sum and quotient of float32.
    distance = 0.5 + WHOLE + levels * (count + 4) * 2.0**-24
    own: dict[str, Any] = {"levels": levels, "zero_out": quantise.zero_point, "valid": payload.valid}
    exponentials = onnx_exponentials(factor, count)
    return ir.Softmax(**wires, form=Rounding.ONNX, exponentials=exponentials, distance=distance, **own)


def _norm(payload: FloatNorm, before: kernels.Payload, scale: float, after: kernels.Quantize, wires: Wires) -> ir.Norm:
    """A norm of integers of a ``scale``. Raises ValueError: its result would be more than a step off."""
    count, step = payload.gain.size, float(after.scale)
    zero_in, bits = (before.zero_point, 8) if isinstance(before, kernels.Dequantize) else (0, 16)
    if after.wide and bits == 8:
        raise ValueError("a norm of int8 must make int8, not 16 bits")
    records = NormRecords.of(payload.gain, None if payload.rms else payload.offset, step)
    epsilon = norm_epsilon(count, payload.epsilon, scale, bits)
    # Normalised elements, and the reciprocal of the deviation in steps, are at most the root of the count.
    gain = float(np.max(np.abs(payload.gain))) / step
    error = 2**-7 if after.wide else 2**-15
    of_epsilon = epsilon_error(count, payload.epsilon, scale) if bits == 16 else 0.0
    distance = 0.5 + error + gain * (3 * 2**-18 + 2 * count**0.5 * 2**-20 + of_epsilon)
    if distance >= 1:
        raise ValueError(f"gains must be below {gain * 0.5 / (distance - 0.5):.6g} steps of the result, not {gain:.6g}")
    return ir.Norm(
        **wires,
        rms=payload.rms,
        epsilon=epsilon,
        records=records,
        zero_in=zero_in,
        zero_out=after.zero_point,
        distance=distance,
        instruction=Op.NORM if bits == 8 else Op.NORM16_WIDE if after.wide else Op.NORM16,
    )
