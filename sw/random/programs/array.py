"""Random registers of the array's operations, and weights for them."""

import random
from collections.abc import Mapping

from dovetail.isa.common.sizes import round_up
from dovetail.isa.config.resolved import COLUMN_TAPS, ROW_STEPS, Config
from dovetail.isa.instructions.checks import (
    View,
    array_lanes,
    lanes_of,
    longest_line,
    pairs_of,
    stream_words,
    weight_rows,
    weight_sets,
)
from dovetail.isa.instructions.table import (
    INSTRUCTIONS,
    REGISTERS,
    Op,
    Unit,
    pack,
)
from dovetail.sw.random.programs.walks import MASK, Registers, output, random_multiplier, sequence, spoil, window


def array_registers(rng: random.Random, config: Config, op: Op) -> Registers:
    """A convolution, depthwise convolution or matrix product."""
    unit, row = Unit.ARRAY, INSTRUCTIONS[op]
    mode, paired = _mode(rng, config, op)
    multiplier = 1 + mode["extra"] if row.depthwise else 1
    values = dict.fromkeys(REGISTERS[unit], 0) | {"MODE": pack(unit, "MODE", **mode)}
    sets = _sets(rng, config, op, mode, paired=paired)
    values["KC"] = pack(unit, "KC", blocks=1, group=sets - 1)
    lanes = lanes_of(config, op, View(unit, sequence(unit, values)))
    stripe = config.depthwise_pixels(sets) if row.depthwise else config.stripe
    kh, kw = _kernel(rng, config, op, mode)
    count, last = rng.randint(1, 3), rng.randint(1, lanes)
    if paired and config.result_pairs and rng.random() < 0.7:
        last = lanes  # the results of two pixels leave together
    channels = (count - 1) * lanes + last
    kc = rng.randint(1, max(1, min(3 + 2 * (config.weight_sets - 1), 48 // config.ic_lanes)))
    if row.depthwise:
        read, kc = -(-channels // multiplier), rng.randint(0, 3)
    else:
        read = max(1, kc * config.ic_lanes - rng.randint(0, config.ic_lanes - 1))
    rows = 1 + mode["rows"]
    values |= window(rng, config, unit, read, kh * rows, kw)
    if rows > 1:
        _in_rows(values, mode, kh, min(stripe, longest_line(config, mode["slide"])))
    if paired:
        height, width = values["TILE"] & 0xFFFF, values["TILE"] >> 16
        values["TILE"] = pack(unit, "TILE", height=height, width=round_up(width, 2))
    item = 4 if mode["int32"] or mode["accumulate"] else 1  # accumulation reads int32 slots whatever it writes
    output(rng, config, unit, values, count, last, lanes, item)
    values["KC"] = pack(unit, "KC", blocks=kc, group=sets - 1)
    view = View(unit, sequence(unit, values))
    if mode["slide"]:
        values["KX_STEP"] = values["X_STEP"] // mode["slide"]
        if rng.random() < 0.5:
            values["X_STEP"] = rng.randint(0, 300)
    stream = stream_words(config, op, view) * config.word_bytes
    if rng.random() < 0.08:
        stream = max(config.word_bytes, stream - rng.randint(0, 3) * config.word_bytes)
    values |= {
        "W_ADDR": rng.randrange(config.sram) // config.word_bytes * config.word_bytes,
        "W_BYTES": stream,
        "STRIPE": rng.choice((stripe, stripe if mode["rows"] else rng.randint(1, stripe))),
    }
    values |= _matrix(rng, config, kh * kw * kc * config.ic_lanes, channels)
    spoil(rng, values)
    if mode["columns"]:
        wide = mode["columns"] == 1 and config.has_wide_words and rng.random() < 0.5
        values["KX_STEP"] = config.acc_lanes * (1 + wide)
    if paired:
        values |= {"X_STEP": rng.randint(0, config.pair_step), "STRIPE": round_up(min(values["STRIPE"], stripe - 1), 2)}
    return values


def _mode(rng: random.Random, config: Config, op: Op) -> tuple[dict[str, int], bool]:
    """Fields of MODE, and whether two pixels share a read."""
    mode = {
        "rounding": rng.randint(0, 1),
        "int32": int(rng.random() < 0.2),
        "accumulate": int(rng.random() < 0.2),
        "extra": rng.choice((0, 0, rng.randint(0, 7))),
        "slide": 0,
        "pairs": int(rng.random() < 0.3 and config.stripe > 1),
        "columns": 0,
        "rows": 0,
        "skip": 0,
        "chain": 0,
    }
    if INSTRUCTIONS[op].depthwise:
        mode["extra"] = min(mode["extra"], config.oc_lanes - 1)
        mode["slide"] = rng.choice((0, 1, 1, 2))
        if config.word_columns > 1 and rng.random() < 0.3:
            beside = rng.randint(1, config.word_columns.bit_length() - 1)
            mode |= {"extra": 0, "slide": 1, "columns": beside}
        if config.kernel_rows > 1 and rng.random() < 0.4:
            mode |= {"extra": 0, "accumulate": 0, "slide": mode["slide"] or 1}
            mode |= {"rows": rng.randint(1, config.kernel_rows - 1), "skip": rng.randint(0, 3)}
            if rng.random() < 0.4:
                mode |= {"skip": rng.choice((0, 0, mode["skip"])), "chain": 1}
    values = dict.fromkeys(REGISTERS[Unit.ARRAY], 0) | {"MODE": pack(Unit.ARRAY, "MODE", **mode)}
    paired = pairs_of(config, op, View(Unit.ARRAY, sequence(Unit.ARRAY, values)))
    if paired:
        mode["accumulate"] = 0
    return mode, paired


def _sets(rng: random.Random, config: Config, op: Op, mode: Mapping[str, int], *, paired: bool) -> int:
    """How many sets of weights the array holds at the same time."""
    depthwise = INSTRUCTIONS[op].depthwise
    most = config.pair_sets if paired else config.weight_sets
    if depthwise:
        most = min(config.depthwise_sets, config.stripe_rows * config.pixel_lanes)
    sets = rng.randint(1, 1 if depthwise and mode["extra"] else most) if most > 1 else 1
    return config.pixel_lanes if mode["columns"] else sets


def _in_rows(values: Registers, mode: Mapping[str, int], kh: int, longest: int) -> None:
    """Make a window of several kernel rows in each of ``kh`` steps: lines are as far apart as these, in a chain as many
    of them as there are steps."""
    geometry, height, width = values["GEOMETRY"], values["TILE"] & 0xFFFF, values["TILE"] >> 16
    kw, dilation = geometry >> 8 & 0xFF, geometry >> 24
    line, step = (kh, 1) if mode["chain"] else (1, 1 + mode["rows"])
    values |= {
        "GEOMETRY": pack(Unit.ARRAY, "GEOMETRY", kh=kh, kw=kw, stride_y=line * dilation, dilation_y=step * dilation),
        "TILE": pack(Unit.ARRAY, "TILE", height=height, width=min(width, longest)),
        "Y_STEP": line * values["KY_STEP"],
        "KY_STEP": step * values["KY_STEP"],
    }


def _kernel(rng: random.Random, config: Config, op: Op, mode: Mapping[str, int]) -> tuple[int, int]:
    """(kh, kw)"""
    row = INSTRUCTIONS[op]
    if rows := mode["rows"]:
        return rng.randint(1, ROW_STEPS), COLUMN_TAPS if mode["columns"] else rng.choice(config.row_kernels(rows + 1))
    kh, kw = rng.choice((1, 1, 2, 3)), rng.choice((1, 1, 2, 3))
    if row.matrix and rng.random() < 0.7:
        kh = kw = 1
    if row.depthwise and rng.random() < 0.3:
        kw = rng.choice((4, 5, 7))
    return kh, COLUMN_TAPS if mode["columns"] else kw


def _matrix(rng: random.Random, config: Config, terms: int, channels: int) -> Registers:
    """The registers of a matrix of ``terms`` x ``channels``; operations other than MAT_MUL ignore them."""
    transposed = rng.randint(0, 1)
    rows, columns = (channels, terms) if transposed else (terms, channels)
    # The last block of terms is often not full, as the last one of channels.
    rows, columns = (max(1, n - rng.choice((0, 0, rng.randint(0, n)))) for n in (rows, columns))
    step = columns + rng.choice((0, 0, rng.randint(1, 9)))
    size = (rows - 1) * step + columns
    if rng.random() < 0.08:
        step = rng.choice((0, rng.randint(0, 300), rng.getrandbits(32), MASK - rng.randint(0, 99)))
    return {
        "B_ADDR": rng.randrange(config.sram),
        "B_BYTES": size,
        "B_STEP": step,
        "B_FORM": pack(Unit.ARRAY, "B_FORM", zero_b=rng.randint(-128, 127), transposed=transposed),
    }


def near_tie(drawn: int, shift: int) -> int:
    """A sum that a power of two and ``shift`` bring to a half between two int8, or beside one; or ``drawn`` itself."""
    if drawn % 2:
        return drawn
    drawn //= 2
    return ((drawn >> 3) % 511 - 255 << max(0, -shift)) + (0, 0, 0, 0, 1, -1, 2, -2)[drawn % 8]


def weight_stream(rng: random.Random, config: Config, op: Op, values: Registers) -> bytes:
    """Bytes for an ARRAY operation's weight stream: records that make sense, random weights."""
    view = View(Unit.ARRAY, sequence(Unit.ARRAY, values))
    lanes = array_lanes(config, op, view)
    words = weight_sets(config, op, view) * weight_rows(config, op, view)
    onnx = view["MODE", "rounding"] == 1
    stream = b""
    for _ in range(view["BLOCKS", "count"]):
        records = b""
        for _ in range(lanes):
            mult, shift = random_multiplier(rng, onnx)
            small, any_size = rng.randint(-20000, 20000), rng.randint(-(1 << 31), (1 << 31) - 1)
            bias = rng.choice((near_tie(small, shift), any_size))
            records += (bias & MASK).to_bytes(4, "little") + mult.to_bytes(4, "little")
            records += (shift & MASK).to_bytes(4, "little") + bytes(4)
        stream += records.ljust(config.param_rows(lanes) * config.word_bytes, b"\0")
        weights = rng.randbytes(words * config.word_bytes)
        # A quarter of the blocks scales biases alone.
        stream += bytes(len(weights)) if weights and weights[0] < 64 else weights
    return stream
