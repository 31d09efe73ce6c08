"""Clipping by Kullback-Leibler divergence: the range whose 256 levels keep most of a tensor's distribution.

ONNX Runtime has this too, but for ranges around zero only, so that half of the levels of a rectified tensor go to
values that it never takes, and it takes a second for each tensor.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from dovetail.sw.quantise.parameters import Range

_LEVELS = 256
_CANDIDATES = 100
_NEARLY_NOTHING = 1e-6


def least_divergent(counts: NDArray[np.int64], edges: NDArray[np.float32], seen: Range) -> Range:
    """The part of a range to keep.

    Parameters
    ----------
    counts: histogram, in equally wide bins, of all values.
    edges: of the bins.
    seen: smallest and largest value; the result is this range times a factor of at most 1.
    """
    first, last = (int(np.clip(np.searchsorted(edges, end) - 1, 0, counts.size - 1)) for end in (seen.low, seen.high))
    zero = int(np.clip(np.searchsorted(edges, 0.0, "right") - 1, first, last))
    best, found = np.inf, seen
    for factor in np.linspace(1, 0, _CANDIDATES, endpoint=False):
        low, high = zero - round((zero - first) * factor), zero + round((last - zero) * factor) + 1
        if high - low < _LEVELS:
            break
        divergence = _divergence(counts, low, high, zero)
        if divergence < best:
            best, found = divergence, Range(seen.low * float(factor), seen.high * float(factor))
    return found


def _divergence(counts: NDArray[np.int64], low: int, high: int, zero: int) -> float:
    """Of bins [low, high) with the rest in the outermost ones, from what 256 levels leave of these bins.

    A level spreads what it holds over its bins that are not empty. Zero and both ends have levels of their own: there
    rectified and clipped tensors pile up.
    """
    inner = counts[low:high].astype(np.float64)
    given = inner.copy()
    given[0] += counts[:low].sum()
    given[-1] += counts[high:].sum()
    level = np.arange(inner.size) * _LEVELS // inner.size
    filled = inner > 0
    filled[[0, zero - low, -1]] = False
    share = np.bincount(level, inner * filled, _LEVELS) / np.maximum(np.bincount(level, filled, _LEVELS), 1)
    kept = np.maximum(np.where(filled, share[level], inner), _NEARLY_NOTHING * inner.sum() / inner.size)
    if not inner.any():
        return np.inf
    p, q = given / given.sum(), kept / kept.sum()
    present = p > 0
    return float(np.sum(p[present] * np.log(p[present] / q[present])))
