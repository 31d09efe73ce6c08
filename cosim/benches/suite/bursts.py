"""Bench of the burst walker's stream: bursts of random transfers, taken with random back-pressure.

Options: ``bus_bytes``, ``seed``, ``transfers`` (how many).
"""

from typing import Any

import cocotb
from amaranth.hdl import Const

from dovetail.cosim.benches.bench import Scoreboard, cycles, options, pauses, rng, start, until
from dovetail.cosim.benches.streams import StreamMonitor, StreamSink
from dovetail.hw.burst import Burst, Transfer
from dovetail.isa.timing.dma import bursts, row_addresses

LIMIT = 20_000


@cocotb.test()
@cocotb.parametrize(stall=[0.0, 0.5])
async def bursts_of_transfers(dut: Any, stall: float) -> None:
    """All bursts of all rows, as ``isa.timing.dma`` cuts them."""
    numbers, size = rng(), options()["bus_bytes"]
    board = Scoreboard[tuple[int, int]]("bursts")

    def taken(payload: int) -> None:
        burst = Burst.from_bits(payload)
        board.check((int(burst.address), int(burst.length) + 1))

    StreamSink(dut, "o", stall=pauses(numbers, stall))
    StreamMonitor(dut, "o", taken)
    await start(dut)
    for _ in range(options().get("transfers", 20)):
        length = numbers.choice((numbers.randint(1, 40), numbers.randint(1, 6000)))
        rows, planes = numbers.randint(1, 5), numbers.randint(1, 3)
        address, row_step, plane_step = (numbers.getrandbits(31), numbers.randrange(9000), numbers.randrange(9000))
        values = {
            "address": address,
            "row_step": row_step,
            "plane_step": plane_step,
            "span": length - 1,
            "rows": rows,
            "planes": planes,
        }
        dut.transfer.value = Const.cast(Transfer.const(values)).value
        await cycles(dut, 2)
        for row in row_addresses(address, rows, planes, row_step, plane_step):
            for start_of, _, beats in bursts(row, length, size):
                board.expect((start_of // size * size, beats))
        dut.begin.value = 1
        await cycles(dut, 1)
        dut.begin.value = 0
        await cycles(dut, 1)
        await until(dut, lambda: not dut.active.value, limit=LIMIT, what="the last burst")
        assert board.empty, "bursts are missing"
