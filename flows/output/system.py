"""What a plan for a system does and takes, for people and as JSON."""

from __future__ import annotations

from typing import Any

from rich.table import Table

from dovetail.flows.output.printable import block
from dovetail.flows.output.tables import new_table
from dovetail.isa.common.sizes import format_bytes
from dovetail.sw.runtime.clock import clock_text, frequency_text, time_text
from dovetail.sw.runtime.system_network import SystemNetwork


def describe_system(network: SystemNetwork, clock: float | None = None) -> dict[str, Any]:
    """A plan as JSON has it; ``clock`` in Hz."""
    times = network.times
    return {
        "network": network.graph.name,
        "accelerators": {part.name: part.config.to_dict() for part in network.system.accelerators},
        "inferences": network.inferences,
        "cycles": times.cycles,
        **({"clock_hz": clock, "milliseconds": 1e3 * times.cycles / clock} if clock else {}),
        "alone_cycles": network.alone,
        "gain": network.gain,
        "steady_gain": network.steady_gain,
        "lost_cycles": network.lost,
        "memory_bytes": network.plan.memory_bytes,
        "jobs": [
            {
                "accelerator": task.job.accelerator,
                "inference": task.inference,
                "nodes": task.nodes,
                "share": task.share,
                "after": task.job.after,
                "earliest": task.job.earliest,
                "begins": origin,
                "cycles": line.cycles if line else None,
            }
            for task, origin, line in zip(network.plan.tasks, times.origins, times.timelines, strict=True)
        ],
    }


def system_summary(network: SystemNetwork, clock: float | None = None) -> str:
    """Cycles, gain, what is lost at memory, and memory, as text; ``clock`` in Hz."""
    times, plan = network.times, network.plan
    parts = ", ".join(f"{part.name} {part.config.array}" for part in network.system.accelerators)
    took = f" ({time_text(times.cycles, clock)} at {clock_text(clock)})" if clock else ""
    count = network.inferences
    each = f"{count} inferences" if count > 1 else "one inference"
    rate = f", {frequency_text(times.cycles / count, clock)}" if clock else ""
    lines = [
        f"{network.graph.name} on {len(network.system.accelerators)} accelerators: {parts}",
        f"cycles       {times.cycles:,}{took} for {each}{rate}, exact",
    ]
    if network.gain is not None:
        best = min(cycles for cycles in network.alone.values() if cycles)
        name = next(name for name, cycles in network.alone.items() if cycles == best)
        lines.append(f"gain         {network.gain:.2f} times {name} alone, which takes {best:,} per inference")
    if count > 1 and network.steady_gain is not None:
        lines.append(f"steady       {network.steady_gain:.2f} times its rate while all accelerators are busy")
    work = sum(line.cycles for line in times.timelines if line)
    lost = f"{network.lost / work:.1%}" if work else "none"
    lines += [
        f"contention   {network.lost:,} of the jobs' {work:,} cycles ({lost}) are lost to one another",
        f"host         {len(plan.tasks)} starts, {network.system.reaction} cycles each before its writes",
        f"memory       {format_bytes(plan.memory_bytes)} of {format_bytes(network.system.memory_bytes)}",
    ]
    return block(lines)


def job_table(network: SystemNetwork) -> Table:
    """A line per job."""
    times = network.times
    rows = (
        [
            str(number),
            task.job.accelerator,
            task.nodes[0] if len(task.nodes) == 1 else f"{task.nodes[0]} .. {task.nodes[-1]}",
            task.share or f"all, inference {task.inference}" if network.inferences > 1 else task.share or "all",
            ", ".join(map(str, task.job.after)),
            f"{origin:,}",
            f"{line.cycles:,}" if line else "",
        ]
        for number, (task, origin, line) in enumerate(
            zip(network.plan.tasks, times.origins, times.timelines, strict=True)
        )
    )
    return new_table("Jobs", (">#", "accelerator", "nodes", "share", "waits for", ">begins", ">cycles"), rows)
