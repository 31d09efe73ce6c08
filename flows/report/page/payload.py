"""Results as the page's script reads them: plain JSON, a row of numbers per point."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from typing import Any

from dovetail.flows.explore.pricing.cost import Cost
from dovetail.flows.explore.results.constraint_fates import fates_of, nearest_miss
from dovetail.flows.explore.results.row import Row, competing
from dovetail.flows.explore.results.sweep_results import Results
from dovetail.flows.explore.results.table import is_unsure, notes_of, scenarios_in_words
from dovetail.flows.explore.space.deployment import Deployment, parameters_of
from dovetail.flows.explore.space.design_space import Space
from dovetail.flows.explore.space.metrics import area_doubt
from dovetail.flows.options.parameters import CLOCK, flat, named_lanes
from dovetail.flows.report.charts.colours import BOUNDS, RAMP, SERIES, cause_colours, colours_of
from dovetail.flows.report.charts.pareto import telling_axis
from dovetail.isa.config.given import ARRAY_LANES, NAMES, SIZE
from dovetail.isa.config.resolved import Config
from dovetail.sw.analysis.cost.energy import COMPONENTS
from dovetail.sw.analysis.explain.causes import CAUSES, RESOURCES


def header_of(space: Space, version: str) -> dict[str, Any]:
    """What holds for every point: networks, ``version`` of the compiler, and what the numbers of a row mean."""
    columns = (*space.columns.values(), CLOCK)
    default = {**flat(Config()), CLOCK.name: Space.clock}
    shades = cause_colours()
    return {
        "title": " + ".join(_short(workload.source) for workload in space.workloads) or "no network",
        "networks": [
            {"source": w.source, "weight": w.weight, "shapes": {name: list(sizes) for name, sizes in w.shapes.items()}}
            for w in space.workloads
        ],
        "compiler": version,
        "clock": space.clock,
        "tiling": space.tiling,
        "keep_weights": space.keep_weights,
        "effort": space.effort,
        "objectives": list(space.objectives),
        "constraints": [rule.text for rule in space.all_constraints],
        "scenarios": scenarios_in_words(space) if space.scenario_axes else "",
        "axes": _axes(space),
        "parameters": [
            {
                "name": p.name,
                "flag": p.flag,
                "memory": p.memory,
                "size": p.kind is SIZE,
                "names": p.kind is NAMES,
                "default": default.get(p.name),
            }
            for p in columns
        ],
        "systems": isinstance(space.base, Deployment),
        "metrics": list(space.known),
        "columns": _columns(space),
        "causes": {
            c.name: {"title": c.title, "bound": c.bound, "doc": c.doc, "colour": shades[c.name]}
            for c in CAUSES.values()
        },
        "energy": {
            name: {"doc": doc, "colour": colour} for (name, doc), colour in zip(COMPONENTS.items(), SERIES, strict=True)
        },
        "host": {"basis": space.host_cost.basis, "clock": space.host_cost.clock},
        "resources": {r.name: {"title": r.title, "doc": r.doc} for r in RESOURCES.values()},
        "colours": {"series": SERIES, "bounds": BOUNDS, "ramp": RAMP},
    }


def _columns(space: Space) -> list[dict[str, Any]]:
    """The columns of the table, except for kinds of layers: name, unit, group, and whether more is better.

    Of metrics those come first that are objectives. A metric that is a parameter, such as PEs, has one column.
    """
    rank = {name: place for place, name in enumerate(space.objectives)}
    metrics = {
        m.name: {"more": m.more, "metric": True, "objective": m.name in rank, "heading": m.axis}
        for m in sorted(space.known.values(), key=lambda m: rank.get(m.name, len(rank)))
    }
    varied = set(_axes(space))

    def column(key: str, title: str, group: str, doc: str, unit: str = "", **more: Any) -> dict[str, Any]:
        return {"key": key, "title": title, "group": group, "doc": doc, "unit": unit, **more}

    units = {"sram": "B", "total_sram": "B", CLOCK.name: "Hz"}
    columns = (*space.columns.values(), CLOCK)
    about = "front, feasible, on host (leaves more to the host than others, so it does not compete), infeasible, failed"
    part = "the smallest supported FPGA that the estimated area fits, or none"
    error = "largest error of LUTs and flip-flops as far as measured, as a share; not known outside of that"
    verdict = "whether the RTL needs the same cycles: equal, differs, or not asked"
    return [
        column("number", "#", "point", "number of the point within the space"),
        column("state", "state", "point", about),
        *(
            column(p.name, p.title, "parameters", p.doc, units.get(p.name, ""), axis=p.name in varied,
                   order=[value for value in space.axes.get(p.name, ()) if isinstance(value, str | bool)],
                   **{"more": False} | metrics.get(p.name, {}))
            for p in columns
        ),
        *(
            column(name, space.known[name].title, "metrics", space.known[name].doc, space.known[name].unit, **facts)
            for name, facts in metrics.items()
            if name not in space.columns
        ),
        column("part", "part", "estimates", part),
        column("area_error", "area error", "estimates", error, "%"),
        column("confirmed", "RTL", "point", verdict),
        column("seconds", "seconds", "point", "CPU time of pricing the point", "s", more=False),
        column("error", "reason", "point", "why a point failed"),
    ]  # fmt: skip


def rows_of(space: Space, rows: Iterable[Row]) -> list[list[Any]]:
    """``[number, error, seconds, parameters, metrics or None, costs, doubts]`` per row, in the order of
    :func:`header_of`; ``doubts``: metrics whose error is not known and why, the error of the area, the smallest part.

    What changes after a point is priced is not among them: see :func:`states_of`.
    """
    return [
        [
            row.number,
            row.error,
            round(row.seconds, 3),
            _parameters(space, row),
            [_number(row.values.get(name)) for name in space.known] if row.costs else None,
            [_cost(cost) for cost in row.costs],
            _doubts(space, row),
        ]
        for row in rows
    ]


def states_of(results: Results) -> dict[str, Any]:
    """What may change after a point is priced, as numbers of points.

    ``infeasible``; ``aside``: those that leave more to the host than others and so do not compete; ``front``;
    ``confirmed``: verdict of the RTL by number; ``kinds``: of layers, in the order of a stack, and their colours.
    """
    space, rows = results.space, results.rows
    competitors = set(competing(space, rows, ()))
    priced = [row for row in rows if space.objectives[0] in row.values]
    return {
        "infeasible": [row.number for row in rows if row.costs and not row.feasible],
        "aside": [row.number for i, row in enumerate(rows) if row.costs and row.feasible and i not in competitors],
        "front": [row.number for row in rows if row.front],
        "confirmed": {str(row.number): row.confirmed for row in rows if row.confirmed},
        "kinds": colours_of([kind for row in rows for cost in row.costs for kind in cost.kinds]),
        "notes": notes_of(results, list(space.known)),
        "constraints": [asdict(fate) for fate in fates_of(results)],
        "miss": miss.text if (miss := nearest_miss(results)) else "",
        "colour": telling_axis(priced, space.objectives[0]) or "" if priced else "",
    }


def payload_of(
    results: Results, explanations: Mapping[int, Sequence[Mapping[str, Any]]], version: str
) -> dict[str, Any]:
    """All that a page which stands alone shows; ``explanations`` of a row: one per network of the space.

    Where the space has scenarios, there is one row for all of a choice.
    """
    results = results.apart()
    return {
        "live": False,
        "header": header_of(results.space, version),
        "total": results.total,
        "rows": rows_of(results.space, results.rows),
        "states": states_of(results),
        "explanations": [[number, list(each)] for number, each in explanations.items()],
    }


def embedded(data: Any) -> str:
    """JSON that may stand in a script element: no text in it can end the element or begin another."""
    text = json.dumps(data, separators=(",", ":"), allow_nan=False)
    return text.replace("&", "\\u0026").replace("<", "\\u003c").replace(">", "\\u003e")


def _axes(space: Space) -> list[str]:
    """The parameters that the axes stand for; pixel lanes only where some are given."""
    given = max(map(len, space.axes.get("lanes", ((),))))
    return [name for axis in space.axes for name in (ARRAY_LANES[:given] if axis == "lanes" else [axis])]


def _short(source: str) -> str:
    """A network's name without its folders."""
    return source.removeprefix("zoo:").rsplit("/", 1)[-1].rsplit("\\", 1)[-1]


def _parameters(space: Space, row: Row) -> list[Any]:
    if row.config:
        values = parameters_of(row.config)
    else:
        values = {**row.axes, **(named_lanes(row.axes["lanes"]) if "lanes" in row.axes else {})}
    return [{**values, CLOCK.name: row.clock}.get(name) for name in (*space.columns, CLOCK.name)]


def _doubts(space: Space, row: Row) -> list[Any]:
    if not row.costs or row.config is None:
        return []
    doubt = area_doubt(row.config)
    unsure = [name for name in space.known if is_unsure(space, row, name)]
    return [unsure, "; ".join(doubt.outside), doubt.error, doubt.part or "none"]


def _cost(cost: Cost) -> list[Any]:
    return [cost.bar, cost.bound_cycles, cost.host_macs, dict(cost.kinds), cost.host_cycles]


def _number(value: float | None) -> float | None:
    """Rounded to what a double-check by hand needs; whole numbers stay whole."""
    if value is None or value != value or value in (float("inf"), float("-inf")):
        return None
    return int(value) if value == int(value) else float(f"{value:.9g}")
