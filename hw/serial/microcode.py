"""The serial engine's microprogram: decoding, checks, transfers, convolution, requantisation.

Every path through an instruction takes a number of cycles that its registers decide, never its data: where a condition
splits the way, both ways are equally long. `isa.timing.serial` has the numbers.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain

from dovetail.hw.array_registers import MULTIPLIERS
from dovetail.hw.serial.assembler import TABLES, Action, Alu, Assembler, If, Special
from dovetail.isa.checks import has
from dovetail.isa.config import Config
from dovetail.isa.host import HOST_REGISTERS, ID, VERSION
from dovetail.isa.instructions import BY_NUMBER, INSTRUCTIONS, PAGE_WORDS, REGISTERS, Cause, Op, Unit
from dovetail.isa.numerics import ONNX_MULT_MASK
from dovetail.isa.timing.serial import sums_together

ADD, SUB, ADC, AND, OR, XOR = Alu.ADD, Alu.SUB, Alu.ADC, Alu.AND, Alu.OR, Alu.XOR
SHL, SHR, SAR, READ = Alu.SHL, Alu.SHR, Alu.SAR, Alu.READ
BELOW, NOT_BELOW = If.below(), If.not_below()

HOST = 128
"""Word of the host register at offset 0; the unit that would have its registers there is absent."""
RUN = ("CAUSE", "FAULT_PC")
"""Host registers that a run starts with at zero, beside the counters."""
WORD = 16
"""Bytes of an SRAM word."""


@dataclass(frozen=True)
class Tables:
    """Addresses of tables: the last register's index, by unit; by MODE.extra of a depthwise convolution, the output and
    input channels of a block."""

    counts: int
    lanes: int
    inputs: int


def build(config: Config) -> Assembler:
    """The microprogram of a configuration."""
    fixed = {f"{r.unit.name}.{name}": r.number for unit in REGISTERS.values() for name, r in unit.items()}
    fixed = {name: number for name, number in fixed.items() if number >> 6 != Unit.VECTOR}
    fixed |= {name: HOST + (r.offset >> 2) for name, r in HOST_REGISTERS.items()}
    used = [len(REGISTERS[unit]) for unit in (Unit.LOAD, Unit.ARRAY)]
    free = chain(range(used[0], 64), range(64 + used[1], 128), range(HOST + 32, 192))
    constants = chain(range(TABLES + used[0], TABLES + 64), range(TABLES + 64 + used[1], TABLES + 128))
    asm = Assembler(fixed, free, constants)
    multipliers = range(1, MULTIPLIERS + 1)
    tables = Tables(
        counts=asm.table([len(REGISTERS[unit]) - 1 for unit in Unit]),
        lanes=asm.table([config.dw - config.dw % multiplier for multiplier in multipliers]),
        inputs=asm.table([config.dw // multiplier for multiplier in multipliers]),
    )
    for register in BY_NUMBER.values():
        asm.tables[TABLES + register.number] = ~register.mask & 0xFFFF_FFFF
    for name, value in (
        ("ID", ID),
        ("VERSION", VERSION),
        ("CONFIG_HASH_LO", config.hash & 0xFFFF_FFFF),
        ("CONFIG_HASH_HI", config.hash >> 32),
    ):
        asm.tables[asm.address(name)] = value
    _start(asm)
    _decode(asm, config, tables)
    _dma(asm, config, Unit.LOAD)
    _dma(asm, config, Unit.STORE)
    _array(asm, config, tables)
    _ends(asm)
    return asm


def _zero(u: Assembler, first: int, count: int) -> None:
    """Zeroes neighbouring words."""
    u(ADD, "at", first, special=Special.INDEX)
    with u.repeat("n", count):
        u(ADD, "@")
        u(ADD, "at", "at", 1, special=Special.INDEX)


def _start(u: Assembler) -> None:
    """From reset to idle; the start of a run."""
    _zero(u, u.address("CAUSE"), HOST + 32 - u.address("CAUSE"))
    u.label("idle")
    u(ADD, action=Action.HALT)
    for unit in (Unit.LOAD, Unit.ARRAY, Unit.STORE):
        _zero(u, unit << 6, len(REGISTERS[unit]))
    _zero(u, u.address("LOAD_BUSY"), 16)
    u(ADD, "CAUSE")
    u(ADD, "FAULT_PC")
    u(ADD, "pc")
    u(SHL, "limit", "PAGES", PAGE_WORDS.bit_length() - 1)
    u(ADD, "word", "PROGRAM")


def _decode(u: Assembler, config: Config, tables: Tables) -> None:
    """One word: fetched, decoded, checked."""
    u.label("next")
    u(SUB, None, "pc", "limit", when=NOT_BELOW, to="NO_END")
    u(ADD, special=Special.CLEAR_FLAGS)
    u(READ, "low", "word", action=Action.READ)
    u(ADD, "word", "word", 4)
    u(READ, "high", "word", action=Action.READ)
    u(ADD, "word", "word", 4, when=If.BAD, to="BUS_FETCH")
    u(AND, "code", "low", 0xFF)
    u(SUB, None, "code", int(Op.CFG), when=If.ZERO, to="cfg")
    u(SUB, None, "code", int(Op.SYNC), when=If.ZERO, to="sync")
    u(SHR, "rest", "low", 8)
    u(OR, "rest", "rest", "high")
    for op in (Op.CONV, Op.CONV_RELU, Op.DEPTH_CONV, Op.DMA_READ, Op.DMA_WRITE, Op.END):
        if has(config, op):
            u(SUB, None, "code", int(op), when=If.ZERO, to=op.name)
    for op in INSTRUCTIONS:
        if op not in (Op.CFG, Op.SYNC, Op.END) and not has(config, op):
            u(SUB, None, "code", int(op), when=If.ZERO, to="missing")
    u(ADD, to="OPCODE")
    u.label("missing")
    u(ADD, None, "rest", when=If.NOT_ZERO, to="RESERVED")
    u(ADD, to="UNIT_ABSENT")

    u.label("cfg")
    u(SHR, None, "low", 16, when=If.NOT_ZERO, to="RESERVED")
    u(SHR, "number", "low", 8)
    u(SHR, "unit", "number", 6)
    u(ADD, None, "unit", tables.counts, special=Special.INDEX)
    u(AND, "n", "number", 63)
    u(SUB, None, "@", "n", when=BELOW, to="REGISTER")
    u(ADD, None, "number", TABLES, special=Special.INDEX)
    u(AND, None, "@", "high", when=If.NOT_ZERO, to="RESERVED")
    u(SUB, None, "unit", int(Unit.VECTOR), when=If.ZERO, to="UNIT_ABSENT")
    u(ADD, None, "number", special=Special.INDEX)
    u(ADD, "@", "high")
    u.label("count")
    u(SHL, "unit", "unit", 2)
    u(ADD, None, "unit", u.address("LOAD_CONFIG"), special=Special.INDEX)
    u(ADD, "@", "@", 1)
    u(ADD, "pc", "pc", 1, to="next")

    u.label("sync")
    u(SHR, None, "low", 24, when=If.NOT_ZERO, to="RESERVED")
    u(SHR, "on", "low", 16)
    u(SHR, "unit", "low", 8)
    u(AND, "unit", "unit", 0xFF)
    for name in ("unit", "on"):
        u(SUB, None, 3, name, when=BELOW, to="REGISTER")
    for name in ("unit", "on"):
        u(SUB, None, name, int(Unit.VECTOR), when=If.ZERO, to="UNIT_ABSENT")
    u(ADD, to="count")

    u.label("END")
    u(ADD, None, "rest", when=If.NOT_ZERO, to="RESERVED")
    u(ADD, to="finish")


def _begin(u: Assembler, unit: Unit) -> None:
    """An operation's first cycle; it has no reserved bits set."""
    u(ADD, None, "rest", when=If.NOT_ZERO, to="RESERVED")
    u(Alu.CYCLE, "since", "pc", action=Action.BEGIN, to=int(unit))


