"""Inputs and outputs of an ONNX file that are one variable: what a run returns in the output, the next one is given in
the input.

ONNX has no variables. A decoder takes its cache as inputs and returns it as outputs, with names that belong together:
``past_key_values.0.key`` and ``present.0.key``, ``past_k_0`` and ``present_k_0``, ``cache_k_0`` and ``cache_k_0_out``.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping

import numpy as np
import onnx
from onnx import numpy_helper

from dovetail.sw.errors import NetworkError

METADATA = "dovetail.states"
"""Key of the pairs among a network's metadata: a JSON object, input -> output."""

States = Mapping[str, str]
"""Input -> output of each variable."""

_WAY_OUT = "name the pairs (--state INPUT=OUTPUT), or pair nothing (--state none)"
_Parameters = tuple[float, int, str]
"""Scale, zero point and element type of a quantisation of whole tensors."""


def pairs(model: onnx.ModelProto, wanted: States | None) -> dict[str, str]:
    """The variables of a network with fixed sizes, as `named` finds them, both ends alike. Raises NetworkError."""
    found = named(model, wanted)
    _check_alike(model, found)
    return found


def named(model: onnx.ModelProto, wanted: States | None) -> dict[str, str]:
    """The variables of a network, in the order of its inputs.

    Parameters
    ----------
    model: the network.
    wanted: the pairs; none if empty. None: those that the file's metadata names, or those whose names say so.

    Raises
    ------
    NetworkError: a pair names no input or output, or one twice.
    """
    inputs, outputs = _inputs(model), {value.name: value for value in model.graph.output}
    if wanted is None:
        noted = _noted(model)
        wanted = dict(_by_name(inputs, outputs)) if noted is None else noted
    for name, output in wanted.items():
        for kind, one, known in (("input", name, inputs), ("output", output, outputs)):
            if one not in known:
                shown = ", ".join(known)
                raise NetworkError(f"state {name}={output}: must name an {kind} ({shown}), not {one!r}; {_WAY_OUT}")
    if len(set(wanted.values())) < len(wanted):
        twice = next(output for output in wanted.values() if [*wanted.values()].count(output) > 1)
        raise NetworkError(f"output {twice!r}: must be of one state, not of two; {_WAY_OUT}")
    return {name: wanted[name] for name in inputs if name in wanted}


def note(model: onnx.ModelProto, states: States) -> None:
    """Keep the pairs in a network's metadata: an empty object says that there are none."""
    props = {entry.key: entry.value for entry in model.metadata_props} | {METADATA: json.dumps(dict(states))}
    onnx.helper.set_model_props(model, props)


def _inputs(model: onnx.ModelProto) -> dict[str, onnx.ValueInfoProto]:
    constants = {tensor.name for tensor in model.graph.initializer}
    return {value.name: value for value in model.graph.input if value.name not in constants}


def _noted(model: onnx.ModelProto) -> dict[str, str] | None:
    """The pairs in the metadata; None if there are none."""
    text = next((entry.value for entry in model.metadata_props if entry.key == METADATA), None)
    if text is None:
        return None
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        found = None
    if not isinstance(found, dict) or not all(isinstance(output, str) for output in found.values()):
        raise NetworkError(f"metadata {METADATA} must be a JSON object of outputs by input, not {text[:60]!r}")
    return found


def _by_name(inputs: Iterable[str], outputs: Iterable[str]) -> Iterator[tuple[str, str]]:
    """Pairs whose names say that they are a cache."""
    known = set(outputs)
    for name in inputs:
        output = next((one for one in _names_behind(name) if one in known and one != name), None)
        if output is not None:
            known.remove(output)
            yield name, output


def _names_behind(name: str) -> Iterator[str]:
    """What exporters call the output of a cache."""
    for past, present in (("past_key_values", "present"), ("past", "present"), ("Past", "Present")):
        if past in name:
            yield name.replace(past, present)
    if "cache" in name.lower() or "past" in name.lower():
        stem = name.removesuffix("_in")
        yield from (f"{stem}_out", f"{stem}_new", f"new_{stem}", f"{stem}_next", f"next_{stem}", f"updated_{stem}")


