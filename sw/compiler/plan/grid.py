"""Grids of tiles: all combinations of the sizes of their axes, and what a layer's axes are cut into by them."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from math import prod
from typing import Generic, NamedTuple

import numpy as np

from dovetail.isa.common.sizes import Count
from dovetail.sw.compiler.layer import ConvLayer
from dovetail.sw.compiler.plan.schedule import Number, Places, Tiling

SLAB = 16384
"""About the most tiles whose costs are in memory at a time."""


class Cut(NamedTuple, Generic[Count]):
    """An axis in ``number`` pieces of ``size``, but for the last one, of ``last``."""

    number: Count
    size: Count
    last: Count

    @property
    def pieces(self) -> tuple[tuple[Count, Count], tuple[int, Count]]:
        """(number, size) of equal pieces."""
        return (self.number - 1, self.size), (1, self.last)


def cut(total: int, size: Count) -> Cut[Count]:
    """An axis of ``total`` in pieces of ``size``."""
    number = -(-total // size)
    return Cut(number, size, total - (number - 1) * size)


class Cuts(NamedTuple):
    """The axes of a layer; the arrays of each have a grid's tiles in an axis of their own."""

    in_channels: Cut[Number]
    columns: Cut[Number]
    rows: Cut[Number]
    out_channels: Cut[Number]


@dataclass(frozen=True)
class Grid:
    """Tiles: all combinations, the last axis fastest, of input channels of a pass, columns, rows and channels of the
    output; ``best_stripe`` as in ``Tiling``."""

    in_channels: tuple[int, ...]
    columns: tuple[int, ...]
    rows: tuple[int, ...]
    out_channels: tuple[int, ...]
    best_stripe: bool = False

    @classmethod
    def of(cls, layer: ConvLayer, tiling: Tiling) -> "Grid":
        """The tile of a tiling."""
        columns = tiling.columns or layer.out_width
        return cls((tiling.in_channels,), (columns,), (tiling.rows,), (tiling.out_channels,), tiling.best_stripe)

    @property
    def _axes(self) -> tuple[tuple[int, ...], ...]:
        return self.in_channels, self.columns, self.rows, self.out_channels

    @property
    def shape(self) -> tuple[int, ...]:
        """Tiles along each axis."""
        return tuple(len(axis) for axis in self._axes)

    def tile(self, number: int) -> tuple[int, int, int, int]:
        """Input channels, columns, rows and output channels of a tile."""
        i, c, r, o = np.unravel_index(number, self.shape)
        return self.in_channels[i], self.columns[c], self.rows[r], self.out_channels[o]

    def tiling(self, layer: ConvLayer, number: int, rows_outer: bool, at: Places, price: int) -> Tiling:
        """A tiling of one of the tiles."""
        in_channels, columns, rows, out_channels = self.tile(number)
        columns = columns if columns < layer.out_width else 0
        return Tiling(rows, out_channels, in_channels, rows_outer, *at, price, self.best_stripe, columns)

    @property
    def size(self) -> int:
        """All tiles."""
        return prod(self.shape)

    def slabs(self) -> Iterator["Grid"]:
        """The same tiles in the same order, in grids of about :data:`SLAB` if they are many more; none if there are
        no tiles."""
        if self.size > SLAB and len(self.in_channels) > 1:
            for channels in self.in_channels:
                yield from replace(self, in_channels=(channels,)).slabs()
        elif self.size > SLAB:
            for columns in self.columns:
                yield replace(self, columns=(columns,))
        elif self.size:
            yield self

    def cuts(self, layer: ConvLayer) -> Cuts:
        """What the layer's axes are cut into."""
        totals = layer.channels, layer.out_width, layer.out_height, layer.out_channels
        axes = np.ix_(*(np.array(axis, np.int64) for axis in self._axes))
        return Cuts(*(cut(total, sizes) for total, sizes in zip(totals, axes, strict=True)))