def _end(u: Assembler, unit: Unit) -> None:
    """An operation's last cycle."""
    u(Alu.CYCLE, "until", "pc", action=Action.END, to=int(unit))
    name = f"{unit.name}_BUSY"
    u(SUB, "until", "until", "since")
    u(ADD, "until", "until", 1)
    u(ADD, name, name, "until")


def _flag(u: Assembler, alu: Alu, a: object, b: object, when: If) -> None:
    """Sets the flag if a condition holds."""
    u(alu, None, a, b, when=when, mark=True)  # type: ignore[arg-type]


def _zeroes(u: Assembler, unit: Unit, names: Sequence[str | tuple[str, int, int]]) -> None:
    """The check ZERO_SIZE: registers, or (name, low, mask) of a field."""
    for name in names:
        if isinstance(name, tuple):
            u(SHR, "n", f"{unit.name}.{name[0]}", name[1])
            _flag(u, AND, "n", name[2], If.ZERO)
        else:
            _flag(u, ADD, f"{unit.name}.{name}", 0, If.ZERO)
    _checked(u, unit, Cause.ZERO_SIZE)


def _checked(u: Assembler, unit: Unit, cause: Cause) -> None:
    """A check's verdict."""
    u(ADD, when=If.FLAG, to=f"{unit.name}.{cause.name}")