def _check_alike(model: onnx.ModelProto, found: States) -> None:
    """Raises NetworkError for a pair of different types or sizes, as far as these can be inferred."""
    if not found:
        return
    try:
        inferred = onnx.shape_inference.infer_shapes(model, data_prop=True)
    except Exception:  # what is wrong with the model is for the importer to say
        return
    inputs = {value.name: value.type.tensor_type for value in model.graph.input}
    outputs = {value.name: value.type.tensor_type for value in inferred.graph.output}
    for name, output in found.items():
        before, after = inputs[name], outputs[output]
        sizes, made = ([dim.dim_value for dim in one.shape.dim] for one in (before, after))
        known = after.HasField("shape") and all(made)
        if (after.elem_type and before.elem_type != after.elem_type) or (known and sizes != made):
            told, others = _form(before), _form(after)
            raise NetworkError(
                f"state {name!r}: output {output!r} must have the input's type and sizes, {told}, not {others}; "
                f"{_WAY_OUT}"
            )


def _form(tensor: onnx.TypeProto.Tensor) -> str:
    sizes = "x".join(str(dim.dim_value or dim.dim_param or "?") for dim in tensor.shape.dim)
    return f"{np.dtype(onnx.helper.tensor_dtype_to_np_dtype(tensor.elem_type))}[{sizes}]"


def hold_quantised(model: onnx.ModelProto, states: States) -> tuple[onnx.ModelProto, dict[str, str]]:
    """The network with variables in 8 bits where their readers and their writer have one quantisation: a float between
    them would be the same integer again. Returns the network, itself if nothing changes, and its pairs."""
    change = _Holding(model)
    chosen = {name: change.parameters(name, output) for name, output in states.items()}
    if not any(chosen.values()):
        return model, dict(states)
    copy = onnx.ModelProto()
    copy.CopyFrom(model)
    change = _Holding(copy)
    return copy, {
        name: change.hold(name, output, kept) if (kept := chosen[name]) else output for name, output in states.items()
    }


class _Holding:
    """Finds and makes the change in one model."""

    def __init__(self, model: onnx.ModelProto) -> None:
        self.graph = model.graph
        self.constants = {tensor.name: tensor for tensor in self.graph.initializer}
        for node in self.graph.node:
            if node.op_type == "Constant" and node.attribute and node.attribute[0].name == "value":
                self.constants[node.output[0]] = node.attribute[0].t
        self.makers = {name: node for node in self.graph.node for name in node.output}
        self.readers: dict[str, list[onnx.NodeProto]] = {}
        for node in self.graph.node:
            for name in node.input:
                self.readers.setdefault(name, []).append(node)

    def parameters(self, name: str, output: str) -> _Parameters | None:
        """The quantisation of all readers and of the writer; None if there is not one."""
        maker = self.makers.get(output)
        if maker is None or maker.op_type != "DequantizeLinear" or not self.readers.get(name):
            return None
        found = [self._of(node) if node.op_type == "QuantizeLinear" else None for node in self.readers[name]]
        held = self._of(maker)
        ends = {value.name for value in self.graph.output}
        free = not any(one in ends for node in self.readers[name] for one in node.output)
        return held if free and all(one == held for one in found) else None

    def _of(self, node: onnx.NodeProto) -> _Parameters | None:
        """The quantisation of a QuantizeLinear or DequantizeLinear, if it is of a whole tensor and constant."""
        if len(node.input) < 3 or any(name not in self.constants for name in node.input[1:3]):
            return None
        scale, zero = (numpy_helper.to_array(self.constants[name]) for name in node.input[1:3])
        if scale.size != 1 or zero.size != 1 or zero.dtype not in (np.int8, np.uint8):
            return None
        return float(scale.ravel()[0]), int(zero.ravel()[0]), str(zero.dtype)

    def hold(self, name: str, output: str, kept: _Parameters) -> str:
        """Make the variable one of 8 bits; returns the name of what is written."""
        readers = self.readers[name]
        gone = {one for node in readers for one in node.output}
        for node in readers:
            self.graph.node.remove(node)
        for node in self.graph.node:
            node.input[:] = [name if one in gone else one for one in node.input]
        written = str(self.makers[output].input[0])
        written = name if written in gone else written
        kind = onnx.helper.np_dtype_to_tensor_dtype(np.dtype(kept[2]))
        for value in (*self.graph.input, *self.graph.output):
            if value.name in (name, output):
                value.type.tensor_type.elem_type = kind
            if value.name == output:
                value.name = written
        return written
