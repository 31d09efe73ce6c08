"""Times a whole program in one pass: front end, queues, units, completion counts, faults.

Every SYNC refers to earlier instructions, so each word's times follow from those of the words before it (a max-plus
recurrence; ``docs/architecture.md``). No tensor data is touched.
"""

from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from dovetail.isa.config import Config
from dovetail.isa.instructions.table import INSTRUCTIONS, PAGE_BYTES, PAGE_WORDS, QUEUE_DEPTH, Cause, Op, Unit
from dovetail.isa.timing.common import CHECK
from dovetail.isa.timing.microcoded.recurrence import time_microcoded
from dovetail.isa.timing.operations import Operations
from dovetail.isa.timing.predecode import Words, as_words, front_end_faults
from dovetail.isa.timing.rules import (
    ADDRESS_SPACE,
    BROKEN_BYTES,
    IDLE,
    Broken,
    Rules,
    answers,
    bus_error,
    rules_of,
)
from dovetail.isa.timing.sequencer import END_TO_DONE, FIRST_ACTION, PAGE_READY
from dovetail.isa.timing.timeline import FETCH, Counters, Fault, Timeline

__all__ = ["FETCH", "Counters", "Fault", "Timeline", "time_program"]

NEVER = 1 << 60
"""A cycle that does not come."""


@dataclass
class _Trace:
    """Times of a program in which nothing faults; in program order."""

    units: list[int] = field(default_factory=list)  # one element per operation or fetch
    ops: list[int] = field(default_factory=list)
    pcs: list[int] = field(default_factory=list)
    starts: list[int] = field(default_factory=list)
    ends: list[int] = field(default_factory=list)
    registers: list[tuple[int, ...]] = field(default_factory=list)
    bus: dict[int, Cause] = field(default_factory=dict)  # errors, by element
    pops: tuple[list[int], ...] = ()  # per unit every pop, after QUEUE_DEPTH places that are free from the start
    waits: list[tuple[int, int, int]] = field(default_factory=list)  # unit, first cycle at the head, pop
    last: int = 0  # cycle of END, or of the front end's fault
    fault: tuple[Cause, int] | None = None  # of the front end
    apart: bool = False  # whether all operations pass their checks and none is in the way of another


def _first_of_page(fetched: int) -> int:
    """Earliest cycle of an action that a page's fetch, which ended in cycle ``fetched``, allows."""
    return fetched + PAGE_READY


