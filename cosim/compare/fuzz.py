"""Random programs in lockstep: run them, shrink one that differs, keep it as a small text file."""

import json
import random
import zlib
from base64 import b85decode, b85encode
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from dovetail.cosim.compare.lockstep import Comparison, Lockstep
from dovetail.isa.common.sizes import ceil_div
from dovetail.isa.common.toml import parse_toml
from dovetail.isa.config.given import MemoryTiming
from dovetail.isa.config.memory import NAMES_OF_MEMORIES, Memory, memory_of
from dovetail.isa.config.resolved import Config
from dovetail.isa.instructions.assembler import assemble, disassemble
from dovetail.isa.instructions.parameters import check_values
from dovetail.isa.instructions.table import PAGE_BYTES, PAGE_WORDS, to_bytes
from dovetail.sw.random.programs.broken import bounded, illegal_program, settled
from dovetail.sw.random.programs.legal import RandomProgram, legal_program
from dovetail.sw.random.programs.targeted import targeted_program, targets
from dovetail.sw.runtime.engine import Bytes

ILLEGAL_SHARE = 0.3
"""How many of the programs are broken on purpose."""
TARGETED_SHARE = 0.3
"""How many are to end in a given fault of a given instruction."""


MOST_MEMORY = 1 << 24
"""Bytes of system memory of a saved program."""
_ENTRIES = {
    **dict.fromkeys(("program", "base", "memory_bytes", "sram_seed"), int),
    **dict.fromkeys(("data", "words", "config"), str),
}


@dataclass(frozen=True)
class Case:
    """A program to run in lockstep; ``sram_seed`` decides what SRAM holds before (0: zeros)."""

    program: RandomProgram
    sram_seed: int = 0

    def sram(self) -> Bytes:
        """SRAM before the run."""
        size = self.program.config.sram
        if not self.sram_seed:
            return np.zeros(size, np.uint8)
        return np.random.default_rng(self.sram_seed).integers(0, 256, size, np.uint8)

    def run(self, pair: Lockstep) -> Comparison:
        """Model and RTL on this case."""
        p = self.program
        pair.timing = p.config.memory
        return pair.run(p.memory, *p.arguments, sram=self.sram())


@dataclass(frozen=True)
class Failure:
    """A case in which model and RTL differ."""

    seed: int
    case: Case
    comparison: Comparison


def random_case(config: Config, seed: int, *, count: int = 10) -> Case:
    """The case of a seed: a legal program of ``count`` operations or so, an illegal one, or one with a given fault."""
    rng = random.Random(seed)
    share = rng.random()
    program = None
    if share < TARGETED_SHARE:
        program = targeted_program(rng, config, rng.choice(targets(config)))
    elif share < TARGETED_SHARE + ILLEGAL_SHARE:
        program = illegal_program(rng, config, count=rng.randint(1, count))
    if program is None:
        program = legal_program(rng, config, count=rng.randint(1, count))
    return Case(program, rng.choice((0, seed + 1)))


def random_timing(seed: int) -> MemoryTiming:
    """A memory timing, always the same for a seed."""
    rng = random.Random(~seed)
    return MemoryTiming(
        read_latency=rng.choice((1, 2, 10, 40, 100)),
        write_latency=rng.choice((1, 2, 20, 60)),
        beat_cycles=rng.choice((1, 1, 2, 3)),
    )


def random_memory(config: Config, seed: int) -> Memory:
    """A memory of any kind that a configuration may have, always the same for a seed."""
    rng = random.Random(f"memory {seed}")
    if config.serial or rng.random() < 0.5:
        return random_timing(seed)
    name, clock = rng.choice(NAMES_OF_MEMORIES[1:]), rng.choice((25, 40, 100, 333))
    return memory_of(f"{name}@{min(clock, 100) if name == 'sdram' else clock}MHz")


def fuzz(pair: Lockstep, seeds: range, *, count: int = 10) -> Iterator[Failure]:
    """Run the cases of ``seeds``; yields those that differ. Memory changes from case to case."""
    for seed in seeds:
        case = random_case(pair.config.replace(memory=random_memory(pair.config, seed)), seed, count=count)
        comparison = case.run(pair)
        if not comparison.equal:
            yield Failure(seed, case, comparison)


def with_words(program: RandomProgram, words: list[int]) -> RandomProgram:
    """The same memory with another program at the same place."""
    pages = max(1, ceil_div(len(words), PAGE_WORDS))
    memory = program.memory.copy()
    memory[program.program : program.program + program.pages * PAGE_BYTES] = 0
    text = np.frombuffer(to_bytes(words).ljust(pages * PAGE_BYTES, b"\0"), np.uint8)
    room = memory[program.program : program.program + len(text)]
    room[:] = text[: len(room)]
    return replace(program, memory=memory, pages=min(pages, program.pages), words=tuple(words))


