"""`dovetail explain --system`: what a plan does, what it gains, and what simpler plans would."""

import argparse
from typing import Any

from dovetail.flows.options.network import clock_of
from dovetail.flows.options.system import planned_of
from dovetail.flows.output.folder import check_output_folder
from dovetail.flows.output.reply import Report
from dovetail.flows.output.system import describe_system, job_table, system_summary
from dovetail.isa.common.files import write_atomically, written_whole
from dovetail.sw.runtime.system_network import SystemNetwork

UNUSED = ("against",)


def explain_on_system(args: argparse.Namespace) -> Report:
    """Plan, and compare with plans that do less."""
    if args.pictures:
        check_output_folder("--pictures", args.pictures)
    clock = clock_of(args)
    network = planned_of(args, UNUSED)
    data: dict[str, Any] = describe_system(network, clock)
    lines = [system_summary(network, clock)]
    # A plan from a file is there to save the search.
    if args.plan is None and (simpler := network.simpler()):
        data["simpler_cycles"] = simpler
        lines += [_line(network, name, cycles) for name, cycles in simpler.items()]
    if args.pictures:
        # matplotlib takes half a second
        from dovetail.flows.report.pictures.facade import plan
        from dovetail.flows.report.pictures.render import figure_bytes

        with written_whole(args.pictures) as place:
            write_atomically(place / "plan.png", figure_bytes(plan(network)))
        data["pictures"] = [str(args.pictures / "plan.png")]
        lines.append(f"picture      {data['pictures'][0]}")
    return Report(data, [job_table(network), *lines])


def _line(network: SystemNetwork, name: str, cycles: int) -> str:
    return f"simpler      {name}: {cycles:,} cycles, {cycles / network.times.cycles - 1:+.1%}"
