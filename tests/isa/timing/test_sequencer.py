"""The one-pass timing engine against a simulator that steps through docs/architecture.md cycle by cycle."""

import random
from collections import Counter, deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import combinations, product
from typing import Any

import numpy as np
import pytest

from dovetail.isa.config.resolved import Config
from dovetail.isa.instructions.checks import Region, View, check, claim, regions
from dovetail.isa.instructions.table import (
    INSTRUCTIONS,
    PAGE_BYTES,
    PAGE_WORDS,
    QUEUE_DEPTH,
    REGISTERS,
    Cause,
    Decoded,
    Op,
    Unit,
    cfg,
    decode,
    pack,
    sync,
)
from dovetail.isa.timing.dma import Shape, read_duration
from dovetail.isa.timing.operations import duration
from dovetail.isa.timing.run import time_program
from dovetail.isa.timing.sequencer import CHECK, END_TO_DONE, FIRST_ACTION, PAGE_READY, as_words, front_end_faults
from dovetail.isa.timing.timeline import FETCH
from dovetail.sw.random.programs.accelerators import random_config
from dovetail.sw.random.programs.broken import BREAKS, illegal_program
from dovetail.sw.random.programs.legal import RandomProgram, legal_program
from dovetail.sw.random.programs.registers import operations
from dovetail.sw.random.programs.walks import MASK

FRONT_END = 4

FEATURES = {
    "depth_conv": {Op.DEPTH_CONV},
    "matmul": {Op.MAT_MUL},
    "pooling": {Op.POOL},
    "elementwise": {Op.E_ADD, Op.E_MUL, Op.E_ABS, Op.C_MIN, Op.C_MAX, Op.E32_ADD, Op.E32_SHIFT, Op.REQUANT},
    "activation": {Op.ACT_RELU, Op.ACT_LRELU, Op.ACT_LUT},
    "softmax": {Op.SOFTMAX},
    "norm": {Op.NORM},
    "norm16": {Op.WIDEN, Op.NORM16, Op.NORM16_WIDE},
}
"""Operations that a configuration may lack."""


def lacks(config: Config, word: Decoded) -> bool:
    """Whether a word is about a unit or an operation that the configuration does not have."""
    if not config.vector and Unit.VECTOR in (word.unit, word.on):
        return True
    return any(word.op in ops and not getattr(config, name) for name, ops in FEATURES.items())


@dataclass
class Entry:
    kind: str  # cfg, wait, op, fetch
    pushed: int
    pc: int
    index: int = 0
    value: int = 0
    on: Unit = Unit.LOAD
    op: Op = Op.END


@dataclass
class UnitState:
    queue: deque[Entry] = field(default_factory=deque)
    registers: list[int] = field(default_factory=lambda: [0] * 64)
    entry: Entry | None = None
    start: int = 0
    end: int = -1
    view: View | None = None
    done: int = 0
    claimed: tuple[int, int] = (0, 0)
    reads: tuple[Region, ...] = ()
    writes: tuple[Region, ...] = ()
    pops: list[int] = field(default_factory=list)
    counts: Counter[str] = field(default_factory=Counter)


