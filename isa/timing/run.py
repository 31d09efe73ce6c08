"""Times a whole run of a program, and finds where it faults. No tensor data is touched.

Every SYNC refers to earlier instructions, so each word's times follow from those of the words before it
(`isa.timing.sequencer`). The first fault then cuts off what was not popped up to its cycle.
"""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from dovetail.isa.config.resolved import Config
from dovetail.isa.instructions.table import (
    BUS_CAUSES,
    PAGE_BYTES,
    PAGE_WORDS,
    QUEUE_DEPTH,
    Cause,
    Op,
    Unit,
)
from dovetail.isa.timing.memory import ADDRESS_SPACE, BROKEN_BYTES, Broken, answers
from dovetail.isa.timing.microcoded.run import time_microcoded
from dovetail.isa.timing.operations import IDLE, Operations, Rules, bus_error, rules_of
from dovetail.isa.timing.sequencer import (
    CHECK,
    END_TO_DONE,
    FIRST_ACTION,
    NEVER,
    PAGE_READY,
    Words,
    as_words,
    chunks_of,
    front_end_faults,
)
from dovetail.isa.timing.timeline import FETCH, Counters, Fault, Int64s, Timeline


@dataclass(frozen=True)
class _Trace:
    """Times of a program in which nothing faults but the bus and the front end, and in which operations that cannot
    work do not end; an element per operation and fetch, in program order."""

    unit: Int64s
    op: Int64s
    pc: Int64s
    start: Int64s
    end: Int64s
    registers: list[tuple[int, ...]]
    bus: dict[int, Cause]  # errors, by element
    pops: list[list[int]]  # of each unit
    waits: list[tuple[int, int, int]]  # unit, first cycle at the head, pop
    last: int  # cycle of END, or of the front end's fault
    fault: tuple[Cause, int] | None = None  # of the front end
    apart: bool = False  # whether all operations pass their checks and none conflicts with another


def _stop(config: Config, words: npt.NDArray[np.uint64]) -> tuple[int, Cause]:
    """The word at which the front end stops, and why: NONE at an END."""
    faults = front_end_faults(config, words)
    stops = np.flatnonzero((faults != 0) | (words & np.uint64(0xFF) == Op.END))
    return (int(stops[0]), Cause(int(faults[stops[0]]))) if len(stops) else (len(words), Cause.NO_END)


def _trace(rules: Rules, words: npt.NDArray[np.uint64], program: int, base: int, memory: int, broken: Broken) -> _Trace:
    config = rules.config
    stop, cause = _stop(config, words)
    fault = (cause, stop) if cause else None
    operations, chunks = Operations(words[:stop]), chunks_of(words, stop)
    registers = operations.registers()
    causes = operations.causes(config)
    total = len(operations) + len(chunks.fetches)
    places = np.delete(np.arange(total), chunks.fetches)  # of operations

    def column(values: Int64s, of_fetches: Int64s | int) -> Int64s:
        merged = np.empty(total, np.int64)
        merged[places], merged[chunks.fetches] = values, of_fetches
        return merged

    bus: dict[int, Cause] = {}
    reach = 0 if broken else memory - base
    for number in np.flatnonzero((operations.memory_ends() > reach) & (causes == 0)).tolist():
        if bus_error(int(operations.ops[number]), registers[number], base, memory, broken):
            bus[int(places[number])] = BUS_CAUSES[Unit(operations.units[number])]
    for page, place in enumerate(chunks.fetches.tolist()):
        if not answers((program + page * PAGE_BYTES) % ADDRESS_SPACE, PAGE_BYTES, memory, broken):
            bus[place] = Cause.BUS_FETCH
    durations = column(operations.durations(rules, causes), rules.fetch)
    lasting = durations.copy()
    lasting[[*places[causes != 0].tolist(), *bus]] = NEVER

    sequencer = chunks.run(lasting)
    starts = np.empty(len(operations), np.int64)
    for unit, begun in zip(Unit, sequencer.starts, strict=True):
        starts[operations.units == unit] = begun
    start = column(starts, np.array(sequencer.fetches))
    end = start + durations
    seen: list[tuple[int, ...]] = [()] * total
    for place, row in zip(places.tolist(), registers, strict=True):
        seen[place] = row
    return _Trace(
        unit=column(operations.units, Unit.LOAD),
        op=column(operations.ops, FETCH),
        pc=column(operations.pcs, np.arange(len(chunks.fetches))),
        start=start,
        end=end,
        registers=seen,
        bus=bus,
        pops=[pops[QUEUE_DEPTH:] for pops in sequencer.pops],
        waits=sequencer.waits,
        last=sequencer.now + 1,
        fault=fault,
        apart=not (fault or bus or causes.any() or operations.meet(config, starts, end[places])),
    )


_Candidate = tuple[int, int, Cause, int]
"""A fault: cycle, unit number (the front end's is above the units'), cause, pc. The least one is the first."""


