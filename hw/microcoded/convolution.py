"""CONV, CONV_RELU and DEPTH_CONV as microprogram: checks, loops, sums, results."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from dovetail.hw.array.registers import MULTIPLIERS
from dovetail.hw.microcoded.assembler import Action, Alu, Assembler, If, Special
from dovetail.hw.microcoded.scaling import scale_onnx, scale_tflite
from dovetail.hw.microcoded.steps import (
    ADD,
    AND,
    BELOW,
    OR,
    READ,
    SAR,
    SHL,
    SHR,
    SUB,
    apart,
    begin,
    checked,
    end,
    flag,
    region,
    unflag,
)
from dovetail.isa.config.given import MICROCODED_WORD
from dovetail.isa.config.resolved import Config
from dovetail.isa.instructions.checks import built
from dovetail.isa.instructions.table import REGISTERS, Cause, Unit
from dovetail.isa.timing.microcoded.durations import sums_together

GROUP = next(field.mask for field in REGISTERS[Unit.ARRAY]["KC"].fields if field.name == "group")
"""Bits of KC that must be 0: the microcoded accelerator has one set of weights."""
REFUSED = GROUP | GROUP << 4
"""The same, with room for what of MODE it refuses."""


@dataclass(frozen=True)
class Tables:
    """Addresses of tables: the last register's index, by unit; by MODE.extra of a depthwise convolution, the output and
    input channels of a block."""

    counts: int
    lanes: int
    inputs: int


def convolution(u: Assembler, config: Config, tables: Tables) -> None:
    """CONV, CONV_RELU, DEPTH_CONV."""
    rows = built(config, Unit.ARRAY)
    for row in rows:
        u.label(row.op.name)
        begin(u, Unit.ARRAY)
        if row.full_range:
            u(ADD, "low_clamp", -128)
            u(ADD, "high_clamp", 127)
        else:
            u(SHL, "low_clamp", "ARRAY.QUANT", 8)
            u(SAR, "low_clamp", "low_clamp", 24)
            u(SAR, "high_clamp", "ARRAY.QUANT", 24)
        if row.depthwise:
            u(SHR, "times", "ARRAY.MODE", 4)
            u(AND, "times", "times", MULTIPLIERS - 1)
            u(ADD, None, "times", tables.lanes, special=Special.INDEX)
            u(ADD, "lanes", "@")
            u(ADD, None, "times", tables.inputs, special=Special.INDEX)
            u(ADD, "inputs", "@")
            u(ADD, "times", "times", 1)
            # What makes the operation fail its checks is marked in the place of a group and above it: one, a slide of
            # 3, or what is above the slide.
            u(SHR, "n", "ARRAY.MODE", 8)
            u(ADD, "n", "n", 1)
            u(SHL, "n", "n", 14)
            u(OR, "n", "n", "ARRAY.KC")
            u(AND, "n", "n", REFUSED)
            u(OR, "times", "times", "n")
            u(ADD, "kc", 1)
            u(ADD, "lanes_read", 1)
            u(ADD, "records", MICROCODED_WORD * config.oc_lanes)
            u(ADD, "together", 1)
        else:
            u(AND, "times", "ARRAY.KC", GROUP)  # 0 in an operation that passes its checks
            u(ADD, "inputs")
            u(ADD, "lanes", config.oc_lanes)
            u(AND, "kc", "ARRAY.KC", 0xFFFF, when=If.ZERO, mark=True)
            u(ADD, "n", config.ic_lanes)
            u(Alu.MULLO, "lanes_read", "kc", "n")
            u(ADD, "records", MICROCODED_WORD * config.oc_lanes)
            u(ADD, "together", sums_together(config, row.op))
            u(ADD, "x_step", "ARRAY.X_STEP", to=None if row == rows[-1] else "array")

    u.label("array")
    _array_checks(u, config)
    _array_setup(u)
    if config.depth_conv:
        u(ADD, None, "times", when=If.NOT_ZERO, to="depthwise")
        u.label("array.loops")
    _array_loops(u, config)
    if config.depth_conv:
        _depthwise_setup(u, config)
        _depthwise_sum(u)


def _array_checks(u: Assembler, config: Config) -> None:
    for name, register, low, mask in (
        ("height", "TILE", 0, 0xFFFF),
        ("width", "TILE", 16, 0xFFFF),
        ("count", "BLOCKS", 0, 0xFFFF),
        ("last", "BLOCKS", 16, 0xFF),
        ("kh", "GEOMETRY", 0, 0xFF),
        ("kw", "GEOMETRY", 8, 0xFF),
        ("stride_y", "GEOMETRY", 16, 0xFF),
        ("dilation", "GEOMETRY", 24, 0xFF),
    ):
        u(SHR, name, f"ARRAY.{register}", low)
        marks = name not in ("stride_y", "dilation")
        u(AND, name, name, mask, when=If.ZERO if marks else If.NEVER, mark=marks)
    for word in ("ARRAY.STRIPE", "ARRAY.IN_BYTES", "ARRAY.W_BYTES", "ARRAY.OUT_BYTES"):
        flag(u, ADD, word, 0, If.ZERO)
    checked(u, Unit.ARRAY, Cause.ZERO_SIZE)
    flag(u, SUB, "lanes", "last", BELOW)
    flag(u, SUB, config.stripe, "ARRAY.STRIPE", BELOW)
    flag(u, AND, "times", REFUSED, If.NOT_ZERO)
    checked(u, Unit.ARRAY, Cause.TOO_LARGE)
    u(OR, "n", "ARRAY.W_ADDR", "ARRAY.W_BYTES")
    flag(u, AND, "n", MICROCODED_WORD - 1, If.NOT_ZERO)
    checked(u, Unit.ARRAY, Cause.ALIGNMENT)
    regions = ("IN", "W", "OUT")
    for name in regions:
        region(u, config, Unit.ARRAY, name, f"{name}.end")
    checked(u, Unit.ARRAY, Cause.SRAM_RANGE)
    bank = config.bank_bytes.bit_length() - 1
    for name in regions:
        u(SHR, f"{name}.bank", f"ARRAY.{name}_ADDR", bank)
        u(SUB, "n", f"{name}.end", 1)
        u(SHR, "n", "n", bank)
        u(ADD, f"{name}.past", "n", 1)
    apart(u, "ARRAY.IN_ADDR", "IN.end", "ARRAY.OUT_ADDR", "OUT.end")
    apart(u, "ARRAY.W_ADDR", "W.end", "ARRAY.OUT_ADDR", "OUT.end")
    apart(u, "IN.bank", "IN.past", "W.bank", "W.past")
    # Without `accumulate` the third pair is taken to be empty.
    u(AND, "accumulate", "ARRAY.MODE", 4)
    u.choose(ADD, "accumulate", 0, If.ZERO, (ADD, "n"), (ADD, "n", "OUT.past"))
    apart(u, "W.bank", "W.past", "OUT.bank", "n")
    checked(u, Unit.ARRAY, Cause.BANK_CONFLICT)


def _array_setup(u: Assembler) -> None:
    """What stays the same."""
    u(ADD, None, "ARRAY.QUANT", special=Special.ZERO)
    u(ADD, None, "W.end", special=Special.WEIGHTS_END)
    u(SHL, "zero_out", "ARRAY.QUANT", 16)
    u(SAR, "zero_out", "zero_out", 24)
    u(SUB, "low_clamp", "low_clamp", "zero_out")
    u(SUB, "high_clamp", "high_clamp", "zero_out")
    u(AND, "int32", "ARRAY.MODE", 2)  # also the shift from channels to bytes
    u(SHL, "item", 1, "int32")
    u(Alu.MULLO, "n", "kh", "kw")
    u(Alu.MULLO, "n", "n", "kc")
    u(SHL, "n", "n", 4)
    u(ADD, "block_bytes", "n", "records")
    u(ADD, "weights", "ARRAY.W_ADDR")
    u(ADD, "block_out")
    u(ADD, "block_old")
    u(ADD, "block_in")
    u(SUB, "top", 0, "ARRAY.PAD_TOP")


def _array_loops(u: Assembler, config: Config) -> None:
    """Blocks, pixels, channels, taps."""
    with u.repeat("count"):
        u.choose(SUB, "count", 1, If.ZERO, (ADD, "channels", "last"), (ADD, "channels", "lanes"))
        u(ADD, "y_row", "top")
        u(ADD, "y_off", "ARRAY.ORIGIN", "block_in")
        u(ADD, "y_out", "block_out")
        u(ADD, "y_old", "block_old")
        u(SUB, "left_col", "block_in", "ARRAY.PAD_LEFT")
        with u.repeat("y", "height"):
            u(ADD, "x_off", "y_off")
            u(ADD, "x_col", "left_col")
            u(ADD, "x_out", "y_out")
            u(ADD, "x_old", "y_old")
            with u.repeat("x", "width"):
                u(ADD, "off", "x_off")
                u(ADD, "col", "x_col")
                u(ADD, "out", "x_out")
                u(ADD, "old", "x_old")
                u(ADD, "record", "weights")
                u(ADD, "stream", "weights", "records")
                u(ADD, "phase")
                u(ADD, "ready", 1)
                with u.repeat("channel", "channels"):
                    _channel(u, config)
                    u(ADD, "out", "out", "item")
                    u(ADD, "old", "old", 4)
                    u(ADD, "record", "record", MICROCODED_WORD)
                    u(ADD, "stream", "stream", 1)
                    # The next input channel after `times` output channels.
                    u(ADD, "phase", "phase", 1)
                    u.choose(SUB, "phase", "times", If.ZERO, (ADD, "n", 1), (ADD, "n"))
                    u(ADD, "off", "off", "n")
                    u(ADD, "col", "col", "n")
                    u.choose(ADD, "n", 0, If.ZERO, (ADD, "phase", "phase"), (ADD, "phase"))
                u(ADD, "x_off", "x_off", "x_step")
                u(ADD, "x_col", "x_col", "x_step")
                u(ADD, "x_out", "x_out", "ARRAY.OUT_X_STEP")
                u(ADD, "x_old", "x_old", "ARRAY.OUT_X_STEP")
            u(ADD, "y_row", "y_row", "stride_y")
            u(ADD, "y_off", "y_off", "ARRAY.Y_STEP")
            u(ADD, "y_out", "y_out", "ARRAY.OUT_Y_STEP")
            u(ADD, "y_old", "y_old", "ARRAY.OUT_Y_STEP")
        u(SHL, "n", "lanes", "int32")
        u(ADD, "block_out", "block_out", "n")
        u(SHL, "n", "lanes", 2)
        u(ADD, "block_old", "block_old", "n")
        u(ADD, "block_in", "block_in", "inputs")
        u(ADD, "weights", "weights", "block_bytes")
    u.label("ARRAY.worked")
    end(u, Unit.ARRAY)
    u(ADD, "pc", "pc", 1, to="next")


def _depthwise_setup(u: Assembler, config: Config) -> None:
    """What a depthwise convolution has beside: taps together, such groups of them in a row, their steps; the step from
    pixel to pixel; bytes of a block."""
    u.label("depthwise")
    u.choose(SUB, "kw", config.ic_lanes, BELOW, (ADD, "taps", "kw"), (ADD, "taps", config.ic_lanes))
    u(ADD, "n", "kw", config.ic_lanes - 1)
    u(SHR, "columns", "n", config.ic_lanes.bit_length() - 1)
    u(SHR, "n", "ARRAY.MODE", 8)
    x_step = (Alu.MULLO, "x_step", "n", "ARRAY.KX_STEP")
    u.choose(ADD, "n", 0, If.ZERO, (ADD, "x_step", "ARRAY.X_STEP"), x_step)
    u(Alu.MULLO, "taps_step", "taps", "ARRAY.KX_STEP")
    u(SUB, "reach", "taps_step", "ARRAY.KX_STEP")
    u(Alu.MULLO, "n", "kh", "columns")
    u(SHL, "n", "n", 4)
    u(ADD, "block_bytes", "n", "records", to="array.loops")


def _depthwise_sum(u: Assembler) -> None:
    """The sum of a depthwise convolution: a word of weights per group of taps, the last of which comes first."""
    u.label("depthwise.sum")
    u(ADD, "kernel_at", "stream")
    with _kernel_rows(u):
        u(ADD, "group_col", "col")
        u(ADD, "group_off", "ky_off")
        with u.repeat("group", "columns"):
            u(ADD, None, "kernel_at", special=Special.WEIGHTS)
            u(ADD, "kernel_at", "kernel_at", MICROCODED_WORD)
            u(ADD, "kx_col", "group_col", "reach")
            u(ADD, "kx_off", "group_off", "reach")
            with u.repeat("kx", "taps"):
                _tap(u, SUB)
            u(ADD, "group_off", "group_off", "taps_step")
            u(ADD, "group_col", "group_col", "taps_step")
    u(ADD, to="summed.up")


@contextmanager
def _kernel_rows(u: Assembler) -> Iterator[None]:
    """What follows is done for each row of a kernel, at its input row ``ky_row`` and its offset ``ky_off``."""
    u(ADD, "ky_row", "y_row")
    u(ADD, "ky_off", "off")
    with u.repeat("ky", "kh"):
        below = u.fresh("below")
        u(SUB, None, "ky_row", "ARRAY.IN_ROWS", when=BELOW, special=Special.ROW, to=below)
        u.label(below)
        yield
        u(ADD, "ky_row", "ky_row", "dilation")
        u(ADD, "ky_off", "ky_off", "ARRAY.KY_STEP")


def _tap(u: Assembler, onward: Alu) -> None:
    """Products of a tap, added up; then on to the next one, or back."""
    u(ADD, None, "lanes_read", special=Special.LANES)
    u(ADD, None, "kx_off", "ARRAY.IN_ADDR", special=Special.POINTER)
    u(onward, "kx_off", "kx_off", "ARRAY.KX_STEP", special=Special.OFFSET)
    u(onward, "kx_col", "kx_col", "ARRAY.KX_STEP", special=Special.COLUMN)
    u(ADD, None, "ARRAY.IN_BYTES", "ARRAY.ROW_BYTES", action=Action.DOT)


def _channel(u: Assembler, config: Config) -> None:
    """One value: its sum, its scaling, its write."""
    # Record; zero beyond the stream. Nobody needs more of a stream than 4 GiB.
    u(ADD, None, "record", special=Special.POINTER)
    for name in ("bias", "mult", "shift"):
        u(READ, name, action=Action.LOAD)
    inside, known = u.fresh("inside"), u.fresh("known")
    u(SUB, None, "record", "W.end", when=BELOW, to=inside)
    for name in ("bias", "mult", "shift"):
        u(ADD, name, to=known if name == "shift" else None)
    u.label(inside)
    u.nop(3)
    u.label(known)

    summed = u.fresh("summed")
    u(ADD, None, "accumulate", when=If.ZERO, to=summed)
    u(ADD, None, "old", "ARRAY.OUT_ADDR", special=Special.POINTER)
    for _ in range(4):
        u(Alu.BYTE, "bias", "bias", action=Action.LOAD_BYTE)
    u(ADD, "n", "old", 4, when=If.CARRY, mark=True)
    flag(u, SUB, "ARRAY.OUT_BYTES", "n", BELOW)
    u.choose(ADD, 0, 0, If.FLAG, (ADD, "bias"), (ADD, "bias", "bias"))
    unflag(u)
    u.label(summed)

    # As many sums as there are at once, or the next of those.
    known_sum = u.fresh("sum")
    u(SUB, "ready", "ready", 1, when=If.NOT_ZERO, to=known_sum)
    u(ADD, "ready", "together")
    u(ADD, None, "stream", special=Special.WEIGHTS)
    if config.depth_conv:
        u(ADD, None, "times", special=Special.CLEAR_SUM, when=If.NOT_ZERO, to="depthwise.sum")
    else:
        u(ADD, special=Special.CLEAR_SUM)
    with _kernel_rows(u):
        u(ADD, "kx_col", "col")
        u(ADD, "kx_off", "ky_off")
        with u.repeat("kx", "kw"):
            _tap(u, ADD)
    u.label("summed.up")
    u.label(known_sum)
    u(Alu.SUM, "value")
    u(ADD, "value", "value", "bias")

    # The write, if it lies wholly inside.
    u(ADD, "n", "out", "item", when=If.CARRY, mark=True)
    flag(u, SUB, "ARRAY.OUT_BYTES", "n", BELOW)
    wide, written = u.fresh("wide"), u.fresh("written")
    u(ADD, None, "int32", when=If.NOT_ZERO, to=wide)
    onnx, scaled = u.fresh("onnx"), u.fresh("scaled")
    u(AND, None, "ARRAY.MODE", 1, when=If.NOT_ZERO, to=onnx)
    scale_tflite(u, scaled)
    u.label(onnx)
    scale_onnx(u)
    u.label(scaled)
    u.choose(SUB, "high_clamp", "value", If.LESS, (ADD, "value", "high_clamp"), (ADD, "value", "value"))
    u.choose(SUB, "value", "low_clamp", If.LESS, (ADD, "value", "low_clamp"), (ADD, "value", "value"))
    u(ADD, "value", "value", "zero_out")
    u.choose(ADD, 0, 0, If.FLAG, (ADD, "n"), (ADD, "n", 1))
    u(ADD, None, "n", special=Special.MASK)
    u(ADD, None, "out", "ARRAY.OUT_ADDR", special=Special.POINTER)
    u(SHR, None, "value", 8, action=Action.STORE_BYTE, to=written)
    u.label(wide)
    u.choose(ADD, 0, 0, If.FLAG, (ADD, "n"), (ADD, "n", 15))
    u(ADD, None, "n", special=Special.MASK)
    u(ADD, None, "out", "ARRAY.OUT_ADDR", special=Special.POINTER)
    for _ in range(4):
        u(SHR, "value", "value", 8, action=Action.STORE_BYTE)
    u.label(written)
    unflag(u)
