"""The array unit against a brute-force oracle written from docs/architecture.md, and against its timing rule.

Named cases run in the Amaranth simulator; a slow test runs many random ones, garbage among them, under Verilator.
"""

import random
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from amaranth import Module
from amaranth.lib import wiring
from amaranth.lib.wiring import In
from amaranth.sim import Simulator

from dovetail.cosim.rtl.block import Bench
from dovetail.hw.array.unit import ArrayCore
from dovetail.hw.common.clocking import gated_sources, never_gate
from dovetail.hw.common.ports import GROUP, Core, SramRead, SramWrite
from dovetail.hw.memory.sram import Sram, simulation_sources
from dovetail.isa.config.resolved import Config
from dovetail.isa.instructions.checks import View, check, claim, has, longest_line, regions
from dovetail.isa.instructions.table import REGISTERS, Cause, Op, Unit, pack
from dovetail.isa.numerics.requantise import requantise
from dovetail.isa.numerics.rounding import Rounding
from dovetail.isa.timing.array import array_duration
from dovetail.isa.timing.memory import SRAM_READ
from dovetail.isa.timing.operations import duration
from dovetail.isa.timing.sequencer import CHECK
from tests.hw.benches import offer_register
from tests.slow import slow

Bytes = npt.NDArray[np.uint8]
Ints = npt.NDArray[np.int64]

INDEX = {name: register.index for name, register in REGISTERS[Unit.ARRAY].items()}
WRAP = 1 << 32

SMALL = Config(ic_lanes=3, oc_lanes=5, stripe=7, requant_lanes=2, sram="32 KiB", banks=4)
CONFIGS = {
    "3x5": SMALL,
    "1x1": Config(ic_lanes=1, oc_lanes=1, requant_lanes=1, sram="40 KiB", banks=5),
    "8x8": Config(ic_lanes=8, oc_lanes=8, requant_lanes=3, sram="32 KiB"),
    "1x64": Config(ic_lanes=1, oc_lanes=64, requant_lanes=5, depthwise="none", sram="64 KiB"),
    "3x40": Config(ic_lanes=3, oc_lanes=40, requant_lanes=4, sram="64 KiB"),
    "5x7": Config(ic_lanes=5, oc_lanes=7, requant_lanes=4, sram="64 KiB", matmul=False),
    "64x1": Config(ic_lanes=64, oc_lanes=1, sram="64 KiB"),
    "3x5x4": Config(ic_lanes=3, oc_lanes=5, pixel_lanes=4, stripe=22, requant_lanes=2, bus=256, sram="64 KiB"),
    "4x8x2": Config(ic_lanes=4, oc_lanes=8, pixel_lanes=2, sram="64 KiB", requant_lanes=4),
    "3x4x4": Config(ic_lanes=3, oc_lanes=4, pixel_lanes=4, sram="64 KiB", requant_lanes=3, stripe=256),
    "1x3x8": Config(ic_lanes=1, oc_lanes=3, pixel_lanes=8, sram="64 KiB", requant_lanes=7),
    "2x8x4": Config(ic_lanes=2, oc_lanes=8, pixel_lanes=4, sram="64 KiB", requant_lanes=16),
    "3x8x2": Config(ic_lanes=3, oc_lanes=8, pixel_lanes=2, sram="64 KiB", requant_lanes=16, vector_lanes=1),
    "2x16x4": Config(ic_lanes=2, oc_lanes=16, pixel_lanes=4, sram="64 KiB", requant_lanes=48, stripe=40),
    "2x13": Config(ic_lanes=2, oc_lanes=13, stripe=64, sram="112 KiB", banks=7),
}


# --- the oracle ---------------------------------------------------------------------------------------------------


def int8(value: int) -> int:
    return (value & 0xFF ^ 0x80) - 0x80


def modulus(config: Config) -> int:
    """What offsets, rows and columns are modulo: twice the SRAM, as a power of two."""
    return 2 << (config.sram - 1).bit_length()


