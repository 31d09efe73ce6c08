"""Times a whole program in one pass: front end, queues, units, completion counts, faults.

Every SYNC refers to earlier instructions, so each word's times follow from those of the words before it (a max-plus
recurrence; ``docs/architecture.md``). No tensor data is touched.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from dovetail.isa.checks import View, check, claim
from dovetail.isa.config import Config
from dovetail.isa.instructions import (
    BY_NUMBER,
    INSTRUCTIONS,
    PAGE_BYTES,
    PAGE_WORDS,
    QUEUE_DEPTH,
    REGISTERS,
    WORD_BYTES,
    Cause,
    Op,
    Unit,
    to_bytes,
)
from dovetail.isa.timing.array import array_duration
from dovetail.isa.timing.common import CHECK
from dovetail.isa.timing.dma import read_duration, row_addresses, write_duration
from dovetail.isa.timing.engine_constants import END_TO_DONE, FIRST_ACTION, PAGE_READY
from dovetail.isa.timing.vector import vector_duration

Int64s = npt.NDArray[np.int64]
Words = bytes | Sequence[int] | npt.NDArray[np.uint64]

NEVER = 1 << 60
"""A cycle that does not come."""

ADDRESS_SPACE = 1 << 32
FETCH = 0
"""What stands for the opcode of a fetch in a timeline."""


@dataclass(frozen=True)
class Counters:
    """What a unit's cycles went to; the four add up to the program's cycles."""

    busy: int
    config: int
    token: int
    idle: int


@dataclass(frozen=True)
class Fault:
    """Why the engine stopped, and the word index it is about (for ``BUS_FETCH`` the page index)."""

    cause: Cause
    pc: int


@dataclass(frozen=True)
class Timeline:
    """When everything that was started ran; one element per operation or fetch, in program order.

    ``unit``; ``op`` (opcode, or :data:`FETCH`); ``pc`` (word index; page index of a fetch); ``start`` and ``end``
    cycle; ``works``: false for an operation that failed its checks and did nothing; ``registers``: the unit's
    registers as the operation saw them (empty for a fetch).
    """

    unit: Int64s
    op: Int64s
    pc: Int64s
    start: Int64s
    end: Int64s
    works: npt.NDArray[np.bool_]
    registers: tuple[tuple[int, ...], ...]
    cycles: int
    counters: dict[Unit, Counters]
    fault: Fault | None = None

    def __len__(self) -> int:
        return len(self.start)

    @property
    def is_fetch(self) -> npt.NDArray[np.bool_]:
        """Which elements are instruction fetches."""
        return np.asarray(self.op == FETCH)


@dataclass(frozen=True)
class _Rule:
    """What the engine must know of an operation with given registers."""

    duration: int
    cause: Cause
    reads: int
    writes: int
    top: int = -ADDRESS_SPACE  # past the last byte of system memory, from BASE, if no address wraps


# --- decoding ----------------------------------------------------------------------------------------------------


def _tables() -> tuple[npt.NDArray[np.bool_], npt.NDArray[np.uint64], npt.NDArray[np.bool_], npt.NDArray[np.uint64]]:
    known = np.zeros(256, bool)
    reserved = np.zeros(256, np.uint64)
    for op, row in INSTRUCTIONS.items():
        known[op], reserved[op] = True, row.reserved
    exists = np.zeros(256, bool)
    unused = np.zeros(256, np.uint64)
    for number, register in BY_NUMBER.items():
        exists[number], unused[number] = True, ~register.mask & 0xFFFF_FFFF
    return known, reserved, exists, unused


_KNOWN, _RESERVED, _EXISTS, _UNUSED = _tables()


def as_words(program: Words) -> npt.NDArray[np.uint64]:
    """A program's words as an array, filled up to whole pages with zero words."""
    if isinstance(program, np.ndarray):
        words = program.astype(np.uint64, copy=False)
    else:
        data = program if isinstance(program, bytes) else to_bytes(program)
        words = np.frombuffer(data + bytes(-len(data) % WORD_BYTES), "<u8")
    rest = -len(words) % PAGE_WORDS
    return np.concatenate([words, np.zeros(rest, np.uint64)]) if rest else words


