"""Faults on model and RTL: bus errors, slow memory, resets, needless starts, corrupted instructions.

Whatever happens, the accelerator must end in a defined state, with a cause, within its bound of cycles. It must change
no memory that its program does not store to, and run the next program correctly.
"""

import random
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np
import numpy.typing as npt

from dovetail.cosim.compare.fuzz import Case, random_timing
from dovetail.cosim.compare.lockstep import Lockstep, compare
from dovetail.cosim.rtl.rtl_engine import DEFAULT_LIMIT, FORMS, RtlEngine, RtlError
from dovetail.cosim.rtl.setting import Setting
from dovetail.isa.config.resolved import Config
from dovetail.isa.host import CONTROL_START
from dovetail.isa.instructions.checks import View
from dovetail.isa.instructions.table import DMA_OPS, PAGE_BYTES, WORD_BYTES, Cause, Op, Unit, from_bytes
from dovetail.isa.timing.memory import ADDRESS_SPACE, BROKEN_BYTES
from dovetail.isa.timing.run import cycle_bound
from dovetail.isa.timing.timeline import Timeline
from dovetail.sw.compiler.emit.hazards import overwrites, races, transfer_rows
from dovetail.sw.random.programs.legal import RandomProgram, legal_program
from dovetail.sw.random.programs.walks import DATA_BYTES
from dovetail.sw.runtime.engine import Bytes, RunResult, run_registers

LONG = 3_000_000
"""Cycles from which on a corrupted program is only followed for its first ones."""
FOLLOWED = 50_000
"""How many of them."""
CHANNELS = 5
"""Handshakes that the bus can have in a cycle."""


@dataclass
class Record:
    """Runs of one kind of fault: how they ended, and what was wrong."""

    runs: int = 0
    causes: Counter[Cause] = field(default_factory=Counter)
    long: int = 0
    """Programs that would run for very long; only their beginning was compared."""
    wrong: list[str] = field(default_factory=list)

    def __iadd__(self, other: "Record") -> "Record":
        self.runs += other.runs
        self.causes += other.causes
        self.long += other.long
        self.wrong += other.wrong
        return self


Outcome = tuple[Cause, str]
"""How a run ended, and what was wrong (nothing: empty)."""


def setting_of(program: RandomProgram, sram_seed: int = 0) -> Setting:
    """A random program about to run."""
    return Setting(program.memory, *program.arguments, sram=Case(program, sram_seed).sram())


def stored(timeline: Timeline, base: int, size: int) -> npt.NDArray[np.bool_]:
    """Which of the first ``size`` bytes of system memory a run's stores may change."""
    changes = np.zeros(size, np.bool_)
    for n in np.flatnonzero((timeline.unit == Unit.STORE) & timeline.works).tolist():
        for start, length in transfer_rows(Op(timeline.op[n]), timeline.registers[n], base):
            past = start + length
            changes[start:past] = True
            changes[: max(0, past - ADDRESS_SPACE)] = True
    return changes


def untouched(setting: Setting, after: Bytes, timeline: Timeline) -> str:
    """The first byte that changed although no store may change it, as text; empty if there is none."""
    changed = np.flatnonzero((setting.memory != after) & ~stored(timeline, setting.base, len(after)))
    return f"memory: byte {changed[0]:#x} changed, which is no store's" if len(changed) else ""


def next_program(pair: Lockstep, rng: random.Random) -> str:
    """Run a good program in the state that is left; what goes wrong, empty if nothing does."""
    program = legal_program(rng, pair.config, count=3)
    comparison = pair.run(program.memory, *program.arguments)
    if comparison.equal and pair.latest is not None and pair.latest.fault:
        return f"next program: {pair.latest.fault}"
    return f"next program: {comparison.first_difference}" if comparison.first_difference else ""


# --- kinds of faults ------------------------------------------------------------------------------------------------


