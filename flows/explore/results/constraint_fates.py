"""The constraints of a sweep: what each excludes, the slack, and the point that misses them least."""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil
from typing import Any

from dovetail.flows.explore.results.outcome import Outcome
from dovetail.flows.explore.results.row import Row, known_of
from dovetail.flows.explore.space.design_space import Space
from dovetail.flows.explore.space.near_miss import Miss, broken_by, combinations, known_before
from dovetail.flows.options.parameters import label


@dataclass(frozen=True)
class Fate:
    """The effect of a constraint.

    Parameters
    ----------
    text: the constraint.
    before: combinations of the axes that it rules out before anything is priced; None where costs are needed for it.
    combinations: of all axes; ``exact``: they were all counted, not estimated from a random sample.
    broken: choices that were priced and break it, of ``priced``.
    slack: its room at the best choice, as a share of its limit; None where that has no meaning, or nothing competes.
    """

    text: str
    before: int | None
    combinations: int
    exact: bool
    broken: int
    priced: int
    slack: float | None


def fates_of(results: Outcome) -> list[Fate]:
    """The effect of each constraint, in the order of the space, the part last."""
    space = results.space
    if not space.all_constraints:
        return []
    numbers, exact = combinations(space)
    early = [rule for rule in space.all_constraints if not rule.needs_cost]
    known = [known_before(space, number) for number in numbers] if early else []
    known = [values for values in known if values]
    priced = [row for row in results.choices if row.values]
    best = next(iter(results.ranked()), None)
    return [
        Fate(
            rule.text,
            None if rule.needs_cost else _scaled(sum(not rule.holds(v) for v in known), len(known), len(space), exact),
            len(space),
            exact,
            sum(not rule.holds(_known(space, row)) for row in priced),
            len(priced),
            None if best is None else rule.slack(_known(space, best)),
        )
        for rule in space.all_constraints
    ]


def nearest_miss(results: Outcome) -> Miss | None:
    """The choice that misses the constraints least, if there are some that were priced and none is feasible."""
    rows = [row for row in results.choices if row.values]
    if not rows or any(row.feasible for row in rows):
        return None
    row = min(rows, key=lambda each: (each.violation, each.number))
    return Miss(row.number, label(row.axes), broken_by(results.space.all_constraints, _known(results.space, row)))


def _known(space: Space, row: Row) -> dict[str, Any]:
    assert row.config is not None  # as it has a cost
    return {**known_of(space, row.number, row.config, row.values)}


def _scaled(found: int, of: int, count: int, exact: bool) -> int:
    return found if exact or not of else ceil(found / of * count)
