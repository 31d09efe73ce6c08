"""The outcome of a sweep, as tables, pictures and pages take it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from math import prod
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from dovetail.flows.explore.pricing.cost import Cost
from dovetail.flows.explore.results.frame import Frame
from dovetail.flows.explore.space.design_space import Point, Space
from dovetail.flows.explore.space.metrics import values_of
from dovetail.flows.options.parameters import CLOCK, flat
from dovetail.isa.common.html import html_table
from dovetail.isa.common.suggestion import nearest
from dovetail.isa.config.resolved import Config
from dovetail.sw.errors import DovetailError
from dovetail.sw.frontend import ZOO

if TYPE_CHECKING:
    from matplotlib.figure import Figure


@dataclass(frozen=True)
class Row:
    """A point that was priced, or could not be.

    Parameters
    ----------
    number: of the point within the space; rows stand in this order.
    axes: the values of what varies, by parameter name, outermost first.
    config: None where the combination breaks a rule of the configuration.
    costs: of the space's workloads, in their order; empty if the point failed.
    values: the metrics by name (see `dovetail.flows.explore.space.metrics`); empty if the point failed.
    error: why there is no cost, else empty.
    feasible: whether the point keeps all of the space's constraints.
    violation: how far it is from keeping those on metrics: a share of the limit each, added up; 0 if it is feasible.
    front: whether it is on the Pareto front of the space's objectives, among the feasible rows.
    confirmed: "equal" or "differs" where the RTL was asked, else empty.
    seconds: CPU time of pricing it.
    clock: Hz.
    scenarios: how many it stands for (see `dovetail.flows.explore.space.scenarios`).
    """

    number: int
    axes: Mapping[str, Any]
    config: Config | None
    costs: tuple[Cost, ...] = ()
    values: Mapping[str, float] = field(default_factory=dict)
    error: str = ""
    feasible: bool = True
    violation: float = 0.0
    front: bool = False
    confirmed: str = ""
    seconds: float = 0.0
    clock: float = 100e6
    scenarios: int = 1

    def __repr__(self) -> str:
        axes = ", ".join(f"{name} {value}" for name, value in self.axes.items())
        cycles = f"{self.values['cycles']:,.0f} cycles" if "cycles" in self.values else "no cost"
        told = self.error or cycles + (", on the front" if self.front else "" if self.feasible else ", infeasible")
        return f"<Row {self.number} ({axes}): {told}>"


@dataclass(frozen=True)
class Results:
    """A space and its rows so far.

    ``total``: the points that the search will look at, 0 if nobody knows; ``merged``: there is one row for all
    scenarios of a choice (:meth:`apart`).
    """

    space: Space
    rows: tuple[Row, ...]
    total: int = 0
    merged: bool = False

    @cached_property
    def choices(self) -> tuple[Row, ...]:
        """What competes: the rows, or where the space has scenarios a row for each choice, in the order of numbers."""
        from dovetail.flows.explore.space.scenarios import merged

        if self.merged or not self.space.scenario_axes:
            return self.rows
        return tuple(row for row, _ in merged(self.space, self.rows))

    def apart(self) -> Results:
        """The same with a row for each choice (:attr:`choices`), for tables and pictures of what competes."""
        if not self.space.scenario_axes:
            return self
        mode = self.space.scenario
        fixed = () if isinstance(mode, str) else mode
        each = prod(len(self.space.axes[name]) for name in self.space.scenario_axes if name not in fixed)
        return replace(self, rows=self.choices, total=self.total // each, merged=True)

    def marked(self) -> Results:
        """The same, every row knowing whether it, or the choice that it is a scenario of, is on the Pareto front."""
        from dovetail.flows.explore.space.scenarios import merged

        if not self.space.scenario_axes or self.merged:
            front = {self.rows[index].number for index in front_of(self.space, self.rows)}
        else:
            groups = merged(self.space, self.rows)
            best = front_of(self.space, [row for row, _ in groups])
            front = {member.number for index in best for member in groups[index][1]}
        return replace(self, rows=tuple(replace(row, front=row.number in front) for row in self.rows))

    def ranked(self, by: str = "") -> list[Row]:
        """The choices that compete, best first: the front, then the others; in each by metric ``by``, ties by number.

        Without ``by`` it is the first objective. Raises DovetailError for a name that is not a metric.
        """
        name, known, rows = by or self.space.objectives[0], self.space.known, self.choices
        if name not in known:
            raise DovetailError(f'rank must be by a metric, not "{name}"{nearest(name, known)}')
        front = set(front_of(self.space, rows))
        sign = -1 if known[name].more else 1
        able = [(index not in front, rows[index]) for index in competing(self.space, rows, (name,))]
        return [row for _, row in sorted(able, key=lambda r: (r[0], sign * r[1].values[name], r[1].number))]

    def __repr__(self) -> str:
        front, failed = sum(row.front for row in self.rows), sum(bool(row.error) for row in self.rows)
        total = f" of {self.total:,}" if self.total > len(self.rows) else ""
        return f"<Results {len(self.rows):,}{total} points, {front} on the front, {failed} failed>"

    def _repr_html_(self) -> str:
        from dovetail.flows.explore.results.table import table_of

        table = table_of(self)
        columns = [[str(cell) for cell in column.cells] for column in table.columns]
        return html_table(
            str(table.title),
            [str(column.header).replace("\n", " ") for column in table.columns],
            "".join("r" if column.justify == "right" else "l" for column in table.columns),
            list(zip(*columns, strict=True)),
            str(table.caption or ""),
        )

    def pareto(self, x: str | None = None, y: str | None = None, colour: str | None = None) -> Figure:
        """Metric ``y`` over ``x`` as points, coloured by parameter ``colour``, with the Pareto front.

        Without names they are the first objective over each of the others, and the parameter that explains most of it.
        Raises DovetailError where no row has these metrics.
        """
        from dovetail.flows.report.pictures import pareto

        named = ((x, self.space.known, "a metric"), (y, self.space.known, "a metric"))
        for name, known, what in (*named, (colour, self.space.axes, "a parameter that varies")):
            if name is not None and name not in known:
                raise DovetailError(f'pareto must be given {what}, not "{name}"{nearest(name, known)}')
        picture = pareto.of_results(self, x, y, colour)
        if picture is None:
            raise DovetailError("pareto must have a row with these metrics; none has them")
        return picture

    def bars(self, network: int = 0) -> Figure:
        """Cycles by kind of layer, a bar for each row, of the workload with this number."""
        from dovetail.flows.report.pictures import stacked
        from dovetail.flows.report.sweep_files import subtitle

        title = f"{self.networks[network]}: cycles per inference"
        return stacked.draw(self.rows, title, subtitle(self), network=network)

    @property
    def networks(self) -> list[str]:
        """Names of the space's workloads."""
        sources = [workload.source for workload in self.space.workloads]
        return [source if source.startswith(ZOO) else Path(source).stem for source in sources]

    def records(self) -> Frame:
        """A flat record per row: parameters, metrics, counts, verdicts; the lines of results.csv."""
        from dovetail.flows.explore.results.records import records_of

        return Frame(records_of(self, self.networks))

    def to_csv(self, path: str | Path | None = None) -> str:
        """:meth:`records` as CSV, written to ``path`` if there is one. Raises OSError."""
        return self.records().to_csv(path)

    def to_pandas(self) -> Any:
        """:meth:`records` as a `pandas.DataFrame`. Raises DovetailError where pandas is not installed."""
        return self.records().to_pandas()

    def layers(self, top: int = 8) -> Frame:
        """Every layer of the ``top`` rows that a reader asks for first, each compiled again.

        See `dovetail.flows.explore.results.layers`. Raises DovetailError where a network cannot be compiled any more.
        """
        from dovetail.flows.explore.results.layers import layers_of
        from dovetail.flows.report.page.explaining import explain_best

        explanations, reason = explain_best(self.apart(), top)
        if reason:
            raise DovetailError(reason)
        return layers_of(self, explanations)


