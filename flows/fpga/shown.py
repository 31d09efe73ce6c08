"""A build as text and tables."""

from __future__ import annotations

from rich.console import RenderableType
from rich.table import Table

from dovetail.flows.fpga.builder import Target
from dovetail.flows.fpga.design.boards import RESOURCES, UNITS
from dovetail.flows.fpga.design.pll import MHZ
from dovetail.flows.fpga.record import Build
from dovetail.flows.fpga.reports import CriticalPath
from dovetail.flows.output.tables import new_table


def shown(build: Build) -> list[RenderableType]:
    """Resources, frequency of each clock, and the critical path."""
    part, placed = build.target.board.part, build.placed
    speed = f", speed {part.speed}" if part.speed else ""
    lines = [f"board        {build.target.board.title} ({part.name}{speed}), memory {build.memory}"]
    lines.append(f"clock        {clock(build.target)}")
    for name, fmax in placed.fmax.items():
        wanted = placed.wanted[name]
        lines.append(f"fmax         {name}: {fmax:.2f} MHz, {_verdict(fmax, wanted)} the {wanted:g} that are needed")
    if len(build.seeds) > 1:
        told = ", ".join(f"{seed}: {fmax:.2f}" if fmax else f"{seed}: failed" for seed, fmax in build.seeds.items())
        lines.append(f"seeds        {told} MHz; best: {build.seed}")
    versions = ", ".join(f"{name} {version}".strip() for name, version in build.tools.items())
    lines.append(f"design       {build.design}, made by {versions}")
    parts: list[RenderableType] = [resources(build), f"units        {UNITS[part.family]}", *lines]
    if placed.path is not None:
        parts += [steps(placed.path)]
    return parts


def clock(target: Target) -> str:
    """The requested and the actual clock, and the PLL's setting."""
    reached, d = f"{target.clock / MHZ:g} MHz", target.dividers
    if d is None:
        return f"{reached}, the board's oscillator"
    wanted = "" if target.wanted == target.clock else f", the nearest to {target.wanted / MHZ:g}"
    times = d.feedback * d.loop_divider
    return (
        f"{reached}{wanted}: {d.reference / MHZ:g} / {d.reference_divider} * {times} = {float(d.vco) / MHZ:g} MHz in"
        f" the PLL, / {d.output_divider}"
    )


def missed(build: Build) -> str:
    """What to do about a clock that is not met; empty if all are."""
    placed, path = build.placed, build.placed.path
    if placed.met:
        return ""
    where = "" if path is None else f" from {path.start or '?'} to {path.end or '?'}"
    return (
        f"misses timing: {build.fmax:.2f} MHz of {max(placed.wanted.values()):g}{where}; --seeds N tries more"
        f" placements, --frequency {int(build.fmax)} or less is met, fewer lanes and banks make it faster"
    )


def resources(build: Build) -> Table:
    """What is used of the part."""
    title = f"{build.target.board.part.name} with {build.target.board.name}"
    table = new_table(title, ("resource", ">used", ">of", ">%"))
    for name, total in build.target.board.part.total.items():
        used = build.placed.used[name]
        table.add_row(RESOURCES[name], f"{used:,}", f"{total:,}", f"{used / total:.1%}")
    return table


def steps(path: CriticalPath) -> Table:
    """A critical path, step by step."""
    total = path.logic + path.routing
    title = f"Critical path of {path.clock}: {total:.2f} ns, {path.logic:.2f} in logic, {path.routing:.2f} in wires"
    table = new_table(title, ("through", ">cells", ">logic ns", ">wires ns", ">after ns"))
    after = 0.0
    for step in path.steps:
        after += step.logic + step.routing
        table.add_row(
            step.name or "(no name)", str(step.cells), f"{step.logic:.2f}", f"{step.routing:.2f}", f"{after:.2f}"
        )
    return table


def _verdict(fmax: float, wanted: float) -> str:
    return "meets" if fmax >= wanted else "misses"
