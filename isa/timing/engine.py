"""Times a whole program in one pass: front end, queues, units, completion counts, faults.

Every SYNC refers to earlier instructions, so each word's times follow from those of the words before it (a max-plus
recurrence; ``docs/architecture.md``). No tensor data is touched.
"""

from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from dovetail.isa.config import Config
from dovetail.isa.instructions import INSTRUCTIONS, PAGE_BYTES, PAGE_WORDS, QUEUE_DEPTH, REGISTERS, Cause, Op, Unit
from dovetail.isa.timing.common import CHECK
from dovetail.isa.timing.engine_constants import END_TO_DONE, FIRST_ACTION, PAGE_READY
from dovetail.isa.timing.predecode import Words, as_words, front_end_faults
from dovetail.isa.timing.rules import (
    ADDRESS_SPACE,
    BROKEN_BYTES,
    IDLE,
    Broken,
    Rule,
    Rules,
    answers,
    bus_error,
    rules_of,
)
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
    rules: list[Rule | None] = field(default_factory=list)
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


def _trace(rules: Rules, words: npt.NDArray[np.uint64], program: int, base: int, memory: int, broken: Broken) -> _Trace:
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
        error = not answers(address, PAGE_BYTES, memory, broken)
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
                elif (rule.top + base > memory or (broken and rule.top > 0)) and bus_error(
                    code, key[1], base, memory, broken
                ):
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
    running = [(IDLE, -1)] * len(Unit)  # per unit the rule of its latest operation, and the cycle in which that ends
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
    if not len(words):
        return _timeline(_Trace(pops=([], [], [], [])), [], 0, _first_of_page(FIRST_ACTION - 1), Fault(Cause.NO_END, 0))
    trace = _trace(rules_of(config), words, address, base, memory_bytes, broken)
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
    return Timeline(unit, op, pc, start, end, ~failed, tuple(registers), cycles, counters, fault, trace.waits)
