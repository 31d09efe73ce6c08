"""Calls for the host's layers with a state of their own: LSTM and SVDF of integers."""

from __future__ import annotations

from dovetail.sw.export.codegen.c_text import Fields
from dovetail.sw.export.codegen.writer import Writer
from dovetail.sw.host.recurrent import Gate, Lstm, Multiplier, Svdf
from dovetail.sw.network import ir


def write_recurrent(writer: Writer, node: ir.Host, payload: Lstm | Svdf) -> None:
    """Append the call of a layer."""
    function, fields = _lstm(writer, node, payload) if isinstance(payload, Lstm) else _svdf(writer, node, payload)
    rule = writer.constants.struct(function.replace("_run", ""), fields, node.name)
    writer.call(function, rule, *map(writer.storage.pointer, (*node.inputs, *node.outputs)))


def _lstm(writer: Writer, node: ir.Host, layer: Lstm) -> tuple[str, Fields]:
    batch, steps, inputs = writer.graph.tensors[node.inputs[0]].shape
    if layer.time_major:
        batch, steps = steps, batch
    gates = zip(("enter", "forget", "candidate", "open"), layer.gates, strict=True)
    fields: dict[str, str | int | Fields] = {
        "batch": batch,
        "steps": steps,
        "inputs": inputs,
        "units": len(layer.gates[0].bias),
        "time_major": int(layer.time_major),
    }
    fields |= {name: _gate(writer, gate, f"{node.name}_{name}") for name, gate in gates}
    fields |= {
        "zero_in": layer.zero_in,
        "zero_hidden": layer.zero_hidden,
        "power": layer.power,
        "low": -(1 << 15) if layer.most is None else -layer.most,
        "high": (1 << 15) - 1 if layer.most is None else layer.most,
    }
    return "dovetail_run_lstm", fields | dict(zip(("kept", "added", "made"), map(_factor, layer.factors), strict=True))


def _gate(writer: Writer, gate: Gate, name: str) -> Fields:
    arrays = {part: getattr(gate, part) for part in ("weights", "recurrent", "bias")}
    return {
        **{part: writer.constants.array(value, f"{name}_{part}") for part, value in arrays.items()},
        "scale": _factor(gate.scale),
        "recurrent_scale": _factor(gate.recurrent_scale),
    }


def _svdf(writer: Writer, node: ir.Host, layer: Svdf) -> tuple[str, Fields]:
    batch, inputs = writer.graph.tensors[node.inputs[0]].shape
    return "dovetail_run_svdf", {
        "batch": batch,
        "inputs": inputs,
        "units": len(layer.bias),
        "rank": layer.rank,
        "memory": layer.time.shape[1],
        "feature": writer.constants.array(layer.feature, f"{node.name}_feature"),
        "time": writer.constants.array(layer.time, f"{node.name}_time"),
        "time_bytes": layer.time.itemsize,
        "bias": writer.constants.array(layer.bias, f"{node.name}_bias"),
        "zero_in": layer.zero_in,
        "zero_state": layer.zero_state,
        "zero_out": layer.zero_out,
        "to_state": _factor(layer.scale_state),
        "to_out": _factor(layer.scale_out),
    }


def _factor(factor: Multiplier) -> Fields:
    """A struct dovetail_factor."""
    return {"mult": factor.mult, "shift": factor.shift}