def _range(u: Assembler, config: Config, unit: Unit, name: str, end: str) -> None:
    """The check SRAM_RANGE of a region, and its end."""
    u(ADD, end, f"{unit.name}.{name}_ADDR", f"{unit.name}.{name}_BYTES", when=If.CARRY, mark=True)
    _flag(u, SUB, config.sram_bytes, end, BELOW)


def _dma(u: Assembler, config: Config, unit: Unit) -> None:
    """DMA_READ or DMA_WRITE."""
    p = f"{unit.name}."
    read = unit == Unit.LOAD
    u.label((Op.DMA_READ if read else Op.DMA_WRITE).name)
    _begin(u, unit)
    _zeroes(u, unit, ["LENGTH", "SRAM_BYTES", ("COUNT", 0, 0xFFFF), ("COUNT", 16, 0xFFFF)])
    _range(u, config, unit, "SRAM", "end")
    _checked(u, unit, Cause.SRAM_RANGE)

    u(ADD, "plane", p + "MEM_ADDR", "BASE")
    u(ADD, "plane_off")
    u(SHR, "planes", p + "COUNT", 16)
    with u.repeat("planes"):
        u(ADD, "row", "plane")
        u(ADD, "row_off", "plane_off")
        u(AND, "rows", p + "COUNT", 0xFFFF)
        with u.repeat("rows"):
            u(ADD, "address", "row")
            u(ADD, "off", "row_off")
            u(ADD, "bytes", p + "LENGTH")
            u(AND, "lane", "address", 3)
            beat = u.fresh("beat")
            u.label(beat)
            u(AND, "at", "address", -4)
            if read:
                u(READ, "data", "at", action=Action.READ)
            u(SUB, "n", 4, "lane")
            u.choose(SUB, "n", "bytes", BELOW, (ADD, "size", "n"), (ADD, "size", "bytes"))
            u(SUB, "n", 4, "size")
            u(SHR, "mask", 15, "n")
            u(SHL, "mask", "mask", "lane")
            u(SUB, "n", "off", "lane")
            u(ADD, None, "n", p + "SRAM_ADDR", special=Special.POINTER)
            u(ADD, "off", "off", "size", when=If.CARRY, mark=True)
            _flag(u, SUB, p + "SRAM_BYTES", "off", BELOW)
            u(ADD, "address", "address", "size")
            u(ADD, "lane")
            if read:
                _flag(u, ADD, 0, 0, If.BAD)
                u.choose(ADD, 0, 0, If.FLAG, (ADD, "mask"), (ADD, "mask", "mask"))
                u(ADD, None, "mask", special=Special.MASK)
                for _ in range(4):
                    u(SHR, "data", "data", 8, action=Action.STORE_BYTE)
            else:
                for _ in range(4):
                    u(Alu.BYTE, "data", "data", action=Action.LOAD_BYTE)
                u.choose(ADD, 0, 0, If.FLAG, (ADD, "data"), (ADD, "data", "data"))
                u(ADD, None, "mask", special=Special.MASK)
                u(ADD, None, "at", "data", action=Action.WRITE)
            _unflag(u)
            u(SUB, "bytes", "bytes", "size", when=If.NOT_ZERO, to=beat)
            u(ADD, "row", "row", p + "MEM_ROW_STEP")
            u(ADD, "row_off", "row_off", p + "SRAM_ROW_STEP")
        u(ADD, "plane", "plane", p + "MEM_PLANE_STEP")
        u(ADD, "plane_off", "plane_off", p + "SRAM_PLANE_STEP")
    u.label(f"{unit.name}.worked")
    _end(u, unit)
    u(ADD, when=If.BAD, to="BUS_READ" if read else "BUS_WRITE")
    u(ADD, "pc", "pc", 1, to="next")


