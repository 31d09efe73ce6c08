"""What an inference takes, for people and as JSON: cycles, times, memory, layers, and what the host runs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

from rich.table import Table

from dovetail.flows.output.printable import block
from dovetail.flows.output.reply import si
from dovetail.flows.output.tables import new_table
from dovetail.isa.common.sizes import format_bytes
from dovetail.sw.compiler.partition.segments import ACCELERATOR
from dovetail.sw.network.ir import Graph
from dovetail.sw.runtime.clock import clock_text, frequency_text, milliseconds, per_second, rate_text, time_text
from dovetail.sw.runtime.compiled_network import CompiledNetwork, Report

SHOWN = 3
"""Nodes of the host that a line names."""


def describe(compiled: CompiledNetwork, clock: float | None = None) -> dict[str, Any]:
    """The timing of one inference as JSON has it: exact cycles, the host's estimate, and times at a clock in Hz."""
    report = compiled.report()
    return {
        "network": compiled.graph.name,
        "config": compiled.config.to_dict(),
        "config_hash": f"{compiled.config.hash:016x}",
        "tiling": compiled.code.options.tiling,
        "cycles": report.cycles,
        "first_cycles": report.first_cycles,
        "host_cycles": report.host_work.at(clock),
        "total_cycles": report.total(clock),
        "host_estimate": report.host_work.to_dict(),
        **(times(report, clock) if clock else {}),
        "macs": report.macs,
        "host_macs": report.host_macs,
        "utilisation": report.utilisation,
        "bound_cycles": report.bound,
        "roofline_ratio": report.over_bound,
        "least_bytes": report.least_bytes,
        "dram_bytes": report.moved_bytes,
        "sram_bytes": {"peak": report.sram.top, "live": report.sram.live, "of": compiled.config.sram},
        "memory_bytes": {**asdict(report.memory), "total": report.memory.total},
        "tensors": _places(compiled),
        "cycles_by_kind": report.by_kind(),
        "layers": [asdict(layer) for layer in report.layers],
        "host_nodes": report.host,
        "left": list(compiled.graph.left),
        "states": [{"name": state.name, **_tensor(compiled.graph, state.read)} for state in compiled.graph.states],
        "counters": {unit.name.lower(): asdict(counters) for unit, counters in report.counters.items()},
    }


def times(report: Report, clock: float) -> dict[str, float]:
    """Times of an inference at a clock in Hz, for JSON; bytes per second are those of the accelerator's cycles."""
    return {
        "clock_hz": clock,
        "accelerator_ms": milliseconds(report.cycles, clock),
        "host_ms": milliseconds(report.host_work.at(clock), clock),
        "latency_ms": report.latency(clock),
        "inferences_per_second": report.fps(clock),
        "dram_bytes_per_second": report.moved_bytes * per_second(report.cycles, clock),
    }


def left_lines(left: Sequence[str], why: str) -> list[str]:
    """Lines about the operators behind Dovetail's part of a network."""
    if not left:
        return []
    count = f" and {len(left) - 1} behind it" if len(left) > 1 else ""
    return [f"left to you  {left[0]}{count}: {why}; `dovetail export` writes it as a file, outputs here are its inputs"]


def _tensor(graph: Graph, name: str) -> dict[str, Any]:
    return {"shape": list(graph.tensors[name].shape), "dtype": graph.tensors[name].dtype}


def _places(compiled: CompiledNetwork) -> list[dict[str, Any]]:
    """Where each tensor of the accelerator lies in system memory, by address; those in SRAM alone come last."""
    code, graph = compiled.code, compiled.graph
    touched = {name for node in code.nodes_on(ACCELERATOR) for name in (*node.inputs, *node.outputs)}
    places = [
        {
            "name": name,
            "offset": code.where.get(name),
            "bytes": tensor.size,
            "pixel_pitch": code.pitches.get(name),
        }
        for name, tensor in graph.tensors.items()
        if name in touched
    ]
    return sorted(places, key=lambda place: (place["offset"] is None, place["offset"] or 0))


def memory_table(compiled: CompiledNetwork) -> Table:
    """Where everything lies in system memory."""
    code, memory = compiled.code, compiled.report().memory
    rows = [("constants", "0x0", f"{memory.constants:,}")]
    for place in _places(compiled):
        offset = "SRAM only" if place["offset"] is None else f"{place['offset']:#x}"
        rows.append((place["name"], offset, f"{place['bytes']:,}"))
    rows.append(("program", f"{code.stream_offset:#x}", f"{memory.program:,}"))
    return new_table("System memory", ("what", ">offset", ">bytes"), rows)


