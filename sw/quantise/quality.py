"""How close a quantised network comes to the float one: signal-to-noise of its tensors, and accuracy.

The quantised network is computed with the accelerator's integer arithmetic. ONNX Runtime on the uint8 form of the file
is fast; it is used if it gives the bytes of the graph interpreter on the first sample. Otherwise the interpreter is.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx
from onnx import numpy_helper

from dovetail.sw.errors import NetworkError
from dovetail.sw.frontend.onnx.operators.movement import MOVES
from dovetail.sw.frontend.onnx.parsed import ParsedOnnx
from dovetail.sw.frontend.onnx.uint8_form import uint8_form
from dovetail.sw.host.onnx_session import Session, with_outputs
from dovetail.sw.network import reference
from dovetail.sw.network.layout import Array, Sample, as_unsigned
from dovetail.sw.passes.integer.simplify import simplify
from dovetail.sw.quantise.float_network import FloatGraph
from dovetail.sw.quantise.samples import checked

RUNTIME = "ONNX Runtime on the uint8 form, equal to the accelerator on the first sample"
INTERPRETER = "the graph interpreter"


@dataclass(frozen=True)
class LayerQuality:
    """Signal-to-noise, in dB, of a node's quantised result, and the worst among its quantised operands' if any."""

    node: str
    tensor: str
    sqnr: float
    operands: float

    @property
    def loss(self) -> float:
        """What the node itself costs, in dB: how far its result is below its operands."""
        return self.operands - self.sqnr


@dataclass(frozen=True)
class Quality:
    """Outcome of `Comparison.quality`.

    Parameters
    ----------
    samples: how many were compared.
    sqnr: signal-to-noise by output, in dB; infinite where nothing differs.
    layers: quantised results of all nodes but those that only move bytes, worst first; empty unless asked for.
    float_accuracy, accuracy: share of samples whose largest output is the label; None without labels.
    engine: what computed the quantised outputs.
    """

    samples: int
    sqnr: Mapping[str, float]
    layers: tuple[LayerQuality, ...]
    float_accuracy: float | None
    accuracy: float | None
    engine: str

    @property
    def worst(self) -> float:
        """The lowest signal-to-noise among the outputs."""
        return min(self.sqnr.values())

    @property
    def drop(self) -> float | None:
        """Points of accuracy below float."""
        if self.accuracy is None or self.float_accuracy is None:
            return None
        return round(100 * (self.float_accuracy - self.accuracy), 9)


class Comparison:
    """Compares quantised forms of one float network; its float outputs are computed anew for each.

    Parameters
    ----------
    graph: the float network.
    """

    def __init__(self, graph: FloatGraph) -> None:
        self.graph = graph
        self.outputs = [value.name for value in graph.model.graph.output]

    def quality(
        self, model: onnx.ModelProto, samples: Iterable[Sample], labels: Array | None = None, *, layers: bool = False
    ) -> Quality:
        """Compare a quantised network with the float one.

        Parameters
        ----------
        model: a QDQ file of `quantise`, with the float network's inputs and outputs.
        samples: inputs by name.
        labels: the right class of each sample: the place of the largest element of the first output.
        layers: measure every quantised tensor that the float network has under the same name, too.

        Raises
        ------
        NetworkError: samples or labels do not fit.
        """
        watched = _watched(model, self.graph) if layers else {}
        exact = Session(self.graph.model, tuple(watched))
        runtime = Session(uint8_form(model), tuple(tensor.integer for tensor in watched.values()))
        engine: Session | _Interpreter = runtime
        noises = {name: _Noise() for name in (*self.outputs, *watched)}
        hits = [0, 0]
        count = 0
        for count, sample in enumerate(samples, 1):
            inputs = checked(sample, self.graph.inputs, f"sample {count - 1}")
            wanted = exact.run(inputs)
            found = engine.run(inputs)
            if count == 1:
                interpreter = _Interpreter(model, tuple(t.integer for t in watched.values()))
                own = interpreter.run(inputs)
                if any(not np.array_equal(own[name], found[name]) for name in self.outputs):
                    engine, found = interpreter, own
            for name in self.outputs:
                noises[name].add(wanted[name], found[name])
            for name, tensor in watched.items():
                noises[name].add(wanted[name], tensor.real(found[tensor.integer]))
            if labels is not None:
                label = _label(labels, count)
                for k, result in enumerate((wanted, found)):
                    hits[k] += int(np.argmax(result[self.outputs[0]])) == label
        if not count or (labels is not None and count != len(labels)):
            given = "" if labels is None else f"{len(labels)} for that many labels, "
            raise NetworkError(f"samples must be {given or 'at least 1, '}not {count}")
        return Quality(
            count,
            {name: noises[name].decibel() for name in self.outputs},
            _layers(self.graph, {name: noises[name].decibel() for name in watched}),
            hits[0] / count if labels is not None else None,
            hits[1] / count if labels is not None else None,
            RUNTIME if engine is runtime else INTERPRETER,
        )


@dataclass(frozen=True)
class _Watched:
    """A quantised tensor: the name of its integers in the QDQ file, and what they mean."""

    integer: str
    scale: np.float32
    zero_point: int

    def real(self, levels: Array) -> Array:
        """Reals of uint8 levels."""
        result: Array = (levels.astype(np.int32) - self.zero_point).astype(np.float32) * self.scale
        return result


class _Noise:
    """Sums of squares of a signal and of its error."""

    def __init__(self) -> None:
        self.signal = self.noise = 0.0

    def add(self, wanted: Array, found: Array) -> None:
        exact = wanted.astype(np.float64)
        self.signal += float(np.sum(exact**2))
        self.noise += float(np.sum((exact - found) ** 2))

    def decibel(self) -> float:
        """Infinite where there is no noise, and without signal minus infinity where there is."""
        if self.noise == 0:
            return float("inf")
        return float(10 * np.log10(self.signal / self.noise)) if self.signal else float("-inf")


class _Interpreter:
    """A network as the accelerator and its host run it; inner tensors are given as in the uint8 form."""

    def __init__(self, model: onnx.ModelProto, extra: tuple[str, ...]) -> None:
        seen = with_outputs(model, extra)
        self._graph = simplify(ParsedOnnx.of_model(seen, model.graph.name or "network").graph)

    def run(self, inputs: Sample) -> dict[str, Array]:
        """Outputs by name."""
        found = reference.run(self._graph, inputs)
        return {name: as_unsigned(v) if v.dtype == np.int8 else v for name, v in found.items()}


def _watched(model: onnx.ModelProto, graph: FloatGraph) -> dict[str, _Watched]:
    """Quantised tensors by their name in the float network."""
    constants = {tensor.name: tensor for tensor in model.graph.initializer}
    found = {}
    for node in model.graph.node:
        name = node.input[0].removesuffix("_QuantizeLinear_Input") if node.op_type == "QuantizeLinear" else ""
        if name in graph.producers:
            scale, zero = (numpy_helper.to_array(constants[parameter]) for parameter in node.input[1:3])
            shift = 128 if zero.dtype == np.int8 else 0
            found[name] = _Watched(node.output[0], np.float32(scale), int(zero) + shift)
    return found


def _layers(graph: FloatGraph, measured: Mapping[str, float]) -> tuple[LayerQuality, ...]:
    layers = []
    for name, sqnr in measured.items():
        if graph.producers[name].op_type in MOVES:
            continue
        sources = _sources(graph, name, set(measured))
        operands = min((measured[source] for source in sources), default=float("inf"))
        layers.append(LayerQuality(graph.producers[name].name, name, sqnr, operands))
    return tuple(sorted(layers, key=lambda layer: layer.sqnr))


def _sources(graph: FloatGraph, name: str, known: set[str]) -> set[str]:
    """The nearest measured tensors that a tensor is computed from."""
    found: set[str] = set()
    pending = [name]
    while pending:
        producer = graph.producers.get(pending.pop())
        for operand in graph.activations(producer) if producer is not None else ():
            if operand in known:
                found.add(operand)
            else:
                pending.append(operand)
    return found


def _label(labels: Array, count: int) -> Any:
    if count > len(labels):
        raise NetworkError(f"labels must be one for each sample, not {len(labels)} for more")
    return labels[count - 1]
