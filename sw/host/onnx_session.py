"""Sessions of ONNX Runtime, and networks with a view of their inner tensors. The runtime is imported with the first."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from contextlib import suppress
from typing import Any

import onnx

from dovetail.sw.network.layout import Array


def open_session(model: bytes, *, optimises: bool = True) -> Any:
    """A session on the processor, without the runtime's warnings and second tries.

    ``optimises``: it may fuse and rewrite nodes.

    Raises what the runtime raises: undocumented classes of its own.
    """
    import onnxruntime

    onnxruntime.disable_telemetry_events()  # where a user's own code has imported it before

    def opened(data: bytes, exact: bool) -> Any:
        options = onnxruntime.SessionOptions()
        options.log_severity_level = 4
        if not optimises:
            options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
        options.add_session_config_entry("session.x64quantprecision", str(int(exact)))
        return onnxruntime.InferenceSession(data, options, providers=["CPUExecutionProvider"], enable_fallback=0)

    # Processors with AVX2 alone add pairs of products of uint8 and int8 in 16 bits, where they saturate. `exact`: the
    # runtime puts uint8 weights in the place of int8 ones and their zero points, each of which one node alone may read.
    # Kernels for int8 operands do not take them; those do not saturate either.
    with suppress(Exception):  # the runtime raises its own classes
        return opened(model, exact=True)
    with suppress(Exception):
        return opened(_with_own_constants(onnx.ModelProto.FromString(model)).SerializeToString(), exact=True)
    return opened(model, exact=False)


def _with_own_constants(model: onnx.ModelProto) -> onnx.ModelProto:
    """A network, in place, in which no two nodes read the same int8 constant or the same dequantised constant."""
    constants = {tensor.name: tensor for tensor in model.graph.initializer if tensor.data_type == onnx.TensorProto.INT8}
    dequantised = {
        node.output[0]: node
        for node in model.graph.node
        if node.op_type == "DequantizeLinear" and node.input[0] in constants
    }
    seen: set[str] = set()
    nodes: list[onnx.NodeProto] = []

    def own(node: onnx.NodeProto) -> None:
        for place, name in enumerate(node.input):
            if name in seen and (name in constants or name in dequantised):
                node.input[place] = f"{name}/{len(seen)}"
                copy(name, node.input[place])
            seen.add(node.input[place])

    def copy(name: str, own_name: str) -> None:
        if name in constants:
            model.graph.initializer.append(constants[name])
            model.graph.initializer[-1].name = own_name
            return
        another = onnx.NodeProto()
        another.CopyFrom(dequantised[name])
        another.name, another.output[0] = own_name, own_name
        own(another)
        nodes.append(another)

    for node in model.graph.node:
        own(node)
        nodes.append(node)
    set_nodes(model.graph, nodes)
    return model


def set_nodes(graph: onnx.GraphProto, nodes: Iterable[onnx.NodeProto]) -> None:
    """Give a graph these nodes, which may be its own: they are copied before those are gone."""
    copies = [onnx.NodeProto.FromString(node.SerializeToString()) for node in nodes]
    del graph.node[:]
    graph.node.extend(copies)


class Session:
    """A network in ONNX Runtime with some of its inner tensors as outputs, too."""

    def __init__(self, model: onnx.ModelProto, extra: Iterable[str] = ()) -> None:
        seen = with_outputs(model, extra)
        self._session = open_session(seen.SerializeToString())
        self._names = [value.name for value in seen.graph.output]

    def run(self, inputs: Mapping[str, Array]) -> dict[str, Array]:
        """Outputs by name."""
        return dict(zip(self._names, self._session.run(self._names, dict(inputs)), strict=True))


def with_outputs(model: onnx.ModelProto, extra: Iterable[str]) -> onnx.ModelProto:
    """A copy of a network with some of its inner tensors as outputs, too."""
    copy = onnx.ModelProto()
    copy.CopyFrom(model)
    known = {value.name for value in copy.graph.output}
    copy.graph.output.extend(onnx.ValueInfoProto(name=name) for name in extra if name not in known)
    return copy
