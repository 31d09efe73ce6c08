"""Energy of a network on the command line: the table of energies, a line of components, a table of layers."""

from __future__ import annotations

import argparse

from rich.table import Table

from dovetail.flows.output.printable import block
from dovetail.flows.output.tables import new_table
from dovetail.sw.analysis.cost.energy import COMPONENTS, DEFAULT_TABLE, ERROR, EnergyReport, energy_report, load_table
from dovetail.sw.errors import DovetailError
from dovetail.sw.runtime.compiled_network import CompiledNetwork


def add_energy_option(parser: argparse.ArgumentParser) -> None:
    """Add the table of energies."""
    parser.add_argument(
        "--energy-table",
        metavar="FILE|NAME",
        help=f"energies of events (`dovetail docs energy`); default: {DEFAULT_TABLE}",
    )


def check_energy_option(args: argparse.Namespace) -> None:
    """Raise EnergyError for a bad table, before anything is compiled."""
    if args.energy_table is not None:
        load_table(args.energy_table)


def energy_for(args: argparse.Namespace, compiled: CompiledNetwork) -> EnergyReport | None:
    """The energy of an inference; None for the microcoded accelerator, of which none is estimated.

    Raises EnergyError, or DovetailError where a table is named for that engine.
    """
    if compiled.config.serial:
        if args.energy_table is not None:
            raise DovetailError("--energy-table must be left out with serial = true: its energy is not estimated")
        return None
    return energy_report(compiled, load_table(args.energy_table or DEFAULT_TABLE))


def energy_text(energy: EnergyReport | None) -> str:
    """The energy and its components, and what is not in it."""
    if energy is None:
        return "energy       not estimated for serial = true"
    shares = ", ".join(f"{name} {share:.1%}" for name, share in energy.shares.items())
    return block(
        [
            f"energy       {micro(energy.whole.total)} per inference, an estimate by the table {energy.table.name}"
            f" ({ERROR})",
            f"  of it      {shares}",
            f"  not in it  {', '.join(energy.not_counted)}",
        ]
    )


def energy_table(energy: EnergyReport) -> Table:
    """A line per layer, a column per component."""
    used = [name for name in COMPONENTS if energy.whole.parts[name]]
    columns = ("layer", "kind", *(f">{name}" for name in (*used, "all", "share")))
    table = new_table("Energy by layer, µJ, estimated", columns)
    whole = energy.whole.total
    for layer in energy.layers:
        own = layer.energy
        cells = [_number(own.parts[name]) for name in used]
        table.add_row(layer.name, layer.kind, *cells, _number(own.total), f"{own.total / whole:.1%}" if whole else "")
    table.add_section()
    fetches = [_number(energy.instructions) if name == "instructions" else "" for name in used]
    share = f"{energy.instructions / whole:.1%}" if whole else ""
    table.add_row("instructions of all", "", *fetches, _number(energy.instructions), share)
    table.add_row("all", "", *(_number(energy.whole.parts[name]) for name in used), _number(whole), "")
    return table


def micro(pj: float) -> str:
    """Picojoules as µJ, or what reads better."""
    for scale, unit in ((1e12, "J"), (1e9, "mJ"), (1e6, "µJ"), (1e3, "nJ")):
        if pj >= scale:
            return f"{pj / scale:.4g} {unit}"
    return f"{pj:.4g} pJ"


def _number(pj: float) -> str:
    return f"{pj * 1e-6:,.3f}" if pj else ""
