"""How a file's array relates to the bytes of a graph tensor: a reshape, a transposition, a reshape."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

Shape = tuple[int, ...]
Array = NDArray[Any]
Sample = Mapping[str, Array]
"""Arrays by the name of a network's input."""


def as_unsigned(values: Array) -> NDArray[np.uint8]:
    """int8 as uint8, 128 higher: what a file has as uint8 is kept as int8."""
    return np.asarray(values.view(np.uint8) ^ np.uint8(128))


def as_signed(values: Array) -> NDArray[np.int8]:
    """uint8 as int8, 128 lower."""
    return np.asarray(values ^ np.uint8(128)).view(np.int8)


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

    @classmethod
    def rows(cls, shape: Shape, axis: int) -> Layout:
        """The elements along one axis beside each other, as rows; the others in the file's order."""
        order = [*range(axis), *range(axis + 1, len(shape)), axis]
        return cls(tuple(shape[k] for k in order), tuple(map(order.index, range(len(shape)))), shape)

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

    def has_rows(self, sizes: tuple[int, int, int]) -> bool:
        """Whether the rows along an axis lie in memory one after the other, each in one piece.

        ``sizes``: elements before, along and behind the axis in the file.
        """
        before, size, behind = sizes
        if behind == 1 and self.is_plain:
            return True
        rows = self.order().reshape(before, size, behind).swapaxes(1, 2).reshape(-1, size)
        return bool(np.all(rows[:, :1] % size == 0) and np.all(rows - rows[:, :1] == np.arange(size)))

    def same_memory(self, other: Layout) -> bool:
        """Both put every element of the file's array at the same place."""
        if (self.inner, self.perm) == (other.inner, other.perm) or (self.is_plain and other.is_plain):
            return True
        return bool(np.array_equal(self.order(), other.order()))

    def reshaped(self, shape: Shape) -> Layout:
        """After a reshape in the file."""
        return Layout(self.inner, self.perm, shape)

    @property
    def is_direct(self) -> bool:
        """Every axis in the file is an axis in memory."""
        return self.shape == tuple(self.inner[p] for p in self.perm)

    def transposed(self, perm: tuple[int, ...]) -> Layout | None:
        """After a transposition in the file; None if the bytes would have to move."""
        shape = tuple(self.shape[p] for p in perm)
        if self.is_direct:
            return Layout(self.inner, tuple(self.perm[p] for p in perm), shape)
        if self.is_plain:
            return Layout(self.shape, perm, shape)
        # Axes in memory are split where axes in the file are parts of them; a reshape joined or cut the others.
        places = refined(self.axes, Layout.plain(self.shape).axes)
        if places is None:
            return None
        outside: list[list[int]] = [[] for _ in self.shape]
        steps = list(Layout.plain(self.shape).steps)
        for index, (_, _, step) in enumerate(places):
            owner = next(
                k for k, (size, unit) in enumerate(zip(self.shape, steps, strict=True)) if unit <= step < size * unit
            )
            outside[owner].append(index)
        memory = sorted(range(len(places)), key=lambda k: -places[k][1])
        inner = tuple(places[k][0] for k in memory)
        return Layout(inner, tuple(memory.index(k) for p in perm for k in outside[p]), shape)

    @property
    def steps(self) -> Shape:
        """Elements between neighbours in memory, for each axis of ``inner`` in the file's order."""
        step = [prod(self.inner[p + 1 :]) for p in range(len(self.inner))]
        return tuple(step[p] for p in self.perm)

    @property
    def axes(self) -> list[tuple[int, int]]:
        """(size, step in memory) of the axes of ``inner`` in the file's order."""
        return [(self.inner[p], step) for p, step in zip(self.perm, self.steps, strict=True)]


def refined(a: list[tuple[int, int]], b: list[tuple[int, int]]) -> list[tuple[int, int, int]] | None:
    """(size, step of a, step of b) of the axes that are common parts of both lists of (size, step); None if an axis of
    one is no whole number of parts of the other's."""
    left, right = ([axis for axis in axes if axis[0] > 1] for axes in (a, b))
    parts: list[tuple[int, int, int]] = []
    while left and right:
        (m, s), (n, t) = left.pop(), right.pop()
        size = min(m, n)
        if m % size or n % size:
            return None
        parts.append((size, s, t))
        if m > size:
            left.append((m // size, s * size))
        if n > size:
            right.append((n // size, t * size))
    return parts[::-1]
