"""The clock that follows a growing program against the engine that knows it whole."""

import random

import pytest

from dovetail.isa.checks import INDEX
from dovetail.isa.config import Config
from dovetail.isa.instructions import PAGE_WORDS, Op, Unit, cfg, decode
from dovetail.isa.timing.clock import Clock
from dovetail.isa.timing.engine import time_program
from dovetail.sw.random_programs import legal_program, random_config


@pytest.mark.parametrize("seed", range(20))
def test_the_same_cycles_as_the_engine(seed: int) -> None:
    rng = random.Random(seed)
    config = random_config(rng)
    words = list(legal_program(rng, config).words)
    words = words[: [word & 0xFF for word in words].index(Op.END)]
    # The last page, without operations, is the one that the clock always fetches ahead.
    words += [cfg(Unit.LOAD, "LENGTH", 1)] * (-len(words) % PAGE_WORDS)
    clock, ends = Clock(config), []
    for word in words:
        decoded = decode(word)
        assert decoded.op is not None
        assert decoded.unit is not None
        if decoded.op == Op.CFG:
            assert decoded.register is not None
            clock.write(decoded.unit, INDEX[decoded.unit][decoded.register.name], decoded.value)
        elif decoded.op == Op.SYNC:
            assert decoded.on is not None
            clock.wait(decoded.unit, decoded.on, decoded.value)
        else:
            clock.operate(decoded.unit, decoded.op)
            ends.append(clock.free[decoded.unit] - 1)
    timeline = time_program(config, [*words, Op.END, *[0] * (PAGE_WORDS - 1)])
    assert ends == timeline.end[~timeline.is_fetch].tolist()
    assert clock.ended == max(ends) + 1


def test_an_operation_that_fails_its_checks() -> None:
    with pytest.raises(ValueError, match="DMA_READ must pass its checks, not fail with ZERO_SIZE"):
        Clock(Config()).operate(Unit.LOAD, Op.DMA_READ)