def _unflag(u: Assembler) -> None:
    """Clears the flag, and keeps what the bus answered."""
    u(ADD, special=Special.CLEAR_FLAGS, to=1)


def _apart(u: Assembler, a: str, a_end: str, b: str, b_end: str) -> None:
    """Sets the flag if a < b_end and b < a_end; four instructions."""
    no, end = u.fresh("no"), u.fresh("end")
    u(SUB, None, a, b_end, when=NOT_BELOW, to=no)
    _flag(u, SUB, b, a_end, BELOW)
    u(ADD, to=end)
    u.label(no)
    u.nop(2)
    u.label(end)


def _array(u: Assembler, config: Config, tables: Tables) -> None:
    """CONV, CONV_RELU, DEPTH_CONV."""
    ops = [op for op in (Op.CONV, Op.CONV_RELU, Op.DEPTH_CONV) if has(config, op)]
    for op in ops:
        u.label(op.name)
        _begin(u, Unit.ARRAY)
        depthwise = op == Op.DEPTH_CONV
        if op == Op.CONV:
            u(ADD, "low_clamp", -128)
            u(ADD, "high_clamp", 127)
        else:
            u(SHL, "low_clamp", "ARRAY.QUANT", 8)
            u(SAR, "low_clamp", "low_clamp", 24)
            u(SAR, "high_clamp", "ARRAY.QUANT", 24)
        if depthwise:
            u(SHR, "times", "ARRAY.MODE", 4)
            u(ADD, None, "times", tables.lanes, special=Special.INDEX)
            u(ADD, "lanes", "@")
            u(ADD, None, "times", tables.inputs, special=Special.INDEX)
            u(ADD, "inputs", "@")
            u(ADD, "times", "times", 1)
            u(ADD, "kc", 1)
            u(ADD, "lanes_read", 1)
            u(ADD, "records", WORD * config.dw)
            u(ADD, "together", 1)
            u(ADD, None, 1, special=Special.STRIDE)
        else:
            u(ADD, "times")
            u(ADD, "inputs")
            u(ADD, "lanes", config.oc)
            u(AND, "kc", "ARRAY.KC", 0xFFFF)
            u(ADD, "n", config.ic)
            u(Alu.MULLO, "lanes_read", "kc", "n")
            u(ADD, "records", WORD * config.oc)
            u(ADD, "together", sums_together(config, op))
            u(ADD, None, special=Special.STRIDE, to=None if op == ops[-1] else "array")

    u.label("array")
    _array_checks(u, config)
    _array_setup(u)
    _array_loops(u, config)


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
    for word in ("kc", "ARRAY.STRIPE", "ARRAY.IN_BYTES", "ARRAY.W_BYTES", "ARRAY.OUT_BYTES"):
        _flag(u, ADD, word, 0, If.ZERO)
    _checked(u, Unit.ARRAY, Cause.ZERO_SIZE)
    _flag(u, SUB, "lanes", "last", BELOW)
    _flag(u, SUB, config.stripe, "ARRAY.STRIPE", BELOW)
    _checked(u, Unit.ARRAY, Cause.TOO_LARGE)
    u(OR, "n", "ARRAY.W_ADDR", "ARRAY.W_BYTES")
    _flag(u, AND, "n", WORD - 1, If.NOT_ZERO)
    _checked(u, Unit.ARRAY, Cause.ALIGNMENT)
    regions = ("IN", "W", "OUT")
    for name in regions:
        _range(u, config, Unit.ARRAY, name, f"{name}.end")
    _checked(u, Unit.ARRAY, Cause.SRAM_RANGE)
    bank = config.bank_bytes.bit_length() - 1
    for name in regions:
        u(SHR, f"{name}.bank", f"ARRAY.{name}_ADDR", bank)
        u(SUB, "n", f"{name}.end", 1)
        u(SHR, "n", "n", bank)
        u(ADD, f"{name}.past", "n", 1)
    _apart(u, "ARRAY.IN_ADDR", "IN.end", "ARRAY.OUT_ADDR", "OUT.end")
    _apart(u, "ARRAY.W_ADDR", "W.end", "ARRAY.OUT_ADDR", "OUT.end")
    _apart(u, "IN.bank", "IN.past", "W.bank", "W.past")
    # Without `accumulate` the third pair is taken to be empty.
    u(AND, "accumulate", "ARRAY.MODE", 4)
    u.choose(ADD, "accumulate", 0, If.ZERO, (ADD, "n"), (ADD, "n", "OUT.past"))
    _apart(u, "W.bank", "W.past", "OUT.bank", "n")
    _checked(u, Unit.ARRAY, Cause.BANK_CONFLICT)


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
                    _channel(u)
                    u(ADD, "out", "out", "item")
                    u(ADD, "old", "old", 4)
                    u(ADD, "record", "record", WORD)
                    u(ADD, "stream", "stream", 1)
                    # The next input channel after `times` output channels.
                    u(ADD, "phase", "phase", 1)
                    u.choose(SUB, "phase", "times", If.ZERO, (ADD, "n", 1), (ADD, "n"))
                    u(ADD, "off", "off", "n")
                    u(ADD, "col", "col", "n")
                    u.choose(ADD, "n", 0, If.ZERO, (ADD, "phase", "phase"), (ADD, "phase"))
                u(ADD, "x_off", "x_off", "ARRAY.X_STEP")
                u(ADD, "x_col", "x_col", "ARRAY.X_STEP")
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
    _end(u, Unit.ARRAY)
    u(ADD, "pc", "pc", 1, to="next")


