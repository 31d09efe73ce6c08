"""Timing of the microcoded accelerator: words one after the other, each a number of microinstructions
(`hw.microcoded.microcode`).

A microinstruction takes :data:`STEP` cycles; those that read SRAM, sum up products or wait for the bus take longer. The
durations follow from an operation's registers, never from data.
"""

from dovetail.isa.common.sizes import ceil_div
from dovetail.isa.config.resolved import Config
from dovetail.isa.instructions.checks import View, has, kernel_columns, known, lanes_of, taps_at_once
from dovetail.isa.instructions.table import INSTRUCTIONS, REGISTERS, Cause, Op, Unit
from dovetail.isa.timing.sequencer import repeat

STEP = 2
"""Cycles of a microinstruction."""
READ = 3
"""Cycles of one that reads SRAM."""
SUMS = 4
"""Sums of products at once: int8 weights in a read of SRAM."""

FINISH = 28
"""Cycles from the last word, or the fault, to the end of the run."""
AFTER = {Unit.LOAD: 5, Unit.ARRAY: 4, Unit.STORE: 5}
"""Microinstructions from an operation's end to the next word."""
FAILED = 5
"""Microinstructions from the end of an operation that failed its checks to the end of the run; of one that the bus
answered with an error, one more."""
DECODED = 6
"""Microinstructions from a fetched word to the first comparison with an operation's code; then one for each of the
codes in the order of :func:`codes`, one for the reserved bits."""
CFG = 18
"""Microinstructions of a CFG, once fetched."""
SYNC = 17
"""Microinstructions of a SYNC, once fetched."""
CFG_FAULTS = {Cause.RESERVED: 4, Cause.REGISTER: 9, Cause.UNIT_ABSENT: 12}
"""Microinstructions to a fault of a CFG."""
CFG_OVERFLOW = 11
"""Microinstructions to RESERVED where it is the value's."""
SYNC_FAULTS = {Cause.RESERVED: 5, Cause.REGISTER: 9, Cause.UNIT_ABSENT: 11}
"""Microinstructions to a fault of a SYNC, if it is the unit's; one more if it is that of the one waited for."""

DMA_CHECKS = {Cause.ZERO_SIZE: 7, Cause.SRAM_RANGE: 10}
"""Microinstructions to the verdict of a check of a transfer."""
ARRAY_CHECKS = {
    Cause.ZERO_SIZE: 21,
    Cause.TOO_LARGE: 25,
    Cause.ALIGNMENT: 28,
    Cause.SRAM_RANGE: 35,
    Cause.BANK_CONFLICT: 63,
}
"""Microinstructions to the verdict of a check of a convolution, from those of :data:`PREFIX` on."""
VERDICT = 2
"""Microinstructions from there to the end of an operation that fails."""
SCALED = (44, 117)
"""Microinstructions from an int8 value's sum to its write, by MODE.rounding."""
PREFIX = {Op.CONV: 11, Op.CONV_RELU: 12, Op.DEPTH_CONV: 20}
"""Microinstructions before the checks."""

DEPTHWISE = 12
"""Microinstructions between checks and loops that a depthwise convolution has beside those of others."""


def start(config: Config) -> int:
    """Cycles from the first one of a run to its first word: registers and counters are cleared."""
    cleared = [len(REGISTERS[unit]) for unit in (Unit.LOAD, Unit.ARRAY, Unit.STORE)] + [16]
    return STEP * (5 + sum(2 + 3 * count for count in cleared))


def fetch(config: Config) -> int:
    """Cycles that it takes to read a word, in two beats."""
    memory = config.like_fixed
    second = max(2 * STEP + memory.read_latency, memory.beat_cycles)
    return 3 * STEP + memory.read_latency + second


def codes(config: Config) -> list[Op]:
    """Operations in the order in which a word is compared with them, END among them; those that are absent last."""
    present = [Op.CONV, Op.CONV_RELU, Op.DEPTH_CONV, Op.DMA_READ, Op.DMA_WRITE, Op.END]
    absent = [row.op for row in known(config) if not has(config, row.op)]
    return [op for op in present if has(config, op)] + absent


def fault_steps(config: Config, word: int, cause: Cause) -> int:
    """Microinstructions from a fetched word that is refused to the end of the run."""
    code, middle = word & 0xFF, word >> 8 & 0xFF
    if code == Op.CFG:
        overflow = cause == Cause.RESERVED and not word >> 16 & 0xFFFF
        steps = CFG_OVERFLOW if overflow else CFG_FAULTS[cause]
    elif code == Op.SYNC:
        bad = {Cause.RESERVED: True, Cause.REGISTER: middle > 3, Cause.UNIT_ABSENT: middle == Unit.VECTOR}[cause]
        steps = SYNC_FAULTS[cause] + (not bad)
    else:
        order = codes(config)
        steps = DECODED + (order.index(Op(code)) if code in order else len(order)) + 1
        if code in order:
            steps += 1 + (cause == Cause.UNIT_ABSENT)
    return steps + 2


