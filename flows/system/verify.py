"""`dovetail verify --system`: the same bytes and cycles on RTL, of every operation of every accelerator."""

import argparse
import time

from dovetail.cosim.compare.systems import verify_system
from dovetail.flows.options.network import clock_of
from dovetail.flows.options.system import planned_of, samples_for
from dovetail.flows.output.reply import Report
from dovetail.flows.output.system import describe_system, system_summary
from dovetail.isa.common.build_cache import default_cache
from dovetail.sw.errors import DovetailError

UNUSED = ("layers", "waves", "around")


def verify_on_system(args: argparse.Namespace) -> Report:
    """Plan, run on both, compare."""
    if args.form != "simulation":
        raise DovetailError(f"--form must be simulation with --system, not {args.form}")
    clock = clock_of(args)
    network = planned_of(args, UNUSED)
    samples = samples_for(args, network)
    start = time.perf_counter()
    verdict = verify_system(network, samples, cache=default_cache())
    seconds = time.perf_counter() - start
    checks = {"bytes": verdict.bytes_equal, "starts": verdict.starts_equal, "timelines": verdict.timelines_equal}
    told = ", ".join(f"{name} {'equal' if equal else 'DIFFERENT'}" for name, equal in checks.items())
    lines = [
        system_summary(network, clock),
        f"model        {verdict.cycles_model:,} cycles",
        f"RTL          {verdict.cycles_rtl:,} cycles",
        f"verdict      {'EQUAL' if verdict.equal else 'DIFFERENT'}: {told}; {len(samples)} samples in {seconds:.1f} s",
    ]
    if not verdict.equal:
        lines.append(f"first        {verdict.first_difference}")
    data = describe_system(network, clock) | {
        **{f"{name}_equal": equal for name, equal in checks.items()},
        "cycles_model": verdict.cycles_model,
        "cycles_rtl": verdict.cycles_rtl,
        "equal": verdict.equal,
        "first_difference": verdict.first_difference,
        "seconds": seconds,
    }
    return Report(data, lines, int(not verdict.equal))
