"""Random programs that end in a given fault: for every instruction each cause that it can raise."""

import random
from collections.abc import Iterator

from dovetail.isa.config.given import MAX_PARAMETERS
from dovetail.isa.config.resolved import Config
from dovetail.isa.instructions.checks import View, check, has, known, reserved_bits
from dovetail.isa.instructions.table import CFG_PARAM, INSTRUCTIONS, REGISTERS, Cause, Op, Unit, cfg, sync
from dovetail.isa.timing.run import time_program
from dovetail.sw.random.programs.broken import bounded, illegal_program, settled
from dovetail.sw.random.programs.legal import RandomProgram, build, finish
from dovetail.sw.random.programs.registers import legal_registers, operations
from dovetail.sw.random.programs.walks import DATA_BYTES, MASK, sequence

Target = tuple[Op, Cause]

_TRIES = 300
_RARE = {"softmax": 2, "norm": 2, "norm16": 6}
"""How many times as often the causes are tried of operations that few of many configurations have, by their feature."""


def checks_of(op: Op) -> Iterator[Cause]:
    """The causes that an operation of a unit can raise, bank claims, races and bus errors among them."""
    unit = INSTRUCTIONS[op].unit
    yield Cause.ZERO_SIZE
    if unit in (Unit.ARRAY, Unit.VECTOR):
        yield Cause.TOO_LARGE
    if unit == Unit.ARRAY:
        yield Cause.ALIGNMENT
    yield Cause.SRAM_RANGE
    yield Cause.BANK_CONFLICT
    yield Cause.RACE
    if unit == Unit.LOAD:
        yield Cause.BUS_READ
    if unit == Unit.STORE:
        yield Cause.BUS_WRITE


def targets(config: Config) -> list[Target]:
    """What a word can be refused for, and what an operation can fail on, in a configuration."""
    found = [(row.op, Cause.RESERVED) for row in known(config) if row.reserved]
    found += [(row.op, Cause.UNIT_ABSENT) for row in known(config) if not has(config, row.op)]
    found += [(op, Cause.REGISTER) for op in (Op.CFG, Op.SYNC)]
    if not config.vector:
        found += [(op, Cause.UNIT_ABSENT) for op in (Op.CFG, Op.SYNC)]
    for op in operations(config):
        found += [(op, cause) for cause in checks_of(op)] * _RARE.get(INSTRUCTIONS[op].feature or "", 1)
    return found


def targeted_program(rng: random.Random, config: Config, target: Target) -> RandomProgram | None:
    """A program that ends in a fault: ``target``'s instruction with its cause. None where none was found:
    in few banks, for instance, some instructions are in their own way before they are in another's."""
    for _ in range(_TRIES):
        program = _attempt(rng, config, *target)
        if program is None or ends_in(program) != target:
            continue
        if bounded(config, program.resolved) and settled(program):
            return program
    return None


def ends_in(program: RandomProgram) -> Target | None:
    """The instruction and the cause of the fault that a program ends in."""
    fault = time_program(
        program.config,
        program.words,
        address=program.program,
        base=program.base,
        memory_bytes=program.memory.size,
        parameters=program.parameters,
    ).fault
    if fault is None or fault.cause == Cause.BUS_FETCH or not fault.pc < len(program.words):
        return None
    code = program.words[fault.pc] & 0xFF
    return (Op(code), fault.cause) if code in INSTRUCTIONS else None


def _attempt(rng: random.Random, config: Config, op: Op, cause: Cause) -> RandomProgram | None:
    """A program that may end so."""
    unit = INSTRUCTIONS[op].unit
    if cause in (Cause.RACE, Cause.BANK_CONFLICT):
        others = [other for other in operations(config) if INSTRUCTIONS[other].unit != unit]
        ways = ("race",) if cause == Cause.RACE else ("conflict", "own way")
        return illegal_program(rng, config, count=3, ways=(rng.choice(ways),), only=(op, rng.choice(others)))
    builder = build(rng, config, rng.randint(0, 3))
    if cause in (Cause.RESERVED, Cause.REGISTER, Cause.UNIT_ABSENT):
        builder.words.insert(rng.randint(0, len(builder.words)), _bad_word(rng, config, op, cause))
    else:
        assert unit is not None
        builder.emit(op, legal_registers(rng, config, op))
        change = _change(rng, config, op, cause, builder.current[unit])
        if change is None:
            return None
        builder.words[-1:] = [change, int(op)]
    return finish(rng, builder, [*builder.words, int(Op.END)])


def _bad_word(rng: random.Random, config: Config, op: Op, cause: Cause) -> int:
    """A word that is refused."""
    unit = Unit.VECTOR if cause == Cause.UNIT_ABSENT else rng.choice(list(Unit))
    register = rng.choice(list(REGISTERS[unit].values()))
    word = int(op)
    if op == Op.CFG:
        word = cfg(unit, register.name, 0)
    elif op == Op.SYNC:
        waits, on = rng.sample((unit, rng.choice(list(Unit))), 2)
        word = sync(waits, on, rng.choice((0, 1, MASK)))
    if cause == Cause.RESERVED:
        if op == Op.CFG and 0 < config.parameters < MAX_PARAMETERS and rng.random() < 0.3:
            return word | CFG_PARAM.put(rng.randint(config.parameters + 1, MAX_PARAMETERS))
        unused = reserved_bits(config, INSTRUCTIONS[op])
        if op == Op.CFG and register.mask != MASK and rng.random() < 0.5:
            unused = (~register.mask & MASK) << 32
        return word | 1 << rng.choice([n for n in range(64) if unused >> n & 1])
    if cause == Cause.REGISTER and op == Op.SYNC:
        return int(Op.SYNC) | rng.randint(4, 255) << rng.choice((8, 16))
    if cause == Cause.REGISTER:
        return Op.CFG | (unit << 6 | rng.randrange(len(REGISTERS[unit]), 64)) << 8
    return word


def _change(rng: random.Random, config: Config, op: Op, cause: Cause, values: dict[str, int]) -> int | None:
    """A CFG word, of one field of the operation's registers, by which it fails with ``cause``."""
    unit = INSTRUCTIONS[op].unit
    assert unit is not None
    if cause in (Cause.BUS_READ, Cause.BUS_WRITE):
        return cfg(unit, "MEM_ADDR", rng.choice((DATA_BYTES + 4096 * rng.randint(0, 4), rng.getrandbits(32))))
    fields = [(r, field) for r in REGISTERS[unit].values() for field in (r.fields or (None,))]
    for _ in range(200):
        register, field = rng.choice(fields)
        old = values[register.name]
        value = rng.choice((0, rng.getrandbits(32), rng.randrange(2 * config.sram), old + 1))
        if field is not None:
            value = old & ~field.mask | (value << field.low & field.mask)
        value &= register.mask
        changed = View(unit, sequence(unit, values | {register.name: value}))
        if check(config, op, changed) == cause:
            return cfg(unit, register.name, value)
    return None