class Stepper:
    """Front end, queues and units, one cycle after the other."""

    def __init__(
        self, config: Config, words: list[int], address: int, base: int, memory: int, parameters: Sequence[int] = ()
    ) -> None:
        self.parameters = [0, *parameters, *[0] * (config.parameters - len(parameters))]
        self.config, self.address, self.base, self.memory = config, address, base, memory
        self.words = as_words(words).tolist()
        self.pages = len(self.words) // PAGE_WORDS
        self.units = {u: UnitState() for u in Unit}
        self.dispatched = dict.fromkeys(Unit, 0)
        self.entries: list[tuple[int, int, int, int, int, bool]] = []
        self.fetch_end: dict[int, int] = {}
        self.fault: tuple[Cause, int] | None = None
        self.released: list[UnitState] = []
        self.next = 0
        self.opening, self.prefetched, self.stopped = True, False, False

    def bus_error(self, op: Op, view: View) -> bool:
        return any(row + view["LENGTH"] > self.memory for row in Shape.of(view, self.base).starts())

    def push(self, unit: Unit, entry: Entry, now: int) -> bool:
        """Whether there was a place: one that was popped in this cycle does not count."""
        state = self.units[unit]
        taken = len(state.queue) + (bool(state.pops) and state.pops[-1] == now)
        if taken >= QUEUE_DEPTH:
            return False
        state.queue.append(entry)
        return True

    def front_end(self, now: int) -> tuple[Cause, int] | None:
        """One action. The next thing to do is a fetch, or the word ``self.next``."""
        page, at = divmod(self.next, PAGE_WORDS)
        if self.opening:
            self.opening = not self.push(Unit.LOAD, Entry("fetch", now, 0), now)
            return None
        if page < self.pages and not (page in self.fetch_end and now >= self.fetch_end[page] + PAGE_READY):
            return None
        if at == 0 and page + 1 < self.pages and not self.prefetched:
            self.prefetched = self.push(Unit.LOAD, Entry("fetch", now, page + 1), now)
            return None
        if page >= self.pages:
            return Cause.NO_END, self.next
        d = decode(self.words[self.next])
        if d.fault == Cause.RESERVED or d.param >= len(self.parameters):
            return Cause.RESERVED, self.next
        if d.fault:
            return d.fault, self.next
        if lacks(self.config, d):
            return Cause.UNIT_ABSENT, self.next
        if d.op == Op.END:
            self.stopped = True
            return None
        assert d.unit is not None
        assert d.op is not None
        if d.op == Op.CFG:
            assert d.register is not None
            entry = Entry(
                "cfg", now, self.next, index=d.register.index, value=d.value + self.parameters[d.param] & MASK
            )
        elif d.op == Op.SYNC:
            assert d.on is not None
            target = max(0, self.dispatched[d.on] - d.value)
            entry = Entry("wait", now, self.next, value=target, on=d.on)
        else:
            entry = Entry("op", now, self.next, op=d.op)
        if self.push(d.unit, entry, now):
            self.dispatched[d.unit] += entry.kind == "op"
            self.next += 1
            self.prefetched = False
        return None

    def run(self, limit: int = 2_000_000) -> int:
        last = 0
        halted = False
        for now in range(limit):
            faults: list[tuple[int, Cause, int]] = []
            before = {u: s.done for u, s in self.units.items()}  # completions that show in this cycle
            self.released = []
            for u, state in self.units.items():
                if state.entry is None:
                    self.idle(u, state, now, halted, before)
                if state.entry is not None:
                    state.counts["busy"] += 1
                    last = now
                    fault = self.work(u, state, now)
                    if fault:
                        faults.append((u, *fault))
                elif state.pops and state.pops[-1] == now:
                    last = now
            for state in self.released:
                state.claimed, state.reads, state.writes = (0, 0), (), ()
            if not halted and not self.stopped and now >= FIRST_ACTION:
                fault = self.front_end(now)
                if fault:
                    faults.append((FRONT_END, *fault))
                if self.stopped or fault:
                    last = now
            if faults and not halted:
                _, cause, pc = min(faults)
                self.fault = (cause, pc)
                halted = True
                last = max(last, now)
            empty = all(not s.queue for s in self.units.values())
            if all(s.entry is None for s in self.units.values()) and (halted or (self.stopped and empty)):
                return last + END_TO_DONE
        raise AssertionError(f"program must end within {limit} cycles")

    def idle(self, unit: Unit, state: UnitState, now: int, halted: bool, done: dict[Unit, int]) -> None:
        if halted or not state.queue or state.queue[0].pushed >= now:
            return
        head = state.queue[0]
        if head.kind == "wait" and done[head.on] < head.value:
            state.counts["token"] += 1
            return
        state.queue.popleft()
        state.pops.append(now)
        if head.kind in ("cfg", "wait"):
            state.counts["config"] += 1
            if head.kind == "cfg":
                state.registers[head.index] = head.value
            return
        state.entry, state.start = head, now
        if head.kind == "fetch":
            state.end = now + read_duration(self.config, Shape(0, 1, 1, 0, 0, PAGE_BYTES))
        else:
            state.view = View(unit, state.registers[: len(REGISTERS[unit])].copy())
            state.end = 0  # not known before it is verified

    def work(self, unit: Unit, state: UnitState, now: int) -> tuple[Cause, int] | None:
        entry = state.entry
        assert entry is not None
        if entry.kind == "op" and now == state.start + CHECK:
            assert state.view is not None
            cause = check(self.config, entry.op, state.view)
            if not cause:
                claims = claim(self.config, entry.op, state.view)
                spaces = regions(entry.op, state.view)
                others = [s for u, s in self.units.items() if u != unit]
                taken = any(claims.reads & s.claimed[0] or claims.writes & s.claimed[1] for s in others)
                pairs = [pair for s in others for pair in product(spaces.reads, s.writes)]
                pairs += [pair for s in others for pair in product(spaces.writes, s.reads)]
                if taken or claims.twice:
                    cause = Cause.BANK_CONFLICT
                elif any(max(a, b) < min(a + m, b + n) for (a, m), (b, n) in pairs):
                    cause = Cause.RACE
                else:
                    state.claimed = (claims.reads, claims.writes)
                    state.reads, state.writes = spaces.reads, spaces.writes
                    state.end = state.start + duration(self.config, entry.op, state.view)
            if cause:
                self.finish(unit, state, now, works=False)
                return cause, entry.pc
        if now != state.end:
            return None
        error = None
        if entry.kind == "fetch":
            if (self.address + (entry.pc + 1) * PAGE_BYTES) > self.memory:
                error = Cause.BUS_FETCH
            else:
                self.fetch_end[entry.pc] = now
        elif entry.op in (Op.DMA_READ, Op.DMA_WRITE):
            assert state.view is not None
            if self.bus_error(entry.op, state.view):
                error = Cause.BUS_READ if entry.op == Op.DMA_READ else Cause.BUS_WRITE
        self.finish(unit, state, now, works=True)
        return (error, entry.pc) if error else None

    def finish(self, unit: Unit, state: UnitState, now: int, *, works: bool) -> None:
        entry = state.entry
        assert entry is not None
        op = FETCH if entry.kind == "fetch" else int(entry.op)
        self.entries.append((int(unit), op, entry.pc, state.start, now, works))
        state.entry = None
        self.released.append(state)  # the ports are held up to and including this cycle
        state.done += works and entry.kind == "op"


