"""Random illegal programs: legal ones with something broken. Each still has one outcome."""

import random
from collections.abc import Callable, Sequence

from dovetail.isa.checks import View
from dovetail.isa.config import Config
from dovetail.isa.instructions import (
    BY_NUMBER,
    INSTRUCTIONS,
    PAGE_WORDS,
    REGISTERS,
    Op,
    Unit,
    cfg,
    pack,
)
from dovetail.isa.timing.engine import time_program
from dovetail.sw.hazards import races
from dovetail.sw.random_programs.programs import RandomProgram, build, finish
from dovetail.sw.random_programs.registers import (
    DATA_BYTES,
    DMA_OPS,
    MASK,
    operations,
    sequence,
)

Words = list[int]


def _bad_opcode(rng: random.Random, config: Config, words: Words) -> None:
    known = {int(op) for op in Op}
    words.insert(rng.randrange(len(words)), rng.choice([n for n in range(256) if n not in known]))


def _reserved_bit(rng: random.Random, config: Config, words: Words) -> None:
    n = rng.randrange(len(words))
    reserved = INSTRUCTIONS[Op(words[n] & 0xFF)].reserved
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
    missing = [op for op in (Op.POOL, Op.E_ADD, Op.DEPTH_CONV) if op not in operations(config)]
    if missing:
        words.insert(rng.randrange(len(words)), int(rng.choice(missing)))


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
    """A stripe or last block beyond what there is, or a weight stream off its alignment."""
    changes = {
        REGISTERS[Unit.ARRAY]["STRIPE"].number: rng.randint(config.stripe + 1, 127),
        REGISTERS[Unit.ARRAY]["BLOCKS"].number: pack(Unit.ARRAY, "BLOCKS", count=1, last=config.acc_lanes + 1),
        REGISTERS[Unit.ARRAY]["W_ADDR"].number: rng.randrange(config.sram_bytes) | 1,
        REGISTERS[Unit.ARRAY]["W_BYTES"].number: rng.randrange(3000) | 1,
        REGISTERS[Unit.VECTOR]["BLOCKS"].number: pack(Unit.VECTOR, "BLOCKS", count=1, last=config.vec + 1),
    }
    where = [n for n, w in enumerate(words) if w & 0xFF == Op.CFG and w >> 8 & 0xFF in changes]
    if where:
        n = rng.choice(where)
        words[n] = words[n] & MASK | changes[words[n] >> 8 & 0xFF] << 32


def _bus(rng: random.Random, config: Config, words: Words) -> None:
    """A transfer that leaves system memory, at its start or further on."""
    numbers = {REGISTERS[u]["MEM_ADDR"].number for u in (Unit.LOAD, Unit.STORE)}
    where = [n for n, w in enumerate(words) if w & 0xFF == Op.CFG and w >> 8 & 0xFF in numbers]
    if where:
        n = rng.choice(where)
        value = rng.choice((DATA_BYTES + 4096 * rng.randint(0, 4) - rng.randint(0, 300), rng.getrandbits(32)))
        words[n] = words[n] & MASK | value << 32


def _conflict(rng: random.Random, config: Config, words: Words) -> None:
    """An address of one region moved into the banks of another."""
    for _ in range(3):
        where = [n for n, w in enumerate(words) if w & 0xFF == Op.CFG]
        names = ("IN_ADDR", "OUT_ADDR", "SRAM_ADDR", "B_ADDR")
        where = [n for n in where if (r := BY_NUMBER.get(words[n] >> 8 & 0xFF)) and r.name in names]
        if where:
            n = rng.choice(where)
            words[n] = words[n] & MASK | rng.randrange(config.sram_bytes) << 32
    _drop_syncs(rng, config, words)


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
    "syncs": _drop_syncs,
    "swap": _swap,
    "fetch": _nothing,
}
"""Ways to break a program; each may also leave it legal."""

_MAX_CYCLES = 400_000


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
        if bounded(config, words) and settled(program):
            return program


def bounded(config: Config, words: Words) -> bool:
    """Whether no operation of the program is too large to simulate."""
    values = {unit: dict.fromkeys(registers, 0) for unit, registers in REGISTERS.items()}
    for word in words:
        code = word & 0xFF
        if code == Op.CFG and (register := BY_NUMBER.get(word >> 8 & 0xFF)):
            values[register.unit][register.name] = word >> 32
        elif code in Op.__members__.values() and (unit := INSTRUCTIONS[Op(code)].unit) is not None:
            view = View(unit, sequence(unit, values[unit]))
            if unit in DMA_OPS:
                work = view["LENGTH"] * view["COUNT", "rows"] * view["COUNT", "planes"]
            else:
                work = view["TILE", "height"] * view["TILE", "width"] * view["BLOCKS", "count"]
                work *= max(1, view["GEOMETRY", "kh"] * view["GEOMETRY", "kw"])
                work *= view["KC", "blocks"] if code in (Op.CONV, Op.CONV_RELU) else 1
            if work > 200_000:
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
    )
    return timeline.cycles <= _MAX_CYCLES and not races(program.config, timeline, program.base)
