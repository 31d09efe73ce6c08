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
        "gain_without_host": network.gain_without_host,
        "lost_cycles": network.lost,
        "host_cycles": network.host_cycles,
        "host_basis": network.options.host.basis_of_layers,
        "host_error": network.options.host.error,
        "host_nodes": network.host_reasons,
        "memory_bytes": network.plan.memory_bytes,
        "jobs": [
            {
                "accelerator": task.accelerator,
                "inference": task.inference,
                "nodes": task.nodes,
                "share": task.share,
                "after": task.job.after,
                "earliest": task.job.earliest,
                "begins": begin,
                "ends": end,
                "cycles": cycles,
            }
            for task, begin, end, cycles, _ in network.done
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
    host = network.host_cycles
    sure = f"exact if the host's layers take {host:,}" if host else "exact"
    lines = [
        f"{network.graph.name} on {len(network.system.accelerators)} accelerators: {parts}",
        f"cycles       {times.cycles:,}{took} for {each}{rate}, {sure}",
    ]
    if network.gain is not None:
        best = min(cycles for cycles in network.alone.values() if cycles)
        name = next(name for name, cycles in network.alone.items() if cycles == best)
        beside = " beside the host" if host else ""
        free = network.gain_without_host
        bound = f"; {free:.2f} times if the host's layers took no time" if free else ""
        lines.append(
            f"gain         {network.gain:.2f} times {name} alone{beside}, which takes {best:,} per inference{bound}"
        )
    if count > 1 and network.steady_gain is not None:
        lines.append(f"steady       {network.steady_gain:.2f} times its rate while all accelerators are busy")
    work = sum(done.cycles for done in network.done if done.line is not None)
    lost = f"{network.lost:,} of the jobs' {work:,} cycles ({network.lost / work:.1%}) are lost to one another"
    if network.lost <= 0:
        fewer = f"; they take {-network.lost:,} fewer than alone, as memory refreshes rows in other cycles of theirs"
        lost = f"none of the jobs' {work:,} cycles are lost to one another{fewer if network.lost else ''}"
    starts = sum(task.accelerator is not None for task in plan.tasks)
    lines += [
        f"contention   {lost}",
        f"host         {starts} starts, {network.system.reaction} cycles each before its writes",
        *([f"host cycles  {_layers(network)}"] if host else []),
        f"memory       {format_bytes(plan.memory_bytes)} of {format_bytes(network.system.memory_bytes)}",
    ]
    return block(lines)


def _layers(network: SystemNetwork) -> str:
    """What the host computes, and what the estimate of its cycles rests on."""
    cycles, host = network.host_cycles, network.options.host
    layers = f"{cycles:,} for {len(network.host_reasons)} layers, {cycles / network.times.cycles:.1%} of all"
    return f"{layers}, an estimate: {host.basis_of_layers}"


def job_table(network: SystemNetwork) -> Table:
    """A line per job."""
    rows = (
        [
            str(number),
            task.accelerator or "host",
            task.nodes[0] if len(task.nodes) == 1 else f"{task.nodes[0]} .. {task.nodes[-1]}",
            task.share or f"all, inference {task.inference}" if network.inferences > 1 else task.share or "all",
            ", ".join(map(str, task.job.after)),
            f"{begin:,}",
            f"{cycles:,}",
        ]
        for number, (task, begin, _, cycles, _) in enumerate(network.done)
    )
    return new_table("Jobs", (">#", "accelerator", "nodes", "share", "waits for", ">begins", ">cycles"), rows)
