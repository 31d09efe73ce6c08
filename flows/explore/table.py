"""Results as a table for a terminal."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import PurePath

from rich import box
from rich.console import Console, ConsoleOptions, RenderResult
from rich.table import Table
from rich.text import Text

from dovetail.flows.explore.metrics import METRICS, Metric
from dovetail.flows.explore.results import Results, Row
from dovetail.flows.explore.space import Space
from dovetail.flows.parameters import SETTINGS, label

ALL = 64
"""More rows than this are not shown one by one."""
BEST = 20
"""Then these, the best of them."""
REASONS = 10
"""Reasons of failures that are shown."""
ALWAYS = ("cycles", "utilisation", "roofline", "dram_bytes", "host_nodes")
"""Metrics of every table; the space's objectives follow."""
SPARE = ("dram_bytes", "roofline", "utilisation", "host_nodes")
"""Those that are left out where a line is short, in this order."""
WIDEST = 10_000
"""Characters of a line that nothing exceeds."""


def table_of(results: Results, width: int | None = None) -> Table:
    """All rows in their order, or the best, if there are many.

    ``width``: characters of a line; columns that matter least are left out until the table fits, and the caption says
    which. Without it all are there.
    """
    axes = list(results.rows[0].axes) if results.rows else []
    goals = [name for name in results.space.objectives if name not in axes]
    known = {name for row in results.rows for name in row.values}
    metrics = [name for name in dict.fromkeys((*ALWAYS, *goals)) if name in known]
    table = _table(results, axes, metrics)
    left_out: list[str] = []
    for name in SPARE:
        if width is None or _width(table) <= width:
            break
        if name in metrics and name not in goals:
            metrics.remove(name)
            left_out.append(METRICS[name].title)
            table = _table(results, axes, metrics)
    if width is not None and _width(table) > width:
        table.box, table.padding = box.SIMPLE_HEAD, (0, 0, 0, 0)
    table.caption = f"left out, as the line is short: {', '.join(left_out)}" if left_out else None
    return table


@dataclass(frozen=True)
class Fitted:
    """The table of results, as wide as where it is printed."""

    results: Results

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        """What rich asks for."""
        yield table_of(self.results, options.max_width)


def _table(results: Results, axes: Sequence[str], metrics: Sequence[str]) -> Table:
    few = len(results.rows) <= ALL
    rows = list(results.rows) if few else results.ranked()[:BEST]
    title = _unit_of_work(results.space) if few else f"The best {len(rows)} of {len(results.rows):,}, front first"
    table = Table(title=title)
    for name in axes:
        table.add_column(_lines(SETTINGS[name].title or name), no_wrap=True)
    for name in metrics:
        table.add_column(_lines(_heading(METRICS[name])), justify="right", no_wrap=True)
    table.add_column("front", no_wrap=True)
    for before, row in zip([None, *rows], rows, strict=False):
        if few and before and len(axes) > 1 and before.axes[axes[0]] != row.axes[axes[0]]:
            table.add_section()
        table.add_row(*_cells(row, axes, metrics))
    return table


def _width(table: Table) -> int:
    """Characters of a line, with nothing cut."""
    return Console(width=WIDEST).measure(table).maximum


def _lines(heading: str) -> str:
    """A heading in narrow lines: breaks are before words, not before a unit or a stroke."""
    return re.sub(r" (?=\w)", "\n", heading)


def _unit_of_work(space: Space) -> str:
    """What cycles, traffic and energy are of."""
    if [workload.weight for workload in space.workloads] == [1]:
        return "Per inference"
    parts = (f"{workload.weight:g} x {PurePath(workload.source).name}" for workload in space.workloads)
    return f"Per unit of work: {', '.join(parts)}"


def _heading(metric: Metric) -> str:
    """Title and unit, unless the title says it."""
    return metric.title if metric.unit in ("", metric.title, "MACs", "1/s") else f"{metric.title} ({metric.unit})"


def failures_of(rows: Sequence[Row]) -> list[str]:
    """Why rows failed: one by one, or each reason once with its number, if there are many."""
    failed = [row for row in rows if row.error]
    if len(rows) <= ALL:
        return [f"{label(row.axes)}: {row.error}" for row in failed]
    reasons = Counter(row.error for row in failed).most_common()
    lines = [f"{count:,} failed: {error}" for error, count in reasons[:REASONS]]
    rest = sum(count for _, count in reasons[REASONS:])
    return lines + ([f"{rest:,} failed for {len(reasons) - REASONS} other reasons, see the records"] if rest else [])


def _cells(row: Row, axes: Sequence[str], metrics: Sequence[str]) -> list[str | Text]:
    cells: list[str | Text] = [SETTINGS[name].show(row.axes[name]) for name in axes]
    if row.error:
        return [*cells, *([""] * len(metrics)), Text("fails", "red")]
    state = "yes" if row.front else "" if row.feasible else "infeasible"
    return [*cells, *(_number(name, row.values.get(name)) for name in metrics), state]


def _number(name: str, value: float | None) -> str:
    if value is None:
        return ""
    if name == "utilisation":
        return f"{value:.1%}"
    return f"{value:,.0f}" if value >= 1000 or float(value).is_integer() else f"{value:#.4g}"