def front_end_faults(config: Config, words: npt.NDArray[np.uint64]) -> npt.NDArray[np.uint8]:
    """The cause that the front end raises for each word, 0 where it dispatches the word."""
    code = (words & np.uint64(0xFF)).astype(np.intp)
    middle = (words >> np.uint64(8) & np.uint64(0xFF)).astype(np.intp)
    upper = (words >> np.uint64(16) & np.uint64(0xFF)).astype(np.intp)
    is_cfg, is_sync = code == Op.CFG, code == Op.SYNC
    faults = np.zeros(len(words), np.uint8)
    # From the least to the most important: what comes later overwrites.
    if not config.vector:
        absent = (code == Op.POOL) | (code == Op.E_ADD) | is_cfg & (middle >> 6 == Unit.VECTOR)
        absent |= is_sync & ((middle == Unit.VECTOR) | (upper == Unit.VECTOR))
        faults[absent] = Cause.UNIT_ABSENT
    if not config.dw:
        faults[code == Op.DEPTH_CONV] = Cause.UNIT_ABSENT
    faults[is_cfg & (words >> np.uint64(32) & _UNUSED[middle] != 0)] = Cause.RESERVED
    faults[is_cfg & ~_EXISTS[middle] | is_sync & ((middle > 3) | (upper > 3))] = Cause.REGISTER
    faults[words & _RESERVED[code] != 0] = Cause.RESERVED
    faults[~_KNOWN[code]] = Cause.OPCODE
    return faults


# --- rules per configuration -------------------------------------------------------------------------------------

_MAX_RULES = 1 << 17


class _Rules:
    """Durations, checks and claims of operations for one configuration, remembered by their registers."""

    def __init__(self, config: Config) -> None:
        self.config = config
        self.known: dict[tuple[int, tuple[int, ...]], _Rule] = {}
        self.fetch = read_duration(config, 0, 1, 1, 0, 0, PAGE_BYTES)

    def find(self, key: tuple[int, tuple[int, ...]]) -> _Rule:
        """The rule for (opcode, registers); a new one is remembered."""
        op = Op(key[0])
        unit = INSTRUCTIONS[op].unit
        assert unit is not None
        view = View(unit, key[1])
        cause = check(self.config, op, view)
        if cause:
            rule = _Rule(CHECK, cause, 0, 0)
        else:
            claims = claim(self.config, op, view)
            if claims.twice:
                rule = _Rule(CHECK, Cause.BANK_CONFLICT, 0, 0)
            else:
                top = _top(view) if unit in (Unit.LOAD, Unit.STORE) else -ADDRESS_SPACE
                rule = _Rule(duration(self.config, op, view), Cause.NONE, claims.reads, claims.writes, top)
        if len(self.known) >= _MAX_RULES:
            self.known.clear()
        self.known[key] = rule
        return rule


_rules: dict[Config, _Rules] = {}


def _rules_of(config: Config) -> _Rules:
    rules = _rules.get(config)
    if rules is None:
        if len(_rules) >= 64:
            _rules.clear()
        rules = _rules[config] = _Rules(config)
    return rules


def duration(config: Config, op: Op, view: View) -> int:
    """Cycles from start to end of an operation that passes its checks."""
    if op in (Op.DMA_READ, Op.DMA_WRITE):
        rule = read_duration if op == Op.DMA_READ else write_duration
        return rule(
            config,
            view["MEM_ADDR"] % 4096,
            view["COUNT", "rows"],
            view["COUNT", "planes"],
            view["MEM_ROW_STEP"],
            view["MEM_PLANE_STEP"],
            view["LENGTH"],
        )
    pixels = view["TILE", "height"] * view["TILE", "width"]
    taps = view["GEOMETRY", "kh"] * view["GEOMETRY", "kw"]
    if op in (Op.POOL, Op.E_ADD):
        return vector_duration(
            config, pixels=pixels, blocks=view["BLOCKS", "count"], reads=taps if op == Op.POOL else 2
        )
    depthwise = op == Op.DEPTH_CONV
    return array_duration(
        config,
        depthwise=depthwise,
        taps=taps,
        kc=1 if depthwise else view["KC", "blocks"],
        pixels=pixels,
        stripe=view["STRIPE", "pixels"],
        blocks=view["BLOCKS", "count"],
        last=view["BLOCKS", "last"],
        accumulate=bool(view["MODE", "accumulate"]),
    )