def shrink(case: Case, fails: Callable[[Case], bool], *, tries: int = 400) -> Case:
    """A smaller case that still fails: fewer words, zeros in SRAM and memory. Like every case, it has one outcome."""
    left = tries

    def attempt(candidate: Case) -> bool:
        nonlocal left
        left -= 1
        program = candidate.program
        return left >= 0 and bounded(program.config, program.resolved) and settled(program) and fails(candidate)

    chunk = max(1, len(case.program.words) // 2)
    while chunk and left > 0:
        start = 0
        while start < len(case.program.words) and left > 0:
            words = list(case.program.words)
            del words[start : start + chunk]
            candidate = replace(case, program=with_words(case.program, words))
            if words and attempt(candidate):
                case = candidate
            else:
                start += chunk
        chunk //= 2
    left = max(left, 40)
    if case.sram_seed and attempt(candidate := replace(case, sram_seed=0)):
        case = candidate
    program = case.program
    memory = program.memory.copy()
    memory[: program.program] = 0
    if attempt(candidate := replace(case, program=replace(program, memory=memory))):
        return candidate
    memory[: program.program] = _filler(program.program)
    if attempt(candidate := replace(case, program=replace(program, memory=memory))):
        return candidate
    return case


def _filler(size: int) -> Bytes:
    """Bytes below the program that a file need not spell out."""
    return np.random.default_rng(0).integers(0, 256, size, np.uint8)


def save(path: Path, case: Case, comment: str) -> None:
    """Write a case as TOML with its program as assembly text."""
    program = case.program
    below = program.memory[: program.program]
    if not below.any():
        data = "zeros"
    elif np.array_equal(below, _filler(len(below))):
        data = "random"
    else:
        data = b85encode(zlib.compress(below.tobytes(), 9)).decode()
    lines = [f"# {line}" for line in comment.splitlines()]
    lines += [
        f"program = {program.program}",
        f"base = {program.base}",
        f"memory_bytes = {len(program.memory)}",
        f"sram_seed = {case.sram_seed}",
        f"data = {json.dumps(data)}",
        *([f"parameters = {list(program.parameters)}"] if program.parameters else []),
        "words = '''",
        disassemble(program.words).rstrip(),
        "'''",
        "config = '''",
        program.config.to_toml().rstrip(),
        "'''",
    ]
    path.write_text("\n".join(lines) + "\n")


def load(path: Path) -> Case:
    """Read what :func:`save` wrote. Raises ValueError for anything else; the text says what is wrong."""
    values = parse_toml(path.read_text(encoding="utf-8"))
    parameters = values.pop("parameters", [])
    if set(values) != set(_ENTRIES):
        raise ValueError(f"its entries must be {', '.join(_ENTRIES)}")
    for name, kind in _ENTRIES.items():
        if type(values[name]) is not kind:
            raise ValueError(f"{name} must be {'text' if kind is str else 'a whole number'}")
    size, place = values["memory_bytes"], values["program"]
    for name, value, most in (
        ("memory_bytes", size, MOST_MEMORY),
        ("program", place, size),
        ("base", values["base"], size),
        ("sram_seed", values["sram_seed"], 1 << 128),
    ):
        if not 0 <= value <= most:
            raise ValueError(f"{name} must be 0..{most}, not {value}")
    memory = np.zeros(size, np.uint8)
    memory[:place] = _below(values["data"], place)
    words = assemble(values["words"])
    pages = max(1, ceil_div(len(words), PAGE_WORDS))
    config = Config.from_toml(values["config"])
    if not isinstance(parameters, list) or not all(type(value) is int for value in parameters):
        raise ValueError("parameters must be a list of whole numbers")
    check_values(config, parameters)
    program = RandomProgram(config, memory, place, pages, values["base"], tuple(words), tuple(parameters))
    return Case(with_words(program, words), values["sram_seed"])


def _below(data: str, size: int) -> Bytes:
    """What a file says of the bytes below the program."""
    if data == "zeros":
        return np.zeros(size, np.uint8)
    if data == "random":
        return _filler(size)
    try:
        content = zlib.decompressobj().decompress(b85decode(data), size + 1)
    except zlib.error as error:
        raise ValueError(f"data must be zeros, random or compressed bytes: {error}") from None
    if len(content) != size:
        raise ValueError(f"data must be the {size} bytes below the program, not {len(content)} or more")
    return np.frombuffer(content, np.uint8)
