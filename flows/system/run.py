"""`dovetail run --system`: run a plan on the model or on RTL."""

import argparse
import time
from pathlib import Path

from dovetail.cosim.rtl.system_engine import SystemEngine
from dovetail.flows.options.history import check_history_options
from dovetail.flows.options.network import check_output, clock_of, outputs_file
from dovetail.flows.options.system import planned_of, samples_for
from dovetail.flows.output.reply import Report
from dovetail.flows.output.system import describe_system, job_table, system_summary
from dovetail.isa.common.build_cache import default_cache
from dovetail.isa.common.files import write_together
from dovetail.sw.analysis.system_trace import system_trace
from dovetail.sw.errors import DovetailError
from dovetail.sw.runtime.system_network import SystemModel, SystemNetwork

UNUSED = ("port", "baud", "dump_layers", "reset", "window", "occupancy")


def run_on_system(args: argparse.Namespace) -> Report:
    """Plan, run, and report."""
    if args.engine == "board":
        raise DovetailError("--engine must be model or rtl with --system, not board")
    if args.window is None:
        check_history_options(args)
    clock = clock_of(args)
    network = planned_of(args, UNUSED)
    check_output(args.output, network.graph)
    samples = samples_for(args, network)
    rtl = args.engine == "rtl"
    engine = SystemEngine(network.system, cache=default_cache()) if rtl else SystemModel(network.system)
    start = time.perf_counter()
    result = network.run(samples, engine)
    seconds = time.perf_counter() - start
    data = describe_system(network, clock) | {"engine": args.engine, "seconds": seconds}
    data["outputs"] = {
        name: {"shape": list(value.shape), "dtype": str(value.dtype)} for name, value in result.outputs[0].items()
    }
    rate = f" ({network.times.cycles / seconds / 1e6:.2f} M cycles/s)" if rtl and seconds else ""
    lines = [
        system_summary(network, clock),
        f"samples      {len(samples)} in {seconds:.2f} s on engine {args.engine}{rate}",
    ]
    files: dict[Path, bytes | str] = {}
    if args.output:
        files[args.output] = outputs_file(args.output, list(result.outputs), len(samples) > 1)
        data["output"] = str(args.output)
        lines.append(f"outputs      {args.output}: {', '.join(result.outputs[0])}")
    if args.timeline:
        files[args.timeline] = _timeline(network, args.timeline.suffix[1:], clock)
        data["timeline"] = str(args.timeline)
        lines.append(f"timeline     {args.timeline}")
    write_together(files)
    return Report(data, [*([job_table(network)] if args.layers else []), *lines])


def _timeline(network: SystemNetwork, kind: str, clock: float | None) -> bytes | str:
    """A file of what host, accelerators and memory do when; ``kind``: its ending."""
    if kind == "json":
        return system_trace(network.plan, network.times, clock)
    # matplotlib takes half a second
    from dovetail.flows.report.pictures.facade import plan
    from dovetail.flows.report.pictures.render import figure_bytes

    return figure_bytes(plan(network), kind)