def _verify(rules: Rules, trace: _Trace) -> tuple[_Candidate | None, list[bool]]:
    """The first fault, and which operations fail their checks; both hold for what was popped up to the fault."""
    fails = [False] * len(trace.start)
    if trace.apart:
        return None, fails
    first: _Candidate | None = None
    halt = NEVER
    if trace.fault:
        cause, pc = trace.fault
        first = (trace.last, len(Unit), cause, pc)
        halt = trace.last
    units, ops, pcs, starts, ends = (c.tolist() for c in (trace.unit, trace.op, trace.pc, trace.start, trace.end))
    known, find = rules.known, rules.find
    running = [(IDLE, -1)] * len(Unit)  # per unit the rule of its latest operation, and the cycle in which that ends
    keys = [t << 2 | u for t, u in zip(starts, units, strict=True)]
    for n in sorted(range(len(keys)), key=keys.__getitem__):
        start = starts[n]
        if start > halt:
            break
        unit = units[n]
        fault: _Candidate | None = None
        if ops[n] != FETCH:
            key = ops[n], trace.registers[n]
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
        if n in trace.bus and not fails[n]:
            fault = (ends[n], unit, trace.bus[n], pcs[n])
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
    if config.serial:
        return time_microcoded(config, words, address, base, memory_bytes, broken)
    if not len(words):
        cycles = FIRST_ACTION - 1 + PAGE_READY + END_TO_DONE
        none, idle = np.zeros(0, np.int64), {unit: Counters(0, 0, 0, cycles) for unit in Unit}
        return Timeline(none, none, none, none, none, none > 0, (), cycles, idle, Fault(Cause.NO_END, 0))
    rules = rules_of(config)
    trace = _trace(rules, words, address, base, memory_bytes, broken)
    first, fails = _verify(rules, trace)
    if first is None:
        return _timeline(trace, fails, NEVER, trace.last, None)
    halt, _, cause, pc = first
    return _timeline(trace, fails, halt, halt, Fault(cause, pc))


def _timeline(trace: _Trace, fails: list[bool], halt: int, last: int, fault: Fault | None) -> Timeline:
    """What was popped up to cycle ``halt``; ``last`` is the cycle of END or of the fault."""
    failed = np.array(fails, np.bool_)
    columns = [trace.unit, trace.op, trace.pc, trace.start, np.where(failed, trace.start + CHECK, trace.end)]
    registers, pops, waits = trace.registers, trace.pops, trace.waits
    if fault:
        kept = trace.start <= halt
        columns, failed = [column[kept] for column in columns], failed[kept]
        registers = [r for r, keep in zip(registers, kept.tolist(), strict=True) if keep]
        pops = [[t for t in p if t <= halt] for p in pops]
        waits = [wait for wait in waits if wait[1] <= halt]
    unit, op, pc, start, end = columns
    finish = max([last, int(end.max(initial=0))] + [p[-1] for p in pops if p])
    cycles = finish + END_TO_DONE
    counters = {}
    for u in Unit:
        mine = unit == u
        operations = int(mine.sum())
        busy = int((end - start)[mine].sum()) + operations
        config = len(pops[u]) - operations
        token = sum(min(pop, halt + 1) - head for v, head, pop in waits if v == u)
        counters[u] = Counters(busy, config, token, cycles - busy - config - token)
    return Timeline(unit, op, pc, start, end, ~failed, tuple(registers), cycles, counters, fault, waits)


MICROCODED_SLACK = 64
"""On the microcoded accelerator a bus fault may replace what follows it. These are the cycles it takes at most."""


def cycle_bound(config: Config, program: Words) -> int:
    """What a program takes at most, with everything one after the other, as a formula of its decoded words.

    In every cycle of a run at least one thing moves: a word is dispatched or popped, an operation or a fetch is under
    way, or a page is on its way from its fetch to the first word. So with W words up to the END (or the word that the
    front end refuses) and P pages fetched for them,

        bound = 2 * W + (sum of the durations of all operations) + P * (fetch + PAGE_READY + 2) + END_TO_DONE + 1

    in the durations of `isa/timing`, whatever faults. Where memory answers later than ``config.memory`` says, the bound
    grows by as many cycles as all its answers together are late.
    """
    words = as_words(program)
    if config.serial:
        return time_microcoded(config, words, 0, 0, ADDRESS_SPACE, ()).cycles + MICROCODED_SLACK
    rules, (stop, _) = rules_of(config), _stop(config, words)
    operations = Operations(words[:stop])
    total = int(operations.durations(rules, operations.causes(config)).sum())
    # The page behind the one with the END is fetched as well.
    pages = min(len(words) // PAGE_WORDS, stop // PAGE_WORDS + 2)
    return total + 2 * (stop + 1) + pages * (rules.fetch + PAGE_READY + 2) + END_TO_DONE + 1
