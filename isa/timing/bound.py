"""The watchdog's bound: cycles that no run of a program exceeds."""

import numpy as np

from dovetail.isa.config.resolved import Config
from dovetail.isa.instructions.table import INSTRUCTIONS, PAGE_WORDS, REGISTERS, Op, Unit
from dovetail.isa.timing.memory import ADDRESS_SPACE
from dovetail.isa.timing.microcoded.run import time_microcoded
from dovetail.isa.timing.predecode import Words, as_words, front_end_faults
from dovetail.isa.timing.rules import rules_of
from dovetail.isa.timing.sequencer import END_TO_DONE, PAGE_READY

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
    rules = rules_of(config)
    stops = (front_end_faults(config, words) != 0) | (words & np.uint64(0xFF) == Op.END)
    stop = int(stops.argmax()) if stops.any() else len(words)
    registers = [[0] * 64 for _ in Unit]
    used = [len(REGISTERS[unit]) for unit in Unit]
    total = 0
    for word in words[:stop].tolist():
        code = word & 0xFF
        if code == Op.CFG:
            registers[word >> 14 & 3][word >> 8 & 0x3F] = word >> 32
        elif code != Op.SYNC:
            unit = INSTRUCTIONS[Op(code)].unit
            assert unit is not None
            key = (code, tuple(registers[unit][: used[unit]]))
            total += (rules.known.get(key) or rules.find(key)).duration
    # The page behind the one with the END is fetched as well.
    pages = min(len(words) // PAGE_WORDS, stop // PAGE_WORDS + 2)
    return total + 2 * (stop + 1) + pages * (rules.fetch + PAGE_READY + 2) + END_TO_DONE + 1
