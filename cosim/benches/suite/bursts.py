"""Bench of the burst walker's stream: bursts of transfers at every boundary and of random ones, with back-pressure.

Options: ``bus_bytes``, ``seed``, ``transfers`` (how many random ones come after those at boundaries).
"""

import random
from collections.abc import Iterator
from typing import Any

import cocotb
from amaranth.hdl import Const

from dovetail.cosim.benches.bench import Scoreboard, cycles, options, pauses, rng, start, until
from dovetail.cosim.benches.streams import StreamMonitor, StreamSink
from dovetail.hw.dma.burst import Burst, Transfer
from dovetail.isa.timing.dma import BOUNDARY, MAX_BURST, Shape, bursts

LIMIT = 20_000
PAGE = 5 * BOUNDARY
"""Where transfers at boundaries begin or end."""


def at_boundaries(size: int) -> Iterator[dict[str, int]]:
    """Rows that begin and end a byte or a beat beside a beat, the longest burst and a page, and what a second row and a
    second plane make of them. ``size``: bytes of a beat."""
    longest = MAX_BURST * size
    beside = (-size, -1, 0, 1, size)
    places = sorted({0, BOUNDARY - 1} | {edge + d for edge in (0, BOUNDARY - longest, BOUNDARY) for d in beside})
    for place in places:
        ends = {place + n for n in (1, size - 1, size, size + 1, 2 * size)}
        ends |= {edge + d for edge in (place + longest, BOUNDARY, 2 * BOUNDARY) for d in beside}
        for end in sorted(end for end in ends if end > place):
            one = {"row_step": 0, "plane_step": 0, "rows": 1, "planes": 1}
            yield {"address": PAGE + place, **one, "span": end - place - 1}
    for rows, planes in ((1, 2), (1, 3), (2, 1), (2, 2), (3, 2), (2, 3)):
        for step in (1, size - 1, size, BOUNDARY - 1, 2**32 - size):
            for span in (0, size - 1, size, longest):
                steps = {"row_step": step, "plane_step": (3 * step + 1) % 2**32}
                values = {**steps, "span": span, "rows": rows, "planes": planes}
                yield {"address": PAGE + size - 1, **values}


def drawn(numbers: random.Random) -> dict[str, int]:
    """A random transfer."""
    length = numbers.choice((numbers.randint(1, 40), numbers.randint(1, 6000)))
    rows, planes = numbers.randint(1, 5), numbers.randint(1, 3)
    address, row_step, plane_step = (numbers.getrandbits(31), numbers.randrange(9000), numbers.randrange(9000))
    steps = {"row_step": row_step, "plane_step": plane_step}
    return {"address": address, **steps, "span": length - 1, "rows": rows, "planes": planes}


@cocotb.test()
@cocotb.parametrize(stall=[0.0, 0.5])
async def bursts_of_transfers(dut: Any, stall: float) -> None:
    """All bursts of all rows, as ``isa.timing.dma`` cuts them. Messages name the transfer."""
    numbers, size = rng(), options()["bus_bytes"]
    board = Scoreboard[tuple[int, int]]("bursts", lambda burst: f"{burst[1]} beats at {burst[0]:#x}")

    def taken(payload: int) -> None:
        burst = Burst.from_bits(payload)
        board.check((int(burst.address), int(burst.length) + 1))

    StreamSink(dut, "o", stall=pauses(numbers, stall))
    StreamMonitor(dut, "o", taken)
    dut.room.value = 1
    await start(dut)
    transfers = [*at_boundaries(size), *(drawn(numbers) for _ in range(options().get("transfers", 20)))]
    for n, values in enumerate(transfers):
        board.name = f"transfer {n}, " + ", ".join(f"{name} {value:#x}" for name, value in values.items())
        dut.transfer.value = Const.cast(Transfer.const(values)).value
        await cycles(dut, 2)
        shape = Shape(**{name: values[name] for name in Shape._fields[:5]}, length=values["span"] + 1)
        for row in shape.starts():
            for start_of, _, beats in bursts(row, shape.length, size):
                board.expect((start_of // size * size, beats))
        dut.begin.value = 1
        await cycles(dut, 1)
        dut.begin.value = 0
        await cycles(dut, 1)
        await until(dut, lambda: not dut.active.value, limit=LIMIT, what=f"{board.name}: the last burst")
        assert board.empty, f"{board.name}: bursts are missing"
