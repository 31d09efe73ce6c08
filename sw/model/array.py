"""ARRAY: convolution, depthwise convolution and matrix product.

Sums are formed by floating point matrix products where these are exact: every partial sum is an integer below
2^24 (float32) or 2^53 (float64), known from the magnitudes of the weights. The rest is int64.
"""

from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt

from dovetail.isa.config.resolved import Config
from dovetail.isa.instructions.checks import (
    View,
    columns_of,
    input_blocks,
    kernel_columns,
    kernel_rows_of,
    lanes_of,
    multiplier_of,
    sets_of,
    skip_of,
    taps_at_once,
)
from dovetail.isa.instructions.table import INSTRUCTIONS, Op
from dovetail.isa.numerics.requantise import requantise
from dovetail.isa.numerics.rounding import INT8_MAX, INT8_MIN, Rounding, int8
from dovetail.sw.model.base import Plans, Sram, SystemMemory, UnitModel, gathered, strided
from dovetail.sw.model.output import Output
from dovetail.sw.model.weights import Shape, WeightCache, Weights
from dovetail.sw.model.window import Window

Array = npt.NDArray[Any]

_FLOAT32 = 1 << 24
_FLOAT64 = 1 << 53
_SMALL = 96
"""Terms per output up to which all taps are copied side by side, for one matrix product."""


class _Plan:
    """Everything that the registers decide."""

    def __init__(self, config: Config, op: Op, registers: View) -> None:
        r = registers
        row = INSTRUCTIONS[op]
        self.depthwise = row.depthwise
        self.matrix = _Matrix(config, r) if row.matrix else None
        self.multiplier = multiplier_of(op, r)
        lanes = lanes_of(config, op, r)
        self.columns = kernel_columns(config, op, r)
        self.slide = r["MODE", "slide"] if self.depthwise else 0
        self.beside = columns_of(config, op, r)
        self.rows, self.skip = kernel_rows_of(op, r), skip_of(op, r)
        self.shape = Shape(
            len(self.rows) * self.columns if self.matrix is None else 0,
            input_blocks(op, r),
            r["BLOCKS", "count"],
            lanes,
            r["BLOCKS", "last"],
            sets_of(op, r) if self.depthwise else 0,
            taps_at_once(config, op, r),
        )
        self.weights = r.region("W")
        self.int32, self.accumulate = bool(r["MODE", "int32"]), bool(r["MODE", "accumulate"])
        self.rounding = Rounding(r["MODE", "rounding"])
        self.zero_out = int8(r["QUANT", "zero_out"])
        self.lo = INT8_MIN if row.full_range else int8(r["QUANT", "lo"])
        self.hi = INT8_MAX if row.full_range else int8(r["QUANT", "hi"])
        item = 4 if self.int32 else 1
        together = config.depthwise_span(int32=self.int32) if self.depthwise else config.oc_lanes
        self.output = Output(config, r, lanes=lanes, group=config.requant_lanes, item=item, together=together)
        # Old values lie 4 bytes apart, whatever is written.
        self.old = Output(config, r, lanes=lanes, group=1, item=4) if self.accumulate else self.output
        self.lanes = lanes
        # Stripes are of consecutive pixels, in a depthwise convolution of one row.
        width = r["TILE", "width"] if self.depthwise else r.pixels
        self.stripes = _stripes(r.pixels, width, r["STRIPE", "pixels"]) if self.accumulate else []
        self.config, self.registers = config, r
        self._windows: dict[int, Window] = {}

    def window(self, channels: int) -> Window:
        """The walk that reads the first ``channels`` bytes per tap."""
        if channels not in self._windows:
            window = Window(
                self.config,
                self.registers,
                channels,
                columns=self.columns,
                slide=self.slide,
                beside=self.beside,
                rows=self.rows,
                skip=self.skip,
            )
            self._windows[channels] = window
        return self._windows[channels]


