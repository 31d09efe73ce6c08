"""The outcome of a sweep, as tables, pictures and pages take it."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dovetail.flows.explore.results.frame import Frame
from dovetail.flows.explore.results.layers import explain_rows, layers_of
from dovetail.flows.explore.results.outcome import Outcome
from dovetail.flows.explore.results.records import records_of
from dovetail.flows.explore.results.table import table_of
from dovetail.flows.report.charts import pareto, stacked
from dovetail.isa.common.html import html_table
from dovetail.isa.common.suggestion import nearest
from dovetail.sw.errors import DovetailError

if TYPE_CHECKING:
    from matplotlib.figure import Figure


@dataclass(frozen=True, repr=False)
class Results(Outcome):
    """An outcome as tables, records, layers and pictures."""

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
