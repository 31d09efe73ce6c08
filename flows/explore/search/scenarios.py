"""A search for spaces with scenarios: each design is evaluated in all of them."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import product
from math import prod

from dovetail.flows.explore.results.outcome import merged
from dovetail.flows.explore.results.row import Row
from dovetail.flows.explore.search.listed import Search
from dovetail.flows.explore.space.deployment import changed_design
from dovetail.flows.explore.space.design_space import Point, Space
from dovetail.sw.errors import DovetailError

MOST = 1000
"""Scenarios of a choice."""


class Scenarios:
    """Asks another search for choices, hands out their scenarios, and tells it the one row that they amount to. Where
    one scenario is chosen, only that is looked at. Raises DovetailError: there are too many."""

    def __init__(self, space: Space, search_of: Callable[[Space], Search]) -> None:
        self._space = space
        self._axes = space.scenario_axes
        self._values = {name: self._counting(name) for name in self._axes}
        self._each = prod(map(len, self._values.values()))
        if self._each > MOST:
            raise DovetailError(
                f"scenarios must be {MOST:,} or fewer for each choice, not {self._each:,}: give fewer values of"
                f" {', '.join(self._axes)}, or choose one by scenario"
            )
        first = {name: space.axes[name][0] for name in self._axes}
        left = {name: values for name, values in space.axes.items() if name not in self._axes}
        self._inner_space = replace(space, base=changed_design(space.base, first), axes=left, scenario="worst")
        self._inner = search_of(self._inner_space)
        self._choice: dict[int, int] = {}  # of every point that was handed out
        self._waiting: dict[int, set[int]] = {}  # points of a choice that are not told yet
        self._rows: dict[int, list[Row]] = {}
        self._queue: deque[Point] = deque()

    @property
    def total(self) -> int:
        """The points it will look at; 0 if unknown."""
        return self._inner.total * self._each

    def ask(self, most: int) -> list[Point]:
        """The next scenarios; none while the search waits for rows."""
        while len(self._queue) < most and (points := self._inner.ask(1)):
            for point in points:
                self._expand(point.number)
        return [self._queue.popleft() for _ in range(min(most, len(self._queue)))]

    def tell(self, row: Row) -> None:
        """Take the outcome of a scenario; the search hears of the choice once all of its scenarios are there."""
        choice = self._choice.pop(row.number)
        self._rows.setdefault(choice, []).append(row)
        self._waiting[choice].discard(row.number)
        if not self._waiting[choice]:
            rows = sorted(self._rows.pop(choice), key=lambda each: each.number)
            found = [row for row, _ in merged(self._space, rows)]
            self._inner.tell(replace(found[0], number=choice) if found else self._none(choice))

    def _expand(self, choice: int) -> None:
        numbers = [number for number in self._scenarios(choice) if self._space.admits(number)]
        self._waiting[choice] = set(numbers)
        for number in numbers:
            self._choice[number] = choice
            self._queue.append(self._space.point(number))
        if not numbers:
            self._inner.tell(self._none(choice))

    def _none(self, choice: int) -> Row:
        """The row of a choice without a scenario that counts: constraints rule them out."""
        error = "constraints rule the scenarios that count out"
        return Row(choice, self._inner_space.point(choice).axes, None, error=error, feasible=False)

    def _counting(self, name: str) -> list[int]:
        """The places of an axis's values that count."""
        values = self._space.axes[name]
        if isinstance(self._space.scenario, str) or name not in self._space.scenario:
            return list(range(len(values)))
        return [values.index(self._space.scenario[name])]

    def _scenarios(self, choice: int) -> Iterator[int]:
        """The numbers of all scenarios of a choice."""
        fixed = dict(zip(self._inner_space.axes, self._inner_space.indices(choice), strict=True))
        for indices in product(*self._values.values()):
            place = {**fixed, **dict(zip(self._axes, indices, strict=True))}
            yield self._space.number([place[name] for name in self._space.axes])
