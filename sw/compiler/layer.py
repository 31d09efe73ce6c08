"""A convolution layer as the tiler and the code generator see it: plain integers."""

from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dovetail.isa.common.sizes import Count, ceil_div, round_up
from dovetail.isa.config.resolved import Config
from dovetail.isa.instructions.checks import MAX_SLIDE
from dovetail.isa.instructions.table import Op
from dovetail.isa.timing.array import steps_of_tap

ROW = 1 << 32
"""Factor of the rows in :meth:`ConvLayer.extent` of a depthwise layer."""


@dataclass(frozen=True)
class ConvLayer:
    """Shape of a convolution, dense or depthwise layer, or of a matrix product, on a configuration's array.

    ``height, width, channels``: input; ``out_height, out_width, out_channels``: output; ``kernel``, ``stride``,
    ``dilation`` as (y, x); ``pad_top, pad_left`` in pixels. ``mode``: ``"conv"``, ``"depthwise"`` (native
    instruction), ``"grouped"`` (a convolution per group, also of depthwise layers) or ``"matmul"`` (a 1x1 convolution
    whose weights are a tensor; height counts the rows of the product, the matrix is ``transposed`` in memory or not).
    ``packed``: (kx, channel) run together along the lanes. ``group``: (input, output) channels of a group. ``terms``:
    int8 arrays whose sum the weights are; each of them takes a pass, all but the first over ``span``: first and number
    of the input channels for which they are not zero. ``repeats``: so many are added up in blocks with the output
    channels ``wide`` only, where one is not enough: by taps at the same place, or for depthwise layers by further
    instructions, which walk over the taps ``spot`` alone (first row, rows, first column, columns). ``sets``: of
    weights of a depthwise layer that are held at the same time. ``pairs``: a read has the input of two pixels, see
    :meth:`computed`. ``columns``: of the input, that a word of a depthwise layer has beside each other. ``beside``:
    pixels that are one to the array then, which has all of their channels. ``down``: of a depthwise layer, the array
    goes along columns: its rows are columns of the plane and of the kernel. ``rows``: of the kernel of a depthwise
    layer, that are taken at once; lines are not longer than a stripe then. ``chain``: a step has the rows that it does
    not read from the steps before, not from the lines before (:meth:`kernel_rows`). ``inside``: of a product, all of
    its matrix is in SRAM. ``item``: bytes of a result, 4 where sums leave as they are.
    """

    height: int
    width: int
    channels: int
    out_height: int
    out_width: int
    out_channels: int
    kernel: tuple[int, int]
    stride: tuple[int, int]
    dilation: tuple[int, int]
    pad_top: int
    pad_left: int
    mode: str
    packed: bool
    group: tuple[int, int] = (1, 1)
    transposed: bool = False
    terms: int = 1
    span: tuple[int, int] = (0, 0)
    repeats: int = 1
    wide: tuple[int, ...] = ()
    spot: tuple[int, int, int, int] = (0, 0, 0, 0)
    sets: int = 1
    pairs: bool = False
    columns: int = 1
    beside: int = 1
    down: bool = False
    rows: int = 1
    chain: bool = False
    inside: bool = False
    item: int = 1

    @property
    def separable(self) -> bool:
        """Whether outputs depend on the input channels of their own group only."""
        return self.mode in ("depthwise", "grouped")

    @property
    def as_rows(self) -> "ConvLayer":
        """The same with a row for each pixel, if its only row is a list of pixels that are computed one by one: some at
        a time are complete early then, for what goes over each of them."""
        plane = self.mode == "conv" and self.height == self.out_height == 1 and self.width == self.out_width
        if not plane or self.kernel != (1, 1) or self.pairs:
            return self
        return replace(self, height=self.width, width=1, out_height=self.width, out_width=1)

    @property
    def apart(self) -> bool:
        """Whether sums of several instructions need room between the pixels of the results."""
        return bool(self.wide) and self.mode == "depthwise"

    @property
    def spread(self) -> bool:
        """Whether there are gaps between the pixels of the results when a tile is complete."""
        return self.apart or self.terms > 1

    @property
    def op(self) -> Op:
        """The instruction that computes the layer."""
        return {"depthwise": Op.DEPTH_CONV, "matmul": Op.MAT_MUL}.get(self.mode, Op.CONV_RELU)

    @property
    def taps(self) -> tuple[int, int]:
        """(kh, kw) as the instruction walks them: one column when packed, several rows at once."""
        height, width = self.turned(*self.kernel)
        return self.lines_apart if self.chain else ceil_div(height, self.rows), 1 if self.packed else width

    def turned(self, of_rows: Count, of_columns: Count) -> tuple[Count, Count]:
        """What belongs to the plane's rows and columns, as to those of the array."""
        return (of_columns, of_rows) if self.down else (of_rows, of_columns)

    def lanes(self, config: Config) -> int:
        """Output channels of a block of the weight stream; a multiple of a group's."""
        if self.mode == "depthwise":
            return config.oc_lanes * self.sets - config.oc_lanes % self.group[1]
        return self.group[1] if self.mode == "grouped" else config.oc_lanes

    @property
    def slide(self) -> int:
        """MODE.slide of a depthwise layer: kernel columns from an output pixel to the next, 0 if that is not 1 or 2;
        1 with words of several columns."""
        if self.mode != "depthwise":
            return 0
        if self.taps[1] == 1 or self.columns > 1:
            return 1
        (_, stride), (_, dilation) = self.turned(*self.stride), self.turned(*self.dilation)
        columns, rest = divmod(stride, dilation or stride + 1)
        return 0 if rest or columns > MAX_SLIDE else columns

    @property
    def lines_apart(self) -> int:
        """Kernel rows from an output row's first one to that of the next."""
        return self.turned(*self.stride)[0] // self.turned(*self.dilation)[0]

    @property
    def line_steps(self) -> tuple[int, int]:
        """Input rows from a line to the next, and from a step to the next: those of output rows and kernel rows; but
        where lines see the lines before, they are as far apart as kernel rows, and steps as all rows of one."""
        (stride, _), (dilation, _) = self.turned(*self.stride), self.turned(*self.dilation)
        return (stride, dilation) if self.rows == 1 or self.chain else (dilation, self.rows * dilation)

    @property
    def skip(self) -> int:
        """Lines from one with results to the next."""
        return 1 if self.rows == 1 or self.chain else self.lines_apart

    def kernel_rows(self, height: int) -> list[int | None]:
        """The rows of a kernel so high that a depthwise layer's steps see, those of the first step first; None where
        they are multiplied by zero.

        In a chain a line's steps read the last ``lines_apart`` ones. The first step has those before from the line
        before. What another step sees of the steps before has been added there.
        """
        if not self.chain:
            count = round_up(height, self.rows)
            return [row if row < height else None for row in range(count)]
        first = height - self.lines_apart
        rows: list[int | None] = [row if row >= 0 else None for row in range(first + 1 - self.rows, first + 1)]
        for row in range(first + 1, height):
            rows += [*[None] * (self.rows - 1), row]
        return rows

    @property
    def lead(self) -> int:
        """Input rows that the array reads before the kernel's first one: a chain begins with whole lines."""
        (height, _), (stride, _), (dilation, _) = (self.turned(*of) for of in (self.kernel, self.stride, self.dilation))
        return self.rows * stride - height * dilation if self.chain else 0

    def pixels_together(self, config: Config) -> int:
        """Pixels whose sums share a row of accumulators."""
        return 1 if self.mode == "depthwise" else config.pixel_lanes

    def computed(self, columns: Count) -> Count:
        """Pixels of a row that the array computes: pairs of them are never parted, so there may be one more. It goes
        where the next row begins, before that row's own; behind the last row it is dropped."""
        return round_up(columns, 2) if self.pairs else columns

    def extent(self, rows: Count, columns: Count) -> Count:
        """What the array's cycles depend on of a tile's plane, as one number: the pixels; of depthwise layers, whose
        stripes are parts of rows, the number and the length of these."""
        if self.mode != "depthwise":
            return rows * self.computed(columns)
        lines, length = self.turned(rows, columns)
        return lines * ROW + length // self.beside

    def pixel_bytes(self, config: Config, out_channels: Count) -> Count:
        """Bytes in SRAM of a pixel of a tile's results while its sums are complete after each instruction or more."""
        more = 3 * np.minimum(out_channels, self.lanes(config)) if self.apart else 0
        return out_channels * self.item + more

    def inputs_of(self, out_channels: Count, in_channels: Count) -> Count:
        """Input channels that a tile of ``out_channels`` reads in a pass of ``in_channels``."""
        return out_channels // self.group[1] * self.group[0] if self.separable else in_channels

    def kc(self, config: Config, channels: Count) -> Count:
        """Blocks of input lanes per tap for ``channels`` input channels (1 for depthwise)."""
        if self.mode == "depthwise":
            return 1
        if self.mode == "grouped":
            channels = self.group[0]
        return ceil_div(channels * (self.kernel[1] if self.packed else 1), config.ic_lanes)

    def together(self, config: Config, channels: Count) -> Count:
        """Weight sets that are held at the same time: of a depthwise layer's channels, or of input blocks of a tap."""
        return self.sets if self.mode == "depthwise" else group_blocks(config, self.kc(config, channels))

    def stream_bytes(self, config: Config, out_channels: Count, in_channels: Count) -> Count:
        """Bytes, at most, of the weight stream of ``out_channels`` output channels, ``in_channels`` input channels."""
        blocks = ceil_div(out_channels, self.lanes(config))
        size = blocks * self.block_bytes(config, in_channels)
        if self.repeats == 1:
            return size
        more = self.block_bytes(config, in_channels, repeated=True) - self.block_bytes(config, in_channels)
        repeated: Any = np.where(in_channels < self.channels, blocks, _most(self, self.lanes(config))[blocks])
        return size + (repeated if repeated.ndim else int(repeated)) * more

    def block_bytes(self, config: Config, in_channels: Count, *, repeated: bool = False) -> Count:
        """Bytes of a block of the weight stream."""
        kh, kw = self.taps
        steps = kh * kw * self.kc(config, in_channels) * (self.repeats if repeated else 1)
        word, rows, records = _words(config)
        if self.mode == "depthwise":
            records = config.param_rows(config.oc_lanes * self.sets)
            more = 0
            if repeated and self.repeats > 1:
                more = (self.repeats - 1) * (records + self._weight_words(config, *self.spot[1::2]))
            return (records + self._weight_words(config, kh, kw) + more) * word
        parts = ceil_div(self.group[1], config.oc_lanes) if self.mode == "grouped" else 1
        return parts * (records + (0 if self.mode == "matmul" else steps * rows)) * word

    def _weight_words(self, config: Config, kh: int, kw: int) -> int:
        """SRAM words of a depthwise block's weights for a kernel."""
        taps = min(config.ic_lanes, kw)
        return kh * ceil_div(kw, taps) * self.sets * config.depthwise_rows(taps * self.rows)

    def repeated(self, block: int, in_channels: int) -> list[bool]:
        """Whether taps are repeated, per block of so many output channels. In a pass of some input channels all are, as
        the places of its sums and of its results do not go together in any part of a pixel but the first."""
        if self.repeats > 1 and in_channels < self.channels:
            return [True] * ceil_div(self.out_channels, block)
        numbers = {channel // block for channel in self.wide}
        return [number in numbers for number in range(ceil_div(self.out_channels, block))]

    def weight_bytes(self, config: Config, out_channels: Count, in_channels: Count) -> Count:
        """SRAM that a tile's weights take: the weight stream, and for a matrix product its part of the matrix."""
        matrix = out_channels * in_channels if self.mode == "matmul" and not self.inside else 0
        return self.stream_bytes(config, out_channels, in_channels) + matrix

    def input_rows(self, first: int, rows: int) -> tuple[int, int, int]:
        """(first valid input row, valid input rows, rows of padding above) that output rows need; that is below zero
        where they see none of them."""
        return self._window(0, first, rows, self.height, self.pad_top)

    def input_columns(self, first: int, columns: int) -> tuple[int, int, int]:
        """(first valid input column, valid input columns, columns of padding before) that output columns need."""
        return self._window(1, first, columns, self.width, self.pad_left)

    def _window(self, axis: int, first: int, count: int, size: int, pad: int) -> tuple[int, int, int]:
        begin = first * self.stride[axis] - pad
        end = (first + count - 1) * self.stride[axis] - pad + (self.kernel[axis] - 1) * self.dilation[axis]
        if axis and count == self.out_width:
            return 0, size, pad  # whole rows are contiguous, so also what no window needs
        # What lies in the padding alone still has some input, which it does not see.
        low = min(max(begin, 0), size - 1)
        return low, max(min(end, size - 1) - low, 0) + 1, low - begin


@lru_cache(maxsize=64)
def _most(layer: ConvLayer, lanes: int) -> NDArray[np.int64]:
    """The most blocks with repeated taps of a tile, by the number of its blocks."""
    wide = np.array(layer.repeated(lanes, layer.channels), np.int64)
    sizes = range(1, len(wide) + 1)
    return np.array([0, *(max(np.add.reduceat(wide, range(0, len(wide), size))) for size in sizes)])


@lru_cache(maxsize=64)
def _words(config: Config) -> tuple[int, int, int]:
    """Bytes of a word; words of a weight set, and of the records of a block."""
    return config.word_bytes, config.weight_rows, config.param_rows(config.oc_lanes)


def use_packing(config: Config, channels: int, kernel: tuple[int, int], dilation_x: int) -> bool:
    """Whether running (kx, channel) along the lanes takes fewer cycles than one tap at a time."""
    together = tap_cycles(config, ceil_div(channels * kernel[1], config.ic_lanes))
    return (
        kernel[1] > 1
        and dilation_x == 1
        and together < kernel[1] * tap_cycles(config, ceil_div(channels, config.ic_lanes))
    )


def group_blocks(config: Config, blocks: Count) -> Count:
    """Of a tap's input blocks those whose weights are held at the same time: as few groups as there can be, equally
    many in each."""
    return ceil_div(blocks, ceil_div(blocks, config.weight_sets))


def tap_cycles(config: Config, blocks: int) -> int:
    """Cycles in which as many pixels as there are lanes meet the weights of a tap, see ``isa.timing.array``."""
    group = group_blocks(config, blocks)
    before, last = steps_of_tap(blocks, group)
    return before * max(group, config.pixel_lanes) + max(last, config.pixel_lanes)
