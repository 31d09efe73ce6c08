"""Scenarios: memory timings that a design must live with. It is judged by the worst, by the mean or by a given one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from statistics import fmean
from typing import Any

from dovetail.flows.explore.results.row import Row
from dovetail.flows.explore.results.values import known_of
from dovetail.flows.explore.space.design_space import Space


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
