"""Writing results to SRAM: strided, and dropping what leaves the region."""

from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt

from dovetail.isa.config.resolved import Config
from dovetail.isa.instructions.checks import View
from dovetail.sw.model.base import Bytes, Sram, gathered, strided


class Output:
    """Addresses of the results of one instruction's registers.

    Parameters
    ----------
    config
        The accelerator.
    registers
        Of the ARRAY or VECTOR unit.
    lanes
        Channels per block.
    group
        Channels per write.
    together
        Channels of a block after which a write ends in any case; 0: all.
    item
        Bytes per channel.
    """

    def __init__(
        self, config: Config, registers: View, *, lanes: int, group: int, item: int, together: int = 0
    ) -> None:
        r = registers
        self.modulus = 1 << config.offset_bits
        self.address, self.size = r.region("OUT")
        self.height, self.width = r["TILE", "height"], r["TILE", "width"]
        self.y_step, self.x_step = r["OUT_Y_STEP"] % self.modulus, r["OUT_X_STEP"] % self.modulus
        self.channels = (r["BLOCKS", "count"] - 1) * lanes + r["BLOCKS", "last"]
        self.lanes, self.group, self.item, self.together = lanes, group, item, together
        pixel = self.channels * item
        row = (self.width - 1) * self.x_step + pixel
        self.regular = (
            (self.width == 1 or self.x_step >= pixel)
            and (self.height == 1 or self.y_step >= row)
            and (self.height - 1) * self.y_step + row <= self.size
        )

    def view(self, sram: Sram) -> npt.NDArray[Any]:
        """[height, width, channels] int8 or int32 of a regular output, writeable."""
        shape = (self.height, self.width, self.channels * self.item)
        raw = strided(sram.data, self.address, shape, (self.y_step, self.x_step, 1))
        return raw.view(np.int8) if self.item == 1 else raw.view("<i4")

    def write(self, sram: Sram, values: npt.NDArray[Any], *, pixels_at_once: int = 0) -> None:
        """Write int8 or int32 values, [pixels, channels] or [height, width, channels]: block by block of so many pixels
        side by side, or of all (0), before the next ones. Only where results overlap does that matter."""
        if self.regular:
            self.view(sram)[:] = values.reshape(self.height, self.width, self.channels)
        else:
            pixels = values.reshape(-1, self.channels)
            part = self.channels if pixels_at_once == 1 else self.lanes
            for group in self._groups(pixels_at_once):
                for first in range(0, self.channels, part):
                    past = min(first + part, self.channels)
                    self.write_part(sram, pixels[group.start : group.stop, first:past], group, range(first, past))
        sram.touch(self.address, self.size)

    def _groups(self, pixels_at_once: int) -> list[range]:
        """Pixels, counted row by row, whose blocks are written before those of the next ones."""
        if pixels_at_once < 2:
            return [range(self.height * self.width)]
        starts = [
            y + x for y in range(0, self.height * self.width, self.width) for x in range(0, self.width, pixels_at_once)
        ]
        return [range(start, stop) for start, stop in pairwise([*starts, self.height * self.width])]

    def write_part(self, sram: Sram, values: npt.NDArray[Any], pixels: range, channels: range) -> None:
        """Write [pixels, channels] values of one block; ``pixels`` are counted row by row."""
        region = sram.data[self.address : self.address + self.size]
        parts = np.array([*channels[:: self.together or len(channels)], channels.stop])
        starts = np.concatenate([np.arange(*part, self.group, dtype=np.int64) for part in pairwise(parts)])
        sizes = np.diff(starts, append=channels.stop) * self.item
        offsets = self._offsets(pixels, starts)
        fits = np.repeat(offsets + sizes <= self.size, sizes, axis=1)
        within = np.concatenate([np.arange(n, dtype=np.int64) for n in sizes.tolist()])
        places = np.repeat(offsets, sizes, axis=1) + within
        contents: Bytes = np.ascontiguousarray(values).view(np.uint8)
        # Of several writes to one byte NumPy keeps the last, as the hardware does: pixel by pixel.
        region[places[fits]] = contents[fits]

    def read_part(self, sram: Sram, pixels: range, channels: range) -> npt.NDArray[np.int32]:
        """[pixels, channels] old values; an int32 that is not wholly inside the region is 0."""
        starts = self._offsets(pixels, np.arange(channels.start, channels.stop, dtype=np.int64))
        return gathered(sram.signed(self.address, self.size), starts, item=4, zero=0)

    def _offsets(self, pixels: range, channels: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
        """[pixels, channels] byte offset in the region."""
        y, x = np.divmod(np.arange(pixels.start, pixels.stop, dtype=np.int64)[:, None], self.width)
        return np.asarray((y * self.y_step + x * self.x_step + channels * self.item) % self.modulus)
