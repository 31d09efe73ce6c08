"""Channels of an activation brought to like ranges, before a float network is quantised.

One scale has to do for all channels of an activation, so a few large channels make it coarse for the others. What makes
the activation is divided by a factor for each channel, and the weights that read it are multiplied by it, which changes
no result. The factor that balances both is ``sqrt(largest activation / largest weight)`` of the channel (SmoothQuant,
Xiao et al., 2023).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import numpy_helper

from dovetail.sw.host.onnx_session import Session
from dovetail.sw.network.layout import Sample
from dovetail.sw.quantise.float_network import FloatGraph, attribute
from dovetail.sw.quantise.samples import checked

_NORMS = ("LayerNormalization", "RMSNormalization")
_TINY = 1e-6
"""Of the largest channel; smaller ones are taken as that."""


@dataclass(frozen=True)
class Place:
    """Where channels can be scaled.

    Parameters
    ----------
    activation: the tensor whose last axis is scaled.
    makers: constants along whose last axis the factors are divided.
    readers: matrices along whose first axis they are multiplied.
    """

    activation: str
    makers: tuple[str, ...]
    readers: tuple[str, ...]


def places(graph: FloatGraph) -> Iterator[Place]:
    """Norms, and products of two tensors, that matrix products with constants alone read."""
    for node in graph.nodes:
        makers = _makers(graph, node)
        if not makers or node.output[0] in graph.outputs:
            continue
        users = graph.consumers.get(node.output[0], [])
        readers = [user.input[1] for user in users if _is_product(graph, user) and user.input[0] == node.output[0]]
        if users and len(readers) == len(users):
            yield Place(node.output[0], makers, tuple(readers))


def _makers(graph: FloatGraph, node: onnx.NodeProto) -> tuple[str, ...]:
    """Constants that scale each channel of a node's result."""
    if node.op_type in _NORMS:
        axis, rank = attribute(node, "axis", -1), len(graph.shape(node.input[0]))
        own = [name for name in node.input[1:] if name]
        known = all(graph.is_constant(name) and len(graph.shape(name)) == 1 for name in own)
        return tuple(own) if known and axis % rank == rank - 1 and len(node.output) == 1 else ()
    if node.op_type == "Mul" and not graph.constants(node):
        for name in node.input:
            maker = graph.producers.get(name)
            alone = len(graph.consumers[name]) == 1 and name not in graph.outputs
            if maker is not None and alone and _is_product(graph, maker):
                same = graph.shape(name) == graph.shape(node.output[0])
                return (maker.input[1],) if same else ()
    return ()


def _is_product(graph: FloatGraph, node: onnx.NodeProto) -> bool:
    """A matrix product with a constant."""
    return node.op_type == "MatMul" and graph.is_constant(node.input[1]) and len(graph.shape(node.input[1])) == 2


def smooth(graph: FloatGraph, samples: Iterable[Sample]) -> FloatGraph:
    """The network with channels of like ranges.

    Parameters
    ----------
    graph: a float network; left as it is.
    samples: calibration inputs, gone through once.

    Raises
    ------
    NetworkError: a sample does not fit.
    """
    found = list(places(graph))
    largest = _largest(graph, found, samples)
    model = onnx.ModelProto()
    model.CopyFrom(graph.model)
    constants = {tensor.name: tensor for tensor in model.graph.initializer}

    def scale(name: str, factors: NDArray[np.float64]) -> None:
        values = numpy_helper.to_array(constants[name])
        constants[name].CopyFrom(numpy_helper.from_array((values * factors).astype(values.dtype), name))

    for place in found:
        weights = np.max([np.abs(numpy_helper.to_array(constants[name])).max(axis=1) for name in place.readers], axis=0)
        seen = largest[place.activation]
        seen, weights = (np.maximum(each, max(_TINY * each.max(), _TINY)) for each in (seen, weights))
        factors = np.sqrt(seen / weights, dtype=np.float64)
        factors /= np.exp(np.log(factors).mean())
        for name in place.makers:
            scale(name, 1 / factors)
        for name in place.readers:
            scale(name, factors[:, None])
    return FloatGraph(model, graph.states)


def _largest(graph: FloatGraph, found: list[Place], samples: Iterable[Sample]) -> dict[str, NDArray[np.float64]]:
    """The largest magnitude of each channel of the places' activations."""
    names = tuple(place.activation for place in found)
    session = Session(graph.model, names)
    largest = {name: np.zeros(graph.shape(name)[-1]) for name in names}
    for number, sample in enumerate(samples):
        results = session.run(checked(sample, graph.inputs, f"calibration sample {number}"))
        for name in names:
            values = np.abs(results[name]).reshape(-1, len(largest[name])).max(axis=0)
            largest[name] = np.maximum(largest[name], values)
    return largest
