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

from dovetail.flows.explore.results.constraint_fates import Fate
from dovetail.flows.explore.results.outcome import Outcome
from dovetail.flows.explore.results.row import Row
from dovetail.flows.explore.space.deployment import Deployment
from dovetail.flows.explore.space.design_space import Space
from dovetail.flows.explore.space.metrics import AREA, ENERGY, HOST, Metric, area_doubt
from dovetail.flows.options.parameters import AXES, label
from dovetail.flows.output.printable import Block, block

ALL = 64
"""Rows that are shown one by one, at most."""
BEST = 20
"""Rows that are shown of larger results: the best."""
REASONS = 10
"""Reasons of failures that are shown, at most."""
ALWAYS = ("cycles", "latency", "utilisation", "roofline", "dram_bytes", "host_nodes")
"""Metrics of every table; the space's objectives follow."""
OF_SYSTEMS = ("cycles", "interval", "gain", "contention", "bus_use", "latency", "dram_bytes", "lut")
"""Of every table of systems."""
UNSURE, NOWHERE = "?", "!"
"""Marks of an estimate whose error is not known, and of a point that fits no supported part."""
SPARE = ("dram_bytes", "roofline", "utilisation", "host_nodes", "latency", "bus_use")
"""Columns that are left out where a line is short, in this order."""
WIDEST = 10_000
"""Characters of the longest line."""


def table_of(results: Outcome, width: int | None = None) -> Table:
    """All rows, the front first, or the best, if there are many.

    ``width``: characters of a line; columns that matter least are left out until the table fits, and the caption says
    which. Without it all are there.
    """
    results = results.apart()
    axes = list(results.rows[0].axes) if results.rows else []
    goals = [name for name in results.space.objectives if name not in axes]
    known = {name for row in results.rows for name in row.values}
    always = OF_SYSTEMS if isinstance(results.space.base, Deployment) else ALWAYS
    metrics = [name for name in dict.fromkeys((*always, *goals)) if name in known]
    table = _table(results, axes, metrics)
    left_out: list[str] = []
    for name in SPARE:
        if width is None or _width(table) <= width:
            break
        if name in metrics and name not in goals:
            metrics.remove(name)
            left_out.append(results.space.known[name].title)
            table = _table(results, axes, metrics)
    if width is not None and _width(table) > width:
        table.box, table.padding = box.SIMPLE_HEAD, (0, 0, 0, 0)
    notes = [f"left out to fit the line: {', '.join(left_out)}"] if left_out else []
    table.caption = block([*notes, *notes_of(results, metrics)]) or None
    table.caption_justify = "left"
    return table


def notes_of(results: Outcome, metrics: Sequence[str]) -> list[str]:
    """Notes on the estimates among some metrics and on scenarios, a line each."""
    space, rows = results.space, [row for row in results.choices if row.values and row.config]
    doubts = [area_doubt(row.config) for row in rows if row.config]
    read = {estimate for name in metrics for estimate in _estimates(space, name)}
    notes = []
    if AREA in read:
        errors = [doubt.error for doubt in doubts if doubt.error is not None]
        told = f"LUT and FF up to {max(errors):.1%} off, DSP and BRAM none, as far as measured" if errors else ""
        unsure = sum(doubt.error is None for doubt in doubts)
        other = f"{UNSURE} of {unsure:,}: outside of what was measured, error not known" if unsure else ""
        of = "area of the accelerators, without the interconnect," if isinstance(space.base, Deployment) else "area"
        notes.append(f"{of} is an estimate (`dovetail docs area`): {'; '.join(filter(None, [told, other]))}")
    if ENERGY in read:
        notes.append("energy is a rough estimate to compare by, its error not known (`dovetail docs energy`)")
    if HOST in read and any(row.values.get("host_cycles") for row in rows):
        notes.append(f"times include an estimate of the host: {space.host_cost.basis}")
    if space.keep_weights:
        notes.append("cycles are those of a run that finds in SRAM the weights that stay there (keep_weights)")
    nowhere = sum(not doubt.part for doubt in doubts)
    if nowhere:
        notes.append(f"{NOWHERE} {nowhere:,} of {len(rows):,} fit no supported part, by the estimate")
    if space.scenario_axes:
        notes.append(scenarios_in_words(space))
    return notes


def _estimates(space: Space, name: str) -> set[str]:
    """The estimates behind a metric; for an expression, those of its terms."""
    names = space.own[name].names if name in space.own else {name}
    return {estimate for each in names if each in space.known for estimate in space.known[each].rests_on}


def is_unsure(space: Space, row: Row, name: str) -> bool:
    """Whether a metric of a row rests on an estimate whose error is not known."""
    return row.config is not None and AREA in _estimates(space, name) and area_doubt(row.config).error is None