class _Matrix:
    """The matrix B of a matrix product."""

    def __init__(self, config: Config, registers: View) -> None:
        r = registers
        self.address, self.size = r.region("B")
        self.modulus = 1 << config.offset_bits
        self.step, self.transposed = r["B_STEP"] % self.modulus, bool(r["B_FORM", "transposed"])
        self.zero = int8(r["B_FORM", "zero_b"])
        self.zero_in = int8(r["QUANT", "zero_in"])
        self.taps = r["GEOMETRY", "kh"] * r["GEOMETRY", "kw"]
        self.terms = r["KC", "blocks"] * config.ic_lanes

    def weights(self, sram: Sram, records: Weights) -> Weights:
        """The matrix less its zero point in the place of weights."""
        terms, channels = self.taps * self.terms, len(records.bias)
        rows, columns = (channels, terms) if self.transposed else (terms, channels)
        values = np.empty((rows, columns), np.int8)
        # Rows that lie wholly in the region come first; the others are looked up byte by byte.
        whole = (self.size - columns) // self.step + 1 if self.step else rows
        whole = max(0, min(whole, rows)) if columns <= self.size else 0
        if whole:
            data = sram.data.view(np.int8)
            values[:whole] = strided(data, self.address, (whole, columns), (self.step, 1))
        if whole < rows:
            row = np.arange(whole, rows, dtype=np.int64)[:, None]
            offset = (row * self.step + np.arange(columns, dtype=np.int64)) % self.modulus
            values[whole:] = gathered(sram.signed(self.address, self.size), offset, item=1, zero=self.zero)
        matrix = values.astype(np.int16) - np.int16(self.zero)
        matrix = (matrix.T if self.transposed else matrix).reshape(self.taps, self.terms, channels)
        return Weights(matrix, records.bias, records.mult, records.shift, largest=255)


