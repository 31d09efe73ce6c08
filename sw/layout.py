"""How a file's array relates to the bytes of a graph tensor: a reshape, a transposition, a reshape."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

Shape = tuple[int, ...]
Array = NDArray[Any]


@dataclass(frozen=True)
class Layout:
    """The file's array is `bytes.reshape(inner).transpose(perm).reshape(shape)`.

    Data movement in a file (Transpose, Reshape, Flatten) becomes arithmetic on layouts and costs nothing.

    Parameters
    ----------
    inner: shape of the bytes in memory before the transposition.
    perm: axis k of the transposed array is axis perm[k] of `inner`.
    shape: shape in the file.
    """

    inner: Shape
    perm: tuple[int, ...]
    shape: Shape

    @classmethod
    def plain(cls, shape: Shape) -> Layout:
        """The file's order is the order in memory."""
        return cls(shape, tuple(range(len(shape))), shape)

    @classmethod
    def image(cls, shape: Shape) -> Layout:
        """NCHW in the file, NHWC in memory."""
        batch, channels, height, width = shape
        return cls((batch, height, width, channels), (0, 3, 1, 2), shape)

    def outside(self, value: Array) -> Array:
        """The file's array for the tensor's."""
        return np.ascontiguousarray(value.reshape(self.inner).transpose(self.perm).reshape(self.shape))

    def inside(self, value: Array) -> Array:
        """The tensor's array, of shape `inner`, for the file's."""
        inverse = tuple(int(i) for i in np.argsort(self.perm))
        return np.ascontiguousarray(value.reshape([self.inner[p] for p in self.perm]).transpose(inverse))

    def order(self) -> NDArray[np.int64]:
        """For each element in the file's order, its position in memory."""
        return np.arange(prod(self.shape), dtype=np.int64).reshape(self.inner).transpose(self.perm).ravel()

    @property
    def is_plain(self) -> bool:
        """The file's order is the order in memory (axes of length one do not matter)."""
        moving = [axis for axis in self.perm if self.inner[axis] != 1]
        return moving == sorted(moving)

    def same_memory(self, other: Layout) -> bool:
        """Both put every element of the file's array at the same place."""
        if (self.inner, self.perm) == (other.inner, other.perm) or (self.is_plain and other.is_plain):
            return True
        return bool(np.array_equal(self.order(), other.order()))

    def reshaped(self, shape: Shape) -> Layout:
        """After a reshape in the file."""
        return Layout(self.inner, self.perm, shape)

    def transposed(self, perm: tuple[int, ...]) -> Layout | None:
        """After a transposition in the file; None if the bytes would have to move."""
        shape = tuple(self.shape[p] for p in perm)
        if self.shape == tuple(self.inner[p] for p in self.perm):
            return Layout(self.inner, tuple(self.perm[p] for p in perm), shape)
        return Layout(self.shape, perm, shape) if self.is_plain else None
