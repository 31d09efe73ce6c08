"""When everything in a program happens on the microcoded accelerator: one word after the other."""

import numpy as np
import numpy.typing as npt

from dovetail.isa.config.resolved import Config
from dovetail.isa.instructions.table import BUS_CAUSES, INSTRUCTIONS, PAGE_WORDS, REGISTERS, WORD_BYTES, Cause, Op, Unit
from dovetail.isa.timing.memory import ADDRESS_SPACE, Broken, answers
from dovetail.isa.timing.microcoded.durations import (
    AFTER,
    CFG,
    FAILED,
    FINISH,
    STEP,
    SYNC,
    fault_steps,
    fetch,
    start,
    steps_to,
)
from dovetail.isa.timing.operations import bus_error, rules_of
from dovetail.isa.timing.sequencer import front_end_faults
from dovetail.isa.timing.timeline import Counters, Fault, Timeline


def time_microcoded(
    config: Config, words: npt.NDArray[np.uint64], address: int, base: int, memory_bytes: int, broken: Broken
) -> Timeline:
    """What :func:`~dovetail.isa.timing.run.time_program` gives, for the microcoded accelerator. ``words``: whole
    pages."""
    rules = rules_of(config)
    causes = front_end_faults(config, words)
    registers = {unit: [0] * len(REGISTERS[unit]) for unit in Unit}
    rows: list[tuple[int, int, int, int, int, bool]] = []
    seen: list[tuple[int, ...]] = []
    waits: list[tuple[int, int, int]] = []
    busy, config_cycles = [0] * len(Unit), [0] * len(Unit)
    reading = fetch(config)
    now = start(config)
    fault: Fault | None = None
    pc = 0
    while fault is None:
        if pc == len(words):
            fault = Fault(Cause.NO_END, pc)
            now += 3 * STEP
            break
        word = int(words[pc])
        now += reading
        if not answers((address + pc * WORD_BYTES) % ADDRESS_SPACE, WORD_BYTES, memory_bytes, broken):
            fault = Fault(Cause.BUS_FETCH, pc // PAGE_WORDS)
            now += 3 * STEP
            break
        if causes[pc]:
            fault = Fault(Cause(int(causes[pc])), pc)
            now += STEP * fault_steps(config, word, fault.cause)
            break
        code = word & 0xFF
        if code == Op.CFG:
            number = word >> 8 & 0xFF
            registers[Unit(number >> 6)][number & 0x3F] = word >> 32
            config_cycles[number >> 6] += 1
            now += STEP * CFG
        elif code == Op.SYNC:
            waits.append((word >> 8 & 0xFF, now, now))
            config_cycles[word >> 8 & 0xFF] += 1
            now += STEP * SYNC
        elif code == Op.END:
            now += STEP * steps_to(config, Op.END)
            break
        else:
            op = Op(code)
            unit = INSTRUCTIONS[op].unit
            assert unit is not None
            begin = now + STEP * steps_to(config, op) - 1
            values = tuple(registers[unit])
            rule = rules.known.get((code, values)) or rules.find((code, values))
            end = begin + rule.duration
            rows.append((unit, code, pc, begin, end, not rule.cause))
            seen.append(values)
            busy[unit] += rule.duration + 1
            now = end + 1
            if rule.cause:
                fault = Fault(rule.cause, pc)
                now += STEP * FAILED
            elif unit in BUS_CAUSES and bus_error(code, values, base, memory_bytes, broken):
                fault = Fault(BUS_CAUSES[unit], pc)
                now += STEP * (FAILED + 1)
            else:
                now += STEP * AFTER[unit]
        pc += 1
    cycles = now + FINISH
    counters = {u: Counters(busy[u], config_cycles[u], 0, cycles - busy[u] - config_cycles[u]) for u in Unit}
    columns = np.array(rows, np.int64).reshape(-1, 6).T
    unit_, ops, pcs, starts, ends, works = columns
    return Timeline(
        unit_,
        ops,
        pcs,
        starts,
        ends,
        works.astype(np.bool_),
        tuple(seen),
        cycles,
        counters,
        fault,
        np.array(waits, np.int64).reshape(-1, 3),
    )
