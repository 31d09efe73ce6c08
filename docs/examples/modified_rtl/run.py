"""Modified RTL in the library's benches: a queue in Verilog, a requantiser in Amaranth; and a bench of one's own."""

import sys
from pathlib import Path

from requantiser import RegisteredRequantiser

from dovetail.cosim.benches.runner import BenchError, run

HERE = Path(__file__).resolve().parent
SUITE = "dovetail.cosim.benches.suite"
cache = Path(sys.argv[1]) if len(sys.argv) > 1 else None  # of the builds; None: the usual one

# The library's bench on a Verilog file with the same ports: every cycle against the model of a queue.
count = run(HERE / "shift_queue.v", f"{SUITE}.fifo", options={"depth": 4}, cache=cache)
print(f"shift_queue.v: {count} tests of the library passed")

# One's own bench, from the same drivers, monitors and scoreboard.
count = run(HERE / "shift_queue.v", "occupancy_bench", options={"depth": 4}, cache=cache)
print(f"shift_queue.v: {count} test of one's own passed")

# A component with other internals: the numbers are right, a cycle later, and the bench knows it.
lanes, latency = 1, RegisteredRequantiser.LATENCY
count = run(
    RegisteredRequantiser(lanes=lanes),
    f"{SUITE}.requantiser",
    options={"lanes": lanes, "latency": latency},
    cache=cache,
)
print(f"RegisteredRequantiser: {count} test of the library passed at latency {latency}")

# At the latency that the timing rules promise, the scoreboard finds the difference.
try:
    settings = {"lanes": lanes, "latency": latency - 1}
    run(RegisteredRequantiser(lanes=lanes), f"{SUITE}.requantiser", options=settings, cache=cache)
except BenchError as error:
    print(f"RegisteredRequantiser at latency {latency - 1}: {str(error).splitlines()[0]}")
