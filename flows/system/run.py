"""`dovetail run --system`: run a plan on the model or on RTL."""

import argparse
import time

from dovetail.cosim.rtl.system_engine import SystemEngine
from dovetail.flows.options.network import check_output, clock_of, outputs_file
from dovetail.flows.options.system import planned_of, samples_for
from dovetail.flows.output.reply import Report
from dovetail.flows.output.system import describe_system, job_table, system_summary
from dovetail.isa.common.build_cache import default_cache
from dovetail.isa.common.files import write_together
from dovetail.sw.errors import DovetailError
from dovetail.sw.runtime.system_network import SystemModel

UNUSED = ("port", "baud", "dump_layers", "reset", "window", "occupancy")


def run_on_system(args: argparse.Namespace) -> Report:
    """Plan, run, and report."""
    if args.engine == "board":
        raise DovetailError("--engine must be model or rtl with --system, not board")
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
    if args.output:
        write_together({args.output: outputs_file(args.output, list(result.outputs), len(samples) > 1)})
        data["output"] = str(args.output)
        lines.append(f"outputs      {args.output}: {', '.join(result.outputs[0])}")
    return Report(data, [*([job_table(network)] if args.layers else []), *lines])