def _top(view: View) -> int:
    planes = (view["COUNT", "planes"] - 1) * view["MEM_PLANE_STEP"]
    rows = (view["COUNT", "rows"] - 1) * view["MEM_ROW_STEP"]
    return view["MEM_ADDR"] + planes + rows + view["LENGTH"]


def bus_error(op: int, registers: Sequence[int], base: int, memory_bytes: int) -> bool:
    """Whether a transfer leaves the ``memory_bytes`` that answer, from address 0 on."""
    view = View(Unit.LOAD if op == Op.DMA_READ else Unit.STORE, registers)
    length = view["LENGTH"]
    rows = row_addresses(
        base + view["MEM_ADDR"],
        view["COUNT", "rows"],
        view["COUNT", "planes"],
        view["MEM_ROW_STEP"],
        view["MEM_PLANE_STEP"],
    )
    return any(start + length > memory_bytes for start in rows)


# --- the pass ----------------------------------------------------------------------------------------------------


@dataclass
class _Trace:
    """Times of a program in which nothing faults; in program order."""

    units: list[int] = field(default_factory=list)  # one element per operation or fetch
    ops: list[int] = field(default_factory=list)
    pcs: list[int] = field(default_factory=list)
    starts: list[int] = field(default_factory=list)
    ends: list[int] = field(default_factory=list)
    rules: list[_Rule | None] = field(default_factory=list)
    registers: list[tuple[int, ...]] = field(default_factory=list)
    bus: list[Cause] = field(default_factory=list)
    pops: tuple[list[int], ...] = ()  # per unit every pop, after QUEUE_DEPTH places that are free from the start
    waits: list[tuple[int, int, int]] = field(default_factory=list)  # unit, first cycle at the head, pop
    last: int = 0  # cycle of END, or of the front end's fault
    fault: tuple[Cause, int] | None = None  # of the front end


_COUNT = tuple(len(REGISTERS[u]) for u in Unit)
_UNIT_OF = {int(op): int(row.unit) for op, row in INSTRUCTIONS.items() if row.unit is not None}


def _first_of_page(fetched: int) -> int:
    """Earliest cycle of an action that a page's fetch, which ended in cycle ``fetched``, allows."""
    return fetched + PAGE_READY


