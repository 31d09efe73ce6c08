"""A float ONNX network becomes a QDQ network: ONNX Runtime's quantiser carries out a plan with given scales."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import numpy_helper
from onnxruntime.quantization import CalibrationMethod, QDQQuantizer, QuantType
from onnxruntime.quantization.calibrate import TensorData, TensorsData

from dovetail.sw.errors import NetworkError, first_line
from dovetail.sw.network.layout import Array, Sample
from dovetail.sw.quantise.calibration import Calibration, Means
from dovetail.sw.quantise.float_network import FloatGraph, attribute
from dovetail.sw.quantise.parameters import Level, Range, activation, make_exact, set_apart, weights
from dovetail.sw.quantise.patterns import Masked, cell, masked, picks_rows
from dovetail.sw.quantise.plan import Plan, plan
from dovetail.sw.quantise.scheme import DEFAULT, Scheme
from dovetail.sw.quantise.streams import step
from dovetail.sw.quantise.widening import widen

_NOTHING = 16.0
"""Distance from a row's largest score from which on a share is nothing: exp(-16) is 3e-5 steps of 1 / 256."""

_CELL = 6.0
"""Where the cell of a recurrent layer saturates: tanh(6) is 1 but for 1e-5, and with 8 bits a wider range is coarse."""

_MOST_SHARES = 1 << 12
"""Steps of a share that are 1 at most."""

Scales = Mapping[str, NDArray[np.float32]]

METADATA = "dovetail.scheme"
"""Key of the scheme's text among the metadata of a network that was quantised here."""


@dataclass(frozen=True)
class Quantised:
    """A quantised network and what was done.

    Parameters
    ----------
    model: QDQ ONNX; inputs and outputs stay float.
    plan: what became integer.
    """

    model: onnx.ModelProto
    plan: Plan


def quantise(model: onnx.ModelProto, samples: Iterable[Sample], scheme: Scheme = DEFAULT) -> onnx.ModelProto:
    """Quantise a float network.

    Parameters
    ----------
    model: a float network with fixed shapes, opset 13 or later.
    samples: calibration inputs by input name, of the inputs' shapes and types.
    scheme: how.

    Raises
    ------
    NetworkError: the network is quantised already, the samples do not fit, or the scheme names unknown nodes.
    """
    graph = FloatGraph(model)
    return apply(Calibration(graph, samples), scheme).model


def apply(calibration: Calibration, scheme: Scheme) -> Quantised:
    """Quantise the network of a calibration by one scheme. Raises NetworkError."""
    graph = calibration.graph
    chosen = plan(graph, scheme)
    ranges = dict(calibration.ranges(scheme))
    sums = [found for node in graph.nodes if node.output[0] in chosen.tensors and (found := masked(graph, node))]
    if sums:
        ranges |= _of_scores(sums, calibration.row_maxima([found.result for found in sums]))
    levels = _levels(graph, chosen, ranges, scheme)
    float_model = onnx.ModelProto()
    float_model.CopyFrom(graph.model)
    _drop_clamps(float_model, graph, chosen, levels)
    scales = _weight_scales(graph, chosen, levels, scheme)
    if scheme.corrected:
        _correct_biases(float_model, graph, chosen, scales, calibration.means())
    result = _insert(float_model, chosen, levels, scales, scheme)
    for stream in chosen.streams:
        branches = {name: levels[name].ends for name in stream.branches}
        widen(result, graph, stream, step(graph, stream, branches))
    onnx.helper.set_model_props(result, {METADATA: str(scheme)})
    result.producer_name, result.producer_version = "dovetail", ""
    try:
        onnx.checker.check_model(result, full_check=True)
    except Exception as error:  # the checker's classes have no base of their own
        reason = first_line(error)
        raise NetworkError(f"float network must declare the shapes that its operators give, not: {reason}") from error
    return Quantised(result, chosen)


def _levels(graph: FloatGraph, chosen: Plan, ranges: Mapping[str, Range], scheme: Scheme) -> dict[str, Level]:
    """Quantisation of each activation and constant operand."""
    shared: dict[str, Range] = {}
    for name, representative in chosen.tensors.items():
        producer, seen = graph.producers.get(name), ranges[name]
        if producer is not None and producer.op_type == "Softmax":
            seen = of_softmax(scheme, seen)
        elif producer is not None and picks_rows(graph, producer):  # of all rows, not only of those that were seen
            seen = _of_constant(_constant(graph, producer.input[0]))
        shared[representative] = seen.join(shared.get(representative, seen))
    for name in (name for node in graph.nodes for name in cell(graph, node) if name in chosen.tensors):
        seen = shared[chosen.tensors[name]]
        shared[chosen.tensors[name]] = Range(max(seen.low, -_CELL), min(seen.high, _CELL))
    pools = [node for node in graph.nodes if node.op_type == "AveragePool"]
    averaged = {chosen.tensors.get(name) for node in pools for name in (*node.input, *node.output)}
    levels = {
        name: activation(scheme, shared[representative], representative in averaged)
        for name, representative in chosen.tensors.items()
    }
    for name in chosen.operands:
        levels[name] = activation(scheme, _of_constant(_constant(graph, name)))
    if scheme.activations == "power-of-two":
        return levels
    return make_exact(graph, chosen, set_apart(graph, chosen, levels))


