"""Layers x configurations: a record per point, network and layer, of what `explain` and the energy model say."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

from dovetail.flows.explore.results.frame import Frame, Record
from dovetail.flows.explore.results.row import Row, common
from dovetail.flows.explore.space.deployment import Deployment, Design, parameters_of
from dovetail.flows.explore.space.design_space import Space
from dovetail.flows.options.parameters import flat
from dovetail.flows.report.charts.chart import panel_json
from dovetail.flows.report.charts.roofline import chart
from dovetail.isa.config.resolved import Config
from dovetail.sw import frontend
from dovetail.sw.analysis.cost.energy import DEFAULT_TABLE, EnergyTable, energy_report, load_table
from dovetail.sw.analysis.explain.explainer import explain
from dovetail.sw.compiler.options import Options
from dovetail.sw.compiler.partition.host_cost import HostCost
from dovetail.sw.compiler.partition.segments import ACCELERATOR, HOST
from dovetail.sw.errors import DovetailError, first_line
from dovetail.sw.network.ir import Graph
from dovetail.sw.runtime.clock import milliseconds
from dovetail.sw.runtime.compiled_network import CompiledNetwork, compile_network

FIGURES = ("macs", "read_bytes", "write_bytes", "bound_compute", "bound_memory", "bound")
"""Of an explained layer, beside its cycles."""


def layers(
    networks: str | Path | Sequence[str | Path],
    configs: Config | Sequence[Config],
    *,
    clock: float | None = None,
    effort: int = Options().effort,
    host: HostCost | str | Path | None = None,
    energy_table: str | Path = DEFAULT_TABLE,
) -> Frame:
    """Every layer of every network on every configuration, with the parameters in which these differ.

    Columns: ``point`` (number of the configuration), parameters, then those of `layer_records`.

    Parameters
    ----------
    networks, configs: one, or several.
    clock: in Hz; with it there is a column ``ms``.
    effort, host: as `dovetail.compile` takes them.
    energy_table: a table that comes with Dovetail, or a file.

    Raises
    ------
    NetworkError, CompileError: as `dovetail.compile`.
    EnergyError: the table breaks a rule.
    """
    names = [networks] if isinstance(networks, str | Path) else list(networks)
    points = [configs] if isinstance(configs, Config) else list(configs)
    table = load_table(energy_table)
    graphs = [frontend.load(str(name), {}) for name in names]
    tables = [flat(config) for config in points]
    differing = [name for name in tables[0] if len({each[name] for each in tables}) > 1] if tables else []
    records: list[Record] = []
    for number, (config, parameters) in enumerate(zip(points, tables, strict=True)):
        head = {"point": number, **{name: parameters[name] for name in differing}}
        for graph in graphs:
            explained = explained_of(compile_network(graph, config, effort=effort, host=host), table)
            records += layer_records([explained], head, clock)
    return Frame(records)


def layers_of(rows: Sequence[Row], explanations: Mapping[int, Sequence[Mapping[str, Any]]]) -> Frame:
    """Every layer of those of the ``rows`` that are explained (by number, one explanation per network), in the order of
    the explanations.

    Columns: ``point`` and the parameters in which the points of the sweep differ, then those of `layer_records`.
    """
    same, clocks, by_number = common(rows), len({row.clock for row in rows}) > 1, {row.number: row for row in rows}
    records: list[Record] = []
    for number, explained in explanations.items():
        config, clock = by_number[number].config, by_number[number].clock
        parameters = parameters_of(config) if config else {}
        head: Record = {"point": number, **({"clock": clock} if clocks else {})}
        head |= {name: value for name, value in parameters.items() if name not in same}
        records += layer_records(explained, head, clock)
    return Frame(records)


def explain_point(space: Space, config: Design | None) -> list[dict[str, Any]]:
    """Where the cycles of each network of a space go on a configuration, as JSON has it.

    Raises DovetailError or OSError where a network cannot be read or compiled (any more).
    """
    if config is None:
        raise DovetailError("point must have a configuration to be explained: this one breaks a rule")
    if isinstance(config, Deployment):
        raise DovetailError("layers are those of one accelerator; `dovetail explain --system` tells a plan's jobs")
    graphs = [
        _graph(workload.source, tuple((name, tuple(sizes)) for name, sizes in workload.shapes.items()))
        for workload in space.workloads
    ]
    compiled = [compile_network(graph, config, **space.compiler) for graph in graphs]
    table = load_table(space.energy_table or DEFAULT_TABLE)
    return [explained_of(each, table) for each in compiled]


def explain_rows(
    space: Space, rows: Sequence[Row], follow: Callable[[Sequence[Row]], Iterable[Row]] = iter
) -> tuple[dict[int, list[dict[str, Any]]], str]:
    """Explanations of rows by number, and why there are no more of them, if one cannot be compiled any more.

    ``follow`` may draw a bar while it hands out the rows.
    """
    explanations: dict[int, list[dict[str, Any]]] = {}
    for row in follow(rows):
        try:
            explanations[row.number] = explain_point(space, row.config)
        except (DovetailError, OSError) as error:  # the results are worth a page without it
            return explanations, f"layers of point {row.number} are not explained: {first_line(error)}"
    return explanations, ""


@lru_cache(maxsize=4)
def _graph(source: str, shapes: tuple[tuple[str, tuple[int, ...]], ...]) -> Graph:
    return frontend.load(source, dict(shapes))


def explained_of(compiled: CompiledNetwork, table: EnergyTable) -> dict[str, Any]:
    """An explanation with its roofline and its energy, as JSON has it.

    Raises DovetailError for the microcoded accelerator.
    """
    explanation = explain(compiled)
    roofline = panel_json(chart([explanation], [""], explanation.network))
    return {**explanation.to_dict(), "roofline": roofline, "energy": energy_report(compiled, table).to_dict()}


def layer_records(explained: Iterable[Mapping[str, Any]], head: Mapping[str, Any], clock: float | None) -> list[Record]:
    """A record per layer of explained networks, each beginning with ``head``.

    ``layer`` (number), ``name``, ``kind``, ``place`` (accelerator or host), ``cycles`` (exact on the accelerator, an
    estimate of the host), ``ms`` at a clock in Hz, MACs, bytes moved, roofline bounds in cycles, what most cycles go
    to, ``energy`` in µJ, estimated, and its components.
    """
    records = []
    for network in explained:
        before = {**head, "network": network["network"]}
        energies = network["energy"]["layers"]
        for number, (layer, energy) in enumerate(zip(network["layers"], energies, strict=True)):
            records.append(
                {
                    **before,
                    **_layer(number, layer["name"], layer["kind"], ACCELERATOR, layer["cycles"], clock),
                    **{name: layer[name] for name in FIGURES},
                    "energy": energy["total"],
                    **{f"energy_{name}": value for name, value in energy["components"].items()},
                }
            )
        host = network["host"]
        scale = clock / host["clock"] if clock and host["clock"] else 1  # one with a clock of its own
        for number, (name, cycles) in enumerate(host["nodes"].items(), len(network["layers"])):
            records.append({**before, **_layer(number, name, "", HOST, round(cycles * scale), clock)})
    return records


def _layer(number: int, name: str, kind: str, place: str, cycles: int, clock: float | None) -> Record:
    record: Record = {"layer": number, "name": name, "kind": kind, "place": place, "cycles": cycles}
    return record | ({"ms": milliseconds(cycles, clock)} if clock else {})