def _trace(rules: Rules, words: npt.NDArray[np.uint64], program: int, base: int, memory: int, broken: Broken) -> _Trace:
    trace = _Trace()
    config = rules.config
    pages = len(words) // PAGE_WORDS
    faults = front_end_faults(config, words)
    stops = np.flatnonzero((faults != 0) | ((words & np.uint64(0xFF)) == Op.END))
    stop = int(stops[0]) if len(stops) else len(words)

    operations = Operations(words[:stop])
    registers = operations.registers()
    causes = operations.causes(config)
    durations = operations.durations(rules, causes).tolist()
    errors: dict[int, Cause] = {}  # of the bus, by operation
    ends_there = operations.memory_ends()
    reach = 0 if broken else memory - base
    for number in np.flatnonzero((ends_there > reach) & (causes == 0)).tolist():
        op = int(operations.ops[number])
        if bus_error(op, registers[number], base, memory, broken):
            errors[number] = Cause.BUS_READ if op == Op.DMA_READ else Cause.BUS_WRITE
    fatal = {*np.flatnonzero(causes).tolist(), *errors}

    *chunks, firsts = _chunks(words[:stop], pages)
    load, depth = int(Unit.LOAD), QUEUE_DEPTH
    pops: tuple[list[int], ...] = tuple([-1] * depth for _ in Unit)
    free = [0] * len(Unit)
    done: tuple[list[int], ...] = tuple([] for _ in Unit)  # per unit the cycle in which each completion shows
    waits = trace.waits
    starts: list[int] = []
    ends: list[int] = []
    order: list[int] = []  # number of the operation, or -1 - number of the page
    earliest = NEVER  # of the faults found so far
    now = FIRST_ACTION - 1
    fetched: list[int] = []

    def fetch(page: int) -> None:
        nonlocal now, earliest
        now = max(now + 1, pops[load][-depth] + 1)
        start = max(now + 1, free[load])
        end = start + rules.fetch
        address = (program + page * PAGE_BYTES) % ADDRESS_SPACE
        pops[load].append(start)
        free[load] = end + 1
        fetched.append(end)
        order.append(-1 - page)
        starts.append(start)
        ends.append(end)
        if not answers(address, PAGE_BYTES, memory, broken):
            trace.bus[len(order) - 1] = Cause.BUS_FETCH
            free[load] = NEVER
            earliest = min(earliest, end)

    fetch(0)
    number = 0
    for page in range(pages):
        now = max(now, _first_of_page(fetched[page]) - 1)
        if now >= earliest:
            break
        if page + 1 < pages:
            fetch(page + 1)
        here = slice(firsts[page], firsts[page + 1])
        for kind, unit, on, pending, count in zip(*(column[here] for column in chunks), strict=True):
            queue = pops[unit]
            time = free[unit]
            if kind == _WRITES:
                head = queue[-depth]
                if head < now:
                    head = now
                if time > head + 1 and count <= depth:
                    # The unit lags behind the first word, so behind all, as it takes at least a cycle for each.
                    now += count
                    if queue[count - 1 - depth] >= now:
                        now = queue[count - 1 - depth] + 1
                    queue.extend(range(time, time + count))
                    free[unit] = time + count
                    continue
                for _ in range(count):
                    now += 1
                    if queue[-depth] >= now:
                        now = queue[-depth] + 1
                    if time <= now:
                        time = now + 1
                    queue.append(time)
                    time += 1
                free[unit] = time
                continue
            now += 1
            if queue[-depth] >= now:
                now = queue[-depth] + 1
            if time <= now:
                time = now + 1
            if kind == _WAIT:
                head = time
                target = len(done[on]) - pending
                if target > 0:
                    shown = done[on][target - 1]
                    if shown > time:
                        time = shown
                waits.append((unit, head, time))
                queue.append(time)
                free[unit] = time + 1
            else:
                end = time + durations[number]
                queue.append(time)
                shown = end + 1
                if number in fatal:
                    shown = NEVER
                    earliest = min(earliest, end)
                    if number in errors:
                        trace.bus[len(order)] = errors[number]
                free[unit] = shown
                done[unit].append(shown)
                order.append(number)
                starts.append(time)
                ends.append(end)
                number += 1
            if now > earliest:
                break
        if now > earliest or stop < (page + 1) * PAGE_WORDS:
            break
    now += 1
    trace.starts, trace.ends = starts, ends
    units, ops, pcs = operations.units.tolist(), operations.ops.tolist(), operations.pcs.tolist()
    trace.units = [units[n] if n >= 0 else load for n in order]
    trace.ops = [ops[n] if n >= 0 else FETCH for n in order]
    trace.pcs = [pcs[n] if n >= 0 else -1 - n for n in order]
    trace.registers = [registers[n] if n >= 0 else () for n in order]
    trace.pops = tuple(p[depth:] for p in pops)
    trace.last = now
    if stop == len(words):
        trace.fault = (Cause.NO_END, stop)
    elif faults[stop]:
        trace.fault = (Cause(int(faults[stop])), stop)
    if not (trace.fault or trace.bus or fatal):
        mine = np.array(order) >= 0
        trace.apart = not operations.meet(config, np.array(starts)[mine], np.array(ends)[mine])
    return trace


_WRITES, _WAIT, _OPERATION = range(3)
_UNIT_OF = np.zeros(256, np.int64)
for _op, _row in INSTRUCTIONS.items():
    if _row.unit is not None:
        _UNIT_OF[_op] = _row.unit