def _of_constant(values: Array) -> Range:
    return Range(float(values.min()), float(values.max()))


def _of_scores(sums: Iterable[Masked], maxima: Mapping[str, Range]) -> dict[str, Range]:
    """Ranges of scores in front of softmax, and of their masks: what is further below a row's largest score than
    `_NOTHING` has no share. So the range begins that far below the lowest of these, where hidden scores saturate."""
    found: dict[str, Range] = {}
    for each in sums:
        seen = maxima[each.result]
        low, high = seen.low - _NOTHING, seen.high
        found |= dict.fromkeys((each.scores, each.result), Range(low, high))
        if each.product != each.scores:
            found[each.product] = Range(low / each.factor, high / each.factor)
        found[each.mask] = Range(low - high, 0.0).join(found.get(each.mask, Range(0.0, 0.0)))
    return found


def of_softmax(scheme: Scheme, seen: Range) -> Range:
    """A range that has the shares that were seen and the finest steps of which a whole number is 1, up to 4096.

    ONNX Runtime fuses a Softmax with its neighbours. The fused kernel divides by the scale as an integer, and overflows
    if that is small. So does the accelerator's SOFTMAX, in whole numbers.
    """
    steps = 255 if scheme.activations == "asymmetric" else 127
    finest = int(np.clip(steps / max(seen.high, 2.0**-12), steps + 1, _MOST_SHARES))
    for levels in range(finest, steps, -1):
        found = Range(0.0, steps / levels)
        if np.floor(np.float32(1) / activation(scheme, found).scale) == levels:
            return found
    return Range(0.0, steps / (steps + 1))


def _drop_clamps(model: onnx.ModelProto, graph: FloatGraph, chosen: Plan, levels: Mapping[str, Level]) -> None:
    """Remove every Relu and Clip behind an operator if the saturation of QuantizeLinear does the same."""
    renamed = {}
    dropped = set()
    for node in graph.nodes:
        target = levels.get(chosen.clamps.get(node.name, ""))
        if target is None:
            continue
        low, high = _bounds(graph, node)
        if target.of(low) == target.lowest and target.of(high) == target.highest:
            dropped.add(node.name)
            renamed[node.input[0]] = node.output[0]
    kept = [node for node in model.graph.node if node.name not in dropped]
    for node in kept:
        for names in (node.input, node.output):
            names[:] = [_last(renamed, name) for name in names]
    del model.graph.node[:]
    model.graph.node.extend(kept)


def _last(renamed: Mapping[str, str], name: str) -> str:
    while name in renamed:
        name = renamed[name]
    return name


def _bounds(graph: FloatGraph, node: onnx.NodeProto) -> tuple[float, float]:
    """Real bounds of a Relu or Clip."""
    if node.op_type == "Relu":
        return 0.0, np.inf
    ends = [float(attribute(node, "min", -np.inf)), float(attribute(node, "max", np.inf))]
    for index in (1, 2):
        if len(node.input) > index and node.input[index]:
            ends[index - 1] = float(_constant(graph, node.input[index]).ravel()[0])
    return ends[0], ends[1]


def _weight_scales(graph: FloatGraph, chosen: Plan, levels: Mapping[str, Level], scheme: Scheme) -> Scales:
    """Scales of each layer's weights."""
    found = {}
    for layer in chosen.weights:
        bias = None if layer.bias is None else _constant(graph, layer.bias)
        source = levels[layer.source].scale
        found[layer.weight] = weights(scheme, _constant(graph, layer.weight), layer.axis, bias, source)
    return found


def _correct_biases(
    model: onnx.ModelProto, graph: FloatGraph, chosen: Plan, scales: Scales, means: Mapping[str, Means]
) -> None:
    """Add to biases what rounding the weights takes away from results on average."""
    initialisers = {tensor.name: tensor for tensor in model.graph.initializer}
    sources: dict[str, list[Means]] = {}
    for layer in chosen.weights:
        sources.setdefault(graph.originals.get(layer.weight, layer.weight), []).append(means[layer.source])
    for layer in chosen.weights:
        if layer.bias is not None:
            values = _constant(graph, layer.weight)
            seen = np.mean(sources[graph.originals.get(layer.weight, layer.weight)], axis=0)
            more = rounding_shift(values, scales[layer.weight], layer.axis, seen)
            bias = (_constant(graph, layer.bias) + more).astype(np.float32)
            initialisers[layer.bias].CopyFrom(numpy_helper.from_array(bias, layer.bias))


