"""The microcoded accelerator's microprogram: decoding, checks, transfers, convolution, requantisation.

Every path through an instruction takes a number of cycles that its registers decide, never its data: where a condition
splits the way, both ways are equally long. `isa.timing.microcoded.durations` has the numbers.
"""

from itertools import chain

from dovetail.hw.array.registers import MULTIPLIERS
from dovetail.hw.microcoded.assembler import TABLES, Action, Alu, Assembler, If, Special
from dovetail.hw.microcoded.convolution import Tables, convolution
from dovetail.hw.microcoded.steps import ADC, ADD, AND, BELOW, NOT_BELOW, OR, READ, SHL, SHR, SUB, end
from dovetail.hw.microcoded.transfer import transfer
from dovetail.isa.config.resolved import Config
from dovetail.isa.host import ID, VERSION, host_registers
from dovetail.isa.instructions.checks import has, known
from dovetail.isa.instructions.table import BY_NUMBER, PAGE_WORDS, REGISTERS, Cause, Op, Unit

HOST = 128
"""Word of the host register at offset 0; the unit that would have its registers there is absent."""
FINISH = 27
"""Cycles from the reading of the cycle counter to the end of the run."""


def build(config: Config) -> Assembler:
    """The microprogram of a configuration."""
    fixed = {f"{r.unit.name}.{name}": r.number for unit in REGISTERS.values() for name, r in unit.items()}
    fixed = {name: number for name, number in fixed.items() if number >> 6 != Unit.VECTOR}
    fixed |= {name: HOST + (r.offset >> 2) for name, r in host_registers().items()}
    used = [len(REGISTERS[unit]) for unit in (Unit.LOAD, Unit.ARRAY)]
    free = chain(range(used[0], 64), range(64 + used[1], 128), range(HOST + 32, 192))
    constants = chain(range(TABLES + used[0], TABLES + 64), range(TABLES + 64 + used[1], TABLES + 128))
    asm = Assembler(fixed, free, constants)
    multipliers = range(1, MULTIPLIERS + 1)
    tables = Tables(
        counts=asm.table([len(REGISTERS[unit]) - 1 for unit in Unit]),
        lanes=asm.table([config.oc_lanes - config.oc_lanes % multiplier for multiplier in multipliers]),
        inputs=asm.table([config.oc_lanes // multiplier for multiplier in multipliers]),
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
    transfer(asm, config, Unit.LOAD)
    transfer(asm, config, Unit.STORE)
    convolution(asm, config, tables)
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
    for row in known(config):
        if not has(config, row.op):
            u(SUB, None, "code", int(row.op), when=If.ZERO, to="missing")
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
        end(u, unit)
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
