"""Random illegal programs: legal ones with something broken. Each still has one outcome."""

import random
from collections.abc import Callable, Iterator, Sequence

from dovetail.isa.config.given import MAX_PARAMETERS
from dovetail.isa.config.resolved import Config
from dovetail.isa.instructions.checks import Region, View, has, known, reserved_bits
from dovetail.isa.instructions.table import (
    BY_NUMBER,
    CFG_PARAM,
    DMA_OPS,
    INSTRUCTIONS,
    PAGE_WORDS,
    REGISTERS,
    Op,
    Unit,
    cfg,
    pack,
    pack_some,
    sync,
)
from dovetail.isa.timing.operations import Rule, rules_of
from dovetail.isa.timing.run import time_program
from dovetail.sw.compiler.emit.hazards import overwrites, races
from dovetail.sw.random.programs.dma import contiguous
from dovetail.sw.random.programs.legal import RandomProgram, build, finish
from dovetail.sw.random.programs.walks import DATA_BYTES, MASK, sequence

Words = list[int]


def _cfg_words(words: Words, names: Sequence[str]) -> list[int]:
    """Where registers of these names are written."""
    numbers = {number for number, register in BY_NUMBER.items() if register.name in names}
    return [n for n, w in enumerate(words) if w & 0xFF == Op.CFG and w >> 8 & 0xFF in numbers]


def operations_of(words: Words) -> Iterator[tuple[int, Op, View]]:
    """Every operation of a program: its place, its opcode, its unit's registers."""
    values = {unit: dict.fromkeys(registers, 0) for unit, registers in REGISTERS.items()}
    for n, word in enumerate(words):
        code = word & 0xFF
        if code == Op.CFG and (register := BY_NUMBER.get(word >> 8 & 0xFF)):
            values[register.unit][register.name] = word >> 32
        elif code in INSTRUCTIONS and (unit := INSTRUCTIONS[Op(code)].unit) is not None:
            yield n, Op(code), View(unit, sequence(unit, values[unit]))


def _bad_opcode(rng: random.Random, config: Config, words: Words) -> None:
    legal = {row.op for row in known(config)}
    words.insert(rng.randrange(len(words)), rng.choice([n for n in range(256) if n not in legal]))


def _reserved_bit(rng: random.Random, config: Config, words: Words) -> None:
    n = rng.randrange(len(words))
    reserved = reserved_bits(config, INSTRUCTIONS[Op(words[n] & 0xFF)])
    if words[n] & 0xFF == Op.CFG and 0 < config.parameters < MAX_PARAMETERS and rng.random() < 0.5:
        words[n] |= CFG_PARAM.put(rng.randint(config.parameters + 1, MAX_PARAMETERS))
    else:
        words[n] |= 1 << rng.choice([b for b in range(64) if reserved >> b & 1] or [16])


def _bad_register(rng: random.Random, config: Config, words: Words) -> None:
    unit = rng.choice(list(Unit))
    number = unit << 6 | rng.randrange(len(REGISTERS[unit]), 64)
    word = rng.choice((Op.CFG | number << 8, Op.SYNC | rng.randint(4, 255) << rng.choice((8, 16))))
    words.insert(rng.randrange(len(words)), int(word))


def _reserved_value(rng: random.Random, config: Config, words: Words) -> None:
    packed = [r for u in REGISTERS.values() for r in u.values() if r.mask != MASK]
    register = rng.choice(packed)
    bit = rng.choice([b for b in range(32) if not register.mask >> b & 1])
    words.insert(rng.randrange(len(words)), Op.CFG | register.number << 8 | 1 << 32 + bit)


def _absent(rng: random.Random, config: Config, words: Words) -> None:
    missing = [int(r.op) for r in known(config) if r.unit is not None and not has(config, r.op)]
    if not config.vector and rng.random() < 0.5:
        missing = [cfg(Unit.VECTOR, "IN_ADDR", 0), sync(Unit.VECTOR, Unit.LOAD), sync(Unit.LOAD, Unit.VECTOR)]
    if missing:
        words.insert(rng.randrange(len(words)), rng.choice(missing))


def _no_end(rng: random.Random, config: Config, words: Words) -> None:
    words.pop()
    while len(words) % PAGE_WORDS:
        words.append(cfg(Unit.STORE, "MEM_ADDR", rng.getrandbits(32)))


