"""The UART: bits on the line against a plain list of levels, at the rates and errors that are promised."""

import random
from collections.abc import Iterator
from typing import Any

import pytest

from dovetail.hw.board.uart import Receiver, Transmitter, divisor_of
from tests.hw.benches import simulate


def levels(data: bytes, bit: float, *, stop: int = 1, gap: int = 0) -> Iterator[int]:
    """The line, cycle by cycle, with bits of ``bit`` cycles; ``stop`` is the level of the stop bits."""
    end = cycle = 0.0
    for byte in data:
        for level in (0, *(byte >> n & 1 for n in range(8)), stop, *[1] * gap):
            end += bit
            while cycle < end:
                yield level
                cycle += 1


def receive(line: list[int], divisor: int) -> tuple[bytes, int]:
    """The bytes that a receiver finds, and its ticks."""
    receiver: Any = Receiver(divisor=divisor)
    found = bytearray()
    ticks = 0

    async def bench(ctx: Any) -> None:
        nonlocal ticks
        for level in [1] * 8 + line + [1] * (4 * divisor):
            ctx.set(receiver.rx, level)
            if ctx.get(receiver.valid):
                found.append(ctx.get(receiver.data))
            ticks += ctx.get(receiver.tick)
            await ctx.tick()

    simulate(receiver, bench)
    return bytes(found), ticks


@pytest.mark.parametrize("divisor", [4, 5, 9, 16])
@pytest.mark.parametrize("error", [-0.02, 0, 0.02])
def test_receiver(divisor: int, error: float) -> None:
    data = random.Random(divisor).randbytes(40) + b"\x00\xff\x55"
    assert receive(list(levels(data, divisor * (1 + error))), divisor)[0] == data


def test_a_byte_without_a_stop_bit_is_dropped() -> None:
    bad = list(levels(b"A", 8, stop=0))
    line = list(levels(b"12", 8)) + bad + [1] * 8 + list(levels(b"3", 8)) + [0] * 200 + [1] * 8 + list(levels(b"4", 8))
    assert receive(line, 8)[0] == b"1234"


def test_a_short_dip_is_no_start_bit() -> None:
    assert receive([0] * 3 + [1] * 20 + list(levels(b"x", 8)), 8)[0] == b"x"


def test_ticks_count_idle_bit_times() -> None:
    found, idle = receive([1] * 800, 8)
    assert found == b"" and idle == 105  # with 8 cycles before and 32 after
    found, low = receive([0] * 800, 8)
    assert found == b"" and low <= 6


@pytest.mark.parametrize("divisor", [4, 7])
def test_transmitter(divisor: int) -> None:
    """Every byte as it must be, one right behind the other."""
    data = random.Random(divisor).randbytes(20)
    transmitter: Any = Transmitter(divisor=divisor)
    line: list[int] = []

    async def bench(ctx: Any) -> None:
        assert ctx.get(transmitter.idle)
        for byte in data:
            ctx.set(transmitter.i.payload, byte)
            ctx.set(transmitter.i.valid, 1)
            while not ctx.get(transmitter.i.ready):
                line.append(ctx.get(transmitter.tx))
                await ctx.tick()
            line.append(ctx.get(transmitter.tx))
            await ctx.tick()
        ctx.set(transmitter.i.valid, 0)
        while not ctx.get(transmitter.idle):
            line.append(ctx.get(transmitter.tx))
            await ctx.tick()
        line.append(ctx.get(transmitter.tx))

    simulate(transmitter, bench)
    assert line == [1, *levels(data, divisor)]


def test_divisors() -> None:
    assert divisor_of(25_000_000, 115_200) == 217
    assert divisor_of(12_000_000, 3_000_000) == 4
    with pytest.raises(ValueError, match="baud must be at most 3000000 with a clock of 12000000 Hz, not 4000000"):
        divisor_of(12_000_000, 4_000_000)
    with pytest.raises(ValueError, match=r"baud must be within 2% of 25000000 Hz / 8 = 3125000, not 3000000"):
        divisor_of(25_000_000, 3_000_000)
    with pytest.raises(ValueError, match="baud must be at least 1, not 0"):
        divisor_of(25_000_000, 0)
    with pytest.raises(ValueError, match="divisor must be at least 4, not 3"):
        Receiver(divisor=3)
