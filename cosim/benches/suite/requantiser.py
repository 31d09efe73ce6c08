"""Bench of the requantiser: random values on all lanes in every cycle against ``isa.numerics.requantise``.

Options: ``lanes``, ``latency``, ``seed``, ``rows`` (how many).
"""

import random
from typing import Any

import cocotb
import numpy as np
from cocotb.triggers import RisingEdge

from dovetail.cosim.benches.bench import Scoreboard, options, rng, start
from dovetail.isa.numerics.requantise import requantise
from dovetail.isa.numerics.rounding import Rounding


def random_row(numbers: random.Random, lanes: int) -> dict[str, Any]:
    """Operands of a cycle: lists for the lanes, integers for what they share. Corners are frequent."""
    corner = numbers.random() < 0.2
    edges = (0, 1, -1, (1 << 31) - 1, -(1 << 31), 1 << 24, (1 << 24) + 1)
    lo, hi = sorted((numbers.randint(-128, 127), numbers.randint(-128, 127)))
    return {
        "acc": [
            numbers.choice(edges) if corner else numbers.getrandbits(32) - (1 << 31) >> numbers.randrange(32)
            for _ in range(lanes)
        ],
        "mult": [numbers.getrandbits(31) >> numbers.choice((0, 0, 0, 7, 30)) for _ in range(lanes)],
        "shift": [numbers.randint(-32, 31) for _ in range(lanes)],
        "rounding": numbers.randrange(len(Rounding)),
        "zero_point": numbers.randint(-128, 127),
        "lo": lo,
        "hi": hi,
    }


def expected(row: dict[str, Any]) -> tuple[int, ...]:
    """What the lanes must give."""
    acc, mult, shift = (np.array(row[name], np.int64) for name in ("acc", "mult", "shift"))
    result = requantise(acc, mult, shift, Rounding(row["rounding"]), row["zero_point"], row["lo"], row["hi"])
    return tuple(int(value) for value in np.atleast_1d(result))


def packed(values: list[int], width: int) -> int:
    """Lanes in one integer, lane 0 lowest."""
    return sum((value & (1 << width) - 1) << n * width for n, value in enumerate(values))


@cocotb.test()
async def random_values(dut: Any) -> None:
    """A row a cycle, each with its own parameters, answered ``latency`` cycles later."""
    numbers, lanes, latency = rng(), options()["lanes"], options()["latency"]
    board = Scoreboard[tuple[int, ...]]("requantiser")
    await start(dut)
    rows = [random_row(numbers, lanes) for _ in range(options().get("rows", 500))]
    for cycle in range(len(rows) + latency):
        if cycle < len(rows):
            row = rows[cycle]
            board.expect(expected(row))
            for name, width in (("acc", 32), ("mult", 32), ("shift", 8)):
                getattr(dut, name).value = packed(row[name], width)
            for name in ("rounding", "zero_point", "lo", "hi"):
                port = getattr(dut, name)
                port.value = row[name] & (1 << len(port)) - 1
        await RisingEdge(dut.clk)
        if cycle >= latency:
            result = int(dut.result.value)
            board.check(tuple((result >> 8 * n & 0xFF ^ 0x80) - 0x80 for n in range(lanes)))
    assert board.empty