def steps_to(config: Config, op: Op) -> int:
    """Microinstructions from a fetched word to the operation's first cycle, that one included; of END to the end."""
    return DECODED + codes(config).index(op) + 3


def _transfer(config: Config, op: Op, view: View) -> int:
    read = op == Op.DMA_READ
    memory = config.like_fixed
    beat = 23 * STEP + 2 + memory.read_latency if read else 18 * STEP + 4 * READ + 3 + memory.write_latency
    planes, rows, length = view["COUNT", "planes"], view["COUNT", "rows"], view["LENGTH"]
    row_step, plane_step = view["MEM_ROW_STEP"] % 4, view["MEM_PLANE_STEP"] % 4

    def row(lane: int) -> tuple[int, int]:
        return beat * ceil_div(lane + length, 4) + 7 * STEP, (lane + row_step) % 4

    def plane(lane: int) -> tuple[int, int]:
        cycles, _ = repeat(row, lane, rows)
        return cycles + 6 * STEP, (lane + plane_step) % 4

    cycles, _ = repeat(plane, view["MEM_ADDR"] % 4, planes)
    return cycles + STEP * (DMA_CHECKS[Cause.SRAM_RANGE] + 4)


def sums_together(config: Config, op: Op) -> int:
    """Output channels that are summed up at once: those whose weights for an input are one word."""
    return SUMS if not INSTRUCTIONS[op].depthwise and config.oc_lanes % SUMS == 0 else 1


def sum_cycles(*, rows: int, columns: int, lanes: int) -> int:
    """Cycles to the sums of a pixel's channels that are summed up at once: taps of ``lanes`` bytes, ``rows`` of
    ``columns``."""
    return 6 * STEP + rows * (7 * STEP + columns * (5 * STEP + 2 * lanes + 2))


def depthwise_sum_cycles(*, rows: int, groups: int, taps: int) -> int:
    """Cycles to the sum of a channel of a pixel: ``rows`` of kernels, each of ``groups`` of ``taps``."""
    return 8 * STEP + rows * (7 * STEP + groups * (8 * STEP + taps * (5 * STEP + 4)))


def value_cycles(*, onnx: bool, int32: bool, accumulate: bool) -> int:
    """Cycles of one output channel of one pixel, but for its sum."""
    result = 9 if int32 else SCALED[onnx]
    return STEP * (24 + result) + 3 * READ + accumulate * (6 * STEP + 4 * READ)


def array_cycles(
    op: Op, *, steps: int, height: int, width: int, blocks: int, channels: int, sums: int, sum_: int,
    onnx: bool, int32: bool, accumulate: bool,
) -> int:  # fmt: skip
    """Cycles from start to end of a convolution: ``channels`` in ``blocks``, with ``sums`` times sums of a pixel, each
    of which takes ``sum_`` cycles; ``steps`` microinstructions beside."""
    value = value_cycles(onnx=onnx, int32=int32, accumulate=accumulate)
    pixel = channels * value + sums * sum_
    steps += PREFIX[op] + ARRAY_CHECKS[Cause.BANK_CONFLICT] + 18 + blocks * (15 + height * (10 + width * 14))
    return STEP * steps + height * width * pixel


def microcoded_duration(config: Config, op: Op, view: View) -> int:
    """Cycles from start to end of an operation that passes its checks."""
    row = INSTRUCTIONS[op]
    if row.moves:
        return _transfer(config, op, view)
    blocks, last = view["BLOCKS", "count"], view["BLOCKS", "last"]
    lanes, together = lanes_of(config, op, view), sums_together(config, op)
    rows, columns = view["GEOMETRY", "kh"], view["GEOMETRY", "kw"]
    if row.depthwise:
        taps = taps_at_once(config, op, view)
        sum_ = depthwise_sum_cycles(rows=rows, groups=kernel_columns(config, op, view) // taps, taps=taps)
    else:
        sum_ = sum_cycles(rows=rows, columns=columns, lanes=view["KC", "blocks"] * config.ic_lanes)
    return array_cycles(
        op,
        steps=config.depth_conv + DEPTHWISE * row.depthwise,
        height=view["TILE", "height"],
        width=view["TILE", "width"],
        blocks=blocks,
        channels=(blocks - 1) * lanes + last,
        sums=(blocks - 1) * ceil_div(lanes, together) + ceil_div(last, together),
        sum_=sum_,
        onnx=bool(view["MODE", "rounding"]),
        int32=bool(view["MODE", "int32"]),
        accumulate=bool(view["MODE", "accumulate"]),
    )


def verified(op: Op, cause: Cause) -> int:
    """Cycles from start to end of an operation that fails a check."""
    checks = DMA_CHECKS if INSTRUCTIONS[op].moves else ARRAY_CHECKS
    return STEP * (PREFIX.get(op, 0) + checks[cause] + VERDICT)