class ArrayModel(UnitModel):
    """The array unit."""

    def __init__(self, config: Config) -> None:
        super().__init__(config)
        self.weights = WeightCache(config)
        self._plans = Plans(partial(_Plan, config))

    def execute(self, op: Op, registers: View, sram: Sram, memory: SystemMemory) -> None:
        plan = self._plans.of(op, registers)
        weights = self.weights.find(sram, *plan.weights, plan.shape)
        if plan.depthwise:
            window = plan.window(-(-plan.shape.channels // plan.multiplier))
            sums = _depthwise(window, weights, sram, plan.multiplier)
        elif plan.matrix:
            weights = plan.matrix.weights(sram, weights)
            sums = _convolve(plan.window(weights.used), weights, sram, plan.matrix.zero_in)
        else:
            sums = _convolve(plan.window(weights.used), weights, sram)
        if not plan.accumulate:
            bias = weights.bias
            if sums.dtype == np.float32 and weights.bound + weights.bias_bound < _FLOAT32:
                sums += bias.astype(np.float32)
            else:
                sums = _int32(sums) + bias
            plan.output.write(sram, _results(plan, weights, sums, slice(None)))
        elif plan.old.regular:
            sums = _int32(sums) + np.array(plan.old.view(sram)).reshape(sums.shape)
            plan.output.write(sram, _results(plan, weights, sums, slice(None)))
        else:
            _by_stripes(plan, weights, _int32(sums), sram)


def _results(plan: _Plan, weights: Weights, totals: Array, channels: slice) -> Array:
    """What is written for [pixels, channels] integers that include the bias or the old values."""
    if plan.int32:
        return _int32(totals)
    mult, shift = weights.mult[channels], weights.shift[channels]
    return requantise(totals, mult, shift, plan.rounding, plan.zero_out, plan.lo, plan.hi)


def _stripes(pixels: int, width: int, size: int) -> list[range]:
    """The stripes of so many pixels, none of which goes on beyond a row of ``width``."""
    return [
        range(start, min(start + size, row + width))
        for row in range(0, pixels, width)
        for start in range(row, row + width, size)
    ]


def _by_stripes(plan: _Plan, weights: Weights, sums: Array, sram: Sram) -> None:
    """Accumulate where results of a stripe may be old values of a later one."""
    channels = sums.shape[1]
    for first in range(0, channels, plan.lanes):
        block = range(first, min(first + plan.lanes, channels))
        columns = slice(block.start, block.stop)
        for stripe in plan.stripes:
            old = plan.old.read_part(sram, stripe, block)
            totals = sums[stripe.start : stripe.stop, columns] + old
            plan.output.write_part(sram, _results(plan, weights, totals, columns), stripe, block)
    sram.touch(plan.output.address, plan.output.size)


def _int32(values: Array) -> npt.NDArray[np.int32]:
    """Integers of any type, modulo 2^32."""
    if values.dtype == np.float64:
        values = values.astype(np.int64)
    return values.astype(np.int32, copy=False)


def _convolve(window: Window, weights: Weights, sram: Sram, zero: int = 0) -> Array:
    """[pixels, channels] of float32, or float64 or int64 (not yet modulo 2^32), all of them exact integers; ``zero`` is
    taken from every input."""
    dtype: type[np.floating] = np.float32 if weights.bound < _FLOAT32 else np.float64
    matrix = weights.floats(dtype)
    taps, used, channels = matrix.shape
    pixels = window.height * window.width
    if window.regular:
        image = window.image(sram, dtype)
        if zero:
            image -= zero
        if taps == 1:
            return _product(_rows(window, window.tap(image, 0, 0)), matrix[0])
        parts = [window.tap(image, t // window.kw, t % window.kw) for t in range(taps)]
        if taps * used <= _SMALL:
            joined = np.concatenate(parts, axis=2).reshape(pixels, taps * used)
            return _product(joined, matrix.reshape(taps * used, channels))
        if weights.bound < _FLOAT64:
            total = _product(_rows(window, parts[0]), matrix[0])
            for part, m in zip(parts[1:], matrix[1:], strict=True):
                total += _product(_rows(window, part), m)
            return total
    wide = weights.floats(np.float64)
    result = np.zeros((pixels, channels), np.int64)
    for tap in range(taps):
        if window.regular:
            part = parts[tap].astype(np.float64)
        else:
            part = window.gather(sram, tap // window.kw, tap % window.kw).astype(np.float64) - zero
        # A tap has at most 65535 * 128 terms of at most 2^16.
        result += (part.reshape(pixels, used) @ wide[tap]).astype(np.int64)
    return result


def _product(rows: Array, matrix: Array) -> Array:
    """[pixels, channels]."""
    return np.asarray(np.matmul(rows, matrix)).reshape(-1, matrix.shape[1])


def _rows(window: Window, tap: Array) -> Array:
    """A tap in a form that the matrix product takes without copying, where there is one."""
    row, pixel, item = tap.strides
    if pixel < window.channels * item and window.width > 1:
        return np.ascontiguousarray(tap).reshape(-1, window.channels)
    if row == pixel * window.width or window.height == 1:
        shape = (window.height * window.width, window.channels)
        return np.lib.stride_tricks.as_strided(tap, shape, (pixel, item), writeable=False)
    return tap


def _depthwise(window: Window, weights: Weights, sram: Sram, multiplier: int) -> Array:
    """[pixels, channels] of float32 or int64."""
    exact = weights.bound < _FLOAT32
    matrix = weights.floats(np.float32) if exact else weights.values.astype(np.int64)
    image = window.image(sram, np.float32 if exact else np.int64) if window.regular else None
    channels = matrix.shape[-1]
    total: Array = np.zeros((window.height, window.width, channels), matrix.dtype)
    product = np.empty_like(total)
    for tap in range(len(matrix)):
        ky, kx = divmod(tap, window.kw)
        part = window.tap(image, ky, kx) if image is not None else window.gather(sram, ky, kx)
        if multiplier > 1:
            part = np.repeat(part, multiplier, axis=2)[:, :, :channels]
        np.multiply(part, matrix[tap], out=product)
        total += product
    return total.reshape(-1, channels)