def layer_table(report: Report, clock: float | None = None) -> Table:
    """A line per layer, with its time at a clock in Hz."""
    time = [">time"] if clock else []
    last = (">share", ">bound", ">cycles / bound", ">bytes moved", ">bytes at least")
    rows = (
        [
            str(number),
            layer.name,
            layer.kind,
            f"{layer.macs:,}",
            f"{layer.cycles:,}",
            *([time_text(layer.cycles, clock)] if clock else []),
            f"{layer.cycles / report.cycles:.1%}",
            f"{layer.bound:,}",
            f"{layer.cycles / layer.bound:.2f}" if layer.bound else "",
            f"{layer.moved_bytes:,}",
            f"{layer.least_bytes:,}",
        ]
        for number, layer in enumerate(report.layers)
    )
    return new_table("Layers", (">#", "layer", "kind", ">MACs", ">cycles", *time, *last), rows)


def summary(compiled: CompiledNetwork, clock: float | None = None) -> str:
    """Cycles, their times at a clock in Hz, MACs, utilisation, roofline bound and what the host runs, as text."""
    report, config = compiled.report(), compiled.config
    array = f"{config.array} multipliers, {format_bytes(config.sram)}, {config.bus}-bit bus"
    rate = f", {rate_text(report.moved_bytes, report.cycles, clock)}" if clock and report.cycles else ""
    lines = [
        f"{compiled.graph.name} on {array}, depthwise {config.depthwise} ({config.hash:016x})",
        *timing(report, clock),
        f"MACs         {report.macs:,}" + (f", and {report.host_macs:,} on the host" if report.host_macs else ""),
        f"utilisation  {report.utilisation:.1%} of {report.pe} multipliers",
        f"roofline     {report.bound:,} cycles; cycles / roofline {report.over_bound:.3f}",
        f"traffic      {si(report.moved_bytes)}B moved, at least {si(report.least_bytes)}B{rate}",
        f"SRAM         {report.sram.top:,} bytes up to the highest in use, {report.sram.live:,} live at most",
        f"memory       {report.memory.total:,} bytes: constants {report.memory.constants:,}, tensors"
        f" {report.memory.tensors:,} (at least {report.memory.least_tensors:,}), program {report.memory.program:,}",
    ]
    lines += [
        f"state        {compiled.graph.tensors[state.read]}, "
        + ("left in its place between runs" if compiled.code.in_place(state) else "handed on by the host between runs")
        for state in compiled.graph.states
    ]
    lines += weights_lines(compiled)
    lines += host_lines(report.host)
    lines += left_lines(compiled.graph.left, compiled.graph.why_left)
    return block(lines)


def weights_lines(compiled: CompiledNetwork) -> list[str]:
    """Why no weights stay in SRAM from run to run, where they were to."""
    code = compiled.code
    if not code.options.keep_weights or code.keeps:
        return []
    programs = len(code.segments)
    why = "that would not take fewer cycles" if programs == 1 else f"the network must be one program, not {programs}"
    return [f"weights      none stay in SRAM between runs: {why}"]


def host_lines(host: Mapping[str, str]) -> list[str]:
    """Nodes of the host, a line per reason that keeps them there; the first of many stand for them."""
    nodes: dict[str, list[str]] = {}
    for name, reason in host.items():
        nodes.setdefault(reason, []).append(name)
    lines = []
    for reason, names in nodes.items():
        more = f" and {len(names) - SHOWN} more" if len(names) > SHOWN else ""
        lines.append(f"host         {', '.join(names[:SHOWN])}{more}: {reason}")
    return lines


def timing(report: Report, clock: float | None) -> list[str]:
    """Lines of an inference's cycles: the accelerator's, the host's and all, with times at a clock in Hz."""
    host, total = report.host_work.at(clock), report.total(clock)

    def text(cycles: int) -> str:
        return f"{cycles:,}" + (f" ({time_text(cycles, clock)})" if clock else "")

    at = f" at {clock_text(clock)}" if clock else ""
    rate = f", {frequency_text(total, clock)}" if clock else ""
    share = f"; {host / total:.1%} of it the host's" if total else ""
    first = f"first run    {text(report.first_cycles)}: it loads what stays in SRAM then"
    return [
        f"cycles       {text(report.cycles)} per inference on the accelerator{at}",
        *([first] if report.first_cycles != report.cycles else []),
        f"host cycles  {text(host)}, an estimate: {report.host_work.basis}",
        f"in all       {text(total)}{rate}{share}",
    ]
