"""Successive narrowing: part of a coarse grid, then the neighbours of the Pareto front, in ever finer steps."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from itertools import islice, permutations
from math import prod
from typing import Any

from dovetail.flows.explore.results.row import Row, front_of
from dovetail.flows.explore.search.listed import shuffled
from dovetail.flows.explore.space.design_space import Point, Space
from dovetail.flows.options.parameters import AXES, FREQUENCY, LANES
from dovetail.isa.config.given import ARRAY_LANES, INT, SIZE

GRID = 64
"""The most points of the first generation, drawn from the coarse grid; measured: more of them find the front later."""


class Narrowing:
    """Generations of points, each asked for once the one before is told; the same rows give the same points.

    The first generation is drawn from a grid: the first, middle and last value of every axis that has an order, all
    values of the others. Each later one holds the points that differ from one of the front so far in one axis: by a
    step up or down if the axis has an order, else by any value; and those with a step up in the lanes of one
    dimension of the array and down in those of another. Steps are half an axis at first. Where nothing new comes up
    they are halved; it ends when nothing new comes up with steps of one value, or at the plan's number of points. As
    long as no point has a cost, more are drawn from the whole space instead.
    """

    total = 0

    def __init__(self, space: Space) -> None:
        self.space = space
        self._lengths = [len(values) for values in space.axes.values()]
        self._sorted = [_order(name, values) for name, values in space.axes.items()]
        self._steps = [length // 2 for length in self._lengths]
        self._left = space.search.points or len(space)
        self._tried: set[int] = set()
        self._waiting: set[int] = set()
        self._rows: list[Row] = []
        self._queue: deque[int] = deque()
        self._rest = shuffled(len(space), 0)
        self._enqueue(self._draw(self._grid()))

    def ask(self, most: int) -> list[Point]:
        """Points of this generation, or of the next once all of this one are told."""
        if not self._queue and not self._waiting:
            self._enqueue(self._next())
        numbers = [self._queue.popleft() for _ in range(min(most, len(self._queue)))]
        self._waiting.update(numbers)
        return [self.space.point(number) for number in numbers]

    def tell(self, row: Row) -> None:
        """Take the outcome of a point."""
        self._waiting.discard(row.number)
        self._rows.append(row)

    def _enqueue(self, numbers: Sequence[int]) -> None:
        taken = sorted(numbers, key=self.space.rank)[: self._left]
        self._left -= len(taken)
        self._tried.update(taken)
        self._queue.extend(taken)

    def _draw(self, numbers: Iterator[int]) -> list[int]:
        new = (number for number in numbers if number not in self._tried and self.space.admits(number))
        return list(islice(new, min(GRID, self._left)))

    def _grid(self) -> Iterator[int]:
        coarse = [
            sorted({0, (length - 1) // 2, length - 1}) if order else range(length)
            for order, length in zip(self._sorted, self._lengths, strict=True)
        ]
        sizes = [len(indices) for indices in coarse]

        def number(place: int) -> int:
            ranks = []
            for indices in coarse:
                place, rest = divmod(place, len(indices))
                ranks.append(indices[rest])
            return self.space.number([order[r] if order else r for order, r in zip(self._sorted, ranks, strict=True)])

        return map(number, shuffled(prod(sizes), 0))

    def _next(self) -> list[int]:
        """New neighbours of the front, in steps that are halved until there are some; others if there is no front."""
        if not self._left:
            return []
        self._rows.sort(key=lambda row: row.number)
        front = [self._rows[index].number for index in self._parents()]
        if not front:
            return self._draw(self._rest)
        while True:
            new = {n for number in front for n in self._neighbours(number) if n not in self._tried}
            kept = [number for number in new if self.space.admits(number)]
            if kept or max(self._steps, default=1) <= 1:
                return kept
            self._steps = [(step + 1) // 2 for step in self._steps]

    def _parents(self) -> list[int]:
        """The indices of the rows to look around: the front, or what is nearest to being feasible."""
        front = front_of(self.space, self._rows)
        if front:
            return front
        least = min((row.violation for row in self._rows if row.values), default=0.0)
        return [index for index, row in enumerate(self._rows) if row.values and row.violation == least]

    def _neighbours(self, number: int) -> Iterator[int]:
        indices = self.space.indices(number)
        moves = [self._moves(axis, index) for axis, index in enumerate(indices)]
        for axis, (down, up) in enumerate(moves):
            for other in {*down, *up} - {indices[axis]}:
                yield self.space.number(_with(indices, {axis: other}))
        names = list(self.space.axes)
        lanes = [names.index(name) for name in ARRAY_LANES if name in names]
        for more, less in permutations(lanes, 2):
            yield self.space.number(_with(indices, {more: moves[more][1][0], less: moves[less][0][0]}))

    def _moves(self, axis: int, index: int) -> tuple[Sequence[int], Sequence[int]]:
        """Where a step down and a step up lead; without an order anywhere."""
        order, step = self._sorted[axis], self._steps[axis]
        if not order:
            return range(self._lengths[axis]), ()
        rank = order.index(index)
        return [order[max(0, rank - step)]], [order[min(len(order) - 1, rank + step)]]


def _with(indices: Sequence[int], changes: Mapping[int, int]) -> list[int]:
    return [changes.get(axis, index) for axis, index in enumerate(indices)]


def _order(name: str, values: Sequence[Any]) -> list[int]:
    """The indices of an axis's values from small to large; empty if they have no order. Lanes go by multipliers."""
    kind = AXES[name].kind
    if kind is LANES:
        return sorted(range(len(values)), key=lambda index: (prod(values[index]), values[index]))
    return sorted(range(len(values)), key=values.__getitem__) if kind in (INT, SIZE, FREQUENCY) else []