def _chunks(words: npt.NDArray[np.uint64], pages: int) -> tuple[list[int], ...]:
    """What the recurrence takes at once, a word, or the register writes of one unit that follow one another in a page:
    kind, unit, the unit waited for, value, number of words; and for each page, and for what follows the last one, the
    first of its chunks."""
    codes = (words & np.uint64(0xFF)).astype(np.int64)
    middles = (words >> np.uint64(8) & np.uint64(0xFF)).astype(np.int64)
    writes = codes == Op.CFG
    units = np.where(writes, middles >> 6, np.where(codes == Op.SYNC, middles, _UNIT_OF[codes]))
    begins = ~writes
    begins[1:] |= begins[:-1] | (units[1:] != units[:-1])
    begins[::PAGE_WORDS] = True
    at = np.flatnonzero(begins)
    kinds = np.where(writes, _WRITES, np.where(codes == Op.SYNC, _WAIT, _OPERATION))[at]
    others = (words[at] >> np.uint64(16) & np.uint64(0xFF)).astype(np.int64)
    values = (words[at] >> np.uint64(32)).astype(np.int64)
    counts = np.diff(at, append=len(words))
    firsts = np.searchsorted(at, np.arange(pages + 1) * PAGE_WORDS)
    return tuple(column.tolist() for column in (kinds, units[at], others, values, counts, firsts))


_Candidate = tuple[int, int, Cause, int]
"""A fault: cycle, unit number (the front end's is above the units'), cause, pc. The least one is the first."""


def _verify(rules: Rules, trace: _Trace) -> tuple[_Candidate | None, list[bool]]:
    """The first fault, and which operations fail their checks; both hold for what was popped up to the fault."""
    fails = [False] * len(trace.starts)
    if trace.apart:
        return None, fails
    first: _Candidate | None = None
    halt = NEVER
    if trace.fault:
        cause, pc = trace.fault
        first = (trace.last, len(Unit), cause, pc)
        halt = trace.last
    units, starts, ends, bus, pcs = trace.units, trace.starts, trace.ends, trace.bus, trace.pcs
    known, find = rules.known, rules.find
    running = [(IDLE, -1)] * len(Unit)  # per unit the rule of its latest operation, and the cycle in which that ends
    keys = [t << 2 | u for t, u in zip(starts, units, strict=True)]
    for n in sorted(range(len(keys)), key=keys.__getitem__):
        start = starts[n]
        if start > halt:
            break
        unit = units[n]
        fault: _Candidate | None = None
        if trace.ops[n] != FETCH:
            key = trace.ops[n], trace.registers[n]
            rule = known.get(key) or find(key)
            verified = start + CHECK
            cause = rule.cause
            if not cause:
                reads, writes = rule.reads, rule.writes
                for other, until in running:
                    if until < verified:
                        continue
                    if reads & other.reads or writes & other.writes:
                        cause = Cause.BANK_CONFLICT
                        break
                    if (reads & other.writes or writes & other.reads) and rule.races(other):
                        cause = Cause.RACE  # unless there is a conflict with a third unit
                if not cause:
                    running[unit] = rule, ends[n]
            if cause:
                fails[n] = True
                fault = (verified, unit, cause, pcs[n])
        if n in bus and not fails[n]:
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
    broken: Broken = (),
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
    broken
        (address, bytes) of parts of it that give bus errors as well; multiples of 64.
    """
    if memory_bytes % 4096 or not 0 < memory_bytes <= ADDRESS_SPACE:
        raise ValueError(f"memory_bytes must be a multiple of 4096 in 4096..2**32, not {memory_bytes}")
    if base % 4096 or not 0 <= base < ADDRESS_SPACE:
        raise ValueError(f"base must be a multiple of 4096 in 0..2**32-1, not {base}")
    if address % PAGE_BYTES or not 0 <= address < ADDRESS_SPACE:
        raise ValueError(f"address must be a multiple of {PAGE_BYTES} in 0..2**32-1, not {address}")
    if any(number % BROKEN_BYTES for part in broken for number in part):
        raise ValueError(f"broken must be multiples of {BROKEN_BYTES} bytes, not {broken}")
    words = as_words(program)
    if not len(words) and not config.serial:
        return _timeline(_Trace(pops=([], [], [], [])), [], 0, _first_of_page(FIRST_ACTION - 1), Fault(Cause.NO_END, 0))
    if config.serial:
        return time_microcoded(config, words, address, base, memory_bytes, broken)
    rules = rules_of(config)
    trace = _trace(rules, words, address, base, memory_bytes, broken)
    first, fails = _verify(rules, trace)
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
    return Timeline(unit, op, pc, start, end, ~failed, tuple(registers), cycles, counters, fault, trace.waits)