def _channel(u: Assembler) -> None:
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
    _flag(u, SUB, "ARRAY.OUT_BYTES", "n", BELOW)
    u.choose(ADD, 0, 0, If.FLAG, (ADD, "bias"), (ADD, "bias", "bias"))
    _unflag(u)
    u.label(summed)

    # As many sums as there are at once, or the next of those.
    known_sum = u.fresh("sum")
    u(SUB, "ready", "ready", 1, when=If.NOT_ZERO, to=known_sum)
    u(ADD, "ready", "together")
    u(ADD, None, "stream", special=Special.WEIGHTS)
    u(ADD, special=Special.CLEAR_SUM)
    u(ADD, "ky_row", "y_row")
    u(ADD, "ky_off", "off")
    with u.repeat("ky", "kh"):
        below = u.fresh("below")
        u(SUB, None, "ky_row", "ARRAY.IN_ROWS", when=BELOW, special=Special.ROW, to=below)
        u.label(below)
        u(ADD, "kx_col", "col")
        u(ADD, "kx_off", "ky_off")
        with u.repeat("kx", "kw"):
            u(ADD, None, "lanes_read", special=Special.LANES)
            u(ADD, None, "kx_off", "ARRAY.IN_ADDR", special=Special.POINTER)
            u(ADD, "kx_off", "kx_off", "ARRAY.KX_STEP", special=Special.OFFSET)
            u(ADD, "kx_col", "kx_col", "ARRAY.KX_STEP", special=Special.COLUMN)
            u(ADD, None, "ARRAY.IN_BYTES", "ARRAY.ROW_BYTES", action=Action.DOT)
        u(ADD, "ky_row", "ky_row", "dilation")
        u(ADD, "ky_off", "ky_off", "ARRAY.KY_STEP")
    u.label(known_sum)
    u(Alu.SUM, "value")
    u(ADD, "value", "value", "bias")

    # The write, if it lies wholly inside.
    u(ADD, "n", "out", "item", when=If.CARRY, mark=True)
    _flag(u, SUB, "ARRAY.OUT_BYTES", "n", BELOW)
    wide, written = u.fresh("wide"), u.fresh("written")
    u(ADD, None, "int32", when=If.NOT_ZERO, to=wide)
    onnx, scaled = u.fresh("onnx"), u.fresh("scaled")
    u(AND, None, "ARRAY.MODE", 1, when=If.NOT_ZERO, to=onnx)
    _scale_tflite(u, scaled)
    u.label(onnx)
    _scale_onnx(u)
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
    _unflag(u)


