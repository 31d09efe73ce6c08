"""The rule of the SDRAM controller against its hardware."""

from typing import Any

import pytest

from dovetail.hw.board.memory import BoardMemory
from dovetail.isa.timing.memories.sdram import NANOSECONDS, Sdram, cycles_of
from tests.hw.benches import simulate
from tests.hw.board.test_memory import Bench

BURSTS = 18
"""Of each direction."""


@pytest.mark.parametrize(("clock", "refresh"), [(100, 7800), (100, 700), (40, 7800)])
@pytest.mark.parametrize(("kind", "bus"), [("sdram", 32), ("sdram", 64), ("sdram32", 32), ("sdram32", 128)])
def test_every_beat_and_answer(kind: str, bus: int, clock: int, refresh: int) -> None:
    bench = Bench(kind, bus, 1 << 16, seed=bus + refresh + clock)
    times = NANOSECONDS | {"power_up": 2000, "refresh_interval": refresh}
    bench.dut.nanoseconds, bench.dut.clock_hz = times, clock * 1_000_000
    late = [bench.rng.choice((0, 0, 3, 30)) for _ in range(BURSTS)]
    bench.late = late.__getitem__

    async def host(ctx: Any) -> None:
        await bench.traffic(ctx, BURSTS)

    simulate(bench.dut, host)
    chip = BoardMemory(kind, 1 << 16).chip
    assert chip is not None
    rule = Sdram(
        bus_bytes=bus // 8, width=chip.width, column_bits=chip.column_bits, cycles=cycles_of(times, clock * 1_000_000)
    )
    bursts = [(read.cycle, False, read.address, read.beats, 0) for read in bench.reads]
    writes = zip(bench.addressed, bench.write_bursts, late, strict=True)
    bursts += [(cycle, True, *burst, cycle + 1 + more) for cycle, burst, more in writes]
    bursts.sort()
    beats, answers = [], []
    while bursts or rule.next is not None:
        if bursts and (rule.next is None or bursts[0][0] < rule.next):
            cycle, write, address, count, data = bursts.pop(0)
            rule.take(cycle, address, count, write=write, data=data)
            continue
        (beat,) = rule.serve()
        if not beat.write:
            beats.append((beat.cycle, beat.last))
        elif beat.last:
            answers.append(beat.cycle)
    assert beats == [(cycle, bool(last)) for cycle, _, _, last in bench.read_beats]
    assert answers == [cycle for cycle, _ in bench.answers]
