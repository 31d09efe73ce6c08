"""Whether a space has points at all, and which comes nearest where its constraints rule all of them out."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from random import Random
from typing import Any

from dovetail.flows.explore.space.deployment import parameters_of
from dovetail.flows.explore.space.design_space import Space
from dovetail.flows.explore.space.expressions import Constraint
from dovetail.flows.explore.space.metrics import fixed_values
from dovetail.flows.options.parameters import CLOCK, label
from dovetail.isa.config.given import ConfigError

COUNTED = 4000
"""Combinations that are counted one by one; of larger spaces half as many are drawn at random."""


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


def check(space: Space) -> None:
    """Raise ConfigError if constraints rule every point out."""
    if next(space.numbers(), None) is None:
        miss = nearest_before(space)
        least = f"; nearest: {miss.text}" if miss else ""
        raise ConfigError(f"constraints rule every combination of the axes out; loosen them or add values{least}")


def nearest_before(space: Space) -> Miss | None:
    """The combination that misses the constraints least, of a space that they rule out altogether before pricing."""
    early = [rule for rule in space.all_constraints if not rule.needs_cost]
    known = {number: known_before(space, number) for number in combinations(space)[0]}
    able = {number: values for number, values in known.items() if values}
    if not able:
        return None
    number = min(able, key=lambda each: (sum(rule.violation(able[each]) for rule in early), each))
    return Miss(number, label(space.point(number).axes), broken_by(early, able[number]))


def known_before(space: Space, number: int) -> dict[str, Any]:
    """What the configuration alone tells; nothing where the combination breaks a rule."""
    point = space.point(number)
    if point.config is None:
        return {}
    return {
        **parameters_of(point.config),
        **fixed_values(point.config),
        CLOCK.name: point.clock,
        **space.values(number),
    }


def broken_by(rules: Sequence[Constraint], known: Mapping[str, Any]) -> dict[str, float | None]:
    return {rule.text: rule.slack(known) for rule in rules if not rule.holds(known)}


def combinations(space: Space) -> tuple[list[int], bool]:
    """Numbers of all combinations, or of some where there are very many."""
    count = len(space)
    if count <= COUNTED:
        return list(range(count)), True
    return sorted(set(_drawn(count))), False


def _drawn(count: int) -> Iterator[int]:
    draw = Random(0)
    return (draw.randrange(count) for _ in range(COUNTED // 2))