def _trace(rules: _Rules, words: npt.NDArray[np.uint64], program: int, base: int, memory: int) -> _Trace:
    trace = _Trace()
    pages = len(words) // PAGE_WORDS
    faults = front_end_faults(rules.config, words)
    stops = np.flatnonzero((faults != 0) | ((words & np.uint64(0xFF)) == Op.END))
    stop = int(stops[0]) if len(stops) else len(words)

    kept = words[:stop]
    codes = (kept & np.uint64(0xFF)).tolist()
    middles = (kept >> np.uint64(8) & np.uint64(0xFF)).tolist()
    uppers = (kept >> np.uint64(16) & np.uint64(0xFF)).tolist()
    values = (kept >> np.uint64(32)).tolist()

    cfg, sync = int(Op.CFG), int(Op.SYNC)
    load, read = int(Unit.LOAD), int(Op.DMA_READ)
    depth = QUEUE_DEPTH
    known, find = rules.known, rules.find
    registers = [[0] * 64 for _ in Unit]
    pops: tuple[list[int], ...] = tuple([-1] * depth for _ in Unit)
    free = [0] * len(Unit)
    done: tuple[list[int], ...] = tuple([] for _ in Unit)  # per unit the cycle in which each completion shows
    waits = trace.waits
    units, ops, pcs, starts = trace.units, trace.ops, trace.pcs, trace.starts
    ends, found, snapshots, bus = trace.ends, trace.rules, trace.registers, trace.bus
    earliest = NEVER  # of the faults found so far
    now = FIRST_ACTION - 1
    fetched: list[int] = []

    def fetch(page: int) -> None:
        nonlocal now, earliest
        now = max(now + 1, pops[load][-depth] + 1)
        start = max(now + 1, free[load])
        end = start + rules.fetch
        address = (program + page * PAGE_BYTES) % ADDRESS_SPACE
        error = address + PAGE_BYTES > memory
        pops[load].append(start)
        free[load] = end + 1
        fetched.append(end)
        units.append(load)
        ops.append(FETCH)
        pcs.append(page)
        starts.append(start)
        ends.append(end)
        found.append(None)
        snapshots.append(())
        bus.append(Cause.BUS_FETCH if error else Cause.NONE)
        if error:
            free[load] = NEVER
            earliest = min(earliest, end)

    fetch(0)
    for page in range(pages):
        now = max(now, _first_of_page(fetched[page]) - 1)
        if now >= earliest:
            break
        if page + 1 < pages:
            fetch(page + 1)
        first = page * PAGE_WORDS
        for pc in range(first, min(first + PAGE_WORDS, stop)):
            code = codes[pc]
            now += 1
            if code == cfg:
                middle = middles[pc]
                unit = middle >> 6
                queue = pops[unit]
                if queue[-depth] >= now:
                    now = queue[-depth] + 1
                time = free[unit]
                if time <= now:
                    time = now + 1
                registers[unit][middle & 63] = values[pc]
                queue.append(time)
                free[unit] = time + 1
            elif code == sync:
                unit, on = middles[pc], uppers[pc]
                queue = pops[unit]
                if queue[-depth] >= now:
                    now = queue[-depth] + 1
                head = free[unit]
                if head <= now:
                    head = now + 1
                target = len(done[on]) - values[pc]
                time = head
                if target > 0:
                    shown = done[on][target - 1]
                    if shown > time:
                        time = shown
                waits.append((unit, head, time))
                queue.append(time)
                free[unit] = time + 1
            else:
                unit = _UNIT_OF[code]
                queue = pops[unit]
                if queue[-depth] >= now:
                    now = queue[-depth] + 1
                time = free[unit]
                if time <= now:
                    time = now + 1
                key = (code, tuple(registers[unit][: _COUNT[unit]]))
                rule = known.get(key)
                if rule is None:
                    rule = find(key)
                end = time + rule.duration
                queue.append(time)
                free[unit] = end + 1
                error = Cause.NONE
                if rule.cause:
                    earliest = min(earliest, end)
                    free[unit] = NEVER
                elif rule.top + base > memory and bus_error(code, key[1], base, memory):
                    error = Cause.BUS_READ if code == read else Cause.BUS_WRITE
                    earliest = min(earliest, end)
                    free[unit] = NEVER
                done[unit].append(free[unit])
                units.append(unit)
                ops.append(code)
                pcs.append(pc)
                starts.append(time)
                ends.append(end)
                found.append(rule)
                snapshots.append(key[1])
                bus.append(error)
            if now > earliest:
                break
        if now > earliest or stop < first + PAGE_WORDS:
            break
    now += 1
    trace.pops = tuple(p[depth:] for p in pops)
    trace.last = now
    if stop == len(words):
        trace.fault = (Cause.NO_END, stop)
    elif faults[stop]:
        trace.fault = (Cause(int(faults[stop])), stop)
    return trace


_Candidate = tuple[int, int, Cause, int]
"""A fault: cycle, unit number (the front end's is above the units'), cause, pc. The least one is the first."""


