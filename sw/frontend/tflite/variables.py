"""What a run of a TFLite network leaves for the next one becomes a state of the graph.

There are two kinds of variables. A tensor marked `is_variable` is read and written by one operator: an LSTM, an SVDF.
Resources are read and assigned by operators of their own, and CALL_ONCE runs a subgraph before the first run that
assigns them.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
from ai_edge_litert import schema_py_generated as schema

from dovetail.sw.errors import NetworkError
from dovetail.sw.frontend.tflite.file import Info, Operator, TfliteFile
from dovetail.sw.frontend.tflite.graph_builder import GraphBuilder, cleared
from dovetail.sw.host.kernels import Permute, TfliteOp
from dovetail.sw.host.recurrent import Gate, Lstm, Multiplier, Svdf
from dovetail.sw.network import ir
from dovetail.sw.network.layout import Array, Layout, as_signed

CONTROL_FLOW = {"IF", "WHILE", "CALL", "STABLEHLO_CASE", "STABLEHLO_WHILE"}
"""Operators that run other subgraphs."""
RESOURCE_OPERATORS = {"CALL_ONCE", "VAR_HANDLE", "READ_VARIABLE", "ASSIGN_VARIABLE"}
"""Operators that become no node, or none of their own."""
_LSTM_TYPES = ["int8", "int8", "int16"]
"""Of an LSTM's input, output state and cell state."""


class Resources:
    """The resources of a file, while its operators are walked in order."""

    def __init__(self, builder: GraphBuilder) -> None:
        self._builder = builder
        self._handles: dict[int, str] = {}
        self._held: dict[str, str] = {}
        """By a resource's name: the tensor that holds it now."""
        self._initial = _initial_values(builder.file)

    def walk(self, op: Operator) -> None:
        """The next of the `RESOURCE_OPERATORS`; what CALL_ONCE assigns is known already."""
        if op.kind == "VAR_HANDLE":
            self._handles[op.outputs[0]] = _name_of(op)
        elif op.kind == "READ_VARIABLE":
            self._read(op)
        elif op.kind == "ASSIGN_VARIABLE":
            self._assign(op)

    def _resource(self, op: Operator) -> str:
        name = self._handles.get(op.inputs[0])
        if name is None:
            raise NetworkError(f"{op.name}: variable must come from VAR_HANDLE in the same subgraph, not otherwise")
        return name

    def _read(self, op: Operator) -> None:
        """The first result is the state's own tensor."""
        resource, builder = self._resource(op), self._builder
        tensor = builder.tensors[builder.declare(op.outputs[0])]
        if resource in self._held:
            held = builder.tensors[self._held[resource]]
            _check_like(op, held, tensor)
            builder.nodes.append(_copy(op.name, held, tensor))
            return
        initial = self._initial.get(resource)
        if initial is None:
            initial = self._cleared(op, resource)
        if initial.size != tensor.size or str(initial.dtype) != builder.file.infos[op.outputs[0]].tensor.dtype:
            raise NetworkError(f"{op.name}: variable {resource!r} must be {tensor}, as it is read")
        if builder.unsigned and initial.dtype == np.uint8:
            initial = as_signed(initial)
        self._held[resource] = tensor.name
        builder.states[resource] = ir.State(resource, tensor.name, tensor.name, initial.reshape(tensor.shape))

    def _cleared(self, op: Operator, resource: str) -> Array:
        """The first value of a resource without one: TFLite Micro fills it with the zero point of what is assigned."""
        file = self._builder.file
        handles = {
            other.outputs[0] for other in file.operators if other.kind == "VAR_HANDLE" and _name_of(other) == resource
        }
        for other in file.operators:
            if other.kind == "ASSIGN_VARIABLE" and other.inputs[0] in handles:
                return cleared(file.infos[other.inputs[1]], every=True)
        return cleared(file.infos[op.outputs[0]], every=True)

    def _assign(self, op: Operator) -> None:
        """From here on, reads give another tensor, in this run and the next."""
        resource, builder, index = self._resource(op), self._builder, op.inputs[1]
        name = builder.operand(op, index) if builder.constant(index) is not None else builder.names((index,))[0]
        if name is None:
            raise NetworkError(f"{op.name}: a constant that is assigned must be int8, not {builder.tensor(index)}")
        if resource in self._held:
            _check_like(op, builder.tensors[self._held[resource]], builder.tensors[name])
        self._held[resource] = name
        if resource in builder.states:
            builder.states[resource] = replace(builder.states[resource], written=name)


