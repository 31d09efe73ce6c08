"""Bench of a queue: ports ``i`` and ``o`` (streams), ``clear``. Every cycle is checked.

Options: ``depth``, ``seed``, ``items`` (how many), ``idle`` and ``stall`` (shares of cycles).
"""

from collections import deque
from typing import Any

import cocotb
from cocotb.triggers import RisingEdge

from dovetail.cosim.benches.bench import Scoreboard, cycles, options, pauses, rng, start, until
from dovetail.cosim.benches.streams import StreamDriver, StreamMonitor, StreamSink

SHARES = {"flowing": (0.0, 0.0), "filling": (0.1, 0.8), "draining": (0.8, 0.1), "mixed": (0.5, 0.5)}
"""(idle, stalled) shares of cycles."""
LIMIT = 20_000


class FifoModel:
    """A first-in first-out queue of ``depth``: a place freed or an item pushed counts from the next cycle on."""

    def __init__(self, dut: Any, depth: int) -> None:
        self.dut, self.depth = dut, depth
        self.items: deque[int] = deque()
        self.full_cycles = 0
        cocotb.start_soon(self._run())

    async def _run(self) -> None:
        dut = self.dut
        while True:
            await RisingEdge(dut.clk)
            if dut.rst.value:
                continue
            assert bool(dut.o__valid.value) == bool(self.items), f"o.valid with {len(self.items)} items"
            assert bool(dut.i__ready.value) == (len(self.items) < self.depth), f"i.ready with {len(self.items)} items"
            self.full_cycles += len(self.items) == self.depth
            pushed = dut.i__valid.value and dut.i__ready.value
            if self.items:
                assert int(dut.o__payload.value) == self.items[0], "o.payload must be the oldest item"
                if dut.o__ready.value:
                    self.items.popleft()
            if pushed:
                self.items.append(int(dut.i__payload.value))
            if dut.clear.value:
                self.items.clear()


@cocotb.test()
@cocotb.parametrize(shares=list(SHARES))
async def order_and_flow_control(dut: Any, shares: str) -> None:
    """What goes in comes out, in order, whatever the pauses; both ends are right in every cycle."""
    numbers = rng(len(shares))
    idle, stall = SHARES[shares]
    board = Scoreboard[int](f"queue, {shares}", hex)
    driver = StreamDriver(dut, "i", idle=pauses(numbers, idle))
    StreamSink(dut, "o", stall=pauses(numbers, stall))
    StreamMonitor(dut, "i", board.expect)
    output = StreamMonitor(dut, "o", board.check)
    model = FifoModel(dut, options()["depth"])
    await start(dut)
    items = [numbers.getrandbits(len(dut.i__payload)) for _ in range(options().get("items", 200))]
    driver.send(*items)
    await until(dut, lambda: output.taken == len(items), limit=LIMIT, what="the last item")
    await cycles(dut, 3)
    assert board.empty and output.taken == len(items)
    if shares == "filling":
        assert model.full_cycles, "the queue was never full"


@cocotb.test()
async def clear_empties(dut: Any) -> None:
    """``clear`` at any level; what is pushed in that cycle is lost."""
    numbers = rng(99)
    driver = StreamDriver(dut, "i")
    StreamSink(dut, "o", stall=pauses(numbers, 0.6))
    StreamMonitor(dut, "o", lambda item: None, dropped=lambda: bool(dut.clear.value))
    model = FifoModel(dut, options()["depth"])
    await start(dut)
    for _ in range(12):
        driver.send(*(numbers.getrandbits(len(dut.i__payload)) for _ in range(options()["depth"])))
        await cycles(dut, numbers.randint(1, 2 * options()["depth"]))
        dut.clear.value = 1
        await cycles(dut, 1)
        dut.clear.value = 0
        await cycles(dut, 1)
    await until(dut, lambda: not driver.waiting and not model.items, limit=LIMIT, what="an empty queue")
