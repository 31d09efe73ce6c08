"""How many SRAM accesses and bus beats an operation makes, in the arithmetic of the hardware (docs/architecture.md).

Offsets are modulo 2^offset_bits, and a walk may leave its region: what the hardware then leaves out is not counted.
Walks of compiled programs stay inside, which is seen from their corners; others are counted step by step.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from math import gcd

import numpy as np
from numpy.typing import NDArray

from dovetail.isa.common.sizes import ceil_div
from dovetail.isa.timing.dma import BOUNDARY, MAX_BURST, Shape

Int64s = NDArray[np.int64]


@dataclass(frozen=True)
class Image:
    """Where bytes of a window count: in rows below ``rows`` and byte columns below ``row_bytes``, of which row 0 and
    column 0 are ``top`` rows and ``left`` bytes from where the walk starts."""

    rows: int
    row_bytes: int
    top: int
    left: int


@dataclass(frozen=True)
class Lanes:
    """What an access may take: ``count`` values, ``item`` bytes apart, that begin below ``limit`` in the region."""

    count: int
    item: int
    limit: int


class Offsets:
    """Arithmetic of offsets of ``bits`` bits."""

    def __init__(self, bits: int) -> None:
        self.modulus, self.half = 1 << bits, 1 << bits - 1

    def grid(self, *axes: tuple[int, int]) -> Int64s:
        """All sums of ``index * step`` for axes of (count, step), modulo 2^bits, the last axis innermost."""
        total = np.zeros(1, np.int64)
        for count, step in axes:
            total = (total[:, None] + np.arange(count, dtype=np.int64) * (step % self.modulus)).ravel()
        return total % self.modulus

    def signed(self, values: Int64s) -> Int64s:
        """Numbers modulo 2^bits as the nearest to zero."""
        return (values + self.half) % self.modulus - self.half

    def reads(self, row: tuple[Int64s, Int64s], column: Int64s, origin: int, image: Image, lanes: Lanes) -> int:
        """Reads of a window walk over all pairs of rows and columns: those in which at least one lane counts.

        ``row``: per row its number from the walk's start and its offset; ``column``: per column its offset.
        """
        number, offset = row
        offset = offset[(number - image.top) % self.modulus < image.rows]
        if image.row_bytes > self.half:
            return self._reads_by_lane(offset, column, origin, image, lanes)
        column = self.signed(column - image.left)
        first = np.maximum(0, -(column // lanes.item))
        last = np.minimum(lanes.count - 1, (image.row_bytes - 1 - column) // lanes.item)
        inside = first <= last
        column, first, last = column[inside], first[inside], last[inside]
        if not len(offset) or not len(column):
            return 0
        start = self.signed(offset + origin + image.left)
        lowest = start.min() + (column + lanes.item * first).min()
        highest = start.max() + (column + lanes.item * last).max()
        if lowest >= 0 and highest < lanes.limit:
            return len(offset) * len(column)
        total = 0
        for position in start.tolist():
            place = self.signed(position + column)
            low = np.maximum(first, -(place // lanes.item))
            total += int((low <= np.minimum(last, (lanes.limit - 1 - place) // lanes.item)).sum())
        return total

    def _reads_by_lane(self, offset: Int64s, column: Int64s, origin: int, image: Image, lanes: Lanes) -> int:
        """The same where an image row has more than 2^(bits - 1) bytes, so what counts of an access may have a gap."""
        lane = np.arange(lanes.count, dtype=np.int64) * lanes.item
        places = column[:, None] + lane
        counts = (places - image.left) % self.modulus < image.row_bytes
        return sum(
            int((counts & ((places + origin + position) % self.modulus < lanes.limit)).any(axis=1).sum())
            for position in offset.tolist()
        )

    def reads_inside(self, position: Int64s, lanes: Lanes) -> int:
        """Reads at these offsets in which at least one lane counts, without an image."""
        place = self.signed(position)
        low = np.maximum(0, -(place // lanes.item))
        return int((low <= np.minimum(lanes.count - 1, (lanes.limit - 1 - place) // lanes.item)).sum())

    def writes(self, row: Int64s, column: Int64s, size: Int64s, limit: int, apart: int = 0) -> int:
        """Writes of ``size`` bytes each, per column, at all sums of row and column offset: those that end by
        ``limit``. With ``apart`` a write has as many bytes again, so far on: those of which either part does."""
        end = column + size + apart
        if row.max() + end.max() <= limit:
            return len(row) * len(column)

        def inside(place: Int64s) -> NDArray[np.bool_]:
            return place % self.modulus + size <= limit

        return sum(
            int((inside(position + column) | inside(position + column + apart)).sum()) for position in row.tolist()
        )

    def beats_inside(
        self, transfer: Shape, beats: int, row_step: int, plane_step: int, bus_bytes: int, limit: int
    ) -> int:
        """Beats of a transfer, of ``beats``, that lie in its SRAM region of ``limit`` bytes, with these steps there."""
        row_step, plane_step = row_step % self.modulus, plane_step % self.modulus
        farthest = (transfer.rows - 1) * row_step + (transfer.planes - 1) * plane_step + transfer.length
        if farthest <= limit:
            return beats
        total = 0
        for plane in range(transfer.planes):
            for row in range(transfer.rows):
                start = (transfer.address + plane * transfer.plane_step + row * transfer.row_step) % BOUNDARY
                edges = (
                    np.arange(start // bus_bytes, -(-(start + transfer.length) // bus_bytes) + 1) * bus_bytes - start
                )
                edges = np.clip(edges, 0, transfer.length)
                place = (plane * plane_step + row * row_step + edges[:-1]) % self.modulus
                total += int((place + np.diff(edges) <= limit).sum())
        return total


def bus_use(transfer: Shape, bus_bytes: int) -> tuple[int, int]:
    """Beats and bursts of a transfer."""
    address, rows, planes, row_step, plane_step, length = transfer
    if rows == 1:
        rows, planes, row_step = planes, 1, plane_step
    if planes == 1:
        plane_step = 0
    block = gcd(BOUNDARY, row_step if rows > 1 else 0, plane_step)
    if block % bus_bytes == 0 and address % block + length <= block:  # all rows are alike, as none crosses 4 KiB
        beats = -(-(address % bus_bytes + length) // bus_bytes)
        return rows * planes * beats, rows * planes * -(-beats // MAX_BURST)
    return _bus_use(address, rows, planes, row_step % BOUNDARY, plane_step % BOUNDARY, length, bus_bytes)


@lru_cache(maxsize=1 << 16)
def _bus_use(
    address: int, rows: int, planes: int, row_step: int, plane_step: int, length: int, bus_bytes: int
) -> tuple[int, int]:
    starts, counts = _starts(address, rows, planes, row_step, plane_step)
    ends = starts + length
    beats = -(-ends // bus_bytes) - starts // bus_bytes
    # A row is cut at every 4 KiB, and what lies between into bursts of the largest length.
    first = -(-np.minimum(ends, BOUNDARY) // bus_bytes) - starts // bus_bytes
    whole, last = np.divmod(np.maximum(ends - BOUNDARY, 0), BOUNDARY)
    bursts = (
        -(-first // MAX_BURST) + whole * ceil_div(BOUNDARY // bus_bytes, MAX_BURST) - (-last // bus_bytes // MAX_BURST)
    )
    return int(beats @ counts), int(bursts @ counts)


def _starts(address: int, rows: int, planes: int, row_step: int, plane_step: int) -> tuple[Int64s, Int64s]:
    """Addresses modulo 4096 of a transfer's rows, and how often each comes."""
    starts, counts = _residues(rows, row_step)
    if planes > 1:
        others, more = _residues(planes, plane_step)
        starts, counts = (others[:, None] + starts).ravel(), (more[:, None] * counts).ravel()
    return (starts + address) % BOUNDARY, counts


def _residues(count: int, step: int) -> tuple[Int64s, Int64s]:
    """``index * step`` modulo 4096 for ``count`` indices, and how often each comes."""
    period = BOUNDARY // gcd(step, BOUNDARY)
    if count <= period:
        return np.arange(count, dtype=np.int64) * step, np.ones(count, np.int64)
    index = np.arange(period, dtype=np.int64)
    return index * step, count // period + (index < count % period)