def _check_like(op: Operator, held: ir.Tensor, tensor: ir.Tensor) -> None:
    if (held.size, held.dtype) != (tensor.size, tensor.dtype):
        raise NetworkError(f"{op.name}: variable must keep its size and element type, {held}, not be {tensor}")


def _copy(name: str, source: ir.Tensor, result: ir.Tensor) -> ir.Node:
    """The same bytes under another name."""
    wires: dict[str, Any] = {"name": name, "inputs": (source.name,), "outputs": (result.name,)}
    if result.dtype == "int8":
        return ir.Reshape(**wires, shape=result.shape)
    payload = Permute(Layout.plain(source.shape), Layout.plain(result.shape))
    return ir.Host(**wires, label="copy", payload=payload)


def _name_of(op: Operator) -> str:
    name = op.options(schema.VarHandleOptions).SharedName()
    return (name or b"").decode(errors="replace")


def _initial_values(file: TfliteFile) -> dict[str, Array]:
    """What CALL_ONCE assigns before the first run, by the resource's name, as the file has it."""
    found: dict[str, Array] = {}
    for op in file.operators:
        if op.kind == "CALL_ONCE":
            found |= _assigned(file.other(op.options(schema.CallOnceOptions).InitSubgraphIndex()))
    return found


def _assigned(file: TfliteFile) -> dict[str, Array]:
    """Every resource that a subgraph without inputs assigns; LiteRT computes what it assigns."""
    found: dict[str, Array] = {}
    handles: dict[int, str] = {}
    values = {index: info.value for index, info in enumerate(file.infos) if info.value is not None}
    for op in file.operators:
        if op.kind == "VAR_HANDLE":
            handles[op.outputs[0]] = _name_of(op)
        elif op.kind == "ASSIGN_VARIABLE":
            if op.inputs[0] not in handles or op.inputs[1] not in values:
                raise NetworkError(f"{op.name} of subgraph {file.subgraph}: must assign a constant to a variable")
            found[handles[op.inputs[0]]] = values[op.inputs[1]]
        elif op.kind in (*CONTROL_FLOW, *RESOURCE_OPERATORS) or not all(
            index < 0 or index in values for index in op.inputs
        ):
            raise NetworkError(f"{op.name} of subgraph {file.subgraph}: initialisation must be of constants")
        else:
            payload = TfliteOp(file.data, op.index, (), op.outputs, subgraph=file.subgraph)
            values |= dict(zip(op.outputs, payload.run([]), strict=True))
    return found


# Layers with a state ---------------------------------------------------------------------------


def integer_layer(builder: GraphBuilder, op: Operator) -> Lstm | Svdf | None:
    """The layer as TFLite Micro computes it; None if that has no such kernel.

    Raises
    ------
    NetworkError: its operands do not go together.
    """
    build = {"UNIDIRECTIONAL_SEQUENCE_LSTM": _lstm, "SVDF": _svdf}.get(op.kind)
    if build is None or builder.unsigned:
        return None
    try:
        return build(builder, op)
    except (ValueError, IndexError) as error:
        raise NetworkError(f"{op.name}: operands must go together: {error}") from error


