"""Random legal programs: every operation of the configuration, with SYNCs from the hazard tracker."""

import random
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from dovetail.isa.common.sizes import ceil_div
from dovetail.isa.config.resolved import Config
from dovetail.isa.instructions.checks import View, check, regions
from dovetail.isa.instructions.parameters import resolve
from dovetail.isa.instructions.table import (
    BY_NUMBER,
    CFG_PARAM,
    CFG_REG,
    CFG_VALUE,
    DMA_OPS,
    INSTRUCTIONS,
    OPCODE,
    PAGE_BYTES,
    PAGE_WORDS,
    REGISTERS,
    Op,
    Unit,
    cfg,
    sync,
    to_bytes,
)
from dovetail.isa.timing.dma import Shape
from dovetail.sw.compiler.emit.hazards import Tracker
from dovetail.sw.random.programs.array import weight_stream
from dovetail.sw.random.programs.dma import contiguous, dma_registers
from dovetail.sw.random.programs.registers import legal_registers, operations
from dovetail.sw.random.programs.vector import norm_records, softmax_table
from dovetail.sw.random.programs.walks import DATA_BYTES, MASK, Registers, sequence


@dataclass(frozen=True)
class RandomProgram:
    """A program with the memory it runs in, which starts at address 0."""

    config: Config
    memory: npt.NDArray[np.uint8]
    program: int
    pages: int
    base: int
    words: tuple[int, ...]
    parameters: tuple[int, ...] = ()

    @property
    def arguments(self) -> tuple[int, int, int, tuple[int, ...]]:
        """What a run takes beside memory: program, pages, base, parameters."""
        return self.program, self.pages, self.base, self.parameters

    @property
    def resolved(self) -> list[int]:
        """The words as a run executes them."""
        found: list[int] = resolve(self.config, np.array(self.words, np.uint64), self.parameters).tolist()
        return found

    def fresh_memory(self) -> npt.NDArray[np.uint8]:
        """A copy of the memory, for a run."""
        return self.memory.copy()


@dataclass
class Builder:
    """Puts a program together; ``data`` is the system memory from BASE on."""

    config: Config
    rng: random.Random
    words: list[int] = field(default_factory=list)
    data: npt.NDArray[np.uint8] = field(default_factory=lambda: np.zeros(DATA_BYTES, np.uint8))

    def __post_init__(self) -> None:
        self.tracker = Tracker(self.config)
        self.current = {unit: dict.fromkeys(registers, 0) for unit, registers in REGISTERS.items()}
        self._constants = 0

    def emit(self, op: Op, values: Registers) -> None:
        """CFG words for what changes (and some that does not), SYNCs, the operation."""
        unit = INSTRUCTIONS[op].unit
        assert unit is not None
        view = View(unit, sequence(unit, values))
        spaces = regions(op, view)
        memory = (memory_span(view),) if unit in DMA_OPS else ()
        syncs = self.tracker.issue(
            unit,
            reads=spaces.reads,
            writes=spaces.writes,
            mem_reads=memory if unit == Unit.LOAD else (),
            mem_writes=memory if unit == Unit.STORE else (),
        )
        configs = []
        names = list(values)
        self.rng.shuffle(names)
        for name in names:
            if values[name] != self.current[unit][name] or self.rng.random() < 0.03:
                configs.append(cfg(unit, name, values[name]))
        self.current[unit] |= values
        first, second = (syncs, configs) if self.rng.random() < 0.3 else (configs, syncs)
        self.words += first + second
        if self.rng.random() < 0.05:
            on = self.rng.choice(_units(self.config))
            self.words.append(sync(unit, on, self.rng.choice((0, 1, 5, MASK))))
        self.words.append(int(op))

    def constant(self, content: bytes) -> int:
        """Place bytes in the lower half of the data area; what was there may be lost. Their address."""
        if self._constants + len(content) > DATA_BYTES // 2:
            self._constants = 0
        start = self._constants
        self._constants += len(content) + self.rng.choice((0, 0, 7, 64))
        self.data[start : start + len(content)] = np.frombuffer(content, np.uint8)
        return start

    def load(self, content_at: int, address: int, size: int) -> None:
        """LOAD of contiguous bytes."""
        self.emit(Op.DMA_READ, contiguous(Unit.LOAD, content_at, address, size))


def _units(config: Config) -> list[Unit]:
    return [u for u in Unit if config.vector or u != Unit.VECTOR]


def memory_span(view: View) -> tuple[int, int]:
    """(first byte, bytes) of system memory, relative to BASE, that a DMA touches (no address wraps)."""
    rows = list(Shape.of(view).starts())
    return min(rows), max(rows) + view["LENGTH"] - min(rows)