def row_of(space: Space, point: Point, costs: Sequence[Cost], error: str = "", seconds: float = 0.0) -> Row:
    """The row of a point that was priced, or that failed for the reason ``error``."""
    error = point.error or error
    if error or point.config is None:
        return Row(
            point.number, point.axes, point.config, error=error, feasible=False, seconds=seconds, clock=point.clock
        )
    values = values_of(space, point.config, costs, point.clock)
    violation = sum(violations(space, point.number, point.config, values).values())
    return Row(
        point.number,
        point.axes,
        point.config,
        tuple(costs),
        values,
        feasible=not violation,
        violation=violation,
        seconds=seconds,
        clock=point.clock,
    )


def violations(space: Space, number: int, config: Config, values: Mapping[str, float]) -> dict[str, float]:
    """How far a point is from keeping each constraint on metrics, by its text; 0 where it is kept."""
    known = known_of(space, number, config, values)
    return {constraint.text: constraint.violation(known) for constraint in space.metric_constraints}


def known_of(space: Space, number: int, config: Config, values: Mapping[str, float]) -> dict[str, Any]:
    """Everything that an expression may name, of a point with these metrics."""
    return {CLOCK.name: space.clock, **flat(config), **space.values(number), **values}


def competing(space: Space, rows: Sequence[Row], metrics: Sequence[str]) -> list[int]:
    """The indices of the rows that may be compared by some metrics.

    They are feasible and have the metrics. No cycle and no energy is counted for what the host does, so one that leaves
    more to it would win by doing less: unless ``space.host`` is "any" or host MACs are an objective themselves, only
    the rows with the fewest MACs on the host compete, and of these the ones with the fewest layers there.
    """
    able = [
        i for i, row in enumerate(rows) if row.feasible and row.values and all(map(row.values.__contains__, metrics))
    ]
    if space.host == "any" or "host_macs" in space.objectives or not able:
        return able
    least = min(_left(rows[i]) for i in able)
    return [i for i in able if _left(rows[i]) == least]