def verify(
    config: Config, words: list[int], address: int, base: int, memory: int, parameters: Sequence[int] = ()
) -> Cause:
    """Both ways of timing agree; the cause."""
    stepper = Stepper(config, words, address, base, memory, parameters)
    cycles = stepper.run()
    timeline = time_program(config, words, address=address, base=base, memory_bytes=memory, parameters=parameters)
    columns = (timeline.unit, timeline.op, timeline.pc, timeline.start, timeline.end, timeline.works)
    entries = list(zip(*(c.tolist() for c in columns), strict=True))
    assert sorted(entries) == sorted(stepper.entries)
    fault = (timeline.fault.cause, timeline.fault.pc) if timeline.fault else None
    assert fault == stepper.fault
    assert timeline.cycles == cycles
    for unit, state in stepper.units.items():
        c = timeline.counters[unit]
        assert (c.busy, c.config, c.token) == tuple(state.counts[k] for k in ("busy", "config", "token"))
        assert c.busy + c.config + c.token + c.idle == cycles
    return stepper.fault[0] if stepper.fault else Cause.NONE


@pytest.mark.parametrize("seed", range(25))
def test_legal_programs(seed: int) -> None:
    rng = random.Random(seed)
    config = random_config(rng)
    p = legal_program(rng, config)
    assert verify(config, list(p.words), p.program, p.base, p.memory.size) == Cause.NONE


