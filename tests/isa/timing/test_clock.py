"""The clock that follows a growing program against the engine that knows it whole."""

import random
from itertools import groupby

import pytest

from dovetail.isa.instructions.checks import View
from dovetail.isa.instructions.table import PAGE_WORDS, REGISTERS, Op, Unit, cfg, decode
from dovetail.isa.timing.operations import duration, rules_of
from dovetail.isa.timing.run import time_program
from dovetail.isa.timing.sequencer import OPERATION, WAIT, WRITES, Clock
from dovetail.sw.random.programs.legal import legal_program
from dovetail.sw.random.programs.registers import random_config


@pytest.mark.parametrize("full", [True, False])
@pytest.mark.parametrize("seed", range(20))
def test_the_same_cycles_as_the_engine(seed: int, full: bool) -> None:
    """``full``: the end is alone on the last page; else it is anywhere on it."""
    rng = random.Random(seed)
    config = random_config(rng)
    words = list(legal_program(rng, config).words)
    words = words[: [word & 0xFF for word in words].index(Op.END)]
    if full:
        words += [cfg(Unit.LOAD, "LENGTH", 1)] * (-len(words) % PAGE_WORDS)
    clock, ends = Clock(rules_of(config).fetch), []
    values = {unit: [0] * len(REGISTERS[unit]) for unit in Unit}
    for (op, unit), run in groupby(map(decode, words), key=lambda word: (word.op, word.unit)):
        assert op is not None
        assert unit is not None
        decoded = list(run)
        if op == Op.CFG:
            # Neighbouring writes at once, or in two parts.
            first = rng.randint(0, len(decoded))
            clock.add([(WRITES, unit, count, 0) for count in (first, len(decoded) - first) if count])
        for word in decoded:
            if word.register is not None:
                values[unit][word.register.index] = word.value
            elif word.on is not None:
                clock.add([(WAIT, unit, word.value, word.on)])
            else:
                clock.add([(OPERATION, unit, duration(config, op, View(unit, values[unit])), 0)])
                ends.append(clock.free[unit] - 1)
    timeline = time_program(config, [*words, *[int(Op.END)] * (PAGE_WORDS - len(words) % PAGE_WORDS)])
    operations = ~timeline.is_fetch
    if full:  # the clock fetches a page behind the one that it is on
        assert ends == timeline.end[operations].tolist()
    assert clock.end() == timeline.cycles
    assert clock.ended == timeline.end[operations].max() + 1
    assert clock.begun == timeline.start[operations].min()