def _wild_value(rng: random.Random, config: Config, words: Words) -> None:
    """Another value in a CFG: zero sizes, regions out of range, misaligned weights, bus errors."""
    where = [n for n, w in enumerate(words) if w & 0xFF == Op.CFG]
    if not where:
        return
    for n in rng.sample(where, min(len(where), rng.randint(1, 4))):
        register = BY_NUMBER[words[n] >> 8 & 0xFF]
        if register.name in ("TILE", "COUNT", "LENGTH", "KC", "GEOMETRY", "BLOCKS"):
            value = 0 if rng.random() < 0.5 else (words[n] >> 32) ^ 1
        else:
            value = rng.choice((0, rng.randrange(DATA_BYTES), rng.getrandbits(32))) & register.mask
        words[n] = words[n] & MASK | value << 32


def _limits(rng: random.Random, config: Config, words: Words) -> None:
    """A stripe, last block or channel multiplier beyond what there is, or a weight stream off its alignment."""
    changes = {
        REGISTERS[Unit.ARRAY]["STRIPE"].number: rng.randint(config.stripe + 1, 1023),
        REGISTERS[Unit.ARRAY]["BLOCKS"].number: pack(Unit.ARRAY, "BLOCKS", count=1, last=255),
        REGISTERS[Unit.ARRAY]["W_ADDR"].number: rng.randrange(config.sram) | 1,
        REGISTERS[Unit.ARRAY]["W_BYTES"].number: rng.randrange(3000) | 1,
        REGISTERS[Unit.ARRAY]["MODE"].number: pack_some(Unit.ARRAY, "MODE", extra=7, slide=3, pairs=1),
        REGISTERS[Unit.VECTOR]["BLOCKS"].number: pack(Unit.VECTOR, "BLOCKS", count=1, last=config.vector_lanes + 1),
    }
    where = [n for n, w in enumerate(words) if w & 0xFF == Op.CFG and w >> 8 & 0xFF in changes]
    if where:
        n = rng.choice(where)
        words[n] = words[n] & MASK | changes[words[n] >> 8 & 0xFF] << 32


def _bus(rng: random.Random, config: Config, words: Words) -> None:
    """A transfer that leaves system memory, at its start or further on."""
    where = _cfg_words(words, ("MEM_ADDR",))
    if where:
        n = rng.choice(where)
        value = rng.choice((DATA_BYTES + 4096 * rng.randint(0, 4) - rng.randint(0, 300), rng.getrandbits(32)))
        words[n] = words[n] & MASK | value << 32


def _conflict(rng: random.Random, config: Config, words: Words) -> None:
    """Regions of different units moved into the same banks."""
    for _ in range(3):
        where = _cfg_words(words, ("IN_ADDR", "OUT_ADDR", "SRAM_ADDR", "B_ADDR"))
        if where:
            n = rng.choice(where)
            words[n] = words[n] & MASK | rng.randrange(config.sram) << 32
    _drop_syncs(rng, config, words)


def _own_way(rng: random.Random, config: Config, words: Words) -> None:
    """A region of an operation moved onto, or near, another one of it."""
    compute = [(n, view) for n, _, view in operations_of(words) if view.unit in (Unit.ARRAY, Unit.VECTOR)]
    if compute:
        n, view = rng.choice(compute)
        name, other = rng.choice((("IN", "OUT"), ("OUT", "IN"), ("OUT", "B"), ("B", "OUT"), ("IN", "B")))
        number = REGISTERS[view.unit][f"{name}_ADDR"].number
        where = [m for m in _cfg_words(words, (f"{name}_ADDR",)) if m < n and words[m] >> 8 & 0xFF == number]
        address = view[f"{other}_ADDR"] + rng.choice((0, rng.randint(-40, 40)))
        if where:
            words[where[-1]] = words[where[-1]] & MASK | (address % config.sram) << 32