def rounding_shift(values: Array, scales: NDArray[np.float32], axis: int, means: Means) -> Means:
    """Mean difference of a layer's float results and those with rounded weights, for each output channel.

    It is the sum, over the channel's weights, of the rounding error times the mean of the input channel that the weight
    sees. Depthwise layers have few weights a channel, whose errors do not cancel; there it matters most.

    Parameters
    ----------
    values: float weights, OIHW with output channels in groups, or a matrix.
    scales: of the int8 weights, one or one for each entry of `axis`.
    axis: of the output channels.
    means: of the input channels.
    """
    spread = scales.reshape([-1 if k == axis and scales.size > 1 else 1 for k in range(values.ndim)])
    error = values - np.clip(np.rint(values / spread), -128, 127) * spread
    rows = np.moveaxis(error, axis, 0).astype(np.float64)
    rows = rows.reshape(*rows.shape[:2], -1).sum(axis=2)
    groups = means.size // rows.shape[1]
    seen = means.reshape(groups, rows.shape[1])
    result: Means = np.einsum("goi,gi->go", rows.reshape(groups, -1, rows.shape[1]), seen).ravel()
    return result


def _insert(
    model: onnx.ModelProto, chosen: Plan, levels: Mapping[str, Level], scales: Scales, scheme: Scheme
) -> onnx.ModelProto:
    """The network with QuantizeLinear and DequantizeLinear in place and integer weights."""
    dtype, kind = (np.uint8, QuantType.QUInt8) if scheme.unsigned else (np.int8, QuantType.QInt8)
    overrides: dict[str, list[dict[str, Any]]] = {
        name: [{"scale": np.asarray(level.scale), "zero_point": np.asarray(level.zero_point, dtype)}]
        for name, level in levels.items()
    }
    for layer in chosen.weights:
        axis = {"axis": layer.axis} if scheme.per_channel else {}
        entries = scales[layer.weight]
        overrides[layer.weight] = [{"scale": scale, "zero_point": np.int8(0), **axis} for scale in entries]
    unused = TensorData(lowest=np.float32(0), highest=np.float32(0))
    quantizer = QDQQuantizer(
        model,
        per_channel=scheme.per_channel,
        reduce_range=False,
        weight_qType=QuantType.QInt8,
        activation_qType=kind,
        tensors_range=TensorsData(CalibrationMethod.MinMax, dict.fromkeys(chosen.tensors, unused)),
        nodes_to_quantize=[],
        nodes_to_exclude=[],
        op_types_to_quantize=[],  # the plan says what, not the quantiser's own rules for each operator
        extra_options={"TensorQuantOverrides": overrides, "QDQDisableWeightAdjustForInt32Bias": True},
    )
    for name in (*chosen.tensors, *chosen.operands):
        quantizer.quantize_activation_tensor(name)
    for layer in chosen.weights:
        if scheme.per_channel:
            quantizer.quantize_weight_tensor_per_channel(layer.weight, layer.axis)
        else:
            quantizer.quantize_weight_tensor(layer.weight)
        if layer.bias is not None:
            quantizer.quantize_bias_tensor(layer.node, layer.bias, layer.source, layer.weight)
    quantizer.quantize_model()
    quantizer.model.topological_sort()
    result: onnx.ModelProto = quantizer.model.model
    _pass_by(result, chosen)
    return result


def _pass_by(model: onnx.ModelProto, chosen: Plan) -> None:
    """Let float nodes read float results directly, not the quantised form that other nodes read."""
    producers = {name: node for node in model.graph.node for name in node.output}
    floating = set(chosen.floating)
    for node in model.graph.node:
        if node.name in floating:
            node.input[:] = [_unquantised(name, producers, floating) for name in node.input]


def _unquantised(name: str, producers: Mapping[str, onnx.NodeProto], floating: set[str]) -> str:
    """The float result that a float node could read in place of a dequantised tensor."""
    dequantise = producers.get(name)
    quantise = producers.get(dequantise.input[0]) if dequantise is not None else None
    if dequantise is None or quantise is None:
        return name
    if (dequantise.op_type, quantise.op_type) != ("DequantizeLinear", "QuantizeLinear"):
        return name
    real = str(quantise.input[0])
    return real if real not in producers or producers[real].name in floating else name


def _constant(graph: FloatGraph, name: str) -> Array:
    values = graph.constant(name)
    assert values is not None
    return values
