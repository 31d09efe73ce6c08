"""Random registers that array and vector unit share: windows over an input, and outputs."""

import random

from dovetail.isa.config.resolved import Config
from dovetail.isa.instructions.table import (
    REGISTERS,
    Unit,
    pack,
)

DATA_BYTES = 64 << 10
"""System memory, from BASE on, that random programs read and write."""

MASK = 0xFFFF_FFFF

Registers = dict[str, int]
"""Values of a unit's registers, all of them, by name."""


def window(rng: random.Random, config: Config, unit: Unit, channels: int, kh: int, kw: int) -> Registers:
    """Window, tile and quantisation registers over an input of ``channels`` bytes per pixel and tap."""
    height, width = rng.randint(1, 6), rng.randint(1, 8)
    stride_y, stride_x = rng.randint(1, 3), rng.randint(1, 3)
    dilation_y, dilation_x = rng.randint(1, 2), rng.randint(1, 2)
    pixel = channels + rng.choice((0, 0, 0, rng.randint(1, 9)))
    top, left = rng.randint(0, kh - 1), rng.randint(0, kw - 1)
    rows = (height - 1) * stride_y + (kh - 1) * dilation_y + 1 - top - rng.choice((0, 0, 1))
    columns = (width - 1) * stride_x + (kw - 1) * dilation_x + 1 - left - rng.choice((0, 0, 1))
    rows, columns = max(rows, 1), max(columns, 1)
    pitch = columns * pixel + rng.choice((0, 0, rng.randint(1, 20)))
    size = rows * pitch
    if rng.random() < 0.08:
        size = max(1, size - rng.randint(1, pitch))
    values = {
        "IN_ADDR": rng.randrange(config.sram),
        "IN_BYTES": size,
        "ORIGIN": -(top * pitch + left * pixel) & MASK,
        "Y_STEP": stride_y * pitch,
        "X_STEP": stride_x * pixel,
        "KY_STEP": dilation_y * pitch,
        "KX_STEP": dilation_x * pixel,
        "IN_ROWS": rows,
        "ROW_BYTES": columns * pixel,
        "PAD_TOP": top,
        "PAD_LEFT": left * pixel,
        "GEOMETRY": pack(unit, "GEOMETRY", kh=kh, kw=kw, stride_y=stride_y, dilation_y=dilation_y),
        "TILE": pack(unit, "TILE", height=height, width=width),
    }
    lo, hi = sorted((rng.randint(-128, 127), rng.randint(-128, 127)))
    if rng.random() < 0.7:
        lo, hi = -128, 127
    values["QUANT"] = pack(unit, "QUANT", zero_in=rng.randint(-128, 127), zero_out=rng.randint(-128, 127), lo=lo, hi=hi)
    return values


def output(
    rng: random.Random, config: Config, unit: Unit, values: Registers, count: int, last: int, lanes: int, item: int
) -> None:
    """Add the output registers for ``count`` blocks."""
    height, width = values["TILE"] & 0xFFFF, values["TILE"] >> 16
    pixel = ((count - 1) * lanes + last) * item
    x_step = pixel + rng.choice((0, 0, 0, rng.randint(1, 9)))
    y_step = width * x_step + rng.choice((0, 0, rng.randint(1, 30)))
    size = (height - 1) * y_step + (width - 1) * x_step + pixel
    if rng.random() < 0.08:
        size = max(1, size - rng.randint(1, pixel))
    values |= {
        "OUT_ADDR": rng.randrange(config.sram),
        "OUT_BYTES": size,
        "OUT_Y_STEP": y_step,
        "OUT_X_STEP": x_step,
        "BLOCKS": pack(unit, "BLOCKS", count=count, last=last),
    }


_STEPS = ("ORIGIN", "Y_STEP", "X_STEP", "KY_STEP", "KX_STEP", "IN_ROWS", "ROW_BYTES", "PAD_TOP", "PAD_LEFT")


def spoil(rng: random.Random, values: Registers) -> None:
    """Now and then, steps that no compiler would choose: still one defined outcome."""
    if rng.random() < 0.12:
        for name in rng.sample(_STEPS, rng.randint(1, 3)):
            values[name] = rng.choice((0, rng.randint(0, 300), rng.getrandbits(32), MASK - rng.randint(0, 99)))
    if rng.random() < 0.08:
        for name in rng.sample(("OUT_Y_STEP", "OUT_X_STEP"), rng.randint(1, 2)):
            values[name] = rng.choice((0, rng.randint(0, 300), rng.getrandbits(32)))


def random_multiplier(rng: random.Random, onnx: bool) -> tuple[int, int]:
    """(mult, shift), usually normalised and of a size that makes int8 of a sum."""
    if rng.random() < 0.1:
        return rng.getrandbits(31), rng.randint(-32, 31)
    least = 1 << (23 if onnx else 30)
    mult, shift = rng.randrange(least, 2 * least), rng.randint(-12, -2)
    # A quarter is at a corner: a power of two, which makes ties, and what is beside it. Which one the number drawn
    # decides, as elsewhere where only values change: a seed then stays the program that it was.
    corner = mult % 16
    if corner < 4:
        mult = (least, least, least + 1, 2 * least - 1)[corner]
    return mult, shift


def sequence(unit: Unit, values: Registers) -> list[int]:
    return [values[name] for name in REGISTERS[unit]]