def _lstm(builder: GraphBuilder, op: Operator) -> Lstm | None:
    operands = [builder.infos[index] if index >= 0 else None for index in op.inputs]
    absent = (9, 10, 11, 16, 17, 20, 21, 22, 23)
    if len(operands) != 24 or any(operands[place] is not None for place in absent):
        return None
    source, hidden, cell = operands[0], operands[18], operands[19]
    out = builder.tensor(op.outputs[0])
    if (
        source is None
        or hidden is None
        or cell is None
        or [t.tensor.dtype for t in (source, hidden, cell)] != _LSTM_TYPES
    ):
        return None
    options = op.options(schema.UnidirectionalSequenceLSTMOptions)
    width, units, scale = source.tensor.shape[-1], hidden.tensor.shape[-1], cell.tensor.scale
    mantissa, power = np.frexp(np.float64(scale or 0))
    batch = source.tensor.shape[1 if options.TimeMajor() else 0] if len(source.tensor.shape) == 3 else 0
    if mantissa != 0.5 or options.FusedActivationFunction() != schema.ActivationFunctionType.TANH:
        return None
    if out.shape != (*source.tensor.shape[:2], units) or {hidden.tensor.size, cell.tensor.size} != {batch * units}:
        raise ValueError(f"states of {hidden.tensor} and {cell.tensor}, output {out}")
    gates = []
    for gate in range(4):
        weights = _constant(operands[1 + gate], (units, width), "int8")
        recur = _constant(operands[5 + gate], (units, units), "int8")
        bias = _constant(operands[12 + gate], (units,), "int32")[0]
        assert source.tensor.scale is not None and hidden.tensor.scale is not None
        gates.append(Gate.of(weights, recur, bias, source.tensor.scale, hidden.tensor.scale))
    assert hidden.tensor.scale is not None
    return Lstm(
        (gates[0], gates[1], gates[2], gates[3]),
        source.tensor.zero_point,
        hidden.tensor.zero_point,
        hidden.tensor.scale,
        int(power) - 1,
        float(options.CellClip()),
        bool(options.TimeMajor()),
        source.tensor.size // width,
    )


def _svdf(builder: GraphBuilder, op: Operator) -> Svdf | None:
    if len(op.inputs) != 5 or any(index < 0 for index in op.inputs):
        return None
    source, feature, time, bias, state = (builder.infos[index] for index in op.inputs)
    out = builder.tensor(op.outputs[0])
    kinds = source.tensor.dtype, feature.tensor.dtype, out.dtype
    if kinds != ("int8",) * 3 or time.tensor.dtype not in ("int8", "int16") or state.tensor.dtype != time.tensor.dtype:
        return None
    rank = op.options(schema.SVDFOptions).Rank()
    batch, width = source.tensor.shape
    filters, memory = time.tensor.shape
    if (
        rank < 1
        or filters % rank
        or state.tensor.size != batch * filters * memory
        or out.size * rank != batch * filters
    ):
        raise ValueError(f"rank {rank}, weights {time.tensor}, state {state.tensor}, output {out}")
    first, scale_feature = _constant(feature, (filters, width), "int8")
    second, scale_time = _constant(time, (filters, memory), time.tensor.dtype)
    offset, _ = _constant(bias, (filters // rank,), "int32")
    scales = [np.float32(tensor.scale or 0) for tensor in (source.tensor, state.tensor, out)]
    if min(scales) <= 0:
        raise ValueError("scales of input, state and output must be positive")
    return Svdf(
        first,
        second,
        offset,
        rank,
        source.tensor.zero_point,
        state.tensor.zero_point,
        out.zero_point,
        Multiplier.of(float(scales[0] * scale_feature / scales[1])),
        Multiplier.of(float(scales[1] * scale_time / scales[2])),
        batch,
    )


def _constant(info: Info | None, shape: tuple[int, ...], dtype: str) -> tuple[Any, np.float32]:
    """A constant of this shape and type, and its scale."""
    if info is None or info.value is None or info.tensor.shape != shape or info.tensor.dtype != dtype:
        raise ValueError(f"a constant must be {dtype} {shape}, not {info.tensor if info else 'missing'}")
    return info.value, np.float32(info.scales[0] if info.scales.size else 1)