def test_illegal_programs_with_every_cause() -> None:
    found = Counter[Cause]()
    for seed in range(250):
        rng = random.Random(seed)
        config = random_config(rng)
        p = illegal_program(rng, config, count=4)
        found[verify(config, list(p.words), p.program, p.base, p.memory.size)] += 1
    assert set(found) == set(Cause), found


@pytest.mark.parametrize("make", [legal_program, illegal_program])
@pytest.mark.parametrize("parameters", [1, 4, 15])
def test_programs_with_parameters(parameters: int, make: Callable[..., RandomProgram]) -> None:
    for seed in range(4):
        rng = random.Random(f"{seed} {parameters}")
        p = make(rng, random_config(rng).replace(parameters=parameters), count=4)
        verify(p.config, list(p.words), p.program, p.base, p.memory.size, p.parameters)


def test_a_parameter_that_is_not_built() -> None:
    end = int(Op.END)
    word = cfg(Unit.LOAD, "LENGTH", 1, 3)
    for config, expected in ((Config(parameters=3), Cause.NONE), (Config(parameters=2), Cause.RESERVED)):
        assert verify(config, [word, end], 0, 0, 4096) == expected
    assert verify(Config(), [cfg(Unit.LOAD, "LENGTH", 1, 1), end], 0, 0, 4096) == Cause.RESERVED


