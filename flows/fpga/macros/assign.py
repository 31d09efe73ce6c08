"""Which cell gets which site."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray


def assigned(costs: NDArray[np.float64]) -> NDArray[np.int64]:
    """For each row its column, each column at most once, so that the sum of the costs is least.

    ``costs``: ``[rows, columns]``, at least as many columns as rows. Row after row is added by the shortest augmenting
    path (R. Jonker and A. Volgenant, 1987).
    """
    rows, columns = costs.shape
    if rows > columns:
        raise ValueError(f"rows must be at most the {columns} columns, not {rows}")
    of_column = np.full(columns, -1)
    row_price, column_price = np.zeros(rows), np.zeros(columns)
    for row in range(rows):
        least = np.full(columns, np.inf)
        before = np.full(columns, -1)
        seen = np.zeros(columns, bool)
        at, column = row, -1
        path = 0.0
        while at >= 0:
            reduced = path + costs[at] - row_price[at] - column_price
            nearer = ~seen & (reduced < least)
            least[nearer] = reduced[nearer]
            before[nearer] = column
            column = int(np.argmin(np.where(seen, np.inf, least)))
            path = float(least[column])
            seen[column] = True
            at = int(of_column[column])
        done = seen & (of_column >= 0)
        row_price[row] += path
        row_price[of_column[done]] += path - least[done]
        column_price[seen] -= path - least[seen]
        while column >= 0:
            previous = int(before[column])
            of_column[column] = row if previous < 0 else of_column[previous]
            column = previous
    found = np.full(rows, -1)
    taken = of_column >= 0
    found[of_column[taken]] = np.flatnonzero(taken)
    return found
