"""The constraints of a space: what each excludes, the slack, and the point that misses them least."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import ceil
from random import Random
from typing import Any

from dovetail.flows.explore.results.rows import Results, Row, known_of
from dovetail.flows.explore.space.design_space import Space
from dovetail.flows.explore.space.expressions import Constraint
from dovetail.flows.explore.space.metrics import area_values
from dovetail.flows.options.parameters import CLOCK, flat, label

COUNTED = 4000
"""Combinations of a space up to which what is ruled out before pricing is counted; of larger ones so many are drawn."""


@dataclass(frozen=True)
class Fate:
    """What became of a constraint.

    Parameters
    ----------
    text: the constraint.
    before: combinations of the axes that it rules out before anything is priced; None where costs are needed for it.
    combinations: all there are; ``exact``: whether they were counted, rather than judged by some drawn evenly.
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


@dataclass(frozen=True)
class Miss:
    """A configuration that keeps the constraints best, where none keeps them all.

    ``number``, ``label``: of the point; ``broken``: each broken constraint and by what share of its limit, None where
    that has no meaning.
    """

    number: int
    label: str
    broken: Mapping[str, float | None]

    @property
    def text(self) -> str:
        """In a line."""
        parts = [rule if share is None else f"{rule} by {_by(-share)}" for rule, share in self.broken.items()]
        return f"point {self.number} ({self.label}) misses {', '.join(parts)}"


def _by(share: float) -> str:
    return f"{share:.1%}" if share < 10 else f"{share:,.0f} times the limit"


def fates_of(results: Results) -> list[Fate]:
    """How each constraint fares, in the order of the space, the part last."""
    space = results.space
    if not space.all_constraints:
        return []
    numbers, exact = _combinations(space)
    early = [rule for rule in space.all_constraints if not rule.needs_cost]
    known = [_known_before(space, number) for number in numbers] if early else []
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


def nearest_miss(results: Results) -> Miss | None:
    """The choice that misses the constraints least, if there are some that were priced and none is feasible."""
    rows = [row for row in results.choices if row.values]
    if not rows or any(row.feasible for row in rows):
        return None
    row = min(rows, key=lambda each: (each.violation, each.number))
    return Miss(row.number, label(row.axes), _broken(results.space.all_constraints, _known(results.space, row)))


def nearest_before(space: Space) -> Miss | None:
    """The combination that misses the constraints least, of a space that they rule out altogether before pricing."""
    early = [rule for rule in space.all_constraints if not rule.needs_cost]
    known = {number: _known_before(space, number) for number in _combinations(space)[0]}
    able = {number: values for number, values in known.items() if values}
    if not able:
        return None
    number = min(able, key=lambda each: (sum(rule.violation(able[each]) for rule in early), each))
    return Miss(number, label(space.point(number).axes), _broken(early, able[number]))


def _known(space: Space, row: Row) -> dict[str, Any]:
    assert row.config is not None  # as it has a cost
    return {**known_of(space, row.number, row.config, row.values)}


def _known_before(space: Space, number: int) -> dict[str, Any]:
    """What the configuration alone tells; nothing where the combination breaks a rule."""
    point = space.point(number)
    if point.config is None:
        return {}
    return {**flat(point.config), **area_values(point.config), CLOCK.name: point.clock, **space.values(number)}


def _broken(rules: Sequence[Constraint], known: Mapping[str, Any]) -> dict[str, float | None]:
    return {rule.text: rule.slack(known) for rule in rules if not rule.holds(known)}


def _combinations(space: Space) -> tuple[list[int], bool]:
    """Numbers of all combinations, or of some where there are very many."""
    count = len(space)
    if count <= COUNTED:
        return list(range(count)), True
    return sorted(set(_drawn(count))), False


def _drawn(count: int) -> Iterator[int]:
    draw = Random(0)
    return (draw.randrange(count) for _ in range(COUNTED // 2))


def _scaled(found: int, of: int, count: int, exact: bool) -> int:
    return found if exact or not of else ceil(found / of * count)
