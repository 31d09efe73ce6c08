"""What a sweep has found so far: rows, what competes, the front; scenarios of a design as one row."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from math import prod
from pathlib import Path
from statistics import fmean
from typing import Any, Self

from dovetail.flows.explore.results.row import Row, competing, front_of, known_of
from dovetail.flows.explore.space.design_space import Space
from dovetail.isa.common.suggestion import nearest
from dovetail.sw.errors import DovetailError
from dovetail.sw.frontend import ZOO


@dataclass(frozen=True)
class Outcome:
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

    def apart(self) -> Self:
        """The same with a row for each choice (:attr:`choices`), for tables and pictures of what competes."""
        if not self.space.scenario_axes:
            return self
        mode = self.space.scenario
        fixed = () if isinstance(mode, str) else mode
        each = prod(len(self.space.axes[name]) for name in self.space.scenario_axes if name not in fixed)
        return replace(self, rows=self.choices, total=self.total // each, is_merged=True)

    def marked(self) -> Self:
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

    @property
    def networks(self) -> list[str]:
        """Names of the space's workloads."""
        sources = [workload.source for workload in self.space.workloads]
        return [source if source.startswith(ZOO) else Path(source).stem for source in sources]

    def worth_explaining(self, top: int) -> list[Row]:
        """The ``top`` choices to look at first: of the front, spread evenly if it is larger; then the best."""
        ranked = self.ranked()
        front = [row for row in ranked if row.front]
        if len(front) <= top:
            return ranked[:top]
        return [front[round(place * (len(front) - 1) / max(top - 1, 1))] for place in range(top)]


def merged(space: Space, rows: Sequence[Row]) -> list[tuple[Row, list[Row]]]:
    """A row for each choice and the rows of its scenarios, in the order of the first of them.

    The row is the scenario that the space asks for, or the one with the worst (for a mean: the most usual) first
    objective, with the metrics of all of its scenarios so far: the worst of each, or the mean. A choice is feasible if
    its worst case keeps every constraint, and fails if any of its scenarios that count does.
    """
    groups: dict[int, list[Row]] = {}
    for row in rows:
        groups.setdefault(_choice(space, row.number), []).append(row)
    found = [(_row_of(space, members), members) for members in groups.values()]
    return [(row, members) for row, members in found if row is not None]


def _choice(space: Space, number: int) -> int:
    """The number of a choice's first scenario."""
    indices = zip(space.axes, space.indices(number), strict=True)
    return space.number([0 if name in space.scenario_axes else index for name, index in indices])


def _row_of(space: Space, members: Sequence[Row]) -> Row | None:
    """One row for the scenarios of a choice; None if the one that counts is not there yet."""
    mode = space.scenario
    counting = list(members) if isinstance(mode, str) else [m for m in members if _is(space, m, mode)]
    if not counting:
        return None
    bad = next((member for member in counting if member.error), None)
    one = bad or (counting[0] if len(counting) == 1 else _telling(space, counting))
    axes = {name: value for name, value in one.axes.items() if name not in space.scenario_axes}
    told = [member.confirmed for member in counting]
    confirmed = "differs" if "differs" in told else "equal" if all(told) else ""
    row = replace(one, axes=axes, scenarios=len(counting), confirmed=confirmed)
    if bad or len(counting) == 1:
        return row
    names = [name for name in one.values if all(name in member.values for member in counting)]
    of = {name: [member.values[name] for member in counting] for name in names}
    if mode == "mean":
        values = {name: fmean(found) for name, found in of.items()}
        known = [known_of(space, member.number, member.config, values) for member in counting if member.config]
        violation = max(sum(rule.violation(each) for rule in space.metric_constraints) for each in known)
    else:
        values = {name: (min if space.known[name].more else max)(found) for name, found in of.items()}
        violation = max(member.violation for member in counting)
    return replace(row, values=values, violation=violation, feasible=not violation)


def _is(space: Space, row: Row, scenario: Mapping[str, Any]) -> bool:
    return all(row.axes[name] == value for name, value in scenario.items())


def _telling(space: Space, rows: Sequence[Row]) -> Row:
    """The scenario with the worst first objective, or the one nearest to its mean; the first of equals."""
    name = space.objectives[0]
    able = [row for row in rows if name in row.values]
    if not able:
        return rows[0]
    if space.scenario == "mean":
        mean = fmean(row.values[name] for row in able)
        return min(able, key=lambda row: abs(row.values[name] - mean))
    return (min if space.known[name].more else max)(able, key=lambda row: row.values[name])
