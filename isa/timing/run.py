"""Times a whole run of a program, and finds where it faults. No tensor data is touched.

Rules for single operations are evaluated here, for all at once; `isa.timing.core` plays the program. Every SYNC refers
to earlier instructions, so each word's times follow from those of the words before it (`isa.timing.sequencer`). The
first fault then cuts off what was not popped up to its cycle.
"""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from dovetail.isa.config.given import MemoryTiming
from dovetail.isa.config.resolved import Config
from dovetail.isa.instructions.parameters import resolve
from dovetail.isa.instructions.table import BUS_CAUSES, PAGE_BYTES, PAGE_WORDS, Cause, Op, Unit
from dovetail.isa.timing.core.engine import play_together, run
from dovetail.isa.timing.core.recurrence import Outcome, Work
from dovetail.isa.timing.core.rounds import Machine, Task
from dovetail.isa.timing.memory import ADDRESS_SPACE, BROKEN_BYTES, Broken, answers
from dovetail.isa.timing.microcoded.run import time_microcoded
from dovetail.isa.timing.operations import Operations, Rows, bus_error, rules_of
from dovetail.isa.timing.sequencer import (
    END_TO_DONE,
    FIRST_ACTION,
    PAGE_READY,
    Words,
    as_words,
    front_end_faults,
)
from dovetail.isa.timing.timeline import Counters, Fault, Int64s, Timeline


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
    parameters: Sequence[int] = (),
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
    parameters
        Values of the host registers PARAM1 and up; those left out are 0.
    """
    check_places(address, base, memory_bytes, broken)
    words = resolve(config, as_words(program), parameters)
    if config.serial:
        return time_microcoded(config, words, address, base, memory_bytes, broken)
    if not len(words):
        return without_words()
    work, operations = work_of(config, words, address, base, memory_bytes, broken)
    if isinstance(config.memory, MemoryTiming):
        return timeline_of(run(work), operations)
    (done,) = play_together(alone(config), [Task(0, work, address, operations.shapes(base))], [0])
    assert done and done.outcome
    return timeline_of(done.outcome, operations)


def alone(config: Config) -> Machine:
    """An accelerator right at its memory."""
    return Machine([config.outstanding], [config.bus_bytes], False, config.memory, config.bus_bytes)


def check_places(address: int, base: int, memory_bytes: int, broken: Broken) -> None:
    """Raises ValueError unless these are what :func:`time_program` takes."""
    if memory_bytes % 4096 or not 0 < memory_bytes <= ADDRESS_SPACE:
        raise ValueError(f"memory_bytes must be a multiple of 4096 in 4096..2**32, not {memory_bytes}")
    if base % 4096 or not 0 <= base < ADDRESS_SPACE:
        raise ValueError(f"base must be a multiple of 4096 in 0..2**32-1, not {base}")
    if address % PAGE_BYTES or not 0 <= address < ADDRESS_SPACE:
        raise ValueError(f"address must be a multiple of {PAGE_BYTES} in 0..2**32-1, not {address}")
    if any(number % BROKEN_BYTES for part in broken for number in part):
        raise ValueError(f"broken must be multiples of {BROKEN_BYTES} bytes, not {broken}")


def without_words() -> Timeline:
    """Of a program of no pages."""
    cycles = FIRST_ACTION - 1 + PAGE_READY + END_TO_DONE
    none, idle = np.zeros(0, np.int64), {unit: Counters(0, 0, 0, cycles) for unit in Unit}
    return Timeline(none, none, none, none, none, none > 0, (), cycles, idle, Fault(Cause.NO_END, 0))


def work_of(
    config: Config, words: npt.NDArray[np.uint64], address: int, base: int, memory_bytes: int, broken: Broken
) -> tuple[Work, Operations]:
    """What the rules say of a program of at least one page; of transfers, as if nobody else used memory."""
    stop, cause = _stop(config, words)
    rules, operations = rules_of(config), Operations(words[:stop])
    causes, regions = operations.verify(config)
    pages = min(stop // PAGE_WORDS + 2, len(words) // PAGE_WORDS)  # the one behind each is fetched with it
    work = Work(
        words=words[:stop],
        cycles=operations.durations(rules, causes),
        causes=causes,
        errors=_bus_errors(operations, causes, base, memory_bytes, broken),
        regions=regions,
        fetches=np.full(pages, rules.fetch),
        lost=_lost_pages(address, pages, memory_bytes, broken),
        stopped=cause,
        bank_bytes=config.bank_bytes,
    )
    return work, operations


def timeline_of(done: Outcome, operations: Operations) -> Timeline:
    """An outcome for those who look at it."""
    counters = {
        unit: Counters(busy, writes, token, done.cycles - busy - writes - token)
        for unit, busy, writes, token in zip(Unit, done.busy, done.config, done.token, strict=True)
    }
    units, ops, pcs, starts, ends = done.columns
    why, pc = done.fault
    return Timeline(
        units,
        ops,
        pcs,
        starts,
        ends,
        done.works,
        Rows(operations, ops, pcs),
        done.cycles,
        counters,
        Fault(Cause(why), pc) if why else None,
        done.waits,
    )


def _lost_pages(program: int, pages: int, memory: int, broken: Broken) -> Int64s:
    """What the bus answers the fetches of pages with: 0 where that is no error."""
    lost = np.zeros(pages, np.int64)
    if not answers(program, pages * PAGE_BYTES, memory, broken):
        for page in range(pages):
            if not answers((program + page * PAGE_BYTES) % ADDRESS_SPACE, PAGE_BYTES, memory, broken):
                lost[page] = Cause.BUS_FETCH
    return lost


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


def cycle_bound(config: Config, program: Words, parameters: Sequence[int] = ()) -> int:
    """What a program takes at most, with everything one after the other, as a formula of its decoded words.

    In every cycle of a run at least one thing moves: a word is dispatched or popped, an operation or a fetch is under
    way, or a page is on its way from its fetch to the first word. So with W words up to the END (or the word that the
    front end refuses) and P pages fetched for them,

        bound = 2 * W + (sum of the durations of all operations) + P * (fetch + PAGE_READY + 2) + END_TO_DONE + 1

    in the durations of `isa/timing`, whatever faults. Where memory answers later than ``config.memory`` says, the bound
    grows by as many cycles as all its answers together are late. With a memory that is not ``fixed``, durations are
    those with ``config.like_fixed``, in which a beat takes a cycle at least, and the bound is as many times that as the
    slowest beat takes cycles. ``parameters``: as in :func:`time_program`.
    """
    words = resolve(config, as_words(program), parameters)
    if config.serial:
        return time_microcoded(config, words, 0, 0, ADDRESS_SPACE, ()).cycles + MICROCODED_SLACK
    rules, (stop, _) = rules_of(config), _stop(config, words)
    operations = Operations(words[:stop])
    total = int(operations.durations(rules, operations.verify(config)[0]).sum())
    # The page behind the one with the END is fetched as well.
    pages = min(len(words) // PAGE_WORDS, stop // PAGE_WORDS + 2)
    bound = total + 2 * (stop + 1) + pages * (rules.fetch + PAGE_READY + 2) + END_TO_DONE + 1
    return bound if isinstance(config.memory, MemoryTiming) else bound * config.memory.slowest(config.bus_bytes)
