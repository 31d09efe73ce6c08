"""Bias correction: what rounding its weights shifts a layer's results by on average, its bias takes back.

The shift of an output channel is the sum, over its weights, of the rounding error times the mean of the input channel
that the weight sees. Depthwise layers have few weights a channel, whose errors do not cancel; there it matters most.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from dovetail.sw.network.layout import Array

Means = NDArray[np.float64]


def channel_means(values: Array) -> Means:
    """Mean of each channel of a layer's input: axis 1 of an image, the last axis of anything else."""
    channel = 1 if values.ndim == 4 else values.ndim - 1
    others = tuple(axis for axis in range(values.ndim) if axis != channel)
    result: Means = values.mean(axis=others, dtype=np.float64)
    return result


def shift(values: Array, scales: NDArray[np.float32], axis: int, means: Means) -> Means:
    """What a layer's float results are above those with rounded weights, for each output channel.

    Parameters
    ----------
    values: float weights, OIHW with output channels in groups, or a matrix.
    scales: of the int8 weights, one or one for each entry of `axis`.
    axis: of the output channels.
    means: of the input channels.
    """
    spread = scales.reshape([-1 if k == axis and scales.size > 1 else 1 for k in range(values.ndim)])
    error = values - np.clip(np.rint(values / spread), -128, 127) * spread
    rows = np.moveaxis(error, axis, 0).astype(np.float64)
    rows = rows.reshape(*rows.shape[:2], -1).sum(axis=2)
    groups = means.size // rows.shape[1]
    seen = means.reshape(groups, rows.shape[1])
    result: Means = np.einsum("goi,gi->go", rows.reshape(groups, -1, rows.shape[1]), seen).ravel()
    return result
