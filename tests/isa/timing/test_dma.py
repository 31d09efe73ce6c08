"""The timing of transfers: the shortcut over equal bursts and rows against the plain recurrence, burst by burst."""

import random
import time

import pytest

from dovetail.isa.config.given import MemoryTiming
from dovetail.isa.config.resolved import Config
from dovetail.isa.timing.dma import (
    ADDRESS,
    PLACE,
    READ_END,
    WRITE_END,
    WRITE_FIRST,
    Shape,
    bursts,
    read_duration,
    write_duration,
)
from dovetail.isa.timing.sequencer import CHECK


def plain(config: Config, shape: Shape, *, write: bool) -> int:
    memory = config.like_fixed
    latency, answer = (1, memory.write_latency) if write else (memory.read_latency, 0)
    issue = CHECK
    last = issue + WRITE_FIRST - memory.beat_cycles if write else -memory.beat_cycles
    ends = [0] * config.outstanding
    for start in shape.starts():
        for _, _, beats in bursts(start, shape.length, config.bus_bytes):
            issue = max(issue + ADDRESS, ends.pop(0) + PLACE)
            last = max(issue + latency, last + memory.beat_cycles) + (beats - 1) * memory.beat_cycles
            ends.append(last + answer)
    return last + answer + WRITE_END if write else last + READ_END


def random_case(rng: random.Random) -> tuple[Config, Shape]:
    memory = MemoryTiming(
        read_latency=rng.choice([1, 2, rng.randint(1, 60), rng.randint(60, 900)]),
        write_latency=rng.choice([1, 2, rng.randint(1, 60), rng.randint(60, 900)]),
        beat_cycles=rng.choice([1, 1, 2, rng.randint(1, 11)]),
    )
    config = Config(bus=rng.choice([32, 64, 128, 256, 512]), outstanding=rng.randint(1, 16), memory=memory)
    length = rng.choice([rng.randint(1, 80), rng.randint(1, 5000), rng.randint(1, 300_000)])
    rows = rng.randint(1, max(1, min(200, 400_000 // length)))
    planes = rng.randint(1, max(1, min(30, 400_000 // (length * rows))))
    step = rng.choice([length, rng.randrange(4096), 64 * rng.randrange(64), rng.randrange(1 << 32)])
    plane = rng.choice([0, rng.randrange(4096), 512 * rng.randrange(8), rng.randrange(1 << 32), rows * step])
    return config, Shape(rng.randrange(1 << 32), rows, planes, step, plane, length)


@pytest.mark.parametrize("seed", range(4))
def test_shortcut_is_exact(seed: int) -> None:
    rng = random.Random(seed)
    for _ in range(60):
        config, shape = random_case(rng)
        assert read_duration(config, shape) == plain(config, shape, write=False), (config, shape)
        assert write_duration(config, shape) == plain(config, shape, write=True), (config, shape)


def test_address_matters_modulo_4096() -> None:
    config = Config()
    shape = Shape(0x123, 5, 4, 777, 12345, 999)
    moved = shape._replace(address=0x7000_0123)
    assert read_duration(config, shape) == read_duration(config, moved)


def test_by_hand() -> None:
    """One beat; then two bursts of which the second may only go out when the first has ended."""
    config = Config(bus=64, outstanding=1, memory=MemoryTiming(read_latency=10, write_latency=6, beat_cycles=1))
    assert read_duration(config, Shape(0, 1, 1, 0, 0, 8)) == 3 + 2 + 10 + 4
    assert write_duration(config, Shape(0, 1, 1, 0, 0, 8)) == 3 + 10 + 6 + 2
    assert read_duration(config, Shape(0, 1, 1, 0, 0, 4096)) == 3 + 2 + (10 + 255) + 2 + (10 + 255) + 4
    assert write_duration(config, Shape(0, 1, 1, 0, 0, 4096)) == 3 + 10 + 255 + 6 + 2 + 1 + 255 + 6 + 2


def test_bursts() -> None:
    assert list(bursts(4090, 10, 8)) == [(4090, 6, 1), (4096, 4, 1)]
    assert list(bursts(3, 2048, 8)) == [(3, 2045, 256), (2048, 3, 1)]
    assert list(bursts(0, 8192, 64)) == [(0, 4096, 64), (4096, 4096, 64)]


@pytest.mark.parametrize(
    "shape",
    [
        Shape(5, 1, 1, 0, 0, 0xFFFF_FFFF),
        Shape(5, 65535, 65535, 64, 4096, 64),
        Shape(0, 65535, 3, 1027, 999, 1),
        Shape(77, 65535, 65535, 4096, 0, 0xFFFF_FFFF),
    ],
)
def test_huge_transfers_are_fast(shape: Shape) -> None:
    begin = time.perf_counter()
    read_duration(Config(), shape)
    write_duration(Config(outstanding=16, bus=32), shape)
    assert time.perf_counter() - begin < 2
