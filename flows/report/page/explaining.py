"""Explanations of points for the page: compiled again on demand, with the options of the sweep."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import lru_cache
from typing import Any

from dovetail.flows.explore.results.layers import explained_of
from dovetail.flows.explore.results.rows import Results, Row
from dovetail.flows.explore.space.design_space import Space
from dovetail.isa.config.resolved import Config
from dovetail.sw import frontend
from dovetail.sw.analysis.cost.energy import DEFAULT_TABLE, load_table
from dovetail.sw.errors import DovetailError, first_line
from dovetail.sw.network.ir import Graph
from dovetail.sw.runtime.compiled_network import compile_network


def explain_point(space: Space, config: Config | None) -> list[dict[str, Any]]:
    """Where the cycles of each network of a space go on a configuration, as JSON has it.

    Raises DovetailError or OSError where a network cannot be read or compiled (any more).
    """
    if config is None:
        raise DovetailError("point must have a configuration to be explained: this one breaks a rule")
    graphs = [
        _graph(workload.source, tuple((name, tuple(sizes)) for name, sizes in workload.shapes.items()))
        for workload in space.workloads
    ]
    compiled = [
        compile_network(graph, config, tiling=space.tiling, effort=space.effort, host=space.host_cost)
        for graph in graphs
    ]
    table = load_table(space.energy_table or DEFAULT_TABLE)
    return [explained_of(each, table) for each in compiled]


def explain_best(
    results: Results, top: int, follow: Callable[[Sequence[Row]], Iterable[Row]] = iter
) -> tuple[dict[int, list[dict[str, Any]]], str]:
    """Explanations of the ``top`` rows that a reader asks for first, by number, and why there are no more of them.

    ``follow`` may draw a bar while it hands out the rows.
    """
    explanations: dict[int, list[dict[str, Any]]] = {}
    for row in follow(worth_explaining(results, top)):
        try:
            explanations[row.number] = explain_point(results.space, row.config)
        except (DovetailError, OSError) as error:  # the results are worth a page without it
            return explanations, f"layers of point {row.number} are not explained: {first_line(error)}"
    return explanations, ""


def worth_explaining(results: Results, top: int) -> list[Row]:
    """The ``top`` rows that a reader asks for first: of the front, spread evenly where it is larger; then the best."""
    ranked = results.ranked()
    front = [row for row in ranked if row.front]
    if len(front) <= top:
        return ranked[:top]
    return [front[round(place * (len(front) - 1) / max(top - 1, 1))] for place in range(top)]


@lru_cache(maxsize=4)
def _graph(source: str, shapes: tuple[tuple[str, tuple[int, ...]], ...]) -> Graph:
    return frontend.load(source, dict(shapes))