def _verify(trace: _Trace) -> tuple[_Candidate | None, list[bool]]:
    """The first fault, and which operations fail their checks; both hold for what was popped up to the fault."""
    fails = [False] * len(trace.starts)
    first: _Candidate | None = None
    halt = NEVER
    if trace.fault:
        cause, pc = trace.fault
        first = (trace.last, len(Unit), cause, pc)
        halt = trace.last
    units, starts, ends, rules, bus, pcs = (
        trace.units,
        trace.starts,
        trace.ends,
        trace.rules,
        trace.bus,
        trace.pcs,
    )
    held_until = [-1] * len(Unit)
    held_reads = [0] * len(Unit)
    held_writes = [0] * len(Unit)
    keys = [t << 2 | u for t, u in zip(starts, units, strict=True)]
    for n in sorted(range(len(keys)), key=keys.__getitem__):
        start = starts[n]
        if start > halt:
            break
        rule, unit = rules[n], units[n]
        fault: _Candidate | None = None
        if rule is not None:
            verified = start + CHECK
            cause = rule.cause
            if not cause:
                reads, writes = rule.reads, rule.writes
                for other in range(4):
                    if held_until[other] >= verified and (reads & held_reads[other] or writes & held_writes[other]):
                        cause = Cause.BANK_CONFLICT
                if not cause:
                    held_until[unit], held_reads[unit], held_writes[unit] = ends[n], reads, writes
            if cause:
                fails[n] = True
                fault = (verified, unit, cause, pcs[n])
        if bus[n] and not fails[n]:
            fault = (ends[n], unit, bus[n], pcs[n])
        if fault and (first is None or fault < first):
            first = fault
            halt = fault[0]
    return first, fails


def time_program(
    config: Config,
    program: Words,
    *,
    address: int = 0,
    base: int = 0,
    memory_bytes: int = ADDRESS_SPACE,
) -> Timeline:
    """When everything in a program happens, and how it ends.

    Parameters
    ----------
    config
        The accelerator and the timing of its memory.
    program
        The words of the program's pages; an incomplete last page is filled up with zero words.
    address, base
        System memory address of the program, and what its own addresses are relative to.
    memory_bytes
        System memory that answers, from address 0 on; all else gives bus errors. A multiple of 4096.
    """
    if memory_bytes % 4096 or not 0 < memory_bytes <= ADDRESS_SPACE:
        raise ValueError(f"memory_bytes must be a multiple of 4096 in 4096..2**32, not {memory_bytes}")
    if base % 4096 or not 0 <= base < ADDRESS_SPACE:
        raise ValueError(f"base must be a multiple of 4096 in 0..2**32-1, not {base}")
    if address % PAGE_BYTES or not 0 <= address < ADDRESS_SPACE:
        raise ValueError(f"address must be a multiple of {PAGE_BYTES} in 0..2**32-1, not {address}")
    words = as_words(program)
    if not len(words):
        return _timeline(_Trace(pops=([], [], [], [])), [], 0, _first_of_page(FIRST_ACTION - 1), Fault(Cause.NO_END, 0))
    trace = _trace(_rules_of(config), words, address, base, memory_bytes)
    first, fails = _verify(trace)
    if first is None:
        return _timeline(trace, fails, NEVER, trace.last, None)
    halt, _, cause, pc = first
    return _timeline(trace, fails, halt, halt, Fault(cause, pc))


def _timeline(trace: _Trace, fails: list[bool], halt: int, last: int, fault: Fault | None) -> Timeline:
    """What was popped up to cycle ``halt``; ``last`` is the cycle of END or of the fault."""
    start = np.array(trace.starts, np.int64)
    failed = np.array(fails, np.bool_)
    unit = np.array(trace.units, np.int64)
    op, pc = np.array(trace.ops, np.int64), np.array(trace.pcs, np.int64)
    end = np.array(trace.ends, np.int64)
    registers = trace.registers
    end[failed] = start[failed] + CHECK
    if fault:
        kept = start <= halt
        registers = [r for r, keep in zip(registers, kept.tolist(), strict=True) if keep]
        start, end, unit, op, pc = (a[kept] for a in (start, end, unit, op, pc))
        failed = failed[kept]
    pops = [[t for t in p if t <= halt] if fault else p for p in trace.pops]
    finish = max([last, int(end.max(initial=0))] + [p[-1] for p in pops if p])
    cycles = finish + END_TO_DONE
    counters = {}
    for u in Unit:
        mine = unit == u
        operations = int(mine.sum())
        busy = int((end - start)[mine].sum()) + operations
        config = len(pops[u]) - operations
        token = sum(min(pop, halt + 1) - head for v, head, pop in trace.waits if v == u and head <= halt)
        counters[u] = Counters(busy, config, token, cycles - busy - config - token)
    return Timeline(unit, op, pc, start, end, ~failed, tuple(registers), cycles, counters, fault)
