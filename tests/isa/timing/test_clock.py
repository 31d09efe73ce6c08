"""The clock that follows a growing program against the engine that knows it whole."""

import random
from array import array

import pytest

from dovetail.isa.instructions.checks import View
from dovetail.isa.instructions.table import PAGE_WORDS, REGISTERS, Op, Unit, cfg, decode
from dovetail.isa.timing.core import engine
from dovetail.isa.timing.operations import duration, rules_of
from dovetail.isa.timing.run import time_program
from dovetail.sw.random.programs.accelerators import random_config
from dovetail.sw.random.programs.legal import legal_program


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
    clock, ends = engine.clock(rules_of(config).fetch), []
    values = {unit: [0] * len(REGISTERS[unit]) for unit in Unit}
    taken, first = array("Q"), 0
    for word in words:
        taken.append(word)
        decoded = decode(word)
        assert decoded.op is not None
        assert decoded.unit is not None
        if decoded.register is not None:
            values[decoded.unit][decoded.register.index] = decoded.value
        is_operation = decoded.op not in (Op.CFG, Op.SYNC)
        if is_operation or rng.random() < 0.2:
            lasts = duration(config, decoded.op, View(decoded.unit, values[decoded.unit])) if is_operation else 0
            clock.add(taken, first, lasts)
            first = len(taken)
            if is_operation:
                ends.append(clock.free[decoded.unit] - 1)
    clock.add(taken, first, 0)
    timeline = time_program(config, [*words, *[int(Op.END)] * (PAGE_WORDS - len(words) % PAGE_WORDS)])
    operations = ~timeline.is_fetch
    if full:  # the clock fetches a page behind the one that it is on
        assert ends == timeline.end[operations].tolist()
    assert clock.end() == timeline.cycles
    assert clock.ended == timeline.end[operations].max() + 1
    assert clock.begun == timeline.start[operations].min()