def _add_operation(builder: Builder, op: Op) -> None:
    rng, config = builder.rng, builder.config
    values = legal_registers(rng, config, op)
    if INSTRUCTIONS[op].unit == Unit.ARRAY and rng.random() < 0.7:
        stream = weight_stream(rng, config, op, values)[: values["W_BYTES"]]
        if len(stream) < DATA_BYTES // 4:
            at = builder.constant(stream)
            builder.load(at, values["W_ADDR"], len(stream))
    # Rows of one value, and records of any bytes, make an operation in passes return little of what it computes.
    passes, operands = bool(INSTRUCTIONS[op].passes), ["IN", "B"]
    if passes and rng.random() < 0.8:
        operands.remove("B")
        made = softmax_table(rng, values) if op == Op.SOFTMAX else norm_records(rng, config, op, values)
        table = made[: values["B_BYTES"]]
        builder.load(builder.constant(table), values["B_ADDR"], len(table))
    share = 0.8 if passes else 0.4
    for name in operands:
        size = values.get(f"{name}_BYTES", 0)
        if 0 < size < DATA_BYTES // 4 and values[f"{name}_ADDR"] + size <= config.sram and rng.random() < share:
            builder.load(rng.randrange(DATA_BYTES - size), values[f"{name}_ADDR"], size)
    builder.emit(op, values)
    if "OUT_ADDR" in values and rng.random() < 0.4:
        values = dma_registers(rng, config, Unit.STORE)
        values |= {"SRAM_ADDR": builder.current[INSTRUCTIONS[op].unit or Unit.ARRAY]["OUT_ADDR"]}
        view = View(Unit.STORE, sequence(Unit.STORE, values))
        if not check(config, Op.DMA_WRITE, view):
            builder.emit(Op.DMA_WRITE, values)


def build(rng: random.Random, config: Config, count: int, only: Sequence[Op] = ()) -> Builder:
    builder = Builder(config, rng)
    builder.data[:] = np.frombuffer(rng.randbytes(DATA_BYTES), np.uint8)
    ops = [op for op in operations(config) if not only or op in only]
    # The vector unit has many operations, but one or two of the array's, or those in passes, make a network.
    weights = [2 if INSTRUCTIONS[op].unit == Unit.ARRAY or INSTRUCTIONS[op].passes else 1 for op in ops]
    for op in rng.choices(ops, weights, k=count):
        _add_operation(builder, op)
    return builder


def parametrised(rng: random.Random, config: Config, words: list[int]) -> tuple[list[int], tuple[int, ...]]:
    """Words some of which name parameters, and values with which they are ``words`` again."""
    if not config.parameters:
        return words, ()
    count, share = rng.randint(0, config.parameters), rng.choice((0.05, 0.3, 0.8))
    kinds = ((0, 1), (0, 256), (MASK - 256, MASK + 1), (0, MASK + 1))
    values = tuple(rng.randrange(*rng.choice(kinds)) for _ in range(count))
    changed = []
    for word in words:
        register = BY_NUMBER.get(CFG_REG.get(word))
        if OPCODE.get(word) == Op.CFG and register is not None and rng.random() < share:
            number = rng.randint(1, config.parameters)
            added = values[number - 1] if number <= count else 0
            rest = CFG_VALUE.get(word) - added & register.mask
            if rest + added & register.mask == CFG_VALUE.get(word):
                word = word & ~CFG_VALUE.mask | CFG_PARAM.put(number) | CFG_VALUE.put(rest)
        changed.append(word)
    return changed, values


def finish(rng: random.Random, builder: Builder, words: list[int], *, cut: bool = False) -> RandomProgram:
    """Lay out memory: space below BASE, data, program. ``cut``: memory ends before the last page. If the configuration
    has parameters, some words get their values by them."""
    words, parameters = parametrised(rng, builder.config, words)
    base = 4096 * rng.randint(0, 3)
    pages = max(1, ceil_div(len(words), PAGE_WORDS))
    stream = to_bytes(words).ljust(pages * PAGE_BYTES, b"\0")
    gap = PAGE_BYTES * rng.randint(0, 3)
    program = base + DATA_BYTES + gap
    if cut:
        # The program starts below the end of memory; what is beyond is never read.
        program = base + DATA_BYTES + 4096 - PAGE_BYTES * rng.randint(0, min(pages - 1, 3))
        stream = stream[: base + DATA_BYTES + 4096 - program]
    size = program + len(stream)
    memory = np.zeros(ceil_div(size, 4096) * 4096, np.uint8)
    memory[base : base + DATA_BYTES] = builder.data
    memory[program:size] = np.frombuffer(stream, np.uint8)
    return RandomProgram(builder.config, memory, program, pages, base, tuple(words), parameters)


def legal_program(rng: random.Random, config: Config, *, count: int = 12, only: Sequence[Op] = ()) -> RandomProgram:
    """A program of ``count`` random operations (and the loads and stores around them) that runs to its END; ``only``
    these operations, if given.
    """
    builder = build(rng, config, count, only)
    return finish(rng, builder, [*builder.words, int(Op.END)])
