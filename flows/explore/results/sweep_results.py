"""The outcome of a sweep, as tables, pictures and pages take it."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from math import prod
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dovetail.flows.explore.results.frame import Frame
from dovetail.flows.explore.results.layers import explain_rows, layers_of
from dovetail.flows.explore.results.merged import merged
from dovetail.flows.explore.results.records import records_of
from dovetail.flows.explore.results.row import Row, competing, front_of
from dovetail.flows.explore.results.table import table_of
from dovetail.flows.explore.space.design_space import Space
from dovetail.flows.report.charts import pareto, stacked
from dovetail.isa.common.html import html_table
from dovetail.isa.common.suggestion import nearest
from dovetail.sw.errors import DovetailError
from dovetail.sw.frontend import ZOO

if TYPE_CHECKING:
    from matplotlib.figure import Figure


@dataclass(frozen=True)
class Results:
    """A space and its rows so far.

    ``total``: the points that the search will look at, 0 if unknown; ``is_merged``: there is one row for all
    scenarios of a choice (:meth:`apart`).
    """

    space: Space
    rows: tuple[Row, ...]
    total: int = 0
    is_merged: bool = False

    @cached_property
    def choices(self) -> tuple[Row, ...]:
        """What competes: the rows, or where the space has scenarios a row for each choice, in the order of numbers."""
        if self.is_merged or not self.space.scenario_axes:
            return self.rows
        return tuple(row for row, _ in merged(self.space, self.rows))

    def apart(self) -> Results:
        """The same with a row for each choice (:attr:`choices`), for tables and pictures of what competes."""
        if not self.space.scenario_axes:
            return self
        mode = self.space.scenario
        fixed = () if isinstance(mode, str) else mode
        each = prod(len(self.space.axes[name]) for name in self.space.scenario_axes if name not in fixed)
        return replace(self, rows=self.choices, total=self.total // each, is_merged=True)

    def marked(self) -> Results:
        """The same, every row knowing whether it, or the choice that it is a scenario of, is on the Pareto front."""
        if not self.space.scenario_axes or self.is_merged:
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
        table = table_of(self)
        columns = [[str(cell) for cell in column.cells] for column in table.columns]
        return html_table(
            str(table.title),
            [str(column.header).replace("\n", " ") for column in table.columns],
            "".join("r" if column.justify == "right" else "l" for column in table.columns),
            list(zip(*columns, strict=True)),
            str(table.caption or ""),
        )

    @property
    def networks(self) -> list[str]:
        """Names of the space's workloads."""
        sources = [workload.source for workload in self.space.workloads]
        return [source if source.startswith(ZOO) else Path(source).stem for source in sources]

    def records(self) -> Frame:
        """A flat record per row: parameters, metrics, counts, verdicts; the lines of results.csv."""
        return Frame(records_of(self.space, self.rows, self.networks))

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
        explanations, reason = explain_rows(self.space, self.worth_explaining(top))
        if reason:
            raise DovetailError(reason)
        return layers_of(self.rows, explanations)

    def worth_explaining(self, top: int) -> list[Row]:
        """The ``top`` choices to look at first: of the front, spread evenly if it is larger; then the best."""
        ranked = self.ranked()
        front = [row for row in ranked if row.front]
        if len(front) <= top:
            return ranked[:top]
        return [front[round(place * (len(front) - 1) / max(top - 1, 1))] for place in range(top)]

    def pareto(self, x: str | None = None, y: str | None = None, colour: str | None = None) -> Figure:
        """Metric ``y`` over ``x`` as points, coloured by parameter ``colour``, with the Pareto front.

        Without names they are the first objective over each of the others, and the parameter that explains most of it.
        Raises DovetailError where no row has these metrics.
        """
        from dovetail.flows.report.pictures.render import draw  # matplotlib takes half a second

        named = ((x, self.space.known, "a metric"), (y, self.space.known, "a metric"))
        for name, known, what in (*named, (colour, self.space.axes, "a parameter that varies")):
            if name is not None and name not in known:
                raise DovetailError(f'pareto must be given {what}, not "{name}"{nearest(name, known)}')
        found = pareto.of_results(self, x, y, colour)
        if found is None:
            raise DovetailError("pareto must have a row with these metrics; none has them")
        return draw(found)

    def bars(self, network: int = 0) -> Figure:
        """Cycles by kind of layer, a bar for each row, of the workload with this number."""
        from dovetail.flows.report.pictures.render import draw  # matplotlib takes half a second

        return draw(stacked.of_results(self, network))