def oracle(config: Config, op: Op, r: View, memory: Bytes) -> None:
    """What the instruction does to ``memory``, output pixel by output pixel."""
    depthwise, product = op == Op.DEPTH_CONV, op == Op.MAT_MUL
    multiplier = r["MODE", "extra"] + 1 if depthwise else 1
    sets = r["KC", "group"] + 1 if depthwise else 1
    records = sets * config.oc_lanes
    lanes = records - records % multiplier
    inputs = lanes // multiplier if depthwise else config.ic_lanes
    kc, rows = (1, 0) if depthwise else (r["KC", "blocks"], 0 if product else config.weight_rows)
    height, width = r["TILE", "height"], r["TILE", "width"]
    wrap = modulus(config)
    (in_addr, in_bytes), (w_addr, w_bytes), (out_addr, out_bytes) = map(r.region, ("IN", "W", "OUT"))
    low, high = (int8(r["QUANT", name]) for name in ("lo", "hi")) if op != Op.CONV else (-128, 127)
    item = 4 if r["MODE", "int32"] else 1
    params = config.param_rows(records) * config.word_bytes
    together = min(config.ic_lanes, r["GEOMETRY", "kw"]) if depthwise else 1
    columns = -(-r["GEOMETRY", "kw"] // together) * together
    beneath, skip = (1 + r["MODE", name] if depthwise else 1 for name in ("rows", "skip"))  # kernel rows of a step
    together *= beneath
    taps = [(ky, kx, c) for ky in range(r["GEOMETRY", "kh"] * beneath) for kx in range(columns) for c in range(kc)]
    size = params + len(taps) * rows * config.word_bytes
    set_bytes = -(-together * config.oc_lanes // config.word_bytes) * config.word_bytes
    if depthwise:
        size += len(taps) // together * sets * set_bytes
    slide = r["MODE", "slide"] if depthwise else 0
    x_step = slide * r["KX_STEP"] if slide else r["X_STEP"]
    beside = 1 << r["MODE", "columns"] if depthwise and config.pixel_lanes > 1 else 1
    kx_step = r["KX_STEP"] // beside  # of columns in a word
    stripe_width = width if depthwise else height * width
    y, x = (a.reshape(-1, 1).astype(np.int64) for a in np.mgrid[:height, :width])
    lane = np.arange(lanes) // multiplier if depthwise else np.arange(inputs)
    source = memory.copy()
    matrix = Matrix(config, r, source) if product else None
    for block in range(r["BLOCKS", "count"]):
        channels = r["BLOCKS", "last"] if block == r["BLOCKS", "count"] - 1 else lanes
        stream = np.zeros(size, np.uint8)
        present = source[w_addr : w_addr + w_bytes][block * size :][:size]
        stream[: len(present)] = present
        bias, mult, shift, _ = stream[: 16 * lanes].view("<i4").reshape(lanes, 4).T.astype(np.int64)
        sums = np.zeros((height * width, lanes), np.int64)
        for n, (ky, kx, c) in enumerate(taps):
            first = (block if depthwise else c) * inputs
            ky, seen = divmod(ky, beneath)
            line = y * skip + seen
            if depthwise and r["MODE", "chain"]:  # of the step so many before
                steps, before = r["GEOMETRY", "kh"], beneath - 1 - seen
                line, ky = np.divmod((line + before) * steps + ky - before, steps)
            row = (line * r["GEOMETRY", "stride_y"] + ky * r["GEOMETRY", "dilation_y"] - r["PAD_TOP"]) % wrap
            col = (x * x_step + kx * kx_step - r["PAD_LEFT"] + first + lane) % wrap
            off = r["ORIGIN"] + line * r["Y_STEP"] + x * x_step + ky * r["KY_STEP"] + kx * kx_step
            off = (off + first + lane) % wrap
            inside = (row < r["IN_ROWS"] % wrap) & (col < r["ROW_BYTES"] % wrap) & (off < in_bytes)
            values = source[in_addr + np.where(inside, off, 0)].view(np.int8)
            values = np.where(inside, values, int8(r["QUANT", "zero_in"]))
            weights = stream[params + n * rows * config.word_bytes :][: rows * config.word_bytes].view(np.int8)
            if matrix:
                sums += (values.astype(np.int64) - int8(r["QUANT", "zero_in"])) @ matrix.weights(n, block)
            elif depthwise:
                # The last of the taps that are multiplied together is on the first input lane.
                step, tap = divmod(n, together)
                first = params + step * sets * set_bytes + (together - 1 - tap) * config.oc_lanes
                mine = [stream[first + k * set_bytes :][: config.oc_lanes].view(np.int8) for k in range(sets)]
                sums += values.astype(np.int64) * np.concatenate(mine)[:lanes]
            else:
                sums += values.astype(np.int64) @ weights[: inputs * lanes].reshape(inputs, lanes).astype(np.int64)
        at = (y * r["OUT_Y_STEP"] + x * r["OUT_X_STEP"])[:, 0].tolist()
        starts = [
            (line, n)
            for line in range(0, height * width, stripe_width)
            for n in range(0, stripe_width, r["STRIPE", "pixels"])
        ]
        for line, n in starts:
            stripe = range(line + n, line + min(n + r["STRIPE", "pixels"], stripe_width))
            totals = {p: sums[p] + bias for p in stripe}
            if r["MODE", "accumulate"]:
                totals = {p: sums[p] + old(config, r, memory, at[p], block * lanes, lanes) for p in stripe}
            for p in stripe:
                total = ((totals[p] + (WRAP >> 1)) % WRAP - (WRAP >> 1)).astype("<i4")
                if item == 1:
                    scale = mult & 0x7FFF_FFFF, (shift & 63 ^ 32) - 32
                    rounding = Rounding(r["MODE", "rounding"])
                    total = requantise(total, *scale, rounding, int8(r["QUANT", "zero_out"]), low, high)
                # Of a depthwise convolution the sets on all pixel lanes leave together, but for int32 values.
                span = config.oc_lanes * (config.pixel_lanes if depthwise and item == 1 else 1)
                parts = [
                    (n, min(n + config.requant_lanes, first + span, channels))
                    for first in range(0, channels, span)
                    for n in range(first, min(first + span, channels), config.requant_lanes)
                ]
                for group, past in parts:
                    data = total[group:past].view(np.uint8)
                    off_out = (at[p] + (block * lanes + group) * item) % wrap
                    if off_out + len(data) <= out_bytes:
                        memory[out_addr + off_out :][: len(data)] = data


class Matrix:
    """Weights of a matrix product, less their zero point."""

    def __init__(self, config: Config, r: View, memory: Bytes) -> None:
        address, size = r.region("B")
        self.config, self.size, self.step = config, size, r["B_STEP"]
        self.bytes = memory[address : address + size].view(np.int8).astype(np.int64)
        self.zero, self.transposed = int8(r["B_FORM", "zero_b"]), r["B_FORM", "transposed"]

    def weights(self, step: int, block: int) -> Ints:
        """[ic_lanes, oc_lanes]."""
        i, o = (a.astype(np.int64) for a in np.mgrid[: self.config.ic_lanes, : self.config.oc_lanes])
        i, o = step * self.config.ic_lanes + i, block * self.config.oc_lanes + o
        off = (o * self.step + i if self.transposed else i * self.step + o) % modulus(self.config)
        return np.where(off < self.size, self.bytes[np.where(off < self.size, off, 0)] - self.zero, 0)


def old(config: Config, r: View, memory: Bytes, at: int, channel: int, count: int) -> Ints:
    """Old int32 values: always 4 bytes a channel; 0 unless wholly inside the region."""
    address, size = r.region("OUT")
    offsets = [(at + 4 * (channel + n)) % modulus(config) for n in range(count)]
    return np.array([memory[address + o :][:4].view("<i4")[0] if o + 4 <= size else 0 for o in offsets], np.int64)


def expected_cause(config: Config, op: Op, r: View) -> Cause:
    """Static checks, and what the instruction needs twice."""
    cause = check(config, op, r)
    if cause:
        return cause
    (out, out_size), *others = (r.region(name) for name in ("OUT", "IN", "W", *["B"] * (op == Op.MAT_MUL)))
    overlaps = any(out < start + size and start < out + out_size for start, size in others)
    return Cause.BANK_CONFLICT if overlaps or claim(config, op, r).twice else Cause.NONE


# --- cases --------------------------------------------------------------------------------------------------------


@dataclass
class Layer:
    """A tile as a compiler would ask for it; ``changes`` are registers to set instead."""

    op: Op = Op.CONV
    kernel: tuple[int, int] = (1, 1)
    stride: int = 1
    dilation: int = 1
    pad: int = 0
    tile: tuple[int, int] = (2, 3)
    kc: int = 1
    group: int = 0
    blocks: int = 1
    last: int | None = None
    stripe: int | None = None
    rounding: int = 0
    int32: int = 0
    accumulate: int = 0
    extra: int = 0
    sets: int = 1
    slide: int = 0
    pairs: int = 0
    columns: int = 0
    rows: int = 0
    skip: int = 0
    chain: int = 0
    transposed: int = 0
    changes: dict[str, int] = field(default_factory=dict)

    def registers(self, config: Config) -> View:
        depthwise, product = self.op == Op.DEPTH_CONV, self.op == Op.MAT_MUL
        multiplier = self.extra + 1 if depthwise else 1
        most = min(config.depthwise_sets, config.stripe_rows * config.pixel_lanes)
        sets = min(self.sets, 1 if self.extra else most) if depthwise else 1
        records = sets * config.oc_lanes
        lanes = records - records % multiplier
        inputs = lanes // multiplier if depthwise else config.ic_lanes
        rows, kc = 0 if product else config.weight_rows, 1 if depthwise else self.kc
        longest = config.stripe_rows // -(-sets // config.pixel_lanes) if depthwise else config.stripe
        last = min(self.last or lanes, lanes)
        (height, width), (kh, kw) = self.tile, self.kernel
        channels = inputs * (self.blocks if depthwise else kc)
        in_rows = max(1, (height - 1) * self.stride + (kh - 1) * self.dilation + 1 - 2 * self.pad)
        stride_y, dilation_y = self.stride, self.dilation
        if self.rows:  # lines are as far apart as kernel rows, those of a chain as all of its steps
            stride_y, dilation_y = self.dilation, (self.rows + 1) * self.dilation
            lines = (height - 1) * (self.skip + 1) + kh * (self.rows + 1)
            if self.chain:
                stride_y, dilation_y = kh * self.dilation, self.dilation
                lines = ((height - 1) * (self.skip + 1) + self.rows + 1) * kh
            in_rows = max(1, (lines - 1) * self.dilation + 1 - 2 * self.pad)
        in_columns = max(1, (width - 1) * self.stride + (kw - 1) * self.dilation + 1 - 2 * self.pad)
        pitch, outputs = in_columns * channels, (self.blocks - 1) * lanes + last
        pixel = outputs * (4 if self.int32 or self.accumulate else 1)
        weights = kh * kw * kc * rows
        if depthwise:
            taps = min(config.ic_lanes, kw)
            weights = kh * -(-kw // taps) * sets * config.depthwise_rows(taps * (self.rows + 1))
        words = self.blocks * (config.param_rows(records) + weights)
        bank = config.bank_bytes
        shared = kh * kw * kc * config.ic_lanes  # what an output of a matrix product is the sum of
        pitch_b, rows_b = (shared, outputs) if self.transposed else (outputs, shared)
        values = {
            "IN_ADDR": 5,
            "IN_BYTES": min(in_rows * pitch, bank - 5),
            "ORIGIN": -self.pad * (pitch + channels),
            "Y_STEP": stride_y * pitch,
            "X_STEP": self.stride * channels,
            "KY_STEP": dilation_y * pitch,
            "KX_STEP": self.dilation * channels,
            "IN_ROWS": in_rows,
            "ROW_BYTES": pitch,
            "PAD_TOP": self.pad,
            "PAD_LEFT": self.pad * channels,
            "GEOMETRY": pack(Unit.ARRAY, "GEOMETRY", kh=kh, kw=kw, stride_y=stride_y, dilation_y=dilation_y),
            "TILE": pack(Unit.ARRAY, "TILE", height=height, width=width),
            "QUANT": pack(Unit.ARRAY, "QUANT", zero_in=-7, zero_out=3, lo=-100, hi=90),
            "OUT_ADDR": bank + 3,
            "OUT_BYTES": min(height * width * pixel, bank - 3),
            "OUT_Y_STEP": width * pixel,
            "OUT_X_STEP": pixel,
            "BLOCKS": pack(Unit.ARRAY, "BLOCKS", count=self.blocks, last=last),
            "KC": pack(Unit.ARRAY, "KC", blocks=kc, group=sets - 1 if depthwise else self.group),
            "W_ADDR": 2 * bank,
            "W_BYTES": min(words * config.word_bytes, bank if product else 2 * bank),
            "STRIPE": min(self.stripe or longest, longest, config.stripe),
            "MODE": pack(
                Unit.ARRAY,
                "MODE",
                rounding=self.rounding,
                int32=self.int32,
                accumulate=self.accumulate,
                extra=self.extra if depthwise else 0,
                slide=self.slide if depthwise else 0,
                pairs=self.pairs,
                columns=self.columns,
                rows=self.rows,
                skip=self.skip,
                chain=self.chain,
            ),
            "B_ADDR": 3 * bank + 7,
            "B_BYTES": min(rows_b * pitch_b, bank - 7),
            "B_STEP": pitch_b,
            "B_FORM": pack(Unit.ARRAY, "B_FORM", zero_b=5, transposed=self.transposed),
        }
        values |= self.changes
        return View(Unit.ARRAY, [values[n] % WRAP & r.mask for n, r in REGISTERS[Unit.ARRAY].items()])


LAYERS = {
    "pointwise": Layer(kc=2, tile=(3, 4)),
    "one pixel": Layer(tile=(1, 1), kc=3, blocks=2),
    "padding": Layer(op=Op.CONV_RELU, kernel=(3, 3), pad=1, tile=(3, 3), rounding=1),
    "stride": Layer(op=Op.CONV_RELU, kernel=(2, 3), stride=2, pad=1, tile=(2, 5), stripe=3),
    "dilation": Layer(kernel=(2, 2), dilation=2, pad=1, tile=(2, 3)),
    "blocks": Layer(blocks=3, last=2, tile=(2, 5), stripe=4),
    "int32": Layer(int32=1, blocks=2, last=3, tile=(1, 3)),
    "accumulate": Layer(int32=1, accumulate=1, blocks=2, last=1, tile=(2, 5), stripe=4, kc=2),
    "accumulate to int8": Layer(op=Op.CONV_RELU, accumulate=1, blocks=2, tile=(3, 3), stripe=2),
    "depthwise": Layer(op=Op.DEPTH_CONV, kernel=(3, 3), pad=1, tile=(3, 3), blocks=2, last=3),
    "depthwise accumulate": Layer(op=Op.DEPTH_CONV, kernel=(1, 2), accumulate=1, int32=1, rounding=1, tile=(1, 9)),
    "short regions": Layer(changes={"IN_BYTES": 11, "OUT_BYTES": 13, "W_BYTES": 96}, tile=(2, 5), blocks=2),
    "old values at the end": Layer(accumulate=1, int32=1, tile=(1, 4), changes={"OUT_BYTES": 74}),
    # Of the last pixel's int32 values at 60 .. 79, the one at 72 is a byte too long; its int8 result is inside.
    "old values at the end, to int8": Layer(accumulate=1, tile=(1, 4), changes={"OUT_BYTES": 75}),
    "old values that are all too long": Layer(accumulate=1, tile=(1, 3), changes={"OUT_BYTES": 3, "OUT_X_STEP": 1}),
    "wrap-around": Layer(
        tile=(3, 3),
        changes={"ORIGIN": -2, "IN_BYTES": 100, "PAD_LEFT": 2, "X_STEP": -1, "OUT_X_STEP": -3, "ROW_BYTES": WRAP - 1},
    ),
    "product": Layer(op=Op.MAT_MUL, kc=2, blocks=2, last=3, tile=(1, 9), stripe=4),
    "product, transposed": Layer(op=Op.MAT_MUL, kc=3, blocks=3, tile=(1, 8), stripe=7, transposed=1, rounding=1),
    "product, few": Layer(op=Op.MAT_MUL, tile=(1, 1), int32=1, last=2, changes={"B_FORM": 0x80, "QUANT": 0x7F80_0080}),
    "product, accumulate": Layer(op=Op.MAT_MUL, kernel=(2, 1), blocks=2, tile=(2, 3), stripe=2, accumulate=1),
    "product, wide rows": Layer(op=Op.MAT_MUL, kc=2, blocks=2, tile=(1, 3), changes={"B_STEP": 29, "B_BYTES": 150}),
    "product, short matrix": Layer(
        op=Op.MAT_MUL, kc=2, blocks=2, tile=(1, 3), transposed=1, changes={"B_BYTES": 33, "W_BYTES": 96}
    ),
    "product, input that ends early": Layer(op=Op.MAT_MUL, kc=2, tile=(1, 4), int32=1, changes={"ROW_BYTES": 17}),
    "product, wrap-around": Layer(
        op=Op.MAT_MUL, kc=2, blocks=3, tile=(1, 3), changes={"B_STEP": -1, "B_BYTES": 17, "OUT_X_STEP": 20}
    ),
    "multiplier 2": Layer(op=Op.DEPTH_CONV, kernel=(2, 2), extra=1, blocks=3, last=3, tile=(2, 3), stripe=4),
    "multiplier 3": Layer(op=Op.DEPTH_CONV, kernel=(1, 3), pad=1, extra=2, blocks=3, last=2, tile=(2, 3), int32=1),
    "multiplier 4": Layer(op=Op.DEPTH_CONV, kernel=(2, 1), extra=3, blocks=2, tile=(2, 3), stripe=2, accumulate=1),
    "rows and columns of another tile": Layer(
        kernel=(3, 3), pad=1, tile=(4, 4), dilation=2, changes={"IN_ROWS": 3, "ROW_BYTES": 7}
    ),
    "bits of rubbish": Layer(
        kernel=(2, 2),
        kc=2,
        changes={
            "ROW_BYTES": WRAP - 2,
            "IN_ROWS": WRAP - 1,
            "PAD_TOP": 1,
            "PAD_LEFT": 4,
            "KX_STEP": 3,
            "OUT_Y_STEP": 7,
        },
    ),
    # Of 32 KiB of SRAM an offset has 16 bits.
    "more than an offset's bits": Layer(
        op=Op.CONV_RELU,
        kernel=(2, 2),
        kc=2,
        changes={"KX_STEP": (5 << 16) + 3, "IN_ROWS": (1 << 31) + 3, "ROW_BYTES": (1 << 16) + 7, "PAD_TOP": 1 << 20},
    ),
    "steps of more than an offset's bits": Layer(
        op=Op.MAT_MUL,
        kc=2,
        blocks=2,
        tile=(1, 3),
        changes={"B_STEP": (3 << 16) + 29, "B_BYTES": 150, "OUT_X_STEP": (7 << 16) + 20, "X_STEP": (1 << 16) - 4},
    ),
}

FAULTS = {
    "multiplier above the lanes": ({"MODE": 5 << 4}, Cause.TOO_LARGE, Op.DEPTH_CONV),
    "last block with a multiplier": ({"MODE": 2 << 4, "BLOCKS": 1 | 4 << 16}, Cause.TOO_LARGE, Op.DEPTH_CONV),
    "slide": ({"MODE": 3 << 8}, Cause.TOO_LARGE, Op.DEPTH_CONV),
    "sets": ({"KC": 1 << 16}, Cause.TOO_LARGE, Op.DEPTH_CONV),
    "no matrix": ({"B_BYTES": 0}, Cause.ZERO_SIZE, Op.MAT_MUL),
    "no steps of a product": ({"KC": 0}, Cause.ZERO_SIZE, Op.MAT_MUL),
    "matrix outside": ({"B_ADDR": 32768 - 14}, Cause.SRAM_RANGE, Op.MAT_MUL),
    "matrix beside input": ({"B_ADDR": 8191}, Cause.BANK_CONFLICT, Op.MAT_MUL),
    "matrix beside old values": ({"B_ADDR": 16000, "MODE": 4}, Cause.BANK_CONFLICT, Op.MAT_MUL),
    "matrix under the output": ({"B_ADDR": 8192}, Cause.BANK_CONFLICT, Op.MAT_MUL),
    "no pixels": ({"TILE": 5}, Cause.ZERO_SIZE, Op.CONV),
    "no weights": ({"W_BYTES": 0, "STRIPE": 100}, Cause.ZERO_SIZE, Op.CONV),
    "no channels": ({"KC": 0}, Cause.ZERO_SIZE, Op.CONV),
    "group": ({"KC": 1 | 1 << 16, "W_ADDR": 8}, Cause.TOO_LARGE, Op.CONV),
    "group of a product": ({"KC": 1 | 1 << 19}, Cause.TOO_LARGE, Op.MAT_MUL),
    "stripe": ({"STRIPE": 8, "W_ADDR": 8}, Cause.TOO_LARGE, Op.CONV),
    "last block": ({"BLOCKS": 1 | 6 << 16}, Cause.TOO_LARGE, Op.CONV),
    "stripe and last block": ({"STRIPE": 8, "BLOCKS": 1 | 6 << 16}, Cause.TOO_LARGE, Op.CONV),
    "weights' address": ({"W_ADDR": 8, "IN_ADDR": 1 << 20}, Cause.ALIGNMENT, Op.CONV),
    "weights' length": ({"W_BYTES": 24}, Cause.ALIGNMENT, Op.CONV),
    "input outside": ({"IN_ADDR": 32765}, Cause.SRAM_RANGE, Op.CONV),
    "output wraps around": ({"OUT_ADDR": WRAP - 1}, Cause.SRAM_RANGE, Op.CONV),
    "weights beside input": ({"W_ADDR": 1024}, Cause.BANK_CONFLICT, Op.CONV),
    "weights beside old values": ({"W_ADDR": 9216, "MODE": 4}, Cause.BANK_CONFLICT, Op.CONV),
    "output on input": ({"OUT_ADDR": 7}, Cause.BANK_CONFLICT, Op.CONV),
    "output on weights": ({"OUT_ADDR": 16384}, Cause.BANK_CONFLICT, Op.CONV),
}


ROW_FAULTS: dict[str, dict[str, Any]] = {
    "lines skipped alone": {"rows": 0, "skip": 1},
    "a chain of single rows": {"rows": 0, "chain": 1},
    "too many rows": {"rows": 2},
    "no sliding": {"slide": 0},
    "old values": {"accumulate": 1},
    "channel multiplier": {"extra": 1},
    "a line of several stripes": {"stripe": 2},
}
"""What several kernel rows at once cannot have; besides other kernels."""

PAIR_FAULTS = {
    "far away": {"X_STEP": 1 << 31},
    "parted by a row": {"TILE": 1 | 3 << 16},
    "parted by a stripe": {"STRIPE": 3},
    "old values": {"MODE": 1 << 10 | 1 << 2},
}
"""What pairs of pixels cannot be."""


def rubbish(config: Config, rng: random.Random) -> tuple[Op, View]:
    """A layer of random size, most often with some registers that make no sense."""
    ops = [Op.CONV, Op.CONV_RELU, Op.DEPTH_CONV, Op.DEPTH_CONV, Op.MAT_MUL, Op.MAT_MUL]
    op = rng.choice([op for op in ops if has(config, op)])
    layer = Layer(
        op=op,
        kernel=rng.choice([(1, 1), (1, 1), (3, 3), (rng.randint(1, 3), rng.randint(1, 4))]),
        stride=rng.randint(1, 2),
        dilation=rng.randint(1, 2),
        pad=rng.randint(0, 2),
        tile=rng.choice([(1, 1), (rng.randint(1, 6), rng.randint(1, 9)), (1, rng.randint(1, 30))]),
        kc=rng.choice([1, 1, 2, 3]),
        blocks=rng.choice([1, 1, 2, 3]),
        group=rng.randrange(config.weight_sets),
        last=rng.choice([None, rng.randint(1, config.oc_lanes * config.depthwise_sets)]),
        stripe=rng.choice([None, 1, 2, rng.randint(1, config.stripe)]),
        rounding=rng.randint(0, 1),
        int32=int(rng.random() < 0.2),
        accumulate=int(rng.random() < 0.3),
        extra=rng.choice([0, 0, rng.randrange(min(8, config.oc_lanes))]),
        sets=rng.randint(1, max(4, config.depthwise_sets)),
        slide=rng.choice([0, 1, 1, 2]),
        rows=rng.choice([0, 0, rng.randrange(config.kernel_rows)]),
        pairs=int(rng.random() < 0.3),
        transposed=rng.randint(0, 1),
    )
    if layer.rows and op == Op.DEPTH_CONV and rng.random() < 0.95:
        layer.skip, layer.accumulate, layer.extra, layer.slide = rng.randrange(4), 0, 0, layer.slide or 1
        layer.chain = rng.randint(0, 1)
        layer.kernel, layer.stripe = (rng.randint(1, 2), 3), None
    if paired := layer.pairs and op != Op.DEPTH_CONV and config.pixel_lanes > 1:
        layer.tile = layer.tile[0], layer.tile[1] + layer.tile[1] % 2
        layer.group, layer.accumulate = rng.randrange(config.pair_sets), 0
        layer.stripe = rng.choice([2, rng.randint(1, config.stripe // 2) * 2])
    values = layer.registers(config)
    bank = config.bank_bytes
    changes = {"QUANT": rng.randrange(WRAP), "B_FORM": rng.getrandbits(8) | layer.transposed << 8}
    changes["IN_ADDR"] = rng.randint(0, bank - values["IN_BYTES"])
    changes["OUT_ADDR"] = bank + rng.randint(0, bank - values["OUT_BYTES"])
    for _ in range(rng.choice([0, 1, 2, 4])):
        name = rng.choice(sorted(INDEX.keys() - {"TILE", "GEOMETRY", "BLOCKS", "KC", "STRIPE", "W_ADDR"}))
        if name == "W_BYTES":
            changes[name] = rng.randrange(0, values[name], config.word_bytes)
        elif name in ("IN_BYTES", "OUT_BYTES", "B_BYTES"):
            changes[name] = rng.randint(1, values[name])
        else:
            changes[name] = rng.choice([values[name] + rng.randint(-3, 3), rng.randint(-200, 200), rng.randrange(WRAP)])
    if paired and rng.random() < 0.95:
        changes["X_STEP"] = rng.randint(0, config.pair_step)
        if rng.random() < 0.7:
            changes["OUT_X_STEP"] = rng.choice([1, 2, 3, 4]) * config.oc_lanes
    layer.changes = changes
    return op, layer.registers(config)


def image(config: Config, seed: object) -> Bytes:
    return np.frombuffer(random.Random(str(seed)).randbytes(config.sram), np.uint8).copy()


@dataclass
class Outcome:
    """What a run showed; ``end`` is -1 if it never ended."""

    cause: int
    reads: int
    writes: int
    end: int
    memory: Bytes

    def compare(self, config: Config, op: Op, r: View, before: Bytes) -> None:
        cause = expected_cause(config, op, r)
        assert self.cause == cause
        if cause:
            assert self.end == -1
            assert np.array_equal(self.memory, before)
            return
        needed = claim(config, op, r)
        assert (self.reads, self.writes) == (needed.reads, needed.writes)
        wanted = before.copy()
        oracle(config, op, r, wanted)
        assert np.flatnonzero(self.memory != wanted).tolist() == []
        assert self.end == duration(config, op, r)


# --- the Amaranth simulator -----------------------------------------------------------------------------------------


class Ports:
    """SRAM, cycle by cycle; checks that accesses keep to the regions."""

    def __init__(self, config: Config, op: Op, r: View, memory: Bytes) -> None:
        self.memory = memory
        self.bank_bytes = config.bank_bytes
        self.word = config.word_bytes
        self.oc_lanes, self.result_pairs = config.oc_lanes, config.result_pairs
        self.pending: dict[str, list[Bytes]] = {name: [] for name in ("input", "weights")}
        old_values = (r.region("OUT"),) if r["MODE", "accumulate"] else ()
        self.readable = {"input": (r.region("IN"), *old_values), "weights": (r.region("W"),)}
        self.product = op == Op.MAT_MUL
        self.writable = r.region("OUT")
        self.written: list[tuple[int, bytes]] = []

    def cycle(self, ctx: Any, dut: ArrayCore) -> None:
        for name, pending in self.pending.items():
            port = getattr(dut, name)
            pending.append(np.zeros(self.word, np.uint8))
            if ctx.get(port.en):
                places = (ctx.get(port.addr) + np.arange(self.word)) % len(self.memory)
                if name == "input" or not self.product:
                    inside = sum(((start <= places) & (places < start + size)) for start, size in self.readable[name])
                    assert inside.all() if name == "weights" else inside.any()
                # A port gets what is in its banks.
                streams = ctx.get(dut.streams) >> (places // self.bank_bytes) & 1 == (name == "weights")
                pending[-1] = np.where(streams, self.memory[places], 0xA5).astype(np.uint8)
        for start, data in self.written:
            self.memory[start : start + len(data)] = np.frombuffer(data, np.uint8)
        self.written = []
        if ctx.get(dut.output.en):
            size, address = ctx.get(dut.output.size), ctx.get(dut.output.addr)
            data = ctx.get(dut.output.data).to_bytes(self.word, "little")
            places = [0]
            if self.result_pairs:
                apart = ctx.get(dut.output.apart)
                places = [0] * (not ctx.get(dut.output.skips)) + [apart * self.oc_lanes] * (apart > 0)
            self.written = [((address + at) % len(self.memory), data[at : at + size]) for at in places]
            first, length = self.writable
            assert all(first <= start and start + size <= first + length for start, _ in self.written)

    def answer(self, ctx: Any, dut: ArrayCore) -> None:
        for name, pending in self.pending.items():
            if len(pending) == SRAM_READ:
                ctx.set(getattr(dut, name).data, int.from_bytes(pending.pop(0).tobytes(), "little"))


def simulate(config: Config, cases: list[tuple[Op, View, Bytes]]) -> list[Outcome]:
    """Run instructions one after the other, registers cleared before each."""
    dut = ArrayCore(config)
    outcomes: list[Outcome] = []

    async def one(ctx: Any, op: Op, r: View, memory: Bytes) -> Outcome:
        core, ports = dut.core, Ports(config, op, r, memory)
        ctx.set(core.cfg.clear, 1)
        await ctx.tick()
        ctx.set(core.cfg.clear, 0)
        for index, value in enumerate(r.values):
            offer_register(ctx, core.cfg, index, value)
            await ctx.tick()
        ctx.set(core.cfg.en, 0)
        ctx.set(core.start, 1)
        ctx.set(core.op, int(op))
        answer: tuple[int, int, int] | None = None
        end, limit = -1, 20
        cycle = 0
        while cycle < limit:
            if cycle == CHECK - 1:
                shown = [(ctx.get(span.start), ctx.get(span.end)) for span in core.sources if ctx.get(span.valid)]
                target = ctx.get(core.target.start), ctx.get(core.target.end)
            if cycle == CHECK:
                answer = ctx.get(core.cause), ctx.get(core.reads), ctx.get(core.writes)
                ctx.set(core.go, answer[0] == 0)
                limit = 20 if answer[0] else duration(config, op, r) + 10
            if ctx.get(core.done):
                assert end == -1
                end = cycle
            ports.cycle(ctx, dut)
            await ctx.tick()
            ports.answer(ctx, dut)
            ctx.set(core.start, 0)
            if cycle == CHECK:
                ctx.set(core.go, 0)
            cycle += 1
        assert answer is not None
        if not answer[0]:
            needed = regions(op, r)
            assert [target] == [(start, start + size) for start, size in needed.writes]
            assert shown == [
                (start, start + size) for start, size in needed.reads if (start, size) not in needed.writes
            ]
        return Outcome(*answer, end, memory)

    async def bench(ctx: Any) -> None:
        for op, r, memory in cases:
            outcomes.append(await one(ctx, op, r, memory.copy()))

    simulator = Simulator(dut)
    simulator.add_clock(1e-8)
    simulator.add_testbench(bench)
    simulator.run()
    return outcomes


BATCHES = [list(LAYERS)[n : n + 5] for n in range(0, len(LAYERS), 5)]


@pytest.mark.parametrize("names", BATCHES, ids=lambda names: ", ".join(names))
def test_layers(names: list[str]) -> None:
    cases = [(LAYERS[name].op, LAYERS[name].registers(SMALL), image(SMALL, name)) for name in names]
    for name, case, outcome in zip(names, cases, simulate(SMALL, cases), strict=True):
        assert outcome.cause == Cause.NONE, name
        assert not np.array_equal(outcome.memory, case[2]), name
        outcome.compare(SMALL, *case)


@pytest.mark.parametrize("lanes", [slow(2), 4])
def test_pixel_lanes(lanes: int) -> None:
    """Pixels that fill the lanes and that do not, fewer and more input blocks than there are weight sets."""
    config = Config(ic_lanes=2, oc_lanes=3, pixel_lanes=lanes, requant_lanes=lanes, sram="32 KiB", banks=4)
    layers = (
        Layer(kc=7, group=config.weight_sets - 1, kernel=(1, 2), tile=(3, 5), stripe=2 * lanes, blocks=2, last=2),
        Layer(kc=3, group=1, tile=(1, 7), stripe=5, pad=1, kernel=(3, 1), accumulate=1, blocks=2),
        Layer(kc=7, group=1, kernel=(1, 2), tile=(1, 1), blocks=2, last=2),
        Layer(kc=9, group=config.weight_sets - 1, tile=(1, lanes), accumulate=1, int32=1),
        Layer(op=Op.MAT_MUL, kc=4, group=2, tile=(5, 1), transposed=1, blocks=2),
        Layer(op=Op.MAT_MUL, kc=5, group=3, tile=(2, 3), stripe=1),
        Layer(op=Op.DEPTH_CONV, kernel=(2, 2), tile=(3, 4), accumulate=1, blocks=2, last=3),
        Layer(op=Op.DEPTH_CONV, kernel=(3, 3), slide=1, sets=2, tile=(2, 9), pad=1, blocks=2, last=4),
        Layer(op=Op.DEPTH_CONV, kernel=(2, 5), slide=2, stride=2, sets=3, tile=(2, 5), accumulate=1, int32=1, stripe=3),
        Layer(op=Op.DEPTH_CONV, kernel=(3, 1), slide=1, extra=2, tile=(1, 5), blocks=3, last=2),
    )
    cases = [(layer.op, layer.registers(config), image(config, n)) for n, layer in enumerate(layers)]
    for case, outcome in zip(cases, simulate(config, cases), strict=True):
        assert outcome.cause == Cause.NONE
        outcome.compare(config, *case)


@pytest.mark.parametrize(("stripe", "buffers"), [(4, 4), (64, 2)])
def test_blocks_in_flight_of_kernel_rows(stripe: int, buffers: int) -> None:
    """A block begins with lines that have no results; its records come with the first of them."""
    config = Config(ic_lanes=6, oc_lanes=4, requant_lanes=1, stripe=stripe, sram="32 KiB", banks=4)
    assert config.stripe_buffers == buffers
    depthwise = Layer(op=Op.DEPTH_CONV, kernel=(1, 3), slide=1, rows=1, tile=(1, 4), blocks=7)
    layers = (depthwise, replace(depthwise, kernel=(2, 3), blocks=5), replace(depthwise, tile=(2, 3), blocks=3))
    cases = [(layer.op, layer.registers(config), image(config, n)) for n, layer in enumerate(layers)]
    for case, outcome in zip(cases, simulate(config, cases), strict=True):
        assert outcome.cause == Cause.NONE
        outcome.compare(config, *case)


def test_blocks_in_flight() -> None:
    """Blocks of one short stripe, whose results take long to leave: several wait, each for its own records."""
    config = Config(ic_lanes=2, oc_lanes=6, requant_lanes=1, stripe=4, sram="32 KiB", banks=4)
    assert config.stripe_buffers == 4
    layers = (
        Layer(tile=(1, 4), blocks=9, last=5),
        Layer(op=Op.DEPTH_CONV, kernel=(1, 1), tile=(1, 3), blocks=7, last=1),
        Layer(tile=(2, 4), blocks=5, int32=1, kc=3),
    )
    cases = [(layer.op, layer.registers(config), image(config, n)) for n, layer in enumerate(layers)]
    for case, outcome in zip(cases, simulate(config, cases), strict=True):
        assert outcome.cause == Cause.NONE
        outcome.compare(config, *case)


@pytest.mark.parametrize("shape", [slow((3, 4, 2)), (4, 3, 4), slow((3, 2, 8))])
def test_columns(shape: tuple[int, int, int]) -> None:
    """Columns that lie beside each other in a word: two and four, rows that a word ends and that it does not."""
    ic, oc, lanes = shape
    config = Config(ic_lanes=ic, oc_lanes=oc, pixel_lanes=lanes, requant_lanes=oc, sram="32 KiB", banks=4)
    fills = {"KX_STEP": config.acc_lanes}
    few = {"ROW_BYTES": 5 * config.acc_lanes // 2, "PAD_LEFT": config.acc_lanes // 2}
    padded = Layer(op=Op.DEPTH_CONV, kernel=(3, 3), slide=1, sets=lanes, tile=(3, 3), pad=1, changes=fills | few)
    plain = replace(padded, kernel=(1, 3), tile=(2, 7), pad=0, stripe=3, blocks=2, changes=fills)
    adding = replace(padded, kernel=(2, 3), tile=(2, 1), pad=0, accumulate=1, int32=1, changes=fills)
    layers = [
        replace(layer, columns=power)
        for power in range(1, config.word_columns.bit_length())
        for layer in (padded, plain, adding)
    ]
    if config.has_wide_words:  # strides of two: pixels fill the lanes, and a word has two columns
        wide = {"KX_STEP": 2 * config.acc_lanes}
        layers += [replace(layer, columns=1, changes=layer.changes | wide) for layer in (padded, plain, adding)]
    # With 16 sets there are more of them than input blocks whose weights are held.
    layers += [replace(plain, sets=sets, columns=0, changes={}) for sets in (1, config.depthwise_sets)]
    cases = [(layer.op, layer.registers(config), image(config, n)) for n, layer in enumerate(layers)]
    for case, outcome in zip(cases, simulate(config, cases), strict=True):
        assert outcome.cause == Cause.NONE
        outcome.compare(config, *case)


@pytest.mark.parametrize(
    "shape",
    [(6, 4, 2), *(slow(n) for n in ((8, 3, 1), (10, 2, 1), (16, 2, 1), (15, 2, 4)))],
)
def test_kernel_rows(shape: tuple[int, int, int]) -> None:
    """Two and three kernel rows at once: one step and two, padding, strides, sets, columns, and what does not go."""
    ic, oc, lanes = shape
    config = Config(ic_lanes=ic, oc_lanes=oc, pixel_lanes=lanes, requant_lanes=2, sram="32 KiB", banks=4)
    most = config.kernel_rows - 1
    depthwise = Layer(op=Op.DEPTH_CONV, kernel=(1, 3), slide=1, rows=1, tile=(3, 4), pad=1)
    layers = [
        depthwise,
        replace(depthwise, kernel=(2, 3), tile=(2, 7), rows=most, blocks=3, last=2, int32=1),
        replace(depthwise, tile=(1, 1), skip=3),
        replace(depthwise, tile=(3, 5), slide=2, stride=2, rows=most, skip=1, sets=config.depthwise_sets, blocks=2),
        replace(depthwise, tile=(2, config.stripe_rows), pad=0, rounding=1, sets=lanes),
        replace(depthwise, tile=(1, longest_line(config, 2)), slide=2, stride=2, pad=0, skip=1),
        replace(depthwise, kernel=(2, 3), dilation=2, pad=2, tile=(4, 3), skip=2, rows=most),
        replace(depthwise, kernel=(2, 3), tile=(3, 4), slide=2, stride=2, chain=1, blocks=2),
        replace(depthwise, kernel=(2, 3), tile=(2, 5), rows=most, chain=1, skip=2, sets=lanes, int32=1),
        replace(depthwise, kernel=(1, 3), tile=(2, 2), rows=most, chain=1, dilation=2),
        replace(depthwise, tile=(2, 3), changes={"KY_STEP": 77, "Y_STEP": 31, "OUT_Y_STEP": 9}),
        replace(depthwise, kernel=(2, 3), tile=(3, 3), changes={"GEOMETRY": 2 | 3 << 8 | 5 << 16 | 7 << 24}),
        Layer(op=Op.CONV, tile=(2, 2), rows=1, skip=1),
        replace(depthwise, kernel=(3, 3), rows=0),
    ]
    if ic >= 10:
        layers += [replace(depthwise, kernel=(2, 5), pad=2, tile=(3, 6)), replace(depthwise, kernel=(1, 5), skip=1)]
    if config.word_columns > 1:
        fills = {"KX_STEP": config.acc_lanes}
        layers += [
            replace(depthwise, sets=lanes, columns=power, tile=(2, 3), rows=most, changes=fills)
            for power in range(1, config.word_columns.bit_length())
        ]
        if config.has_wide_words:
            layers.append(replace(depthwise, sets=lanes, columns=1, changes={"KX_STEP": 2 * config.acc_lanes}))
    cases = [(layer.op, layer.registers(config), image(config, n)) for n, layer in enumerate(layers)]
    faults = [replace(depthwise, **{"rows": most, **changes}) for changes in ROW_FAULTS.values()]
    faults[2].rows = most + 1
    faults += [
        replace(depthwise, kernel=(3, 3)),
        replace(depthwise, kernel=(1, 2)),
        replace(depthwise, kernel=(1, 7)),
    ]
    if longest_line(config, 2) < config.stripe_rows:
        faults.append(replace(depthwise, tile=(1, longest_line(config, 2) + 1), slide=2))
    cases += [(layer.op, layer.registers(config), image(config, 0)) for layer in faults]
    outcomes = simulate(config, cases)
    for number, (case, outcome) in enumerate(zip(cases, outcomes, strict=True)):
        assert outcome.cause == (Cause.NONE if number < len(layers) else Cause.TOO_LARGE), number
        outcome.compare(config, *case)


@pytest.mark.parametrize("shape", [(2, 3, 2), *(slow(n) for n in ((1, 2, 8), (2, 3, 4), (4, 4, 4)))])
def test_pairs(shape: tuple[int, int, int]) -> None:
    """Two pixels of a read: every distance, groups that are full and that are not, padding on both sides."""
    ic, oc, lanes = shape
    config = Config(ic_lanes=ic, oc_lanes=oc, pixel_lanes=lanes, requant_lanes=oc, sram="32 KiB", banks=4)
    most = config.pair_sets
    layers = [
        Layer(kc=2 * most + 1, group=most - 1, tile=(2, 6), pad=1, kernel=(3, 2), pairs=1, changes={"X_STEP": step})
        for step in range(config.pair_step + 1)
    ]
    layers += [
        Layer(tile=(3, 2 * lanes + 2), stripe=2 * lanes + 2, blocks=2, last=1, pairs=1, changes={"X_STEP": most}),
        Layer(tile=(1, 2), kc=most, group=most - 1, pairs=1, int32=1, changes={"X_STEP": 1, "ROW_BYTES": 3}),
        Layer(op=Op.MAT_MUL, tile=(4, 4), kc=most, group=most - 1, stripe=4, pairs=1, changes={"X_STEP": most}),
        Layer(op=Op.DEPTH_CONV, kernel=(2, 2), tile=(3, 3), accumulate=1, pairs=1),
    ]
    cases = [(layer.op, layer.registers(config), image(config, n)) for n, layer in enumerate(layers)]
    for changes in (*PAIR_FAULTS.values(), {"X_STEP": config.pair_step + 1}, {"KC": 1 | most << 16}):
        cases.append((Op.CONV, Layer(tile=(1, 2), pairs=1, changes=changes).registers(config), image(config, 0)))
    outcomes = simulate(config, cases)
    causes = [Cause.NONE] * len(layers) + [Cause.TOO_LARGE] * (len(PAIR_FAULTS) + 2)
    for case, outcome, cause in zip(cases, outcomes, causes, strict=True):
        assert outcome.cause == cause
        outcome.compare(config, *case)


@pytest.mark.parametrize("shape", [(2, 8, 4), slow((1, 16, 2))])
def test_results_of_two_pixels(shape: tuple[int, int, int]) -> None:
    """Together: one to three blocks apart, over several rows of accumulators, and where one of the two is outside."""
    ic, oc, lanes = shape
    config = Config(ic_lanes=ic, oc_lanes=oc, pixel_lanes=lanes, requant_lanes=2 * oc, sram="32 KiB", banks=4)
    assert config.result_pairs
    layer = Layer(tile=(2, 3 * lanes), pairs=1, last=oc)
    layers = [
        *(replace(layer, blocks=blocks) for blocks in (1, 2, 3, 4)),
        replace(layer, blocks=3, stripe=2 * lanes, op=Op.CONV_RELU),
        replace(layer, blocks=2, last=1, changes={"OUT_X_STEP": 2 * oc}),
        replace(layer, tile=(3, 4), changes={"OUT_BYTES": 9 * oc}),  # the last one is outside
        replace(layer, tile=(2, 4), changes={"OUT_Y_STEP": -2 * oc}),
        replace(layer, tile=(2, 4), changes={"OUT_Y_STEP": -oc - oc // 2}),  # the second one is so in part
        *(  # the first one is below the region
            replace(layer, kernel=kernel, tile=(2, 4), changes={"OUT_Y_STEP": -oc})
            for kernel in ((1, 1), (2, 2), (3, 3))
        ),
        replace(layer, int32=1),
    ]
    cases = [(layer.op, layer.registers(config), image(config, n)) for n, layer in enumerate(layers)]
    for case, outcome in zip(cases, simulate(config, cases), strict=True):
        assert outcome.cause == Cause.NONE
        outcome.compare(config, *case)


def test_rows_of_a_matrix_in_several_words() -> None:
    """Four reads per row of the matrix, the last one in part."""
    config = Config(ic_lanes=1, oc_lanes=52, requant_lanes=4, bus=32, depthwise="none", sram="32 KiB", banks=4)
    assert config.word_bytes == 16
    layers = (
        Layer(op=Op.MAT_MUL, kc=2, blocks=2, last=45, tile=(1, 2)),
        Layer(op=Op.MAT_MUL, kc=3, tile=(1, 1), changes={"B_STEP": 59, "B_BYTES": 160}),
    )
    cases = [(layer.op, layer.registers(config), image(config, n)) for n, layer in enumerate(layers)]
    for case, outcome in zip(cases, simulate(config, cases), strict=True):
        assert outcome.cause == Cause.NONE
        outcome.compare(config, *case)


def test_faults() -> None:
    base = Layer(tile=(1, 2))
    cases = []
    for changes, _, op in FAULTS.values():
        cases.append((op, Layer(op, tile=(1, 2), changes=changes).registers(SMALL), image(SMALL, 0)))
    cases.append((base.op, base.registers(SMALL), image(SMALL, 1)))
    outcomes = simulate(SMALL, cases)
    for (name, (_, cause, _)), outcome in zip(FAULTS.items(), outcomes, strict=False):
        assert outcome.cause == cause, name
    for case, outcome in zip(cases, outcomes, strict=True):
        outcome.compare(SMALL, *case)


def test_duration_is_the_rule() -> None:
    """The engine passes on what the rule needs."""
    r = Layer(kernel=(2, 3), kc=2, blocks=3, last=2, tile=(3, 5), stripe=4).registers(SMALL)
    rule = array_duration(SMALL, taps=6, kc=2, pixels=15, stripe=4, blocks=3, last=2, accumulate=False)
    assert duration(SMALL, Op.CONV, r) == rule


# --- Verilator ------------------------------------------------------------------------------------------------------


class WithMemory(wiring.Component):
    """Simulation form of core and SRAM; ``go`` counts only if there is no ``cause``."""

    def __init__(self, config: Config) -> None:
        self.config = config
        super().__init__({"core": In(Core(config)), "load": In(SramWrite(config)), "dump": In(SramRead(config))})

    def elaborate(self, platform: object) -> Module:
        m = Module()
        never_gate(m)
        m.submodules.array = array = ArrayCore(self.config, simulation=True)
        m.submodules.sram = sram = Sram(self.config, simulation=True)
        wiring.connect(m, wiring.flipped(self.core), array.core)
        m.d.comb += array.core.go.eq(self.core.go & ~array.core.cause.any())
        wiring.connect(m, array.input, sram.read_array_input)
        wiring.connect(m, array.weights, sram.read_array_weights)
        wiring.connect(m, array.output, sram.write_array)
        wiring.connect(m, wiring.flipped(self.load), sram.write_load)
        wiring.connect(m, wiring.flipped(self.dump), sram.read_store)
        return m


def verilated(config: Config, bench: Bench, op: Op, r: View, memory: Bytes) -> Outcome:
    """One run: write the memory, configure, start, wait, read the memory, by ports as wide as the bus."""
    few = config.bus_bytes
    rows = config.sram // few
    words = np.zeros((rows, config.word_bytes), np.uint8)
    words[:, :few] = memory.reshape(rows, few)
    wait = 40 if expected_cause(config, op, r) else duration(config, op, r) + 20
    start = max(rows, len(r.values))
    total = start + wait + rows + SRAM_READ
    number = np.arange(total)
    reading = number >= start + wait
    answer = bench.stream(
        {
            "load__en": number < rows,
            "load__addr": np.minimum(number, rows - 1) * few,
            "load__size": np.array([few]),
            "load__data": words,
            "core__cfg__en": number < len(r.values),
            "core__cfg__due": number < len(r.values),
            "core__cfg__group": 1 << np.minimum(number, len(r.values) - 1) // GROUP,
            "core__cfg__place": 1 << np.minimum(number, len(r.values) - 1) % GROUP,
            "core__cfg__value": np.array(r.values, np.int64),
            "core__start": number == start,
            "core__op": np.array([int(op)]),
            "core__go": number == start + CHECK,
            "dump__en": reading,
            "dump__addr": np.where(reading, np.minimum(number - start - wait, rows - 1), 0) * few,
        },
        ["core__cause", "core__reads", "core__writes", "core__done", "dump__data"],
    )
    cause, reads, writes = (int(answer[f"core__{name}"][start + CHECK]) for name in ("cause", "reads", "writes"))
    ends = np.flatnonzero(answer["core__done"]).tolist()
    assert len(ends) <= 1
    after = answer["dump__data"][-rows:, :few].reshape(-1)
    return Outcome(cause, reads, writes, ends[0] - start if ends else -1, after)


@pytest.mark.slow
@pytest.mark.parametrize("name", CONFIGS)
def test_rubbish(name: str, build_cache: Path) -> None:
    config = CONFIGS[name]
    modules = simulation_sources(config) | gated_sources()
    with Bench(WithMemory(config), cache=build_cache, extra=modules) as bench:
        bench.reset()
        bench.tick(2)  # the reset of gated blocks comes a cycle late
        for seed in range(150):
            rng = random.Random(seed)
            op, r = rubbish(config, rng)
            memory = image(config, seed)
            try:
                verilated(config, bench, op, r, memory).compare(config, op, r, memory)
            except AssertionError as error:
                raise AssertionError(f"seed {seed}: {op.name} {dict(zip(INDEX, r.values, strict=True))}") from error
