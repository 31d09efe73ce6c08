"""The LOAD core against a row-by-row oracle for bytes and the timing rules for cycles."""

import random
from typing import Any

import pytest

from dovetail.hw.dma.load import LoadCore
from dovetail.isa.config.given import MemoryTiming
from dovetail.isa.config.resolved import Config
from dovetail.isa.instructions.table import PAGE_BYTES, REGISTERS, Cause, Unit
from dovetail.isa.timing.dma import Shape, read_duration
from dovetail.isa.timing.sequencer import CHECK
from tests.hw.benches import ReadMemory, simulate

MEMORY = 1 << 16
OFFSETS = 1 << 16
"""What offsets in a region are modulo: twice the SRAM."""
REGS = REGISTERS[Unit.LOAD]


def make(bus: int, timing: MemoryTiming, outstanding: int) -> Config:
    return Config(ic_lanes=4, oc_lanes=4, sram="32 KiB", banks=4, bus=bus, outstanding=outstanding, memory=timing)


def expected(memory: bytearray, sram: bytearray, bus_bytes: int, base: int, r: dict[str, int]) -> bool:
    """Carries the transfer out on ``sram``; false from the first beat outside the memory on."""
    rows, planes = r["COUNT"] & 0xFFFF, r["COUNT"] >> 16
    for plane in range(planes):
        for row in range(rows):
            address = (base + r["MEM_ADDR"] + plane * r["MEM_PLANE_STEP"] + row * r["MEM_ROW_STEP"]) % 2**32
            offset = (plane * r["SRAM_PLANE_STEP"] + row * r["SRAM_ROW_STEP"]) % OFFSETS
            end = address + r["LENGTH"]
            while address < end:
                stop = min(end, (address // bus_bytes + 1) * bus_bytes)
                if stop > len(memory):
                    return False
                size = stop - address
                if offset + size <= r["SRAM_BYTES"]:
                    sram[r["SRAM_ADDR"] + offset : r["SRAM_ADDR"] + offset + size] = memory[address:stop]
                offset, address = (offset + size) % OFFSETS, stop
    return True


class Bench:
    """Runs transfers one after another on one core."""

    def __init__(self, config: Config, base: int = 0, seed: int = 0) -> None:
        self.config, self.base = config, base
        self.core = LoadCore(config)
        self.memory = bytearray(random.Random(seed).randbytes(MEMORY))
        self.bus = ReadMemory(self.core.axi, self.memory, config.like_fixed)
        self.sram = bytearray(config.sram)
        self.pages = bytearray(2 * PAGE_BYTES)

    async def watch(self, ctx: Any) -> None:
        sram, page, width = self.core.sram, self.core.page, self.config.bus_bytes
        async for _, _, en, addr, size, data, p_en, p_row, p_data in ctx.tick().sample(
            sram.en, sram.addr, sram.size, sram.data, page.en, page.row, page.data
        ):
            if en:
                assert 0 < size <= width and addr + size <= len(self.sram)
                self.sram[addr : addr + size] = (data & (1 << 8 * size) - 1).to_bytes(size, "little")
            if p_en:
                self.pages[p_row * width : (p_row + 1) * width] = p_data.to_bytes(width, "little")

    async def configure(self, ctx: Any, values: dict[str, int]) -> None:
        core = self.core.core
        for name, value in values.items():
            ctx.set(core.cfg.en, 1)
            ctx.set(core.cfg.index, REGS[name].index)
            ctx.set(core.cfg.value, value)
            await ctx.tick()
        ctx.set(core.cfg.en, 0)

    async def operate(self, ctx: Any, *, page: int | None = None) -> tuple[Cause, int, int, int]:
        """Cause, banks, duration, error of one operation, or of a fetch from ``page``."""
        core = self.core.core
        ctx.set(core.start, 1)
        ctx.set(core.fetch, page is not None)
        ctx.set(core.address, page or 0)
        ctx.set(self.core.base, self.base)
        await ctx.tick()
        ctx.set(core.start, 0)
        await ctx.tick().repeat(CHECK - 1)
        cause, banks = Cause(ctx.get(core.cause)), ctx.get(core.writes)
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
        simulate(self.core, bench, background=(self.bus.run, self.watch))


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
    (32, MemoryTiming(read_latency=1, beat_cycles=1), 1),
    (32, MemoryTiming(read_latency=9, beat_cycles=2), 2),
    (64, MemoryTiming(read_latency=40, beat_cycles=1), 4),
    (64, MemoryTiming(read_latency=3, beat_cycles=5), 3),
    (128, MemoryTiming(read_latency=17, beat_cycles=1), 16),
    (256, MemoryTiming(read_latency=30, beat_cycles=3), 5),
    (512, MemoryTiming(read_latency=2, beat_cycles=1), 2),
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
        want = bytearray(config.sram)
        for _ in range(7):
            r = random_registers(rng, config)
            await bench.configure(ctx, r)
            cause, banks, cycles, error = await bench.operate(ctx)
            assert cause == Cause.NONE and not error
            assert expected(bench.memory, want, config.bus_bytes, bench.base, r)
            assert bench.sram == want
            rule = read_duration(
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


@pytest.mark.parametrize("bus", [32, 64, 128, 512])
def test_fetch(bus: int) -> None:
    config = make(bus, MemoryTiming(read_latency=5), 2)
    bench = Bench(config)

    async def run(ctx: Any) -> None:
        for page in (0x400, 0x1C00, 0x800):
            _, banks, cycles, error = await bench.operate(ctx, page=page)
            assert not banks and not error
            assert cycles == read_duration(config, Shape(page, 1, 1, 0, 0, PAGE_BYTES))
            half = page & PAGE_BYTES
            assert bench.pages[half : half + PAGE_BYTES] == bench.memory[page : page + PAGE_BYTES]
        assert not any(bench.sram)
        assert (await bench.operate(ctx, page=MEMORY))[3]
        assert not (await bench.operate(ctx, page=0x400))[3]

    bench.simulate(run)


GOOD = {"SRAM_BYTES": 8, "LENGTH": 4, "COUNT": 0x10001}
CHECKS = [
    ({}, Cause.ZERO_SIZE),
    (GOOD | {"LENGTH": 0}, Cause.ZERO_SIZE),
    (GOOD | {"SRAM_BYTES": 0}, Cause.ZERO_SIZE),
    (GOOD | {"COUNT": 0x10000}, Cause.ZERO_SIZE),
    (GOOD | {"COUNT": 1}, Cause.ZERO_SIZE),
    (GOOD | {"SRAM_ADDR": 0x8000, "LENGTH": 0}, Cause.ZERO_SIZE),
    (GOOD | {"SRAM_ADDR": 0x7FF9}, Cause.SRAM_RANGE),
    (GOOD | {"SRAM_ADDR": 0xFFFF_FFFC}, Cause.SRAM_RANGE),
    (GOOD | {"SRAM_BYTES": 0xFFFF_FFFF}, Cause.SRAM_RANGE),
    (GOOD | {"SRAM_ADDR": 0x7FF8}, Cause.NONE),
]


def test_checks() -> None:
    bench = Bench(make(64, MemoryTiming(read_latency=1), 2))

    async def run(ctx: Any) -> None:
        for values, cause in CHECKS:
            await bench.configure(ctx, dict.fromkeys(REGS, 0) | values)
            assert (await bench.operate(ctx))[0] == cause

    bench.simulate(run)


def test_bus_error() -> None:
    """Nothing is written from the first faulty beat on; the timing stays."""
    config = make(64, MemoryTiming(read_latency=4), 2)
    bench = Bench(config)
    r = dict.fromkeys(REGS, 0) | {
        "MEM_ADDR": MEMORY - 20,
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
        assert cycles == read_duration(config, Shape(r["MEM_ADDR"] % 4096, 2, 1, r["MEM_ROW_STEP"], 0, 40))
        want = bytearray(config.sram)
        assert not expected(bench.memory, want, 8, 0, r)
        assert any(want) and bench.sram == want

    bench.simulate(run)
