"""The STORE core against a row-by-row oracle for bytes and the timing rules for cycles."""

import random
from typing import Any

import pytest

from dovetail.hw.dma.store import StoreCore
from dovetail.isa.config.given import MemoryTiming
from dovetail.isa.config.resolved import Config
from dovetail.isa.instructions.table import REGISTERS, Cause, Unit
from dovetail.isa.timing.dma import Shape, write_duration
from dovetail.isa.timing.memory import SRAM_READ
from dovetail.isa.timing.sequencer import CHECK
from tests.hw.benches import WriteMemory, simulate

MEMORY = 1 << 16
OFFSETS = 1 << 16
"""What offsets in a region are modulo: twice the SRAM."""
REGS = REGISTERS[Unit.STORE]


def make(bus: int, timing: MemoryTiming, outstanding: int) -> Config:
    return Config(ic_lanes=4, oc_lanes=4, sram="32 KiB", banks=4, bus=bus, outstanding=outstanding, memory=timing)


def expected(memory: bytearray, sram: bytes, bus_bytes: int, base: int, r: dict[str, int]) -> bool:
    """Carries the transfer out on ``memory``; whether all of it lay inside."""
    rows, planes = r["COUNT"] & 0xFFFF, r["COUNT"] >> 16
    good = True
    for plane in range(planes):
        for row in range(rows):
            address = (base + r["MEM_ADDR"] + plane * r["MEM_PLANE_STEP"] + row * r["MEM_ROW_STEP"]) % 2**32
            offset = (plane * r["SRAM_PLANE_STEP"] + row * r["SRAM_ROW_STEP"]) % OFFSETS
            end = address + r["LENGTH"]
            while address < end:
                stop = min(end, (address // bus_bytes + 1) * bus_bytes)
                size = stop - address
                source = r["SRAM_ADDR"] + offset
                data = sram[source : source + size] if offset + size <= r["SRAM_BYTES"] else bytes(size)
                if stop <= len(memory):
                    memory[address:stop] = data
                else:
                    good = False
                offset, address = (offset + size) % OFFSETS, stop
    return good


class Bench:
    """Runs transfers one after another on one core."""

    def __init__(self, config: Config, base: int = 0, seed: int = 0) -> None:
        self.config, self.base = config, base
        self.core = StoreCore(config)
        self.memory = bytearray(random.Random(seed).randbytes(MEMORY))
        self.bus = WriteMemory(self.core.axi, self.memory, config.like_fixed)
        self.sram = random.Random(seed + 1).randbytes(config.sram)

    async def serve(self, ctx: Any) -> None:
        port, width = self.core.sram, self.config.word_bytes
        later = [0] * SRAM_READ
        async for _, _, en, addr in ctx.tick().sample(port.en, port.addr):
            word = (self.sram * 2)[addr : addr + width] if en else bytes(width)
            later.append(int.from_bytes(word, "little"))
            ctx.set(port.data, later[-SRAM_READ])

    async def configure(self, ctx: Any, values: dict[str, int]) -> None:
        core = self.core.core
        for name, value in values.items():
            ctx.set(core.cfg.en, 1)
            ctx.set(core.cfg.index, REGS[name].index)
            ctx.set(core.cfg.value, value)
            await ctx.tick()
        ctx.set(core.cfg.en, 0)

    async def operate(self, ctx: Any) -> tuple[Cause, int, int, int]:
        """Cause, banks, duration, error of one operation."""
        core = self.core.core
        ctx.set(core.start, 1)
        ctx.set(self.core.base, self.base)
        await ctx.tick()
        ctx.set(core.start, 0)
        await ctx.tick().repeat(CHECK - 1)
        cause, banks = Cause(ctx.get(core.cause)), ctx.get(core.reads)
        if cause:
            return cause, banks, CHECK, 0
        ctx.set(core.go, 1)
        cycle = CHECK
        while not ctx.get(core.done):
            await ctx.tick()
            ctx.set(core.go, 0)
            cycle += 1
            assert cycle < 100_000
        error = ctx.get(core.error)
        await ctx.tick()
        return cause, banks, cycle, error

    def simulate(self, bench: Any) -> None:
        simulate(self.core, bench, background=(self.bus.run, self.serve))


def random_registers(rng: random.Random, config: Config) -> dict[str, int]:
    shape = rng.choice(["short", "short", "long", "any"])
    length = {"short": rng.randint(1, 24), "long": rng.randint(1500, 5000), "any": rng.randint(1, 900)}[shape]
    rows, planes = (rng.randint(1, 6), rng.randint(1, 3)) if shape != "long" else (rng.randint(1, 2), 1)
    size = rng.randint(1, config.sram)
    return {
        "MEM_ADDR": rng.randint(0, 20_000),
        "MEM_ROW_STEP": rng.randint(0, 4000),
        "MEM_PLANE_STEP": rng.randint(0, 2000),
        "SRAM_ADDR": rng.randint(0, config.sram - size),
        "SRAM_BYTES": size,
        "SRAM_ROW_STEP": rng.choice([rng.randint(0, 900), 2**32 - rng.randint(0, 900)]),
        "SRAM_PLANE_STEP": rng.choice([rng.randint(0, 900), 2**32 - rng.randint(0, 900)]),
        "LENGTH": length,
        "COUNT": rows | planes << 16,
    }


CASES = [
    (32, MemoryTiming(write_latency=1, beat_cycles=1), 1),
    (32, MemoryTiming(write_latency=9, beat_cycles=2), 2),
    (64, MemoryTiming(write_latency=20, beat_cycles=1), 4),
    (64, MemoryTiming(write_latency=3, beat_cycles=5), 3),
    (128, MemoryTiming(write_latency=17, beat_cycles=1), 16),
    (256, MemoryTiming(write_latency=30, beat_cycles=3), 5),
    (512, MemoryTiming(write_latency=2, beat_cycles=1), 2),
]


@pytest.mark.parametrize(("first", "last"), [(0, 0), (1, 2), (3, 3), (0, 3)])
def test_a_region_that_ends_with_a_bank_claims_no_other(first: int, last: int) -> None:
    config = make(*CASES[0])
    bench = Bench(config)
    start, end = first * config.bank_bytes, (last + 1) * config.bank_bytes

    async def run(ctx: Any) -> None:
        for begins, ends in ((start, end), (start, end - 1), (end - 1, end)):
            small = {"SRAM_ADDR": begins, "SRAM_BYTES": ends - begins, "LENGTH": 1, "COUNT": 1 | 1 << 16}
            await bench.configure(ctx, small)
            cause, banks, *_ = await bench.operate(ctx)
            assert cause == Cause.NONE
            touched = range(begins // config.bank_bytes, (ends - 1) // config.bank_bytes + 1)
            assert banks == sum(1 << bank for bank in touched)

    bench.simulate(run)


@pytest.mark.parametrize(("bus", "timing", "outstanding"), CASES)
def test_random_transfers(bus: int, timing: MemoryTiming, outstanding: int) -> None:
    config = make(bus, timing, outstanding)
    rng = random.Random(bus)
    bench = Bench(config, base=0x1000)

    async def run(ctx: Any) -> None:
        want = bytearray(bench.memory)
        for _ in range(7):
            r = random_registers(rng, config)
            await bench.configure(ctx, r)
            cause, banks, cycles, error = await bench.operate(ctx)
            assert cause == Cause.NONE and not error
            assert expected(want, bench.sram, config.bus_bytes, bench.base, r)
            assert bench.memory == want
            rule = write_duration(
                config,
                Shape(
                    r["MEM_ADDR"] % 4096,
                    r["COUNT"] & 0xFFFF,
                    r["COUNT"] >> 16,
                    r["MEM_ROW_STEP"],
                    r["MEM_PLANE_STEP"],
                    r["LENGTH"],
                ),
            )
            assert cycles == rule
            first, last = (a // config.bank_bytes for a in (r["SRAM_ADDR"], r["SRAM_ADDR"] + r["SRAM_BYTES"] - 1))
            assert banks == sum(1 << bank for bank in range(first, last + 1))

    bench.simulate(run)
    assert bench.bus.most_in_flight <= outstanding


def test_checks() -> None:
    """The rest of the table is LOAD's: both use the same block."""
    bench = Bench(make(64, MemoryTiming(write_latency=1), 2))
    good = {"SRAM_BYTES": 8, "LENGTH": 4, "COUNT": 0x10001}

    async def run(ctx: Any) -> None:
        for values, cause in (({}, Cause.ZERO_SIZE), ({"SRAM_ADDR": 0x7FF9}, Cause.SRAM_RANGE), (good, Cause.NONE)):
            await bench.configure(ctx, dict.fromkeys(REGS, 0) | (good | values if values else {}))
            assert (await bench.operate(ctx))[0] == cause

    bench.simulate(run)


def test_bus_error() -> None:
    config = make(64, MemoryTiming(write_latency=4), 2)
    bench = Bench(config)
    r = dict.fromkeys(REGS, 0) | {
        "MEM_ADDR": MEMORY - 24,
        "MEM_ROW_STEP": 2**32 - 64,
        "SRAM_BYTES": 4096,
        "SRAM_ROW_STEP": 64,
        "LENGTH": 40,
        "COUNT": 0x10002,
    }

    async def run(ctx: Any) -> None:
        await bench.configure(ctx, r)
        _, _, cycles, error = await bench.operate(ctx)
        assert error
        assert cycles == write_duration(config, Shape(r["MEM_ADDR"] % 4096, 2, 1, r["MEM_ROW_STEP"], 0, 40))
        await bench.configure(ctx, {"MEM_ADDR": 4096})
        assert not (await bench.operate(ctx))[3]

    bench.simulate(run)