def _race(rng: random.Random, config: Config, words: Words) -> None:
    """A transfer beside an operation: LOAD writes what it reads, or STORE reads what it writes."""
    candidates: list[tuple[int, Unit, Rule, Unit, Region]] = []
    for n, op, view in operations_of(words):
        rule = rules_of(config).find((op, tuple(view.values)))
        candidates += [(n, view.unit, rule, Unit.LOAD, space) for space in rule.sources if view.unit != Unit.LOAD]
        candidates += [(n, view.unit, rule, Unit.STORE, space) for space in rule.targets if view.unit != Unit.STORE]
    rng.shuffle(candidates)
    for n, unit, rule, other, (address, size) in candidates:
        length = rng.randint(1, 600)
        first = min(max(0, address + rng.randrange(size) - rng.randrange(length)), config.sram - length)
        values = contiguous(other, rng.randrange(DATA_BYTES - length), first, length)
        transfer = rules_of(config).find((DMA_OPS[other], tuple(sequence(other, values))))
        apart = not (rule.reads & transfer.reads or rule.writes & transfer.writes)
        if apart and rule.races(transfer):
            # Both wait for all that was before, so that they start at about the same time.
            units = [u for u in Unit if config.vector or u != Unit.VECTOR]
            before = [cfg(other, name, value) for name, value in values.items()]
            before += [sync(u, v) for v in units for u in (unit, other) if u != v]
            pair = [words[n], int(DMA_OPS[other])]
            words[n : n + 1] = before + rng.sample(pair, 2)
            return


def _drop_syncs(rng: random.Random, config: Config, words: Words) -> None:
    share = rng.choice((0.1, 0.5, 1.0))
    words[:] = [w for w in words if w & 0xFF != Op.SYNC or rng.random() >= share]


def _swap(rng: random.Random, config: Config, words: Words) -> None:
    if len(words) > 3:
        n = rng.randrange(len(words) - 2)
        words[n], words[n + 1] = words[n + 1], words[n]


def _nothing(rng: random.Random, config: Config, words: Words) -> None:
    """For what is broken elsewhere."""


BREAKS: dict[str, Callable[[random.Random, Config, Words], None]] = {
    "opcode": _bad_opcode,
    "reserved": _reserved_bit,
    "register": _bad_register,
    "value": _reserved_value,
    "absent": _absent,
    "end": _no_end,
    "wild": _wild_value,
    "limits": _limits,
    "bus": _bus,
    "conflict": _conflict,
    "own way": _own_way,
    "race": _race,
    "syncs": _drop_syncs,
    "swap": _swap,
    "fetch": _nothing,
}
"""Ways to break a program; each may also leave it legal."""

_MAX_CYCLES = 400_000
_MAX_WORK = 200_000
"""Bytes of a transfer, or taps times blocks of an operation."""


def illegal_program(
    rng: random.Random, config: Config, *, count: int = 8, ways: tuple[str, ...] = (), only: Sequence[Op] = ()
) -> RandomProgram:
    """A program broken in one or more of ``ways`` (names of :data:`BREAKS`; random when left out), of ``only`` these
    operations, if given.

    Now and then the outcome is legal all the same. Programs that race or last for ages are not returned.
    """
    while True:
        builder = build(rng, config, count, only)
        words = [*builder.words, int(Op.END)]
        chosen = ways or tuple(rng.sample(sorted(BREAKS), rng.choice((1, 1, 2))))
        for way in chosen:
            BREAKS[way](rng, config, words)
        program = finish(rng, builder, words, cut="fetch" in chosen)
        if bounded(config, program.resolved) and settled(program):
            return program


def bounded(config: Config, words: Words) -> bool:
    """Whether no operation of the program is too large to simulate."""
    for _, op, view in operations_of(words):
        if view.unit in DMA_OPS:
            work = view.moved
        else:
            work = view.pixels * view["BLOCKS", "count"]
            work *= max(1, view.taps)
            if view.unit == Unit.ARRAY and op != Op.DEPTH_CONV:
                work *= view["KC", "blocks"]
        if work > _MAX_WORK:
            return False
    return True


def settled(program: RandomProgram) -> bool:
    """Whether a program has one outcome, and soon."""
    timeline = time_program(
        program.config,
        list(program.words),
        address=program.program,
        base=program.base,
        memory_bytes=program.memory.size,
        parameters=program.parameters,
    )
    if timeline.cycles > _MAX_CYCLES or races(timeline, program.base):
        return False
    return not overwrites(timeline, program.program, program.pages, program.base)
