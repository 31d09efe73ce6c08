"""A test of one's own for the queue, made of the library's parts."""

from typing import Any

import cocotb

from dovetail.cosim.benches.bench import Scoreboard, options, pauses, rng, start, until
from dovetail.cosim.benches.streams import StreamDriver, StreamMonitor, StreamSink


@cocotb.test()
async def runs_at_full_rate_after_a_jam(dut: Any) -> None:
    """Filled up behind a slow sink, then drained by a fast one."""
    numbers, depth = rng(), options()["depth"]
    slow = iter(pauses(numbers, 0.9))
    jammed = [True]

    def stall() -> Any:
        while True:
            yield next(slow) if jammed[0] else False

    board = Scoreboard[int]("queue", hex)
    driver = StreamDriver(dut, "i")
    StreamSink(dut, "o", stall=stall())
    monitor_in = StreamMonitor(dut, "i", board.expect)
    monitor_out = StreamMonitor(dut, "o", board.check)
    await start(dut)
    driver.send(*(numbers.getrandbits(74) for _ in range(40)))
    await until(dut, lambda: monitor_in.taken - monitor_out.taken == depth, limit=200, what="a full queue")
    jammed[0] = False
    await until(dut, lambda: monitor_out.taken == 40, limit=60, what="the last item")
    assert board.empty
    dut._log.info(f"{monitor_out.stalled} cycles stalled, {monitor_out.idle} idle")