def _scale_tflite(u: Assembler, to: str) -> None:
    """``value`` scaled, as `isa.numerics.scale_tflite` does.

    With the product p, r = floor((p + c) / 2^(31 + right)) where c = 2^30 + 2^31 g and g = 2^(right - 1) less 1 for a
    negative value; g = 0 for right = 0.
    """
    u(SHL, "shift", "shift", 26)
    u(SAR, "shift", "shift", 26)
    u(SUB, "right", 0, "shift")
    left, shifted = u.fresh("left"), u.fresh("shifted")
    u(ADD, None, "shift", when=If.NEGATIVE, to=left)
    u(SHL, "value", "value", "shift")
    u(ADD, "right", to=shifted)
    u.label(left)
    u.nop(2)
    u.label(shifted)
    u(AND, "mult", "mult", 0x7FFF_FFFF)
    u(Alu.MULHI, "high", "value", "mult")
    u(Alu.MULLO, "low", "value", "mult")
    u.choose(ADD, "value", 0, If.NEGATIVE, (ADD, "sign", 1), (ADD, "sign"))
    u.choose(ADD, "sign", 0, If.ZERO, (ADD, "high", "high"), (SUB, "high", "high", "mult"))
    u(SUB, "n", "right", 1)
    u(SHL, "half", 1, "n")
    u(SUB, "half", "half", "sign")
    u.choose(ADD, "right", 0, If.ZERO, (ADD, "half"), (ADD, "half", "half"))
    u(ADD, "low", "low", 1 << 30)
    u(ADC, "high", "high")
    u(SHL, "sign", "half", 31)
    u(SHR, "half", "half", 1)
    u(ADD, "low", "low", "sign")
    u(ADC, "high", "high", "half")
    # right = 0: bits 62:31, which clamp as the upper half does where they are not all.
    whole = u.fresh("whole")
    u(ADD, None, "right", when=If.ZERO, to=whole)
    u(SAR, "value", "high", "n")
    u.nop(6, to=to)
    u.label(whole)
    u(SHR, "low", "low", 31)
    u(SHL, "value", "high", 1)
    u(XOR, "n", "value", "high")
    u(OR, "value", "value", "low")
    u.choose(ADD, "n", 0, If.NEGATIVE, (ADD, "value", "high"), (ADD, "value", "value"))
    u(ADD, to=to)


def _scale_onnx(u: Assembler) -> None:
    """``value`` scaled, as `isa.numerics.scale_onnx` does.

    Of the magnitude the 24 upper bits are kept, then of the product: k * 2^-s. With s <= 0 the result clamps, and so
    does k.
    """
    u(SHL, "shift", "shift", 26)
    u(SAR, "shift", "shift", 26)
    u(SUB, "right", 0, "shift")
    u.choose(ADD, "shift", 0, If.NEGATIVE, (ADD, "n"), (ADD, "n", "shift"))
    u.choose(ADD, "shift", 0, If.NEGATIVE, (ADD, "right", "right"), (ADD, "right"))
    u(SAR, "sign", "value", 31)
    u(XOR, "half", "sign", 0x7FFF_FFFF)
    u(SHL, "low", "value", "n")
    u(SAR, "n", "low", "n")
    u.choose(XOR, "n", "value", If.NOT_ZERO, (ADD, "value", "half"), (ADD, "value", "low"))
    u(XOR, "value", "value", "sign")
    u(SUB, "value", "value", "sign")

    for bits in (16, 8, 4, 2, 1):
        low, end = u.fresh("low"), u.fresh("end")
        u(SHR, None, "value", 32 - bits, when=If.ZERO, to=low)
        u.nop(2, to=end)
        u.label(low)
        u(SHL, "value", "value", bits)
        u(ADD, "right", "right", bits)
        u.label(end)
    u(AND, "n", "value", 0xFF)
    u(SHR, "value", "value", 8)
    u(AND, "half", "value", 1)
    u(ADD, "n", "n", "half")
    u(ADD, "n", "n", 0x7F)
    u(SHR, "n", "n", 8)
    u(ADD, "value", "value", "n")

    u(AND, "mult", "mult", ONNX_MULT_MASK)
    u(Alu.MULHI, "high", "value", "mult")
    u(Alu.MULLO, "low", "value", "mult")
    u(SHL, "high", "high", 16)
    u(SHR, "n", "low", 16)
    u(OR, "high", "high", "n")
    u(SHL, "low", "low", 16)
    for bits in (32, 16, 8, 4, 2, 1):
        small, end = u.fresh("small"), u.fresh("end")
        if bits == 32:
            u(ADD, None, "high", when=If.ZERO, to=small)
        else:
            u(SHR, None, "high", 32 - bits, when=If.ZERO, to=small)
        u.nop(5, to=end)
        u.label(small)
        if bits == 32:
            u(ADD, "high", "low")
            u(ADD, "low")
            u.nop(2)
        else:
            u(SHR, "n", "low", 32 - bits)
            u(SHL, "high", "high", bits)
            u(OR, "high", "high", "n")
            u(SHL, "low", "low", bits)
        u(ADD, "right", "right", bits)
        u.label(end)
    u(AND, "n", "high", 0xFF)
    u(SHL, "n", "n", 1)
    u.choose(ADD, "low", 0, If.ZERO, (ADD, "n", "n"), (ADD, "n", "n", 1))
    u(SHR, "value", "high", 8)
    u(AND, "half", "value", 1)
    u(ADD, "n", "n", "half")
    u(ADD, "n", "n", 0xFF)
    u(SHR, "n", "n", 9)
    u(ADD, "value", "value", "n")

    u(SUB, "right", "right", 8)
    u.choose(SUB, 31, "right", If.LESS, (ADD, "right", 31), (ADD, "right", "right"))
    u(SHR, "low", "value", "right")
    u(AND, "low", "low", 1)
    u(SUB, "n", "right", 1)
    u(SHL, "n", 1, "n")
    u(ADD, "n", "n", "low")
    u(SUB, "n", "n", 1)
    u(ADD, "n", "n", "value")
    u(SHR, "n", "n", "right")
    u.choose(SUB, "right", 1, If.LESS, (ADD, "value", "value"), (ADD, "value", "n"))
    u(XOR, "value", "value", "sign")
    u(SUB, "value", "value", "sign")