def _left(row: Row) -> tuple[float, float]:
    return row.values["host_macs"], row.values["host_nodes"]


def front_of(space: Space, rows: Sequence[Row]) -> list[int]:
    """The indices of the rows on the Pareto front of the objectives; rows with equal objectives are all on it."""
    able = competing(space, rows, space.objectives)
    if not able:
        return []
    return [able[i] for i in np.flatnonzero(pareto(oriented(space, [rows[i] for i in able])))]


def oriented(space: Space, rows: Sequence[Row]) -> NDArray[np.float64]:
    """(rows, objectives) of what is to be made small: metrics of which more is better change their sign."""
    signs = [-1.0 if space.known[name].more else 1.0 for name in space.objectives]
    return np.array([[row.values[name] for name in space.objectives] for row in rows], dtype=np.float64) * signs


def pareto(costs: NDArray[np.float64]) -> NDArray[np.bool_]:
    """Which rows of (n, objectives) no other row dominates: is nowhere larger, and smaller somewhere."""
    values, inverse = np.unique(costs, axis=0, return_inverse=True)  # sorted: nobody is dominated by a later one
    left = np.arange(len(values))
    on_front = np.zeros(len(values), dtype=bool)
    while left.size:
        on_front[left[0]] = True
        beaten = (values[left] >= values[left[0]]).all(axis=1)
        left = left[~beaten]
    return on_front[inverse.reshape(-1)]


def common(rows: Sequence[Row]) -> dict[str, Any]:
    """The parameters that have one value in all of the rows with a configuration, and that value."""
    tables = [flat(row.config) for row in rows if row.config]
    first = tables[0] if tables else {}
    return {name: value for name, value in first.items() if all(table[name] == value for table in tables)}
