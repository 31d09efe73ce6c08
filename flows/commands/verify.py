"""Run a network on the model and on the RTL, and compare bytes, cycles and timeline."""

from __future__ import annotations

import argparse
import time
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from dovetail.cosim.compare.networks import verify
from dovetail.cosim.compare.windows import layers_of, verify_windows
from dovetail.flows.options.engines import add_form_option, add_waves_options, waves_line, waves_of
from dovetail.flows.options.network import (
    add_clock_option,
    add_input_options,
    add_network_options,
    clock_of,
    compiled_of,
    samples_of,
)
from dovetail.flows.options.system import add_system_options, takes_system
from dovetail.flows.output.inference import summary, times
from dovetail.flows.output.reply import Report
from dovetail.flows.system.verify import verify_on_system
from dovetail.isa.common.build_cache import default_cache
from dovetail.sw.network.layout import Sample
from dovetail.sw.runtime.clock import clock_text, time_text
from dovetail.sw.runtime.compiled_network import CompiledNetwork


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_network_options(parser, programs=True)
    add_system_options(parser)
    add_clock_option(parser)
    add_input_options(parser)
    parser.add_argument(
        "--layers",
        metavar="A..B",
        help="only these on the RTL, from the model's state: 12, 12..14, 12.., ..3, or names",
    )
    add_form_option(parser)
    add_waves_options(parser, "the RTL's waves")


def run(args: argparse.Namespace) -> Report:
    if takes_system(args):
        return verify_on_system(args)
    waves = waves_of(args)
    clock = clock_of(args)
    compiled = compiled_of(args)
    samples, _ = samples_of(args, compiled)
    if compiled.code.keeps and len(samples) == 1 and not args.layers:
        samples *= 2  # only the first run loads what stays in SRAM
    trace, around = (waves.path, None) if waves and waves.around is None else (None, waves)
    wanted = {"cache": default_cache(), "trace": trace, "form": args.form, "waves": around}
    start = time.perf_counter()
    compare = _windows if args.layers else _whole
    lines, data, first, checks = compare(args, compiled, samples, clock, wanted)
    seconds = time.perf_counter() - start
    verdict = "DIFFERENT" if first else "EQUAL"
    lines.append(f"verdict      {verdict}: {checks}; {len(samples)} samples in {seconds:.1f} s")
    if first:
        lines.append(f"first        {first}")
    if around is not None:
        lines.append(waves_line(around, bool(first)))
    data = {
        "network": compiled.graph.name,
        "config": compiled.config.to_dict(),
        "config_hash": f"{compiled.config.hash:016x}",
        "form": args.form,
        "samples": len(samples),
        **data,
        "equal": not first,
        "first_difference": first,
        "seconds": seconds,
    }
    return Report(data, lines, int(bool(first)))


Found = tuple[list[str], dict[str, Any], str, str]
"""Lines, data, the first difference, what was compared."""


def _whole(
    args: argparse.Namespace,
    compiled: CompiledNetwork,
    samples: list[Sample],
    clock: float | None,
    wanted: Mapping[str, Any],
) -> Found:
    """The network; ``clock`` in Hz. Cycles are those of the last sample."""
    verdicts = verify(compiled, samples, **wanted)
    parts = [segment for verdict in verdicts for segment in verdict.segments]
    first = next((f"sample {n}, {v.first_difference}" for n, v in enumerate(verdicts) if not v.equal), "")
    data = {
        "segments": len(compiled.code.segments),
        "bytes_equal": all(p.bytes_equal for p in parts),
        "cycles_model": sum(p.cycles_model for p in verdicts[-1].segments),
        "cycles_rtl": sum(p.cycles_rtl for p in verdicts[-1].segments),
        "timeline_equal": all(p.timeline_equal for p in parts),
        "counters_equal": all(p.counters_equal for p in parts),
        "fault_equal": all(p.fault_equal for p in parts),
        **(times(compiled.report(), clock) if clock else {}),
    }
    checks = ", ".join(
        f"{name} {'equal' if data[f'{name}_equal'] else 'DIFFERENT'}" for name in ("bytes", "timeline", "counters")
    )
    lines = [
        summary(compiled, clock),
        f"model        {data['cycles_model']:,} cycles",
        f"RTL          {data['cycles_rtl']:,} cycles",
    ]
    return lines, data, first, checks


def _windows(
    args: argparse.Namespace,
    compiled: CompiledNetwork,
    samples: list[Sample],
    clock: float | None,
    wanted: Mapping[str, Any],
) -> Found:
    """Some layers only; ``clock`` in Hz."""
    layers = layers_of(compiled, args.layers)
    names = [layer.name for layer in compiled.code.layers]
    lines = [f"layers       {layers.start}..{layers.stop - 1}: {', '.join(names[n] for n in layers)}"]
    rows, first = list[dict[str, Any]](), ""
    for n, sample in enumerate(samples):
        for verdict in verify_windows(compiled, sample, layers, **wanted):
            window, model, rtl = verdict.window, verdict.comparison.cycles_model, verdict.comparison.cycles_rtl
            if verdict.first_difference:
                first = first or f"sample {n}, segment {window.segment}, {verdict.first_difference}"
            rows.append(
                {
                    "sample": n,
                    **asdict(window),
                    "equal": not verdict.first_difference,
                    "cycles_model": model,
                    "cycles_rtl": rtl,
                    "first_difference": verdict.first_difference,
                }
            )
            others = [names[layer] for layer in window.layers if layer not in layers]
            some = f" (some of {', '.join(others)})" if others else ""
            took = f" ({time_text(rtl, clock)} at {clock_text(clock)})" if clock else ""
            lines.append(
                f"sample {n:<6}segment {window.segment}, words {window.first}..{window.past - 1}, {window.operations}"
                f" operations{some}: model {model:,} cycles, RTL {rtl:,}{took}"
            )
    data = {"layers": [names[n] for n in layers], "windows": rows}
    return lines, data, first, "from the model's state, to its state"
