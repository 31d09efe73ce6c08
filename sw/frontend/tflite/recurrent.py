"""Layers of TFLite files that have a state and an integer form: what TFLite Micro computes in them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from ai_edge_litert import schema_py_generated as schema

from dovetail.sw.errors import NetworkError
from dovetail.sw.frontend.tflite.file import Info, Operator
from dovetail.sw.host.recurrent import Gate, Lstm, Multiplier, Svdf

if TYPE_CHECKING:
    from dovetail.sw.frontend.tflite.importer import Reader


def integer_layer(reader: Reader, op: Operator) -> Lstm | Svdf | None:
    """The layer as TFLite Micro computes it; None if that has no such kernel.

    Raises
    ------
    NetworkError: its operands do not go together.
    """
    build = {"UNIDIRECTIONAL_SEQUENCE_LSTM": _lstm, "SVDF": _svdf}.get(op.kind)
    if build is None or reader.unsigned:
        return None
    try:
        return build(reader, op)
    except (ValueError, IndexError) as error:
        raise NetworkError(f"{op.name}: operands must go together: {error}") from error


def _lstm(reader: Reader, op: Operator) -> Lstm | None:
    info = [reader.infos[index] if index >= 0 else None for index in op.inputs]
    absent = (9, 10, 11, 16, 17, 20, 21, 22, 23)
    if len(info) != 24 or any(info[place] is not None for place in absent):
        return None
    source, hidden, cell = info[0], info[18], info[19]
    out = reader.infos[op.outputs[0]].tensor
    if source is None or hidden is None or cell is None or [t.tensor.dtype for t in (source, hidden, cell)] != _TYPES:
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
        weights = _constant(info[1 + gate], (units, width), "int8")
        recur = _constant(info[5 + gate], (units, units), "int8")
        bias = _constant(info[12 + gate], (units,), "int32")[0]
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


_TYPES = ["int8", "int8", "int16"]


def _svdf(reader: Reader, op: Operator) -> Svdf | None:
    if len(op.inputs) != 5 or any(index < 0 for index in op.inputs):
        return None
    source, feature, time, bias, state = (reader.infos[index] for index in op.inputs)
    out = reader.infos[op.outputs[0]].tensor
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
    """A constant of a form, and its scale."""
    if info is None or info.value is None or info.tensor.shape != shape or info.tensor.dtype != dtype:
        raise ValueError(f"a constant must be {dtype} {shape}, not {info.tensor if info else 'missing'}")
    return info.value, np.float32(info.scales[0] if info.scales.size else 1)
