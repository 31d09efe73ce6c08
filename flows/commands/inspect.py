"""What runs where: per node accelerator or host and by which rule, MACs, bytes; the preflight before a compilation.

The exit code is 0 if everything runs on the accelerator, 1 if the host runs something or the network is float.
"""

from __future__ import annotations

import argparse
from collections import Counter
from dataclasses import asdict, replace

from rich.table import Table

from dovetail.flows.options.network import add_network_options, options_of, shapes_of, states_of
from dovetail.flows.options.parameters import config_of
from dovetail.flows.output.inference import left_lines
from dovetail.flows.output.printable import block
from dovetail.flows.output.reply import Report
from dovetail.flows.output.tables import new_table
from dovetail.sw.analysis.preflight import NodeReport, Preflight, inspect
from dovetail.sw.compiler.partition.segments import ACCELERATOR, HOST


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_network_options(parser, programs=False)


def run(args: argparse.Namespace) -> Report:
    config = config_of(args)
    options = options_of(args)
    if args.effort is None:
        options = replace(options, effort=0)  # schedules decide no node's place
    outcome = inspect(args.network, config, options, shapes_of(args), states_of(args))
    hosted = [node for node in outcome.nodes if node.place == HOST]
    data = {
        "network": outcome.name,
        "config": config.to_dict(),
        "float": outcome.is_float,
        "complete": outcome.is_complete,
        "macs": outcome.macs(),
        "accelerator_macs": outcome.macs(ACCELERATOR),
        "accelerator_share": outcome.share,
        "weight_bytes": sum(node.weight_bytes for node in outcome.nodes),
        "activation_bytes": sum(node.activation_bytes for node in outcome.nodes),
        "host_estimate": outcome.host_work.to_dict(),
        "segments": outcome.segments,
        "host_steps": outcome.host_steps,
        "round_trips": outcome.round_trips,
        "nodes": [asdict(node) for node in outcome.nodes],
        "gone": outcome.gone,
        "left": outcome.left,
    }
    rules = list(dict.fromkeys(node.rule for node in outcome.nodes if node.rule))
    lines = [f"rule {number:<8}{rule}" for number, rule in enumerate(rules, 1)]
    lines += [
        f"{outcome.name} on {config.array} multipliers ({config.hash:016x})",
        *_totals(outcome),
    ]
    lines += [f"host         {node.name}: {node.reason}" for node in hosted]
    lines += [
        f"rounding     {node.name}: less than {node.distance:.4f} steps from the reals', at most one step off the"
        " runtime's float kernel"
        for node in outcome.nodes
        if node.distance is not None
    ]
    lines += left_lines(outcome.left, outcome.why_left)
    if outcome.is_float:
        data["quantise"] = f"dovetail quantise {args.network} --calibration X.npz --output Q.onnx"
        lines.append(f"float        this is what holds once it is quantised: {data['quantise']}")
    lines.append(f"verdict      {_verdict(outcome, len(hosted))}")
    return Report(data, [_table(outcome, rules), block(lines)], int(not outcome.is_complete))


def _totals(outcome: Preflight) -> list[str]:
    weights, activations = (
        sum(getattr(node, name) for node in outcome.nodes) for name in ("weight_bytes", "activation_bytes")
    )
    return [
        f"MACs         {outcome.macs():,}, {outcome.share:.1%} on the accelerator",
        f"host cycles  {outcome.host_work.cycles:,} per inference, an estimate: {outcome.host_work.basis}",
        f"bytes        {weights:,} of weights, {activations:,} of activations in and out",
        f"segments     {outcome.segments}, {outcome.host_steps} on the host; {outcome.round_trips} round trip(s)",
    ]


def _verdict(outcome: Preflight, hosted: int) -> str:
    if outcome.is_complete:
        return "everything runs on the accelerator"
    if not hosted and outcome.left:
        return "everything before what is left to you runs on the accelerator"
    if not hosted:
        return "everything could run on the accelerator"
    return f"{hosted} of {len(outcome.nodes)} nodes run on the host"


def _table(outcome: Preflight, rules: list[str]) -> Table:
    columns = ("node", "kind", "with", "where", "instructions", ">MACs", ">weights", ">in and out", ">rule")
    rows = (
        (
            node.name,
            node.kind,
            _others(node),
            node.place,
            ", ".join(node.instructions),
            f"{node.macs:,}" if node.macs else "",
            f"{node.weight_bytes:,}" if node.weight_bytes else "",
            f"{node.activation_bytes:,}",
            str(rules.index(node.rule) + 1) if node.rule else "",
        )
        for node in outcome.nodes
    )
    table = new_table("Nodes", columns, rows)
    if outcome.gone:
        table.caption = f"Without a trace: {', '.join(outcome.gone)}"
    return table


def _others(node: NodeReport) -> str:
    """The file's other nodes in a node: operators that have a name of their own, and how many of each of the rest."""
    others = [text for text in node.file_nodes if text.partition(" ")[2] != node.name]
    counts = Counter(text.partition(" ")[0] for text in others)
    marks = [f"{counts[op]} {op}" for op in ("QuantizeLinear", "DequantizeLinear") if counts[op]]
    return ", ".join([text for text in others if "antizeLinear" not in text.partition(" ")[0]] + marks)