@pytest.mark.parametrize("seed", range(60))
def test_instruction_soup(seed: int) -> None:
    """Small operations in any order, with or without SYNCs: full queues, conflicts, races."""
    rng = random.Random(seed)
    config = random_config(rng, vector=True)
    size, words = config.sram, []
    for unit in (Unit.LOAD, Unit.STORE):
        words += [cfg(unit, n, 8) for n in ("SRAM_BYTES", "LENGTH")]
        words.append(cfg(unit, "COUNT", pack(unit, "COUNT", rows=1, planes=1)))
    for unit in (Unit.ARRAY, Unit.VECTOR):
        words += [cfg(unit, n, 16) for n in ("IN_BYTES", "OUT_BYTES")]
        words.append(cfg(unit, "TILE", pack(unit, "TILE", height=1, width=3)))
        words.append(cfg(unit, "GEOMETRY", pack(unit, "GEOMETRY", kh=1, kw=2, stride_y=1, dilation_y=1)))
        words.append(cfg(unit, "BLOCKS", pack(unit, "BLOCKS", count=1, last=1)))
    words += [cfg(Unit.ARRAY, n, 1) for n in ("KC", "STRIPE")]
    words += [cfg(Unit.ARRAY, "W_BYTES", config.word_bytes)]
    words += [cfg(unit, "B_BYTES", 4) for unit in (Unit.ARRAY, Unit.VECTOR)]
    names = {Unit.LOAD: ["SRAM_ADDR"], Unit.STORE: ["SRAM_ADDR"]}
    names |= {Unit.ARRAY: ["IN_ADDR", "OUT_ADDR", "W_ADDR", "B_ADDR"], Unit.VECTOR: ["IN_ADDR", "B_ADDR", "OUT_ADDR"]}
    by_unit = {unit: [op for op in operations(config) if INSTRUCTIONS[op].unit == unit] for unit in Unit}
    burst = rng.choice((1, 3, 30))
    for unit in Unit:  # at first everyone in banks of his own, more or less
        for n, name in enumerate(names[unit]):
            words.append(cfg(unit, name, size * (4 * n + unit) // 16 // 512 * 512))
    for _ in range(rng.choice((20, 150))):
        kind = rng.random()
        unit = rng.choice(list(Unit))
        if kind < 0.15:
            words += [cfg(unit, "OUT_X_STEP" if unit in (1, 2) else "MEM_ROW_STEP", 0)] * rng.randint(1, burst)
        elif kind < 0.4:
            words.append(sync(unit, rng.choice(list(Unit)), rng.choice((0, 0, 1, 2, 9))))
        elif kind < 0.41:
            name = rng.choice(names[unit])
            words.append(cfg(unit, name, rng.randrange(size) // 512 * 512))
        else:
            words += [int(rng.choice(by_unit[unit]))] * rng.choice((1, 1, 2, burst))
    words.append(int(Op.END))
    verify(config, words, 0, 0, 1 << 20)


def test_end_in_an_early_page_leaves_the_prefetch() -> None:
    words = [int(Op.END)] + [0] * (3 * PAGE_WORDS - 1)
    timeline = time_program(Config(), words)
    assert timeline.fault is None
    assert timeline.pc.tolist() == [0, 1]
    assert timeline.is_fetch.all()
    assert timeline.cycles == timeline.end[-1] + END_TO_DONE


def test_program_without_pages() -> None:
    timeline = time_program(Config(), [])
    assert timeline.fault is not None
    assert (timeline.fault.cause, timeline.fault.pc) == (Cause.NO_END, 0)
    assert len(timeline) == 0
    assert timeline.cycles == FIRST_ACTION - 1 + PAGE_READY + END_TO_DONE


def test_words_come_in_many_forms() -> None:
    words = [cfg(Unit.LOAD, "LENGTH", 5), int(Op.END)]
    array = np.array(words, np.uint64)
    data = array.tobytes()
    assert {time_program(Config(), w).cycles for w in (words, array, data)} == {time_program(Config(), words).cycles}


@pytest.mark.parametrize("absent", [(), *combinations(FEATURES, 1), tuple(FEATURES)], ids="-".join)
def test_decoding_agrees_with_decode(absent: tuple[str, ...]) -> None:
    rng = random.Random(5)
    built = {name: name not in absent for name in FEATURES if name != "depth_conv"}
    rows = {name: int(built.pop(name)) for name in ("softmax", "norm")}
    rows["norm_bits"] = 16 if built.pop("norm16") and rows["norm"] and built["elementwise"] else 8
    config = Config().replace(**built, **rows)
    if "depth_conv" in absent:
        config = config.replace(depthwise="none")
    words = [rng.getrandbits(64) & rng.getrandbits(64) & rng.getrandbits(64) for _ in range(3000)]
    words += [rng.choice(list(Op)) | rng.getrandbits(64) & rng.choice((0, 0x3F3F00, 0xFF << 40)) for _ in range(3000)]
    words += [Op.CFG | rng.getrandbits(8) << 8 | rng.getrandbits(32) << 32 for _ in range(3000)]
    faults = front_end_faults(config, np.array(words, np.uint64))
    assert (Cause.UNIT_ABSENT in faults) == bool(absent)
    for word, fault in zip(words, faults.tolist(), strict=True):
        d = decode(word)
        expected = Cause.RESERVED if d.op == Op.CFG and word >> 16 & 15 else d.fault
        if not expected and lacks(config, d):
            expected = Cause.UNIT_ABSENT
        assert fault == expected, hex(word)


@pytest.mark.parametrize(
    ("name", "value", "text"),
    [
        ("memory_bytes", 5000, "memory_bytes must be a multiple of 4096"),
        ("broken", [(64, 32)], r"broken must be multiples of 64 bytes, not \[\(64, 32\)\]"),
        ("base", 100, "base must be a multiple of 4096"),
        ("address", 512, "address must be a multiple of 1024"),
    ],
)
def test_addresses_are_checked(name: str, value: Any, text: str) -> None:
    with pytest.raises(ValueError, match=text):
        time_program(Config(), [int(Op.END)], **{name: value})


def test_every_way_to_break_is_tried() -> None:
    for way in BREAKS:
        rng = random.Random(7)
        illegal_program(rng, random_config(rng), count=3, ways=(way,))


def test_operations_have_units() -> None:
    assert {op for op, row in INSTRUCTIONS.items() if row.unit is None} == {Op.CFG, Op.SYNC, Op.END}