def bus_errors(pair: Lockstep, setting: Setting, rng: random.Random) -> Outcome:
    """Parts of memory answer SLVERR: data, the program, or what a transfer of the program uses."""
    starts = [rng.randrange(len(setting.memory)), setting.base + rng.randrange(DATA_BYTES)]
    starts.append(setting.program + rng.randrange(setting.pages * PAGE_BYTES))
    timeline = pair.model.time(setting.memory, *setting.arguments)
    for n in np.flatnonzero(np.isin(timeline.unit, list(DMA_OPS)) & ~timeline.is_fetch).tolist():
        view = View(Unit(int(timeline.unit[n])), timeline.registers[n])
        starts.append((setting.base + view["MEM_ADDR"] + rng.randrange(max(1, view["LENGTH"]))) % ADDRESS_SPACE)
    parts = rng.sample(starts, rng.choice((1, 1, 2)))
    pair.broken = tuple((a // BROKEN_BYTES * BROKEN_BYTES, BROKEN_BYTES * rng.choice((1, 1, 3, 64))) for a in parts)
    try:
        return _in_lockstep(pair, setting)
    finally:
        pair.broken = ()


def slow_memory(pair: Lockstep, setting: Setting, rng: random.Random) -> Outcome:
    """Memory stalls now and then, sometimes for long. A good program still leaves the same bytes, within its
    bound plus the cycles of the stalls."""
    model = _model_run(pair, setting)
    one_in, longest = rng.choice(((2, 10), (10, 100), (50, 5000)))
    bound = cycle_bound(pair.config, setting.text, setting.parameters)
    pair.rtl.write_sram(setting.sram)
    pair.rtl.stall(rng.getrandbits(63), one_in=one_in, longest=longest)
    try:
        with _limited(pair.rtl, bound * (1 + CHANNELS * longest)):
            rtl = pair.rtl.run(setting.memory.copy(), *setting.arguments)
    except RtlError as error:
        return _broken_down(pair, error)
    stalled = pair.rtl.stalled
    pair.rtl.stall(0, one_in=0, longest=1)
    if rtl.cycles > bound + stalled:
        return Cause.NONE, f"cycles: {rtl.cycles}, above the bound {bound} and {stalled} of stalls"
    # Times differ; so these are taken as equal.
    same = replace(rtl, timeline=model.timeline, cycles=model.cycles, counters=model.counters)
    comparison = compare(model, same, model_sram=pair.model.read_sram(), rtl_sram=pair.rtl.read_sram())
    return _cause(model.timeline), comparison.first_difference


def reset(pair: Lockstep, setting: Setting, rng: random.Random) -> Outcome:
    """A reset in the middle of a program."""
    timeline = pair.model.time(setting.memory, *setting.arguments)
    pair.rtl.write_sram(setting.sram)
    memory = setting.memory.copy()
    pair.rtl.start(memory, *setting.arguments)
    pair.rtl.advance(rng.randrange(1, timeline.cycles))
    pair.rtl.pulse_reset()
    pair.model.reset()
    written = [name for name, _ in run_registers(pair.config, *setting.arguments)]
    for name in ("CONTROL", "STATUS", "CAUSE", "FAULT_PC", *written, "CYCLES_LO", "CYCLES_HI"):
        if value := pair.rtl.read_register(name):
            return Cause.NONE, f"{name} is {value:#x} after the reset"
    _clear_block_ram(pair)
    if pair.rtl.read_sram().any():
        return Cause.NONE, "SRAM is not zero after the reset"
    return Cause.NONE, untouched(setting, memory, timeline)


def needless_start(pair: Lockstep, setting: Setting, rng: random.Random) -> Outcome:
    """A start, and the address of another program, written while the engine runs: they have no effect."""
    model = _model_run(pair, setting)
    pair.rtl.write_sram(setting.sram)
    try:
        with _limited(pair.rtl, cycle_bound(pair.config, setting.text, setting.parameters)):
            pair.rtl.start(setting.memory.copy(), *setting.arguments)
            pair.rtl.advance(rng.randrange(1, max(2, model.cycles - 100)))
            for name, _ in run_registers(pair.config, *setting.arguments):
                pair.rtl.write_register(name, rng.getrandbits(32))
            pair.rtl.write_register("CONTROL", CONTROL_START.mask)
            rtl = pair.rtl.finish()
    except RtlError as error:
        return _broken_down(pair, error)
    comparison = compare(model, rtl, model_sram=pair.model.read_sram(), rtl_sram=pair.rtl.read_sram())
    return _cause(model.timeline), comparison.first_difference


KINDS: dict[str, Callable[[Lockstep, Setting, random.Random], Outcome]] = {
    "bus errors": bus_errors,
    "slow memory": slow_memory,
    "reset": reset,
    "start": needless_start,
}
"""Faults of random programs. Each leaves model and RTL with equal SRAM."""


def run_kind(config: Config, kind: str, seeds: range, cache: Path, form: str = FORMS[0]) -> Record:
    """One kind of fault on the legal programs of ``seeds``, each followed by a good one."""
    record = Record()
    pair = Lockstep(config, cache=cache, form=form)
    for seed in seeds:
        _note(record, f"{kind}, seed {seed}", *run_seed(pair, kind, seed))
    return record


def run_seed(pair: Lockstep, kind: str, seed: int) -> Outcome:
    """One kind of fault on the legal program of a seed, and then a good program."""
    rng = random.Random(f"{kind} {seed}")
    pair.timing = random_timing(seed)
    setting = setting_of(legal_program(rng, pair.config, count=rng.randint(2, 12)), seed + 1)
    cause, text = KINDS[kind](pair, setting, rng)
    return cause, text or next_program(pair, rng)


# --- corrupted words ------------------------------------------------------------------------------------------------


def executed_bits(text: bytes) -> int:
    """Bits of a program up to its END."""
    words = list(from_bytes(text))
    return WORD_BYTES * 8 * (next(n for n, word in enumerate(words) if word & 0xFF == Op.END) + 1)


def sampled_bits(text: bytes, count: int, seed: int) -> list[int]:
    """``count`` different bits of a program up to its END, in order; all of them if there are no more."""
    bits = executed_bits(text)
    return sorted(random.Random(f"bits {seed}").sample(range(bits), min(count, bits)))


def run_flips(config: Config, setting: Setting, bits: list[int], cache: Path, form: str = FORMS[0]) -> Record:
    """A program with one bit after the other flipped, each time followed by a good program."""
    record = Record()
    pair = Lockstep(config, cache=cache, form=form)
    for bit in bits:
        corrupted = setting.flipped(bit)
        timeline = pair.model.time(corrupted.memory, *corrupted.arguments)
        if overwrites(timeline, corrupted.program, corrupted.pages, corrupted.base):
            continue  # what it executes then is left open
        if timeline.cycles > LONG:
            record.long += 1
            cause, text = Cause.NONE, _beginning(pair, corrupted, timeline)
        else:
            cause, text = _in_lockstep(pair, corrupted)
        rng = random.Random(f"flip {bit}")
        _note(record, f"word {bit // 64}, bit {bit % 64} flipped", cause, text or next_program(pair, rng))
    return record


def _beginning(pair: Lockstep, setting: Setting, timeline: Timeline) -> str:
    """Compare the first cycles of a program that lasts for ages, and end it by a reset."""
    memory = setting.memory.copy()
    pair.rtl.write_sram(setting.sram)
    pair.rtl.start(memory, *setting.arguments)
    try:
        with _limited(pair.rtl, FOLLOWED):
            pair.rtl.finish()
        text = "the RTL ended too early"
    except RtlError as error:
        assert error.timeline is not None
        ours, theirs = (set(_begun(t)) for t in (timeline, error.timeline))
        text = f"timeline of the first {FOLLOWED} cycles: {sorted(ours ^ theirs)[0]}" if ours != theirs else ""
    pair.rtl.pulse_reset()
    pair.model.reset()
    _clear_block_ram(pair)
    return text or untouched(setting, memory, timeline)


def _begun(timeline: Timeline) -> Iterator[tuple[int, int, bool, int, int]]:
    """(start, unit, fetch, pc, end) of what began in the first cycles; no end if it is later."""
    rows = (timeline.start, timeline.unit, timeline.is_fetch, timeline.pc, timeline.end)
    for start, unit, fetch, pc, end in zip(*(row.tolist() for row in rows), strict=True):
        if start < FOLLOWED:
            yield start, unit, fetch, pc, end if end < FOLLOWED else -1


# --- what they share ------------------------------------------------------------------------------------------------


def _note(record: Record, name: str, cause: Cause, text: str) -> None:
    record.runs += 1
    record.causes[cause] += 1
    if text:
        record.wrong.append(f"{name}: {text}")


def _cause(timeline: Timeline) -> Cause:
    return timeline.fault.cause if timeline.fault else Cause.NONE


def _model_run(pair: Lockstep, setting: Setting) -> RunResult:
    pair.model.write_sram(setting.sram)
    return pair.model.run(setting.memory.copy(), *setting.arguments)


def _clear_block_ram(pair: Lockstep) -> None:
    """After a reset: block RAM keeps what it holds."""
    if pair.rtl.form == "fpga":
        pair.rtl.write_sram(pair.model.read_sram())


def _broken_down(pair: Lockstep, error: RtlError) -> Outcome:
    pair.reset()
    return Cause.NONE, f"RTL: {error}"


@contextmanager
def _limited(rtl: RtlEngine, limit: int) -> Iterator[None]:
    rtl.limit = limit
    try:
        yield
    finally:
        rtl.limit = DEFAULT_LIMIT


def _in_lockstep(pair: Lockstep, setting: Setting) -> Outcome:
    """Both engines on a setting. Where the program races in system memory its bytes are open, and not compared."""
    comparison = pair.run(setting.memory, *setting.arguments, sram=setting.sram)
    model = pair.latest
    assert model is not None
    text = comparison.first_difference or untouched(setting, model.memory, model.timeline)
    timing_equal = comparison.timeline_equal and comparison.fault_equal and comparison.counters_equal
    if text and timing_equal and races(model.timeline, setting.base):
        pair.reset()
        text = ""
    return _cause(model.timeline), text