def _ends(u: Assembler) -> None:
    """Faults, and the end of a run."""
    for unit, causes in (
        (Unit.LOAD, (Cause.ZERO_SIZE, Cause.SRAM_RANGE)),
        (Unit.STORE, (Cause.ZERO_SIZE, Cause.SRAM_RANGE)),
        (Unit.ARRAY, (Cause.ZERO_SIZE, Cause.TOO_LARGE, Cause.ALIGNMENT, Cause.SRAM_RANGE, Cause.BANK_CONFLICT)),
    ):
        for cause in causes:
            u.label(f"{unit.name}.{cause.name}")
            u(ADD, "CAUSE", int(cause), to=f"{unit.name}.failed")
        u.label(f"{unit.name}.failed")
        _end(u, unit)
        u(ADD, to="fault")
    for cause in (Cause.OPCODE, Cause.RESERVED, Cause.REGISTER, Cause.UNIT_ABSENT, Cause.NO_END):
        u.label(cause.name)
        u(ADD, "CAUSE", int(cause), to="fault")
    u.label("BUS_FETCH")
    u(ADD, "CAUSE", int(Cause.BUS_FETCH))
    u(SHR, "FAULT_PC", "pc", PAGE_WORDS.bit_length() - 1, to="finish")
    for cause in (Cause.BUS_READ, Cause.BUS_WRITE):
        u.label(cause.name)
        u(ADD, "CAUSE", int(cause), to="fault")
    u.label("fault")
    u(ADD, "FAULT_PC", "pc")

    # The cycles that the run will have taken, and of each unit those in which it did nothing.
    u.label("finish")
    u(Alu.CYCLE, "CYCLES_HI", action=Action.CYCLE_HIGH)
    u(Alu.CYCLE, "n")
    u(SUB, "n", "n", 2)  # what it was when the upper half was read
    u(ADD, "CYCLES_LO", "n", FINISH)
    u(ADC, "CYCLES_HI", "CYCLES_HI")
    for unit in Unit:
        u(SUB, "n", "CYCLES_LO", f"{unit.name}_BUSY")
        u(SUB, f"{unit.name}_IDLE", "n", f"{unit.name}_CONFIG")
    u(ADD, None, "CAUSE", special=Special.FINISH, to="idle")


FINISH = 27
"""Cycles from the reading of the cycle counter to the end of the run."""
