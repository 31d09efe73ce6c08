"""Writing results to SRAM: strided, and dropping what leaves the region."""

from typing import Any

import numpy as np
import numpy.typing as npt
from numpy.lib.stride_tricks import as_strided

from dovetail.isa.checks import View
from dovetail.sw.model_units.base import Bytes, Sram

_WRAP = 1 << 32


class Output:
    """Addresses of the results of one instruction's registers.

    Parameters
    ----------
    registers
        Of the ARRAY or VECTOR unit.
    lanes
        Channels per block.
    group
        Channels per write.
    item
        Bytes per channel.
    """

    def __init__(self, registers: View, *, lanes: int, group: int, item: int) -> None:
        r = registers
        self.address, self.size = r.region("OUT")
        self.height, self.width = r["TILE", "height"], r["TILE", "width"]
        self.y_step, self.x_step = r["OUT_Y_STEP"], r["OUT_X_STEP"]
        self.channels = (r["BLOCKS", "count"] - 1) * lanes + r["BLOCKS", "last"]
        self.lanes, self.group, self.item = lanes, group, item
        pixel = self.channels * item
        row = (self.width - 1) * self.x_step + pixel
        self.regular = (
            (self.width == 1 or self.x_step >= pixel)
            and (self.height == 1 or self.y_step >= row)
            and (self.height - 1) * self.y_step + row <= self.size
        )

    def view(self, sram: Sram) -> npt.NDArray[Any]:
        """[height, width, channels] int8 or int32 of a regular output, writeable."""
        raw = as_strided(
            sram.data[self.address :],
            (self.height, self.width, self.channels * self.item),
            (self.y_step, self.x_step, 1),
        )
        return raw.view(np.int8) if self.item == 1 else raw.view("<i4")

    def write(self, sram: Sram, values: npt.NDArray[Any]) -> None:
        """Write [height, width, channels] int8 or int32 values."""
        shape = (self.height, self.width, self.channels)
        if self.regular:
            self.view(sram)[:] = values.reshape(shape)
        else:
            self._scatter(sram, np.ascontiguousarray(values).reshape(shape))
        sram.touch(self.address, self.size)

    def _offsets(self, channel: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
        """[height, width, channel] byte offset of channels."""
        y = np.arange(self.height, dtype=np.int64)[:, None, None] * self.y_step
        x = np.arange(self.width, dtype=np.int64)[None, :, None] * self.x_step
        return np.asarray((y + x + channel * self.item) % _WRAP)

    def _scatter(self, sram: Sram, values: npt.NDArray[Any]) -> None:
        region = sram.data[self.address : self.address + self.size]
        for first in range(0, self.channels, self.lanes):
            past = min(first + self.lanes, self.channels)
            starts = np.arange(first, past, self.group, dtype=np.int64)
            sizes = np.minimum(self.group, past - starts)
            fits = self._offsets(starts) + sizes * self.item <= self.size
            fits = np.repeat(fits, sizes * self.item, axis=2)
            channel = np.arange(first, past, dtype=np.int64)
            start = np.repeat(self._offsets(starts), sizes * self.item, axis=2)
            within = np.concatenate([np.arange(n * self.item, dtype=np.int64) for n in sizes.tolist()])
            block: Bytes = np.ascontiguousarray(values[:, :, channel]).view(np.uint8)
            # Of several writes to one byte NumPy keeps the last, as the hardware does: pixel by pixel.
            region[(start + within)[fits]] = block[fits]

    def read_int32(self, sram: Sram, word: int) -> npt.NDArray[np.int32]:
        """[height, width, channels] old int32 values, ``word`` channels per read; 0 outside the region."""
        if self.regular and self.item == 4:
            return np.array(self.view(sram), dtype=np.int32)
        region = sram.data[self.address : self.address + self.size]
        channel = np.arange(self.channels, dtype=np.int64)
        byte = self._offsets(channel)[..., None] + np.arange(4)
        inside = byte < self.size
        taken = np.where(inside, region[np.where(inside, byte, 0)], 0).astype(np.uint8)
        return np.ascontiguousarray(taken).view("<i4")[..., 0].astype(np.int32)
