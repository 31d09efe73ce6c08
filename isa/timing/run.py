"""Times a whole run of a program, and finds where it faults. No tensor data is touched.

Every SYNC refers to earlier instructions, so each word's times follow from those of the words before it
(`isa.timing.sequencer`). The first fault then cuts off what was not popped up to its cycle.
"""

import numpy as np
import numpy.typing as npt

from dovetail.isa.config.resolved import Config
from dovetail.isa.instructions.table import BUS_CAUSES, PAGE_BYTES, PAGE_WORDS, Cause, Op, Unit
from dovetail.isa.timing.core import first_fault, play
from dovetail.isa.timing.memory import ADDRESS_SPACE, BROKEN_BYTES, Broken, answers
from dovetail.isa.timing.microcoded.run import time_microcoded
from dovetail.isa.timing.operations import Operations, Rows, bus_error, rules_of
from dovetail.isa.timing.sequencer import (
    CHECK,
    END_TO_DONE,
    FIRST_ACTION,
    NEVER,
    PAGE_READY,
    Words,
    as_words,
    front_end_faults,
)
from dovetail.isa.timing.timeline import FETCH, Counters, Fault, Int64s, Timeline


def _stop(config: Config, words: npt.NDArray[np.uint64]) -> tuple[int, Cause]:
    """The word at which the front end stops, and why: NONE at an END."""
    faults = front_end_faults(config, words)
    stops = np.flatnonzero((faults != 0) | (words & np.uint64(0xFF) == Op.END))
    return (int(stops[0]), Cause(int(faults[stops[0]]))) if len(stops) else (len(words), Cause.NO_END)


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
    stop, cause = _stop(config, words)
    operations = Operations(words[:stop])
    causes, regions = operations.verify(config)
    rules = rules_of(config)
    durations = operations.durations(rules, causes)
    errors = _bus_errors(operations, causes, base, memory_bytes, broken)
    pages = min(stop // PAGE_WORDS + 2, len(words) // PAGE_WORDS)
    addresses = range(address, address + pages * PAGE_BYTES, PAGE_BYTES)
    lost = np.array([not answers(at % ADDRESS_SPACE, PAGE_BYTES, memory_bytes, broken) for at in addresses])
    played = play(
        words[:stop],
        np.where(causes | errors, NEVER, durations),
        np.where(lost, NEVER, np.int64(rules.fetch)),
    )

    # Operations and fetches in program order. The front end fetches page n + 1 before the first word of page n.
    follows = np.maximum(np.arange(-1, pages - 1), 0) * PAGE_WORDS
    fetches = np.searchsorted(operations.pcs, follows) + np.arange(pages)
    is_fetch = np.zeros(len(operations) + pages, np.bool_)
    is_fetch[fetches] = True

    def merged(of_operations: Int64s, of_fetches: Int64s | int) -> Int64s:
        column = np.empty((len(is_fetch), *of_operations.shape[1:]), np.int64)
        column[~is_fetch], column[is_fetch] = of_operations, of_fetches
        return column

    units, starts = merged(operations.units, Unit.LOAD), merged(played.pops[operations.pcs], played.fetches)
    ends, pcs = starts + merged(durations, rules.fetch), merged(operations.pcs, np.arange(pages))
    last = played.last + 1  # of the front end
    first = first_fault(
        units,
        starts,
        ends,
        merged(causes, 0),
        merged(errors, lost * Cause.BUS_FETCH),
        merged(regions, 0),
        config.bank_bytes,
        last if cause else NEVER,
    )
    fault = Fault(cause, stop) if cause else None
    if first.element >= 0:
        fault = Fault(first.cause, int(pcs[first.element]))
    ends[first.fails] = starts[first.fails] + CHECK

    # What was popped up to the fault.
    kept, popped = starts <= first.cycle, played.pops <= first.cycle
    finish = max(first.cycle if fault else last, int(ends[kept].max()), int(played.pops[popped].max(initial=0)))
    popped[operations.pcs] = False
    configs = np.bincount(played.units[popped], minlength=len(Unit)).tolist()
    waits = np.flatnonzero((words[:stop] & np.uint64(0xFF) == Op.SYNC) & (played.heads <= first.cycle))
    waits = np.stack([played.units[waits], played.heads[waits], played.pops[waits]], axis=-1)
    units, starts, ends = units[kept], starts[kept], ends[kept]
    counters = {}
    for unit in Unit:
        busy = int((ends - starts + 1)[units == unit].sum())
        _, head, pop = waits[waits[:, 0] == unit].T
        token = int((np.minimum(pop, first.cycle + 1) - head).sum())
        cycles = finish + END_TO_DONE
        counters[unit] = Counters(busy, configs[unit], token, cycles - busy - configs[unit] - token)
    return Timeline(
        units,
        merged(operations.ops, FETCH)[kept],
        pcs[kept],
        starts,
        ends,
        ~first.fails[kept],
        Rows(operations, kept, is_fetch),
        finish + END_TO_DONE,
        counters,
        fault,
        waits,
    )


def _bus_errors(operations: Operations, causes: Int64s, base: int, memory: int, broken: Broken) -> Int64s:
    """What the bus answers operations with that pass their checks: 0 where that is no error."""
    errors = np.zeros(len(operations), np.int64)
    reach = 0 if broken else memory - base
    suspects = np.flatnonzero((operations.memory_ends() > reach) & (causes == 0)).tolist()
    registers = operations.registers() if suspects else []
    for n in suspects:
        if bus_error(int(operations.ops[n]), registers[n], base, memory, broken):
            errors[n] = BUS_CAUSES[Unit(operations.units[n])]
    return errors


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
    total = int(operations.durations(rules, operations.verify(config)[0]).sum())
    # The page behind the one with the END is fetched as well.
    pages = min(len(words) // PAGE_WORDS, stop // PAGE_WORDS + 2)
    return total + 2 * (stop + 1) + pages * (rules.fetch + PAGE_READY + 2) + END_TO_DONE + 1
