"""The window walk: which SRAM byte belongs to an output pixel, a tap and a channel (``docs/architecture.md``).

:class:`Window` is the plan for one instruction's registers. A *regular* walk is one over an image with a fixed row
pitch and padding around it, as compilers make them; anything else is gathered byte by byte.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from dovetail.isa.config.resolved import Config
from dovetail.isa.instructions.checks import View
from dovetail.isa.numerics.rounding import int8
from dovetail.sw.model.base import Sram, gathered, strided

Array = npt.NDArray[Any]

_MAX_IMAGE = 1 << 28
_OFFSETS = ("ORIGIN", "Y_STEP", "X_STEP", "KY_STEP", "KX_STEP", "IN_ROWS", "ROW_BYTES", "PAD_TOP", "PAD_LEFT")
"""Registers of which the low ``offset_bits`` count."""


class Window:
    """Addresses of a window walk of ``channels`` contiguous values of ``item`` bytes, 1 or 4, per tap. Of a depthwise
    convolution, the kernel ``columns`` that its steps cover, the ``slide`` of its MODE, the columns of the input
    ``beside`` each other in a word, the line and the step in which each kernel row is read
    (:func:`~dovetail.isa.instructions.checks.kernel_rows_of`), and the lines from one with results to the next
    (``skip``).

    Attributes
    ----------
    height, width
        Output pixels.
    kh, kw
        Taps.
    regular
        Whether :meth:`image` applies.
    """

    def __init__(
        self,
        config: Config,
        registers: View,
        channels: int,
        *,
        single: bool = False,
        item: int = 1,
        columns: int = 0,
        slide: int = 0,
        beside: int = 1,
        rows: Sequence[tuple[int, int]] = (),
        skip: int = 1,
    ) -> None:
        r = registers
        self.modulus = 1 << config.offset_bits
        self.channels, self.item = channels, item
        self.address, self.size = r.region("IN")
        self.height, self.width = r["TILE", "height"], r["TILE", "width"]
        self.kh, self.kw = (1, 1) if single else (r["GEOMETRY", "kh"], columns or r["GEOMETRY", "kw"])
        self.stride, self.dilation = r["GEOMETRY", "stride_y"], r["GEOMETRY", "dilation_y"]
        offsets = [r[name] % self.modulus for name in _OFFSETS]
        self.origin, self.y_step, self.x_step, self.ky_step, self.kx_step = offsets[:5]
        if slide:
            self.x_step = slide * self.kx_step % self.modulus
        self.kx_step //= beside
        self.skip, self.reads = skip, rows or [(0, step) for step in range(self.kh)]
        self.kh = len(self.reads)
        self.rows, self.row_bytes, self.top, self.left = offsets[5:]
        self.zero = int8(r["QUANT", "zero_in"]) if item == 1 else 0
        # The rectangle of rows and byte columns that the walk visits, from (-top, -left) on.
        self.image_rows = (self.height - 1) * skip * self.stride + max(map(self._row, range(self.kh))) + 1
        reach = (self.width - 1) * self.x_step + (self.kw - 1) * self.kx_step + channels * item
        self.image_columns = max(reach, self.width * self.x_step) if self.kw == 1 else reach
        self.regular = self._find_rectangle(reach)

    def _row(self, ky: int) -> int:
        """Input rows from an output row's first one to a kernel row's."""
        line, step = self.reads[ky]
        return line * self.stride + step * self.dilation

    def _pitch(self) -> int | None:
        """Bytes between input rows, when there is one such number."""
        lines, steps = (max(numbers) for numbers in zip(*self.reads, strict=True))
        several_lines = lines > 0 or self.height > 1
        pitch = 0
        if steps and self.dilation:
            pitch, rest = divmod(self.ky_step, self.dilation)
        elif several_lines and self.stride:
            pitch, rest = divmod(self.y_step, self.stride)
        else:
            rest = 0
        fits = not rest
        fits &= not steps or self.ky_step == self.dilation * pitch
        fits &= not several_lines or self.y_step == self.stride * pitch
        return pitch if fits else None

    def _find_rectangle(self, reach: int) -> bool:
        """Find the part of the image that is real, and where it is in SRAM."""
        pitch, half = self._pitch(), self.modulus >> 1
        if (
            pitch is None
            or max(pitch, self.x_step, self.kx_step, self.top, self.left, reach, self.image_rows) >= half
            or max(self.rows, self.row_bytes) > half
            or self.image_rows * self.image_columns > _MAX_IMAGE
        ):
            return False
        self.pitch = pitch
        # Padding bytes must be padding values.
        if (self.x_step | self.left | self.row_bytes) % self.item and (self.left or reach > self.row_bytes):
            return False
        first_row, last_row = max(0, -self.top), min(self.rows, self.image_rows - self.top) - 1
        first_col, last_col = max(0, -self.left), min(self.row_bytes, reach - self.left) - 1
        self.real_rows = max(0, last_row - first_row + 1)
        self.real_columns = max(0, last_col - first_col + 1)
        if not self.real_rows or not self.real_columns:
            self.real_rows = self.real_columns = 0
            return True
        start = (self.origin + self.top * pitch + self.left) % self.modulus
        if start + last_row * pitch + last_col >= self.size:
            return False
        self.start = self.address + start
        return True

    def image(self, sram: Sram, dtype: type[np.generic]) -> Array:
        """The visited rectangle (regular walks only), padding filled in."""
        shape = (self.image_rows, self.image_columns)
        if not self.real_rows:
            return np.full(shape, self.zero, dtype)
        data = sram.data.view(np.int8)
        real = strided(data, self.start, (self.real_rows, self.real_columns), (self.pitch, 1))
        if real.shape == shape:
            return real.astype(dtype, order="C")
        top, left = min(self.top, self.image_rows), min(self.left, self.image_columns)
        image = np.empty(shape, dtype)
        bottom, right = top + self.real_rows, left + self.real_columns
        image[:top] = self.zero
        image[bottom:] = self.zero
        image[top:bottom, :left] = self.zero
        image[top:bottom, right:] = self.zero
        image[top:bottom, left:right] = real
        return image

    def tap(self, image: Array, ky: int, kx: int) -> Array:
        """[height, width, channels] of a tap: a view of :meth:`image`, which must be of bytes if items are not."""
        row, column = image.strides
        shape = (self.height, self.width, self.channels * self.item)
        offset = self._row(ky) * row + kx * self.kx_step * column
        values = strided(image, offset, shape, (self.skip * self.stride * row, self.x_step * column, column))
        return values if self.item == 1 else values.view("<i4")

    def gather(self, sram: Sram, ky: int, kx: int) -> Array:
        """[height, width, channels] of a tap of any walk, in the arithmetic of the hardware."""
        y = np.arange(self.height, dtype=np.int64)[:, None, None]
        x = np.arange(self.width, dtype=np.int64)[None, :, None]
        k = np.arange(self.channels, dtype=np.int64)[None, None, :] * self.item
        line, step = self.reads[ky]
        y = y * self.skip + line
        row = (y * self.stride + step * self.dilation - self.top) % self.modulus
        col = (x * self.x_step + kx * self.kx_step - self.left + k) % self.modulus
        offset = y * self.y_step + step * self.ky_step + self.origin + x * self.x_step + kx * self.kx_step + k
        offset %= self.modulus
        valid = (row < self.rows) & (col < self.row_bytes)
        return gathered(sram.signed(self.address, self.size), offset, item=self.item, zero=self.zero, valid=valid)
