"""Results as a table for a terminal."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import PurePath

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


def table_of(results: Results) -> Table:
    """All rows in their order, or the best, if there are many."""
    axes = list(results.rows[0].axes) if results.rows else []
    metrics = [*ALWAYS, *(name for name in results.space.objectives if name not in (*ALWAYS, *axes))]
    known = {name for row in results.rows for name in row.values}
    few = len(results.rows) <= ALL
    rows = list(results.rows) if few else results.ranked()[:BEST]
    title = _unit_of_work(results.space) if few else f"The best {len(rows)} of {len(results.rows):,}, front first"
    table = Table(title=title)
    for name in axes:
        table.add_column(SETTINGS[name].title or name)
    shown = [name for name in metrics if name in known]
    for name in shown:
        table.add_column(_heading(METRICS[name]), justify="right")
    table.add_column("front")
    for before, row in zip([None, *rows], rows, strict=False):
        if few and before and len(axes) > 1 and before.axes[axes[0]] != row.axes[axes[0]]:
            table.add_section()
        table.add_row(*_cells(row, axes, shown))
    return table


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
        return [*cells, Text(row.error[:60], "red")]
    return [*cells, *(_number(name, row.values.get(name)) for name in metrics), "yes" if row.front else ""]


def _number(name: str, value: float | None) -> str:
    if value is None:
        return ""
    if name == "utilisation":
        return f"{value:.1%}"
    return f"{value:,.0f}" if value >= 1000 or float(value).is_integer() else f"{value:#.4g}"
