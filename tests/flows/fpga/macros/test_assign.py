"""Rows to columns: none is cheaper than what is found."""

from itertools import permutations

import numpy as np
import pytest

from dovetail.flows.fpga.macros.assign import assigned


@pytest.mark.parametrize(("rows", "columns"), [(1, 1), (3, 3), (4, 6), (5, 5), (2, 7)])
def test_least_of_all(rows: int, columns: int) -> None:
    draw = np.random.default_rng(rows * columns)
    for _ in range(20):
        costs = draw.integers(0, 9, (rows, columns)).astype(np.float64)  # many are equal
        found = assigned(costs)
        least = min(sum(costs[row, at] for row, at in enumerate(each)) for each in permutations(range(columns), rows))
        assert len(set(found.tolist())) == rows
        assert costs[np.arange(rows), found].sum() == least


def test_no_rows_and_too_many() -> None:
    assert assigned(np.zeros((0, 3))).tolist() == []
    with pytest.raises(ValueError, match="rows must be at most the 2 columns, not 3"):
        assigned(np.zeros((3, 2)))
