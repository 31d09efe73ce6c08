"""The counters of a run: exact when read during it, after it, and in the next one."""

import random
from typing import Any

import pytest

from dovetail.hw.sequencer.statistics import COUNTERS, Statistics
from dovetail.isa.host import STALLS
from dovetail.isa.instructions.table import Unit
from tests.hw.benches import simulate

LENGTHS = [1, 2, 3, 15, 16, 17, 40, 600, *[9] * 12]
"""Cycles of the runs; after some the next one starts at once."""


@pytest.mark.parametrize("seed", range(3))
def test_counters_against_sums(seed: int) -> None:
    """A read at any time gives what was counted before one of its cycles."""
    dut = Statistics()
    counter = dut.counter
    numbers = random.Random(seed)

    async def bench(ctx: Any) -> None:
        asked, reads = -1, 0
        """Cycle of the run in which a counter was first asked for; -1: none is."""
        for length in LENGTHS:
            sums = [[0] * COUNTERS]
            """What was counted before each cycle."""
            ctx.set(dut.clear, 1)
            await ctx.tick()
            ctx.set(dut.clear, 0)
            asked, active = -1, [3] * len(Unit)
            ctx.set(counter.ask, 0)
            for cycle in range(length + numbers.choice((0, 0, 4, 300))):
                running = cycle < length
                ctx.set(dut.running, running)
                for unit in Unit:
                    if numbers.random() < 0.03:
                        active[unit] = numbers.randrange(len(STALLS))
                    for n, name in enumerate(("busy", "config", "token")):
                        ctx.set(getattr(dut.activity[unit], name), active[unit] == n)
                chosen = {len(STALLS) * unit + active[unit] for unit in Unit} if running else set()
                sums.append([value + (n in chosen) for n, value in enumerate(sums[-1])])
                if asked < 0 and numbers.random() < 0.5:
                    asked, number = cycle, numbers.randrange(COUNTERS)
                    ctx.set(counter.number, number)
                    ctx.set(counter.ask, 1)
                _, _, answered, value, cycles = await ctx.tick().sample(counter.answered, counter.value, dut.cycles)
                assert cycles == max(0, min(cycle - 1, length)), (length, cycle)
                if asked >= 0 and answered and cycle > asked + 1:  # before: a turn of the run before
                    assert sums[asked][number] <= value <= sums[cycle][number], (length, cycle, number, value)
                    assert cycle - asked <= (COUNTERS + 2 if running else COUNTERS + 5)
                    asked, reads = -1, reads + 1
                    ctx.set(counter.ask, 0)
            ctx.set(dut.running, 0)
        assert reads > 50

    simulate(dut, bench)