def scenarios_in_words(space: Space) -> str:
    """Which scenarios there are, and what of them counts."""
    axes = "; ".join(
        f"{AXES[name].title} {', '.join(map(AXES[name].show, space.axes[name]))}" for name in space.scenario_axes
    )
    counts = f"the {space.scenario} counts" if isinstance(space.scenario, str) else f"{label(space.scenario)} counts"
    return f"scenarios: {axes}: {counts}"


def goals_table(fates: Sequence[Fate]) -> Table:
    """A line per constraint: what it rules out before and after pricing, and its room at the best point."""
    table = Table(title="Constraints")
    table.add_column("constraint")
    for name in map(Block, ("ruled out\nbefore pricing", "broken,\nof those priced", "slack of\nthe best")):
        table.add_column(name, justify="right", no_wrap=True)
    for fate in fates:
        about = "" if fate.exact else "about "
        before = "" if fate.before is None else f"{about}{fate.before:,} of {fate.combinations:,}"
        slack = "" if fate.slack is None else f"{fate.slack:+.1%}"
        table.add_row(Text(fate.text), before, f"{fate.broken:,} of {fate.priced:,}", slack)
    return table


@dataclass(frozen=True)
class Fitted:
    """The table of results, as wide as where it is printed."""

    results: Outcome

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        """For rich."""
        yield table_of(self.results, options.max_width)


def _table(results: Outcome, axes: Sequence[str], metrics: Sequence[str]) -> Table:
    few = len(results.rows) <= ALL
    best = results.ranked()
    front = {row.number for row in best if row.front}
    ahead = [row for row in best if row.front]
    rows = [*ahead, *(row for row in results.rows if row.number not in front)] if few else best[:BEST]
    title = _unit_of_work(results.space) if few else f"The best {len(rows)} of {len(results.rows):,}, front first"
    table = Table(title=title)
    for name in axes:
        table.add_column(_lines(AXES[name].title), no_wrap=True)
    for name in metrics:
        table.add_column(_lines(_heading(results.space.known[name])), justify="right", no_wrap=True)
    table.add_column("front", no_wrap=True)
    for before, row in zip([None, *rows], rows, strict=False):
        if few and before and (before.front > row.front or _parts(before, row, axes)):
            table.add_section()
        table.add_row(*_cells(results.space, row, axes, metrics))
    return table


def _parts(before: Row, row: Row, axes: Sequence[str]) -> bool:
    """Whether a line separates two rows that are not on the front: the outermost axis changes."""
    return not before.front and len(axes) > 1 and bool(before.axes[axes[0]] != row.axes[axes[0]])


def _width(table: Table) -> int:
    """Characters of the widest line."""
    return Console(width=WIDEST).measure(table).maximum


def _lines(heading: str) -> str:
    """A heading in narrow lines, broken before words, not before a unit or a slash."""
    return block(re.split(r" (?=\w)", heading))


def _unit_of_work(space: Space) -> str:
    """The unit of work that cycles, traffic and energy refer to."""
    if [workload.weight for workload in space.workloads] == [1]:
        return "Per inference"
    parts = (f"{workload.weight:g} x {PurePath(workload.source).name}" for workload in space.workloads)
    return f"Per unit of work: {', '.join(parts)}"


def _heading(metric: Metric) -> str:
    """Title and unit, unless the title says it."""
    return metric.title if metric.unit in ("", metric.title, "MACs", "1/s", "%") else f"{metric.title} ({metric.unit})"


def failures_of(rows: Sequence[Row]) -> list[str]:
    """Why rows failed: one by one, or each reason once with its number, if there are many."""
    failed = [row for row in rows if row.error]
    if len(rows) <= ALL:
        return [f"{label(row.axes)}: {row.error}" for row in failed]
    reasons = Counter(row.error for row in failed).most_common()
    lines = [f"{count:,} failed: {error}" for error, count in reasons[:REASONS]]
    rest = sum(count for _, count in reasons[REASONS:])
    return lines + ([f"{rest:,} failed for {len(reasons) - REASONS} other reasons, see the records"] if rest else [])


def _cells(space: Space, row: Row, axes: Sequence[str], metrics: Sequence[str]) -> list[str | Text]:
    cells: list[str | Text] = [AXES[name].show(row.axes[name]) for name in axes]
    if row.error:
        return [*cells, *([""] * len(metrics)), Text("fails", "red")]
    doubt = area_doubt(row.config) if row.config else None
    state = "yes" if row.front else "" if row.feasible else "infeasible"
    nowhere = NOWHERE if doubt and not doubt.part else ""
    for name in metrics:
        cells.append(_number(space.known[name], row.values.get(name)) + (UNSURE if is_unsure(space, row, name) else ""))
    return [*cells, f"{state}{nowhere and ' '}{nowhere}".strip()]


def _number(metric: Metric, value: float | None) -> str:
    if value is None:
        return ""
    if metric.unit == "%":
        return f"{value:.1%}"
    return f"{value:,.0f}" if value >= 1000 or float(value).is_integer() else f"{value:#.4g}"
